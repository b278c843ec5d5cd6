//! Names as structures take them: digests for compact ones, whole names as zero-padded words for exact ones.

use crate::name::{MAX_TEXT, Name, NameKind};
use lookup::hash::Digest;
use lookup::traits::InsertError;

/// Most names that are looked up together.
pub const BURST: usize = 32;
/// Words of the longest name that an exact structure holds.
const MAX_WORDS: usize = 8;
/// Bytes of the longest text that is one key of an exact structure.
const SHORT_TEXT: usize = 8 * MAX_WORDS - 1;
/// Bytes of a longer text in one of its keys.
const PIECE: usize = 8 * MAX_WORDS - 11;
/// Most keys of a text.
const MAX_PIECES: usize = MAX_TEXT.div_ceil(PIECE);

/// A key of a text that is too long for one, which holds some of it:
/// ```text
/// | digest of the text 8 | its length 2 | PIECE bytes of the text, zero-padded | 64 + number of the piece 1 |
/// ```
/// Two live names have different digests, so all keys with one digest are those of one name. A text is in a table if
/// all its keys are. The last byte of a short text is its length, below 64.
fn piece<const W: usize>(digest: Digest, text: &[u8], number: usize) -> [u64; W] {
    let mut bytes = [0; 8 * MAX_WORDS];
    bytes[..8].copy_from_slice(&digest.0.to_le_bytes());
    bytes[8..10].copy_from_slice(&(text.len() as u16).to_le_bytes());
    let own = &text[number * PIECE..text.len().min((number + 1) * PIECE)];
    bytes[10..10 + own.len()].copy_from_slice(own);
    bytes[SHORT_TEXT] = (SHORT_TEXT + 1 + number) as u8;
    let mut words = [0; W];
    words.iter_mut().zip(bytes.as_chunks().0).for_each(|(word, bytes)| *word = u64::from_le_bytes(*bytes));
    words
}

/// The keys after the first of a text that is too long for one.
fn further_pieces<const W: usize>(digest: Digest, text: &[u8]) -> impl Iterator<Item = [u64; W]> {
    let n = if text.len() > SHORT_TEXT { text.len().div_ceil(PIECE) } else { 1 };
    (1..n).map(move |number| piece(digest, text, number))
}

/// The most keys of an exact structure for this many names.
pub fn max_keys(kind: NameKind, max_names: usize) -> usize {
    if kind == NameKind::Text { max_names.saturating_mul(MAX_PIECES) } else { max_names }
}

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

    /// The bytes of a text. Names that come from frames are none.
    fn text(&self, at: usize) -> &[u8] {
        let _ = at;
        &[]
    }
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

    fn text(&self, at: usize) -> &[u8] {
        self.0[at].as_bytes()
    }
}

/// Writes a name as words: its bytes in order, zeros, and, where wanted, its length in the last byte. A name that does
/// not fit is cut, and has a length that no key in a table has.
pub fn put_words(name: &[u8], with_length: bool, words: &mut [u64]) {
    let room = words.len() * 8 - usize::from(with_length);
    let mut bytes = [0; MAX_WORDS * 8];
    let n = name.len().min(room);
    bytes[..n].copy_from_slice(&name[..n]);
    if with_length {
        bytes[words.len() * 8 - 1] = if name.len() > room { 0xFF } else { name.len() as u8 };
    }
    for (word, bytes) in words.iter_mut().zip(bytes.chunks_exact(8)) {
        *word = bytes.iter().rev().fold(0, |word, byte| word << 8 | u64::from(*byte));
    }
}

/// How an exact structure stores names of a kind.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NameLayout {
    /// Words of a name: 1, 2, 5 or 8.
    pub width: usize,
    /// Bytes of a name, its length included where that is stored.
    pub bytes: u8,
    /// Whether the last byte is the length.
    pub with_length: bool,
}

impl NameLayout {
    /// The layout of names of a kind.
    ///
    /// Five-tuples of IPv4 and IPv6 differ in length, and so do texts. Longer texts have several keys.
    pub fn of(kind: NameKind) -> NameLayout {
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

/// The key type of a structure, made from names.
pub trait StructureKey: Copy + Send + 'static {
    /// Whether the keys of a part lie together in the order of keys.
    const ORDERS_PARTS: bool = false;

    /// The key of a name; the first one, if it has several.
    fn of(kind: NameKind, key: Key<'_>) -> Result<Self, InsertError>;

    /// The other keys of a name. All carry what the first one does. The first one comes last into a table, and leaves
    /// it first: its value is that of the name.
    fn further(kind: NameKind, key: Key<'_>) -> impl Iterator<Item = Self> {
        let _ = (kind, key);
        std::iter::empty()
    }

    /// Calls `then` with the first keys of a burst.
    fn with_burst<R>(kind: NameKind, burst: &Burst<'_>, then: impl FnOnce(&[Self]) -> R) -> R;

    /// Turns the value of a name into 0 if the table does not hold all its further keys, which `look_up` tells.
    fn confirm(kind: NameKind, burst: &Burst<'_>, values: &mut [u64], look_up: impl FnMut(&[Self], &mut [u64])) {
        let _ = (kind, burst, values, look_up);
    }
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
        if kind == NameKind::Text && bytes.len() > SHORT_TEXT {
            return Ok(piece(key.digest, bytes, 0));
        }
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
        if kind == NameKind::Text {
            let is_cut = |key: &[u64; W]| key[W - 1] >> 56 == 0xFF;
            for (at, key) in words.iter_mut().enumerate().filter(|(_, key)| is_cut(key)) {
                *key = piece(burst.digests[at], burst.names.text(at), 0);
            }
        }
        then(words)
    }

    fn further(kind: NameKind, key: Key<'_>) -> impl Iterator<Item = Self> {
        let text = if kind == NameKind::Text { key.name.as_bytes() } else { &[] };
        further_pieces(key.digest, text)
    }

    fn confirm(kind: NameKind, burst: &Burst<'_>, values: &mut [u64], mut look_up: impl FnMut(&[Self], &mut [u64])) {
        if kind != NameKind::Text {
            return;
        }
        let (mut keys, mut owners, mut n) = ([[0; W]; BURST], [0; BURST], 0);
        let mut flush = |keys: &[Self], owners: &[usize], values: &mut [u64]| {
            let mut found = [0; BURST];
            look_up(keys, &mut found[..keys.len()]);
            owners.iter().zip(found).filter(|&(_, found)| found == 0).for_each(|(&owner, _)| values[owner] = 0);
        };
        for (at, &digest) in burst.digests.iter().enumerate() {
            if values[at] == 0 {
                continue;
            }
            for key in further_pieces(digest, burst.names.text(at)) {
                (keys[n], owners[n]) = (key, at);
                n += 1;
                if n == BURST {
                    flush(&keys, &owners, values);
                    n = 0;
                }
            }
        }
        if n > 0 {
            flush(&keys[..n], &owners[..n], values);
        }
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
        // A looked-up name that does not fit is not a key of a shorter one.
        let (long, cut) = (text(&"x".repeat(64)), text(&"x".repeat(63)));
        let mut words = [0; 16];
        NameList(&[&long, &cut]).fill(8, true, &mut words);
        assert_ne!(words[..8], words[8..]);
    }

    #[test]
    fn the_keys_of_a_long_text_hold_all_of_it() {
        let text: String = (0..MAX_TEXT).map(|at| char::from(b'a' + (at % 26) as u8)).collect();
        for len in [63, 64, 104, 106, 107, MAX_TEXT] {
            let name = Name::from_bytes(NameKind::Text, &text.as_bytes()[..len]).unwrap();
            let key = Key { digest: Digest(7), name: &name };
            let first = <[u64; 8]>::of(NameKind::Text, key).unwrap();
            let keys: Vec<_> = std::iter::once(first).chain(<[u64; 8]>::further(NameKind::Text, key)).collect();
            let bytes: Vec<u8> = keys.iter().flatten().flat_map(|word| word.to_le_bytes()).collect();
            let held: Vec<u8> = match keys.len() {
                1 => bytes[..bytes[63].into()].to_vec(),
                _ => bytes.chunks(64).flat_map(|key| &key[10..63]).copied().take(len).collect(),
            };
            assert_eq!(held, name.as_bytes(), "{len} bytes");
            assert_eq!(keys.len(), if len < 64 { 1 } else { len.div_ceil(PIECE) }, "{len} bytes");
        }
    }

    #[test]
    fn words_are_the_bytes_in_order() {
        let name = Name::from_bytes(NameKind::Mac, &[1, 2, 3, 4, 5, 6]).unwrap();
        let key = <[u64; 1]>::of(NameKind::Mac, Key { digest: Digest(0), name: &name }).unwrap();
        assert_eq!(key[0].to_le_bytes(), [1, 2, 3, 4, 5, 6, 0, 0]);
    }
}
