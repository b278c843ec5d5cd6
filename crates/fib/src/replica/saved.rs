//! A replica as bytes, to start from without a controller: the messages that bring an empty replica to this state.
//!
//! ```text
//! | "FIBULAS1" | message length, 4 bytes | message | ... | fingerprint of all before it, 8 bytes |
//! ```
//! A replica of a million names has some 14 MB. It is saved and read in pieces of about one message each, so that neither side
//! needs all of it in memory: [`Replica::save_pieces`], [`Replica::read`].

use super::{Cuts, Exact, Limits, Replica, ReplicaError, Tables, image_parts};
use crate::messages::{Body, ExactUpdate, ExactValue, FINGERPRINT_KEY, Held, Message, TableHeader, fingerprint};
use crate::name::NameKind;
use lookup::hash::{SecretKey, WyChain};
use std::io::{self, Cursor, Read, Seek, SeekFrom};

const SAVED: &[u8] = b"FIBULAS1";

/// Bytes that are read at a time for the checksum.
const BUFFER_BYTES: u64 = 64 << 10;

/// The fingerprint at the end of a saved replica, of pieces that are read one after the other.
pub struct Checksum(WyChain);

impl Checksum {
    /// For pieces of `n_bytes` together.
    pub fn new(n_bytes: u64) -> Checksum {
        Checksum(WyChain::new(&SecretKey::from_bytes(FINGERPRINT_KEY), n_bytes))
    }

    /// Adds the next piece, or a part of it.
    pub fn push(&mut self, bytes: &[u8]) {
        self.0.push(bytes);
    }

    /// The last bytes of the saved replica.
    pub fn finish(self) -> [u8; 8] {
        self.0.finish().0.to_le_bytes()
    }
}

impl<T: Tables> Replica<T> {
    /// Everything as bytes, from which [`Replica::load`] makes it again.
    pub fn save(&self) -> Vec<u8> {
        let mut out = Vec::new();
        self.save_pieces(&mut |piece| out.extend(piece), &|| false);
        let checksum = fingerprint(&out);
        out.extend(checksum.to_le_bytes());
        out
    }

    /// As [`Replica::save`], piece by piece, without the [`Checksum`] that follows them. Returns whether these are all: it is
    /// given up once `gives_way` holds, which is asked for every few names.
    pub fn save_pieces(&self, put: &mut dyn FnMut(Vec<u8>), gives_way: &dyn Fn() -> bool) -> bool {
        put(SAVED.to_vec());
        let (Some(header), Some(fib), Some(node)) = (&self.header, &self.fib, self.node) else { return true };
        let mut put = |body| {
            let message = Message { cluster: self.cluster, term: self.term, node, change: self.change, body }.encode();
            put((message.len() as u32).to_le_bytes().to_vec());
            put(message);
        };
        put(Body::Table(TableHeader { reset: true, ..header.clone() }));
        put(Body::Actions { version: self.actions_held.version, actions: self.actions.clone() });
        image_parts(header.table, fib.image()).for_each(&mut put);
        let (valid, local) = self.tables.shared();
        let kind = header.spec.kind;
        let is_whole = save_exact(kind, self.local.held, local, |update| put(Body::Local(update)), gives_way);
        // This includes a core node, should a controller have sent it any.
        let has_valid = header.gateway || self.valid.held != Held::default();
        is_whole
            && (!has_valid || save_exact(kind, self.valid.held, valid, |update| put(Body::Valid(update)), gives_way))
    }

    /// A replica from what [`Replica::save`] wrote.
    /// # Errors
    /// [`ReplicaError::Saved`] for bytes that are damaged or from another version: start empty, the controller sends
    /// everything.
    pub fn load(limits: Limits, tables: T, saved: &[u8]) -> Result<Replica<T>, ReplicaError> {
        Replica::read(limits, tables, &mut Cursor::new(saved)).map_err(|error| match error {
            ReadError::Refused(error) => error,
            ReadError::Read(_) => ReplicaError::Saved { why: "too short" },
        })
    }

    /// As [`Replica::load`], with one message in memory at a time. `saved` is read twice: nothing takes effect before all
    /// of it is compared with its checksum.
    /// # Errors
    /// [`ReadError`].
    pub fn read(limits: Limits, tables: T, saved: &mut (impl Read + Seek)) -> Result<Replica<T>, ReadError> {
        let damaged = |why| ReadError::Refused(ReplicaError::Saved { why });
        let n_bytes = saved.seek(SeekFrom::End(0))?.checked_sub(8).ok_or(damaged("too short"))?;
        saved.rewind()?;
        let mut checksum = Checksum::new(n_bytes);
        let mut buffer = Vec::new();
        let mut rest = saved.take(n_bytes);
        while rest.limit() > 0 {
            let piece = rest.limit().min(BUFFER_BYTES);
            checksum.push(next(&mut rest, piece, &mut buffer)?);
        }
        if checksum.finish() != next(saved, 8, &mut buffer)? {
            return Err(damaged("wrong checksum"));
        }
        saved.rewind()?;
        let mut rest = saved.take(n_bytes);
        if n_bytes < SAVED.len() as u64 || next(&mut rest, SAVED.len() as u64, &mut buffer)? != SAVED {
            return Err(damaged("another format"));
        }
        let mut replica = Replica::new(limits, tables);
        while rest.limit() > 0 {
            let length = if rest.limit() < 4 { None } else { next(&mut rest, 4, &mut buffer)?.first_chunk() };
            let length = u32::from_le_bytes(*length.ok_or(damaged("a truncated length"))?);
            if u64::from(length) > rest.limit() {
                return Err(damaged("a truncated message"));
            }
            replica.receive(next(&mut rest, length.into(), &mut buffer)?)?;
        }
        // These came from here.
        replica.parts_before = 0;
        Ok(replica)
    }
}

/// The next bytes, in `buffer`.
fn next<'b>(from: &mut impl Read, n_bytes: u64, buffer: &'b mut Vec<u8>) -> io::Result<&'b [u8]> {
    buffer.resize(n_bytes as usize, 0);
    from.read_exact(buffer)?;
    Ok(buffer)
}

/// Why no replica was read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ReadError {
    /// The bytes cannot be read.
    #[error(transparent)]
    Read(#[from] io::Error),
    /// They are not a usable replica.
    #[error(transparent)]
    Refused(#[from] ReplicaError),
}

/// Entries of an exact table between two checks whether another thread waits.
const ENTRIES_AT_ONCE: u32 = 256;

/// Calls `put` with a whole exact table, part by part. Returns whether it was whole: it ends when `gives_way` holds.
///
/// A table whose version was forgotten still serves, and serves again after a restart: see `ExactState::forget`. So does
/// one that is not what its digest says.
fn save_exact<V: ExactValue>(
    kind: NameKind,
    held: Held,
    table: &impl Exact<V>,
    mut put: impl FnMut(ExactUpdate<V>),
    gives_way: &dyn Fn() -> bool,
) -> bool {
    let (mut n_entries, mut is_given_up) = (0u32, false);
    let mut goes_on = || {
        n_entries = n_entries.wrapping_add(1);
        is_given_up |= n_entries % ENTRIES_AT_ONCE == 0 && gives_way();
        !is_given_up
    };
    let (mut cuts, mut digest) = (Cuts::default(), 0);
    table.for_each_while(&mut |name, value| {
        cuts.is_before(name);
        digest ^= value.share(name);
        goes_on()
    });
    let held = if digest == held.digest { held } else { Held { version: u64::MAX, digest } };
    let parts = cuts.n_parts();
    let (mut cuts, mut part, mut entries) = (Cuts::default(), 0, Vec::new());
    let mut flush = |entries| {
        put(ExactUpdate::Load { kind, version: held.version, digest: held.digest, part, parts, entries });
        part += 1;
    };
    table.for_each_while(&mut |name, value| {
        if cuts.is_before(name) {
            flush(std::mem::take(&mut entries));
        }
        entries.push((name.clone(), value));
        goes_on()
    });
    if goes_on() {
        flush(entries);
    }
    !is_given_up
}
