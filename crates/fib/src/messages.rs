//! The southbound messages: what a controller sends to a switch, and what the switch answers.
//!
//! Everything is absolute and versioned: a duplicate is harmless, a gap or a wrong digest makes the switch send its
//! [`Report`], and the controller answers with what differs. Bytes: [`codec`](crate::codec) and
//! `docs/formats/southbound-messages.md`.
//!
//! | message | what it carries |
//! |---|---|
//! | [`Body::Table`] | the table: design, hash key, widths, kind of name, whether this switch is a gateway |
//! | [`Body::Image`] | the whole FIB, in parts |
//! | [`Body::Updates`] | changed cells of shards, or whole shards of a later version |
//! | [`Body::Resync`] | whole shards, whatever the version: the answer to a report |
//! | [`Body::Actions`] | the action table |
//! | [`Body::Valid`] | valid names for the ingress check of a gateway, with the IP addresses for ARP and ND |
//! | [`Body::Local`] | names attached to this switch, with their ports, for the egress check |

use crate::action::{Action, PortId};
use crate::designs::Spec;
use crate::name::{Name, NameKind};
use crate::topology::NodeId;
use lookup::base::part::HeldPart;
use lookup::hash::{Family, Hasher, SecretKey};
use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;
use std::sync::LazyLock;

/// The meaning of the values of a FIB.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum ValueMode {
    /// The output port: every switch has its own cells over the shared graph (the papers' model).
    #[default]
    Port,
    /// The switch that the name is attached to: all switches have the same cells, a link failure changes action tables only.
    Egress,
}

impl fmt::Display for ValueMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            ValueMode::Port => "port",
            ValueMode::Egress => "egress",
        })
    }
}

impl FromStr for ValueMode {
    type Err = UnknownMode;
    fn from_str(text: &str) -> Result<ValueMode, UnknownMode> {
        match text {
            "port" => Ok(ValueMode::Port),
            "egress" => Ok(ValueMode::Egress),
            _ => Err(UnknownMode { got: crate::name::clip(text) }),
        }
    }
}

/// Text that is not a value mode.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("`{got}` is not a value mode: use port or egress")]
pub struct UnknownMode {
    /// The start of the text.
    pub got: String,
}

/// One message to one switch.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Message {
    /// The network; a switch listens to one only.
    pub cluster: u64,
    /// Grows with every start of a controller: a switch ignores messages of an earlier term.
    pub term: u64,
    /// The switch it is for.
    pub node: NodeId,
    /// The change of the network that caused it; what the switch acknowledges.
    pub change: u64,
    /// The content.
    pub body: Body,
}

/// The content of a message.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Body {
    /// A table begins, or this switch became a gateway or ceased to be one.
    Table(TableHeader),
    /// One of the parts of a whole FIB, the [image](crate::designs::Table::image) of its table. The image takes effect
    /// with the last part.
    Image {
        /// Id of the table.
        table: u32,
        /// Index of this part.
        part: u32,
        /// Number of parts.
        parts: u32,
        /// The bytes of this part.
        bytes: Vec<u8>,
    },
    /// [Updates](crate::designs::Table::apply) of the table, in order. Each takes effect whole; those after a refused
    /// one are not tried.
    Updates {
        /// Id of the table.
        table: u32,
        /// The updates.
        updates: Updates,
    },
    /// Parts of the table that replace those of the switch.
    Resync {
        /// Id of the table.
        table: u32,
        /// The bytes of the parts.
        bytes: Vec<u8>,
    },
    /// The whole action table.
    Actions {
        /// Version of the table.
        version: u64,
        /// The entries. Entry 0 is drop.
        actions: Vec<Action>,
    },
    /// Valid names, each with its IP address if it has one.
    Valid(ExactUpdate<Option<IpAddr>>),
    /// Local names, each with its port.
    Local(ExactUpdate<PortId>),
}

/// Updates as bytes, in order, in one block of memory: a message of many updates costs one allocation, not one for each.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Updates {
    count: u32,
    /// As in a message: before each update its length, 4 bytes.
    bytes: Vec<u8>,
}

impl Updates {
    /// The updates of a message. The caller has checked that there are `count`, and nothing after them.
    pub(crate) fn of_checked(count: u32, bytes: &[u8]) -> Updates {
        Updates { count, bytes: bytes.to_vec() }
    }

    /// Appends an update.
    pub fn push(&mut self, update: &[u8]) {
        self.count += 1;
        crate::codec::put_bytes(&mut self.bytes, update);
    }

    /// Number of updates.
    pub fn len(&self) -> usize {
        self.count as usize
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// The updates as they are in a message, without their number.
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// The updates, in order.
    pub fn iter(&self) -> impl Iterator<Item = &[u8]> {
        let mut rest = &self.bytes[..];
        std::iter::from_fn(move || {
            let (length, tail) = rest.split_first_chunk()?;
            let (update, tail) = tail.split_at(u32::from_le_bytes(*length) as usize);
            rest = tail;
            Some(update)
        })
    }
}

impl<T: AsRef<[u8]>> FromIterator<T> for Updates {
    fn from_iter<I: IntoIterator<Item = T>>(updates: I) -> Updates {
        let mut all = Updates::default();
        updates.into_iter().for_each(|update| all.push(update.as_ref()));
        all
    }
}

/// The data that a switch needs to interpret the cells of a table.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TableHeader {
    /// Id of the table, never reused: a rekey makes a new table.
    pub table: u32,
    /// Its design and widths, and how its names are hashed.
    pub spec: Spec,
    /// What values mean.
    pub mode: ValueMode,
    /// Whether this switch has host ports, and so holds valid names.
    pub gateway: bool,
    /// Whether the switch should forget its versions (not its tables): everything is sent again.
    pub reset: bool,
}

/// A change of an exact table, or all of it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ExactUpdate<V> {
    /// One of the parts of the whole table. The table takes effect with the last part.
    Load {
        /// Kind of the names.
        kind: NameKind,
        /// Version of the table.
        version: u64,
        /// Digest of the table.
        digest: u64,
        /// Index of this part.
        part: u32,
        /// Number of parts.
        parts: u32,
        /// The entries of this part.
        entries: Vec<(Name, V)>,
    },
    /// The changes between two versions.
    Delta {
        /// Kind of the names.
        kind: NameKind,
        /// The version before.
        from: u64,
        /// The version afterwards.
        to: u64,
        /// Digest of the table afterwards.
        digest: u64,
        /// Entries that are new or have another value.
        put: Vec<(Name, V)>,
        /// Names that are removed.
        remove: Vec<Name>,
    },
}

impl<V> ExactUpdate<V> {
    /// Kind of the names.
    pub fn kind(&self) -> NameKind {
        match self {
            ExactUpdate::Load { kind, .. } | ExactUpdate::Delta { kind, .. } => *kind,
        }
    }
}

/// Version and digest of an exact table or an action table: equal exactly when both sides have the same.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Held {
    /// Counts changes, from 0 for nothing.
    pub version: u64,
    /// Digest of the content, in no order.
    pub digest: u64,
}

/// The data that the entries of an exact table carry besides the name.
pub trait ExactValue: Copy + PartialEq + fmt::Debug {
    /// Appends the bytes of the value.
    fn encode(&self, out: &mut Vec<u8>);

    /// The share of an entry in the digest of its table, which is the XOR of all shares.
    ///
    /// The key is fixed: the digest detects lost messages, not forged ones.
    fn share(&self, name: &Name) -> u64 {
        let mut bytes = Vec::with_capacity(name.as_bytes().len() + 20);
        self.encode(&mut bytes);
        bytes.push(bytes.len() as u8);
        bytes.extend_from_slice(name.as_bytes());
        fingerprint(&bytes)
    }
}

/// The key of [`fingerprint`].
pub(crate) const FINGERPRINT_KEY: [u8; 32] = *b"fibula southbound fingerprint 01";

/// A 64-bit fingerprint under a fixed key, against accidents.
pub fn fingerprint(bytes: &[u8]) -> u64 {
    static HASHER: LazyLock<Hasher> =
        LazyLock::new(|| Hasher::new(Family::Wy, &SecretKey::from_bytes(FINGERPRINT_KEY)));
    HASHER.digest(bytes).0
}

/// The report of a switch: its hello, and its answer to a gap or a wrong digest.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Report {
    /// The network it belongs to; 0 before the first message.
    pub cluster: u64,
    /// The latest term it has seen.
    pub term: u64,
    /// Its table; 0 when it has none.
    pub table: u32,
    /// Fingerprint of the table's header, without the reset flag.
    pub header: u64,
    /// Its action table.
    pub actions: Held,
    /// Its valid names.
    pub valid: Held,
    /// Its local names.
    pub local: Held,
    /// Its shards in order of digests.
    pub shards: Vec<HeldPart>,
}

/// Messages of a switch to its controller.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Uplink {
    /// What the switch has; the controller answers with the differences.
    Report(Report),
    /// Everything up to this change took effect.
    Ack {
        /// Number of the change.
        change: u64,
    },
}
