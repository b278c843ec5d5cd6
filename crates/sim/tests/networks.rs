//! Very small networks: what must hold for all of them, with and without faults on the wires.

use fib::designs::{BUFFALO, CFW, CONCISE, CUCKOO, DESIGNS, Design, LINE, OFW, OGW};
use fib::messages::ValueMode;
use fibula_sim::network::{Graph, Report, Scenario, SimError, Tally, Wires, run};
use lookup::testkit;

fn simulate(spec: &str, scenario: &Scenario) -> Report {
    let graph = Graph::generate(spec, scenario.seed).unwrap();
    let report = run(&graph, scenario, &mut |_| {}).unwrap_or_else(|error| panic!("{spec}, {scenario:?}: {error}"));
    for tally in [&report.before, &report.during, &report.after, &report.healed] {
        adds_up(tally);
    }
    report
}

/// No packet is counted twice or not at all.
fn adds_up(tally: &Tally) {
    let fates = [tally.delivered, tally.former, tally.misdelivered, tally.lost, tally.unreachable, tally.looped];
    assert_eq!(fates.iter().sum::<u64>(), tally.sent, "{tally:?}");
    for aliens in [&tally.checked, &tally.unchecked] {
        let fates = [aliens.refused, aliens.dropped, aliens.delivered, aliens.looped];
        assert_eq!(fates.iter().sum::<u64>(), aliens.sent, "{tally:?}");
    }
}

/// What holds if every switch has everything.
fn is_right(tally: &Tally) {
    assert!(tally.sent > 0);
    assert_eq!((tally.wrong(), tally.unreachable), (0, 0), "{tally:?}");
    assert!(tally.hops <= tally.longest_hops, "{tally:?}");
    assert_eq!(tally.checked.refused, tally.checked.sent, "{tally:?}");
    assert_eq!(tally.unchecked.delivered, 0, "the exact check at the egress: {tally:?}");
}

fn toy(design: &'static Design, mode: ValueMode, seed: u64) -> Scenario {
    let scenario = Scenario::new(400, seed);
    Scenario { mode, gateway: design, core: design, gateways: 4, packets: 300, zipf: 1.0, ..scenario }
}

fn changing(scenario: Scenario) -> Scenario {
    Scenario { name_changes: 90, link_changes: 6, probe_packets: 40, ..scenario }
}

#[test]
fn every_design_delivers_every_valid_name() {
    let seed = testkit::seed();
    for design in DESIGNS {
        for mode in [ValueMode::Port, ValueMode::Egress] {
            let report = simulate("random:12", &Scenario { names: 120, ..toy(design, mode, seed) });
            is_right(&report.before);
            assert_eq!((report.gateways, report.local_names, report.valid_names), (4, 120, 4 * 120));
            assert_eq!((report.gateway_fibs.switches, report.core_fibs.switches), (4, 8));
        }
    }
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
    let seed = testkit::seed();
    let wires = Wires { late: 0.05, duplicated: 0.05, lost: 0.05, ..Wires::default() };
    let mut refused = 0;
    for (gateway, core) in [(&CONCISE, &CONCISE), (&LINE, &LINE), (&OGW, &CONCISE), (&CUCKOO, &CFW)] {
        for mode in [ValueMode::Port, ValueMode::Egress] {
            let scenario = changing(Scenario { gateway, core, wires: wires.clone(), ..toy(core, mode, seed) });
            let report = simulate("random:12", &scenario);
            is_right(&report.healed);
            assert!(report.lost > 0 && report.late > 0 && report.duplicated > 0);
            refused += report.refused;
        }
    }
    assert!(refused > 0, "switches notice that messages are missing before they are asked");
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
    let seed = testkit::seed();
    let hops = |design| simulate("ring:16", &toy(design, ValueMode::Port, seed)).before.unchecked.hops;
    let arbitrary = hops(&CONCISE);
    for design in [&OFW, &CUCKOO, &BUFFALO] {
        assert!(hops(design) < arbitrary / 2, "{design}: {} hops against {arbitrary}", hops(design));
    }
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
