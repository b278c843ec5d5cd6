//! Changes of names: some names, or all that differ from the wanted ones.

use super::{Changed, Outcome, Record, Refusal, State, check_batch};
use fib::durable::RowChange;
use fib::name::Name;
use fib::network::{Effects, NetworkError};
use fib::rib::Attachment;
use fib::topology::End;
use fib::unicast::check_unicast;
use std::collections::HashSet;

/// Names to be put, checked as far as that is possible without the network.
struct Put {
    names: Vec<(Name, Attachment)>,
    /// The item of the request for each of them.
    items: Vec<usize>,
    /// Names that this makes learnt or declared, and where they are.
    found: Vec<(Name, End)>,
}

impl State {
    /// `learnt`: switches found them at this moment; otherwise they belong to an operator from now on.
    pub(super) fn put_names(
        &mut self,
        records: Vec<Record>,
        only_new: bool,
        learnt: Option<u64>,
    ) -> Result<Outcome, Refusal> {
        check_batch(records.len())?;
        let n_records = records.len();
        let Put { names, items, found } = self.to_put(records, only_new, learnt)?;
        let effects = match &names[..] {
            [] if found.is_empty() => return Ok(Outcome::unchanged(n_records)),
            [] => Effects::default(),
            [(name, attachment)] => self.network.set_name(name, *attachment).map_err(|error| match n_records {
                1 => error,
                // The others of the batch are already as requested.
                _ => NetworkError::Batch { index: items[0], source: Box::new(error) },
            })?,
            names => self.network.put_names(names).map_err(|error| match error {
                NetworkError::Batch { index, source } => NetworkError::Batch { index: items[index], source },
                other => other,
            })?,
        };
        let known = &mut self.hosts.learnt;
        let row = |(name, end): (Name, End)| match learnt {
            Some(at_ms) => known.insert(&name, at_ms, end),
            None => known.remove(&name),
        };
        let rows: Vec<RowChange> = found.into_iter().filter_map(row).collect();
        let n_changed = names.len().max(rows.len());
        let changed = Changed { changed: n_changed as u64, unchanged: (n_records - n_changed) as u64 };
        Ok(Outcome { changed, rows, effects: vec![effects] })
    }

    fn to_put(&self, records: Vec<Record>, only_new: bool, learnt: Option<u64>) -> Result<Put, Refusal> {
        let mut seen = HashSet::with_capacity(records.len());
        let mut put = Put { names: Vec::with_capacity(records.len()), items: Vec::new(), found: Vec::new() };
        put.items.reserve(records.len());
        for (item, record) in records.into_iter().enumerate() {
            let name = self.parse(&record.name)?;
            let checked = name.check_unicast().and_then(|()| record.ip.map_or(Ok(()), check_unicast));
            checked.map_err(|source| Refusal::NotUnicast { name: record.name.clone(), source })?;
            let end = self.hosts.end(&record.host)?;
            let attachment = Attachment { switch: end.node, port: end.port, tenant: record.tenant, ip: record.ip };
            if !seen.insert(name.clone()) {
                return Err(Refusal::Duplicate { name: record.name });
            }
            let is_learnt = self.hosts.learnt.since_ms(&name).is_some();
            if learnt.is_some() && !is_learnt && self.network.rib().get(&name).is_some() {
                // An operator declared it meanwhile, and that takes precedence.
                continue;
            }
            if learnt.is_some() || is_learnt {
                put.found.push((name.clone(), end));
            }
            match self.network.rib().get(&name) {
                Some(_) if only_new => return Err(Refusal::NameExists { name: record.name }),
                Some(before) if before == attachment => {}
                _ => {
                    put.names.push((name, attachment));
                    put.items.push(item);
                }
            }
        }
        Ok(put)
    }

    pub(super) fn remove_names(&mut self, texts: &[String], ignore_missing: bool) -> Result<Outcome, Refusal> {
        check_batch(texts.len())?;
        let mut seen = HashSet::with_capacity(texts.len());
        let mut names = Vec::with_capacity(texts.len());
        for (item, text) in texts.iter().enumerate() {
            let name = self.parse(text).map_err(|refusal| refusal.at(item))?;
            let present = self.network.rib().get(&name).is_some();
            if !present && !ignore_missing {
                return Err(Refusal::UnknownName { name: text.clone() }.at(item));
            }
            if present && seen.insert(name.clone()) {
                names.push(name);
            }
        }
        let effects = match &names[..] {
            [] => return Ok(Outcome::unchanged(texts.len())),
            [name] => self.network.remove_name(name)?,
            names => self.network.remove_names(names)?,
        };
        let changed = Changed { changed: names.len() as u64, unchanged: (texts.len() - names.len()) as u64 };
        let rows = names.iter().filter_map(|name| self.hosts.learnt.remove(name)).collect();
        Ok(Outcome { changed, rows, effects: vec![effects] })
    }

    /// Removes names and puts others. A name that is already gone counts as already as requested.
    pub(super) fn change_names(&mut self, remove: &[String], records: Vec<Record>) -> Result<Outcome, Refusal> {
        let n_asked = remove.len() + records.len();
        let mut gone = Vec::with_capacity(remove.len());
        for text in remove {
            let name = self.parse(text)?;
            if self.network.rib().get(&name).is_some() {
                gone.push(name);
            }
        }
        let Put { names, found, .. } = self.to_put(records, false, None)?;
        if gone.is_empty() && names.is_empty() && found.is_empty() {
            return Ok(Outcome::unchanged(n_asked));
        }
        let effects = match (&gone[..], &names[..]) {
            ([], []) => Effects::default(),
            (gone, names) => self.network.change_names(gone, names)?,
        };
        // A learnt name that moves is put and declared at once.
        let put: HashSet<&Name> = names.iter().map(|(name, _)| name).collect();
        let n_declared = found.iter().filter(|(name, _)| !put.contains(name)).count();
        let known = &mut self.hosts.learnt;
        let no_longer = found.iter().map(|(name, _)| name).chain(&gone);
        let rows: Vec<RowChange> = no_longer.filter_map(|name| known.remove(name)).collect();
        let n_changed = gone.len() + names.len() + n_declared;
        let changed = Changed { changed: n_changed as u64, unchanged: n_asked.saturating_sub(n_changed) as u64 };
        Ok(Outcome { changed, rows, effects: vec![effects] })
    }
}
