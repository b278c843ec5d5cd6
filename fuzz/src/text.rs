//! Text from people: lists of names, configuration files, topologies, single names and actions.

use controller::config::Config as Controller;
use fib::action::Action;
use fib::list::{Layout, List, quote};
use fib::name::{Name, NameKind};
use sim::network::Graph;
use std::io::{BufRead, Cursor};
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
    match what % 6 {
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
    let entries: Vec<_> = List::new(kind, Layout::Csv, Cursor::new(content).lines()).filter_map(Result::ok).collect();
    let line = |entry: &fib::list::Entry| {
        let action = entry.action.expect("every line of a CSV list has an action");
        format!("{},{action}", quote(&entry.name.to_string()))
    };
    let written: Vec<String> = entries.iter().map(line).collect();
    let again = List::new(kind, Layout::Csv, written.into_iter().map(Ok));
    let again: Vec<_> = again
        .map(|entry| entry.map(|entry| (entry.name, entry.action)))
        .collect::<Result<_, _>>()
        .expect("what was read can be written and read");
    assert!(again == entries.into_iter().map(|entry| (entry.name, entry.action)).collect::<Vec<_>>());
}

fn plain(kind: NameKind, content: &[u8]) {
    let mut seen = std::collections::HashSet::new();
    for entry in List::new(kind, Layout::Plain, Cursor::new(content).lines()).flatten() {
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
        (5, "02:00:00:00:00:01"),
        (0x35, "10.0.0.1:80 > 10.0.0.2:443 tcp"),
        (0x45, "0x1234"),
    ];
    texts.iter().map(|(what, text)| [&[*what][..], text.as_bytes()].concat()).collect()
}
