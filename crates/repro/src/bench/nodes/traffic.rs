//! The node that makes frames and takes them back, by `c/dpdk/traffic.c`.
#![expect(unsafe_code, reason = "DPDK is C, and its calls for bursts are inline functions that only C can make")]

use super::failed;
use super::plan::{Answer, Counts, Frames, Plan, Request, entry_of, exit_of};
use super::switch::open;
use crate::BenchError;
use dataplane::shim;
use libc::c_int;
use netio::Device as _;
use netio::backend::dpdk::Dpdk;
use std::ffi::CString;
use std::ptr::{NonNull, null_mut};
use std::time::{Duration, Instant};

/// How long links may take to come up, and frames of a check to come back.
const PATIENCE: Duration = Duration::from_secs(20);
/// How long nothing comes once nothing is under way.
const QUIET_US: u64 = 5_000;
/// Before a measurement.
const WARM_UP_US: u64 = 100_000;
/// Frames under way in a check: as few as no ring and no pool refuses.
const UNDER_WAY: u32 = 96;
/// Names that are sent in a measurement, at least and at most.
const QUERIES: (usize, usize) = (1 << 20, 16 << 20);
const BURST: usize = 32;

enum Pool {}
enum Mbuf {}

#[repr(C)]
struct RawLine {
    words: *const u64,
    n_words: u32,
    next: u32,
    seen: *mut u8,
    port: u16,
    n_ready: u16,
    ready: [*mut Mbuf; BURST],
}

#[repr(C)]
struct RawPlan {
    frame_bytes: u16,
    run: u16,
    hops_in: u8,
    hops_out: u8,
    is_swapped: u8,
    is_once: u8,
    n_under_way: u32,
    longest_us: u64,
    quiet_us: u64,
}

#[repr(C)]
#[derive(Clone, Copy)]
struct RawCounts {
    sent: u64,
    received: u64,
    wrong: u64,
    heard: u64,
    wrong_line: u32,
    wrong_bytes: u32,
    wrong_frame: [u8; 64],
    ns: u64,
}

unsafe extern "C" {
    fn fibula_traffic_pool(n_lines: u32) -> *mut Pool;
    fn fibula_traffic_port(name: *const libc::c_char, port: *mut u16) -> c_int;
    fn fibula_traffic_run(
        pool: *mut Pool,
        lines: *mut RawLine,
        n_lines: u32,
        plan: *const RawPlan,
        counts: *mut RawCounts,
    );
    fn fibula_traffic_drain(lines: *mut RawLine, n_lines: u32, quiet_us: u64);
}

/// The ports of all switches' lines, and what is sent by them.
pub(super) struct Traffic {
    n_ports: usize,
    ports: Vec<Dpdk>,
    numbers: Vec<u16>,
    pool: NonNull<Pool>,
    /// The number of the last run.
    last: u16,
    /// Names in the order in which they are sent, by the port that they enter by: for measurements, and each once.
    often: Vec<Vec<u64>>,
    once: Vec<Vec<u64>>,
}

impl Traffic {
    pub(super) fn new(plan: &Plan) -> Result<Self, BenchError> {
        let words = plan.names.words()?;
        let by_entry = |words: &[u64]| -> Result<Vec<Vec<u64>>, BenchError> {
            let mut lists = vec![Vec::new(); plan.n_ports];
            for &word in words {
                let exit = exit_of(word, plan.n_ports);
                lists[entry_of(exit, plan.n_ports) - 1].push(word & 0xffff_ffff_ffff | (exit as u64) << 48);
            }
            match lists.iter().any(Vec::is_empty) {
                true => Err(BenchError::Setting("there are too few names for the ports; raise --n".to_owned())),
                false => Ok(lists),
            }
        };
        let n_queries = words.len().clamp(QUERIES.0, QUERIES.1);
        let often = by_entry(&plan.names.set()?.queries(&words, n_queries, plan.names.seed))?;
        let once = by_entry(&words)?;
        super::bind(plan.cpu)?;
        let ports = plan.devices.iter().map(|device| open(plan, device)).collect::<Result<Vec<_>, _>>()?;
        // SAFETY: EAL runs, because ports are open.
        let pool = NonNull::new(unsafe { fibula_traffic_pool(ports.len() as u32) });
        let pool = pool.ok_or_else(|| BenchError::Setting("no memory for frames; reserve huge pages".to_owned()))?;
        Ok(Self { n_ports: plan.n_ports, ports, numbers: Vec::new(), pool, last: 0, often, once })
    }

    pub(super) fn answer(&mut self, request: &Request) -> Result<Answer, BenchError> {
        match *request {
            Request::Link => self.link().map(|()| Answer::Ready),
            Request::Measure { switch, frames, us } => Ok(Answer::Counts(self.measure(switch, frames, us))),
            Request::Check { switch, frames } => Ok(Answer::Counts(self.check(switch, frames))),
        }
    }

    fn link(&mut self) -> Result<(), BenchError> {
        let end = Instant::now() + PATIENCE;
        for port in &mut self.ports {
            // Nothing tells when a peer has come.
            while let Err(error) = port.revive() {
                if Instant::now() > end {
                    return Err(failed(port.name(), &error));
                }
            }
        }
        let number = |port: &Dpdk| {
            let (mut number, name) = (0, CString::new(port.name()).unwrap_or_default());
            // SAFETY: the name is a string, and the number is valid for writes.
            match unsafe { fibula_traffic_port(name.as_ptr(), &raw mut number) } {
                0 => Ok(number),
                _ => Err(BenchError::Setting(format!("{}: DPDK does not know it", port.name()))),
            }
        };
        self.numbers = self.ports.iter().map(number).collect::<Result<_, _>>()?;
        Ok(())
    }

    /// The lines to a switch.
    fn lines(&self, switch: usize, words: &[Vec<u64>]) -> Vec<RawLine> {
        let ports = &self.numbers[switch * self.n_ports..][..self.n_ports];
        let line = |(&port, words): (&u16, &Vec<u64>)| RawLine {
            words: words.as_ptr(),
            n_words: words.len() as u32,
            next: 0,
            seen: null_mut(),
            port,
            n_ready: 0,
            ready: [null_mut(); BURST],
        };
        ports.iter().zip(words).map(line).collect()
    }

    fn run(&mut self, lines: &mut [RawLine], plan: RawPlan) -> RawCounts {
        self.last = self.last.wrapping_add(1);
        let plan = RawPlan { run: self.last, ..plan };
        let (sent, received, wrong, heard, wrong_line, wrong_bytes, ns) = (0, 0, 0, 0, 0, 0, 0);
        let mut counts = RawCounts { sent, received, wrong, heard, wrong_line, wrong_bytes, wrong_frame: [0; 64], ns };
        let n_lines = lines.len() as u32;
        // SAFETY: the ports of the lines are open and used by this thread alone; their words, and what counts them, are longer
        // lived than the call, and as many as they say.
        unsafe {
            fibula_traffic_run(self.pool.as_ptr(), lines.as_mut_ptr(), n_lines, &raw const plan, &raw mut counts)
        };
        counts
    }

    fn drain(lines: &mut [RawLine]) {
        // SAFETY: as for `run`.
        unsafe { fibula_traffic_drain(lines.as_mut_ptr(), lines.len() as u32, QUIET_US) };
    }

    fn measure(&mut self, switch: usize, frames: Frames, us: u64) -> Counts {
        let mut lines = self.lines(switch, &self.often);
        Self::drain(&mut lines);
        self.run(&mut lines, raw_plan(frames, WARM_UP_US));
        let raw = self.run(&mut lines, raw_plan(frames, us));
        Self::drain(&mut lines);
        counts(&raw)
    }

    fn check(&mut self, switch: usize, frames: Frames) -> Counts {
        let mut lines = self.lines(switch, &self.once);
        Self::drain(&mut lines);
        let mut seen: Vec<Vec<u8>> = self.once.iter().map(|words| vec![0; words.len()]).collect();
        for (line, seen) in lines.iter_mut().zip(&mut seen) {
            line.seen = seen.as_mut_ptr();
        }
        let longest_us = PATIENCE.as_micros() as u64;
        let plan = raw_plan(frames, longest_us);
        let plan = RawPlan { is_once: 1, n_under_way: UNDER_WAY, quiet_us: longest_us / 20, ..plan };
        let raw = self.run(&mut lines, plan);
        Self::drain(&mut lines);
        let missing = self.once.iter().flatten().zip(seen.iter().flatten()).find(|&(_, &seen)| seen == 0);
        Counts { missing: missing.map(|(&word, _)| word & 0xffff_ffff_ffff), ..counts(&raw) }
    }
}

fn raw_plan(frames: Frames, longest_us: u64) -> RawPlan {
    RawPlan {
        frame_bytes: frames.bytes as u16,
        run: 0,
        hops_in: shim::INITIAL_HOPS,
        hops_out: shim::INITIAL_HOPS - u8::from(frames.counts_hops),
        is_swapped: frames.swaps.into(),
        is_once: 0,
        n_under_way: 0,
        longest_us,
        quiet_us: longest_us,
    }
}

fn counts(raw: &RawCounts) -> Counts {
    let bytes = &raw.wrong_frame[..(raw.wrong_bytes as usize).min(raw.wrong_frame.len())];
    let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    let first_wrong = if raw.wrong == 0 { String::new() } else { format!("out of port {}: {hex}", raw.wrong_line) };
    let RawCounts { sent, received, wrong, heard, ns, .. } = *raw;
    Counts { sent, received, wrong, heard, ns, first_wrong, missing: None }
}
