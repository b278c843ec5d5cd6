//! `c/include/fibula.h`: the same tables, written as FIB files and looked up in by C, in a loop in C.
//!
//! It is compiled by the C compiler that `CC` names. It chooses AVX2 on its own and has no loops for AVX-512: compare it
//! with `concise`, `ofw` and `line` under `FIBULA_KERNEL=avx2`.

#![expect(unsafe_code, reason = "calls the header, compiled")]

use std::ffi::{CStr, c_char, c_void};
use std::ptr::NonNull;

use fib::action::{Action, PortId};
use fib::designs::Spec;
use fib::file;
use fib::name::NameKind;
use lookup::traits::Replicated;

use super::{Burst, Calls, Contestant, Input, Kind, Reader, concise, line};
use crate::BenchError;

pub(super) const CONCISE: Kind = Kind {
    name: "concise-c",
    about: "the FIB file of concise, by c/include/fibula.h",
    build: |input| build("concise-c", "concise", input, concise::query),
    default: false,
};
pub(super) const OFW: Kind = Kind {
    name: "ofw-c",
    about: "the FIB file of ofw, by c/include/fibula.h",
    build: |input| build("ofw-c", "ofw", input, concise::ofw_query),
    default: false,
};
pub(super) const LINE: Kind = Kind {
    name: "line-c",
    about: "the FIB file of line, by c/include/fibula.h",
    build: |input| build("line-c", "line", input, line::query),
    default: false,
};

/// `struct fibula_fib`.
#[repr(C)]
struct Opened([u8; 0]);

unsafe extern "C" {
    fn fibula_header_load(bytes: *const c_void, len: usize, why: *mut c_char) -> *mut Opened;
    fn fibula_header_free(fib: *mut Opened);
    fn fibula_header_bytes(fib: *const Opened) -> u64;
    fn fibula_header_compiler() -> *const c_char;
    fn fibula_header_sum(fib: *const Opened, names: *const u64, n: usize, len: usize, batch: usize, passes: u64)
    -> u64;
    fn fibula_header_values(fib: *const Opened, names: *const u64, n: usize, len: usize, values: *mut u64);
}

/// `FIBULA_WHY`.
const WHY_BYTES: usize = 160;

struct Header {
    fib: NonNull<Opened>,
    name_len: usize,
}

// SAFETY: any number of threads may look up in one table.
unsafe impl Sync for Header {}

/// The file of a table of the contestant in Rust, loaded.
fn build<Q: Replicated>(
    contestant: &'static str,
    design: &str,
    input: &Input<'_>,
    query: impl Fn(&'static str, &Input<'_>) -> Result<(Q, u8), BenchError>,
) -> Result<Box<dyn Contestant>, BenchError> {
    if input.value_bits > 16 {
        let reason = format!("values of FIB files have at most 16 bits, not {}", input.value_bits);
        return Err(BenchError::Unavailable { contestant, reason });
    }
    let (query, fingerprint_bits) = query(contestant, input)?;
    let design = crate::design(design).expect("a design");
    let kind = if input.name_len == 6 { NameKind::Mac } else { NameKind::Fixed(input.name_len as u8) };
    let n_names = input.names.len();
    let mut spec = Spec::new(design, kind, input.family, input.secret_key(), input.value_bits, n_names);
    spec.fingerprint_bits = fingerprint_bits;
    let mut image = Vec::new();
    Q::encode_update(&query.settings(), &Q::update_of(query.images()), &mut image);
    drop(query);
    let ports = (1..1u32 << input.value_bits).map(|port| Action::Port(PortId(port as u16)));
    let actions: Vec<Action> = std::iter::once(Action::Drop).chain(ports).collect();
    let bytes = file::encode(&spec, n_names as u64, &actions, &image);
    let mut why: [c_char; WHY_BYTES] = [0; WHY_BYTES];
    // SAFETY: so many bytes, and room for a reason.
    let fib = unsafe { fibula_header_load(bytes.as_ptr().cast(), bytes.len(), why.as_mut_ptr()) };
    let fib = NonNull::new(fib).ok_or_else(|| {
        // SAFETY: a text that ends with 0, also if there is none.
        let why = unsafe { CStr::from_ptr(why.as_ptr()) };
        input.build_error(contestant, why.to_string_lossy())
    })?;
    Ok(Box::new(Header { fib, name_len: input.name_len }))
}

impl Drop for Header {
    fn drop(&mut self) {
        // SAFETY: loaded by `build`, and freed once.
        unsafe { fibula_header_free(self.fib.as_ptr()) };
    }
}

impl Contestant for Header {
    fn size_bits(&self) -> u64 {
        // SAFETY: a table that is not freed.
        8 * unsafe { fibula_header_bytes(self.fib.as_ptr()) }
    }

    fn reader(&self) -> Box<dyn Reader + '_> {
        Box::new(HeaderReader(self))
    }

    fn note(&self) -> String {
        // SAFETY: a constant text.
        let compiler = unsafe { CStr::from_ptr(fibula_header_compiler()) };
        compiler.to_string_lossy().into_owned()
    }
}

struct HeaderReader<'a>(&'a Header);

impl Reader for HeaderReader<'_> {
    fn has_phases(&self) -> bool {
        false
    }

    fn sum(&mut self, queries: &[u64], calls: Calls, passes: u64) -> u64 {
        let Header { fib, name_len } = self.0;
        // SAFETY: a table that is not freed, and so many names.
        unsafe { fibula_header_sum(fib.as_ptr(), queries.as_ptr(), queries.len(), *name_len, calls.batch, passes) }
    }

    fn first_wrong(&mut self, queries: &[u64], calls: Calls, value_bits: u8) -> Option<(u64, u64, u64)> {
        super::first_wrong(&mut ByValues(self.0), queries, Calls { in_flight: 1, ..calls }, value_bits)
    }
}

/// Bursts whose values are wanted one by one.
struct ByValues<'a>(&'a Header);

impl Burst for ByValues<'_> {
    fn lookup(&mut self, names: &[u64], values: &mut [u64]) {
        let Header { fib, name_len } = self.0;
        // SAFETY: a table that is not freed, so many names, and as many values.
        unsafe { fibula_header_values(fib.as_ptr(), names.as_ptr(), names.len(), *name_len, values.as_mut_ptr()) };
    }
}
