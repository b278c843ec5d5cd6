//! A small certificate authority in a directory.
//!
//! ```text
//! DIRECTORY/              0700
//!   ca.pem  ca.key        the authority (the key 0600)
//!   crl.pem               what is revoked
//!   issued/SERIAL.pem     every certificate that was ever issued
//!   switch/s1/            what machine s1 needs: cert.pem, key.pem (0600), ca.pem, crl.pem
//!   controller/NAME/  operator/NAME/
//! ```
//! Keys: ECDSA over P-256 (FIPS 186-5). What is read is checked by its signature, so damage in a file is refused.

mod files;
mod record;

pub use record::Issued;

use crate::clock::{self, unix_seconds};
use crate::identity::{Certificate, Identity, IdentityError, Kind, hex};
use crate::seam::{Mistake, mistaken};
use crate::tls::date;
use files::{damaged, io_error, make_directory, read, write};
use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair, KeyUsagePurpose,
    SanType, SerialNumber,
};
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::{fs, io};
use time::{Duration, OffsetDateTime};
use tokio_rustls::rustls::pki_types::CertificateDer;
use tokio_rustls::rustls::pki_types::pem::PemObject;

/// Validity of the authority's certificate and its revocation lists.
const AUTHORITY_DAYS: i64 = 3650;
/// Maximum difference between the clocks of machines.
const CLOCK_SKEW: Duration = Duration::hours(1);

/// The name and addresses that every controller and switch has on its own machine.
const LOCAL: [&str; 3] = ["localhost", "127.0.0.1", "::1"];

/// Errors of an authority.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PkiError {
    /// An authority exists already.
    #[error("{path} exists already; name another directory with --pki, or issue from this one")]
    Exists {
        /// Its certificate.
        path: PathBuf,
    },
    /// No authority exists.
    #[error(
        "there is no certificate authority in {path}; make one with `fibula pki init`, or name its directory with --pki"
    )]
    NoAuthority {
        /// The directory.
        path: PathBuf,
    },
    /// A file cannot be read or written.
    #[error("{path}: {source}")]
    Io {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// A file has unexpected contents.
    #[error("{path} is damaged: {reason}; restore it from a backup")]
    Damaged {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        reason: String,
    },
    /// An invalid name or address for a certificate.
    #[error(transparent)]
    Identity(#[from] IdentityError),
    /// An invalid address for a certificate.
    #[error("`{address}` is neither a host name nor an IP address; write it without a port")]
    BadAddress {
        /// As given.
        address: String,
    },
    /// A valid certificate for this name exists.
    #[error("{identity} has a certificate until {until}; renew it with `fibula pki renew`, or revoke it first")]
    Issued {
        /// The name.
        identity: Identity,
        /// The end of its validity.
        until: String,
    },
    /// No certificate was issued for this name.
    #[error("no certificate was issued to {kind} {name}; `fibula pki show` lists all")]
    Unknown {
        /// The kind.
        kind: &'static str,
        /// The name.
        name: String,
    },
    /// The library refuses.
    #[error("the certificate cannot be created: {0}")]
    Making(#[from] rcgen::Error),
}

/// A certificate authority.
pub struct Authority {
    directory: PathBuf,
    issuer: Issuer<'static, KeyPair>,
    pem: String,
    /// Its certificate.
    der: CertificateDer<'static>,
    /// The end of validity of its own certificate, in seconds since 1970.
    not_after: i64,
}

impl std::fmt::Debug for Authority {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Authority").field("directory", &self.directory).finish_non_exhaustive()
    }
}

impl Authority {
    /// Creates a new authority with an empty revocation list.
    /// # Errors
    /// [`PkiError::Exists`], [`PkiError::Io`].
    pub fn create(directory: &Path) -> Result<Self, PkiError> {
        let (path, key_path) = (directory.join("ca.pem"), directory.join("ca.key"));
        if path.exists() {
            return Err(PkiError::Exists { path });
        }
        make_directory(directory)?;
        // Left by a killed `init`, or someone else's: do not delete it.
        if key_path.exists() {
            let aside = (1..).map(|n| directory.join(format!("ca.key.replaced.{n}"))).find(|aside| !aside.exists());
            aside.map_or(Ok(()), |aside| fs::rename(&key_path, aside)).map_err(|e| io_error(&key_path, e))?;
        }
        make_directory(&directory.join("issued"))?;
        let key = KeyPair::generate()?;
        let mut params = CertificateParams::default();
        params.distinguished_name = rcgen::DistinguishedName::new();
        let serial = serial(&key)?;
        // Two authorities must not have the same subject, by which verifiers find the issuer.
        params.distinguished_name.push(DnType::CommonName, format!("fibula CA {}", &hex(&serial.to_bytes())[..8]));
        params.serial_number = Some(serial);
        let now = OffsetDateTime::from(clock::now());
        (params.not_before, params.not_after) = (now - CLOCK_SKEW, now + Duration::days(AUTHORITY_DAYS));
        params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        let pem = params.self_signed(&key)?.pem();
        if mistaken(Mistake::AuthorityBeforeKey) {
            write(&path, &pem, 0o644)?;
        }
        write(&key_path, &key.serialize_pem(), 0o600)?;
        let authority = Self::open(directory, pem, key)?;
        authority.write_crl(&[])?;
        // The last file: its existence makes the directory an authority.
        write(&path, &authority.pem, 0o644)?;
        Ok(authority)
    }

    /// The authority in `directory`.
    /// # Errors
    /// [`PkiError::NoAuthority`], [`PkiError::Io`], [`PkiError::Damaged`].
    pub fn load(directory: &Path) -> Result<Self, PkiError> {
        let path = directory.join("ca.pem");
        if !path.exists() {
            return Err(PkiError::NoAuthority { path: directory.to_owned() });
        }
        let (pem, key_path) = (read(&path)?, directory.join("ca.key"));
        let key = KeyPair::from_pem(&read(&key_path)?).map_err(|e| damaged(&key_path, &e))?;
        Self::open(directory, pem, key)
    }

    fn open(directory: &Path, pem: String, key: KeyPair) -> Result<Self, PkiError> {
        let path = directory.join("ca.pem");
        let der = CertificateDer::from_pem_slice(pem.as_bytes()).map_err(|e| damaged(&path, &e))?;
        let (_, parsed) = x509_parser::parse_x509_certificate(&der).map_err(|e| damaged(&path, &e))?;
        parsed.verify_signature(None).map_err(|e| damaged(&path, &e))?;
        if *parsed.public_key().subject_public_key.data != *key.public_key_raw() {
            return Err(damaged(&directory.join("ca.key"), &"it is not the key of ca.pem"));
        }
        let not_after = parsed.validity().not_after.timestamp();
        let issuer = Issuer::from_ca_cert_pem(&pem, key).map_err(|e| damaged(&path, &e))?;
        let der = der.into_owned();
        Ok(Self { directory: directory.to_owned(), issuer, pem, der, not_after })
    }

    /// The end of validity of the authority's own certificate, in seconds since 1970.
    pub fn not_after(&self) -> i64 {
        self.not_after
    }

    /// The directory with the files of `identity`.
    pub fn files(&self, identity: &Identity) -> PathBuf {
        self.directory.join(identity.kind().word()).join(identity.name())
    }

    /// Issues the first certificate of `identity`, valid for `days`, for these host names and IP addresses; for
    /// controllers and switches also for those of their own machine. Returns the directory with its files.
    /// # Errors
    /// [`PkiError`]; [`PkiError::Issued`] if it has one.
    pub fn issue(&self, identity: &Identity, addresses: &[String], days: u32) -> Result<PathBuf, PkiError> {
        let now = unix_seconds();
        let valid = self.issued()?.into_iter().find(|issued| {
            let same = &issued.certificate.identity;
            (same.kind().word(), same.name()) == (identity.kind().word(), identity.name()) && issued.is_valid_at(now)
        });
        if let Some(valid) = valid {
            let Certificate { identity, not_after, .. } = valid.certificate;
            return Err(PkiError::Issued { identity, until: date(not_after) });
        }
        self.make(identity, addresses, days)
    }

    /// As [`Authority::issue`], without checking for earlier certificates: for many at once.
    /// # Errors
    /// [`PkiError`].
    pub fn make(&self, identity: &Identity, addresses: &[String], days: u32) -> Result<PathBuf, PkiError> {
        self.make_until(identity, addresses, i64::from(days) * 86_400)
    }

    /// As [`Authority::make`], valid for this number of seconds from now.
    /// # Errors
    /// [`PkiError`].
    pub fn make_until(&self, identity: &Identity, addresses: &[String], seconds: i64) -> Result<PathBuf, PkiError> {
        let is_server = !matches!(identity.kind(), Kind::Operator(_));
        let mut params = CertificateParams::default();
        params.distinguished_name = rcgen::DistinguishedName::new();
        params.distinguished_name.push(DnType::OrganizationalUnitName, identity.kind().word());
        params.distinguished_name.push(DnType::CommonName, identity.name());
        params.subject_alt_names.push(SanType::URI(identity.uri().try_into()?));
        let local = LOCAL.iter().map(|local| (*local).to_owned()).filter(|_| is_server);
        for address in local.chain(addresses.iter().cloned()) {
            let name = alternative_name(&address)?;
            if !params.subject_alt_names.contains(&name) {
                params.subject_alt_names.push(name);
            }
        }
        let key = KeyPair::generate()?;
        let serial = serial(&key)?;
        let now = OffsetDateTime::from(clock::now());
        (params.not_before, params.not_after) = (now - CLOCK_SKEW, now + Duration::seconds(seconds));
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        if is_server {
            params.extended_key_usages.push(ExtendedKeyUsagePurpose::ServerAuth);
        }
        params.use_authority_key_identifier_extension = true;
        params.serial_number = Some(serial.clone());
        let pem = params.signed_by(&key, &self.issuer)?.pem();

        let files = self.files(identity);
        make_directory(&files)?;
        if mistaken(Mistake::HeldBeforeRecord) {
            write(&files.join("cert.pem"), &pem, 0o644)?;
        }
        // First the file that is needed to revoke it.
        write(&self.directory.join("issued").join(format!("{}.pem", hex(&serial.to_bytes()))), &pem, 0o644)?;
        write(&files.join("key.pem"), &key.serialize_pem(), 0o600)?;
        write(&files.join("cert.pem"), &pem, 0o644)?;
        write(&files.join("ca.pem"), &self.pem, 0o644)?;
        let crl = self.directory.join("crl.pem");
        write(&files.join("crl.pem"), &read(&crl)?, 0o644)?;
        Ok(files)
    }

    /// Issues another certificate, with another key, to an existing holder. The previous one stays valid until it
    /// expires or is revoked, so that there is time to copy the files. It is for these addresses, or, if none are
    /// given, for those of the previous one.
    /// # Errors
    /// [`PkiError::Unknown`].
    pub fn renew(&self, kind: &'static str, name: &str, addresses: &[String], days: u32) -> Result<PathBuf, PkiError> {
        let latest = self.of(kind, name)?.into_iter().max_by_key(|issued| issued.certificate.not_after);
        let Some(Issued { certificate, .. }) = latest else {
            return Err(PkiError::Unknown { kind, name: name.to_owned() });
        };
        let addresses = if addresses.is_empty() { &certificate.addresses } else { addresses };
        self.make(&certificate.identity, addresses, days)
    }
}

/// A random serial number of 127 bits: positive, and the same length for all.
fn serial(key: &KeyPair) -> Result<SerialNumber, PkiError> {
    // The public key is random, and a verifier needs no secret here.
    let raw = key.public_key_raw();
    let mut bytes = raw[raw.len() - 16..].to_vec();
    bytes[0] = bytes[0] & 0x3f | 0x40;
    Ok(SerialNumber::from(bytes))
}

fn alternative_name(address: &str) -> Result<SanType, PkiError> {
    if let Ok(ip) = address.parse::<IpAddr>() {
        return Ok(SanType::IpAddress(ip));
    }
    let label = |label: &str| {
        !label.is_empty() && label.len() <= 63 && label.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-')
    };
    if address.len() > 253 || !address.split('.').all(label) {
        return Err(PkiError::BadAddress { address: address.chars().take(100).collect() });
    }
    Ok(SanType::DnsName(address.to_owned().try_into()?))
}

#[cfg(test)]
mod tests;
