//! Names that are to be the only ones, and in what those that are there differ from them.
//!
//! Cost: 64 bytes for each name that is wanted, and a pass over all names of the network to compare them.

use super::{Change, Record, Refusal, State};
use crate::hosts::HostError;
use fib::name::Name;
use fib::network::NetworkError;
use fib::rib::{Attachment, RibError};
use fib::topology::End;
use fib::unicast::check_unicast;
use std::collections::HashMap;
use std::net::IpAddr;

/// What becomes of names that are not wanted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Others {
    /// They stay.
    Keep,
    /// Those that switches learnt stay, those that operators declared go.
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

/// Names that are to be there.
#[derive(Clone, Debug)]
pub struct Replacement {
    hosts: Vec<String>,
    numbers: HashMap<String, u32>,
    /// In their order, once it is whole.
    names: Vec<Wanted>,
    others: Others,
    max_names: usize,
}

/// A name that is otherwise than it is wanted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Difference {
    /// As it is, and whether it is learnt; none: it is to come.
    pub(crate) before: Option<(Record, bool)>,
    /// As it is to be; none: it is to go.
    pub(crate) after: Option<Record>,
}

impl Replacement {
    /// No names yet, and at most so many.
    pub fn new(others: Others, max_names: usize) -> Replacement {
        Replacement { hosts: Vec::new(), numbers: HashMap::new(), names: Vec::new(), others, max_names }
    }

    /// How many names are wanted.
    pub fn len(&self) -> usize {
        self.names.len()
    }

    /// Whether none is.
    pub fn is_empty(&self) -> bool {
        self.names.is_empty()
    }

    /// Wants one more.
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

    /// All that are wanted are there.
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
    /// Calls `each` with every name that is otherwise than wanted: as it is, and as it is to be. How many are as wanted.
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

    /// What would change: each name, and how many would not. Hosts need not be there yet.
    pub(crate) fn differences(&self, replacement: &Replacement) -> (Vec<Difference>, u64) {
        let mut differences = Vec::new();
        let n_same = self.compare(replacement, |before, after| {
            let before = before.map(|(name, at)| (self.record(name, at), self.hosts.learnt.since_ms(name).is_some()));
            differences.push(Difference { before, after: after.map(|wanted| replacement.record(wanted)) });
            Ok(())
        });
        (differences, n_same.unwrap_or(0))
    }

    /// A change of all names as one of those that differ; others as they are.
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
