use super::*;

const TIMING: Timing = Timing { interval_ms: 100, multiplier: 3 };

fn trunk(min_links: usize, now: Instant) -> Aggregate {
    let identity = Identity { system: [2, 0, 0, 0, 0, 1], key: 1, first: 1, port: PortId(1), session: 5 };
    Aggregate::new(identity, Settings { lacp: None, min_links, hellos: Some(TIMING) }, 3, now)
}

fn with_lacp() -> (Aggregate, Instant) {
    let now = Instant::now();
    let identity = Identity { system: [2, 0, 0, 0, 0, 1], key: 1, first: 1, port: PortId(1), session: 5 };
    let manner = Manner { is_active: true, is_fast: false };
    (Aggregate::new(identity, Settings { lacp: Some(manner), min_links: 1, hellos: None }, 3, now), now)
}

fn hello(switch: &str, port: u16) -> Hello {
    let (switch, hears) = (switch.to_owned(), Some((5, PortId(1))));
    Hello { switch, port: PortId(port), session: 9, hears, cluster: 0, interval_ms: 100, multiplier: 3 }
}

fn states(bundle: &Aggregate) -> Vec<&'static str> {
    (0..3).map(|place| bundle.state(place).0.name()).collect()
}

#[test]
fn members_of_a_trunk_are_watched_by_hellos_each_for_itself() {
    let now = Instant::now();
    let mut bundle = trunk(1, now);
    // A neighbour may be a switch without hellos.
    assert_eq!((states(&bundle), bundle.distributes()), (vec!["up"; 3], 0b111));
    bundle.hear_hello(0, &hello("b", 7), now);
    assert!(bundle.judge(now));
    assert_eq!(states(&bundle), ["up", "silent", "silent"], "it says some");
    bundle.hear_hello(1, &hello("b", 7), now);
    bundle.hear_hello(2, &hello("c", 7), now);
    bundle.judge(now);
    assert_eq!((states(&bundle), bundle.distributes()), (vec!["up", "up", "other_partner"], 0b011));
    assert_eq!(bundle.neighbour().map(ToString::to_string), Some("b:7".to_owned()));
    let later = now + Duration::from_millis(200);
    bundle.hear_hello(1, &hello("b", 7), later);
    bundle.hear_hello(2, &hello("c", 7), later);
    assert!(bundle.judge(now + Duration::from_millis(300)));
    assert_eq!((states(&bundle), bundle.distributes()), (vec!["silent", "up", "other_partner"], 0b010));
    assert_eq!(bundle.link_state(), LinkState::Up);
    assert_eq!(bundle.collects(), 0b111, "what comes is taken");
}

#[test]
fn with_fewer_than_min_links_none_sends() {
    let now = Instant::now();
    let mut bundle = trunk(2, now);
    bundle.carrier(0, false, now);
    bundle.judge(now);
    assert_eq!((states(&bundle), bundle.distributes()), (vec!["no_carrier", "up", "up"], 0b110));
    bundle.carrier(1, false, now);
    bundle.judge(now);
    assert_eq!((states(&bundle), bundle.distributes()), (vec!["no_carrier", "no_carrier", "too_few"], 0));
    bundle.carrier(2, false, now);
    bundle.judge(now);
    assert_eq!(bundle.link_state(), LinkState::NoCarrier);
}

#[test]
fn a_member_that_its_partner_does_not_bundle_is_used_alone() {
    let (mut bundle, now) = with_lacp();
    let mut hear = |s: u64, place: usize, is_bundled: bool| {
        let now = now + Duration::from_secs(s);
        let mut state = State(State::ACTIVE | State::SHORT | State::IN_SYNC | State::COLLECTS | State::DISTRIBUTES);
        state.set(State::AGGREGATES, is_bundled);
        let port = place as u16 + 1;
        // As Open vSwitch has it, the key is another then.
        let key = if is_bundled { 7 } else { port };
        let actor = End { system: [2, 0, 0, 0, 0, 2], key, port, state, ..End::default() };
        bundle.hear(place, &Pdu { actor, partner: bundle.actor_at(place) }, now);
        bundle.judge(now);
        states(&bundle)
    };
    assert_eq!((0..3).map(|place| hear(0, place, true)).last().unwrap(), ["up"; 3]);
    // The bundle at the other end has one member left: the others' information is older.
    assert_eq!(hear(4, 1, false), ["other_partner", "up", "other_partner"]);
    assert_eq!(hear(4, 0, false), ["individual", "up", "other_partner"]);
    assert_eq!(hear(5, 1, false), ["individual", "up", "other_partner"]);
    // They speak again, so this member is the one that has left.
    assert_eq!(hear(6, 2, true), ["individual", "individual", "up"]);
    assert_eq!(hear(6, 1, false), ["individual", "individual", "up"]);
    assert_eq!((hear(6, 1, true), hear(6, 0, true)), (vec!["individual", "up", "up"], vec!["up"; 3]));
}

#[test]
fn the_partner_of_most_is_chosen_whoever_spoke_first_and_stays_while_it_is_in_use() {
    let (mut bundle, now) = with_lacp();
    let mut hear = |s: u64, place: usize, system: u8, is_in_sync: bool| {
        let mut state = State(State::ACTIVE | State::SHORT | State::AGGREGATES | State::COLLECTS);
        state.set(State::IN_SYNC, is_in_sync);
        let actor = End { system: [2, 0, 0, 0, 0, system], key: 7, port: place as u16 + 1, state, ..End::default() };
        let now = now + Duration::from_secs(s);
        bundle.hear(place, &Pdu { actor, partner: bundle.actor_at(place) }, now);
        bundle.judge(now);
        states(&bundle)
    };
    // A cable in the wrong place speaks first; its partner takes it, or not.
    assert_eq!(hear(0, 0, 9, true), ["up", "no_partner", "no_partner"]);
    hear(0, 1, 2, true);
    assert_eq!(hear(0, 2, 2, true), ["other_partner", "up", "up"]);
    // Later on those in use stay for as long as they are in use.
    hear(2, 2, 9, true);
    assert_eq!(hear(2, 0, 9, true), ["other_partner", "up", "other_partner"]);
    hear(3, 1, 2, false);
    assert_eq!(hear(3, 0, 9, true), ["up", "other_partner", "up"]);
}

#[test]
fn a_member_that_never_carried_anything_is_not_used_when_the_others_go() {
    let now = Instant::now();
    let mut bundle = trunk(1, now);
    bundle.hear_hello(0, &hello("b", 7), now);
    bundle.judge(now);
    assert_eq!(states(&bundle), ["up", "silent", "silent"]);
    bundle.carrier(0, false, now);
    bundle.judge(now);
    assert_eq!((states(&bundle), bundle.distributes()), (vec!["no_carrier", "silent", "silent"], 0));
}

#[test]
fn the_partner_of_those_in_use_stays_and_of_new_ones_that_of_most_is_chosen() {
    assert_eq!(most(&[Some(1), Some(2), Some(2)], None), Some(2));
    assert_eq!(most(&[Some(1), Some(2), Some(2)], Some(1)), Some(1));
    assert_eq!(most(&[Some(3), Some(2), None], Some(1)), Some(3));
    assert_eq!(most::<u8>(&[None, None], Some(1)), None);
}
