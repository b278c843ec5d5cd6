//! Weights of ways as bytes, and what versions without weights read.

use super::*;
use crate::messages::{Body, Message};

fn table(actions: &[Action]) -> Message {
    let actions = [&[Action::Drop], actions].concat();
    Message { cluster: 1, term: 2, node: NodeId(3), change: 4, body: Body::Actions { version: 5, actions } }
}

/// As versions without weights write and read it.
const UNWEIGHED: [u8; 61] = [
    2, 4, 1, 0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0, 3, 0, 0, 0, 4, 0, 0, 0, 0, 0, 0, 0, 5, 0, 0, 0, 0, 0, 0, 0,
    3, 0, 0, 0, 0, 6, 2, 0, 1, 0, 2, 0, 6, 3, 1, 1, 0, 2, 0, 0, 1, 9, 0,
];

#[test]
fn ways_of_one_weight_are_as_they_were_before_there_were_weights() {
    let ways = |ports: &[(u16, u8)], alternate: Option<u16>| Action::Spread {
        ways: Ways::weighed(ports.iter().map(|(port, weight)| (PortId(*port), *weight))).unwrap(),
        alternate: alternate.map(PortId),
    };
    let message = table(&[ways(&[(1, 64), (2, 64)], None), ways(&[(1, 1), (2, 1), (256, 1)], Some(9))]);
    assert_eq!(message.encode(), UNWEIGHED);
    assert_eq!(Message::decode(&UNWEIGHED), Ok(message));

    let uneven = ways(&[(1, 6), (2, 2)], Some(9));
    let mut bytes = table(&[uneven]).encode();
    let at = bytes.len() - 11;
    assert_eq!(bytes[at..], [7, 2, 1, 1, 0, 3, 2, 0, 1, 9, 0]);
    assert_eq!(Message::decode(&bytes), Ok(table(&[uneven])));
    assert_eq!(table(&[uneven.evened()]).encode()[at..], [6, 2, 1, 1, 0, 2, 0, 9, 0]);
    // Weights that are none, that are not reduced, and that are all one.
    for weights in [[0, 1], [65, 1], [3, 0], [6, 2], [1, 1]] {
        (bytes[at + 5], bytes[at + 8]) = (weights[0], weights[1]);
        let wrong = Message::decode(&bytes);
        assert_eq!(wrong, Err(DecodeError::Unknown { field: "list of ports", got: 2 }), "{weights:?}");
    }
}
