//! The daemon over real interfaces, without a controller: it serves a saved image, whatever becomes of its ports.

#[path = "../../dataplane/tests/common/mod.rs"]
mod common;

use api::config::Changes;
use common::frames::{arp, udp4};
use common::netns::{ip, open, open_af_xdp, receive, send, veth};
use common::*;
use dataplane::shim::INITIAL_HOPS;
use fib::action::PortId;
use fib::durable::Tenants;
use fib::name::{Name, NameKind};
use fib::network::{Network, Settings};
use fib::replica::{Limits, MemoryTables, Replica};
use fib::rib::Attachment;
use fib::topology::End;
use fibula_switch::daemon::config::Config;
use fibula_switch::daemon::saved::SavedImage;
use fibula_switch::daemon::{StartError, Switch};
use lookup::hash::SecretKey;
use netio::backend::af_packet::enable_gro;
use netio::testkit::in_namespace;
use serde_json::json;
use std::net::SocketAddr;
use std::path::Path;
use std::time::Instant;

/// A switch `s1` with these ports, and the image it had when it was last told anything: `here` is attached to its port 1,
/// `there` is behind its port 8.
struct Site {
    directory: tempfile::TempDir,
    toml: String,
}

impl Site {
    fn new(here: &Name, there: &Name, keys: &str, ports: &[(u16, &str, &str)]) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let mut toml = format!(
            "name = 's1'\ncontroller = 'http://127.0.0.1:1'\nstate_dir = '{}'\nstatus = '127.0.0.1:0'\n{keys}\n[links]\nhello_ms = 0\n",
            directory.path().display()
        );
        for (id, device, role) in ports {
            toml += &format!("[[port]]\nid = {id}\ndevice = '{device}'\nrole = '{role}'\n");
        }
        SavedImage::new(directory.path()).unwrap().write(&image(here, there)).unwrap();
        Self { directory, toml }
    }

    fn start(&self) -> Result<Daemon, StartError> {
        let path = self.directory.path().join("switch.toml");
        std::fs::write(&path, &self.toml).unwrap();
        let config = Config::load(Path::new(&path)).unwrap();
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let switch = runtime.block_on(Switch::start(config))?;
        let status = switch.status_address().unwrap().tcp().unwrap();
        Ok(Daemon { runtime, switch, status })
    }
}

fn image(here: &Name, there: &Name) -> Vec<u8> {
    image_with(here, there, None)
}

/// As [`image`]; `beyond` is behind port 9.
fn image_with(here: &Name, there: &Name, beyond: Option<&Name>) -> Vec<u8> {
    let settings = Settings { kind: here.kind(), max_names: 1000, ..Settings::new(7, SecretKey::from_seed(3)) };
    let mut network = Network::new(settings, 1).unwrap();
    let (s1, _) = network.add_switch("s1", Tenants::All).unwrap();
    let (s2, _) = network.add_switch("s2", Tenants::All).unwrap();
    let end = |node, port| End { node, port: PortId(port) };
    network.add_link(end(s1, TRUNK_8), end(s2, TRUNK_8), 1).unwrap();
    network.add_host_port(end(s1, HOST_1)).unwrap();
    network.add_host_port(end(s2, HOST_1)).unwrap();
    network.add_name(here, Attachment::new(s1, PortId(HOST_1))).unwrap();
    network.add_name(there, Attachment::new(s2, PortId(HOST_1))).unwrap();
    if let Some(beyond) = beyond {
        let (s3, _) = network.add_switch("s3", Tenants::All).unwrap();
        network.add_link(end(s1, TRUNK_9), end(s3, TRUNK_8), 1).unwrap();
        network.add_host_port(end(s3, HOST_1)).unwrap();
        network.add_name(beyond, Attachment::new(s3, PortId(HOST_1))).unwrap();
    }
    let mut replica = Replica::new(Limits::default(), MemoryTables::default());
    for message in network.attach(s1, &replica.report()).unwrap() {
        replica.apply(message).unwrap();
    }
    replica.save()
}

struct Daemon {
    runtime: tokio::runtime::Runtime,
    switch: Switch,
    status: SocketAddr,
}

impl Daemon {
    fn page(&self, path: &str) -> String {
        page(self.status, path)
    }

    fn json(&self) -> serde_json::Value {
        serde_json::from_str(&self.page("/status")).unwrap()
    }

    /// Asks `/status` until it satisfies.
    #[track_caller]
    fn wait(&self, what: &str, satisfied: impl Fn(&serde_json::Value) -> bool) {
        let began = Instant::now();
        loop {
            let status = self.json();
            if satisfied(&status) {
                return;
            }
            assert!(began.elapsed() < PATIENCE, "{what}: {status:#}");
            std::thread::yield_now();
        }
    }

    /// Has it take a changed configuration, as at SIGHUP.
    fn reload(&self, before: &str, now: &str) {
        let [before, now] = [before, now].map(|toml| Config::parse(toml).unwrap());
        let reload = async { self.switch.reload(&before, &now, &Changes::default()) };
        assert_eq!(self.runtime.block_on(reload), [""; 0]);
    }

    fn stop(self) {
        self.runtime.block_on(self.switch.stop());
    }
}

/// Runs `test` in a network namespace whose loopback interface is up.
fn with_interfaces(test: impl FnOnce() + Send) {
    in_namespace(|| {
        ip("link set lo up");
        test();
    });
}

const PORTS: &[(u16, &str, &str)] = &[(HOST_1, "sw-host", "host"), (TRUNK_8, "sw-trunk", "trunk")];

fn bytes_of(mac: &Name) -> [u8; 6] {
    mac.as_bytes().try_into().unwrap()
}

fn fixed(last: u8) -> Name {
    Name::from_bytes(NameKind::Fixed(6), &[9, 9, 9, 9, 9, last]).unwrap()
}

/// A frame with a name at byte 34.
fn with_field(name: &Name) -> Vec<u8> {
    let mut frame = ethernet(mac_bytes(70), mac_bytes(71), 0x9999, &[0; 50]);
    frame[34..40].copy_from_slice(name.as_bytes());
    frame
}

fn names_in_a_fixed_field_are_forwarded_by_a_switch_that_knows_where_it_is() {
    with_interfaces(|| {
        veth("sw-host", "host", 1500);
        veth("sw-trunk", "trunk", 1504);
        let (here, there) = (fixed(1), fixed(2));
        let daemon = Site::new(&here, &there, "fixed_offset = 34", PORTS).start().unwrap();
        let (mut host, mut trunk) = (open("host"), open("trunk"));
        send(&mut host, &with_field(&there));
        assert_eq!(receive(&mut trunk), with_shim(&with_field(&there), INITIAL_HOPS));
        send(&mut trunk, &with_shim(&with_field(&here), 5));
        assert_eq!(receive(&mut host), with_field(&here));
        send(&mut host, &with_field(&fixed(3)));
        daemon.wait("an alien in the field", |status| status["drops"]["alien"] == 1);
        let status = daemon.json();
        assert_eq!(status["name_kind"], "fixed:6");
        assert!(status["field_error"].is_null(), "{status:#}");
        assert_eq!(status["workers"], json!({"configured": 1, "running": 1}));
        // So small a table is in the near caches.
        let lookups = format!("{}, prefetch off, 2 in flight", lookup::base::processor::Kernel::get());
        assert_eq!(status["lookups"], lookups);
        daemon.stop();
    });
}

fn frames_come_through_af_xdp_where_that_can_be_and_else_through_packet_sockets() {
    with_interfaces(|| {
        veth("sw-host", "host", 1500);
        veth("sw-trunk", "trunk", 1504);
        let (here, there) = (fixed(1), fixed(2));
        let keys = "fixed_offset = 34\ndriver = 'af_xdp'";
        let daemon = Site::new(&here, &there, keys, PORTS).start().unwrap();
        let (mut host, mut trunk) = (open("host"), open("trunk"));
        send(&mut host, &with_field(&there));
        assert_eq!(receive(&mut trunk), with_shim(&with_field(&there), INITIAL_HOPS));
        send(&mut trunk, &with_shim(&with_field(&here), 5));
        assert_eq!(receive(&mut host), with_field(&here));
        let driver = |daemon: &Daemon, port: usize| daemon.json()["ports"][port]["driver"].as_str().unwrap().to_owned();
        assert!(driver(&daemon, 0).starts_with("af_xdp, ") && driver(&daemon, 1).starts_with("af_xdp, "));
        daemon.stop();
        // Its frames are too long for AF_XDP: that port alone takes packet sockets, and says why.
        ip("link set trunk mtu 9000");
        ip("link set sw-trunk mtu 9000");
        let daemon = Site::new(&here, &there, keys, PORTS).start().unwrap();
        assert!(driver(&daemon, 0).starts_with("af_xdp, "), "{}", driver(&daemon, 0));
        let trunk_driver = driver(&daemon, 1);
        assert!(trunk_driver.starts_with("af_packet, because af_xdp cannot be used: "), "{trunk_driver}");
        assert!(trunk_driver.contains("its MTU is 9000"), "{trunk_driver}");
        let (mut host, mut trunk) = (open("host"), open("trunk"));
        send(&mut host, &with_field(&there));
        assert_eq!(receive(&mut trunk), with_shim(&with_field(&there), INITIAL_HOPS));
        daemon.stop();
    });
}

fn a_port_that_comes_late_takes_af_xdp_if_it_can_and_else_packet_sockets() {
    with_interfaces(|| {
        veth("sw-host", "host", 1500);
        let (here, there) = (fixed(1), fixed(2));
        let queues = |n: u8| format!("mtu 1504 numtxqueues {n} numrxqueues {n}");
        for (n, expected) in
            [(2, "af_packet, because af_xdp cannot be used: sw-trunk: it has 2"), (1, "af_xdp, copied")]
        {
            let daemon = Site::new(&here, &there, "fixed_offset = 34\ndriver = 'af_xdp'", PORTS).start().unwrap();
            daemon.wait("one port is down", |status| status["ports"][1]["up"] == false);
            assert_eq!(daemon.json()["ports"][1]["driver"], "af_xdp");
            ip(&format!("link add sw-trunk {0} type veth peer name trunk {0}", queues(n)));
            ip("link set sw-trunk up");
            ip("link set trunk up");
            daemon.wait("it is up", |status| status["ports"][1]["up"] == true);
            let port = daemon.json()["ports"][1].clone();
            assert!(port["driver"].as_str().unwrap().starts_with(expected), "{port:#}");
            let (mut host, mut trunk) = (open("host"), open("trunk"));
            send(&mut host, &with_field(&there));
            assert_eq!(receive(&mut trunk), with_shim(&with_field(&there), INITIAL_HOPS));
            send(&mut trunk, &with_shim(&with_field(&here), 5));
            assert_eq!(receive(&mut host), with_field(&here));
            let counters = daemon.json()["ports"][1]["counters"].clone();
            // The kernel at the other end sends some of its own.
            assert!(counters["rx_frames"].as_u64() >= Some(1) && counters["tx_frames"] == 1, "{counters:#}");
            daemon.stop();
            ip("link del sw-trunk");
        }
    });
}

fn the_kernel_forwards_from_trunks_and_leaves_the_rest_to_the_workers() {
    with_interfaces(|| {
        veth("sw-host", "host", 1500);
        veth("sw-trunk", "trunk", 1504);
        veth("sw-trunk9", "trunk9", 1504);
        let (here, there, beyond) = (mac(1), mac(2), mac(3));
        let ports = [PORTS, &[(TRUNK_9, "sw-trunk9", "trunk")]].concat();
        let mut site = Site::new(&here, &there, "driver = 'xdp'", &ports);
        SavedImage::new(site.directory.path()).unwrap().write(&image_with(&here, &there, Some(&beyond))).unwrap();
        let daemon = site.start().unwrap();
        // A veth takes what the kernel sends there only if its other end has a program, too.
        let (mut trunk, mut trunk9) = (open_af_xdp("trunk"), open_af_xdp("trunk9"));
        let mut host = open("host");
        let kernel = |daemon: &Daemon| daemon.json()["kernel"].clone();
        assert!(kernel(&daemon)["error"].is_null(), "{}", kernel(&daemon));
        // It looks every second. At the other end of the host's port is neither a program nor GRO.
        daemon.wait("trunks take frames", |status| status["kernel"]["not_taking"] == json!([HOST_1]));
        let to = |name: &Name, hops: u8| with_shim(&ethernet(bytes_of(name), mac_bytes(70), 0x9999, &[0; 50]), hops);
        for (name, hops) in [(&beyond, 9), (&beyond, 2)] {
            send(&mut trunk, &to(name, hops));
            assert_eq!(receive(&mut trunk9), to(name, hops - 1));
        }
        send(&mut trunk9, &to(&there, 9));
        assert_eq!(receive(&mut trunk), to(&there, 8));
        assert_eq!(kernel(&daemon)["forwarded"], 3, "{}", kernel(&daemon));
        // To a host here, whose frames are checked exactly; from it; and what is dropped for a reason.
        send(&mut trunk, &to(&here, 9));
        assert_eq!(receive(&mut host)[..6], bytes_of(&here));
        let from_host = ethernet(bytes_of(&beyond), bytes_of(&here), 0x9999, &[0; 50]);
        send(&mut host, &from_host);
        assert_eq!(receive(&mut trunk9), with_shim(&from_host, INITIAL_HOPS));
        let mut group = to(&beyond, 9);
        group[0] |= 1;
        for frame in [to(&beyond, 1), group, ethernet(bytes_of(&beyond), mac_bytes(70), 0x9999, &[0; 50])] {
            send(&mut trunk, &frame);
        }
        send(&mut trunk9, &to(&beyond, 9));
        daemon.wait("each drop with its reason", |status| {
            ["hop_limit", "multicast", "no_shim", "input_port"].iter().all(|reason| status["drops"][reason] == 1)
        });
        let status = daemon.json();
        assert_eq!(status["kernel"]["forwarded"], 3, "{status:#}");
        assert_eq!(status["frames"]["received"], 9, "{status:#}");
        assert_eq!(status["frames"]["sent"], 5, "{status:#}");
        let port = |id: u16| status["ports"].as_array().unwrap().iter().find(|port| port["id"] == id).unwrap();
        let counts = [TRUNK_8, TRUNK_9].map(|id| ["rx_frames", "tx_frames"].map(|of| port(id)["counters"][of].clone()));
        assert_eq!(counts, [[6, 1], [2, 3]], "{status:#}");
        assert!(port(TRUNK_8)["driver"].as_str().unwrap().starts_with("xdp, "), "{status:#}");
        assert!(port(HOST_1)["driver"].as_str().unwrap().starts_with("xdp, "), "{status:#}");
        enable_gro("host").unwrap();
        daemon.wait("the host takes frames, too", |status| status["kernel"]["not_taking"] == json!([]));
        send(&mut trunk, &to(&here, 9));
        assert_eq!(receive(&mut host), ethernet(bytes_of(&here), mac_bytes(70), 0x9999, &[0; 50]));
        assert_eq!(kernel(&daemon)["forwarded"], 4, "{}", kernel(&daemon));
        daemon.stop();
        // With connection tracking the workers must see every frame, and the status says so.
        site.toml += "[flow]\n";
        let daemon = site.start().unwrap();
        let status = daemon.json();
        assert!(status["kernel"].is_null(), "{status:#}");
        let driver = status["ports"][1]["driver"].as_str().unwrap();
        assert!(driver.starts_with("af_xdp, ") && driver.contains("track connections"), "{driver}");
        daemon.stop();
    });
}

fn frames_come_through_dpdk_where_that_is_built_in() {
    let ports: &[(u16, &str, &str)] =
        &[(HOST_1, "net_af_packet1,iface=sw-host", "host"), (TRUNK_8, "net_af_packet8,iface=sw-trunk", "trunk")];
    let (here, there) = (fixed(1), fixed(2));
    let mut site = Site::new(&here, &there, "fixed_offset = 34\ndriver = 'dpdk'", ports);
    site.toml += "[dpdk]\neal = ['--no-huge', '-m', '128']\n";
    if !cfg!(feature = "dpdk") {
        let error = Config::parse(&site.toml).unwrap_err();
        assert!(error.contains("`make dpdk` builds one"), "{error}");
        return;
    }
    with_interfaces(|| {
        veth("sw-host", "host", 1500);
        let daemon = site.start().unwrap();
        // The trunk is not there yet.
        daemon.wait("the trunk is missed", |status| status["ports"][1]["up"] == false);
        veth("sw-trunk", "trunk", 1504);
        daemon.wait("the trunk is there", |status| status["ports"][1]["up"] == true);
        assert_eq!(daemon.json()["ports"][1]["driver"], "dpdk");
        let (mut host, mut trunk) = (open("host"), open("trunk"));
        send(&mut host, &with_field(&there));
        assert_eq!(receive(&mut trunk), with_shim(&with_field(&there), INITIAL_HOPS));
        send(&mut trunk, &with_shim(&with_field(&here), 5));
        assert_eq!(receive(&mut host), with_field(&here));
        ip("link set sw-host down");
        daemon.wait("the host's port is down", |status| status["ports"][0]["up"] == false);
        ip("link set sw-host up");
        daemon.wait("the host's port is up", |status| status["ports"][0]["up"] == true);
        let mut host = open("host");
        send(&mut host, &with_field(&there));
        assert_eq!(receive(&mut trunk), with_shim(&with_field(&there), INITIAL_HOPS));
        daemon.stop();
        // What EAL does not know is an error at the start that names it.
        site.toml = site.toml.replace("net_af_packet8", "net_no_such8");
        let Err(error) = site.start() else { panic!("it starts") };
        assert!(matches!(&error, StartError::Ports(_)) && error.to_string().contains("net_no_such8"), "{error}");
    });
}

fn a_switch_that_does_not_know_where_the_field_is_says_what_to_configure() {
    with_interfaces(|| {
        veth("sw-host", "host", 1500);
        veth("sw-trunk", "trunk", 1504);
        let daemon = Site::new(&fixed(1), &fixed(2), "", PORTS).start().unwrap();
        let mut host = open("host");
        send(&mut host, &with_field(&fixed(2)));
        daemon.wait("the drop is counted", |status| status["drops"]["no_field"] == 1);
        let status = daemon.json();
        let error = status["field_error"].as_str().unwrap();
        assert!(error.contains("fixed:6") && error.contains("fixed_offset"), "{error}");
        daemon.stop();

        let daemon = Site::new(&mac(5), &mac(6), "fixed_offset = 34", PORTS).start().unwrap();
        let mut trunk = open("trunk");
        send(&mut host, &between(5, 6));
        assert_eq!(receive(&mut trunk), with_shim(&between(5, 6), INITIAL_HOPS));
        let status = daemon.json();
        assert!(status["field_error"].as_str().unwrap().contains("fixed_offset = 34"), "{status:#}");
        daemon.stop();
    });
}

fn a_host_cannot_pose_as_another_and_the_drops_are_counted() {
    with_interfaces(|| {
        veth("sw-host", "host", 1500);
        veth("sw-trunk", "trunk", 1504);
        let daemon = Site::new(&mac(5), &mac(6), "", PORTS).start().unwrap();
        let (mut host, mut trunk) = (open("host"), open("trunk"));
        // As the victim's neighbour, and with an ARP reply that only the victim receives.
        send(&mut host, &between(7, 6));
        let mut reply = arp(2, (7, [10, 0, 0, 7]), [10, 0, 0, 6]);
        reply[..6].copy_from_slice(&mac_bytes(6));
        reply[6..12].copy_from_slice(&mac_bytes(5));
        send(&mut host, &reply);
        daemon.wait("both are counted", |status| {
            status["drops"]["source_mac"] == 1 && status["drops"]["source_arp"] == 1
        });
        let metrics = daemon.page("/metrics");
        assert!(metrics.contains("fibula_frames_dropped_total{reason=\"source_arp\"} 1"), "{metrics}");
        // The first that gets out is the host's own.
        send(&mut host, &between(5, 6));
        assert_eq!(receive(&mut trunk), with_shim(&between(5, 6), INITIAL_HOPS));
        let checks: Vec<_> =
            daemon.json()["ports"].as_array().unwrap().iter().map(|port| port["check_source"].clone()).collect();
        assert_eq!(checks, ["mac", "off"]);
        daemon.stop();

        let daemon = Site::new(&mac(5), &mac(6), "check_source = 'off'", PORTS).start().unwrap();
        send(&mut host, &between(7, 6));
        assert_eq!(receive(&mut trunk), with_shim(&between(7, 6), INITIAL_HOPS));
        daemon.stop();
    });
}

fn an_access_list_is_read_again_when_it_changes() {
    with_interfaces(|| {
        veth("sw-host", "host", 1500);
        veth("sw-trunk", "trunk", 1504);
        let mut site = Site::new(&mac(5), &mac(6), "", &PORTS[1..]);
        let list = site.directory.path().join("web.acl");
        let path = list.display();
        site.toml += &format!("[[port]]\nid = 1\ndevice = 'sw-host'\nrole = 'host'\nacl = '{path}'\n");
        // Nothing is let in by a list that is not there.
        let refused = Config::parse(&site.toml).unwrap_err();
        assert!(refused.contains(&format!("acl of port 1: cannot read {path}")), "{refused}");
        std::fs::write(&list, "deny udp to any port 53\npermit any\n").unwrap();
        let daemon = site.start().unwrap();
        let (mut host, mut trunk) = (open("host"), open("trunk"));
        let to = |port| {
            let mut frame = udp4(&[7; 40], port);
            frame[..6].copy_from_slice(&mac_bytes(6));
            frame[6..12].copy_from_slice(&mac_bytes(5));
            frame
        };
        send(&mut host, &to(53));
        send(&mut host, &to(54));
        assert_eq!(receive(&mut trunk), with_shim(&to(54), INITIAL_HOPS));
        let at_host = |status: &serde_json::Value| status["ports"][1]["acl"].clone();
        daemon.wait("both are counted", |status| status["drops"]["acl"] == 1);
        let acl = at_host(&daemon.json());
        assert_eq!((&acl["rules"], &acl["permitted"], &acl["denied"]), (&2.into(), &1.into(), &1.into()), "{acl}");

        std::fs::write(&list, "permit udp to any port 53\n").unwrap();
        daemon.wait("the changed list is used", |status| at_host(status)["rules"] == 1);
        send(&mut host, &to(54));
        send(&mut host, &to(53));
        assert_eq!(receive(&mut trunk), with_shim(&to(53), INITIAL_HOPS));

        std::fs::write(&list, "permit any\npermitt tcp\n").unwrap();
        daemon.wait("the wrong list is told", |status| {
            at_host(status)["error"].as_str().is_some_and(|error| error.contains("web.acl:2: `permitt`"))
        });
        send(&mut host, &to(54));
        send(&mut host, &to(53));
        assert_eq!(receive(&mut trunk), with_shim(&to(53), INITIAL_HOPS));
        let metrics = daemon.page("/metrics");
        for line in [
            "fibula_port_acl_rules{port=\"1\",device=\"sw-host\"} 1",
            "fibula_port_acl_failing{port=\"1\",device=\"sw-host\"} 1",
            "fibula_port_acl_denied_total{port=\"1\",device=\"sw-host\"} 3",
        ] {
            assert!(metrics.contains(line), "{metrics}");
        }
        daemon.stop();
    });
}

fn another_access_list_and_other_rules_of_flows_are_taken_while_frames_are_forwarded() {
    with_interfaces(|| {
        veth("sw-host", "host", 1500);
        veth("sw-trunk", "trunk", 1504);
        let mut site = Site::new(&mac(5), &mac(6), "", &PORTS[1..]);
        site.toml += "[[port]]\nid = 1\ndevice = 'sw-host'\nrole = 'host'\n";
        let at_port = |file: &str, rules: &str| {
            let list = site.directory.path().join(file);
            std::fs::write(&list, rules).unwrap();
            format!("acl = '{}'\n", list.display())
        };
        let (first, second) =
            (at_port("first", "permit udp to any port 53\n"), at_port("second", "permit udp to any port 54\n"));
        let rule = "action = 'accept'\nprotocol = 'udp'";
        let drops = "[flow]\n".to_owned();
        let accepts = format!("[flow]\n[[flow.rule]]\n{rule}\nports = '53-55'\n");
        // With neither list nor rule at the start.
        let mut before = format!("{}{drops}", site.toml);
        let plain = std::mem::replace(&mut site.toml, before.clone());
        let daemon = site.start().unwrap();
        let (mut host, mut trunk) = (open("host"), open("trunk"));
        let to = |port| {
            let mut frame = udp4(&[7; 40], port);
            frame[..6].copy_from_slice(&mac_bytes(6));
            frame[6..12].copy_from_slice(&mac_bytes(5));
            frame
        };
        let (mut refused, mut denied) = (0, 0);
        // The list, what passes of the ports from 53 to 56, and what keeps each of the others out.
        for (list, flow, passes) in [
            ("", &drops, &[][..]),
            ("", &accepts, &[53, 54, 55]),
            (&first[..], &accepts, &[53]),
            (&second, &accepts, &[54]),
            ("", &accepts, &[53, 54, 55]),
            (&second, &drops, &[54]),
        ] {
            let now = format!("{plain}{list}{flow}");
            daemon.reload(&before, &now);
            before = now;
            for port in 53..=56 {
                let judged = match list {
                    "" => true,
                    list if list == first => port == 53,
                    _ => port == 54,
                };
                send(&mut host, &to(port));
                if passes.contains(&port) {
                    assert_eq!(receive(&mut trunk), with_shim(&to(port), INITIAL_HOPS), "{list} {flow}");
                } else if judged {
                    refused += 1;
                } else {
                    denied += 1;
                }
                daemon.wait("it is counted", |status| {
                    // A reason for which nothing was dropped is not there.
                    let dropped = |reason: &str| status["drops"][reason].as_u64().unwrap_or(0);
                    [dropped("flow_refused"), dropped("acl")] == [refused, denied]
                });
            }
            assert_eq!(daemon.json()["ports"][1]["acl"].is_null(), list.is_empty());
        }
        // A flow that was accepted goes on whatever the rules say now: the last round let it pass.
        daemon.stop();
    });
}

fn a_switch_starts_without_its_ports_and_takes_them_when_they_come() {
    with_interfaces(|| {
        for workers in [1, 2] {
            veth("sw-host", "host", 1500);
            let daemon = Site::new(&mac(5), &mac(6), &format!("workers = {workers}"), PORTS).start().unwrap();
            // By every worker.
            let faults = |status: &serde_json::Value| status["ports"][1]["counters"]["faults"] == workers;
            daemon.wait("the missing port is found missing", |status| {
                status["ports"][1]["up"] == false && faults(status)
            });
            let status = daemon.json();
            assert_eq!(status["ports"][0]["up"], true);
            assert!(faults(&status), "once: {status:#}");
            let error = status["ports"][1]["last_error"].as_str().unwrap();
            assert!(error.contains("no network interface sw-trunk"), "{error}");
            let metrics = daemon.page("/metrics");
            assert!(metrics.contains("fibula_port_up{port=\"8\",device=\"sw-trunk\"} 0"), "{metrics}");
            assert!(metrics.contains("fibula_port_up{port=\"1\",device=\"sw-host\"} 1"), "{metrics}");
            let mut host = open("host");
            send(&mut host, &between(5, 6));
            daemon.wait("a frame to the missing port is counted", |status| status["drops"]["port_down"] == 1);

            veth("sw-trunk", "trunk", 1504);
            daemon.wait("the port comes up", |status| status["ports"][1]["up"] == true);
            let mut trunk = open("trunk");
            send(&mut host, &between(5, 6));
            assert_eq!(receive(&mut trunk), with_shim(&between(5, 6), INITIAL_HOPS));
            send(&mut trunk, &with_shim(&to_mac(5), 9));
            assert_eq!(receive(&mut host), to_mac(5));
            daemon.stop();
            ip("link del sw-host");
            ip("link del sw-trunk");
        }
    });
}

fn a_port_whose_device_is_deleted_and_made_again_is_used_again() {
    with_interfaces(|| {
        veth("sw-host", "host", 1500);
        veth("sw-trunk", "trunk", 1504);
        let daemon = Site::new(&mac(5), &mac(6), "workers = 2", PORTS).start().unwrap();
        let mut host = open("host");
        for round in 1..=2 {
            let mut trunk = open("trunk");
            send(&mut host, &between(5, 6));
            assert_eq!(receive(&mut trunk), with_shim(&between(5, 6), INITIAL_HOPS));
            ip("link del sw-trunk");
            // By both workers: one that has not looked yet holds the old device.
            let faults = |status: &serde_json::Value| status["ports"][1]["counters"]["faults"].as_u64().unwrap();
            daemon.wait("the port is found gone", |status| {
                status["ports"][1]["up"] == false && faults(status) >= 2 * round
            });
            send(&mut host, &between(5, 6));
            daemon.wait("the frame is counted", |status| status["drops"]["port_down"] == round);
            veth("sw-trunk", "trunk", 1504);
            daemon.wait("the port comes back", |status| status["ports"][1]["up"] == true);
        }
        let mut trunk = open("trunk");
        send(&mut trunk, &with_shim(&to_mac(5), 9));
        assert_eq!(receive(&mut host), to_mac(5));
        daemon.stop();
    });
}

fn a_port_that_is_there_but_down_comes_up_with_its_device() {
    with_interfaces(|| {
        veth("sw-host", "host", 1500);
        veth("sw-trunk", "trunk", 1504);
        ip("link set sw-trunk down");
        let daemon = Site::new(&mac(5), &mac(6), "", PORTS).start().unwrap();
        daemon.wait("the port is found down", |status| status["ports"][1]["up"] == false);
        assert!(daemon.json()["ports"][1]["last_error"].as_str().unwrap().contains("ip link set sw-trunk up"));
        ip("link set sw-trunk up");
        daemon.wait("the port comes up", |status| status["ports"][1]["up"] == true);
        let (mut host, mut trunk) = (open("host"), open("trunk"));
        send(&mut host, &between(5, 6));
        assert_eq!(receive(&mut trunk), with_shim(&between(5, 6), INITIAL_HOPS));
        daemon.stop();
    });
}

fn a_port_that_cannot_be_opened_as_it_is_is_tried_less_and_less_often_and_used_once_it_can() {
    with_interfaces(|| {
        veth("sw-host", "host", 1500);
        veth("sw-trunk", "trunk", 1504);
        let daemon = Site::new(&mac(5), &mac(6), "driver = 'af_xdp'", PORTS).start().unwrap();
        let port = || daemon.json()["ports"][1].clone();
        assert!(port()["driver"].as_str().unwrap().starts_with("af_xdp"), "{:#}", port());
        assert_eq!((&port()["failures"], &port()["retry_seconds"]), (&0.into(), &serde_json::Value::Null));
        ip("link del sw-trunk");
        // Two receive queues, and one worker.
        ip(
            "link add sw-trunk mtu 1504 numtxqueues 2 numrxqueues 2 type veth peer name trunk mtu 1504 numtxqueues 2 numrxqueues 2",
        );
        ip("link set sw-trunk up");
        ip("link set trunk up");
        daemon.wait("it is tried less often", |status| status["ports"][1]["retry_seconds"] == 4);
        let error = port()["last_error"].as_str().unwrap().to_owned();
        assert!(error.contains("it has 2 receive queues"), "{error}");
        assert!(port()["up"] == false && port()["failures"].as_u64().unwrap() >= 3, "{:#}", port());
        let metrics = daemon.page("/metrics");
        assert!(metrics.contains("fibula_port_up{port=\"8\",device=\"sw-trunk\"} 0"), "{metrics}");

        ip("link del sw-trunk");
        veth("sw-trunk", "trunk", 1504);
        daemon.wait("the port comes back", |status| status["ports"][1]["up"] == true);
        assert!(port()["retry_seconds"].is_null(), "{:#}", port());
        let (mut host, mut trunk) = (open_af_xdp("host"), open_af_xdp("trunk"));
        send(&mut host, &between(5, 6));
        assert_eq!(receive(&mut trunk), with_shim(&between(5, 6), INITIAL_HOPS));
        daemon.stop();
    });
}

netio::tests! {
    namespaces: [
        names_in_a_fixed_field_are_forwarded_by_a_switch_that_knows_where_it_is,
        frames_come_through_af_xdp_where_that_can_be_and_else_through_packet_sockets,
        a_port_that_comes_late_takes_af_xdp_if_it_can_and_else_packet_sockets,
        the_kernel_forwards_from_trunks_and_leaves_the_rest_to_the_workers,
        frames_come_through_dpdk_where_that_is_built_in,
        a_switch_that_does_not_know_where_the_field_is_says_what_to_configure,
        a_host_cannot_pose_as_another_and_the_drops_are_counted,
        an_access_list_is_read_again_when_it_changes,
        another_access_list_and_other_rules_of_flows_are_taken_while_frames_are_forwarded,
        a_switch_starts_without_its_ports_and_takes_them_when_they_come,
        a_port_whose_device_is_deleted_and_made_again_is_used_again,
        a_port_that_is_there_but_down_comes_up_with_its_device,
        a_port_that_cannot_be_opened_as_it_is_is_tried_less_and_less_often_and_used_once_it_can,
    ],
    anywhere: []
}
