//! Reloads a daemon at SIGHUP, as sent by `systemctl reload`, `kill -HUP` or logrotate: it reopens the files that it
//! writes, and reads its configuration again.

use crate::supervisor::Supervisor;
use api::config::{Changes, Watched};
use command::output::{Exit, OrExit};

/// Applies a configuration's log filter.
/// # Errors
/// [`Exit::Usage`] if it is not a filter.
pub(crate) fn configure_log(filter: Option<&str>) -> anyhow::Result<()> {
    command::log::configure(filter).map(drop).or_exit(Exit::Usage, "log is not a filter")
}

/// Checks that the log accepts a configuration's filter.
/// # Errors
/// [`Exit::Usage`].
pub(crate) fn check_log(filter: Option<&str>) -> anyhow::Result<()> {
    filter.map_or(Ok(()), command::log::check_filter).or_exit(Exit::Usage, "log is not a filter")
}

/// A daemon that can reload. The methods are called in this order.
pub(crate) trait Reloads {
    type Config;

    /// Reopens the files that it writes. Returns the ones that could not be opened.
    fn reopen_files(&self) -> Vec<String>;

    /// The log filter of a configuration.
    fn log(config: &Self::Config) -> Option<&str>;

    /// Applies the changes. Returns the ones that it cannot use.
    async fn reload(&self, before: &Self::Config, config: &Self::Config, changes: &Changes) -> Vec<String>;
}

/// Reloads a daemon, and reports the result in the log and to the service manager. An unusable configuration changes
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
            tracing::error!(%error, "the configuration cannot be used, so the previous one stays in use; files were reopened");
            return supervisor.serves(&format!("reload failed, the previous configuration is in use: {error}"));
        }
    };
    if D::log(config) != D::log(&read) {
        match command::log::configure(D::log(&read)) {
            Ok(true) => {}
            Ok(false) => refused.push("log is ignored: FIBULA_LOG or -v sets the filter".to_owned()),
            Err(error) => refused.push(format!("log is ignored: {error}")),
        }
    }
    refused.extend(daemon.reload(config, &read, &changes).await);
    let Changes { live, at_restart } = changes;
    let (taken, waiting) = (live.join(", "), at_restart.join(", "));
    tracing::info!(file, taken, "reloaded configuration, certificates, lists and output files");
    if !waiting.is_empty() {
        tracing::warn!(keys = waiting, "changed keys that take effect only at a restart");
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
