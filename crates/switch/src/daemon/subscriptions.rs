//! Queries the multicast subscriptions of the switch's hosts, forgets the ones that are not repeated, and reports the
//! rest to controllers.
//!
//! A port is asked twice when it comes up and when a name comes to it, then once in each interval. Nothing is reported before the hosts
//! have had time to answer: the reports of this switch from before its start hold until then.

use super::controllers::controllers_of;
use super::leader::{Client, ToLeader, process};
use super::shared::Shared;
use api::groups::{bytes_of, from_bytes};
use api::tls::Tls;
use api::v1;
use dataplane::assembly::Dataplane;
use dataplane::groups::{Groups, Snooping, Told, Wanted};
use dataplane::mac::Mac;
use dataplane::plane::{LocalNames, PlaneWriter};
use dataplane::subscriptions::query::{self, ROBUSTNESS};
use dataplane::subscriptions::{self as table, ByName, Timing, Why};
use fib::action::PortId;
use fib::name::{Name, NameKind};
use fib::replica::{Exact, Tables};
use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::hash::{BuildHasher, RandomState};
use std::net::IpAddr;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::MissedTickBehavior;

// The data plane keeps no more than fits into a message.
const _: () = assert!(table::MOST == api::groups::MOST);

/// Interval between checks.
const TICK: Duration = Duration::from_millis(100);

/// Interval at which it checks where names are, if anything changed.
const LOOK: Duration = Duration::from_millis(250);

/// Ports that are asked at a time: the frames are lent by the first worker, and all hosts answer at the same time.
const PORTS_AT_ONCE: usize = 32;

/// Interval at which each of several controllers is told, and how long that may take.
const REFRESH: Duration = Duration::from_secs(10);
const PATIENCE: Duration = Duration::from_secs(2);
/// The shortest interval between two messages that a port's reports are not taken for the same reason.
const SAID_AGAIN: Duration = Duration::from_secs(600);

/// After a try in vain, and between two tries.
const PAUSE: Duration = Duration::from_secs(1);

/// Which ports are to be asked, and when.
#[derive(Debug, Default)]
struct Querier {
    /// When next, and how many of the first questions are left.
    ports: BTreeMap<u8, (Instant, u32)>,
    /// Questions for a group that are repeated.
    again: Vec<(Instant, u8, IpAddr)>,
}

impl Querier {
    /// Something is new at a port: it is asked now, and soon once more.
    fn begin(&mut self, port: u8, now: Instant) {
        self.ports.insert(port, (now, ROBUSTNESS));
    }

    fn end(&mut self, port: u8) {
        self.ports.remove(&port);
    }

    /// The ports that are to be asked for all groups now.
    fn due(&mut self, timing: Timing, now: Instant) -> Vec<u8> {
        let due = self.ports.iter_mut().filter(|(_, (at, _))| *at <= now);
        let asked = due.take(PORTS_AT_ONCE).map(|(port, (at, first))| {
            *first = first.saturating_sub(1);
            *at = now + if *first > 0 { timing.startup() } else { timing.interval };
            *port
        });
        asked.collect()
    }

    /// Those that are to be asked for one group: these now, and once more.
    fn due_for_groups(&mut self, asks: Vec<(u8, IpAddr)>, timing: Timing, now: Instant) -> Vec<(u8, IpAddr)> {
        let mut due: Vec<_> =
            self.again.extract_if(.., |(at, ..)| *at <= now).map(|(_, port, group)| (port, group)).collect();
        self.again.extend(asks.iter().map(|(port, group)| (now + timing.last(), *port, *group)));
        due.extend(asks);
        due
    }
}

/// See the module.
pub(super) struct Keeper {
    plane: Weak<Dataplane>,
    shared: Arc<Shared<PlaneWriter>>,
    groups: Arc<Groups>,
    /// Random, and counted with all that is said.
    session: u64,
    number: u64,
    querier: Querier,
    /// As it is while multicasts are for subscribers.
    snooping: Option<Snooping>,
    /// When hosts have had time to answer.
    settles: Instant,
    is_asking: bool,
    changes: watch::Receiver<u64>,
    /// Of which names the places are, of which local names, and when they were looked up.
    names_version: Option<u64>,
    local_version: u64,
    looked: Instant,
    places: HashMap<Mac, u8>,
    up: BTreeSet<u8>,
    /// The version of the table that was said.
    said: Option<u64>,
    refusals: Refusals,
}

/// Which ports were said to have reports that are not taken, and why.
#[derive(Debug, Default)]
struct Refusals {
    said: BTreeMap<(u8, Why), Instant>,
    n: u64,
}

impl Refusals {
    /// Which of these are to be said now: each once in a while.
    fn news(&mut self, refused: Vec<(u8, Why)>, now: Instant) -> Vec<(u8, Why)> {
        self.said.retain(|_, at| now.saturating_duration_since(*at) < SAID_AGAIN);
        let is_new = |one: &(u8, Why)| match self.said.entry(*one) {
            Entry::Vacant(place) => {
                place.insert(now);
                true
            }
            Entry::Occupied(_) => false,
        };
        refused.into_iter().filter(is_new).collect()
    }

    /// Says of them.
    fn say(&mut self, subscriptions: &table::Subscriptions, ports: &[(u8, PortId, bool)], now: Instant) {
        let news = self.news(subscriptions.take_refusals(), now);
        if news.is_empty() {
            return;
        }
        let all = subscriptions.counts().refused;
        let refused = all - std::mem::replace(&mut self.n, all);
        for (index, why) in news {
            let Some((_, port, _)) = ports.iter().find(|(other, ..)| *other == index) else { continue };
            tracing::warn!(%port, refused, "reports of multicast groups are ignored: {}", why.advice());
        }
    }
}

impl Keeper {
    /// None at a switch that does not hear what its hosts want.
    pub(super) fn new(plane: &Arc<Dataplane>, shared: Arc<Shared<PlaneWriter>>) -> Option<Self> {
        let groups = plane.monitor().groups().clone();
        groups.subscriptions()?;
        let (now, changes) = (Instant::now(), shared.changes());
        let keeper = Self {
            plane: Arc::downgrade(plane),
            groups,
            session: RandomState::new().hash_one(now),
            number: 0,
            querier: Querier::default(),
            snooping: None,
            settles: now,
            is_asking: true,
            changes,
            names_version: None,
            local_version: 0,
            looked: now,
            places: HashMap::new(),
            up: BTreeSet::new(),
            said: None,
            refusals: Refusals::default(),
            shared,
        };
        keeper.shared.set_subscriptions(keeper.message(ByName::new()));
        Some(keeper)
    }

    /// Runs until the data plane ends.
    pub(super) async fn run(mut self) {
        let mut tick = tokio::time::interval(TICK);
        tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tick.tick().await;
            let Some(plane) = self.plane.upgrade() else { return };
            self.look(&plane, Instant::now());
        }
    }

    fn look(&mut self, plane: &Dataplane, now: Instant) {
        let groups = Arc::clone(&self.groups);
        let Some(subscriptions) = groups.subscriptions() else { return };
        let snooping = groups.snooping();
        if snooping != self.snooping {
            // What hosts said of groups that were not kept then is not known.
            let asked = |snooping: Option<Snooping>| snooping.map(|snooping| (snooping.timing, snooping.mdns_for_all));
            if asked(snooping) != asked(self.snooping) {
                self.begin(snooping, now);
            }
            if snooping.is_none() {
                subscriptions.clear();
            }
            self.snooping = snooping;
        }
        let Some(Snooping { timing, .. }) = snooping else { return };
        let ports: Vec<_> = plane.monitor().host_ports().collect();
        self.follow_ports(&ports, now);
        for port in subscriptions.take_came_up() {
            self.querier.begin(port, now);
        }
        if self.is_behind() && now >= self.looked + LOOK {
            self.looked = now;
            // Before it is looked: what changes meanwhile is looked at the next time.
            let names_version = Some(groups.names_version());
            let are_others = std::mem::replace(&mut self.names_version, names_version) != names_version;
            self.changes.mark_unchanged();
            let indices = ports.iter().map(|(index, port, _)| (*port, *index)).collect();
            self.follow_names(are_others, &indices, now);
        }
        // A name that came since has its place already, and may have said what it wants.
        let is_known = !self.is_behind();
        self.refusals.say(subscriptions, &ports, now);
        subscriptions.sweep(now, |name, port| !is_known || self.places.get(name) == Some(&port));

        let mut frames = Vec::new();
        for port in self.querier.due(timing, now) {
            frames.extend(query::general(timing).map(|frame| (port, frame)));
        }
        for (port, group) in self.querier.due_for_groups(subscriptions.take_asks((timing, now)), timing, now) {
            frames.push((port, query::of_group(group, timing)));
        }
        if !frames.is_empty() {
            subscriptions.count_questions(frames.len() as u64);
            plane.monitor().links().send(frames);
            plane.wake_first();
        }
        self.is_asking &= now < self.settles;
        let version = subscriptions.version();
        if !self.is_asking && self.said != Some(version) {
            self.said = Some(version);
            self.number += 1;
            self.shared.set_subscriptions(self.message(subscriptions.all()));
        }
    }

    /// Multicasts are for subscribers from now on, or are asked for otherwise, or not any more. What was said before holds no more: until
    /// hosts have answered, their names get all groups.
    fn begin(&mut self, snooping: Option<Snooping>, now: Instant) {
        if !std::mem::replace(&mut self.is_asking, true) {
            self.number += 1;
            self.shared.set_subscriptions(self.message(ByName::new()));
        }
        self.querier = Querier::default();
        (self.up, self.places, self.names_version) = Default::default();
        self.looked = now.checked_sub(LOOK).unwrap_or(now);
        if let Some(Snooping { timing, .. }) = snooping {
            self.settles = now + 2 * LOOK + timing.response();
        }
        self.said = None;
    }

    fn follow_ports(&mut self, ports: &[(u8, PortId, bool)], now: Instant) {
        for (index, _, is_up) in ports {
            match is_up {
                true if self.up.insert(*index) => self.querier.begin(*index, now),
                false if self.up.remove(index) => self.querier.end(*index),
                _ => {}
            }
        }
    }

    /// Whether anything changed since it was looked where names are.
    fn is_behind(&self) -> bool {
        self.names_version != Some(self.groups.names_version()) || self.changes.has_changed().unwrap_or(false)
    }

    /// Looks where the names are that may want something: those whose places changed, or all that hear each other or are here,
    /// whichever are fewer.
    fn follow_names(&mut self, are_others: bool, indices: &HashMap<PortId, u8>, now: Instant) {
        let (shared, groups) = (Arc::clone(&self.shared), Arc::clone(&self.groups));
        let came = tokio::task::block_in_place(|| {
            let replica = shared.replica();
            let (_, local) = replica.tables().shared();
            let since = std::mem::replace(&mut self.local_version, local.version());
            let look = Look { groups: &groups, local, indices, places: &mut self.places, came: BTreeSet::new() };
            look.follow(Some(since).filter(|_| !are_others))
        });
        for index in came.intersection(&self.up) {
            self.querier.begin(*index, now);
        }
    }

    fn message(&self, subscriptions: ByName) -> v1::Subscriptions {
        let subscriber = |(name, groups): (Mac, Vec<IpAddr>)| v1::Subscriber {
            name: name.to_vec().into(),
            groups: groups.into_iter().map(bytes_of).collect(),
        };
        let subscribers = subscriptions.into_iter().map(subscriber).collect();
        v1::Subscriptions { session: self.session, number: self.number, asking: self.is_asking, subscribers }
    }
}

/// Where names are, while it is looked.
struct Look<'a, T> {
    groups: &'a Groups,
    local: &'a LocalNames<T>,
    indices: &'a HashMap<PortId, u8>,
    places: &'a mut HashMap<Mac, u8>,
    /// Ports that a name came to.
    came: BTreeSet<u8>,
}

impl<T> Look<'_, T> {
    /// Looks at the names that changed since this version of the local ones, or at all without. The ports that a name came to.
    fn follow(mut self, since: Option<u64>) -> BTreeSet<u8> {
        let (local, groups) = (self.local, self.groups);
        if let Some(names) = since.and_then(|since| local.changed_since(since)) {
            names.for_each(|name| self.at(name));
            return self.came;
        }
        let before = std::mem::take(self.places);
        if local.len() < groups.n_names() {
            local.for_each(&mut |name, _| self.at(name));
        } else {
            let names = groups.names();
            let names = names.iter().filter_map(|mac| Name::from_bytes(NameKind::Mac, mac).ok());
            names.for_each(|name| self.at(&name));
        }
        let is_new = |(mac, index): &(&Mac, &u8)| before.get(*mac) != Some(*index);
        self.places.iter().filter(is_new).map(|(_, index)| *index).collect()
    }

    fn at(&mut self, name: &Name) {
        let Ok(mac) = Mac::try_from(name.as_bytes()) else { return };
        let port = self.local.port_of(name).filter(|_| self.groups.has(&mac));
        match port.and_then(|port| self.indices.get(&port)) {
            Some(index) => {
                if self.places.insert(mac, *index) != Some(*index) {
                    self.came.insert(*index);
                }
            }
            None => _ = self.places.remove(&mac),
        }
    }
}

/// Takes what the controller says of who hears what.
pub(super) fn take(told: v1::Groups, groups: &Groups) {
    groups.set_addresses(told.addresses.iter().filter_map(address));
    groups.tell(told.snooping.map(snooping), told.groups.into_iter().map(members));
}

/// An address that a name has beside that of the tables.
fn address(v1::MoreAddress { ip, name }: &v1::MoreAddress) -> Option<(IpAddr, Mac)> {
    let v4 = || <[u8; 4]>::try_from(&ip[..]).map(IpAddr::from);
    let ip = <[u8; 16]>::try_from(&ip[..]).map(IpAddr::from).or_else(|_| v4()).ok()?;
    Some((ip, Mac::try_from(&name[..]).ok()?))
}

fn snooping(told: v1::Snooping) -> Snooping {
    let v1::Snooping { query_interval_s, floods_unknown, mdns_for_all } = told;
    Snooping { timing: Timing::new(query_interval_s), floods_unknown, mdns_for_all }
}

/// A tenant, those of its names that frames can be for, and who wants what.
fn members(v1::Group { tenant, names, wanted }: v1::Group) -> Told {
    let mac = |name: &[u8]| Mac::try_from(name).ok();
    let of = |index: &u32| mac(names.get(*index as usize)?);
    let wanted = wanted.map(|v1::Wanted { groups, of_all }| {
        let group = |v1::WantedGroup { group, names }: v1::WantedGroup| {
            Some((from_bytes(&group)?, names.iter().filter_map(of).collect()))
        };
        let of_all = of_all.iter().filter_map(of).collect();
        Wanted { by_group: groups.into_iter().filter_map(group).collect(), of_all }
    });
    Told { id: tenant, names: names.iter().filter_map(|name| mac(name)).collect(), wanted }
}

/// Keeps each of several controllers told, for ever: each serves other switches, whose hosts send to the groups. A single one is told by
/// the stream.
pub(super) async fn tell_each<T: Tables>(switch: &str, controllers: &str, tls: Option<&Arc<Tls>>, shared: &Shared<T>) {
    let mut tasks = JoinSet::new();
    if controllers_of(controllers).count() > 1 {
        for controller in controllers_of(controllers) {
            let leader = ToLeader::new(controller, tls.cloned(), PATIENCE);
            tasks.spawn(tell(switch.to_owned(), leader, shared.groups(), shared.subscriptions()));
        }
    }
    while tasks.join_next().await.is_some() {}
}

async fn tell(
    switch: String,
    mut controller: ToLeader,
    groups: Arc<Groups>,
    mut said: watch::Receiver<v1::Subscriptions>,
) {
    let mut wants_to_know = false;
    loop {
        let subscriptions = said.borrow_and_update().clone();
        // A switch that does not hear its hosts says so, and not that they want nothing.
        let subscriptions = groups.subscriptions().map(|_| subscriptions);
        let request = v1::SeeSubscriptionsRequest { switch: switch.clone(), subscriptions, process: process() };
        let ask = |mut client: Client| {
            let request = request.clone();
            async move { client.see_subscriptions(request).await.is_ok() }
        };
        // Where multicasts are for all, nobody wants to know; but when that begins, what was said holds no more.
        wants_to_know |= groups.snooping().is_some();
        let is_told = !wants_to_know || controller.ask(ask).await;
        tokio::select! {
            changed = said.changed() => if changed.is_err() { return },
            () = pause(if is_told { REFRESH } else { PAUSE }) => {}
        }
        if !is_told {
            pause(PAUSE).await;
        }
    }
}

#[expect(clippy::disallowed_methods, reason = "the time itself is what is waited for")]
async fn pause(time: Duration) {
    tokio::time::sleep(time).await;
}

#[cfg(test)]
mod tests {
    use super::*;
    use dataplane::assembly::{Settings, build};
    use dataplane::table::EmptyTable;
    use lookup::testkit::{Rng, seed};

    #[test]
    fn what_a_controller_says_is_taken_as_far_as_it_makes_sense() {
        let groups = Groups::new(None);
        let name = |i: u8| vec![2, 0, 0, 0, 0, i].into();
        let group =
            |group: &[u8], names: &[u32]| v1::WantedGroup { group: group.to_vec().into(), names: names.to_vec() };
        let wanted = v1::Wanted {
            groups: vec![group(&[239, 0, 0, 1], &[1, 7]), group(&[0xff; 16], &[0, 1]), group(&[1, 2, 3], &[0])],
            of_all: vec![9],
        };
        let told = v1::Group { tenant: 7, names: vec![name(1), name(2), vec![1].into()], wanted: Some(wanted) };
        let snooping = v1::Snooping { query_interval_s: 0, floods_unknown: false, mdns_for_all: true };
        take(v1::Groups { groups: vec![told], snooping: Some(snooping), addresses: Vec::new() }, &groups);
        assert_eq!(groups.snooping().unwrap().timing, Timing::new(1));
        let (a, b) = ([2, 0, 0, 0, 0, 1], [2, 0, 0, 0, 0, 2]);
        let hears = |sender, group| groups.audience(sender, Some(group)).map(|names| names.to_vec());
        assert_eq!(hears(a, [239, 0, 0, 1].into()), Some(vec![b]));
        assert_eq!((hears(b, [239, 0, 0, 1].into()), hears(b, [0xff; 16].into())), (None, Some(vec![a, b])));
        take(v1::Groups::default(), &groups);
        assert!(groups.snooping().is_none() && groups.audience(a, None).is_none());
    }

    /// What changed, in any order, leads to the same places as a look at all names, and to ports that a name came to.
    #[test]
    fn names_that_changed_are_where_a_look_at_all_names_finds_them() {
        let mut rng = Rng::new(seed());
        let groups = Groups::new(None);
        let (_, _, mut writer) = build::<EmptyTable>(&Settings::default(), vec![]).unwrap();
        let mac = |i: u64| <Mac>::try_from(&i.to_be_bytes()[2..]).unwrap();
        let name = |i: u64| Name::from_bytes(NameKind::Mac, &mac(i)).unwrap();
        // The port 4 is a trunk's.
        let indices = HashMap::from([(PortId(1), 0), (PortId(2), 1), (PortId(3), 2)]);
        let (mut places, mut names_version, mut since) = (HashMap::new(), None, 0);
        let (mut changed, mut whole) = (0, 0);
        for _ in 0..400 {
            let local = writer.local();
            // Seldom more than are remembered; often there and back again.
            let n = if rng.below(40) == 0 { 1500 } else { rng.below(30) };
            for _ in 0..n {
                let i = rng.below(60);
                match rng.below(3) {
                    0 => local.remove(&name(i)),
                    _ => local.put(name(i), PortId(rng.below(4) as u16 + 1)),
                }
            }
            if rng.below(30) == 0 {
                local.replace_with((0..rng.below(60)).map(|i| (name(i), PortId(rng.below(4) as u16 + 1))).collect());
            }
            if rng.below(20) == 0 {
                let from = rng.below(60);
                let names = (from..from + rng.below(60)).map(mac).collect();
                groups.tell(None, [Told { id: 7, names, wanted: None }]);
            }
            let before = places.clone();
            let are_others = names_version.replace(groups.names_version()) != Some(groups.names_version());
            let since_then = Some(std::mem::replace(&mut since, local.version())).filter(|_| !are_others);
            *(if since_then.is_some_and(|since| local.changed_since(since).is_some()) {
                &mut changed
            } else {
                &mut whole
            }) += 1;
            let look =
                Look { groups: &groups, local: &*local, indices: &indices, places: &mut places, came: BTreeSet::new() };
            let came = look.follow(since_then);

            let place = |i| Some((mac(i), *indices.get(&local.port_of(&name(i))?)?));
            let scan: HashMap<Mac, u8> = (0..120).filter_map(place).filter(|(mac, _)| groups.has(mac)).collect();
            assert_eq!(places, scan);
            let is_new = |(mac, index): &(&Mac, &u8)| before.get(*mac) != Some(*index);
            let must_come: BTreeSet<u8> = scan.iter().filter(is_new).map(|(_, index)| *index).collect();
            // One that came and went, or came back, may have been somewhere meanwhile.
            assert!(came.is_superset(&must_come), "{came:?} {must_come:?}");
        }
        assert!(changed > 100 && whole > 10, "{changed} {whole}");
    }

    #[test]
    fn a_port_is_asked_twice_when_it_begins_and_once_in_each_interval() {
        let (mut querier, start, timing) = (Querier::default(), Instant::now(), Timing::new(100));
        let at = |seconds| start + Duration::from_secs(seconds);
        querier.begin(3, start);
        let mut asked = |from: u64, to: u64| -> Vec<u64> {
            (from..to).filter(|second| querier.due(timing, at(*second)) == [3]).collect()
        };
        assert_eq!(asked(0, 350), [0, 25, 125, 225, 325]);
        querier.begin(3, at(350));
        querier.begin(4, at(390));
        assert_eq!(querier.due(timing, at(350)), [3]);
        assert_eq!(querier.due(timing, at(390)), [3, 4]);
        querier.end(3);
        assert!(querier.due(timing, at(415)) == [4] && querier.due(timing, at(514)).is_empty());

        (0..200).for_each(|port| querier.begin(port, at(1000)));
        assert_eq!(querier.due(timing, at(1000)).len(), PORTS_AT_ONCE);
        let n: usize = (0..10).map(|_| querier.due(timing, at(1001)).len()).sum();
        assert_eq!(n, 200 - PORTS_AT_ONCE, "all have their turn, and none twice");
    }

    #[test]
    fn that_reports_are_not_taken_is_said_once_in_a_while_for_each_port_and_reason() {
        let (mut refusals, start) = (Refusals::default(), Instant::now());
        let mut news = |refused: &[(u8, Why)], at| refusals.news(refused.to_vec(), start + Duration::from_secs(at));
        assert_eq!(news(&[(3, Why::Full), (3, Why::Often)], 0), [(3, Why::Full), (3, Why::Often)]);
        let n: usize = (0..599).map(|at| news(&[(3, Why::Full), (3, Why::Often)], at).len()).sum();
        assert_eq!((n, news(&[(4, Why::Full)], 599)), (0, vec![(4, Why::Full)]));
        assert_eq!(news(&[(3, Why::Full), (4, Why::Full)], 601), [(3, Why::Full)]);
    }

    #[test]
    fn a_question_for_a_group_is_repeated_once() {
        let (mut querier, start, timing) = (Querier::default(), Instant::now(), Timing::new(125));
        let ask = (3, "239.0.0.1".parse().unwrap());
        let mut due = |asks: &[(u8, IpAddr)], ms| {
            querier.due_for_groups(asks.to_vec(), timing, start + Duration::from_millis(ms)).len()
        };
        assert_eq!((due(&[ask], 0), due(&[], 900), due(&[], 1000), due(&[], 5000)), (1, 0, 1, 0));
    }
}
