//! The bits of a flow that a rule looks at, and the rule's answer.

use std::net::Ipv4Addr;

/// An IPv4 five-tuple.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Flow {
    /// Source address.
    pub source: Ipv4Addr,
    /// Destination address.
    pub destination: Ipv4Addr,
    /// Protocol.
    pub protocol: u8,
    /// Source port.
    pub source_port: u16,
    /// Destination port.
    pub destination_port: u16,
}

impl Flow {
    /// The lookup key: the 13 bytes in network order, then zeros.
    pub fn key(&self) -> [u64; 2] {
        let mut bytes = [0; 16];
        bytes[0..4].copy_from_slice(&self.source.octets());
        bytes[4..8].copy_from_slice(&self.destination.octets());
        bytes[8] = self.protocol;
        bytes[9..11].copy_from_slice(&self.source_port.to_be_bytes());
        bytes[11..13].copy_from_slice(&self.destination_port.to_be_bytes());
        to_words(bytes)
    }
}

/// The mask lengths of a rule: rules with the same mask lengths form a tuple.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Tuple {
    source_bits: u8,
    destination_bits: u8,
    protocol: bool,
    source_port: bool,
    destination_port: bool,
}

/// Byte of a name at which the code of its tuple starts.
const CODE_AT: usize = 13;
/// The bits of the second word of a name that hold the code.
const CODE_MASK: u64 = 0xFFFF << (8 * (CODE_AT - 8));

impl Tuple {
    /// All bits of all fields.
    pub const EXACT: Self =
        Self { source_bits: 32, destination_bits: 32, protocol: true, source_port: true, destination_port: true };
    /// No bit: matches every flow.
    pub const ANY: Self =
        Self { source_bits: 0, destination_bits: 0, protocol: false, source_port: false, destination_port: false };

    /// As `self`, with a prefix of the source address.
    /// # Panics
    /// When `bits` is over 32.
    pub fn source(self, bits: u8) -> Self {
        assert!(bits <= 32, "a prefix of {bits} bits");
        Self { source_bits: bits, ..self }
    }

    /// As `self`, with a prefix of the destination address.
    /// # Panics
    /// When `bits` is over 32.
    pub fn destination(self, bits: u8) -> Self {
        assert!(bits <= 32, "a prefix of {bits} bits");
        Self { destination_bits: bits, ..self }
    }

    /// As `self`, with the protocol exact or any.
    pub fn protocol(self, exact: bool) -> Self {
        Self { protocol: exact, ..self }
    }

    /// As `self`, with the ports, each exact or any.
    pub fn ports(self, source: bool, destination: bool) -> Self {
        Self { source_port: source, destination_port: destination, ..self }
    }

    /// Its number: source bits, destination bits (6 bits each), protocol, source port, destination port, from the top.
    pub fn code(self) -> u16 {
        let prefixes = u16::from(self.source_bits) << 9 | u16::from(self.destination_bits) << 3;
        prefixes | u16::from(self.protocol) << 2 | u16::from(self.source_port) << 1 | u16::from(self.destination_port)
    }

    /// The tuple of a code; none if no tuple has it.
    pub fn from_code(code: u16) -> Option<Self> {
        let (source_bits, destination_bits) = ((code >> 9) as u8, (code >> 3) as u8 & 63);
        let flag = |bit: u16| code >> bit & 1 != 0;
        (source_bits <= 32 && destination_bits <= 32).then(|| Self {
            source_bits,
            destination_bits,
            protocol: flag(2),
            source_port: flag(1),
            destination_port: flag(0),
        })
    }

    /// Bits of a flow that it looks at.
    pub fn n_bits(self) -> u32 {
        let ports = u32::from(self.source_port) + u32::from(self.destination_port);
        u32::from(self.source_bits) + u32::from(self.destination_bits) + 8 * u32::from(self.protocol) + 16 * ports
    }

    /// Of two rules with the same priority the one whose tuple has the larger rank wins.
    pub fn rank(self) -> u32 {
        self.n_bits() << 16 | u32::from(self.code())
    }

    /// The bits of a key that are compared: always those of the tag, never those of the code.
    pub(super) fn mask(self) -> [u64; 2] {
        let mut bytes = [0; 16];
        let prefix = |bits: u8| u32::MAX.checked_shl(32 - u32::from(bits)).unwrap_or(0).to_be_bytes();
        let all = |exact: bool| if exact { 0xFF } else { 0 };
        bytes[0..4].copy_from_slice(&prefix(self.source_bits));
        bytes[4..8].copy_from_slice(&prefix(self.destination_bits));
        bytes[8] = all(self.protocol);
        bytes[9..11].fill(all(self.source_port));
        bytes[11..13].fill(all(self.destination_port));
        bytes[15] = 0xFF;
        to_words(bytes)
    }

    /// The code at its position in a name.
    pub(super) fn code_word(self) -> u64 {
        u64::from(self.code()) << (8 * (CODE_AT - 8))
    }
}

/// What a rule matches: a tuple, and the values of its bits. There is one rule per pattern.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Pattern {
    tuple: Tuple,
    /// As stored in the hash table: masked, with the code.
    name: [u64; 2],
}

impl Pattern {
    /// The flows that equal `key` in all bits of `tuple`; the other bits of `key` are ignored.
    pub fn new(tuple: Tuple, key: [u64; 2]) -> Self {
        let mask = tuple.mask();
        Self { tuple, name: [key[0] & mask[0], key[1] & mask[1] | tuple.code_word()] }
    }

    /// Exactly one key; none if it has bits where no field is (bytes 13 and 14).
    pub fn exact(key: [u64; 2]) -> Option<Self> {
        (key[1] & CODE_MASK == 0).then(|| Self::new(Tuple::EXACT, key))
    }

    /// Its tuple.
    pub fn tuple(&self) -> Tuple {
        self.tuple
    }

    /// A key that it matches: its bits, then zeros.
    pub fn key(&self) -> [u64; 2] {
        [self.name[0], self.name[1] & !CODE_MASK]
    }

    /// Whether it matches a flow's key.
    pub fn matches(&self, key: [u64; 2]) -> bool {
        Self::new(self.tuple, key) == *self
    }

    pub(super) fn name(&self) -> [u64; 2] {
        self.name
    }

    /// The pattern of a name in the hash table.
    pub(super) fn of_name(name: [u64; 2]) -> Option<Self> {
        let code = (name[1] & CODE_MASK) >> (8 * (CODE_AT - 8));
        let tuple = Tuple::from_code(code as u16)?;
        Some(Self { tuple, name })
    }
}

/// A rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rule {
    /// The flows that it applies to.
    pub pattern: Pattern,
    /// The matching rule with the highest priority wins.
    pub priority: u32,
    /// The answer of a lookup: 0 is drop.
    pub value: u64,
}

fn to_words(bytes: [u8; 16]) -> [u64; 2] {
    let (words, _) = bytes.as_chunks::<8>();
    [u64::from_le_bytes(words[0]), u64::from_le_bytes(words[1])]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_name_tuples_one_to_one() {
        let tuples: Vec<_> = (0..=u16::MAX).filter_map(Tuple::from_code).collect();
        assert_eq!(tuples.len(), 33 * 33 * 8);
        assert!(tuples.iter().all(|tuple| Tuple::from_code(tuple.code()) == Some(*tuple)));
        assert_eq!((Tuple::EXACT.n_bits(), Tuple::ANY.n_bits()), (104, 0));
        assert!(
            tuples
                .iter()
                .all(|tuple| tuple.mask().iter().map(|word| word.count_ones()).sum::<u32>() == tuple.n_bits() + 8)
        );
    }

    #[test]
    fn a_pattern_matches_what_is_like_it_in_its_bits() {
        let flow = Flow {
            source: Ipv4Addr::new(10, 1, 2, 3),
            destination: Ipv4Addr::new(192, 0, 2, 9),
            protocol: 6,
            source_port: 40_000,
            destination_port: 443,
        };
        let tuple = Tuple::ANY.source(9).destination(32).protocol(true).ports(false, true);
        let pattern = Pattern::new(tuple, flow.key());
        let like = |change: &dyn Fn(&mut Flow)| {
            let mut other = flow;
            change(&mut other);
            pattern.matches(other.key())
        };
        assert!(like(&|flow| flow.source = Ipv4Addr::new(10, 127, 0, 0)));
        assert!(!like(&|flow| flow.source = Ipv4Addr::new(10, 128, 0, 0)));
        assert!(!like(&|flow| flow.destination = Ipv4Addr::new(192, 0, 2, 8)));
        assert!(!like(&|flow| flow.protocol = 17));
        assert!(like(&|flow| flow.source_port = 1));
        assert!(!like(&|flow| flow.destination_port = 80));
        assert_eq!(Pattern::of_name(pattern.name()), Some(pattern));
    }
}
