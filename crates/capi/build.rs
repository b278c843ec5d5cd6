//! Gives the shared library the name under which programs ask for it: one a major version.

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rustc-cdylib-link-arg=-Wl,-soname,libfibula.so.{}", env!("CARGO_PKG_VERSION_MAJOR"));
}
