//! Checks a daemon's files as the user that it runs as: what root can read, a service may be denied.
//!
//! A thread takes on that user's identity and opens each file as a daemon would. Nothing is written.

use super::Findings;
use super::service::{Process, Service, Unit};
use crate::machine::User;
use ::controller::config::{Config as Controller, Place};
use ::switch::daemon::config::Config as Switch;
use api::tls::Files;
use rustix::fs::{Access, AtFlags, CWD, accessat};
use rustix::process::{Gid, Uid};
use std::fs::{self, File};
use std::io::{self, ErrorKind};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// Directories that `ProtectHome=` hides from a service.
const HOMES: [&str; 3] = ["/home", "/root", "/run/user"];
/// Maximum number of files tried in a directory.
const MOST_FILES: usize = 1000;

/// What a daemon does with a file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Use {
    /// Reads it; everyone may read it.
    Public,
    /// Reads it; no other user may.
    Secret,
    /// Reads and writes it.
    State,
    /// Creates files in it.
    Directory,
}

/// Files that a daemon opens.
#[derive(Default)]
pub(super) struct Opened {
    files: Vec<(&'static str, PathBuf, Use)>,
}

impl Opened {
    /// The files of a controller with this configuration.
    pub(super) fn by_controller(path: &Path, config: &Controller) -> Self {
        let mut opened = Self::default();
        opened.reads("configuration", path);
        config.tls.iter().for_each(|files| opened.tls(files));
        let audit = config.audit_path();
        if let Place::File(store) = &config.store {
            let name = store.file_name().unwrap_or_default().to_string_lossy().into_owned();
            let is_ours = |path: &Path| {
                let file = path.file_name().unwrap_or_default().to_string_lossy();
                *path == audit || file.starts_with(&name)
            };
            opened.state("store", store.parent().unwrap_or(Path::new("")), is_ours);
        }
        opened.audit(&audit);
        opened
    }

    /// The files of a switch with this configuration.
    pub(super) fn by_switch(path: &Path, config: &Switch) -> Self {
        let mut opened = Self::default();
        opened.reads("configuration", path);
        config.tls.iter().for_each(|files| opened.tls(files));
        opened.state("state_dir", &config.state_dir, |_| true);
        opened.audit(&config.audit_path());
        let mut lists: Vec<&PathBuf> = config.ports.iter().filter_map(|port| port.acl.as_ref()).collect();
        lists.dedup();
        lists.into_iter().for_each(|list| opened.reads("acl", list));
        if let Some(directory) = config.share.as_ref().and_then(|share| share.parent()) {
            opened.state("share", directory, |path| Some(path) == config.share.as_deref());
        }
        opened
    }

    /// The record of changes, if it is not beside the state.
    fn audit(&mut self, audit: &Path) {
        let Some(directory) = audit.parent() else { return };
        if !self.files.iter().any(|(_, path, kind)| *kind == Use::Directory && path == directory) {
            self.state("audit", directory, |path| path == audit);
        }
    }

    fn reads(&mut self, what: &'static str, path: &Path) {
        self.files.push((what, path.to_owned(), Use::Public));
    }

    fn tls(&mut self, files: &Files) {
        let Files { dir, cert, key, ca, crl } = files;
        for (what, own, name) in [
            ("certificate", cert, "cert.pem"),
            ("private key", key, "key.pem"),
            ("authority", ca, "ca.pem"),
            ("revocation list", crl, "crl.pem"),
        ] {
            let path = own.clone().or_else(|| dir.as_ref().map(|dir| dir.join(name)));
            let kind = if name == "key.pem" { Use::Secret } else { Use::Public };
            self.files.extend(path.map(|path| (what, path, kind)));
        }
    }

    /// A directory that the daemon creates files in, and its existing files.
    fn state(&mut self, what: &'static str, directory: &Path, is_ours: impl Fn(&Path) -> bool) {
        let directory = if directory.as_os_str().is_empty() { Path::new(".") } else { directory };
        self.files.push((what, directory.to_owned(), Use::Directory));
        let there = fs::read_dir(directory).into_iter().flatten().flatten().map(|entry| entry.path());
        let ours = there.filter(|path| path.is_file() && is_ours(path)).take(MOST_FILES);
        self.files.extend(ours.map(|path| (what, path, Use::State)));
    }

    /// Tries the files, and reports the ones that the user of the service cannot use.
    pub(super) fn look_at(self, service: &Service, findings: &mut Findings) {
        let unit = service.unit();
        let user = match user_of(unit, service.process().as_ref()) {
            Ok(user) => user,
            Err(why) => return findings.bad("user", why),
        };
        for (_, path, _) in self.files.iter().filter(|(_, _, kind)| *kind == Use::Secret) {
            look_at_secret(path, &user, findings);
        }
        // Failures with the same remedy are one finding.
        let mut said = Vec::new();
        let seen = |(_, path, kind): &(&str, PathBuf, Use)| match unit.and_then(|unit| sandboxed(path, *kind, unit)) {
            None => true,
            Some(why) if said.contains(&why) => false,
            Some(why) => {
                findings.bad("unit", &why);
                said.push(why);
                false
            }
        };
        let (files, hidden): (Vec<_>, Vec<_>) = self.files.into_iter().partition(seen);
        let (own, n, whom) = (rustix::process::geteuid().as_raw(), files.len(), user.name.clone());
        if own != 0 && own != user.uid {
            findings.untried(
                "files",
                format!("the daemon runs as the user {whom}, and only root can try files as another user: sudo fibula doctor"),
            );
            return;
        }
        let denied = match tried(files, (own != user.uid).then(|| user.clone())) {
            Ok(denied) => denied,
            Err(error) => return findings.untried("files", format!("doctor cannot become the user {whom}: {error}")),
        };
        // systemd gives the directories that it creates for a unit to the user of the service when the unit starts.
        let is_given = |at: &Path| unit.and_then(|unit| made_by(unit, at)).is_some_and(|owner| owner != user.uid);
        let denied: Vec<_> = denied.into_iter().filter(|(.., at)| !is_given(at)).collect();
        if denied.is_empty() && hidden.is_empty() {
            findings.ok("files", format!("the user {whom} may use all {n} that the daemon opens"));
        }
        let is_own = |(_, path, kind, at): &Denied| *kind == Use::State && at == path;
        let (states, others): (Vec<_>, Vec<_>) = denied.into_iter().partition(is_own);
        let mut commands = Vec::new();
        for (what, path, kind, at) in others {
            let command = mend(&path, kind, &at, &user);
            if !commands.contains(&command) {
                let verb = if matches!(kind, Use::Public | Use::Secret) { "read" } else { "write" };
                findings.bad(what, format!("the user {whom} cannot {verb} {}; {command}", path.display()));
                commands.push(command);
            }
        }
        if let Some((what, ..)) = states.first() {
            let paths: Vec<_> = states.iter().map(|(_, path, ..)| path.display().to_string()).collect();
            let paths = paths.join(" ");
            findings.bad(
                what,
                format!("the user {whom} cannot write existing files, perhaps because root has run the daemon; chown {whom}: {paths}"),
            );
        }
    }
}

/// The user of the daemon: that of its unit, or of its process, or else the current one.
fn user_of(unit: Option<&Unit>, process: Option<&Process>) -> Result<User, String> {
    if let Some(unit) = unit {
        let name = Some(unit.get("User")).filter(|name| !name.is_empty()).unwrap_or("root");
        let user = User::of(|fields| fields[0] == name || fields[2] == name);
        let unit = &unit.name;
        return user.ok_or_else(|| {
            format!("{unit} runs as the user {name}, who does not exist on this machine; systemd-sysusers creates it, or apt-get install --reinstall fibula")
        });
    }
    let own = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
    let uid = process.map_or(own.0, |process| process.uid);
    let unnamed = || User { name: uid.to_string(), uid, gid: own.1, groups: Vec::new() };
    Ok(User::of(|fields| fields[2].parse() == Ok(uid)).unwrap_or_else(unnamed))
}

type Denied = (&'static str, PathBuf, Use, PathBuf);

/// The files that this user may not open, each with the first file or directory on its path where access is denied.
fn tried(files: Vec<(&'static str, PathBuf, Use)>, user: Option<User>) -> io::Result<Vec<Denied>> {
    let work = move || {
        if let Some(User { uid, gid, groups, .. }) = user {
            // For this thread only.
            let (uid, gid) = (Uid::from_raw(uid), Gid::from_raw(gid));
            let groups: Vec<Gid> = groups.into_iter().map(Gid::from_raw).collect();
            rustix::thread::set_thread_groups(&groups)?;
            rustix::thread::set_thread_res_gid(gid, gid, gid)?;
            rustix::thread::set_thread_res_uid(uid, uid, uid)?;
        }
        let denied = files.into_iter().filter_map(|(what, path, kind)| {
            let at = refused(&path, kind)?;
            Some((what, path, kind, at))
        });
        Ok(denied.collect())
    };
    std::thread::spawn(work).join().unwrap_or_else(|_| Err(io::Error::other("the thread ended")))
}

/// Where this thread is denied access to a file. A missing file is not a matter of permissions.
fn refused(path: &Path, kind: Use) -> Option<PathBuf> {
    let path = std::path::absolute(path).ok()?;
    let mut above: Vec<&Path> = path.ancestors().skip(1).collect();
    above.reverse();
    let may = |at: &Path, access| accessat(CWD, at, access, AtFlags::empty()).map_err(io::Error::from);
    for directory in above {
        match may(directory, Access::EXEC_OK) {
            Err(error) if error.kind() == ErrorKind::PermissionDenied => return Some(directory.to_owned()),
            // The daemon creates it, with any missing parents.
            Err(error) if error.kind() == ErrorKind::NotFound && kind == Use::Directory => {
                let there = directory.parent()?;
                return may(there, Access::WRITE_OK).is_err().then_some(path);
            }
            Err(_) => return None,
            Ok(()) => {}
        }
    }
    let opened = match kind {
        // Opened as a daemon opens it, except pipes, which would block.
        Use::Public | Use::Secret => {
            let is_file = fs::metadata(&path).is_ok_and(|data| data.is_file());
            if is_file { File::open(&path).map(drop) } else { may(&path, Access::READ_OK) }
        }
        Use::State => may(&path, Access::READ_OK | Access::WRITE_OK),
        Use::Directory => match may(&path, Access::READ_OK | Access::WRITE_OK | Access::EXEC_OK) {
            Err(error) if error.kind() == ErrorKind::NotFound => may(path.parent()?, Access::WRITE_OK),
            opened => opened,
        },
    };
    opened.err().filter(|error| matches!(error.kind(), ErrorKind::PermissionDenied | ErrorKind::ReadOnlyFilesystem))?;
    Some(path)
}

/// The command that gives a user the access that is denied at `at`.
fn mend(path: &Path, kind: Use, at: &Path, user: &User) -> String {
    let (shown, gid) = (at.display(), user.gid);
    let user = &user.name;
    if HOMES.iter().any(|home| at.starts_with(home)) {
        return elsewhere(path, kind, user);
    }
    if at != path && at.is_dir() {
        let group = group_of(gid).unwrap_or_else(|| gid.to_string());
        return format!("chgrp {group} {shown}; chmod g+x {shown}");
    }
    match kind {
        Use::Public => format!("chmod a+r {shown}"),
        Use::Secret => format!("chown {user} {shown}; chmod 600 {shown}"),
        // A shared directory is not given to one user.
        Use::State | Use::Directory if at.components().count() < 4 => {
            format!("configure a path in a separate directory, such as one in /var/lib/fibula; {shown} is shared")
        }
        Use::State | Use::Directory if !at.exists() => {
            format!("mkdir -p {shown}; chown {user}: {shown}; chmod 700 {shown}")
        }
        Use::State | Use::Directory => format!("chown {user}: {shown}; chmod u+rwx {shown}"),
    }
}

/// The advice for files in a home directory.
fn elsewhere(path: &Path, kind: Use, user: &str) -> String {
    let directory = path.parent().unwrap_or(path).display();
    match kind {
        Use::State | Use::Directory => {
            format!("{} is in a home directory: configure one in /var/lib/fibula", path.display())
        }
        Use::Public | Use::Secret => format!(
            "it is in a home directory: cp -r {directory} /etc/fibula/tls/; chown -R {user}: /etc/fibula/tls; then name it in the configuration"
        ),
    }
}

/// The owner of the state directory that systemd creates for a unit, if `path` is in it.
fn made_by(unit: &Unit, path: &Path) -> Option<u32> {
    let made = |directory: &str| Path::new("/var/lib").join(directory.split(':').next().unwrap_or_default());
    let directory = unit.get("StateDirectory").split_whitespace().map(made).find(|made| path.starts_with(made))?;
    // A missing directory will be created.
    Some(fs::metadata(directory).map_or(0, |data| data.uid()))
}

/// Checks whether other users can read a private key.
fn look_at_secret(path: &Path, user: &User, findings: &mut Findings) {
    let Ok(data) = fs::metadata(path) else { return };
    let (shown, mode, what) = (path.display(), data.mode(), "private key");
    let owner = if data.uid() == user.uid { String::new() } else { format!("chown {} {shown}; ", user.name) };
    let command = format!("{owner}chmod 600 {shown}");
    if mode & 0o006 != 0 {
        findings.warn(what, format!("every user of this machine may read or write {shown}; {command}"));
    } else if mode & 0o060 != 0 && data.gid() != 0 && data.gid() != user.gid {
        let group = group_of(data.gid()).unwrap_or_else(|| data.gid().to_string());
        findings.warn(what, format!("the group {group} may read or write {shown}; {command}"));
    }
}

fn group_of(gid: u32) -> Option<String> {
    let groups = fs::read_to_string("/etc/group").ok()?;
    let mut lines = groups.lines().map(|line| line.split(':').collect::<Vec<_>>());
    lines
        .find(|fields| fields.get(2).and_then(|field| field.parse().ok()) == Some(gid))
        .map(|fields| fields[0].to_owned())
}

/// Why the unit denies its daemon access to a file, and what to do.
fn sandboxed(path: &Path, kind: Use, unit: &Unit) -> Option<String> {
    let name = &unit.name;
    let hides_homes = matches!(unit.get("ProtectHome"), "yes" | "tmpfs");
    if hides_homes && HOMES.iter().any(|home| path.starts_with(home)) {
        let (directory, advice) = (path.parent().unwrap_or(path).display(), elsewhere(path, kind, unit.get("User")));
        return Some(format!("{name} cannot see {directory} (ProtectHome=); {advice}"));
    }
    let may_write = || {
        let mut written = unit.get("ReadWritePaths").split_whitespace().map(|path| path.trim_start_matches(['-', '+']));
        written.any(|written| path.starts_with(written)) || made_by(unit, path).is_some()
    };
    let is_denied = kind == Use::Directory && unit.get("ProtectSystem") == "strict" && !may_write();
    is_denied.then(|| {
        let shown = path.display();
        format!("{name} may not write in {shown} (ProtectSystem=strict); mkdir -p /etc/systemd/system/{name}.d; printf '[Service]\\nReadWritePaths={shown}\\n' > /etc/systemd/system/{name}.d/paths.conf; systemctl daemon-reload")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_refused_is_mended_where_it_is_refused() {
        // No group has this number.
        let user = User { name: "fibula".to_owned(), uid: 990, gid: 4_000_000_000, groups: Vec::new() };
        let mended = |path: &str, kind, at: &str| mend(Path::new(path), kind, Path::new(at), &user);
        let key = "/etc/fibula/tls/s1/key.pem";
        assert_eq!(
            mended(key, Use::Secret, key),
            "chown fibula /etc/fibula/tls/s1/key.pem; chmod 600 /etc/fibula/tls/s1/key.pem"
        );
        assert_eq!(mended(key, Use::Secret, "/usr"), "chgrp 4000000000 /usr; chmod g+x /usr");
        // Nobody is told to open a home, or to give away what is everybody's.
        let command = mended("/root/.config/fibula/pki/switch/s1/key.pem", Use::Secret, "/root");
        assert!(command.contains("cp -r /root/.config/fibula/pki/switch/s1 /etc/fibula/tls/"), "{command}");
        assert!(!command.contains("chmod"), "{command}");
        let command = mended("/var/lib", Use::Directory, "/var/lib");
        assert!(command.contains("a separate directory") && !command.contains("chown"), "{command}");
    }
}
