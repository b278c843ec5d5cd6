//! Rows, fetched a page at a time.

use super::codec;
use super::keys::Keys;
use super::{EtcdAddress, RowChange, StoreError};
use api::etcd::v3::{KeyValue, RangeResponse};
use bytes::Bytes;

/// Rows fetched at a time.
pub(super) const PAGE_ROWS: i64 = 2048;

/// Some rows, and the key at which the next page begins, if there is one.
pub(super) struct Page {
    pub(super) rows: Vec<RowChange>,
    pub(super) next: Option<Bytes>,
}

impl Page {
    pub(super) fn of(address: &EtcdAddress, keys: &Keys, found: &RangeResponse) -> Result<Page, StoreError> {
        let next = found.kvs.last().filter(|_| found.more).map(|kv| after(&kv.key));
        let scratch = &mut Vec::new();
        let row = |kv: &KeyValue| {
            let key = keys.of_row(&kv.key);
            codec::row(key, &kv.value, scratch).ok_or_else(|| codec::wrong_row(address, key))
        };
        Ok(Page { rows: found.kvs.iter().map(row).collect::<Result<_, _>>()?, next })
    }
}

/// The first key after this one.
pub(super) fn after(key: &[u8]) -> Bytes {
    [key, &[0]].concat().into()
}

/// The rows from a key on. Ends with the first error.
pub(super) fn paged(
    first: Bytes,
    mut fetch: impl FnMut(Bytes) -> Result<Page, StoreError>,
) -> impl Iterator<Item = Result<RowChange, StoreError>> {
    let mut rows = Vec::new().into_iter();
    let mut next = Some(first);
    std::iter::from_fn(move || {
        while rows.len() == 0
            && let Some(from) = next.take()
        {
            match fetch(from) {
                Ok(page) => (rows, next) = (page.rows.into_iter(), page.next),
                Err(error) => return Some(Err(error)),
            }
        }
        rows.next().map(Ok)
    })
}
