//! The tables of a list of rules, and the file that has them.
//!
//! ```text
//!  0  "fibulaRL"          8   magic
//!  8  format version      2   1
//! 10  family of digests   1
//! 11  key of digests     32
//! 43  rules               4   number 0, no rule, has no entry here
//! 47  rules                   each: line 4, length of the action 1, UTF-8
//!  …  table of IPv4           its bytes 4, a whole update: docs/formats/rules.md
//!  …  table of IPv6           likewise
//!  …  checksum            8   XXH3-64 of everything before
//! ```
//! All integers are little-endian. Bounds are checked before anything is allocated for them.

use super::ListedRule;
use crate::codec::{DecodeError, Input, put_bytes, put_u32, put_u64};
use crate::messages::fingerprint;
use crate::name::{Name, NameKind};
use lookup::base::bytes::{self, BytesError};
use lookup::hash::{Family, SecretKey};
use lookup::rules::{Flow, Image, RuleError, Rules, RulesQuery, Settings, Update};
use lookup::traits::{ApplyError, Query};

/// How a file begins.
pub const MAGIC: &[u8; 8] = b"fibulaRL";
/// The version of the format.
pub const FORMAT: u16 = 1;

/// Builds the tables of these rules, under a random key, as the bytes of a file.
/// # Errors
/// [`RuleTableError::Rule`].
pub fn encode(list: &[ListedRule]) -> Result<Vec<u8>, RuleTableError> {
    let settings = Settings::new(Family::MulAdd, &SecretKey::random());
    let images = images(&settings, list)?;
    let mut out = MAGIC.to_vec();
    out.extend(FORMAT.to_le_bytes());
    out.push(settings.family.id());
    out.extend(settings.key.as_bytes());
    put_u32(&mut out, list.len() as u32);
    for rule in list {
        put_u32(&mut out, rule.line as u32);
        out.push(rule.action.len() as u8);
        out.extend(rule.action.as_bytes());
    }
    for image in images {
        let mut table = Vec::new();
        Update::Whole(image).encode(&mut table);
        put_bytes(&mut out, &table);
    }
    let checksum = fingerprint(&out);
    put_u64(&mut out, checksum);
    Ok(out)
}

/// The table of IPv4 and that of IPv6.
fn images(settings: &Settings, list: &[ListedRule]) -> Result<[Image; 2], RuleTableError> {
    let of = |is_v4| list.iter().filter_map(|rule| rule.for_version(is_v4)).collect::<Vec<_>>();
    // The value of a rule is its number in the list.
    let refused = |error| match error {
        RuleError::Alike { value } => match list.get((value as usize).wrapping_sub(1)) {
            Some(rule) => RuleTableError::Line { line: rule.line, error },
            None => error.into(),
        },
        _ => error.into(),
    };
    let v4 = Rules::<1>::build(settings.clone(), &of(true)).map_err(refused)?.image();
    Ok([v4, Rules::<4>::build(settings.clone(), &of(false)).map_err(refused)?.image()])
}

/// A five-tuple of either version of IP, as a table is asked for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AnyFlow {
    /// Of IPv4.
    V4(Flow<1>),
    /// Of IPv6.
    V6(Flow<4>),
}

impl AnyFlow {
    /// The flow in the bytes of a name of kind [`NameKind::FiveTuple`]: addresses, protocol, ports.
    pub fn of_bytes(bytes: &[u8]) -> Option<Self> {
        let (addresses, rest) = bytes.split_last_chunk::<5>()?;
        let [protocol, ports @ ..] = *rest;
        Self::new(addresses, protocol, ports)
    }

    /// The flow of two addresses, 8 or 32 bytes, and two ports, the source first, as they stand in packets.
    pub fn new(addresses: &[u8], protocol: u8, [a, b, c, d]: [u8; 4]) -> Option<Self> {
        let ports = [u16::from_be_bytes([a, b]), u16::from_be_bytes([c, d])];
        if let Some(v4) = addresses.as_array::<8>() {
            let [a, b, c, d, e, f, g, h] = *v4;
            return Some(Self::V4(Flow::v4([[a, b, c, d].into(), [e, f, g, h].into()], ports, protocol)));
        }
        let (source, destination) = addresses.split_first_chunk::<16>()?;
        Some(Self::V6(Flow::v6([(*source).into(), (*destination.as_array::<16>()?).into()], ports, protocol)))
    }
}

/// The tables of a list of rules, for lookups.
pub struct RuleTable {
    /// Line and action of each rule.
    rules: Vec<(u32, String)>,
    v4: RulesQuery<1>,
    v6: RulesQuery<4>,
}

/// The rule that answers for a flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Match<'a> {
    /// Its line in the list.
    pub line: u32,
    /// Its action.
    pub action: &'a str,
}

impl RuleTable {
    /// The tables of these rules, under a random key.
    /// # Errors
    /// [`RuleTableError::Rule`]; [`RuleTableError::Apply`] if there is no memory.
    pub fn build(list: &[ListedRule]) -> Result<Self, RuleTableError> {
        let settings = Settings::new(Family::MulAdd, &SecretKey::random());
        let [v4, v6] = images(&settings, list)?;
        Ok(Self {
            rules: list.iter().map(|rule| (rule.line as u32, rule.action.clone())).collect(),
            v4: RulesQuery::from_image(&settings, &v4)?,
            v6: RulesQuery::from_image(&settings, &v6)?,
        })
    }

    /// The number of rules.
    pub fn len(&self) -> usize {
        self.rules.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.rules.is_empty()
    }

    /// The table of IPv4.
    pub fn v4(&self) -> &RulesQuery<1> {
        &self.v4
    }

    /// The table of IPv6.
    pub fn v6(&self) -> &RulesQuery<4> {
        &self.v6
    }

    /// The rule that answers for a flow, if there is one; a name of another kind has none.
    pub fn lookup(&self, flow: &Name) -> Option<Match<'_>> {
        if flow.kind() != NameKind::FiveTuple {
            return None;
        }
        let number = match AnyFlow::of_bytes(flow.as_bytes())? {
            AnyFlow::V4(flow) => self.v4.lookup(flow),
            AnyFlow::V6(flow) => self.v6.lookup(flow),
        };
        self.rules().nth((number as usize).checked_sub(1)?)
    }

    /// The rules in the order of the list. Lookups in [`v4`](Self::v4) and [`v6`](Self::v6) give the number of one, from 1; 0 if none
    /// matches.
    pub fn rules(&self) -> impl ExactSizeIterator<Item = Match<'_>> {
        self.rules.iter().map(|(line, action)| Match { line: *line, action })
    }

    /// The tables in the bytes of a file.
    /// # Errors
    /// [`RuleTableError`] for anything but what [`encode`] wrote.
    pub fn decode(bytes: &[u8]) -> Result<Self, RuleTableError> {
        let content = bytes.strip_prefix(MAGIC).ok_or(RuleTableError::NotRules)?;
        let (_, checksum) = content.split_last_chunk::<8>().ok_or(RuleTableError::Damaged)?;
        if fingerprint(&bytes[..bytes.len() - 8]) != u64::from_le_bytes(*checksum) {
            return Err(RuleTableError::Damaged);
        }
        let mut input = Input::raw(&content[..content.len() - 8]);
        let found = input.u16()?;
        if found != FORMAT {
            return Err(RuleTableError::Format { found });
        }
        let family = Family::from_id(input.u8()?).map_err(|_| RuleTableError::Malformed("an unknown hash family"))?;
        let settings = Settings::new(family, &SecretKey::from_bytes(input.array()?));
        let n_rules = input.count(5)?;
        let mut rules = Vec::with_capacity(n_rules);
        for _ in 0..n_rules {
            let (line, len) = (input.u32()?, input.u8()?);
            let action = String::from_utf8(input.take(len.into())?.to_vec());
            rules.push((line, action.map_err(|_| RuleTableError::Malformed("an action is not text"))?));
        }
        let mut image = |decode: fn(&[u8]) -> Result<Update, bytes::DecodeError>| match decode(input.bytes()?)? {
            Update::Whole(image) => Ok(image),
            Update::Change(_) => Err(RuleTableError::Malformed("a table is missing")),
        };
        let images = [image(Update::decode::<1>)?, image(Update::decode::<4>)?];
        input.end()?;
        let (v4, v6) = (RulesQuery::from_image(&settings, &images[0])?, RulesQuery::from_image(&settings, &images[1])?);
        Ok(Self { rules, v4, v6 })
    }
}

/// Why tables of rules were not built or decoded.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RuleTableError {
    /// A rule cannot be held.
    #[error(transparent)]
    Rule(#[from] RuleError),
    /// The rule of a line cannot be held with the others.
    #[error("line {line}: {error}")]
    Line {
        /// The line.
        line: u64,
        /// Why.
        error: RuleError,
    },
    /// Another kind of file.
    #[error("this is not a file of rules: build one with `fibula rules build`")]
    NotRules,
    /// Changed or cut bytes.
    #[error("the file of rules is damaged: build it again")]
    Damaged,
    /// Written in another version of the format.
    #[error("the file has format {found}, this program reads format {FORMAT}: build it again with this version")]
    Format {
        /// The format found.
        found: u16,
    },
    /// A field makes no sense.
    #[error("the file of rules is damaged ({0}): build it again")]
    Malformed(&'static str),
    /// A field cannot be read.
    #[error("the file of rules is damaged ({0}): build it again")]
    Decode(#[from] DecodeError),
    /// A table cannot be read.
    #[error("the file of rules is damaged ({0}): build it again")]
    Table(#[from] bytes::DecodeError),
    /// A table makes no sense, or there is no memory for it.
    #[error("the file of rules cannot be used ({0}): build it again")]
    Apply(#[from] ApplyError),
}

impl From<BytesError> for RuleTableError {
    fn from(error: BytesError) -> Self {
        Self::Decode(error.into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rules::parse;

    const LIST: &str = "deny tcp from 10.6.0.0/16 to any port 22-23\npermit tcp to 192.0.2.0/24\n\
        permit udp from 2001:db8::/32\ndeny icmp\n";

    fn name(text: &str) -> Name {
        Name::parse(NameKind::FiveTuple, text).unwrap()
    }

    #[test]
    fn first_rule_that_matches_answers_through_a_file() {
        let table = RuleTable::decode(&encode(&parse(LIST).unwrap()).unwrap()).unwrap();
        for (flow, line) in [
            ("10.6.1.1:999->192.0.2.1:22/tcp", Some(1)),
            ("10.6.1.1:999->192.0.2.1:24/tcp", Some(2)),
            ("10.7.1.1:999->192.0.2.1:22/tcp", Some(2)),
            ("10.7.1.1:999->192.0.3.1:22/tcp", None),
            ("[2001:db8::1]:1->[::2]:2/udp", Some(3)),
            ("[2001:db9::1]:1->[::2]:2/udp", None),
            ("1.2.3.4:0->5.6.7.8:0/icmp", Some(4)),
            ("[::1]:0->[::2]:0/icmpv6", Some(4)),
            // ICMP of IPv4 in a packet of IPv6 is none.
            ("[::1]:0->[::2]:0/icmp", None),
        ] {
            assert_eq!(table.lookup(&name(flow)).map(|rule| rule.line), line, "{flow}");
        }
        assert_eq!(table.lookup(&name("10.6.1.1:9->192.0.2.1:22/tcp")).unwrap().action, "deny");
        assert_eq!(table.lookup(&Name::parse(NameKind::Ipv4, "10.6.1.1").unwrap()), None);
    }

    #[test]
    fn damaged_files_are_refused() {
        let bytes = encode(&parse(LIST).unwrap()).unwrap();
        assert!(matches!(RuleTable::decode(b"hello"), Err(RuleTableError::NotRules)));
        for at in 8..bytes.len() {
            let mut damaged = bytes.clone();
            damaged[at] ^= 1;
            assert!(matches!(RuleTable::decode(&damaged), Err(RuleTableError::Damaged)), "byte {at}");
            // With a checksum that fits, the fields are checked.
            let end = bytes.len() - 8;
            if at < end {
                let checksum = fingerprint(&damaged[..end]);
                damaged[end..].copy_from_slice(&checksum.to_le_bytes());
                let _ = RuleTable::decode(&damaged);
            }
            assert!(RuleTable::decode(&bytes[..at]).is_err());
        }
    }
}
