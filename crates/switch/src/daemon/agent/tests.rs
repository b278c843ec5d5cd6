//! What a switch makes of the messages of a stream.

use super::*;
use fib::action::{Action, PortId};
use fib::messages::Body;
use fib::replica::{Limits, MemoryTables, Replica};
use fib::topology::NodeId;

/// Cells were refused. What comes before the answer may be the action table that is right for them alone.
#[test]
fn a_switch_that_has_asked_takes_no_actions_before_the_answer() {
    let shared = Shared::new(Replica::new(Limits::default(), MemoryTables::default()));
    let mut following = Following::default();
    let mut receive = |body: Body, answered| {
        let message = Message { cluster: 1, term: 1, node: NodeId(1), change: 1, body }.encode();
        let message = ToSwitch { sequence: 1, message: message.into(), answered, ..ToSwitch::default() };
        let step = following.receive("s1", message, &shared).unwrap();
        let report = shared.replica().report();
        (matches!(step, Step::Report(_)), report.actions.version)
    };
    let actions = |version| Body::Actions { version, actions: vec![Action::Drop, Action::Port(PortId(1))] };
    assert_eq!(receive(actions(1), 1), (false, 1));
    let cells = Body::Resync { table: 9, bytes: vec![] };
    assert_eq!(receive(cells, 1), (true, 1), "of a table that it does not have");
    assert_eq!(receive(actions(2), 1), (false, 1));
    assert_eq!(receive(actions(2), 2), (false, 2));
}

#[test]
fn switches_spread_over_controllers_and_those_of_one_that_is_gone_over_the_others() {
    let order = |i: u32| in_order_for(&format!("s{i}"), controllers_of("https://a:1, https://b:1,https://c:1"));
    let mut n_switches = std::collections::BTreeMap::<Vec<&str>, u32>::new();
    (0..6000).for_each(|i| *n_switches.entry(order(i)).or_default() += 1);
    // 1000 each, in six orders; five standard deviations are 144.
    assert_eq!(n_switches.len(), 6);
    assert!(n_switches.values().all(|n| n.abs_diff(1000) < 144), "{n_switches:?}");
    assert_eq!(order(7), order(7));
}

#[test]
fn the_time_without_a_controller_is_told_in_words_that_hold() {
    let said = |was_connected, seconds| without_controller(was_connected, Duration::from_secs(seconds));
    assert_eq!(said(true, 0), "the connection to the controller ended");
    assert_eq!(said(false, 0), "no controller serves this switch yet");
    assert_eq!(said(false, 75), "no controller for 75 s");
}
