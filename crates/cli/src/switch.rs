//! `fibula switch`: the daemon that forwards, and the controller's table of switches.

use crate::reload::{Reloads, reload};
use crate::rib::node;
use crate::supervisor::Supervisor;
use ::switch::daemon::config::Config;
use ::switch::daemon::{StartError, Switch, lookup_threads};
use api::address::Address;
use api::config::{Changes, Watched};
use api::tls::Tls;
use command::output::{Exit, Failure, OrExit, Output};
use dataplane::assembly::Pulse;
use serde::Serialize;
use std::path::PathBuf;
use tokio::signal::unix::{SignalKind, signal};

/// Arguments of `fibula switch`.
#[derive(clap::Args)]
#[command(args_conflicts_with_subcommands = true, arg_required_else_help = true)]
pub(crate) struct Args {
    /// Run a switch with this configuration, switch.toml
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Check the configuration and exit
    #[arg(long, requires = "config")]
    check: bool,
    #[command(subcommand)]
    verb: Option<node::Verb>,
}

#[derive(Serialize)]
struct StartedRow {
    name: String,
    status: Option<Address>,
    lookup: Option<Address>,
    flow: Option<Address>,
    control: Option<Address>,
}

impl Args {
    /// With a verb: runs it. With a configuration: runs until SIGINT or SIGTERM.
    /// # Errors
    /// The configuration is not usable, or a port cannot be opened; those of the controller.
    pub(crate) fn run(self, out: &Output) -> anyhow::Result<()> {
        let path = match (self.verb, self.config) {
            (Some(verb), _) => return verb.run(out),
            (None, Some(path)) => path,
            (None, None) => {
                return Err(Failure::new(Exit::Usage, "give --config FILE, or add, del, list, show, log or lookup"));
            }
        };
        let (watched, config) =
            crate::remote::config(Watched::open(&path, Config::parse, Config::keys_of, Config::LIVE))?;
        crate::reload::check_log(config.log.as_deref())?;
        if self.check {
            let tls = config.tls.as_ref().map(|files| Tls::load_for(files, Some(&config.name))).transpose();
            tls.or_exit(Exit::Usage, "the certificates of [tls] are not usable")?;
            return out.done(&serde_json::json!({"ok": true}), format!("{} is fine", path.display()));
        }
        let threads = if config.lookup.is_some() { lookup_threads() } else { 1 };
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(threads).enable_all().build()?;
        let result = runtime.block_on(serve(config, watched, out));
        runtime.shutdown_background();
        result
    }
}

async fn serve(config: Config, mut watched: Watched<Config>, out: &Output) -> anyhow::Result<()> {
    let (mut interrupt, mut terminate) = (signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?);
    let mut hangup = signal(SignalKind::hangup())?;
    let supervisor = Supervisor::of_this_process();
    crate::log::install();
    crate::reload::configure_log(config.log.as_deref())?;
    let mut current = config.clone();
    let name = config.name.clone();
    let scheme = if config.tls.is_some() { "https" } else { "http" };
    let is_open = config.metrics_open;
    let started = Switch::start_after(config, supervisor.handover()).await;
    let exit = started.as_ref().err().map_or(Exit::Internal, exit_of);
    let switch = started.or_exit(exit, "the switch does not start")?;
    let row = StartedRow {
        name,
        status: switch.status_address().cloned(),
        lookup: switch.lookup_address().cloned(),
        flow: switch.flow_address().cloned(),
        control: switch.control_address().cloned(),
    };
    let page = |at: &Address, scheme: &str, page: &str| match at {
        Address::Tcp(at) => format!("{scheme}://{at}/{page}"),
        Address::Unix { .. } => format!("/{page} at {at}"),
    };
    let of_status = |at: &Address| if is_open || !at.is_remote() { "http" } else { scheme };
    let status = row.status.as_ref().map(|at| format!(", status on {}", page(at, of_status(at), "status")));
    let lookup = row.lookup.as_ref().map(|at| format!(", answers on {}", page(at, scheme, "lookup")));
    let flow = row.flow.as_ref().map(|at| format!(", flows at {at}"));
    let control = row.control.as_ref().map(|at| format!(", control at {at}"));
    let [status, lookup, flow, control] = [status, lookup, flow, control].map(Option::unwrap_or_default);
    let sentence = format!("switch {} runs{status}{lookup}{flow}{control}", row.name);
    out.done(&row, &sentence)?;
    supervisor.serves(&sentence);
    let mut pulse = Pulse::default();
    {
        let mut watch = std::pin::pin!(supervisor.watch(async || switch.beat(&mut pulse).await));
        loop {
            tokio::select! {
                never = &mut watch => match never {},
                _ = hangup.recv() => reload(&switch, &mut watched, &mut current, &supervisor).await,
                _ = interrupt.recv() => break,
                _ = terminate.recv() => break,
            }
        }
    }
    tracing::info!("stopping");
    supervisor.stops();
    switch.stop().await;
    Ok(())
}

impl Reloads for Switch {
    type Config = Config;

    fn reopen_files(&self) -> Vec<String> {
        tokio::task::block_in_place(|| self.reopen_files())
    }

    fn log(config: &Config) -> Option<&str> {
        config.log.as_deref()
    }

    async fn reload(&self, before: &Config, config: &Config, changes: &Changes) -> Vec<String> {
        tokio::task::block_in_place(|| self.reload(before, config, changes))
    }
}

fn exit_of(error: &StartError) -> Exit {
    match error {
        StartError::Listen { .. } => Exit::Refused,
        StartError::State { source, .. } if source.kind() == std::io::ErrorKind::ResourceBusy => Exit::Refused,
        StartError::Ports(_) | StartError::Plane(_) | StartError::Flows(_) | StartError::Export { .. } => Exit::Refused,
        StartError::Audit { .. } => Exit::Refused,
        StartError::Config(_) | StartError::Tls(_) => Exit::Usage,
        _ => Exit::Internal,
    }
}
