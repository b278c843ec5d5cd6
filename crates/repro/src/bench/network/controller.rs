//! The controller as a process, and a client of it.

use super::{Network, Options, failed};
use crate::BenchError;
use api::identity::Kind;
use api::v1::northbound_client::NorthboundClient;
use api::v1::southbound_client::SouthboundClient;
use api::v1::{
    AddSwitchesRequest, Host, LinkEnd, LinkList, ListNamesRequest, ListSwitchesRequest, NameBatch, NameRecord,
    PutNamesRequest, RemoveHostRequest, SeeHostsRequest, SeenHost, SetLinkRequest,
};
use std::fs::{self, File};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use tempfile::TempDir;
use tokio::runtime::Runtime;
use tokio::task::JoinSet;
use tonic::transport::Channel;

/// The controller answers within this, and all switches are in step.
const PATIENCE: Duration = Duration::from_secs(1800);

/// Hosts that may be found, and those of one request.
const MAX_LEARNT: u64 = 2_000_000;
const AT_ONCE: u32 = 1000;

/// The socket at which pages ask.
const PAGES: &str = "status.sock";

type Client = NorthboundClient<Channel>;

pub(super) struct Controller {
    /// Ends before its directory goes.
    process: Process,
    program: PathBuf,
    directory: TempDir,
    url: String,
    client: Client,
}

/// Killed when dropped.
struct Process(Child);

impl Process {
    fn kill(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.kill();
    }
}

impl Controller {
    pub(super) fn start(runtime: &Runtime, options: &Options, network: Network) -> Result<Self, BenchError> {
        // With `egress`, each switch is a value.
        let value_bits = if network.n_switches > 255 { 16 } else { 8 };
        let directory = TempDir::new().map_err(|error| failed("making a folder", &error))?;
        let at = |name: &str| directory.path().join(name);
        let url = format!("unix:{}", at("controller.sock").display());
        let text = format!(
            "listen = '{url}'\nstatus = 'unix:{}'\nstore = '{}'\nvalue_mode = '{}'\nvalue_bits = {value_bits}\nname_kind = 'mac'\nmax_names = {}\n\
             [limits]\nconnections = 8000\nconnections_per_peer = 8000\n[learn]\nmax_names_per_port = 4294967295\n",
            at(PAGES).display(),
            at("rib.sqlite").display(),
            options.value_mode,
            network.n_names + network.n_names / 8 + MAX_LEARNT
        );
        fs::write(at("controller.toml"), text).map_err(|error| failed("writing a configuration", &error))?;
        let program = options.program.clone();
        let mut process = spawn(&program, &directory)?;
        let client = connect(runtime, &url, &directory, &mut process)?;
        Ok(Self { process, program, directory, url, client })
    }

    pub(super) fn url(&self) -> &str {
        &self.url
    }

    /// Where pages in browsers ask.
    pub(super) fn pages(&self) -> PathBuf {
        self.directory.path().join(PAGES)
    }

    /// Processor time that it has used, with that of threads that have ended.
    pub(super) fn processor_time(&self) -> Result<Duration, BenchError> {
        let text = fs::read_to_string(format!("/proc/{}/stat", self.process.0.id()));
        let text = text.map_err(|error| failed("reading the processor time of a process", &error))?;
        // Behind the name, which may have spaces: user and system time are fields 14 and 15, in hundredths of a second.
        let mut fields = text.rsplit_once(')').map_or("", |(_, fields)| fields).split_whitespace().skip(11);
        let mut hundredths = || fields.next()?.parse::<u64>().ok();
        let (Some(user), Some(system)) = (hundredths(), hundredths()) else {
            return Err(BenchError::Setting("/proc has no processor time of the controller's process".to_owned()));
        };
        Ok(Duration::from_millis(10 * (user + system)))
    }

    pub(super) fn kill(&mut self) {
        self.process.kill();
    }

    /// After [`Controller::kill`].
    pub(super) fn start_again(&mut self, runtime: &Runtime) -> Result<(), BenchError> {
        self.process = spawn(&self.program, &self.directory)?;
        self.client = connect(runtime, &self.url, &self.directory, &mut self.process)?;
        Ok(())
    }

    pub(super) fn register(&mut self, runtime: &Runtime, network: Network) -> Result<(), BenchError> {
        let client = &mut self.client;
        runtime
            .block_on(async {
                let names = (0..network.n_switches).map(Network::switch).collect();
                client.add_switches(AddSwitchesRequest { names }).await?;
                client.add_hosts(network.hosts()).await?;
                client.add_links(LinkList { links: network.links().collect(), ..LinkList::default() }).await?;
                Ok(())
            })
            .map_err(|error: tonic::Status| failed("registering switches", &error))
    }

    pub(super) fn import(
        &mut self,
        runtime: &Runtime,
        batches: impl Iterator<Item = NameBatch> + Send + 'static,
    ) -> Result<(), BenchError> {
        let client = &mut self.client;
        runtime
            .block_on(async {
                let mut answers = client.import_names(tokio_stream::iter(batches)).await?.into_inner();
                while answers.message().await?.is_some() {}
                Ok(())
            })
            .map_err(|error: tonic::Status| failed("importing names", &error))
    }

    pub(super) fn put(&mut self, runtime: &Runtime, names: Vec<NameRecord>) -> Result<(), BenchError> {
        let request = PutNamesRequest { names, only_new: false };
        let answer = runtime.block_on(self.client.put_names(request));
        answer.map(drop).map_err(|error| failed("a change", &error))
    }

    /// The number of names found that begin with a text.
    pub(super) fn search(&mut self, runtime: &Runtime, prefix: &str, limit: u32) -> Result<usize, BenchError> {
        let request = ListNamesRequest { prefix: prefix.to_owned(), limit, ..ListNamesRequest::default() };
        let answer = runtime.block_on(self.client.list_names(request));
        answer.map(|page| page.into_inner().names.len()).map_err(|error| failed("a search", &error))
    }

    /// A host is added, and removed again.
    pub(super) fn add_and_remove(&mut self, runtime: &Runtime, host: Host) -> Result<(), BenchError> {
        let name = host.name.clone();
        let added = runtime.block_on(self.client.add_host(host));
        added.map_err(|error| failed("a host", &error))?;
        let removed = runtime.block_on(self.client.remove_host(RemoveHostRequest { name }));
        removed.map(drop).map_err(|error| failed("a host", &error))
    }

    pub(super) fn set_link(&mut self, runtime: &Runtime, end: LinkEnd, up: bool) -> Result<(), BenchError> {
        let request = SetLinkRequest { end: Some(end), up: Some(up), ..SetLinkRequest::default() };
        runtime.block_on(self.client.set_link(request)).map(drop).map_err(|error| failed("a link", &error))
    }

    /// A switch has seen names at its host port.
    pub(super) fn see(&self, runtime: &Runtime, switch: u16, names: &[[u8; 6]]) -> Result<(), BenchError> {
        let seen = async {
            let mut client = self.southbound().await?;
            client.see_hosts(sighting(switch, names)).await
        };
        runtime.block_on(seen).map(drop).map_err(|error| failed("telling of a host", &error))
    }

    /// So many switches tell of new names, one request after the other, until the time or the names are over; returns how many.
    pub(super) fn see_streams(&self, runtime: &Runtime, switches: u16, time: Duration) -> Result<u64, BenchError> {
        let all = async {
            let mut tasks = JoinSet::new();
            let end = Instant::now() + time;
            for switch in 0..switches {
                let mut client = self.southbound().await?;
                tasks.spawn(async move {
                    let mut n = 0_u32;
                    while Instant::now() < end && u64::from(n) < MAX_LEARNT / u64::from(switches) {
                        let names: Vec<[u8; 6]> = (n..n + AT_ONCE).map(|i| found_name(switch, i)).collect();
                        client.see_hosts(sighting(switch, &names)).await?;
                        n += AT_ONCE;
                    }
                    Ok::<u64, tonic::Status>(n.into())
                });
            }
            let mut n = 0;
            while let Some(done) = tasks.join_next().await {
                n += done.map_err(|error| tonic::Status::internal(error.to_string()))??;
            }
            Ok(n)
        };
        runtime.block_on(all).map_err(|error: tonic::Status| failed("telling of hosts", &error))
    }

    async fn southbound(&self) -> Result<SouthboundClient<Channel>, tonic::Status> {
        let channel = api::client::connect_to(Kind::Controller, &self.url, None, Duration::from_secs(1)).await;
        let channel = channel.map_err(|error| tonic::Status::unavailable(error.to_string()))?;
        Ok(api::client::southbound(channel))
    }

    /// So many clients send requests one after the other; returns how many were answered.
    pub(super) fn stream(
        &self,
        runtime: &Runtime,
        clients: u64,
        time: Duration,
        next: impl Fn(u64, u64) -> PutNamesRequest + Copy + Send + 'static,
    ) -> Result<u64, BenchError> {
        runtime
            .block_on(async {
                let mut tasks = JoinSet::new();
                let end = Instant::now() + time;
                for number in 0..clients {
                    let mut client = self.client.clone();
                    tasks.spawn(async move {
                        let mut turn = 0;
                        while Instant::now() < end {
                            client.put_names(next(number, turn)).await?;
                            turn += 1;
                        }
                        Ok::<u64, tonic::Status>(turn)
                    });
                }
                let mut n = 0;
                while let Some(done) = tasks.join_next().await {
                    n += done.map_err(|error| tonic::Status::internal(error.to_string()))??;
                }
                Ok(n)
            })
            .map_err(|error: tonic::Status| failed("changes", &error))
    }

    /// Asks repeatedly until all switches are in step.
    pub(super) fn wait_in_step(&mut self, runtime: &Runtime, network: Network) -> Result<(), BenchError> {
        let end = Instant::now() + PATIENCE;
        loop {
            let list = runtime.block_on(self.client.list_switches(ListSwitchesRequest {}));
            let list = list.map_err(|error| failed("asking for the switches", &error))?.into_inner();
            let n = list.switches.iter().filter(|switch| switch.connected && switch.in_step).count();
            if n == usize::from(network.n_switches) {
                return Ok(());
            }
            if Instant::now() > end {
                let all = network.n_switches;
                return Err(BenchError::Setting(format!("{n} of {all} switches are in step after {PATIENCE:?}")));
            }
            #[expect(clippy::disallowed_methods, reason = "nothing tells when all are in step")]
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// Memory that it holds, in bytes.
    pub(super) fn memory(&self) -> Result<u64, BenchError> {
        resident_bytes(self.process.0.id())
    }

    /// The most that it has held.
    pub(super) fn peak(&self) -> Result<u64, BenchError> {
        memory_of(self.process.0.id(), "VmHWM:")
    }
}

/// A name that no import has.
pub(super) fn found_name(switch: u16, i: u32) -> [u8; 6] {
    let ([a, b, c, d], [_, e]) = (i.to_be_bytes(), switch.to_be_bytes());
    [0x0a, e, a, b, c, d]
}

fn sighting(switch: u16, names: &[[u8; 6]]) -> SeeHostsRequest {
    let host = |name: &[u8; 6]| SeenHost {
        port: Network::HOST_PORT,
        name: name.to_vec().into(),
        accept: true,
        max_names: u32::MAX,
        ..SeenHost::default()
    };
    let (switch, hosts) = (Network::switch(switch), names.iter().map(host).collect());
    SeeHostsRequest { switch, hosts, ..SeeHostsRequest::default() }
}

fn spawn(program: &PathBuf, directory: &TempDir) -> Result<Process, BenchError> {
    let log = directory.path().join("controller.log");
    let log = File::create(log).map_err(|error| failed("a log", &error))?;
    let mut command = Command::new(program);
    command.args(["controller", "--config"]).arg(directory.path().join("controller.toml"));
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log);
    command.spawn().map(Process).map_err(|error| failed("starting the controller", &error))
}

/// A client, once the controller answers.
fn connect(runtime: &Runtime, url: &str, directory: &TempDir, process: &mut Process) -> Result<Client, BenchError> {
    let end = Instant::now() + PATIENCE;
    loop {
        let connected = runtime.block_on(async {
            let channel = api::client::connect_to(Kind::Controller, url, None, Duration::from_secs(1)).await;
            let mut client = api::client::northbound(channel.map_err(|error| error.to_string())?);
            let status = client.get_status(api::v1::GetStatusRequest {}).await;
            status.map(|_| client).map_err(|error| error.to_string())
        });
        let error = match connected {
            Ok(client) => return Ok(client),
            Err(error) => error,
        };
        if matches!(process.0.try_wait(), Ok(Some(_))) || Instant::now() > end {
            let log = fs::read_to_string(directory.path().join("controller.log")).unwrap_or_default();
            return Err(failed("the controller", &format!("{error}\n{log}")));
        }
        #[expect(clippy::disallowed_methods, reason = "nothing tells when the controller listens")]
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// Memory that a process holds, in bytes.
pub(super) fn resident_bytes(pid: u32) -> Result<u64, BenchError> {
    memory_of(pid, "VmRSS:")
}

fn memory_of(pid: u32, field: &str) -> Result<u64, BenchError> {
    let text = fs::read_to_string(format!("/proc/{pid}/status"));
    let text = text.map_err(|error| failed("the memory of a process", &error))?;
    let kib = text.lines().find_map(|line| line.strip_prefix(field)?.split_whitespace().next()?.parse::<u64>().ok());
    kib.map(|kib| kib << 10).ok_or_else(|| BenchError::Setting(format!("/proc/{pid}/status has no {field}")))
}
