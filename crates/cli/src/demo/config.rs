//! Writes the configuration files of the controller and the switches, and issues their certificates, as an operator would.

use std::borrow::Cow;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};

use api::identity::{Identity, Kind, Role};
use api::pki::Authority;
use serde::Serialize;
use switch::daemon::config::Driver;

use super::dhcp;
use super::judge::mac_text;
use super::layout::Layout;
use super::privileged::Sizes;

/// The most controllers of a demo.
pub(super) const MAX_CONTROLLERS: u16 = 9;

/// Address of a controller in the switches' namespace.
pub(super) fn controller_address(controller: usize) -> SocketAddr {
    (Ipv4Addr::LOCALHOST, 4600 + 2 * controller as u16).into()
}

/// Where a controller serves its status.
pub(super) fn controller_status(controller: usize) -> SocketAddr {
    (Ipv4Addr::LOCALHOST, 4601 + 2 * controller as u16).into()
}

/// Where etcd takes requests, if there are several controllers, and where its members would speak to each other.
pub(super) const ETCD: [&str; 2] = ["127.0.0.1:4690", "127.0.0.1:4691"];

/// How long the certificates of a run are valid.
const CERTIFICATE_DAYS: u32 = 30;

/// Where a switch serves its status.
pub(super) fn status_address(switch: usize) -> SocketAddr {
    (Ipv4Addr::LOCALHOST, 4700 + switch as u16).into()
}

#[derive(Serialize)]
struct Controller<'a> {
    listen: SocketAddr,
    status: SocketAddr,
    store: String,
    value_mode: &'a str,
    gateway_design: &'a str,
    core_design: &'a str,
    name_kind: &'a str,
    max_names: usize,
    hash: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    auto_links: Option<&'a str>,
    tls: Tls,
    #[serde(skip_serializing_if = "Option::is_none")]
    audit: Option<Audit>,
}

#[derive(Serialize)]
struct Audit {
    file: PathBuf,
}

#[derive(Serialize)]
struct Switch<'a> {
    name: &'a str,
    controller: String,
    state_dir: PathBuf,
    workers: usize,
    driver: &'a str,
    status: SocketAddr,
    #[serde(flatten)]
    hosts: Option<Hosts>,
    tls: Tls,
    #[serde(skip_serializing_if = "Option::is_none")]
    dpdk: Option<Dpdk>,
    port: Vec<Port<'a>>,
}

/// What becomes of undeclared hosts, and whom they ask for their addresses.
#[derive(Clone, Serialize)]
struct Hosts {
    learn: &'static str,
    dhcp_server: String,
}

/// All switches have their memory beside each other: on small pages, and no more than their ports take.
#[derive(Serialize)]
struct Dpdk {
    eal: [String; 3],
}

impl Dpdk {
    fn for_ports(n: usize) -> Self {
        Self { eal: ["--no-huge".to_owned(), "-m".to_owned(), (64 + 24 * n).to_string()] }
    }
}

#[derive(Serialize)]
struct Tls {
    dir: PathBuf,
}

#[derive(Serialize)]
struct Port<'a> {
    id: u16,
    device: Cow<'a, str>,
    role: &'a str,
}

/// The files of a run.
#[derive(Debug)]
pub(super) struct Files {
    pub(super) controllers: Vec<PathBuf>,
    /// In switch order.
    pub(super) switches: Vec<PathBuf>,
    /// The certificate that the demo shows to the controller.
    pub(super) operator: PathBuf,
}

/// The name of a controller: of its process, its configuration and its certificate.
pub(super) fn controller_name(controller: usize) -> String {
    if controller == 0 { "controller".to_owned() } else { format!("controller-{}", controller + 1) }
}

/// Writes all files for `layout` to `directory`.
pub(super) fn write(
    directory: &Path,
    layout: &Layout,
    Sizes { value_mode, designs, driver, n_controllers, undeclared, .. }: &Sizes<'_>,
    max_names: usize,
) -> anyhow::Result<Files> {
    let authority = Authority::create(&directory.join("pki"))?;
    let certificate = |kind, name: &str| authority.make(&Identity::new(kind, name)?, &[], CERTIFICATE_DAYS);
    let [gateway_design, core_design] = designs.map(|design| design.name);
    let (name_kind, hash) = ("mac", "muladd");
    let store = match n_controllers {
        1 => directory.join("rib.sqlite").display().to_string(),
        _ => format!("etcd://{}/demo", ETCD[0]),
    };
    let mut controllers = Vec::new();
    for i in 0..*n_controllers {
        let name = controller_name(i);
        let audit = (*n_controllers > 1).then(|| Audit { file: directory.join(format!("{name}.audit.jsonl")) });
        let config = Controller {
            listen: controller_address(i),
            status: controller_status(i),
            store: store.clone(),
            value_mode,
            gateway_design,
            core_design,
            name_kind,
            max_names,
            hash,
            auto_links: undeclared.then_some("on"),
            tls: Tls { dir: certificate(Kind::Controller, &name)? },
            audit,
        };
        let path = directory.join(format!("{name}.toml"));
        put(&path, &config)?;
        controllers.push(path);
    }
    let urls: Vec<String> = (0..*n_controllers).map(|i| format!("https://{}", controller_address(i))).collect();
    let hosts = undeclared.then(|| Hosts { learn: "accept", dhcp_server: mac_text(&layout.hosts[dhcp::SERVER].mac) });
    let mut switches = Vec::with_capacity(layout.n_switches());
    for (switch, (name, ports)) in layout.topology.switches.iter().zip(&layout.ports).enumerate() {
        let state_dir = directory.join(name);
        std::fs::create_dir_all(&state_dir)?;
        let port = ports
            .iter()
            .map(|port| {
                // Not net_af_packet: it numbers its groups by process and interface, and the switches share a namespace.
                let device = match driver {
                    Driver::Dpdk => format!("net_af_xdp{},iface={}", port.id, port.device).into(),
                    _ => port.device.as_str().into(),
                };
                Port { id: port.id, device, role: if port.trunk { "trunk" } else { "host" } }
            })
            .collect();
        let dpdk = (*driver == Driver::Dpdk).then(|| Dpdk::for_ports(ports.len()));
        let path = directory.join(format!("{name}.toml"));
        let controller = urls.join(",");
        let status = status_address(switch);
        let tls = Tls { dir: certificate(Kind::Switch, name)? };
        let (driver, hosts) = (driver.name(), hosts.clone());
        put(&path, &Switch { name, controller, state_dir, workers: 1, driver, status, hosts, tls, dpdk, port })?;
        switches.push(path);
    }
    let operator = certificate(Kind::Operator(Role::Admin), "demo")?;
    Ok(Files { controllers, switches, operator })
}

fn put(path: &Path, config: &impl Serialize) -> io::Result<()> {
    std::fs::write(path, toml::to_string(config).expect("strings and numbers are TOML"))
}
