//! FIB files of a design.

use crate::action::{Action, PortId};
use crate::designs::{Design, Spec};
use crate::file::Fib;
use crate::messages::{Body, Message, TableHeader, ValueMode, fingerprint};
use crate::name::{Name, NameKind};
use crate::topology::NodeId;
use lookup::hash::{Family, SecretKey};

/// Names of a kind, with ports.
pub(crate) fn entries(kind: NameKind, n: u32, n_actions: u32) -> Vec<(Name, Action)> {
    let bytes = |i: u32| match kind {
        NameKind::Text => format!("/video/{i}").into_bytes(),
        NameKind::Mac => (0x0200_0000_0000 + u64::from(i)).to_be_bytes()[2..].to_vec(),
        NameKind::Ipv4 | NameKind::Teid => i.to_be_bytes().to_vec(),
        NameKind::Ipv6 => u128::from(i).to_be_bytes().to_vec(),
        NameKind::FiveTuple => {
            let mut bytes = vec![7; if i.is_multiple_of(2) { 13 } else { 37 }];
            bytes[..4].copy_from_slice(&i.to_be_bytes());
            bytes
        }
        NameKind::Fixed(width) => (0..width).map(|b| (i >> (b % 4 * 8)) as u8).collect(),
    };
    let entry = |i| (Name::from_bytes(kind, &bytes(i)).unwrap(), Action::Port(PortId((i % n_actions) as u16)));
    (0..n).map(entry).collect()
}

/// Names of every kind keep their actions through a file.
pub fn names_keep_their_actions_through_a_file(designs: &[&'static Design]) {
    let kinds = [
        NameKind::Mac,
        NameKind::Ipv4,
        NameKind::Ipv6,
        NameKind::FiveTuple,
        NameKind::Teid,
        NameKind::Fixed(45),
        NameKind::Text,
    ];
    let families = Family::ALL.into_iter().cycle();
    let all = designs.iter().flat_map(|design| kinds.map(|kind| (*design, kind)));
    for ((design, kind), family) in all.zip(families) {
        let entries = entries(kind, 3000, 17);
        let fib = Fib::build(design, kind, family, 2, &entries).unwrap();
        let read = Fib::decode(&fib.encode()).unwrap();
        assert_eq!((read.kind(), read.n_names(), read.actions().len(), read.family()), (kind, 3000, 18, family));
        for (name, action) in &entries {
            assert_eq!((fib.lookup(name), read.lookup(name)), (*action, *action), "{design} {name}");
        }
    }
}

/// Damaged files are refused, and never panic.
pub fn damaged_files_are_refused(designs: &[&'static Design]) {
    for design in designs {
        let fib = Fib::build(design, NameKind::Ipv4, Family::MulAdd, 1, &entries(NameKind::Ipv4, 50, 3)).unwrap();
        let bytes = fib.encode();
        for at in 0..bytes.len() {
            let mut damaged = bytes.clone();
            damaged[at] ^= 0x41;
            assert!(Fib::decode(&damaged).is_err() && Fib::decode(&bytes[..at]).is_err());
            // The same with a correct checksum, so that decoding reaches the fields.
            let end = damaged.len() - 8;
            let checksum = fingerprint(&damaged[..end]).to_le_bytes();
            damaged[end..].copy_from_slice(&checksum);
            let _ = Fib::decode(&damaged);
        }
    }
}

/// What a table is made with travels in the bytes of messages.
pub fn specs_travel_in_messages(designs: &[&'static Design]) {
    for &design in designs {
        let key = SecretKey::from_seed(7);
        let spec = Spec::new(design, NameKind::Fixed(9), Family::Wy, key, 9, 1000);
        let header = TableHeader { table: 1, spec, mode: ValueMode::Port, gateway: true, reset: false };
        let message = Message { cluster: 1, term: 1, node: NodeId(1), change: 1, body: Body::Table(header) };
        assert_eq!(Message::decode(&message.encode()), Ok(message), "{design}");
    }
}
