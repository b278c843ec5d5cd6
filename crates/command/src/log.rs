//! The log of a program, its form, and its filter, which can be changed while the program runs.
//!
//! It goes to standard error, so that standard output stays a clean table or clean JSON, or to the journal of systemd.

use crate::output::{Exit, Failure};
use std::io::IsTerminal;
use std::sync::{Mutex, OnceLock, PoisonError};
use tracing_subscriber::filter::LevelFilter;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::reload::{self, Handle};
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{EnvFilter, Layer, Registry};

/// What the journal says the program is, whichever of the binaries it is.
const IDENTIFIER: &str = "fibula";

/// How a filter is written.
const HELP: &str = "write off, error, warn, info, debug or trace, and TARGET=LEVEL for parts of the program, with commas between: \
     info,fibula_controller=debug";

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

/// The filter of the log.
struct Filter {
    handle: Handle<EnvFilter, Registry>,
    at_start: String,
    now: Mutex<String>,
}

/// The program has one log.
static FILTER: OnceLock<Filter> = OnceLock::new();

/// Starts the log. `verbose` counts `-v`; `FIBULA_LOG` is stronger.
/// # Errors
/// [`Exit::Usage`] for a journal where there is none.
pub(crate) fn start(verbose: u8, format: Format) -> anyhow::Result<()> {
    let default = ["info", "debug", "trace"][usize::from(verbose.min(2))];
    let asked = std::env::var("FIBULA_LOG").ok().and_then(|text| Some((EnvFilter::try_new(&text).ok()?, text)));
    let (filter, at_start) = asked.unwrap_or_else(|| (EnvFilter::new(default), default.to_owned()));
    let (filter, handle) = reload::Layer::new(filter);
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
    let now = Mutex::new(at_start.clone());
    let _ = FILTER.set(Filter { handle, at_start, now });
    Ok(())
}

/// The filter of the log as it is, and as it was at the start.
pub fn filter() -> (String, String) {
    let Some(filter) = FILTER.get() else { return (String::new(), String::new()) };
    (filter.now.lock().unwrap_or_else(PoisonError::into_inner).clone(), filter.at_start.clone())
}

/// Changes the filter of the log, from the next event on.
/// # Errors
/// What is wrong with the text; the filter is as it was.
pub fn set_filter(text: &str) -> Result<(), String> {
    let parsed = parse(text)?;
    let filter = FILTER.get().ok_or("the log has not begun")?;
    let mut now = filter.now.lock().unwrap_or_else(PoisonError::into_inner);
    filter.handle.reload(parsed).map_err(|error| format!("the filter cannot be changed: {error}"))?;
    text.clone_into(&mut now);
    Ok(())
}

/// Reads a filter. A word that is no level would be taken for a part of the program, of which everything is logged, and nothing of
/// the rest; so a misspelt level would end the log.
fn parse(text: &str) -> Result<EnvFilter, String> {
    let is_level = |word: &str| !word.is_empty() && word.parse::<LevelFilter>().is_ok();
    let is_target = |word: &str| {
        !word.is_empty() && word.chars().all(|c| c.is_ascii_alphanumeric() || "_:-.".contains(c)) && !is_level(word)
    };
    for word in text.split(',') {
        let is_good = match word.split_once('=') {
            // One about spans and their fields.
            _ if word.contains('[') => true,
            Some((target, level)) => is_target(target) && is_level(level),
            None => is_level(word),
        };
        if !is_good {
            return Err(format!("`{word}` says nothing about the log; {HELP}"));
        }
    }
    EnvFilter::builder().parse(text).map_err(|error| format!("`{text}` is no filter of the log ({error}); {HELP}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn filters_are_levels_and_parts_with_levels_and_a_misspelt_level_is_refused() {
        let good =
            "info off DEBUG info,fibula_controller=debug warn,fibula_switch::daemon=trace h2=off [take{a=1}]=debug";
        for text in good.split(' ') {
            assert!(parse(text).is_ok(), "{text}: {:?}", parse(text).err());
        }
        let bad = "degub info, info,degub fibula_controller=loud fibula_controller= =info = fibula_controller a=b=c debug=info a/b=info";
        for text in bad.split(' ').chain(["", "info debug", "info, fibula_api=debug"]) {
            let why = parse(text).err().unwrap_or_else(|| panic!("`{text}` is taken"));
            assert!(why.contains("info,fibula_controller=debug"), "{why}");
        }
    }
}
