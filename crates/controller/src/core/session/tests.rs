//! What waits for a switch, and what it acknowledges.

use super::*;

/// Takes what the transport is to send next.
fn next(session: &mut Session) -> ToSwitch {
    let Next::Message(message) = session.take() else { panic!("a message") };
    *message
}

const MESSAGE: &[u8] = &[7; 100];

/// Plays the writer and then the pusher.
fn send(session: &mut Session, message: &'static [u8], change: u64) -> Option<u64> {
    session.reserve(message.len(), change);
    session.send(Bytes::from_static(message), Instant::now())
}

/// A report of the switch arrives, and the writer takes it.
fn report(session: &mut Session) {
    assert!(session.ask(Report::default()) && session.take_report().is_some());
}

/// Answers a report at once.
fn send_image(session: &mut Session, messages: impl IntoIterator<Item = Bytes>, change: u64) {
    session.begin_answer(change);
    messages.into_iter().for_each(|message| session.answer(message, Instant::now()));
    session.end_answer(Instant::now());
}

#[test]
fn messages_come_in_order_with_their_numbers() {
    let mut session = Session::new(NodeId(1), 1 << 20);
    assert_eq!(send(&mut session, b"a", 1), Some(1));
    assert_eq!(send(&mut session, b"b", 1), Some(2));
    for (sequence, bytes) in [(1, b"a"), (2, b"b")] {
        let next = next(&mut session);
        assert_eq!((next.sequence, &next.message[..]), (sequence, &bytes[..]));
    }
}

#[test]
fn what_waits_counts_until_it_is_taken() {
    let mut session = Session::new(NodeId(1), 150);
    session.reserve(MESSAGE.len(), 1);
    assert!(session.is_over_limit() && !session.is_caught_up(), "also before it is queued");
    session.send(Bytes::from_static(MESSAGE), Instant::now()).unwrap();
    next(&mut session);
    assert!(!session.is_over_limit() && !session.is_caught_up());
    session.acknowledge(1);
    assert!(session.is_caught_up());
}

#[test]
fn message_older_than_the_answer_to_a_report_is_not_sent() {
    let mut session = Session::new(NodeId(1), 1 << 20);
    session.reserve(MESSAGE.len(), 7);
    send_image(&mut session, [Bytes::from_static(b"state after 7")], 7);
    assert_eq!(
        session.send(Bytes::from_static(MESSAGE), Instant::now()),
        None,
        "made before the answer, queued after it"
    );
    assert_eq!(send(&mut session, b"8", 8), Some(2));
    next(&mut session);
    next(&mut session);
    session.acknowledge(2);
    assert!(session.is_caught_up(), "its reservation is given back");
}

#[test]
fn message_made_after_an_answer_is_sent_even_if_it_is_of_the_same_change() {
    let mut session = Session::new(NodeId(1), 1 << 20);
    session.reserve(MESSAGE.len(), 7);
    send_image(&mut session, [Bytes::from_static(b"state after 7")], 7);
    session.reserve(b"again".len(), 7);
    assert_eq!(session.send(Bytes::from_static(MESSAGE), Instant::now()), None, "made before the answer");
    assert_eq!(session.send(Bytes::from_static(b"again"), Instant::now()), Some(2));
    for expected in [&b"state after 7"[..], b"again"] {
        assert_eq!(&next(&mut session).message[..], expected);
    }
    session.acknowledge(1);
    assert!(!session.serves_all_made());
    session.acknowledge(2);
    assert!(session.is_caught_up());
}

#[test]
fn changes_wait_while_an_answer_comes_in_pieces() {
    let mut session = Session::new(NodeId(1), 1 << 20);
    session.begin_answer(7);
    session.answer(Bytes::from_static(b"one"), Instant::now());
    assert_eq!(send(&mut session, b"change 8", 8), None);
    session.acknowledge(1);
    assert!(!session.serves_all_made(), "the rest of the answer is to come");
    assert_eq!(session.acked_change(), 0);
    session.answer(Bytes::from_static(b"two"), Instant::now());
    session.end_answer(Instant::now());
    for expected in [&b"one"[..], b"two", b"change 8"] {
        assert_eq!(&next(&mut session).message[..], expected);
    }
    session.acknowledge(2);
    assert_eq!(session.acked_change(), 7);
    session.acknowledge(3);
    assert!(session.is_caught_up() && session.acked_change() == 8);
}

#[test]
fn answer_that_is_given_up_is_no_acknowledgement() {
    let mut session = Session::new(NodeId(1), 1 << 20);
    session.begin_answer(7);
    session.answer(Bytes::from_static(b"one"), Instant::now());
    assert_eq!(send(&mut session, b"change 8", 8), None);
    session.give_up_answer();
    session.acknowledge(1);
    assert_eq!(session.acked_change(), 0);
    send_image(&mut session, [Bytes::from_static(b"all")], 9);
    session.acknowledge(2);
    assert_eq!((session.acked_change(), session.serves_all_made()), (9, true));
}

/// The switch lost change 5, says so, and acknowledges the first of two messages of the answer.
#[test]
fn part_of_an_answer_acknowledges_nothing_that_the_switch_had_asked_for() {
    let mut session = Session::new(NodeId(1), 1 << 20);
    send(&mut session, b"change 5", 5);
    send(&mut session, b"change 6", 6);
    send_image(&mut session, [Bytes::from_static(b"one"), Bytes::from_static(b"two")], 7);
    let acked = [3, 4].map(|sequence| {
        session.acknowledge(sequence);
        session.acked_change()
    });
    assert_eq!(acked, [0, 7]);
}

#[test]
fn parked_switch_is_noticed_when_it_has_acknowledged_everything() {
    let mut session = Session::new(NodeId(1), 1 << 20);
    send(&mut session, b"a", 1);
    send(&mut session, b"b", 2);
    session.set_parked(true);
    assert!(!session.acknowledge(1));
    assert!(session.acknowledge(2));
}

#[test]
fn switch_that_cannot_follow_is_sent_nothing_until_it_asks_again() {
    let mut session = Session::new(NodeId(1), 1 << 20);
    send_image(&mut session, [Bytes::from_static(b"too large"), Bytes::from_static(b"the rest")], 1);
    assert_eq!(&next(&mut session).message[..], b"too large");
    session.set_stuck("no room".to_owned());
    send(&mut session, b"change", 2);
    assert!(session.is_lagging());
    report(&mut session);
    send_image(&mut session, [Bytes::from_static(b"smaller")], 3);
    let next = next(&mut session);
    assert_eq!((&next.message[..], session.stuck()), (&b"smaller"[..], Some("no room")));
    session.acknowledge(next.sequence);
    assert_eq!((session.stuck(), session.is_caught_up()), (None, true));
}

#[test]
fn switch_that_asks_without_reading_is_cut_off() {
    let mut session = Session::new(NodeId(1), 1000);
    let image = || [Bytes::from_static(&[7; 5000])];
    send_image(&mut session, image(), 1);
    assert!(!session.is_ended(), "an image may be larger than the limit");
    send_image(&mut session, image(), 1);
    assert!(session.is_ended());
}

#[test]
fn writer_is_told_once_of_reports_that_it_has_not_taken() {
    let mut session = Session::new(NodeId(1), 1 << 20);
    let report = |term| Report { term, ..Report::default() };
    assert_eq!([1, 2, 3].map(|term| session.ask(report(term))), [true, false, false]);
    assert_eq!(session.take_report(), Some(report(3)));
    assert_eq!((session.take_report(), session.ask(report(4))), (None, true));
}

#[test]
fn change_is_acknowledged_with_its_last_message() {
    let mut session = Session::new(NodeId(1), 1 << 20);
    for change in [5, 5, 6, 6, 6] {
        send(&mut session, MESSAGE, change);
    }
    let acked = [1, 2, 4, 3, 99].map(|sequence| {
        session.acknowledge(sequence);
        session.acked_change()
    });
    assert_eq!(acked, [0, 5, 5, 5, 6]);
    assert_eq!(session.progress(), (5, 5, 500));
}

#[test]
fn change_is_not_acknowledged_while_messages_of_a_later_phase_are_not_queued() {
    let mut session = Session::new(NodeId(1), 1 << 20);
    session.reserve(MESSAGE.len(), 5);
    session.reserve(MESSAGE.len(), 5);
    session.send(Bytes::from_static(MESSAGE), Instant::now()).unwrap();
    session.acknowledge(1);
    assert_eq!(session.acked_change(), 0, "its second phase is with the pusher");
    session.send(Bytes::from_static(MESSAGE), Instant::now()).unwrap();
    session.acknowledge(2);
    assert_eq!(session.acked_change(), 5);
}

#[test]
fn change_is_acknowledged_when_all_that_is_not_queued_is_covered_by_an_answer() {
    let mut session = Session::new(NodeId(1), 1 << 20);
    session.reserve(MESSAGE.len(), 5);
    send_image(&mut session, [Bytes::from_static(MESSAGE)], 5);
    session.acknowledge(1);
    assert_eq!(session.send(Bytes::from_static(MESSAGE), Instant::now()), None);
    assert_eq!(session.acked_change(), 5);
}

#[test]
fn messages_say_how_many_reports_the_switch_sent_before_they_were_made() {
    let mut session = Session::new(NodeId(1), 1 << 20);
    let image = || [Bytes::from_static(MESSAGE)];
    send_image(&mut session, image(), 1);
    assert_eq!(next(&mut session).answered, 1, "the hello");
    send_image(&mut session, image(), 2);
    assert_eq!(next(&mut session).answered, 1, "nobody asked");
    session.ask(Report::default());
    session.ask(Report::default());
    send(&mut session, MESSAGE, 3);
    assert_eq!(next(&mut session).answered, 1, "not answered yet");
    session.take_report().unwrap();
    send_image(&mut session, image(), 3);
    assert_eq!(next(&mut session).answered, 3, "both are answered");
}

/// A switch that comes to a controller whose store was set back has versions of changes that this controller never made.
#[test]
fn versions_of_a_switch_say_nothing_until_it_has_the_answer_to_its_report() {
    let mut session = Session::new(NodeId(1), 1 << 20);
    assert!(!session.is_reconciled(), "its hello is not answered");
    session.begin_answer(7);
    [&b"a"[..], b"b"].into_iter().for_each(|message| session.answer(Bytes::from_static(message), Instant::now()));
    assert!(!session.is_reconciled(), "more may come");
    session.end_answer(Instant::now());
    send(&mut session, MESSAGE, 8).unwrap();
    session.acknowledge(1);
    assert!(!session.is_reconciled(), "the answer has two messages");
    session.acknowledge(2);
    assert!(session.is_reconciled(), "what is not acknowledged is of this controller");
    report(&mut session);
    assert!(!session.is_reconciled(), "it asks again");
    session.begin_answer(8);
    session.end_answer(Instant::now());
    assert!(session.is_reconciled(), "it lacked nothing");
    report(&mut session);
    session.begin_answer(8);
    session.answer(Bytes::from_static(b"c"), Instant::now());
    session.give_up_answer();
    session.acknowledge(4);
    assert!(!session.is_reconciled(), "a part of an answer is none");
}
