//! The location of a store, as a configuration has it.

use super::EtcdAddress;
use std::fmt::{self, Display, Formatter};
use std::path::PathBuf;
use std::str::FromStr;

/// The location of a store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Place {
    /// In a file of SQLite.
    File(PathBuf),
    /// In etcd, for several controllers.
    Etcd(EtcdAddress),
}

impl FromStr for Place {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text.strip_prefix("sqlite:") {
            Some(path) if !path.is_empty() => Ok(Place::File(path.into())),
            None if text.starts_with("etcd:") => text.parse().map(Place::Etcd),
            None if !text.is_empty() => Ok(Place::File(text.into())),
            _ => {
                Err("store is empty; write the path of a file, such as /var/lib/fibula/controller/rib.sqlite"
                    .to_owned())
            }
        }
    }
}

impl Display for Place {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Place::File(path) => path.display().fmt(f),
            Place::Etcd(address) => address.fmt(f),
        }
    }
}
