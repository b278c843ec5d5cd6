//! Measures how long a change takes, and what the controller's memory is, while switches ask for everything again and
//! again and strangers take what connections there are.
//!
//! `cargo run --release -p fibula-controller --example flood -- [names] [switches] [seconds] [changes a second] [strangers]`: a
//! controller in a process of its own, with a store in a temporary directory and the default limits; one operator who
//! moves a name at each tick; switches that take what they are sent; and strangers, each with one connection.
//!
//! First the switches are quiet. Then each sends reports of an empty switch as fast as the stream takes them. Then it
//! sends one whenever the last was answered whole. At last the first flood and the strangers come together: half of
//! these are idle, and half begin messages of 15 MiB that never end; one whose connection is closed opens another a
//! second later. Strangers have a process of their own, as the controller has, and leave the processors to the others:
//! their own would be elsewhere. A change counts from the time when it was due to its answer. Prints the distributions, the
//! controller's peak of resident memory in each phase, and what its limits allow requests to take.

#[path = "../../cli/tests/support/peer.rs"]
#[allow(dead_code, reason = "tests use the rest of it")]
mod peer;

use api::identity::Kind;
use api::v1::{self, from_switch::Body};
use fib::messages::{Report, Uplink};
use fibula_controller::Controller;
use fibula_controller::config::Config;
use std::io::{BufRead, BufReader, Read};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpSocket;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;

type Failure = Box<dyn std::error::Error + Send + Sync>;
const PATIENCE: Duration = Duration::from_secs(5);
const BATCH: u64 = 50_000;

/// When switches send reports: never, always, or when the last one was answered whole. Strangers come with the last.
const QUIET: u8 = 0;
const FLOOD: u8 = 1;
const ANSWERED: u8 = 2;
const ALL: u8 = 3;

/// The argument of the process that is the controller; its configuration follows.
const CONTROLLER: &str = "--controller";

/// The argument of the process that is the strangers; the controller's address and their number follow.
const STRANGERS: &str = "--strangers";

/// Strangers with one address.
const STRANGERS_AN_ADDRESS: u64 = 250;

/// The message that a stranger begins.
const STRANGERS_BYTES: u32 = 15 << 20;

/// What the switches did.
#[derive(Default)]
struct Counts {
    asked: AtomicU64,
    messages: AtomicU64,
    bytes: AtomicU64,
}

#[tokio::main]
async fn main() -> Result<(), Failure> {
    match &std::env::args().collect::<Vec<_>>()[..] {
        [_, flag, file] if flag == CONTROLLER => return serve(file.as_ref()).await,
        [_, flag, address, number] if flag == STRANGERS => return come(address.parse()?, number.parse()?).await,
        _ => {}
    }
    let mut numbers = std::env::args().skip(1).map(|text| text.parse::<u64>());
    let mut number = |default| numbers.next().unwrap_or(Ok(default));
    let (names, switches, seconds, rate) = (number(100_000)?, number(1)?, number(20)?, number(100)?.max(1));
    let strangers = number(10_000)?;
    let directory = tempfile::tempdir()?;
    let file = directory.path().join("controller.toml");
    let store = directory.path().join("rib.sqlite");
    let text = format!(
        "listen = '127.0.0.1:0'\nstore = '{}'\nname_kind = 'mac'\nmax_names = {}\n",
        store.display(),
        names * 2
    );
    std::fs::write(&file, text)?;
    let controller = Process::start(&[CONTROLLER.as_ref(), file.as_ref()])?;
    let address: SocketAddr = controller.line.parse()?;
    let url = format!("http://{address}");
    let mut admin = api::client::northbound(api::client::connect_to(Kind::Controller, &url, None, PATIENCE).await?);
    for switch in 0..switches.max(1) {
        let name = format!("s{switch}");
        admin.add_switch(v1::AddSwitchRequest { name: name.clone(), tenants: vec![] }).await?;
        for port in 0..2 {
            admin
                .add_host(v1::Host {
                    name: format!("{name}h{port}"),
                    switch: name.clone(),
                    port,
                    ..v1::Host::default()
                })
                .await?;
        }
    }
    let record = |i: u64, port: u64| {
        let [.., a, b, c] = i.to_be_bytes();
        let (name, host) = (format!("02:00:00:{a:02x}:{b:02x}:{c:02x}"), format!("s{}h{port}", i % switches.max(1)));
        v1::NameRecord { name, host, tenant: 0, ..v1::NameRecord::default() }
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
    let limits = api::limits::Limits::default();
    println!("{names} names, {switches} switches, {rate} changes a second, {strangers} strangers, {seconds} s each");
    println!("the limits let requests take {} MiB", limits.most_bytes() >> 20);
    for (mode, what) in [(QUIET, "quiet"), (FLOOD, "flood"), (ANSWERED, "answered"), (ALL, "all at once")] {
        flood.store(mode, Relaxed);
        controller.forget_peak()?;
        let now = || [&counts.asked, &counts.messages, &counts.bytes].map(|count| count.load(Relaxed));
        let before = now();
        let (own, number) = (address.to_string(), strangers.to_string());
        let come = || Process::start(&[STRANGERS.as_ref(), own.as_ref(), number.as_ref()]);
        let strangers = if mode == ALL { Some(come()?) } else { None };
        let mut took =
            changes(&admin, rate, Duration::from_secs(seconds), |i| record(i % names, 1 + i / names % 2)).await?;
        took.sort_unstable();
        let at = |share: f64| took[((took.len() - 1) as f64 * share) as usize].as_secs_f64() * 1e3;
        let [asked, messages, bytes] = now();
        let connections = strangers.map_or(Ok("0".to_owned()), Process::stop)?;
        println!(
            "{what}: {} changes, median {:.2} ms, 99th percentile {:.2} ms, slowest {:.2} ms; {} reports sent, {} messages of {} MB taken, {} connections of strangers; peak {} MiB resident",
            took.len(),
            at(0.5),
            at(0.99),
            at(1.0),
            asked - before[0],
            messages - before[1],
            (bytes - before[2]) / 1_000_000,
            connections,
            controller.peak_kib()? >> 10,
        );
    }
    controller.stop().map(drop)
}

/// A process of its own. It ends with this one: its input does.
struct Process {
    child: Child,
    output: BufReader<ChildStdout>,
    /// The first line that it printed.
    line: String,
}

impl Process {
    fn start(arguments: &[&std::ffi::OsStr]) -> Result<Self, Failure> {
        let mut command = Command::new("nice");
        let niceness = if arguments[0] == STRANGERS { "-n19" } else { "-n0" };
        command.arg(niceness).arg(std::env::current_exe()?);
        let mut child = command.args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let mut output = BufReader::new(child.stdout.take().ok_or("no output")?);
        let line = read_line(&mut output)?;
        Ok(Self { child, output, line })
    }

    fn file(&self, name: &str) -> String {
        format!("/proc/{}/{name}", self.child.id())
    }

    /// From here on a peak is a later one.
    fn forget_peak(&self) -> Result<(), Failure> {
        Ok(std::fs::write(self.file("clear_refs"), "5")?)
    }

    fn peak_kib(&self) -> Result<u64, Failure> {
        let status = std::fs::read_to_string(self.file("status"))?;
        let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).ok_or("no VmHWM")?;
        Ok(peak.trim().trim_end_matches(" kB").parse()?)
    }

    /// Ends it; the last line that it printed.
    fn stop(mut self) -> Result<String, Failure> {
        drop(self.child.stdin.take());
        let line = read_line(&mut self.output)?;
        self.child.wait()?;
        Ok(line)
    }
}

fn read_line(output: &mut impl BufRead) -> Result<String, Failure> {
    let mut line = String::new();
    output.read_line(&mut line)?;
    Ok(line.trim().to_owned())
}

/// Waits until the input ends.
async fn input_ends() -> Result<(), Failure> {
    tokio::task::spawn_blocking(|| std::io::stdin().read_to_end(&mut Vec::new())).await??;
    Ok(())
}

/// Is the controller until its input ends.
async fn serve(config: &std::path::Path) -> Result<(), Failure> {
    let running = Controller::start(Config::load(config)?).await?;
    println!("{}", running.address());
    input_ends().await?;
    Ok(running.stop().await?)
}

/// Is so many strangers until the input ends; prints how many connections they made.
async fn come(address: SocketAddr, number: u64) -> Result<(), Failure> {
    api::limits::raise_descriptors(number as usize, 1);
    let connections = Arc::new(AtomicU64::new(0));
    for number in 0..number {
        tokio::spawn(stranger(number, address, Arc::clone(&connections)));
    }
    println!("here");
    input_ends().await?;
    println!("{}", connections.load(Relaxed));
    Ok(())
}

/// Holds a connection, and opens another one a second after it was closed.
async fn stranger(number: u64, address: SocketAddr, connections: Arc<AtomicU64>) {
    let [.., high, low] = (number / STRANGERS_AN_ADDRESS).to_be_bytes();
    let own = SocketAddr::new(IpAddr::V4(Ipv4Addr::new(127, 1, high, low + 1)), 0);
    let mut tick = tokio::time::interval(Duration::from_secs(1));
    loop {
        tick.tick().await;
        let Ok(socket) = TcpSocket::new_v4() else { continue };
        if socket.bind(own).is_err() {
            continue;
        }
        let Ok(mut stream) = socket.connect(address).await else { continue };
        connections.fetch_add(1, Relaxed);
        if number.is_multiple_of(2) {
            let message = peer::unfinished(1, "/fibula.v1.Northbound/PutNames", STRANGERS_BYTES);
            let _ = stream.write_all(&[peer::FIRST, &message].concat()).await;
        }
        // Until the controller closes it.
        while stream.read(&mut [0; 256]).await.is_ok_and(|n_read| n_read > 0) {}
    }
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
    let hello = v1::Hello { switch, report: report.clone(), version: String::new(), ..v1::Hello::default() };
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
            _ = tick.tick(), if mode == QUIET || mode == ANSWERED => {
                // An answer is whole when nothing of it came for a tick.
                if mode == ANSWERED && answered > asked_at && std::mem::take(&mut n_messages) == 0 {
                    counts.asked.fetch_add(1, Relaxed);
                    asked_at = answered;
                    to_controller.send(asking()).await?;
                }
            }
            permit = to_controller.reserve(), if mode == FLOOD || mode == ALL => {
                counts.asked.fetch_add(1, Relaxed);
                asked_at = answered;
                permit?.send(asking());
            }
        }
    }
}
