//! The whole experiment at small scale: real tables behind caches that do not hold them.

use fibula_sim::arrivals::Traffic;
use fibula_sim::cache::{self, Level};
use fibula_sim::delay::{Delays, Settings, run};
use fibula_sim::random::mix64;
use lookup::base::touches::{Touch, Touches};
use lookup::cuckoo::exact::{self, Cuckoo, CuckooQuery};
use lookup::hash::{Family, Hasher, SecretKey};
use lookup::line::{self, LineQuery, LineTable};
use lookup::othello::{self, Option2, Othello, OthelloQuery};
use lookup::testkit::seed;
use lookup::traits::{Control, Query};

const NAME_BYTES: usize = 6;
const N_PACKETS: usize = 60_000;

struct Tables {
    names: Vec<u64>,
    hasher: Hasher,
    concise: OthelloQuery<Option2>,
    line: LineQuery,
    cuckoo: CuckooQuery<1>,
}

fn tables(n: usize, seed: u64) -> Tables {
    let key = SecretKey::from_seed(seed);
    let hasher = Hasher::new(Family::MulAdd, &key);
    let names: Vec<u64> = (0..n as u64).map(|index| mix64(seed ^ index) >> 16).collect();
    let digests: Vec<_> = names.iter().map(|&name| (hasher.digest_word(name, NAME_BYTES), 1 + name % 255)).collect();
    let named: Vec<_> = names.iter().map(|&name| ([name], 1 + name % 255)).collect();
    let mut cuckoo = Cuckoo::<1>::with_capacity(exact::Settings::new(NAME_BYTES as u8, 8, n, Family::MulAdd, &key), n);
    cuckoo.insert_batch(&named, &mut Vec::new()).unwrap();
    Tables {
        concise: Othello::build(othello::Settings::new(8, n, &key), &digests, 1).unwrap().1,
        line: LineTable::build(line::Settings::new(8, n, &key), &digests, 1).unwrap().1,
        cuckoo: cuckoo.export(),
        names,
        hasher,
    }
}

/// 2 KiB and 32 KiB, in front of tables of some 26 KB (lines), 64 KB (Concise) and 230 KB (Cuckoo).
fn settings() -> Settings {
    let level = |size_bytes, ways, latency_ps| Level { size_bytes, ways, latency_ps };
    let cache = cache::Settings {
        first: level(2 << 10, 4, 1_000),
        second: level(32 << 10, 8, 10_000),
        ..cache::Settings::PAPERS
    };
    Settings { cache, warm_up: 10_000, ..Settings::default() }
}

impl Tables {
    fn delays(&self, traffic: Traffic, settings: Settings, reads: impl FnMut(u64, &mut dyn FnMut(Touch))) -> Delays {
        run(&settings, traffic.packets(&self.names).take(N_PACKETS), reads).unwrap()
    }

    /// Delays of Concise, the line table, Cuckoo, and Cuckoo that stops when it finds the name.
    fn all(&self, traffic: Traffic, settings: Settings) -> [Delays; 4] {
        let digest = |name| self.hasher.digest_word(name, NAME_BYTES);
        [
            self.delays(traffic, settings, |name, touch| self.concise.touches(digest(name), touch)),
            self.delays(traffic, settings, |name, touch| self.line.touches(digest(name), touch)),
            self.delays(traffic, settings, |name, touch| self.cuckoo.touches([name], touch)),
            self.delays(traffic, settings, |name, touch| self.cuckoo.touches_until_found([name], touch)),
        ]
    }
}

#[test]
fn small_tables_have_small_delays() {
    let seed = seed();
    let tables = tables(20_000, seed);
    let sizes = [tables.line.size_bits(), tables.concise.size_bits(), tables.cuckoo.size_bits()];
    assert!(sizes.is_sorted(), "{sizes:?}");
    let traffic = Traffic { seed, ..Traffic::default() };
    let [concise, line, cuckoo, until_found] = tables.all(traffic, settings());
    for delays in [&concise, &line, &cuckoo, &until_found] {
        assert_eq!(delays.n_packets(), N_PACKETS - 10_000);
        assert!(delays.is_stable() && delays.utilisation > 0.0 && delays.utilisation < 1.0);
        let cdf = delays.cdf(200);
        assert!(cdf.is_sorted_by(|a, b| a.0 <= b.0 && a.1 < b.1) && cdf[199].1 == 1.0);
        // No lookup is faster than its computing time and one line, and some needed memory.
        assert!(cdf[0].0 >= 6.0 && delays.percentile_ns(1.0) > 60.0);
    }
    // Lines per lookup: directory, counter and two cells; directory, guard and one line or a little more; two buckets
    // and their counters, some of them in one line; and fewer of them.
    let lines = |delays: &Delays| delays.lines.iter().sum::<f64>();
    assert!((3.9..=4.0).contains(&lines(&concise)), "{}", lines(&concise));
    // The most popular name gets a tenth of the packets, and may be one that lies a line further: names alike are judged.
    let [_, alike, ..] = tables.all(Traffic { exponent: 0.0, ..traffic }, settings());
    assert!((3.0..3.05).contains(&lines(&alike)), "{}", lines(&alike));
    assert!((3.0..3.3).contains(&lines(&line)), "{}", lines(&line));
    assert!((3.9..=4.0).contains(&lines(&cuckoo)), "{}", lines(&cuckoo));
    assert!(lines(&until_found) < lines(&cuckoo) && lines(&until_found) > 2.0, "{}", lines(&until_found));
    let means = [&line, &concise, &until_found, &cuckoo].map(Delays::mean_ns);
    assert!(means[0] < means[1] && means[1] < means[3] && means[2] < means[3], "{means:?}");
}

#[test]
fn a_hundred_times_the_rate_costs_waiting_and_nothing_else() {
    let seed = seed();
    let tables = tables(20_000, seed);
    let traffic = Traffic { train_packets: 1.0, seed, ..Traffic::default() };
    let slow = tables.all(traffic, settings());
    let fast = tables.all(Traffic { speed_up: 100.0, ..traffic }, settings());
    for (slow, fast) in slow.iter().zip(&fast) {
        // The same packets in the same order find the same lines in the same places.
        assert_eq!((slow.lines, slow.mean_service_ps), (fast.lines, fast.mean_service_ps));
        assert!((fast.offered / slow.offered / 100.0 - 1.0).abs() < 0.01);
        assert!((1..=100).all(|share| {
            let share = f64::from(share) / 100.0;
            fast.percentile_ns(share) >= slow.percentile_ns(share)
        }));
        assert!(fast.mean_ns() > 1.2 * slow.mean_ns(), "packets wait");
    }
    // Equal seeds, equal figures.
    assert_eq!(tables.all(traffic, settings()), slow);
}

#[test]
fn larger_caches_and_overlapping_reads_are_faster() {
    let seed = seed();
    let tables = tables(20_000, seed);
    let traffic = Traffic { seed, ..Traffic::default() };
    let mut large = settings();
    large.cache.second.size_bytes *= 4;
    let overlapping = Settings { overlap: true, ..settings() };
    let base = tables.all(traffic, settings());
    for other in [tables.all(traffic, large), tables.all(traffic, overlapping)] {
        for (base, other) in base.iter().zip(&other) {
            assert!(other.mean_ns() < base.mean_ns());
        }
    }
}
