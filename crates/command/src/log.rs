//! The log of a program, and its form.
//!
//! It goes to standard error, so that standard output stays a clean table or clean JSON, or to the journal of systemd.

use crate::output::{Exit, Failure};
use std::io::IsTerminal;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{EnvFilter, Layer};

/// What the journal says the program is, whichever of the binaries it is.
const IDENTIFIER: &str = "fibula";

/// What lines of the log look like.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, clap::ValueEnum)]
pub enum Format {
    /// A line for people.
    #[default]
    Text,
    /// A JSON object a line, with the fields of the event.
    Json,
    /// Events with their fields in the journal of systemd.
    Journald,
}

/// Starts the log. `verbose` counts `-v`; `FIBULA_LOG` is stronger.
/// # Errors
/// [`Exit::Usage`] for a journal where there is none.
pub(crate) fn start(verbose: u8, format: Format) -> anyhow::Result<()> {
    let default = ["info", "debug", "trace"][usize::from(verbose.min(2))];
    let filter = EnvFilter::try_from_env("FIBULA_LOG").unwrap_or_else(|_| EnvFilter::new(default));
    let stderr = tracing_subscriber::fmt::layer().with_writer(std::io::stderr);
    let lines: Box<dyn Layer<_> + Send + Sync> = match format {
        Format::Text => Box::new(stderr.with_ansi(std::io::stderr().is_terminal())),
        Format::Json => Box::new(stderr.json().flatten_event(true)),
        Format::Journald => {
            let journal = tracing_journald::layer().map_err(|error| {
                let help = "take --log-format text or json where there is no systemd";
                Failure::new(Exit::Usage, format!("the journal of systemd cannot be reached ({error}); {help}"))
            })?;
            // Names of fields as they are.
            Box::new(journal.with_field_prefix(None).with_syslog_identifier(IDENTIFIER.to_owned()))
        }
    };
    tracing_subscriber::registry().with(filter).with(lines).init();
    Ok(())
}
