//! Switches that are parked, and those that wait for room.

use super::*;

#[test]
fn import_of_many_batches_is_sent_to_a_switch_once() {
    let mut bench = bench();
    let mut replica = replica();
    let stream = bench.attach(&replica);
    bench.drain(&stream, &mut replica);
    for batch in 0..5 {
        bench.import(batch * 20_000, 20_000);
        assert_eq!(bench.in_step(), [false]);
    }
    assert_eq!(bench.drain(&stream, &mut replica), 0, "nothing while the import runs");
    bench.release(true);
    bench.drain(&stream, &mut replica);
    assert!(bench.serves_all(1, &replica));
    assert_eq!(replica.tables().valid.len(), 100_000);
    assert_eq!(bench.in_step(), [true]);
}

#[test]
fn in_step_is_not_said_while_a_parked_switch_is_released() {
    let mut bench = bench();
    let mut replica = replica();
    let stream = bench.attach(&replica);
    bench.drain(&stream, &mut replica);
    assert!(bench.in_step()[0] && bench.serves_all(1, &replica));
    (0..2).for_each(|batch| bench.import(batch * 20_000, 20_000));
    bench.release(true);
    assert_eq!(bench.in_step(), [false], "its messages are made, and with the pusher");
    bench.send();
    assert_eq!(bench.in_step(), [false]);
    bench.drain(&stream, &mut replica);
    assert!(bench.in_step()[0] && bench.serves_all(1, &replica));
}

#[test]
fn switch_that_lags_gets_the_newest_state_once_and_costs_its_limit() {
    let mut bench = bench();
    bench.owner.bounds.switch_backlog_bytes = 2_000;
    let mut replica = replica();
    let stream = bench.attach(&replica);
    bench.drain(&stream, &mut replica);
    for index in 0..=255 {
        bench.owner.park(|session| session.is_over_limit(), bench.now);
        bench.change(put(index)).unwrap();
        bench.send();
        bench.release(false);
    }
    let n_waiting = bench.drain(&stream, &mut replica);
    assert!(n_waiting < 100, "{n_waiting} messages");
    bench.release(false);
    let n_missing = bench.drain(&stream, &mut replica);
    assert!(n_missing < 10, "{n_missing} messages");
    assert_eq!(replica.tables().local.len(), 256);
    assert!(bench.serves_all(1, &replica));
}

#[test]
fn parked_switch_that_connects_again_is_told_by_its_new_stream_only() {
    let mut bench = bench();
    let mut replica = replica();
    let first = bench.attach(&replica);
    bench.import(0, 20_000);
    let second = bench.attach(&replica);
    bench.release(true);
    assert!(is_ended(&first) && matches!(first.with(Session::take), Next::Ended));
    bench.drain(&second, &mut replica);
    assert!(bench.serves_all(1, &replica));
    bench.task(Task::Detach(first));
    assert!(bench.owner.state.network.is_attached(NodeId(1)), "the end of the first stream is no news");
}

#[test]
fn images_are_made_while_there_is_room_and_the_others_come_later() {
    let mut bench = bench();
    ["s2", "s3"].into_iter().for_each(|name| bench.add_switch(name));
    bench.import(0, 20_000);
    bench.owner.bounds.waiting_bytes = 1;
    let mut replicas = [1, 2, 3].map(|_| replica());
    let streams = [("s1", 0), ("s2", 1), ("s3", 2)].map(|(name, i)| bench.attach_as(name, replicas[i].report()));
    let backlogs = || streams.each_ref().map(|stream| backlog(stream) > 0);
    assert_eq!(backlogs(), [true, false, false]);
    bench.import(20_000, 20_000);
    assert_eq!(backlogs(), [true, false, false], "nothing is made for those that wait");
    // One message at a time: each fills the room.
    while bench.in_step() != [true; 3] {
        let n_messages: usize = (0..3).map(|i| bench.drain(&streams[i], &mut replicas[i])).sum();
        bench.answer_reports(usize::MAX);
        bench.release(true);
        assert!(n_messages > 0, "somebody is sent something in each round");
    }
    assert!((0..3).all(|i| bench.serves_all(i as u32 + 1, &replicas[i])));
}

#[test]
fn parked_switch_is_seen_again_when_what_waits_for_it_is_dropped() {
    let mut bench = bench();
    let mut replica = replica();
    let stream = bench.attach(&replica);
    bench.drain(&stream, &mut replica);
    bench.import(0, BULK_NAMES as u32);
    assert!(is_parked(&stream));
    // It is taken from the stream after the owner looked, and nothing acknowledges it.
    let question = api::v1::ToSwitch { verify: 1, ..Default::default() };
    assert!(stream.with(|session| session.ask_now(question)));
    bench.owner.last_bulk = None;
    bench.owner.take_wants_release();
    bench.release(false);
    assert!(is_parked(&stream) && !stream.with(|session| session.is_caught_up()));
    assert!(bench.owner.take_wants_release(), "the owner looks again");
    let Next::Message(asked) = stream.with(Session::take) else { panic!("a question") };
    assert_eq!(asked.verify, 1);
    bench.release(false);
    bench.drain(&stream, &mut replica);
    assert!(bench.in_step()[0] && bench.serves_all(1, &replica));
}

#[test]
fn who_holds_the_most_for_too_long_while_others_wait_is_cut_off() {
    let mut bench = bench();
    bench.add_switch("s2");
    bench.owner.bounds.waiting_bytes = 1;
    let report = replica().report();
    let idle = bench.attach_as("s1", report.clone());
    let next = bench.attach_as("s2", report);
    bench.answer_reports(usize::MAX);
    assert!(!is_ended(&idle) && backlog(&next) == 0);
    bench.now += reports::ROOM_PATIENCE;
    bench.answer_reports(usize::MAX);
    assert!(is_ended(&idle));
    bench.answer_reports(usize::MAX);
    assert!(!is_ended(&next) && backlog(&next) > 0);
}
