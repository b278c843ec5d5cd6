//! The holder of a certificate: name and permissions.
//!
//! A certificate of fibula has one URI in its subject alternative names (RFC 5280, section 4.2.1.6). Any public key
//! infrastructure can make one:
//!
//! | URI | holder of the certificate |
//! |---|---|
//! | `fibula://controller/NAME` | a controller |
//! | `fibula://switch/NAME` | the switch that the controller knows as NAME |
//! | `fibula://operator/NAME?role=ROLE` | an operator or a program; ROLE is `reader`, `writer` or `admin` |

use fib::name::{clip, is_label};
use std::fmt::{self, Display, Formatter};
use std::net::IpAddr;
use std::str::FromStr;
use x509_parser::certificate::X509Certificate;
use x509_parser::extensions::GeneralName;
use x509_parser::prelude::FromDer;

const SCHEME: &str = "fibula://";

/// Names of peers without a certificate in messages: no operator can have one of these as a name.
const NOBODY: [&str; 3] = [UNNAMED, LOOPBACK, ANYONE];
/// A holder of a certificate without a name.
pub(crate) const UNNAMED: &str = "unnamed";
/// A process of this machine, without certificates.
pub(crate) const LOOPBACK: &str = "loopback";
/// Anyone, without certificates.
pub(crate) const ANYONE: &str = "anyone";

/// The permissions of an operator; each role includes those before it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Role {
    /// Read names, hosts, links, switches, flows, status and metrics.
    Reader,
    /// Change names, hosts and links.
    Writer,
    /// Everything else: add and remove switches, change flows and servers.
    Admin,
}

impl Role {
    /// All roles.
    pub const ALL: [Role; 3] = [Role::Reader, Role::Writer, Role::Admin];
}

impl Display for Role {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Role::Reader => "reader",
            Role::Writer => "writer",
            Role::Admin => "admin",
        })
    }
}

impl FromStr for Role {
    type Err = IdentityError;

    fn from_str(text: &str) -> Result<Self, IdentityError> {
        let role = Role::ALL.into_iter().find(|role| role.to_string() == text);
        role.ok_or_else(|| IdentityError::Role { got: clip(text) })
    }
}

/// Kinds of holders.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Kind {
    /// A controller.
    Controller,
    /// A switch.
    Switch,
    /// An operator, with a role.
    Operator(Role),
}

impl Kind {
    /// The word for it in a URI.
    pub fn word(self) -> &'static str {
        match self {
            Kind::Controller => "controller",
            Kind::Switch => "switch",
            Kind::Operator(_) => "operator",
        }
    }

    /// The role of an operator.
    pub fn role(self) -> Option<Role> {
        match self {
            Kind::Operator(role) => Some(role),
            _ => None,
        }
    }
}

/// The identity in a certificate.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Identity {
    kind: Kind,
    name: String,
}

/// Reasons why a certificate has no identity.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum IdentityError {
    /// Not a certificate.
    #[error("it is not an X.509 certificate ({reason}); `fibula pki issue` makes one")]
    NotACertificate {
        /// What the parser says.
        reason: String,
    },
    /// No URI of ours.
    #[error(
        "its alternative names have no URI that starts with fibula://; issue it with `fibula pki issue`, or with a URI such as fibula://switch/s1"
    )]
    NoUri,
    /// More than one.
    #[error("its alternative names have {n} URIs that start with fibula://; issue it with one")]
    TwoUris {
        /// How many.
        n: usize,
    },
    /// A URI of another form.
    #[error(
        "`{uri}` has the wrong form; write fibula://controller/NAME, fibula://switch/NAME or fibula://operator/NAME?role=ROLE"
    )]
    BadUri {
        /// As it is in the certificate.
        uri: String,
    },
    /// An unknown role.
    #[error("`{got}` is not a role; the roles are reader, writer and admin")]
    Role {
        /// As given.
        got: String,
    },
    /// An invalid name of a switch.
    #[error(
        "`{got}` is not a valid name: use 1 to 63 letters, digits, `-`, `_` and `.`, without `-` or `.` at the beginning"
    )]
    Name {
        /// As given.
        got: String,
    },
    /// The audit trail uses this word for peers without a certificate.
    #[error("`{got}` is what the audit trail calls peers without a name; choose another name")]
    Nobody {
        /// As given.
        got: String,
    },
}

impl Identity {
    /// An identity with this name.
    /// # Errors
    /// [`IdentityError::Name`], [`IdentityError::Nobody`].
    pub fn new(kind: Kind, name: &str) -> Result<Self, IdentityError> {
        if !is_label(name) {
            return Err(IdentityError::Name { got: clip(name) });
        }
        if NOBODY.iter().any(|word| word.eq_ignore_ascii_case(name)) {
            return Err(IdentityError::Nobody { got: name.to_owned() });
        }
        Ok(Self { kind, name: name.to_owned() })
    }

    /// Its kind.
    pub fn kind(&self) -> Kind {
        self.kind
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The URI that names it in a certificate.
    pub fn uri(&self) -> String {
        let role = self.kind.role().map(|role| format!("?role={role}")).unwrap_or_default();
        format!("{SCHEME}{}/{}{role}", self.kind.word(), self.name)
    }
}

impl Display for Identity {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.kind.word(), self.name)?;
        self.kind.role().map_or(Ok(()), |role| write!(f, " ({role})"))
    }
}

impl FromStr for Identity {
    type Err = IdentityError;

    /// Reads a URI.
    fn from_str(uri: &str) -> Result<Self, IdentityError> {
        let bad = || IdentityError::BadUri { uri: clip(uri) };
        let (kind, name) = uri.strip_prefix(SCHEME).and_then(|rest| rest.split_once('/')).ok_or_else(bad)?;
        let (kind, name) = match (kind, name.split_once('?')) {
            ("controller", None) => (Kind::Controller, name),
            ("switch", None) => (Kind::Switch, name),
            ("operator", Some((name, query))) => {
                (Kind::Operator(query.strip_prefix("role=").ok_or_else(bad)?.parse()?), name)
            }
            _ => return Err(bad()),
        };
        Identity::new(kind, name)
    }
}

/// The contents of a certificate.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Certificate {
    /// Its holder.
    pub identity: Identity,
    /// Its serial number, in hexadecimal.
    pub serial: String,
    /// From when it is valid, in seconds since 1970.
    pub not_before: i64,
    /// Until when.
    pub not_after: i64,
    /// The host names and IP addresses that it is for, as text.
    pub addresses: Vec<String>,
}

impl Certificate {
    /// Parses a certificate in DER. It does not verify the signature.
    /// # Errors
    /// [`IdentityError`].
    pub fn parse(der: &[u8]) -> Result<Self, IdentityError> {
        let not = |e: &dyn Display| IdentityError::NotACertificate { reason: e.to_string() };
        let (_, parsed) = X509Certificate::from_der(der).map_err(|e| not(&e))?;
        let names = parsed.subject_alternative_name().map_err(|e| not(&e))?;
        let names = names.map(|names| &names.value.general_names[..]).unwrap_or_default();
        let mut addresses = Vec::new();
        let mut uris = Vec::new();
        for name in names {
            match name {
                GeneralName::URI(uri) if uri.starts_with(SCHEME) => uris.push(*uri),
                GeneralName::DNSName(name) => addresses.push((*name).to_owned()),
                GeneralName::IPAddress(bytes) => addresses.extend(ip(bytes).map(|ip| ip.to_string())),
                _ => {}
            }
        }
        let uri = match uris[..] {
            [] => return Err(IdentityError::NoUri),
            [uri] => uri,
            _ => return Err(IdentityError::TwoUris { n: uris.len() }),
        };
        let validity = parsed.validity();
        Ok(Self {
            identity: uri.parse()?,
            serial: hex(parsed.raw_serial()),
            not_before: validity.not_before.timestamp(),
            not_after: validity.not_after.timestamp(),
            addresses,
        })
    }
}

fn ip(bytes: &[u8]) -> Option<IpAddr> {
    match bytes.len() {
        4 => <[u8; 4]>::try_from(bytes).ok().map(IpAddr::from),
        16 => <[u8; 16]>::try_from(bytes).ok().map(IpAddr::from),
        _ => None,
    }
}

/// Bytes as hexadecimal digits, without leading zero bytes.
pub(crate) fn hex(bytes: &[u8]) -> String {
    let first = bytes.iter().position(|&byte| byte != 0).unwrap_or(bytes.len());
    bytes[first..].iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::address::Origin;
    use crate::gate::{Peer, Who};

    #[test]
    fn uris_are_read_as_they_are_written() {
        for (uri, said) in [
            ("fibula://controller/c1", "controller c1"),
            ("fibula://switch/rack-7.s1", "switch rack-7.s1"),
            ("fibula://operator/alice?role=reader", "operator alice (reader)"),
            ("fibula://operator/etl?role=admin", "operator etl (admin)"),
        ] {
            let identity: Identity = uri.parse().unwrap();
            assert_eq!((identity.uri().as_str(), identity.to_string().as_str()), (uri, said));
        }
    }

    #[test]
    fn other_uris_name_nobody() {
        for uri in [
            "fibula://switch/",
            "fibula://switch/-s",
            "fibula://switch/s1/s2",
            "fibula://switch/s1?role=admin",
            "fibula://operator/alice",
            "fibula://operator/alice?role=root",
            "fibula://operator/alice?role=",
            "fibula://operator/alice?role=reader&role=admin",
            "fibula://operator/?role=admin",
            "fibula://operator/a b?role=admin",
            "fibula://host/h1",
            "fibula:///s1",
            "https://switch/s1",
        ] {
            assert!(uri.parse::<Identity>().is_err(), "{uri}");
        }
        assert!(Identity::new(Kind::Switch, &"s".repeat(63)).is_ok());
        assert!(Identity::new(Kind::Switch, &"s".repeat(64)).is_err());
    }

    #[test]
    fn nobody_is_called_what_the_audit_trail_calls_those_without_a_name() {
        for name in ["loopback", "anyone", "unnamed", "Loopback", "ANYONE"] {
            let refused = format!("fibula://operator/{name}?role=admin").parse::<Identity>();
            assert_eq!(refused, Err(IdentityError::Nobody { got: name.to_owned() }));
        }
        // Peers without a name are called so.
        let peers = [Who::Loopback, Who::Anyone, Who::Unnamed { reason: String::new() }, Who::user(0)];
        for who in peers {
            let peer = Peer::new(who, Origin::Tcp(([127, 0, 0, 1], 7).into()));
            assert!(Identity::new(Kind::Operator(Role::Admin), peer.name()).is_err(), "{}", peer.name());
        }
    }

    #[test]
    fn roles_are_in_the_order_of_their_rights() {
        assert!(Role::Reader < Role::Writer && Role::Writer < Role::Admin);
        assert!(Role::ALL.iter().all(|role| role.to_string().parse() == Ok(*role)));
    }
}
