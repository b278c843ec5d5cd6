//! Simulations of very small networks, which tests of several crates run with their designs.

#![allow(dead_code, reason = "every test file uses a part of it")]

use fib::designs::{CONCISE, Design};
use fib::messages::ValueMode;
use fibula_sim::network::{Graph, Report, Scenario, Tally, Wires, run};
use lookup::testkit;

pub(crate) fn simulate(spec: &str, scenario: &Scenario) -> Report {
    let graph = Graph::generate(spec, scenario.seed).unwrap();
    let report = run(&graph, scenario, &mut |_| {}).unwrap_or_else(|error| panic!("{spec}, {scenario:?}: {error}"));
    for tally in [&report.before, &report.during, &report.after, &report.healed] {
        adds_up(tally);
    }
    report
}

/// No packet is counted twice or not at all.
pub(crate) fn adds_up(tally: &Tally) {
    let fates = [tally.delivered, tally.former, tally.misdelivered, tally.lost, tally.unreachable, tally.looped];
    assert_eq!(fates.iter().sum::<u64>(), tally.sent, "{tally:?}");
    for aliens in [&tally.checked, &tally.unchecked] {
        let fates = [aliens.refused, aliens.dropped, aliens.delivered, aliens.looped];
        assert_eq!(fates.iter().sum::<u64>(), aliens.sent, "{tally:?}");
    }
}

/// What holds if every switch has everything.
pub(crate) fn is_right(tally: &Tally) {
    assert!(tally.sent > 0);
    assert_eq!((tally.wrong(), tally.unreachable), (0, 0), "{tally:?}");
    assert!(tally.hops <= tally.longest_hops, "{tally:?}");
    assert_eq!(tally.checked.refused, tally.checked.sent, "{tally:?}");
    assert_eq!(tally.unchecked.delivered, 0, "the exact check at the egress: {tally:?}");
}

pub(crate) fn toy(design: &'static Design, mode: ValueMode, seed: u64) -> Scenario {
    let scenario = Scenario::new(400, seed);
    Scenario { mode, gateway: design, core: design, gateways: 4, packets: 300, zipf: 1.0, ..scenario }
}

pub(crate) fn changing(scenario: Scenario) -> Scenario {
    Scenario { name_changes: 90, link_changes: 6, probe_packets: 40, ..scenario }
}

/// Each of these designs delivers every valid name.
pub(crate) fn delivers_every_valid_name(designs: &[&'static Design]) {
    let seed = testkit::seed();
    for design in designs {
        for mode in [ValueMode::Port, ValueMode::Egress] {
            let report = simulate("random:12", &Scenario { names: 120, ..toy(design, mode, seed) });
            is_right(&report.before);
            assert_eq!((report.gateways, report.local_names, report.valid_names), (4, 120, 4 * 120));
            assert_eq!((report.gateway_fibs.switches, report.core_fibs.switches), (4, 8));
        }
    }
}

/// Faults on the wires are healed by reports, at gateways and core nodes of these designs.
pub(crate) fn faults_are_healed_by_reports(designs: &[(&'static Design, &'static Design)]) {
    let seed = testkit::seed();
    let wires = Wires { late: 0.05, duplicated: 0.05, lost: 0.05, ..Wires::default() };
    let mut refused = 0;
    for &(gateway, core) in designs {
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

/// These designs drop aliens earlier than one that knows none.
pub(crate) fn drop_aliens_earlier(designs: &[&'static Design]) {
    let seed = testkit::seed();
    let hops = |design: &'static Design| simulate("ring:16", &toy(design, ValueMode::Port, seed)).before.unchecked.hops;
    let arbitrary = hops(&CONCISE);
    for &design in designs {
        assert!(hops(design) < arbitrary / 2, "{design}: {} hops against {arbitrary}", hops(design));
    }
}
