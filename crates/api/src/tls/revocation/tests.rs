use crate::identity::{Identity, Kind, Role};
use crate::pki::Authority;
use crate::tls::{Files, Tls};
use rcgen::{
    BasicConstraints, CertificateParams, CertificateRevocationListParams, CertifiedIssuer, DnType, IsCa, KeyIdMethod,
    KeyPair, KeyUsagePurpose, RevokedCertParams, SanType, SerialNumber,
};
use std::fs;
use std::path::Path;
use time::{Duration, OffsetDateTime};
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, UnixTime};

/// Whether a daemon lets in anyone who shows the certificate in a file.
fn lets_in(tls: &Tls, cert: &Path) -> bool {
    let chain: Vec<CertificateDer<'static>> =
        CertificateDer::pem_file_iter(cert).unwrap().map(Result::unwrap).collect();
    tls.current().clients.verify_client_cert(&chain[0], &chain[1..], UnixTime::now()).is_ok()
}

/// A file is replaced as by an operator who copies another one there.
fn replace(path: &Path, text: &str) {
    let new = path.with_extension("new");
    fs::write(&new, text).unwrap();
    fs::rename(&new, path).unwrap();
}

#[test]
fn an_older_list_and_none_let_nobody_in_who_is_revoked() {
    let directory = tempfile::tempdir().unwrap();
    let authority = Authority::create(&directory.path().join("pki")).unwrap();
    let make = |kind, name: &str| authority.make(&Identity::new(kind, name).unwrap(), &[], 30).unwrap();
    let controller = make(Kind::Controller, "c1");
    let [alice, bob] = ["alice", "bob"].map(|name| make(Kind::Operator(Role::Admin), name).join("cert.pem"));
    let tls = Tls::load(&Files::in_directory(&controller)).unwrap();
    let list = controller.join("crl.pem");
    let first = fs::read_to_string(&list).unwrap();
    assert!(lets_in(&tls, &alice) && lets_in(&tls, &bob));

    authority.revoke("operator", "alice", None).unwrap();
    assert!(tls.reload().unwrap() && !tls.is_refused());
    let second = fs::read_to_string(&list).unwrap();
    assert!(!lets_in(&tls, &alice) && lets_in(&tls, &bob));
    for (what, text) in [("an older one", Some(&first)), ("none", None), ("an older one again", Some(&first))] {
        match text {
            Some(text) => replace(&list, text),
            None => fs::remove_file(&list).unwrap(),
        }
        assert!(tls.reload().unwrap(), "{what}");
        assert!(!lets_in(&tls, &alice) && lets_in(&tls, &bob), "{what}");
        assert!(tls.is_refused(), "{what} is told");
    }
    // Other files are taken meanwhile.
    let not_after = tls.not_after();
    authority.make(&Identity::new(Kind::Controller, "c1").unwrap(), &[], 60).unwrap();
    replace(&list, &first);
    assert!(tls.reload().unwrap() && tls.not_after() > not_after && !lets_in(&tls, &alice));

    replace(&list, &second);
    assert!(tls.reload().unwrap() && !tls.is_refused() && !lets_in(&tls, &alice));
    authority.revoke("operator", "bob", None).unwrap();
    assert!(tls.reload().unwrap() && !tls.is_refused());
    assert!(!lets_in(&tls, &alice) && !lets_in(&tls, &bob));
}

fn params(name: &str, is_authority: bool) -> CertificateParams {
    let mut params = CertificateParams::default();
    params.distinguished_name = rcgen::DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, name);
    if is_authority {
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    }
    params.use_authority_key_identifier_extension = true;
    params
}

type Issuer = CertifiedIssuer<'static, KeyPair>;

fn list_of(issuer: &Issuer, number: u64, revoked: &[SerialNumber]) -> String {
    let now = OffsetDateTime::from(crate::clock::now());
    let revoked = revoked.iter().map(|serial| RevokedCertParams {
        serial_number: serial.clone(),
        revocation_time: now,
        reason_code: None,
        invalidity_date: None,
    });
    let params = CertificateRevocationListParams {
        this_update: now - Duration::hours(1),
        next_update: now + Duration::days(30),
        crl_number: number.into(),
        issuing_distribution_point: None,
        revoked_certs: revoked.collect(),
        key_identifier_method: KeyIdMethod::Sha256,
    };
    params.signed_by(issuer).unwrap().pem().unwrap()
}

#[test]
fn whoever_an_authority_signed_that_its_root_has_revoked_is_not_let_in() {
    let directory = tempfile::tempdir().unwrap();
    let at = |name: &str| directory.path().join(name);
    let root = Issuer::self_signed(params("root", true), KeyPair::generate().unwrap()).unwrap();
    let serial = SerialNumber::from(vec![0x77; 16]);
    let mut between = params("between", true);
    between.serial_number = Some(serial.clone());
    let between = Issuer::signed_by(between, KeyPair::generate().unwrap(), &root).unwrap();
    let mut own = params("c1", false);
    own.subject_alt_names = vec![SanType::URI("fibula://controller/c1".try_into().unwrap())];
    let key = KeyPair::generate().unwrap();
    let cert = own.signed_by(&key, &between).unwrap();
    fs::write(at("cert.pem"), cert.pem() + &between.pem()).unwrap();
    fs::write(at("key.pem"), key.serialize_pem()).unwrap();
    fs::write(at("ca.pem"), root.pem()).unwrap();

    // A list of the authority that signs holders is enough, as it was; one of the root counts if it is there.
    replace(&at("crl.pem"), &list_of(&between, 1, &[]));
    let tls = Tls::load(&Files::in_directory(directory.path())).unwrap();
    assert!(lets_in(&tls, &at("cert.pem")));
    replace(&at("crl.pem"), &(list_of(&between, 1, &[]) + &list_of(&root, 1, &[])));
    assert!(tls.reload().unwrap() && lets_in(&tls, &at("cert.pem")));
    replace(&at("crl.pem"), &(list_of(&between, 1, &[]) + &list_of(&root, 2, &[serial])));
    assert!(tls.reload().unwrap() && !lets_in(&tls, &at("cert.pem")), "its authority is revoked");
    // The same when the list of the root is taken out of the file.
    replace(&at("crl.pem"), &list_of(&between, 2, &[]));
    assert!(tls.reload().unwrap() && tls.is_refused() && !lets_in(&tls, &at("cert.pem")));
    // One of the root alone says nothing of holders, of whom a list is needed.
    replace(&at("crl.pem"), &list_of(&root, 1, &[]));
    let other = Tls::load(&Files::in_directory(directory.path())).unwrap();
    assert!(!lets_in(&other, &at("cert.pem")));
}
