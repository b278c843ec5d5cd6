//! The pages of a file of SQLite and of its log, read without SQLite, which reads nothing where something is damaged.
//!
//! ```text
//! page of an index   | kind 1: 10 leaf, 2 inner | free block 2 | cells 2 | start of the cells 2 | lost bytes 1 | right child 4, if inner |
//!                    | place of each cell 2 | ... | cells |
//! cell               | left child 4, if inner | length | record, or its beginning and the page that it goes on in 4 |
//! record             | length of the header | type of each column | columns |
//! ```
//! Integers are big-endian; lengths and types are variable. Source: "Database File Format" of SQLite, sections 1.5, 1.6, 2.1
//! and 4. Limits: pages of 4096 bytes, as all stores have.

use crate::store::seal::{RowHash, SEAL_ROW, Seal};
use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;

pub(super) const PAGE: usize = 4096;

/// Kind and key of a row.
pub(super) type Key = (u8, Vec<u8>);

type Page = [u8; PAGE];

/// A file, and the newer pages in its log.
#[derive(Debug)]
pub(super) struct Pages {
    file: File,
    /// Pages in the file or its log.
    pub(super) count: u32,
    newer: HashMap<u32, Box<Page>>,
}

impl Pages {
    pub(super) fn open(path: &Path, log: &Path) -> io::Result<Pages> {
        let file = File::open(path)?;
        let in_file = u32::try_from(file.metadata()?.len().div_ceil(PAGE as u64)).unwrap_or(u32::MAX);
        let newer = match std::fs::read(log) {
            Ok(log) => committed(&log),
            Err(error) if error.kind() == io::ErrorKind::NotFound => HashMap::new(),
            Err(error) => return Err(error),
        };
        let count = newer.keys().copied().fold(in_file, u32::max);
        Ok(Pages { file, count, newer })
    }

    /// A page; zeros in place of what is beyond the end.
    /// # Errors
    /// The disk cannot read it.
    pub(super) fn read(&self, number: u32) -> io::Result<Box<Page>> {
        if let Some(page) = self.newer.get(&number) {
            return Ok(page.clone());
        }
        let mut page = Box::new([0; PAGE]);
        let (mut at, mut rest) = (u64::from(number.saturating_sub(1)) * PAGE as u64, &mut page[..]);
        while !rest.is_empty() {
            match self.file.read_at(rest, at)? {
                0 => break,
                n => (at, rest) = (at + n as u64, &mut rest[n..]),
            }
        }
        Ok(page)
    }
}

/// The newest committed version of each page in a log of SQLite. What follows a damaged frame does not count.
fn committed(log: &[u8]) -> HashMap<u32, Box<Page>> {
    const HEADER: usize = 32;
    const FRAME_HEADER: usize = 24;
    let mut pages = HashMap::new();
    let Some(header) = log.get(..HEADER) else { return pages };
    let magic = word(header, 0);
    if magic & !1 != 0x377f_0682 || word(header, 8) as usize != PAGE {
        return pages;
    }
    let big_endian = magic & 1 == 1;
    let mut sum = checksum([0; 2], &header[..24], big_endian);
    if sum != [word(header, 24), word(header, 28)] {
        return pages;
    }
    let mut open = Vec::new();
    for frame in log[HEADER..].chunks_exact(FRAME_HEADER + PAGE) {
        let (head, page) = frame.split_at(FRAME_HEADER);
        sum = checksum(checksum(sum, &head[..8], big_endian), page, big_endian);
        if head[8..16] != header[16..24] || sum != [word(head, 16), word(head, 20)] {
            break;
        }
        open.push((word(head, 0), page));
        if word(head, 4) != 0 {
            let boxed = |(number, page): (u32, &[u8])| Some((number, Box::new(*page.first_chunk()?)));
            pages.extend(open.drain(..).filter_map(boxed));
        }
    }
    pages
}

fn checksum([mut a, mut b]: [u32; 2], bytes: &[u8], big_endian: bool) -> [u32; 2] {
    for pair in bytes.chunks_exact(8) {
        let [x, y] = [word(pair, 0), word(pair, 4)].map(|word| if big_endian { word } else { word.swap_bytes() });
        a = a.wrapping_add(x).wrapping_add(b);
        b = b.wrapping_add(y).wrapping_add(a);
    }
    [a, b]
}

/// Four bytes, zeros beyond the end.
pub(super) fn word(bytes: &[u8], at: usize) -> u32 {
    bytes.get(at..).and_then(|rest| rest.first_chunk()).map_or(0, |word| u32::from_be_bytes(*word))
}

fn half(bytes: &[u8], at: usize) -> usize {
    bytes.get(at..).and_then(|rest| rest.first_chunk()).map_or(0, |half| u16::from_be_bytes(*half).into())
}

/// What a cell says.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Cell {
    /// A row whose checksum is right.
    Row(Key, Vec<u8>),
    Seal(Seal),
    /// Neither; as far as it can be read, it had this kind and key.
    Damaged(Option<Key>),
}

/// A page of the tree of the rows.
#[derive(Debug)]
pub(super) struct Node {
    /// The cells, each with its left child, if the page is an inner one.
    pub(super) cells: Vec<(Option<u32>, Cell)>,
    pub(super) right: Option<u32>,
    pub(super) is_inner: bool,
    /// Whether all bytes of the page are accounted for: otherwise it may have had other cells.
    pub(super) is_whole: bool,
    /// Pages in which records go on.
    pub(super) overflow: Vec<u32>,
}

impl Pages {
    /// The page as one of a tree; `None` if it is none.
    /// # Errors
    /// The disk cannot read it.
    pub(super) fn node(&self, number: u32) -> io::Result<Option<Node>> {
        let page = self.read(number)?;
        let is_inner = match page[0] {
            2 => true,
            10 => false,
            _ => return Ok(None),
        };
        let header = if is_inner { 12 } else { 8 };
        let n_cells = half(&page[..], 3);
        let Some(places) = page.get(header..header + 2 * n_cells) else { return Ok(None) };
        let right = is_inner.then(|| word(&page[..], 8));
        let mut node =
            Node { cells: Vec::with_capacity(n_cells), right, is_inner, is_whole: false, overflow: Vec::new() };
        let mut used = header + 2 * n_cells + usize::from(page[7]);
        for place in places.chunks_exact(2) {
            let (child, cell, len) = self.cell(&page, half(place, 0), is_inner, &mut node.overflow)?;
            node.cells.push((child, cell));
            used += len;
        }
        let mut free = half(&page[..], 1);
        while free != 0 && used <= PAGE {
            used += half(&page[..], free + 2).max(4);
            free = half(&page[..], free);
        }
        // Between the places and the cells.
        let start = match half(&page[..], 5) {
            0 => 65536,
            start => start,
        };
        node.is_whole = used + start.saturating_sub(header + 2 * n_cells) == PAGE;
        Ok(Some(node))
    }

    /// The cell at a place: its left child, what it says, and its length in this page.
    fn cell(
        &self,
        page: &Page,
        at: usize,
        is_inner: bool,
        overflow: &mut Vec<u32>,
    ) -> io::Result<(Option<u32>, Cell, usize)> {
        let damaged = Ok((None, Cell::Damaged(None), 0));
        let mut input = match page.get(at..) {
            Some(rest) if at >= 8 => rest,
            _ => return damaged,
        };
        let child = is_inner.then(|| word(input, 0));
        if is_inner {
            input = input.get(4..).unwrap_or_default();
        }
        let Some(len) = variable(&mut input).and_then(|len| usize::try_from(len).ok()) else { return damaged };
        if len > self.count as usize * PAGE {
            return Ok((child, Cell::Damaged(None), 0));
        }
        let local = local_len(len);
        let Some(mut record) = input.get(..local).map(<[u8]>::to_vec) else {
            return Ok((child, Cell::Damaged(None), 0));
        };
        let mut used = page.len() - at - input.len() + local;
        if local < len {
            used += 4;
            let mut next = word(input, local);
            while record.len() < len && next > 0 && next <= self.count {
                let page = self.read(next)?;
                overflow.push(next);
                record.extend_from_slice(&page[4..][..(PAGE - 4).min(len - record.len())]);
                next = word(&page[..], 0);
            }
        }
        Ok((child, cell_of(&record), used.max(4)))
    }
}

/// How much of a record is in the page of its cell.
fn local_len(len: usize) -> usize {
    const MOST: usize = (PAGE - 12) * 64 / 255 - 23;
    const LEAST: usize = (PAGE - 12) * 32 / 255 - 23;
    if len <= MOST {
        return len;
    }
    let len = LEAST + (len - LEAST) % (PAGE - 4);
    if len <= MOST { len } else { LEAST }
}

/// A record of the columns kind, key, value and checksum.
fn cell_of(record: &[u8]) -> Cell {
    let columns = || {
        let mut types = record;
        let len = variable(&mut types)? as usize;
        types = record.get(record.len() - types.len()..len)?;
        let mut rest = record.get(len..)?;
        let mut column = || -> Option<(u64, &[u8])> {
            let kind = variable(&mut types)?;
            let len = match kind {
                0 | 8 | 9 => 0,
                1..=4 => kind as usize,
                5 => 6,
                6 | 7 => 8,
                _ => usize::try_from(kind.checked_sub(12)? / 2).ok()?,
            };
            let (value, tail) = rest.split_at_checked(len)?;
            rest = tail;
            Some((kind, value))
        };
        let kind = u8::try_from(integer(column()?)?).ok()?;
        let key = column()?.1.to_vec();
        Some(((kind, key), column().map(|(_, value)| value), column().and_then(integer)))
    };
    let Some((key, value, checksum)) = columns() else { return Cell::Damaged(None) };
    match (value, checksum) {
        (Some(value), Some(_)) if key.0 == SEAL_ROW => Seal::decode(value).map_or(Cell::Damaged(Some(key)), Cell::Seal),
        (Some(value), Some(checksum)) if RowHash::of(key.0, &key.1, value, &mut Vec::new()).checksum() == checksum => {
            Cell::Row(key, value.to_vec())
        }
        _ => Cell::Damaged(Some(key)),
    }
}

/// The value of a column that is an integer.
fn integer((kind, value): (u64, &[u8])) -> Option<i64> {
    match kind {
        8 => Some(0),
        9 => Some(1),
        1..=6 => {
            let sign = if value.first()? & 0x80 == 0 { 0 } else { -1 };
            Some(value.iter().fold(sign, |number, byte| number << 8 | i64::from(*byte)))
        }
        _ => None,
    }
}

/// An integer of one to nine bytes, seven bits in each but the ninth.
fn variable(input: &mut &[u8]) -> Option<u64> {
    let mut number = 0;
    for i in 0..9 {
        let (byte, rest) = input.split_first()?;
        *input = rest;
        if i == 8 {
            return Some(number << 8 | u64::from(*byte));
        }
        number = number << 7 | u64::from(byte & 0x7f);
        if byte & 0x80 == 0 {
            break;
        }
    }
    Some(number)
}
