//! The Rust part of the Python package `fibula`: its module `fibula._native`.
//!
//! | module | what |
//! |---|---|
//! | `arrays` | numpy arrays as slices; names one after the other |
//! | `fib`, `burst` | FIBs; lookups of packed names in bursts, two of them in flight |
//! | `filter` | Bloom filters, of any layout, with or without counters |
//! | `flow` | flow tables of keys of 8, 16 and 40 bytes |
//! | `lpm` | tables of IP prefixes |
//! | `rules` | lists of rules over five-tuples |
//! | `rate` | the same lookups without Python, to compare with |
//!
//! The Python beside it (`python/fibula`) checks what users give, and has the words for what is wrong with it. What comes
//! here is contiguous and of the right type. Whatever takes long runs without the interpreter's lock.
//! Cost: some microseconds a call, and next to nothing a name: `python -m fibula.rate` measures it beside Rust.
//! Limits: names of a FIB lie in memory once more, packed, while it is built.

mod arrays;
mod burst;
mod fib;
mod filter;
mod flow;
mod lpm;
mod rate;
mod rules;

use pyo3::prelude::*;
use pyo3::types::PyBytes;

/// The descriptors of the controller's service, and of all that it imports.
static NORTHBOUND: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/northbound.binpb"));

/// A serialised `google.protobuf.FileDescriptorSet` of `fibula.v1.Northbound`.
#[pyfunction]
fn northbound_descriptors(py: Python<'_>) -> Bound<'_, PyBytes> {
    PyBytes::new(py, NORTHBOUND)
}

/// The native half of the package.
#[pymodule]
#[pyo3(name = "_native")]
fn native(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add("__version__", env!("CARGO_PKG_VERSION"))?;
    module.add_class::<fib::Fib>()?;
    module.add_class::<filter::Filter>()?;
    module.add_class::<flow::FlowTable>()?;
    module.add_class::<lpm::PrefixTable>()?;
    module.add_class::<rules::RuleTable>()?;
    module.add_class::<rate::RustRate>()?;
    module.add_function(wrap_pyfunction!(arrays::name_width, module)?)?;
    module.add_function(wrap_pyfunction!(arrays::parse_names, module)?)?;
    module.add_function(wrap_pyfunction!(arrays::format_names, module)?)?;
    module.add_function(wrap_pyfunction!(fib::designs, module)?)?;
    module.add_function(wrap_pyfunction!(filter::layouts, module)?)?;
    module.add_function(wrap_pyfunction!(northbound_descriptors, module)?)?;
    Ok(())
}
