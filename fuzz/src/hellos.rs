//! Hellos of switches at a trunk, one after another.

use crate::pieces::{pieces, put};
use dataplane::links::hello::GROUP;
use dataplane::links::{Hello, LinkState, Session, Timing};
use fib::action::PortId;
use std::time::{Duration, Instant};

const OWN: u64 = 5;

pub(crate) fn run(data: &[u8]) {
    let mut now = Instant::now();
    let mut session = Session::new(PortId(8), OWN, Timing::default(), now);
    session.joined(7);
    for (what, rest) in pieces(data).take(200) {
        now += Duration::from_millis(u64::from(what) * 4);
        session.judge(now);
        let Some(hello) = Hello::decode(&[&GROUP[..], rest].concat()) else { continue };
        assert_eq!(Hello::decode(&hello.encode()).as_ref(), Some(&hello), "it means the same when written");
        let heard = session.tally().heard();
        session.hear(&hello, now);
        assert_eq!(session.tally().heard(), heard + 1);
        if session.neighbour().is_none() {
            assert_ne!(session.state().0, LinkState::Up, "a link is up to nobody");
        }
        if let Some(neighbour) = session.neighbour() {
            assert!(!neighbour.switch.is_empty() && !neighbour.switch.contains(char::is_control), "{neighbour}");
        }
        let said = session.hello("s1");
        assert_eq!(Hello::decode(&said.encode()), Some(said));
        assert!(session.deadline().is_some(), "who was heard is missed");
    }
}

pub(crate) fn seeds() -> Vec<Vec<u8>> {
    let hello = |switch: &str, session, hears, cluster| {
        let (switch, port, interval_ms, multiplier) = (switch.to_owned(), PortId(3), 100, 3);
        Hello { switch, port, session, hears, cluster, interval_ms, multiplier }.encode()
    };
    let us = Some((OWN, PortId(8)));
    let mut seed = Vec::new();
    let hellos = [
        ("s2", 9, None, 7),
        ("s2", 9, us, 7),
        ("s2", 10, us, 7),
        ("s3", 4, us, 7),
        ("s1", OWN, us, 7),
        ("s4", 6, us, 9),
    ];
    for (switch, session, hears, cluster) in hellos {
        for _ in 0..3 {
            put(&mut seed, 25, &hello(switch, session, hears, cluster)[GROUP.len()..]);
        }
    }
    vec![seed]
}
