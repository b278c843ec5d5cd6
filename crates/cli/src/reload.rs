//! What a daemon does when it gets SIGHUP, as from `systemctl reload`, `kill -HUP` or logrotate: it opens the files that it writes
//! again, and reads its configuration again.

use crate::supervisor::Supervisor;
use api::config::{Changes, Watched};
use command::output::{Exit, OrExit};

/// Takes the filter of the log that a configuration has.
/// # Errors
/// [`Exit::Usage`]: it is no filter.
pub(crate) fn configure_log(filter: Option<&str>) -> anyhow::Result<()> {
    command::log::configure(filter).map(drop).or_exit(Exit::Usage, "log is no filter")
}

/// Whether a configuration has a filter that the log takes.
/// # Errors
/// [`Exit::Usage`].
pub(crate) fn check_log(filter: Option<&str>) -> anyhow::Result<()> {
    filter.map_or(Ok(()), command::log::check_filter).or_exit(Exit::Usage, "log is no filter")
}

/// A daemon that reloads: what it is told, in this order.
pub(crate) trait Reloads {
    type Config;

    /// Opens the files that it writes again. Returns what could not be opened.
    fn reopen_files(&self) -> Vec<String>;

    /// The filter of the log in a configuration.
    fn log(config: &Self::Config) -> Option<&str>;

    /// Takes what has changed. Returns what it cannot use.
    async fn reload(&self, before: &Self::Config, config: &Self::Config, changes: &Changes) -> Vec<String>;
}

/// Reloads a daemon, and says in the log, and to the service manager, what came of it. A configuration that cannot be used changes
/// nothing.
pub(crate) async fn reload<D: Reloads>(
    daemon: &D,
    watched: &mut Watched<D::Config>,
    config: &mut D::Config,
    supervisor: &Supervisor,
) {
    let file = watched.path().display().to_string();
    supervisor.reloads();
    let mut refused = daemon.reopen_files();
    let read = tokio::task::block_in_place(|| watched.read_again());
    let (read, changes) = match read {
        Ok(read) => read,
        Err(error) => {
            refused.iter().for_each(|what| tracing::error!("{what}"));
            tracing::error!(%error, "the configuration cannot be used, and the one before stays in use; files are opened again");
            return supervisor.serves(&format!("reload failed, the configuration before is in use: {error}"));
        }
    };
    if D::log(config) != D::log(&read) {
        match command::log::configure(D::log(&read)) {
            Ok(true) => {}
            Ok(false) => refused.push("log is not taken: FIBULA_LOG or -v says what is logged".to_owned()),
            Err(error) => refused.push(format!("log is not taken: {error}")),
        }
    }
    refused.extend(daemon.reload(config, &read, &changes).await);
    let Changes { live, at_restart } = changes;
    let (taken, waiting) = (live.join(", "), at_restart.join(", "));
    tracing::info!(file, taken, "reloaded: configuration, certificates, lists and files that are written");
    if !waiting.is_empty() {
        tracing::warn!(keys = waiting, "changed, and taken at the next restart only");
    }
    refused.iter().for_each(|what| tracing::error!("{what}"));
    *config = read;
    let mut sentence = "serves; reloaded".to_owned();
    if !waiting.is_empty() {
        sentence.push_str(&format!("; these wait for a restart: {waiting}"));
    }
    if !refused.is_empty() {
        sentence.push_str(&format!("; refused: {}", refused.join("; ")));
    }
    supervisor.serves(&sentence);
}
