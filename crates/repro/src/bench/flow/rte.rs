//! rte_hash with keys of 16 or 4 bytes. Its data are 8 bytes: half a value stored in the entry, or a pointer to a whole
//! one.
//!
//! An entry has 32 bytes, of which key and data fill 24. With whole values in the entry, as Le Scouarnec modified
//! `rte_hash` for his comparison, the same lines would be read. So `rte_hash` is his contestant, less one load from a
//! line already in cache; `rte_hash-pointer` is the cost of 16-byte values with the library unmodified.

#[cfg(not(feature = "dpdk"))]
pub(super) fn new(
    is_pointer: bool,
    _is_small: bool,
    _capacity: usize,
) -> Result<Box<dyn super::sides::Side>, crate::BenchError> {
    let contestant = if is_pointer { "rte_hash-pointer" } else { "rte_hash" };
    Err(crate::BenchError::Unavailable { contestant, reason: "not built in; `make bench` installs it".into() })
}

#[cfg(feature = "dpdk")]
pub(super) use linked::new;

#[cfg(feature = "dpdk")]
mod linked {
    #![expect(unsafe_code, reason = "calls the C shim, and follows the pointers that it gave to the table")]

    use std::ffi::c_void;
    use std::ptr::NonNull;

    use lookup::flow::Split;

    use super::super::floor::prefetch;
    use super::super::sides::{Flow, Key, MAX_BATCH, Side, Value, small_value};
    use crate::BenchError;
    use crate::contestants::dpdk as rte;
    use crate::contestants::{Calls, fetch_ahead};
    use crate::pages::Pages;

    struct Rte {
        table: NonNull<rte::RteHash>,
        /// The whole values, where data are pointers.
        values: Option<Pages>,
        n_values: usize,
        is_small: bool,
        bytes: u64,
        note: &'static str,
    }

    // SAFETY: a table may be used by any thread; `&mut self` for writes, and lookups only read.
    unsafe impl Send for Rte {}
    // SAFETY: as above.
    unsafe impl Sync for Rte {}

    pub(in super::super) fn new(
        is_pointer: bool,
        is_small: bool,
        capacity: usize,
    ) -> Result<Box<dyn Side>, BenchError> {
        let contestant = if is_pointer { "rte_hash-pointer" } else { "rte_hash" };
        let build = |reason: &str| BenchError::Build {
            contestant: contestant.into(),
            n: capacity as u64,
            reason: reason.into(),
        };
        let note = rte::started(0)?;
        let n_max = u32::try_from(capacity).map_err(|_| build("at most 2^30 entries"))?;
        let (name, key_len) = (rte::unique_name("flow"), if is_small { 4 } else { 16 });
        // SAFETY: DPDK is started; tables are made on the bench's main thread only.
        let (before, table) =
            unsafe { (rte::fibula_heap_bytes(), rte::fibula_hash_new(name.as_ptr(), n_max, key_len, 0)) };
        let table = NonNull::new(table).ok_or_else(|| build("no memory: reserve more huge pages, or lower n"))?;
        // SAFETY: as above.
        let bytes = unsafe { rte::fibula_heap_bytes() } - before;
        let values = is_pointer.then(|| Pages::zeroed(capacity * size_of::<Value>()));
        Ok(Box::new(Rte { table, values, n_values: 0, is_small, bytes, note }))
    }

    impl Drop for Rte {
        fn drop(&mut self) {
            // SAFETY: made by `fibula_hash_new`, and nothing else has it.
            unsafe { rte::fibula_hash_free(self.table.as_ptr()) }
        }
    }

    impl Side for Rte {
        fn insert(&mut self, keys: &[Key]) -> Result<(), String> {
            let mut data = [std::ptr::null_mut::<c_void>(); MAX_BATCH];
            for keys in keys.chunks(MAX_BATCH) {
                for (data, key) in data.iter_mut().zip(keys) {
                    let value = <Split<2, 2> as Flow>::value(key);
                    *data = match &mut self.values {
                        None if self.is_small => std::ptr::without_provenance_mut(small_value(key) as usize),
                        None => std::ptr::without_provenance_mut(value[0] as usize),
                        Some(values) => {
                            let place = values[self.n_values * size_of::<Value>()..].as_mut_ptr().cast::<Value>();
                            self.n_values += 1;
                            // SAFETY: within the array, whose start is aligned to a page.
                            unsafe { place.write(value) };
                            place.cast()
                        }
                    };
                }
                // SAFETY: a live table, arrays of the given length, nothing else uses it.
                let rc = unsafe {
                    rte::fibula_flow_add(self.table.as_ptr(), keys.as_ptr().cast(), data.as_ptr(), keys.len())
                };
                if rc < 0 {
                    return Err(format!("adding a key failed: {}", std::io::Error::from_raw_os_error(-rc)));
                }
            }
            Ok(())
        }

        fn sum(&self, queries: &[Key], calls: Calls, passes: u64) -> u64 {
            let mut data = [std::ptr::null_mut::<c_void>(); MAX_BATCH];
            let mut sum = 0u64;
            for _ in 0..passes {
                for keys in queries.chunks(calls.batch) {
                    fetch_ahead(keys);
                    let table = self.table.as_ptr();
                    // SAFETY: a live table, arrays of the given length; nothing writes concurrently.
                    let hits =
                        unsafe { rte::fibula_flow_lookup(table, keys.as_ptr().cast(), data.as_mut_ptr(), keys.len()) };
                    if self.values.is_some() {
                        for_each(hits, |i| prefetch(data[i].cast()));
                        for_each(hits, |i| {
                            // SAFETY: what was inserted: pointers into `values`, which lives as long as the table.
                            let [first, second] = unsafe { data[i].cast::<Value>().read() };
                            sum = sum.wrapping_add(first).wrapping_add(second);
                        });
                    } else if self.is_small {
                        for_each(hits, |i| sum = sum.wrapping_add(data[i] as u64));
                    } else {
                        for_each(hits, |i| {
                            let first = data[i] as u64;
                            sum = sum.wrapping_add(first).wrapping_add(first.rotate_left(23));
                        });
                    }
                }
            }
            sum
        }

        fn bytes(&self) -> u64 {
            self.bytes + self.values.as_ref().map_or(0, |values| values.len() as u64)
        }

        fn note(&self) -> String {
            self.note.into()
        }
    }

    #[inline(always)]
    fn for_each(mut hits: u64, mut visit: impl FnMut(usize)) {
        while hits != 0 {
            visit(hits.trailing_zeros() as usize);
            hits &= hits - 1;
        }
    }
}
