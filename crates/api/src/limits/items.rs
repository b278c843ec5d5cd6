//! Counting the items of a protobuf message as its bytes come.
//!
//! An item of two bytes becomes a record of a hundred when it is decoded. So the items of a message are counted with its
//! bytes, before it is decoded. Items are the fields of the outermost message that have a length: records, names, bytes.
//!
//! Cost: a step for each byte of tags and lengths; the contents of items are skipped. What is not protobuf gets some
//! count: the decoder refuses it.

/// What an item costs in memory besides its own bytes, at most: the largest record of a list of records.
pub(super) const ITEM_BYTES: usize = 96;

/// Where in a message the count is.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
enum At {
    /// Before a tag, or in one of more than one byte.
    #[default]
    Tag,
    /// In the further bytes of a tag whose lowest bits say what follows.
    TagOf(u8),
    /// In a number.
    Number,
    /// In a length; this many bits of it have come.
    Length(u64, u32),
}

/// The count of a message that comes in pieces.
#[derive(Debug, Default)]
pub(super) struct Items {
    at: At,
    /// Bytes that are skipped.
    skip: u64,
}

impl Items {
    /// The number of items that begin in the next bytes of the message.
    pub(super) fn count(&mut self, mut data: &[u8]) -> usize {
        let mut n_items = 0;
        while let Some((&byte, rest)) = data.split_first() {
            if self.skip > 0 {
                let n = usize::try_from(self.skip).unwrap_or(usize::MAX).min(data.len());
                (self.skip, data) = (self.skip - n as u64, &data[n..]);
                continue;
            }
            data = rest;
            let is_last = byte < 0x80;
            self.at = match self.at {
                At::Tag if !is_last => At::TagOf(byte & 7),
                At::TagOf(kind) if !is_last => At::TagOf(kind),
                At::Tag => self.after_tag(byte & 7),
                At::TagOf(kind) => self.after_tag(kind),
                At::Number if !is_last => At::Number,
                At::Number => At::Tag,
                At::Length(so_far, bits) => {
                    let length = so_far | u64::from(byte & 0x7f).checked_shl(bits).unwrap_or(0);
                    if is_last {
                        n_items += 1;
                        self.skip = length;
                        At::Tag
                    } else {
                        At::Length(length, bits + 7)
                    }
                }
            };
        }
        n_items
    }

    fn after_tag(&mut self, kind: u8) -> At {
        match kind {
            0 => At::Number,
            1 => {
                self.skip = 8;
                At::Tag
            }
            2 => At::Length(0, 0),
            5 => {
                self.skip = 4;
                At::Tag
            }
            // The ends of groups, and what the decoder refuses.
            _ => At::Tag,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::v1::{NameRecord, PutNamesRequest, SetLinkRequest};
    use prost::Message;

    #[test]
    fn records_are_counted_in_whatever_pieces_they_come() {
        for n_names in [0, 1, 2, 40] {
            let record = |i: usize| match i % 3 {
                0 => NameRecord::default(),
                1 => NameRecord { name: "x".repeat(300), tenant: u32::MAX, ..NameRecord::default() },
                _ => NameRecord {
                    name: "a".to_owned(),
                    host: "b".to_owned(),
                    tenant: 7,
                    ip: "::1".to_owned(),
                    learnt_ms: 7,
                    more_ips: vec!["::2".to_owned()],
                },
            };
            let names = (0..n_names).map(record).collect();
            let bytes = PutNamesRequest { names, only_new: true }.encode_to_vec();
            for step in 1..=bytes.len() {
                let mut items = Items::default();
                let n_items: usize = bytes.chunks(step).map(|piece| items.count(piece)).sum();
                assert_eq!(n_items, n_names, "in pieces of {step} bytes");
            }
        }
        let other = SetLinkRequest { cost: Some(1 << 30), up: Some(true), ..SetLinkRequest::default() };
        assert!(Items::default().count(&other.encode_to_vec()) <= 1);
    }
}
