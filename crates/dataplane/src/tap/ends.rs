//! The sender and receiver of a frame, by the names of the network where the frame carries them, else by its MAC addresses.

use crate::parse::{MAX_NAME, NameField, Names, Network, envelope, network};
use crate::shim;
use fib::name::{Name, NameKind};

/// The two ends of a frame.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Ends {
    /// The sender: a MAC or IP address. None where frames do not contain the name of their sender.
    pub source: Option<Name>,
    /// The receiver.
    pub destination: Option<Name>,
}

impl Ends {
    /// The ends of a frame as it was seen at a port. `field` says where names are; it is none while there is no table.
    pub fn of(frame: &[u8], field: Option<NameField>) -> Self {
        let has_shim = shim::is_present(frame);
        let kind = field.map_or(NameKind::Mac, NameField::kind);
        let by_name = field.filter(|_| kind != NameKind::Mac).and_then(|field| by_name(frame, has_shim, field));
        by_name.unwrap_or_else(|| Self { source: mac(frame, 6), destination: mac(frame, 0) })
    }
}

fn mac(frame: &[u8], at: usize) -> Option<Name> {
    Name::from_bytes(NameKind::Mac, frame.get(at..at + 6)?).ok()
}

fn by_name(frame: &[u8], has_shim: bool, field: NameField) -> Option<Ends> {
    let (type_at, kind, mut names) = (envelope(frame, has_shim).ok()?, field.kind(), Names::default());
    field.extract(frame, type_at, &mut names).ok()?;
    let len = names.name_len(0);
    let word = names.word(0).to_le_bytes();
    let bytes: &[u8; MAX_NAME] = names.padded(0);
    let destination = Name::from_bytes(kind, if len <= 8 { &word[..len] } else { &bytes[..len] }).ok()?;
    let source = match (network(frame, type_at), kind) {
        (Ok(Network::V4(ip)), NameKind::Ipv4) => Name::from_bytes(kind, &ip[12..16]).ok(),
        (Ok(Network::V6(ip)), NameKind::Ipv6) => Name::from_bytes(kind, &ip[8..24]).ok(),
        _ => None,
    };
    Some(Ends { source, destination: Some(destination) })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(frame: &[u8], kind: NameKind) -> (String, String) {
        let Ends { source, destination } = Ends::of(frame, NameField::new(kind, Some(14)).ok());
        let text = |name: Option<Name>| name.map_or_else(|| "-".to_owned(), |name| name.to_string());
        (text(source), text(destination))
    }

    #[test]
    fn ends_are_names_of_the_kind_or_mac_addresses() {
        let mut frame = vec![2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 8, 0];
        frame.extend([0x45, 0, 0, 20, 0, 0, 0, 0, 64, 17, 0, 0, 10, 0, 0, 9, 10, 0, 0, 8]);
        let macs = ("02:00:00:00:00:02".to_owned(), "02:00:00:00:00:01".to_owned());
        assert_eq!(text(&frame, NameKind::Mac), macs);
        assert_eq!(text(&frame, NameKind::Ipv6), macs, "it has no such name");
        let with_shim = [&frame[..12], &[0x88, 0xb5, 9, 0], &frame[12..]].concat();
        for frame in [&frame, &with_shim] {
            assert_eq!(text(frame, NameKind::Ipv4), ("10.0.0.9".to_owned(), "10.0.0.8".to_owned()));
            assert_eq!(text(frame, NameKind::Fixed(2)).0, "-", "such names say nothing of a sender");
        }
        assert_eq!(text(&frame[..11], NameKind::Mac).0, "-");
        assert_eq!(text(&[], NameKind::Ipv4), ("-".to_owned(), "-".to_owned()));
    }
}
