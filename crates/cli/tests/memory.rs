//! The memory of the processes: what they have at most, compared with what they keep.
//!
//! With FIBULA_DEEP=1 there are a million names, and an import is measured, too. How much an import takes on top depends
//! on the number of names: its batches have 20,000 at least.

#![cfg(target_os = "linux")]

mod support;

use std::time::Duration;
use support::{PATIENCE, Process, Site, add_full_mesh, eventually, exit_code, in_step, mac, stderr, write};

/// Resident memory of a process in bytes, now and at most so far.
#[derive(Clone, Copy, Debug)]
struct Resident {
    now: u64,
    peak: u64,
}

impl Resident {
    fn of(process: &Process) -> Resident {
        let status = std::fs::read_to_string(format!("/proc/{}/status", process.id())).unwrap();
        let bytes = |field| {
            let line = status.lines().find_map(|line| line.strip_prefix(field)).unwrap();
            line.trim().strip_suffix(" kB").unwrap().parse::<u64>().unwrap() * 1024
        };
        Resident { now: bytes("VmRSS:"), peak: bytes("VmHWM:") }
    }

    /// What it had on top for a while, in bytes a name.
    fn on_top(self, n_names: u32) -> f64 {
        (self.peak - self.now) as f64 / f64::from(n_names)
    }
}

/// The daemon has given back what it gives back: nothing became less for three of its looks.
async fn settled(process: &Process) -> Resident {
    let (mut last, mut n_same) = (Resident::of(process), 0);
    let begun = std::time::Instant::now();
    while n_same < 6 && begun.elapsed() < PATIENCE {
        #[expect(clippy::disallowed_methods, reason = "a running daemon can only be polled")]
        tokio::time::sleep(Duration::from_secs(1)).await;
        let now = Resident::of(process);
        n_same = if now.now.abs_diff(last.now) < 256 << 10 { n_same + 1 } else { 0 };
        last = now;
    }
    last
}

#[tokio::test(flavor = "multi_thread")]
async fn a_restart_takes_little_memory_on_top_of_what_stays() {
    let is_deep = std::env::var_os("FIBULA_DEEP").is_some();
    let n_names: u32 = if is_deep { 1_000_000 } else { 300_000 };
    let site = Site::new("");
    let controller = site.start();
    let client = site.client().await;
    add_full_mesh(&mut client.clone(), 2).await;
    let config = site.path("s1.toml");
    let (url, state) = (&site.url, site.path("s1"));
    let text = format!(
        "name = \"s1\"\ncontroller = \"{url}\"\nstate_dir = \"{}\"\nlookup = \"127.0.0.1:0\"\n",
        state.display()
    );
    std::fs::write(&config, text).unwrap();
    let arguments = ["switch", "--config", config.to_str().unwrap()];
    let switch = Process::spawn(&arguments);
    let names = site.path("names.csv");
    // In an order that is not that of the names.
    write(&names, (0..n_names).map(|i| format!("{},h{}", mac(i.wrapping_mul(0x9E37_79B1)), 1 + i % 2)));
    eventually("the switch in step", async || in_step(&client).await == 1).await;
    let imported = site.fibula(&["name", "import", names.to_str().unwrap()]);
    assert_eq!(exit_code(&imported), 0, "{}", stderr(&imported));
    eventually("the switch has the names", async || in_step(&client).await == 1).await;
    if is_deep {
        let resident = settled(&controller).await;
        let ratio = resident.peak as f64 / resident.now as f64;
        assert!(ratio <= 1.3, "the controller's import: {resident:?}, {ratio:.2}");
    }

    assert_eq!(switch.terminate(), Some(0));
    let switch = Process::spawn(&arguments);
    eventually("the switch is back", async || in_step(&client).await == 1).await;
    let resident = settled(&switch).await;
    // 4 to 10 when the image was read whole.
    assert!(resident.on_top(n_names) < 2.5, "the switch: {resident:?}, {:.1}", resident.on_top(n_names));

    assert_eq!(controller.terminate(), Some(0));
    let controller = site.start();
    let client = site.client().await;
    eventually("the switch is back", async || in_step(&client).await == 1).await;
    let resident = settled(&controller).await;
    // 48 to 54 when names and keys were listed.
    assert!(resident.on_top(n_names) < 24.0, "the controller: {resident:?}, {:.1}", resident.on_top(n_names));
}
