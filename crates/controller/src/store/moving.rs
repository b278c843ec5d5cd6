//! A copy of a store in another place, checked by the sum of its rows.

use super::{Candidate, Copy, EtcdOptions, EtcdTls, Place, SqliteStore, Store, StoreError};
use std::path::PathBuf;
use std::time::Duration;

/// How long a controller that was just stopped may take to give its lead back.
const PATIENCE: Duration = Duration::from_secs(5);

/// Copies all rows of a store that no controller uses to a place without a store. Returns their number.
///
/// Into etcd they come in one commit, so that a copy that breaks off leaves no store there, but memory for all rows and
/// room for them twice in etcd is needed meanwhile.
/// # Errors
/// [`StoreError`]: a store is there already, or either is in use, or cannot be read or written.
pub fn copy(from: &Place, to: &Place, tls: Option<&EtcdTls>) -> Result<u64, StoreError> {
    let etcd = |address: &super::EtcdAddress| {
        let options = EtcdOptions { address: address.clone(), tls: tls.cloned() };
        Candidate::new(&options, "fibula store copy")?.lead_within(PATIENCE)
    };
    let mut source: Box<dyn Store> = match from {
        Place::File(path) => Box::new(SqliteStore::open_existing(path)?),
        Place::Etcd(address) => Box::new(etcd(address)?),
    };
    let (term, sum) = source.sealed()?;
    match to {
        Place::File(path) => {
            let mut copy = Copy::begin(path)?;
            source.rows().try_for_each(|row| copy.put(row?))?;
            copy.finish(term, sum)?;
        }
        Place::Etcd(address) => {
            let path = || PathBuf::from(address.to_string());
            let mut copy = etcd(address)?;
            let is_empty = copy.rows().next().transpose()?.is_none();
            if !is_empty {
                copy.close()?;
                return Err(StoreError::Exists { path: path() });
            }
            let rows: Vec<_> = source.rows().collect::<Result<_, _>>()?;
            copy.set_term(copy.term().max(term));
            copy.commit(&rows)?;
            let got = copy.sealed()?.1;
            copy.close()?;
            if got != sum {
                let what =
                    format!("{} rows arrived and {} were sent, or their contents differ", got.n_rows, sum.n_rows);
                return Err(StoreError::Damaged { path: path(), what });
            }
        }
    }
    source.close()?;
    Ok(sum.n_rows)
}
