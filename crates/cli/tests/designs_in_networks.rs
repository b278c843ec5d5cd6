//! Every design of the product in a running network.

mod networks;
mod support;

use fib::designs::DESIGNS;

#[tokio::test(flavor = "multi_thread")]
async fn a_controller_serves_every_design_before_and_after_a_restart() {
    networks::are_served_before_and_after_a_restart(DESIGNS).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn exact_designs_serve_texts_of_any_length() {
    networks::serve_texts_of_any_length(&["cuckoo"]).await;
}
