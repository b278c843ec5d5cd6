//! Checks the addresses that a daemon listens on: whether each belongs to this machine, and which process has it.

use super::Findings;
use super::service::{Process, Service, State};
use api::address::Address;
use std::fs;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::Path;
use tokio::net::{TcpSocket, UnixStream};

/// The state LISTEN in the kernel's tables.
const LISTENS: &str = "0A";

/// Reports whether a daemon listens at an address, or could.
pub(super) async fn look_at(key: &str, address: &Address, service: &Service, findings: &mut Findings) {
    let (inodes, is_taken) = match address {
        Address::Tcp(at) => {
            let inodes = listeners(*at);
            let is_taken = !inodes.is_empty();
            (inodes, is_taken)
        }
        // The listener may be in another network namespace, or too busy to accept.
        Address::Unix { path, .. } => {
            let inodes = sockets(path);
            let is_taken = !inodes.is_empty() || UnixStream::connect(path).await.is_ok();
            (inodes, is_taken)
        }
    };
    if !is_taken {
        return look_at_free(key, address, findings);
    }
    let pids = owners(&inodes);
    let of_daemon = match service.state() {
        State::Runs(process) => Some(process.pid),
        State::Down | State::Unknown => None,
    };
    if let Some(pid) = of_daemon.filter(|pid| pids.contains(pid)) {
        findings.ok(key, format!("{address}: the daemon listens there, as process {pid}"));
        return;
    }
    match pids.first().copied().and_then(Process::of) {
        None => findings
            .untried(key, format!("a process listens at {address}, but this user cannot see which: run this command as root")),
        // A daemon without a lock or a service is recognised only by its name.
        Some(Process { pid, name, .. }) if of_daemon.is_none() && service.state() == State::Unknown => {
            findings.ok(key, format!("{address}: process {pid} ({name}) listens there"));
        }
        Some(Process { pid, name, .. }) => findings.bad(
            key,
            format!(
                "{address}: process {pid} ({name}) listens there, so the daemon cannot; stop it, or choose another {key}"
            ),
        ),
    }
}

/// No process listens there. This does not disturb a daemon that starts meanwhile: doctor does not listen either.
fn look_at_free(key: &str, address: &Address, findings: &mut Findings) {
    match address {
        Address::Tcp(at) => match bind(*at) {
            Ok(()) => findings.ok(key, format!("{at}: free, and an address of this machine")),
            Err(error) if error.kind() == std::io::ErrorKind::PermissionDenied => {
                findings.untried(key, format!("a port as low as that of {at} needs root: run this command as root"));
            }
            Err(error) => findings.bad(key, format!("{at}: {error}; use an address that `ip address` lists")),
        },
        Address::Unix { path, .. } => match path.parent().filter(|parent| parent.is_dir()) {
            Some(_) => findings.ok(key, format!("{address}: no process listens there, and its directory exists")),
            // The service makes /run/fibula.
            None if path.starts_with("/run/fibula") => {
                findings.ok(key, format!("{address}: the service creates its directory"))
            }
            None => findings
                .bad(key, format!("{address}: its directory does not exist; create it for the user of the daemon")),
        },
    }
}

fn bind(at: SocketAddr) -> std::io::Result<()> {
    let socket = if at.is_ipv4() { TcpSocket::new_v4()? } else { TcpSocket::new_v6()? };
    socket.set_reuseaddr(true)?;
    socket.bind(at)
}

/// An address through which a listener on all addresses can be reached.
pub(super) fn reachable(at: SocketAddr) -> SocketAddr {
    let local: IpAddr = if at.is_ipv4() { Ipv4Addr::LOCALHOST.into() } else { Ipv6Addr::LOCALHOST.into() };
    if at.ip().is_unspecified() { SocketAddr::new(local, at.port()) } else { at }
}

/// The inodes of the sockets that conflict with a listener at this address.
fn listeners(at: SocketAddr) -> Vec<u64> {
    let read = |path| fs::read_to_string(path).unwrap_or_default();
    let mut found = listening(&read("/proc/net/tcp"), at);
    found.extend(listening(&read("/proc/net/tcp6"), at));
    found
}

fn listening(table: &str, at: SocketAddr) -> Vec<u64> {
    let inode = |line: &str| {
        let fields: Vec<&str> = line.split_whitespace().collect();
        let [_, local, _, LISTENS, _, _, _, _, _, inode, ..] = fields[..] else { return None };
        let there = address(local)?;
        let is_same = there.ip() == at.ip() || there.ip().is_unspecified() || at.ip().is_unspecified();
        (there.port() == at.port() && at.port() != 0 && is_same).then(|| inode.parse().ok())?
    };
    table.lines().filter_map(inode).collect()
}

/// Parses an address of the kernel's tables: 32-bit words in native byte order, in hexadecimal.
fn address(text: &str) -> Option<SocketAddr> {
    let (ip, port) = text.split_once(':')?;
    let words: Option<Vec<u8>> = (0..ip.len() / 8)
        .map(|i| Some(u32::from_str_radix(ip.get(8 * i..8 * i + 8)?, 16).ok()?.to_ne_bytes()))
        .collect::<Option<Vec<_>>>()
        .map(|words| words.concat());
    let words = words?;
    let ip: IpAddr = match words.len() {
        4 => <[u8; 4]>::try_from(words).ok()?.into(),
        16 => <[u8; 16]>::try_from(words).ok()?.into(),
        _ => return None,
    };
    Some(SocketAddr::new(ip.to_canonical(), u16::from_str_radix(port, 16).ok()?))
}

/// The inodes of the sockets of a path.
fn sockets(path: &Path) -> Vec<u64> {
    let table = fs::read_to_string("/proc/net/unix").unwrap_or_default();
    let inode = |line: &str| {
        let fields: Vec<&str> = line.split_whitespace().collect();
        let [_, _, _, _, _, _, inode, at] = fields[..] else { return None };
        (Path::new(at) == path).then(|| inode.parse().ok())?
    };
    table.lines().filter_map(inode).collect()
}

/// The processes that have one of these sockets open, as far as this user may see.
pub(super) fn owners(inodes: &[u64]) -> Vec<u32> {
    let wanted: Vec<String> = inodes.iter().map(|inode| format!("socket:[{inode}]")).collect();
    let has_one = |pid: &u32| {
        let open = fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten().flatten();
        let mut targets = open.filter_map(|entry| fs::read_link(entry.path()).ok());
        targets.any(|target| wanted.iter().any(|socket| target.as_os_str() == socket.as_str()))
    };
    let processes = fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = processes.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    pids.filter(has_one).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::Grade;
    use tokio::net::TcpListener;

    #[tokio::test]
    async fn addresses_are_taken_free_or_not_of_this_machine() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let taken = listener.local_addr().unwrap();
        let free = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
        let service = Service::of(Path::new("/no/such.toml"), "switch", None);
        let mut findings = Findings::default();
        look_at("a", &Address::Tcp(taken), &service, &mut findings).await;
        // On all addresses it would be in the way, too.
        look_at("b", &Address::Tcp((Ipv4Addr::UNSPECIFIED, taken.port()).into()), &service, &mut findings).await;
        look_at("c", &Address::Tcp(free), &service, &mut findings).await;
        // Nobody has an address of the range for documentation.
        look_at("d", &Address::Tcp("192.0.2.77:4600".parse().unwrap()), &service, &mut findings).await;
        let unix = Address::Unix { path: "/no/such/x.sock".into(), mode: 0o600 };
        look_at("e", &unix, &service, &mut findings).await;
        let grades: Vec<_> = findings.rows.iter().map(|row| row.grade).collect();
        assert_eq!(grades, [Grade::Ok, Grade::Ok, Grade::Ok, Grade::Bad, Grade::Bad], "{findings:?}");
        let pid = std::process::id();
        for row in &findings.rows[..2] {
            assert!(row.finding.contains(&format!("process {pid} ")), "{row:?}");
        }
        assert!(findings.rows[2].finding.contains("free"), "{findings:?}");
    }

    #[test]
    fn tables_of_the_kernel_are_read_as_it_writes_them() {
        let v6 = u32::from_ne_bytes([0, 0, 0, 1]);
        let line = |local: &str, state: &str, inode: u32| {
            format!(
                "  0: {local} 00000000:0000 {state} 00000000:00000000 00:00000000 00000000     0        0 {inode} 1 0\n"
            )
        };
        let local = format!("{:08X}:11F8", u32::from_ne_bytes([127, 0, 0, 1]));
        let of_v6 = format!("{:024}{v6:08X}:11F8", 0);
        let table =
            ["header\n".to_owned(), line(&local, "0A", 7), line(&local, "01", 8), line(&of_v6, "0A", 9)].concat();
        let at = |text: &str| listening(&table, text.parse().unwrap());
        assert_eq!((at("127.0.0.1:4600"), at("[::1]:4600"), at("127.0.0.1:4601")), (vec![7], vec![9], vec![]));
        assert_eq!(at("0.0.0.0:4600"), [7, 9]);
    }
}
