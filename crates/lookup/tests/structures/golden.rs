//! Golden vectors of tables with slots, filters and rules: `vectors/NAME.hex` is a whole table as an update,
//! `vectors/NAME.csv` are its answers. `FIBULA_WRITE_VECTORS=1` rewrites them; `vectors/check.py` reads them without any
//! of fibula's code.

use std::path::{Path, PathBuf};

use fibula_lookup::bloom_fib::{BloomFib, Form, Policy, Settings as BloomSettings};
use fibula_lookup::cuckoo::exact::{Cuckoo, Settings as CuckooSettings, name};
use fibula_lookup::cuckoo::filtable::{Filtable, Settings as FiltableSettings};
use fibula_lookup::hash::{Digest, Family, SecretKey, mix64};
use fibula_lookup::traits::{Control, Replicated};
use fibula_lookup::tuple_space::{Flow, Pattern, Rule, Settings as RuleSettings, Tuple, TupleSpace};

/// Names in a table, and aliens that are looked up after them.
const N_NAMES: u64 = 300;
const N_ALIENS: u64 = 50;

fn key() -> SecretKey {
    SecretKey::from_seed(21)
}

fn vector(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../vectors").join(name)
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Compares a table and its answers for names, given as bytes, with the files.
#[expect(clippy::disallowed_methods, reason = "golden vectors are files")]
fn compare<Q: Replicated>(what: &str, query: &Q, names: impl Iterator<Item = (Vec<u8>, Q::Key)>) {
    let mut bytes = Vec::new();
    Q::encode_update(&query.settings(), &Q::update_of(query.images()), &mut bytes);
    let table: String = bytes.chunks(32).map(|line| hex(line) + "\n").collect();
    let answer = |(bytes, key): (Vec<u8>, Q::Key)| format!("{},{:02x}\n", hex(&bytes), query.lookup(key));
    let answers = format!(
        "key,name,value\n{}",
        names.map(|name| hex(key().as_bytes()) + "," + &answer(name)).collect::<String>()
    );
    for (file, text) in [(format!("{what}.hex"), table), (format!("{what}.csv"), answers)] {
        if std::env::var_os("FIBULA_WRITE_VECTORS").is_some() {
            std::fs::write(vector(&file), &text).unwrap();
        }
        assert_eq!(std::fs::read_to_string(vector(&file)).unwrap(), text, "{file}");
    }
}

/// Digests of names and aliens, with the bytes of both.
fn digests() -> impl Iterator<Item = (Vec<u8>, Digest)> {
    (0..N_NAMES + N_ALIENS).map(|n| Digest(mix64(n + 1))).map(|digest| (digest.0.to_le_bytes().to_vec(), digest))
}

/// Fills a table of digests, and removes and moves some of its names.
fn fill<C: Control<Key = Digest>>(table: &mut C, n_values: u64) {
    for (n, (_, digest)) in (0..N_NAMES).zip(digests()) {
        table.insert(digest, 1 + n % n_values, &mut Vec::new()).unwrap();
    }
    for (n, (_, digest)) in (0..N_NAMES).zip(digests()).filter(|(n, _)| n % 7 == 0) {
        match n % 2 {
            0 => assert!(table.remove(digest, &mut Vec::new())),
            _ => table.insert(digest, 1 + (n + 1) % n_values, &mut Vec::new()).unwrap(),
        }
    }
}

/// A cuckoo table of names of `bytes` bytes.
fn cuckoo<const W: usize>(what: &str, bytes: usize) {
    let mut table = Cuckoo::<W>::with_capacity(CuckooSettings::new(bytes as u8, 8, 1000, Family::MulAdd, &key()), 0);
    let names = || {
        (0..N_NAMES + N_ALIENS).map(|n| {
            let name_of = [mix64(n), mix64(!n)].map(u64::to_le_bytes).as_flattened()[..bytes].to_vec();
            (name_of.clone(), name::<W>(&name_of).unwrap())
        })
    };
    for (n, (_, key)) in (0..N_NAMES).zip(names()) {
        table.insert(key, 1 + n % 255, &mut Vec::new()).unwrap();
    }
    compare(what, &table.export(), names());
}

#[test]
fn cuckoo_tables_are_the_golden_ones() {
    // With the value beside the name in its word, and in a word of its own.
    cuckoo::<1>("cuckoo-6", 6);
    cuckoo::<2>("cuckoo-16", 16);
}

#[test]
fn filtables_are_the_golden_ones() {
    for (what, value_bits, fingerprint_bits) in [("cfw-16", 6, 10), ("cfw-32", 12, 8)] {
        let mut table = Filtable::new(FiltableSettings::new(value_bits, fingerprint_bits, 1000, &key()));
        fill(&mut table, (1 << value_bits) - 1);
        compare(what, &table.export(), digests());
    }
}

#[test]
fn bloom_forwarders_are_the_golden_ones() {
    let policies = [
        ("bfw", Policy::Bfw { hashes: 6 }),
        ("buffalo", Policy::Buffalo { bits_a_name: 16, max_hashes: 8 }),
        ("summary-cache", Policy::summary_cache()),
    ];
    for (what, policy) in policies {
        let mut table = BloomFib::new(BloomSettings::new(3, 1000, policy, Form::Separate, &key()));
        fill(&mut table, 7);
        compare(what, &table.export(), digests());
    }
}

#[test]
fn tuple_spaces_are_the_golden_ones() {
    let mut rules = TupleSpace::new(RuleSettings::new(8, 8, 1000, Family::MulAdd, &key()));
    let flow = |n: u64| {
        let bits = mix64(n);
        Flow {
            source: [10, 0, 0, bits as u8 % 8].into(),
            destination: [192, 0, 2, (bits >> 8) as u8].into(),
            protocol: if bits >> 16 & 1 == 0 { 6 } else { 17 },
            source_port: (bits >> 32) as u16,
            destination_port: (bits >> 48) as u16 % 4,
        }
        .key()
    };
    let tuples = [
        Tuple::EXACT,
        Tuple::ANY.source(30).destination(28).protocol(true),
        Tuple::ANY.destination(27).ports(false, true),
        Tuple::ANY.source(24),
    ];
    for n in 0..N_NAMES {
        let pattern = Pattern::new(tuples[n as usize % 4], flow(n));
        rules.insert_rule(&Rule { pattern, priority: n as u32 % 5, value: 1 + n % 250 }, &mut Vec::new()).unwrap();
    }
    let flows = (0..N_NAMES + N_ALIENS).map(|n| {
        let key = flow(n);
        (key.map(u64::to_le_bytes).as_flattened()[..13].to_vec(), key)
    });
    compare("tss", &rules.export(), flows);
}
