//! The device of a bundle, over cables in memory.

use super::device::BundleDevice;
use super::pdu::{End, GROUP, State};
use super::*;
use netio::backend::loopback::{self, Loopback};
use netio::{Burst, Device, NetError, Pool, Readiness};
use std::collections::BTreeMap;

const SYSTEM: [u8; 6] = [2, 0, 0, 0, 0, 1];

/// For this many bursts, frames have waited for this process.
struct Waited(Loopback, u32);

impl Device for Waited {
    fn name(&self) -> &str {
        self.0.name()
    }

    fn max_frame(&self) -> usize {
        self.0.max_frame()
    }

    fn rx_burst(&mut self, pool: &mut Pool, out: &mut Burst) -> Result<usize, NetError> {
        let n = self.0.rx_burst(pool, out)?;
        self.1 = self.1.saturating_sub(1);
        Ok(n)
    }

    fn tx_burst(&mut self, pool: &mut Pool, frames: &mut Burst) -> Result<usize, NetError> {
        self.0.tx_burst(pool, frames)
    }

    fn readiness(&mut self) -> Readiness<'_> {
        self.0.readiness()
    }

    fn has_waited(&self) -> bool {
        self.1 > 0
    }

    fn counters(&self) -> Arc<DeviceCounters> {
        self.0.counters()
    }
}

struct Rig {
    bundle: Arc<Bundle>,
    device: BundleDevice,
    far: Vec<Loopback>,
    pool: Pool,
}

impl Rig {
    fn new(n: usize, role: Role, system: Option<[u8; 6]>) -> Self {
        Self::of(n, role, system, |near| Box::new(near))
    }

    fn of(n: usize, role: Role, system: Option<[u8; 6]>, device: fn(Loopback) -> Box<dyn Device>) -> Self {
        let name = |i: usize| format!("eth{i}");
        let (near, far): (Vec<_>, Vec<_>) =
            (0..n).map(|i| loopback::pair(&name(i), "far", &loopback::Settings::default()).unwrap()).unzip();
        let devices = near.iter().enumerate().map(|(i, near)| (name(i), vec![near.counters()])).collect();
        let bundle = Arc::new(Bundle::new(PortId(3), role, system, devices, Arc::default()));
        let near = near.into_iter().map(device).collect();
        let device = BundleDevice::new(Arc::clone(&bundle), 0, near).unwrap();
        Self { bundle, device, far, pool: Pool::new(512, 2048) }
    }

    /// Sends a frame, and returns the member that it leaves by.
    fn exit_of(&mut self, frame: &[u8]) -> Option<usize> {
        let mut packet = self.pool.take().unwrap();
        packet.fill(frame).unwrap();
        let mut burst = Burst::from_iter([packet]);
        let sent = self.device.tx_burst(&mut self.pool, &mut burst).unwrap();
        assert_eq!(sent + burst.len(), 1);
        self.pool.put_all(&mut burst);
        let mut came = (0..self.far.len()).filter(|i| {
            let n = self.far[*i].rx_burst(&mut self.pool, &mut burst).unwrap();
            self.pool.put_all(&mut burst);
            n > 0
        });
        let (exit, more) = (came.next(), came.next());
        assert_eq!((exit.is_some(), more), (sent == 1, None));
        exit
    }

    /// Receives a frame at a member, and returns what the worker gets of it.
    fn enter(&mut self, place: usize, frame: &[u8]) -> Option<Vec<u8>> {
        let mut packet = self.pool.take().unwrap();
        packet.fill(frame).unwrap();
        let mut burst = Burst::from_iter([packet]);
        assert_eq!(self.far[place].tx_burst(&mut self.pool, &mut burst).unwrap(), 1);
        let mut came = Burst::new();
        let n = self.device.rx_burst(&mut self.pool, &mut came).unwrap();
        assert_eq!(n, came.len());
        let frame = came.first().map(|packet| packet.frame().to_vec());
        self.pool.put_all(&mut came);
        frame
    }

    fn counts(&self, place: usize) -> Counts {
        self.bundle.status()[place].counts
    }
}

fn frame(flow: u16) -> Vec<u8> {
    let mut frame = vec![2, 0, 0, 0, 0, 5, 2, 0, 0, 0, 0, 6, 8, 0, 0x45, 0, 0, 28, 0, 0, 0, 0, 64, 17, 0, 0];
    frame.extend([10, 0, 0, 1, 10, 0, 0, 2]);
    frame.extend(flow.to_be_bytes());
    frame.extend([0, 9, 0, 8, 0, 0]);
    frame.resize(60, 0);
    frame
}

fn pdu() -> Vec<u8> {
    let actor = End { system: [2, 7, 7, 7, 7, 7], state: State(0x3f), ..End::default() };
    Pdu { actor, partner: End::default() }.encode()
}

#[test]
fn a_flow_keeps_its_member_while_that_is_there_and_has_it_again_afterwards() {
    let mut rig = Rig::new(4, Role::Host, Some(SYSTEM));
    assert_eq!((rig.exit_of(&frame(1)), rig.device.leads_on()), (None, false), "LACP lets none");
    let exits = |rig: &mut Rig, distributes: u32| -> Vec<Option<usize>> {
        rig.bundle.set(0b1111, distributes);
        (0..400).map(|flow| rig.exit_of(&frame(flow))).collect()
    };
    let all = exits(&mut rig, 0b1111);
    let mut shares = BTreeMap::new();
    all.iter().flatten().for_each(|exit| *shares.entry(*exit).or_insert(0) += 1);
    // A quarter of 400, and five standard deviations of 11.6: slots fall to members by chance (7.7), and flows to slots (8.7).
    assert!(shares.len() == 4 && shares.values().all(|n| (42..=158).contains(n)), "{shares:?}");
    let fewer = exits(&mut rig, 0b1011);
    for (all, fewer) in all.iter().zip(&fewer) {
        assert!(if *all == Some(2) { *fewer != *all } else { fewer == all }, "{all:?} {fewer:?}");
    }
    assert_eq!(exits(&mut rig, 0b1111), all);
    assert!(exits(&mut rig, 0b0010).iter().all(|exit| *exit == Some(1)));
    assert!(exits(&mut rig, 0).iter().all(Option::is_none) && !rig.device.leads_on());
}

#[test]
fn a_member_that_fails_loses_no_frame_to_the_others() {
    let mut rig = Rig::new(3, Role::Host, None);
    let exits: Vec<_> = (0..200).map(|flow| rig.exit_of(&frame(flow))).collect();
    // The other end is dropped: the device is closed.
    rig.far.remove(1);
    for (flow, before) in (0..200).zip(exits) {
        let now = rig.exit_of(&frame(flow)).expect("another member sends it");
        // Places behind the one that was removed are one less.
        let now = if now == 0 { 0 } else { 2 };
        assert!(before == Some(1) || before == Some(now), "flow {flow}: {before:?}, then {now}");
    }
    assert!(!rig.device.is_told(), "it is tried again");
    let status = rig.bundle.status();
    assert_eq!((status[1].told.state, status[1].distributes), ("failed", false));
    assert!(status[1].error.is_some() && status[0].error.is_none(), "{status:?}");
    // With the last one the port fails.
    let mut burst = Burst::new();
    assert_eq!(rig.device.rx_burst(&mut rig.pool, &mut burst).unwrap(), 0);
    rig.far.clear();
    assert!(rig.device.rx_burst(&mut rig.pool, &mut burst).unwrap_err().is_transient());
    assert_eq!(rig.exit_of(&frame(1)), None);
}

#[test]
fn what_lacp_says_is_for_the_keeper_and_a_flood_of_it_is_bounded_and_counted() {
    let mut rig = Rig::new(2, Role::Host, Some(SYSTEM));
    rig.bundle.set(0b01, 0b01);
    for _ in 0..100 {
        assert_eq!(rig.enter(0, &pdu()), None);
    }
    assert_eq!(rig.enter(1, &pdu()), None);
    let heard = rig.bundle.take_heard();
    assert_eq!(heard.iter().filter(|(place, _)| *place == 0).count(), MOST_WAITING);
    assert_eq!(heard.iter().filter(|(place, _)| *place == 1).count(), 1, "another member has its own share");
    assert_eq!((rig.counts(0).heard, rig.counts(0).flooded), (100, 100 - MOST_WAITING as u64));

    let mut malformed = pdu();
    malformed[17] = 19;
    assert_eq!(rig.enter(0, &malformed), None);
    assert!(matches!(rig.bundle.take_heard()[..], [(0, Heard::Malformed(_))]));
    assert_eq!(rig.counts(0).malformed, 1);

    // Frames: taken at one member, not at the other.
    assert_eq!(rig.enter(0, &frame(1)), Some(frame(1)));
    assert_eq!((rig.enter(1, &frame(1)), rig.counts(1).not_taken), (None, 1));
    assert_eq!(rig.pool.available(), 512, "no packet is lost");
}

#[test]
fn without_lacp_what_it_says_is_a_multicast_as_elsewhere_and_hellos_are_for_trunks() {
    let mut rig = Rig::new(2, Role::Host, None);
    assert_eq!(rig.enter(0, &pdu()), Some(pdu()));
    let hello = Hello {
        switch: "s2".to_owned(),
        port: PortId(1),
        session: 5,
        hears: None,
        cluster: 0,
        interval_ms: 100,
        multiplier: 3,
    };
    assert_eq!(rig.enter(0, &hello.encode()), Some(hello.encode()));
    let mut rig = Rig::new(2, Role::Trunk, None);
    assert_eq!(rig.enter(1, &hello.encode()), None);
    assert_eq!(rig.bundle.take_heard(), [(1, Heard::Hello(hello))]);
}

#[test]
fn what_the_keeper_says_leaves_by_its_member_and_old_words_are_forgotten() {
    let mut rig = Rig::new(2, Role::Host, Some(SYSTEM));
    let said = |i: u8| (1, [&GROUP[..], &[2; 8], &[i; 50]].concat());
    rig.bundle.send((0..40).map(said));
    let mut burst = Burst::new();
    assert_eq!(rig.device.rx_burst(&mut rig.pool, &mut burst).unwrap(), 0);
    assert_eq!(rig.far[0].rx_burst(&mut rig.pool, &mut burst).unwrap(), 0);
    let n = rig.far[1].rx_burst(&mut rig.pool, &mut burst).unwrap();
    assert_eq!((n, burst[0].frame()[20]), (2 * MOST_WAITING, 40 - 2 * MOST_WAITING as u8));
    assert!(!rig.bundle.is_sending());
    assert!(matches!(rig.device.readiness(), Readiness::Descriptor(_)));
}

#[test]
fn what_waited_for_this_process_is_taken_and_says_nothing_of_now() {
    let mut rig = Rig::of(2, Role::Host, Some(SYSTEM), |near| Box::new(Waited(near, 9)));
    assert_eq!(rig.enter(0, &frame(1)), Some(frame(1)), "the switch before took it");
    assert_eq!(rig.enter(0, &pdu()), None);
    assert_eq!(rig.bundle.take_heard(), []);
}

#[test]
fn a_bundle_has_waited_until_all_its_members_have_not() {
    let mut rig = Rig::of(2, Role::Host, None, |near| {
        let n_bursts = if near.name() == "eth0" { 1 } else { 4 };
        Box::new(Waited(near, n_bursts))
    });
    assert_eq!(rig.enter(0, &frame(1)), Some(frame(1)));
    assert!(rig.device.has_waited(), "the other has not said no yet");
    let mut burst = Burst::new();
    (0..4).for_each(|_| _ = rig.device.rx_burst(&mut rig.pool, &mut burst).unwrap());
    assert!(!rig.device.has_waited());
}

#[test]
fn a_flood_is_bounded_in_a_second_however_often_the_keeper_looks() {
    let mut rig = Rig::new(1, Role::Host, Some(SYSTEM));
    let mut n = 0;
    for _ in 0..200 {
        rig.enter(0, &pdu());
        n += rig.bundle.take_heard().len();
    }
    // As many at once, and what is earned meanwhile.
    assert!((16..100).contains(&n), "{n}");
    assert_eq!(rig.counts(0).flooded, 200 - n as u64);
}
