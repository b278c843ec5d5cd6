//! Measures how long a change takes while switches ask for everything again and again.
//!
//! `cargo run --release -p fibula-controller --example flood -- [names] [switches] [seconds] [changes a second]`: a
//! controller with a store in a temporary directory, one operator who moves a name at each tick, and switches in the same
//! process that take what they are sent. First the switches are quiet. Then each sends reports of an empty switch, first as
//! fast as the stream takes them, then one whenever the last was answered whole. A change counts from the time when it was due to its answer. Prints both distributions.

use api::identity::Kind;
use api::v1::{self, from_switch::Body};
use fib::messages::{Report, Uplink};
use fibula_controller::Controller;
use fibula_controller::config::Config;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;

type Failure = Box<dyn std::error::Error + Send + Sync>;
const PATIENCE: Duration = Duration::from_secs(5);
const BATCH: u64 = 50_000;

/// When switches send reports: never, always, or when the last one was answered whole.
const QUIET: u8 = 0;
const FLOOD: u8 = 1;
const ANSWERED: u8 = 2;

/// What the switches did.
#[derive(Default)]
struct Counts {
    asked: AtomicU64,
    messages: AtomicU64,
    bytes: AtomicU64,
}

#[tokio::main]
async fn main() -> Result<(), Failure> {
    let mut numbers = std::env::args().skip(1).map(|text| text.parse::<u64>());
    let mut number = |default| numbers.next().unwrap_or(Ok(default));
    let (names, switches, seconds, rate) = (number(100_000)?, number(1)?, number(20)?, number(100)?.max(1));
    let directory = tempfile::tempdir()?;
    let file = directory.path().join("controller.toml");
    let store = directory.path().join("rib.sqlite");
    let text = format!(
        "listen = '127.0.0.1:0'\nstore = '{}'\nname_kind = 'mac'\nmax_names = {}\n",
        store.display(),
        names * 2
    );
    std::fs::write(&file, text)?;
    let running = Controller::start(Config::load(&file)?).await?;
    let url = format!("http://{}", running.address());
    let mut admin = api::client::northbound(api::client::connect_to(Kind::Controller, &url, None, PATIENCE).await?);
    for switch in 0..switches.max(1) {
        let name = format!("s{switch}");
        admin.add_switch(v1::AddSwitchRequest { name: name.clone(), tenants: vec![] }).await?;
        for port in 0..2 {
            admin.add_host(v1::Host { name: format!("{name}h{port}"), switch: name.clone(), port }).await?;
        }
    }
    let record = |i: u64, port: u64| {
        let [.., a, b, c] = i.to_be_bytes();
        let (name, host) = (format!("02:00:00:{a:02x}:{b:02x}:{c:02x}"), format!("s{}h{port}", i % switches.max(1)));
        v1::NameRecord { name, host, tenant: 0, ip: String::new() }
    };
    for first in (0..names).step_by(BATCH as usize) {
        let names = (first..names.min(first + BATCH)).map(|i| record(i, 0)).collect();
        admin.put_names(v1::PutNamesRequest { names, only_new: true }).await?;
    }

    let (counts, flood) = (Arc::new(Counts::default()), Arc::new(AtomicU8::new(QUIET)));
    for switch in 0..switches {
        let (url, counts, flood) = (url.clone(), Arc::clone(&counts), Arc::clone(&flood));
        tokio::spawn(async move { follow(url, format!("s{switch}"), &counts, &flood).await });
    }
    let in_step = async || -> Result<bool, Failure> {
        let list = admin.clone().list_switches(v1::ListSwitchesRequest {}).await?.into_inner().switches;
        Ok(list.iter().filter(|switch| switch.in_step).count() as u64 == switches)
    };
    let mut tick = tokio::time::interval(Duration::from_millis(50));
    while !in_step().await? {
        tick.tick().await;
    }
    println!("{names} names, {switches} switches, {rate} changes a second, {seconds} s each");
    for (mode, what) in [(QUIET, "quiet"), (FLOOD, "flood"), (ANSWERED, "answered")] {
        flood.store(mode, Relaxed);
        let before = [&counts.asked, &counts.messages, &counts.bytes].map(|count| count.load(Relaxed));
        let mut took =
            changes(&admin, rate, Duration::from_secs(seconds), |i| record(i % names, 1 + i / names % 2)).await?;
        took.sort_unstable();
        let at = |share: f64| took[((took.len() - 1) as f64 * share) as usize].as_secs_f64() * 1e3;
        let [asked, messages, bytes] =
            [&counts.asked, &counts.messages, &counts.bytes].map(|count| count.load(Relaxed));
        println!(
            "{what}: {} changes, median {:.2} ms, 99th percentile {:.2} ms, slowest {:.2} ms; {} reports sent, {} messages of {} MB taken",
            took.len(),
            at(0.5),
            at(0.99),
            at(1.0),
            asked - before[0],
            messages - before[1],
            (bytes - before[2]) / 1_000_000,
        );
    }
    running.stop().await?;
    Ok(())
}

/// Makes a change at each tick; how long each took since it was due.
async fn changes(
    admin: &v1::northbound_client::NorthboundClient<tonic::transport::Channel>,
    rate: u64,
    length: Duration,
    record: impl Fn(u64) -> v1::NameRecord,
) -> Result<Vec<Duration>, Failure> {
    let start = Instant::now();
    let mut tick = tokio::time::interval(Duration::from_secs(1) / u32::try_from(rate)?);
    let mut waiting = tokio::task::JoinSet::new();
    for i in 0.. {
        let due: Instant = tick.tick().await.into();
        if due - start >= length {
            break;
        }
        let (mut admin, names) = (admin.clone(), vec![record(i)]);
        waiting.spawn(async move {
            admin.put_names(v1::PutNamesRequest { names, only_new: false }).await?;
            Ok::<_, tonic::Status>(due.elapsed())
        });
    }
    let mut took = Vec::new();
    while let Some(change) = waiting.join_next().await {
        took.push(change??);
    }
    Ok(took)
}

/// A switch that acknowledges everything and keeps nothing. During a flood it sends reports as fast as it can.
async fn follow(url: String, switch: String, counts: &Counts, flood: &Arc<AtomicU8>) -> Result<(), Failure> {
    let channel = api::client::connect_to(Kind::Controller, &url, None, PATIENCE).await?;
    let (to_controller, outgoing) = mpsc::channel(4);
    let report: bytes::Bytes = Uplink::Report(Report::default()).encode().into();
    let hello = v1::Hello { switch, report: report.clone(), version: String::new() };
    to_controller.send(v1::FromSwitch { body: Some(Body::Hello(hello)) }).await?;
    let attached = api::client::southbound(channel).attach(ReceiverStream::new(outgoing)).await?;
    let mut incoming = attached.into_inner();
    let asking = || {
        let resync = v1::Resync { report: report.clone(), reason: "flood".to_owned() };
        v1::FromSwitch { body: Some(Body::Resync(resync)) }
    };
    let mut tick = tokio::time::interval(Duration::from_millis(1));
    // Reports answered, and how many there were at the last report sent; messages since the last tick.
    let (mut answered, mut asked_at, mut n_messages) = (0, 0, 0);
    loop {
        let mode = flood.load(Relaxed);
        tokio::select! {
            message = incoming.message() => {
                let Some(message) = message? else { return Ok(()) };
                (answered, n_messages) = (message.answered, n_messages + 1);
                counts.messages.fetch_add(1, Relaxed);
                counts.bytes.fetch_add(message.message.len() as u64, Relaxed);
                let ack = v1::Ack { sequence: message.sequence };
                to_controller.send(v1::FromSwitch { body: Some(Body::Ack(ack)) }).await?;
            }
            _ = tick.tick(), if mode != FLOOD => {
                // An answer is whole when nothing of it came for a tick.
                if mode == ANSWERED && answered > asked_at && std::mem::take(&mut n_messages) == 0 {
                    counts.asked.fetch_add(1, Relaxed);
                    asked_at = answered;
                    to_controller.send(asking()).await?;
                }
            }
            permit = to_controller.reserve(), if mode == FLOOD => {
                counts.asked.fetch_add(1, Relaxed);
                asked_at = answered;
                permit?.send(asking());
            }
        }
    }
}
