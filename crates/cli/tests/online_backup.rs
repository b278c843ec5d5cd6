//! `fibula store backup` of a running controller: names change meanwhile, or one of the two processes is killed.

mod support;

use api::v1;
use std::collections::HashMap;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::SeqCst};
use support::{Client, FIBULA, Process, Site, add_full_mesh, eventually, exit_code, record, stderr, stdout, write};

const N_NAMES: u32 = 30_000;

fn put(index: u32, host: &str) -> v1::PutNamesRequest {
    v1::PutNamesRequest { names: vec![record(index, host)], only_new: false }
}

/// Starts the controller of a new site, with two hosts and so many names of the first.
async fn with_names(site: &Site, n_names: u32) -> (Process, Client) {
    let controller = site.start();
    let mut client = site.client().await;
    add_full_mesh(&mut client, 2).await;
    let names = site.path("names.csv");
    write(&names, (0..n_names).map(|i| format!("{},h1", support::mac(i))));
    assert_eq!(exit_code(&site.fibula(&["name", "import", names.to_str().unwrap()])), 0);
    (controller, client)
}

/// Each name moves once, in a known order, so a state is a number: how many have moved. In a backup these must be the
/// first ones, and as many as had moved at some moment between its begin and its end.
#[tokio::test(flavor = "multi_thread")]
async fn backups_beside_a_writer_are_states_between_their_begin_and_end() {
    let site = Site::new("");
    let (_controller, mut client) = with_names(&site, N_NAMES).await;
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
    assert!(copies(&site).is_empty());
}

/// The files of a site whose names begin with `copy`.
fn copies(site: &Site) -> Vec<String> {
    let files = std::fs::read_dir(site.path("")).unwrap();
    let names = files.map(|file| file.unwrap().file_name().into_string().unwrap());
    names.filter(|name| name.starts_with("copy")).collect()
}

/// Names of which more than half are far more than what can be on its way from the controller to the command: the window
/// of its stream has 4 MiB.
const MANY_NAMES: u32 = 250_000;

fn signal(process: &Child, signal: &str) {
    let id = process.id().to_string();
    assert!(Command::new("kill").args([signal, &id]).status().unwrap().success());
}

/// The files of a copy in the making.
fn parts(copy: &Path) -> [String; 2] {
    ["", "-wal"].map(|suffix| format!("{}.partial{suffix}", copy.display()))
}

/// Begins a backup to `copy`, and stops the command when it has some of the rows, and less than half of them.
async fn stopped_half_way(site: &Site, copy: &Path, whole_bytes: u64) -> Child {
    let bytes_so_far = || parts(copy).iter().flat_map(std::fs::metadata).map(|file| file.len()).sum::<u64>();
    loop {
        let mut command = Command::new(FIBULA);
        command.args(["store", "backup", "--to", copy.to_str().unwrap()]).env("FIBULA_CONTROLLER", &site.url);
        let mut backup = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
        let status = format!("/proc/{}/stat", backup.id());
        let is_in = |states: &str| {
            let stat = std::fs::read_to_string(&status).unwrap();
            let state = stat.rsplit_once(") ").unwrap().1.chars().next().unwrap();
            states.contains(state)
        };
        eventually("some rows are written", async || bytes_so_far() > whole_bytes / 20 || is_in("Z")).await;
        signal(&backup, "-STOP");
        eventually("the command stands still", async || is_in("TZ")).await;
        if !is_in("Z") && bytes_so_far() < whole_bytes / 2 {
            return backup;
        }
        // It was faster than this test.
        signal(&backup, "-KILL");
        backup.wait().unwrap();
        parts(copy).iter().chain([&copy.display().to_string()]).for_each(|file| _ = std::fs::remove_file(file));
    }
}

/// How many bytes a backup of the site has.
fn whole_bytes(site: &Site) -> u64 {
    let whole = site.path("whole");
    assert_eq!(exit_code(&site.fibula(&["store", "backup", "--to", whole.to_str().unwrap()])), 0);
    std::fs::metadata(whole).unwrap().len()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_controller_that_is_killed_in_a_backup_leaves_no_copy_and_an_error() {
    let site = Site::new("");
    let (controller, _) = with_names(&site, MANY_NAMES).await;
    let copy = site.path("copy");
    let stopped = stopped_half_way(&site, &copy, whole_bytes(&site)).await;
    controller.kill();
    signal(&stopped, "-CONT");
    let ended = stopped.wait_with_output().unwrap();
    let said = stderr(&ended);
    assert!(exit_code(&ended) == 4 && said.contains("so none was made; try again"), "{said}");
    assert!(copies(&site).is_empty(), "{:?}", copies(&site));

    let _controller = site.start();
    let again = site.fibula(&["store", "backup", "--to", copy.to_str().unwrap()]);
    assert_eq!(exit_code(&again), 0, "{}", stderr(&again));
}

/// More of them than there may be at the same time: those of killed commands do not count.
#[tokio::test(flavor = "multi_thread")]
async fn backups_that_are_killed_leave_no_store_and_the_next_one_removes_what_is_left() {
    let site = Site::new("");
    let (_controller, mut client) = with_names(&site, MANY_NAMES).await;
    let whole_bytes = whole_bytes(&site);
    let names = [0, 1, 2, 3, 4, 5].map(|i| format!("copy-{i}"));
    for name in &names {
        let mut stopped = stopped_half_way(&site, &site.path(name), whole_bytes).await;
        signal(&stopped, "-KILL");
        stopped.wait().unwrap();
        assert!(copies(&site).contains(&format!("{name}.partial")) && !copies(&site).contains(name));
    }
    assert!(copies(&site).iter().all(|file| file.contains(".partial")), "{:?}", copies(&site));
    client.put_names(put(1, "h2")).await.unwrap();
    let check = |store: &Path| site.fibula(&["store", "check", "--store", store.to_str().unwrap()]);
    for name in &names {
        let (copy, partial) = (site.path(name), site.path(&format!("{name}.partial")));
        let half = check(&partial);
        assert!(exit_code(&half) == 3 && stderr(&half).contains("fibula rib, incomplete"), "{}", stderr(&half));
        let again = site.fibula(&["store", "backup", "--to", copy.to_str().unwrap()]);
        assert_eq!(exit_code(&again), 0, "{}", stderr(&again));
    }
    let mut left = copies(&site);
    left.sort_unstable();
    assert_eq!(left, names);
    assert!(names.iter().all(|name| exit_code(&check(&site.path(name))) == 0));
}
