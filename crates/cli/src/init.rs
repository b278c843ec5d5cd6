//! `fibula init`: writes a commented configuration, from flags or by asking, and says what is missing on this machine.
//!
//! Before it replaces anything, the new text is parsed as a daemon would parse it. Certificates are parsed, too, and
//! copied after the configuration file is known to be writable and before it is written. If that fails, no answers are
//! lost: the equivalent command with flags is printed.

mod asking;
mod edge;

use crate::atomic_file::AtomicFile;
use crate::doctor;
use crate::machine::{self, Interface, User};
use ::controller::config::Config as Controller;
use ::switch::daemon::config::Config as Switch;
use anyhow::Context as _;
use api::tls::{Files, Tls};
use clap::ValueHint;
use command::output::{Exit, Failure, OrExit, Output};
use std::fmt::Write as _;
use std::fs;
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt, chown, fchown};
use std::path::{Path, PathBuf};

/// The package's directory of certificates, and the user of its services.
const CERTIFICATES: &str = "/etc/fibula/tls";
const SERVICE_USER: &str = "fibula";

/// Commands of `fibula init`.
#[derive(clap::Subcommand)]
pub(crate) enum Verb {
    /// Write the configuration of a controller
    Controller(ControllerArgs),
    /// Write the configuration of a switch, for ports of this machine
    Switch(SwitchArgs),
}

/// Arguments of `fibula init controller`.
#[derive(clap::Args)]
pub(crate) struct ControllerArgs {
    /// Address for operators and switches to connect to, such as 10.0.0.1:4600 [default: 127.0.0.1:4600, or
    /// 0.0.0.0:4600 with a certificate; asked for on a terminal if neither is given]
    #[arg(long, value_name = "ADDRESS")]
    listen: Option<String>,
    /// Kind of names: mac, ipv4, ipv6, 5-tuple, teid, fixed:N or text
    #[arg(long, value_name = "KIND", default_value = "mac")]
    name_kind: String,
    /// Maximum number of names
    #[arg(long, value_name = "N", default_value_t = 1_000_000)]
    max_names: u64,
    /// File of the store
    #[arg(long, value_name = "FILE", default_value = "/var/lib/fibula/controller/rib.sqlite")]
    store: PathBuf,
    /// Accept switches that have a certificate, and cables between them, without asking an operator
    #[arg(long)]
    auto: bool,
    #[command(flatten)]
    common: Common,
}

/// Arguments of `fibula init switch`.
#[derive(clap::Args)]
pub(crate) struct SwitchArgs {
    /// Name of the switch, as the controller knows it
    #[arg(long)]
    name: Option<String>,
    /// URL of the controller [default: http://127.0.0.1:4600]
    #[arg(long, value_name = "URL")]
    controller: Option<String>,
    /// An interface with hosts; repeatable. Ports are numbered from 1 in the order given, hosts first
    #[arg(long, value_name = "DEVICE", value_hint = ValueHint::Other)]
    host: Vec<String>,
    /// An interface that leads to another switch; repeatable
    #[arg(long, value_name = "DEVICE", value_hint = ValueHint::Other)]
    trunk: Vec<String>,
    /// Learn the names of undeclared hosts
    #[arg(long)]
    learn: bool,
    /// Address of /metrics and /status; each switch of a machine needs its own [default: 127.0.0.1:4602, or the next
    /// port that no switch in /etc/fibula has]
    #[arg(long, value_name = "ADDRESS")]
    status: Option<String>,
    /// Directory of the saved image, the audit trail and the socket of `fibula capture` [default:
    /// /var/lib/fibula/switch/NAME]
    #[arg(long, value_name = "DIR")]
    state_dir: Option<PathBuf>,
    #[command(flatten)]
    edge: edge::EdgeArgs,
    #[command(flatten)]
    common: Common,
}

#[derive(clap::Args)]
struct Common {
    /// Directory with the daemon's certificate, which is used in place
    #[arg(long, value_name = "DIR")]
    tls: Option<PathBuf>,
    /// Directory from `fibula pki issue` with the daemon's certificate, which is copied to /etc/fibula/tls for the user
    /// of the service. An existing certificate is replaced only with --force
    #[arg(long, value_name = "DIR", conflicts_with = "tls")]
    certificate: Option<PathBuf>,
    /// File to write; - is standard output [default: in /etc/fibula, where the services look]
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Replace existing files: the configuration (a copy is kept as FILE.bak) and those of a certificate
    #[arg(long)]
    force: bool,
}

impl Verb {
    /// Writes the configuration, and prints what it still needs.
    /// # Errors
    /// [`Exit::Refused`] if the file exists, [`Exit::Usage`] if an answer is missing and there is no terminal to ask
    /// on.
    pub(crate) fn run(self, out: &Output) -> anyhow::Result<()> {
        match self {
            Verb::Controller(mut args) => {
                let before = args.command();
                let done = args.make(out);
                keep(&before, &args.command(), &done);
                done
            }
            Verb::Switch(mut args) => {
                let before = args.command();
                let done = args.make(out);
                keep(&before, &args.command(), &done);
                done
            }
        }
    }
}

/// If writing failed, prints the command that repeats the answers.
fn keep(before: &str, now: &str, done: &anyhow::Result<()>) {
    if done.is_err() && now != before {
        eprintln!("your answers so far, as a command:\n  {now}");
    }
}

/// The default configuration file of a switch.
fn file_of_switch(name: &str) -> PathBuf {
    Path::new(doctor::SWITCHES).join(format!("{name}.toml"))
}

#[derive(serde::Serialize)]
struct WrittenRow {
    file: PathBuf,
    /// The copy of the previous file.
    backup: Option<PathBuf>,
}

impl Common {
    /// Writes the configuration of a controller, or of a switch with this name.
    fn write(&self, text: &str, switch: Option<&str>, default: &Path, out: &Output) -> anyhow::Result<()> {
        let path = self.output.as_deref().unwrap_or(default);
        if let Some(from) = &self.certificate {
            let why = format!("the certificate in {} cannot be used here", from.display());
            Tls::load_for(&Files::in_directory(from), switch).or_exit(Exit::Refused, why)?;
        }
        if path == Path::new("-") {
            return command::output::write_out(text);
        }
        self.check_target(default)?;
        let copy = self.certificate.as_ref().zip(self.directory());
        if let Some((from, to)) = &copy
            && !self.force
            && let Some(file) = differing(from, to)
        {
            let why = format!(
                "{} exists, and is not the one of {}; --force replaces it, and the existing key is lost then",
                file.display(),
                from.display()
            );
            return Err(Failure::new(Exit::Refused, why));
        }
        // A package has already made the directory; without one it is made here. The user of the service must be able
        // to reach it.
        if let (None, Some(directory)) = (&self.output, path.parent()) {
            let why =
                || format!("{} cannot be made; run this command as root, or give --output FILE", directory.display());
            make_directories(directory, 0o755, None).or_exit(Exit::Refused, why())?;
        }
        let backup = backup(path, text)?;
        // Keys are in other files, so this one may be world-readable. It gets its name once the certificate is in
        // place.
        let mut file = AtomicFile::create(path, 0o644)?;
        file.write_all(text.as_bytes()).with_context(|| format!("{} cannot be written", path.display()))?;
        if let Some((from, to)) = &copy {
            copy_certificate(from, to).map_err(|error| {
                let advice =
                    if error.kind() == io::ErrorKind::PermissionDenied { "; run this command as root" } else { "" };
                let (from, to) = (from.display(), to.display());
                let why = format!("the certificate in {from} cannot be copied to {to}: {error}{advice}");
                Failure::new(Exit::Refused, why)
            })?;
        }
        file.finish()?;
        if self.output.is_none() {
            // Independent of the umask.
            let _ = fs::set_permissions(path, fs::Permissions::from_mode(0o644));
        }
        let before = backup.as_ref().map(|backup| format!("; the previous file is in {}", backup.display()));
        let sentence = format!("{} is written{}", path.display(), before.unwrap_or_default());
        out.done(&WrittenRow { file: path.to_owned(), backup }, sentence)?;
        doctor::say_what_is_missing(path, out)
    }

    /// Checks that the file may be written, before asking anything.
    fn check_target(&self, default: &Path) -> anyhow::Result<()> {
        let path = self.output.as_deref().unwrap_or(default);
        if path == Path::new("-") {
            return Ok(());
        }
        if !self.force && path.symlink_metadata().is_ok() {
            let why = format!(
                "{} exists; --force replaces it and keeps a copy, --output FILE writes another file",
                path.display()
            );
            return Err(Failure::new(Exit::Refused, why));
        }
        self.check_place(path.parent().unwrap_or(path))
    }

    /// Checks that files can be created in their directory.
    fn check_place(&self, directory: &Path) -> anyhow::Result<()> {
        let there = directory.ancestors().find(|directory| directory.exists()).unwrap_or(Path::new("/"));
        let may_write = rustix::fs::access(there, rustix::fs::Access::WRITE_OK).is_ok();
        if self.output.is_some() || may_write {
            return Ok(());
        }
        let why =
            format!("this user may not write in {}; run this command as root, or give --output FILE", there.display());
        Err(Failure::new(Exit::Refused, why))
    }

    /// Where the certificate is, or will be.
    fn directory(&self) -> Option<PathBuf> {
        let copied = || {
            let from = self.certificate.as_ref()?;
            // `.` has no name of its own.
            let name = from
                .file_name()
                .map(ToOwned::to_owned)
                .or_else(|| from.canonicalize().ok()?.file_name().map(ToOwned::to_owned));
            Some(Path::new(CERTIFICATES).join(name?))
        };
        self.tls.clone().or_else(copied)
    }

    /// The section `[tls]`, or a commented-out one.
    fn tls_section(&self, holder: &str) -> String {
        match self.directory() {
            Some(dir) => {
                let dir = quoted(dir);
                format!(
                    "\n# cert.pem, key.pem, ca.pem and crl.pem, for the user of the daemon to read.\n[tls]\ndir = {dir}\n"
                )
            }
            None => format!(
                "\n# To reach other machines, use certificates from `fibula pki issue {holder}`:\n#[tls]\n#dir = \"{CERTIFICATES}/NAME\"\n"
            ),
        }
    }
}

/// Creates a directory and its parents with this mode, whatever the umask, for this group.
fn make_directories(directory: &Path, mode: u32, group: Option<u32>) -> io::Result<()> {
    let missing: Vec<&Path> = directory
        .ancestors()
        .take_while(|directory| !directory.as_os_str().is_empty() && !directory.exists())
        .collect();
    for directory in missing.into_iter().rev() {
        match fs::DirBuilder::new().mode(mode).create(directory) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
            _ => fs::set_permissions(directory, fs::Permissions::from_mode(mode))?,
        }
        if group.is_some() {
            chown(directory, None, group)?;
        }
    }
    Ok(())
}

/// Keeps a copy of a file before other text replaces it, beside it; existing copies stay.
fn backup(path: &Path, text: &str) -> anyhow::Result<Option<PathBuf>> {
    let Ok(there) = fs::read(path) else { return Ok(None) };
    if there == text.as_bytes() || !path.is_file() {
        return Ok(None);
    }
    let name = |n: u32| {
        let mut name = path.as_os_str().to_owned();
        name.push(if n == 1 { ".bak".to_owned() } else { format!(".bak{n}") });
        PathBuf::from(name)
    };
    let copies = || (1..).map(name);
    let is_same = |copy: &PathBuf| fs::read(copy).is_ok_and(|copy| copy == there);
    let Some(copy) = copies().find(|copy| is_same(copy) || copy.symlink_metadata().is_err()) else { return Ok(None) };
    if !is_same(&copy) {
        fs::copy(path, &copy).or_exit(Exit::Refused, format!("cannot keep a copy of {}", path.display()))?;
    }
    Ok(Some(copy))
}

/// The first file of a certificate in `to` that differs from the one in `from`.
fn differing(from: &Path, to: &Path) -> Option<PathBuf> {
    // Lists of authorities and revocations are not unique: losing them does no harm.
    let mut files = ["key.pem", "cert.pem"].into_iter();
    let differs = |name: &&str| {
        let there = to.join(name);
        let is_there = there.symlink_metadata().is_ok();
        is_there && fs::read(there).ok().is_none_or(|there| fs::read(from.join(name)).ok() != Some(there))
    };
    files.find(differs).map(|name| to.join(name))
}

/// Copies the files of a certificate, and gives them to the user of the services, if that user exists.
fn copy_certificate(from: &Path, to: &Path) -> io::Result<()> {
    let owner = User::of(|fields| fields[0] == SERVICE_USER).map(|User { uid, gid, .. }| (uid, gid));
    // Only root puts files there; the services read them.
    let group = owner.map(|(_, group)| group);
    to.parent().map_or(Ok(()), |parent| make_directories(parent, 0o750, group))?;
    make_directories(to, 0o750, group)?;
    for (name, mode) in [("ca.pem", 0o644), ("crl.pem", 0o644), ("cert.pem", 0o644), ("key.pem", 0o600)] {
        let text = match fs::read(from.join(name)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound && name == "crl.pem" => continue,
            text => text?,
        };
        // A running daemon sees the old file or the new one. Anything that its user may have put in the place of the
        // new file is neither followed nor kept.
        let new = to.join(format!("{name}.new"));
        match fs::remove_file(&new) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let mut file = fs::File::options().write(true).create_new(true).mode(mode).open(&new)?;
        file.write_all(&text)?;
        if let Some((user, group)) = owner {
            fchown(&file, Some(user), Some(group))?;
        }
        fs::rename(&new, to.join(name))?;
    }
    Ok(())
}

/// A string of TOML.
fn quoted(text: impl AsRef<Path>) -> String {
    toml::Value::from(text.as_ref().to_string_lossy().into_owned()).to_string()
}

impl ControllerArgs {
    fn make(&mut self, out: &Output) -> anyhow::Result<()> {
        let path = Path::new(doctor::CONTROLLER);
        self.common.check_target(path)?;
        if asking::can_ask() {
            self.complete()?;
        }
        let text = self.text();
        let parsed = Controller::parse(&text).map(drop).map_err(anyhow::Error::msg);
        parsed.or_exit(Exit::Usage, "a controller would refuse this configuration")?;
        self.common.write(&text, None, path, out)
    }

    fn text(&self) -> String {
        let auto = if self.auto { "on" } else { "confirm" };
        let default = if self.common.directory().is_some() { "0.0.0.0:4600" } else { "127.0.0.1:4600" };
        let listen = quoted(self.listen.as_deref().unwrap_or(default));
        let (store, name_kind, max_names) = (quoted(&self.store), quoted(&self.name_kind), self.max_names);
        let tls = self.common.tls_section("controller NAME --address ADDRESS");
        format!(
            r#"# A controller of fibula: man 5 controller.toml describes every key.

# Where operators and switches connect.
listen = {listen}
# HTTP: /metrics and /status, and a page for browsers that shows the network: http://127.0.0.1:4601/.
status = "127.0.0.1:4601"
# What that page offers: off, read, or change: those who may make changes by command may then make them there.
#dashboard = "read"
# Created at the first start.
store = {store}
# The kind of names; fixed at the first start.
name_kind = {name_kind}
max_names = {max_names}

# What to do with switches that were not added, and cables that were not declared: off, confirm or on.
auto_switches = "{auto}"
auto_links = "{auto}"
{tls}"#
        )
    }
}

impl SwitchArgs {
    fn make(&mut self, out: &Output) -> anyhow::Result<()> {
        if let Some(why) = self.name.as_deref().and_then(not_of_services) {
            return Err(Failure::new(Exit::Usage, why));
        }
        match &self.name {
            Some(name) => self.common.check_target(&file_of_switch(name))?,
            None if self.common.output.is_some() => self.common.check_target(Path::new(""))?,
            None => self.common.check_place(Path::new(doctor::SWITCHES))?,
        }
        if asking::can_ask() {
            self.complete()?;
        }
        self.check()?;
        let text = self.text();
        let parsed = Switch::parse(&text).map(drop).map_err(anyhow::Error::msg);
        parsed.or_exit(Exit::Usage, "a switch would refuse this configuration")?;
        let name = self.name.as_deref().unwrap_or_default();
        self.common.write(&text, Some(name), &file_of_switch(name), out)
    }

    /// Whether the controller requires a certificate, and none is given.
    fn lacks_certificate(&self) -> bool {
        let takes_one = self.controller.as_deref().is_some_and(|url| url.contains("https:"));
        takes_one && self.common.directory().is_none()
    }

    /// Checks that nothing required is missing.
    fn check(&self) -> anyhow::Result<()> {
        let Some(name) = &self.name else {
            return Err(Failure::new(Exit::Usage, "a switch needs a name; give --name NAME"));
        };
        if self.host.is_empty() && self.trunk.is_empty() && self.edge.is_empty() {
            return Err(Failure::new(Exit::Usage, no_ports(&candidates(&machine::interfaces()))));
        }
        self.edge.check(&self.host)?;
        if self.lacks_certificate() {
            let why = format!(
                "a controller at https:// requires a certificate; give --certificate DIR, with the directory that `fibula pki issue switch {name}` makes"
            );
            return Err(Failure::new(Exit::Usage, why));
        }
        Ok(())
    }

    fn text(&self) -> String {
        let name = self.name.as_deref().unwrap_or_default();
        let controller = quoted(self.controller.as_deref().unwrap_or("http://127.0.0.1:4600"));
        let directory = self.state_dir.clone().unwrap_or_else(|| Path::new("/var/lib/fibula/switch").join(name));
        let control = quoted(format!("unix:{}", directory.join("control.sock").display()));
        let state_dir = quoted(&directory);
        let dhcp = self.edge.dhcp();
        let status = quoted(self.status.clone().unwrap_or_else(|| free_status(&file_of_switch(name))));
        let learn = if self.learn { "accept" } else { "off" };
        let mut text = format!(
            r#"# A switch of fibula: man 5 switch.toml describes every key.

# The name that the controller knows it by.
name = {}
controller = {controller}
# For the saved image, which it forwards by until a controller answers.
state_dir = {state_dir}
# HTTP: /metrics and /status. Each switch of a machine needs a port of its own.
status = {status}
# Where `fibula capture` reaches it on this machine, for root and the user of the switch.
control = {control}
# What to do with hosts that were not declared: off, report or accept.
learn = "{learn}"
{dhcp}# Threads that forward.
workers = 1
"#,
            quoted(name)
        );
        let hosts = self.host.iter().map(|device| (device.as_str(), "host", "Hosts."));
        let why = "Another switch. The MTU must be 4 bytes larger than that of hosts, at both ends.";
        let trunks = self.trunk.iter().map(|device| (device.as_str(), "trunk", why));
        let outside = self.edge.devices().map(|device| (device, "outside", "Networks outside."));
        for (id, (device, role, why)) in (1..).zip(hosts.chain(trunks).chain(outside)) {
            let more = self.edge.of_port(device);
            let device = quoted(device);
            let _ = write!(text, "\n# {why}\n[[port]]\nid = {id}\ndevice = {device}\nrole = \"{role}\"\n{more}");
        }
        text.push_str(&self.edge.gateway(name, 1 + self.host.len() + self.trunk.len()));
        text.push_str(&self.common.tls_section(&format!("switch {name}")));
        text
    }
}

/// Interfaces that may be ports: Ethernet, except those through which this machine itself is reached.
fn candidates(interfaces: &[Interface]) -> Vec<Interface> {
    interfaces.iter().filter(|interface| interface.is_free() && !interface.has_routes).cloned().collect()
}

fn no_ports(candidates: &[Interface]) -> String {
    let names: Vec<&str> = candidates.iter().map(|interface| interface.name.as_str()).collect();
    let found = match names.as_slice() {
        [] => "this machine has no Ethernet interfaces except those through which it is reached".to_owned(),
        names => format!("this machine has {}", names.join(", ")),
    };
    format!("a switch needs ports; give --host DEVICE and --trunk DEVICE: {found}")
}

/// Why a switch cannot have this name, which becomes part of file names and of the name of its service.
fn not_of_services(name: &str) -> Option<String> {
    let is_good = !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric() || "-_.".contains(c));
    (!is_good).then(|| format!("`{name}` cannot be part of the name of a service; use letters, digits and - _ ."))
}

/// The first port from 4602 on that no other switch of this machine uses for its status; `own` is the file of this
/// switch.
fn free_status(own: &Path) -> String {
    let others = doctor::switches().into_iter().filter(|path| path != own);
    let taken = others.filter_map(|path| fs::read_to_string(path).ok());
    let taken: String = taken.collect::<Vec<_>>().join("\n");
    let is_free = |port: &u16| !['"', '\''].iter().any(|quote| taken.contains(&format!(":{port}{quote}")));
    format!("127.0.0.1:{}", (4602..4700).find(is_free).unwrap_or(4602))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn common(tls: Option<&str>) -> Common {
        Common { tls: tls.map(PathBuf::from), certificate: None, output: None, force: false }
    }

    #[test]
    fn what_is_written_is_what_the_daemons_read() {
        for tls in [None, Some("/etc/fibula/tls/a \"b\"")] {
            let (name_kind, store) = ("ipv4".to_owned(), PathBuf::from("/var/lib/x"));
            let common_args = common(tls);
            let args = ControllerArgs { listen: None, name_kind, max_names: 7, store, auto: true, common: common_args };
            let config = Controller::parse(&args.text()).unwrap();
            assert_eq!((config.max_names, config.tls.is_some()), (7, tls.is_some()));
            let mut args = SwitchArgs {
                name: Some("s-1.a".to_owned()),
                controller: None,
                host: vec!["eth1".to_owned(), "eth2".to_owned()],
                trunk: vec!["eth3".to_owned()],
                learn: true,
                status: Some("127.0.0.1:4603".to_owned()),
                state_dir: None,
                edge: edge::EdgeArgs::default(),
                common: common(tls),
            };
            args.controller = tls.map(|_| "https://10.0.0.1:4600".to_owned());
            let config = Switch::parse(&args.text()).unwrap();
            let devices: Vec<_> = config.ports.iter().map(|port| (port.id.0, port.device.as_str())).collect();
            assert_eq!(devices, [(1, "eth1"), (2, "eth2"), (3, "eth3")]);
            assert_eq!(config.name, "s-1.a");
        }
    }

    #[test]
    fn a_certificate_is_copied_for_the_user_of_the_service() {
        let directory = tempfile::tempdir().unwrap();
        let (from, to) = (directory.path().join("s1"), directory.path().join("tls/s1"));
        fs::create_dir(&from).unwrap();
        assert!(copy_certificate(&from, &to).is_err(), "there is none");
        for name in ["ca.pem", "cert.pem", "key.pem"] {
            fs::write(from.join(name), name).unwrap();
        }
        copy_certificate(&from, &to).unwrap();
        assert_eq!(fs::read_to_string(to.join("key.pem")).unwrap(), "key.pem");
        let mode = std::os::unix::fs::PermissionsExt::mode(&fs::metadata(to.join("key.pem")).unwrap().permissions());
        assert_eq!(mode & 0o777, 0o600);
        let all = Common { certificate: Some(from), ..common(None) };
        assert_eq!(all.directory(), Some(PathBuf::from("/etc/fibula/tls/s1")));
    }

    #[test]
    fn ports_are_none_that_this_machine_is_reached_by() {
        let interface = |name: &str, has_routes, is_ethernet| {
            let name = name.to_owned();
            Interface {
                name,
                index: 1,
                mtu: 1500,
                is_up: true,
                has_carrier: true,
                receive_queues: 1,
                has_routes,
                is_ethernet,
                is_bridge: false,
                master: None,
            }
        };
        let all = [interface("eth0", true, true), interface("eth1", false, true), interface("lo", false, false)];
        assert_eq!(candidates(&all), [interface("eth1", false, true)]);
        assert!(no_ports(&candidates(&all)).ends_with("this machine has eth1"));
    }
}
