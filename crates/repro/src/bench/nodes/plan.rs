//! What a process of the bench is told, and what it answers: JSON, a line each, through its standard input and output.

#[cfg(feature = "dpdk")]
use crate::{BenchError, contestants::Input, names::NameSet};
use serde::{Deserialize, Serialize};

/// The first line: what the process is.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Plan {
    pub(super) role: Role,
    pub(super) names: Names,
    /// Arguments of EAL.
    pub(super) eal: Vec<String>,
    /// Its devices, as written for EAL: those of a switch, or of the traffic for each switch in turn.
    pub(super) devices: Vec<String>,
    /// Ports of a switch.
    pub(super) n_ports: usize,
    /// The processor of the thread that polls.
    pub(super) cpu: usize,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) enum Role {
    /// A switch of this design, or one that looks nothing up. One name may be sent to another port than its own.
    Switch { design: Option<String>, astray: Option<u64> },
    /// Makes frames and checks what comes back.
    Traffic,
    /// Runs `dpdk-testpmd` with this forwarding mode.
    Testpmd { mode: String },
}

/// The names of a table, which each process makes for itself.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Names {
    pub(super) n: u64,
    pub(super) set: String,
    pub(super) family: String,
    pub(super) seed: u64,
    pub(super) value_bits: u8,
}

#[cfg(feature = "dpdk")]
impl Names {
    pub(super) fn set(&self) -> Result<NameSet, BenchError> {
        self.set.parse().map_err(BenchError::Setting)
    }

    pub(super) fn words(&self) -> Result<Vec<u64>, BenchError> {
        Ok(self.set()?.generate(self.n as usize, self.seed))
    }

    pub(super) fn input<'a>(&self, words: &'a [u64]) -> Result<Input<'a>, BenchError> {
        let family = self.family.parse().map_err(|error| super::failed("a digest family", &error))?;
        let build_threads = std::thread::available_parallelism().map_or(1, |cores| cores.get());
        let (value_bits, seed) = (self.value_bits, self.seed);
        Ok(Input { names: words, name_len: 6, value_bits, family, seed, build_threads, floor_bytes: 0 })
    }
}

/// The port of a name's frames, from 1: it follows from the last octet, so that a switch without a table knows it.
#[cfg(feature = "dpdk")]
#[inline]
pub(super) fn exit_of(word: u64, n_ports: usize) -> usize {
    1 + (word >> 40 & 0xff) as usize % n_ports
}

/// The port by which they enter: the next one.
#[cfg(feature = "dpdk")]
#[inline]
pub(super) fn entry_of(exit: usize, n_ports: usize) -> usize {
    1 + exit % n_ports
}

/// A line to the traffic.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) enum Request {
    /// Waits until all its ports have a link.
    Link,
    /// Sends names repeatedly to this switch, and counts what comes back.
    Measure { switch: usize, frames: Frames, us: u64 },
    /// Sends each name once, and checks each byte of what comes back.
    Check { switch: usize, frames: Frames },
}

/// Frames, and what a switch makes of them.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(super) struct Frames {
    /// With the shim.
    pub(super) bytes: usize,
    /// Whether the switch counts hops down.
    pub(super) counts_hops: bool,
    /// Whether it exchanges addresses.
    pub(super) swaps: bool,
}

/// A line of a process to the bench.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) enum Answer {
    Ready,
    Counts(Counts),
    Failed(String),
}

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(super) struct Counts {
    pub(super) sent: u64,
    pub(super) received: u64,
    pub(super) wrong: u64,
    /// Ports out of which right frames came, a bit each from the first on.
    pub(super) heard: u64,
    pub(super) ns: u64,
    /// The first frame that was wrong, in words.
    pub(super) first_wrong: String,
    /// A name whose frame did not come back, of a check.
    pub(super) missing: Option<u64>,
}
