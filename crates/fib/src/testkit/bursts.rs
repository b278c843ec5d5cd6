//! What lookups answer beside updates, and of long names.

use crate::designs::{BURST, Burst, Design, Emitted, Key, NameList, Spec, Table, keys};
use crate::name::{Name, NameKind};
use lookup::hash::{Digest, Family, SecretKey};
use lookup::testkit::{Rng, seed};

const N_NAMES: u64 = 400;

fn name(kind: NameKind, number: u64) -> Name {
    let bytes: Vec<u8> =
        number.to_be_bytes().into_iter().cycle().skip(2).take(if kind == NameKind::Ipv6 { 16 } else { 6 }).collect();
    Name::from_bytes(kind, &bytes).expect("so many bytes are a name")
}

/// Keeps up to four bursts in flight while the table is replaced again and again.
fn check(spec: &Spec, rng: &mut Rng, context: &str) {
    let hasher = spec.hasher();
    let names: Vec<(Digest, Name)> =
        (0..N_NAMES).map(|number| name(spec.kind, number)).map(|name| (hasher.digest(name.as_bytes()), name)).collect();
    let value = |at: usize, version: usize| (1 + at % 100 + 100 * version) as u16;
    let table = |version| {
        let key = |(at, (digest, name)): (usize, &'_ (Digest, Name))| (*digest, name.clone(), value(at, version));
        let entries: Vec<_> = names.iter().enumerate().map(key).collect();
        let entries: Vec<_> =
            entries.iter().map(|(digest, name, value)| (Key { digest: *digest, name }, *value)).collect();
        spec.build(&entries, 1).expect("the names fit")
    };
    let versions = [table(0), table(1)];
    let images = [versions[0].image(), versions[1].image()];
    let mut served = spec.table(&images[0]).expect("the image is its own");
    let mut reader = served.reader();
    let mut in_flight: std::collections::VecDeque<(Vec<usize>, [bool; 2])> = Default::default();
    let mut now = 0;
    for _ in 0..200 {
        match rng.below(4) {
            0 => {
                now = 1 - now;
                served.overwrite(&images[now]).unwrap_or_else(|error| panic!("{context}: {error}"));
                in_flight.iter_mut().for_each(|(_, seen)| seen[now] = true);
            }
            1 | 2 if in_flight.len() < lookup::publish::ring::IN_FLIGHT => {
                let burst: Vec<usize> =
                    (0..=rng.below(BURST as u64 - 1)).map(|_| rng.below(N_NAMES) as usize).collect();
                with_burst(&names, &burst, |burst| reader.begin(burst));
                let mut seen = [false; 2];
                seen[now] = true;
                in_flight.push_back((burst, seen));
            }
            _ => {
                let Some((burst, seen)) = in_flight.pop_front() else { continue };
                let mut values = vec![0; burst.len()];
                with_burst(&names, &burst, |burst| reader.finish(burst, &mut values));
                for (&at, &got) in burst.iter().zip(&values) {
                    let fits = (0..2).any(|version| seen[version] && u64::from(value(at, version)) == got);
                    assert!(fits, "{context}: name {at} has value {got}; versions {seen:?} were served");
                }
            }
        }
    }
}

fn with_burst(names: &[(Digest, Name)], burst: &[usize], look_up: impl FnOnce(&Burst<'_>)) {
    let digests: Vec<Digest> = burst.iter().map(|&at| names[at].0).collect();
    let names: Vec<&Name> = burst.iter().map(|&at| &names[at].1).collect();
    look_up(&Burst { digests: &digests, names: &NameList(&names) });
}

/// Bursts in flight have values of versions that were served meanwhile.
pub fn bursts_in_flight_have_values_that_were_served(designs: &[&'static Design]) {
    let seed = seed();
    let mut rng = Rng::new(seed);
    for &design in designs {
        for kind in [NameKind::Mac, NameKind::Ipv6] {
            let spec = Spec::new(design, kind, Family::MulAdd, SecretKey::from_seed(seed), 8, N_NAMES as usize);
            check(&spec, &mut rng, &format!("seed {seed}, {} of {kind}", design.name));
        }
    }
}

/// Texts of 1 byte to 4 KiB, which have their first bytes in common.
fn long_texts() -> Vec<Name> {
    let text = |len: usize| -> String { (0..len).map(|at| char::from(b'a' + (at % 23) as u8)).collect() };
    let lengths = (1..=12).map(|n| n * 17).chain([63, 64, 105, 106, 107, 1000, 4095, 4096]);
    lengths.map(|len| Name::from_bytes(NameKind::Text, text(len).as_bytes()).expect("a text")).collect()
}

/// Exact designs tell long texts apart by every byte.
pub fn long_texts_are_told_apart(designs: &[&'static Design]) {
    for &design in designs {
        let names = long_texts();
        let key = SecretKey::from_seed(7);
        let spec = Spec::new(design, NameKind::Text, Family::MulAdd, key, 8, names.len() + 1);
        let keys = keys(&spec.hasher(), names.iter());
        let each = |each: &mut dyn FnMut(Key<'_>, u32)| keys.iter().zip(1..).for_each(|(key, place)| each(*key, place));
        let mut control = spec.control(&each, 1).expect("the names fit");
        control.add_view((0..=100).collect(), &[], &[]).expect("values for all places");
        let mut table = spec.table(&control.image(0).expect("a view")).expect("the image is its own");
        let ask = |table: &dyn Table, digest: Digest, name: &Name| {
            let burst = Burst { digests: &[digest], names: &NameList(&[name]) };
            let (mut once, mut in_phases) = ([0], [0]);
            table.lookup_batch(&burst, &mut once);
            let mut reader = table.reader();
            reader.begin(&burst);
            reader.finish(&burst, &mut in_phases);
            assert_eq!(once, in_phases, "{design}");
            once[0]
        };
        for (key, value) in keys.iter().zip(1..) {
            assert_eq!(ask(&*table, key.digest, key.name), value, "{design}: {} bytes", key.name.as_bytes().len());
            // Another text, of which an enemy has made the digest the same.
            for at in [0, key.name.as_bytes().len() / 2, key.name.as_bytes().len() - 1] {
                let mut other = key.name.as_bytes().to_vec();
                other[at] = b'!';
                let other = Name::from_bytes(NameKind::Text, &other).expect("a text");
                assert_eq!(ask(&*table, key.digest, &other), 0, "{design}: byte {at} of {}", other.as_bytes().len());
            }
        }
        // All names at once, then half of them leave and the others move.
        let digests: Vec<Digest> = keys.iter().map(|key| key.digest).collect();
        let list: Vec<&Name> = names.iter().collect();
        let mut values = vec![0; names.len()];
        table.lookup_batch(&Burst { digests: &digests, names: &NameList(&list) }, &mut values);
        assert_eq!(values, (1..=names.len() as u64).collect::<Vec<_>>(), "{design}");
        for (at, key) in keys.iter().enumerate() {
            let mut emitted = Vec::new();
            let (put, gone) = ([(*key, 50)], [*key]);
            let (put, gone) = if at % 2 == 0 { (&put[..], &gone[..0]) } else { (&put[..0], &gone[..]) };
            control.change(put, gone, &mut emitted).expect("there is room");
            for (_, emitted) in emitted {
                match emitted {
                    Emitted::Update(bytes) => drop(table.apply(&bytes).expect("the next update")),
                    Emitted::Whole(bytes) => table.overwrite(&bytes).expect("the whole table"),
                }
            }
            assert_eq!(ask(&*table, key.digest, key.name), if at % 2 == 0 { 50 } else { 0 }, "{design}: name {at}");
        }
    }
}
