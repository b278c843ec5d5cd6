//! A model of etcd: keys with all their revisions, leases on virtual time, and what befalls requests.

use crate::random::Random;
use api::etcd::v3::compare::TargetUnion;
use api::etcd::v3::event::EventType;
use api::etcd::v3::request_op::Request;
use api::etcd::v3::response_op::Response;
use api::etcd::v3::{
    DeleteRangeResponse, Event, KeyValue, PutResponse, RangeRequest, RangeResponse, ResponseHeader, ResponseOp,
    TxnRequest, TxnResponse,
};
use bytes::Bytes;
use controller::store::{Failure, Model};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Operations of a transaction that etcd takes by default.
const MAX_OPS: usize = 128;

/// Milliseconds of a step of the simulation.
pub(super) const STEP_MS: u64 = 50;

#[derive(Debug)]
struct Value {
    revision: i64,
    /// None: deleted.
    kv: Option<KeyValue>,
}

#[derive(Debug)]
pub(super) struct Etcd {
    state: Mutex<State>,
    random: Mutex<Random>,
    /// Whether requests fail, are lost, or come twice or late.
    pub(super) troubled: AtomicBool,
}

#[derive(Debug, Default)]
struct State {
    revision: i64,
    keys: BTreeMap<Bytes, Vec<Value>>,
    events: Vec<Event>,
    /// With the step at which each runs out.
    leases: BTreeMap<i64, (u64, u64)>,
    n_leases: i64,
    step: u64,
    /// Copies that are still on the way.
    late: Vec<TxnRequest>,
    transactions: u64,
    misfortunes: u64,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Etcd {
    pub(super) fn new(seed: u64) -> Arc<Etcd> {
        Arc::new(Etcd {
            state: Mutex::default(),
            random: Mutex::new(Random::new(seed)),
            troubled: AtomicBool::new(true),
        })
    }

    /// A step passes: leases run out, and a copy that was on the way may arrive.
    pub(super) fn step(&self) {
        let mut state = lock(&self.state);
        state.step += 1;
        let now = state.step;
        let over: Vec<i64> = state.leases.iter().filter(|(_, (at, _))| *at <= now).map(|(lease, _)| *lease).collect();
        over.into_iter().for_each(|lease| state.end_lease(lease));
        let n_late = state.late.len() as u64;
        if n_late > 0 && lock(&self.random).below(8) == 0 {
            let request = state.late.remove(lock(&self.random).below(n_late) as usize);
            let _ = state.carry_out(&request);
        }
    }

    /// Extends a lease; false: there is none any more.
    pub(super) fn keep_alive(&self, lease: i64) -> bool {
        let mut state = lock(&self.state);
        let now = state.step;
        let found = state.leases.get_mut(&lease);
        found.is_some_and(|(at, steps)| {
            *at = now + *steps;
            true
        })
    }

    /// All copies on the way arrive.
    pub(super) fn settle(&self) {
        self.troubled.store(false, Relaxed);
        let mut state = lock(&self.state);
        for request in std::mem::take(&mut state.late) {
            let _ = state.carry_out(&request);
        }
    }

    /// Transactions that were carried out, and requests that something befell.
    pub(super) fn counts(&self) -> (u64, u64) {
        let state = lock(&self.state);
        (state.transactions, state.misfortunes)
    }
}

impl State {
    fn end_lease(&mut self, lease: i64) {
        self.leases.remove(&lease);
        let of_it =
            |values: &Vec<Value>| values.last().and_then(|value| value.kv.as_ref()).is_some_and(|kv| kv.lease == lease);
        let keys: Vec<Bytes> =
            self.keys.iter().filter(|(_, values)| of_it(values)).map(|(key, _)| key.clone()).collect();
        if !keys.is_empty() {
            self.revision += 1;
            keys.into_iter().for_each(|key| self.set(key, None));
        }
    }

    fn set(&mut self, key: Bytes, kv: Option<KeyValue>) {
        let r#type = if kv.is_some() { EventType::Put } else { EventType::Delete };
        let told = KeyValue { key: key.clone(), mod_revision: self.revision, ..kv.clone().unwrap_or_default() };
        self.events.push(Event { r#type: r#type.into(), kv: Some(told) });
        self.keys.entry(key).or_default().push(Value { revision: self.revision, kv });
    }

    fn get(&self, key: &[u8]) -> Option<&KeyValue> {
        self.keys.get(key)?.last()?.kv.as_ref()
    }

    fn within<'a>(&'a self, key: &'a Bytes, range_end: &'a Bytes) -> impl Iterator<Item = (&'a Bytes, &'a Vec<Value>)> {
        let one = range_end.is_empty();
        self.keys.range(key.clone()..).take_while(move |(at, _)| if one { *at == key } else { *at < range_end })
    }

    fn range(&self, request: &RangeRequest) -> RangeResponse {
        let RangeRequest { key, range_end, limit, revision } = request;
        let as_of = if *revision == 0 { self.revision } else { *revision };
        let then = |values: &'_ Vec<Value>| {
            values.iter().rev().find(|value| value.revision <= as_of).and_then(|value| value.kv.clone())
        };
        let mut kvs: Vec<KeyValue> = self.within(key, range_end).filter_map(|(_, values)| then(values)).collect();
        let count = kvs.len() as i64;
        let more = *limit > 0 && kvs.len() > *limit as usize;
        if more {
            kvs.truncate(*limit as usize);
        }
        RangeResponse { header: Some(ResponseHeader { revision: self.revision }), kvs, more, count }
    }

    fn carry_out(&mut self, request: &TxnRequest) -> Result<TxnResponse, Failure> {
        let holds = request.compare.iter().all(|compare| match &compare.target_union {
            Some(TargetUnion::Value(value)) => self.get(&compare.key).is_some_and(|kv| kv.value == *value),
            Some(TargetUnion::CreateRevision(0)) => self.get(&compare.key).is_none(),
            other => panic!("no comparison of the controller's: {other:?}"),
        });
        let ops = if holds { &request.success } else { &request.failure };
        assert!(ops.len() <= MAX_OPS, "{} operations", ops.len());
        let mut put = BTreeSet::new();
        for op in ops {
            if let Some(Request::RequestPut(request)) = &op.request {
                assert!(put.insert(&request.key), "a key is put twice");
                if request.lease != 0 && !self.leases.contains_key(&request.lease) {
                    return Err(Failure::Refused("etcdserver: requested lease not found"));
                }
            }
        }
        let writes = ops.iter().any(|op| !matches!(op.request, Some(Request::RequestRange(_))));
        if writes {
            (self.revision, self.transactions) = (self.revision + 1, self.transactions + 1);
        }
        let mut responses = Vec::new();
        for op in ops {
            responses.push(ResponseOp {
                response: Some(match op.request.as_ref().expect("an operation") {
                    Request::RequestRange(range) => Response::ResponseRange(self.range(range)),
                    Request::RequestPut(put) => {
                        let create_revision = self.get(&put.key).map_or(self.revision, |kv| kv.create_revision);
                        let (key, value, lease) = (put.key.clone(), put.value.clone(), put.lease);
                        let kv = KeyValue { key, create_revision, mod_revision: self.revision, value, lease };
                        self.set(put.key.clone(), Some(kv));
                        Response::ResponsePut(PutResponse {})
                    }
                    Request::RequestDeleteRange(delete) => {
                        let is_there = |values: &Vec<Value>| values.last().is_some_and(|value| value.kv.is_some());
                        let within = self.within(&delete.key, &delete.range_end);
                        let keys: Vec<Bytes> =
                            within.filter(|(_, values)| is_there(values)).map(|(key, _)| key.clone()).collect();
                        keys.into_iter().for_each(|key| self.set(key, None));
                        Response::ResponseDeleteRange(DeleteRangeResponse {})
                    }
                }),
            });
        }
        Ok(TxnResponse { succeeded: holds, responses })
    }
}

/// etcd as one controller reaches it.
pub(super) struct Reached {
    etcd: Arc<Etcd>,
    /// Whether no request arrives.
    pub(super) cut: AtomicBool,
    /// What happens in the middle of a commit, now and then.
    pub(super) meanwhile: Mutex<Option<Box<dyn FnOnce() + Send>>>,
}

impl std::fmt::Debug for Reached {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Reached").field("cut", &self.cut).finish_non_exhaustive()
    }
}

impl Reached {
    pub(super) fn new(etcd: &Arc<Etcd>) -> Arc<Reached> {
        Arc::new(Reached { etcd: Arc::clone(etcd), cut: AtomicBool::new(false), meanwhile: Mutex::default() })
    }

    fn arrives(&self) -> Result<(), Failure> {
        // The client takes it for its own mistake, and does not ask again for eight seconds.
        if self.cut.load(Relaxed) { Err(Failure::Lost("cut off")) } else { Ok(()) }
    }
}

impl Model for Reached {
    fn range(&self, request: &RangeRequest) -> Result<RangeResponse, Failure> {
        self.arrives()?;
        Ok(lock(&self.etcd.state).range(request))
    }

    fn txn(&self, request: &TxnRequest) -> Result<TxnResponse, Failure> {
        self.arrives()?;
        let troubled = self.etcd.troubled.load(Relaxed);
        let fortune = if troubled { lock(&self.etcd.random).below(100) } else { 100 };
        if fortune < 30
            && let Some(meanwhile) = lock(&self.meanwhile).take()
        {
            meanwhile();
        }
        let mut state = lock(&self.etcd.state);
        state.misfortunes += u64::from(fortune < 12);
        match fortune {
            0..3 => return Err(Failure::Unavailable("it did not arrive")),
            3..6 => {
                let _ = state.carry_out(request);
                return Err(Failure::Unavailable("the answer is lost"));
            }
            6..8 => {
                state.late.push(request.clone());
                return Err(Failure::Unavailable("it is on the way"));
            }
            8..10 => state.late.push(request.clone()),
            10 => {
                state.late.push(request.clone());
                return Err(Failure::Lost("it is on the way, and no one asks again"));
            }
            11 => {
                let _ = state.carry_out(request);
                return Err(Failure::Lost("the answer is lost, and no one asks again"));
            }
            _ => {}
        }
        state.carry_out(request)
    }

    fn grant(&self, ttl: Duration) -> Result<i64, Failure> {
        self.arrives()?;
        let mut state = lock(&self.etcd.state);
        state.n_leases += 1;
        let (lease, steps) = (state.n_leases, ttl.as_millis() as u64 / STEP_MS);
        let until = state.step + steps;
        state.leases.insert(lease, (until, steps));
        Ok(lease)
    }

    fn revoke(&self, lease: i64) -> Result<(), Failure> {
        self.arrives()?;
        lock(&self.etcd.state).end_lease(lease);
        Ok(())
    }

    fn events(&self, key: &[u8], range_end: &[u8], start_revision: i64) -> Vec<Event> {
        if self.cut.load(Relaxed) {
            return Vec::new();
        }
        let state = lock(&self.etcd.state);
        let is_wanted = |event: &&Event| {
            event.kv.as_ref().is_some_and(|kv| {
                kv.mod_revision >= start_revision && kv.key.as_ref() >= key && kv.key.as_ref() < range_end
            })
        };
        state.events.iter().filter(is_wanted).cloned().collect()
    }
}
