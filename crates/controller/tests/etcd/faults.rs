//! What can be wrong with an etcd: certificates, rights, a history that is compacted or set back.

use crate::member::Cluster;
use crate::{Model, PATIENCE, all, delete, follower, open, put};
use api::identity::{Identity, Kind};
use api::pki::Authority;
use fibula_controller::store::{
    Candidate, Commit, EtcdOptions, EtcdStore, EtcdTls, Fault, Store, StoreError, Watching,
};
use serde_json::{Value, json};
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use tokio::runtime::Runtime;

pub(crate) const TESTS: [(&str, fn()); 5] = [
    ("rows_whose_seal_is_gone_are_no_new_store", seal_gone),
    ("certificates_that_are_wrong_are_refused_with_a_reason_and_renewed_ones_are_read", certificates),
    ("user_who_may_only_read_reads_and_is_told_what_he_lacks", rights),
    ("whoever_follows_notices_that_etcd_was_compacted_and_reads_again", compacted),
    ("etcd_that_was_set_back_is_noticed_and_its_rows_are_those_of_the_backup", set_back),
];

/// An authority that signs for members of etcd and for their clients.
struct Certificates {
    _directory: tempfile::TempDir,
    authority: Authority,
}

impl Certificates {
    fn new() -> Certificates {
        let directory = tempfile::tempdir().unwrap();
        let authority = Authority::create(&directory.path().join("pki")).unwrap();
        Certificates { _directory: directory, authority }
    }

    /// The directory with a certificate that is valid for so many seconds, its key, and that of the authority.
    fn make(&self, name: &str, seconds: i64) -> PathBuf {
        let identity = Identity::new(Kind::Controller, name).unwrap();
        self.authority.make_until(&identity, &[], seconds).unwrap()
    }
}

const HOUR: i64 = 3600;
const EXPIRED: i64 = -30;

/// One member that talks TLS at the port as well, and asks for certificates.
fn secured(files: &Path) -> (Cluster, u16) {
    let socket = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = socket.local_addr().unwrap().port();
    drop(socket);
    let file = |name: &str| files.join(name).display().to_string();
    let listen = format!("http://127.0.0.1:CLIENT,https://127.0.0.1:{port}");
    let flags = [
        ["--listen-client-urls", &listen],
        ["--cert-file", &file("cert.pem")],
        ["--key-file", &file("key.pem")],
        ["--trusted-ca-file", &file("ca.pem")],
    ];
    let flags = [flags.as_flattened(), &["--client-cert-auth"]].concat();
    (Cluster::start(1, &flags), port)
}

fn candidate(port: u16, ca: &Path, shown: Option<&Path>) -> Candidate {
    let tls = EtcdTls {
        ca: ca.join("ca.pem"),
        cert: shown.map(|files| files.join("cert.pem")),
        key: shown.map(|files| files.join("key.pem")),
    };
    let address = format!("etcd://127.0.0.1:{port}/secured").parse().unwrap();
    Candidate::new(&EtcdOptions { address, tls: Some(tls) }, "here:1").unwrap()
}

fn with_tls(port: u16, files: &Path) -> EtcdStore {
    candidate(port, files, Some(files)).lead_within(PATIENCE).unwrap()
}

fn certificates() {
    let (ours, others) = (Certificates::new(), Certificates::new());
    let (server, client) = (ours.make("etcd", HOUR), ours.make("c1", HOUR));
    let (stranger, expired) = (others.make("c1", HOUR), ours.make("late", EXPIRED));
    let (_cluster, port) = secured(&server);
    let (_late, late) = secured(&expired);
    let mut store = with_tls(port, &client);
    store.commit(&[put(1, b"a", b"")]).unwrap();
    assert_eq!(all(&store).len(), 1);
    store.close().unwrap();
    drop(store);

    let refused = |port: u16, ca: &Path, shown: Option<&Path>, says: &str| {
        let error = candidate(port, ca, shown).lead_within(PATIENCE).unwrap_err();
        assert!(matches!(error, StoreError::Etcd { fault: Fault::Unreachable, .. }), "{error}");
        let error = error.to_string();
        println!("{error}");
        assert!(error.to_lowercase().contains(says) && error.contains("[etcd]"), "{says}: {error}");
    };
    std::thread::scope(|scope| {
        scope.spawn(|| refused(port, &client, None, "certificate"));
        scope.spawn(|| refused(port, &client, Some(&stranger), "certificate"));
        scope.spawn(|| refused(port, &client, Some(&expired), "certificate"));
        scope.spawn(|| refused(port, &stranger, Some(&client), "certificate"));
        scope.spawn(|| refused(late, &client, Some(&client), "expired"));
    });

    // One that is renewed while the controller runs is read for its next connection.
    let renewed = tempfile::tempdir().unwrap();
    let copy = |from: &Path| {
        for name in ["cert.pem", "key.pem", "ca.pem"] {
            std::fs::copy(from.join(name), renewed.path().join(name)).unwrap();
        }
    };
    copy(&expired);
    let candidate = candidate(port, renewed.path(), Some(renewed.path()));
    copy(&client);
    assert_eq!(all(&candidate.lead_within(PATIENCE).unwrap()).len(), 1);
}

/// Asks the first member by its JSON gateway.
fn ask(cluster: &Cluster, path: &str, body: &Value) -> Value {
    let mut stream = TcpStream::connect(("127.0.0.1", cluster.ports[0].0)).unwrap();
    let body = body.to_string();
    write!(stream, "POST /v3/{path} HTTP/1.0\r\nContent-Length: {}\r\n\r\n{body}", body.len()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    assert!(head.contains(" 200 "), "{path}: {answer}");
    serde_json::from_str(body).unwrap()
}

fn rights() {
    let ours = Certificates::new();
    let (server, client) = (ours.make("etcd", HOUR), ours.make("c1", HOUR));
    let (cluster, port) = secured(&server);
    let mut store = with_tls(port, &client);
    store.commit(&[put(1, b"a", b"1")]).unwrap();
    // "AA==" is the key of one zero byte, which as the end of a range that begins with it means all keys.
    let may = |what: &str| {
        let perm = json!({ "permType": what, "key": "AA==", "range_end": "AA==" });
        ask(&cluster, "auth/role/grant", &json!({ "name": "names", "perm": perm }));
    };
    ask(&cluster, "auth/user/add", &json!({ "name": "root", "password": "secret" }));
    ask(&cluster, "auth/user/grant", &json!({ "user": "root", "role": "root" }));
    ask(&cluster, "auth/role/add", &json!({ "name": "names" }));
    may("READ");
    ask(&cluster, "auth/user/add", &json!({ "name": "c1", "password": "unused" }));
    ask(&cluster, "auth/user/grant", &json!({ "user": "c1", "role": "names" }));
    ask(&cluster, "auth/enable", &json!({}));
    let error = store.commit(&[put(1, b"a", b"2")]).unwrap_err();
    assert!(matches!(error, StoreError::Etcd { fault: Fault::Denied, .. }), "{error}");
    assert!(error.to_string().contains("let the user of our certificate"), "{error}");
    assert!(all(&store) == [put(1, b"a", b"1")]);
}

fn next_of(runtime: &Runtime, watching: &mut Watching) -> Result<Commit, StoreError> {
    runtime.block_on(async { tokio::time::timeout(PATIENCE, watching.next()).await.unwrap() })
}

fn compacted() {
    let cluster = Cluster::start(1, &[]);
    let address = cluster.address("compacted");
    let (runtime, follower) = follower(&address);
    let mut store = open(&address);
    let mut model = Model::default();
    let mut commit = |store: &mut EtcdStore, i: u8| {
        let rows = [put(1, &[i], &[i; 50]), delete(1, &[i / 2])];
        store.commit_told(&rows, &rows[0].key).unwrap();
        model.apply(&rows);
        model.clone()
    };
    commit(&mut store, 1);
    let position = runtime.block_on(follower.position()).unwrap();
    let mut watching = follower.watch(position);
    let mut last = Model::default();
    for i in 2..12 {
        last = commit(&mut store, i);
    }
    let found = ask(&cluster, "kv/range", &json!({ "key": "AA==" }));
    ask(&cluster, "kv/compaction", &json!({ "revision": found["header"]["revision"] }));
    let error = next_of(&runtime, &mut watching).unwrap_err();
    assert!(error.to_string().contains("compacted"), "{error}");
    assert!(follower.rows(position).next().unwrap().is_err(), "rows as of then are gone");
    let position = runtime.block_on(follower.position()).unwrap();
    let rows: Vec<_> = follower.rows(position).collect::<Result<_, _>>().unwrap();
    assert!(rows == last.rows());
}

fn set_back() {
    let mut cluster = Cluster::start(1, &[]);
    let address = cluster.address("back");
    let (runtime, follower) = follower(&address);
    let mut model = Model::default();
    let mut store = open(&address);
    let before: Vec<_> = (0..300_u32).map(|i| put(1, &i.to_be_bytes(), b"before")).collect();
    store.commit(&before).unwrap();
    model.apply(&before);
    all(&store);
    let copy = |from: &Path, to: &Path| {
        let copied = std::process::Command::new("cp").arg("-r").arg(from).arg(to).status().unwrap();
        assert!(copied.success());
    };
    let (data, backup) = (cluster.directory.path().join("m0"), cluster.directory.path().join("backup"));
    cluster.kill(0);
    copy(&data, &backup);
    cluster.run(0);
    cluster.wait(0);
    for i in 0..5_u8 {
        // The one that led may have lost its lease meanwhile.
        let row = [put(2, &[i], b"after")];
        if store.commit(&row).is_err() {
            drop(store);
            store = open(&address);
            store.commit(&row).unwrap();
        }
    }
    let position = runtime.block_on(follower.position()).unwrap();
    let mut watching = follower.watch(position);

    cluster.kill(0);
    std::fs::remove_dir_all(&data).unwrap();
    copy(&backup, &data);
    cluster.run(0);
    cluster.wait(0);
    let error = next_of(&runtime, &mut watching).unwrap_err();
    assert!(error.to_string().contains("set back"), "{error}");
    // What it would write now belongs to rows that are gone.
    let error = store.commit(&[put(3, b"", b"")]).unwrap_err();
    assert!(matches!(error, StoreError::NotLeader { .. } | StoreError::LostLead { .. }), "{error}");
    drop(store);
    let next = open(&address);
    assert!(all(&next) == model.rows());
}

fn seal_gone() {
    let cluster = Cluster::start(1, &[]);
    let address = cluster.address("gone");
    let mut store = open(&address);
    store.commit(&[put(1, b"a", b"1")]).unwrap();
    store.close().unwrap();
    drop(store);
    // The key `gone/seal`.
    let deleted = ask(&cluster, "kv/deleterange", &json!({ "key": "Z29uZS9zZWFs" }));
    assert_eq!(deleted["deleted"], "1", "{deleted}");
    let candidate = crate::candidate(&address, "here:1");
    let error = candidate.lead_within(PATIENCE).unwrap_err();
    assert!(
        matches!(error, StoreError::Damaged { .. }) && error.to_string().contains("gone/seal is missing"),
        "{error}"
    );
}
