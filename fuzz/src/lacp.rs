//! Frames of LACP at the members of a bundle, one after another.

use crate::pieces::{pieces, put};
use dataplane::bundle::aggregate::{Aggregate, Identity, Settings};
use dataplane::bundle::lacp::Manner;
use dataplane::bundle::pdu::{End, GROUP, Malformed, Pdu, Slow, State, is_slow};
use fib::action::PortId;
use std::time::{Duration, Instant};

const MEMBERS: usize = 3;
const MIN_LINKS: usize = 2;
const OWN: [u8; 6] = [2, 0, 0, 0, 0, 1];
/// Destination, source and EtherType, which a frame of this kind has.
const HEADER: usize = 14;

pub(crate) fn run(data: &[u8]) {
    let mut now = Instant::now();
    let identity = Identity { system: OWN, key: 1, first: 1, port: PortId(1), session: 1 };
    let manner = Manner { is_active: true, is_fast: true };
    let settings = Settings { lacp: Some(manner), min_links: MIN_LINKS, hellos: None };
    let mut bundle = Aggregate::new(identity, settings, MEMBERS, now);
    let mut has_carrier = [true; MEMBERS];
    for (what, fields) in pieces(data).take(200) {
        let place = usize::from(what) % MEMBERS;
        now += Duration::from_millis(10 * u64::from(what / MEMBERS as u8));
        let frame = [&GROUP[..], &[2, 0, 0, 0, 0, 2, 0x88, 9], fields].concat();
        assert!(is_slow(&frame));
        match Slow::decode(&frame, OWN) {
            Ok(Slow::Lacp(pdu)) => {
                assert_eq!(Slow::decode(&pdu.encode(), OWN), Ok(Slow::Lacp(pdu)), "it means the same when written");
                assert_eq!(bundle.hear(place, &pdu, now), pdu.actor.system == OWN);
            }
            Ok(Slow::Marker(answer)) => {
                assert!(is_slow(&answer) && answer[6..12] == OWN, "an answer is this switch's");
                assert_eq!(Slow::decode(&answer, OWN), Ok(Slow::Other), "nobody answers an answer");
            }
            Ok(Slow::Other) | Err(Malformed::Field { .. } | Malformed::Short { .. } | Malformed::Sender) => {}
            Err(other) => panic!("{other}"),
        }
        // A carrier that comes and goes.
        let next = (place + 1) % MEMBERS;
        has_carrier[next] = what & 0x80 == 0;
        bundle.carrier(next, has_carrier[next], now);
        bundle.judge(now);
        holds(&bundle);
        assert!(bundle.deadline().is_some() || has_carrier == [false; MEMBERS], "a member with a carrier speaks again");
        for (_, said) in bundle.say(now) {
            assert_eq!(said.actor.system, OWN);
        }
    }
}

/// Members that send also take what comes, are of one partner, and are as many as there must be.
fn holds(bundle: &Aggregate) {
    let sends = bundle.distributes();
    assert_eq!(sends & !bundle.collects(), 0, "a member sends and does not take what comes");
    let n = sends.count_ones() as usize;
    assert!(n == 0 || n >= MIN_LINKS, "{n} members send");
    let partners = (0..MEMBERS).filter(|place| sends >> place & 1 != 0);
    let mut partners = partners.map(|place| bundle.partner_at(place).expect("who sends has a partner").bundle());
    let first = partners.next();
    assert!(partners.all(|partner| Some(partner) == first), "members that send lead to several switches");
}

pub(crate) fn seeds() -> Vec<Vec<u8>> {
    let good = State(State::ACTIVE | State::SHORT | State::AGGREGATES | State::IN_SYNC);
    let both = State(good.0 | State::COLLECTS | State::DISTRIBUTES);
    let end = |system: u8, port, state| {
        let system = [2, 0, 0, 0, 0, system];
        End { system_priority: 0x8000, system, key: 1, port_priority: 0x8000, port, state }
    };
    let pdu = |port, state| Pdu { actor: end(2, port, state), partner: end(1, port, state) };
    let mut seed = Vec::new();
    // Each member hears its partner four times within a second, then one is alone, and one hears itself.
    for (n, port) in (0..12_u8).map(|n| (n, n % MEMBERS as u8)) {
        let pdu = pdu(u16::from(port) + 1, if n < 3 { good } else { both });
        put(&mut seed, port + 3 * 10, &pdu.encode()[HEADER..]);
    }
    put(&mut seed, 0, &pdu(1, State(State::ACTIVE)).encode()[HEADER..]);
    put(&mut seed, 1, &Pdu { actor: end(1, 1, both), partner: end(1, 2, both) }.encode()[HEADER..]);
    let marker = [&[2, 1, 1, 16, 0, 5, 2, 7, 7, 7, 7, 7, 1, 2, 3, 4, 0, 0][..], &[0; 92]].concat();
    put(&mut seed, 2, &marker);
    vec![seed]
}
