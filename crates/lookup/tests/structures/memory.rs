//! Tables in memory as other programs see them: `vectors/memory-NAME.hex` is what is in use of an arena,
//! `vectors/memory-NAME.csv` are its answers. `FIBULA_WRITE_VECTORS=1` rewrites them.

use std::fs::OpenOptions;
use std::path::{Path, PathBuf};

use fibula_lookup::base::arena::Arena;
use fibula_lookup::hash::{Digest, SecretKey, mix64};
use fibula_lookup::line::{LineTable, Settings as LineSettings, Trade};
use fibula_lookup::othello::{Othello, Settings};
use fibula_lookup::traits::{Control, Query, Replicated, ShareError};

/// Names in a table, in two shards or more; then aliens.
const N_NAMES: u64 = 4000;
const N_ALIENS: u64 = 200;

fn key() -> SecretKey {
    SecretKey::from_seed(22)
}

fn digest(n: u64) -> Digest {
    Digest(mix64(n + 1))
}

/// A table in a file, as a switch would share it.
fn shared<C: Control<Key = Digest>>(what: &str, mut control: C, n_values: u64) -> (C::Query, PathBuf)
where
    C::Query: Replicated,
{
    let entries: Vec<_> = (0..N_NAMES).map(|n| (digest(n), 1 + n % n_values)).collect();
    control.insert_batch(&entries, &mut Vec::new()).expect("room");
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("memory-{what}"));
    let file = OpenOptions::new().read(true).write(true).create(true).truncate(true).open(&path).expect("a file");
    let make = &mut |bytes| Arena::on_file(file.try_clone()?, bytes);
    let mut query = control.export().moved_to(make).expect("memory");
    // Values 1 to 3 are ports 7 to 9.
    let mut annex = [0; 96];
    for value in 1..4 {
        annex[24 * value] = 1;
        annex[24 * value + 2] = 6 + value as u8;
    }
    let mut names = [0; 5];
    // MAC addresses, hashed by muladd.
    names[0] = 0x0101;
    for (word, bytes) in names[1..].iter_mut().zip(key().as_bytes().chunks_exact(8)) {
        *word = u64::from_le_bytes(bytes.try_into().expect("eight bytes"));
    }
    let outside = query.outside().expect("it can be shared");
    outside.set_annex(&annex).expect("room");
    outside.complete(names, [0, 0]);
    (query, path)
}

fn vector(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../vectors").join(name)
}

#[expect(clippy::disallowed_methods, reason = "golden vectors are files")]
fn compare<C: Control<Key = Digest>>(what: &str, control: C, n_values: u64)
where
    C::Query: Replicated + Query<Key = Digest>,
{
    let (query, path) = shared(what, control, n_values);
    let hex = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    let memory = std::fs::read(&path).expect("the file");
    std::fs::remove_file(&path).expect("the file");
    // Whole lines, as far as something is in them.
    let used = memory.iter().rposition(|&byte| byte != 0).map_or(0, |last| (last + 1).next_multiple_of(64));
    let table: String = memory[..used].chunks(32).map(|line| hex(line) + "\n").collect();
    let answer = |n| {
        let value = query.lookup(digest(n));
        format!("{},{},{value:02x}\n", hex(key().as_bytes()), hex(&digest(n).0.to_le_bytes()))
    };
    let answers = format!("key,name,value\n{}", (0..N_NAMES + N_ALIENS).step_by(7).map(answer).collect::<String>());
    for (file, text) in [(format!("memory-{what}.hex"), table), (format!("memory-{what}.csv"), answers)] {
        if std::env::var_os("FIBULA_WRITE_VECTORS").is_some() {
            std::fs::write(vector(&file), &text).expect("written");
        }
        assert_eq!(std::fs::read_to_string(vector(&file)).expect(&file), text, "{file}");
    }
}

#[test]
fn tables_in_memory_are_the_golden_ones_and_give_the_golden_answers() {
    let othello = |value_bits| -> Othello { Othello::new(Settings::new(value_bits, 5000, &key())) };
    compare("concise-8", othello(8), 200);
    compare("concise-16", othello(16), 60_000);
    let ofw: Othello = Othello::new(Settings::new(5, 5000, &key()).with_fingerprints(11));
    compare("ofw", ofw, 30);
    compare("line", LineTable::new(LineSettings::new(8, 5000, &key())), 200);
    compare("line-small", LineTable::new(LineSettings::new(11, 5000, &key()).with_trade(Trade::Small)), 2000);
}

#[test]
fn a_structure_that_is_not_words_in_one_arena_says_so() {
    use fibula_lookup::cuckoo::exact::{Cuckoo, Settings};
    use fibula_lookup::hash::Family;
    let table = Cuckoo::<1>::with_capacity(Settings::new(6, 8, 10, Family::MulAdd, &key()), 0);
    let moved = table.export().moved_to(&mut |_| panic!("no memory is needed"));
    assert!(matches!(moved, Err(ShareError::Unsupported)));
}
