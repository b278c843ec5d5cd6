//! Questions on the terminal. Each shows its default in brackets, and checks its answer at once; after a wrong answer
//! it gives the reason and asks again.

use super::{
    CERTIFICATES, Common, ControllerArgs, SwitchArgs, candidates, differing, no_ports, not_of_services, quoted,
};
use crate::machine::{self, Interface};
use crate::remote::config_directory;
use ::switch::daemon::config::Config as Switch;
use anyhow::Context as _;
use api::address::Address;
use api::tls::{Files, Tls};
use command::output::{Exit, Failure};
use std::fs;
use std::io::{self, BufRead, IsTerminal, Write as _};
use std::net::{SocketAddr, TcpListener};
use std::path::{Path, PathBuf};

/// Default port of a controller.
const PORT: u16 = 4600;

/// Whether there is a terminal to ask on.
pub(super) fn can_ask() -> bool {
    io::stdin().is_terminal() && io::stderr().is_terminal()
}

impl ControllerArgs {
    /// Asks for what is missing: the address, and a certificate if other machines reach it.
    pub(super) fn complete(&mut self) -> anyhow::Result<()> {
        if self.listen.is_none() && self.common.directory().is_none() {
            let default = format!("127.0.0.1:{PORT}");
            let question =
                format!("address for operators and switches to connect to; 0.0.0.0:{PORT} accepts other machines");
            self.listen =
                Some(ask_for(&question, Some(&default), |answer| check_listen(answer).map(|()| answer.to_owned()))?);
        }
        let listen = self.listen.as_deref().and_then(|listen| listen.parse().ok());
        if self.common.directory().is_none() && listen.is_some_and(|listen: Address| listen.is_remote()) {
            let (found, command) =
                (found_certificate("controller", None), "fibula pki issue controller NAME --address ADDRESS");
            self.common.ask_for_certificate("of the controller", command, found.as_deref(), None)?;
        }
        Ok(())
    }

    /// The equivalent command with flags.
    pub(super) fn command(&self) -> String {
        let mut words = vec!["fibula init controller".to_owned()];
        words.extend(self.listen.iter().map(|listen| format!("--listen {}", shell(listen))));
        words.push(format!("--name-kind {} --max-names {}", shell(&self.name_kind), self.max_names));
        words.push(format!("--store {}", shell(&self.store.to_string_lossy())));
        words.extend(self.auto.then(|| "--auto".to_owned()));
        words.extend(self.common.words());
        words.join(" ")
    }
}

impl SwitchArgs {
    /// Asks for whatever is missing of name and ports, then for the controller, and for a certificate if it requires
    /// one.
    pub(super) fn complete(&mut self) -> anyhow::Result<()> {
        let lacks_ports = self.host.is_empty() && self.trunk.is_empty() && self.edge.is_empty();
        let candidates = candidates(&machine::interfaces());
        if lacks_ports && candidates.is_empty() {
            return Err(Failure::new(Exit::Usage, no_ports(&candidates)));
        }
        if self.name.is_none() || lacks_ports {
            self.ask(&candidates, lacks_ports)?;
        }
        if self.lacks_certificate() {
            let name = self.name.clone().unwrap_or_default();
            let (found, command) =
                (found_certificate("switch", Some(&name)), format!("fibula pki issue switch {name}"));
            self.common.ask_for_certificate(
                &format!("of the switch {name}"),
                &command,
                found.as_deref(),
                Some(&name),
            )?;
        }
        Ok(())
    }

    fn ask(&mut self, candidates: &[Interface], lacks_ports: bool) -> anyhow::Result<()> {
        if self.name.is_none() {
            let common = &self.common;
            let check = |name: &str| {
                if let Some(why) = not_of_services(name) {
                    return Err(why);
                }
                let is_default = common.output.is_none();
                let there =
                    Some(super::file_of_switch(name)).filter(|file| is_default && !common.force && file.exists());
                match there {
                    Some(file) => Err(format!(
                        "{} exists; enter another name, or quit (Ctrl-D) and give --force, which keeps a copy",
                        file.display()
                    )),
                    None => Ok(name.to_owned()),
                }
            };
            let names = [machine::host_name()].into_iter().flatten().chain((1..100).map(|i| format!("s{i}")));
            let default = names.into_iter().find(|name| check(name).is_ok());
            self.name = Some(ask_for("name of the switch", default.as_deref(), check)?);
        }
        if self.controller.is_none() {
            let (default, has_certificate) = (format!("http://127.0.0.1:{PORT}"), self.common.directory().is_some());
            let default = Some(default.as_str()).filter(|_| !has_certificate);
            let question = "URL of the controller; https://HOST:4600 on another machine";
            let check = |url: &str| check_url(url, has_certificate).map(|()| url.to_owned());
            self.controller = Some(ask_for(question, default, check)?);
        }
        if !lacks_ports {
            return Ok(());
        }
        loop {
            for Interface { name, mtu, has_carrier, .. } in candidates {
                let cable = if *has_carrier { "cable connected" } else { "no cable" };
                let question = format!("{name} (MTU {mtu}, {cable}): host, trunk, or no for none");
                let role = ask_for(&question, Some("no"), |answer| match answer {
                    "host" | "h" => Ok("host"),
                    "trunk" | "t" => Ok("trunk"),
                    "no" | "n" => Ok("no"),
                    other => Err(format!("`{other}` is not an answer: enter host, trunk or no")),
                })?;
                match role {
                    "host" => self.host.push(name.clone()),
                    "trunk" => self.trunk.push(name.clone()),
                    _ => {}
                }
            }
            if !self.host.is_empty() || !self.trunk.is_empty() {
                return Ok(());
            }
            eprintln!("a switch needs ports: enter host or trunk for at least one (Ctrl-D quits)");
        }
    }

    /// The equivalent command with flags.
    pub(super) fn command(&self) -> String {
        let mut words = vec!["fibula init switch".to_owned()];
        let mut say = |flag: &str, value: &str| words.push(format!("--{flag} {}", shell(value)));
        self.name.iter().for_each(|name| say("name", name));
        self.controller.iter().for_each(|url| say("controller", url));
        self.host.iter().for_each(|device| say("host", device));
        self.trunk.iter().for_each(|device| say("trunk", device));
        self.status.iter().for_each(|status| say("status", status));
        self.state_dir.iter().for_each(|dir| say("state-dir", &dir.to_string_lossy()));
        self.edge.words().into_iter().for_each(|(flag, value)| say(flag, &value));
        words.extend(self.learn.then(|| "--learn".to_owned()));
        words.extend(self.common.words());
        words.join(" ")
    }
}

impl Common {
    fn ask_for_certificate(
        &mut self,
        whose: &str,
        command: &str,
        found: Option<&Path>,
        switch: Option<&str>,
    ) -> anyhow::Result<()> {
        let question = format!("directory of the certificate {whose}, as `{command}` makes it");
        let found = found.map(|found| found.display().to_string());
        let force = self.force;
        let (directory, is_copied) = ask_for(&question, found.as_deref(), |answer| {
            let directory = match answer.strip_prefix("~/") {
                Some(rest) => std::env::home_dir().unwrap_or_default().join(rest),
                None => std::path::absolute(answer).unwrap_or_else(|_| answer.into()),
            };
            Tls::load_for(&Files::in_directory(&directory), switch).map_err(|error| error.to_string())?;
            // Where the services look, it is used in place; users other than root can use no other place.
            let is_copied = !directory.starts_with(CERTIFICATES) && rustix::process::geteuid().is_root();
            let name = directory.file_name().filter(|_| is_copied && !force);
            if let Some(file) = name.and_then(|name| differing(&directory, &Path::new(CERTIFICATES).join(name))) {
                return Err(format!(
                    "{} exists, and differs; enter {CERTIFICATES}/NAME to use the existing one, or quit (Ctrl-D) and give --force",
                    file.display()
                ));
            }
            Ok((directory, is_copied))
        })?;
        *(if is_copied { &mut self.certificate } else { &mut self.tls }) = Some(directory);
        Ok(())
    }

    fn words(&self) -> Vec<String> {
        let path = |flag: &str, path: &Option<PathBuf>| {
            path.as_ref().map(|path| format!("--{flag} {}", shell(&path.to_string_lossy())))
        };
        let paths = [path("tls", &self.tls), path("certificate", &self.certificate), path("output", &self.output)];
        paths.into_iter().chain([self.force.then(|| "--force".to_owned())]).flatten().collect()
    }
}

/// Quotes a word for a shell.
fn shell(word: &str) -> String {
    let is_plain = !word.is_empty() && word.chars().all(|c| c.is_ascii_alphanumeric() || "-_./:=@+,".contains(c));
    if is_plain { word.to_owned() } else { format!("'{}'", word.replace('\'', r"'\''")) }
}

/// Where `fibula pki` may have left the certificate of a switch with this name, or the only one of a controller.
fn found_certificate(kind: &str, name: Option<&str>) -> Option<PathBuf> {
    let issued = config_directory().join("pki").join(kind);
    let is_one = |path: &PathBuf| path.join("cert.pem").is_file();
    match name {
        Some(name) => {
            let home = std::env::home_dir().unwrap_or_default();
            [Path::new(CERTIFICATES), &issued, &home].into_iter().map(|directory| directory.join(name)).find(is_one)
        }
        None => {
            let entries = fs::read_dir(issued).into_iter().flatten().flatten();
            let mut all = entries.map(|entry| entry.path()).filter(is_one);
            let first = all.next();
            first.filter(|_| all.next().is_none())
        }
    }
}

/// Checks that a controller can listen there.
fn check_listen(text: &str) -> Result<(), String> {
    let Address::Tcp(at) = text.parse()? else { return Ok(()) };
    match TcpListener::bind(SocketAddr::new(at.ip(), 0)) {
        Ok(_) => Ok(()),
        Err(error) => Err(format!("{}: {error}; use an address that `ip address` lists", at.ip())),
    }
}

/// Checks that a switch accepts this as the URL of its controller.
fn check_url(url: &str, has_certificate: bool) -> Result<(), String> {
    let tls = if has_certificate || url.contains("https:") { "[tls]\ndir = '/'\n" } else { "" };
    let text = format!("name = 's'\ncontroller = {}\nstate_dir = '/s'\nlookup = '127.0.0.1:0'\n{tls}", quoted(url));
    Switch::parse(&text).map(drop)
}

/// Asks until `understand` accepts the answer.
fn ask_for<T>(
    question: &str,
    default: Option<&str>,
    mut understand: impl FnMut(&str) -> Result<T, String>,
) -> anyhow::Result<T> {
    loop {
        let answer = match (ask(question, default)?, default) {
            (answer, Some(default)) if answer.is_empty() => default.to_owned(),
            (answer, None) if answer.is_empty() => {
                eprintln!("there is no default: enter a value, or quit with Ctrl-D");
                continue;
            }
            (answer, _) => answer,
        };
        match understand(&answer) {
            Ok(answer) => return Ok(answer),
            Err(why) => eprintln!("{why}"),
        }
    }
}

/// Asks on the terminal.
fn ask(question: &str, default: Option<&str>) -> anyhow::Result<String> {
    let default = default.map(|default| format!(" [{default}]")).unwrap_or_default();
    eprint!("{question}{default}: ");
    io::stderr().flush()?;
    let mut answer = String::new();
    let n_bytes = io::stdin().lock().read_line(&mut answer).context("the terminal cannot be read")?;
    if n_bytes == 0 {
        eprintln!();
        return Err(Failure::new(Exit::Interrupted, "nothing was written"));
    }
    Ok(answer.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_is_taken_as_a_switch_takes_it() {
        for url in ["http://127.0.0.1:4600", "https://10.0.0.1:4600", "unix:/run/fibula/controller.sock"] {
            assert_eq!(check_url(url, false), Ok(()));
        }
        for (url, has_certificate, part) in [
            ("10.0.0.1:4600", false, "write it like https://"),
            ("http://10.0.0.1:4600", false, "without TLS"),
            ("http://127.0.0.1:4600", true, "there is [tls]"),
            ("unix:x", false, "absolute"),
        ] {
            let why = check_url(url, has_certificate).unwrap_err();
            assert!(why.contains(part), "{url}: {why}");
        }
    }

    #[test]
    fn where_nobody_can_listen_is_said() {
        assert_eq!(check_listen("0.0.0.0:4600"), Ok(()));
        assert!(check_listen("192.0.2.77:4600").unwrap_err().contains("ip address"));
        assert!(check_listen("127.0.0.1").unwrap_err().contains("127.0.0.1:4600"));
    }

    #[test]
    fn words_are_those_of_a_shell() {
        assert_eq!(shell("https://[::1]:4600"), "'https://[::1]:4600'");
        assert_eq!(shell("it's"), r"'it'\''s'");
        assert_eq!(shell("/etc/fibula/s-1.toml"), "/etc/fibula/s-1.toml");
    }
}
