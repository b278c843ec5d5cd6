//! What a change does, in words, for those who watch the network.

use crate::core::change::{Change, DRAINED, Place, Record};
use fib::topology::Wanted;
use std::net::IpAddr;

/// Links and hosts of one change that have an event each.
pub(crate) const NAMED: usize = 8;

/// The severity of an event.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[cfg_attr(not(feature = "kit"), allow(unreachable_pub, reason = "simulations drive it"))]
pub enum Level {
    Good,
    Info,
    Warning,
    Bad,
}

/// What there is to report of a change, if it is committed.
#[derive(Debug)]
pub(crate) enum Happened {
    Names(u64),
    Events(Vec<(&'static str, Level, String, String)>),
}

fn at(place: &Place) -> String {
    format!("{}:{}", place.switch, place.port)
}

/// A link that is added, in words.
fn added(Wanted { cost, weight, found, .. }: &Wanted) -> String {
    let weight = if *weight == 1 { String::new() } else { format!(", weight {weight}") };
    let added = if *found { "found, and added" } else { "added" };
    format!("{added}, cost {cost}{weight}")
}

/// The links that a newly added link replaces at its ports, because they were found, in words.
fn instead(link: impl Fn(&Place) -> Option<String>, (a, b, wanted): &(Place, Place, Wanted)) -> String {
    let gone: Vec<String> = [a, b].into_iter().filter(|_| wanted.found).filter_map(link).collect();
    if gone.is_empty() { String::new() } else { format!(", instead of {}", gone.join(" and ")) }
}

/// An event for each of the first objects, and one for the others.
fn some<T>(all: &[T], kind: &'static str, event: impl Fn(&T) -> (Level, String, String)) -> Happened {
    let mut events: Vec<_> = all
        .iter()
        .take(NAMED)
        .map(|one| {
            let (level, subject, text) = event(one);
            (kind, level, subject, text)
        })
        .collect();
    if let Some(others) = all.len().checked_sub(NAMED).filter(|others| *others > 0)
        && let Some((kind, level, _, text)) = events.last().cloned()
    {
        events.push((kind, level, format!("{others} others"), text));
    }
    Happened::Events(events)
}

/// Names that are learnt. Names that move have events of their own: the mover may be an impostor.
fn learnt(records: &[Record], more: &[(String, Vec<IpAddr>)], host_of: impl Fn(&str) -> Option<String>) -> Happened {
    let all = records.iter().map(|record| (record, host_of(&record.name)));
    let (moved, others): (Vec<_>, Vec<_>) =
        all.partition(|(record, from)| from.as_ref().is_some_and(|from| *from != record.host));
    let event = |(Record { name, host, ip, .. }, from): &(&Record, Option<String>)| {
        let latest = more.iter().find(|(of, _)| of == name).and_then(|(_, ips)| ips.last());
        let text = match (from, latest.or(ip.as_ref())) {
            (Some(from), _) if from != host => format!("moved from {from} to {host}"),
            (Some(_), Some(ip)) => format!("has the address {ip} at {host}"),
            (Some(_), None) => format!("no longer has an address at {host}"),
            _ => format!("learnt at {host}"),
        };
        (Level::Info, name.clone(), text)
    };
    let events = [moved, others].into_iter().flat_map(|part| match some(&part, "host", event) {
        Happened::Events(events) => events,
        Happened::Names(_) => Vec::new(),
    });
    Happened::Events(events.collect())
}

impl Happened {
    /// Describes a change. `far_end` names the other end of the link at a port, `host_of` the host of a name.
    pub(crate) fn of(
        change: &Change,
        far_end: impl Fn(&Place) -> Option<String>,
        host_of: impl Fn(&str) -> Option<String>,
    ) -> Happened {
        let is_there = |place: &Place| far_end(place).map(|far| format!("{} – {far}", at(place)));
        let link = |place: &Place| is_there(place).unwrap_or_else(|| at(place));
        let one = |kind, subject: String, text: String| Happened::Events(vec![(kind, Level::Info, subject, text)]);
        match change {
            Change::AddSwitch { name, .. } => one("switch", name.clone(), "added".to_owned()),
            Change::AddSwitches { names } => {
                some(names, "switch", |name| (Level::Info, name.clone(), "added".to_owned()))
            }
            Change::RemoveSwitch { name } => one("switch", name.clone(), "removed".to_owned()),
            Change::AddHosts { hosts } => {
                some(hosts, "host", |(name, place)| (Level::Info, name.clone(), format!("added at {}", at(place))))
            }
            Change::RenameHost { name, to } => one("host", name.clone(), format!("was renamed to {to}")),
            Change::RemoveHost { name } => one("host", name.clone(), "removed".to_owned()),
            Change::AddLink { a, b, wanted } => one("link", format!("{} – {}", at(a), at(b)), added(wanted)),
            Change::AddLinks { links } => {
                let text = |one: &(Place, Place, Wanted)| format!("{}{}", added(&one.2), instead(is_there, one));
                some(links, "link", |one| (Level::Info, format!("{} – {}", at(&one.0), at(&one.1)), text(one)))
            }
            Change::SetLink { end, cost, weight, raised, up } => {
                let mut words = Vec::new();
                words.extend(cost.map(|cost| format!("cost {cost}")));
                words.extend(weight.map(|weight| format!("weight {weight}")));
                words.extend(raised.map(|raised| match raised {
                    0 => "no longer drained".to_owned(),
                    DRAINED => "drained".to_owned(),
                    raised => format!("draining: longer by {raised}"),
                }));
                words.extend(up.map(|up| if up { "put into use".to_owned() } else { "taken out of use".to_owned() }));
                let level = if *up == Some(false) { Level::Warning } else { Level::Info };
                Happened::Events(vec![("link", level, link(end), words.join(", "))])
            }
            Change::SeeLinks { links } => some(links, "link", |(place, is_cut)| {
                if *is_cut {
                    (Level::Bad, link(place), "cut: its switches report that it carries no frames".to_owned())
                } else {
                    (Level::Good, link(place), "whole again".to_owned())
                }
            }),
            Change::RemoveLink { end } => one("link", link(end), "removed".to_owned()),
            Change::Learn { records, more, .. } => learnt(records, more, host_of),
            Change::PutNames { .. }
            | Change::RemoveNames { .. }
            | Change::AlterNames { .. }
            | Change::ReplaceNames(_) => Happened::Names(0),
        }
    }

    /// The same with the number of objects that really changed. None, if none did.
    pub(crate) fn changed(self, n_changed: u64) -> Option<Happened> {
        match self {
            _ if n_changed == 0 => None,
            Happened::Names(_) => Some(Happened::Names(n_changed)),
            // Which of several they were is not known here.
            Happened::Events(events) if (events.len() as u64) > n_changed => {
                let first = events
                    .into_iter()
                    .next()
                    .map(|(kind, level, _, text)| (kind, level, format!("{n_changed} of several"), text));
                Some(Happened::Events(first.into_iter().collect()))
            }
            told => Some(told),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use fib::action::PortId;

    /// Subject and text of each event of a change with this many objects.
    fn told(change: &Change, n_changed: u64, host_of: impl Fn(&str) -> Option<String>) -> Vec<(String, String)> {
        let far_end = |place: &Place| (place.port == PortId(1)).then(|| "s9:9".to_owned());
        let Some(Happened::Events(events)) = Happened::of(change, far_end, host_of).changed(n_changed) else {
            return Vec::new();
        };
        events.into_iter().map(|(_, _, subject, text)| (subject, text)).collect()
    }

    #[test]
    fn a_name_that_moves_is_told_among_many_that_are_new() {
        let record = |i: u8, host: &str| Record {
            name: format!("n{i}"),
            host: host.to_owned(),
            tenant: 0,
            ip: (i == 7).then(|| [10, 0, 0, 7].into()),
        };
        let mut records: Vec<Record> = (0..30).map(|i| record(i, "s1.1")).collect();
        records[20].host = "s2.4".to_owned();
        let change = Change::Learn { records, at_ms: 0, more: Vec::new() };
        let events = told(&change, 30, |name| ["n7", "n20"].contains(&name).then(|| "s1.1".to_owned()));
        let event = |subject: &str, text: &str| (subject.to_owned(), text.to_owned());
        assert_eq!(events.len(), 1 + NAMED + 1);
        assert_eq!(events[0], event("n20", "moved from s1.1 to s2.4"));
        assert_eq!(events[1], event("n0", "learnt at s1.1"));
        assert_eq!(events[NAMED], event("n7", "has the address 10.0.0.7 at s1.1"));
    }

    #[test]
    fn a_link_that_is_found_is_told_with_the_one_that_goes() {
        let place = |switch: &str, port| Place { switch: switch.to_owned(), port: PortId(port) };
        let found = Wanted { found: true, ..Wanted::default() };
        let links = |wanted| Change::AddLinks { links: vec![(place("s1", 1), place("s2", 2), wanted)] };
        let event = |text: &str| vec![("s1:1 – s2:2".to_owned(), text.to_owned())];
        let text = "found, and added, cost 1, instead of s1:1 – s9:9";
        assert_eq!(told(&links(found), 1, |_| None), event(text));
        assert_eq!(told(&links(Wanted::default()), 1, |_| None), event("added, cost 1"));
    }
}
