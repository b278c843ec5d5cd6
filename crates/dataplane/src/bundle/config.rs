//! `[port.bundle]` of `switch.toml`: the devices of a port, and how LACP is spoken on them.

use super::MAX_MEMBERS;
use super::lacp::Manner;
use serde::Deserialize;

/// A port of several devices.
#[derive(Clone, PartialEq, Eq, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Section {
    /// The network interfaces.
    pub members: Vec<String>,
    /// How LACP is spoken; at trunks off if absent: hellos watch their members, and let a switch restart unnoticed.
    pub lacp: Option<Mode>,
    /// How soon a silent partner counts as missing.
    pub lacp_rate: Option<Rate>,
    /// The fewest usable members; with fewer the port is down.
    #[serde(default = "one")]
    pub min_links: usize,
}

/// How LACP is spoken.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Mode {
    /// Without waiting for the other end.
    #[default]
    Active,
    /// When the other end speaks first.
    Passive,
    /// Not at all: members are used by their carriers, and at trunks by hellos.
    Off,
}

/// How often the other end is asked to speak.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Rate {
    /// Each second; it is missed after three.
    #[default]
    Fast,
    /// Each half minute; it is missed after a minute and a half.
    Slow,
}

fn one() -> usize {
    1
}

impl Section {
    /// How LACP is spoken, if it is.
    pub fn manner(&self) -> Option<Manner> {
        let is_fast = self.lacp_rate.unwrap_or_default() == Rate::Fast;
        match self.lacp.unwrap_or_default() {
            Mode::Active => Some(Manner { is_active: true, is_fast }),
            Mode::Passive => Some(Manner { is_active: false, is_fast }),
            Mode::Off => None,
        }
    }

    /// Checks it, regardless of its port.
    /// # Errors
    /// What is wrong, and what to write.
    pub fn check(&self) -> Result<(), String> {
        let n = self.members.len();
        if !(1..=MAX_MEMBERS).contains(&n) {
            return Err(format!("members has {n} interfaces; write 1 to {MAX_MEMBERS}"));
        }
        if !(1..=n).contains(&self.min_links) {
            return Err(format!(
                "min_links = {} is out of range; write 1 to {n}, the number of members",
                self.min_links
            ));
        }
        if self.lacp == Some(Mode::Off) && self.lacp_rate.is_some() {
            return Err(
                "lacp_rate is for lacp = \"active\" or \"passive\"; write one of these, or remove it".to_owned()
            );
        }
        Ok(())
    }
}
