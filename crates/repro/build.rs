//! Compiles and links the shim to DPDK, only with feature `dpdk`.

#[cfg(feature = "dpdk")]
#[path = "../../c/dpdk/link.rs"]
mod link;

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    #[cfg(feature = "dpdk")]
    {
        link::shim("peers", &["rte_hash", "rte_efd", "rte_lpm", "rte_fib", "rte_rib", "rte_acl", "rte_eal"]);
        link::shim("traffic", &["rte_ethdev", "rte_mbuf", "rte_mempool", "rte_eal"]);
    }
}
