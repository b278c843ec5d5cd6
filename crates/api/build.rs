//! Generates the gRPC types. protox is a protobuf compiler in Rust, so that a build needs neither protoc nor a network.

fn main() -> Result<(), Box<dyn std::error::Error>> {
    println!("cargo:rerun-if-changed=proto");
    let services = ["fibula/v1/north.proto", "fibula/v1/south.proto", "fibula/v1/lookup.proto", "fibula/v1/flow.proto"];
    let files = protox::compile(services, ["proto"])?;
    tonic_prost_build::configure().bytes(".").compile_fds(files)?;
    let etcd = protox::compile(["etcd/v3.proto"], ["proto"])?;
    tonic_prost_build::configure().build_server(false).bytes(".").compile_fds(etcd)?;
    Ok(())
}
