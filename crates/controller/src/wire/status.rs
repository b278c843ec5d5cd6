//! A refusal as the status of an answer: its code tells scripts its kind.

use crate::core::change::Refusal;
use crate::hosts::HostError;
use fib::network::NetworkError;
use fib::rib::RibError;
use fib::topology::TopologyError;
use tonic::{Code, Status};

/// A refusal as a gRPC status.
pub(crate) fn status_of(refusal: &Refusal) -> Status {
    let mut status = Status::new(code_of_refusal(refusal), refusal.to_string());
    let item = match refusal {
        Refusal::Item { index, .. } => Some(*index),
        Refusal::Network { source: NetworkError::Batch { index, .. }, .. } => Some(*index),
        _ => None,
    };
    if let Some(index) = item {
        status.metadata_mut().insert(api::REFUSED_ITEM, (index as u64).into());
    }
    status
}

/// The error that a switch waits to be accepted, for a command about a switch that the network does not have.
pub(crate) fn waits(switch: &str) -> String {
    format!("switch `{switch}` is waiting to be accepted; run `fibula switch accept {switch}`")
}

fn code_of_refusal(refusal: &Refusal) -> Code {
    match refusal {
        Refusal::Item { source, .. } => code_of_refusal(source),
        Refusal::UnknownSwitch { .. }
        | Refusal::UnknownName { .. }
        | Refusal::UnknownAddress { .. }
        | Refusal::Host(HostError::Unknown { .. }) => Code::NotFound,
        Refusal::NameExists { .. } | Refusal::Host(HostError::NameTaken { .. } | HostError::PortTaken { .. }) => {
            Code::AlreadyExists
        }
        Refusal::Duplicate { .. }
        | Refusal::BadLabel { .. }
        | Refusal::BadPrefix { .. }
        | Refusal::NoGroup { .. }
        | Refusal::BadName { .. }
        | Refusal::NotUnicast { .. }
        | Refusal::TermTooLate { .. } => Code::InvalidArgument,
        Refusal::BatchTooBig { .. } | Refusal::TooFast { .. } | Refusal::RekeyTooSoon { .. } => Code::ResourceExhausted,
        Refusal::TooManyBackups { .. } | Refusal::BackupTooSlow { .. } => Code::ResourceExhausted,
        Refusal::BackupFailed { .. } => Code::DataLoss,
        Refusal::RekeyInProgress => Code::FailedPrecondition,
        Refusal::Network { source, .. } => code_of(source),
        Refusal::Host(HostError::BadRow { .. }) | Refusal::StoreFailed { .. } => Code::Internal,
        Refusal::NotLeader { .. } => Code::FailedPrecondition,
        Refusal::Stopping | Refusal::NotUpToDate => Code::Unavailable,
    }
}

fn code_of(error: &NetworkError) -> Code {
    match error {
        NetworkError::Topology(error) => match error {
            TopologyError::UnknownNode { .. } | TopologyError::NoLink { .. } => Code::NotFound,
            TopologyError::NodeExists { .. } | TopologyError::NameTaken { .. } | TopologyError::PortHasLink { .. } => {
                Code::AlreadyExists
            }
            TopologyError::NodeHasLinks { .. } => Code::FailedPrecondition,
            _ => Code::InvalidArgument,
        },
        NetworkError::Rib(RibError::TooManyNames { .. }) => Code::ResourceExhausted,
        NetworkError::Rib(RibError::WrongKind { .. }) => Code::InvalidArgument,
        NetworkError::Overtaken => Code::Aborted,
        NetworkError::Rib(_) | NetworkError::TenantNotHeld { .. } => Code::FailedPrecondition,
        NetworkError::HasNames { .. } | NetworkError::HasHostPorts { .. } => Code::FailedPrecondition,
        NetworkError::WrongCluster { .. } => Code::FailedPrecondition,
        NetworkError::PortOfHosts { .. } | NetworkError::NameExists { .. } => Code::AlreadyExists,
        NetworkError::UnknownName { .. } | NetworkError::NoHostPort { .. } => Code::NotFound,
        NetworkError::TooManyActions { .. } | NetworkError::TooManySwitches { .. } => Code::ResourceExhausted,
        NetworkError::Crowded { .. } | NetworkError::TenantCrowds { .. } | NetworkError::Graph(_) => {
            Code::ResourceExhausted
        }
        NetworkError::Batch { source, .. } => code_of(source),
        _ => Code::Internal,
    }
}
