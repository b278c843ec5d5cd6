//! What etcd answers, as a controller that follows and one that leads read it.
//!
//! The answers of an input are handed out in their order, whatever is asked; after the last one etcd refuses.

use crate::pieces::{pieces, put};
use api::etcd::v3::request_op::Request;
use api::etcd::v3::response_op::Response;
use api::etcd::v3::{
    DeleteRangeResponse, Event, KeyValue, PutResponse, RangeRequest, RangeResponse, ResponseOp, TxnRequest,
    TxnResponse, WatchResponse,
};
use bytes::Bytes;
use controller::store::{Candidate, EtcdAddress, Failure, Followed, Model, RowChange, Store};
use prost::Message;
use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

const REFUSED: Failure = Failure::Refused("no more answers");

/// The most rows and commits that are read of an input.
const MOST: usize = 1000;

/// What a controller does with what it is answered.
fn drive(model: &Arc<dyn Model>) {
    let address: EtcdAddress = "etcd://a:1/x".parse().expect("an address");
    let followed = Followed::new(&address, model);
    let position = followed.position_now();
    if let Ok(Some(position)) = position {
        for row in followed.follower.rows(position).take(MOST).map_while(Result::ok) {
            assert!(row.value.is_some(), "a row that is there has a value");
        }
    }
    let rows = [(1, &b"a"[..], &b"one"[..]), (2, b"b", b"two")];
    let rows = rows.map(|(kind, key, value)| RowChange { kind, key: key.to_vec(), value: Some(value.to_vec()) });
    if let Ok(Some(mut store)) = Candidate::simulated(&address, model, "c1".to_owned()).lead_now() {
        let (term, n_commits) = (store.term(), store.n_commits());
        match store.commit_told(&rows, b"told") {
            Ok(()) => assert_eq!(store.n_commits(), n_commits + 1),
            Err(_) => assert_eq!(store.n_commits(), n_commits, "a commit that failed does not count"),
        }
        assert_eq!(store.term(), term);
        let _ = store.rows().take(MOST).find(Result::is_err);
        let _ = store.rows_after(Some((1, b"a")), 5);
    }
    let Ok(Some(position)) = position else { return };
    let mut watching = followed.follower.watch(position);
    for _ in 0..MOST {
        let before = watching.number();
        let Ok(Some(commit)) = watching.next_now() else { break };
        assert_eq!((commit.number, watching.number()), (before + 1, before + 1), "commits follow one another");
    }
}

/// Hands out answers in their order.
#[derive(Debug)]
struct Scripted(Mutex<VecDeque<Vec<u8>>>);

impl Scripted {
    fn next<M: Message + Default>(&self) -> Result<M, Failure> {
        let answer = self.0.lock().unwrap_or_else(PoisonError::into_inner).pop_front().ok_or(REFUSED)?;
        M::decode(&answer[..]).map_err(|_| Failure::Refused("not a message"))
    }
}

impl Model for Scripted {
    fn range(&self, _: &RangeRequest) -> Result<RangeResponse, Failure> {
        self.next()
    }

    fn txn(&self, _: &TxnRequest) -> Result<TxnResponse, Failure> {
        self.next()
    }

    fn grant(&self, _: Duration) -> Result<i64, Failure> {
        Ok(7)
    }

    fn revoke(&self, _: i64) -> Result<(), Failure> {
        Ok(())
    }

    fn events(&self, _: &[u8], _: &[u8], _: i64) -> Vec<Event> {
        self.next().map(|answer: WatchResponse| answer.events).unwrap_or_default()
    }
}

pub(crate) fn answers(data: &[u8]) {
    let answers = pieces(data).take(100).map(|(_, answer)| answer.to_vec()).collect();
    let model: Arc<dyn Model> = Arc::new(Scripted(Mutex::new(answers)));
    drive(&model);
}

/// An etcd with one client and no faults, which notes what it answers.
#[derive(Debug, Default)]
struct Noted(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    revision: i64,
    keys: BTreeMap<Bytes, KeyValue>,
    events: Vec<Event>,
    answers: Vec<Vec<u8>>,
}

impl State {
    fn range(&self, request: &RangeRequest) -> RangeResponse {
        let is_wanted = |key: &Bytes| match request.range_end.is_empty() {
            true => *key == request.key,
            false => (&request.key..&request.range_end).contains(&key),
        };
        let kvs: Vec<_> = self.keys.iter().filter(|(key, _)| is_wanted(key)).map(|(_, kv)| kv.clone()).collect();
        RangeResponse { count: kvs.len() as i64, kvs, ..RangeResponse::default() }
    }

    fn carry_out(&mut self, request: &Request) -> Response {
        match request {
            Request::RequestRange(range) => Response::ResponseRange(self.range(range)),
            Request::RequestPut(put) => {
                let (key, value) = (put.key.clone(), put.value.clone());
                let kv = KeyValue { key: key.clone(), value, mod_revision: self.revision, ..KeyValue::default() };
                self.events.push(Event { kv: Some(kv.clone()), ..Event::default() });
                self.keys.insert(key, kv);
                Response::ResponsePut(PutResponse::default())
            }
            Request::RequestDeleteRange(_) => Response::ResponseDeleteRange(DeleteRangeResponse::default()),
        }
    }

    fn note<M: Message>(&mut self, answer: M) -> M {
        self.answers.push(answer.encode_to_vec());
        answer
    }
}

impl Model for Noted {
    fn range(&self, request: &RangeRequest) -> Result<RangeResponse, Failure> {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let answer = state.range(request);
        Ok(state.note(answer))
    }

    fn txn(&self, request: &TxnRequest) -> Result<TxnResponse, Failure> {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        state.revision += 1;
        let operations = request.success.iter().filter_map(|operation| operation.request.as_ref());
        let responses = operations.map(|operation| ResponseOp { response: Some(state.carry_out(operation)) }).collect();
        Ok(state.note(TxnResponse { succeeded: true, responses }))
    }

    fn grant(&self, _: Duration) -> Result<i64, Failure> {
        Ok(7)
    }

    fn revoke(&self, _: i64) -> Result<(), Failure> {
        Ok(())
    }

    fn events(&self, key: &[u8], range_end: &[u8], start: i64) -> Vec<Event> {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let is_wanted = |kv: &KeyValue| kv.mod_revision >= start && kv.key >= key && kv.key < range_end;
        let events: Vec<_> =
            state.events.iter().filter(|event| event.kv.as_ref().is_some_and(is_wanted)).cloned().collect();
        state.note(WatchResponse { events, ..WatchResponse::default() }).events
    }
}

pub(crate) fn seeds() -> Vec<Vec<u8>> {
    let etcd = Arc::new(Noted::default());
    let model: Arc<dyn Model> = Arc::clone(&etcd) as _;
    // The first finds nothing, the second what the first left.
    (0..2)
        .map(|_| {
            drive(&model);
            let mut seed = Vec::new();
            let answers = std::mem::take(&mut etcd.0.lock().unwrap_or_else(PoisonError::into_inner).answers);
            answers.iter().for_each(|answer| put(&mut seed, 0, answer));
            seed
        })
        .collect()
}
