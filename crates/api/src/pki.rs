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

use crate::crash::step;
use crate::identity::{Certificate, Identity, IdentityError, Kind, hex};
use crate::seam::{Mistake, mistaken};
use crate::tls::{date, unix_seconds};
use rcgen::{
    BasicConstraints, CertificateParams, CertificateRevocationListParams, DnType, ExtendedKeyUsagePurpose, IsCa,
    Issuer, KeyIdMethod, KeyPair, KeyUsagePurpose, RevocationReason, RevokedCertParams, SanType, SerialNumber,
};
use std::fs::{self, DirBuilder, OpenOptions};
use std::io::{self, ErrorKind, Write};
use std::net::IpAddr;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use time::{Duration, OffsetDateTime};
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, CertificateRevocationListDer};
use x509_parser::prelude::{CertificateRevocationList, FromDer, X509Certificate};

/// How long the authority's certificate and its revocation lists are valid.
const AUTHORITY_DAYS: i64 = 3650;
/// Clocks of machines may differ by this.
const CLOCK_SKEW: Duration = Duration::hours(1);

/// A name and addresses that every controller and switch has on its own machine.
const LOCAL: [&str; 3] = ["localhost", "127.0.0.1", "::1"];

/// What goes wrong with an authority.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PkiError {
    /// There is one already.
    #[error("{path} is there already; name another directory with --pki, or issue from this one")]
    Exists {
        /// Its certificate.
        path: PathBuf,
    },
    /// There is none.
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
    /// A file does not hold what it should.
    #[error("{path} is damaged: {reason}; restore it from a backup")]
    Damaged {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        reason: String,
    },
    /// A name or an address that no certificate can have.
    #[error(transparent)]
    Identity(#[from] IdentityError),
    /// An address that no certificate can have.
    #[error("`{address}` is neither a host name nor an IP address; write it without a port")]
    BadAddress {
        /// As given.
        address: String,
    },
    /// There is a valid certificate for this name.
    #[error("{identity} has a certificate until {until}; renew it with `fibula pki renew`, or revoke it first")]
    Issued {
        /// The name.
        identity: Identity,
        /// Its end.
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
    #[error("the certificate cannot be made: {0}")]
    Making(#[from] rcgen::Error),
}

/// A certificate that was issued.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Issued {
    /// What it says.
    pub certificate: Certificate,
    /// When it was revoked, in seconds since 1970.
    pub revoked: Option<i64>,
}

impl Issued {
    /// Whether it is accepted at this time.
    pub fn is_valid_at(&self, seconds: i64) -> bool {
        self.revoked.is_none() && (self.certificate.not_before..=self.certificate.not_after).contains(&seconds)
    }
}

/// A certificate authority.
pub struct Authority {
    directory: PathBuf,
    issuer: Issuer<'static, KeyPair>,
    pem: String,
    /// Its certificate.
    der: CertificateDer<'static>,
    /// Until when its own certificate is valid, in seconds since 1970.
    not_after: i64,
}

impl std::fmt::Debug for Authority {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Authority").field("directory", &self.directory).finish_non_exhaustive()
    }
}

impl Authority {
    /// Makes a new authority, with an empty revocation list.
    /// # Errors
    /// [`PkiError::Exists`], [`PkiError::Io`].
    pub fn create(directory: &Path) -> Result<Self, PkiError> {
        let (path, key_path) = (directory.join("ca.pem"), directory.join("ca.key"));
        if path.exists() {
            return Err(PkiError::Exists { path });
        }
        make_directory(directory)?;
        // Of an `init` that was killed, or somebody else's: nothing is thrown away.
        if key_path.exists() {
            let aside = (1..).map(|n| directory.join(format!("ca.key.replaced.{n}"))).find(|aside| !aside.exists());
            aside.map_or(Ok(()), |aside| fs::rename(&key_path, aside)).map_err(|e| io_error(&key_path, e))?;
        }
        make_directory(&directory.join("issued"))?;
        let key = KeyPair::generate()?;
        let mut params = CertificateParams::default();
        params.distinguished_name = rcgen::DistinguishedName::new();
        let serial = serial(&key)?;
        // Two authorities must not have the same subject: verifiers find the issuer by it.
        params.distinguished_name.push(DnType::CommonName, format!("fibula CA {}", &hex(&serial.to_bytes())[..8]));
        params.serial_number = Some(serial);
        let now = OffsetDateTime::now_utc();
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
        // The last file: with it, there is an authority.
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

    /// Until when the authority's own certificate is valid, in seconds since 1970.
    pub fn not_after(&self) -> i64 {
        self.not_after
    }

    /// The directory with the files of `identity`.
    pub fn files(&self, identity: &Identity) -> PathBuf {
        self.directory.join(identity.kind().word()).join(identity.name())
    }

    /// Issues the first certificate of `identity`, valid for `days`, for these host names and IP addresses; controllers
    /// and switches also for those of their own machine. Returns the directory with its files.
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

    /// As [`Authority::issue`], without a look at what was issued before: for many at once.
    /// # Errors
    /// [`PkiError`].
    pub fn make(&self, identity: &Identity, addresses: &[String], days: u32) -> Result<PathBuf, PkiError> {
        self.make_until(identity, addresses, i64::from(days) * 86_400)
    }

    /// As [`Authority::make`], valid for so many seconds from now.
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
        let now = OffsetDateTime::now_utc();
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
        // First what is needed to revoke it.
        write(&self.directory.join("issued").join(format!("{}.pem", hex(&serial.to_bytes()))), &pem, 0o644)?;
        write(&files.join("key.pem"), &key.serialize_pem(), 0o600)?;
        write(&files.join("cert.pem"), &pem, 0o644)?;
        write(&files.join("ca.pem"), &self.pem, 0o644)?;
        let crl = self.directory.join("crl.pem");
        write(&files.join("crl.pem"), &read(&crl)?, 0o644)?;
        Ok(files)
    }

    /// Issues another certificate, with another key, to the holder of one. The one before stays valid until it expires
    /// or is revoked, so that the files can be copied without haste.
    /// # Errors
    /// [`PkiError::Unknown`].
    pub fn renew(&self, kind: &'static str, name: &str, days: u32) -> Result<PathBuf, PkiError> {
        let latest = self.of(kind, name)?.into_iter().max_by_key(|issued| issued.certificate.not_after);
        let Some(Issued { certificate, .. }) = latest else {
            return Err(PkiError::Unknown { kind, name: name.to_owned() });
        };
        self.make(&certificate.identity, &certificate.addresses, days)
    }

    /// Revokes the certificates of a holder, or the one with this serial number alone, and writes the revocation list
    /// to all directories. Returns how many are revoked that were not.
    /// # Errors
    /// [`PkiError::Unknown`].
    pub fn revoke(&self, kind: &'static str, name: &str, serial: Option<&str>) -> Result<usize, PkiError> {
        let mut of = self.of(kind, name)?;
        of.retain(|issued| serial.is_none_or(|serial| issued.certificate.serial == serial));
        if of.is_empty() {
            return Err(PkiError::Unknown { kind, name: name.to_owned() });
        }
        let now = unix_seconds();
        let mut revoked = self.revoked()?;
        let n = revoked.len();
        for issued in of {
            if issued.revoked.is_none() && issued.certificate.not_after >= now {
                revoked.push((issued.certificate.serial, now));
            }
        }
        self.write_crl(&revoked)?;
        Ok(revoked.len() - n)
    }

    fn of(&self, kind: &str, name: &str) -> Result<Vec<Issued>, PkiError> {
        let mut issued = self.issued()?;
        issued.retain(|issued| {
            let identity = &issued.certificate.identity;
            (identity.kind().word(), identity.name()) == (kind, name)
        });
        Ok(issued)
    }

    /// Every certificate that was issued, by kind and name, then by the end of its time.
    /// # Errors
    /// [`PkiError::Io`], [`PkiError::Damaged`].
    pub fn issued(&self) -> Result<Vec<Issued>, PkiError> {
        let revoked = self.revoked()?;
        let authority = self.certificate()?;
        let directory = self.directory.join("issued");
        let mut all = Vec::new();
        for entry in fs::read_dir(&directory).map_err(|e| io_error(&directory, e))? {
            let path = entry.map_err(|e| io_error(&directory, e))?.path();
            if path.extension().is_none_or(|extension| extension != "pem") {
                continue;
            }
            let der = CertificateDer::from_pem_file(&path).map_err(|e| damaged(&path, &e))?;
            let certificate = Certificate::parse(&der).map_err(|e| damaged(&path, &e))?;
            let (_, parsed) = x509_parser::parse_x509_certificate(&der).map_err(|e| damaged(&path, &e))?;
            parsed.verify_signature(Some(authority.public_key())).map_err(|e| damaged(&path, &e))?;
            let revoked = revoked.iter().find(|(serial, _)| *serial == certificate.serial).map(|(_, at)| *at);
            all.push(Issued { certificate, revoked });
        }
        all.sort_by(|a, b| {
            let key = |issued: &Issued| (issued.certificate.identity.clone(), issued.certificate.not_after);
            key(a).cmp(&key(b))
        });
        Ok(all)
    }

    /// Our own certificate.
    fn certificate(&self) -> Result<X509Certificate<'_>, PkiError> {
        let parsed = x509_parser::parse_x509_certificate(&self.der);
        parsed.map(|(_, parsed)| parsed).map_err(|e| damaged(&self.directory.join("ca.pem"), &e))
    }

    /// Serial numbers and times of what is revoked.
    fn revoked(&self) -> Result<Vec<(String, i64)>, PkiError> {
        let path = self.directory.join("crl.pem");
        let der = CertificateRevocationListDer::from_pem_file(&path).map_err(|e| damaged(&path, &e))?;
        let (_, crl) = CertificateRevocationList::from_der(&der).map_err(|e| damaged(&path, &e))?;
        crl.verify_signature(self.certificate()?.public_key()).map_err(|e| damaged(&path, &e))?;
        let entries = crl.iter_revoked_certificates();
        Ok(entries.map(|entry| (hex(entry.raw_serial()), entry.revocation_date.timestamp())).collect())
    }

    fn write_crl(&self, revoked: &[(String, i64)]) -> Result<(), PkiError> {
        let now = OffsetDateTime::now_utc();
        let entry = |(serial, at): &(String, i64)| RevokedCertParams {
            serial_number: SerialNumber::from_slice(&unhex(serial)),
            revocation_time: OffsetDateTime::from_unix_timestamp(*at).unwrap_or(now),
            reason_code: Some(RevocationReason::Unspecified),
            invalidity_date: None,
        };
        let params = CertificateRevocationListParams {
            this_update: now - CLOCK_SKEW,
            next_update: now + Duration::days(AUTHORITY_DAYS),
            crl_number: SerialNumber::from(now.unix_timestamp_nanos().unsigned_abs() as u64),
            issuing_distribution_point: None,
            revoked_certs: revoked.iter().map(entry).collect(),
            key_identifier_method: KeyIdMethod::Sha256,
        };
        let pem = params.signed_by(&self.issuer)?.pem()?;
        write(&self.directory.join("crl.pem"), &pem, 0o644)?;
        for kind in ["controller", "switch", "operator"] {
            let Ok(entries) = fs::read_dir(self.directory.join(kind)) else { continue };
            for entry in entries.flatten().filter(|entry| entry.path().join("cert.pem").exists()) {
                write(&entry.path().join("crl.pem"), &pem, 0o644)?;
            }
        }
        Ok(())
    }
}

/// A random serial number of 127 bits: positive, and the same length for all.
fn serial(key: &KeyPair) -> Result<SerialNumber, PkiError> {
    // The public key is random, and a verifier wants no secret here.
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

fn unhex(text: &str) -> Vec<u8> {
    let digit = |at: usize| text.get(at..at + 2).and_then(|pair| u8::from_str_radix(pair, 16).ok()).unwrap_or_default();
    (0..text.len() / 2).map(|i| digit(2 * i)).collect()
}

fn make_directory(path: &Path) -> Result<(), PkiError> {
    DirBuilder::new().recursive(true).mode(0o700).create(path).map_err(|e| io_error(path, e))
}

fn read(path: &Path) -> Result<String, PkiError> {
    fs::read_to_string(path).map_err(|e| io_error(path, e))
}

/// Replaces a file whole, synced: what was answered is there after a power cut.
fn write(path: &Path, text: &str, mode: u32) -> Result<(), PkiError> {
    let partial = path.with_extension("partial");
    let written = match fs::remove_file(&partial) {
        Err(error) if error.kind() != ErrorKind::NotFound => Err(error),
        _ => {
            let mut options = OpenOptions::new();
            options.write(true).create_new(true).mode(mode);
            step("pki.create", || options.open(&partial)).and_then(|mut file| {
                step("pki.write", || file.write_all(text.as_bytes()))?;
                step("pki.sync", || file.sync_all())?;
                step("pki.rename", || fs::rename(&partial, path))?;
                let directory = path.parent().unwrap_or(Path::new("."));
                step("pki.directory.sync", || fs::File::open(directory)?.sync_all())
            })
        }
    };
    written.map_err(|e| io_error(path, e))
}

fn io_error(path: &Path, source: io::Error) -> PkiError {
    PkiError::Io { path: path.to_owned(), source }
}

fn damaged(path: &Path, reason: &dyn std::fmt::Display) -> PkiError {
    PkiError::Damaged { path: path.to_owned(), reason: reason.to_string() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::identity::Role;
    use crate::tls::{Files, Tls};
    use std::os::unix::fs::PermissionsExt;

    fn identity(kind: Kind, name: &str) -> Identity {
        Identity::new(kind, name).unwrap()
    }

    #[test]
    fn certificates_say_what_was_asked_for_and_keys_are_private() {
        let directory = tempfile::tempdir().unwrap();
        let at = directory.path().join("pki");
        let authority = Authority::create(&at).unwrap();
        let asked = identity(Kind::Operator(Role::Writer), "alice");
        let files = authority.issue(&asked, &[], 10).unwrap();
        let switch = authority
            .issue(&identity(Kind::Switch, "s1"), &["10.0.0.2".to_owned(), "s1.example".to_owned()], 10)
            .unwrap();
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!([mode(&at), mode(&at.join("ca.key")), mode(&files.join("key.pem"))], [0o700, 0o600, 0o600]);

        let tls = Tls::load(&Files::in_directory(&files)).unwrap();
        assert_eq!(tls.identity(), asked);
        assert!((9 * 86_400..=10 * 86_400).contains(&(tls.not_after() - unix_seconds())));
        let authority = Authority::load(&at).unwrap();
        let issued = authority.issued().unwrap();
        assert_eq!(
            issued.iter().map(|i| i.certificate.identity.to_string()).collect::<Vec<_>>(),
            ["switch s1", "operator alice (writer)"]
        );
        assert_eq!(issued[0].certificate.addresses, ["localhost", "127.0.0.1", "::1", "10.0.0.2", "s1.example"]);
        Tls::load_for(&Files::in_directory(&switch), Some("s1")).unwrap();
        let wrong = Tls::load_for(&Files::in_directory(&switch), Some("s2")).unwrap_err().to_string();
        assert!(wrong.contains("that of switch s1") && wrong.contains("fibula pki issue switch s2"), "{wrong}");
    }

    #[test]
    fn a_name_has_one_certificate_until_it_is_renewed_or_revoked() {
        let directory = tempfile::tempdir().unwrap();
        let authority = Authority::create(directory.path()).unwrap();
        let s1 = identity(Kind::Switch, "s1");
        authority.issue(&s1, &["10.0.0.2".to_owned()], 10).unwrap();
        assert!(matches!(authority.issue(&s1, &[], 10), Err(PkiError::Issued { .. })));
        let files = authority.renew("switch", "s1", 20).unwrap();
        let issued = authority.issued().unwrap();
        assert!(issued.len() == 2 && issued.iter().all(|i| i.is_valid_at(unix_seconds())));
        assert_eq!(issued[0].certificate.addresses, issued[1].certificate.addresses);

        let first = issued[0].certificate.serial.clone();
        assert_eq!(authority.revoke("switch", "s1", Some(&first)).unwrap(), 1);
        assert_eq!(authority.revoke("switch", "s1", None).unwrap(), 1, "the other one");
        assert_eq!(authority.revoke("switch", "s1", None).unwrap(), 0);
        assert!(authority.issued().unwrap().iter().all(|i| !i.is_valid_at(unix_seconds())));
        assert_eq!(read(&files.join("crl.pem")).unwrap(), read(&directory.path().join("crl.pem")).unwrap());
        authority.issue(&s1, &[], 10).unwrap();
        assert!(matches!(authority.revoke("switch", "s9", None), Err(PkiError::Unknown { .. })));
        assert!(matches!(authority.renew("operator", "s1", 1), Err(PkiError::Unknown { .. })));
    }

    /// All files under a directory.
    fn files_under(directory: &Path) -> Vec<PathBuf> {
        let paths = fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path());
        paths.flat_map(|path| if path.is_dir() { files_under(&path) } else { vec![path] }).collect()
    }

    #[test]
    fn flipped_bit_in_any_file_changes_no_answer() {
        let seed = lookup::testkit::seed();
        let mut rng = lookup::testkit::Rng::new(seed);
        let n_flips = if std::env::var_os("FIBULA_DEEP").is_some() { 4000 } else { 40 };
        let directory = tempfile::tempdir().unwrap();
        let authority = Authority::create(directory.path()).unwrap();
        authority.issue(&identity(Kind::Controller, "c1"), &[], 10).unwrap();
        authority.issue(&identity(Kind::Switch, "s1"), &[], 10).unwrap();
        authority.issue(&identity(Kind::Operator(Role::Admin), "eve"), &[], 10).unwrap();
        authority.revoke("operator", "eve", None).unwrap();
        let holders = ["controller/c1", "switch/s1"].map(|holder| directory.path().join(holder));
        let read = || Authority::load(directory.path()).and_then(|authority| authority.issued());
        let load = |holder: &PathBuf| {
            let tls = Tls::load(&Files::in_directory(holder)).ok()?;
            Some((tls.identity(), tls.not_after()))
        };
        let (issued, loaded) = (read().unwrap(), holders.each_ref().map(load));
        assert!(issued.len() == 3 && loaded.iter().all(Option::is_some));
        for path in files_under(directory.path()) {
            let whole = fs::read(&path).unwrap();
            for _ in 0..n_flips {
                let bit = rng.below(whole.len() as u64 * 8);
                let mut damaged = whole.clone();
                damaged[(bit / 8) as usize] ^= 1 << (bit % 8);
                fs::write(&path, damaged).unwrap();
                let what = format!("bit {bit} of {}", path.display());
                match read() {
                    Ok(got) => assert_eq!(got, issued, "{what}"),
                    Err(error) => {
                        assert!(matches!(error, PkiError::Damaged { .. } | PkiError::Io { .. }), "{what}: {error}")
                    }
                }
                for (holder, before) in holders.iter().zip(&loaded) {
                    assert!(load(holder).is_none_or(|got| Some(got) == *before), "{what}");
                }
            }
            fs::write(&path, whole).unwrap();
        }
        assert_eq!(read().unwrap(), issued);
    }

    #[test]
    fn what_cannot_be_is_refused_with_the_reason() {
        let directory = tempfile::tempdir().unwrap();
        assert!(matches!(Authority::load(directory.path()), Err(PkiError::NoAuthority { .. })));
        let authority = Authority::create(directory.path()).unwrap();
        assert!(matches!(Authority::create(directory.path()), Err(PkiError::Exists { .. })));
        for wrong in ["10.0.0.1:4600", "a b", "", "https://c1"] {
            let refused = authority.issue(&identity(Kind::Controller, "c1"), &[wrong.to_owned()], 1);
            assert!(matches!(refused, Err(PkiError::BadAddress { .. })), "{wrong}");
        }
        let cut = directory.path().join("cut");
        fs::create_dir(&cut).unwrap();
        for name in ["cert.pem", "key.pem", "ca.pem"] {
            fs::write(cut.join(name), "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n").unwrap();
        }
        for files in [Files::in_directory(directory.path().join("none")), Files::in_directory(&cut), Files::default()] {
            let said = Tls::load(&files).unwrap_err().to_string();
            assert!(said.contains("fibula pki issue"), "{said}");
        }
    }
}
