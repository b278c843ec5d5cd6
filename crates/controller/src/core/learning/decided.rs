//! The changes that follow from what switches saw.

use crate::core::change::{Place, Record, State};
use crate::hosts::names::MAX_MORE_OF_NAME;
use fib::name::Name;
use std::collections::BTreeMap;
use std::net::IpAddr;

/// What to change: hosts first.
#[derive(Debug, Default)]
pub(crate) struct Decided {
    pub(crate) hosts: Vec<(String, Place)>,
    pub(crate) records: Vec<Record>,
    /// The further addresses of names, besides those of their records.
    pub(crate) more: BTreeMap<Name, Vec<IpAddr>>,
    /// Names that lose addresses to others, with the record's address and the further ones that they keep. They lose the addresses
    /// before the others get them.
    pub(crate) losers: BTreeMap<Name, (Option<IpAddr>, Vec<IpAddr>)>,
    /// Who takes over what, in words.
    pub(crate) taken: Vec<(String, String)>,
    /// Names that were seen but exceed the limits of their ports or switches.
    pub(crate) left: u64,
}

impl Decided {
    /// Removes from a name the address that another one gets.
    pub(super) fn lose(&mut self, state: &State, holder: &Name, ip: IpAddr) {
        let known = || {
            let own = state.network.rib().get(holder).and_then(|at| at.ip);
            (own, state.hosts.learnt.more_of(holder).to_vec())
        };
        let (own, more) = self.losers.entry(holder.clone()).or_insert_with(known);
        more.retain(|other| *other != ip);
        if *own == Some(ip) {
            // One of the same family takes its place in the record.
            let next = more.iter().position(|other| other.is_ipv4() == ip.is_ipv4()).or(more.first().map(|_| 0));
            *own = next.map(|at| more.remove(at));
        }
    }

    /// The records that have to be carried out first.
    pub(crate) fn losses(&self, state: &State) -> (Vec<Record>, Vec<(String, Vec<IpAddr>)>) {
        let record = |(name, (ip, _)): (&Name, &(Option<IpAddr>, Vec<IpAddr>))| {
            let at = state.network.rib().get(name)?;
            Some(Record { ip: *ip, ..state.record(name, &at) })
        };
        let more = self.losers.iter().map(|(name, (_, more))| (name.to_string(), more.clone()));
        (self.losers.iter().filter_map(record).collect(), more.collect())
    }

    /// [`Decided::more`] as a change has it.
    pub(crate) fn more(&self) -> Vec<(String, Vec<IpAddr>)> {
        self.more.iter().map(|(name, more)| (name.to_string(), more.clone())).collect()
    }
}

/// Gives a name one more address: in its record, if that has none or an IPv6 address and this one is IPv4; otherwise as a further
/// address, which replaces the oldest if there are as many as allowed.
pub(super) fn add_address(own: &mut Option<IpAddr>, more: &mut Vec<IpAddr>, ip: IpAddr) {
    let further = match *own {
        Some(before) if ip.is_ipv6() || before.is_ipv4() => ip,
        before => {
            *own = Some(ip);
            let Some(before) = before else { return };
            before
        }
    };
    more.retain(|other| *other != ip && *other != further);
    if more.len() >= MAX_MORE_OF_NAME {
        more.remove(0);
    }
    more.push(further);
}
