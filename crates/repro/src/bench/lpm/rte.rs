//! rte_lpm and rte_fib, through the shim in `c/dpdk`. Only with feature `dpdk`.

#[cfg(not(feature = "dpdk"))]
mod missing {
    use super::super::sides::Side;
    use crate::BenchError;
    use lookup::lpm::Prefix;

    fn unavailable(contestant: &'static str) -> Result<Box<dyn Side>, BenchError> {
        Err(BenchError::Unavailable { contestant, reason: "not built in; `make bench` installs it".into() })
    }

    pub(in super::super) fn lpm(_routes: &[(Prefix<u32>, u64)]) -> Result<Box<dyn Side>, BenchError> {
        unavailable("rte_lpm")
    }

    pub(in super::super) fn fib(_routes: &[(Prefix<u32>, u64)]) -> Result<Box<dyn Side>, BenchError> {
        unavailable("rte_fib")
    }
}

#[cfg(not(feature = "dpdk"))]
pub(super) use missing::{fib, lpm};

#[cfg(feature = "dpdk")]
pub(super) use linked::{fib, lpm};

#[cfg(feature = "dpdk")]
mod linked {
    #![expect(unsafe_code, reason = "calls the C shim")]

    use std::collections::HashSet;
    use std::ffi::{c_char, c_int};
    use std::ptr::NonNull;

    use lookup::lpm::Prefix;

    use super::super::sides::{MAX_BATCH, Side};
    use crate::BenchError;
    use crate::contestants::{bursts, dpdk as rte};

    /// `struct rte_lpm` and `struct rte_fib`, used through pointers only.
    #[repr(C)]
    struct RteLpm([u8; 0]);
    #[repr(C)]
    struct RteFib([u8; 0]);

    unsafe extern "C" {
        fn fibula_lpm_new(name: *const c_char, max_rules: u32, n_tbl8: u32) -> *mut RteLpm;
        fn fibula_lpm_free(table: *mut RteLpm);
        fn fibula_lpm_add(table: *mut RteLpm, ips: *const u32, lens: *const u8, hops: *const u32, n: usize) -> c_int;
        fn fibula_lpm_lookup(table: *const RteLpm, ips: *const u32, hops: *mut u32, n: usize);
        fn fibula_fib_new(name: *const c_char, max_routes: u32, n_tbl8: u32) -> *mut RteFib;
        fn fibula_fib_free(table: *mut RteFib);
        fn fibula_fib_add(table: *mut RteFib, ips: *const u32, lens: *const u8, hops: *const u32, n: usize) -> c_int;
        fn fibula_fib_lookup(table: *mut RteFib, ips: *const u32, hops: *mut u64, n: usize);
    }

    struct Routes {
        ips: Vec<u32>,
        lens: Vec<u8>,
        hops: Vec<u32>,
        /// Groups of 256 that prefixes longer than 24 bits need.
        n_tbl8: u32,
    }

    impl Routes {
        fn new(routes: &[(Prefix<u32>, u64)]) -> Self {
            let long = routes.iter().filter(|(prefix, _)| prefix.len() > 24);
            let groups: HashSet<u32> = long.map(|(prefix, _)| prefix.address() >> 8).collect();
            Self {
                ips: routes.iter().map(|(prefix, _)| prefix.address()).collect(),
                lens: routes.iter().map(|(prefix, _)| prefix.len()).collect(),
                hops: routes.iter().map(|&(_, hop)| hop as u32).collect(),
                n_tbl8: (groups.len() as u32 + 64).next_multiple_of(64),
            }
        }
    }

    fn error(contestant: &'static str, n: usize, reason: String) -> BenchError {
        BenchError::Build { contestant: contestant.into(), n: n as u64, reason }
    }

    fn outcome(contestant: &'static str, n: usize, rc: c_int) -> Result<(), BenchError> {
        let errno = || std::io::Error::from_raw_os_error(-rc);
        if rc < 0 { Err(error(contestant, n, format!("adding a route failed: {}", errno()))) } else { Ok(()) }
    }

    const NO_MEMORY: &str = "no memory: reserve more huge pages, or lower --prefixes";

    struct Lpm {
        table: NonNull<RteLpm>,
        bytes: u64,
        note: &'static str,
    }

    pub(in super::super) fn lpm(routes: &[(Prefix<u32>, u64)]) -> Result<Box<dyn Side>, BenchError> {
        let note = rte::started(0)?;
        let all = Routes::new(routes);
        let (n, name) = (routes.len(), rte::unique_name("lpm"));
        // SAFETY: DPDK is started; tables are made on the bench's main thread only.
        let (before, table) =
            unsafe { (rte::fibula_heap_bytes(), fibula_lpm_new(name.as_ptr(), n as u32, all.n_tbl8)) };
        let table = NonNull::new(table).ok_or_else(|| error("rte_lpm", n, NO_MEMORY.into()))?;
        // SAFETY: as above.
        let bytes = unsafe { rte::fibula_heap_bytes() } - before;
        let side = Lpm { table, bytes, note };
        // SAFETY: a live table, arrays of the given length.
        let rc = unsafe { fibula_lpm_add(table.as_ptr(), all.ips.as_ptr(), all.lens.as_ptr(), all.hops.as_ptr(), n) };
        outcome("rte_lpm", n, rc)?;
        Ok(Box::new(side))
    }

    impl Drop for Lpm {
        fn drop(&mut self) {
            // SAFETY: made by `fibula_lpm_new`, and nothing else has it.
            unsafe { fibula_lpm_free(self.table.as_ptr()) }
        }
    }

    impl Side for Lpm {
        fn sum(&self, addresses: &[u32], batch: usize) -> u64 {
            let mut hops = [0; MAX_BATCH];
            bursts(addresses, batch).fold(0, |sum, ips| {
                // SAFETY: a live table that nothing writes to, arrays of the given length.
                unsafe { fibula_lpm_lookup(self.table.as_ptr(), ips.as_ptr(), hops.as_mut_ptr(), ips.len()) };
                // Bit 24 is set if there is a route.
                let hop = |&hop: &u32| u64::from(hop & 0xff_ffff & (hop >> 24 & 1).wrapping_neg());
                sum + hops[..ips.len()].iter().map(hop).sum::<u64>()
            })
        }

        fn bytes(&self) -> u64 {
            self.bytes
        }

        fn bytes_beside(&self) -> u64 {
            0
        }

        fn note(&self, _addresses: &[u32]) -> String {
            self.note.into()
        }
    }

    struct Fib {
        table: NonNull<RteFib>,
        bytes: u64,
        n_tbl8: u32,
        note: &'static str,
    }

    pub(in super::super) fn fib(routes: &[(Prefix<u32>, u64)]) -> Result<Box<dyn Side>, BenchError> {
        let note = rte::started(0)?;
        let all = Routes::new(routes);
        let (n, name) = (routes.len(), rte::unique_name("fib"));
        // SAFETY: as in `lpm`.
        let (before, table) =
            unsafe { (rte::fibula_heap_bytes(), fibula_fib_new(name.as_ptr(), 2 * n as u32, all.n_tbl8)) };
        let table = NonNull::new(table).ok_or_else(|| error("rte_fib", n, NO_MEMORY.into()))?;
        // SAFETY: as above.
        let bytes = unsafe { rte::fibula_heap_bytes() } - before;
        let side = Fib { table, bytes, n_tbl8: all.n_tbl8, note };
        // SAFETY: a live table, arrays of the given length.
        let rc = unsafe { fibula_fib_add(table.as_ptr(), all.ips.as_ptr(), all.lens.as_ptr(), all.hops.as_ptr(), n) };
        outcome("rte_fib", n, rc)?;
        Ok(Box::new(side))
    }

    impl Drop for Fib {
        fn drop(&mut self) {
            // SAFETY: made by `fibula_fib_new`, and nothing else has it.
            unsafe { fibula_fib_free(self.table.as_ptr()) }
        }
    }

    impl Side for Fib {
        fn sum(&self, addresses: &[u32], batch: usize) -> u64 {
            let mut hops = [0; MAX_BATCH];
            bursts(addresses, batch).fold(0, |sum, ips| {
                // SAFETY: a live table that nothing writes to, arrays of the given length.
                unsafe { fibula_fib_lookup(self.table.as_ptr(), ips.as_ptr(), hops.as_mut_ptr(), ips.len()) };
                sum + hops[..ips.len()].iter().sum::<u64>()
            })
        }

        /// The tables that look-ups read: next hops of 2 bytes.
        fn bytes(&self) -> u64 {
            2 * ((1 << 24) + 256 * (u64::from(self.n_tbl8) + 1))
        }

        fn bytes_beside(&self) -> u64 {
            self.bytes.saturating_sub(self.bytes())
        }

        fn note(&self, _addresses: &[u32]) -> String {
            self.note.into()
        }
    }
}
