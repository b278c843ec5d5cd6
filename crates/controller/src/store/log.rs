//! The log of a store: the transactions since SQLite's file was last complete, each synced before it is acknowledged.
//!
//! SQLite's own log (WAL) drops everything behind the first damaged page without a word, and cannot tell that from a
//! transaction that a power cut tore. So it is not what makes a change durable. This log is: a start compares it with the
//! state that SQLite has, and carries out again what SQLite lost. One sync a transaction, of a file whose size does not
//! change, instead of one of the WAL.
//!
//! ```text
//! block   512 bytes: | generation 4 | checksum of store, index, generation and the rest 4 | mark 1 | content 503 |
//! file    | header | 7 blocks | header | 7 blocks | record | record | ... | blocks of earlier generations, or zeros |
//! header  "FIBULALG" | store 16 | number of transactions before the first record 8
//! record  length 4 | fingerprint of the transaction 8 | transaction
//! ```
//! A record begins in a block of its own, so that a torn write cannot harm the one before it. The first block of a record
//! has mark 1, the others have 2; mark 3 voids the record that it begins. Headers take turns; the later generation counts.
//! A generation ends when SQLite's file is complete: the next one overwrites its records.
//!
//! Sectors of 512 bytes or more are assumed to be written whole or not at all. Then a torn record, which was never
//! acknowledged, has a block of an earlier generation or of zeros, and a damaged record has not: see [`Contents`].

use super::RowChange;
use super::seal::fingerprint;
use api::crash::step;
use api::seam::{Mistake, mistaken};
use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

const BLOCK: usize = 512;
const CONTENT: usize = BLOCK - 9;
const HEADER_AT: [u64; 2] = [0, 8];
const FIRST_RECORD: u64 = 16;
const MAGIC: &[u8; 8] = b"FIBULALG";

/// A generation ends after this many bytes; the file has this length, unless a record is longer.
pub(super) const LOG_BYTES: u64 = 4 << 20;

const START: u8 = 1;
const MORE: u8 = 2;
const VOID: u8 = 3;

/// A transaction: its number, and the rows it changed, that of the seal last.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Record {
    pub(super) number: u64,
    pub(super) rows: Vec<RowChange>,
}

/// The contents of the log, as its owner finds them.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Contents {
    pub(super) store: u128,
    pub(super) generation: u32,
    /// Transactions that SQLite's file certainly had when the generation began.
    pub(super) base: u64,
    /// The transactions that can be read, in order.
    pub(super) records: Vec<Record>,
    /// The greatest number that an acknowledged transaction can have.
    pub(super) last: u64,
    /// Whether blocks are damaged.
    pub(super) damaged: bool,
    /// Whether the file is shorter than any log that was begun, so that records behind the last one may be missing.
    pub(super) cut: bool,
    /// Whether blocks of a torn record are behind the last one.
    pub(super) leftover: bool,
    /// Block at which the next record goes.
    end: u64,
}

/// The log of the store at a path, held by one process.
#[derive(Debug)]
pub(super) struct Log {
    file: File,
    store: u128,
    generation: u32,
    /// Where the next record goes.
    end: u64,
    /// Where the record of the transaction under way is, and its blocks.
    last: Option<(u64, u64)>,
    buffer: Vec<u8>,
    /// The directory, until it certainly has the file.
    directory: Option<PathBuf>,
    /// Whether a write failed so that what follows it could not be read back.
    broken: bool,
}

/// The path of the log of a store.
pub(super) fn path_of(store: &Path) -> PathBuf {
    let mut path = store.as_os_str().to_owned();
    path.push("-log");
    path.into()
}

impl Log {
    /// Opens the file and locks it, or creates it, empty. `None`: another process has it.
    pub(super) fn open(path: &Path) -> io::Result<Option<Log>> {
        let mut options = OpenOptions::new();
        options.create(true).truncate(false).read(true).write(true).mode(0o600);
        let file = step("log.create", || options.open(path))?;
        match file.try_lock() {
            Ok(()) => {}
            Err(std::fs::TryLockError::WouldBlock) => return Ok(None),
            Err(std::fs::TryLockError::Error(error)) => return Err(error),
        }
        let directory = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
        let directory = Some(directory.to_owned());
        let (end, buffer) = (FIRST_RECORD, Vec::new());
        Ok(Some(Log { file, store: 0, generation: 0, end, last: None, buffer, directory, broken: false }))
    }

    /// The contents; `None` when it is empty.
    pub(super) fn read(&self) -> io::Result<Option<Contents>> {
        Contents::read(&self.file)
    }

    /// Begins a generation in which transactions after `base` will be, of this store. Those up to `base` are in SQLite's
    /// file, synced. So is this.
    pub(super) fn begin(&mut self, store: u128, generation: u32, base: u64) -> io::Result<()> {
        let len = self.file.metadata()?.len();
        if len > LOG_BYTES {
            step("log.shrink", || self.file.set_len(LOG_BYTES))?;
        } else if len < LOG_BYTES {
            // Written, not just reserved: then later writes change nothing but the bytes.
            step("log.grow", || self.file.write_all_at(&vec![0; (LOG_BYTES - len) as usize], len))?;
        }
        step("log.grow.sync", || self.file.sync_all())?;
        if let Some(directory) = &self.directory {
            step("log.directory.sync", || File::open(directory)?.sync_all())?;
            self.directory = None;
        }
        // If the header is written, but not known to be, records of neither generation would count.
        self.broken = true;
        let mut header = MAGIC.to_vec();
        header.extend_from_slice(&store.to_le_bytes());
        header.extend_from_slice(&base.to_le_bytes());
        let at = HEADER_AT[generation as usize % 2];
        let header = block(store, at, generation, START, &header);
        step("log.header.write", || self.file.write_all_at(&header, at * BLOCK as u64))?;
        step("log.header.sync", || self.file.sync_data())?;
        (self.store, self.generation, self.end, self.last) = (store, generation, FIRST_RECORD, None);
        self.broken = false;
        Ok(())
    }

    /// Goes on behind the records of `contents`.
    pub(super) fn go_on(&mut self, contents: &Contents) {
        (self.store, self.generation, self.end) = (contents.store, contents.generation, contents.end);
    }

    pub(super) fn generation(&self) -> u32 {
        self.generation
    }

    /// Whether the generation is long enough.
    pub(super) fn is_full(&self) -> bool {
        self.end * BLOCK as u64 >= LOG_BYTES
    }

    /// Appends a transaction and syncs it.
    pub(super) fn append<'a>(&mut self, number: u64, rows: impl Iterator<Item = &'a RowChange>) -> io::Result<()> {
        if self.broken {
            return Err(io::Error::other("an earlier write to the log failed"));
        }
        let mut content = vec![0; 12];
        encode(number, rows, &mut content);
        let len = (content.len() as u32).to_le_bytes();
        let check = fingerprint(&content[12..]).to_le_bytes();
        content[..4].copy_from_slice(&len);
        content[4..12].copy_from_slice(&check);
        self.buffer.clear();
        let mut index = self.end;
        for (i, piece) in content.chunks(CONTENT).enumerate() {
            let mark = if i == 0 { START } else { MORE };
            self.buffer.extend_from_slice(&block(self.store, index, self.generation, mark, piece));
            index += 1;
        }
        self.last = Some((self.end, index - self.end));
        step("log.record.write", || self.file.write_all_at(&self.buffer, self.end * BLOCK as u64))?;
        if !mistaken(Mistake::LogNotSynced) {
            step("log.record.sync", || self.file.sync_data())?;
        }
        self.end = index;
        Ok(())
    }

    /// The transaction of the last record took place.
    pub(super) fn settle(&mut self) {
        self.last = None;
    }

    /// Voids the record of the transaction under way, if it has one, whole or not: the transaction did not take place.
    pub(super) fn void_last(&mut self) -> io::Result<()> {
        let Some((at, n_blocks)) = self.last.take() else { return Ok(()) };
        let content = (n_blocks as u32).to_le_bytes();
        self.broken = true;
        let void = block(self.store, at, self.generation, VOID, &content);
        step("log.void.write", || self.file.write_all_at(&void, at * BLOCK as u64))?;
        step("log.void.sync", || self.file.sync_data())?;
        self.broken = false;
        self.end = at + n_blocks;
        Ok(())
    }
}

fn encode<'a>(number: u64, rows: impl Iterator<Item = &'a RowChange>, out: &mut Vec<u8>) {
    out.extend_from_slice(&number.to_le_bytes());
    for RowChange { kind, key, value } in rows {
        out.push(*kind);
        out.extend_from_slice(&(key.len() as u32).to_le_bytes());
        out.extend_from_slice(key);
        let len = value.as_ref().map_or(u32::MAX, |value| value.len() as u32);
        out.extend_from_slice(&len.to_le_bytes());
        out.extend_from_slice(value.as_deref().unwrap_or_default());
    }
}

fn decode(content: &[u8]) -> Option<Record> {
    let (number, mut rest) = content.split_first_chunk::<8>()?;
    let mut rows = Vec::new();
    while let Some((kind, tail)) = rest.split_first() {
        let (len, tail) = tail.split_first_chunk::<4>()?;
        let (key, tail) = tail.split_at_checked(u32::from_le_bytes(*len) as usize)?;
        let (len, tail) = tail.split_first_chunk::<4>()?;
        let len = u32::from_le_bytes(*len);
        let (value, tail) = tail.split_at_checked(if len == u32::MAX { 0 } else { len as usize })?;
        let value = (len != u32::MAX).then(|| value.to_vec());
        rows.push(RowChange { kind: *kind, key: key.to_vec(), value });
        rest = tail;
    }
    Some(Record { number: u64::from_le_bytes(*number), rows })
}

fn block(store: u128, index: u64, generation: u32, mark: u8, content: &[u8]) -> [u8; BLOCK] {
    let mut block = [0; BLOCK];
    block[..4].copy_from_slice(&generation.to_le_bytes());
    block[8] = mark;
    block[9..9 + content.len()].copy_from_slice(content);
    let check = block_check(store, index, &block);
    block[4..8].copy_from_slice(&check.to_le_bytes());
    block
}

fn block_check(store: u128, index: u64, block: &[u8]) -> u32 {
    let mut checked = [0; 16 + 8 + 4 + BLOCK - 8];
    checked[..16].copy_from_slice(&store.to_le_bytes());
    checked[16..24].copy_from_slice(&index.to_le_bytes());
    checked[24..28].copy_from_slice(&block[..4]);
    checked[28..].copy_from_slice(&block[8..]);
    fingerprint(&checked) as u32
}

/// The kind of a block, for reading a generation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Block<'a> {
    /// A block of this generation.
    Current { mark: u8, content: &'a [u8] },
    /// A block of an earlier generation, or one that was never written.
    Earlier,
    /// Neither, so it was changed from outside.
    Damaged,
}

impl Contents {
    /// The contents of a log; `None` when it is empty.
    pub(super) fn read(file: &File) -> io::Result<Option<Contents>> {
        let mut bytes = vec![0; file.metadata()?.len() as usize];
        file.read_exact_at(&mut bytes, 0)?;
        // All zeros: its owner ended before it had written a header, and so before it had acknowledged anything.
        let cut = (bytes.len() as u64) < LOG_BYTES;
        let contents = Contents { cut, ..Contents::of(&bytes) };
        Ok(Some(contents).filter(|contents| contents.generation > 0 || contents.damaged))
    }

    /// Reads a log. A store of 0 is in none of its blocks.
    fn of(bytes: &[u8]) -> Contents {
        let blocks: Vec<&[u8]> = bytes.chunks_exact(BLOCK).collect();
        let headers = HEADER_AT.map(|at| {
            let block = *blocks.get(at as usize)?;
            let content = block[9..].strip_prefix(MAGIC)?;
            let (store, rest) = content.split_first_chunk()?;
            let (base, _) = rest.split_first_chunk()?;
            let store = u128::from_le_bytes(*store);
            let is_whole = block[4..8] == block_check(store, at, block).to_le_bytes();
            is_whole.then(|| (generation_of(block), store, u64::from_le_bytes(*base)))
        });
        let lost_header = HEADER_AT.iter().zip(headers).any(|(at, header)| {
            header.is_none() && blocks.get(*at as usize).is_some_and(|block| !is_nearly_zero(block))
        });
        let mut contents =
            Contents { damaged: lost_header || !bytes.len().is_multiple_of(BLOCK), ..Contents::default() };
        let Some((generation, store, base)) = headers.into_iter().flatten().max() else { return contents };
        let whole = |at: u64, block: &[u8]| {
            generation_of(block) > 0 && block[4..8] == block_check(store, at, block).to_le_bytes()
        };
        // Records may be of a later generation than the only header that can be read.
        let records = (FIRST_RECORD..).zip(blocks.iter().skip(FIRST_RECORD as usize));
        let of_blocks = records.filter(|(at, block)| whole(*at, block)).map(|(_, block)| generation_of(block)).max();
        let later = of_blocks.filter(|later| *later > generation);
        (contents.store, contents.generation) = (store, later.unwrap_or(generation));
        (contents.base, contents.last) = (base, base);
        contents.read_records(&blocks, whole, later.is_some());
        contents
    }

    fn read_records(&mut self, blocks: &[&[u8]], whole: impl Fn(u64, &[u8]) -> bool, base_unknown: bool) {
        let generation = self.generation;
        let classify = |at: u64| -> Block<'_> {
            match blocks.get(at as usize) {
                None => Block::Earlier,
                Some(block) if whole(at, block) && generation_of(block) == generation => {
                    Block::Current { mark: block[8], content: &block[9..] }
                }
                Some(block) if whole(at, block) || is_nearly_zero(block) => Block::Earlier,
                Some(_) => Block::Damaged,
            }
        };
        let mut at = FIRST_RECORD;
        // A record begins right behind the one before it. Where none began, it was torn, or there is no more.
        loop {
            match classify(at) {
                Block::Earlier | Block::Current { mark: MORE, .. } => break,
                Block::Current { mark: VOID, content } => at += u64::from(length(content)).max(1),
                Block::Current { content, .. } => match record_at(at, length(content), blocks.len() as u64, classify) {
                    Found::Torn => break,
                    Found::Record(record, end) => {
                        if base_unknown && self.records.is_empty() {
                            (self.base, self.last) = (record.number.saturating_sub(1), record.number.saturating_sub(1));
                        }
                        self.damaged |= record.number != self.last + 1;
                        self.last = self.last.max(record.number);
                        self.records.push(record);
                        at = end;
                    }
                    Found::Damaged(end) => {
                        (self.damaged, self.last) = (true, self.last + 1);
                        at = end;
                    }
                },
                // The first block of a record.
                Block::Damaged => {
                    (self.damaged, self.last) = (true, self.last + 1);
                    at += 1;
                    while matches!(classify(at), Block::Current { mark: MORE, .. }) {
                        at += 1;
                    }
                }
            }
        }
        self.end = at;
        for at in at..blocks.len() as u64 {
            let block = classify(at);
            self.leftover |= matches!(block, Block::Current { .. });
            if let Block::Current { mark: START, content } = block
                && let Found::Record(record, _) = record_at(at, length(content), blocks.len() as u64, classify)
                && record.number > self.last
            {
                (self.damaged, self.last) = (true, record.number);
            }
        }
    }
}

/// A block that was never written, apart from a flipped bit. One that was written has a checksum, a mark and more.
fn is_nearly_zero(block: &[u8]) -> bool {
    block.iter().filter(|byte| **byte != 0).count() <= 2
}

fn length(content: &[u8]) -> u32 {
    content.first_chunk().map_or(0, |len| u32::from_le_bytes(*len))
}

enum Found {
    /// A record, and the block behind it.
    Record(Record, u64),
    Damaged(u64),
    Torn,
}

/// The record of `len` bytes that begins in the block `at`.
fn record_at<'a>(at: u64, len: u32, n_blocks: u64, classify: impl Fn(u64) -> Block<'a>) -> Found {
    let end = at + u64::from(len).div_ceil(CONTENT as u64).max(1);
    let mut bytes = Vec::new();
    let (mut torn, mut damaged) = (end > n_blocks, false);
    for at in at..end.min(n_blocks) {
        match classify(at) {
            Block::Current { content, .. } => bytes.extend_from_slice(content),
            Block::Earlier => torn = true,
            Block::Damaged => damaged = true,
        }
    }
    if torn && !damaged {
        return Found::Torn;
    }
    bytes.truncate(len as usize);
    let record = bytes.split_at_checked(12).filter(|(head, rest)| head[4..] == fingerprint(rest).to_le_bytes());
    match record.and_then(|(_, rest)| decode(rest)) {
        Some(record) if !damaged => Found::Record(record, end),
        _ => Found::Damaged(end.min(n_blocks)),
    }
}

fn generation_of(block: &[u8]) -> u32 {
    u32::from_le_bytes([block[0], block[1], block[2], block[3]])
}

#[cfg(test)]
mod tests;
