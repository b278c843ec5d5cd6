//! Names as structures take them: digests for compact ones, whole names as zero-padded words for exact ones.

use crate::name::{Name, NameKind};
use lookup::hash::Digest;
use lookup::traits::InsertError;

/// Most names that are looked up together.
pub const BURST: usize = 32;
/// Words of the longest name that an exact structure holds.
const MAX_WORDS: usize = 8;

/// A name with its digest.
#[derive(Clone, Copy, Debug)]
pub struct Key<'a> {
    /// Digest of the name under the table's key.
    pub digest: Digest,
    /// The name.
    pub name: &'a Name,
}

/// Names to be looked up together: at most [`BURST`].
#[derive(Clone, Copy)]
pub struct Burst<'a> {
    /// Their digests.
    pub digests: &'a [Digest],
    /// The names, for structures that hold whole names.
    pub names: &'a dyn BurstNames,
}

/// The names of a burst, wherever they are stored.
pub trait BurstNames {
    /// Writes the first `out.len() / width` names into `out`, `width` words each: their bytes in order, and zeros.
    /// With `with_length` the last byte of each is its length, so that names of several lengths stay apart.
    fn fill(&self, width: usize, with_length: bool, out: &mut [u64]);
}

/// Names that are available as [`Name`]s.
#[derive(Clone, Copy, Debug)]
pub struct NameList<'a>(pub &'a [&'a Name]);

impl BurstNames for NameList<'_> {
    fn fill(&self, width: usize, with_length: bool, out: &mut [u64]) {
        for (name, words) in self.0.iter().zip(out.chunks_exact_mut(width)) {
            put_words(name.as_bytes(), with_length, words);
        }
    }
}

/// Writes a name as words: its bytes in order, zeros, and, where wanted, its length in the last byte. A name that does
/// not fit is cut: no table holds such a name.
pub fn put_words(name: &[u8], with_length: bool, words: &mut [u64]) {
    let room = words.len() * 8 - usize::from(with_length);
    let mut bytes = [0; MAX_WORDS * 8];
    let n = name.len().min(room);
    bytes[..n].copy_from_slice(&name[..n]);
    if with_length {
        // A name that was cut has a length that no name in a table has.
        bytes[words.len() * 8 - 1] = name.len().min(0xFF) as u8;
    }
    for (word, bytes) in words.iter_mut().zip(bytes.chunks_exact(8)) {
        *word = bytes.iter().rev().fold(0, |word, byte| word << 8 | u64::from(*byte));
    }
}

/// How an exact structure stores names of a kind.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct NameLayout {
    /// Words of a name: 1, 2, 5 or 8.
    pub(crate) width: usize,
    /// Bytes of a name, its length included where that is stored.
    pub(crate) bytes: u8,
    /// Whether the last byte is the length.
    pub(crate) with_length: bool,
}

impl NameLayout {
    /// Five-tuples of IPv4 and IPv6 differ in length, and so do texts. Texts of up to 63 bytes fit.
    pub(crate) fn of(kind: NameKind) -> NameLayout {
        let fixed = |bytes: u8| {
            let width = match bytes {
                0..=8 => 1,
                9..=16 => 2,
                17..=40 => 5,
                _ => 8,
            };
            NameLayout { width, bytes, with_length: false }
        };
        match kind {
            NameKind::Mac => fixed(6),
            NameKind::Ipv4 | NameKind::Teid => fixed(4),
            NameKind::Ipv6 => fixed(16),
            NameKind::Fixed(bytes) => fixed(bytes),
            NameKind::FiveTuple => NameLayout { width: 5, bytes: 40, with_length: true },
            NameKind::Text => NameLayout { width: 8, bytes: 64, with_length: true },
        }
    }
}

/// Evaluates `$body` with `$width` as a constant: the width of names of this kind in an exact structure.
macro_rules! with_width {
    ($kind:expr, $width:ident => $body:expr) => {
        match $crate::designs::keys::NameLayout::of($kind).width {
            1 => {
                const $width: usize = 1;
                $body
            }
            2 => {
                const $width: usize = 2;
                $body
            }
            5 => {
                const $width: usize = 5;
                $body
            }
            _ => {
                const $width: usize = 8;
                $body
            }
        }
    };
}
pub(super) use with_width;

/// The key type of a structure, made from names.
pub(crate) trait StructureKey: Copy + Send + 'static {
    /// Whether the keys of a part lie together in the order of keys.
    const ORDERS_PARTS: bool = false;

    /// The key of a name.
    fn of(kind: NameKind, key: Key<'_>) -> Result<Self, InsertError>;

    /// Calls `then` with the keys of a burst.
    fn with_burst<R>(kind: NameKind, burst: &Burst<'_>, then: impl FnOnce(&[Self]) -> R) -> R;
}

impl StructureKey for Digest {
    const ORDERS_PARTS: bool = true;

    fn of(_: NameKind, key: Key<'_>) -> Result<Digest, InsertError> {
        Ok(key.digest)
    }

    fn with_burst<R>(_: NameKind, burst: &Burst<'_>, then: impl FnOnce(&[Digest]) -> R) -> R {
        then(burst.digests)
    }
}

impl<const W: usize> StructureKey for [u64; W] {
    fn of(kind: NameKind, key: Key<'_>) -> Result<[u64; W], InsertError> {
        let layout = NameLayout::of(kind);
        let room = usize::from(layout.bytes) - usize::from(layout.with_length);
        let bytes = key.name.as_bytes();
        if bytes.len() > room {
            return Err(InsertError::NameTooLong { name_bytes: room });
        }
        let mut words = [0; W];
        put_words(bytes, layout.with_length, &mut words);
        Ok(words)
    }

    fn with_burst<R>(kind: NameKind, burst: &Burst<'_>, then: impl FnOnce(&[[u64; W]]) -> R) -> R {
        let mut words = [[0; W]; BURST];
        let words = &mut words[..burst.digests.len()];
        burst.names.fill(W, NameLayout::of(kind).with_length, words.as_flattened_mut());
        then(words)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_several_lengths_stay_apart() {
        let text = |text: &str| Name::from_bytes(NameKind::Text, text.as_bytes()).unwrap();
        let key = |name: &Name| <[u64; 8]>::of(NameKind::Text, Key { digest: Digest(0), name });
        assert_ne!(key(&text("a")), key(&text("aa")));
        assert!(key(&text(&"x".repeat(63))).is_ok());
        assert_eq!(key(&text(&"x".repeat(64))), Err(InsertError::NameTooLong { name_bytes: 63 }));
        // A looked-up name that is too long for the table matches no name in it.
        let (long, cut) = (text(&"x".repeat(64)), text(&"x".repeat(63)));
        let mut words = [0; 16];
        NameList(&[&long, &cut]).fill(8, true, &mut words);
        assert_ne!(words[..8], words[8..]);
    }

    #[test]
    fn words_are_the_bytes_in_order() {
        let name = Name::from_bytes(NameKind::Mac, &[1, 2, 3, 4, 5, 6]).unwrap();
        let key = <[u64; 1]>::of(NameKind::Mac, Key { digest: Digest(0), name: &name }).unwrap();
        assert_eq!(key[0].to_le_bytes(), [1, 2, 3, 4, 5, 6, 0, 0]);
    }
}
