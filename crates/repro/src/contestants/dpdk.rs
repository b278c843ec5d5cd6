//! The tables of DPDK: rte_hash (cuckoo hashing, full names) and rte_efd (values by searched hash functions, no names),
//! through the shim in `c/dpdk`. Only with feature `dpdk`.
//!
//! rte_hash runs with 8-byte keys, 8-byte data, CRC32 hashing and its bulk lookup: once with the default flags (no
//! concurrent writer) and once with lock-free readers concurrent with a writer. rte_efd holds values of 8 bits.

#[cfg(feature = "dpdk")]
pub(crate) use linked::*;
#[cfg(not(feature = "dpdk"))]
pub(crate) use missing::*;

#[cfg(not(feature = "dpdk"))]
mod missing {
    use super::super::{Contestant, Input, Kind};
    use crate::BenchError;

    pub(crate) fn start(_bytes: u64) -> Result<(), BenchError> {
        Ok(())
    }

    fn unavailable(contestant: &'static str) -> Result<Box<dyn Contestant>, BenchError> {
        Err(BenchError::Unavailable { contestant, reason: "not built in; `make bench` installs it".into() })
    }

    pub(crate) const HASH: Kind = Kind {
        name: "rte_hash",
        about: "DPDK's hash table (not built in; `make bench` installs it)",
        build: |_: &Input<'_>| unavailable("rte_hash"),
        default: true,
    };
    pub(crate) const HASH_LF: Kind = Kind {
        name: "rte_hash-lf",
        about: "the same with lock-free readers (not built in; `make bench` installs it)",
        build: |_: &Input<'_>| unavailable("rte_hash-lf"),
        default: false,
    };
    pub(crate) const EFD: Kind = Kind {
        name: "rte_efd",
        about: "DPDK's elastic flow distributor (not built in; `make bench` installs it)",
        build: |_: &Input<'_>| unavailable("rte_efd"),
        default: true,
    };
}

#[cfg(feature = "dpdk")]
mod linked {
    #![expect(unsafe_code, reason = "calls the C shim")]

    use std::ffi::{CString, c_char, c_int, c_uint, c_void};
    use std::fs;
    use std::ptr::NonNull;
    use std::sync::OnceLock;
    use std::sync::atomic::{AtomicU64, Ordering};

    use super::super::{Burst, Contestant, Input, Kind, Reader};
    use crate::BenchError;

    pub(crate) const HASH: Kind = Kind {
        name: "rte_hash",
        about: "DPDK's hash table with full names, bulk lookup, default flags (no writer beside readers)",
        build: |input| Ok(Box::new(Hash::build("rte_hash", input, input.names.len(), false)?)),
        default: true,
    };
    pub(crate) const HASH_LF: Kind = Kind {
        name: "rte_hash-lf",
        about: "the same with lock-free readers beside a writer",
        build: |input| Ok(Box::new(Hash::build("rte_hash-lf", input, input.names.len(), true)?)),
        default: false,
    };
    pub(crate) const EFD: Kind = Kind {
        name: "rte_efd",
        about: "DPDK's elastic flow distributor: 8-bit values, no names, bulk lookup",
        build: |input| Ok(Box::new(Efd::build(input)?)),
        default: true,
    };

    /// `struct rte_hash` and `struct rte_efd_table`, used through pointers only.
    #[repr(C)]
    pub(crate) struct RteHash([u8; 0]);
    #[repr(C)]
    struct RteEfd([u8; 0]);

    unsafe extern "C" {
        fn fibula_eal_start(huge: c_int, mem_mb: c_uint) -> c_int;
        pub(crate) fn fibula_heap_bytes() -> u64;
        pub(crate) fn fibula_hash_new(name: *const c_char, n_max: u32, key_len: u32, lock_free: c_int) -> *mut RteHash;
        pub(crate) fn fibula_hash_free(table: *mut RteHash);
        fn fibula_hash_add(table: *mut RteHash, keys: *const u64, values: *const u64, n: usize) -> c_int;
        fn fibula_hash_remove(table: *mut RteHash, keys: *const u64, n: usize) -> c_int;
        fn fibula_hash_lookup(table: *const RteHash, keys: *const u64, values: *mut u64, n: usize);
        pub(crate) fn fibula_flow_add(
            table: *mut RteHash,
            keys: *const u64,
            data: *const *mut c_void,
            n: usize,
        ) -> c_int;
        pub(crate) fn fibula_flow_lookup(
            table: *const RteHash,
            keys: *const u64,
            data: *mut *mut c_void,
            n: usize,
        ) -> u64;
        fn fibula_efd_new(name: *const c_char, n_max: u32) -> *mut RteEfd;
        fn fibula_efd_free(table: *mut RteEfd);
        fn fibula_efd_add(table: *mut RteEfd, keys: *const u64, values: *const u64, n: usize) -> c_int;
        fn fibula_efd_lookup(table: *const RteEfd, keys: *const u64, values: *mut u64, n: usize);
    }

    static STARTED: OnceLock<Result<&'static str, String>> = OnceLock::new();

    /// Starts DPDK's environment, once per process, with space for tables of `bytes` in all. Reserved huge pages are
    /// used if enough are free.
    /// # Errors
    /// [`BenchError::Unavailable`].
    pub(crate) fn start(bytes: u64) -> Result<(), BenchError> {
        started(bytes).map(|_| ())
    }

    /// The kind of pages that tables are on.
    pub(crate) fn started(bytes: u64) -> Result<&'static str, BenchError> {
        let result = STARTED.get_or_init(|| {
            let free = fs::read_to_string("/sys/kernel/mm/hugepages/hugepages-2048kB/free_hugepages");
            let free: u64 = free.ok().and_then(|text| text.trim().parse().ok()).unwrap_or(0);
            let huge = free << 21 >= bytes;
            let mem_mb = c_uint::try_from(bytes >> 20).unwrap_or(c_uint::MAX);
            // SAFETY: called once, with plain numbers.
            match unsafe { fibula_eal_start(huge.into(), mem_mb) } {
                0 if huge => Ok("on reserved huge pages"),
                0 => Ok("on small pages; `make bench` reserves huge ones"),
                rc => Err(format!("DPDK does not start: {}", std::io::Error::from_raw_os_error(-rc))),
            }
        });
        result.clone().map_err(|reason| BenchError::Unavailable { contestant: "DPDK", reason })
    }

    /// DPDK finds tables by name: no two may have the same at once.
    pub(crate) fn unique_name(prefix: &str) -> CString {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        CString::new(format!("{prefix}{}", NEXT.fetch_add(1, Ordering::Relaxed))).expect("no zero byte")
    }

    /// Default memory: a table of the size of this input, twice.
    fn memory_wanted(n_names: usize) -> u64 {
        (512 << 20) + 160 * n_names as u64
    }

    /// A table of rte_hash.
    pub(crate) struct Hash {
        table: NonNull<RteHash>,
        contestant: &'static str,
        bytes: u64,
        note: &'static str,
    }

    impl Hash {
        /// The table of `input`, with capacity for `max_names`.
        pub(crate) fn build(
            contestant: &'static str,
            input: &Input<'_>,
            max_names: usize,
            lock_free: bool,
        ) -> Result<Self, BenchError> {
            let note = started(memory_wanted(max_names))?;
            let n_max = u32::try_from(max_names + max_names / 16 + 64)
                .map_err(|_| input.build_error(contestant, "at most 2^30 entries"))?;
            let name = unique_name("hash");
            // SAFETY: DPDK is started; the heap is asked and the table made by one thread at a time, since builds
            // take `&Input` on the bench's main thread only.
            let (before, table) =
                unsafe { (fibula_heap_bytes(), fibula_hash_new(name.as_ptr(), n_max, 8, lock_free.into())) };
            let table = NonNull::new(table)
                .ok_or_else(|| input.build_error(contestant, "no memory: reserve more huge pages, or lower n"))?;
            // SAFETY: as above.
            let bytes = unsafe { fibula_heap_bytes() } - before;
            let mut table = Self { table, contestant, bytes, note };
            table.add(input.names, &input.values())?;
            Ok(table)
        }

        /// Adds or overwrites keys.
        pub(crate) fn add(&mut self, keys: &[u64], values: &[u64]) -> Result<(), BenchError> {
            assert_eq!(keys.len(), values.len());
            // SAFETY: a live table, arrays of the given length; `&mut self`: no reader is left.
            let rc = unsafe { fibula_hash_add(self.table.as_ptr(), keys.as_ptr(), values.as_ptr(), keys.len()) };
            self.outcome("adding a key", rc)
        }

        /// Removes keys.
        pub(crate) fn delete(&mut self, keys: &[u64]) -> Result<(), BenchError> {
            // SAFETY: as above.
            let rc = unsafe { fibula_hash_remove(self.table.as_ptr(), keys.as_ptr(), keys.len()) };
            self.outcome("removing a key", rc)
        }

        fn outcome(&self, what: &str, rc: c_int) -> Result<(), BenchError> {
            if rc >= 0 {
                return Ok(());
            }
            let error = std::io::Error::from_raw_os_error(-rc);
            Err(BenchError::Unavailable { contestant: self.contestant, reason: format!("{what} failed: {error}") })
        }
    }

    impl Drop for Hash {
        fn drop(&mut self) {
            // SAFETY: made by `fibula_hash_new`; readers borrow `self`, so none is left.
            unsafe { fibula_hash_free(self.table.as_ptr()) }
        }
    }

    impl Contestant for Hash {
        fn size_bits(&self) -> u64 {
            8 * self.bytes
        }

        fn reader(&self) -> Box<dyn Reader + '_> {
            Box::new(HashReader(self))
        }

        fn note(&self) -> String {
            self.note.into()
        }
    }

    struct HashReader<'a>(&'a Hash);

    // SAFETY: lookups of rte_hash may run on any thread and concurrently; nothing writes while readers exist.
    unsafe impl Send for HashReader<'_> {}

    impl Burst for HashReader<'_> {
        fn lookup(&mut self, names: &[u64], values: &mut [u64]) {
            assert_eq!(names.len(), values.len());
            // SAFETY: a live table, arrays of the given length.
            unsafe { fibula_hash_lookup(self.0.table.as_ptr(), names.as_ptr(), values.as_mut_ptr(), names.len()) }
        }
    }

    struct Efd {
        table: NonNull<RteEfd>,
        size_bits: u64,
        note: String,
    }

    impl Efd {
        fn build(input: &Input<'_>) -> Result<Self, BenchError> {
            let pages = started(memory_wanted(input.names.len()))?;
            if input.value_bits > 8 {
                return Err(BenchError::Unavailable {
                    contestant: "rte_efd",
                    reason: format!("compiled by its packagers for values of 8 bits, not {}", input.value_bits),
                });
            }
            let values = input.values();
            let n = input.names.len() as u64;
            // A group of keys may be full long before the table is: then try again with twice the size.
            for sized_for in [n, 2 * n] {
                let n_max =
                    u32::try_from(sized_for).map_err(|_| input.build_error("rte_efd", "at most 2^32 - 1 entries"))?;
                let name = unique_name("efd");
                // SAFETY: DPDK is started; one thread builds.
                let table = unsafe { fibula_efd_new(name.as_ptr(), n_max) };
                let table = NonNull::new(table)
                    .ok_or_else(|| input.build_error("rte_efd", "no memory: reserve more huge pages, or lower n"))?;
                let table = Self {
                    table,
                    size_bits: 8 * online_bytes(sized_for),
                    note: format!("{pages}, scalar lookup, sized for {sized_for}; without its control half"),
                };
                // SAFETY: the arrays have the given length; nothing else uses the table yet.
                let rc = unsafe {
                    fibula_efd_add(table.table.as_ptr(), input.names.as_ptr(), values.as_ptr(), input.names.len())
                };
                if rc == 0 {
                    return Ok(table);
                }
            }
            Err(input.build_error("rte_efd", "a group overflows even in a table for twice as many names"))
        }
    }

    /// Size of the half that lookups read, by the formula in rte_efd.h: a power of two of chunks, each with 64 bytes of
    /// choices and 64 groups of 4 bytes per value bit; a chunk is meant for 64 * 22 keys.
    fn online_bytes(n_max: u64) -> u64 {
        n_max.div_ceil(64 * 22).next_power_of_two() * (64 + 64 * 4 * 8)
    }

    impl Drop for Efd {
        fn drop(&mut self) {
            // SAFETY: made by `fibula_efd_new`; readers borrow `self`, so none is left.
            unsafe { fibula_efd_free(self.table.as_ptr()) }
        }
    }

    impl Contestant for Efd {
        fn size_bits(&self) -> u64 {
            self.size_bits
        }

        fn reader(&self) -> Box<dyn Reader + '_> {
            Box::new(EfdReader(self))
        }

        fn note(&self) -> String {
            self.note.clone()
        }
    }

    struct EfdReader<'a>(&'a Efd);

    // SAFETY: lookups of rte_efd may run on any thread and concurrently; nothing writes while readers exist.
    unsafe impl Send for EfdReader<'_> {}

    impl Burst for EfdReader<'_> {
        fn lookup(&mut self, names: &[u64], values: &mut [u64]) {
            assert_eq!(names.len(), values.len());
            // SAFETY: a live table, arrays of the given length.
            unsafe { fibula_efd_lookup(self.0.table.as_ptr(), names.as_ptr(), values.as_mut_ptr(), names.len()) }
        }
    }
}
