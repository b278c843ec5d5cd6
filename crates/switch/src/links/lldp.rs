//! What a switch says of itself for others to read (LLDP, IEEE 802.1AB): its name, its port, and that it is a bridge. Nothing is
//! decided by what others say in this way; between switches of fibula [hellos](super::Hello) are.

use fib::action::PortId;
use std::time::Duration;

/// Between two frames at a port, and for how long what they say holds.
pub const EVERY: Duration = Duration::from_secs(30);
const TTL: u16 = 120;

/// The nearest bridge: a group that no bridge forwards.
pub const GROUP: [u8; 6] = [0x01, 0x80, 0xc2, 0x00, 0x00, 0x0e];
/// The EtherType.
pub const ETHER_TYPE: [u8; 2] = [0x88, 0xcc];

const LOCALLY_ASSIGNED: u8 = 7;
const INTERFACE_NAME: u8 = 5;
const BRIDGE: u16 = 1 << 2;
/// Bytes of the longest text in a field.
const MAX_TEXT: usize = 255;
const SHORTEST: usize = 60;

/// Whether a frame is one of LLDP, of whomever.
pub fn is_lldp(frame: &[u8]) -> bool {
    frame.get(..6) == Some(&GROUP) && frame.get(12..14) == Some(&ETHER_TYPE)
}

/// The frame of a port. `session`: that of hellos, of which the source address is made.
pub fn frame(switch: &str, port: PortId, device: &str, session: u64) -> Vec<u8> {
    let mut frame = Vec::with_capacity(SHORTEST);
    frame.extend(GROUP);
    frame.push(2);
    frame.extend(&session.to_le_bytes()[..5]);
    frame.extend(ETHER_TYPE);
    let text = |text: &str, subtype: Option<u8>| -> Vec<u8> {
        let end = text.floor_char_boundary(MAX_TEXT - 1);
        subtype.into_iter().chain(text[..end].bytes()).collect()
    };
    put(&mut frame, 1, &text(switch, Some(LOCALLY_ASSIGNED)));
    put(&mut frame, 2, &text(device, Some(INTERFACE_NAME)));
    put(&mut frame, 3, &TTL.to_be_bytes());
    put(&mut frame, 4, &text(&format!("port {port} of {switch}"), None));
    put(&mut frame, 5, &text(switch, None));
    put(&mut frame, 6, &text(concat!("fibula ", env!("CARGO_PKG_VERSION")), None));
    put(&mut frame, 7, &[BRIDGE.to_be_bytes(), BRIDGE.to_be_bytes()].concat());
    put(&mut frame, 0, &[]);
    frame.resize(frame.len().max(SHORTEST), 0);
    frame
}

/// ```text
///  kind 7 bits | length of the value 9 bits | value
/// ```
fn put(frame: &mut Vec<u8>, kind: u16, value: &[u8]) {
    frame.extend((kind << 9 | value.len() as u16).to_be_bytes());
    frame.extend(value);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_frame_has_these_fields_whatever_the_names() {
        for (switch, device) in
            [("s1", "eth1"), (&"x".repeat(600) as &str, "0000:03:00.0"), ("\u{e4}".repeat(300).as_str(), "e")]
        {
            let frame = frame(switch, PortId(9), device, 0x0102_0304_0506_0708);
            assert!(is_lldp(&frame) && frame.len() >= SHORTEST && frame.len() < 1500);
            assert_eq!(frame[6..12], [2, 8, 7, 6, 5, 4], "one host's address, locally administered");
            let (mut fields, mut at) = (Vec::new(), 14);
            loop {
                let head = u16::from_be_bytes([frame[at], frame[at + 1]]);
                let (kind, len) = (head >> 9, usize::from(head & 0x1ff));
                let value = &frame[at + 2..at + 2 + len];
                at += 2 + len;
                fields.push(kind);
                match kind {
                    1 => assert!(value[0] == LOCALLY_ASSIGNED && switch.as_bytes().starts_with(&value[1..])),
                    2 => assert_eq!((value[0], &value[1..]), (INTERFACE_NAME, device.as_bytes())),
                    3 => assert_eq!(value, TTL.to_be_bytes()),
                    5 => assert!(switch.starts_with(std::str::from_utf8(value).unwrap())),
                    7 => assert_eq!(value, [0, 4, 0, 4]),
                    0 => break,
                    _ => assert!(std::str::from_utf8(value).is_ok()),
                }
            }
            assert_eq!(fields, [1, 2, 3, 4, 5, 6, 7, 0]);
        }
        assert!(!is_lldp(&[]) && !is_lldp(&[0; 60]));
    }
}
