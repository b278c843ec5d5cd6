//! Bundles of a switch: their configuration, opening their devices, and monitoring their members, in the thread that
//! monitors links.

use super::config::{Config, Port, Role};
use super::trunk::Trunk;
use dataplane::bell::Bell;
use dataplane::bundle::aggregate::{Aggregate, Identity, MemberState, Settings};
use dataplane::bundle::config::Section;
use dataplane::bundle::device::BundleDevice;
use dataplane::bundle::pdu::Malformed;
use dataplane::bundle::{Bundle, Heard, Told};
use dataplane::links::{LinkState, Links, Tally};
use dataplane::port;
use lookup::hash::{Family, Hasher, SecretKey};
use netio::{Device, NetError};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Maximum number of log lines about the members of a bundle, and the time for which it holds.
const MOST_LINES: u32 = 40;
const LINES_WITHIN: Duration = Duration::from_secs(60);

/// The system id for LACP and the sender address for LLDP: the same after each start, and different for each name.
pub(super) fn system(switch: &str) -> [u8; 6] {
    let digest = Hasher::new(Family::default(), &SecretKey::from_seed(0x8809)).digest(switch.as_bytes());
    let [a, b, c, d, e, ..] = digest.0.to_be_bytes();
    [2, a, b, c, d, e]
}

/// A device for each worker of a port, and how its frames come.
pub(super) type Opened = (Vec<Box<dyn Device>>, port::DriverText);

/// Opens the devices of a bundle.
pub(super) fn open(
    config: &Config,
    port: &Port,
    section: &Section,
    bell: &Arc<Bell>,
    open: impl Fn(&Port) -> Result<Opened, NetError>,
) -> Result<(Option<Arc<Bundle>>, Opened), NetError> {
    let (mut members, mut drivers, mut named) = (Vec::new(), Vec::new(), Vec::new());
    for device in &section.members {
        let (devices, driver) = open(&Port { device: device.clone(), bundle: None, ..port.clone() })?;
        named.push((device.clone(), devices.iter().map(|device| device.counters()).collect()));
        drivers.push(driver.get());
        members.push(devices.into_iter());
    }
    let role = if port.role == Role::Trunk { port::Role::Trunk } else { port::Role::Host };
    let system = section.manner().map(|_| system(&config.name));
    let bundle = Arc::new(Bundle::new(port.id, role, system, named, Arc::clone(bell)));
    let devices = (0..config.workers).map(|worker| {
        let of_worker = members.iter_mut().filter_map(Iterator::next).collect();
        let device = BundleDevice::new(Arc::clone(&bundle), worker, of_worker);
        let failed =
            |source| NetError::Io { device: port.device.clone(), action: "make something to wait with", source };
        Ok(Box::new(device.map_err(failed)?) as Box<dyn Device>)
    });
    let devices = devices.collect::<Result<Vec<_>, NetError>>()?;
    drivers.dedup();
    Ok((Some(bundle), (devices, drivers.join("; ").into())))
}

/// A monitored bundle.
pub(super) struct Watched {
    index: u8,
    bundle: Arc<Bundle>,
    aggregate: Aggregate,
    is_trunk: bool,
    /// How it is as a link, and since when.
    link: (LinkState, Instant),
    /// The states of members when they were last checked for the log, and the lines of all since when.
    logged: Vec<MemberState>,
    lines: (Instant, u32),
    /// Members that sent malformed frames, which is logged once.
    malformed: u32,
}

/// All bundles of a switch, from what it is configured to have.
pub(super) fn watch<'a>(
    config: &Config,
    bundles: impl Iterator<Item = (u8, &'a Arc<Bundle>)>,
    session: u64,
    now: Instant,
) -> Vec<Watched> {
    let timing = config.links.timing();
    let mut watched = Vec::new();
    let mut first = 1;
    for (index, bundle) in bundles {
        let Some(port) = config.ports.iter().find(|port| port.id == bundle.port()) else { continue };
        let Some(section) = &port.bundle else { continue };
        let is_trunk = port.role == Role::Trunk;
        let key = if port.id.0 == 0 { u16::MAX } else { port.id.0 };
        let identity = Identity { system: system(&config.name), key, first, port: port.id, session };
        let hellos = (is_trunk && timing.interval_ms > 0).then_some(timing);
        let settings = Settings { lacp: section.manner(), min_links: section.min_links, hellos };
        let n = section.members.len();
        first = first.wrapping_add(n as u16);
        let aggregate = Aggregate::new(identity, settings, n, now);
        let (link, logged) = ((aggregate.link_state(), now), vec![MemberState::Negotiating; n]);
        let mut one = Watched {
            index,
            bundle: Arc::clone(bundle),
            aggregate,
            is_trunk,
            link,
            logged,
            lines: (now, 0),
            malformed: 0,
        };
        one.decided(now);
        watched.push(one);
    }
    watched
}

impl Watched {
    /// Its index among the ports.
    pub(super) fn index(&self) -> u8 {
        self.index
    }

    /// The interfaces.
    pub(super) fn devices(&self) -> impl Iterator<Item = &str> {
        self.bundle.devices()
    }

    /// What rings when something came, which is the same for all.
    pub(super) fn bell(&self) -> Arc<Bell> {
        self.bundle.bell()
    }

    /// Its hellos, if it is watched by them.
    pub(super) fn tally(&self) -> Option<(u8, Arc<Tally>)> {
        self.is_trunk.then(|| (self.index, Arc::clone(self.aggregate.tally())))
    }

    pub(super) fn deadline(&self) -> Option<Instant> {
        self.aggregate.deadline()
    }

    pub(super) fn aggregate(&mut self) -> &mut Aggregate {
        &mut self.aggregate
    }

    /// Whether the first worker has yet to send what it was given.
    pub(super) fn is_sending(&self) -> bool {
        self.bundle.is_sending()
    }

    pub(super) fn carrier(&mut self, device: &str, has_carrier: bool, now: Instant) {
        if let Some(place) = self.bundle.devices().position(|name| name == device) {
            self.aggregate.carrier(place, has_carrier, now);
        }
    }

    /// Processes received frames. Returns whether a neighbour has restarted.
    pub(super) fn listen(&mut self, switch: &str, now: Instant) -> bool {
        let mut is_anew = false;
        for (place, heard) in self.bundle.take_heard() {
            let at = usize::from(place);
            match heard {
                Heard::Pdu(pdu) => {
                    if self.aggregate.hear(at, &pdu, now) {
                        self.bundle.count_own(at);
                    }
                }
                Heard::Marker(answer) => self.bundle.send([(place, answer)]),
                Heard::Hello(hello) => is_anew |= self.aggregate.hear_hello(at, &hello, now),
                Heard::Malformed(why) => self.say_malformed(switch, at, why),
            }
        }
        is_anew
    }

    fn say_malformed(&mut self, switch: &str, place: usize, why: Malformed) {
        if self.malformed >> place & 1 == 0 {
            self.malformed |= 1 << place;
            let (port, member) = (self.bundle.port(), self.bundle.devices().nth(place).unwrap_or_default());
            tracing::warn!(switch, %port, member, "a malformed LACP frame arrived; further ones are not logged: {why}");
        }
    }

    /// Decides, and informs the workers. Returns whether others must learn of a change.
    pub(super) fn judge(&mut self, now: Instant) -> bool {
        let has_changed = self.aggregate.judge(now);
        if has_changed {
            self.decided(now);
        }
        has_changed
    }

    fn decided(&mut self, now: Instant) {
        self.bundle.set(self.aggregate.collects(), self.aggregate.distributes());
        let state = self.aggregate.link_state();
        if state != self.link.0 {
            self.link = (state, now);
        }
        let told = |place: usize| {
            let partner = self.aggregate.partner_at(place).map(|end| format!("{} port {}", end.bundle(), end.port));
            let neighbour = self.aggregate.neighbour_at(place).map(ToString::to_string);
            Told { state: self.aggregate.state(place).0.name(), partner: neighbour.or(partner) }
        };
        self.bundle.tell((0..self.logged.len()).map(told).collect());
    }

    /// Has those who choose ways know whether it leads on.
    pub(super) fn show(&self, links: &Links) {
        if self.is_trunk {
            let distributes = self.aggregate.distributes();
            if distributes != 0 {
                // A bundle that is down keeps its number: its flows are elsewhere, and come back to as many members if
                // all return.
                links.set_members(self.index, distributes.count_ones() as u8);
            }
            links.set_neighbour(self.index, self.aggregate.neighbour());
            links.set_down(self.index, distributes == 0);
        }
    }

    /// Logs members whose state changed. Flapping members are logged for a limited time only.
    pub(super) fn log(&mut self, switch: &str, now: Instant) {
        let port = self.bundle.port();
        for (place, (member, logged)) in self.bundle.devices().zip(&mut self.logged).enumerate() {
            let (state, _) = self.aggregate.state(place);
            if *logged == state {
                continue;
            }
            let (is, state, advice) = (state, state.name(), state.advice());
            if now.saturating_duration_since(self.lines.0) >= LINES_WITHIN {
                self.lines = (now, 0);
            }
            self.lines.1 += 1;
            if self.lines.1 == MOST_LINES + 1 {
                tracing::warn!(switch, %port, "members of the bundle are flapping; nothing more is logged about them for up to a minute");
            }
            if self.lines.1 > MOST_LINES {
                // Logged later, if it still holds.
                continue;
            }
            *logged = is;
            if advice.is_empty() {
                tracing::info!(switch, %port, member, state, "member of a bundle");
            } else {
                tracing::warn!(switch, %port, member, state, "a member of a bundle is not used: {advice}");
            }
        }
    }

    /// As a link, if it is a trunk.
    pub(super) fn trunk(&self) -> Option<Trunk> {
        let ((state, since), neighbour) = (self.link, self.aggregate.neighbour().cloned());
        let is_down = self.aggregate.distributes() == 0;
        // Its members are held down each for itself.
        let (device, falls) = (None, (0, Duration::ZERO));
        self.is_trunk.then(|| Trunk { port: self.bundle.port(), state, since, is_down, neighbour, device, falls })
    }

    /// Sends what members have to send now. Returns whether there was anything.
    pub(super) fn say(&mut self, switch: &str, says_hello: bool, now: Instant) -> bool {
        let mut frames: Vec<(u8, Vec<u8>)> =
            self.aggregate.say(now).into_iter().map(|(place, pdu)| (place, pdu.encode())).collect();
        if says_hello {
            frames.extend(self.aggregate.hellos(switch).into_iter().map(|(place, hello)| (place, hello.encode())));
        }
        let says = !frames.is_empty() || self.bundle.is_sending();
        self.bundle.send(frames);
        says
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use fib::action::PortId;

    const GOOD: &str = "name = 's1'\ncontroller = 'http://127.0.0.1:4600'\nstate_dir = '/tmp/s1'\n";
    const TRUNK: &str = "[[port]]\nid = 3\nrole = 'trunk'\n[port.bundle]\nmembers = ['eth2', 'eth3']\n";

    #[test]
    fn a_bundle_is_one_port_with_defaults() {
        let config = Config::parse(&format!("{GOOD}{TRUNK}")).unwrap();
        let [port] = &config.ports[..] else { panic!("one port") };
        let section = port.bundle.as_ref().unwrap();
        assert_eq!((port.id, &port.device[..], section.min_links), (PortId(3), "eth2+eth3", 1));
        assert_eq!(section.manner(), None, "hellos watch members of trunks");
        let host = Config::parse(&format!("{GOOD}{}", TRUNK.replace("trunk", "host"))).unwrap();
        let manner = host.ports[0].bundle.as_ref().unwrap().manner().unwrap();
        assert!(manner.is_active && manner.is_fast);
        let slow =
            Config::parse(&format!("{GOOD}{TRUNK}lacp = 'passive'\nlacp_rate = 'slow'\nmin_links = 2\n")).unwrap();
        let manner = slow.ports[0].bundle.as_ref().unwrap().manner().unwrap();
        assert!(!manner.is_active && !manner.is_fast);
        let off = Config::parse(&format!("{GOOD}{TRUNK}lacp = 'off'\n")).unwrap();
        assert_eq!(off.ports[0].bundle.as_ref().unwrap().manner(), None);
    }

    #[test]
    fn a_trunk_counts_as_often_as_it_has_members_that_send() {
        let members = "[[port]]\nid = 3\nrole = 'trunk'\n[port.bundle]\nmembers = ['eth2', 'eth3', 'eth4']\n";
        let config = Config::parse(&format!("{GOOD}{members}[links]\nhello_ms = 0\n")).unwrap();
        let named = config.ports[0].devices().map(|device| (device.to_owned(), Vec::new())).collect();
        let bundle = Arc::new(Bundle::new(PortId(3), port::Role::Trunk, None, named, Arc::default()));
        let (links, now) = (Links::default(), Instant::now());
        let mut watched = watch(&config, [(7, &bundle)].into_iter(), 1, now);
        let mut say = |device: &str, has_carrier: bool| {
            watched[0].carrier(device, has_carrier, now);
            watched[0].judge(now);
            let before = links.version();
            watched[0].show(&links);
            (links.n_members(7), links.is_down(7), links.version() != before)
        };
        assert_eq!(say("eth2", true), (3, false, true));
        assert_eq!(say("eth3", false), (2, false, true));
        assert_eq!(say("eth3", false), (2, false, false), "workers do nothing");
        assert_eq!(say("eth2", false), (1, false, true));
        assert_eq!(say("eth4", false), (1, true, true), "it is down");
        assert_eq!(say("eth2", true), (1, false, true));
        assert_eq!(say("eth4", true), (2, false, true));
        assert_eq!(links.n_members(8), 1, "another port counts once");
    }

    #[test]
    fn errors_say_what_to_write() {
        let cases = [
            (TRUNK.replace("[port.bundle]", "device = 'eth9'\n[port.bundle]"), "port 3 has both device and bundle"),
            (TRUNK.replace("trunk", "outside"), "\"host\" or \"trunk\""),
            (TRUNK.replace("'eth2', ", "'eth3', "), "two ports have the device eth3"),
            (format!("{TRUNK}[[port]]\nid = 4\nrole = 'host'\ndevice = 'eth2'\n"), "two ports have the device eth2"),
            (TRUNK.replace("eth2", "a name"), "not the name of an interface"),
            (TRUNK.replace("'eth2', 'eth3'", ""), "members has 0 interfaces; write 1 to 16"),
            (format!("{TRUNK}min_links = 3\n"), "min_links = 3 is out of range; write 1 to 2"),
            (format!("{TRUNK}min_links = 0\n"), "min_links = 0"),
            (format!("{TRUNK}lacp = 'off'\nlacp_rate = 'fast'\n"), "lacp_rate is for lacp"),
            (format!("{TRUNK}lacp = 'on'\n"), "active"),
            (format!("driver = 'xdp'\n{TRUNK}"), "driver = \"xdp\", which does not support bundles"),
            ("[[port]]\nid = 3\nrole = 'trunk'\n".to_owned(), "port 3 has no device"),
        ];
        for (text, reason) in cases {
            let message = Config::parse(&format!("{GOOD}{text}")).unwrap_err();
            assert!(message.contains(reason), "{text}: {message}");
        }
    }

    #[test]
    fn a_switch_is_the_same_system_after_each_start_and_no_group() {
        assert_eq!(system("s1"), system("s1"));
        assert_ne!(system("s1"), system("s2"));
        assert_eq!(system("s1")[0], 2);
    }
}
