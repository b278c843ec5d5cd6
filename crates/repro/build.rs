//! Compiles and links the DPDK shim, only with feature `dpdk`.

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    #[cfg(feature = "dpdk")]
    dpdk();
}

#[cfg(feature = "dpdk")]
fn dpdk() {
    let dir = "../../c/dpdk";
    println!("cargo:rerun-if-changed={dir}/peers.c");
    println!("cargo:rerun-if-changed={dir}/peers.h");
    // The flags are taken as text: a parsed answer keeps `-I` options but loses DPDK's force-include and its -march.
    let flags = |what: &str| {
        let out = std::process::Command::new("pkg-config")
            .args([what, "libdpdk"])
            .output()
            .expect("pkg-config runs; `make bench` installs it");
        assert!(
            out.status.success(),
            "feature `dpdk` needs libdpdk; `make bench` installs it: {}",
            String::from_utf8_lossy(&out.stderr)
        );
        String::from_utf8(out.stdout).expect("flags are text")
    };
    let mut build = cc::Build::new();
    build.file(format!("{dir}/peers.c")).include(dir).opt_level(3).warnings(true).extra_warnings(true);
    build.define("_GNU_SOURCE", None).define("ALLOW_EXPERIMENTAL_API", None);
    for flag in flags("--cflags").split_whitespace() {
        build.flag(flag);
    }
    build.compile("fibula_peers");
    // Only the libraries that the shim calls: `--libs` alone would also link every driver.
    for lib in ["rte_hash", "rte_efd", "rte_lpm", "rte_fib", "rte_rib", "rte_acl", "rte_eal"] {
        println!("cargo:rustc-link-lib={lib}");
    }
}
