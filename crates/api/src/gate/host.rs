//! Checks the host that a request names, if it needs no certificate.
//!
//! A foreign page can make a browser resolve the page's own name to the address of this daemon (DNS rebinding). Its
//! requests then arrive without a certificate at a plain listener, and name the page's host. So such a request must
//! name its host by an address, as `localhost` or by a name without a dot, which no outsider can own. Browsers do not
//! use gRPC, so for gRPC this applies only if a browser's headers say that a page makes the request.

use super::{Peer, Who};
use axum::http::header::{CONTENT_TYPE, HOST, ORIGIN};
use axum::http::{HeaderMap, Uri};
use std::net::IpAddr;

/// The message to those who are rejected.
pub(super) const WHY: &str = "use an address, localhost or a name without a dot: a request for another name may come from a foreign web \
                              page. With certificates, any name works";

/// Whether a request may come from a foreign page.
pub(super) fn is_foreign(peer: &Peer, uri: &Uri, headers: &HeaderMap) -> bool {
    if !matches!(peer.who(), Who::Loopback | Who::Anyone) {
        return false;
    }
    let is_grpc = headers.get(CONTENT_TYPE).is_some_and(|kind| kind.as_bytes().starts_with(b"application/grpc"));
    if is_grpc && !headers.contains_key(ORIGIN) {
        return false;
    }
    let host = headers.get(HOST).map(|host| host.to_str().unwrap_or_default());
    // Every browser sends one.
    host.or(uri.authority().map(|authority| authority.as_str())).is_some_and(|host| !is_ours(host))
}

fn is_ours(host: &str) -> bool {
    let name = match host.strip_prefix('[') {
        Some(rest) => rest.split(']').next().unwrap_or_default(),
        None => host.split(':').next().unwrap_or_default(),
    };
    let is_word = !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_".contains(&byte));
    is_word || name.parse::<IpAddr>().is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::address::Origin;

    #[test]
    fn a_host_is_an_address_or_a_name_that_nobody_outside_can_have() {
        for ours in ["localhost", "localhost:4601", "127.0.0.1:4601", "[::1]:4601", "10.0.0.1", "controller", "c_1:80"]
        {
            assert!(is_ours(ours), "{ours}");
        }
        for other in [
            "evil.example",
            "evil.example:4601",
            "127.0.0.1.evil.example",
            "localhost.evil",
            "localhost.",
            "",
            "[",
            "a b",
        ] {
            assert!(!is_ours(other), "{other}");
        }
    }

    #[test]
    fn only_who_shows_no_certificate_is_asked_for_the_host_and_grpc_only_from_a_page() {
        let at = Origin::Tcp(([127, 0, 0, 1], 7).into());
        let (plain, user) = (Peer::new(Who::Loopback, at), Peer::new(Who::user(1), at));
        let uri = Uri::from_static("/status");
        let mut headers = HeaderMap::new();
        assert!(!is_foreign(&plain, &uri, &headers), "no browser");
        headers.insert(HOST, "evil.example:4601".parse().unwrap());
        assert!(is_foreign(&plain, &uri, &headers));
        assert!(!is_foreign(&user, &uri, &headers));
        headers.insert(CONTENT_TYPE, "application/grpc".parse().unwrap());
        assert!(!is_foreign(&plain, &uri, &headers), "a client of gRPC");
        headers.insert(ORIGIN, "http://evil.example".parse().unwrap());
        assert!(is_foreign(&plain, &uri, &headers), "a page that speaks gRPC");
        headers.insert(HOST, "127.0.0.1:4601".parse().unwrap());
        assert!(!is_foreign(&plain, &uri, &headers));
        assert!(!is_foreign(&plain, &Uri::from_static("http://127.0.0.1:1/status"), &HeaderMap::new()), "HTTP/2");
    }
}
