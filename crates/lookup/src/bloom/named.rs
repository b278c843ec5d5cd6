//! Layouts by their names, as files and users give them.

use super::{AddressHashing, Blocked, DoubleHashing, Layout, OneHashing, Partitioned, Standard};
use crate::hash::{Digest, Hasher};

/// The names of all layouts. Their first letters differ: images store those.
pub const LAYOUTS: [&str; 6] = [
    OneHashing::<true>::NAME,
    DoubleHashing::NAME,
    Standard::NAME,
    Partitioned::NAME,
    Blocked::NAME,
    AddressHashing::NAME,
];

/// Runs a block with `$L` as the layout that is called so, of [`LAYOUTS`](crate::bloom::named::LAYOUTS).
#[macro_export]
macro_rules! with_layout {
    ($name:expr, $L:ident => $run:expr) => {
        match $name {
            <$crate::bloom::DoubleHashing as $crate::bloom::Layout>::NAME => {
                type $L = $crate::bloom::DoubleHashing;
                $run
            }
            <$crate::bloom::Standard as $crate::bloom::Layout>::NAME => {
                type $L = $crate::bloom::Standard;
                $run
            }
            <$crate::bloom::Partitioned as $crate::bloom::Layout>::NAME => {
                type $L = $crate::bloom::Partitioned;
                $run
            }
            <$crate::bloom::Blocked as $crate::bloom::Layout>::NAME => {
                type $L = $crate::bloom::Blocked;
                $run
            }
            <$crate::bloom::AddressHashing as $crate::bloom::Layout>::NAME => {
                type $L = $crate::bloom::AddressHashing;
                $run
            }
            _ => {
                type $L = $crate::bloom::OneHashing;
                $run
            }
        }
    };
}

/// The layout of this name.
/// # Errors
/// A text for the user, which lists the layouts.
pub fn parse_layout(name: &str) -> Result<&'static str, String> {
    let known = LAYOUTS.into_iter().find(|&layout| layout == name);
    known.ok_or_else(|| format!("no layout `{name}`: there are {}", LAYOUTS.join(", ")))
}

/// The layout that an image calls by this letter.
pub fn layout_of(letter: u8) -> Option<&'static str> {
    LAYOUTS.into_iter().find(|layout| layout.as_bytes()[0] == letter)
}

/// A name has too many bytes to be its own word.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("names of more than 8 bytes cannot be used as their own words: choose another layout")]
pub struct TooLong;

/// What a filter of this layout takes for a name: its digest, or for [`AddressHashing`] the name itself as a number.
/// # Errors
/// [`TooLong`], of address hashing alone.
pub fn word<L: Layout>(hasher: &Hasher, name: &[u8]) -> Result<Digest, TooLong> {
    if L::NAME != AddressHashing::NAME {
        return Ok(hasher.digest(name));
    }
    let mut word = [0; 8];
    let at = word.len().checked_sub(name.len()).ok_or(TooLong)?;
    word[at..].copy_from_slice(name);
    Ok(Digest(u64::from_be_bytes(word)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hash::{Family, SecretKey};

    #[test]
    fn every_layout_is_found_by_its_name_and_by_its_letter() {
        for name in LAYOUTS {
            assert_eq!(with_layout!(name, L => <L as Layout>::NAME), name);
            assert_eq!((parse_layout(name), layout_of(name.as_bytes()[0])), (Ok(name), Some(name)));
        }
        assert!(parse_layout("round").unwrap_err().contains("one-hashing, double-hashing"));
        assert_eq!(layout_of(b'z'), None);
    }

    #[test]
    fn address_hashing_takes_short_names_as_numbers_and_refuses_others() {
        let hasher = Hasher::new(Family::MulAdd, &SecretKey::from_seed(1));
        assert_eq!(word::<AddressHashing>(&hasher, &[10, 0, 0, 1]), Ok(Digest(0x0A00_0001)));
        assert_eq!(word::<AddressHashing>(&hasher, &[0; 9]), Err(TooLong));
        assert_eq!(word::<Standard>(&hasher, &[0; 9]), Ok(hasher.digest(&[0; 9])));
    }
}
