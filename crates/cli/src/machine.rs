//! What this machine offers to daemons: interfaces, capabilities, kernel, huge pages, disk space. Read from `/proc` and
//! `/sys` at each call.

use std::collections::HashSet;
use std::fs;
use std::io;
use std::path::Path;

/// Capabilities that daemons use: bit and name.
pub(crate) const NET_ADMIN: Capability = Capability(12, "CAP_NET_ADMIN");
pub(crate) const NET_RAW: Capability = Capability(13, "CAP_NET_RAW");
pub(crate) const PERFMON: Capability = Capability(38, "CAP_PERFMON");
pub(crate) const BPF: Capability = Capability(39, "CAP_BPF");

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Capability(u8, pub(crate) &'static str);

/// The capabilities of `wanted` that this process lacks.
pub(crate) fn lacking(wanted: &[Capability]) -> Vec<&'static str> {
    let has = effective(&fs::read_to_string("/proc/self/status").unwrap_or_default());
    wanted.iter().filter(|Capability(bit, _)| has >> bit & 1 == 0).map(|&Capability(_, name)| name).collect()
}

fn effective(status: &str) -> u64 {
    let line = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
    line.and_then(|text| u64::from_str_radix(text.trim(), 16).ok()).unwrap_or(0)
}

/// The host name up to its first dot.
pub(crate) fn host_name() -> Option<String> {
    let name = fs::read_to_string("/proc/sys/kernel/hostname").ok()?;
    Some(name.trim().split('.').next()?.to_owned()).filter(|name| !name.is_empty())
}

/// A user of this machine, from `/etc/passwd` and `/etc/group`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct User {
    pub(crate) name: String,
    pub(crate) uid: u32,
    pub(crate) gid: u32,
    /// The other groups that it is a member of.
    pub(crate) groups: Vec<u32>,
}

impl User {
    /// The first user whose fields satisfy `is_it`.
    pub(crate) fn of(is_it: impl Fn(&[&str]) -> bool) -> Option<Self> {
        let read = |path| fs::read_to_string(path).unwrap_or_default();
        Self::find(is_it, &read("/etc/passwd"), &read("/etc/group"))
    }

    fn find(is_it: impl Fn(&[&str]) -> bool, passwd: &str, group: &str) -> Option<Self> {
        let users = passwd.lines().map(|line| line.split(':').collect::<Vec<_>>());
        let fields = users.filter(|fields| fields.len() > 3).find(|fields| is_it(fields))?;
        let (name, uid, gid) = (fields[0].to_owned(), fields[2].parse().ok()?, fields[3].parse().ok()?);
        let member = |line: &str| {
            let fields: Vec<&str> = line.split(':').collect();
            let [_, _, gid, members] = fields[..] else { return None };
            members.split(',').any(|member| member == name).then(|| gid.parse().ok())?
        };
        let groups = group.lines().filter_map(member).collect();
        Some(Self { name, uid, gid, groups })
    }
}

/// The kernel's version as (6, 1), and in full.
pub(crate) fn kernel() -> ((u32, u32), String) {
    let release = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default().trim().to_owned();
    (version(&release), release)
}

fn version(release: &str) -> (u32, u32) {
    let mut numbers = release.split(|c: char| !c.is_ascii_digit()).map(|digits| digits.parse().unwrap_or(0));
    (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0))
}

/// The policy of transparent huge pages: `always`, `madvise` or `never`; none if the kernel has no huge pages.
pub(crate) fn huge_pages() -> Option<String> {
    chosen(&fs::read_to_string("/sys/kernel/mm/transparent_hugepage/enabled").ok()?)
}

/// The word in brackets.
fn chosen(text: &str) -> Option<String> {
    Some(text.split_once('[')?.1.split_once(']')?.0.to_owned())
}

/// The service that synchronises the clock of this machine, if its files show one.
pub(crate) fn keeps_clock() -> Option<&'static str> {
    let signs = [
        ("/run/systemd/timesync/synchronized", "systemd-timesyncd"),
        ("/run/chrony/chronyd.pid", "chronyd"),
        ("/run/ntpd.pid", "ntpd"),
        ("/run/openntpd.sock", "openntpd"),
    ];
    signs.into_iter().find(|(path, _)| Path::new(path).exists()).map(|(_, keeper)| keeper)
}

/// Free bytes and total bytes of the file system of `path`, or of its nearest existing parent.
/// # Errors
/// Those of the system.
pub(crate) fn room(path: &Path) -> io::Result<(u64, u64)> {
    let there = path.ancestors().find(|path| path.exists()).unwrap_or(Path::new("/"));
    let room = rustix::fs::statvfs(there)?;
    Ok((room.f_bavail * room.f_frsize, room.f_blocks * room.f_frsize))
}

/// A network interface.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Interface {
    pub(crate) name: String,
    /// The kernel's index of it.
    pub(crate) index: u32,
    pub(crate) mtu: u32,
    /// Whether it is set up (`ip link set NAME up`).
    pub(crate) is_up: bool,
    pub(crate) has_carrier: bool,
    pub(crate) receive_queues: usize,
    /// Whether a route of this machine leads out of it.
    pub(crate) has_routes: bool,
    /// Whether it carries Ethernet: not loopback, and not a tunnel without Ethernet.
    pub(crate) is_ethernet: bool,
    /// Whether it is a kernel bridge.
    pub(crate) is_bridge: bool,
    /// The interface that it is a part of, which receives its frames.
    pub(crate) master: Option<Master>,
}

/// An interface that others are parts of.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Master {
    pub(crate) name: String,
    /// Its kind, with the article.
    pub(crate) kind: &'static str,
}

impl Master {
    fn of(directory: &Path) -> Option<Self> {
        let name = fs::read_link(directory.join("master")).ok()?.file_name()?.to_str()?.to_owned();
        let has = |what: &str| directory.join("master").join(what).exists();
        let kind = match name.as_str() {
            _ if has("bridge") => "the bridge",
            _ if has("bonding") => "the bond",
            "ovs-system" => "a bridge of Open vSwitch,",
            _ => "the team or VRF",
        };
        Some(Self { name, kind })
    }
}

impl Interface {
    /// Whether it can be a port.
    pub(crate) fn is_free(&self) -> bool {
        self.is_ethernet && !self.is_bridge && self.master.is_none()
    }
}

/// All interfaces, by name.
pub(crate) fn interfaces() -> Vec<Interface> {
    let entries = fs::read_dir("/sys/class/net").into_iter().flatten().flatten();
    let names = entries.filter_map(|entry| entry.file_name().into_string().ok());
    let mut found: Vec<Interface> = names.filter_map(|name| interface(&name)).collect();
    found.sort_by(|one, other| one.name.cmp(&other.name));
    found
}

/// The interface with this name.
pub(crate) fn interface(name: &str) -> Option<Interface> {
    let directory = Path::new("/sys/class/net").join(name);
    let read = |file: &str| fs::read_to_string(directory.join(file)).map(|text| text.trim().to_owned());
    let flags = u32::from_str_radix(read("flags").ok()?.trim_start_matches("0x"), 16).ok()?;
    let queues = fs::read_dir(directory.join("queues")).into_iter().flatten().flatten();
    Some(Interface {
        name: name.to_owned(),
        index: read("ifindex").ok()?.parse().ok()?,
        mtu: read("mtu").ok()?.parse().ok()?,
        is_up: flags & 1 != 0,
        has_carrier: read("carrier").is_ok_and(|carrier| carrier == "1"),
        receive_queues: queues.filter(|queue| queue.file_name().to_string_lossy().starts_with("rx-")).count(),
        has_routes: routed(&fs::read_to_string("/proc/net/route").unwrap_or_default()).contains(name)
            || routed_by_gateways(&fs::read_to_string("/proc/net/ipv6_route").unwrap_or_default()).contains(name),
        // ARPHRD_ETHER; loopback has a number of its own.
        is_ethernet: read("type").is_ok_and(|kind| kind == "1"),
        is_bridge: directory.join("bridge").exists(),
        master: Master::of(&directory),
    })
}

/// The addresses of an interface in the notation of `ip address`.
pub(crate) fn addresses(interface: &Interface) -> Vec<String> {
    let found = netio::addresses::addresses_of(interface.index).unwrap_or_default();
    found.into_iter().map(|(ip, prefix)| format!("{ip}/{prefix}")).collect()
}

/// The inodes of packet sockets bound to an interface, as far as the kernel shows them.
pub(crate) fn packet_sockets(interface: &Interface) -> Vec<u64> {
    bound_to(&fs::read_to_string("/proc/net/packet").unwrap_or_default(), interface.index)
}

fn bound_to(table: &str, ifindex: u32) -> Vec<u64> {
    let inode = |line: &str| {
        let fields: Vec<&str> = line.split_whitespace().collect();
        let [_, _, _, _, index, _, _, _, inode, ..] = fields[..] else { return None };
        (index.parse() == Ok(ifindex)).then(|| inode.parse().ok())?
    };
    table.lines().filter_map(inode).collect()
}

/// The interfaces that IPv4 routes lead out of.
fn routed(table: &str) -> HashSet<String> {
    table.lines().skip(1).filter_map(|line| line.split_whitespace().next()).map(str::to_owned).collect()
}

/// The interfaces that IPv6 routes lead out of through a gateway. Other routes exist for every interface that is up.
fn routed_by_gateways(table: &str) -> HashSet<String> {
    let gateway = |line: &str| {
        let fields: Vec<&str> = line.split_whitespace().collect();
        let [.., name] = fields[..] else { return None };
        fields.get(4).is_some_and(|next| next.bytes().any(|digit| digit != b'0')).then(|| name.to_owned())
    };
    table.lines().filter_map(gateway).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn users_are_found_with_their_groups() {
        let passwd = "root:x:0:0:root:/root:/bin/sh\nfibula:x:990:991:fibula:/var/lib/fibula:/usr/sbin/nologin\n";
        let group = "root:x:0:\nssl:x:7:www,fibula\nother:x:8:fib\n";
        let user = User::find(|fields| fields[0] == "fibula", passwd, group).unwrap();
        assert_eq!(user, User { name: "fibula".to_owned(), uid: 990, gid: 991, groups: vec![7] });
        assert_eq!(User::find(|fields| fields[0] == "fib", passwd, group), None);
    }

    #[test]
    fn files_of_the_kernel_are_read_as_it_writes_them() {
        let status = "Name:\tfibula\nCapPrm:\t0000000000000000\nCapEff:\t0000008000003000\n";
        let has = effective(status);
        assert_eq!([NET_RAW, NET_ADMIN, PERFMON, BPF].map(|Capability(bit, _)| has >> bit & 1), [1, 1, 0, 1]);
        assert_eq!(effective(""), 0);
        assert_eq!(["6.1.0-13-amd64", "5.10", "6.18.44-fc", "odd"].map(version), [(6, 1), (5, 10), (6, 18), (0, 0)]);
        assert_eq!(chosen("always [madvise] never\n").as_deref(), Some("madvise"));
        assert_eq!(chosen("always"), None);
        let sockets = "sk               RefCnt Type Proto  Iface R Rmem   User   Inode\n\
                       ffff8881 3      3    0003   7     1 0      0      4711\nffff8882 3      3    0003   17     1 0      0      4712\n";
        assert_eq!((bound_to(sockets, 7), bound_to(sockets, 1)), (vec![4711], vec![]));
        let table = "Iface\tDestination\tGateway\neth0\t00000000\t0100000A\neth0\t0000000A\t00000000\n";
        assert_eq!(routed(table), HashSet::from(["eth0".to_owned()]));
    }

    #[test]
    fn what_an_interface_is_a_part_of_is_told_by_its_master() {
        let net = tempfile::tempdir().unwrap();
        for directory in ["eth1", "br0/bridge", "bond0/bonding", "team0", "ovs-system"] {
            fs::create_dir_all(net.path().join(directory)).unwrap();
        }
        let eth1 = net.path().join("eth1");
        assert_eq!(Master::of(&eth1), None);
        for (name, kind) in [
            ("br0", "the bridge"),
            ("bond0", "the bond"),
            ("team0", "the team or VRF"),
            ("ovs-system", "a bridge of Open vSwitch,"),
        ] {
            std::os::unix::fs::symlink(format!("../{name}"), eth1.join("master")).unwrap();
            assert_eq!(Master::of(&eth1), Some(Master { name: name.to_owned(), kind }));
            fs::remove_file(eth1.join("master")).unwrap();
        }
    }

    #[test]
    fn this_machine_has_a_loopback_interface_that_can_be_no_port() {
        let lo = interface("lo").unwrap();
        assert!(!lo.is_ethernet && lo.mtu > 1500, "{lo:?}");
        assert!(interfaces().contains(&lo));
        assert_eq!(interface("no-such-one"), None);
        let (free, all) = room(Path::new("/no/such/directory")).unwrap();
        assert!(free <= all && all > 0);
        assert!(kernel().0 >= (4, 0), "{:?}", kernel());
    }
}
