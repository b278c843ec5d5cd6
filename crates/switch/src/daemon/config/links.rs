//! `[links]` of `switch.toml`.

use crate::links::Timing;
use serde::Deserialize;

/// Between hellos: no more often than a thread wakes in time, no more seldom than operators wait.
const HELLO_MS: std::ops::RangeInclusive<u16> = 5..=10_000;

/// How trunks are watched.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Links {
    /// Milliseconds between two hellos at each trunk; 0: none are said, and carriers alone are followed.
    #[serde(default = "default_hello_ms")]
    pub hello_ms: u16,
    /// A link is down when so many hellos in a row did not come.
    #[serde(default = "default_multiplier")]
    pub multiplier: u8,
    /// Whether all ports say who they are in LLDP, for others to read.
    #[serde(default)]
    pub lldp: bool,
}

impl Default for Links {
    fn default() -> Self {
        Self { hello_ms: default_hello_ms(), multiplier: default_multiplier(), lldp: false }
    }
}

impl Links {
    /// The times of hellos.
    pub fn timing(&self) -> Timing {
        Timing { interval_ms: self.hello_ms, multiplier: self.multiplier }
    }

    pub(super) fn check(&self) -> Result<(), String> {
        if self.hello_ms != 0 && !HELLO_MS.contains(&self.hello_ms) {
            let (least, most) = (HELLO_MS.start(), HELLO_MS.end());
            return Err(format!(
                "links.hello_ms = {} is out of range; write {least} to {most}, or 0 for no hellos",
                self.hello_ms
            ));
        }
        if self.multiplier < 2 {
            return Err(format!(
                "links.multiplier = {} would take one lost frame for a cut; write 2 to 255",
                self.multiplier
            ));
        }
        Ok(())
    }
}

fn default_hello_ms() -> u16 {
    Timing::default().interval_ms
}

fn default_multiplier() -> u8 {
    Timing::default().multiplier
}
