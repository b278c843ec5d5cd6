//! What is to be changed because of what switches saw.

use crate::core::change::{Place, Record, State};
use crate::hosts::names::MAX_MORE_OF_NAME;
use fib::name::Name;
use std::collections::BTreeMap;
use std::net::IpAddr;

/// What is to be changed: hosts first.
#[derive(Debug, Default)]
pub(crate) struct Decided {
    pub(crate) hosts: Vec<(String, Place)>,
    pub(crate) records: Vec<Record>,
    /// The addresses that names have beside that of their record.
    pub(crate) more: BTreeMap<Name, Vec<IpAddr>>,
    /// Names that lose addresses to others, with the address of their record and the further ones that they keep. They are to lose them
    /// before the others get them.
    pub(crate) losers: BTreeMap<Name, (Option<IpAddr>, Vec<IpAddr>)>,
    /// Who takes over what, in words.
    pub(crate) taken: Vec<(String, String)>,
    /// Names that were seen and are above what their ports or switches may have.
    pub(crate) left: u64,
}

impl Decided {
    /// What a name has to lose so that another one can have its address.
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

/// Gives a name one more address: that of its record, if it has none or one of IPv6 and this is one of IPv4; otherwise a further one, in the
/// place of the oldest if there are as many as may be.
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
