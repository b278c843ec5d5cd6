//! A log in a file.

use super::*;
use lookup::testkit::{Rng, seed};

const STORE: u128 = 0x1234_5678_9abc;

fn record(number: u64, value_len: usize) -> Record {
    let put = RowChange { kind: 5, key: number.to_be_bytes().to_vec(), value: Some(vec![number as u8; value_len]) };
    Record { number, rows: vec![put, RowChange { kind: 7, key: vec![], value: None }] }
}

/// A log with a generation before the last one, and these records after `base`.
fn log(path: &Path, base: u64, lens: &[usize]) -> Log {
    let mut log = Log::open(path).unwrap().unwrap();
    log.begin(STORE, 1, 0).unwrap();
    for number in 1..=base {
        log.append(number, record(number, 2000).rows.iter()).unwrap();
    }
    log.begin(STORE, 2, base).unwrap();
    for (number, len) in (base + 1..).zip(lens) {
        log.append(number, record(number, *len).rows.iter()).unwrap();
    }
    log
}

#[test]
fn records_come_back_and_voided_ones_do_not() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("log");
    let lens = [0, 10, 3_000, 470, 471, 480, 100_000];
    let mut log = log(&path, 3, &lens);
    log.append(11, record(11, 5_000).rows.iter()).unwrap();
    log.void_last().unwrap();
    log.append(11, record(11, 7).rows.iter()).unwrap();
    let contents = log.read().unwrap().unwrap();
    let mut expected: Vec<Record> = (4..).zip(lens).map(|(number, len)| record(number, len)).collect();
    expected.push(record(11, 7));
    assert!(contents.records == expected);
    assert_eq!((contents.store, contents.generation, contents.base, contents.last), (STORE, 2, 3, 11));
    assert!(!contents.damaged && contents.end == log.end);
    assert!(Log::open(&path).unwrap().is_none(), "locked");
}

#[test]
fn torn_record_was_never_acknowledged_and_is_no_damage() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("log");
    let log = log(&path, 2, &[100, 4_000]);
    let whole = std::fs::read(&path).unwrap();
    let before = log.read().unwrap().unwrap();
    let mut longer = Log::open(&directory.path().join("longer")).unwrap().unwrap();
    std::fs::write(directory.path().join("longer"), &whole).unwrap();
    longer.go_on(&before);
    longer.append(5, record(5, 3_000).rows.iter()).unwrap();
    let longer = std::fs::read(directory.path().join("longer")).unwrap();
    let blocks: Vec<usize> =
        (0..whole.len() / BLOCK).filter(|i| whole[i * BLOCK..][..BLOCK] != longer[i * BLOCK..][..BLOCK]).collect();
    assert!(blocks.len() > 4);
    for written in 0..(1 << blocks.len()) - 1 {
        let mut torn = whole.clone();
        for (_, block) in blocks.iter().enumerate().filter(|(i, _)| written >> i & 1 == 1) {
            torn[block * BLOCK..][..BLOCK].copy_from_slice(&longer[block * BLOCK..][..BLOCK]);
        }
        let mut contents = Contents::of(&torn);
        assert_eq!(contents.leftover, written != 0, "{written:b}");
        contents.leftover = false;
        assert_eq!(contents, before, "{written:b}");
    }
    assert_eq!(Contents::of(&longer).last, 5);
}

#[test]
fn flipped_bit_never_hides_a_record() {
    let seed = seed();
    println!("seed {seed}");
    let mut rng = Rng::new(seed);
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("log");
    let log = log(&path, 2, &[100, 4_000, 10, 900]);
    let whole = std::fs::read(&path).unwrap();
    let before = log.read().unwrap().unwrap();
    let used = log.end * BLOCK as u64 * 8;
    for i in 0..500 {
        let bits = if i % 2 == 0 { used } else { whole.len() as u64 * 8 };
        let bit = rng.below(bits);
        let mut damaged = whole.clone();
        damaged[(bit / 8) as usize] ^= 1 << (bit % 8);
        let contents = Contents::of(&damaged);
        assert!(contents.last >= before.last, "bit {bit}: {contents:?}");
        assert!(contents.damaged || contents.records == before.records, "bit {bit}");
        let known = contents.records.iter().all(|record| before.records.contains(record));
        assert!(known, "bit {bit}: no record that was never written");
    }
}
