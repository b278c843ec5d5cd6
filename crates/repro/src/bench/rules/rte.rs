//! rte_acl, through the shim in `c/dpdk`. Only with feature `dpdk`.

#[cfg(not(feature = "dpdk"))]
pub(super) fn acl(
    _rules: &[lookup::rules::Rule],
    _flows: &[super::Fields],
) -> Result<Box<dyn super::sides::Side>, crate::BenchError> {
    let reason = "not built in; `make bench` installs it".into();
    Err(crate::BenchError::Unavailable { contestant: "rte_acl", reason })
}

#[cfg(feature = "dpdk")]
pub(super) use linked::acl;

#[cfg(feature = "dpdk")]
mod linked {
    #![expect(unsafe_code, reason = "calls the C shim")]

    use std::ffi::{CStr, c_char, c_int};
    use std::ptr::NonNull;

    use lookup::rules::Rule;

    use super::super::Fields;
    use super::super::sides::Side;
    use crate::BenchError;
    use crate::contestants::dpdk as rte;

    /// `struct rte_acl_ctx`, used through pointers only.
    #[repr(C)]
    struct RteAcl([u8; 0]);

    /// As in `peers.h`.
    #[repr(C)]
    struct AclRule {
        addresses: [u32; 2],
        ports: [u16; 4],
        lens: [u8; 2],
        protocol: [u8; 2],
        priority: u32,
        value: u32,
    }

    /// As in `peers.h`: network order.
    #[repr(C)]
    #[derive(Clone, Copy)]
    struct AclFlow {
        protocol: [u8; 4],
        addresses: [[u8; 4]; 2],
        ports: [[u8; 2]; 2],
    }

    unsafe extern "C" {
        fn fibula_acl_new(name: *const c_char, rules: *const AclRule, n: u32, out: *mut *mut RteAcl) -> c_int;
        fn fibula_acl_free(table: *mut RteAcl);
        fn fibula_acl_code(table: *mut RteAcl) -> *const c_char;
        fn fibula_acl_lookup(table: *const RteAcl, flows: *const AclFlow, values: *mut u32, n: usize);
    }

    struct Acl {
        table: NonNull<RteAcl>,
        flows: Vec<AclFlow>,
        bytes: u64,
        note: String,
    }

    pub(in super::super) fn acl(rules: &[Rule], flows: &[Fields]) -> Result<Box<dyn Side>, BenchError> {
        let note = rte::started(0)?;
        let rule = |rule: &Rule| AclRule {
            addresses: [rule.source.v4().to_bits(), rule.destination.v4().to_bits()],
            ports: [
                *rule.source_ports.start(),
                *rule.source_ports.end(),
                *rule.destination_ports.start(),
                *rule.destination_ports.end(),
            ],
            lens: [rule.source.len(), rule.destination.len()],
            protocol: rule.protocol.map_or([0, 0], |protocol| [protocol, 0xFF]),
            priority: rule.priority,
            value: rule.value,
        };
        let flow = |flow: &Fields| AclFlow {
            protocol: [flow.protocol, 0, 0, 0],
            addresses: flow.addresses.map(u32::to_be_bytes),
            ports: flow.ports.map(u16::to_be_bytes),
        };
        let (all, name) = (rules.iter().map(rule).collect::<Vec<_>>(), rte::unique_name("acl"));
        let mut table = std::ptr::null_mut();
        // SAFETY: DPDK is started; tables are made on the bench's main thread only; an array of the given length.
        let (before, rc, after) = unsafe {
            let before = rte::fibula_heap_bytes();
            let rc = fibula_acl_new(name.as_ptr(), all.as_ptr(), all.len() as u32, &mut table);
            (before, rc, rte::fibula_heap_bytes())
        };
        let table = NonNull::new(table).filter(|_| rc == 0).ok_or_else(|| BenchError::Build {
            contestant: "rte_acl".into(),
            n: rules.len() as u64,
            reason: format!("{}; reserve more huge pages, or lower n", std::io::Error::from_raw_os_error(-rc)),
        })?;
        // SAFETY: a live table; the text is a constant.
        let code = unsafe { CStr::from_ptr(fibula_acl_code(table.as_ptr())) }.to_string_lossy().into_owned();
        let flows = flows.iter().map(flow).collect();
        Ok(Box::new(Acl { table, flows, bytes: after - before, note: format!("{code}, {note}") }))
    }

    impl Drop for Acl {
        fn drop(&mut self) {
            // SAFETY: made by `fibula_acl_new`, and nothing else has it.
            unsafe { fibula_acl_free(self.table.as_ptr()) }
        }
    }

    impl Side for Acl {
        fn look_up(&self, at: std::ops::Range<usize>, values: &mut [u32]) {
            let flows = &self.flows[at];
            assert!(values.len() >= flows.len(), "a value for each flow");
            // SAFETY: a live table that nothing writes to, arrays of the given length.
            unsafe { fibula_acl_lookup(self.table.as_ptr(), flows.as_ptr(), values.as_mut_ptr(), flows.len()) }
        }

        fn bytes(&self) -> u64 {
            self.bytes
        }

        fn note(&self) -> String {
            self.note.clone()
        }
    }
}
