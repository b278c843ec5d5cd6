//! `switch.toml`.

mod bundles;
pub(super) mod dpdk;
mod links;
mod packets;
#[cfg(test)]
mod tests;

pub use super::driver::Driver;
use api::address::{Address, socket_path};
use api::config::ConfigError;
use api::gate::check_address;
use api::limits::Limits;
use api::tls::Files;
use dataplane::acl::AccessList;
use dataplane::alien::{Policy, Server};
use dataplane::bundle;
use dataplane::dhcp;
use dataplane::flow::Settings as FlowSettings;
use dataplane::flow::config::Section;
use dataplane::gateway;
use dataplane::groups::FRAMES_PER_SECOND;
use dataplane::learn::Learn;
use dataplane::mac::Mac;
use dataplane::maglev::MAX_WEIGHT;
use dataplane::parse::MAX_FIXED_OFFSET;
use dataplane::source::CheckSource;
use dataplane::subscriptions;
use fib::action::PortId;
use fib::name::{LABELS, clip, is_label};
pub use links::{Links, Lldp};
use serde::Deserialize;
use std::collections::{HashMap, HashSet};
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The configuration of a switch. Unknown keys are errors.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Config {
    /// The name the controller knows it by.
    pub name: String,
    /// The controller's URL, or `unix:` and the path of its socket; of several controllers, separated by commas.
    pub controller: String,
    /// The directory of the saved image; created if missing.
    pub state_dir: PathBuf,
    /// Threads that forward.
    #[serde(default = "default_workers")]
    pub workers: usize,
    /// Frames that each worker's ring has room for at a port with packet sockets, at least.
    #[serde(default = "packets::ring_frames")]
    pub ring_frames: usize,
    /// Milliseconds that a frame may have waited in such a ring while the switch restarted.
    #[serde(default = "packets::restart_wait_ms")]
    pub restart_wait_ms: u32,
    /// Where in a frame the names start, for names of kind `fixed:N`: bytes from the first byte of the destination
    /// address, in the frame as the host sent it.
    pub fixed_offset: Option<usize>,
    /// Our certificate, and whose we accept.
    pub tls: Option<Files>,
    /// Do without certificates even for connections to and from other machines.
    #[serde(default)]
    pub insecure: bool,
    /// Serve `/metrics` and `/status` to anyone, without certificates.
    #[serde(default)]
    pub metrics_open: bool,
    /// The filter of the log, unless `FIBULA_LOG` or `-v` says another.
    pub log: Option<String>,
    /// The audit trail of requests that operators send to the switch directly.
    #[serde(default)]
    pub audit: api::audit::Settings,
    /// Where `/metrics` and `/status` listen; none if absent.
    pub status: Option<Address>,
    /// Where programs ask which port a name is at, over gRPC and HTTP; none can if absent.
    pub lookup: Option<Address>,
    /// Where operators ask the switch itself: captures of frames; none can if absent.
    pub control: Option<Address>,
    /// The file in which other programs can read the table while it is served; none if absent. On a file system in memory.
    pub share: Option<PathBuf>,
    /// Bytes that the tables may have: what comes from the controller and is larger is refused.
    #[serde(default = "default_table_bytes")]
    pub max_table_bytes: usize,
    /// What peers of these listeners may take.
    #[serde(default)]
    pub limits: Limits,
    /// Connection tracking; none if absent.
    pub flow: Option<Section<Address>>,
    /// IP routing to networks outside; none if absent.
    pub gateway: Option<gateway::config::Section>,
    /// How frames of ports come, unless they say otherwise.
    #[serde(default)]
    pub driver: Driver,
    /// How trunks are watched.
    #[serde(default)]
    pub links: Links,
    /// What ports of DPDK have in common.
    #[serde(default)]
    pub dpdk: dpdk::Section,
    /// What host ports check of the sources of frames, unless they say otherwise.
    #[serde(default)]
    pub check_source: CheckSource,
    /// How to handle sources that are not names at a host port, unless the port says otherwise.
    #[serde(default)]
    pub learn: Learn,
    /// Seconds after which a silent learnt name is forgotten, unless a port says otherwise; 0: never.
    #[serde(default)]
    pub learn_forget_s: u32,
    /// The MAC address of the DHCP server that hosts may ask, unless a port says otherwise; none if absent.
    #[serde(default, deserialize_with = "some_mac")]
    pub dhcp_server: Option<Mac>,
    /// Whether servers or relays of DHCP are at host ports, unless a port says otherwise. If neither says so, hosts may answer.
    pub dhcp_trusted: Option<bool>,
    /// Requests of DHCP that the hosts of a port may send a second, unless it says otherwise; 0: none.
    #[serde(default = "default_dhcp_requests")]
    pub dhcp_requests_per_second: u32,
    /// Broadcasts and multicasts that the hosts of a port may send a second, unless it says otherwise; 0: none. The controller
    /// decides who receives them.
    #[serde(default = "default_group_frames")]
    pub group_frames_per_second: u32,
    /// What hosts may say of the multicast groups that they want.
    #[serde(default)]
    pub subscriptions: subscriptions::Limits,
    /// What becomes of frames to names that the network does not know.
    #[serde(default)]
    pub alien: Alien,
    /// The port for them, with `alien = "punt"`.
    #[serde(default, deserialize_with = "some_port_id")]
    pub alien_port: Option<PortId>,
    /// The servers that they are spread over, with `alien = "spread"`.
    #[serde(default, rename = "alien_server")]
    pub alien_servers: Vec<AlienServer>,
    /// The ports; without any, a switch answers those programs only.
    #[serde(default, rename = "port")]
    pub ports: Vec<Port>,
}

/// One port.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Port {
    /// Its number, as links and hosts name it.
    #[serde(deserialize_with = "port_id")]
    pub id: PortId,
    /// The network interface; with `driver = "dpdk"`, a device as EAL writes it. Of a bundle, the members, with `+` in between.
    #[serde(default)]
    pub device: String,
    /// Its interfaces, if it has several.
    pub bundle: Option<bundle::config::Section>,
    /// What is attached to it.
    pub role: Role,
    /// How its frames come; as at the other ports if absent.
    pub driver: Option<Driver>,
    /// The file of rules that say which frames may enter; all may if absent. Not for trunks.
    pub acl: Option<PathBuf>,
    /// What is checked of the sources of frames; that of the switch if absent. For host ports only.
    pub check_source: Option<CheckSource>,
    /// How to handle sources that are not names there; as at the other ports if absent. For host ports only.
    pub learn: Option<Learn>,
    /// The MAC address of the DHCP server that its hosts may ask; as at the other ports if absent. For host ports only.
    #[serde(default, deserialize_with = "some_mac")]
    pub dhcp_server: Option<Mac>,
    /// Whether a server or a relay of DHCP is there; as at the other ports if absent. For host ports only.
    pub dhcp_trusted: Option<bool>,
    /// Requests of DHCP that its hosts may send a second; as at the other ports if absent. For host ports only.
    pub dhcp_requests_per_second: Option<u32>,
    /// Whether an IPv6 router is there: its advertisements are heard, and those of others are dropped. For host ports only.
    #[serde(default)]
    pub ra_trusted: bool,
    /// Broadcasts and multicasts that its hosts may send a second; as at the other ports if absent. For host ports only.
    pub group_frames_per_second: Option<u32>,
    /// What it does with LLDP; as the other ports if absent.
    pub lldp: Option<Lldp>,
    /// The tenant of names that are learnt there.
    #[serde(default)]
    pub learn_tenant: u32,
    /// How many names may be learnt there.
    #[serde(default = "default_learn_max")]
    pub learn_max: u32,
    /// Seconds after which a silent learnt name is forgotten; as at the other ports if absent.
    pub learn_forget_s: Option<u32>,
}

fn default_group_frames() -> u32 {
    FRAMES_PER_SECOND
}

fn default_dhcp_requests() -> u32 {
    dhcp::REQUESTS_PER_SECOND
}

fn default_learn_max() -> u32 {
    16
}

/// What is attached to a port.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    /// Hosts: plain Ethernet, checked at ingress and egress.
    Host,
    /// Another switch of the network.
    Trunk,
    /// Other IP networks, which the gateway routes to.
    Outside,
}

/// What becomes of frames to names that the network does not know.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Alien {
    /// They are dropped.
    #[default]
    Drop,
    /// They leave by `alien_port`.
    Punt,
    /// They leave to the servers, by weight and by the digest of the name.
    Spread,
}

/// A server for names that the network does not know.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AlienServer {
    /// The port that it is at.
    #[serde(deserialize_with = "port_id")]
    pub port: PortId,
    /// Its share, relative to the sum of all weights.
    #[serde(default = "default_weight")]
    pub weight: u16,
}

/// Access lists by their files.
pub type AccessLists = HashMap<PathBuf, Arc<AccessList>>;

/// A host that speaks now and then is not to be forgotten in between.
const LEAST_FORGET_S: u32 = 5;

/// More threads than this are a typing error.
const MAX_WORKERS: usize = 64;

/// No network fits into less.
const MIN_TABLE_BYTES: usize = 1 << 16;

impl Config {
    /// Reads and validates the file.
    /// # Errors
    /// [`ConfigError`], with line and column where there are.
    pub fn load(path: &Path) -> Result<Self, ConfigError> {
        api::config::load(path, Self::parse)
    }

    /// Parses and validates the text of a file.
    /// # Errors
    /// Where and what is wrong.
    pub fn parse(text: &str) -> Result<Self, String> {
        let mut config: Config = toml::from_str(text).map_err(|e| e.to_string())?;
        bundles::check(&mut config)?;
        if config.name.is_empty() {
            return Err("name is empty; write the name that the controller has for this switch".to_owned());
        }
        if !is_label(&config.name) {
            let name = clip(&config.name);
            return Err(format!("name = {name:?} is not a valid name of a switch; {LABELS}"));
        }
        if config.state_dir.as_os_str().is_empty() {
            return Err(
                "state_dir is empty; write a directory of its own, such as /var/lib/fibula/switch/s1".to_owned()
            );
        }
        config.check_trust()?;
        let control = config.flow.as_ref().and_then(|flow| flow.control.as_ref());
        let addresses = [config.lookup.as_ref(), config.status.as_ref(), config.control.as_ref(), control];
        let taken =
            |&address: &&Address| addresses.iter().flatten().filter(|other| other.overlaps(address)).count() > 1;
        if let Some(twice) = addresses.iter().flatten().find(|address| taken(address)) {
            return Err(format!(
                "two of lookup, status, control and flow.control have the address {twice}; give each another port or path"
            ));
        }
        if !(1..=MAX_WORKERS).contains(&config.workers) {
            return Err(format!("workers = {} is out of range; write 1 to {MAX_WORKERS}", config.workers));
        }
        config.subscriptions.check()?;
        packets::check(&config)?;
        if let Some(offset) = config.fixed_offset.filter(|&offset| offset > MAX_FIXED_OFFSET) {
            return Err(format!(
                "fixed_offset = {offset} is out of range; write 0 to {MAX_FIXED_OFFSET}, so that the longest field ends inside a frame"
            ));
        }
        if config.ports.is_empty() && config.lookup.is_none() && control.is_none() {
            let why =
                "there is no [[port]], so the switch has nothing to do; add one, or set lookup to answer programs only";
            return Err(why.to_owned());
        }
        let (mut ids, mut devices) = (HashSet::new(), HashSet::new());
        for port in &config.ports {
            if !ids.insert(port.id) {
                return Err(format!("two ports have the id {}; give each its own", port.id));
            }
            let is_dpdk = config.driver_of(port) == Driver::Dpdk;
            if is_dpdk && !dpdk::is_device(&port.device) {
                return Err(format!(
                    "device = {:?} is not a device of DPDK; write it like \"net_af_packet0,iface=eth7\" or \"0000:03:00.0\"",
                    port.device
                ));
            }
            if !is_dpdk && port.bundle.is_none() && !is_device_name(&port.device) {
                return Err(format!(
                    "device = {:?} is not the name of an interface; write 1 to {MAX_DEVICE_NAME} letters, digits and - _ . @",
                    port.device
                ));
            }
            if port.check_source.is_some() && port.role != Role::Host {
                return Err(format!(
                    "port {} has check_source, which is for ports with role = \"host\"; remove it",
                    port.id
                ));
            }
            if port.learn.is_some_and(|learn| learn != Learn::Off) && port.role != Role::Host {
                return Err(format!("port {} has learn, which is for ports with role = \"host\"; remove it", port.id));
            }
            let of_hosts = [
                ("dhcp_server", port.dhcp_server.is_some()),
                ("dhcp_trusted", port.dhcp_trusted.is_some()),
                ("dhcp_requests_per_second", port.dhcp_requests_per_second.is_some()),
                ("ra_trusted", port.ra_trusted),
            ];
            if let Some((key, _)) = of_hosts.into_iter().find(|(_, is_there)| *is_there && port.role != Role::Host) {
                let id = port.id;
                return Err(format!("port {id} has {key}, which is for ports with role = \"host\"; remove it"));
            }
            if port.group_frames_per_second.is_some() && port.role != Role::Host {
                return Err(format!(
                    "port {} has group_frames_per_second, which is for ports with role = \"host\"; remove it",
                    port.id
                ));
            }
            if config.learn_at(port) != Learn::Off && config.check_source_at(port) == CheckSource::Off {
                return Err(format!(
                    "port {} learns, and check_source = \"off\" there: what is not checked is not seen; write check_source = \"mac\"",
                    port.id
                ));
            }
            let forget_s = config.learn_forget_at(port);
            if forget_s > 0 && (forget_s < LEAST_FORGET_S || config.check_source_at(port) != CheckSource::Mac) {
                return Err(format!(
                    "port {} has learn_forget_s = {forget_s}; write {LEAST_FORGET_S} or more, and check_source = \"mac\", or 0 to \
                     forget no names",
                    port.id
                ));
            }
            if port.acl.is_some() && port.role == Role::Trunk {
                return Err(format!(
                    "port {} has acl, which is for ports with role = \"host\" or \"outside\": frames from a trunk \
                     were checked where they entered; remove it",
                    port.id
                ));
            }
            // Behind the comma are arguments of DPDK.
            let mut names = port.devices().filter_map(|device| device.split(',').next());
            if let Some(device) = names.find(|device| !devices.insert(*device)) {
                return Err(format!("two ports have the device {device}; give each its own"));
            }
        }
        if config.max_table_bytes < MIN_TABLE_BYTES {
            let given = config.max_table_bytes;
            return Err(format!("max_table_bytes = {given} is out of range; write {MIN_TABLE_BYTES} or more"));
        }
        if let Some(path) = &config.share
            && (path.file_name().is_none() || !path.parent().is_some_and(Path::is_dir))
        {
            return Err(format!(
                "share = {:?} is not a file in an existing folder; create the folder, or choose a file such as /dev/shm/{}.table",
                path.display(),
                config.name
            ));
        }
        if config.share.is_some() && !config.kernel_ports()[0].is_empty() {
            let why = "share and driver = \"xdp\" each decide where the table is, and there is only one table; remove one of them";
            return Err(why.to_owned());
        }
        config.limits.check()?;
        config.links.check()?;
        config.flow_settings()?;
        config.gateway_settings()?;
        config.aliens()?;
        config.access_lists()?;
        dpdk::check(&config)?;
        Ok(config)
    }

    /// How the frames of a port come.
    pub fn driver_of(&self, port: &Port) -> Driver {
        port.driver.unwrap_or(self.driver)
    }

    /// The trunks whose frames the kernel is to forward, and the ports of hosts that it is to send them to. None if there is
    /// no such trunk, or if connections are tracked, for which the workers must see every frame.
    pub fn kernel_ports(&self) -> [Vec<PortId>; 2] {
        let of = |role| {
            let is_for = |port: &&Port| port.role == role && self.driver_of(port) == Driver::Xdp;
            self.ports.iter().filter(is_for).map(|port| port.id).collect::<Vec<_>>()
        };
        let [trunks, hosts] = [Role::Trunk, Role::Host].map(of);
        if self.flow.is_some() || trunks.is_empty() { Default::default() } else { [trunks, hosts] }
    }

    /// What becomes of frames to names that the network does not know.
    /// # Errors
    /// What is wrong with `alien`, `alien_port` and `[[alien_server]]`.
    pub fn aliens(&self) -> Result<Policy, String> {
        let is_at_host = |port: PortId| self.ports.iter().any(|other| other.id == port && other.role == Role::Host);
        if self.alien != Alien::Punt && self.alien_port.is_some() {
            return Err("alien_port is for alien = \"punt\"; write that, or remove alien_port".to_owned());
        }
        if self.alien != Alien::Spread && !self.alien_servers.is_empty() {
            return Err("[[alien_server]] is for alien = \"spread\"; write that, or remove the servers".to_owned());
        }
        match self.alien {
            Alien::Drop => Ok(Policy::Drop),
            Alien::Punt => match self.alien_port {
                None => {
                    Err("alien = \"punt\" needs alien_port; write the id of a [[port]] with role = \"host\"".to_owned())
                }
                Some(port) if !is_at_host(port) => {
                    Err(format!("alien_port = {port} is not a [[port]] with role = \"host\"; write the id of one"))
                }
                Some(port) => Ok(Policy::Punt(port)),
            },
            Alien::Spread => {
                let mut ids = HashSet::new();
                for AlienServer { port, weight } in &self.alien_servers {
                    if !is_at_host(*port) {
                        return Err(format!(
                            "an [[alien_server]] has port = {port}, which is not a [[port]] with role = \"host\"; write the id of one"
                        ));
                    }
                    if !ids.insert(port) {
                        return Err(format!(
                            "two [[alien_server]] have port = {port}; give one of them the sum of the weights"
                        ));
                    }
                    if *weight > MAX_WEIGHT {
                        return Err(format!("[[alien_server]] {port} has weight = {weight}; write 0 to {MAX_WEIGHT}"));
                    }
                }
                if self.alien_servers.iter().all(|server| server.weight == 0) {
                    let why = "alien = \"spread\" needs servers; write [[alien_server]] with port = ID and weight = 1";
                    return Err(why.to_owned());
                }
                let server = |&AlienServer { port, weight }: &AlienServer| Server { port, weight };
                Ok(Policy::Spread(self.alien_servers.iter().map(server).collect()))
            }
        }
    }

    /// The access lists of all ports, by their files. Reads these.
    /// # Errors
    /// What is wrong with a file, and at which line.
    pub fn access_lists(&self) -> Result<AccessLists, String> {
        let mut lists = AccessLists::new();
        for port in &self.ports {
            if let Some(path) = port.acl.as_deref()
                && !lists.contains_key(path)
            {
                let list = AccessList::open(path).map_err(|error| format!("acl of port {}: {error}", port.id))?;
                lists.insert(path.to_owned(), list);
            }
        }
        Ok(lists)
    }

    /// What is checked of the sources of frames at a port.
    pub fn check_source_at(&self, port: &Port) -> CheckSource {
        match port.role {
            Role::Host => port.check_source.unwrap_or(self.check_source),
            Role::Trunk | Role::Outside => CheckSource::Off,
        }
    }

    /// Seconds after which a silent name that was learnt at a port is forgotten; 0: never.
    pub fn learn_forget_at(&self, port: &Port) -> u32 {
        if self.learn_at(port) == Learn::Off { 0 } else { port.learn_forget_s.unwrap_or(self.learn_forget_s) }
    }

    /// The rules for DHCP of the hosts of a port.
    pub fn dhcp_at(&self, port: &Port) -> dhcp::Settings {
        dhcp::Settings {
            server: port.dhcp_server.or(self.dhcp_server),
            trusted: port.dhcp_trusted.or(self.dhcp_trusted),
            requests_per_second: port.dhcp_requests_per_second.unwrap_or(self.dhcp_requests_per_second),
        }
    }

    /// Broadcasts and multicasts that the hosts of a port may send a second.
    pub fn group_frames_at(&self, port: &Port) -> u32 {
        port.group_frames_per_second.unwrap_or(self.group_frames_per_second)
    }

    /// What a port does with LLDP.
    pub fn lldp_at(&self, port: &Port) -> Lldp {
        port.lldp.unwrap_or(self.links.lldp)
    }

    /// How to handle sources that are not names at a port.
    pub fn learn_at(&self, port: &Port) -> Learn {
        match port.role {
            Role::Host => port.learn.unwrap_or(self.learn),
            Role::Trunk | Role::Outside => Learn::Off,
        }
    }

    /// Whether the controller is reached with certificates, where that matters.
    fn check_controllers(&self) -> Result<(), String> {
        super::controllers::controllers_of(&self.controller).try_for_each(|given| self.check_controller(given))
    }

    fn check_controller(&self, given: &str) -> Result<(), String> {
        if let Some(path) = socket_path(given) {
            return path.map(drop).map_err(|error| format!("controller = {error}"));
        }
        let not_a_url = || {
            Err(format!(
                "controller = {given:?} is not a controller's URL; write it like https://10.0.0.1:4600 or unix:/run/fibula/controller.sock"
            ))
        };
        let Ok(url) = given.parse::<tonic::transport::Uri>() else { return not_a_url() };
        let Some(host) = url.host().map(|host| host.trim_matches(['[', ']'])) else { return not_a_url() };
        let is_local = host == "localhost" || host.parse::<IpAddr>().is_ok_and(|ip| ip.is_loopback());
        let has_tls = self.tls.is_some();
        match url.scheme_str() {
            Some("https") if !has_tls => {
                let name = &self.name;
                Err(format!(
                    "controller = {given:?} needs a certificate, and there is no [tls]; make one with `fibula pki issue \
                     switch {name}`, copy its directory here and write [tls] dir = \"DIRECTORY\""
                ))
            }
            Some("http") if has_tls => Err(format!(
                "controller = {given:?} is without TLS, but there is [tls]; write https://, or remove [tls]"
            )),
            Some("http") if !is_local && !self.insecure => {
                let name = &self.name;
                Err(format!(
                    "controller = {given:?} is without TLS: anyone on the path could read the names and impersonate the \
                     controller. Make a certificate with `fibula pki issue switch {name}`, copy its directory here, and \
                     write https:// and [tls] dir = \"DIRECTORY\". Or accept the risk with insecure = true"
                ))
            }
            Some("http" | "https") => Ok(()),
            _ => not_a_url(),
        }
    }

    /// The number of addresses that it listens at.
    pub(super) fn n_listeners(&self) -> usize {
        let control = self.flow.as_ref().and_then(|flow| flow.control.as_ref());
        [&self.lookup, &self.status, &self.control].into_iter().flatten().chain(control).count()
    }

    /// Whether others are reached and let in with certificates, where that matters.
    fn check_trust(&self) -> Result<(), String> {
        self.check_controllers()?;
        let has_tls = self.tls.is_some();
        if let Some(files) = &self.tls {
            files.paths()?;
        }
        self.audit.check()?;
        let control = self.flow.as_ref().and_then(|flow| flow.control.as_ref());
        let checked = [("lookup", self.lookup.as_ref()), ("control", self.control.as_ref()), ("flow.control", control)];
        for (key, address) in checked {
            address.map_or(Ok(()), |address| check_address(key, address, has_tls, self.insecure))?;
        }
        let is_open = has_tls || self.metrics_open;
        self.status.as_ref().map_or(Ok(()), |address| check_address("status", address, is_open, self.insecure))
    }

    /// The file that changes are recorded in: by default beside the saved image.
    pub fn audit_path(&self) -> PathBuf {
        self.audit.file.clone().unwrap_or_else(|| self.state_dir.join("audit.jsonl"))
    }

    /// What connection tracking is to do, if there is any.
    /// # Errors
    /// What is wrong with `[flow]`.
    pub fn flow_settings(&self) -> Result<Option<FlowSettings>, String> {
        let ports = self.ports.iter().map(|port| port.id).collect();
        self.flow.as_ref().map(|section| section.settings(&ports)).transpose()
    }
}

impl Config {
    /// What the gateway is set up with, if there is one. Reads the file of routes.
    /// # Errors
    /// What is wrong with `[gateway]`.
    pub fn gateway_settings(&self) -> Result<Option<gateway::Settings>, String> {
        let (outside, others): (Vec<_>, Vec<_>) = self.ports.iter().partition(|port| port.role == Role::Outside);
        let [outside, others] = [outside, others].map(|ports| ports.iter().map(|port| port.id).collect::<HashSet<_>>());
        match &self.gateway {
            Some(section) => section.settings(&outside, &others).map(Some),
            None => match outside.iter().next() {
                Some(port) => Err(format!(
                    "port {port} has role = 'outside', but there is no [gateway]; add one, with the routes to that port"
                )),
                None => Ok(None),
            },
        }
    }
}

/// Longest name of a Linux interface.
pub(super) const MAX_DEVICE_NAME: usize = 15;

/// A device that is missing is waited for; one that cannot ever exist is an error.
pub(super) fn is_device_name(name: &str) -> bool {
    let allowed = |c: u8| c.is_ascii_alphanumeric() || b"-_.@".contains(&c);
    (1..=MAX_DEVICE_NAME).contains(&name.len()) && name.bytes().all(allowed) && name != "." && name != ".."
}

fn default_table_bytes() -> usize {
    fib::replica::Limits::default().max_table_bytes
}

fn default_workers() -> usize {
    1
}

fn port_id<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<PortId, D::Error> {
    u16::deserialize(deserializer).map(PortId)
}

fn some_port_id<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<Option<PortId>, D::Error> {
    port_id(deserializer).map(Some)
}

fn some_mac<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<Option<Mac>, D::Error> {
    let text = String::deserialize(deserializer)?;
    let mac = dataplane::flow::config::mac(&text).map_err(|error| error.replacen("mac =", "dhcp_server =", 1));
    mac.map(Some).map_err(serde::de::Error::custom)
}

fn default_weight() -> u16 {
    1
}
