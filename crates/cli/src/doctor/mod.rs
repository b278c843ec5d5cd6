//! `fibula doctor`: checks what a controller or a switch needs on this machine, before or while it runs, and says how
//! to fix what is missing. It only reads, and asks daemons only for their `/status`.
//!
//! A finding is one line: `ok`, `warning`, `bad` or `untried`. `bad` keeps a daemon from starting or from working; `ok`
//! has been tried, and `untried` gives the reason why not. No question waits longer than [`PATIENCE`].

mod address;
mod daemon;
mod files;
mod ports;
mod service;
mod way;

use crate::machine;
use ::controller::config::{Config as Controller, Place};
use ::switch::daemon::config::Config as Switch;
use command::output::{Exit, Failure, Output};
use files::Opened;
use serde::Serialize;
use service::Service;
use std::fmt::Display;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Time limit for each answer of a daemon, of systemd or of the network.
const PATIENCE: Duration = Duration::from_secs(3);

/// Where the package keeps configurations.
pub(crate) const CONTROLLER: &str = "/etc/fibula/controller.toml";
pub(crate) const SWITCHES: &str = "/etc/fibula/switch";

/// Arguments of `fibula doctor`.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Configuration of a controller or of a switch; repeatable [default: those in /etc/fibula]
    #[arg(long, value_name = "FILE")]
    config: Vec<PathBuf>,
}

/// The severity of a finding.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "lowercase")]
enum Grade {
    Ok,
    Warning,
    Bad,
    Untried,
}

/// One line.
#[derive(Debug, Serialize)]
struct Finding {
    grade: Grade,
    /// The configuration it belongs to; none for the machine.
    of: Option<String>,
    what: String,
    finding: String,
}

/// The findings so far.
#[derive(Debug, Default)]
struct Findings {
    rows: Vec<Finding>,
    of: Option<String>,
}

impl Findings {
    fn add(&mut self, grade: Grade, what: impl Display, finding: impl Display) {
        let (what, finding) = (what.to_string(), finding.to_string());
        self.rows.push(Finding { grade, of: self.of.clone(), what, finding });
    }

    fn ok(&mut self, what: impl Display, finding: impl Display) {
        self.add(Grade::Ok, what, finding);
    }

    fn warn(&mut self, what: impl Display, finding: impl Display) {
        self.add(Grade::Warning, what, finding);
    }

    fn bad(&mut self, what: impl Display, finding: impl Display) {
        self.add(Grade::Bad, what, finding);
    }

    fn untried(&mut self, what: impl Display, why: impl Display) {
        self.add(Grade::Untried, what, format!("not tried, because {why}"));
    }

    fn n_bad(&self) -> usize {
        self.rows.iter().filter(|row| row.grade == Grade::Bad).count()
    }
}

/// A configuration of either daemon.
enum Configuration {
    Controller(Box<Controller>),
    Switch(Box<Switch>),
}

impl Args {
    /// Checks everything, and prints the findings.
    /// # Errors
    /// [`Exit::CheckFailed`] if something is bad; [`Exit::NotFound`] if there is no configuration to check.
    pub(crate) fn run(self, out: &Output) -> anyhow::Result<()> {
        let paths = if self.config.is_empty() { installed() } else { self.config };
        if paths.is_empty() {
            let why = format!(
                "there is no configuration in {SWITCHES} and no {CONTROLLER}; make one with `fibula init`, or name one with --config FILE"
            );
            return Err(Failure::new(Exit::NotFound, why));
        }
        let findings = look(&paths)?;
        out.rows(&findings.rows)?;
        match findings.n_bad() {
            0 => Ok(()),
            1 => Err(Failure::new(Exit::CheckFailed, "1 finding is bad")),
            n => Err(Failure::new(Exit::CheckFailed, format!("{n} findings are bad"))),
        }
    }
}

/// Prints the problems of one configuration, after it was written.
/// # Errors
/// When standard output is closed.
pub(crate) fn say_what_is_missing(path: &Path, out: &Output) -> anyhow::Result<()> {
    let mut findings = look(&[path.to_owned()])?;
    findings.rows.retain(|row| row.grade != Grade::Ok);
    out.rows(&findings.rows)
}

fn look(paths: &[PathBuf]) -> anyhow::Result<Findings> {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
    let mut findings = Findings::default();
    look_at_machine(&mut findings);
    for path in paths {
        findings.of = Some(path.display().to_string());
        match read(path) {
            Ok(Configuration::Controller(config)) => {
                findings.ok("configuration", "is valid (controller)");
                let lock = match &config.store {
                    Place::File(store) => Some(service::lock_of_store(store)),
                    Place::Etcd(_) => None,
                };
                let service = Service::of(path, "controller", lock.as_deref());
                runtime.block_on(daemon::look_at_controller(&config, &service, &mut findings));
                Opened::by_controller(path, &config).look_at(&service, &mut findings);
            }
            Ok(Configuration::Switch(config)) => {
                findings.ok("configuration", format!("is valid (switch {})", config.name));
                let service = Service::of(path, "switch", Some(&config.state_dir.join("lock")));
                runtime.block_on(daemon::look_at_switch(&config, &service, &mut findings));
                Opened::by_switch(path, &config).look_at(&service, &mut findings);
                ports::look_at_ports(&config, &service, &others(path, paths, &config), &mut findings);
            }
            Err(why) => findings.bad("configuration", why),
        }
    }
    runtime.shutdown_background();
    Ok(findings)
}

/// The configurations in the directories of the package.
fn installed() -> Vec<PathBuf> {
    let controller = PathBuf::from(CONTROLLER);
    controller.exists().then_some(controller).into_iter().chain(switches()).collect()
}

/// The configurations of switches, without the example.
pub(crate) fn switches() -> Vec<PathBuf> {
    let switches = std::fs::read_dir(SWITCHES).into_iter().flatten().flatten().map(|entry| entry.path());
    let is_one = |path: &PathBuf| {
        path.extension().is_some_and(|extension| extension == "toml") && !path.ends_with("example.toml")
    };
    let mut switches: Vec<PathBuf> = switches.filter(is_one).collect();
    switches.sort();
    switches
}

/// The configurations of other switches of this machine. One with the same switch name is another version of it.
fn others(path: &Path, paths: &[PathBuf], config: &Switch) -> Vec<(PathBuf, Switch)> {
    let mut all = switches();
    all.extend(paths.iter().filter(|path| !all.contains(path)).cloned().collect::<Vec<_>>());
    let other = |other: PathBuf| match read(&other) {
        Ok(Configuration::Switch(found)) if other != path && found.name != config.name => Some((other, *found)),
        _ => None,
    };
    all.into_iter().filter_map(other).collect()
}

/// Reads a configuration of either kind; only that of a switch has a `state_dir`.
fn read(path: &Path) -> Result<Configuration, String> {
    let text = std::fs::read_to_string(path).map_err(|error| {
        let advice = match error.kind() {
            std::io::ErrorKind::NotFound => "`fibula init` writes one",
            _ => "run this command as root, or change its permissions",
        };
        format!("cannot be read: {error}; {advice}")
    })?;
    let is_of_switch = toml::from_str::<toml::Table>(&text).is_ok_and(|table| table.contains_key("state_dir"));
    let first_line = |error: String| error.trim().replace('\n', " ");
    if is_of_switch {
        let config = Switch::parse(&text).map_err(first_line)?;
        Ok(Configuration::Switch(Box::new(config)))
    } else {
        let config = Controller::parse(&text).map_err(first_line)?;
        Ok(Configuration::Controller(Box::new(config)))
    }
}

fn look_at_machine(findings: &mut Findings) {
    let (version, release) = machine::kernel();
    match version {
        (5, 0..9) | (0..5, _) => {
            findings
                .warn("kernel", format!("{release}: no AF_XDP, which needs 5.9; use driver = \"af_packet\" for ports"));
        }
        (5, 9..) | (6, 0..9) => {
            findings
                .ok("kernel", format!("{release}: AF_XDP; XDP with tables that grow to four times their first size"));
        }
        _ => findings.ok("kernel", format!("{release}: AF_XDP and XDP with tables of any size")),
    }
    match machine::huge_pages().as_deref() {
        Some(chosen @ ("always" | "madvise")) => findings.ok("huge pages", format!("{chosen}: tables use them")),
        Some(chosen) => findings.warn(
            "huge pages",
            format!("{chosen}: lookups in large tables take up to twice as long; echo madvise > /sys/kernel/mm/transparent_hugepage/enabled"),
        ),
        None => findings.warn("huge pages", "this kernel has none: lookups in large tables take up to twice as long"),
    }
    match machine::keeps_clock() {
        Some(keeper) => findings.ok("clock", format!("{keeper} synchronises it")),
        None => findings.warn(
            "clock",
            "nothing seems to synchronise it, and certificates depend on the date; apt-get install systemd-timesyncd, unless the host of this machine sets it",
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kind_of_a_configuration_is_told_by_what_it_says() {
        let directory = tempfile::tempdir().unwrap();
        let file = |name: &str, text: &str| {
            let path = directory.path().join(name);
            std::fs::write(&path, text).unwrap();
            path
        };
        let controller = "listen = '127.0.0.1:4600'\nstore = '/tmp/x'\nname_kind = 'mac'\nmax_names = 1000\n";
        let switch =
            "name = 's1'\ncontroller = 'http://127.0.0.1:4600'\nstate_dir = '/tmp/s1'\nlookup = '127.0.0.1:0'\n";
        assert!(matches!(read(&file("a", controller)), Ok(Configuration::Controller(_))));
        assert!(matches!(read(&file("b", switch)), Ok(Configuration::Switch(_))));
        let wrong = read(&file("c", &switch.replace("name =", "nam ="))).err().unwrap();
        assert!(wrong.contains("nam") && !wrong.contains('\n'), "{wrong}");
        assert!(read(Path::new("/no/such/file")).err().unwrap().contains("cannot be read"));
    }
}
