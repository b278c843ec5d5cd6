//! What a connected switch says of itself: its memory, what it counted, and what that comes to in a second.
//!
//! A switch says what it counted every 2 s. Rates are the differences of the last two reports; who looks at them does not
//! make a switch say more. What a switch says is bounded here.

use api::v1::{Counters, DropCount, MemoryUse, PortCounters, Rates};
use fib::name::clip;
use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Ports and reasons of a report that are kept.
const MAX_PORTS: usize = 1024;
const MAX_DROPS: usize = 128;

/// The last that a switch said.
#[derive(Debug, Default)]
pub(crate) struct Said(Mutex<Last>);

#[derive(Debug, Default)]
struct Last {
    memory: Option<MemoryUse>,
    /// Whether it can be asked for its log.
    says_log: bool,
    /// Whether it understands who hears what is said to everybody, and the generation and the key of what it was told.
    takes_groups: bool,
    groups_told: Option<(u64, u64)>,
    /// Whether it knows weights of ways.
    weighs_ways: bool,
    counters: Option<(Instant, Counters)>,
    /// Of the whole switch.
    rates: Option<Rates>,
    /// A message whose acknowledgement is waited for, and when it was sent: one at a time.
    asked: Option<(u64, Instant)>,
    /// When the switch was last found in step, or became known.
    in_step_at: Option<Instant>,
}

impl Said {
    fn lock(&self) -> MutexGuard<'_, Last> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes whether the switch can be asked for its log.
    pub(crate) fn set_says_log(&self, says_log: bool) {
        self.lock().says_log = says_log;
    }

    pub(crate) fn says_log(&self) -> bool {
        self.lock().says_log
    }

    /// Notes whether the switch knows weights of ways.
    pub(crate) fn set_weighs_ways(&self, weighs_ways: bool) {
        self.lock().weighs_ways = weighs_ways;
    }

    pub(crate) fn weighs_ways(&self) -> bool {
        self.lock().weighs_ways
    }

    /// Notes whether the switch understands who hears what is said to everybody.
    pub(crate) fn set_takes_groups(&self, takes_groups: bool) {
        self.lock().takes_groups = takes_groups;
    }

    /// Whether the switch is to be told of the groups of a generation: it understands them, and was last told those of another with
    /// another key.
    pub(crate) fn lacks_groups(&self, generation: u64, key: impl FnOnce() -> u64) -> bool {
        let mut last = self.lock();
        match last.groups_told {
            _ if !last.takes_groups => false,
            Some((told, _)) if told == generation => false,
            Some((_, told)) if told == key() => {
                last.groups_told = Some((generation, told));
                false
            }
            _ => true,
        }
    }

    pub(crate) fn set_groups_told(&self, generation: u64, key: u64) {
        self.lock().groups_told = Some((generation, key));
    }

    /// Keeps what the switch says of its memory, instead of what it said before.
    pub(crate) fn set_memory(&self, memory: MemoryUse) {
        self.lock().memory = Some(api::memory::bounded(memory));
    }

    pub(crate) fn memory(&self) -> Option<MemoryUse> {
        self.lock().memory.clone()
    }

    /// Keeps what the switch counted, and what it comes to since it said so before.
    pub(crate) fn set_counters(&self, counters: Counters, now: Instant) {
        let mut counters = bounded(counters);
        let mut last = self.lock();
        if let Some((at, before)) = &last.counters {
            let seconds = now.saturating_duration_since(*at).as_secs_f64();
            // Two reports that came together say nothing of a rate.
            if seconds < 0.1 {
                return;
            }
            last.rates = Some(fill_rates(&mut counters, before, seconds));
        }
        last.counters = Some((now, counters));
    }

    /// What the switch counted, with the rates of each port and reason.
    pub(crate) fn counters(&self, now: Instant) -> Option<Counters> {
        let last = self.lock();
        let (at, mut counters) = last.counters.clone()?;
        counters.age_ms = age_ms(at, now);
        for drop in &mut counters.drops {
            drop.why = api::drops::why(&drop.reason).to_owned();
        }
        Some(counters)
    }

    /// What it comes to in a second, for the whole switch.
    pub(crate) fn rates(&self, now: Instant) -> Option<Rates> {
        let last = self.lock();
        let (at, _) = last.counters.as_ref()?;
        last.rates.map(|rates| Rates { age_ms: age_ms(*at, now), ..rates })
    }

    /// A message was sent. The time to its acknowledgement is measured, if none is being measured.
    pub(crate) fn sent(&self, sequence: u64, now: Instant) {
        self.lock().asked.get_or_insert((sequence, now));
    }

    /// How long the message took that was measured, if it is acknowledged now.
    pub(crate) fn acknowledged(&self, sequence: u64, now: Instant) -> Option<Duration> {
        let mut last = self.lock();
        let (_, at) = last.asked.take_if(|(asked, _)| *asked <= sequence)?;
        Some(now.saturating_duration_since(at))
    }

    /// The switch was here before, and was last found in step at that time.
    pub(crate) fn set_in_step_at(&self, at: Instant) {
        self.lock().in_step_at = Some(at);
    }

    /// How long the switch has not been in step, as far as it was looked: since it was found in step, or became known.
    pub(crate) fn behind(&self, is_in_step: bool, now: Instant) -> Duration {
        let mut last = self.lock();
        if is_in_step {
            last.in_step_at = Some(now);
        }
        now.saturating_duration_since(*last.in_step_at.get_or_insert(now))
    }

    /// Bytes a second into a port and out of it.
    pub(crate) fn load(&self, port: u16) -> Option<(f64, f64)> {
        let last = self.lock();
        let (_, counters) = last.counters.as_ref()?;
        let rates = counters.ports.iter().find(|counts| counts.port == u32::from(port))?.rates?;
        Some((rates.bytes_in, rates.bytes_out))
    }
}

fn age_ms(at: Instant, now: Instant) -> u64 {
    u64::try_from(now.saturating_duration_since(at).as_millis()).unwrap_or(u64::MAX)
}

/// A report without what is too much.
fn bounded(mut counters: Counters) -> Counters {
    let is_word = |word: &str| word.len() <= 32 && word.bytes().all(|b| b.is_ascii_lowercase() || b == b'_');
    counters.drops.retain(|drop| is_word(&drop.reason));
    counters.drops.truncate(MAX_DROPS);
    counters.ports.truncate(MAX_PORTS);
    for port in &mut counters.ports {
        (port.device, port.rates) = (clip(&port.device), None);
        port.device_there = clip(&port.device_there);
        if !is_word(&port.role) {
            port.role = String::new();
        }
    }
    counters
}

/// A count that is less than before began anew: the switch was started again.
fn rate(now: u64, before: u64, seconds: f64) -> f64 {
    now.saturating_sub(before) as f64 / seconds
}

fn fill_rates(counters: &mut Counters, before: &Counters, seconds: f64) -> Rates {
    let ports: HashMap<u32, &PortCounters> = before.ports.iter().map(|port| (port.port, port)).collect();
    let mut all = Rates::default();
    for port in &mut counters.ports {
        let Some(was) = ports.get(&port.port) else { continue };
        let rates = Rates {
            frames_in: rate(port.frames_in, was.frames_in, seconds),
            frames_out: rate(port.frames_out, was.frames_out, seconds),
            bytes_in: rate(port.bytes_in, was.bytes_in, seconds),
            bytes_out: rate(port.bytes_out, was.bytes_out, seconds),
            ..Rates::default()
        };
        all.bytes_in += rates.bytes_in;
        all.bytes_out += rates.bytes_out;
        port.rates = Some(rates);
    }
    all.frames_in = rate(counters.received, before.received, seconds);
    all.frames_out = rate(counters.sent, before.sent, seconds);
    let drops: HashMap<&str, u64> = before.drops.iter().map(|drop| (&*drop.reason, drop.total)).collect();
    for DropCount { reason, total, a_second, .. } in &mut counters.drops {
        *a_second = rate(*total, drops.get(&**reason).copied().unwrap_or(0), seconds);
        all.drops += *a_second;
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    fn counters(frames: u64, drops: u64) -> Counters {
        let port = PortCounters { port: 3, frames_in: frames, bytes_in: 100 * frames, ..PortCounters::default() };
        let dropped = DropCount { reason: "alien".to_owned(), total: drops, ..DropCount::default() };
        Counters {
            ports: vec![port],
            drops: vec![dropped],
            received: frames,
            sent: frames - drops,
            ..Counters::default()
        }
    }

    #[test]
    fn rates_are_differences_of_two_reports_and_a_restart_makes_none_negative() {
        let (said, start) = (Said::default(), Instant::now());
        said.set_counters(counters(1000, 10), start);
        assert!(said.rates(start).is_none() && said.load(3).is_none());
        said.set_counters(counters(3000, 30), start + Duration::from_secs(2));
        let rates = said.rates(start + Duration::from_secs(3)).unwrap();
        assert_eq!((rates.frames_in, rates.frames_out, rates.drops, rates.age_ms), (1000.0, 990.0, 10.0, 1000));
        assert_eq!(said.load(3), Some((100_000.0, 0.0)));
        assert_eq!(said.load(4), None);
        let counted = said.counters(start + Duration::from_secs(3)).unwrap();
        assert_eq!((counted.drops[0].a_second, counted.age_ms), (10.0, 1000));
        assert!(counted.drops[0].why.contains("no host"), "{counted:?}");
        said.set_counters(counters(5, 0), start + Duration::from_secs(4));
        assert_eq!(said.rates(start + Duration::from_secs(4)).unwrap().frames_in, 0.0);
    }

    #[test]
    fn one_message_at_a_time_is_measured_from_sent_to_acknowledged() {
        let (said, start) = (Said::default(), Instant::now());
        let at = |ms| start + Duration::from_millis(ms);
        assert_eq!(said.acknowledged(1, at(0)), None);
        said.sent(2, at(0));
        said.sent(3, at(5));
        assert_eq!(said.acknowledged(1, at(6)), None);
        assert_eq!(said.acknowledged(3, at(10)), Some(Duration::from_millis(10)));
        assert_eq!(said.acknowledged(3, at(11)), None);
        said.sent(4, at(20));
        assert_eq!(said.acknowledged(4, at(21)), Some(Duration::from_millis(1)));
    }

    #[test]
    fn time_behind_is_counted_from_when_it_was_in_step() {
        let (said, start) = (Said::default(), Instant::now());
        let at = |s| start + Duration::from_secs(s);
        assert_eq!(said.behind(false, at(0)), Duration::ZERO);
        assert_eq!(said.behind(false, at(3)), Duration::from_secs(3));
        assert_eq!(said.behind(true, at(4)), Duration::ZERO);
        assert_eq!(said.behind(false, at(9)), Duration::from_secs(5));
    }

    #[test]
    fn a_report_is_bounded() {
        let said = Said::default();
        let port = |port| PortCounters {
            port,
            device: "x".repeat(1 << 16),
            role: "<b>".to_owned(),
            ..PortCounters::default()
        };
        let odd = DropCount { reason: "<script>".to_owned(), total: 1, ..DropCount::default() };
        let report = Counters { ports: (0..5000).map(port).collect(), drops: vec![odd; 500], ..Counters::default() };
        let now = Instant::now();
        said.set_counters(report, now);
        let kept = said.counters(now).unwrap();
        assert_eq!((kept.ports.len(), kept.drops.len()), (MAX_PORTS, 0));
        assert!(kept.ports.iter().all(|port| port.device.len() < 500 && port.role.is_empty()));
    }
}
