//! `fibula controller`: the daemon that knows every name, and commands for several controllers and for the log of one.

use crate::reload::{Reloads, reload};
use crate::rib::controllers;
use crate::supervisor::Supervisor;
use ::controller::config::Config;
use ::controller::store::StoreError;
use ::controller::{Controller, StartError};
use api::address::Address;
use api::config::{Changes, Watched};
use api::tls::Tls;
use command::output::{Exit, Failure, OrExit, Output};
use serde::Serialize;
use std::path::PathBuf;
use tokio::signal::unix::{SignalKind, signal};

/// Arguments of `fibula controller`.
#[derive(clap::Args)]
#[command(args_conflicts_with_subcommands = true, arg_required_else_help = true)]
pub(crate) struct Args {
    /// Run a controller with this configuration, controller.toml
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Check the configuration and exit
    #[arg(long, requires = "config")]
    check: bool,
    #[command(subcommand)]
    verb: Option<controllers::Verb>,
}

#[derive(Serialize)]
struct StartedRow {
    listen: Address,
    status: Option<Address>,
}

impl Args {
    /// With a verb, runs it. With a configuration, runs until SIGINT or SIGTERM, or until the store fails.
    /// # Errors
    /// The configuration or the store is not usable, or the address is taken.
    pub(crate) fn run(self, out: &Output) -> anyhow::Result<()> {
        let path = match (self.verb, self.config) {
            (Some(verb), _) => return verb.run(out),
            (None, Some(path)) => path,
            (None, None) => return Err(Failure::new(Exit::Usage, "give --config FILE, or list, log, drain or resume")),
        };
        crate::laboratory::hand_over_if_named_in(&path);
        let (watched, config) =
            crate::remote::config(Watched::open(&path, Config::parse, Config::keys_of, Config::LIVE))?;
        crate::reload::check_log(config.log.as_deref())?;
        if self.check {
            let tls = config.tls.as_ref().map(|files| Tls::load_for(files, None)).transpose();
            tls.or_exit(Exit::Usage, "the certificates of [tls] are not usable")?;
            return out.done(&serde_json::json!({"ok": true}), format!("{} is fine", path.display()));
        }
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
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
    let has_tls = config.tls.is_some() && config.listen.tcp().is_some();
    // A controller that still waits until it can follow also stops when told to.
    let started = tokio::select! {
        started = Controller::start(config) => started,
        _ = interrupt.recv() => return Ok(()),
        _ = terminate.recv() => return Ok(()),
    };
    let exit = started.as_ref().err().map_or(Exit::Internal, exit_of);
    let mut controller = started.or_exit(exit, "the controller does not start")?;
    let row = StartedRow { listen: controller.address().clone(), status: controller.status_address().cloned() };
    let how = if has_tls { ", with TLS" } else { "" };
    let sentence = format!("controller listens on {}{how}", row.listen);
    out.done(&row, &sentence)?;
    supervisor.serves(&sentence);
    let pulse = controller.pulse();
    {
        let mut watch = std::pin::pin!(supervisor.watch(async || pulse.beat().await));
        loop {
            tokio::select! {
                never = &mut watch => match never {},
                ended = controller.ended() => {
                    let exit = ended.as_ref().err().map_or(Exit::Internal, exit_of_store);
                    return ended.or_exit(exit, "the controller stops");
                }
                _ = hangup.recv() => reload(&controller, &mut watched, &mut current, &supervisor).await,
                _ = interrupt.recv() => break,
                _ = terminate.recv() => break,
            }
        }
    }
    tracing::info!("stopping");
    supervisor.stops();
    controller.stop().await.or_exit(Exit::Internal, "the last changes were not committed")
}

impl Reloads for Controller {
    type Config = Config;

    fn reopen_files(&self) -> Vec<String> {
        tokio::task::block_in_place(|| self.reopen_files())
    }

    fn log(config: &Config) -> Option<&str> {
        config.log.as_deref()
    }

    async fn reload(&self, _before: &Config, config: &Config, changes: &Changes) -> Vec<String> {
        self.reload(config, changes).await
    }
}

fn exit_of(error: &StartError) -> Exit {
    match error {
        StartError::Store(StoreError::InUse { .. } | StoreError::NotLeader { .. }) | StartError::Listen { .. } => {
            Exit::Refused
        }
        StartError::Store(error) => exit_of_store(error),
        StartError::Tls(_) => Exit::Usage,
        StartError::Audit { .. } => Exit::Refused,
        StartError::Restore(_) | StartError::Host(_) => Exit::BadInput,
        _ => Exit::Internal,
    }
}

pub(crate) fn exit_of_store(error: &StoreError) -> Exit {
    match error {
        error if error.is_damaged() => Exit::BadInput,
        error if error.is_denied() => Exit::Refused,
        StoreError::NotLeader { .. } | StoreError::LostLead { .. } => Exit::Refused,
        _ => Exit::Internal,
    }
}
