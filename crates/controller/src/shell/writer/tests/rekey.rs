//! Another hash key, prepared beside changes.

use super::*;

/// Names come, move and go while another hash key is prepared, 100 names a turn.
#[test]
fn rekey_beside_changes_loses_none_and_is_committed_whole() {
    let mut rng = lookup::hash::Rng::new(lookup::testkit::seed());
    let mut bench = bench(usize::MAX);
    add_second_host(&mut bench);
    import(&mut bench.writer, 0, 3_000);
    let mut replica = Replica::new(Limits::default(), MemoryTables::default());
    let mut attached = attach(&mut bench.writer, &replica);
    drain(&mut bench, &mut attached, &mut replica);
    let key = bench.writer.state.network.settings().key.clone();
    let (reply, mut answer) = oneshot::channel();
    bench.writer.begin_rekey(Some(reply));
    let (second, refused) = oneshot::channel();
    bench.writer.begin_rekey(Some(second));
    assert!(matches!(refused.blocking_recv().unwrap(), Err(Refusal::RekeyInProgress)));
    let mut n_turns = 0;
    while bench.writer.rekey.is_some() {
        for _ in 0..5 {
            change(&mut bench, random_change(&mut rng));
        }
        if rng.below(3) == 0 {
            drain(&mut bench, &mut attached, &mut replica);
        }
        bench.writer.go_on_with_rekey(100).unwrap();
        n_turns += 1;
    }
    assert!(n_turns > 30, "{n_turns}");
    let n_names = bench.writer.state.network.rib().len() as u64;
    assert_eq!(answer.try_recv().unwrap().unwrap(), Changed { changed: n_names, unchanged: 0 });
    assert_ne!(bench.writer.state.network.settings().key.as_bytes(), key.as_bytes());
    assert!(network_rows(&bench.store) == rows_of(&bench.writer.state.network));
    for _ in 0..5 {
        change(&mut bench, random_change(&mut rng));
    }
    let old_table = replica.report().table;
    drain(&mut bench, &mut attached, &mut replica);
    assert_eq!(replica.report().table, old_table, "it has first what was made for it before");
    bench.writer.release(false);
    bench.writer.answer_reports(usize::MAX);
    drain(&mut bench, &mut attached, &mut replica);
    assert_ne!(replica.report().table, old_table);
    assert_eq!(replica.report(), bench.writer.state.network.held(NodeId(1)).unwrap());
    assert!(bench.writer.shared.connected()[0].in_step && serves_all(&bench, &replica));
    // What was committed is the same network.
    bench.writer.state.network.detach(NodeId(1));
    bench.writer.keep_view_rows();
    let rows = bench.store.rows().map(Result::unwrap).filter(|row| row.kind != HOST_ROW);
    let restored = Network::restore(Settings::new(7, key), 2, rows).unwrap().0;
    assert!(restored.rib().iter().eq(bench.writer.state.network.rib().iter()));
}

/// The network still knows what was sent by the first stream, which the switch may not have.
#[test]
fn switch_that_connects_again_as_a_rekey_ends_is_answered_once_and_followed() {
    let mut bench = bench(usize::MAX);
    import(&mut bench.writer, 0, 100);
    let mut replica = Replica::new(Limits::default(), MemoryTables::default());
    let mut first = attach(&mut bench.writer, &replica);
    drain(&mut bench, &mut first, &mut replica);
    bench.writer.begin_rekey(Some(oneshot::channel().0));
    assert!(bench.writer.rekey.is_some());
    let mut second = bench.writer.attach("s1", replica.report(), true).unwrap();
    while bench.writer.rekey.is_some() {
        bench.writer.go_on_with_rekey(usize::MAX).unwrap();
    }
    assert_eq!(bench.writer.unanswered.len(), 1, "a second answer would leave the switch detached after the first");
    bench.writer.answer_reports(usize::MAX);
    drain(&mut bench, &mut second, &mut replica);
    assert!(bench.writer.shared.connected()[0].in_step && serves_all(&bench, &replica));
    let (job, _answer) = put(1);
    bench.writer.turn(job, || None).unwrap();
    assert!(!bench.writer.shared.connected()[0].in_step, "it has not got the change yet");
    drain(&mut bench, &mut second, &mut replica);
    assert!(bench.writer.shared.connected()[0].in_step && serves_all(&bench, &replica));
}

#[test]
fn rekey_that_a_new_table_overtakes_begins_again() {
    let mut bench = bench(usize::MAX);
    import(&mut bench.writer, 0, 1_000);
    let (reply, mut answer) = oneshot::channel();
    bench.writer.begin_rekey(Some(reply));
    change(&mut bench, Change::AddSwitch { name: "s2".to_owned(), tenants: vec![1, 2] });
    while bench.writer.rekey.is_some() {
        bench.writer.go_on_with_rekey(usize::MAX).unwrap();
    }
    assert_eq!(answer.try_recv().unwrap().unwrap().changed, 1_000);
    assert!(*bench.store.rows.lock().unwrap() == rows_of(&bench.writer.state.network));
}

#[test]
fn nothing_of_one_tenant_starts_a_rekey() {
    let mut bench = bench(usize::MAX);
    import(&mut bench.writer, 0, 100);
    let key = bench.writer.state.network.settings().key.clone();
    bench.writer.finish(Group { rekey: true, ..Group::default() }).unwrap();
    assert!(bench.writer.rekey.is_none());
    assert_eq!(bench.writer.state.network.settings().key.as_bytes(), key.as_bytes());
}
