//! `fibula switch verify`: the memory of a running switch against the controller's digests.

mod support;

use api::v1;
use fib::action::PortId;
use fib::name::{Name, NameKind};
use fib::replica::{Limits, MemoryTables, Replica};
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use support::{Client, Process, Site, add_full_mesh, eventually, exit_code, in_step, mac, record, stderr, stdout};
use switch::daemon::agent::Shared;

const N_NAMES: u32 = 3000;

async fn put_names(client: &Client, host: &str) {
    let names = (0..N_NAMES).map(|index| record(index, host)).collect();
    client.clone().put_names(v1::PutNamesRequest { names, only_new: false }).await.unwrap();
}

/// A controller, and switches s1 and s2 with the names of h2.
async fn two_switches(site: &Site) -> (Process, Client, [Arc<Shared<MemoryTables>>; 2]) {
    let controller = site.start();
    let client = site.client().await;
    add_full_mesh(&mut client.clone(), 2).await;
    let switches = ["s1", "s2"].map(|name| site.switch(name));
    put_names(&client, "h2").await;
    eventually("in step", async || in_step(&client).await == 2).await;
    (controller, client, switches)
}

/// Flips the lowest bit behind `before` wherever the private memory of a process holds `before`; returns how often.
fn flip_behind(process: u32, before: &[u8]) -> usize {
    let maps = std::fs::read_to_string(format!("/proc/{process}/maps")).unwrap();
    let memory = std::fs::File::options().read(true).write(true).open(format!("/proc/{process}/mem")).unwrap();
    let mut n_flipped = 0;
    for line in maps.lines().filter(|line| line.contains(" rw-p ")) {
        let (from, to) = line.split_once(' ').unwrap().0.split_once('-').unwrap();
        let [from, to] = [from, to].map(|text| u64::from_str_radix(text, 16).unwrap());
        let mut bytes = vec![0; (to - from) as usize];
        if memory.read_exact_at(&mut bytes, from).is_err() {
            continue;
        }
        let found = (0..bytes.len() - before.len()).filter(|&at| bytes[at..].starts_with(before));
        for at in found.map(|at| at + before.len()).filter(|&at| at < bytes.len()) {
            memory.write_all_at(&[bytes[at] ^ 1], from + at as u64).unwrap();
            n_flipped += 1;
        }
    }
    n_flipped
}

#[tokio::test(flavor = "multi_thread")]
async fn switches_in_step_have_the_digests_that_the_controller_expects() {
    let site = Site::new("");
    let _daemons = two_switches(&site).await;
    let verified = site.fibula(&["-j", "switch", "verify"]);
    let printed = stdout(&verified);
    let rows: Vec<serde_json::Value> = printed.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(rows.len(), 2, "{printed}");
    for (row, name) in rows.iter().zip(["s1", "s2"]) {
        assert_eq!((&row["switch"], &row["differ"], &row["damaged_tables"]), (&name.into(), &0.into(), &0.into()));
        assert!(row["parts"].as_u64().unwrap() >= 4, "three exact tables and the FIB: {row}");
    }
    assert_eq!(exit_code(&verified), 0);
    let refused = site.fibula(&["switch", "verify", "s9"]);
    assert!(exit_code(&refused) == 4 && stderr(&refused).contains("there is no switch `s9`"), "{}", stderr(&refused));
}

#[tokio::test(flavor = "multi_thread")]
async fn switch_that_changes_meanwhile_is_compared_at_one_version() {
    let site = Site::new("");
    let (_controller, client, _switches) = two_switches(&site).await;
    let stop = Arc::new(std::sync::atomic::AtomicBool::new(false));
    let changes = {
        let (client, stop) = (client.clone(), Arc::clone(&stop));
        tokio::spawn(async move {
            for index in 0.. {
                if stop.load(std::sync::atomic::Ordering::Relaxed) {
                    return;
                }
                let names = vec![record(N_NAMES + index % 50, ["h1", "h2"][index as usize / 50 % 2])];
                client.clone().put_names(v1::PutNamesRequest { names, only_new: false }).await.unwrap();
            }
        })
    };
    for _ in 0..5 {
        let verified = site.fibula(&["switch", "verify"]);
        // Changes may be too fast for a comparison. That is no difference.
        assert!(exit_code(&verified) == 0 || stderr(&verified).contains("is behind"), "{}", stderr(&verified));
    }
    stop.store(true, std::sync::atomic::Ordering::Relaxed);
    changes.await.unwrap();
    eventually("in step", async || in_step(&client).await == 2).await;
    let verified = site.fibula(&["switch", "verify"]);
    assert_eq!(exit_code(&verified), 0, "{}", stderr(&verified));
}

#[tokio::test(flavor = "multi_thread")]
async fn bit_that_flips_in_the_memory_of_a_switch_is_found_and_mended() {
    let site = Site::new("");
    let _controller = site.start();
    let client = site.client().await;
    add_full_mesh(&mut client.clone(), 2).await;
    let (state, config) = (site.path("s1"), site.path("s1.toml"));
    let text = format!(
        "name = \"s1\"\ncontroller = \"{}\"\nstate_dir = \"{}\"\nlookup = \"127.0.0.1:0\"\n",
        site.url,
        state.display()
    );
    std::fs::write(&config, text).unwrap();
    let start = || Process::spawn(&["switch", "--config", config.to_str().unwrap()]);
    let process = start();
    put_names(&client, "h2").await;
    eventually("the switch in step", async || in_step(&client).await == 1).await;
    assert_eq!(process.terminate(), Some(0));
    // The image that a switch leaves when it stops says which bytes its memory has when it serves again.
    let saved = std::fs::read(state.join("image")).unwrap();
    let replica = Replica::load(Limits::default(), MemoryTables::default(), &saved).unwrap();
    let image = replica.fib().unwrap().image();
    let process = start();
    eventually("the switch in step again", async || in_step(&client).await == 1).await;
    assert_eq!(exit_code(&site.fibula(&["switch", "verify", "s1"])), 0);

    let middle = image.len() / 2;
    assert!(flip_behind(process.id(), &image[middle..middle + 32]) > 0, "the words of the FIB are in memory");
    let verified = site.fibula(&["switch", "verify", "s1"]);
    assert_eq!(exit_code(&verified), 6, "{}", stdout(&verified));
    assert!(stderr(&verified).contains("s1: the FIB: "), "{}", stderr(&verified));
    let verified = site.fibula(&["switch", "verify", "s1"]);
    assert_eq!((exit_code(&verified), stderr(&verified)), (0, String::new()));
    let name = Name::parse(NameKind::Mac, &mac(7)).unwrap();
    assert_eq!(replica.action(&name).port(), Some(PortId(2)));
}
