//! A host's reports on multicast groups: reports and leaves of IGMP (versions 1 to 3) and MLD (1 and 2).
//!
//! A host gains nothing by posing as one elsewhere, because the source of each frame is checked. A message that no host would write is
//! refused as a whole: a wrong checksum, a part of a packet, a packet that came through a router, an MLD message without the router
//! alert, a record that ends outside the message.
//!
//! Sources are not told apart: a host that wants a group from some of them gets it from all, and passes on to its programs what
//! they asked for. So each record becomes one [`Says`]:
//!
//! | record of IGMPv3 and MLDv2 | with sources | without |
//! |---|---|---|
//! | is include, to include | wants | leaves |
//! | is exclude, to exclude | wants | wants |
//! | allow new sources | wants | nothing |
//! | block old sources | may leave | nothing |
//!
//! Sources: RFC 1112 (appendix I), RFC 2236 (2), RFC 3376 (4.2), RFC 2710 (3), RFC 3810 (5.2, 6.2), RFC 3590 (4). Cost: the slow path;
//! two passes over a message, no allocation.

use crate::parse::{ICMPV6, Network, is_tagged, network};
use netio::checksum::{fold, sum};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

const IGMP: u8 = 2;
const HOP_BY_HOP: u8 = 0;
const IPV6_HEADER: usize = 40;

/// The wish of a host for one group.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Says {
    /// It wants what is sent there.
    Wants,
    /// It no longer wants anything of it.
    Leaves,
    /// It wants less of it than before, possibly nothing.
    MayLeave,
}

/// A message of IGMP or MLD.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Message<'a> {
    /// A report or a leave.
    Report(Report<'a>),
    /// A query for the groups that hosts want, as routers and switches ask.
    Query,
}

/// A report or a leave, all of whose records are whole.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Report<'a>(Form<'a>);

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Form<'a> {
    /// A message of IGMPv1, IGMPv2 or MLDv1.
    One(IpAddr, Says),
    /// Records of IGMPv3, or of MLDv2.
    V3(&'a [u8]),
    V2(&'a [u8]),
}

/// The message is IGMP or MLD, but not as a host writes it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Malformed;

/// Reads a frame of a host, if it is IGMP or MLD. `type_at` as in [`crate::parse::NameField::extract`].
/// # Errors
/// [`Malformed`].
pub fn read(frame: &[u8], type_at: usize) -> Option<Result<Message<'_>, Malformed>> {
    find(frame, type_at).map(Found::read)
}

/// A message of IGMP or MLD, of which nothing but its type was examined.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Found<'a> {
    Igmp { header: &'a [u8], message: &'a [u8] },
    Mld { header: &'a [u8], has_alert: bool, message: &'a [u8] },
}

impl<'a> Found<'a> {
    /// # Errors
    /// [`Malformed`].
    pub(crate) fn read(self) -> Result<Message<'a>, Malformed> {
        match self {
            Found::Igmp { header, message } => read_igmp(header, message),
            Found::Mld { header, has_alert, message } => read_mld(header, has_alert, message),
        }
    }
}

/// Finds a message in a frame without a VLAN tag, at little cost.
pub(crate) fn find(frame: &[u8], type_at: usize) -> Option<Found<'_>> {
    match network(frame, type_at).ok().filter(|_| !is_tagged(frame, type_at))? {
        Network::V4(ip) => find_igmp(ip),
        Network::V6(ip) => find_mld(ip),
    }
}

fn find_igmp(ip: &[u8]) -> Option<Found<'_>> {
    let (header, message) = ip.split_at_checked(usize::from(ip[0] & 15) * 4)?;
    let kind = *message.first().filter(|_| header[9] == IGMP)?;
    matches!(kind, 0x11 | 0x12 | 0x16 | 0x17 | 0x22).then_some(Found::Igmp { header, message })
}

fn find_mld(ip: &[u8]) -> Option<Found<'_>> {
    let (header, payload) = ip.split_at_checked(IPV6_HEADER)?;
    let (has_alert, message) = match header[6] {
        ICMPV6 => (false, payload),
        HOP_BY_HOP => {
            let len = 8 + 8 * usize::from(*payload.get(1)?);
            let (options, message) = payload.split_at_checked(len)?;
            if options[0] != ICMPV6 {
                return None;
            }
            (has_router_alert(&options[2..]), message)
        }
        _ => return None,
    };
    matches!(message.first()?, 130 | 131 | 132 | 143).then_some(Found::Mld { header, has_alert, message })
}

/// ```text
///  0 type | 1 | 2 checksum | 4 group                                     0x12, 0x16, 0x17
///  0 type | 1 | 2 checksum | 4 reserved | 6 number of records | 8 ...    0x22
/// ```
fn read_igmp<'a>(header: &'a [u8], message: &'a [u8]) -> Result<Message<'a>, Malformed> {
    let is_whole = header[6] & 0x3f == 0 && header[7] == 0;
    let is_right = is_whole && header[8] == 1 && fold(sum(header)) == 0xffff && fold(sum(message)) == 0xffff;
    let fixed = message.first_chunk::<8>().filter(|_| is_right).ok_or(Malformed)?;
    let group = Ipv4Addr::from_octets([fixed[4], fixed[5], fixed[6], fixed[7]]);
    let one = |says| match group.is_multicast() {
        true => Ok(Message::Report(Report(Form::One(group.into(), says)))),
        false => Err(Malformed),
    };
    match fixed[0] {
        0x11 => Ok(Message::Query),
        0x12 | 0x16 => one(Says::Wants),
        0x17 => one(Says::Leaves),
        _ => whole::<4>(&message[8..], [fixed[6], fixed[7]]).map(|records| Message::Report(Report(Form::V3(records)))),
    }
}

/// ```text
///  0 type | 1 code | 2 checksum | 4 delay | 6 reserved | 8 group                      131, 132
///  0 type | 1 code | 2 checksum | 4 reserved | 6 number of records | 8 ...            143
/// ```
fn read_mld<'a>(header: &'a [u8], has_alert: bool, message: &'a [u8]) -> Result<Message<'a>, Malformed> {
    let source = Ipv6Addr::from(<[u8; 16]>::try_from(&header[8..24]).unwrap_or_default());
    // A host that has no address yet reports as well.
    let is_here = source.is_unicast_link_local() || source.is_unspecified() && message.first() != Some(&130);
    let pseudo_header = sum(&header[8..]) + message.len() as u64 + u64::from(ICMPV6);
    let is_right = has_alert && is_here && header[7] == 1 && fold(pseudo_header + sum(message)) == 0xffff;
    let fixed = message.first_chunk::<8>().filter(|_| is_right).ok_or(Malformed)?;
    let one = |says| {
        let group = message[8..].first_chunk::<16>().map(|group| Ipv6Addr::from(*group));
        let group = group.filter(Ipv6Addr::is_multicast).ok_or(Malformed)?;
        Ok(Message::Report(Report(Form::One(group.into(), says))))
    };
    match fixed[0] {
        130 => Ok(Message::Query),
        131 => one(Says::Wants),
        132 => one(Says::Leaves),
        _ => whole::<16>(&message[8..], [fixed[6], fixed[7]]).map(|records| Message::Report(Report(Form::V2(records)))),
    }
}

/// Whether options of IPv6 have the router alert of MLD (RFC 2711).
fn has_router_alert(mut options: &[u8]) -> bool {
    const PAD_1: u8 = 0;
    const ALERT: [u8; 4] = [5, 2, 0, 0];
    loop {
        options = match *options {
            [] => return false,
            [PAD_1, ref rest @ ..] => rest,
            _ if options.starts_with(&ALERT) => return true,
            [_, len, ref rest @ ..] => rest.get(usize::from(len)..).unwrap_or_default(),
            _ => return false,
        };
    }
}

/// ```text
///  0 type | 1 words of auxiliary data | 2 number of sources | 4 group, N bytes | sources, N bytes each | auxiliary data
/// ```
fn split<const N: usize>(records: &[u8]) -> Option<(u8, [u8; N], usize, &[u8])> {
    let (head, rest) = records.split_first_chunk::<4>()?;
    let (group, rest) = rest.split_first_chunk::<N>()?;
    let n_sources = usize::from(u16::from_be_bytes([head[2], head[3]]));
    let rest = rest.get(n_sources * N + usize::from(head[1]) * 4..)?;
    Some((head[0], *group, n_sources, rest))
}

/// The first `n` records, if each is whole and of a group.
fn whole<const N: usize>(records: &[u8], n: [u8; 2]) -> Result<&[u8], Malformed>
where
    [u8; N]: Into<IpAddr>,
{
    let mut rest = records;
    for _ in 0..u16::from_be_bytes(n) {
        let (_, group, _, after) = split::<N>(rest).ok_or(Malformed)?;
        if !group.into().is_multicast() {
            return Err(Malformed);
        }
        rest = after;
    }
    Ok(&records[..records.len() - rest.len()])
}

/// A group, and a host's wish for it.
type Word = (IpAddr, Says);

/// The content of the next record, and of those after it. A record of an unknown kind has none.
fn next<const N: usize>(records: &[u8]) -> Option<(Option<Word>, &[u8])>
where
    [u8; N]: Into<IpAddr>,
{
    let (kind, group, n_sources, rest) = split::<N>(records)?;
    let says = match (kind, n_sources) {
        (1 | 3, 0) => Some(Says::Leaves),
        (1..=4, _) => Some(Says::Wants),
        (5, 1..) => Some(Says::Wants),
        (6, 1..) => Some(Says::MayLeave),
        _ => None,
    };
    Some((says.map(|says| (group.into(), says)), rest))
}

impl<'a> Report<'a> {
    /// The wish for each group, in the order of the message.
    pub fn words(&self) -> impl Iterator<Item = Word> + use<'a> {
        let (one, mut v3, mut v2): (_, &'a [u8], &'a [u8]) = match self.0 {
            Form::One(group, says) => (Some((group, says)), &[], &[]),
            Form::V3(records) => (None, records, &[]),
            Form::V2(records) => (None, &[], records),
        };
        let records = std::iter::from_fn(move || {
            let (says, rest) = next::<4>(v3).or_else(|| next::<16>(v2))?;
            if v3.is_empty() {
                v2 = rest
            } else {
                v3 = rest
            }
            Some(says)
        });
        one.into_iter().chain(records.flatten())
    }

    /// Whether other hosts behind the same port that hear it keep silent because of it, as hosts of IGMPv1, IGMPv2 and MLDv1 do.
    pub fn speaks_for_others(&self) -> bool {
        matches!(self.0, Form::One(_, Says::Wants))
    }
}
