//! The configured false-positive rate, at the switches of a network.

use super::*;
use crate::network::laws::rates::settings_of;

#[test]
fn switches_hold_the_configured_rate_while_names_come_and_go_and_after_another_is_configured() {
    laws::switches_hold_the_configured_rate(DESIGNS);
}

#[test]
fn gateways_need_a_design_that_recognises_aliens_and_core_nodes_do_not() {
    assert!(Network::new(settings_of(&CFW, 0.001), 1).is_ok());
    let error = Network::new(settings_of(&CONCISE, 0.001), 1).err().unwrap().to_string();
    assert!(error.contains("`concise` gives alien names any action"), "{error}");
    let core = Settings { core: &CFW, ..settings_of(&CUCKOO, 1e-9) };
    let error = Network::new(core, 1).err().unwrap().to_string();
    assert!(error.contains("`cfw`") && error.contains("at best"), "{error}");
}
