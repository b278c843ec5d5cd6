//! Another hash key, prepared beside changes.

use super::*;

/// Names come, move and go while another hash key is prepared, 100 names a turn.
#[test]
fn rekey_beside_changes_loses_none_and_is_committed_whole() {
    let mut rng = lookup::hash::Rng::new(lookup::testkit::seed());
    let mut bench = bench();
    bench.add_second_host();
    bench.import(0, 3_000);
    let mut replica = replica();
    let stream = bench.attach(&replica);
    bench.drain(&stream, &mut replica);
    let key = bench.owner.state.network.settings().key.clone();
    let asked = bench.rekey();
    let second = bench.rekey();
    assert!(matches!(bench.answers[&second], Err(Refusal::RekeyInProgress)));
    let mut n_turns = 0;
    while bench.owner.rekey.is_some() {
        for _ in 0..5 {
            bench.change(random_change(&mut rng)).unwrap();
            bench.send();
        }
        if rng.below(3) == 0 {
            bench.drain(&stream, &mut replica);
        }
        bench.go_on_with_rekey(100);
        n_turns += 1;
    }
    assert!(n_turns > 30, "{n_turns}");
    let n_names = bench.owner.state.network.rib().len() as u64;
    assert_eq!(bench.answers[&asked].as_ref().unwrap(), &Changed { changed: n_names, unchanged: 0 });
    assert_ne!(bench.owner.state.network.settings().key.as_bytes(), key.as_bytes());
    assert!(bench.network_rows() == rows_of(&bench.owner.state.network));
    for _ in 0..5 {
        bench.change(random_change(&mut rng)).unwrap();
        bench.send();
    }
    let old_table = replica.report().table;
    bench.drain(&stream, &mut replica);
    assert_eq!(replica.report().table, old_table, "it has first what was made for it before");
    bench.release(false);
    bench.answer_reports(usize::MAX);
    bench.drain(&stream, &mut replica);
    assert_ne!(replica.report().table, old_table);
    assert!(bench.in_step()[0] && bench.serves_all(1, &replica));
    // What was committed is the same network.
    bench.owner.state.network.detach(NodeId(1));
    let views = bench.owner.view_rows();
    bench.commit(&views).unwrap();
    let row = |((kind, key), value)| RowChange { kind, key, value: Some(value) };
    let restored = Network::restore(Settings::new(7, key), 2, bench.network_rows().into_iter().map(row)).unwrap().0;
    assert!(restored.rib().iter().eq(bench.owner.state.network.rib().iter()));
}

/// The network still knows what was sent by the first stream, which the switch may not have.
#[test]
fn switch_that_connects_again_as_a_rekey_ends_is_answered_once_and_followed() {
    let mut bench = bench();
    bench.import(0, 100);
    let mut replica = replica();
    let first = bench.attach(&replica);
    bench.drain(&first, &mut replica);
    bench.rekey();
    assert!(bench.owner.rekey.is_some());
    let second = bench.hello("s1", replica.report()).unwrap();
    while bench.owner.rekey.is_some() {
        bench.go_on_with_rekey(usize::MAX);
    }
    assert_eq!(bench.owner.unanswered.len(), 1, "a second answer would leave the switch detached after the first");
    bench.answer_reports(usize::MAX);
    bench.drain(&second, &mut replica);
    assert!(bench.in_step()[0] && bench.serves_all(1, &replica));
    bench.take([Input::Change { change: put(1), ticket: 99, is_traced: false }]).unwrap();
    assert_eq!(bench.in_step(), [false], "it has not got the change yet");
    bench.drain(&second, &mut replica);
    assert!(bench.in_step()[0] && bench.serves_all(1, &replica));
}

#[test]
fn rekey_that_a_new_table_overtakes_begins_again() {
    let mut bench = bench();
    bench.import(0, 1_000);
    let asked = bench.rekey();
    bench.change(Change::AddSwitch { name: "s2".to_owned(), tenants: vec![1, 2] }).unwrap();
    while bench.owner.rekey.is_some() {
        bench.go_on_with_rekey(usize::MAX);
    }
    assert_eq!(bench.answers[&asked].as_ref().unwrap().changed, 1_000);
    assert!(bench.network_rows() == rows_of(&bench.owner.state.network));
}

#[test]
fn nothing_of_one_tenant_starts_a_rekey() {
    let mut bench = bench();
    bench.import(0, 100);
    let key = bench.owner.state.network.settings().key.clone();
    bench.owner.group.rekey = true;
    bench.stages([Stage::Commit, Stage::Messages]);
    assert!(bench.owner.rekey.is_none());
    assert_eq!(bench.owner.state.network.settings().key.as_bytes(), key.as_bytes());
}
