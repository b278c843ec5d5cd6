//! LLDP at all ports of a switch, in the thread that watches links: who speaks where and when, and who was heard. Each member of a bundle
//! is a cable of its own.

use super::bundles::system;
use super::config::{Config, Lldp, Role};
use dataplane::assembly::Monitor;
use dataplane::bundle::Bundle;
use dataplane::links::Links;
use dataplane::links::lldp::{Aggregation, Ear, Neighbour, Own, Said, Shown, Station, Tally};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// An announcement holds for this many intervals, and a second: three may be lost.
const HOLDS: u16 = 4;

/// One cable.
struct Cable {
    index: u8,
    /// The bundle that it is a member of, and which one.
    member: Option<(Arc<Bundle>, u8)>,
    own: Own,
    manner: Lldp,
    station: Station,
    tally: Arc<Tally>,
    /// Neighbours are others than were shown.
    has_news: bool,
}

/// See the module.
pub(super) struct Stations {
    links: Arc<Links>,
    ttl_s: u16,
    cables: Vec<Cable>,
}

impl Stations {
    pub(super) fn new(config: &Config, monitor: &Monitor, now: Instant) -> Self {
        let interval_s = config.links.lldp_interval_s;
        let source = system(&config.name);
        let address = config.status.as_ref().and_then(|status| status.tcp()).map(|status| status.ip());
        let address = address.filter(|ip| !ip.is_loopback() && !ip.is_unspecified());
        let (mut cables, mut ears) = (Vec::new(), Vec::new());
        for (index, id, device) in monitor.ports() {
            let Some(port) = config.ports.iter().find(|port| port.id == id) else { continue };
            let manner = config.lldp_at(port);
            if manner == Lldp::Off {
                continue;
            }
            let cable = |device: &str, member| {
                let role = match port.role {
                    Role::Host => "host",
                    Role::Trunk => "trunk",
                    Role::Outside => "outside",
                };
                let (switch, device) = (config.name.clone(), device.to_owned());
                let own = Own { switch, source, port: id, role, device, address };
                let interval = manner.sends().then(|| Duration::from_secs(interval_s.into()));
                let (station, tally, has_news) = (Station::new(interval, now), Arc::default(), false);
                Cable { index, member, own, manner, station, tally, has_news }
            };
            let ear = |cable: &Cable| Ear::new(Arc::clone(&cable.tally), now);
            match monitor.bundles().find(|(of, _)| *of == index) {
                Some((_, bundle)) => {
                    let member = |(place, device): (u8, &str)| cable(device, Some((Arc::clone(bundle), place)));
                    let members: Vec<Cable> = (0..).zip(bundle.devices()).map(member).collect();
                    if manner.listens() {
                        bundle.listen_to_lldp(members.iter().map(ear).collect());
                    }
                    cables.extend(members);
                }
                None => {
                    let cable = cable(device, None);
                    ears.extend(manner.listens().then(|| (index, ear(&cable))));
                    cables.push(cable);
                }
            }
        }
        let (links, ttl_s) = (Arc::clone(monitor.links()), interval_s.saturating_mul(HOLDS).saturating_add(1));
        links.lldp().listen(ears);
        let sends = cables.iter().filter(|cable| cable.manner.sends());
        let farewells = sends.map(|cable| (cable.index, cable.place(), cable.own.farewell())).collect();
        links.lldp().set_farewells(farewells);
        let show = |cable: &Cable| Shown {
            index: cable.index,
            place: cable.place(),
            manner: cable.manner.name(),
            tally: Arc::clone(&cable.tally),
            neighbours: Vec::new(),
        };
        links.lldp().show(cables.iter().map(show).collect());
        Self { links, ttl_s, cables }
    }

    /// Whether there is nothing to do, ever.
    pub(super) fn is_empty(&self) -> bool {
        self.cables.is_empty()
    }

    pub(super) fn deadline(&self) -> Option<Instant> {
        self.cables.iter().filter_map(|cable| cable.station.deadline()).min()
    }

    pub(super) fn carrier(&mut self, device: &str, has_carrier: bool, now: Instant) {
        for cable in self.cables.iter_mut().filter(|cable| cable.own.device == device) {
            cable.has_news |= cable.station.carrier(has_carrier, now);
        }
    }

    /// Hears what came, and looks at the time.
    pub(super) fn listen(&mut self, now: Instant) {
        let of_ports = self.links.lldp().take_heard().into_iter().map(|(index, said)| (index, None, said));
        let mut bundles: Vec<(u8, &Arc<Bundle>)> = Vec::new();
        for cable in &self.cables {
            let Some((bundle, _)) = &cable.member else { continue };
            if bundles.last().is_none_or(|(index, _)| *index != cable.index) {
                bundles.push((cable.index, bundle));
            }
        }
        let of_members = bundles.into_iter().flat_map(|(index, bundle)| {
            bundle.take_lldp().into_iter().map(move |(place, said)| (index, Some(place), said))
        });
        let heard: Vec<(u8, Option<u8>, Said)> = of_ports.chain(of_members).collect();
        for (index, place, said) in heard {
            if let Some(cable) = self.cables.iter_mut().find(|cable| (cable.index, cable.place()) == (index, place)) {
                cable.has_news |= cable.station.hear(said, now);
            }
        }
        for cable in &mut self.cables {
            cable.has_news |= cable.station.judge(now);
        }
    }

    /// Has those speak whose time has come. Whether there were any.
    pub(super) fn say(&mut self, now: Instant) -> bool {
        let mut has_said = false;
        for cable in &mut self.cables {
            if !cable.station.speaks(now) {
                continue;
            }
            let frame = cable.own.encode(self.ttl_s, cable.aggregation());
            self.links.lldp().say(|| {
                cable.tally.say();
                send(&self.links, cable.index, cable.member.as_ref(), frame);
                has_said = true;
            });
        }
        has_said
    }

    /// Shows what has changed, to those who look: no more than that, or strangers at all ports would keep this thread busy.
    pub(super) fn show(&mut self) {
        for (at, cable) in self.cables.iter_mut().enumerate().filter(|(_, cable)| cable.has_news) {
            cable.has_news = false;
            self.links.lldp().show_neighbours(at, cable.station.neighbours().to_vec());
        }
    }

    /// The first that was heard at a port, at any of its cables, and is not one of our switches.
    pub(super) fn foreign(&self, index: u8) -> Option<&Neighbour> {
        let of_port = self.cables.iter().filter(|cable| cable.index == index);
        of_port.flat_map(|cable| cable.station.neighbours()).find(|one| !one.is_ours()).map(|one| &**one)
    }
}

impl Cable {
    fn place(&self) -> Option<u8> {
        self.member.as_ref().map(|(_, place)| *place)
    }

    fn aggregation(&self) -> Option<Aggregation> {
        let (bundle, place) = self.member.as_ref()?;
        Some(Aggregation { is_used: bundle.sends(usize::from(*place)), port: self.own.port })
    }
}

fn send(links: &Links, index: u8, member: Option<&(Arc<Bundle>, u8)>, frame: Vec<u8>) {
    match member {
        Some((bundle, place)) => bundle.send([(*place, frame)]),
        None => links.send([(index, frame)]),
    }
}
