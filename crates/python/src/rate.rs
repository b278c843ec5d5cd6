//! The same lookups as a Rust program makes them, without Python in between: what numpy batches are compared with.

use crate::arrays::NamesArg;
use crate::burst::{Hashed, look_up};
use crate::fib::Fib;
use ::fib::action::Action;
use ::fib::name::Name;
use pyo3::prelude::*;
use std::hint::black_box;
use std::time::Instant;

/// A FIB with names to look up in it.
#[pyclass(module = "fibula._native", frozen)]
pub(crate) struct RustRate {
    fib: Py<Fib>,
    names: Vec<Name>,
}

#[pymethods]
impl RustRate {
    #[new]
    fn new(fib: Bound<'_, Fib>, names: NamesArg<'_>) -> PyResult<RustRate> {
        let kind = fib.get().kind;
        let names = names.borrow()?.packed(kind)?.names(kind)?;
        Ok(RustRate { fib: fib.unbind(), names })
    }

    /// Seconds of one pass over packed names by the reader of the table, two bursts in flight, as a switch looks names up.
    fn packed(&self, py: Python<'_>, names: NamesArg<'_>) -> PyResult<f64> {
        let fib = self.fib.get();
        let names = names.borrow()?;
        let names = Hashed { names: names.packed(fib.kind)?, hasher: &fib.hasher };
        // Written to, so that no page of it is new to the pass.
        let mut values = vec![u16::MAX; names.names.len()];
        Ok(py.detach(|| {
            fib.with_reader(|reader| {
                let start = Instant::now();
                look_up(reader, fib.n_actions, &names, &mut values);
                black_box(&values);
                start.elapsed().as_secs_f64()
            })
        }))
    }

    /// Seconds of one pass of `fib::file::Fib::lookup_batch` over the same names.
    fn library(&self, py: Python<'_>) -> f64 {
        let names: Vec<&Name> = self.names.iter().collect();
        py.detach(|| {
            self.fib.get().with(|fib| {
                let start = Instant::now();
                let mut n_dropped = 0u64;
                fib.lookup_batch(&names, |_, action| n_dropped += u64::from(action == Action::Drop));
                black_box(n_dropped);
                start.elapsed().as_secs_f64()
            })
        })
    }
}
