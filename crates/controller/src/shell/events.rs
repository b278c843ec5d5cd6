//! Events of the network, in words: for those who watch, and for those who come a little later.
//!
//! The last [`KEPT`] events are kept, in memory only; the audit trail has what was changed, and by whom. Names may change by
//! the thousands in a second, so there is one event a second for them, with their number.
//!
//! The numbers of events begin with the time at which the controller started, so that those of another start are not taken for
//! known ones.

use crate::core::happened::{Happened, Level};
use api::seam::now;
use api::v1::Event;
use std::collections::{HashMap, VecDeque};
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use tokio::sync::watch;

/// Events that are kept.
const KEPT: usize = 1000;

/// Events that a reader gets at a time.
const PAGE: usize = 100;

/// Events of one switch that are kept within this time, so that a switch that comes and goes quickly does not push out those of others.
const OF_A_SWITCH: u32 = 20;
const WITHIN: Duration = Duration::from_secs(60);

/// The kinds of events.
pub const KINDS: [&str; 5] = ["link", "switch", "host", "names", "controller"];

/// See the module.
#[derive(Debug)]
pub(crate) struct Events {
    kept: Mutex<VecDeque<Event>>,
    /// The number before the first one.
    before: u64,
    /// The number of the last event.
    last: watch::Sender<u64>,
    /// Names changed since the last event about names, and the number of changes they were in.
    n_names: AtomicU64,
    n_changes: AtomicU64,
    /// Events of switches since a moment.
    switches: Mutex<(Option<Instant>, HashMap<String, u32>)>,
}

/// A number before that of every event from now on, and after those of earlier starts. JavaScript has it exactly.
fn before() -> u64 {
    api::clock::unix_ms() * 1000
}

impl Default for Events {
    fn default() -> Self {
        let before = before();
        Self {
            kept: Mutex::default(),
            before,
            last: watch::Sender::new(before),
            n_names: AtomicU64::new(0),
            n_changes: AtomicU64::new(0),
            switches: Mutex::default(),
        }
    }
}

impl Events {
    fn lock(&self) -> MutexGuard<'_, VecDeque<Event>> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds an event.
    pub(crate) fn note(&self, kind: &'static str, level: Level, subject: impl Into<String>, text: impl Into<String>) {
        let (subject, mut text) = (subject.into(), text.into());
        if kind == "switch" {
            match self.count(&subject, now()) {
                n if n > OF_A_SWITCH => return,
                OF_A_SWITCH => text += "; further ones of this minute are not reported",
                _ => {}
            }
        }
        let level = match level {
            Level::Good => "good",
            Level::Info => "info",
            Level::Warning => "warning",
            Level::Bad => "bad",
        };
        let mut kept = self.lock();
        let sequence = self.last() + 1;
        if kept.len() == KEPT {
            kept.pop_front();
        }
        kept.push_back(Event {
            sequence,
            at_ms: api::clock::unix_ms(),
            kind: kind.to_owned(),
            level: level.to_owned(),
            subject,
            text,
            missed: 0,
        });
        self.last.send_replace(sequence);
    }

    /// The number of recent events of a switch, including this one.
    fn count(&self, switch: &str, now: Instant) -> u32 {
        let mut switches = self.switches.lock().unwrap_or_else(PoisonError::into_inner);
        let (since, counts) = &mut *switches;
        if since.is_none_or(|since| now.saturating_duration_since(since) >= WITHIN) {
            *since = Some(now);
            counts.clear();
        }
        let count = counts.entry(switch.to_owned()).or_default();
        *count += 1;
        *count
    }

    /// Counts names that were changed.
    pub(crate) fn names_changed(&self, n_names: u64) {
        self.n_names.fetch_add(n_names, Relaxed);
        self.n_changes.fetch_add(1, Relaxed);
    }

    /// Adds an event with the number of names changed since the previous one, if there are any. To be called once a second.
    pub(crate) fn say_names(&self) {
        let (n_names, n_changes) = (self.n_names.swap(0, Relaxed), self.n_changes.swap(0, Relaxed));
        if n_names > 0 {
            let names = if n_names == 1 { "1 name".to_owned() } else { format!("{n_names} names") };
            let changes = if n_changes == 1 { "1 change".to_owned() } else { format!("{n_changes} changes") };
            self.note("names", Level::Info, names, format!("added, moved or removed, in {changes}"));
        }
    }

    /// Reports a change, once it is committed.
    pub(crate) fn note_change(&self, change: Happened) {
        match change {
            Happened::Names(n_names) => self.names_changed(n_names),
            Happened::Events(events) => {
                for (kind, level, subject, text) in events {
                    self.note(kind, level, subject, text);
                }
            }
        }
    }

    /// Up to 100 events after a given one, of these kinds (all, if there are none), and the number up to which that is complete. Before
    /// them a gap, if events in between are no longer kept; a number that was never given starts over.
    pub(crate) fn after(&self, after: u64, kinds: &[String]) -> (Vec<Event>, u64) {
        let kept = self.lock();
        let last = self.last();
        let after = if after > last || after < self.before { 0 } else { after };
        let first = kept.front().map_or(last + 1, |event| event.sequence);
        let mut events = Vec::new();
        if after > 0 && first > after + 1 {
            let missed = first - after - 1;
            let text = format!("{missed} events before this one are no longer kept");
            events.push(Event {
                sequence: first - 1,
                kind: "gap".to_owned(),
                level: "info".to_owned(),
                text,
                missed,
                ..Event::default()
            });
        }
        let mut upto = after.max(first - 1);
        for event in kept.iter().filter(|event| event.sequence > after) {
            if events.len() == PAGE {
                break;
            }
            upto = event.sequence;
            if kinds.is_empty() || kinds.contains(&event.kind) {
                events.push(event.clone());
            }
        }
        (events, upto)
    }

    /// The number of the last event.
    pub(crate) fn last(&self) -> u64 {
        *self.last.borrow()
    }

    /// Notified of every new event.
    pub(crate) fn subscribe(&self) -> watch::Receiver<u64> {
        self.last.subscribe()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::change::{Change, Place};
    use crate::core::happened::NAMED;
    use fib::action::PortId;

    fn sequences(events: &[Event]) -> Vec<u64> {
        events.iter().map(|event| event.sequence).collect()
    }

    #[test]
    fn a_reader_gets_every_event_once_and_is_told_what_it_missed() {
        // As if it had started at the beginning of 1970.
        let events = Events { before: 0, last: watch::Sender::new(0), ..Events::default() };
        assert_eq!(events.after(0, &[]), (Vec::new(), 0));
        for i in 0..KEPT + 50 {
            events.note(["host", "link"][i % 2], Level::Info, "s1", format!("{i}"));
        }
        let (mut seen, mut after) = (Vec::new(), 0);
        loop {
            let (page, upto) = events.after(after, &[]);
            assert!(page.len() <= PAGE);
            if page.is_empty() {
                break;
            }
            seen.extend(page);
            after = upto;
        }
        assert_eq!(sequences(&seen), (51..=1050).collect::<Vec<_>>());
        let (page, _) = events.after(20, &[]);
        assert_eq!((page[0].kind.as_str(), page[0].missed, page[1].sequence), ("gap", 30, 51));
        // Kinds that are not asked for are passed over, and read no second time.
        let (page, upto) = events.after(1000, &["link".to_owned()]);
        assert_eq!((sequences(&page), upto), ((1001..=1050).filter(|n| n % 2 == 0).collect(), 1050));
        // Numbers of a controller that ran before, whose clock was ahead or not.
        assert_eq!(events.after(5000, &[]).0.len(), PAGE);
        let events = Events::default();
        events.note("link", Level::Info, "s1", "cut");
        for after in [1, events.before - 1, events.before + 2, u64::MAX] {
            let (page, upto) = events.after(after, &[]);
            assert_eq!((sequences(&page), upto), (vec![events.before + 1], events.before + 1), "{after}");
        }
        assert!(events.after(events.before + 1, &[]).0.is_empty());
    }

    #[test]
    fn names_have_one_event_for_all_changes_of_a_second() {
        let events = Events::default();
        events.say_names();
        (0..1000).for_each(|_| events.names_changed(3));
        events.say_names();
        events.say_names();
        let (page, _) = events.after(0, &[]);
        assert_eq!(page.len(), 1);
        assert_eq!(
            (page[0].subject.as_str(), page[0].text.as_str()),
            ("3000 names", "added, moved or removed, in 1000 changes")
        );
    }

    #[test]
    fn a_change_of_many_links_is_a_few_events() {
        let place = |port| Place { switch: "s1".to_owned(), port: PortId(port) };
        let links = (0..100).map(|port| (place(port), true)).collect();
        let told = Happened::of(&Change::SeeLinks { links }, |_| Some("s2:1".to_owned()), |_| None);
        let events = Events::default();
        events.note_change(told.changed(100).unwrap());
        let (page, _) = events.after(0, &[]);
        assert_eq!(page.len(), NAMED + 1);
        assert_eq!((page[0].subject.as_str(), page[0].level.as_str()), ("s1:0 – s2:1", "bad"));
        assert_eq!(page[NAMED].subject, "92 others");
        // A switch that comes and goes does not silence others.
        (0..1000).for_each(|_| events.note("switch", Level::Info, "s9", "connected"));
        events.note("switch", Level::Info, "s8", "connected");
        let (page, _) = events.after(0, &["switch".to_owned()]);
        assert_eq!(page.len() as u32, OF_A_SWITCH + 1);
        assert!(page[OF_A_SWITCH as usize - 1].text.ends_with("are not reported"));
        let nothing = Happened::of(
            &Change::RemoveNames { names: vec!["n".to_owned()], ignore_missing: true },
            |_| None,
            |_| None,
        );
        assert!(nothing.changed(0).is_none());
    }
}
