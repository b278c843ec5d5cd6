//! Compiles and links the shim to DPDK, only with feature `dpdk`.

#[cfg(feature = "dpdk")]
#[path = "../../c/dpdk/link.rs"]
mod link;

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    // EAL loads the drivers of devices and of buffer pools itself.
    #[cfg(feature = "dpdk")]
    link::shim("ports", &["rte_ethdev", "rte_mbuf", "rte_mempool", "rte_eal"]);
}
