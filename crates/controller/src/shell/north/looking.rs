//! Requests of those who look at the network: searches, paths, one switch in full, events as they happen.

use super::{Answer, North, StreamOf};
use crate::core::change::{Refusal, State};
use crate::core::presence::Connected;
use crate::core::trace::{self, Doubts};
use crate::shell::events::KINDS;
use crate::wire::status::status_of;
use crate::wire::{self, listed};
use api::seam::now;
use api::v1;
use fib::name::{Name, NameKind, clip};
use fib::rib::Attachment;
use fib::search::{may_begin, search};
use fib::topology::NodeId;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Response, Status};

/// Names that are read at a time while searching for those of a host: meanwhile the writer does nothing else.
const SCAN_NAMES: usize = 20_000;

/// Events that may wait for one reader.
const EVENTS_AHEAD: usize = 16;

/// A prefix of IP addresses.
#[derive(Clone, Copy, Debug)]
struct Prefix {
    base: IpAddr,
    len: u8,
}

impl Prefix {
    /// One address, or a prefix like 10.1.0.0/16; bits beyond its length are ignored.
    fn read(text: &str) -> Result<Prefix, String> {
        let wrong =
            || format!("`{}` is neither an IP address nor a prefix; write it like 10.0.0.7 or 10.1.0.0/16", clip(text));
        let (base, len) = text.trim().split_once('/').map_or((text.trim(), None), |(base, len)| (base, Some(len)));
        let base: IpAddr = base.parse().map_err(|_| wrong())?;
        let most = if base.is_ipv4() { 32 } else { 128 };
        let len = len.map_or(Ok(most), |len| len.parse().map_err(|_| wrong()))?;
        if len > most { Err(wrong()) } else { Ok(Prefix { base, len }) }
    }

    fn has(self, ip: IpAddr) -> bool {
        let differs = match (self.base, ip) {
            (IpAddr::V4(base), IpAddr::V4(ip)) => u128::from(base.to_bits() ^ ip.to_bits()) << 96,
            (IpAddr::V6(base), IpAddr::V6(ip)) => base.to_bits() ^ ip.to_bits(),
            _ => return false,
        };
        differs.leading_zeros() >= u32::from(self.len)
    }
}

impl North {
    /// The first names whose text begins with some characters.
    pub(crate) async fn search(&self, prefix: String, limit: usize) -> Result<v1::NamePage, Status> {
        let found = self.read(move |state| {
            let kind = state.network.settings().kind;
            if !may_begin(kind, &prefix) {
                let text = prefix.split('/').next().unwrap_or_default().trim();
                let is_of_address =
                    text.parse::<IpAddr>().is_ok() || may_begin(NameKind::Ipv4, text) && kind != NameKind::Ipv4;
                let advice = if is_of_address {
                    "; `--ip ADDRESS` or `--ip 10.1.0.0/16` finds names by their IP addresses"
                } else {
                    ""
                };
                return Err(Refusal::BadPrefix { prefix: clip(&prefix), kind, advice });
            }
            let found = search(state.network.rib(), kind, &prefix, limit);
            let names = found.names.iter().map(|(name, attachment)| listed(state, name, attachment));
            Ok(v1::NamePage { names: names.collect(), more: found.more })
        });
        found.await?.map_err(|refusal| status_of(&refusal))
    }

    /// The first names at a host, if one is given, with an IP address of a prefix, if one is given, after a name.
    pub(super) async fn names_where(
        &self,
        host: String,
        ip: &str,
        after: String,
        limit: usize,
    ) -> Result<v1::NamePage, Status> {
        let prefix = if ip.is_empty() { None } else { Some(Prefix::read(ip).map_err(Status::invalid_argument)?) };
        // Each takes turns of the writer in proportion to all names.
        let Ok(_alone) = self.alone.scanning.try_lock() else {
            return Err(Status::resource_exhausted(
                "another search for the names of a host, or of a prefix of addresses, is under way; ask again",
            ));
        };
        let text = after;
        let begun = self.read(move |state| {
            let end = if host.is_empty() { None } else { Some(state.hosts.end(&host)?) };
            let after = if text.is_empty() { None } else { Some(state.parse(&text)?) };
            let rib = state.network.rib();
            Ok((end, end.map_or(rib.len(), |end| rib.len_at(end)), after))
        });
        let (end, n_names, mut after) = begun.await?.map_err(|refusal: Refusal| status_of(&refusal))?;
        let is_wanted = move |attachment: &Attachment| {
            end.is_none_or(|end| attachment.end() == end)
                && prefix.is_none_or(|prefix| attachment.ip.is_some_and(|ip| prefix.has(ip)))
        };
        let mut names = Vec::new();
        while names.len() <= limit && names.len() < n_names {
            let from = after.take();
            let read = self.read(move |state| {
                let (here, last) = state.network.rib().page_where(from.as_ref(), SCAN_NAMES, is_wanted);
                (here.iter().map(|(name, attachment)| listed(state, name, attachment)).collect::<Vec<_>>(), last)
            });
            let (here, last) = read.await?;
            names.extend(here);
            after = last;
            if after.is_none() {
                break;
            }
        }
        let more = names.len() > limit;
        names.truncate(limit);
        Ok(v1::NamePage { names, more })
    }

    /// The switch and port of each of these hosts; none for a host that is gone.
    pub(crate) async fn places(&self, hosts: Vec<String>) -> Result<Vec<Option<(String, u16)>>, Status> {
        self.read(move |state| {
            let place = |host: &String| state.hosts.end(host).ok().map(|end| state.place(end));
            hosts.iter().map(|host| place(host).map(|place| (place.switch, place.port.0))).collect()
        })
        .await
    }

    /// The number of the last event.
    pub(crate) fn last_event(&self) -> u64 {
        self.shared.events.last()
    }

    /// A sentence for each port and learnt name that has a problem.
    pub(crate) async fn host_troubles(&self) -> Result<Vec<String>, Status> {
        self.read_seen(|_, seen| seen.learning.troubles(now())).await
    }

    /// Hosts that wait to be accepted: the first ones by port and name, and how many there are.
    pub(crate) async fn waiting_hosts(&self, most: usize) -> Result<(Vec<v1::UnknownHost>, usize), Status> {
        self.read_seen(move |state, seen| seen.learning.unknown(state, now(), most)).await
    }

    /// How long this controller has been running.
    pub(crate) fn uptime(&self) -> Duration {
        self.shared.started.elapsed()
    }

    /// The number of learnt names.
    pub(crate) fn learnt(&self) -> u64 {
        self.shared.sizes.learnt.load(Relaxed)
    }

    /// Switches that may not do what their tables should say.
    fn doubts(&self, state: &State) -> Doubts {
        let connected = self.shared.connected();
        let mut doubts: Doubts =
            state.network.topology().nodes().map(|(id, _)| (id, "is not connected".to_owned())).collect();
        let position = self.shared.lead.last_commit();
        let there = state.network.topology().nodes().filter_map(|(id, _)| Some((id, self.shared.there(id)?)));
        for (node, there) in there {
            match there.cannot_follow() {
                Some(why) => _ = doubts.insert(node, format!("serves what it has ({why})")),
                None if there.is_in_step(position) => _ = doubts.remove(&node),
                None => {
                    _ = doubts.insert(node, format!("is not known to be in step yet (served by {})", there.served_by))
                }
            }
        }
        for switch in connected {
            match switch.cannot_follow {
                Some(why) => _ = doubts.insert(switch.node, format!("serves what it has ({why})")),
                None if switch.in_step => _ = doubts.remove(&switch.node),
                None => _ = doubts.insert(switch.node, "is not in step yet".to_owned()),
            }
        }
        doubts
    }

    pub(super) async fn paths(&self, request: v1::TraceRequest) -> Result<v1::TraceReply, Status> {
        let north = self.clone();
        let v1::TraceRequest { name, from } = request;
        let traced = self.read(move |state| {
            let name: Name = state.find(&name)?;
            let from = trace::start(state, &from)?;
            let record = state.network.rib().get(&name).map(|attachment| listed(state, &name, &attachment));
            Ok(trace::trace(state, &name, record, from, &north.doubts(state)))
        });
        traced.await?.map_err(|refusal: Refusal| self.refused(&refusal))
    }

    /// Adds to a switch what its session knows.
    pub(super) fn fill(&self, switch: &mut v1::Switch, connected: &Connected) {
        switch.connected = true;
        switch.in_step = connected.in_step;
        switch.cannot_follow = connected.cannot_follow.clone().unwrap_or_default();
        switch.sent_messages = connected.sent_messages;
        switch.sent_bytes = connected.sent_bytes;
        switch.acknowledged_messages = connected.acked_messages;
        if let Some(session) = self.shared.session(connected.node) {
            switch.memory = session.lock().said().memory();
            switch.rates = session.lock().said().rates(now());
        }
    }

    /// Adds to a switch that another controller serves what the switch reports.
    pub(super) fn fill_from_elsewhere(&self, switch: &mut v1::Switch) {
        if let Some(there) = self.shared.there(NodeId(switch.id)) {
            there.fill(switch, self.shared.lead.last_commit(), now());
        }
    }

    pub(super) async fn details(&self, name: String) -> Result<v1::SwitchDetails, Status> {
        let read = self.read(move |state| {
            let id = state.node(&name)?;
            let hosts: Vec<v1::Host> =
                state.hosts.iter().filter(|(_, end)| end.node == id).map(|host| wire::host(state, host)).collect();
            let node = state.network.topology().node(id).map_err(fib::network::NetworkError::from)?;
            Ok((id, wire::switch(&state.network, id, node, hosts.len() as u64, &state.network.sharing()), hosts))
        });
        let (id, mut switch, hosts) = read.await?.map_err(|refusal: Refusal| self.refused(&refusal))?;
        if let Some(connected) = self.shared.connected().into_iter().find(|connected| connected.node == id) {
            self.fill(&mut switch, &connected);
        } else {
            self.fill_from_elsewhere(&mut switch);
        }
        let here = self.shared.session(id).and_then(|session| session.lock().said().counters(now()));
        let counters = here.or_else(|| self.shared.there(id)?.counters(now()));
        Ok(v1::SwitchDetails { switch: Some(switch), hosts, counters })
    }

    /// The traffic of a link, as its switches report it.
    pub(super) fn load(&self, link: &v1::Link, node_of: impl Fn(&str) -> Option<NodeId>) -> Option<v1::Load> {
        let of = |end: &Option<v1::LinkEnd>| {
            let end = end.as_ref()?;
            let (node, port) = (node_of(&end.switch)?, u16::try_from(end.port).ok()?);
            match self.shared.session(node) {
                Some(session) => session.lock().said().load(port),
                None => self.shared.there(node)?.load(port),
            }
        };
        let (at_a, at_b) = (of(&link.a), of(&link.b));
        let a_to_b = at_a.map(|(_, out)| out).or(at_b.map(|(into, _)| into))?;
        let b_to_a = at_b.map(|(_, out)| out).or(at_a.map(|(into, _)| into))?;
        Some(v1::Load { a_to_b, b_to_a })
    }

    /// The events that are kept, and then new ones as they come, until the given time or until the reader goes.
    pub(crate) fn events(
        &self,
        request: v1::WatchRequest,
        until: impl Future<Output = ()> + Send + 'static,
    ) -> Answer<StreamOf<v1::Event>> {
        let v1::WatchRequest { after, kinds, once } = request;
        if let Some(kind) = kinds.iter().find(|kind| !KINDS.contains(&kind.as_str())) {
            let why = format!("there are no events of kind `{}`; there are {}", clip(kind), KINDS.join(", "));
            return Err(Status::invalid_argument(why));
        }
        let (events, answers) = mpsc::channel(EVENTS_AHEAD);
        let shared = Arc::clone(&self.shared);
        let tell = async move {
            let (mut after, mut news) = (after, shared.events.subscribe());
            loop {
                news.mark_unchanged();
                let (page, upto) = shared.events.after(after, &kinds);
                let is_new = upto != after;
                after = upto;
                for event in page {
                    if events.send(Ok(event)).await.is_err() {
                        return;
                    }
                }
                if is_new {
                    continue;
                }
                if once {
                    return;
                }
                tokio::select! {
                    changed = news.changed() => if changed.is_err() { return },
                    () = events.closed() => return,
                }
            }
        };
        tokio::spawn(async move {
            tokio::select! {
                () = until => {}
                () = tell => {}
            }
        });
        Ok(Response::new(Box::pin(ReceiverStream::new(answers))))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_prefix_has_the_addresses_of_its_first_bits() {
        let has = |prefix: &str, ip: &str| Prefix::read(prefix).unwrap().has(ip.parse().unwrap());
        assert!(has("10.0.0.7", "10.0.0.7") && !has("10.0.0.7", "10.0.0.6"));
        assert!(has("10.1.0.0/16", "10.1.255.3") && !has("10.1.0.0/16", "10.2.0.0") && has("10.1.7.7/16", "10.1.0.1"));
        assert!(has("0.0.0.0/0", "255.0.0.1") && !has("0.0.0.0/0", "fd00::1") && !has("::/0", "10.0.0.1"));
        assert!(has("fd00::/8", "fd12::1") && has(" fd00::7 ", "fd00::7") && !has("fd00::/128", "fd00::1"));
        for wrong in ["", "10.1", "10.0.0.0/33", "fd00::/129", "10.0.0.0/", "x/8"] {
            assert!(Prefix::read(wrong).unwrap_err().contains("10.1.0.0/16"), "{wrong}");
        }
    }
}
