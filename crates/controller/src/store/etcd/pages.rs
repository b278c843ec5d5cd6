//! Rows, fetched a page at a time.
//!
//! etcd counts all keys of a range that it is asked for, however few it sends: in 3 to 4 s ten million. In a store with
//! many rows each page is therefore asked for between two keys that are as far apart as those of the page before, and after
//! a page with few rows farther.

use super::codec;
use super::keys::Keys;
use super::{EtcdAddress, RowChange, StoreError};
use api::etcd::v3::{KeyValue, RangeResponse};
use bytes::Bytes;

/// Rows fetched at a time.
pub(super) const PAGE_ROWS: usize = 2048;

/// The most rows that may be counted for each page: some 20 ms.
const FEW: i64 = 1 << 16;

/// The distance that is added to a key: a number in the 8 bytes from a place on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Width {
    at: usize,
    number: u64,
}

impl Width {
    /// This many times as wide; none if that is wider than all keys.
    fn times(self, factor: u64) -> Option<Width> {
        let Width { mut at, number } = self;
        let mut number = u128::from(number) * u128::from(factor);
        while number >= 1 << 56 {
            number >>= 8;
            at = at.checked_sub(1)?;
        }
        Some(Width { at, number: number as u64 })
    }

    /// The width from a key to a greater one.
    fn between(first: &[u8], last: &[u8]) -> Width {
        let at = first.iter().zip(last).take_while(|(a, b)| a == b).count();
        let number = |key: &[u8]| (0..8).fold(0, |sum, i| sum << 8 | u64::from(*key.get(at + i).unwrap_or(&0)));
        Width { at, number: number(last).saturating_sub(number(first)).max(1) }
    }

    /// The key that comes this much after another; none if there is no such key.
    fn after(self, key: &[u8]) -> Option<Vec<u8>> {
        let mut end = key.to_vec();
        end.resize((self.at + 8).max(key.len()), 0);
        let mut carry = u128::from(self.number);
        for byte in end[..self.at + 8].iter_mut().rev() {
            carry += u128::from(*byte);
            *byte = carry as u8;
            carry >>= 8;
        }
        (carry == 0).then_some(end)
    }
}

/// The pages that are still to come.
pub(super) struct Pages {
    keys: Keys,
    /// The first key of the next page, and the one at which it ends, without the prefix of every row's key; none after the last page.
    next: Option<(Vec<u8>, Option<Vec<u8>>)>,
    /// None: each page ends with all rows.
    width: Option<Width>,
    limit: usize,
}

impl Pages {
    /// The pages of the rows from a key on, of at most `limit` rows each.
    pub(super) fn new(keys: &Keys, from: &[u8], width: Option<Width>, limit: usize) -> Pages {
        let mut pages = Pages { keys: keys.clone(), next: None, width, limit };
        pages.go_on(from.to_vec());
        pages
    }

    fn go_on(&mut self, from: Vec<u8>) {
        let end = self.width.and_then(|width| width.after(&from));
        self.next = Some((from, end));
    }

    /// How far apart the ends of the last page were.
    pub(super) fn width(&self) -> Option<Width> {
        self.width
    }

    /// The range of the next page.
    pub(super) fn range(&self) -> Option<(Bytes, Bytes)> {
        let (from, end) = self.next.as_ref()?;
        let end = end.as_ref().map_or(self.keys.rows().1, |end| self.keys.row_at(end));
        Some((self.keys.row_at(from), end))
    }

    /// The rows of a page that was fetched.
    pub(super) fn take(&mut self, address: &EtcdAddress, found: &RangeResponse) -> Result<Vec<RowChange>, StoreError> {
        let scratch = &mut Vec::new();
        let row = |kv: &KeyValue| {
            let key = self.keys.of_row(&kv.key);
            codec::row(key, &kv.value, scratch).ok_or_else(|| codec::wrong_row(address, key))
        };
        let rows = found.kvs.iter().map(row).collect::<Result<_, _>>()?;
        let end = self.next.take().and_then(|(_, end)| end);
        let ends = found.kvs.first().zip(found.kvs.last());
        match ends.map(|(first, last)| (self.keys.of_row(&first.key), self.keys.of_row(&last.key))) {
            Some((first, last)) if found.more => {
                if first < last && (self.width.is_some() || found.count > FEW) {
                    self.width = Some(Width::between(first, last));
                }
                self.go_on(after(last));
            }
            _ => {
                let factor = match found.kvs.len() {
                    0 => 16,
                    n if n < self.limit / 4 => 4,
                    n if n < self.limit / 2 => 2,
                    _ => 1,
                };
                self.width = self.width.and_then(|width| width.times(factor));
                if let Some(end) = end {
                    self.go_on(end);
                }
            }
        }
        Ok(rows)
    }
}

/// The first key after this one.
pub(super) fn after(key: &[u8]) -> Vec<u8> {
    [key, &[0]].concat()
}

/// The rows of pages. Ends with the first error.
pub(super) fn paged(
    address: &EtcdAddress,
    mut pages: Pages,
    mut fetch: impl FnMut((Bytes, Bytes)) -> Result<RangeResponse, StoreError>,
) -> impl Iterator<Item = Result<RowChange, StoreError>> {
    let mut rows = Vec::new().into_iter();
    std::iter::from_fn(move || {
        while rows.len() == 0
            && let Some(range) = pages.range()
        {
            match fetch(range).and_then(|found| pages.take(address, &found)) {
                Ok(page) => rows = page.into_iter(),
                Err(error) => {
                    pages.next = None;
                    return Some(Err(error));
                }
            }
        }
        rows.next().map(Ok)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn every_row_comes_once_however_keys_are_spread_and_few_are_counted() {
        let mut rng = lookup::hash::Rng::new(lookup::testkit::seed());
        let address = "etcd://a:1/x".parse().unwrap();
        let keys = Keys::new("x");
        let dense = (0..100_000_u32).map(|i| [&[5, 2, 0][..], &i.to_be_bytes()].concat());
        let sparse = (0..100_000).map(|_| [&[5][..], &rng.next_u64().to_be_bytes()].concat()).collect::<Vec<_>>();
        let long = (0..100_000)
            .map(|i| [&[7][..], format!("https://www.example.com/a/long/way/to/the/name/{i}").as_bytes()].concat());
        let few = [vec![1], vec![2, 0, 0, 0, 1], vec![9; 3], vec![255; 40]];
        for set in [vec![], few.to_vec(), dense.collect(), sparse, long.chain(few.clone()).collect()] {
            let rows: BTreeSet<Vec<u8>> = set.into_iter().collect();
            let (mut n_counted, mut n_pages) = (0, 0);
            let limit = 100;
            let fetch = |(from, end): (Bytes, Bytes)| {
                let (from, end) = (keys.of_row(&from).to_vec(), keys.of_row(&end).to_vec());
                // The end of all rows is after them, and no row itself.
                let in_range = rows.range(from..).take_while(|key| end.is_empty() || **key < end);
                let n = in_range.clone().count();
                (n_counted, n_pages) = (n_counted + n, n_pages + 1);
                let kv = |key: &Vec<u8>| {
                    let (kind, rest) = (key[0], &key[1..]);
                    let value = codec::sealed_value(kind, rest, b"value", &mut Vec::new());
                    KeyValue { key: keys.row(kind, rest), value: value.into(), ..KeyValue::default() }
                };
                let kvs = in_range.take(limit).map(kv).collect();
                Ok(RangeResponse { kvs, more: n > limit, count: n as i64, ..RangeResponse::default() })
            };
            let pages = Pages::new(&keys, &[], None, limit);
            let found: Vec<_> = paged(&address, pages, fetch).map(|row| row.unwrap()).collect();
            assert!(found.iter().map(|row| [&[row.kind][..], &row.key].concat()).eq(rows.iter().cloned()));
            // To the end of all rows, it would be 150 times as many.
            assert!(
                n_counted < 10 * rows.len() + 1000 && n_pages < 300 + rows.len() / 20,
                "{n_counted}, {n_pages} pages"
            );
        }
    }

    #[test]
    fn widths_are_added_with_what_is_carried() {
        let width = Width { at: 1, number: 0x0102 };
        assert_eq!(width.after(&[5]), Some(vec![5, 0, 0, 0, 0, 0, 0, 1, 2]));
        assert_eq!(
            width.after(&[5, 255, 255, 255, 255, 255, 255, 255, 255, 7]),
            Some(vec![6, 0, 0, 0, 0, 0, 0, 1, 1, 7])
        );
        assert_eq!(Width { at: 0, number: 1 << 56 }.after(&[255, 1]), None);
        assert_eq!(Width { at: 1, number: 1 << 55 }.times(2), Some(Width { at: 0, number: 1 << 48 }));
        assert_eq!(Width { at: 0, number: 1 << 55 }.times(2), None);
        assert_eq!(Width::between(b"abc", b"abd"), Width { at: 2, number: 1 << 56 });
    }
}
