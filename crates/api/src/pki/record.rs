//! The certificates that an authority has issued and revoked.

use super::files::{damaged, io_error, write};
use super::{AUTHORITY_DAYS, Authority, CLOCK_SKEW, PkiError};
use crate::clock::{self, unix_seconds};
use crate::identity::{Certificate, hex};
use rcgen::{CertificateRevocationListParams, KeyIdMethod, RevocationReason, RevokedCertParams, SerialNumber};
use std::fs;
use time::{Duration, OffsetDateTime};
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, CertificateRevocationListDer};
use x509_parser::prelude::{CertificateRevocationList, FromDer, X509Certificate};

/// An issued certificate.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Issued {
    /// Its contents.
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

impl Authority {
    /// Revokes the certificates of a holder, or only the one with this serial number, and writes the revocation list to
    /// all directories. Returns how many were newly revoked.
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

    pub(super) fn of(&self, kind: &str, name: &str) -> Result<Vec<Issued>, PkiError> {
        let mut issued = self.issued()?;
        issued.retain(|issued| {
            let identity = &issued.certificate.identity;
            (identity.kind().word(), identity.name()) == (kind, name)
        });
        Ok(issued)
    }

    /// Every issued certificate, sorted by kind and name, then by expiry.
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

    /// Serial numbers and times of revoked certificates.
    fn revoked(&self) -> Result<Vec<(String, i64)>, PkiError> {
        let path = self.directory.join("crl.pem");
        let der = CertificateRevocationListDer::from_pem_file(&path).map_err(|e| damaged(&path, &e))?;
        let (_, crl) = CertificateRevocationList::from_der(&der).map_err(|e| damaged(&path, &e))?;
        crl.verify_signature(self.certificate()?.public_key()).map_err(|e| damaged(&path, &e))?;
        let entries = crl.iter_revoked_certificates();
        Ok(entries.map(|entry| (hex(entry.raw_serial()), entry.revocation_date.timestamp())).collect())
    }

    pub(super) fn write_crl(&self, revoked: &[(String, i64)]) -> Result<(), PkiError> {
        let now = OffsetDateTime::from(clock::now());
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

fn unhex(text: &str) -> Vec<u8> {
    let digit = |at: usize| text.get(at..at + 2).and_then(|pair| u8::from_str_radix(pair, 16).ok()).unwrap_or_default();
    (0..text.len() / 2).map(|i| digit(2 * i)).collect()
}
