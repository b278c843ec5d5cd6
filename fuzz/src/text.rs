//! Text from people and tools: lists of names, of prefixes and of rules, dumps of routing tables, configuration files, topologies, single
//! names and actions.

use controller::config::Config as Controller;
use fib::action::Action;
use fib::list::{Layout, List};
use fib::name::{Name, NameKind};
use fib::prefixes::{self, mrt};
use fib::rules::{self, Actions};
use fib::text::{Lines, quote};
use sim::network::Graph;
use switch::daemon::config::Config as Switch;

const KINDS: [NameKind; 7] = [
    NameKind::Mac,
    NameKind::Ipv4,
    NameKind::Ipv6,
    NameKind::FiveTuple,
    NameKind::Teid,
    NameKind::Fixed(5),
    NameKind::Text,
];

/// Reads a text of the sort that the first byte selects.
pub(crate) fn text(data: &[u8]) {
    let Some((what, content)) = data.split_first() else { return };
    let kind = KINDS[usize::from(what >> 4) % KINDS.len()];
    match what % 16 % 9 {
        0 => list(kind, content),
        1 => plain(kind, content),
        2 => {
            if let Ok(text) = str::from_utf8(content) {
                let _ = Controller::parse(text).map_err(|error| assert!(!error.is_empty()));
            }
        }
        3 => {
            // A file of routes would be read.
            if let Some(text) = str::from_utf8(content).ok().filter(|text| !text.contains("routes")) {
                let _ = Switch::parse(text).map_err(|error| assert!(!error.is_empty()));
            }
        }
        4 => {
            if let Ok(text) = str::from_utf8(content)
                && let Ok(graph) = Graph::parse(text)
            {
                assert_eq!(Graph::parse(&graph.to_text()).as_ref(), Ok(&graph));
            }
        }
        5 => {
            if let Err(error) = rules::read(content, &Actions::default()) {
                assert!(error.line > 0 && !error.reason.is_empty());
            }
        }
        6 => {
            if let Err(error) = prefixes::List::read(content, Some("up")) {
                assert!(error.line > 0 && !error.reason.is_empty());
            }
        }
        7 => {
            let hops = [mrt::Hops::NextHop, mrt::Hops::Origin];
            let read = hops
                .map(|hops| mrt::read(content, hops, None).map(|dump| (dump.list.ipv4.len(), dump.list.ipv6.len())));
            assert_eq!(read[0], read[1], "what counts as a next hop makes no prefix");
        }
        _ => {
            let Ok(text) = str::from_utf8(content) else { return };
            if let Ok(name) = Name::parse(kind, text) {
                assert_eq!(Name::parse(kind, &name.to_string()).as_ref(), Ok(&name));
                assert_eq!(Name::from_bytes(kind, name.as_bytes()).as_ref(), Ok(&name));
            }
            if let Ok(action) = text.parse::<Action>() {
                assert_eq!(action.to_string().parse(), Ok(action));
            }
        }
    }
}

fn list(kind: NameKind, content: &[u8]) {
    let entries: Vec<_> = List::new(kind, Layout::Csv, Lines::new(content)).filter_map(Result::ok).collect();
    let line = |entry: &fib::list::Entry| {
        let action = entry.action.expect("every line of a CSV list has an action");
        format!("{},{action}", quote(&entry.name.to_string()))
    };
    let written = entries.iter().map(line).collect::<Vec<_>>().join("\n");
    let again = List::new(kind, Layout::Csv, Lines::new(written.as_bytes()));
    let again: Vec<_> = again
        .map(|entry| entry.map(|entry| (entry.name, entry.action)))
        .collect::<Result<_, _>>()
        .expect("what was read can be written and read");
    assert!(again == entries.into_iter().map(|entry| (entry.name, entry.action)).collect::<Vec<_>>());
}

fn plain(kind: NameKind, content: &[u8]) {
    let mut seen = std::collections::HashSet::new();
    for entry in List::new(kind, Layout::Plain, Lines::new(content)).flatten() {
        assert!(seen.insert(entry.name), "a name was returned twice");
    }
}

pub(crate) fn seeds() -> Vec<Vec<u8>> {
    let mac = "name,action\n# comment\n02:00:00:00:00:01,3\n\"02:00:00:00:00:02\",drop\n\n02-00-00-00-00-03,local\r\n";
    let tuples = "name,action\n\"10.0.0.1:80 > 10.0.0.2:443 tcp\",1\n10.0.0.1,10.0.0.2,6,80,443,1\n";
    let controller = include_str!("../seeds/controller.toml");
    let switch = include_str!("../seeds/switch.toml");
    let graph = Graph::generate("ring:5", 1).expect("a ring").to_text();
    let texts = [
        (0, mac),
        (0x10, "10.0.0.1,1\n10.0.0.2,2\n"),
        (0x20, "name,action\nfd00::1,1\n"),
        (0x30, tuples),
        (0x60, "name,action\n\"/a,b\"\"c\",4\n/video/1,5\n"),
        (0x61, "/video/1\n/video/2\n#3\n"),
        (0x01, "02:00:00:00:00:01\n"),
        (2, controller),
        (3, switch),
        (4, &graph),
        (
            5,
            "deny tcp from 10.6.0.0/16 to any port 22-23\npermit icmp # both\n@10.0.0.0/8 0.0.0.0/0 0 : 65535 80 : 80 0x06/0xFF\n",
        ),
        (6, "prefix,via\n10.0.0.0 255.0.0.0 eth1\ndefault,fe80::1\n10.1.0.0/16\tup ; it\n"),
        (
            7,
            "\0\0\0\0\0\u{d}\0\u{2}\0\0\0\u{15}\0\0\0\0\u{8}\n\0\u{1}\0\0\0\0\0\0\0\u{7}@\u{3}\u{4}\u{1}\u{2}\u{3}\u{4}",
        ),
        (8, "02:00:00:00:00:01"),
        (0x38, "10.0.0.1:80 > 10.0.0.2:443 tcp"),
        (0x48, "0x1234"),
    ];
    texts.iter().map(|(what, text)| [&[*what][..], text.as_bytes()].concat()).collect()
}
