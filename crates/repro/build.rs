//! Compiles C: `fibula.h` as a contestant, and with feature `dpdk` the shim to DPDK.

#[cfg(feature = "dpdk")]
#[path = "../../c/dpdk/link.rs"]
mod link;

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    header();
    #[cfg(feature = "dpdk")]
    {
        link::shim("peers", &["rte_hash", "rte_efd", "rte_lpm", "rte_fib", "rte_rib", "rte_acl", "rte_eal"]);
        link::shim("traffic", &["rte_ethdev", "rte_mbuf", "rte_mempool", "rte_eal"]);
    }
}

/// As a user compiles it: `-O3`, whatever the profile, and for any processor of this architecture.
fn header() {
    let c = "../../c";
    for file in ["bench/header.c", "include/fibula.h"] {
        println!("cargo:rerun-if-changed={c}/{file}");
    }
    let mut build = cc::Build::new();
    build.file(format!("{c}/bench/header.c")).include(format!("{c}/include")).std("c11").opt_level(3);
    build.define("_GNU_SOURCE", None).warnings(true).extra_warnings(true).warnings_into_errors(true);
    build.compile("fibula_header");
}
