//! Addresses, their prefixes, and the notation of both.

use std::fmt::{Debug, Display};
use std::hash::Hash;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

/// An address as an integer in host order, so that `>>` keeps its first bits: `u32` for IPv4, `u128` for IPv6.
pub trait Address: Copy + Ord + Hash + Debug + Default + Send + Sync + 'static {
    /// Its bits.
    const BITS: u32;
    /// The version of IP: 4 or 6.
    const VERSION: u8;
    /// Its textual form.
    type Text: Display + FromStr + From<Self> + Into<Self>;

    /// `n` bits after the first `from`, as a number; `1 <= n <= 32`, `from + n <= BITS`.
    fn bits_at(self, from: u32, n: u32) -> u32;
    /// The first `n` bits, followed by zeros.
    fn truncated(self, n: u32) -> Self;
    /// The first `n` bits, followed by ones.
    fn filled(self, n: u32) -> Self;
    /// The address whose first `n <= 32` bits are `number`, followed by zeros.
    fn from_first(number: u32, n: u32) -> Self;
    /// In host order, zero-extended to 128 bits.
    fn widened(self) -> u128;
    /// The reverse of [`Address::widened`], from the lowest bits.
    fn narrowed(wide: u128) -> Self;
}

macro_rules! address {
    ($int:ty, $text:ty, $version:literal) => {
        impl Address for $int {
            const BITS: u32 = <$int>::BITS;
            const VERSION: u8 = $version;
            type Text = $text;

            #[inline(always)]
            fn bits_at(self, from: u32, n: u32) -> u32 {
                ((self << from) >> (Self::BITS - n)) as u32
            }

            #[inline]
            fn truncated(self, n: u32) -> Self {
                if n == 0 { 0 } else { self >> (Self::BITS - n) << (Self::BITS - n) }
            }

            #[inline]
            fn filled(self, n: u32) -> Self {
                if n == Self::BITS { self } else { self | Self::MAX >> n }
            }

            fn from_first(number: u32, n: u32) -> Self {
                if n == 0 { 0 } else { Self::from(number) << (Self::BITS - n) }
            }

            fn widened(self) -> u128 {
                self.into()
            }

            fn narrowed(wide: u128) -> Self {
                wide as Self
            }
        }
    };
}
address!(u32, Ipv4Addr, 4);
address!(u128, Ipv6Addr, 6);

/// All addresses that begin with the same bits. Ordered by address, shorter prefixes first: a prefix comes before those
/// that it covers.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Prefix<A> {
    address: A,
    len: u8,
}

impl<A: Address> Prefix<A> {
    /// The prefix of the first `len` bits of `address`.
    /// # Errors
    /// [`PrefixError::TooLong`], and [`PrefixError::HostBits`] if later bits are set.
    pub fn new(address: A, len: u8) -> Result<Self, PrefixError> {
        if u32::from(len) > A::BITS {
            return Err(PrefixError::TooLong { len: len.into(), max: A::BITS as u8, version: A::VERSION });
        }
        let cut = Self::of(address, len);
        if cut.address != address {
            let got = format!("{}/{len}", A::Text::from(address));
            return Err(PrefixError::HostBits { got, cut: cut.to_string() });
        }
        Ok(cut)
    }

    /// The prefix of `len` bits that covers `address`.
    /// # Panics
    /// When `len` is more than an address has bits.
    pub fn of(address: A, len: u8) -> Self {
        assert!(u32::from(len) <= A::BITS, "{len} of {} bits", A::BITS);
        Self { address: address.truncated(len.into()), len }
    }

    /// Its bits, followed by zeros.
    pub fn address(self) -> A {
        self.address
    }

    /// The number of its bits.
    #[expect(clippy::len_without_is_empty, reason = "the length of a prefix is a number of bits")]
    pub fn len(self) -> u8 {
        self.len
    }

    /// The last address that it covers.
    pub fn last(self) -> A {
        self.address.filled(self.len.into())
    }

    /// Whether `address` begins with it.
    pub fn covers(self, address: A) -> bool {
        address.truncated(self.len.into()) == self.address
    }
}

impl<A: Address> Display for Prefix<A> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}/{}", A::Text::from(self.address), self.len)
    }
}

impl<A: Address> FromStr for Prefix<A> {
    type Err = PrefixError;

    fn from_str(text: &str) -> Result<Self, PrefixError> {
        let Some((address, len)) = text.split_once('/') else {
            return Err(PrefixError::NoLength { text: text.to_owned(), max: A::BITS as u8 });
        };
        let unreadable = || PrefixError::Unreadable { text: text.to_owned(), version: A::VERSION };
        let address: A = address.parse::<A::Text>().map_err(|_| unreadable())?.into();
        // Digits only: Rust parses `+24` as a number, but it is not a valid length.
        if len.is_empty() || len.len() > 9 || !len.bytes().all(|byte| byte.is_ascii_digit()) {
            return Err(unreadable());
        }
        let len: u32 = len.parse().map_err(|_| unreadable())?;
        match u8::try_from(len) {
            Ok(len) => Self::new(address, len),
            Err(_) => Err(PrefixError::TooLong { len, max: A::BITS as u8, version: A::VERSION }),
        }
    }
}

/// Why this is not a prefix.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PrefixError {
    /// There is no `/`.
    #[error("`{text}` has no length: write {text}/{max} for this one address")]
    NoLength {
        /// What was given.
        text: String,
        /// Bits of an address.
        max: u8,
    },
    /// Address or length does not parse.
    #[error("`{text}` is not an IPv{version} prefix: write an address, a slash and a length in decimal")]
    Unreadable {
        /// What was given.
        text: String,
        /// The version of IP that was expected.
        version: u8,
    },
    /// More bits than an address has.
    #[error("a prefix of {len} bits: IPv{version} has lengths from 0 to {max}")]
    TooLong {
        /// The length.
        len: u32,
        /// Bits of an address.
        max: u8,
        /// The version of IP.
        version: u8,
    },
    /// Bits are set after its length.
    #[error("{got} has bits set behind its length: write {cut}, or a longer prefix")]
    HostBits {
        /// What was given.
        got: String,
        /// The prefix without these bits.
        cut: String,
    },
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prefixes_are_read_as_they_are_written() {
        for text in ["0.0.0.0/0", "10.0.0.0/8", "10.1.2.3/32", "128.0.0.0/1"] {
            assert_eq!(text.parse::<Prefix<u32>>().unwrap().to_string(), text);
        }
        for text in ["::/0", "2001:db8::/32", "2001:db8::1/128", "8000::/1"] {
            assert_eq!(text.parse::<Prefix<u128>>().unwrap().to_string(), text);
        }
    }

    #[test]
    fn what_is_no_prefix_is_refused_with_the_reason() {
        let refused = |text: &str| text.parse::<Prefix<u32>>().unwrap_err().to_string();
        assert_eq!(refused("10.0.0.1"), "`10.0.0.1` has no length: write 10.0.0.1/32 for this one address");
        assert_eq!(
            refused("10.0.0.1/24"),
            "10.0.0.1/24 has bits set behind its length: write 10.0.0.0/24, or a longer prefix"
        );
        for len in ["33", "256", "999999999"] {
            assert!(refused(&format!("10.0.0.0/{len}")).starts_with(&format!("a prefix of {len} bits")));
        }
        for text in
            ["", "/", "10.0.0/8", "10.0.0.0/", "10.0.0.0/+8", "10.0.0.0/-1", "10.0.0.0/8/8", "::/0", "010.0.0.0/8"]
        {
            assert!(text.parse::<Prefix<u32>>().is_err(), "{text}");
        }
        assert!("2001:db8::/129".parse::<Prefix<u128>>().unwrap_err().to_string().contains("0 to 128"));
        assert!("10.0.0.0/8".parse::<Prefix<u128>>().is_err());
    }

    #[test]
    fn bits_are_counted_from_the_first() {
        let address = 0x0a01_0203u32;
        assert_eq!((address.bits_at(0, 8), address.bits_at(24, 8), address.bits_at(18, 6)), (10, 3, 2));
        assert_eq!((address.truncated(0), address.truncated(16), address.truncated(32)), (0, 0x0a01_0000, address));
        assert_eq!((address.filled(32), 0u32.filled(0), 0u32.filled(31)), (address, u32::MAX, 1));
        assert_eq!((u128::from_first(1, 3), u32::from_first(7, 0)), (1 << 125, 0));
        let prefix = Prefix::of(address, 16);
        assert!(prefix.covers(0x0a01_ffff) && !prefix.covers(0x0a02_0000));
        assert_eq!(prefix.last(), 0x0a01_ffff);
    }
}
