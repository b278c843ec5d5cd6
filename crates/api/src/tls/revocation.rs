//! Certificates that authorities have revoked: the newest list of each authority since the start, and checks of whole
//! chains.
//!
//! A list that is older than the one in use, or that disappears, would readmit revoked certificates. So the newer one
//! stays in use, and the log says which file to fix. The lists from before a start are unknown: the log says how old
//! each list is.
//!
//! If there are any lists, there must be one that covers the holder's certificate. For the authorities between it and
//! the root, a list counts if it is there.

use super::{TlsError, date, file};
use crate::identity::hex;
use std::path::Path;
use std::sync::Arc;
use tokio_rustls::rustls::client::WebPkiServerVerifier;
use tokio_rustls::rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use tokio_rustls::rustls::crypto::CryptoProvider;
use tokio_rustls::rustls::pki_types::{CertificateDer, CertificateRevocationListDer, ServerName, UnixTime};
use tokio_rustls::rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use tokio_rustls::rustls::server::{VerifierBuilderError, WebPkiClientVerifier};
use tokio_rustls::rustls::{DigitallySignedStruct, DistinguishedName, Error, RootCertStore, SignatureScheme};
use x509_parser::oid_registry::OID_X509_EXT_AUTHORITY_KEY_IDENTIFIER;
use x509_parser::prelude::FromDer;
use x509_parser::revocation_list::CertificateRevocationList;

/// The revocations of one authority.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct List {
    /// The authority, and the key that it signed with.
    issuer: (Vec<u8>, Vec<u8>),
    name: String,
    /// Whether the authority is a root: one that is no longer trusted needs no list.
    is_of_root: bool,
    /// The number of the list, in bytes without leading zeros, and its time.
    number: Vec<u8>,
    made: i64,
    der: CertificateRevocationListDer<'static>,
}

impl List {
    fn parse(path: &Path, der: CertificateRevocationListDer<'static>, roots: &RootCertStore) -> Result<Self, TlsError> {
        let (_, list) = CertificateRevocationList::from_der(&der).map_err(|e| file("revocation list", path, &e))?;
        let key = list.extensions().iter().find(|extension| extension.oid == OID_X509_EXT_AUTHORITY_KEY_IDENTIFIER);
        let number = list.crl_number().map(|number| number.to_bytes_be()).unwrap_or_default();
        let first = number.iter().position(|byte| *byte != 0).unwrap_or(number.len());
        let (name, made) = (list.issuer().to_string(), list.last_update().timestamp());
        let issuer = (list.issuer().as_raw().to_vec(), key.map(|key| key.value.to_vec()).unwrap_or_default());
        let is_of_root = is_root(&issuer.0, roots);
        Ok(Self { issuer, name, is_of_root, number: number[first..].to_vec(), made, der })
    }

    /// Lists of one authority have numbers that grow (RFC 5280, section 5.2.3); those without one have their times.
    fn is_older_than(&self, other: &Self) -> bool {
        let order = |list: &Self| (list.number.len(), list.number.clone(), list.made);
        match self.number.is_empty() || other.number.is_empty() {
            true => self.made < other.made,
            false => order(self) < order(other),
        }
    }

    /// A description for messages.
    fn title(&self) -> String {
        let number = if self.number.is_empty() { String::new() } else { format!(", number 0x{}", hex(&self.number)) };
        format!("the list of {} of {}{number}", self.name, date(self.made))
    }
}

/// Whether a name is that of a root; roots store it without its outer tag.
fn is_root(name: &[u8], roots: &RootCertStore) -> bool {
    roots.roots.iter().any(|root| name.ends_with(root.subject.as_ref()))
}

/// The lists that are in use.
#[derive(Clone, Debug, Default)]
pub(super) struct Lists {
    all: Vec<List>,
    /// Problems of the file: a list in use is newer, or is missing in it.
    pub(super) refused: Vec<String>,
}

impl Lists {
    /// The newest lists of those in the file, if there is one, and those in use before.
    pub(super) fn read(
        path: Option<&Path>,
        found: Vec<CertificateRevocationListDer<'static>>,
        before: &Lists,
        roots: &RootCertStore,
    ) -> Result<Self, TlsError> {
        let mut all: Vec<List> = Vec::new();
        for der in found {
            let list = List::parse(path.unwrap_or(Path::new("crl.pem")), der, roots)?;
            match all.iter_mut().find(|other| other.issuer == list.issuer) {
                Some(other) if other.is_older_than(&list) => *other = list,
                Some(_) => {}
                None => all.push(list),
            }
        }
        let mut refused = Vec::new();
        let place = path.map(|path| path.display().to_string()).unwrap_or_default();
        for kept in &before.all {
            match all.iter_mut().find(|list| list.issuer == kept.issuer) {
                Some(list) if list.is_older_than(kept) => {
                    let (old, new) = (list.title(), kept.title());
                    refused.push(format!(
                        "{place} has {old}, but {new} is in use and newer: it stays in use; copy the newest crl.pem of the authority there"
                    ));
                    *list = kept.clone();
                }
                Some(_) => {}
                None => {
                    // A list of a root that is no longer trusted is not needed.
                    if !kept.is_of_root || is_root(&kept.issuer.0, roots) {
                        let title = kept.title();
                        refused.push(format!(
                            "{place} is missing, or {title} is missing in it: the list stays in use; copy the newest crl.pem of the authority there"
                        ));
                    }
                    all.push(kept.clone());
                }
            }
        }
        Ok(Self { all, refused })
    }

    pub(super) fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    /// Each list, for the log.
    pub(super) fn titles(&self) -> impl Iterator<Item = String> {
        self.all.iter().map(List::title)
    }

    fn ders(&self) -> impl Iterator<Item = CertificateRevocationListDer<'static>> {
        self.all.iter().map(|list| list.der.clone())
    }

    /// The verifier for certificates of clients.
    pub(super) fn clients(
        &self,
        roots: &Arc<RootCertStore>,
        provider: &Arc<CryptoProvider>,
    ) -> Result<Arc<dyn ClientCertVerifier>, VerifierBuilderError> {
        let builder = || {
            let builder = WebPkiClientVerifier::builder_with_provider(Arc::clone(roots), Arc::clone(provider));
            builder.with_crls(self.ders())
        };
        let holder = builder().only_check_end_entity_revocation().build()?;
        let chain = builder().allow_unknown_revocation_status().build()?;
        Ok(Arc::new(Clients { holder, chain }))
    }

    /// The verifier for certificates of servers.
    pub(super) fn servers(
        &self,
        roots: &Arc<RootCertStore>,
        provider: &Arc<CryptoProvider>,
    ) -> Result<Arc<dyn ServerCertVerifier>, VerifierBuilderError> {
        let builder = || {
            let builder = WebPkiServerVerifier::builder_with_provider(Arc::clone(roots), Arc::clone(provider));
            builder.with_crls(self.ders())
        };
        let holder = builder().only_check_end_entity_revocation().build()?;
        let chain = builder().allow_unknown_revocation_status().build()?;
        Ok(Arc::new(Servers { holder, chain }))
    }
}

/// Checks that the holder's certificate is known not to be revoked, and that none of its chain is known to be.
#[derive(Debug)]
struct Clients {
    holder: Arc<dyn ClientCertVerifier>,
    chain: Arc<dyn ClientCertVerifier>,
}

impl ClientCertVerifier for Clients {
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        self.holder.root_hint_subjects()
    }

    fn verify_client_cert(
        &self,
        first: &CertificateDer<'_>,
        rest: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        self.holder.verify_client_cert(first, rest, now)?;
        self.chain.verify_client_cert(first, rest, now)
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.holder.verify_tls12_signature(message, cert, signed)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.holder.verify_tls13_signature(message, cert, signed)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.holder.supported_verify_schemes()
    }
}

/// The same check for servers.
#[derive(Debug)]
struct Servers {
    holder: Arc<dyn ServerCertVerifier>,
    chain: Arc<dyn ServerCertVerifier>,
}

impl ServerCertVerifier for Servers {
    fn verify_server_cert(
        &self,
        first: &CertificateDer<'_>,
        rest: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        ocsp: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        self.holder.verify_server_cert(first, rest, name, ocsp, now)?;
        self.chain.verify_server_cert(first, rest, name, ocsp, now)
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.holder.verify_tls12_signature(message, cert, signed)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.holder.verify_tls13_signature(message, cert, signed)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.holder.supported_verify_schemes()
    }
}

#[cfg(test)]
mod tests;
