//! The demo on a network that is wrong on purpose: a Linux bridge, which floods frames to unknown destinations.
//! It shows that the judge can fail a run, and that namespaces, hosts, prober and phases work without our switches.

use std::sync::atomic::AtomicBool;

use anyhow::Result;

use super::backend::{Control, Put, SetOnDrop, Stop, Tables};
use super::judge::{Judge, Phase};
use super::layout::{Layout, Mac};
use super::netns::{ip_batch, privileged};
use super::phases::Run;
use super::privileged::Namespaced;
use super::topology::Topology;
use super::wire::Wires;

/// A bridge learns by itself and needs no controller.
struct NoControl;

impl Control for NoControl {
    fn start_switches(&mut self, _: &Stop) -> Result<()> {
        Ok(())
    }
    fn put(&mut self, _: &[Put]) -> Result<()> {
        Ok(())
    }
    fn remove(&mut self, _: &[Mac]) -> Result<()> {
        Ok(())
    }
    fn drain(&mut self, _: usize, _: bool, _: &Stop) -> Result<Option<u32>> {
        Ok(None)
    }

    fn link_changed(&mut self, _: usize, _: bool, _: &Stop) -> Result<()> {
        Ok(())
    }
    fn wait_in_step(&mut self, _: &Stop) -> Result<()> {
        Ok(())
    }
    fn tables(&mut self) -> Result<Tables> {
        Ok(Tables::default())
    }
}

#[test]
fn a_flooding_bridge_delivers_everything_and_is_caught_misdelivering() {
    if let Err(reason) = privileged() {
        // Root has what it takes, or something is missing that root should have.
        assert!(!rustix::process::geteuid().is_root(), "{reason}");
        eprintln!("not run: {reason}");
        return;
    }
    let layout = Layout::new(Topology::choose("ring", Some(3)).unwrap(), 1);
    let wires = Wires::build(&layout, None, false).unwrap();
    for (index, host) in layout.hosts.iter().enumerate() {
        wires.set_address(index, host.ip).unwrap();
    }
    let edge = layout.ports.iter().flatten().filter(|port| !port.trunk);
    let script = edge.fold("link add bridge type bridge\nlink set bridge up\n".to_owned(), |script, port| {
        script + &format!("link set {} master bridge\n", port.device)
    });
    ip_batch(Some(&wires.fabric()), &script).unwrap();

    let judge = Judge::new((0..layout.n_stations()).map(|station| layout.station_name(station)).collect());
    let sniffers = wires.sniffers(&layout).unwrap();
    let backend = Namespaced::new(&layout, &wires).unwrap();
    let (stop, watched) = (AtomicBool::new(false), AtomicBool::new(false));
    let findings = std::thread::scope(|scope| {
        let watching = scope.spawn(|| sniffers.watch(&judge, &watched));
        let done = SetOnDrop(&watched);
        let run = Run {
            layout: &layout,
            backend: &backend,
            control: &mut NoControl,
            judge: &judge,
            stop: &stop,
            n_names: 100,
            seconds: 2.0,
            progress: &|_| {},
        };
        let findings = run.all();
        drop(done);
        watching.join().unwrap().unwrap();
        findings.unwrap()
    });
    assert_eq!(findings.pings.answered, 6);
    assert!(findings.tcp.unwrap().bytes > 0);
    assert!(findings.udp.unwrap().datagrams_received > 0);
    let counts = judge.counts(Phase::Churn);
    // The bridge is not told where a name is, so it floods most probes.
    assert!(counts.delivered > 0 && counts.misdelivered > 0, "{counts:?}");
    assert!(!judge.offences().is_empty());
}
