//! Monitors the trunks: sends and receives hellos, follows carriers, speaks LLDP ([`super::lldp`]), and tells the
//! workers, the kernel and the agent which links carry frames.

use super::bundles;
use super::config::Config;
use super::lldp::Stations;
use super::shared::Shared;
use super::strays::Strays;
pub use super::trunk::Trunk;
use api::throttle::Throttle;
use dataplane::assembly::Dataplane;
use dataplane::bell::Bell;
use dataplane::kernel::Kernel;
use dataplane::links::{Event, LinkState, Links, Session, Timing};
use dataplane::plane::PlaneWriter;
use fib::action::PortId;
use netio::carrier::Carriers;
use std::collections::{BTreeMap, BTreeSet};
use std::hash::{BuildHasher, RandomState};
use std::io;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};
use tokio::sync::mpsc;
use tokio::time::MissedTickBehavior;

/// Interval between checks where no hellos are sent.
const WITHOUT_HELLOS: Duration = Duration::from_secs(1);

/// The nice value of a thread that must not be late.
const URGENCY: i32 = -15;

/// Interval at which the follower of carriers checks whether it is still needed.
const LOOK_UP: Duration = Duration::from_secs(1);

/// The shortest interval between two messages that another device is at a trunk.
const DEVICES_EVERY: Duration = Duration::from_secs(10);

/// Interfaces, and whether each has a carrier.
type Changes = Vec<(String, bool)>;

struct Watched {
    index: u8,
    port: PortId,
    device: String,
    session: Session,
}

/// See the module.
pub(super) struct Keeper {
    switch: String,
    timing: Timing,
    /// The trunks of one device each.
    trunks: Vec<Watched>,
    bundles: Vec<bundles::Watched>,
    /// Host ports: the index and the device of each, and whether that had a carrier when it was last said.
    hosts: Vec<(u8, String, bool)>,
    strays: Strays,
    links: Arc<Links>,
    plane: Weak<Dataplane>,
    kernel: Option<Arc<Kernel>>,
    shared: Arc<Shared<PlaneWriter>>,
    carriers: Option<mpsc::UnboundedReceiver<io::Result<Changes>>>,
    lldp: Stations,
    /// Devices that announce themselves in LLDP at trunks without a switch, and when they are checked next.
    devices: Vec<(PortId, String)>,
    devices_next: Instant,
    /// When it checked everything last.
    looked: Instant,
    /// The limits of log lines about each trunk, and about dropped hellos with their number since the last line.
    lines: BTreeMap<PortId, Throttle>,
    flood_lines: Throttle,
}

impl Keeper {
    pub(super) fn new(
        config: &Config,
        plane: &Arc<Dataplane>,
        kernel: Option<Arc<Kernel>>,
        shared: Arc<Shared<PlaneWriter>>,
    ) -> Self {
        let (switch, settings) = (config.name.clone(), &config.links);
        let (now, timing) = (Instant::now(), settings.timing());
        // Random, and not 0.
        let own = RandomState::new().hash_one(&switch) | 1;
        let trunk = |(index, port, device): (u8, PortId, &str)| {
            let session = Session::new(port, own, timing, now);
            Watched { index, port, device: device.to_owned(), session }
        };
        let bundles = bundles::watch(config, plane.monitor().bundles(), own, now);
        let is_one = |index: u8| bundles.iter().all(|bundle| bundle.index() != index);
        let trunks: Vec<Watched> = plane.monitor().trunks().filter(|(index, ..)| is_one(*index)).map(trunk).collect();
        let host_ports: BTreeMap<u8, PortId> = plane.monitor().host_ports().map(|(index, id, _)| (index, id)).collect();
        let single = plane.monitor().ports().filter(|(index, ..)| is_one(*index));
        let single = single.map(|(index, _, device)| (index, device.to_owned()));
        let members = bundles.iter().flat_map(|one| one.devices().map(|device| (one.index(), device.to_owned())));
        let hosts = single.chain(members).filter(|(index, _)| host_ports.contains_key(index));
        let hosts = hosts.map(|(index, device)| (index, device, true)).collect();
        if timing.interval_ms > 0 {
            let tally = |trunk: &Watched| (trunk.index, Arc::clone(trunk.session.tally()));
            plane.monitor().links().set_tallies(
                trunks.iter().map(tally).chain(bundles.iter().filter_map(bundles::Watched::tally)).collect(),
            );
        }
        let lldp = Stations::new(config, plane.monitor(), now);
        let carriers = follow_carriers();
        if let Err(error) = &carriers {
            tracing::warn!(
                switch,
                "carriers cannot be followed, so a cut cable is noticed only by missing hellos: {error}"
            );
        }
        bundles.iter().for_each(|bundle| bundle.show(plane.monitor().links()));
        let lines = plane.monitor().trunks().map(|(_, port, _)| (port, Throttle::of_frames())).collect();
        let (links, plane) = (plane.monitor().links().clone(), Arc::downgrade(plane));
        let carriers = carriers.ok();
        let (devices, devices_next, looked) = (Vec::new(), now, now);
        Self {
            switch,
            timing,
            trunks,
            bundles,
            hosts,
            strays: Strays::new(host_ports),
            links,
            plane,
            kernel,
            shared,
            carriers,
            lldp,
            devices,
            devices_next,
            looked,
            lines,
            flood_lines: Throttle::of_frames(),
        }
    }

    /// Runs in a thread of its own until the data plane ends: what it does takes microseconds, and must not wait for tables that
    /// are loaded meanwhile.
    /// # Errors
    /// The error of the operating system.
    pub(super) fn start(self) -> io::Result<()> {
        // At host ports hellos are listened for, and hosts are asked again what they want when their cables are plugged in.
        if self.trunks.is_empty() && self.bundles.is_empty() && self.lldp.is_empty() && self.hosts.is_empty() {
            return Ok(());
        }
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build()?;
        std::thread::Builder::new().name("links".to_owned()).spawn(move || {
            hurry();
            runtime.block_on(self.run());
        })?;
        Ok(())
    }

    async fn run(mut self) {
        let is_watching = !self.trunks.is_empty() || !self.bundles.is_empty();
        let every = match self.timing.interval_ms {
            _ if !is_watching => WITHOUT_HELLOS,
            0 => WITHOUT_HELLOS,
            interval_ms => Duration::from_millis(interval_ms.into()),
        };
        let mut tick = tokio::time::interval(every);
        // One that comes late delays none of those after it.
        tick.set_missed_tick_behavior(MissedTickBehavior::Skip);
        let links = self.links.clone();
        let bell = self.bundles.first().map(bundles::Watched::bell);
        loop {
            let of_trunks = self.trunks.iter().filter_map(|trunk| trunk.session.deadline());
            let of_bundles = self.bundles.iter().filter_map(bundles::Watched::deadline);
            let deadline = of_trunks.chain(of_bundles).chain(self.lldp.deadline()).min();
            let (mut says_all, mut carriers) = (false, Ok(Vec::new()));
            tokio::select! {
                _ = tick.tick() => says_all = self.timing.interval_ms > 0,
                () = links.heard() => {}
                () = rung(bell.as_deref()) => {}
                said = next(&mut self.carriers) => carriers = said,
                () = until(deadline) => {}
            }
            let Some(plane) = self.plane.upgrade() else { return };
            let mut news = News::default();
            let now = Instant::now();
            self.excuse(now, every);
            if says_all && self.links.is_sending() {
                // The worker has not looked since the last time, so it has heard nothing either.
                self.trunks.iter_mut().for_each(|trunk| trunk.session.excuse(every));
            }
            let unheard = self.bundles.iter_mut().filter(|bundle| says_all && bundle.is_sending());
            unheard.for_each(|bundle| bundle.aggregate().excuse(every));
            match carriers {
                Ok(carriers) => self.follow_carriers(&carriers, now, &mut news),
                Err(error) => {
                    tracing::warn!(switch = self.switch, "carriers are no longer followed: {error}");
                    self.carriers = None;
                }
            }
            self.listen(now, &mut news);
            self.lldp.listen(now);
            self.lldp.show();
            let mut others_changed = self.follow_devices(now);
            let (cluster, strays) = (self.shared.cluster(), self.links.take_strays());
            others_changed |= self.strays.follow(&self.switch, cluster, strays, now);
            for trunk in &mut self.trunks {
                news.note(trunk.index, trunk.session.judge(now));
            }
            for bundle in &mut self.bundles {
                if bundle.judge(now) {
                    news.note(bundle.index(), Event::Changed);
                }
            }
            if !news.changed.is_empty() || others_changed {
                self.act(&news.changed);
            }
            self.bundles.iter_mut().for_each(|bundle| bundle.log(&self.switch, now));
            // A neighbour learns at once what changed here, and one that restarted learns that it is heard.
            let says = |index: &u8| says_all || news.changed.contains(index) || news.anew.contains(index);
            let said = self.trunks.iter().filter(|trunk| self.timing.interval_ms > 0 && says(&trunk.index));
            let frames: Vec<_> = said.map(|trunk| (trunk.index, trunk.session.hello(&self.switch).encode())).collect();
            let mut has_said = !frames.is_empty();
            if has_said {
                self.links.send(frames);
            }
            has_said |= self.lldp.say(now);
            for bundle in &mut self.bundles {
                let says_hello = self.timing.interval_ms > 0 && says(&bundle.index());
                has_said |= bundle.say(&self.switch, says_hello, now);
            }
            if has_said {
                plane.wake_first();
            }
        }
    }

    /// If this process stood still, so did its ears.
    fn excuse(&mut self, now: Instant, every: Duration) {
        let between = now.saturating_duration_since(std::mem::replace(&mut self.looked, now));
        if let Some(stood_still) = between.checked_sub(2 * every) {
            self.trunks.iter_mut().for_each(|trunk| trunk.session.excuse(stood_still + every));
            self.bundles.iter_mut().for_each(|bundle| bundle.aggregate().excuse(stood_still + every));
        }
    }

    fn follow_carriers(&mut self, carriers: &[(String, bool)], now: Instant, news: &mut News) {
        for (device, has_carrier) in carriers {
            for trunk in self.trunks.iter_mut().filter(|trunk| trunk.device == *device) {
                news.note(trunk.index, trunk.session.carrier(*has_carrier, now));
            }
            self.bundles.iter_mut().for_each(|bundle| bundle.carrier(device, *has_carrier, now));
            self.lldp.carrier(device, *has_carrier, now);
            for (index, _, had_carrier) in self.hosts.iter_mut().filter(|(_, name, _)| name == device) {
                let is_back = !std::mem::replace(had_carrier, *has_carrier) && *has_carrier;
                // Another host may be there now.
                if let Some(subscriptions) = self.shared.groups().subscriptions().filter(|_| is_back) {
                    subscriptions.came_up(*index);
                }
            }
        }
    }

    fn listen(&mut self, now: Instant, news: &mut News) {
        let cluster = self.shared.cluster();
        self.trunks.iter_mut().for_each(|trunk| trunk.session.joined(cluster));
        let (hellos, unread) = self.links.take_heard();
        if let Some((index, n)) = unread.into_iter().max_by_key(|(_, n)| *n)
            && let Some(unsaid) = self.flood_lines.pass()
        {
            let port = self.trunks.iter().find(|trunk| trunk.index == index).map(|trunk| trunk.port.0);
            tracing::warn!(
                switch = self.switch,
                port,
                unread = n,
                unsaid,
                "more hellos arrive than neighbours send, and the surplus is not read: look for a loop behind this port"
            );
        }
        let came = self.links.take_came();
        for trunk in self.trunks.iter_mut().filter(|trunk| came.contains(&trunk.index)) {
            trunk.session.came(now);
        }
        for (index, hello) in hellos {
            for trunk in self.trunks.iter_mut().filter(|trunk| trunk.index == index) {
                news.note(index, trunk.session.hear(&hello, now));
            }
        }
        for bundle in &mut self.bundles {
            bundle.aggregate().joined(cluster);
            if bundle.listen(&self.switch, now) {
                news.note(bundle.index(), Event::Anew);
            }
        }
    }

    /// Looks which foreign device says in LLDP that it is at a trunk where no switch says hello, and not too often: it may say another thing each time.
    /// Returns whether the device is another one than before.
    fn follow_devices(&mut self, now: Instant) -> bool {
        if now < self.devices_next {
            return false;
        }
        let singles = self.trunks.iter().map(|trunk| (trunk.index, trunk.port, trunk.session.state().0));
        let bundled = self.bundles.iter().filter_map(|one| Some((one.index(), one.trunk()?)));
        let silent = singles.chain(bundled.map(|(index, trunk)| (index, trunk.port, trunk.state)));
        let silent = silent.filter(|(.., state)| *state == LinkState::Silent);
        let devices = silent.filter_map(|(index, port, _)| Some((port, self.lldp.foreign(index)?.to_string())));
        let devices: Vec<_> = devices.collect();
        let has_changed = devices != self.devices;
        if has_changed {
            self.devices = devices;
            self.devices_next = now + DEVICES_EVERY;
        }
        has_changed
    }

    /// Announces trunks that changed, first to those that forward.
    fn act(&self, changed: &BTreeSet<u8>) {
        let those = || self.trunks.iter().filter(|trunk| changed.contains(&trunk.index));
        for trunk in those() {
            let is_down = trunk.session.is_down();
            self.links.set_neighbour(trunk.index, trunk.session.neighbour());
            self.links.set_down(trunk.index, is_down);
            if let Some(kernel) = &self.kernel {
                kernel.set_linked(trunk.port, !is_down);
            }
        }
        self.bundles
            .iter()
            .filter(|bundle| changed.contains(&bundle.index()))
            .for_each(|bundle| bundle.show(&self.links));
        let told = |trunk: &Watched| Trunk::of(trunk.port, &trunk.session);
        let bundled = || self.bundles.iter().filter_map(bundles::Watched::trunk);
        let mut trunks: Vec<Trunk> = self.trunks.iter().map(told).chain(bundled()).collect();
        for trunk in trunks.iter_mut().filter(|trunk| trunk.state == LinkState::Silent) {
            trunk.device = self.devices.iter().find(|(port, _)| *port == trunk.port).map(|(_, device)| device.clone());
        }
        trunks.extend(self.strays.trunks());
        self.shared.set_trunks(trunks);
        let changed_bundles = self.bundles.iter().filter(|bundle| changed.contains(&bundle.index()));
        for trunk in those().map(told).chain(changed_bundles.filter_map(bundles::Watched::trunk)) {
            let Trunk { port, state, is_down, neighbour, .. } = trunk;
            let neighbour = neighbour.map(|neighbour| neighbour.to_string()).unwrap_or_default();
            let (switch, state) = (&self.switch, state.name());
            // A neighbour changes as often as it likes; what is left out here is in the status.
            let Some(unsaid) = self.lines.get(&port).and_then(Throttle::pass) else { continue };
            if is_down {
                tracing::warn!(switch, %port, state, neighbour, unsaid, "the link is down; frames take alternates where there are any");
            } else {
                tracing::info!(switch, %port, state, neighbour, unsaid, "link");
            }
        }
    }
}

/// The indices of trunks at which something happened.
#[derive(Default)]
struct News {
    changed: BTreeSet<u8>,
    anew: BTreeSet<u8>,
}

impl News {
    fn note(&mut self, index: u8, event: Event) {
        match event {
            Event::Changed => _ = self.changed.insert(index),
            Event::Anew => _ = self.anew.insert(index),
            Event::Nothing => {}
        }
    }
}

/// Has this thread run before others, if that is permitted.
fn hurry() {
    if let Err(error) = rustix::process::setpriority_process(Some(rustix::thread::gettid()), URGENCY) {
        tracing::debug!("the thread that watches links has no priority: {error}");
    }
}

/// Follows carriers in a thread of its own, so that the reaction does not wait for other tasks.
fn follow_carriers() -> io::Result<mpsc::UnboundedReceiver<io::Result<Changes>>> {
    let mut carriers = Carriers::open()?;
    let (said, receiver) = mpsc::unbounded_channel();
    std::thread::Builder::new().name("carriers".to_owned()).spawn(move || {
        hurry();
        while !said.is_closed() {
            let next = carriers.wait(LOOK_UP);
            let failed = next.is_err();
            if said.send(next).is_err() || failed {
                return;
            }
        }
    })?;
    Ok(receiver)
}

async fn next<T>(from: &mut Option<mpsc::UnboundedReceiver<T>>) -> T {
    if let Some(from) = from
        && let Some(next) = from.recv().await
    {
        return next;
    }
    std::future::pending().await
}

async fn rung(bell: Option<&Bell>) {
    match bell {
        Some(bell) => bell.rung().await,
        None => std::future::pending().await,
    }
}

async fn until(deadline: Option<Instant>) {
    match deadline {
        Some(deadline) => tokio::time::sleep_until(deadline.into()).await,
        None => std::future::pending().await,
    }
}
