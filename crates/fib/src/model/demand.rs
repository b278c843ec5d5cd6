//! The demand on a FIB: names, actions, aliens.

use super::Symbols;
use crate::name::NameKind;

/// Bits of a file name, where the length of names is not fixed: those of Table II fill slots of 52 bytes.
const TEXT_BITS: u32 = 416;

/// The demand on a FIB.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Demand {
    /// Kind of the names.
    pub kind: NameKind,
    /// Names.
    pub n_names: u64,
    /// Actions other than drop.
    pub n_actions: u32,
    /// Bits of a value.
    pub value_bits: u32,
    /// Share of alien names that may get an action.
    pub fp: f64,
}

impl Demand {
    /// A demand whose values have just the bits that drop and `n_actions` actions need.
    pub fn new(kind: NameKind, n_names: u64, n_actions: u32, fp: f64) -> Self {
        Self { kind, n_names, n_actions, value_bits: (u32::BITS - n_actions.leading_zeros()).max(1), fp }
    }

    /// Bits of a name; of a text, those of the papers' file names.
    pub fn name_bits(&self) -> u32 {
        match self.kind {
            NameKind::Mac => 48,
            NameKind::Ipv4 | NameKind::Teid => 32,
            NameKind::Ipv6 => 128,
            NameKind::FiveTuple => 104,
            NameKind::Fixed(bytes) => 8 * u32::from(bytes),
            NameKind::Text => TEXT_BITS,
        }
    }

    /// The papers' symbols for it.
    pub fn symbols(&self) -> Symbols {
        Symbols {
            n_k: self.n_names.max(1) as f64,
            d: self.n_actions.max(1),
            l_p: self.value_bits,
            l_k: self.name_bits(),
            ..Symbols::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_have_room_for_drop() {
        let bits = |n| Demand::new(NameKind::Mac, 1, n, 0.5).value_bits;
        assert_eq!([1, 2, 3, 4, 31, 32, 255, 256, 65_535].map(bits), [1, 2, 2, 3, 5, 6, 8, 9, 16]);
    }
}
