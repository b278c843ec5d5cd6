//! The names of hosts at this switch, in an exact map that the program in the kernel reads.
//!
//! A value contains the name besides the port: the kernel reuses the memory of a removed name for another one at once, so
//! a program that had found the name may read the value of the other. The program compares them.
//!
//! One writer, that of the workers' local names, which has all of them. Cost: a system call a change; some 70 bytes a name, of
//! the kernel's memory.

use fib::name::{Name, NameKind};
use netio::bpf::Map;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Names that the map has room for. Frames to further names go to the workers.
const MOST: u32 = 1 << 20;

/// See the module.
#[derive(Debug)]
pub(super) struct Local {
    map: Map,
    /// The kind of the names: bytes of another kind may be the same.
    kind: Mutex<Option<NameKind>>,
    /// Whether it was emptied for another kind, whose names are still missing.
    lacks: AtomicBool,
    /// Whether it was reported that not all names fit.
    is_said: AtomicBool,
}

impl Local {
    pub(super) fn new() -> io::Result<Self> {
        let map = Map::growing_hash(8, MOST)?;
        Ok(Self { map, kind: Mutex::new(None), lacks: AtomicBool::new(false), is_said: AtomicBool::new(false) })
    }

    pub(super) fn map(&self) -> &Map {
        &self.map
    }

    fn kind(&self) -> MutexGuard<'_, Option<NameKind>> {
        self.kind.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether the map is of this kind.
    pub(super) fn is_of(&self, kind: NameKind) -> bool {
        *self.kind() == Some(kind)
    }

    /// Empties the map, for names of another kind.
    /// # Errors
    /// Names from before may still be there.
    pub(super) fn begin(&self, new: NameKind) -> io::Result<()> {
        let mut kind = self.kind();
        self.map.hashed_keys()?.into_iter().try_for_each(|key| self.map.remove_hashed(key))?;
        *kind = Some(new);
        self.lacks.store(true, Ordering::Relaxed);
        Ok(())
    }

    /// Notes that a name may still be there with a former port: the map has no kind until it is emptied.
    pub(super) fn failed(&self) {
        *self.kind() = None;
    }

    /// Whether all names are to be put.
    pub(super) fn lacks_names(&self) -> bool {
        self.lacks.swap(false, Ordering::Relaxed)
    }

    /// Puts the slot of a name's port; none to remove it. Ignores names of other kinds.
    /// # Errors
    /// The name may still be there with its former slot.
    pub(super) fn put(&self, name: &Name, slot: Option<u32>) -> io::Result<()> {
        let kind = self.kind();
        match key_of(name).filter(|_| *kind == Some(name.kind())) {
            Some(key) => self.write(key, slot),
            None => Ok(()),
        }
    }

    /// Gives every name in the map its present slot, or removes it.
    /// # Errors
    /// As for [`Local::put`].
    pub(super) fn put_again(&self, slot_of: impl Fn(&Name) -> Option<u32>) -> io::Result<()> {
        let kind = self.kind();
        let Some(kind) = *kind else { return Ok(()) };
        let n_bytes = if kind == NameKind::Mac { 6 } else { 4 };
        self.map.hashed_keys()?.into_iter().try_for_each(|key| {
            let name = Name::from_bytes(kind, &key.to_le_bytes()[..n_bytes]);
            self.write(key, name.ok().and_then(|name| slot_of(&name)))
        })
    }

    /// Gives a name the entry of another, which has one.
    pub(super) fn mistake(&self, found: &Name, read: &Name) -> io::Result<()> {
        let (Some(found), Some(read)) = (key_of(found), key_of(read)) else { return Ok(()) };
        self.map.set_hashed(found, &self.map.hashed(read)?.unwrap_or_default().to_ne_bytes())
    }

    fn write(&self, key: u64, slot: Option<u32>) -> io::Result<()> {
        let Some(slot) = slot else { return self.map.remove_hashed(key) };
        let Err(error) = self.map.set_hashed(key, &((key << 16) | (u64::from(slot) + 1)).to_ne_bytes()) else {
            return Ok(());
        };
        // Names that are missing are for the workers.
        self.map.remove_hashed(key)?;
        if !self.is_said.swap(true, Ordering::Relaxed) {
            tracing::warn!(
                "the kernel does not accept all local names; the workers send frames to the others: {error}"
            );
        }
        Ok(())
    }
}

/// The name as the program reads it from a frame: up to 48 bits. None if it does not read such names.
fn key_of(name: &Name) -> Option<u64> {
    let mut bytes = [0; 8];
    match (name.kind(), name.as_bytes()) {
        (NameKind::Mac, of @ &[_, _, _, _, _, _]) | (NameKind::Ipv4, of @ &[_, _, _, _]) => {
            bytes[..of.len()].copy_from_slice(of)
        }
        _ => return None,
    }
    Some(u64::from_le_bytes(bytes))
}
