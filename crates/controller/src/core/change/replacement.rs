//! A complete list of wanted names, and how the existing names differ from it.
//!
//! Cost: 64 bytes for each wanted name, and a pass over all names of the network to compare them.

use super::{Change, Record, Refusal, State};
use crate::hosts::HostError;
use fib::name::Name;
use fib::network::NetworkError;
use fib::rib::{Attachment, RibError};
use fib::topology::End;
use fib::unicast::check_unicast;
use std::collections::HashMap;
use std::net::IpAddr;

/// Decides what to do with names that are not wanted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Others {
    /// They stay.
    Keep,
    /// Learnt names stay, declared names go.
    KeepLearnt,
    /// All of them go.
    Remove,
}

/// A name that is wanted.
#[derive(Clone, Debug)]
struct Wanted {
    name: Name,
    /// Its host's number.
    host: u32,
    tenant: u32,
    ip: Option<IpAddr>,
}

/// The names that are wanted.
#[derive(Clone, Debug)]
pub struct Replacement {
    hosts: Vec<String>,
    numbers: HashMap<String, u32>,
    /// Sorted, once the list is complete.
    names: Vec<Wanted>,
    others: Others,
    max_names: usize,
}

/// A name that differs from what is wanted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Difference {
    /// Its current state, and whether it is learnt; none if it is to be added.
    pub(crate) before: Option<(Record, bool)>,
    /// Its wanted state; none if it is to be removed.
    pub(crate) after: Option<Record>,
}

impl Replacement {
    /// An empty list, for at most this many names.
    pub fn new(others: Others, max_names: usize) -> Replacement {
        Replacement { hosts: Vec::new(), numbers: HashMap::new(), names: Vec::new(), others, max_names }
    }

    /// The number of wanted names.
    pub fn len(&self) -> usize {
        self.names.len()
    }

    /// Whether no name is wanted.
    pub fn is_empty(&self) -> bool {
        self.names.is_empty()
    }

    /// Adds one wanted name.
    pub(crate) fn add(&mut self, name: Name, record: Record) -> Result<(), Refusal> {
        let Record { name: text, host, tenant, ip } = record;
        let checked = name.check_unicast().and_then(|()| ip.map_or(Ok(()), check_unicast));
        checked.map_err(|source| Refusal::NotUnicast { name: text, source })?;
        if self.names.len() == self.max_names {
            let (got, max) = (self.names.len() + 1, self.max_names);
            return Err(NetworkError::from(RibError::TooManyNames { got, max }).into());
        }
        let host = match self.numbers.get(&host) {
            Some(number) => *number,
            None => {
                let number = self.hosts.len() as u32;
                self.hosts.push(host.clone());
                self.numbers.insert(host, number);
                number
            }
        };
        self.names.push(Wanted { name, host, tenant, ip });
        Ok(())
    }

    /// Ends the list: all wanted names have been added.
    /// # Errors
    /// [`Refusal::Duplicate`].
    pub(crate) fn whole(mut self) -> Result<Replacement, Refusal> {
        self.names.sort_unstable_by(|a, b| a.name.cmp(&b.name));
        match self.names.windows(2).find(|pair| pair[0].name == pair[1].name) {
            Some(pair) => Err(Refusal::Duplicate { name: pair[0].name.to_string() }),
            None => Ok(self),
        }
    }

    fn record(&self, Wanted { name, host, tenant, ip }: &Wanted) -> Record {
        Record { name: name.to_string(), host: self.hosts[*host as usize].clone(), tenant: *tenant, ip: *ip }
    }
}

impl State {
    /// Calls `each` with the current and the wanted state of every name that differs. Returns how many are already as wanted.
    fn compare<'a>(
        &self,
        replacement: &'a Replacement,
        mut each: impl FnMut(Option<(&Name, &Attachment)>, Option<&'a Wanted>) -> Result<(), Refusal>,
    ) -> Result<u64, Refusal> {
        let ends: Vec<Option<End>> = replacement.hosts.iter().map(|host| self.hosts.end(host).ok()).collect();
        let mut wanted = replacement.names.iter().peekable();
        let mut n_same = 0;
        for (name, at) in self.network.rib().page(None, usize::MAX) {
            while let Some(new) = wanted.next_if(|wanted| wanted.name < name) {
                each(None, Some(new))?;
            }
            let is_learnt = || self.hosts.learnt.since_ms(&name).is_some();
            match wanted.next_if(|wanted| wanted.name == name) {
                Some(same)
                    if ends[same.host as usize] == Some(at.end())
                        && (same.tenant, same.ip) == (at.tenant, at.ip)
                        && !is_learnt() =>
                {
                    n_same += 1;
                }
                Some(other) => each(Some((&name, &at)), Some(other))?,
                None if replacement.others == Others::Keep => {}
                None if replacement.others == Others::KeepLearnt && is_learnt() => {}
                None => each(Some((&name, &at)), None)?,
            }
        }
        wanted.try_for_each(|new| each(None, Some(new)))?;
        Ok(n_same)
    }

    /// Lists each name that would change, and counts those that would not. Hosts need not exist yet.
    pub(crate) fn differences(&self, replacement: &Replacement) -> (Vec<Difference>, u64) {
        let mut differences = Vec::new();
        let n_same = self.compare(replacement, |before, after| {
            let before = before.map(|(name, at)| (self.record(name, at), self.hosts.learnt.since_ms(name).is_some()));
            differences.push(Difference { before, after: after.map(|wanted| replacement.record(wanted)) });
            Ok(())
        });
        (differences, n_same.unwrap_or(0))
    }

    /// Turns a change of all names into one of those that differ; returns other changes as they are.
    /// # Errors
    /// [`HostError::Unknown`].
    pub(crate) fn settle(&self, change: Change) -> Result<Change, Refusal> {
        let Change::ReplaceNames(replacement) = &change else { return Ok(change) };
        let unknown = replacement.hosts.iter().find(|host| self.hosts.end(host).is_err());
        if let Some(host) = unknown {
            return Err(HostError::Unknown { name: fib::name::clip(host) }.into());
        }
        let (mut remove, mut records) = (Vec::new(), Vec::new());
        self.compare(replacement, |before, after| {
            match (before, after) {
                (_, Some(wanted)) => records.push(replacement.record(wanted)),
                (Some((name, _)), None) => remove.push(name.to_string()),
                (None, None) => {}
            }
            Ok(())
        })?;
        Ok(Change::AlterNames { remove, records })
    }
}
