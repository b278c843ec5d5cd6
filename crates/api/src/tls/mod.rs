//! Mutual TLS: both ends of every connection present a certificate of the same certificate authority.
//!
//! Protocol: TLS 1.3 (RFC 8446) only, without tickets and early data, so that every connection checks the certificate
//! again. A certificate is checked for its signatures, its time, its purpose and, if there is a revocation list, its
//! revocation (RFC 5280); then for the [`Identity`] in it. A client also checks that the server's certificate names the
//! address that it connected to.
//!
//! When one of the files changes, they are read again, and used if they would be usable at a start. Then, and once a
//! minute, every open connection is checked against what is valid now, and ended if its certificate is not. A browser
//! cannot tell a page why a connection ended: so a connection of a listener for pages stays open for [`FAREWELL`], in
//! which every request is refused with the reason.

mod advice;
mod connection;
#[cfg(feature = "kit")]
mod kit;
mod revocation;

pub use advice::{explain, explain_client, is_of_tls};
pub use connection::Connection;
pub(crate) use connection::{Spoken, connect_foreign, connect_plain, connect_unix, refusal};
#[cfg(feature = "kit")]
pub use kit::certificate_of;

use crate::clock::unix_seconds;
use crate::identity::{Certificate, Identity, IdentityError, Kind};
use ::clock::Stamp;
use arc_swap::ArcSwap;
use connection::Live;
use revocation::Lists;
use serde::Deserialize;
use std::fmt::{self, Debug, Formatter};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio_rustls::rustls::client::danger::ServerCertVerifier;
use tokio_rustls::rustls::crypto::ring::default_provider;
use tokio_rustls::rustls::pki_types::pem::{self, PemObject};
use tokio_rustls::rustls::pki_types::{CertificateDer, CertificateRevocationListDer, PrivateKeyDer, UnixTime};
use tokio_rustls::rustls::server::NoServerSessionStorage;
use tokio_rustls::rustls::server::danger::ClientCertVerifier;
use tokio_rustls::rustls::version::TLS13;
use tokio_rustls::rustls::{
    self, CertRevocationListError, CertificateError, ClientConfig, RootCertStore, ServerConfig,
};

/// Interval between checks of the files.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// Interval between checks of open connections when no file changes: a certificate may have expired.
const CHECK_EVERY: Duration = Duration::from_secs(60);
/// Time in which a page can still ask why it is refused: it asks every 2 s.
const FAREWELL: Duration = Duration::from_secs(5);
/// Time before a certificate expires in which a warning is logged once a day.
const SOON: Duration = Duration::from_secs(14 * 24 * 3600);
const DAY: Duration = Duration::from_secs(24 * 3600);

/// The section `[tls]` of a daemon's configuration: a directory with the files that `fibula pki issue` writes, or the
/// files one by one.
#[derive(Clone, PartialEq, Eq, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Files {
    /// A directory with `cert.pem`, `key.pem`, `ca.pem` and, if there is one, `crl.pem`.
    pub dir: Option<PathBuf>,
    /// The certificate, with any between it and the authority's, in PEM.
    pub cert: Option<PathBuf>,
    /// Its private key in PEM (PKCS#8, SEC1 or PKCS#1).
    pub key: Option<PathBuf>,
    /// The certificates of the authorities that sign those of peers, in PEM.
    pub ca: Option<PathBuf>,
    /// The certificates that these authorities have revoked, in PEM; without it, nothing is revoked. A list stays in
    /// use until a newer one replaces it.
    pub crl: Option<PathBuf>,
}

/// All files of [`Files`], resolved.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Paths {
    cert: PathBuf,
    key: PathBuf,
    ca: PathBuf,
    crl: Option<PathBuf>,
    /// Whether a missing revocation list is accepted.
    crl_is_optional: bool,
}

impl Files {
    /// All files in the directory `dir`.
    pub fn in_directory(dir: impl Into<PathBuf>) -> Self {
        Files { dir: Some(dir.into()), ..Files::default() }
    }

    /// The paths of all files. A file that is named takes precedence over that of the directory.
    /// # Errors
    /// The file that is not named.
    pub fn paths(&self) -> Result<Paths, String> {
        let path = |own: &Option<PathBuf>, name: &str| {
            own.clone().or_else(|| self.dir.as_ref().map(|dir| dir.join(format!("{name}.pem"))))
        };
        let required = |own: &Option<PathBuf>, name: &str| {
            path(own, name).ok_or_else(|| {
                format!("[tls] names no {name}; write {name} = \"FILE\", or dir = \"DIRECTORY\" of `fibula pki issue`")
            })
        };
        Ok(Paths {
            cert: required(&self.cert, "cert")?,
            key: required(&self.key, "key")?,
            ca: required(&self.ca, "ca")?,
            crl: path(&self.crl, "crl"),
            crl_is_optional: self.crl.is_none(),
        })
    }
}

/// Reasons why certificates cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TlsError {
    /// A file is not named.
    #[error("{0}")]
    Unnamed(String),
    /// A file cannot be read, or is not PEM.
    #[error(
        "cannot read the {what} {path}: {reason}; `fibula pki issue` writes it, or name another file in the configuration"
    )]
    File {
        /// The expected contents.
        what: &'static str,
        /// The file.
        path: PathBuf,
        /// Why not.
        reason: String,
    },
    /// The certificate has no identity.
    #[error("the certificate {path}: {source}")]
    Identity {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        source: IdentityError,
    },
    /// Certificate, key or authorities do not match.
    #[error("the certificate {path} cannot be used: {reason}{}", advice(.reason))]
    Unusable {
        /// The file.
        path: PathBuf,
        /// The error of rustls.
        reason: String,
    },
    /// It belongs to another holder.
    #[error(
        "the certificate {path} is that of {got}, and not of {expected}; issue one with `fibula pki issue {command}`"
    )]
    NotOurs {
        /// The file.
        path: PathBuf,
        /// The holder.
        got: Identity,
        /// The expected holder.
        expected: String,
        /// The command that issues it.
        command: String,
    },
}

fn advice(reason: &str) -> &'static str {
    if reason.contains("keys may not be consistent") || reason.contains("InconsistentKeys") {
        "; cert and key belong to different certificates: copy both of the same `fibula pki issue`"
    } else {
        ""
    }
}

/// The contents of the files when they were read.
pub(crate) struct Loaded {
    pub(crate) certificate: Certificate,
    /// For listeners with gRPC only, and for those that also answer HTTP/1.1.
    pub(crate) grpc: Arc<ServerConfig>,
    pub(crate) web: Arc<ServerConfig>,
    pub(crate) client: Arc<ClientConfig>,
    pub(crate) clients: Arc<dyn ClientCertVerifier>,
    pub(crate) servers: Arc<dyn ServerCertVerifier>,
    lists: Lists,
}

/// The identity that the certificate of this process must have.
#[derive(Clone, PartialEq, Eq, Debug)]
enum Holder {
    Anybody,
    Controller,
    Switch(String),
}

impl Holder {
    /// Reads files that this holder can use. Revocation lists in use stay in use unless there are newer ones.
    fn read(&self, paths: &Paths, lists: &Lists) -> Result<Loaded, TlsError> {
        let loaded = Loaded::read(paths, lists)?;
        let got = &loaded.certificate.identity;
        let (is_ours, expected, command) = match self {
            Holder::Anybody => return Ok(loaded),
            Holder::Controller => {
                (got.kind() == Kind::Controller, "a controller".to_owned(), "controller NAME".to_owned())
            }
            Holder::Switch(name) => {
                let title = format!("switch {name}");
                (got.kind() == Kind::Switch && got.name() == name, title.clone(), title)
            }
        };
        if is_ours {
            return Ok(loaded);
        }
        Err(TlsError::NotOurs { path: paths.cert.clone(), got: got.clone(), expected, command })
    }
}

/// The stamps of all files.
type Stamps = Vec<Option<Stamp>>;

/// The certificate of this process, the authorities that it trusts, and its connections.
pub struct Tls {
    paths: ArcSwap<Paths>,
    holder: Holder,
    current: ArcSwap<Loaded>,
    seen: Mutex<Stamps>,
    /// Whether the current files cannot be used.
    is_refused: AtomicBool,
    pub(crate) live: Mutex<Vec<Live>>,
}

impl Debug for Tls {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tls").field("paths", &self.paths.load()).finish_non_exhaustive()
    }
}

impl Tls {
    /// Reads the files.
    /// # Errors
    /// [`TlsError`].
    pub fn load(files: &Files) -> Result<Arc<Self>, TlsError> {
        Self::load_as(files, Holder::Anybody)
    }

    /// As [`Tls::load`], for the daemon that the certificate must name, now and whenever the files change: a
    /// controller, or the switch `switch`.
    /// # Errors
    /// [`TlsError`].
    pub fn load_for(files: &Files, switch: Option<&str>) -> Result<Arc<Self>, TlsError> {
        Self::load_as(files, switch.map_or(Holder::Controller, |name| Holder::Switch(name.to_owned())))
    }

    fn load_as(files: &Files, holder: Holder) -> Result<Arc<Self>, TlsError> {
        let paths = files.paths().map_err(TlsError::Unnamed)?;
        let seen = paths.stamps();
        let loaded = holder.read(&paths, &Lists::default())?;
        Ok(Arc::new(Self {
            paths: ArcSwap::from_pointee(paths),
            holder,
            current: ArcSwap::from_pointee(loaded),
            seen: Mutex::new(seen),
            is_refused: AtomicBool::new(false),
            live: Mutex::new(Vec::new()),
        }))
    }

    /// The identity in our certificate.
    pub fn identity(&self) -> Identity {
        self.current.load().certificate.identity.clone()
    }

    /// The end of validity of our certificate, in seconds since 1970.
    pub fn not_after(&self) -> i64 {
        self.current.load().certificate.not_after
    }

    /// Whether the files have changed and cannot be used, so that the previous ones stay in use.
    pub fn is_refused(&self) -> bool {
        self.is_refused.load(Relaxed)
    }

    pub(crate) fn current(&self) -> Arc<Loaded> {
        self.current.load_full()
    }

    /// Reads the files again if one has changed since they were last read, and ends the connections whose certificates
    /// are no longer valid. Returns whether they were read.
    /// # Errors
    /// [`TlsError`]; what was read before stays in use.
    pub fn reload(&self) -> Result<bool, TlsError> {
        let now = self.paths.load().stamps();
        if *self.seen.lock().unwrap_or_else(PoisonError::into_inner) == now {
            return Ok(false);
        }
        self.read_again().map(|()| true)
    }

    /// As [`Tls::reload`], even if no file has changed.
    /// # Errors
    /// As there.
    pub fn read_again(&self) -> Result<(), TlsError> {
        // Held until the new contents are in use, so that concurrent reloads wait.
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        let paths = self.paths.load_full();
        *seen = paths.stamps();
        let read = self.holder.read(&paths, &self.current().lists);
        self.is_refused.store(read.as_ref().map_or(true, |loaded| !loaded.lists.refused.is_empty()), Relaxed);
        self.take(read?);
        Ok(())
    }

    /// As [`Tls::read_again`], and from now on from other files, if they are usable.
    /// # Errors
    /// As there; the previous files and paths then stay in use.
    pub fn read_from(&self, files: &Files) -> Result<(), TlsError> {
        let paths = files.paths().map_err(TlsError::Unnamed)?;
        if paths == **self.paths.load() {
            return self.read_again();
        }
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        let stamps = paths.stamps();
        let loaded = self.holder.read(&paths, &self.current().lists)?;
        self.paths.store(Arc::new(paths));
        *seen = stamps;
        self.is_refused.store(!loaded.lists.refused.is_empty(), Relaxed);
        self.take(loaded);
        Ok(())
    }

    fn take(&self, loaded: Loaded) {
        loaded.lists.refused.iter().for_each(|why| tracing::error!("{why}"));
        self.current.store(Arc::new(loaded));
        self.check_connections();
    }

    /// Reloads the files and checks the connections for as long as `tls` is in use.
    pub fn watch(tls: &Arc<Self>) {
        let tls = Arc::downgrade(tls);
        tokio::spawn(async move {
            if let Some(tls) = tls.upgrade() {
                tls.say_lists();
            }
            let mut tick = tokio::time::interval(LOOK_EVERY);
            tick.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
            let (mut unchecked, mut unwarned) = (Duration::ZERO, DAY);
            loop {
                tick.tick().await;
                let Some(tls) = tls.upgrade() else { return };
                match tls.reload() {
                    Ok(true) => {
                        tracing::info!(identity = %tls.identity(), "certificates read again");
                        (unchecked, unwarned) = (Duration::ZERO, DAY);
                    }
                    Ok(false) => unchecked += LOOK_EVERY,
                    Err(error) => {
                        tracing::error!(%error, "the changed certificates are not used; the previous ones stay in use")
                    }
                }
                if unchecked >= CHECK_EVERY {
                    unchecked = Duration::ZERO;
                    tls.check_connections();
                }
                unwarned += LOOK_EVERY;
                if unwarned >= DAY {
                    unwarned = Duration::ZERO;
                    tls.warn_of_expiry();
                }
            }
        });
    }

    /// Logs the revocation lists at the start: a list older than the one before the start readmits what was revoked
    /// since.
    fn say_lists(&self) {
        let lists = &self.current().lists;
        if lists.is_empty() {
            let path = self.paths.load().crl.as_ref().map(|path| path.display().to_string());
            tracing::warn!(
                path,
                "there is no revocation list: revoked certificates are accepted; copy the crl.pem of the authority there"
            );
        }
        lists.titles().for_each(|title| tracing::info!("certificates are checked against {title}"));
    }

    fn warn_of_expiry(&self) {
        let Certificate { identity, not_after, .. } = &self.current.load().certificate;
        let left = not_after - unix_seconds();
        if left < SOON.as_secs() as i64 {
            let (kind, name) = (identity.kind().word(), identity.name());
            let until = date(*not_after);
            tracing::warn!(
                %identity, until,
                "the certificate {}; renew it with `fibula pki renew {kind} {name}` and copy the files here",
                if left < 0 { "has expired, so peers reject it" } else { "expires soon" }
            );
        }
    }
}

impl Paths {
    fn stamps(&self) -> Stamps {
        let files = [Some(&self.cert), Some(&self.key), Some(&self.ca), self.crl.as_ref()];
        files.into_iter().flatten().map(|path| Stamp::of(path)).collect()
    }
}

impl Loaded {
    fn read(paths: &Paths, before: &Lists) -> Result<Self, TlsError> {
        let unusable = |e: &dyn fmt::Display| TlsError::Unusable { path: paths.cert.clone(), reason: e.to_string() };
        let chain: Vec<CertificateDer<'static>> = all("certificate", &paths.cert)?;
        let certificate =
            Certificate::parse(&chain[0]).map_err(|source| TlsError::Identity { path: paths.cert.clone(), source })?;
        let key = PrivateKeyDer::from_pem_file(&paths.key).map_err(|e| file("private key", &paths.key, &e))?;
        let mut roots = RootCertStore::empty();
        for root in all::<CertificateDer<'static>>("authority's certificate", &paths.ca)? {
            roots.add(root).map_err(|e| file("authority's certificate", &paths.ca, &e))?;
        }
        let found = match &paths.crl {
            // A previous one is still in use.
            Some(path) if !paths.crl_is_optional && before.is_empty() || path.exists() => {
                all::<CertificateRevocationListDer<'static>>("revocation list", path)?
            }
            _ => Vec::new(),
        };
        let lists = Lists::read(paths.crl.as_deref(), found, before, &roots)?;
        let (roots, provider) = (Arc::new(roots), Arc::new(default_provider()));
        let clients = lists.clients(&roots, &provider).map_err(|e| unusable(&e))?;
        let servers = lists.servers(&roots, &provider).map_err(|e| unusable(&e))?;

        // No peer would accept one with a wrong signature, and it may name another holder. An expired one can be
        // renewed while we run, so the signature is checked as of its first day.
        let began = UnixTime::since_unix_epoch(Duration::from_secs(certificate.not_before.try_into().unwrap_or(0)));
        match clients.verify_client_cert(&chain[0], &chain[1..], began) {
            Err(rustls::Error::InvalidCertificate(CertificateError::BadSignature)) => {
                return Err(unusable(&"its signature is wrong: this file or that of the authority is damaged"));
            }
            Err(rustls::Error::InvalidCertRevocationList(CertRevocationListError::BadSignature)) => {
                return Err(unusable(&"the signature of the revocation list is wrong: its file is damaged"));
            }
            _ => {}
        }

        let mut web = ServerConfig::builder_with_provider(Arc::clone(&provider))
            .with_protocol_versions(&[&TLS13])
            .map_err(|e| unusable(&e))?
            .with_client_cert_verifier(Arc::clone(&clients))
            .with_single_cert(chain.clone(), key.clone_key())
            .map_err(|e| unusable(&e))?;
        // A resumed session would not check the certificate again.
        web.session_storage = Arc::new(NoServerSessionStorage {});
        web.send_tls13_tickets = 0;
        web.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        let mut grpc = web.clone();
        grpc.alpn_protocols.truncate(1);

        let mut client = ClientConfig::builder_with_provider(provider)
            .with_protocol_versions(&[&TLS13])
            .map_err(|e| unusable(&e))?
            .dangerous()
            .with_custom_certificate_verifier(Arc::clone(&servers))
            .with_client_auth_cert(chain, key)
            .map_err(|e| unusable(&e))?;
        client.resumption = rustls::client::Resumption::disabled();
        client.alpn_protocols = vec![b"h2".to_vec()];
        let (grpc, web, client) = (Arc::new(grpc), Arc::new(web), Arc::new(client));
        Ok(Self { certificate, grpc, web, client, clients, servers, lists })
    }
}

/// The certificate that a client presents to foreign servers, and the authority that it trusts for them: it accepts any
/// certificate that the authority signed for the host. The files are read again for a new connection if one of them has
/// changed.
pub struct Foreign {
    ca: PathBuf,
    cert: Option<(PathBuf, PathBuf)>,
    current: Mutex<(Stamps, Arc<ClientConfig>)>,
}

impl Debug for Foreign {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str("Foreign")
    }
}

impl Foreign {
    /// Reads the files. Without `cert` and `key`, the client presents no certificate.
    /// # Errors
    /// [`TlsError`] with the file.
    pub fn load(ca: &Path, cert: Option<(&Path, &Path)>) -> Result<Arc<Self>, TlsError> {
        let cert = cert.map(|(cert, key)| (cert.to_owned(), key.to_owned()));
        // If a file changes in between, they are read once more.
        let seen = foreign_stamps(ca, cert.as_ref());
        let current = Mutex::new((seen, foreign_config(ca, cert.as_ref())?));
        Ok(Arc::new(Self { ca: ca.to_owned(), cert, current }))
    }

    /// The configuration from the current files; unusable files change nothing.
    pub(crate) fn current(&self) -> Arc<ClientConfig> {
        let mut current = self.current.lock().unwrap_or_else(PoisonError::into_inner);
        let (seen, config) = &mut *current;
        let now = foreign_stamps(&self.ca, self.cert.as_ref());
        if std::mem::replace(seen, now.clone()) != now {
            match foreign_config(&self.ca, self.cert.as_ref()) {
                Ok(changed) => *config = changed,
                Err(error) => {
                    tracing::error!(%error, "the changed certificates are not used; the previous ones stay in use")
                }
            }
        }
        Arc::clone(config)
    }
}

fn foreign_stamps(ca: &Path, cert: Option<&(PathBuf, PathBuf)>) -> Stamps {
    let pair = cert.into_iter().flat_map(|(cert, key)| [cert.as_path(), key]);
    std::iter::once(ca).chain(pair).map(Stamp::of).collect()
}

fn foreign_config(ca: &Path, cert: Option<&(PathBuf, PathBuf)>) -> Result<Arc<ClientConfig>, TlsError> {
    let mut roots = RootCertStore::empty();
    for root in all::<CertificateDer<'static>>("authority's certificate", ca)? {
        roots.add(root).map_err(|e| file("authority's certificate", ca, &e))?;
    }
    let unusable = |e: &dyn fmt::Display| TlsError::Unusable {
        path: cert.map_or(ca, |(cert, _)| cert).to_owned(),
        reason: e.to_string(),
    };
    let builder = ClientConfig::builder_with_provider(Arc::new(default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(|e| unusable(&e))?
        .with_root_certificates(roots);
    let mut config = match cert {
        Some((cert, key)) => {
            let chain = all("certificate", cert)?;
            let key = PrivateKeyDer::from_pem_file(key).map_err(|e| file("private key", key, &e))?;
            builder.with_client_auth_cert(chain, key).map_err(|e| unusable(&e))?
        }
        None => builder.with_no_client_auth(),
    };
    config.alpn_protocols = vec![b"h2".to_vec()];
    Ok(Arc::new(config))
}

/// All items of a kind in a PEM file; at least one.
fn all<T: PemObject>(what: &'static str, path: &Path) -> Result<Vec<T>, TlsError> {
    let items = T::pem_file_iter(path).and_then(Iterator::collect::<Result<Vec<T>, pem::Error>>);
    let items = items.map_err(|e| file(what, path, &e))?;
    if items.is_empty() { Err(file(what, path, &"the file contains none in PEM")) } else { Ok(items) }
}

fn file(what: &'static str, path: &Path, reason: &dyn fmt::Display) -> TlsError {
    TlsError::File { what, path: path.to_owned(), reason: reason.to_string() }
}

/// A time in seconds since 1970 as `2026-11-24 06:00:00 UTC`.
pub fn date(seconds: i64) -> String {
    let Ok(time) = time::OffsetDateTime::from_unix_timestamp(seconds) else { return format!("{seconds} s") };
    let (hour, minute, second) = time.to_hms();
    format!("{} {hour:02}:{minute:02}:{second:02} UTC", time.date())
}
