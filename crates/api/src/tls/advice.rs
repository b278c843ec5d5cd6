//! What the errors of TLS mean, and what to do about them.

use std::error::Error;
use tokio_rustls::rustls;

/// The meaning of each error text for an operator.
const ADVICE: [(&str, &str); 15] = [
    (
        "received fatal alert: CertificateRequired",
        "it requires a client certificate: see `fibula pki issue`, and --tls DIR or [tls]",
    ),
    (
        "received fatal alert: CertificateExpired",
        "our certificate has expired according to its clock: renew it with `fibula pki renew`, and check both clocks",
    ),
    ("received fatal alert: CertificateRevoked", "our certificate is revoked: issue a new one with `fibula pki issue`"),
    (
        "received fatal alert: UnknownCA",
        "our certificate is from another authority than its `ca`: use one of the same `fibula pki init`",
    ),
    ("received fatal alert: BadCertificate", "it rejects our certificate; its log says why"),
    ("received fatal alert: UnsupportedCertificate", "our certificate is not for clients (extended key usage)"),
    ("received fatal alert: ProtocolVersion", "it does not support TLS 1.3"),
    (
        "UnknownIssuer",
        "its certificate is from another authority than our `ca`: use the files of one `fibula pki init`",
    ),
    (
        "UnknownRevocationStatus",
        "our revocation list does not cover it, as when it is from another authority than our `ca`: use the files of one `fibula pki init`",
    ),
    ("certificate not valid for name", "issue its certificate again with --address for the address that is used here"),
    ("certificate expired", "renew its certificate with `fibula pki renew`, and check both clocks"),
    ("certificate not valid yet", "check both clocks"),
    ("Revoked", "its certificate is revoked: issue a new one with `fibula pki issue`"),
    // The alert of a server with TLS is lost if it comes before there is a request to fail.
    ("connection closed", "the server closed it; if it uses TLS, use a URL with https://"),
    ("received corrupt message", "it does not speak TLS there: use a URL with http://, or give it [tls]"),
];

/// The innermost cause of an error, and what to do about it if it comes from TLS.
pub fn explain(error: &(dyn Error + 'static)) -> String {
    let mut error = error;
    while let Some(source) = error.source() {
        error = source;
    }
    advise(error.to_string())
}

/// Whether an error is from TLS itself, which means that a server answers.
pub fn is_of_tls(error: &(dyn Error + 'static)) -> bool {
    let mut next = Some(error);
    while let Some(error) = next {
        // The source of an error of input and output is that of what it is made of.
        let inner = error.downcast_ref::<std::io::Error>().and_then(std::io::Error::get_ref);
        if error.is::<rustls::Error>() || inner.is_some_and(|inner| inner.is::<rustls::Error>()) {
            return true;
        }
        next = error.source();
    }
    false
}

/// An error's text with advice.
pub(super) fn advise(text: String) -> String {
    match ADVICE.iter().find(|(part, _)| text.contains(part)) {
        Some((_, advice)) => format!("{text}; {advice}"),
        None => text,
    }
}

/// As [`explain`], for a server's error in the handshake of a client.
pub fn explain_client(error: &(dyn Error + 'static)) -> String {
    let text = explain(error);
    if text.contains("received corrupt message") {
        "it does not speak TLS; its URL must start with https://, and it needs a certificate from `fibula pki issue`"
            .to_owned()
    } else if text.contains("peer sent no certificates") {
        "it presented no certificate; `fibula pki issue` makes one".to_owned()
    } else {
        text
    }
}
