//! Very small networks: what must hold for all of them, with and without faults on the wires.

mod simulated;

use fib::designs::{CFW, CONCISE, CUCKOO, DESIGNS, LINE, OFW};
use fib::messages::ValueMode;
use fibula_sim::network::{Graph, Scenario, SimError, Wires, run};
use lookup::testkit;
use simulated::*;

#[test]
fn every_design_delivers_every_valid_name() {
    delivers_every_valid_name(DESIGNS);
}

#[test]
fn nothing_valid_is_wrong_after_messages_that_all_came() {
    let seed = testkit::seed();
    for (design, spec) in [(&CONCISE, "fat-tree:4"), (&LINE, "ring:7"), (&OFW, "random:12"), (&CUCKOO, "ring:5")] {
        for mode in [ValueMode::Port, ValueMode::Egress] {
            let report = simulate(spec, &changing(toy(design, mode, seed)));
            [&report.before, &report.after, &report.healed].into_iter().for_each(is_right);
            assert_eq!((report.changes, report.refused, report.reports, report.behind), (96, 0, 0, 0));
            assert!(report.during.sent > 0 && report.updates.bytes() > 0);
        }
    }
}

#[test]
fn faults_on_the_wires_are_healed_by_reports() {
    faults_are_healed_by_reports(&[(&CONCISE, &CONCISE), (&LINE, &LINE), (&CUCKOO, &CFW)]);
}

/// One change, of which one switch after another misses all messages: what is wrong then, all switches together.
fn wrong_after_missed_messages(scenario: &Scenario) -> u64 {
    let mut wrong = 0;
    for node in 0..5 {
        // New actions come in a message of their own, which may have nothing new but alternates.
        let wires = Wires { drops: vec![(node, 0), (node, 1)], ..Wires::default() };
        let report = simulate("ring:5", &Scenario { wires, ..scenario.clone() });
        // A switch that the change does not concern is sent nothing.
        assert_eq!(
            report.behind,
            report.lost.min(1),
            "the switch that missed something lacks it, and no other: {report:?}"
        );
        assert_eq!(report.healing.messages > 0, report.lost > 0);
        assert_eq!((report.before.wrong(), report.healed.wrong()), (0, 0));
        wrong += report.after.wrong();
    }
    wrong
}

#[test]
fn switch_that_misses_an_update_is_wrong_until_it_reports() {
    let seed = testkit::seed();
    for mode in [ValueMode::Port, ValueMode::Egress] {
        let scenario = Scenario { gateways: 0, packets: 2_000, ..toy(&CONCISE, mode, seed) };
        // A link fails: a switch that is not told sends packets into it.
        assert!(wrong_after_missed_messages(&Scenario { link_changes: 1, ..scenario.clone() }) > 0);
        // One of four names is added, moved or removed.
        let few = Scenario { names: 4, name_changes: 1, ..scenario };
        (0..4).for_each(|more| _ = wrong_after_missed_messages(&Scenario { seed: seed + more, ..few.clone() }));
    }
}

#[test]
fn runs_repeat() {
    let seed = testkit::seed();
    let wires = Wires { late: 0.1, duplicated: 0.1, lost: 0.02, ..Wires::default() };
    let scenario = changing(Scenario { wires, ..toy(&CONCISE, ValueMode::Egress, seed) });
    let report = simulate("random:12", &scenario);
    assert_eq!(simulate("random:12", &scenario), report);
    assert_ne!(simulate("random:12", &Scenario { seed: seed + 1, ..scenario }), report);
}

#[test]
fn switches_one_at_a_time_answer_like_switches_together() {
    let seed = testkit::seed();
    for mode in [ValueMode::Port, ValueMode::Egress] {
        let apart = toy(&CONCISE, mode, seed);
        // No change is left to make when the first packets are sent, and they are drawn alike.
        let together = Scenario { name_changes: 1, ..apart.clone() };
        let (apart, together) = (simulate("fat-tree:4", &apart), simulate("fat-tree:4", &together));
        assert_eq!((apart.before, apart.first), (together.before, together.first));
        assert_eq!((apart.gateway_fibs, apart.core_fibs), (together.gateway_fibs, together.core_fibs));
    }
}

#[test]
fn designs_that_know_aliens_drop_them_earlier() {
    drop_aliens_earlier(&[&OFW, &CUCKOO]);
}

#[test]
fn scenarios_that_make_no_sense_are_refused() {
    let graph = Graph::generate("ring:4", 0).unwrap();
    let good = Scenario::new(10, 0);
    for wrong in [
        Scenario { names: 0, ..good.clone() },
        Scenario { gateways: 5, ..good.clone() },
        Scenario { zipf: -1.0, ..good.clone() },
        Scenario { zipf: f64::NAN, ..good.clone() },
        Scenario { host_ports: 40_000, ..good.clone() },
        Scenario { wires: Wires { lost: 1.5, ..Wires::default() }, ..good.clone() },
        Scenario { wires: Wires { timeout_ticks: 0, ..Wires::default() }, ..good.clone() },
    ] {
        assert!(matches!(run(&graph, &wrong, &mut |_| {}), Err(SimError::Scenario { .. })), "{wrong:?}");
    }
}
