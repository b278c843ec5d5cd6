//! Offloads of an interface that a driver turns off, and turns on again as it found them.
//!
//! What was on is turned on again when the value is dropped. A process that is killed cannot, so what it found is in a file from before the
//! change on; the next process turns it on ([`restore_left`]) before it opens anything.
//!
//! ```text
//!  DIRECTORY/offloads-eth7:   7 tx tso gso gro          the number of the interface, and what was on
//! ```
//! Drivers that take what senders leave to hardware, packet sockets in a switch and AF_XDP, change nothing and need none of this.

use super::interface::{ethtool_get, ethtool_set, net_error, socket};
use crate::NetError;
use rustix::net::netdevice::name_to_index;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::{Path, PathBuf};

/// What is turned off, and the commands of ethtool that ask for it and set it. The first of them is needed by the second.
const OFFLOADS: [(&str, u32, u32); 4] =
    [("tx", 0x16, 0x17), ("tso", 0x1e, 0x1f), ("gso", 0x23, 0x24), ("gro", 0x2b, 0x2c)];

const PREFIX: &str = "offloads-";

/// See the module.
#[derive(Debug)]
pub(super) struct Found {
    interface: String,
    ifindex: u32,
    /// The offloads that were on, one bit each, by index in [`OFFLOADS`].
    on: u8,
    file: Option<PathBuf>,
}

impl Found {
    /// Turns the offloads of an interface off, as far as it has them, and keeps in `directory` what was on, if there is one.
    /// # Errors
    /// The system's, and then those that were turned off are on again.
    pub(super) fn turn_off(fd: BorrowedFd<'_>, interface: &str, directory: Option<&Path>) -> Result<Self, NetError> {
        let fail = |action| move |error: io::Error| net_error(interface, action, error);
        let ifindex = name_to_index(fd, interface).map_err(|error| fail("find the interface")(error.into()))?;
        let mut found = Self { interface: interface.to_owned(), ifindex, on: 0, file: None };
        for (i, (_, get, _)) in OFFLOADS.iter().enumerate() {
            // One that it does not have is off.
            if ethtool_get(fd, interface, *get).is_ok_and(|value| value & 1 != 0) {
                found.on |= 1 << i;
            }
        }
        // Another worker has turned them off, and will turn them on.
        if found.on == 0 {
            return Ok(found);
        }
        if let Some(directory) = directory {
            let file = directory.join(format!("{PREFIX}{interface}"));
            std::fs::write(&file, found.text()).map_err(fail("keep the offloads that are on"))?;
            found.file = Some(file);
        }
        let on = found.on;
        for (i, (_, _, set)) in OFFLOADS.iter().enumerate().filter(|(i, _)| on >> i & 1 != 0) {
            match ethtool_set(fd, interface, *set, 0) {
                // Some are always on, and make no such frames.
                Err(error) if error.raw_os_error() == Some(libc::EOPNOTSUPP) => found.on &= !(1 << i),
                result => result.map_err(fail("turn offloads off"))?,
            }
        }
        Ok(found)
    }

    fn text(&self) -> String {
        let is_on = |(i, _): &(usize, &(&str, u32, u32))| self.on >> i & 1 != 0;
        let on: Vec<&str> = OFFLOADS.iter().enumerate().filter(is_on).map(|(_, (name, ..))| *name).collect();
        format!("{} {}\n", self.ifindex, on.join(" "))
    }

    fn parse(interface: &str, text: &str) -> Option<Self> {
        let mut words = text.split_whitespace();
        let ifindex = words.next()?.parse().ok()?;
        let place = |word: &str| OFFLOADS.iter().position(|(name, ..)| *name == word);
        let on = words.filter_map(place).fold(0, |on, i| on | 1 << i);
        Some(Self { interface: interface.to_owned(), ifindex, on, file: None })
    }

    /// Turns on again what was on. An interface that was created again since keeps its new settings.
    fn restore(&self) -> io::Result<()> {
        let socket = socket()?;
        let fd = socket.as_fd();
        if name_to_index(fd, &self.interface).is_ok_and(|index| index == self.ifindex) {
            for (_, (_, _, set)) in OFFLOADS.iter().enumerate().filter(|(i, _)| self.on >> i & 1 != 0) {
                ethtool_set(fd, &self.interface, *set, 1)?;
            }
        }
        Ok(())
    }
}

impl Drop for Found {
    fn drop(&mut self) {
        // What cannot be turned on now stays in the file.
        if self.on != 0
            && self.restore().is_ok()
            && let Some(file) = &self.file
        {
            let _ = std::fs::remove_file(file);
        }
    }
}

/// Turns on again what a process that was killed had turned off, as it kept in `directory`. Returns the names of the interfaces.
/// # Errors
/// The error of the first interface that cannot be restored; its file is kept.
pub fn restore_left(directory: &Path) -> io::Result<Vec<String>> {
    let mut restored = Vec::new();
    let entries = match std::fs::read_dir(directory) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(restored),
        entries => entries?,
    };
    for entry in entries {
        let (path, name) = entry.map(|entry| (entry.path(), entry.file_name()))?;
        let Some(interface) = name.to_str().and_then(|name| name.strip_prefix(PREFIX)) else { continue };
        if let Some(mut found) = Found::parse(interface, &std::fs::read_to_string(&path)?) {
            found.restore()?;
            // It is done.
            found.on = 0;
            restored.push(interface.to_owned());
        }
        std::fs::remove_file(path)?;
    }
    Ok(restored)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::interface::joining_offloads;
    use crate::testkit::{NAMESPACES, in_namespace, may_make_namespaces, missing};

    #[test]
    fn what_was_found_is_read_back() {
        let found = Found { interface: "eth7".to_owned(), ifindex: 12, on: 0b1101, file: None };
        let read = Found::parse("eth7", &found.text()).unwrap();
        assert_eq!((read.ifindex, read.on), (12, 0b1101));
        assert!(Found::parse("eth7", "").is_none() && Found::parse("eth7", "x tso").is_none());
        // None of the test's are restored.
        std::mem::forget((found, read));
    }

    #[test]
    fn what_a_killed_process_turned_off_is_on_again_after_the_next_start() {
        if !may_make_namespaces() {
            return missing(NAMESPACES);
        }
        in_namespace(|| {
            let made =
                std::process::Command::new("ip").args("link add west type veth peer name east".split(' ')).status();
            assert!(made.unwrap().success());
            let directory = tempfile::tempdir().unwrap();
            let before = joining_offloads("east").unwrap();
            let socket = socket().unwrap();
            let killed = Found::turn_off(socket.as_fd(), "east", Some(directory.path())).unwrap();
            assert!(joining_offloads("east").unwrap().is_empty() && !before.is_empty());
            std::mem::forget(killed);
            assert_eq!(restore_left(directory.path()).unwrap(), ["east"]);
            assert_eq!(joining_offloads("east").unwrap(), before);
            assert!(restore_left(directory.path()).unwrap().is_empty(), "it is done once");
            // One that was closed leaves nothing to do.
            drop(Found::turn_off(socket.as_fd(), "east", Some(directory.path())).unwrap());
            assert_eq!(joining_offloads("east").unwrap(), before);
            assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 0);
        });
    }
}
