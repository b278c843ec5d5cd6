//! The designs of this crate keep what every design promises, alone and in networks.

extern crate sim as fibula_sim;

#[path = "../../../dataplane/tests/common/mod.rs"]
mod common;
mod figures;
#[path = "../../../dataplane/tests/frames/moving.rs"]
mod moving;
#[path = "../../../sim/tests/simulated/mod.rs"]
mod simulated;

use fib::designs::{self, Aliens, CFW, CONCISE, CUCKOO, Design, Guard, LABORATORY, OFW, Spec};
use fib::name::NameKind;
use fib::testkit;
use lookup::hash::{Family, SecretKey};
use papers::*;

#[test]
fn the_laboratory_has_the_designs_that_other_programs_say_it_has() {
    add();
    assert_eq!(DESIGNS.iter().map(|design| design.name).collect::<Vec<_>>(), LABORATORY);
    for &design in DESIGNS {
        assert_eq!(Design::by_name(design.name), Ok(design));
    }
    assert_eq!(designs::all().count(), designs::DESIGNS.len() + DESIGNS.len());
    let error = Design::by_name("none").unwrap_err();
    assert!(!error.is_in_laboratory() && error.to_string().ends_with("setsep+bloom"), "{error}");
}

#[test]
fn every_design_serves_a_network() {
    add();
    testkit::serves_a_network(DESIGNS);
}

#[test]
fn a_restored_network_that_is_told_the_same_changes_commits_the_same_rows() {
    add();
    testkit::followers_commit_the_same_rows(DESIGNS);
}

#[test]
fn switches_hold_the_configured_rate_while_names_come_and_go_and_after_another_is_configured() {
    add();
    testkit::switches_hold_the_configured_rate(DESIGNS);
}

#[test]
fn network_of_an_earlier_version_goes_on() {
    add();
    testkit::network_of_an_earlier_version_goes_on(&[&SETSEP]);
}

#[test]
fn destinations_share_where_a_lookup_asks_for_one_value_after_the_other() {
    add();
    for design in DESIGNS {
        let tries = ["bfw", "buffalo", "summary-cache", "summary-cache+bloom"].contains(&design.name);
        assert_eq!(design.tries_values, tries, "{design}");
    }
    testkit::destinations_share_where_a_lookup_asks_for_one_value_after_the_other(&BFW);
}

#[test]
fn bursts_in_flight_have_values_of_versions_that_were_served_meanwhile() {
    testkit::bursts_in_flight_have_values_that_were_served(DESIGNS);
}

#[test]
fn exact_designs_tell_long_texts_apart_by_every_byte() {
    testkit::long_texts_are_told_apart(&[&OGW, &BGW, &SORTED]);
}

#[test]
fn names_of_every_kind_keep_their_actions_through_a_file() {
    add();
    testkit::names_keep_their_actions_through_a_file(DESIGNS);
}

#[test]
fn damaged_files_are_refused_and_never_panic() {
    add();
    testkit::damaged_files_are_refused(DESIGNS);
}

#[test]
fn specs_travel_in_messages() {
    add();
    testkit::specs_travel_in_messages(DESIGNS);
}

#[test]
fn aliens_pass_at_the_wanted_rate_at_most_and_after_churn_too() {
    add();
    testkit::aliens_pass_at_the_wanted_rate_at_most(DESIGNS);
}

#[test]
fn a_table_of_many_actions_says_of_itself_what_is_computed_and_what_aliens_get() {
    add();
    // Others of these take as long to build, and say nothing else.
    let like_others = ["buffalo", "bgw", "obf", "summary-cache+bloom"];
    let tried: Vec<_> = DESIGNS.iter().copied().filter(|design| !like_others.contains(&design.name)).collect();
    testkit::tables_of_many_actions_say_what_aliens_get(&tried, &["summary-cache"], 3);
}

#[test]
fn every_design_that_gives_aliens_any_action_can_have_checksums_and_no_other() {
    add();
    for &design in DESIGNS {
        let spec = Spec::new(design, NameKind::Mac, Family::Wy, SecretKey::from_seed(1), 8, 1000);
        let is_arbitrary = spec.aliens() == Aliens::Arbitrary;
        let has = design.name.ends_with("+checksum");
        assert_eq!(design.guarded(Guard::Checksum).is_ok(), is_arbitrary || has, "{design}");
        assert_eq!(design.recognising() == design, !is_arbitrary, "{design}");
    }
    assert_eq!(CFW.guarded(Guard::Bloom), Ok(&CFW_BLOOM));
    assert!(CUCKOO.guarded(Guard::Bloom).unwrap_err().to_string().contains("`cuckoo`"));
}

#[test]
fn a_design_that_cannot_hold_a_rate_says_which_can() {
    add();
    let refused = |design, rate: f64| {
        let spec = Spec::new(design, NameKind::Mac, Family::MulAdd, SecretKey::from_seed(1), 5, 20_000);
        spec.with_rate(rate, 31).unwrap_err().to_string()
    };
    let error = refused(&CONCISE, 0.01);
    assert!(error.contains("take ofw, cfw, cuckoo") && error.contains("ogw, bfw"), "{error}");
    let error = refused(&CFW, 1e-9);
    assert!(error.contains("take cuckoo, ogw, bgw, tss"), "{error}");
    let bits = |design, rate| {
        let spec = Spec::new(design, NameKind::Mac, Family::Wy, SecretKey::from_seed(1), 6, 100_000);
        spec.with_rate(rate, 32).unwrap().fingerprint_bits
    };
    assert!(bits(&BUFFALO, 1e-6) >= 25 && bits(&BFW, 1e-6) >= 25);
}

#[test]
fn a_name_that_moves_through_the_network_takes_its_open_flows_along() {
    add();
    moving::takes_its_open_flows_along(&[&SETSEP, &BFW]);
}

#[test]
fn every_design_delivers_every_valid_name() {
    add();
    simulated::delivers_every_valid_name(DESIGNS);
}

#[test]
fn faults_on_the_wires_are_healed_by_reports() {
    add();
    simulated::faults_are_healed_by_reports(&[(&OGW, &CONCISE), (&OFW, &BFW)]);
}

#[test]
fn designs_that_know_aliens_drop_them_earlier() {
    add();
    simulated::drop_aliens_earlier(&[&BUFFALO]);
}
