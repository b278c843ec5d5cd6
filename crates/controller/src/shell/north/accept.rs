//! Switches, hosts and links that were found and wait for an operator; and whether this controller serves switches.

use super::{Answer, North};
use crate::core::change::Change;
use crate::core::learning::Decided;
use crate::wire::status::status_of;
use crate::wire::weight_of;
use api::gate::Peer;
use api::seam::now;
use api::v1;
use fib::network::NetworkError;
use fib::topology::{Wanted, check_weight};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use tonic::{Request, Response, Status};

impl North {
    pub(super) async fn accept_some_switches(
        &self,
        request: Request<v1::AcceptSwitchesRequest>,
    ) -> Answer<v1::Changed> {
        let peer = Peer::of(&request)?;
        let mut names = request.into_inner().names;
        let shared = Arc::clone(&self.shared);
        let pending = self.read(move |state| {
            shared.known.pending.lock().list(|name| state.network.topology().node_by_name(name).is_some(), now())
        });
        let pending: Vec<String> = pending.await?.into_iter().map(|switch| switch.name).collect();
        if let Some(name) = names.iter().find(|name| !pending.contains(name)) {
            let why = format!(
                "no switch `{}` waits to be accepted; `fibula switch pending` lists those that do, and `fibula switch add` adds one \
                 in advance",
                fib::name::clip(name)
            );
            return Err(Status::not_found(why));
        }
        if names.is_empty() {
            names = pending;
        }
        self.change(&peer, Change::AddSwitches { names }).await.map(Response::new)
    }

    pub(super) async fn accept_some_hosts(&self, request: Request<v1::AcceptHostsRequest>) -> Answer<v1::Changed> {
        let peer = Peer::of(&request)?;
        let texts = request.into_inner().names;
        let decided = self.read_seen(move |state, seen| {
            let names = texts.iter().map(|text| state.parse(text)).collect::<Result<Vec<_>, _>>();
            let names = names.map_err(|refusal| status_of(&refusal))?;
            seen.learning.accept(state, &names, now()).map_err(Status::not_found)
        });
        let Decided { hosts, records, left, .. } = decided.await??;
        if !hosts.is_empty() {
            self.change(&peer, Change::AddHosts { hosts }).await?;
        }
        let at_ms = api::clock::unix_ms();
        let changed = self.change(&peer, Change::Learn { records, at_ms, more: Vec::new() }).await?;
        // What exceeds the quotas stays listed.
        Ok(Response::new(v1::Changed { left, ..changed }))
    }

    pub(super) async fn accept_all_links(&self, request: Request<v1::AcceptLinksRequest>) -> Answer<v1::Changed> {
        let peer = Peer::of(&request)?;
        let v1::AcceptLinksRequest { cost, weight } = request.into_inner();
        let wanted = Wanted { cost: cost.max(1), weight: weight_of(weight), up: true, found: true };
        // Also where there is nothing to add.
        check_weight(wanted.weight).map_err(|error| status_of(&NetworkError::from(error).into()))?;
        let found = self.read_seen(move |state, seen| {
            let link = |(a, b)| (state.place(a), state.place(b), wanted);
            seen.trunks.found(&state.network).into_iter().map(link).collect()
        });
        self.change(&peer, Change::AddLinks { links: found.await? }).await.map(Response::new)
    }

    pub(super) async fn drain_all(&self, request: Request<v1::SetDrainedRequest>) -> Answer<v1::SetDrainedReply> {
        let peer = Peer::of(&request)?;
        let drained = request.into_inner().drained;
        let result = if drained && !self.shared.lead.has_others() {
            Err(
                "there is no other controller for the switches, because the store is a file: stop this one instead, or move the store to etcd with `fibula store copy`",
            )
        } else {
            self.shared.lead.drained.store(drained, Relaxed);
            Ok(self.shared.sessions().len() as u64)
        };
        if result.is_ok() && drained {
            self.shared.end_sessions();
        }
        let what = if drained { "drain" } else { "resume" };
        self.audit.change(&peer, what, "", result.map(|_| (1, 0)));
        let switches = result.map_err(Status::failed_precondition)?;
        Ok(Response::new(v1::SetDrainedReply { switches }))
    }
}
