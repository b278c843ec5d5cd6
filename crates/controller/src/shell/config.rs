//! `controller.toml`.

pub use crate::core::Auto;
pub use crate::core::pace::Rates;
pub use crate::store::Place;

use crate::core::{groups, learning};
use crate::store::EtcdTls;
use api::address::Address;
use api::config::ConfigError;
use api::gate::check_address;
use api::limits::Limits;
use api::tls::Files;
use fib::designs::{CONCISE, Design, Guard};
use fib::messages::ValueMode;
use fib::name::NameKind;
use fib::network;
use lookup::hash::{Family, SecretKey};
use serde::{Deserialize, Deserializer};
use std::fmt::Display;
use std::path::{Path, PathBuf};
use std::str::FromStr;

/// The section `[design]`: parameters of tables.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Tables {
    /// The share of alien names that may get an action from a table, 0 for none. The gateway design must be able to hold
    /// it, and so must the core design, unless it recognises no aliens at all. If absent, fingerprints are as long as
    /// suits the values, and those of a table that is there stay.
    pub fp: Option<f64>,
    /// The guard that recognises alien names, round the gateway design. If absent, a checksum where `fp` is given and the design gives
    /// aliens any action.
    #[serde(deserialize_with = "some_from_text")]
    pub aliens: Option<Guard>,
}

/// A collector of OpenTelemetry that takes OTLP over gRPC, as its URL says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Collector {
    /// `HOST:PORT`.
    pub member: String,
    /// Whether it is reached with TLS.
    pub has_tls: bool,
}

impl FromStr for Collector {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let parts = text.split_once("://").map(|(scheme, rest)| (scheme, rest.trim_end_matches('/')));
        let is_member = |member: &str| {
            member.rsplit_once(':').is_some_and(|(host, port)| !host.is_empty() && port.parse::<u16>().is_ok())
                && format!("http://{member}").parse::<tonic::transport::Uri>().is_ok()
        };
        match parts {
            Some((scheme @ ("http" | "https"), member)) if is_member(member) => {
                Ok(Collector { member: member.to_owned(), has_tls: scheme == "https" })
            }
            _ => Err(format!(
                "otlp = {text:?} is not a collector; write it like http://127.0.0.1:4317, or https:// with ca"
            )),
        }
    }
}

/// The section `[telemetry]`: where traces of changes go.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Telemetry {
    /// The collector.
    #[serde(deserialize_with = "from_text")]
    pub otlp: Collector,
    /// The share of changes that are traced, 0 to 1.
    #[serde(default = "default_ratio")]
    pub ratio: f64,
    /// The authority of the collector's certificate, for https.
    pub ca: Option<PathBuf>,
    /// Our certificate, where the collector asks for one, and its key.
    pub cert: Option<PathBuf>,
    /// See `cert`.
    pub key: Option<PathBuf>,
}

impl Telemetry {
    fn check(&self) -> Result<(), String> {
        let Telemetry { otlp, ratio, ca, cert, key } = self;
        if otlp.has_tls != ca.is_some() {
            return Err(
                "[telemetry] needs ca for a collector with https, and must not have it with http; write both, or none"
                    .to_owned(),
            );
        }
        if cert.is_some() != key.is_some() || cert.is_some() && ca.is_none() {
            return Err("[telemetry] needs cert and key together, and with ca; write all three, or only ca".to_owned());
        }
        if !(0.0..=1.0).contains(ratio) {
            return Err(format!("telemetry.ratio = {ratio} is out of range; write 0 to 1"));
        }
        Ok(())
    }
}

/// What the page for browsers lets its users do.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Dashboard {
    /// There is no page.
    Off,
    /// Users can look.
    #[default]
    Read,
    /// Users can also change what they may change by command.
    Change,
}

/// The configuration of a controller. Unknown keys are errors.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Config {
    /// Where gRPC listens, for operators and switches alike.
    pub listen: Address,
    /// Where the store is: a file, which is created if missing, or etcd.
    #[serde(deserialize_with = "from_text")]
    pub store: Place,
    /// The certificates for etcd; without them the connections to it are open.
    pub etcd: Option<EtcdTls>,
    /// Where `/metrics` and `/status` listen, and the page for browsers; none if absent.
    pub status: Option<Address>,
    /// The filter of the log, unless `FIBULA_LOG` or `-v` says another.
    pub log: Option<String>,
    /// The mode of the page: off, read or change.
    #[serde(default)]
    pub dashboard: Dashboard,
    /// The controller's certificate, and the authority of those it accepts; required at addresses that other machines reach.
    pub tls: Option<Files>,
    /// Whether to listen there without certificates.
    #[serde(default)]
    pub insecure: bool,
    /// Whether to serve `/metrics` and `/status` to all clients, without certificates.
    #[serde(default)]
    pub metrics_open: bool,
    /// The record of changes.
    #[serde(default)]
    pub audit: api::audit::Settings,
    /// The meaning of a FIB's values: `port` or `egress`. Fixed at the first start.
    #[serde(default = "default_value_mode", deserialize_with = "from_text")]
    pub value_mode: ValueMode,
    /// The kind of name: mac, ipv4, ipv6, five-tuple, teid, fixed:N, text. Fixed at the first start.
    #[serde(deserialize_with = "from_text")]
    pub name_kind: NameKind,
    /// The digest family: muladd, wy, siphash13 or crc32c. Fixed at the first start.
    #[serde(default = "default_family", deserialize_with = "from_text")]
    pub hash: Family,
    /// Bits per value, 1 to 16: at most 2^bits - 1 different actions per switch. Fixed at the first start.
    #[serde(default = "default_value_bits")]
    pub value_bits: u8,
    /// The FIB design of switches with host ports, by name.
    #[serde(default = "default_design", deserialize_with = "from_text")]
    pub gateway_design: &'static Design,
    /// The FIB design of the other switches.
    #[serde(default = "default_design", deserialize_with = "from_text")]
    pub core_design: &'static Design,
    /// The parameters of tables.
    #[serde(default)]
    pub design: Tables,
    /// The most names that the controller accepts.
    pub max_names: usize,
    /// Bytes that may wait for one switch. A switch that falls further behind is sent nothing more until it has caught
    /// up; then it is sent what it lacks by that time, once.
    #[serde(default = "default_backlog")]
    pub switch_backlog_bytes: usize,
    /// The longest time, in milliseconds, that a phase of a change waits for the switches of the previous one.
    #[serde(default = "default_phase_timeout")]
    pub phase_timeout_ms: u64,
    /// What to do with undeclared cables between switches: off, confirm or on.
    #[serde(default)]
    pub auto_links: Auto,
    /// What to do with unknown switches: off, confirm or on.
    #[serde(default)]
    pub auto_switches: Auto,
    /// Limits of learning hosts.
    #[serde(default)]
    pub learn: learning::Settings,
    /// Delivery of broadcasts and multicasts.
    #[serde(default)]
    pub groups: groups::Settings,
    /// Where traces of changes go; nowhere if absent.
    pub telemetry: Option<Telemetry>,
    /// Limits of peers' resources.
    #[serde(default)]
    pub limits: Limits,
    /// Limits on how often peers may cause work that delays everyone else.
    #[serde(default)]
    pub rates: Rates,
}

/// Bytes of a report besides its parts.
const REPORT_BYTES: usize = 64 << 10;

impl Config {
    /// The most bytes of a message from a switch: what a table of `max_names` can need to be reported. A part takes 21
    /// bytes, and there are at most 8 parts for every thousand names. What hosts want of multicasts is said separately, even by a switch
    /// that another controller, or another configuration, had ask for it.
    pub fn report_bytes(&self) -> usize {
        (REPORT_BYTES + api::groups::MOST_BYTES + self.max_names / 4).min(self.limits.message_bytes)
    }

    /// Reads and validates the file.
    /// # Errors
    /// [`ConfigError`], with line and column where they are known.
    pub fn load(path: &Path) -> Result<Self, ConfigError> {
        api::config::load(path, Self::parse)
    }

    /// Parses and validates the text of a file.
    /// # Errors
    /// Where and what is wrong.
    pub fn parse(text: &str) -> Result<Self, String> {
        let config: Config = toml::from_str(text).map_err(|e| e.to_string())?;
        let limit = |name: &str, value: u64, min: u64, max: u64| {
            (min..=max)
                .contains(&value)
                .then_some(())
                .ok_or(format!("{name} = {value} is out of range; write {min} to {max}"))
        };
        if config.etcd.is_some() && !matches!(config.store, Place::Etcd(_)) {
            return Err(
                "there is [etcd], but store is a file; write store = \"etcd://HOST:PORT/PREFIX\", or remove [etcd]"
                    .to_owned(),
            );
        }
        if config.etcd.as_ref().is_some_and(|tls| tls.cert.is_some() != tls.key.is_some()) {
            return Err(
                "[etcd] names one of cert and key; write both, or none where etcd asks for no certificate".to_owned()
            );
        }
        if matches!(config.store, Place::Etcd(_)) && config.audit.file.is_none() {
            return Err("with a store in etcd, the audit trail has no default file; write [audit] file = \"/var/lib/fibula/controller/audit.jsonl\"".to_owned());
        }
        if let Some(status) = config.status.as_ref().filter(|status| status.overlaps(&config.listen)) {
            let listen = &config.listen;
            return Err(format!("status = {status} is the address of listen = {listen}; give it another port or path"));
        }
        limit("max_names", config.max_names as u64, 1, 1 << 32)?;
        limit("value_bits", config.value_bits.into(), 1, 16)?;
        if let Some(guard) = config.design.aliens {
            config.gateway_design.guarded(guard).map_err(|error| format!("design.aliens: {error}"))?;
        }
        config.network(0, SecretKey::from_seed(0)).check_rate().map_err(|error| format!("design.fp: {error}"))?;
        limit("switch_backlog_bytes", config.switch_backlog_bytes as u64, 1 << 16, 1 << 40)?;
        limit("phase_timeout_ms", config.phase_timeout_ms, 1, 60_000)?;
        config.limits.check()?;
        limit("rates.reports_per_minute", config.rates.reports_per_minute.into(), 1, 60_000)?;
        config.audit.check()?;
        config.groups.check(config.name_kind == NameKind::Mac)?;
        config.telemetry.as_ref().map_or(Ok(()), Telemetry::check)?;
        if let Some(files) = &config.tls {
            files.paths()?;
        }
        check_address("listen", &config.listen, config.tls.is_some(), config.insecure)?;
        if let Some(status) = &config.status {
            check_address("status", status, config.tls.is_some() || config.metrics_open, config.insecure)?;
        }
        Ok(config)
    }

    /// The gateways' design, with the guard that recognises aliens round it.
    fn gateway(&self) -> &'static Design {
        let design = self.gateway_design;
        match (self.design.aliens, self.design.fp) {
            // Whether it can have this guard was checked when the file was read.
            (Some(guard), _) => design.guarded(guard).unwrap_or(design),
            (None, Some(_)) => design.recognising(),
            (None, None) => design,
        }
    }

    /// The settings of the network, if it is new: of this cluster and with this hash key.
    pub fn network(&self, cluster: u64, key: SecretKey) -> network::Settings {
        network::Settings {
            cluster,
            mode: self.value_mode,
            kind: self.name_kind,
            family: self.hash,
            key,
            value_bits: self.value_bits,
            max_names: self.max_names,
            threads: std::thread::available_parallelism().map_or(1, std::num::NonZero::get),
            gateway: self.gateway(),
            core: self.core_design,
            false_positives: self.design.fp,
        }
    }

    /// The file that changes are recorded in: by default beside the store.
    pub fn audit_path(&self) -> PathBuf {
        let beside = match &self.store {
            Place::File(path) => path.with_extension("audit.jsonl"),
            Place::Etcd(_) => PathBuf::from("audit.jsonl"),
        };
        self.audit.file.clone().unwrap_or(beside)
    }
}

/// Whether a configuration names a design that only `fibula-lab` has, round the gateways' design or alone.
pub fn names_laboratory(text: &str) -> bool {
    let table: toml::Table = toml::from_str(text).unwrap_or_default();
    let text = |value: Option<&toml::Value>| value.and_then(toml::Value::as_str).map(str::to_owned);
    let design = |key| text(table.get(key)).map(|name| Design::by_name(&name)).unwrap_or(Ok(default_design()));
    let is_elsewhere = |key| design(key).is_err_and(|error| error.is_in_laboratory());
    let guard = text(table.get("design").and_then(|section| section.get("aliens"))).and_then(|name| name.parse().ok());
    let is_guarded_elsewhere = |guard: Guard| {
        design("gateway_design").is_ok_and(|design| design.guarded(guard).is_err_and(|error| error.is_in_laboratory()))
    };
    is_elsewhere("gateway_design") || is_elsewhere("core_design") || guard.is_some_and(is_guarded_elsewhere)
}

fn default_value_mode() -> ValueMode {
    ValueMode::Port
}

fn default_family() -> Family {
    Family::MulAdd
}

fn default_value_bits() -> u8 {
    8
}

fn default_design() -> &'static Design {
    &CONCISE
}

fn default_backlog() -> usize {
    32 << 20
}

fn default_ratio() -> f64 {
    1.0
}

fn default_phase_timeout() -> u64 {
    1_000
}

fn from_text<'de, D: Deserializer<'de>, T: FromStr<Err: Display>>(deserializer: D) -> Result<T, D::Error> {
    String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
}

fn some_from_text<'de, D: Deserializer<'de>, T: FromStr<Err: Display>>(deserializer: D) -> Result<Option<T>, D::Error> {
    from_text(deserializer).map(Some)
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str = "listen = '127.0.0.1:4600'\nstore = '/tmp/x'\nname_kind = 'mac'\nmax_names = 1000\n";

    #[test]
    fn short_file_is_filled_with_defaults() {
        let config = Config::parse(GOOD).unwrap();
        assert_eq!((config.name_kind, config.value_mode, config.value_bits), (NameKind::Mac, ValueMode::Port, 8));
        assert_eq!((config.status, config.dashboard), (None, Dashboard::Read));
    }

    #[test]
    fn wrong_files_are_refused_with_the_reason() {
        let cases = [
            ("max_name = 5\n", "max_name"),
            ("value_mode = 'ports'\n", "ports"),
            ("value_bits = 17\n", "17"),
            ("hash = 'md5'\n", "md5"),
            ("core_design = 'tcam'\n", "tcam"),
            ("phase_timeout_ms = 0\n", "phase_timeout_ms"),
            ("[limits]\nconnection = 3\n", "connection"),
            ("[limits]\nstreams = 0\n", "limits.streams = 0"),
            ("[rates]\nreports_per_minute = 0\n", "rates.reports_per_minute = 0"),
            ("dashboard = 'on'\n", "`off`, `read`, `change`"),
            ("status = '127.0.0.1:4600'\n", "another port"),
            ("status = '0.0.0.0:4600'\n", "another port"),
            ("status = 'unix:status.sock'\n", "no absolute path"),
            ("[tls]\ncert = 'c.pem'\n", "names no key"),
            ("[audit]\nkeep = 0\n", "keep = 1"),
            ("[groups]\ntenants = [0]\nmax_names = 1\n", "groups.max_names = 1"),
            ("[telemetry]\notlp = '127.0.0.1:4317'\n", "like http://127.0.0.1:4317"),
            ("[telemetry]\notlp = 'http://nowhere'\n", "like http://127.0.0.1:4317"),
            ("[telemetry]\notlp = 'https://a:4317'\n", "needs ca"),
            ("[telemetry]\notlp = 'http://a:4317'\nca = 'ca.pem'\n", "must not have it"),
            ("[telemetry]\notlp = 'https://a:4317'\nca = 'a'\ncert = 'b'\n", "cert and key together"),
            ("[telemetry]\notlp = 'http://a:4317'\nratio = 1.5\n", "telemetry.ratio = 1.5"),
        ];
        for (line, reason) in cases {
            let message = Config::parse(&format!("{GOOD}{line}")).unwrap_err();
            assert!(message.contains(reason), "{line}: {message}");
        }
        assert!(Config::parse("listen = '127.0.0.1:4600'").unwrap_err().contains("missing field"));
        assert!(Config::parse(&GOOD.replace("/tmp/x", "")).unwrap_err().contains("store is empty"));
        assert!(Config::parse(&format!("{GOOD}[etcd]\nca = 'ca.pem'\n")).unwrap_err().contains("store is a file"));
        let etcd = GOOD.replace("/tmp/x", "etcd://a:2379,b:2379/site");
        let audit = "[audit]\nfile = '/tmp/audit.jsonl'\n";
        for (text, reason) in [
            (etcd.clone(), "audit trail"),
            (etcd.replace("/site", ""), "has no prefix"),
            (format!("{etcd}{audit}[etcd]\nca = 'ca.pem'\ncert = 'cert.pem'\n"), "one of cert and key"),
        ] {
            let message = Config::parse(&text).unwrap_err();
            assert!(message.contains(reason), "{text}: {message}");
        }
        let Place::Etcd(address) = Config::parse(&format!("{etcd}{audit}[etcd]\nca = 'ca.pem'\n")).unwrap().store
        else {
            panic!("it is in etcd");
        };
        assert_eq!((address.members.len(), &*address.prefix), (2, "site"));
    }

    #[test]
    fn other_machines_are_listened_to_with_certificates_or_insecure_alone() {
        let (open, inside) = (GOOD.replace("127.0.0.1", "0.0.0.0"), GOOD.replace("127.0.0.1", "[::1]"));
        for text in [open.clone(), format!("{inside}status = '10.0.0.1:4601'\n")] {
            let message = Config::parse(&text).unwrap_err();
            for command in ["fibula pki init", "fibula pki issue controller", "insecure = true"] {
                assert!(message.contains(command), "{message}");
            }
            Config::parse(&format!("{text}[tls]\ndir = '/etc/fibula/tls'\n")).unwrap();
            Config::parse(&format!("{text}insecure = true\n")).unwrap();
        }
        Config::parse(&format!("{inside}status = '10.0.0.1:4601'\nmetrics_open = true\n")).unwrap();
        let local = GOOD.replace("127.0.0.1:4600", "unix:/run/fibula/controller.sock");
        Config::parse(&format!("{local}status = 'unix:/run/fibula/status.sock?mode=0666'\n")).unwrap();
    }
}
