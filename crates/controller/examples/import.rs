//! Measures how long an import takes while switches are attached, and how much they are sent.
//!
//! `cargo run --release -p fibula-controller --example import -- [names] [switches] [names a batch]`: a controller with a
//! store in a temporary directory, a line of switches that acknowledge everything at once and apply nothing, and one
//! client that imports. Prints one line.

#![expect(clippy::disallowed_methods, reason = "a running controller can only be polled")]

use api::v1;
use api::v1::from_switch::Body;
use fibula_controller::Controller;
use fibula_controller::config::Config;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};
use tokio_stream::StreamExt;
use tokio_stream::wrappers::ReceiverStream;

type Failure = Box<dyn std::error::Error>;
const PATIENCE: Duration = Duration::from_secs(5);

#[tokio::main]
async fn main() -> Result<(), Failure> {
    let mut numbers = std::env::args().skip(1).map(|text| text.parse::<u32>());
    let mut number = |default| numbers.next().unwrap_or(Ok(default));
    let (n_names, n_switches, batch) = (number(1_000_000)?, number(11)?.max(1), number(100_000)?.max(1));

    let directory = tempfile::tempdir()?;
    let text = format!(
        "listen = '127.0.0.1:0'\nstore = '{}'\nname_kind = 'mac'\nmax_names = {}\n",
        directory.path().join("rib.sqlite").display(),
        n_names.max(1000) * 2
    );
    let file = directory.path().join("controller.toml");
    std::fs::write(&file, text)?;
    let running = Controller::start(Config::load(&file)?).await?;
    let url = format!("http://{}", running.address());
    let mut client = api::client::northbound(api::client::connect(&url, PATIENCE).await?);

    let end = |switch, port| Some(v1::LinkEnd { switch: format!("s{switch}"), port });
    for i in 0..n_switches {
        client.add_switch(v1::AddSwitchRequest { name: format!("s{i}"), tenants: vec![] }).await?;
        client
            .add_host(v1::Host { name: format!("h{i}"), switch: format!("s{i}"), port: 9, ..v1::Host::default() })
            .await?;
    }
    for i in 0..n_switches.saturating_sub(1) {
        client.add_link(v1::Link { a: end(i, 1), b: end(i + 1, 2), cost: 1, up: true, ..v1::Link::default() }).await?;
    }
    let received = Arc::new(AtomicU64::new(0));
    for i in 0..n_switches {
        tokio::spawn(acknowledge(url.clone(), format!("s{i}"), Arc::clone(&received)));
    }
    while connected(&mut client, |switch| switch.connected).await? < n_switches as usize {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }

    let start = Instant::now();
    let record = move |i: u32| {
        let [a, b, c, d] = i.to_be_bytes();
        let name = format!("02:00:{a:02x}:{b:02x}:{c:02x}:{d:02x}");
        v1::NameRecord { name, host: format!("h{}", i % n_switches), tenant: 0, ..v1::NameRecord::default() }
    };
    let (sender, batches) = tokio::sync::mpsc::channel(2);
    tokio::spawn(async move {
        for first in (0..n_names).step_by(batch as usize) {
            let names = (first..n_names.min(first + batch)).map(record).collect();
            if sender.send(v1::NameBatch { names }).await.is_err() {
                return;
            }
        }
    });
    let mut progress = client.import_names(ReceiverStream::new(batches)).await?.into_inner();
    let mut slowest = Duration::ZERO;
    let mut last = start;
    while progress.message().await?.is_some() {
        slowest = slowest.max(last.elapsed());
        last = Instant::now();
    }
    let imported = start.elapsed();
    while connected(&mut client, |switch| switch.in_step).await? < n_switches as usize {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let in_step = start.elapsed();
    println!(
        "{n_names} names, {n_switches} switches, batches of {batch}: acknowledged after {:.1} s (slowest batch {:.2} s), \
         in step after {:.1} s, {} MB sent, peak memory {} MB",
        imported.as_secs_f64(),
        slowest.as_secs_f64(),
        in_step.as_secs_f64(),
        received.load(Relaxed) >> 20,
        peak_memory_kib() >> 10,
    );
    running.stop().await?;
    Ok(())
}

async fn connected(
    client: &mut v1::northbound_client::NorthboundClient<tonic::transport::Channel>,
    is: impl Fn(&v1::Switch) -> bool,
) -> Result<usize, Failure> {
    let switches = client.list_switches(v1::ListSwitchesRequest {}).await?.into_inner().switches;
    Ok(switches.iter().filter(|switch| is(switch)).count())
}

/// A switch that acknowledges everything.
async fn acknowledge(url: String, switch: String, received: Arc<AtomicU64>) {
    let Ok(channel) = api::client::connect(&url, PATIENCE).await else { return };
    let (answers, outgoing) = tokio::sync::mpsc::channel(16);
    let report = fib::messages::Uplink::Report(fib::messages::Report::default()).encode().into();
    let hello = v1::Hello { switch, report, version: "stub".to_owned(), ..v1::Hello::default() };
    let _ = answers.try_send(v1::FromSwitch { body: Some(Body::Hello(hello)) });
    let Ok(stream) = api::client::southbound(channel).attach(ReceiverStream::new(outgoing)).await else { return };
    let mut messages = stream.into_inner();
    while let Some(Ok(v1::ToSwitch { sequence, message, .. })) = messages.next().await {
        received.fetch_add(message.len() as u64, Relaxed);
        let ack = v1::FromSwitch { body: Some(Body::Ack(v1::Ack { sequence })) };
        if answers.send(ack).await.is_err() {
            return;
        }
    }
}

/// The most memory this process had, as the kernel counts it.
fn peak_memory_kib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap_or("0");
    line.split_whitespace().next().and_then(|kib| kib.parse().ok()).unwrap_or(0)
}
