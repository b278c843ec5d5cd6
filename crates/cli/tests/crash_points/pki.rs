//! Rounds that kill a command of `fibula pki`.

use crate::process::{Binary, is_kill};
use crate::site::Crash;
use api::identity::{Identity, Kind};
use api::pki::Authority;
use api::tls::{Files, Tls};
use std::path::Path;
use std::process::ExitStatus;

/// Kills one of the commands; afterwards the authority is as it was or as it was to be, and the command works.
pub(crate) fn round(pki: &Path, crash: &Crash, binary: &Binary) -> bool {
    let run = |arguments: &[&str], crash: Option<&Crash>| -> ExitStatus {
        let arguments = [&["pki", "--pki", pki.to_str().unwrap()], arguments].concat();
        binary.run(&arguments, crash)
    };
    let authority = || Authority::load(pki);
    // Every fourth round begins with an authority to make.
    let n_issued = authority().and_then(|authority| authority.issued()).map_or(0, |issued| issued.len());
    if n_issued >= 3 {
        let _ = std::fs::remove_dir_all(pki);
    }
    let name = format!("s{}", 1 + n_issued % 3);
    let what = format!("pki with {crash}, {n_issued} issued");
    if authority().is_err() {
        let killed = is_kill(run(&["init"], Some(crash)), &what);
        assert!(authority().is_ok() || run(&["init"], None).success(), "{what}: init");
        assert!(authority().and_then(|authority| authority.issued()).is_ok(), "{what}: show");
        return killed;
    }
    let issue = ["issue", "switch", &name];
    let killed = is_kill(run(&issue, Some(crash)), &what);
    let issued = authority().and_then(|authority| authority.issued());
    issued.unwrap_or_else(|error| panic!("{what}: {error}"));
    // What is not on record could not be revoked.
    let files = authority().unwrap().files(&Identity::new(Kind::Switch, &name).unwrap());
    if let Ok(pem) = std::fs::read(files.join("cert.pem")) {
        let mut record =
            std::fs::read_dir(pki.join("issued")).unwrap().map(|entry| std::fs::read(entry.unwrap().path()));
        assert!(record.any(|recorded| recorded.unwrap() == pem), "{what}: not on record");
    }
    // It may be on record already, and not all of its files written.
    assert!(run(&issue, None).success() || run(&["renew", "switch", &name], None).success(), "{what}: again");
    let tls = Tls::load_for(&Files::in_directory(&files), Some(&name));
    tls.unwrap_or_else(|error| panic!("{what}: {error}"));
    if killed {
        return true;
    }
    let revoke = ["revoke", "switch", &name];
    let killed = is_kill(run(&revoke, Some(crash)), &what);
    assert!(run(&revoke, None).success(), "{what}: revoke");
    let issued = authority().and_then(|authority| authority.issued()).unwrap();
    assert!(issued.iter().filter(|i| i.certificate.identity.name() == name).all(|i| i.revoked.is_some()), "{what}");
    let [own, others] = [pki.join("crl.pem"), files.join("crl.pem")].map(|path| std::fs::read(path).unwrap());
    assert!(own == others, "{what}: the list of revocations is not that of the authority");
    killed
}
