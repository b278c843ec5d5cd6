//! Every design of the papers end to end: in a network of `fibula-lab controller` and switches, and in the demo.

#[path = "../../cli/tests/networks/mod.rs"]
mod networks;
#[path = "../../cli/tests/sound/mod.rs"]
mod sound;
#[path = "../../cli/tests/support/mod.rs"]
mod support;

use std::process::Command;

#[tokio::test(flavor = "multi_thread")]
async fn a_controller_serves_every_design_before_and_after_a_restart() {
    papers::add();
    networks::are_served_before_and_after_a_restart(papers::DESIGNS).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn exact_designs_serve_texts_of_any_length() {
    papers::add();
    networks::serve_texts_of_any_length(&["ogw", "bgw", "sorted", "tss"]).await;
}

/// Real processes of this binary where there are namespaces, else all in one process.
#[test]
fn networks_of_designs_of_the_papers_are_as_sound() {
    for (gateways, core) in [("ogw", "setsep+checksum"), ("summary-cache", "bfw")] {
        let network = ["demo", "--topology", "ring", "--switches", "4", "--names", "500", "--seconds", "3", "-j"];
        let output = Command::new(support::FIBULA)
            .args(network)
            .args(["--gateway-design", gateways, "--design", core])
            .output()
            .unwrap();
        let log = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{gateways}, {core}: {log}");
        let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        let network = report["network"].as_str().unwrap();
        sound::assert_sound(&report, network, 504);
    }
}
