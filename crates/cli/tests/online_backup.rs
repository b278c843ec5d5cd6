//! `fibula store backup` of a running controller whose names change meanwhile.

mod support;

use api::v1;
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::SeqCst};
use support::{Site, add_full_mesh, exit_code, record, stderr, stdout, write};

const N_NAMES: u32 = 30_000;

fn put(index: u32, host: &str) -> v1::PutNamesRequest {
    v1::PutNamesRequest { names: vec![record(index, host)], only_new: false }
}

/// Each name moves once, in a known order, so a state is a number: how many have moved. In a backup these must be the
/// first ones, and as many as had moved at some moment between its begin and its end.
#[tokio::test(flavor = "multi_thread")]
async fn backups_beside_a_writer_are_states_between_their_begin_and_end() {
    let site = Site::new("");
    let _controller = site.start();
    let mut client = site.client().await;
    add_full_mesh(&mut client, 2).await;
    let names = site.path("names.csv");
    write(&names, (0..N_NAMES).map(|i| format!("{},h1", support::mac(i))));
    assert_eq!(exit_code(&site.fibula(&["name", "import", names.to_str().unwrap()])), 0);

    let progress = Arc::new((AtomicU32::new(0), AtomicU32::new(0), AtomicBool::new(false)));
    let moved = Arc::clone(&progress);
    let moving = tokio::spawn(async move {
        let (asked, answered, stop) = &*moved;
        for i in (0..N_NAMES).take_while(|_| !stop.load(SeqCst)) {
            asked.store(i + 1, SeqCst);
            client.put_names(put(at(i), "h2")).await.unwrap();
            answered.store(i + 1, SeqCst);
        }
    });
    let (asked, answered, stop) = &*progress;
    let mut backups = Vec::new();
    let mut n_moved_meanwhile = 0;
    while backups.len() < 4 || n_moved_meanwhile < 20 {
        let before = answered.load(SeqCst);
        let to = site.path(&format!("copy-{}", backups.len()));
        let output = tokio::task::block_in_place(|| site.fibula(&["store", "backup", "--to", to.to_str().unwrap()]));
        assert_eq!(exit_code(&output), 0, "{}", stderr(&output));
        assert!(stdout(&output).contains("rows are in"), "{}", stdout(&output));
        let after = asked.load(SeqCst);
        n_moved_meanwhile += after - before;
        backups.push((to, before, after));
    }
    stop.store(true, SeqCst);
    moving.await.unwrap();

    for (to, before, after) in backups {
        let checked = site.fibula(&["store", "check", "--store", to.to_str().unwrap()]);
        assert_eq!(exit_code(&checked), 0, "{}", stderr(&checked));
        let other = Site::new("");
        let restore = ["store", "restore", "--from", to.to_str().unwrap(), "--store"];
        let restored = site.fibula(&[&restore[..], &[other.path("rib.sqlite").to_str().unwrap()]].concat());
        assert_eq!(exit_code(&restored), 0, "{}", stderr(&restored));
        let _controller = other.start();
        let names = stdout(&other.fibula(&["name", "export"]));
        let fields = names.lines().map(|line| line.split(','));
        let host_of: HashMap<_, _> = fields.filter_map(|mut fields| fields.next().zip(fields.next())).collect();
        let is_moved = |i: &u32| host_of[&*support::mac(at(*i))] == "h2";
        let n_moved = (0..N_NAMES).take_while(is_moved).count() as u32;
        assert!((before..=after).contains(&n_moved), "{n_moved} of {before} to {after}");
        assert_eq!((n_moved..N_NAMES).filter(is_moved).count(), 0, "no later change without all before it");
    }
}

/// Which name the change `i` moves: from both ends in turns, so that names before and after the place of a copy move.
fn at(i: u32) -> u32 {
    if i.is_multiple_of(2) { i / 2 } else { N_NAMES - 1 - i / 2 }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_there_is_not_overwritten_and_a_backup_without_its_end_leaves_nothing() {
    let site = Site::new("");
    let controller = site.start();
    let mut client = site.client().await;
    add_full_mesh(&mut client, 1).await;
    client.put_names(put(1, "h1")).await.unwrap();
    let copy = site.path("copy");
    let backup = || site.fibula(&["store", "backup", "--to", copy.to_str().unwrap()]);
    std::fs::write(&copy, "mine").unwrap();
    let refused = backup();
    assert!(
        exit_code(&refused) == 5 && stderr(&refused).contains("exists; name a file that does not"),
        "{}",
        stderr(&refused)
    );
    assert_eq!(std::fs::read_to_string(&copy).unwrap(), "mine");
    std::fs::remove_file(&copy).unwrap();
    assert_eq!(exit_code(&backup()), 0);

    let config = site.path("controller.toml");
    let audit = site.fibula(&["-j", "audit", "show", "--config", config.to_str().unwrap(), "--who", "loopback"]);
    let backups = stdout(&audit).lines().filter(|line| line.contains("\"what\":\"backup\"")).count();
    assert_eq!(backups, 1, "{}", stdout(&audit));

    // The offline form says what to do while a controller runs.
    let store = site.path("rib.sqlite");
    let offline = site.fibula(&["store", "backup", "--store", store.to_str().unwrap(), "--to", "other"]);
    assert!(exit_code(&offline) == 5 && stderr(&offline).contains("leave out --store"), "{}", stderr(&offline));

    controller.kill();
    std::fs::remove_file(&copy).unwrap();
    assert_eq!(exit_code(&backup()), 4);
    let left = std::fs::read_dir(site.path(""))
        .unwrap()
        .filter(|file| file.as_ref().unwrap().file_name().to_string_lossy().starts_with("copy"));
    assert_eq!(left.count(), 0);
}
