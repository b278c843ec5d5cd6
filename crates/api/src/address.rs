//! Addresses that a daemon listens on, and that connections come from: TCP, or a Unix socket of this machine.

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::fmt::{self, Display, Formatter};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::str::FromStr;

/// The prefix of a Unix socket in text.
const UNIX: &str = "unix:";
/// The separator before the permissions of its file.
const MODE: &str = "?mode=";
/// The longest path that a socket can have: `sun_path` has 108 bytes, with a zero at the end.
const MAX_PATH: usize = 107;
/// The permissions of a socket's file: its owner may connect.
const OWNER_ONLY: u32 = 0o600;

/// An address to listen on: `127.0.0.1:4600`, `unix:/run/fibula/controller.sock`, or, to admit other users than the
/// owner of the socket's file, `unix:/run/fibula/controller.sock?mode=0660`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Address {
    /// A TCP address.
    Tcp(SocketAddr),
    /// A Unix socket.
    Unix {
        /// The path of its file.
        path: PathBuf,
        /// The permissions of its file.
        mode: u32,
    },
}

impl Address {
    /// The TCP address, if it is one.
    pub fn tcp(&self) -> Option<SocketAddr> {
        match self {
            Address::Tcp(address) => Some(*address),
            Address::Unix { .. } => None,
        }
    }

    /// Whether other machines may be able to reach it.
    pub fn is_remote(&self) -> bool {
        self.tcp().is_some_and(|address| !address.ip().is_loopback())
    }

    /// Whether two listeners on these addresses conflict. Port 0 is chosen by the system, and never conflicts.
    pub fn overlaps(&self, other: &Address) -> bool {
        match (self, other) {
            (Address::Tcp(one), Address::Tcp(other)) => {
                let overlap = one.ip() == other.ip() || one.ip().is_unspecified() || other.ip().is_unspecified();
                one.port() != 0 && one.port() == other.port() && overlap
            }
            (Address::Unix { path: one, .. }, Address::Unix { path: other, .. }) => one == other,
            _ => false,
        }
    }
}

impl From<SocketAddr> for Address {
    fn from(address: SocketAddr) -> Self {
        Address::Tcp(address)
    }
}

/// In the notation of clients, without permissions.
impl Display for Address {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Address::Tcp(address) => address.fmt(f),
            Address::Unix { path, .. } => write!(f, "{UNIX}{}", path.display()),
        }
    }
}

impl FromStr for Address {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if !text.starts_with(UNIX) {
            return text.parse().map(Address::Tcp).map_err(|_| {
                format!("{text:?} is not an address; write it like 127.0.0.1:4600 or unix:/run/fibula/controller.sock")
            });
        }
        let (path, mode) = match text.rsplit_once(MODE) {
            None => (text, OWNER_ONLY),
            Some((path, mode)) => {
                let digits = mode.bytes().all(|byte| byte.is_ascii_digit());
                let mode = u32::from_str_radix(mode, 8).ok().filter(|mode| digits && mode & !0o666 == 0);
                (path, mode.ok_or_else(|| format!("{text:?} has invalid permissions of a socket; write ?mode=0660"))?)
            }
        };
        let path = socket_path(path).unwrap_or_else(|| Err(format!("{text:?} is not a Unix socket")))?;
        Ok(Address::Unix { path, mode })
    }
}

impl<'de> Deserialize<'de> for Address {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
    }
}

impl Serialize for Address {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// The path of a Unix socket to connect to, if `text` names one.
/// # Errors
/// A path that no socket can have.
pub fn socket_path(text: &str) -> Option<Result<PathBuf, String>> {
    let path = Path::new(text.strip_prefix(UNIX)?);
    let wrong = |what: &str| Err(format!("{text:?} {what}; write it like unix:/run/fibula/controller.sock"));
    Some(if !path.is_absolute() {
        wrong("has no absolute path")
    } else if path.as_os_str().len() > MAX_PATH {
        wrong(&format!("has a path of more than {MAX_PATH} bytes"))
    } else {
        Ok(path.to_owned())
    })
}

/// The origin of a connection. No two open connections of a listener have the same origin.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Origin {
    /// A TCP address.
    Tcp(SocketAddr),
    /// A process of this machine, through a Unix socket.
    Unix {
        /// Its user, according to the kernel.
        uid: u32,
        /// The process, if known.
        pid: Option<i32>,
        /// The number of the connection at its listener.
        number: u64,
    },
}

impl From<SocketAddr> for Origin {
    fn from(address: SocketAddr) -> Self {
        Origin::Tcp(address)
    }
}

impl Display for Origin {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Origin::Tcp(address) => address.fmt(f),
            Origin::Unix { pid: Some(pid), .. } => write!(f, "{UNIX}pid={pid}"),
            Origin::Unix { .. } => write!(f, "{UNIX}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(text: &str) -> Address {
        text.parse().unwrap()
    }

    #[test]
    fn addresses_are_read_and_printed() {
        for text in ["127.0.0.1:4600", "[::1]:0", "unix:/run/fibula/controller.sock"] {
            assert_eq!(address(text).to_string(), text);
        }
        let (path, mode) = (PathBuf::from("/run/a?b"), 0o660);
        assert_eq!(address("unix:/run/a?b?mode=0660"), Address::Unix { path, mode });
        let long = format!("unix:/{}", "x".repeat(MAX_PATH));
        for (text, part) in [
            ("unix:north.sock", "no absolute path"),
            ("unix:", "no absolute path"),
            ("north", "not an address"),
            ("unix:/run/a?mode=rw", "invalid permissions"),
            ("unix:/run/a?mode=0777", "invalid permissions"),
            ("unix:/run/a?mode=+66", "invalid permissions"),
            (&long, "more than 107 bytes"),
        ] {
            assert!(text.parse::<Address>().unwrap_err().contains(part), "{text}");
        }
    }

    #[test]
    fn addresses_overlap_where_one_would_take_the_connections_of_the_other() {
        for (one, other, expected) in [
            ("127.0.0.1:1", "127.0.0.1:1", true),
            ("0.0.0.0:1", "127.0.0.1:1", true),
            ("127.0.0.1:0", "127.0.0.1:0", false),
            ("127.0.0.1:1", "127.0.0.1:2", false),
            ("unix:/run/a", "unix:/run/a?mode=0666", true),
            ("unix:/run/a", "unix:/run/b", false),
            ("unix:/run/a", "127.0.0.1:1", false),
        ] {
            assert_eq!(address(one).overlaps(&address(other)), expected, "{one} and {other}");
        }
    }
}
