//! Multicast groups of IP in messages between switches and controllers.

use bytes::Bytes;
use std::net::IpAddr;

/// Maximum number of groups that the names of a switch can join, counted for each name.
pub const MOST: usize = 8192;

/// Bytes of the largest message with them: a name with one group of IPv6 takes 28.
pub const MOST_BYTES: usize = 32 * MOST;

/// Encodes a group.
pub fn bytes_of(group: IpAddr) -> Bytes {
    match group {
        IpAddr::V4(group) => Bytes::copy_from_slice(&group.octets()),
        IpAddr::V6(group) => Bytes::copy_from_slice(&group.octets()),
    }
}

/// Decodes a group; none if the bytes are not one.
pub fn from_bytes(bytes: &[u8]) -> Option<IpAddr> {
    let v4 = || <[u8; 4]>::try_from(bytes).map(IpAddr::from);
    let group = <[u8; 16]>::try_from(bytes).map(IpAddr::from).or_else(|_| v4()).ok()?;
    group.is_multicast().then_some(group)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::v1;
    use prost::Message;

    #[test]
    fn groups_are_read_as_they_were_written_and_other_addresses_are_none() {
        for group in ["224.0.0.1", "239.255.255.255", "ff02::1", "ff15::9"].map(|text| text.parse().unwrap()) {
            assert_eq!(from_bytes(&bytes_of(group)), Some(group));
        }
        for address in ["10.0.0.1", "255.255.255.255", "fe80::1", "::ffff:239.0.0.1"] {
            assert_eq!(from_bytes(&bytes_of(address.parse().unwrap())), None, "{address}");
        }
        assert_eq!((from_bytes(&[]), from_bytes(&[239, 0, 0]), from_bytes(&[0xff; 17])), (None, None, None));
    }

    #[test]
    fn the_largest_message_has_no_more_bytes_than_are_counted_on() {
        let single = |i: usize| v1::Subscriber {
            name: vec![2, 0, 0, 0, (i >> 8) as u8, i as u8].into(),
            groups: vec![bytes_of("ff05::1".parse().unwrap())],
        };
        let subscribers = (0..MOST).map(single).collect();
        let most = v1::Subscriptions { session: u64::MAX, number: u64::MAX, asking: true, subscribers };
        assert!(most.encoded_len() <= MOST_BYTES);
    }
}
