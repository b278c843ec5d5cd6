//! Lists: switches, hosts, links, and subscriptions to multicast groups.

use super::{Answer, MAX_PAGE, North};
use crate::core::change::{Place, raised};
use crate::core::groups::{Mdns, Unknown};
use crate::core::learning::MAX_UNKNOWN;
use crate::core::subscriptions::Asked;
use crate::wire::status::status_of;
use crate::wire::{host, switch};
use api::seam::now;
use api::v1;
use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;
use tonic::{Request, Response, Status};

impl North {
    pub(super) async fn switches(&self, request: Request<v1::ListSwitchesRequest>) -> Answer<v1::SwitchList> {
        self.reserve(&request, usize::MAX, &self.shared.sizes.switches)?;
        let shared = Arc::clone(&self.shared);
        let (mut switches, pending) = self
            .read(move |state| {
                let mut hosts = BTreeMap::new();
                for (_, end) in state.hosts.iter() {
                    *hosts.entry(end.node).or_insert(0) += 1;
                }
                let sharing = state.network.sharing();
                let topology = state.network.topology();
                let switch =
                    |(id, node)| switch(&state.network, id, node, hosts.get(&id).copied().unwrap_or(0), &sharing);
                let names: HashSet<&str> = topology.nodes().map(|(_, node)| &*node.name).collect();
                let pending = shared.known.pending.lock().list(|name| names.contains(name), now());
                (topology.nodes().map(switch).collect::<Vec<_>>(), pending)
            })
            .await?;
        let connected: BTreeMap<u32, _> = self.shared.connected().into_iter().map(|c| (c.node.0, c)).collect();
        for switch in &mut switches {
            match connected.get(&switch.id) {
                Some(connected) => self.fill(switch, connected),
                None => self.fill_from_elsewhere(switch),
            }
        }
        Ok(Response::new(v1::SwitchList {
            switches,
            pending,
            troubles: self.shared.known.duplicates.lock().troubles(now()),
        }))
    }

    pub(super) async fn hosts(&self, request: Request<v1::ListHostsRequest>) -> Answer<v1::HostList> {
        self.reserve(&request, usize::MAX, &self.shared.sizes.hosts)?;
        let list = self.read_seen(move |state, seen| {
            let latest = state.hosts.learnt.latest();
            let hosts = state.hosts.iter().map(|at| {
                let (latest_ms, name) = latest.get(&at.1).map_or((0, None), |(ms, name)| (*ms, Some(name)));
                v1::Host { latest: name.map(ToString::to_string).unwrap_or_default(), latest_ms, ..host(state, at) }
            });
            let hosts = hosts.collect();
            let (unknown, _) = seen.learning.unknown(state, now(), MAX_UNKNOWN);
            let troubles = seen.learning.troubles(now());
            v1::HostList { hosts, unknown, troubles, conflicts: seen.learning.conflicts(state, now()) }
        });
        Ok(Response::new(list.await?))
    }

    pub(super) async fn groups_of(&self, request: Request<v1::ListGroupsRequest>) -> Answer<v1::GroupList> {
        self.reserve(&request, Asked::limit(request.get_ref(), MAX_PAGE), &self.shared.sizes.names)?;
        let ask = request.into_inner();
        let limit = Asked::limit(&ask, MAX_PAGE);
        let shared = Arc::clone(&self.shared);
        let settings = Arc::clone(&self.groups);
        let list = self.read(move |state| {
            let asked = Asked::read(state, &ask).map_err(|refusal| status_of(&refusal))?;
            let (subscribed, more) = shared.known.subscriptions.lock().page(state, &asked, limit);
            let rib = state.network.rib();
            rib.watch(&settings.tenants);
            let most = settings.max_names as usize;
            let crowded = settings.tenants.iter().copied().filter(|tenant| rib.len_of(*tenant) > most).collect();
            let tenant = ask.tenant.filter(|tenant| settings.tenants.contains(tenant));
            let members = tenant.and_then(|tenant| rib.names_of(tenant, most)?.ok());
            Ok::<_, Status>(v1::GroupList {
                subscribed,
                tenants: settings.tenants.iter().copied().collect(),
                snooping: settings.snooping,
                floods_unknown: settings.unknown_multicast == Unknown::Flood,
                mdns_for_all: settings.mdns == Mdns::All,
                more,
                crowded,
                members: members.map(|names| shared.known.subscriptions.lock().members(&names)),
            })
        });
        list.await?.map(Response::new)
    }

    pub(super) async fn links(&self, request: Request<v1::ListLinksRequest>) -> Answer<v1::LinkList> {
        self.reserve(&request, usize::MAX, &self.shared.sizes.links)?;
        let north = self.clone();
        let list = self.read_seen(move |state, seen| {
            let end = |end| {
                let Place { switch, port } = state.place(end);
                Some(v1::LinkEnd { switch, port: port.0.into() })
            };
            let link = |link: &fib::topology::Link| {
                let fib::topology::Link { a, b, cost, weight, up, cut, found, .. } = *link;
                let (weight, raised, drained) = (Some(weight.into()), raised(link), link.raised > 0);
                let (a, b) = (end(a), end(b));
                let mut link = v1::Link { a, b, cost, raised, up, cut, load: None, weight, drained, found };
                link.load = north.load(&link, |name| state.network.topology().node_by_name(name));
                link
            };
            let topology = state.network.topology();
            let found = seen.trunks.found(&state.network);
            let link_found = |(a, b)| v1::Link {
                a: end(a),
                b: end(b),
                cost: 1,
                weight: Some(1),
                found: true,
                ..v1::Link::default()
            };
            let found = found.into_iter().map(link_found);
            v1::LinkList {
                links: topology.links().map(link).collect(),
                found: found.collect(),
                troubles: seen.trunks.troubles(state, now()),
            }
        });
        Ok(Response::new(list.await?))
    }
}
