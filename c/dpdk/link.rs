//! Compiles and links a shim to DPDK: a part of the build scripts of the crates that have one.

/// Compiles `c/dpdk/NAME.c` and links it and `libraries` of DPDK: those that it calls. `pkg-config --libs` would also link
/// every driver.
pub(crate) fn shim(name: &str, libraries: &[&str]) {
    let dir = "../../c/dpdk";
    for file in [format!("{name}.c"), format!("{name}.h"), "link.rs".to_owned()] {
        println!("cargo:rerun-if-changed={dir}/{file}");
    }
    // As text: a parsed answer keeps `-I` options, but loses DPDK's force-include and its -march.
    let output = std::process::Command::new("pkg-config")
        .args(["--cflags", "libdpdk"])
        .output()
        .expect("pkg-config runs; `scripts/setup dpdk` installs it");
    assert!(
        output.status.success(),
        "feature `dpdk` needs libdpdk; `scripts/setup dpdk` installs it: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    let mut build = cc::Build::new();
    build.file(format!("{dir}/{name}.c")).include(dir).opt_level(3).warnings(true).extra_warnings(true);
    build.define("_GNU_SOURCE", None).define("ALLOW_EXPERIMENTAL_API", None);
    for flag in String::from_utf8(output.stdout).expect("flags are text").split_whitespace() {
        build.flag(flag);
    }
    build.compile(&format!("fibula_dpdk_{name}"));
    for library in libraries {
        println!("cargo:rustc-link-lib={library}");
    }
}
