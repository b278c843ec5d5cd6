//! `fibula pki`: a certificate authority in a directory, and the certificates of controllers, switches and operators.

use crate::choices::{Choices, choices};
use crate::remote::config_directory;
use api::clock::unix_seconds;
use api::identity::{Identity, Kind, Role};
use api::pki::{Authority, Issued, PkiError};
use api::tls::date;
use clap::builder::TypedValueParser;
use command::output::{Exit, Failure, Output};
use serde::Serialize;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// Arguments of `fibula pki`.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Directory of the certificate authority [default: ~/.config/fibula/pki]
    #[arg(long, env = "FIBULA_PKI", global = true, value_name = "DIR", help_heading = command::program::GLOBAL)]
    pki: Option<PathBuf>,
    #[command(subcommand)]
    verb: Verb,
}

#[derive(clap::Subcommand)]
enum Verb {
    /// Make a certificate authority
    Init,
    /// Issue a certificate: a directory with everything that its holder needs
    #[command(subcommand)]
    Issue(Issue),
    /// Issue a new certificate to an existing holder; the previous one stays valid until it expires or is revoked
    Renew {
        /// Kind of holder
        #[arg(value_parser = ["controller", "switch", "operator"], requires = "name")]
        kind: Option<String>,
        /// Name of the holder
        name: Option<String>,
        /// Renew all certificates that expire within this many days instead
        #[arg(long, value_name = "DAYS", conflicts_with_all = ["kind", "name"])]
        within: Option<u32>,
        /// Host name or IP address at which others now reach the holder, replacing all previous ones; repeatable
        #[arg(long = "address", value_name = "ADDRESS", value_parser = without_port, conflicts_with = "within")]
        addresses: Vec<String>,
        #[command(flatten)]
        life: Life,
    },
    /// Revoke the certificates of a holder; then copy crl.pem to the machines
    Revoke {
        #[command(flatten)]
        holder: Holder,
        /// Revoke only the certificate with this serial number
        #[arg(long, value_name = "HEX")]
        serial: Option<String>,
    },
    /// List certificates with holder, expiry and validity
    Show,
}

#[derive(clap::Subcommand)]
enum Issue {
    /// Issue to controllers, which operators and switches reach at these addresses
    Controller {
        #[command(flatten)]
        named: Named,
        #[command(flatten)]
        addresses: Addresses,
        #[command(flatten)]
        life: Life,
    },
    /// Issue to switches, by the names that the controller knows them by
    Switch {
        #[command(flatten)]
        named: Named,
        #[command(flatten)]
        addresses: Addresses,
        #[command(flatten)]
        life: Life,
    },
    /// Issue to operators, and programs that act for them
    ///
    /// For a browser, `openssl pkcs12 -export -in cert.pem -inkey key.pem -out NAME.p12` makes a file to import.
    Operator {
        #[command(flatten)]
        named: Named,
        /// reader: read only; writer: also change names, hosts and links; admin: everything
        #[arg(long, hide_possible_values = true, value_parser = roles())]
        role: Role,
        /// Also copy the files to ~/.config/fibula/tls, where this user's commands look for them
        #[arg(long)]
        install: bool,
        #[command(flatten)]
        life: Life,
    },
}

#[derive(clap::Args)]
struct Named {
    /// Names of the holders
    #[arg(required = true, value_name = "NAME")]
    names: Vec<String>,
}

#[derive(clap::Args)]
struct Addresses {
    /// Host name or IP address at which others reach the holder; a port is ignored. For a switch, the one of its
    /// `status`, for Prometheus; repeatable
    #[arg(long = "address", value_name = "ADDRESS", value_parser = without_port)]
    addresses: Vec<String>,
}

/// An address as in a configuration, without its port: certificates name hosts.
fn without_port(text: &str) -> Result<String, std::convert::Infallible> {
    let host = match text.parse::<std::net::SocketAddr>() {
        Ok(address) => return Ok(address.ip().to_string()),
        Err(_) => text.rsplit_once(':').filter(|(_, port)| port.parse::<u16>().is_ok()),
    };
    // An IPv6 address contains colons.
    Ok(host.map(|(host, _)| host).filter(|host| !host.contains(':')).unwrap_or(text).to_owned())
}

#[derive(clap::Args, Clone, Copy)]
struct Life {
    /// Days of validity
    #[arg(long, value_name = "DAYS", default_value_t = 365, value_parser = clap::value_parser!(u32).range(1..=3650))]
    days: u32,
}

#[derive(clap::Args, Clone)]
struct Holder {
    /// Kind of holder
    #[arg(value_parser = ["controller", "switch", "operator"])]
    kind: String,
    /// Name of the holder
    name: String,
}

impl Holder {
    fn kind(&self) -> &'static str {
        ["controller", "switch", "operator"].into_iter().find(|kind| *kind == self.kind).unwrap_or("operator")
    }
}

#[derive(Serialize)]
struct IssuedRow {
    kind: &'static str,
    name: String,
    files: PathBuf,
}

const ROLES: [&str; 3] = ["reader", "writer", "admin"];

/// Reads a role; completions offer all.
fn roles() -> Choices<impl TypedValueParser<Value = Role>> {
    let reads = |text: &str| text.parse::<Role>().map_err(|error| error.to_string());
    choices(reads, ROLES)
}

#[derive(Serialize)]
struct Row {
    kind: &'static str,
    name: String,
    role: Option<String>,
    until: String,
    state: &'static str,
    serial: String,
    addresses: String,
}

impl Args {
    /// # Errors
    /// Exit code 2 for an invalid name or address, 4 if there is no authority or no such holder, 5 if one exists
    /// already.
    pub(crate) fn run(self, out: &Output) -> anyhow::Result<()> {
        let directory = self.pki.unwrap_or_else(|| config_directory().join("pki"));
        if let Verb::Init = self.verb {
            let authority = Authority::create(&directory).map_err(failure)?;
            let text = format!(
                "certificate authority in {} until {}; its ca.key can sign for anyone: keep it off the network, and \
                 back it up",
                directory.display(),
                date(authority.not_after())
            );
            return out.done(&serde_json::json!({ "pki": directory }), text);
        }
        let authority = Authority::load(&directory).map_err(failure)?;
        match self.verb {
            Verb::Init => Ok(()),
            Verb::Issue(Issue::Controller { named, addresses, life }) => {
                issue(&authority, Kind::Controller, &named, &addresses.addresses, life, out)
            }
            Verb::Issue(Issue::Switch { named, addresses, life }) => {
                issue(&authority, Kind::Switch, &named, &addresses.addresses, life, out)
            }
            Verb::Issue(Issue::Operator { named, role, install: wanted, life }) => {
                if wanted && named.names.len() > 1 {
                    return Err(Failure::new(Exit::Usage, "--install takes one operator"));
                }
                let issued = make(&authority, Kind::Operator(role), &named, &[], life)?;
                if !wanted {
                    return issued.iter().try_for_each(|(identity, files)| say(identity, files, &[], out));
                }
                issued.iter().try_for_each(|(identity, files)| {
                    let target = install(files)?;
                    let row = IssuedRow { kind: identity.kind().word(), name: identity.name().to_owned(), files: files.clone() };
                    let text = format!(
                        "{identity}: {}, and copied to {} (cert.pem, key.pem, ca.pem, crl.pem), where this user's commands look for \
                         a certificate",
                        files.display(),
                        target.display()
                    );
                    out.done(&row, text)
                })
            }
            Verb::Renew { kind, name, within, addresses, life } => {
                let holder = kind.zip(name).map(|(kind, name)| Holder { kind, name });
                renew(&authority, holder, within, (&addresses, life), out)
            }
            Verb::Revoke { holder, serial } => {
                let n = authority.revoke(holder.kind(), &holder.name, serial.as_deref()).map_err(failure)?;
                let (kind, name) = (holder.kind(), &holder.name);
                let plural = if n == 1 { "" } else { "s" };
                let crl = directory.join("crl.pem");
                let text = format!(
                    "{n} certificate{plural} of {kind} {name} revoked; copy {} to the machines, whose daemons read it again \
                     and end its connections",
                    crl.display()
                );
                out.done(&serde_json::json!({ "revoked": n, "crl": crl }), text)
            }
            Verb::Show => {
                let now = unix_seconds();
                out.rows(
                    &authority.issued().map_err(failure)?.iter().map(|issued| row(issued, now)).collect::<Vec<_>>(),
                )
            }
        }
    }
}

fn row(issued: &Issued, now: i64) -> Row {
    let Issued { certificate, revoked } = issued;
    let state = match revoked {
        Some(_) => "revoked",
        None if certificate.not_after < now => "expired",
        None => "valid",
    };
    let kind = certificate.identity.kind();
    Row {
        kind: kind.word(),
        name: certificate.identity.name().to_owned(),
        role: kind.role().map(|role| role.to_string()),
        until: date(certificate.not_after),
        state,
        serial: certificate.serial.clone(),
        addresses: certificate.addresses.join(" "),
    }
}

fn issue(
    authority: &Authority,
    kind: Kind,
    named: &Named,
    addresses: &[String],
    life: Life,
    out: &Output,
) -> anyhow::Result<()> {
    let issued = make(authority, kind, named, addresses, life)?;
    issued.iter().try_for_each(|(identity, files)| say(identity, files, addresses, out))
}

fn make(
    authority: &Authority,
    kind: Kind,
    named: &Named,
    addresses: &[String],
    life: Life,
) -> anyhow::Result<Vec<(Identity, PathBuf)>> {
    // Check all names before making the first certificate.
    let identities: Result<Vec<Identity>, _> = named.names.iter().map(|name| Identity::new(kind, name)).collect();
    let issued = identities.map_err(|error| failure(error.into()))?.into_iter().map(|identity| {
        let files = authority.issue(&identity, addresses, life.days).map_err(failure)?;
        Ok((identity, files))
    });
    issued.collect()
}

fn say(identity: &Identity, files: &Path, addresses: &[String], out: &Output) -> anyhow::Result<()> {
    let path = files.display();
    let how = match identity.kind() {
        Kind::Operator(_) => {
            format!("give it to the operator, for --tls DIR, FIBULA_TLS or {}", default_tls().display())
        }
        _ if addresses.is_empty() => {
            let name = identity.name();
            let kind = identity.kind().word();
            format!(
                "copy it to the machine, as the dir of [tls]. It names no address, so only that machine can reach its `status`, \
                 `lookup` and `control`; `fibula pki renew {kind} {name} --address ADDRESS` adds one"
            )
        }
        _ => "copy it to the machine, as the dir of [tls]".to_owned(),
    };
    let row = IssuedRow { kind: identity.kind().word(), name: identity.name().to_owned(), files: files.to_owned() };
    out.done(&row, format!("{identity}: {path}; {how}"))
}

fn renew(
    authority: &Authority,
    holder: Option<Holder>,
    within: Option<u32>,
    (addresses, life): (&[String], Life),
    out: &Output,
) -> anyhow::Result<()> {
    let holders: Vec<(&'static str, String)> = match (holder, within) {
        (Some(holder), _) => vec![(holder.kind(), holder.name)],
        (None, Some(days)) => {
            expiring(&authority.issued().map_err(failure)?, unix_seconds() + i64::from(days) * 86_400)
        }
        (None, None) => {
            return Err(Failure::new(
                Exit::Usage,
                "name a holder: KIND NAME, or --within DAYS for all that expire by then",
            ));
        }
    };
    if holders.is_empty() {
        return out.done(&serde_json::json!({ "renewed": 0 }), "no certificate expires by then");
    }
    for (kind, name) in holders {
        if kind == "operator" && !addresses.is_empty() {
            return Err(Failure::new(Exit::Usage, "operators accept no connections: leave out --address"));
        }
        let files = authority.renew(kind, &name, addresses, life.days).map_err(failure)?;
        let text = format!(
            "{kind} {name}: {}; copy it over the previous one, which stays valid until it expires",
            files.display()
        );
        out.done(&IssuedRow { kind, name, files }, text)?;
    }
    Ok(())
}

/// Holders whose latest certificate is not revoked and expires before a time.
fn expiring(issued: &[Issued], before: i64) -> Vec<(&'static str, String)> {
    let mut holders = Vec::new();
    // Sorted by holder, then by expiry.
    for (at, Issued { certificate, revoked }) in issued.iter().enumerate() {
        let holder = (certificate.identity.kind().word(), certificate.identity.name().to_owned());
        let is_last = issued.get(at + 1).is_none_or(|next| {
            let next = &next.certificate.identity;
            (next.kind().word(), next.name()) != (holder.0, &holder.1[..])
        });
        if is_last && revoked.is_none() && certificate.not_after < before {
            holders.push(holder);
        }
    }
    holders
}

fn default_tls() -> PathBuf {
    config_directory().join("tls")
}

/// Copies the files of an operator to where this user's commands look for them. Returns the directory.
fn install(files: &Path) -> anyhow::Result<PathBuf> {
    let target = default_tls();
    std::fs::DirBuilder::new().recursive(true).mode(0o700).create(&target)?;
    for name in ["ca.pem", "crl.pem", "key.pem", "cert.pem"] {
        let text = std::fs::read(files.join(name))?;
        let to = target.join(name);
        match std::fs::remove_file(&to) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(error.into()),
            _ => {}
        }
        let mode = if name == "key.pem" { 0o600 } else { 0o644 };
        let mut file = std::fs::OpenOptions::new().write(true).create_new(true).mode(mode).open(&to)?;
        std::io::Write::write_all(&mut file, &text)?;
    }
    Ok(target)
}

fn failure(error: PkiError) -> anyhow::Error {
    let exit = match &error {
        PkiError::NoAuthority { .. } | PkiError::Unknown { .. } => Exit::NotFound,
        PkiError::Exists { .. } | PkiError::Issued { .. } => Exit::Refused,
        PkiError::Identity(_) | PkiError::BadAddress { .. } => Exit::Usage,
        PkiError::Damaged { .. } => Exit::BadInput,
        PkiError::Io { source, .. } if source.kind() == std::io::ErrorKind::PermissionDenied => Exit::Refused,
        _ => Exit::Internal,
    };
    Failure::new(exit, error)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_taken_as_they_stand_in_a_configuration() {
        for (given, taken) in [
            ("10.0.0.11", "10.0.0.11"),
            ("10.0.0.11:4602", "10.0.0.11"),
            ("[2001:db8::1]:4602", "2001:db8::1"),
            ("2001:db8::1", "2001:db8::1"),
            ("s1.example.org:4602", "s1.example.org"),
            ("s1", "s1"),
        ] {
            assert_eq!(without_port(given).unwrap(), taken);
        }
    }

    #[test]
    fn completions_offer_every_role() {
        assert_eq!(Role::ALL.map(|role| role.to_string()), ROLES);
    }
}
