//! Measures how many changes a second a controller makes with TLS and without, in alternating rounds; or with its store in
//! etcd and in a file.
//!
//! `cargo run --release -p fibula-controller --example north -- [seconds a round] [rounds] [connections] [requests in
//! flight on each] [names a request] [etcd://HOST:PORT/PREFIX]`: a controller with a store in a temporary directory, clients
//! in the same process that each move names. Prints a line a round, then the medians and their ratio. With etcd, whose keys
//! under the prefix stay, it takes the place of TLS.

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
    let etcd = std::env::args().skip(1).find(|text| text.starts_with("etcd:"));
    let texts = std::env::args().skip(1).filter(|text| !text.starts_with("etcd:"));
    let mut numbers = texts.map(|text| text.parse::<u32>());
    let mut number = |default| numbers.next().unwrap_or(Ok(default));
    let (seconds, rounds, connections, in_flight) = (number(3)?, number(5)?, number(4)?.max(1), number(32)?.max(1));
    let names = u64::from(number(1)?.max(1));
    let directory = tempfile::tempdir()?;
    let authority = Authority::create(&directory.path().join("pki"))?;
    let controller = authority.make(&Identity::new(Kind::Controller, "c1")?, &[], 1)?;
    let writer = authority.make(&Identity::new(Kind::Operator(Role::Admin), "bench")?, &[], 1)?;
    let mut rates = [Vec::new(), Vec::new()];
    let (one, other) = if etcd.is_some() { ("file", "etcd") } else { ("plain", "tls") };
    for round in 0..2 * rounds {
        let is_other = round % 2 == 1;
        let tls = (is_other && etcd.is_none()).then_some((controller.as_path(), writer.as_path()));
        let file = directory.path().join(format!("{round}.toml"));
        let store = match etcd.as_ref().filter(|_| is_other) {
            // A prefix that no round before had.
            Some(etcd) => format!("{etcd}/{}-{round}", std::process::id()),
            None => file.with_extension("sqlite").display().to_string(),
        };
        let length = Duration::from_secs(seconds.into());
        let rate = measure(&file, &store, tls, length, connections, in_flight, names).await?;
        println!("{:5} {rate:9.0} changes/s", if is_other { other } else { one });
        rates[usize::from(is_other)].push(rate);
    }
    let [one_rate, other_rate] = rates.map(|mut rates| {
        rates.sort_by(f64::total_cmp);
        rates[rates.len() / 2]
    });
    let share = other_rate / one_rate;
    println!("median: {one} {one_rate:.0}, {other} {other_rate:.0}, {other} of {one} {share:.3}");
    Ok(())
}

async fn measure(
    file: &Path,
    store: &str,
    tls: Option<(&Path, &Path)>,
    length: Duration,
    connections: u32,
    in_flight: u32,
    names_a_request: u64,
) -> Result<f64, Failure> {
    let section = tls.map(|(dir, _)| format!("[tls]\ndir = '{}'\n", dir.display())).unwrap_or_default();
    let text = format!(
        "listen = '127.0.0.1:0'\nstore = '{store}'\nname_kind = 'mac'\nmax_names = 100000\n{section}[audit]\nfile = '{}'\n",
        file.with_extension("jsonl").display()
    );
    std::fs::write(file, text)?;
    let running = Controller::start(Config::load(file)?).await?;
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
        admin
            .add_host(v1::Host { name: format!("h{port}"), switch: "s0".to_owned(), port, ..v1::Host::default() })
            .await?;
    }
    let record = |i: u64, host: u64| {
        let [.., a, b, c] = i.to_be_bytes();
        let name = format!("02:00:00:{a:02x}:{b:02x}:{c:02x}");
        v1::NameRecord { name, host: format!("h{host}"), tenant: 0, ..v1::NameRecord::default() }
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
                    let first = next.fetch_add(names_a_request, Relaxed);
                    let names = first..first + names_a_request;
                    let names = names.map(|i| record(i % N_NAMES, (i / N_NAMES + 1) % 2)).collect();
                    client.put_names(v1::PutNamesRequest { names, only_new: false }).await?;
                    done.fetch_add(names_a_request, Relaxed);
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
