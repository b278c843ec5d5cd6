//! Why a network refuses a change.

use crate::designs::RateError;
use crate::name::Name;
use crate::rib::RibError;
use crate::topology::{End, NodeId, TopologyError};
use lookup::traits::{InsertError, PartId};

/// Why the network was not changed.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
#[expect(missing_docs, reason = "the messages say what the fields are")]
pub enum NetworkError {
    /// Invalid settings.
    #[error("{why}: correct the configuration")]
    Settings { why: &'static str },
    /// A design cannot hold the configured false-positive rate.
    #[error("{why}")]
    Rate { why: String },
    /// Switches and links.
    #[error(transparent)]
    Topology(#[from] TopologyError),
    /// Names.
    #[error(transparent)]
    Rib(#[from] RibError),
    /// The graph of names.
    #[error(transparent)]
    Graph(#[from] InsertError),
    /// Names that hash badly, beyond what a table can take.
    #[error("a name of tenant {tenant} is refused: {source}")]
    Crowded { tenant: u32, source: InsertError },
    /// A tenant whose names crowd a part of a table.
    #[error(
        "tenant {tenant} would have {n_names} names in {part}, where random digests put a few at most, and {most} at \
         most are left to it, so that others have room: someone who has the hash key chose them; remove them, and \
         choose another key (`fibula rekey`)"
    )]
    TenantCrowds { tenant: u32, part: PartId, n_names: usize, most: usize },
    /// Tables came or went while others were prepared under another hash key.
    #[error("switches of other tenants came or went, or first hosts, while another hash key was prepared: try again")]
    Overtaken,
    /// No host port there.
    #[error("{end} is not a host port: add it with `fibula host add` first")]
    NoHostPort { end: End },
    /// The host port exists already.
    #[error("{end} is a host port already: choose another port or remove that one")]
    PortOfHosts { end: End },
    /// A port with names stays.
    #[error("{names} names are attached to {end}: move or remove them first")]
    HasNames { end: End, names: usize },
    /// A switch with host ports stays.
    #[error("switch {id} has {ports} host ports: remove them first")]
    HasHostPorts { id: NodeId, ports: usize },
    /// A restricted switch serves its own tenants only.
    #[error("switch {id} does not hold names of tenant {tenant}: attach the name elsewhere")]
    TenantNotHeld { id: NodeId, tenant: u32 },
    /// `add` is for new names.
    #[error("`{name}` exists already: use set to move it")]
    NameExists { name: Name },
    /// No such name.
    #[error("there is no name `{name}`")]
    UnknownName { name: Name },
    /// One item of a batch was refused, and so the whole batch.
    #[error("item {index} of the batch: {source}; nothing of the batch was done")]
    Batch { index: usize, source: Box<NetworkError> },
    /// All indices are taken.
    #[error("switch {id} has {max} ports, all that value_bits allow: use wider values, or egress mode")]
    TooManyActions { id: NodeId, max: usize },
    /// All indices are taken.
    #[error("{max} switches are all that value_bits allow in egress mode: use wider values")]
    TooManySwitches { max: usize },
    /// A switch of another network.
    #[error(
        "switch {id} belongs to network {got:#x}, this is {expected:#x}: remove the switch's saved image to let it join"
    )]
    WrongCluster { id: NodeId, got: u64, expected: u64 },
}

impl From<RateError> for NetworkError {
    fn from(error: RateError) -> NetworkError {
        NetworkError::Rate { why: error.to_string() }
    }
}
