//! Generates the gRPC types. protox is a protobuf compiler in Rust, so that a build needs neither protoc nor a network.

fn main() -> Result<(), Box<dyn std::error::Error>> {
    println!("cargo:rerun-if-changed=proto");
    let services =
        ["north", "follow", "south", "lookup", "flow", "capture"].map(|name| format!("fibula/v1/{name}.proto"));
    let files = protox::compile(services, ["proto"])?;
    tonic_prost_build::configure().bytes(".").compile_fds(files)?;
    let etcd = protox::compile(["etcd/v3.proto"], ["proto"])?;
    tonic_prost_build::configure().build_server(false).bytes(".").compile_fds(etcd)?;
    // With its server: tests are collectors.
    let otlp = protox::compile(["otlp/trace.proto"], ["proto"])?;
    tonic_prost_build::configure().bytes(".").compile_fds(otlp)?;
    Ok(())
}
