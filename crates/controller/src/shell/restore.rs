//! The contents of a store as the state of a network; and why a controller does not start.

use crate::core::change::State;
use crate::hosts::names::LEARNT_ROW;
use crate::hosts::{HOST_ROW, HostError, Hosts};
use crate::store::{NOTHING, RowChange, Store, StoreError};
use api::address::Address;
use api::tls::TlsError;
use fib::network::{Network, NetworkError, RestoreError, Settings};
use std::path::PathBuf;
use std::time::Instant;

/// Why a controller does not start.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StartError {
    /// The store.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The store does not hold a network, or not one of this configuration.
    #[error("the store does not fit the configuration: {0}")]
    Restore(#[from] RestoreError),
    /// This controller would commit rows that the leader does not commit, or not yet.
    #[error(
        "the store has other tables or values than this controller would give its switches: the one that leads has not converted a store of an earlier version yet, or is of that version, or has another [design]; run the same version and the same [design] on all controllers"
    )]
    OtherDesigns,
    /// Nothing is committed yet.
    #[error("the store is empty")]
    Empty,
    /// A host in the store is damaged.
    #[error(transparent)]
    Host(#[from] HostError),
    /// The settings are invalid.
    #[error("no network can be created from the configuration: {0}")]
    Network(#[from] NetworkError),
    /// The certificates cannot be used.
    #[error(transparent)]
    Tls(#[from] TlsError),
    /// The record of changes cannot be written.
    #[error(
        "cannot write the audit trail {path}: {error}; make sure that its directory is writable, or set [audit] file"
    )]
    Audit {
        /// The file.
        path: PathBuf,
        /// Why.
        error: std::io::Error,
    },
    /// An address is in use, or not of this machine.
    #[error(
        "cannot listen on {address}: {error}; choose an address of this machine and a free port, or the path of a socket in a directory that this user may write"
    )]
    Listen {
        /// The address.
        address: Address,
        /// Why.
        error: std::io::Error,
    },
}

impl StartError {
    /// As the end of a controller that runs.
    pub(crate) fn into_store_error(self) -> StoreError {
        match self {
            StartError::Store(error) => error,
            error => StoreError::Unusable { what: error.to_string() },
        }
    }
}

/// The state that the rows of a store make.
pub(crate) struct Read {
    /// With the rows that have to be committed because the configuration has changed; none if there are no rows.
    pub(crate) network: Option<(Network, Vec<RowChange>)>,
    pub(crate) hosts: Hosts,
    pub(crate) n_rows: u64,
}

/// The rows of a store as a network and its hosts.
pub(crate) fn read(
    settings: Settings,
    term: u64,
    rows: impl Iterator<Item = Result<RowChange, StoreError>>,
) -> Result<Read, StartError> {
    let mut hosts = Hosts::default();
    let mut failure: Option<StoreError> = None;
    let mut n_rows = 0_u64;
    let rows = rows.map_while(|row| match row {
        Ok(row) => {
            n_rows += 1;
            Some(row)
        }
        Err(error) => {
            failure = Some(error);
            None
        }
    });
    let mut host_rows = Vec::new();
    let network_rows = rows.filter_map(|row| {
        if !matches!(row.kind, HOST_ROW | LEARNT_ROW) {
            return Some(row);
        }
        host_rows.push(row);
        None
    });
    let mut network_rows = network_rows.peekable();
    let network = if network_rows.peek().is_some() {
        Some(Network::restore(settings, term, network_rows))
    } else {
        drop(network_rows);
        None
    };
    // A store that fails half way looks like a damaged network, so the first failure is reported.
    if let Some(failure) = failure {
        return Err(failure.into());
    }
    let network = network.transpose()?;
    for row in host_rows {
        let value = row.value.as_deref().unwrap_or_default();
        match &network {
            Some((network, _)) if row.kind == LEARNT_ROW => hosts.learnt.restore(network, &row.key, value),
            _ => hosts.restore(&row.key, value)?,
        }
    }
    Ok(Read { network, hosts, n_rows })
}

/// The reason, in words, why a store lacks rows at a start, by kind: tables have the kind 6, switches 2.
fn why_other_tables(rows: &[RowChange]) -> &'static str {
    let are_there = |kind| rows.iter().any(|row| row.kind == kind);
    if are_there(6) {
        "the configuration names other FIB designs, or another rate, than the store: switches get other tables"
    } else if are_there(2) {
        "an earlier version gave switches no values of their own, or the design did not: switches get their FIBs once more"
    } else {
        "the store has no rows of the tables, as one that was salvaged: switches get their FIBs once more"
    }
}

/// The network in the store; a new one, committed, if the store is empty.
#[cfg_attr(not(feature = "kit"), allow(unreachable_pub, reason = "simulations use it"))]
pub fn restore(settings: Settings, mut store: Box<dyn Store>) -> Result<(State, Box<dyn Store>), StartError> {
    let started = Instant::now();
    let term = store.term();
    let Read { network, hosts, n_rows } = read(settings.clone(), term, store.rows())?;
    let network = match network {
        Some((network, rows)) => {
            if !rows.is_empty() {
                tracing::info!(rows = rows.len(), "{}", why_other_tables(&rows));
            }
            // Also without rows: the term of this start must be durable.
            store.commit_told(&rows, if rows.is_empty() { NOTHING } else { &[] })?;
            network
        }
        None => {
            let network = Network::new(settings, term)?;
            store.commit(&network.rows().collect::<Vec<_>>())?;
            network
        }
    };
    tracing::info!(
        rows = n_rows,
        names = network.rib().len(),
        switches = network.topology().nodes().count(),
        term,
        seconds = started.elapsed().as_secs_f32(),
        "state restored"
    );
    Ok((State { network, hosts }, store))
}
