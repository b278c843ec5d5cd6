//! A session without a stream.

use super::*;

const MESSAGE: &[u8] = &[7; 100];

/// Does what the writer and then the pusher do.
fn send(session: &Session, message: &'static [u8], change: u64) -> Option<u64> {
    session.reserve(message.len(), change);
    session.send(Bytes::from_static(message))
}

/// A report of the switch arrives, and the writer takes it.
fn report(session: &Session) {
    assert!(session.ask(Report::default()) && session.take_report().is_some());
}

/// Answers a report at once.
fn send_image(session: &Session, messages: impl IntoIterator<Item = Bytes>, change: u64) {
    session.begin_answer(change);
    messages.into_iter().for_each(|message| session.answer(message));
    session.end_answer();
}

#[tokio::test]
async fn messages_come_in_order_with_their_numbers() {
    let (session, mut outbox) = Session::new(NodeId(1), 1 << 20);
    assert_eq!(send(&session, b"a", 1), Some(1));
    assert_eq!(send(&session, b"b", 1), Some(2));
    for (sequence, bytes) in [(1, b"a"), (2, b"b")] {
        let next = outbox.next().await.unwrap();
        assert_eq!((next.sequence, &next.message[..]), (sequence, &bytes[..]));
    }
}

#[tokio::test]
async fn what_waits_counts_until_it_is_taken() {
    let (session, mut outbox) = Session::new(NodeId(1), 150);
    session.reserve(MESSAGE.len(), 1);
    assert!(session.is_over_limit() && !session.is_caught_up(), "also before it is queued");
    session.send(Bytes::from_static(MESSAGE)).unwrap();
    outbox.next().await.unwrap();
    assert!(!session.is_over_limit() && !session.is_caught_up());
    session.acknowledge(1);
    assert!(session.is_caught_up());
}

#[tokio::test]
async fn message_older_than_the_answer_to_a_report_is_not_sent() {
    let (session, mut outbox) = Session::new(NodeId(1), 1 << 20);
    session.reserve(MESSAGE.len(), 7);
    send_image(&session, [Bytes::from_static(b"state after 7")], 7);
    assert_eq!(session.send(Bytes::from_static(MESSAGE)), None, "made before the answer, queued after it");
    assert_eq!(send(&session, b"8", 8), Some(2));
    outbox.next().await.unwrap();
    outbox.next().await.unwrap();
    session.acknowledge(2);
    assert!(session.is_caught_up(), "its reservation is given back");
}

#[tokio::test]
async fn message_made_after_an_answer_is_sent_even_if_it_is_of_the_same_change() {
    let (session, mut outbox) = Session::new(NodeId(1), 1 << 20);
    session.reserve(MESSAGE.len(), 7);
    send_image(&session, [Bytes::from_static(b"state after 7")], 7);
    session.reserve(b"again".len(), 7);
    assert_eq!(session.send(Bytes::from_static(MESSAGE)), None, "made before the answer");
    assert_eq!(session.send(Bytes::from_static(b"again")), Some(2));
    for expected in [&b"state after 7"[..], b"again"] {
        assert_eq!(&outbox.next().await.unwrap().message[..], expected);
    }
    session.acknowledge(1);
    assert!(!session.serves_all_made());
    session.acknowledge(2);
    assert!(session.is_caught_up());
}

#[tokio::test]
async fn changes_wait_while_an_answer_comes_in_pieces() {
    let (session, mut outbox) = Session::new(NodeId(1), 1 << 20);
    session.begin_answer(7);
    session.answer(Bytes::from_static(b"one"));
    assert_eq!(send(&session, b"change 8", 8), None);
    session.acknowledge(1);
    assert!(!session.serves_all_made(), "the rest of the answer is to come");
    assert_eq!(session.acked_change(), 0);
    session.answer(Bytes::from_static(b"two"));
    session.end_answer();
    for expected in [&b"one"[..], b"two", b"change 8"] {
        assert_eq!(&outbox.next().await.unwrap().message[..], expected);
    }
    session.acknowledge(2);
    assert_eq!(session.acked_change(), 7);
    session.acknowledge(3);
    assert!(session.is_caught_up() && session.acked_change() == 8);
}

#[tokio::test]
async fn answer_that_is_given_up_is_no_acknowledgement() {
    let (session, _outbox) = Session::new(NodeId(1), 1 << 20);
    session.begin_answer(7);
    session.answer(Bytes::from_static(b"one"));
    assert_eq!(send(&session, b"change 8", 8), None);
    session.give_up_answer();
    session.acknowledge(1);
    assert_eq!(session.acked_change(), 0);
    send_image(&session, [Bytes::from_static(b"all")], 9);
    session.acknowledge(2);
    assert_eq!((session.acked_change(), session.serves_all_made()), (9, true));
}

/// The switch lost change 5, says so, and acknowledges the first of two messages of the answer.
#[tokio::test]
async fn part_of_an_answer_acknowledges_nothing_that_the_switch_had_asked_for() {
    let (session, _outbox) = Session::new(NodeId(1), 1 << 20);
    send(&session, b"change 5", 5);
    send(&session, b"change 6", 6);
    send_image(&session, [Bytes::from_static(b"one"), Bytes::from_static(b"two")], 7);
    let acked = [3, 4].map(|sequence| {
        session.acknowledge(sequence);
        session.acked_change()
    });
    assert_eq!(acked, [0, 7]);
}

#[test]
fn parked_switch_is_noticed_when_it_has_acknowledged_everything() {
    let (session, _outbox) = Session::new(NodeId(1), 1 << 20);
    send(&session, b"a", 1);
    send(&session, b"b", 2);
    session.set_parked(true);
    assert!(!session.acknowledge(1));
    assert!(session.acknowledge(2));
}

#[tokio::test]
async fn switch_that_cannot_follow_is_sent_nothing_until_it_asks_again() {
    let (session, mut outbox) = Session::new(NodeId(1), 1 << 20);
    send_image(&session, [Bytes::from_static(b"too large"), Bytes::from_static(b"the rest")], 1);
    assert_eq!(&outbox.next().await.unwrap().message[..], b"too large");
    session.set_stuck("no room".to_owned());
    send(&session, b"change", 2);
    assert!(session.is_lagging());
    report(&session);
    send_image(&session, [Bytes::from_static(b"smaller")], 3);
    let next = outbox.next().await.unwrap();
    assert_eq!((&next.message[..], session.stuck().as_deref()), (&b"smaller"[..], Some("no room")));
    session.acknowledge(next.sequence);
    assert_eq!((session.stuck(), session.is_caught_up()), (None, true));
}

#[tokio::test]
async fn switch_that_asks_without_reading_is_cut_off() {
    let (session, _outbox) = Session::new(NodeId(1), 1000);
    let image = || [Bytes::from_static(&[7; 5000])];
    send_image(&session, image(), 1);
    assert!(!session.is_ended(), "an image may be larger than the limit");
    send_image(&session, image(), 1);
    assert!(session.is_ended());
}

#[test]
fn writer_is_told_once_of_reports_that_it_has_not_taken() {
    let (session, _outbox) = Session::new(NodeId(1), 1 << 20);
    let report = |term| Report { term, ..Report::default() };
    assert_eq!([1, 2, 3].map(|term| session.ask(report(term))), [true, false, false]);
    assert_eq!(session.take_report(), Some(report(3)));
    assert_eq!((session.take_report(), session.ask(report(4))), (None, true));
}

#[test]
fn change_is_acknowledged_with_its_last_message() {
    let (session, _outbox) = Session::new(NodeId(1), 1 << 20);
    for change in [5, 5, 6, 6, 6] {
        send(&session, MESSAGE, change);
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
    let (session, _outbox) = Session::new(NodeId(1), 1 << 20);
    session.reserve(MESSAGE.len(), 5);
    session.reserve(MESSAGE.len(), 5);
    session.send(Bytes::from_static(MESSAGE)).unwrap();
    session.acknowledge(1);
    assert_eq!(session.acked_change(), 0, "its second phase is with the pusher");
    session.send(Bytes::from_static(MESSAGE)).unwrap();
    session.acknowledge(2);
    assert_eq!(session.acked_change(), 5);
}

#[test]
fn change_is_acknowledged_when_all_that_is_not_queued_is_covered_by_an_answer() {
    let (session, _outbox) = Session::new(NodeId(1), 1 << 20);
    session.reserve(MESSAGE.len(), 5);
    send_image(&session, [Bytes::from_static(MESSAGE)], 5);
    session.acknowledge(1);
    assert_eq!(session.send(Bytes::from_static(MESSAGE)), None);
    assert_eq!(session.acked_change(), 5);
}

#[tokio::test]
async fn waiting_ends_with_the_acknowledgement_or_the_session() {
    let (session, outbox) = Session::new(NodeId(1), 1 << 20);
    send(&session, MESSAGE, 1);
    send(&session, MESSAGE, 2);
    session.acknowledge(1);
    session.acknowledged(1).await;
    drop(outbox);
    session.acknowledged(2).await;
    assert_eq!(send(&session, MESSAGE, 3), None);
}

#[tokio::test]
async fn messages_say_how_many_reports_the_switch_sent_before_they_were_made() {
    let (session, mut outbox) = Session::new(NodeId(1), 1 << 20);
    let image = || [Bytes::from_static(MESSAGE)];
    send_image(&session, image(), 1);
    assert_eq!(outbox.next().await.unwrap().answered, 1, "the hello");
    send_image(&session, image(), 2);
    assert_eq!(outbox.next().await.unwrap().answered, 1, "nobody asked");
    session.ask(Report::default());
    session.ask(Report::default());
    send(&session, MESSAGE, 3);
    assert_eq!(outbox.next().await.unwrap().answered, 1, "not answered yet");
    session.take_report().unwrap();
    send_image(&session, image(), 3);
    assert_eq!(outbox.next().await.unwrap().answered, 3, "both are answered");
}

/// A switch that comes to a controller whose store was set back has versions of changes that this controller never made.
#[test]
fn versions_of_a_switch_say_nothing_until_it_has_the_answer_to_its_report() {
    let (session, _outbox) = Session::new(NodeId(1), 1 << 20);
    assert!(!session.is_reconciled(), "its hello is not answered");
    session.begin_answer(7);
    [&b"a"[..], b"b"].into_iter().for_each(|message| session.answer(Bytes::from_static(message)));
    assert!(!session.is_reconciled(), "more may come");
    session.end_answer();
    send(&session, MESSAGE, 8).unwrap();
    session.acknowledge(1);
    assert!(!session.is_reconciled(), "the answer has two messages");
    session.acknowledge(2);
    assert!(session.is_reconciled(), "what is not acknowledged is of this controller");
    report(&session);
    assert!(!session.is_reconciled(), "it asks again");
    session.begin_answer(8);
    session.end_answer();
    assert!(session.is_reconciled(), "it lacked nothing");
    report(&session);
    session.begin_answer(8);
    session.answer(Bytes::from_static(b"c"));
    session.give_up_answer();
    session.acknowledge(4);
    assert!(!session.is_reconciled(), "a part of an answer is none");
}
