//! Drivers by name.

use serde::Deserialize;
use std::fmt;
use std::str::FromStr;

/// How the frames of a port come and go.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Deserialize)]
#[serde(try_from = "String")]
pub enum Driver {
    /// Through packet sockets, on any interface.
    #[default]
    AfPacket,
    /// Through AF_XDP sockets, before the kernel's stack; through packet sockets where that cannot be.
    AfXdp,
    /// From trunks in the kernel, by the switch's own table; otherwise as with `af_xdp`.
    Xdp,
    /// Through DPDK, in a binary that has it.
    Dpdk,
}

impl Driver {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::AfPacket, Self::AfXdp, Self::Xdp, Self::Dpdk];

    /// The name in files and on command lines.
    pub fn name(self) -> &'static str {
        match self {
            Self::AfPacket => "af_packet",
            Self::AfXdp => "af_xdp",
            Self::Xdp => "xdp",
            Self::Dpdk => "dpdk",
        }
    }
}

impl FromStr for Driver {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        Self::ALL.into_iter().find(|driver| driver.name() == text).ok_or_else(|| {
            let known = Self::ALL.map(Self::name).join(", ");
            format!("no such driver: `{text}`; there are {known}")
        })
    }
}

impl TryFrom<String> for Driver {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

impl fmt::Display for Driver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}
