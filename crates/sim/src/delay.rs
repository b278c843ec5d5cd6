//! Processing delay of a FIB: packets pass a queue to a processor whose lookups read memory through two caches.
//!
//! The delay of a packet is the time from its arrival at the FIB to the action found for it: the wait for earlier
//! packets, a fixed computing time (hash and the like), and the time of the lines that the lookup reads. The structure
//! itself lists those lines ([`lookup::base::touches`]); a line counts once per lookup. So lookups of popular names are
//! fast while their lines are in a cache, and packets wait where lookups are slow.
//!
//! Source: the event-based simulation of "Memory-efficient and Ultra-fast Network Lookup and Forwarding using Othello
//! Hashing", section VI.D.1 (Figure 9), and of its ICNP version, section 6.3.1 (Figure 6). They give neither the sizes and
//! times of the caches, nor the number of names, nor what else is in the caches: here each is a setting.
//! Limits: the caches hold nothing but the table and packets; one packet is looked up at a time, not a burst.

use lookup::base::touches::{Region, Touch};

use crate::arrivals::Arrival;
use crate::cache::{self, Cache, CacheError, Found};
use crate::queue::Processor;

/// The processor.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Settings {
    /// Its caches.
    pub cache: cache::Settings,
    /// Computing time per packet.
    pub compute_ps: u64,
    /// Whether independent reads overlap; if not, each begins when the previous one has ended.
    pub overlap: bool,
    /// Lines of each packet that pass through the caches before its lookup, and take space there. Their time is not
    /// part of the delay, since the name is known when a packet reaches the FIB.
    pub packet_lines: u32,
    /// Packets after which delays are counted: until then the caches fill.
    pub warm_up: usize,
}

impl Default for Settings {
    /// The papers' processor ([`cache::Settings::PAPERS`]), one read after the other, and one header line per packet.
    fn default() -> Self {
        Self { cache: cache::Settings::PAPERS, compute_ps: 5_000, overlap: false, packet_lines: 1, warm_up: 100_000 }
    }
}

/// Number of packet buffers, used in turn.
const BUFFERS: u64 = 1 << 10;
/// Bytes of each buffer.
const BUFFER_BYTES: u64 = 2 << 10;

/// The result: delays of all counted packets, and their causes.
#[derive(Clone, Debug, PartialEq)]
pub struct Delays {
    /// Sorted.
    delays_ps: Vec<u64>,
    /// Mean time of a packet in the processor.
    pub mean_service_ps: f64,
    /// Lines that lookups found in the first level, in the second and in memory, on average per packet.
    pub lines: [f64; 3],
    /// See [`Processor::offered`].
    pub offered: f64,
    /// See [`Processor::utilisation`].
    pub utilisation: f64,
}

impl Delays {
    /// Number of packets counted.
    pub fn n_packets(&self) -> usize {
        self.delays_ps.len()
    }

    /// Whether less work arrives than the processor can do; if not, the delays are those of an ever-growing queue.
    pub fn is_stable(&self) -> bool {
        self.offered < 1.0
    }

    /// The least delay that `share` of the packets do not exceed, in nanoseconds; `share` is in (0, 1]. 0 without packets.
    pub fn percentile_ns(&self, share: f64) -> f64 {
        let rank = (share * self.n_packets() as f64).ceil().max(1.0) as usize;
        let delay_ps = self.delays_ps.get(rank.min(self.n_packets()).wrapping_sub(1));
        delay_ps.map_or(0.0, |&delay_ps| delay_ps as f64 / 1e3)
    }

    /// The share of packets whose delay is at most `ns` nanoseconds; 0 without packets.
    pub fn share_within_ns(&self, ns: f64) -> f64 {
        let n_within = self.delays_ps.partition_point(|&delay_ps| delay_ps as f64 <= ns * 1e3);
        n_within as f64 / self.n_packets().max(1) as f64
    }

    /// Mean delay in nanoseconds; 0 without packets.
    pub fn mean_ns(&self) -> f64 {
        self.delays_ps.iter().sum::<u64>() as f64 / self.n_packets().max(1) as f64 / 1e3
    }

    /// The distribution as (delay in nanoseconds, share of packets that do not exceed it) at `n_points` equal steps of the
    /// share.
    pub fn cdf(&self, n_points: usize) -> Vec<(f64, f64)> {
        let share = |step: usize| step as f64 / n_points as f64;
        (1..=n_points).map(|step| (self.percentile_ns(share(step)), share(step))).collect()
    }
}

/// Plays `packets`; the lookup of each reads what `reads` lists for its name.
/// # Errors
/// [`CacheError`].
/// # Panics
/// If packets are not in order.
pub fn run(
    settings: &Settings,
    packets: impl Iterator<Item = Arrival>,
    mut reads: impl FnMut(u64, &mut dyn FnMut(Touch)),
) -> Result<Delays, CacheError> {
    let mut cache = Cache::new(settings.cache)?;
    let mut processor = Processor::default();
    let (mut delays_ps, mut found_at, mut busy_ps) = (Vec::new(), [0u64; 3], 0);
    // Lines of the current lookup, with their stages.
    let mut lines: Vec<(u64, u8)> = Vec::new();
    for (index, packet) in packets.enumerate() {
        let is_counted = index >= settings.warm_up;
        if index == settings.warm_up {
            // Packets that wait at this moment are part of the experiment; earlier ones are not.
            processor = processor.with_counts_reset();
        }
        for line in 0..u64::from(settings.packet_lines) {
            let offset = index as u64 % BUFFERS * BUFFER_BYTES + line * settings.cache.line_bytes;
            let line = cache.line_of(address(PACKETS, offset));
            cache.read(line);
        }
        lines.clear();
        reads(packet.name, &mut |touch| {
            let first = address(region_of(touch.region), touch.offset as u64);
            for line in cache.line_of(first)..=cache.line_of(first + touch.bytes.max(1) as u64 - 1) {
                if !lines.iter().any(|&(seen, _)| seen == line) {
                    lines.push((line, touch.stage));
                }
            }
        });
        let service_ps = settings.compute_ps
            + read_all(&mut cache, &lines, settings.overlap, |found| {
                found_at[found as usize] += u64::from(is_counted);
            });
        let delay_ps = processor.serve(packet.at_ps, service_ps);
        if is_counted {
            delays_ps.push(delay_ps);
            busy_ps += service_ps;
        }
    }
    delays_ps.sort_unstable();
    let n = delays_ps.len().max(1) as f64;
    Ok(Delays {
        mean_service_ps: busy_ps as f64 / n,
        lines: found_at.map(|lines| lines as f64 / n),
        offered: processor.offered(),
        utilisation: processor.utilisation(),
        delays_ps,
    })
}

/// Time of the lines of a lookup.
fn read_all(cache: &mut Cache, lines: &[(u64, u8)], overlap: bool, mut found_at: impl FnMut(Found)) -> u64 {
    let (mut before_ps, mut stage_ps, mut stage) = (0, 0, 0);
    for &(line, of_stage) in lines {
        let found = cache.read(line);
        found_at(found);
        let latency_ps = cache.latency_ps(found);
        if overlap && of_stage == stage {
            stage_ps = latency_ps.max(stage_ps);
        } else {
            before_ps += stage_ps;
            (stage_ps, stage) = (latency_ps, of_stage);
        }
    }
    before_ps + stage_ps
}

/// The region of packets, apart from the regions of a table.
const PACKETS: u64 = 0;

fn region_of(region: Region) -> u64 {
    match region {
        Region::Directory => 1,
        Region::Words => 2,
        Region::Counters => 3,
    }
}

/// Regions are far apart. Each begins at another set of the caches; otherwise their first lines would all share one.
fn address(region: u64, offset: u64) -> u64 {
    (region << 44) + (region << 10) + offset
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cache::Level;

    /// Two sets of two lines of 64 bytes, behind them four sets; 1, 10 and 100 ns; 5 ns of computing; nothing else.
    fn settings() -> Settings {
        let level = |size_bytes, latency_ps| Level { size_bytes, ways: 2, latency_ps };
        let cache = cache::Settings {
            line_bytes: 64,
            first: level(256, 1_000),
            second: level(512, 10_000),
            memory_ps: 100_000,
        };
        Settings { cache, compute_ps: 5_000, overlap: false, packet_lines: 0, warm_up: 0 }
    }

    /// Reads of the words: (offset, bytes, stage).
    fn reads(of: impl Fn(u64) -> Vec<(usize, usize, u8)>) -> impl FnMut(u64, &mut dyn FnMut(Touch)) {
        move |name, touch| {
            for (offset, bytes, stage) in of(name) {
                touch(Touch { region: Region::Words, offset, bytes, stage });
            }
        }
    }

    fn packets(at_ns: &[(u64, u64)]) -> impl Iterator<Item = Arrival> {
        at_ns.iter().map(|&(at_ns, name)| Arrival { at_ps: at_ns * 1_000, name })
    }

    #[test]
    fn a_delay_is_the_wait_the_computing_and_the_lines() {
        // A name reads a byte of its own line. Even lines share a set of the first level; 2 is in another of the second.
        let own_line = |name: u64| vec![(name as usize * 64, 1, 0)];
        let seen = [(0, 0), (10, 0), (300, 2), (500, 4), (700, 0), (800, 0)];
        let delays = run(&settings(), packets(&seen), reads(own_line)).unwrap();
        // 100 + 5; 1 + 5 behind 95 of waiting; twice 100 + 5; 10 + 5, since 4 evicted 0 from the first level; 1 + 5.
        assert_eq!(delays.delays_ps, [6_000, 15_000, 101_000, 105_000, 105_000, 105_000]);
        assert_eq!(delays.lines, [2.0 / 6.0, 1.0 / 6.0, 3.0 / 6.0]);
        assert_eq!(delays.mean_service_ps, 342_000.0 / 6.0);
        assert_eq!((delays.offered, delays.utilisation), (342.0 / 800.0, 342.0 / 806.0));
        assert!(delays.is_stable());
        let percentiles = [0.01, 1.0 / 6.0, 0.17, 0.5, 0.51, 1.0].map(|share| delays.percentile_ns(share));
        assert_eq!(percentiles, [6.0, 6.0, 15.0, 101.0, 105.0, 105.0]);
        let shares = [5.9, 6.0, 104.0, 1e9].map(|ns| delays.share_within_ns(ns));
        assert_eq!(shares, [0.0, 1.0 / 6.0, 0.5, 1.0]);
        assert_eq!(delays.cdf(2), [(101.0, 0.5), (105.0, 1.0)]);

        // Six times as fast it is too much for the processor.
        let hurried: Vec<_> = seen.iter().map(|&(at_ns, name)| (at_ns / 6, name)).collect();
        let delays = run(&settings(), packets(&hurried), reads(own_line)).unwrap();
        assert!(!delays.is_stable());
        assert_eq!(delays.percentile_ns(1.0), (105 + 6 + 105 + 105 - 83) as f64);

        // Only packets after the warm-up count, and they find full caches.
        let delays = run(&Settings { warm_up: 4, ..settings() }, packets(&seen), reads(own_line)).unwrap();
        assert_eq!(delays.delays_ps, [6_000, 15_000]);
        assert_eq!((delays.lines, delays.offered), ([0.5, 0.5, 0.0], 21.0 / 100.0));
    }

    #[test]
    fn a_line_counts_once_and_reads_of_a_stage_may_overlap() {
        // Two cells of one line, one across the end of it; what they lead to; and the first line again.
        let delays = |overlap| {
            let chain = |_| vec![(0, 8, 0), (60, 8, 0), (8, 8, 0), (1_000, 1, 1), (3, 1, 1)];
            run(&Settings { overlap, ..settings() }, packets(&[(0, 0), (1_000, 0)]), reads(chain)).unwrap().delays_ps
        };
        // Lines 0, 1 and 15: from memory, then from the first level.
        assert_eq!(delays(false), [5_000 + 3 * 1_000, 5_000 + 3 * 100_000]);
        assert_eq!(delays(true), [5_000 + 2 * 1_000, 5_000 + 2 * 100_000]);
    }

    #[test]
    fn packets_take_room_in_the_caches_but_no_time() {
        // 16 lines per packet pass through caches of 8.
        let through = Settings { packet_lines: 16, ..settings() };
        let delays = run(&through, packets(&[(0, 0), (1_000, 0)]), reads(|_| vec![(0, 1, 0)])).unwrap();
        assert_eq!(delays.delays_ps, [105_000, 105_000]);
    }

    #[test]
    fn no_packets_have_no_delays() {
        let delays = run(&settings(), packets(&[]), reads(|_| vec![])).unwrap();
        assert_eq!((delays.n_packets(), delays.mean_ns(), delays.percentile_ns(0.5)), (0, 0.0, 0.0));
        assert!(delays.is_stable() && delays.cdf(3).len() == 3);
    }
}
