//! An authority in a temporary directory.

use super::*;
use crate::identity::Role;
use crate::tls::{Files, Tls};
use std::os::unix::fs::PermissionsExt;

fn identity(kind: Kind, name: &str) -> Identity {
    Identity::new(kind, name).unwrap()
}

#[test]
fn certificates_say_what_was_asked_for_and_keys_are_private() {
    let directory = tempfile::tempdir().unwrap();
    let at = directory.path().join("pki");
    let authority = Authority::create(&at).unwrap();
    let asked = identity(Kind::Operator(Role::Writer), "alice");
    let files = authority.issue(&asked, &[], 10).unwrap();
    let switch =
        authority.issue(&identity(Kind::Switch, "s1"), &["10.0.0.2".to_owned(), "s1.example".to_owned()], 10).unwrap();
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!([mode(&at), mode(&at.join("ca.key")), mode(&files.join("key.pem"))], [0o700, 0o600, 0o600]);

    let tls = Tls::load(&Files::in_directory(&files)).unwrap();
    assert_eq!(tls.identity(), asked);
    assert!((9 * 86_400..=10 * 86_400).contains(&(tls.not_after() - unix_seconds())));
    let authority = Authority::load(&at).unwrap();
    let issued = authority.issued().unwrap();
    assert_eq!(
        issued.iter().map(|i| i.certificate.identity.to_string()).collect::<Vec<_>>(),
        ["switch s1", "operator alice (writer)"]
    );
    assert_eq!(issued[0].certificate.addresses, ["localhost", "127.0.0.1", "::1", "10.0.0.2", "s1.example"]);
    Tls::load_for(&Files::in_directory(&switch), Some("s1")).unwrap();
    let wrong = Tls::load_for(&Files::in_directory(&switch), Some("s2")).unwrap_err().to_string();
    assert!(wrong.contains("that of switch s1") && wrong.contains("fibula pki issue switch s2"), "{wrong}");
}

#[test]
fn other_files_are_taken_while_a_daemon_runs_if_it_could_start_with_them() {
    let directory = tempfile::tempdir().unwrap();
    let authority = Authority::create(&directory.path().join("pki")).unwrap();
    let issue = |name: &str, days| authority.issue(&identity(Kind::Switch, name), &[], days).unwrap();
    // Renewed, with a certificate that lasts longer, in another place.
    let first = directory.path().join("first");
    fs::rename(issue("s1", 10), &first).unwrap();
    let second = authority.renew("switch", "s1", &[], 20).unwrap();
    let tls = Tls::load_for(&Files::in_directory(&first), Some("s1")).unwrap();
    let before = tls.not_after();
    for wrong in [issue("s2", 20), directory.path().join("nowhere")] {
        tls.read_from(&Files::in_directory(wrong)).unwrap_err();
        assert!(tls.not_after() == before && !tls.is_refused());
    }
    tls.read_from(&Files::in_directory(&second)).unwrap();
    assert!(tls.not_after() > before + 9 * 86_400);
    // Those before are looked at no more.
    fs::remove_dir_all(&first).unwrap();
    assert!(!tls.reload().unwrap());
    tls.read_again().unwrap();
}

#[test]
fn a_daemon_that_runs_takes_no_certificate_of_somebody_else() {
    let directory = tempfile::tempdir().unwrap();
    let authority = Authority::create(&directory.path().join("pki")).unwrap();
    let (s1, c1) = (identity(Kind::Switch, "s1"), identity(Kind::Controller, "c1"));
    let files_of = |who: &Identity| authority.issue(who, &[], 10).unwrap();
    let (switch, controller) = (files_of(&s1), files_of(&c1));
    let operator = files_of(&identity(Kind::Operator(Role::Admin), "me"));
    let other = files_of(&identity(Kind::Switch, "s2"));
    for (who, own, name, foreign) in [
        (&s1, &switch, Some("s1"), [&operator, &other, &controller]),
        (&c1, &controller, None, [&operator, &other, &switch]),
    ] {
        let used = directory.path().join(who.name());
        // As an operator copies files over those of a daemon, and back.
        let copy = |from: &Path| {
            fs::create_dir_all(&used).unwrap();
            for name in ["cert.pem", "key.pem", "ca.pem"] {
                let new = used.join("new");
                fs::copy(from.join(name), &new).unwrap();
                fs::rename(&new, used.join(name)).unwrap();
            }
        };
        copy(own);
        let tls = Tls::load_for(&Files::in_directory(&used), name).unwrap();
        for foreign in foreign {
            copy(foreign);
            let why = tls.reload().unwrap_err().to_string();
            assert!(why.contains(&format!("and not of {}", name.map_or("a controller", |_| "switch s1"))), "{why}");
            assert!(tls.identity() == *who && tls.is_refused(), "{who}");
            assert!(!tls.reload().unwrap() && tls.is_refused(), "said once, and true until they change");
        }
        copy(own);
        assert!(tls.reload().unwrap() && !tls.is_refused());
    }
}

#[test]
fn a_name_has_one_certificate_until_it_is_renewed_or_revoked() {
    let directory = tempfile::tempdir().unwrap();
    let authority = Authority::create(directory.path()).unwrap();
    let s1 = identity(Kind::Switch, "s1");
    authority.issue(&s1, &["10.0.0.2".to_owned()], 10).unwrap();
    assert!(matches!(authority.issue(&s1, &[], 10), Err(PkiError::Issued { .. })));
    let files = authority.renew("switch", "s1", &[], 20).unwrap();
    let issued = authority.issued().unwrap();
    assert!(issued.len() == 2 && issued.iter().all(|i| i.is_valid_at(unix_seconds())));
    assert_eq!(issued[0].certificate.addresses, issued[1].certificate.addresses);

    let first = issued[0].certificate.serial.clone();
    assert_eq!(authority.revoke("switch", "s1", Some(&first)).unwrap(), 1);
    assert_eq!(authority.revoke("switch", "s1", None).unwrap(), 1, "the other one");
    assert_eq!(authority.revoke("switch", "s1", None).unwrap(), 0);
    assert!(authority.issued().unwrap().iter().all(|i| !i.is_valid_at(unix_seconds())));
    assert_eq!(read(&files.join("crl.pem")).unwrap(), read(&directory.path().join("crl.pem")).unwrap());
    authority.issue(&s1, &[], 10).unwrap();
    assert!(matches!(authority.revoke("switch", "s9", None), Err(PkiError::Unknown { .. })));
    assert!(matches!(authority.renew("operator", "s1", &[], 1), Err(PkiError::Unknown { .. })));
}

/// All files under a directory.
fn files_under(directory: &Path) -> Vec<PathBuf> {
    let paths = fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path());
    paths.flat_map(|path| if path.is_dir() { files_under(&path) } else { vec![path] }).collect()
}

#[test]
fn flipped_bit_in_any_file_changes_no_answer() {
    let seed = lookup::testkit::seed();
    let mut rng = lookup::testkit::Rng::new(seed);
    let n_flips = if std::env::var_os("FIBULA_DEEP").is_some() { 4000 } else { 40 };
    let directory = tempfile::tempdir().unwrap();
    let authority = Authority::create(directory.path()).unwrap();
    authority.issue(&identity(Kind::Controller, "c1"), &[], 10).unwrap();
    authority.issue(&identity(Kind::Switch, "s1"), &[], 10).unwrap();
    authority.issue(&identity(Kind::Operator(Role::Admin), "eve"), &[], 10).unwrap();
    authority.revoke("operator", "eve", None).unwrap();
    let holders = ["controller/c1", "switch/s1"].map(|holder| directory.path().join(holder));
    let read = || Authority::load(directory.path()).and_then(|authority| authority.issued());
    let load = |holder: &PathBuf| {
        let tls = Tls::load(&Files::in_directory(holder)).ok()?;
        Some((tls.identity(), tls.not_after()))
    };
    let (issued, loaded) = (read().unwrap(), holders.each_ref().map(load));
    assert!(issued.len() == 3 && loaded.iter().all(Option::is_some));
    for path in files_under(directory.path()) {
        let whole = fs::read(&path).unwrap();
        for _ in 0..n_flips {
            let bit = rng.below(whole.len() as u64 * 8);
            let mut damaged = whole.clone();
            damaged[(bit / 8) as usize] ^= 1 << (bit % 8);
            fs::write(&path, damaged).unwrap();
            let what = format!("bit {bit} of {}", path.display());
            match read() {
                Ok(got) => assert_eq!(got, issued, "{what}"),
                Err(error) => {
                    assert!(matches!(error, PkiError::Damaged { .. } | PkiError::Io { .. }), "{what}: {error}")
                }
            }
            for (holder, before) in holders.iter().zip(&loaded) {
                assert!(load(holder).is_none_or(|got| Some(got) == *before), "{what}");
            }
        }
        fs::write(&path, whole).unwrap();
    }
    assert_eq!(read().unwrap(), issued);
}

#[test]
fn what_cannot_be_is_refused_with_the_reason() {
    let directory = tempfile::tempdir().unwrap();
    assert!(matches!(Authority::load(directory.path()), Err(PkiError::NoAuthority { .. })));
    let authority = Authority::create(directory.path()).unwrap();
    assert!(matches!(Authority::create(directory.path()), Err(PkiError::Exists { .. })));
    for wrong in ["10.0.0.1:4600", "a b", "", "https://c1"] {
        let refused = authority.issue(&identity(Kind::Controller, "c1"), &[wrong.to_owned()], 1);
        assert!(matches!(refused, Err(PkiError::BadAddress { .. })), "{wrong}");
    }
    let cut = directory.path().join("cut");
    fs::create_dir(&cut).unwrap();
    for name in ["cert.pem", "key.pem", "ca.pem"] {
        fs::write(cut.join(name), "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n").unwrap();
    }
    for files in [Files::in_directory(directory.path().join("none")), Files::in_directory(&cut), Files::default()] {
        let said = Tls::load(&files).unwrap_err().to_string();
        assert!(said.contains("fibula pki issue"), "{said}");
    }
}
