//! Changes in few words, for the audit trail and the log.

use crate::core::change::{Change, DRAINED, Place, Record};
use fib::topology::Wanted;

/// Objects of a change that are named; the others are counted.
const NAMED: usize = 4;

/// What is changed, and to what, in short.
pub(crate) fn summary(change: &Change) -> (&'static str, String) {
    match change {
        Change::AddSwitch { name, tenants } if tenants.is_empty() => ("add_switch", name.clone()),
        Change::AddSwitch { name, tenants } => ("add_switch", format!("{name} for {} tenants", tenants.len())),
        Change::AddSwitches { names } => ("add_switches", some(names, String::clone)),
        Change::RemoveSwitch { name } => ("remove_switch", name.clone()),
        Change::AddHosts { hosts } => ("add_hosts", some(hosts, |(name, at)| format!("{name} at {}", place(at)))),
        Change::RenameHost { name, to } => ("rename_host", format!("{name} to {to}")),
        Change::RemoveHost { name } => ("remove_host", name.clone()),
        Change::AddLink { a, b, wanted: Wanted { cost, weight, up, .. } } => {
            let down = if *up { "" } else { ", down" };
            let weight = if *weight == 1 { String::new() } else { format!(", weight {weight}") };
            ("add_link", format!("{} to {}, cost {cost}{weight}{down}", place(a), place(b)))
        }
        Change::AddLinks { links } => {
            let word = |(a, b, wanted): &(Place, Place, Wanted)| {
                let found = if wanted.found { ", found" } else { "" };
                format!("{} to {}{found}", place(a), place(b))
            };
            ("add_links", some(links, word))
        }
        Change::SetLink { end, cost, weight, raised, up } => {
            let weight = weight.map(|weight| format!(", weight {weight}")).unwrap_or_default();
            let cost = cost.map(|cost| format!(", cost {cost}")).unwrap_or_default();
            let state = up.map(|up| if up { ", up" } else { ", down" }).unwrap_or_default();
            let raised = raised.map(|raised| match raised {
                DRAINED => ", drained".to_owned(),
                raised => format!(", longer by {raised}"),
            });
            let raised = raised.unwrap_or_default();
            ("set_link", format!("{}{cost}{weight}{raised}{state}", place(end)))
        }
        Change::SeeLinks { links } => {
            let word = |(end, cut): &(Place, bool)| format!("{} {}", place(end), if *cut { "cut" } else { "whole" });
            ("see_links", some(links, word))
        }
        Change::RemoveLink { end } => ("remove_link", place(end)),
        Change::PutNames { records, only_new } => {
            let what = if *only_new { "add_names" } else { "put_names" };
            (what, some(records, |Record { name, host, .. }| format!("{name} at {host}")))
        }
        Change::Learn { records, .. } => {
            ("learn", some(records, |Record { name, host, .. }| format!("{name} at {host}")))
        }
        Change::RemoveNames { names, .. } => ("remove_names", some(names, String::clone)),
        Change::AlterNames { remove, records } => {
            ("alter_names", format!("{} removed, {} put", remove.len(), records.len()))
        }
        Change::ReplaceNames(all) => ("replace_names", format!("with {} names", all.len())),
    }
}

fn place(place: &Place) -> String {
    format!("{}:{}", place.switch, place.port)
}

/// The first objects in words, and how many others there are.
fn some<T>(all: &[T], word: impl Fn(&T) -> String) -> String {
    let words: Vec<String> = all.iter().take(NAMED).map(word).collect();
    let others = all.len().saturating_sub(NAMED);
    let others = if others == 0 { String::new() } else { format!(" and {others} others") };
    format!("{}{others}", words.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_of_many_names_is_short() {
        let names = (0..100_000).map(|i| format!("n{i}")).collect();
        let (what, detail) = summary(&Change::RemoveNames { names, ignore_missing: true });
        assert_eq!((what, &detail[..]), ("remove_names", "n0, n1, n2, n3 and 99996 others"));
    }
}
