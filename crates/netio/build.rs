//! Compiles and links the shim to DPDK, only with feature `dpdk`.

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    #[cfg(feature = "dpdk")]
    dpdk();
}

#[cfg(feature = "dpdk")]
fn dpdk() {
    let dir = "../../c/dpdk";
    println!("cargo:rerun-if-changed={dir}/ports.c");
    println!("cargo:rerun-if-changed={dir}/ports.h");
    // As text: a parsed answer would lose DPDK's force-include and its -march.
    let output = std::process::Command::new("pkg-config")
        .args(["--cflags", "libdpdk"])
        .output()
        .expect("pkg-config runs; `make dpdk` installs it");
    assert!(
        output.status.success(),
        "feature `dpdk` needs libdpdk; `make dpdk` installs it: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    let mut build = cc::Build::new();
    build.file(format!("{dir}/ports.c")).include(dir).opt_level(3).warnings(true).extra_warnings(true);
    build.define("_GNU_SOURCE", None).define("ALLOW_EXPERIMENTAL_API", None);
    for flag in String::from_utf8(output.stdout).expect("flags are text").split_whitespace() {
        build.flag(flag);
    }
    build.compile("fibula_dpdk_ports");
    // Only what the shim calls: EAL loads the drivers of devices and of buffer pools itself.
    for lib in ["rte_ethdev", "rte_mbuf", "rte_mempool", "rte_eal"] {
        println!("cargo:rustc-link-lib={lib}");
    }
}
