//! The first bytes of a connection with TLS, and certificates.

use api::identity::{Certificate, Identity, Kind};
use api::pki::Authority;
use api::tls::{Files, Tls, explain_client};
use std::sync::{Arc, OnceLock};

/// What a controller and a switch have, and the switch's certificate.
struct Site {
    controller: Arc<Tls>,
    switch: Arc<Tls>,
    certificate: Vec<u8>,
}

/// Certificates of an authority that is made once; no two runs have the same keys.
fn site() -> &'static Site {
    static SITE: OnceLock<Site> = OnceLock::new();
    SITE.get_or_init(|| {
        let directory = std::env::temp_dir().join(format!("fibula-fuzz-pki-{}", std::process::id()));
        let authority = Authority::create(&directory).expect("the directory is new and can be written");
        let load = |kind, name: &str| {
            let identity = Identity::new(kind, name).expect("a good name");
            let files = authority.issue(&identity, &[], 365).expect("the first of its name");
            (Tls::load(&Files::in_directory(&files)).expect("just issued"), files.join("cert.pem"))
        };
        let (controller, _) = load(Kind::Controller, "c1");
        let (switch, cert) = load(Kind::Switch, "s1");
        let pem = std::fs::read(cert).expect("just written");
        let certificate = api::tls::certificate_of(&pem).expect("just written");
        let _ = std::fs::remove_dir_all(&directory);
        Site { controller, switch, certificate }
    })
}

/// Bytes at a listener, which never lets a stranger in; or a certificate, of which the same is read twice.
pub(crate) fn hello(data: &[u8]) {
    let Some((what, bytes)) = data.split_first() else { return };
    if what & 2 != 0 {
        let read = Certificate::parse(bytes);
        assert_eq!(format!("{read:?}"), format!("{:?}", Certificate::parse(bytes)));
        return;
    }
    match site().controller.first_bytes(bytes, what & 1 != 0) {
        Ok((complete, _)) => assert!(!complete, "a handshake without a key"),
        Err(error) => assert!(!explain_client(&error).is_empty()),
    }
}

pub(crate) fn seeds() -> Vec<Vec<u8>> {
    let hello = site().switch.hello().expect("a client begins");
    let prefixed = |what: u8, bytes: &[u8]| [&[what][..], bytes].concat();
    vec![
        prefixed(0, &hello),
        prefixed(1, &hello),
        prefixed(2, &site().certificate),
        prefixed(0, b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"),
        prefixed(1, b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n"),
        // An alert, and a record of data before a handshake.
        prefixed(0, &[0x15, 3, 3, 0, 2, 2, 40]),
        prefixed(0, &[0x17, 3, 3, 0, 4, 1, 2, 3, 4]),
    ]
}
