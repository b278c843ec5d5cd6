//! `[links]` of `switch.toml`.

use dataplane::links::Timing;
use serde::de::{Error, Unexpected, Visitor};
use serde::{Deserialize, Deserializer};
use std::fmt;

/// Between hellos: no more often than a thread wakes in time, no more seldom than operators wait.
const HELLO_MS: std::ops::RangeInclusive<u16> = 5..=10_000;

/// Between two frames of LLDP, as the standard has it; what is said holds for four times as long.
const LLDP_INTERVAL_S: std::ops::RangeInclusive<u16> = 1..=3600;

/// How a port uses LLDP.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Lldp {
    /// Nothing.
    Off,
    /// It announces itself.
    Send,
    /// It listens for neighbours.
    #[default]
    Listen,
    /// It announces itself, and listens for neighbours.
    Both,
}

impl Lldp {
    const ALL: [Self; 4] = [Self::Off, Self::Send, Self::Listen, Self::Both];

    /// As it is written.
    pub fn name(self) -> &'static str {
        match self {
            Self::Off => "off",
            Self::Send => "send",
            Self::Listen => "listen",
            Self::Both => "both",
        }
    }

    /// Whether it says who it is.
    pub fn sends(self) -> bool {
        matches!(self, Self::Send | Self::Both)
    }

    /// Whether it listens for neighbours.
    pub fn listens(self) -> bool {
        matches!(self, Self::Listen | Self::Both)
    }
}

impl<'de> Deserialize<'de> for Lldp {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Word;
        impl Visitor<'_> for Word {
            type Value = Lldp;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("lldp = \"off\", \"send\", \"listen\" or \"both\"")
            }

            fn visit_str<E: Error>(self, text: &str) -> Result<Lldp, E> {
                let known = Lldp::ALL.into_iter().find(|lldp| lldp.name() == text);
                known.ok_or_else(|| E::invalid_value(Unexpected::Str(text), &self))
            }
        }
        deserializer.deserialize_str(Word)
    }
}

/// How trunks are watched, and what is said and heard of neighbours.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Links {
    /// Milliseconds between two hellos at each trunk; 0: none are said, and carriers alone are followed.
    #[serde(default = "default_hello_ms")]
    pub hello_ms: u16,
    /// A link is down when this many hellos in a row were missed.
    #[serde(default = "default_multiplier")]
    pub multiplier: u8,
    /// What ports do with LLDP, unless they say otherwise.
    #[serde(default)]
    pub lldp: Lldp,
    /// Seconds between two frames of LLDP at each port that sends some.
    #[serde(default = "default_lldp_interval_s")]
    pub lldp_interval_s: u16,
}

impl Default for Links {
    fn default() -> Self {
        Self {
            hello_ms: default_hello_ms(),
            multiplier: default_multiplier(),
            lldp: Lldp::default(),
            lldp_interval_s: default_lldp_interval_s(),
        }
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
        if !LLDP_INTERVAL_S.contains(&self.lldp_interval_s) {
            let (least, most) = (LLDP_INTERVAL_S.start(), LLDP_INTERVAL_S.end());
            return Err(format!(
                "links.lldp_interval_s = {} is out of range; write {least} to {most}",
                self.lldp_interval_s
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

fn default_lldp_interval_s() -> u16 {
    30
}
