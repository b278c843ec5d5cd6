//! What a connected switch reports about itself: its memory, its counters, and the rates that follow from them.
//!
//! A switch reports its counters every 2 s. Rates are the differences of the last two reports; looking at them does not make a
//! switch report more. What a switch may report is bounded here.

use crate::core::happened::Level;
use api::v1::{CheckedServer, Counters, DropCount, MemoryUse, PortCounters, Rates};
use fib::name::clip;
use std::collections::{BTreeSet, HashMap, HashSet};
use std::time::{Duration, Instant};

/// Ports and reasons of a report that are kept.
const MAX_PORTS: usize = 1024;
const MAX_DROPS: usize = 128;
const MAX_LOSSES: usize = 16;

/// Servers of a report that are taken into account, and how many of them have an event each.
const MAX_SERVERS: usize = 256;
const NAMED_SERVERS: usize = 8;

/// A loss that paused for this long counts as a new one.
const QUIET: Duration = Duration::from_secs(60);
/// Ports of a loss that are named.
const NAMED: usize = 4;

/// The latest that a switch reported.
#[derive(Clone, Debug, Default)]
pub(crate) struct Said {
    memory: Option<MemoryUse>,
    /// Whether it can be asked for its log.
    says_log: bool,
    /// Whether it understands who receives broadcasts, and the generation and the key of what it was last told.
    takes_groups: bool,
    groups_told: Option<(u64, u64)>,
    /// Whether it wants to know its standing.
    takes_standing: bool,
    /// Whether it supports weights of ways.
    weighs_ways: bool,
    counters: Option<(Instant, Counters)>,
    /// Rates of the whole switch.
    rates: Option<Rates>,
    /// When frames were last dropped, for each reason that is a fault.
    losing: HashMap<String, Instant>,
    /// Trunks that are too small for frames of hosts.
    too_small: HashSet<u32>,
    /// Servers of virtual addresses that are down, as events name them.
    down: BTreeSet<String>,
    /// The message whose acknowledgement is being timed, and when it was sent: one at a time.
    asked: Option<(u64, Instant)>,
    /// When the switch was last found in step, or became known.
    in_step_at: Option<Instant>,
}

impl Said {
    /// Notes whether the switch can be asked for its log.
    pub(crate) fn set_says_log(&mut self, says_log: bool) {
        self.says_log = says_log;
    }

    pub(crate) fn says_log(&self) -> bool {
        self.says_log
    }

    /// Notes whether the switch wants to know its standing.
    pub(crate) fn set_takes_standing(&mut self, takes_standing: bool) {
        self.takes_standing = takes_standing;
    }

    pub(crate) fn takes_standing(&self) -> bool {
        self.takes_standing
    }

    /// Notes whether the switch supports weights of ways.
    pub(crate) fn set_weighs_ways(&mut self, weighs_ways: bool) {
        self.weighs_ways = weighs_ways;
    }

    pub(crate) fn weighs_ways(&self) -> bool {
        self.weighs_ways
    }

    /// Notes whether the switch understands who receives broadcasts.
    pub(crate) fn set_takes_groups(&mut self, takes_groups: bool) {
        self.takes_groups = takes_groups;
    }

    /// Whether the switch is to be told of the groups of a generation: it understands them, and was last told another generation with
    /// another key.
    pub(crate) fn lacks_groups(&mut self, generation: u64, key: impl FnOnce() -> u64) -> bool {
        let last = &mut *self;
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

    pub(crate) fn set_groups_told(&mut self, generation: u64, key: u64) {
        self.groups_told = Some((generation, key));
    }

    /// Replaces what the switch reported about its memory.
    pub(crate) fn set_memory(&mut self, memory: MemoryUse) {
        self.memory = Some(api::memory::bounded(memory));
    }

    pub(crate) fn memory(&self) -> Option<MemoryUse> {
        self.memory.clone()
    }

    /// Keeps what the switch counted, and the rates since its previous report. Returns a sentence for each fault that begins: frames
    /// are dropped for a reason for which none should be, after [`QUIET`] without one, or a trunk is too small.
    pub(crate) fn set_counters(&mut self, counters: Counters, now: Instant) -> Vec<String> {
        let mut counters = bounded(counters);
        let last = &mut *self;
        let mut begun = Vec::new();
        if let Some((at, before)) = &last.counters {
            let seconds = now.saturating_duration_since(*at).as_secs_f64();
            // Two reports that came together say nothing of a rate.
            if seconds < 0.1 {
                return begun;
            }
            last.rates = Some(fill_rates(&mut counters, before, seconds));
            for drop in &counters.drops {
                if api::drops::worth_an_event(&drop.reason).is_none_or(|least| drop.a_second <= least) {
                    continue;
                }
                let lost_before = last.losing.insert(drop.reason.clone(), now);
                if lost_before.is_none_or(|at| now.saturating_duration_since(at) >= QUIET) {
                    begun.push(loss(drop, &counters.ports, &before.ports, seconds));
                }
            }
        }
        let is_too_small = |port: &&PortCounters| 0 < port.mtu && port.mtu < port.mtu_needed;
        let too_small: HashSet<u32> = counters.ports.iter().filter(is_too_small).map(|port| port.port).collect();
        let news = counters.ports.iter().filter(|port| too_small.contains(&port.port));
        begun.extend(news.filter(|port| !last.too_small.contains(&port.port)).map(|port| {
            let PortCounters { port, device, mtu, mtu_needed, .. } = port;
            format!("the trunk at port {port} ({device}) has an MTU of {mtu}, but frames of hosts need {mtu_needed} with the shim: longer ones are lost. `ip link set {device} mtu {mtu_needed}`, at both ends")
        }));
        last.too_small = too_small;
        last.counters = Some((now, counters));
        begun
    }

    /// Notes the results of health checks at the switch. Returns an event for each server that went down, came up, or is no longer checked.
    pub(crate) fn hear_servers(&mut self, checked: &[CheckedServer]) -> Vec<(Level, String)> {
        let (mut down, mut events) = (BTreeSet::new(), Vec::new());
        let before = std::mem::take(&mut self.down);
        let mut up = HashSet::new();
        for server in checked.iter().take(MAX_SERVERS) {
            let CheckedServer { service, protocol, server, is_down, none_is_up, why } = server;
            let named = format!("the server {} of {} ({})", clip(server), clip(service), clip(protocol));
            if !is_down {
                up.insert(named);
                continue;
            }
            if !before.contains(&named) {
                let why = clip(why);
                events.push(match none_is_up {
                    true => (Level::Bad, format!("{named} is down, and so are all others: {why}. They get new flows, as if there were no checks")),
                    false => (Level::Warning, format!("{named} is down, and gets no new flows: {why}")),
                });
            }
            down.insert(named);
        }
        for named in before.difference(&down) {
            events.push(match up.contains(named) {
                true => (Level::Good, format!("{named} is up again, and gets new flows")),
                false => (Level::Info, format!("{named} was down, and is no longer checked, or was removed")),
            });
        }
        if events.len() > NAMED_SERVERS {
            let others = events.split_off(NAMED_SERVERS).len();
            events.push((Level::Warning, format!("{others} other servers of virtual addresses went down or came up")));
        }
        self.down = down;
        events
    }

    /// What the switch counted, with the rates of each port and reason.
    pub(crate) fn counters(&self, now: Instant) -> Option<Counters> {
        let last = self;
        let (at, mut counters) = last.counters.clone()?;
        counters.age_ms = age_ms(at, now);
        for drop in &mut counters.drops {
            drop.why = api::drops::why(&drop.reason).to_owned();
        }
        Some(counters)
    }

    /// The rates of the whole switch.
    pub(crate) fn rates(&self, now: Instant) -> Option<Rates> {
        let last = self;
        let (at, _) = last.counters.as_ref()?;
        last.rates.map(|rates| Rates { age_ms: age_ms(*at, now), ..rates })
    }

    /// Notes that a message was sent. Times its acknowledgement, unless another message is being timed.
    pub(crate) fn sent(&mut self, sequence: u64, now: Instant) {
        self.asked.get_or_insert((sequence, now));
    }

    /// The time to the acknowledgement of the message that was timed, if it is acknowledged now.
    pub(crate) fn acknowledged(&mut self, sequence: u64, now: Instant) -> Option<Duration> {
        let last = &mut *self;
        let (_, at) = last.asked.take_if(|(asked, _)| *asked <= sequence)?;
        Some(now.saturating_duration_since(at))
    }

    /// Notes that the switch was here before, and when it was last found in step.
    pub(crate) fn set_in_step_at(&mut self, at: Instant) {
        self.in_step_at = Some(at);
    }

    /// The time since the switch was last found in step, or became known.
    pub(crate) fn behind(&mut self, is_in_step: bool, now: Instant) -> Duration {
        let last = &mut *self;
        if is_in_step {
            last.in_step_at = Some(now);
        }
        now.saturating_duration_since(*last.in_step_at.get_or_insert(now))
    }

    /// Bytes a second into a port and out of it.
    pub(crate) fn load(&self, port: u16) -> Option<(f64, f64)> {
        let last = self;
        let (_, counters) = last.counters.as_ref()?;
        let rates = counters.ports.iter().find(|counts| counts.port == u32::from(port))?.rates?;
        Some((rates.bytes_in, rates.bytes_out))
    }
}

/// Says that a loss begins, and where.
fn loss(drop: &DropCount, ports: &[PortCounters], before: &[PortCounters], seconds: f64) -> String {
    let total = |ports: &[PortCounters], of: &PortCounters| {
        let port = ports.iter().find(|port| port.port == of.port);
        let losses = port.into_iter().flat_map(|port| &port.losses);
        losses.filter(|loss| loss.reason == drop.reason).map(|loss| loss.total).sum::<u64>()
    };
    let at = ports.iter().filter(|port| total(ports, port) > total(before, port));
    let at: Vec<String> = at.take(NAMED).map(|port| format!("{} ({})", port.port, port.device)).collect();
    let at = match &at[..] {
        [] => String::new(),
        [one] => format!(" at port {one}"),
        all => format!(" at ports {}", all.join(", ")),
    };
    let n = (drop.a_second * seconds).round();
    format!("loses frames{at}: {}, {n:.0} in {seconds:.0} s. {}", drop.reason, api::drops::why(&drop.reason))
}

fn age_ms(at: Instant, now: Instant) -> u64 {
    u64::try_from(now.saturating_duration_since(at).as_millis()).unwrap_or(u64::MAX)
}

/// A report cut to what is kept.
fn bounded(mut counters: Counters) -> Counters {
    let is_word = |word: &str| word.len() <= 32 && word.bytes().all(|b| b.is_ascii_lowercase() || b == b'_');
    counters.drops.retain(|drop| is_word(&drop.reason));
    counters.drops.truncate(MAX_DROPS);
    counters.ports.truncate(MAX_PORTS);
    // These are reported as events.
    counters.checked_servers = Vec::new();
    for port in &mut counters.ports {
        (port.device, port.rates) = (clip(&port.device), None);
        port.device_there = clip(&port.device_there);
        port.losses.retain(|loss| is_word(&loss.reason));
        port.losses.truncate(MAX_LOSSES);
        if !is_word(&port.role) {
            port.role = String::new();
        }
    }
    counters
}

/// A count that is less than before started anew: the switch was restarted.
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
        if api::drops::is_expected(reason) {
            all.expected_drops += *a_second;
        }
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
    fn a_server_that_goes_down_comes_up_or_is_taken_out_is_told_once() {
        let mut said = Said::default();
        let server = |last: usize, is_down: bool| CheckedServer {
            service: "10.0.0.100:80".to_owned(),
            protocol: "tcp".to_owned(),
            server: format!("10.0.0.{last}:80"),
            is_down,
            none_is_up: last == 99,
            why: if is_down { "connection refused".to_owned() } else { String::new() },
        };
        let told = |events: Vec<(Level, String)>| events.into_iter().map(|(level, text)| format!("{level:?}: {text}"));
        let mut hear = |checked: &[CheckedServer]| told(said.hear_servers(checked)).collect::<Vec<_>>();
        let down =
            "Warning: the server 10.0.0.7:80 of 10.0.0.100:80 (tcp) is down, and gets no new flows: connection refused";
        assert_eq!(hear(&[server(7, true)]), [down]);
        assert_eq!(hear(&[server(7, true)]), [""; 0], "it is no news");
        let up = "Good: the server 10.0.0.7:80 of 10.0.0.100:80 (tcp) is up again, and gets new flows";
        assert_eq!(hear(&[server(7, false)]), [up]);
        assert_eq!(hear(&[server(7, false)]), [""; 0], "it is told for a minute");
        assert!(hear(&[server(7, true), server(99, true)])[1].starts_with("Bad: the server 10.0.0.99:80"));
        let gone = hear(&[]);
        assert!(gone.len() == 2 && gone.iter().all(|event| event.starts_with("Info: ")), "{gone:?}");
        let many: Vec<CheckedServer> = (100..200).map(|last| server(last, true)).collect();
        let events = hear(&many);
        assert_eq!(events.len(), NAMED_SERVERS + 1);
        assert!(events[NAMED_SERVERS].contains("92 other servers"), "{events:?}");
    }

    #[test]
    fn rates_are_differences_of_two_reports_and_a_restart_makes_none_negative() {
        let (mut said, start) = (Said::default(), Instant::now());
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
    fn a_loss_that_begins_is_told_once_with_its_ports_and_again_after_a_quiet_minute() {
        let (mut said, start) = (Said::default(), Instant::now());
        let report = |lost: u64, aliens: u64, full: u64| {
            let drop =
                |(reason, total): (&str, u64)| DropCount { reason: reason.to_owned(), total, ..DropCount::default() };
            let mut port = PortCounters { port: 7, device: "veth7".to_owned(), ..PortCounters::default() };
            port.losses = vec![drop(("tx_refused", lost))];
            let drops = [("tx_refused", lost), ("alien", aliens), ("tx_full", full)].map(drop).into();
            let other = PortCounters { port: 8, device: "veth8".to_owned(), ..PortCounters::default() };
            Counters { ports: vec![port, other], drops, ..Counters::default() }
        };
        let at = |seconds| start + Duration::from_secs(seconds);
        assert!(said.set_counters(report(5, 5, 5), at(0)).is_empty(), "nobody knows since when");
        assert!(said.set_counters(report(5, 900, 15), at(2)).is_empty(), "nobody is to be told of these");
        let told = said.set_counters(report(42, 900, 15), at(4));
        assert_eq!(told.len(), 1);
        for part in ["at port 7 (veth7)", "tx_refused, 37 in 2 s", "Raise the MTU"] {
            assert!(told[0].contains(part), "{told:?}");
        }
        assert!(said.set_counters(report(44, 900, 15), at(40)).is_empty(), "it goes on");
        assert!(said.set_counters(report(45, 900, 15), at(90)).is_empty(), "it goes on");
        assert!(said.set_counters(report(45, 900, 15), at(92)).is_empty());
        assert_eq!(said.set_counters(report(46, 900, 15), at(152)).len(), 1, "it begins again");
        assert_eq!(said.set_counters(report(46, 900, 1015), at(154)).len(), 1, "a queue that is full all the time");
    }

    #[test]
    fn a_trunk_that_became_too_small_is_told_until_it_is_mended() {
        let (mut said, start) = (Said::default(), Instant::now());
        let report = |mtu, mtu_needed| {
            let port = PortCounters { port: 9, device: "eth9".to_owned(), mtu, mtu_needed, ..PortCounters::default() };
            Counters { ports: vec![port], ..Counters::default() }
        };
        let at = |seconds| start + Duration::from_secs(seconds);
        assert!(said.set_counters(report(1504, 1504), at(0)).is_empty());
        let told = said.set_counters(report(1500, 1504), at(2));
        assert!(told.len() == 1 && told[0].contains("`ip link set eth9 mtu 1504`, at both ends"), "{told:?}");
        assert!(said.set_counters(report(1500, 1504), at(4)).is_empty());
        assert!(said.set_counters(report(1504, 1504), at(6)).is_empty());
        assert_eq!(said.set_counters(report(1500, 1504), at(8)).len(), 1);
        assert!(
            said.set_counters(report(0, 1504), at(10)).is_empty()
                && said.set_counters(report(1500, 0), at(12)).is_empty()
        );
    }

    #[test]
    fn drops_that_are_as_they_should_be_are_counted_apart() {
        let (mut said, start) = (Said::default(), Instant::now());
        let dropped = |reason: &str, total| DropCount { reason: reason.to_owned(), total, ..DropCount::default() };
        for (seconds, n) in [(0, 0), (2, 10)] {
            let drops = vec![dropped("alien", 2 * n), dropped("broadcast", n)];
            let report = Counters { drops, ..Counters::default() };
            said.set_counters(report, start + Duration::from_secs(seconds));
        }
        let rates = said.rates(start + Duration::from_secs(2)).unwrap();
        assert_eq!((rates.drops, rates.expected_drops), (15.0, 5.0));
        assert!(api::drops::REASONS.iter().any(|(reason, _)| api::drops::is_expected(reason)));
    }

    #[test]
    fn one_message_at_a_time_is_measured_from_sent_to_acknowledged() {
        let (mut said, start) = (Said::default(), Instant::now());
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
        let (mut said, start) = (Said::default(), Instant::now());
        let at = |s| start + Duration::from_secs(s);
        assert_eq!(said.behind(false, at(0)), Duration::ZERO);
        assert_eq!(said.behind(false, at(3)), Duration::from_secs(3));
        assert_eq!(said.behind(true, at(4)), Duration::ZERO);
        assert_eq!(said.behind(false, at(9)), Duration::from_secs(5));
    }

    #[test]
    fn a_report_is_bounded() {
        let mut said = Said::default();
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
