//! Host names: the operator's names of host ports.

pub mod names;

use fib::action::PortId;
use fib::durable::RowChange;
use fib::topology::{End, NodeId};
use names::Learnt;
use std::collections::{BTreeMap, HashMap};

/// The kind of the store's rows that hold hosts: key = the name, value = switch (u32) and port (u16), little-endian.
pub const HOST_ROW: u8 = 0xF0;

/// Maps host names to host ports, and back. One name per port.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Hosts {
    by_name: BTreeMap<String, End>,
    by_end: HashMap<End, String>,
    /// The names that switches found.
    pub learnt: Learnt,
}

/// Why the host table refuses.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum HostError {
    /// No host of this name.
    #[error("there is no host `{name}`; `fibula host list` lists all")]
    Unknown {
        /// As asked.
        name: String,
    },
    /// The name is taken.
    #[error("a host `{name}` exists already; choose another name")]
    NameTaken {
        /// As asked.
        name: String,
    },
    /// The port has a host.
    #[error(
        "the host `{name}` is already at that port; choose another port, or give that host another name with `fibula host rename`"
    )]
    PortTaken {
        /// The host there.
        name: String,
    },
    /// A row of the store is damaged.
    #[error(
        "the store is damaged: the row of the host `{name}` has {len} bytes instead of 6; restore the store from a backup"
    )]
    BadRow {
        /// The host.
        name: String,
        /// Its length.
        len: usize,
    },
}

impl Hosts {
    /// Adds the host in a row of the store.
    /// # Errors
    /// [`HostError::BadRow`].
    pub fn restore(&mut self, key: &[u8], value: &[u8]) -> Result<(), HostError> {
        let name = String::from_utf8_lossy(key).into_owned();
        let &[a, b, c, d, e, f] = value else { return Err(HostError::BadRow { name, len: value.len() }) };
        let end = End { node: NodeId(u32::from_le_bytes([a, b, c, d])), port: PortId(u16::from_le_bytes([e, f])) };
        self.insert(&name, end);
        Ok(())
    }

    /// Adds a host; returns the row to commit.
    pub(crate) fn insert(&mut self, name: &str, end: End) -> RowChange {
        self.by_name.insert(name.to_owned(), end);
        self.by_end.insert(end, name.to_owned());
        let mut value = end.node.0.to_le_bytes().to_vec();
        value.extend_from_slice(&end.port.0.to_le_bytes());
        RowChange { kind: HOST_ROW, key: name.as_bytes().to_vec(), value: Some(value) }
    }

    /// Removes a host; returns the row to commit.
    pub(crate) fn remove(&mut self, name: &str, end: End) -> RowChange {
        self.by_name.remove(name);
        self.by_end.remove(&end);
        RowChange { kind: HOST_ROW, key: name.as_bytes().to_vec(), value: None }
    }

    /// The port of a host.
    /// # Errors
    /// [`HostError::Unknown`].
    pub fn end(&self, name: &str) -> Result<End, HostError> {
        self.by_name.get(name).copied().ok_or_else(|| HostError::Unknown { name: name.chars().take(80).collect() })
    }

    /// The host at a port.
    pub fn name(&self, end: End) -> Option<&str> {
        self.by_end.get(&end).map(String::as_str)
    }

    /// All hosts by name.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (&str, End)> {
        self.by_name.iter().map(|(name, end)| (name.as_str(), *end))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_come_back_from_their_rows() {
        let mut hosts = Hosts::default();
        let ends = [1, 70_000].map(|node| End { node: NodeId(node), port: PortId(65_535) });
        let rows = [hosts.insert("h1", ends[0]), hosts.insert("h2", ends[1])];
        let mut again = Hosts::default();
        for row in &rows {
            again.restore(&row.key, row.value.as_ref().unwrap()).unwrap();
        }
        assert_eq!(again, hosts);
        assert_eq!(again.name(ends[1]), Some("h2"));
        assert!(matches!(again.restore(b"h4", b"short"), Err(HostError::BadRow { len: 5, .. })));
    }
}
