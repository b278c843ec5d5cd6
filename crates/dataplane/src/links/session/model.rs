//! Two ends of a cable under random faults, what must hold of them at any time, and rules without which it does not.

use super::*;
use lookup::testkit::{Rng, seed};

const INTERVAL: Duration = Duration::from_millis(100);
/// Rounds of one interval after which a fault in one direction is known at both ends: three each way, and one. It is not longer for a
/// neighbour that restarts: it forgets what it missed, within three, and is excused for two.
const KNOWN_AFTER: u32 = 7;
/// Rounds for which an end that never was up may be unheard but not down: its neighbour may have sent the next hello before it heard it.
const NOT_UNHEARD: u32 = 1;
/// Rounds after which a link that is good again is up: the longest hold, and the delay of knowledge.
const UP_AFTER: u32 = 115;
/// The most times that an end comes up within [`WINDOW`] rounds: it is held for 3, 6, 12, 24, ... rounds.
const MOST_RISES: usize = 6;
const WINDOW: u32 = 100;
/// Rounds with frames but without hellos for which a link stays up: the last hello may have come some rounds before them.
const FLOODED_UP: u32 = 3 * PATIENCE - 4;
/// Rounds with frames but without hellos after which a link is down.
const FLOODED_DOWN: u32 = 3 * PATIENCE + 1;

/// The present faults.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
struct Faults {
    /// Each direction.
    cut: [bool; 2],
    /// The carrier is gone at an end.
    unplugged: [bool; 2],
    /// A third switch sends hellos to an end.
    third: [bool; 2],
    /// An end hears its own hellos, and not those of the other.
    looped: [bool; 2],
    /// An end restarts.
    restarts: [bool; 2],
    /// More frames come to an end of a link that is up than it can take, and its hellos are lost among them.
    flooded: [bool; 2],
}

struct World {
    now: Instant,
    ends: [Session; 2],
    faults: Faults,
    round: u32,
    /// Since which round each part has been as it is.
    since: [u32; 4],
    n_starts: u64,
    /// The round in which each end started.
    started: [u32; 2],
    /// Rounds in a row in which an end could hear the other, and not be heard.
    unheard: [u32; 2],
    /// Rounds with faults since an end may have been unheard, until it must have learnt that it is heard; the most since it started.
    maybe_unheard: [u32; 2],
    most_unheard: [u32; 2],
    /// Since when nothing else was wrong.
    clean_since: u32,
    /// Rounds in a row in which frames came to an end and no hellos.
    flooded_for: [u32; 2],
    /// Whether an end has been unheard for long enough, and was not up since.
    must_be_down: [bool; 2],
    /// The rounds in which an end came up.
    rises: [Vec<u32>; 2],
}

impl World {
    fn new() -> Self {
        let now = Instant::now();
        let end = |i: u16| Session::new(PortId(10 + i), 100 + u64::from(i), Timing::default(), now);
        let rises = [Vec::new(), Vec::new()];
        Self {
            now,
            ends: [end(0), end(1)],
            faults: Faults::default(),
            round: 0,
            since: [0; 4],
            n_starts: 0,
            started: [0; 2],
            unheard: [0; 2],
            maybe_unheard: [0; 2],
            most_unheard: [0; 2],
            clean_since: 0,
            flooded_for: [0; 2],
            must_be_down: [false; 2],
            rises,
        }
    }

    /// Runs one interval with these faults; returns what does not hold then.
    fn round(&mut self, faults: Faults) -> Result<(), String> {
        let before = std::mem::replace(&mut self.faults, faults);
        // In turn: a direction that carries nothing, all is well, a third switch, a loop.
        let kinds = |faults: Faults| {
            let is_broken = faults.cut != [false; 2] || faults.unplugged != [false; 2];
            [is_broken, faults == Faults::default(), faults.third != [false; 2], faults.looped != [false; 2]]
        };
        for (since, (is, was)) in self.since.iter_mut().zip(kinds(faults).into_iter().zip(kinds(before))) {
            if is != was || self.round == 0 {
                *since = self.round;
            }
        }
        // Another direction is another fault: a link that never was up comes up when each has carried something.
        if (faults.cut, faults.unplugged) != (before.cut, before.unplugged) {
            self.since[0] = self.round;
        }
        let were_up = self.ends.each_ref().map(|end| end.state == LinkState::Up);
        for i in (0..2).filter(|&i| faults.restarts[i]) {
            self.n_starts += 1;
            self.started[i] = self.round;
            (self.unheard[i], self.maybe_unheard[i], self.most_unheard[i], self.must_be_down[i]) = (0, 0, 0, false);
            let (port, own) = (PortId(10 + i as u16), 1000 + self.n_starts);
            self.ends[i] = Session::new(port, own, Timing::default(), self.now);
            // Rises within the window were counted by the session that ended.
            self.rises[i].clear();
        }
        let were_down = self.ends.each_ref().map(Session::is_down);
        for i in 0..2 {
            if faults.unplugged[i] != before.unplugged[i] {
                self.ends[i].carrier(!faults.unplugged[i], self.now);
                if faults.unplugged[i] && !self.ends[i].is_down() {
                    return Err(format!("end {i} is up without carrier"));
                }
            }
        }
        let hellos = [self.ends[0].hello("a"), self.ends[1].hello("b")];
        let carries = self.ends.iter().all(|end| matches!(&end.peers[..], [peer] if peer.hears_us && !end.is_down()));
        for i in 0..2 {
            let is_flooded = faults.flooded[i] && carries;
            self.flooded_for[i] = if is_flooded { self.flooded_for[i] + 1 } else { 0 };
            let is_joined = !faults.cut[1 - i] && faults.unplugged == [false; 2] && faults.looped == [false; 2];
            if is_joined && !is_flooded {
                self.ends[i].hear(&hellos[1 - i], self.now);
            }
            if faults.looped[i] {
                self.ends[i].hear(&hellos[i], self.now);
            }
            if faults.third[i] && !faults.unplugged[i] {
                let third = Hello { switch: "c".to_owned(), session: 999, port: PortId(1), ..hellos[i].clone() };
                self.ends[i].hear(&third, self.now);
                let others = is_joined.then_some(()).or(self.ends[i].peers.get(1).map(|_| ()));
                if others.is_some() && !self.ends[i].is_down() {
                    return Err(format!("end {i} is up with two others at it"));
                }
            }
        }
        for i in 0..2 {
            let is_unheard = faults.cut[i] && !faults.cut[1 - i] && faults.unplugged == [false; 2];
            self.unheard[i] = if is_unheard { self.unheard[i] + 1 } else { 0 };
            // An end that has just started has heard no hellos either, and is not heard.
            let may_be = is_unheard || faults.restarts != [false; 2];
            let (n, is_well) = (self.maybe_unheard[i], faults == Faults::default());
            self.maybe_unheard[i] = match (may_be || n > 0) && !is_well {
                true => n + 1,
                // The hello of one round is heard in the next.
                false if is_well && before == Faults::default() => 0,
                false => n,
            };
            self.most_unheard[i] = self.most_unheard[i].max(self.maybe_unheard[i]);
        }
        self.now += INTERVAL;
        self.round += 1;
        if faults.unplugged != [false; 2] || faults.third != [false; 2] || faults.looped != [false; 2] {
            self.clean_since = self.round;
        }
        for (i, was_down) in were_down.into_iter().enumerate() {
            if self.flooded_for[i] > 0 {
                self.ends[i].came(self.now);
            }
            self.ends[i].judge(self.now);
            self.must_be_down[i] |= self.unheard[i] > KNOWN_AFTER;
            self.must_be_down[i] &= self.ends[i].state != LinkState::Up;
            if was_down && !self.ends[i].is_down() {
                self.rises[i].push(self.round);
            }
        }
        for i in (0..2).filter(|&i| faults.restarts[1 - i] && were_up == [true; 2]) {
            let is_all = Faults { restarts: [false; 2], ..faults } == Faults::default();
            if is_all && self.ends[i].is_down() {
                return Err(format!("end {i} is down because its neighbour started anew"));
            }
        }
        self.check()
    }

    fn check(&self) -> Result<(), String> {
        let lasts = |kind: usize, is: bool| if is { self.round - self.since[kind] } else { 0 };
        let Faults { cut, unplugged, third, looped, .. } = self.faults;
        let is_broken = cut != [false; 2] || unplugged != [false; 2];
        let are_well = self.faults == Faults::default();
        for (i, end) in self.ends.iter().enumerate() {
            let is_alone = third == [false; 2] && looped == [false; 2];
            // It knows nothing from before it started.
            let broken_for = lasts(0, is_broken).min(self.round - self.started[i]);
            if broken_for > KNOWN_AFTER && is_alone && end.was_up && !end.is_down() {
                return Err(format!("end {i} is up, and one direction has carried nothing for {broken_for}"));
            }
            if self.unheard[i] > KNOWN_AFTER && is_alone && !end.is_down() {
                return Err(format!("end {i} is up, and has not been heard for {}", self.unheard[i]));
            }
            // The other end remembers others, and a broken cable, for some rounds.
            let is_clean = self.clean_since == 0 || self.clean_since + KNOWN_AFTER <= self.started[i];
            if !end.was_up && is_clean && self.most_unheard[i] <= NOT_UNHEARD && end.is_down() {
                return Err(format!("end {i} is down, never was up, and was unheard for {}", self.most_unheard[i]));
            }
            if self.must_be_down[i] && !end.is_down() {
                return Err(format!("end {i} is not down, has been unheard, and was not up since"));
            }
            if lasts(1, are_well) > UP_AFTER && end.state != LinkState::Up {
                return Err(format!(
                    "end {i} is {} and all has been well for {}",
                    end.state.name(),
                    lasts(1, are_well)
                ));
            }
            if lasts(3, looped[i]) > KNOWN_AFTER && !end.is_down() {
                return Err(format!("end {i} is up and hears itself"));
            }
            match self.flooded_for[i] {
                n @ 1..=FLOODED_UP if end.is_down() => {
                    return Err(format!("end {i} is down, and frames have come for {n} without hellos"));
                }
                n if n > FLOODED_DOWN && !end.is_down() => {
                    return Err(format!("end {i} is up, and no hello has come for {n}"));
                }
                _ => {}
            }
            let lately = self.rises[i].iter().filter(|at| self.round - *at < WINDOW).count();
            if lately > MOST_RISES {
                return Err(format!("end {i} came up {lately} times in {WINDOW} rounds"));
            }
        }
        Ok(())
    }
}

/// A run of random faults, one kind at a time, some of which come and go quickly.
fn run(rng: &mut Rng) -> Result<(), String> {
    let mut world = World::new();
    for _ in 0..12 {
        let mut faults = Faults::default();
        let end = rng.below(2) as usize;
        let kind = rng.below(9);
        match kind {
            0 => faults.cut[end] = true,
            1 => faults.cut = [true; 2],
            2 => faults.unplugged[end] = true,
            3 => faults.third[end] = true,
            4 => faults.looped[end] = true,
            5 => faults.restarts[end] = true,
            // It restarts over and over, and hears nothing.
            6 => (faults.restarts[end], faults.cut[1 - end]) = (true, true),
            7 => faults.flooded[end] = true,
            _ => {}
        }
        let (n_times, bad, good) = match rng.below(3) {
            // It flaps.
            0 => (20, 3 + rng.below(3), 4 + rng.below(3)),
            _ if kind == 7 => (1, 1 + rng.below(50), 1),
            // The next fault comes at once, or later.
            _ => (1, 1 + rng.below(20), rng.below(160) * rng.below(4).min(1)),
        };
        for _ in 0..n_times {
            (0..bad).try_for_each(|_| world.round(faults))?;
            (0..good).try_for_each(|_| world.round(Faults::default()))?;
        }
    }
    Ok(())
}

#[test]
fn what_must_hold_holds_under_random_faults_and_not_without_any_of_the_rules() {
    let seed = seed();
    (0..500).try_for_each(|i| run(&mut Rng::new(seed + i)).map_err(|what| format!("run {i}: {what}"))).unwrap();
    for rule in [
        Rule::BothWays,
        Rule::OneNeighbour,
        Rule::Expires,
        Rule::GoneIsDown,
        Rule::NeverUpIsNotDown,
        Rule::UnheardIsDown,
        Rule::UnheardWaits,
        Rule::UnheardStays,
        Rule::CarrierCounts,
        Rule::NotItself,
        Rule::Held,
        Rule::HeldLonger,
        Rule::NotForEver,
        Rule::RestartIsExcused,
        Rule::ExcusedOnce,
        Rule::FramesCount,
        Rule::FramesForAWhile,
    ] {
        leave_out(Some(rule));
        let is_noticed = (0..500).any(|i| run(&mut Rng::new(seed + i)).is_err());
        leave_out(None);
        assert!(is_noticed, "nothing is wrong without {rule:?}");
    }
}
