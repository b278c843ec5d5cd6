//! Files that are handed round: FIBs, filters, prefixes. Their checksums are corrected, so that changes get past them.

use crate::southbound::{name, sealed};
use fib::action::{Action, PortId};
use fib::designs;
use fib::file::Fib;
use fib::name::NameKind;
use lookup::bloom::image::{self, Header};
use lookup::bloom::{Blocked, Bloom, CounterBits, Counting, DoubleHashing, Layout, Partitioned, Shape, Standard};
use lookup::hash::{Digest, Family, SecretKey};
use lookup::lpm::PrefixTrie;
use lookup::lpm::file;
use lookup::lpm::prefix::Prefix;
use lookup::lpm::trie::Settings;
use lookup::traits::Control;
use xxhash_rust::xxh3::xxh3_64;

const FIB: u8 = 0;
const PREFIXES: u8 = 1;
/// A filter of some layout; the same with counters.
const FILTER: u8 = 2;
const COUNTING: u8 = 6;

/// Reads a file of the kind that the first byte selects, given without its checksum.
pub(crate) fn files(data: &[u8]) {
    let Some((what, content)) = data.split_first() else { return };
    let xxh3 = || [content, &xxh3_64(content).to_le_bytes()].concat();
    match what % 10 {
        FIB => fib(&sealed(&[], content)),
        PREFIXES => prefixes(&xxh3()),
        2 => filter::<DoubleHashing>(&xxh3()),
        3 => filter::<Standard>(&xxh3()),
        4 => filter::<Partitioned>(&xxh3()),
        5 => filter::<Blocked>(&xxh3()),
        6 => counting::<DoubleHashing>(&xxh3()),
        7 => counting::<Standard>(&xxh3()),
        8 => counting::<Partitioned>(&xxh3()),
        _ => counting::<Blocked>(&xxh3()),
    }
}

fn fib(bytes: &[u8]) {
    let Ok(fib) = Fib::decode(bytes) else { return };
    let written = fib.encode();
    let again = Fib::decode(&written).expect("what was read can be written and read");
    assert_eq!(again.encode(), written);
    for name in (0..4).filter_map(|i| name(fib.kind(), i)) {
        assert_eq!(fib.lookup(&name), again.lookup(&name));
    }
}

fn prefixes(bytes: &[u8]) {
    let Ok(file) = file::decode(bytes) else { return };
    let (mut short, mut long) = ([0; 4], [0; 4]);
    file.ipv4.lookup_batch(&[0, 1 << 24, 10 << 24, u32::MAX], &mut short);
    file.ipv6.lookup_batch(&[0, 1 << 100, 0xfd << 120, u128::MAX], &mut long);
    short.iter().chain(&long).for_each(|hop| _ = file.hop(*hop));
}

const DIGESTS: [Digest; 3] = [Digest(0), Digest(u64::MAX), Digest(0x1234_5678_9abc_def0)];

fn filter<L: Layout>(bytes: &[u8]) {
    let Ok((header, filter)) = image::decode::<L>(bytes) else { return };
    let answers = DIGESTS.map(|digest| filter.lookup(digest));
    let (_, again) =
        image::decode::<L>(&image::encode(&filter, &header)).expect("what was read can be written and read");
    assert_eq!(DIGESTS.map(|digest| again.lookup(digest)), answers);
}

fn counting<L: Layout>(bytes: &[u8]) {
    let Ok((header, mut counting)) = image::decode_counting::<L>(bytes) else { return };
    let written = image::encode_counting(&counting, &header);
    image::decode_counting::<L>(&written).expect("what was read can be written and read");
    let mut changes = Vec::new();
    for digest in DIGESTS {
        counting.insert(digest, &mut changes);
        assert!(counting.filter().lookup(digest));
    }
    for digest in DIGESTS {
        let _ = counting.remove(digest, &mut changes);
    }
}

pub(crate) fn seeds() -> Vec<Vec<u8>> {
    let mut seeds = Vec::new();
    let mut add = |what: u8, file: Vec<u8>| {
        if file.len() < 40_000 {
            seeds.push([&[what][..], &file[..file.len() - 8]].concat());
        }
    };
    for design in designs::all() {
        for kind in [NameKind::Mac, NameKind::Text] {
            let entry = |i| Some((name(kind, i)?, Action::Port(PortId(u16::from(i) % 3))));
            let entries: Vec<_> = (0..20).filter_map(entry).collect();
            let fib = Fib::build(design, kind, Family::MulAdd, 1, &entries).expect("small FIBs build");
            add(FIB, fib.encode());
        }
    }
    let settings = Settings::new(4, &SecretKey::from_seed(5));
    let mut ipv4 = PrefixTrie::<u32>::new(settings.clone());
    let mut ipv6 = PrefixTrie::<u128>::new(settings.clone());
    for (i, len) in (1..).zip([0, 8, 24, 32]) {
        ipv4.insert(Prefix::of(0x0a01_0203, len), i, &mut Vec::new()).expect("there is room");
        ipv6.insert(Prefix::of(0xfd << 120 | 5, len * 4), i, &mut Vec::new()).expect("there is room");
    }
    let hops: Vec<String> = (0..4).map(|i| format!("10.0.0.{i}")).collect();
    add(PREFIXES, file::encode(&settings, &hops, (&ipv4.whole(), 4), (&ipv6.whole(), 4)));
    let wide = PrefixTrie::<u32, u32>::wide(settings.clone()).whole();
    add(
        PREFIXES,
        file::encode(&settings, &hops, (&wide, 0), (&PrefixTrie::<u128, u32>::wide(settings.clone()).whole(), 0)),
    );
    add(FILTER, filter_seed::<DoubleHashing>(None));
    add(FILTER + 1, filter_seed::<Standard>(None));
    add(FILTER + 2, filter_seed::<Partitioned>(None));
    add(FILTER + 3, filter_seed::<Blocked>(None));
    add(COUNTING, filter_seed::<DoubleHashing>(Some(CounterBits::Four)));
    add(COUNTING + 1, filter_seed::<Standard>(Some(CounterBits::Eight)));
    add(COUNTING + 2, filter_seed::<Partitioned>(Some(CounterBits::Four)));
    add(COUNTING + 3, filter_seed::<Blocked>(Some(CounterBits::Four)));
    seeds
}

fn filter_seed<L: Layout>(counters: Option<CounterBits>) -> Vec<u8> {
    let key = SecretKey::from_seed(5);
    let shape = Shape::<L>::new(1024, 4).expect("a small filter");
    let kind = u16::from_le_bytes(NameKind::Mac.to_wire());
    match counters {
        None => {
            let mut filter = Bloom::new(shape, 9);
            DIGESTS.into_iter().for_each(|digest| filter.insert(digest));
            image::encode(&filter, &Header::new(&filter, Family::MulAdd, &key, 3, kind))
        }
        Some(bits) => {
            let mut counting = Counting::new(shape, bits, 9);
            DIGESTS.into_iter().for_each(|digest| counting.insert(digest, &mut Vec::new()));
            image::encode_counting(&counting, &Header::new(counting.filter(), Family::MulAdd, &key, 3, kind))
        }
    }
}
