//! Describes the controller's service for the Python client: the .proto files as one set of descriptors. The client makes
//! its messages of them when it runs, so that neither a wheel nor its user needs a generator.

use std::path::PathBuf;

const PROTO: &str = "../api/proto";

fn main() -> Result<(), Box<dyn std::error::Error>> {
    println!("cargo:rerun-if-changed={PROTO}");
    println!("cargo:rerun-if-changed=build.rs");
    let mut compiler = protox::Compiler::new([PROTO])?;
    compiler.include_imports(true).open_file("fibula/v1/north.proto")?;
    let out = PathBuf::from(std::env::var("OUT_DIR")?).join("northbound.binpb");
    std::fs::write(out, compiler.encode_file_descriptor_set())?;
    Ok(())
}
