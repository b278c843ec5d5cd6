//! What was asked of a controller, what it acknowledged, and what may therefore be there.

use crate::support::{Client, HOST_PORT, mac, record};
use api::v1;
use rand::RngExt;
use rand::rngs::StdRng;
use std::collections::{BTreeMap, BTreeSet};

pub(crate) const N_SWITCHES: u32 = 3;
const N_NAMES: u32 = 60;
const N_HOSTS: u32 = 4;

/// Objects in words, and what is said of them.
pub(crate) type State = BTreeMap<String, String>;

/// A request.
#[derive(Clone, Debug)]
pub(crate) enum Request {
    Put(Vec<(u32, u32)>),
    Remove(Vec<u32>),
    AddSwitch(String),
    RemoveSwitch(String),
    AddHost(String, u32, u32),
    RemoveHost(String),
    AddLink(u32, u32, u32),
    SetLink(u32, u32, u32),
}

/// An object, and what is said of it then; nothing once it is gone.
type Said = (String, Option<String>);

impl Request {
    /// What it changes.
    fn change(&self) -> Vec<Said> {
        let name = |name: &u32| format!("name {}", mac(*name));
        match self {
            Request::Put(names) => names.iter().map(|(at, host)| (name(at), Some(format!("h{host}")))).collect(),
            Request::Remove(names) => names.iter().map(|at| (name(at), None)).collect(),
            Request::AddSwitch(switch) => vec![(format!("switch {switch}"), Some(String::new()))],
            Request::RemoveSwitch(switch) => vec![(format!("switch {switch}"), None)],
            Request::AddHost(host, switch, port) => vec![(format!("host {host}"), Some(format!("s{switch}:{port}")))],
            Request::RemoveHost(host) => vec![(format!("host {host}"), None)],
            Request::AddLink(a, b, cost) | Request::SetLink(a, b, cost) => {
                vec![(format!("link s{a}:{b}"), Some(cost.to_string()))]
            }
        }
    }

    /// Asks for it.
    pub(crate) async fn send(&self, client: &mut Client) -> Result<(), tonic::Status> {
        let end = |switch, port| Some(v1::LinkEnd { switch: format!("s{switch}"), port });
        match self.clone() {
            Request::Put(names) => {
                let names = names.iter().map(|&(name, host)| record(name, &format!("h{host}"))).collect();
                client.put_names(v1::PutNamesRequest { names, only_new: false }).await.map(drop)
            }
            Request::Remove(names) => {
                let names = names.iter().map(|name| mac(*name)).collect();
                client.remove_names(v1::RemoveNamesRequest { names, ignore_missing: true }).await.map(drop)
            }
            Request::AddSwitch(name) => {
                client.add_switch(v1::AddSwitchRequest { name, tenants: vec![] }).await.map(drop)
            }
            Request::RemoveSwitch(name) => client.remove_switch(v1::RemoveSwitchRequest { name }).await.map(drop),
            Request::AddHost(name, switch, port) => client
                .add_host(v1::Host { name, switch: format!("s{switch}"), port, ..v1::Host::default() })
                .await
                .map(drop),
            Request::RemoveHost(name) => client.remove_host(v1::RemoveHostRequest { name }).await.map(drop),
            Request::AddLink(a, b, cost) => client
                .add_link(v1::Link { a: end(a, b), b: end(b, a), cost, up: true, ..v1::Link::default() })
                .await
                .map(drop),
            Request::SetLink(a, b, cost) => client
                .set_link(v1::SetLinkRequest { end: end(a, b), cost: Some(cost), ..v1::SetLinkRequest::default() })
                .await
                .map(drop),
        }
    }
}

/// What may be there.
#[derive(Default)]
pub(crate) struct Ledger {
    acknowledged: State,
    /// Requests that were not answered; no two of one object.
    unanswered: Vec<Request>,
    /// Where each name ever was, by the number of its switch.
    places: BTreeMap<u32, BTreeSet<u32>>,
    pub(crate) n_acknowledged: u64,
    /// Requests that were answered as done by the controllers of this store, and requests without an answer.
    answered_here: u64,
    open_here: u64,
}

impl Ledger {
    /// Switches, hosts and links, those that are not there yet.
    pub(crate) fn missing_network(&self) -> Vec<Request> {
        let switches = (1..=N_SWITCHES).map(|i| Request::AddSwitch(format!("s{i}")));
        let hosts = (1..=N_SWITCHES).map(|i| Request::AddHost(format!("h{i}"), i, HOST_PORT));
        let links = (1..=N_SWITCHES).flat_map(|a| (a + 1..=N_SWITCHES).map(move |b| Request::AddLink(a, b, 3)));
        let all = switches.chain(hosts).chain(links);
        all.filter(|request| !self.acknowledged.contains_key(&request.change()[0].0)).collect()
    }

    /// Requests that can be made at once: of different objects.
    pub(crate) fn next(&self, rng: &mut StdRng) -> Vec<Request> {
        let n = if rng.random_bool(0.15) { 3 } else { 1 };
        let share = N_NAMES / n;
        (0..n).map(|i| self.one(rng, i * share..(i + 1) * share, n == 1)).collect()
    }

    fn one(&self, rng: &mut StdRng, names: std::ops::Range<u32>, alone: bool) -> Request {
        let is_there = |what: String| self.acknowledged.contains_key(&what);
        match rng.random_range(0..if alone { 16 } else { 12 }) {
            0..8 => {
                let n = if rng.random_bool(0.2) { 8 } else { 1 };
                let put: BTreeMap<u32, u32> =
                    (0..n).map(|_| (rng.random_range(names.clone()), rng.random_range(1..=N_SWITCHES))).collect();
                Request::Put(put.into_iter().collect())
            }
            8..12 => {
                let gone: BTreeSet<u32> =
                    (0..rng.random_range(1..4)).map(|_| rng.random_range(names.clone())).collect();
                Request::Remove(gone.into_iter().collect())
            }
            12 => {
                let a = rng.random_range(1..N_SWITCHES);
                // The direct way stays the shortest.
                Request::SetLink(a, rng.random_range(a + 1..=N_SWITCHES), rng.random_range(3..6))
            }
            13 => {
                let switch = format!("x{}", rng.random_range(0..3));
                match is_there(format!("switch {switch}")) {
                    true => Request::RemoveSwitch(switch),
                    false => Request::AddSwitch(switch),
                }
            }
            _ => {
                let i = rng.random_range(0..N_HOSTS);
                let host = format!("e{i}");
                match is_there(format!("host {host}")) {
                    true => Request::RemoveHost(host),
                    false => Request::AddHost(host, rng.random_range(1..=N_SWITCHES), 200 + i),
                }
            }
        }
    }

    pub(crate) fn acknowledge(&mut self, request: &Request) {
        self.n_acknowledged += 1;
        self.answered_here += 1;
        self.note_places(request);
        put(&mut self.acknowledged, request);
    }

    pub(crate) fn leave_open(&mut self, request: Request) {
        self.note_places(&request);
        self.open_here += 1;
        self.unanswered.push(request);
    }

    /// How many requests were done, at least and at most.
    pub(crate) fn n_done(&self) -> (u64, u64) {
        (self.answered_here, self.answered_here + self.open_here)
    }

    fn note_places(&mut self, request: &Request) {
        let Request::Put(names) = request else { return };
        names.iter().for_each(|(name, host)| _ = self.places.entry(*name).or_default().insert(*host));
    }

    /// What was acknowledged is there and nothing else; a request without an answer was done whole or not at all.
    pub(crate) fn check(&mut self, found: &State, after: &str) {
        for request in std::mem::take(&mut self.unanswered) {
            let change = request.change();
            let is = |at: &dyn Fn(&Said) -> Option<String>| {
                change.iter().all(|object| found.get(&object.0).cloned() == at(object))
            };
            let (done, undone) = (is(&|(_, new)| new.clone()), is(&|(what, _)| self.acknowledged.get(what).cloned()));
            assert!(done || undone, "after {after}: a change is there in part: {request:?}");
            if done {
                put(&mut self.acknowledged, &request);
            }
        }
        let objects: BTreeSet<&String> = self.acknowledged.keys().chain(found.keys()).collect();
        for what in objects {
            let (expected, got) = (self.acknowledged.get(what), found.get(what));
            assert_eq!(got, expected, "after {after}: {what} was acknowledged otherwise");
        }
    }

    /// Names and the numbers of their switches.
    pub(crate) fn names(&self) -> BTreeMap<u32, u32> {
        let place = |name: &u32| Some(self.acknowledged.get(&format!("name {}", mac(*name)))?[1..].parse().unwrap());
        (0..N_NAMES).filter_map(|name| Some((name, place(&name)?))).collect()
    }

    /// The switches at which a name ever was.
    pub(crate) fn places(&self, name: u32) -> BTreeSet<u32> {
        self.places.get(&name).cloned().unwrap_or_default()
    }

    pub(crate) fn state(&self) -> State {
        assert!(self.unanswered.is_empty());
        self.acknowledged.clone()
    }

    /// An earlier state was put back.
    pub(crate) fn put_back(&mut self, state: State) {
        self.acknowledged = state;
    }
}

fn put(state: &mut State, request: &Request) {
    for (what, new) in request.change() {
        match new {
            Some(new) => drop(state.insert(what, new)),
            None => drop(state.remove(&what)),
        }
    }
}

/// What a controller says that there is.
pub(crate) async fn state_of(client: &mut Client) -> Result<State, tonic::Status> {
    let mut state = State::new();
    let mut batches = client.export_names(v1::ExportNamesRequest {}).await?.into_inner();
    while let Some(batch) = batches.message().await? {
        state.extend(batch.names.into_iter().map(|name| (format!("name {}", name.name), name.host)));
    }
    let switches = client.list_switches(v1::ListSwitchesRequest {}).await?.into_inner().switches;
    state.extend(switches.into_iter().map(|switch| (format!("switch {}", switch.name), String::new())));
    let hosts = client.list_hosts(v1::ListHostsRequest {}).await?.into_inner().hosts;
    state.extend(
        hosts.into_iter().map(|host| (format!("host {}", host.name), format!("{}:{}", host.switch, host.port))),
    );
    let links = client.list_links(v1::ListLinksRequest {}).await?.into_inner().links;
    state.extend(links.into_iter().map(|link| {
        let end = link.a.into_iter().chain(link.b).min_by(|a, b| a.switch.cmp(&b.switch)).unwrap();
        (format!("link {}:{}", end.switch, end.port), link.cost.to_string())
    }));
    Ok(state)
}
