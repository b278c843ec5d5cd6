//! Measures how many changes a second a controller makes with TLS and without, in alternating rounds.
//!
//! `cargo run --release -p fibula-controller --example north -- [seconds a round] [rounds] [connections] [requests in
//! flight on each]`: a controller with a store in a temporary directory, clients in the same process that each move a name
//! per request. Prints a line a round, then the medians and their ratio.

use api::identity::{Identity, Kind, Role};
use api::pki::Authority;
use api::tls::{Files, Tls};
use api::v1;
use fibula_controller::Controller;
use fibula_controller::config::Config;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

type Failure = Box<dyn std::error::Error + Send + Sync>;
const PATIENCE: Duration = Duration::from_secs(5);
const N_NAMES: u64 = 10_000;

#[tokio::main]
async fn main() -> Result<(), Failure> {
    let mut numbers = std::env::args().skip(1).map(|text| text.parse::<u32>());
    let mut number = |default| numbers.next().unwrap_or(Ok(default));
    let (seconds, rounds, connections, in_flight) = (number(3)?, number(5)?, number(4)?.max(1), number(32)?.max(1));
    let directory = tempfile::tempdir()?;
    let authority = Authority::create(&directory.path().join("pki"))?;
    let controller = authority.make(&Identity::new(Kind::Controller, "c1")?, &[], 1)?;
    let writer = authority.make(&Identity::new(Kind::Operator(Role::Admin), "bench")?, &[], 1)?;
    let mut rates = [Vec::new(), Vec::new()];
    for round in 0..2 * rounds {
        let with_tls = round % 2 == 1;
        let store = directory.path().join(format!("{round}.sqlite"));
        let tls = with_tls.then_some((controller.as_path(), writer.as_path()));
        let rate = measure(&store, tls, Duration::from_secs(seconds.into()), connections, in_flight).await?;
        println!("{:5} {rate:9.0} changes/s", if with_tls { "tls" } else { "plain" });
        rates[usize::from(with_tls)].push(rate);
    }
    let [plain, tls] = rates.map(|mut rates| {
        rates.sort_by(f64::total_cmp);
        rates[rates.len() / 2]
    });
    println!("median: plain {plain:.0}, tls {tls:.0}, tls of plain {:.3}", tls / plain);
    Ok(())
}

async fn measure(
    store: &Path,
    tls: Option<(&Path, &Path)>,
    length: Duration,
    connections: u32,
    in_flight: u32,
) -> Result<f64, Failure> {
    let section = tls.map(|(dir, _)| format!("[tls]\ndir = '{}'\n", dir.display())).unwrap_or_default();
    let text = format!(
        "listen = '127.0.0.1:0'\nstore = '{}'\nname_kind = 'mac'\nmax_names = 100000\n{section}",
        store.display()
    );
    let file = store.with_extension("toml");
    std::fs::write(&file, text)?;
    let running = Controller::start(Config::load(&file)?).await?;
    let scheme = if tls.is_some() { "https" } else { "http" };
    let url = format!("{scheme}://{}", running.address());
    let certificate = tls.map(|(_, dir)| Tls::load(&Files::in_directory(dir))).transpose()?;
    let connect = async || {
        let channel = api::client::connect_to(Kind::Controller, &url, certificate.as_ref(), PATIENCE).await;
        channel.map(api::client::northbound)
    };
    let mut admin = connect().await?;
    admin.add_switch(v1::AddSwitchRequest { name: "s0".to_owned(), tenants: vec![] }).await?;
    for port in 0..2 {
        admin.add_host(v1::Host { name: format!("h{port}"), switch: "s0".to_owned(), port }).await?;
    }
    let record = |i: u64, host: u64| {
        let [.., a, b, c] = i.to_be_bytes();
        let name = format!("02:00:00:{a:02x}:{b:02x}:{c:02x}");
        v1::NameRecord { name, host: format!("h{host}"), tenant: 0, ip: String::new() }
    };
    let names = (0..N_NAMES).map(|i| record(i, 0)).collect();
    admin.put_names(v1::PutNamesRequest { names, only_new: true }).await?;

    let (done, stop) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicBool::new(false)));
    let next = Arc::new(AtomicU64::new(0));
    let mut tasks = Vec::new();
    for _ in 0..connections {
        let client = connect().await?;
        for _ in 0..in_flight {
            let (mut client, done, stop, next) =
                (client.clone(), Arc::clone(&done), Arc::clone(&stop), Arc::clone(&next));
            tasks.push(tokio::spawn(async move {
                while !stop.load(Relaxed) {
                    let i = next.fetch_add(1, Relaxed);
                    let names = vec![record(i % N_NAMES, (i / N_NAMES + 1) % 2)];
                    client.put_names(v1::PutNamesRequest { names, only_new: false }).await?;
                    done.fetch_add(1, Relaxed);
                }
                Ok::<_, tonic::Status>(())
            }));
        }
    }
    let start = Instant::now();
    #[expect(clippy::disallowed_methods, reason = "a round lasts as long as it was asked to")]
    tokio::time::sleep(length).await;
    let rate = done.load(Relaxed) as f64 / start.elapsed().as_secs_f64();
    stop.store(true, Relaxed);
    for task in tasks {
        task.await??;
    }
    running.stop().await?;
    Ok(rate)
}
