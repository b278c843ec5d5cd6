//! The keys under the prefix, and operations on them.
//!
//! | key | value |
//! |---|---|
//! | `PREFIX/leader` | the leader, in JSON; with its lease |
//! | `PREFIX/seal` | what every transaction compares |
//! | `PREFIX/seal/` number, big-endian | a part of the last commit's entry in the replication log |
//! | `PREFIX/rows/` kind, key | a row |
//! | `PREFIX/journal/` number, big-endian | a part of a big commit |

use super::codec::{self, Seal};
use api::etcd::v3::compare::{CompareTarget, TargetUnion};
use api::etcd::v3::request_op::Request;
use api::etcd::v3::{Compare, DeleteRangeRequest, PutRequest, RangeRequest, RequestOp};
use bytes::Bytes;

/// The keys of one store.
#[derive(Clone, Debug)]
pub(super) struct Keys {
    prefix: String,
}

impl Keys {
    pub(super) fn new(prefix: &str) -> Keys {
        Keys { prefix: prefix.to_owned() }
    }

    fn key(&self, rest: &[u8]) -> Bytes {
        [self.prefix.as_bytes(), b"/", rest].concat().into()
    }

    /// For messages.
    pub(super) fn shown(&self, name: &str) -> String {
        format!("{}/{name}", self.prefix)
    }

    pub(super) fn leader(&self) -> Bytes {
        self.key(b"leader")
    }

    pub(super) fn seal(&self) -> Bytes {
        self.key(b"seal")
    }

    pub(super) fn row(&self, kind: u8, key: &[u8]) -> Bytes {
        self.row_at(&[&[kind], key].concat())
    }

    /// The key of a row of this kind and key.
    pub(super) fn row_at(&self, kind_and_key: &[u8]) -> Bytes {
        self.key(&[b"rows/", kind_and_key].concat())
    }

    /// Kind and key of a row, from its whole key.
    pub(super) fn of_row<'a>(&self, key: &'a [u8]) -> &'a [u8] {
        key.get(self.prefix.len() + b"/rows/".len()..).unwrap_or_default()
    }

    /// All rows, from the first key to the end. `0` follows `/`.
    pub(super) fn rows(&self) -> (Bytes, Bytes) {
        (self.key(b"rows/"), self.key(b"rows0"))
    }

    pub(super) fn told_part(&self, number: u32) -> Bytes {
        self.key(&[b"seal/", &number.to_be_bytes()[..]].concat())
    }

    /// The seal and its commit's entry in the replication log: what followers watch.
    pub(super) fn followed(&self) -> (Bytes, Bytes) {
        (self.key(b"seal"), self.key(b"seal0"))
    }

    pub(super) fn journal_part(&self, number: u32) -> Bytes {
        self.key(&[b"journal/", &number.to_be_bytes()[..]].concat())
    }

    pub(super) fn journal(&self) -> (Bytes, Bytes) {
        (self.key(b"journal/"), self.key(b"journal0"))
    }

    pub(super) fn is_absent(&self, key: Bytes) -> Compare {
        let target_union = Some(TargetUnion::CreateRevision(0));
        Compare { target: CompareTarget::Create.into(), key, target_union, ..Compare::default() }
    }

    /// The guard of every transaction: the next leader replaces the seal.
    pub(super) fn seal_is(&self, bytes: Option<Vec<u8>>) -> Compare {
        match bytes {
            None => self.is_absent(self.seal()),
            Some(bytes) => Compare {
                target: CompareTarget::Value.into(),
                key: self.seal(),
                target_union: Some(TargetUnion::Value(bytes.into())),
                ..Compare::default()
            },
        }
    }

    /// Puts the replication log's entry for the commit of this seal.
    pub(super) fn put_told(&self, seal: &Seal, told: &[u8]) -> Vec<RequestOp> {
        let parts = (0..).zip(codec::told(seal, told));
        parts.map(|(number, part)| put(self.told_part(number), part, 0)).collect()
    }

    pub(super) fn put_seal(&self, seal: &Seal) -> RequestOp {
        put(self.seal(), seal.encode(), 0)
    }
}

pub(super) fn put(key: Bytes, value: Vec<u8>, lease: i64) -> RequestOp {
    RequestOp { request: Some(Request::RequestPut(PutRequest { key, value: value.into(), lease })) }
}

pub(super) fn delete(key: Bytes, range_end: Bytes) -> RequestOp {
    RequestOp { request: Some(Request::RequestDeleteRange(DeleteRangeRequest { key, range_end })) }
}

pub(super) fn range((key, range_end): (Bytes, Bytes), limit: i64) -> RequestOp {
    let request = RangeRequest { key, range_end, limit, ..RangeRequest::default() };
    RequestOp { request: Some(Request::RequestRange(request)) }
}
