//! Schedules of hellos, carriers and time, and their results.

use super::*;

const INTERVAL: Duration = Duration::from_millis(100);

/// Two ends of a cable, whose directions can be cut.
struct Cable {
    now: Instant,
    ends: [Session; 2],
    cut: [bool; 2],
}

impl Cable {
    fn new() -> Self {
        let now = Instant::now();
        let end = |i: u16| Session::new(PortId(10 + i), 100 + u64::from(i), Timing::default(), now);
        Self { now, ends: [end(0), end(1)], cut: [false; 2] }
    }

    /// Each end sends a hello, and the time of one interval passes.
    fn round(&mut self) {
        for from in 0..2 {
            let hello = self.ends[from].hello(["a", "b"][from]);
            if !self.cut[from] {
                self.ends[1 - from].hear(&hello, self.now);
            }
        }
        self.now += INTERVAL;
        self.ends.iter_mut().for_each(|end| _ = end.judge(self.now));
    }

    fn rounds(&mut self, n: u32) -> [LinkState; 2] {
        (0..n).for_each(|_| self.round());
        self.states()
    }

    fn states(&self) -> [LinkState; 2] {
        self.ends.each_ref().map(|end| end.state)
    }

    fn are_down(&self) -> [bool; 2] {
        self.ends.each_ref().map(Session::is_down)
    }
}

#[test]
fn two_ends_come_up_and_know_each_other() {
    let mut cable = Cable::new();
    assert_eq!((cable.states(), cable.are_down()), ([LinkState::Silent; 2], [false; 2]));
    assert_eq!(cable.rounds(2), [LinkState::Up; 2]);
    let of = |end: &Session| end.neighbour().map(ToString::to_string);
    assert_eq!(cable.ends.each_ref().map(of), [Some("b:11".to_owned()), Some("a:10".to_owned())]);
}

#[test]
fn a_link_that_fails_in_one_direction_is_down_at_both_ends() {
    let mut cable = Cable::new();
    cable.rounds(2);
    cable.cut = [true, false];
    // One may be lost; three intervals after the last one it is down.
    assert_eq!(cable.rounds(1), [LinkState::Up; 2]);
    assert_eq!(cable.rounds(1), [LinkState::Up, LinkState::Silent]);
    assert_eq!(cable.rounds(1), [LinkState::OneWay, LinkState::Silent]);
    assert_eq!(cable.are_down(), [true; 2]);
}

#[test]
fn a_neighbour_whose_frames_come_is_there_for_ten_silences_and_one_whose_frames_end_is_gone_at_once() {
    for (n_rounds, goes_on) in [(25, true), (10, false), (40, true)] {
        let mut cable = Cable::new();
        cable.rounds(2);
        cable.cut = [true, false];
        for round in 1..=n_rounds {
            // Frames of the first come to the second; its hellos are lost among them, and the last one came a round before.
            cable.ends[1].came(cable.now + INTERVAL);
            let is_up = cable.rounds(1) == [LinkState::Up; 2];
            assert_eq!(is_up, round < 29, "after {round} rounds");
        }
        let before = cable.ends[1].state;
        if goes_on {
            cable.cut = [false; 2];
            assert_eq!(
                (before, cable.rounds(1)[1]),
                if n_rounds < 29 {
                    (LinkState::Up, LinkState::Up)
                } else {
                    // It fell, so it is watched for a while.
                    (LinkState::Silent, LinkState::Settling)
                }
            );
        } else {
            // Neither frames nor hellos; the first learns it from the next hello of the second.
            assert_eq!(cable.rounds(1), [LinkState::Up, LinkState::Silent]);
            assert_eq!(cable.rounds(1), [LinkState::OneWay, LinkState::Silent]);
        }
    }
}

#[test]
fn a_link_that_never_carried_one_direction_is_down_where_hellos_come_and_not_before_they_could_be_answered() {
    let mut cable = Cable::new();
    cable.cut = [true, false];
    // The other end hears no hellos: it may be joined to a switch without them.
    assert_eq!(cable.rounds(2), [LinkState::OneWay, LinkState::Silent]);
    assert_eq!(cable.are_down(), [false; 2]);
    let due = cable.now + INTERVAL;
    assert_eq!(cable.ends[0].deadline(), Some(due));
    assert_eq!(cable.ends[0].judge(due - Duration::from_millis(1)), Event::Nothing);
    assert_eq!((cable.ends[0].judge(due), cable.are_down()), (Event::Changed, [true, false]));
    assert_eq!((cable.rounds(10), cable.are_down()), ([LinkState::OneWay, LinkState::Silent], [true, false]));
    // It stays so when nothing comes any more, and is up at once when all is well: it has not fallen.
    cable.cut = [true; 2];
    assert_eq!((cable.rounds(4)[0], cable.are_down()[0]), (LinkState::Silent, true));
    cable.cut = [false; 2];
    assert_eq!((cable.rounds(2), cable.are_down()), ([LinkState::Up; 2], [false; 2]));
}

#[test]
fn a_neighbour_that_starts_later_or_over_and_over_gets_the_time_to_hear_us_once() {
    // No neighbour is there for long; then one starts, and is heard.
    let mut cable = Cable::new();
    cable.cut = [true; 2];
    cable.rounds(100);
    cable.ends[1] = Session::new(PortId(11), 999, Timing::default(), cable.now);
    cable.cut = [false; 2];
    for _ in 0..10 {
        cable.rounds(1);
        assert_eq!(cable.are_down(), [false; 2]);
    }
    // A neighbour that restarts over and over, and never hears us.
    let mut cable = Cable::new();
    cable.cut = [true, false];
    for start in 0..3 {
        assert!(!cable.ends[0].is_down(), "start {start}");
        cable.ends[1] = Session::new(PortId(11), 1000 + start, Timing::default(), cable.now);
        cable.rounds(1);
    }
    assert!(cable.ends[0].is_down());
    // A switch that stood still does not blame its neighbours.
    let mut cable = Cable::new();
    cable.cut = [true, false];
    cable.rounds(1);
    let still = Duration::from_secs(60);
    cable.now += still;
    cable.ends[0].excuse(still);
    cable.rounds(1);
    assert_eq!((cable.states()[0], cable.are_down()[0]), (LinkState::OneWay, false));
    cable.rounds(2);
    assert!(cable.are_down()[0]);
}

#[test]
fn one_without_carrier_is_down_at_once_and_the_other_soon() {
    let mut cable = Cable::new();
    cable.rounds(2);
    assert_eq!(cable.ends[0].carrier(false, cable.now), Event::Changed);
    assert_eq!((cable.states()[0], cable.are_down()), (LinkState::NoCarrier, [true, false]));
    cable.cut = [true; 2];
    assert_eq!(cable.rounds(3)[1], LinkState::Silent);
    assert_eq!(cable.are_down(), [true; 2]);
    // Another carrier may be another cable: nothing is known of it.
    cable.ends[0].carrier(true, cable.now);
    assert_eq!((cable.states()[0], cable.are_down()[0]), (LinkState::Silent, true));
}

#[test]
fn a_link_that_flaps_is_held_down_longer_each_time_up_to_a_limit_and_forgiven() {
    let mut cable = Cable::new();
    cable.rounds(2);
    let mut last = 0;
    let mut held = Vec::new();
    for _ in 0..10 {
        cable.cut = [true; 2];
        cable.rounds(3);
        assert_eq!(cable.are_down(), [true; 2]);
        cable.cut = [false; 2];
        let rounds = (1..1000).find(|_| cable.rounds(1) == [LinkState::Up; 2]).unwrap();
        held.push(rounds);
        assert!(rounds >= last, "{held:?}");
        last = rounds;
    }
    assert!(held[0] <= 6 && held[3] >= 2 * held[1] && (100..=104).contains(&held[9]), "{held:?}");
    assert_eq!((cable.ends[0].falls(), cable.ends[0].tally().falls()), ((10, LONGEST_HOLD), 10));
    cable.rounds(301);
    cable.cut = [true; 2];
    cable.rounds(3);
    assert_eq!((cable.ends[0].falls(), cable.ends[0].tally().falls()), ((1, Duration::from_millis(300)), 11));
    cable.cut = [false; 2];
    assert_eq!((1..1000).find(|_| cable.rounds(1) == [LinkState::Up; 2]), Some(held[0]));
}

#[test]
fn a_neighbour_that_starts_again_is_the_same_neighbour() {
    let mut cable = Cable::new();
    cable.rounds(2);
    cable.ends[1] = Session::new(PortId(11), 999, Timing::default(), cable.now);
    let states: Vec<_> = (0..12).map(|_| cable.rounds(1)).collect();
    assert!(states.iter().all(|states| states.iter().all(|state| *state != LinkState::Several)), "{states:?}");
    assert_eq!(states.last(), Some(&[LinkState::Up; 2]));
}

#[test]
fn a_neighbour_that_starts_again_in_time_is_not_held_down() {
    let mut cable = Cable::new();
    cable.rounds(2);
    for start in 0..5 {
        cable.ends[1] = Session::new(PortId(11), 1000 + start, Timing::default(), cable.now);
        // The first round may begin with the end that does not know of it.
        assert_eq!(cable.rounds(2), [LinkState::Up; 2], "start {start}");
    }
    // A neighbour that was silent for long has fallen.
    cable.cut = [true; 2];
    cable.rounds(3);
    cable.cut = [false; 2];
    assert_eq!(cable.rounds(2), [LinkState::Settling; 2]);
    // Falls that were long ago are forgiven with a restart, too.
    cable.rounds(310);
    assert_eq!(cable.states(), [LinkState::Up; 2]);
    cable.ends[1] = Session::new(PortId(11), 2000, Timing::default(), cable.now);
    assert_eq!(cable.rounds(2), [LinkState::Up; 2]);
}

#[test]
fn a_neighbour_that_starts_again_has_two_intervals_to_hear_us() {
    let mut cable = Cable::new();
    cable.rounds(2);
    let mut hello = cable.ends[1].hello("b");
    let end = &mut cable.ends[0];
    (hello.session, hello.hears) = (999, None);
    let began = cable.now;
    assert_eq!((end.hear(&hello, began), end.state), (Event::Anew, LinkState::Up));
    assert_eq!(end.deadline(), Some(began + 2 * INTERVAL));
    // Another restart is no new excuse.
    hello.session += 1;
    assert_eq!((end.hear(&hello, began + INTERVAL), end.is_down()), (Event::Anew, false));
    assert_eq!(end.judge(began + 2 * INTERVAL - Duration::from_millis(1)), Event::Nothing);
    assert_eq!(end.judge(began + 2 * INTERVAL), Event::Changed);
    assert_eq!((end.state, end.is_down()), (LinkState::OneWay, true), "the way there may be cut");

    // A neighbour that hears us in time was never gone.
    let mut cable = Cable::new();
    cable.rounds(2);
    let end = &mut cable.ends[0];
    assert_eq!(end.hear(&hello, began), Event::Anew);
    hello.hears = Some((100, PortId(10)));
    assert_eq!(end.hear(&hello, began + INTERVAL), Event::Nothing);
    assert_eq!((end.excused, end.falls, end.state), (None, 0, LinkState::Up));
}

#[test]
fn a_neighbour_that_starts_again_is_answered_at_once_and_not_more_often_than_hellos_are_said() {
    let mut cable = Cable::new();
    cable.rounds(2);
    let mut hello = cable.ends[1].hello("b");
    let (end, began) = (&mut cable.ends[0], cable.now);
    let mut heard = |ms: u64, starts: bool| {
        hello.session += u64::from(starts);
        end.hear(&hello, began + Duration::from_millis(ms))
    };
    assert_eq!(heard(0, false), Event::Nothing);
    assert_eq!(heard(10, true), Event::Anew);
    assert_eq!(heard(11, false), Event::Nothing);
    // As with two switches of one name.
    assert_eq!([heard(20, true), heard(109, true), heard(110, true)], [Event::Nothing, Event::Nothing, Event::Anew]);
}

#[test]
fn an_excuse_is_as_long_for_a_switch_that_stood_still() {
    let mut cable = Cable::new();
    cable.rounds(2);
    let mut hello = cable.ends[1].hello("b");
    (hello.session, hello.hears) = (999, None);
    let (end, began, still) = (&mut cable.ends[0], cable.now, Duration::from_secs(1));
    end.hear(&hello, began);
    end.excuse(still);
    assert_eq!(end.judge(began + still + INTERVAL), Event::Nothing);
    assert_eq!(end.judge(began + still + 2 * INTERVAL), Event::Changed);
    assert_eq!(end.state, LinkState::OneWay);
}

#[test]
fn a_bridge_a_loop_and_another_network_are_told_apart_and_down() {
    let hello = |switch: &str, session, cluster| Hello {
        switch: switch.to_owned(),
        port: PortId(1),
        session,
        hears: Some((100, PortId(10))),
        cluster,
        interval_ms: 100,
        multiplier: 3,
    };
    let now = Instant::now();
    let new = || {
        let mut session = Session::new(PortId(10), 100, Timing::default(), now);
        session.joined(7);
        session
    };
    let mut end = new();
    end.hear(&hello("b", 1, 7), now);
    assert_eq!(end.state, LinkState::Up);
    end.hear(&hello("c", 2, 7), now);
    assert!(end.state == LinkState::Several && end.is_down() && end.hello("a").hears.is_none());
    // The third one is gone again.
    end.hear(&hello("b", 1, 7), now + 2 * INTERVAL);
    end.judge(now + 4 * INTERVAL);
    assert_eq!(end.state, LinkState::Settling);

    for (hello, state) in [
        (hello("a", 100, 7), LinkState::Looped),
        (hello("x", 5, 8), LinkState::Foreign),
        (hello("x", 5, 0), LinkState::Up),
    ] {
        let mut end = new();
        end.hear(&hello, now);
        assert_eq!((end.state, end.is_down()), (state, state != LinkState::Up));
    }
}

#[test]
fn a_flood_of_neighbours_is_bounded() {
    let now = Instant::now();
    let mut end = Session::new(PortId(10), 100, Timing::default(), now);
    for i in 1..100_000_u64 {
        let hears = None;
        let (interval_ms, multiplier, cluster) = (u16::MAX, u8::MAX, 0);
        let hello =
            Hello { switch: format!("s{i}"), port: PortId(1), session: i, hears, cluster, interval_ms, multiplier };
        end.hear(&hello, now);
    }
    assert_eq!((end.peers.len(), end.state), (MAX_PEERS, LinkState::Several));
}

#[test]
fn without_hellos_the_carrier_alone_counts() {
    let mut now = Instant::now();
    let mut end = Session::new(PortId(1), 1, Timing { interval_ms: 0, multiplier: 3 }, now);
    assert_eq!((end.state, end.is_down()), (LinkState::Unwatched, false));
    end.carrier(false, now);
    assert_eq!((end.state, end.is_down()), (LinkState::NoCarrier, true));
    // It is held down for a while after each fall, and longer each time, as with hellos.
    for hold_ms in [300, 600, 1200] {
        end.carrier(true, now);
        assert_eq!((end.state, end.is_down()), (LinkState::Settling, true));
        let until = end.deadline().unwrap();
        assert_eq!(until, now + Duration::from_millis(hold_ms));
        end.judge(until);
        assert_eq!((end.state, end.is_down()), (LinkState::Unwatched, false));
        now = until;
        end.carrier(false, now);
    }
}

#[test]
fn hellos_that_do_not_come_are_counted_and_those_that_come_late_are_not() {
    let mut cable = Cable::new();
    let of = |cable: &Cable| (cable.ends[1].tally().heard(), cable.ends[1].tally().lost());
    cable.rounds(10);
    assert_eq!(of(&cable), (10, 0));
    // One of two is lost, five times.
    for _ in 0..5 {
        cable.cut = [true, false];
        cable.rounds(1);
        cable.cut = [false; 2];
        cable.rounds(2);
    }
    assert_eq!(of(&cable), (20, 5));
    // A hello that comes nine tenths of an interval late, and the next one in time.
    cable.now += INTERVAL * 9 / 10;
    let hello = cable.ends[0].hello("a");
    cable.ends[1].hear(&hello, cable.now);
    cable.now += INTERVAL / 10;
    cable.rounds(10);
    assert_eq!(of(&cable), (31, 5));
    // Three until the neighbour counts as gone, and none after that.
    cable.cut = [true, false];
    cable.rounds(100);
    assert_eq!(cable.states()[1], LinkState::Silent);
    assert_eq!(of(&cable), (31, 8));
    // Neither a restart of the neighbour nor its way back is a loss.
    cable.cut = [false; 2];
    cable.ends[0] = Session::new(PortId(10), 7, Timing::default(), cable.now);
    cable.rounds(20);
    assert_eq!(of(&cable), (51, 8));
    // Without carrier no neighbour is expected.
    cable.ends[1].carrier(false, cable.now);
    cable.cut = [true; 2];
    cable.rounds(10);
    assert_eq!(of(&cable), (51, 8));
}

#[test]
fn a_neighbour_that_starts_again_in_time_has_lost_no_hello() {
    let mut cable = Cable::new();
    let lost = |cable: &Cable| cable.ends[1].tally().lost();
    cable.rounds(10);
    for start in 0..3 {
        // It is heard two intervals after its last hello, and would be gone after three.
        cable.cut = [true, false];
        cable.rounds(1);
        cable.cut = [false; 2];
        cable.ends[0] = Session::new(PortId(10), 1000 + start, Timing::default(), cable.now);
        cable.rounds(10);
        assert_eq!((cable.states()[1], lost(&cable)), (LinkState::Up, 0), "start {start}");
    }
    // Without a restart the one in between is lost.
    cable.cut = [true, false];
    cable.rounds(1);
    cable.cut = [false; 2];
    cable.rounds(10);
    assert_eq!(lost(&cable), 1);
}

#[test]
fn a_switch_that_stood_still_blames_nobody() {
    let mut cable = Cable::new();
    cable.rounds(2);
    let still = Duration::from_secs(60);
    cable.now += still;
    cable.ends[0].excuse(still);
    assert_eq!(cable.ends[0].judge(cable.now), Event::Nothing);
    cable.ends[1].judge(cable.now);
    assert_eq!(cable.states(), [LinkState::Up, LinkState::Silent]);
}
