//! The names of hosts at this switch, in an exact map that the program in the kernel reads.

use fib::action::PortId;
use fib::name::{Name, NameKind};
use netio::bpf::Map;
use std::collections::HashMap;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};

/// Names that the map has room for. Frames to others are the workers'.
const MOST: u32 = 1 << 20;

/// Gives the way to a port, if the program sends there.
pub(super) type Ways<'a> = dyn Fn(PortId) -> Option<u64> + 'a;

/// See the module.
#[derive(Debug)]
pub(super) struct Local {
    map: Map,
    /// All that there are of kinds that the program reads, by their bytes.
    names: HashMap<(NameKind, u64), PortId>,
    /// The kind of those in the map: bytes of another kind may be the same.
    kind: Option<NameKind>,
    /// Whether it was said that not all fit.
    is_said: AtomicBool,
}

impl Local {
    pub(super) fn new() -> io::Result<Self> {
        Ok(Self {
            map: Map::growing_hash(8, MOST)?,
            names: HashMap::new(),
            kind: None,
            is_said: AtomicBool::new(false),
        })
    }

    pub(super) fn map(&self) -> &Map {
        &self.map
    }

    pub(super) fn put(&mut self, name: &Name, port: PortId, ways: &Ways<'_>) {
        if let Some(key) = key_of(name) {
            self.names.insert(key, port);
            self.write(key, ways(port));
        }
    }

    pub(super) fn remove(&mut self, name: &Name) {
        if let Some(key) = key_of(name) {
            self.names.remove(&key);
            self.write(key, None);
        }
    }

    /// Takes these for all names. Those that stay are found all the time.
    pub(super) fn replace(&mut self, names: impl Iterator<Item = (Name, PortId)>, ways: &Ways<'_>) {
        let new = names.filter_map(|(name, port)| Some((key_of(&name)?, port))).collect();
        let old = std::mem::replace(&mut self.names, new);
        old.keys().filter(|key| !self.names.contains_key(key)).for_each(|&key| self.write(key, None));
        let changed = self.names.iter().filter(|(key, port)| old.get(key) != Some(port));
        changed.for_each(|(&key, &port)| self.write(key, ways(port)));
    }

    /// Whether the map is of this kind.
    pub(super) fn is_of(&self, kind: NameKind) -> bool {
        self.kind == Some(kind)
    }

    /// The program reads names of this kind from now on; none reads the map at this moment.
    pub(super) fn show(&mut self, kind: NameKind, ways: &Ways<'_>) {
        self.names.keys().for_each(|&key| self.write(key, None));
        self.kind = Some(kind);
        self.ways_changed(ways);
    }

    /// Ways are others than before.
    pub(super) fn ways_changed(&self, ways: &Ways<'_>) {
        self.names.iter().for_each(|(&key, &port)| self.write(key, ways(port)));
    }

    /// Writes the way of a name, or removes it.
    fn write(&self, (kind, key): (NameKind, u64), way: Option<u64>) {
        if self.kind != Some(kind) {
            return;
        }
        let done = match way {
            Some(way) => self.map.set_hashed(key, &way.to_ne_bytes()),
            None => self.map.remove_hashed(key),
        };
        let Err(error) = done else { return };
        // What is not there is for the workers. What stays is not.
        if way.is_none() || self.map.remove_hashed(key).is_err() {
            tracing::error!("the kernel may send frames of a name to the port of before: {error}; restart the switch");
        } else if !self.is_said.swap(true, Ordering::Relaxed) {
            tracing::warn!("the kernel does not take all local names; the workers send frames of the others: {error}");
        }
    }
}

/// The name as the program reads it from a frame. None if it does not read such names.
fn key_of(name: &Name) -> Option<(NameKind, u64)> {
    let mut bytes = [0; 8];
    match (name.kind(), name.as_bytes()) {
        (NameKind::Mac | NameKind::Ipv4, of @ (&[_, _, _, _] | &[_, _, _, _, _, _])) => {
            bytes[..of.len()].copy_from_slice(of)
        }
        _ => return None,
    }
    Some((name.kind(), u64::from_le_bytes(bytes)))
}
