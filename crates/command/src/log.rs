//! The log of a program, its form, and its filter, which can be changed while the program runs.
//!
//! It goes to standard error, so that standard output stays a clean table or clean JSON, or to the journal of systemd.

pub(crate) mod priority;

use crate::output::{Exit, Failure};
use priority::StandardError;
use std::io::IsTerminal;
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use tracing_subscriber::filter::{LevelFilter, ParseError};
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::reload::{self, Handle};
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{EnvFilter, Layer, Registry};

/// The program's identifier in the journal, for all binaries.
const IDENTIFIER: &str = "fibula";

/// The syntax of a filter.
const HELP: &str = "write one of off, error, warn, info, debug and trace, followed by TARGET=LEVEL for parts of the program, separated \
     by commas: info,fibula_controller=debug";

/// Formats of the log.
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
    /// Whether the environment or the command line sets it.
    is_asked: bool,
    at_start: Mutex<String>,
    now: Mutex<String>,
}

/// The program has one log.
static FILTER: OnceLock<Filter> = OnceLock::new();

/// The default filter.
const USUAL: &str = "info";

/// The variable of the environment that has a filter.
const VARIABLE: &str = "FIBULA_LOG";

/// Starts the log. `verbose` counts `-v`; `FIBULA_LOG` takes precedence, and if it is invalid, the log says so.
/// # Errors
/// [`Exit::Usage`] for a journal where there is none.
pub(crate) fn start(verbose: u8, format: Format) -> anyhow::Result<()> {
    let default = [USUAL, "debug", "trace"][usize::from(verbose.min(2))];
    let asked = std::env::var_os(VARIABLE).map(|text| text.to_string_lossy().into_owned());
    let (filter, at_start, mistake) = at_start(asked.as_deref().unwrap_or_default(), default);
    let (filter, handle) = reload::Layer::new(filter);
    let stderr = tracing_subscriber::fmt::layer().with_writer(StandardError::of_this_process());
    let lines: Box<dyn Layer<_> + Send + Sync> = match format {
        Format::Text => Box::new(stderr.with_ansi(std::io::stderr().is_terminal())),
        Format::Json => Box::new(stderr.json().flatten_event(true)),
        Format::Journald => {
            let journal = tracing_journald::layer().map_err(|error| {
                let help = "use --log-format text or json without systemd";
                Failure::new(Exit::Usage, format!("the journal of systemd cannot be reached ({error}); {help}"))
            })?;
            let journal = journal.with_priority_mappings(priority::mappings());
            // Names of fields as they are.
            Box::new(journal.with_field_prefix(None).with_syslog_identifier(IDENTIFIER.to_owned()))
        }
    };
    tracing_subscriber::registry().with(filter).with(lines).init();
    if let Some(mistake) = mistake {
        tracing::warn!("{VARIABLE} is ignored, and `{at_start}` is used: {mistake}");
    }
    let is_asked = verbose > 0 || asked.is_some_and(|asked| !asked.trim().is_empty());
    let (now, at_start) = (Mutex::new(at_start.clone()), Mutex::new(at_start));
    let _ = FILTER.set(Filter { handle, is_asked, at_start, now });
    Ok(())
}

/// The filter at the start, its text, and what is wrong with the one `asked` for: a log that is silent because of a typing
/// error would be missed too late. Without a level for the rest, that of `default` applies. Spans and fields are accepted.
fn at_start(asked: &str, default: &str) -> (EnvFilter, String, Option<FilterError>) {
    let read = |text: String| -> Result<(EnvFilter, String), FilterError> {
        let filter = if text.contains(['[', ']', '{', '}']) {
            let refused = |error: ParseError| FilterError::Refused { filter: start_of(&text), why: error.to_string() };
            EnvFilter::try_new(&text).map_err(refused)?
        } else {
            parse(&text)?
        };
        Ok((filter, text))
    };
    let asked = asked.trim();
    let read = match read(asked.to_owned()) {
        _ if asked.is_empty() => Err(None),
        Err(FilterError::Levels { got: 0, .. }) => read(format!("{default},{asked}")).map_err(Some),
        read => read.map_err(Some),
    };
    match read {
        Ok((filter, text)) => (filter, text, None),
        Err(mistake) => (EnvFilter::new(default), default.to_owned(), mistake),
    }
}

/// Reasons why the filter of the log is not changed.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FilterError {
    /// The program has no log, or no longer has one.
    #[error("the log has not begun; start the program as a daemon")]
    NoLog,
    /// Such a character could forge lines of the log.
    #[error("a filter has no spaces, brackets or control characters, and nothing but ASCII; character {at} is {found:?}; {help}", help = HELP)]
    Character {
        /// The character.
        found: char,
        /// Which one it is, from 1.
        at: usize,
    },
    /// Neither a level nor a part of the program with a level.
    #[error("`{word}` says nothing about the log; {help}", help = HELP)]
    Word {
        /// Its start.
        word: String,
    },
    /// Without a level for the rest, the rest would not be logged; with two, it is unclear which one counts.
    #[error("`{filter}` has {got} levels for the program as a whole; put one first: info,h2=off")]
    Levels {
        /// Its start.
        filter: String,
        /// How many.
        got: usize,
    },
    /// The filter parser rejects it.
    #[error("`{filter}` is not a filter for the log ({why}); {help}", help = HELP)]
    Refused {
        /// Its start.
        filter: String,
        /// Its reason.
        why: String,
    },
}

/// The filter of the log as it is, and as it was at the start.
pub fn filter() -> (String, String) {
    let Some(filter) = FILTER.get() else { return (String::new(), String::new()) };
    let [now, at_start] = [&filter.now, &filter.at_start].map(|text| lock(text).clone());
    (now, at_start)
}

fn lock(text: &Mutex<String>) -> MutexGuard<'_, String> {
    text.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Applies the filter of a configuration, or the default if it has none, unless the environment or the command line sets
/// another. Returns whether it was applied.
/// # Errors
/// [`FilterError`]; the filter is as it was.
pub fn configure(text: Option<&str>) -> Result<bool, FilterError> {
    let text = text.unwrap_or(USUAL);
    check_filter(text)?;
    if FILTER.get().ok_or(FilterError::NoLog)?.is_asked {
        return Ok(false);
    }
    set_filter(text)?;
    if let Some(filter) = FILTER.get() {
        text.clone_into(&mut lock(&filter.at_start));
    }
    Ok(true)
}

/// Changes the filter of the log, from the next event on, and returns what it was before.
/// # Errors
/// [`FilterError`]; the filter is as it was.
pub fn set_filter(text: &str) -> Result<String, FilterError> {
    let parsed = parse(text)?;
    let filter = FILTER.get().ok_or(FilterError::NoLog)?;
    let mut now = lock(&filter.now);
    filter.handle.reload(parsed).map_err(|_| FilterError::NoLog)?;
    Ok(std::mem::replace(&mut *now, text.to_owned()))
}

/// Checks that [`set_filter`] would accept a filter.
/// # Errors
/// [`FilterError`].
pub fn check_filter(text: &str) -> Result<(), FilterError> {
    parse(text).map(drop)
}

/// Parses a filter. It is more restricted than `FIBULA_LOG`, because it may come over the network: without spans and
/// fields, whose values would be compiled as regular expressions. A word that is not a level would be read as a part of
/// the program, so that only that part is logged; a misspelt level would then silence the rest.
fn parse(text: &str) -> Result<EnvFilter, FilterError> {
    let is_good = |c: char| c.is_ascii_graphic() && !"[]{}".contains(c);
    if let Some((before, found)) = text.chars().enumerate().find(|(_, c)| !is_good(*c)) {
        return Err(FilterError::Character { found, at: before + 1 });
    }
    let is_level = |word: &str| !word.is_empty() && word.parse::<LevelFilter>().is_ok();
    let is_target = |word: &str| {
        !word.is_empty() && word.chars().all(|c| c.is_ascii_alphanumeric() || "_:-.".contains(c)) && !is_level(word)
    };
    let mut n_levels = 0;
    for word in text.split(',') {
        let is_good = match word.split_once('=') {
            Some((target, level)) => is_target(target) && is_level(level),
            None => is_level(word),
        };
        if !is_good {
            return Err(FilterError::Word { word: start_of(word) });
        }
        n_levels += usize::from(!word.contains('='));
    }
    if n_levels != 1 {
        return Err(FilterError::Levels { filter: start_of(text), got: n_levels });
    }
    let refused = |why: String| FilterError::Refused { filter: start_of(text), why };
    EnvFilter::builder().with_regex(false).parse(text).map_err(|error| refused(error.to_string()))
}

/// The beginning of an ASCII text, as much as a message has room for.
fn start_of(text: &str) -> String {
    const SHOWN: usize = 60;
    if text.len() <= SHOWN { text.to_owned() } else { format!("{}…", text.chars().take(SHOWN).collect::<String>()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn filters_have_one_level_and_parts_with_levels_and_a_misspelt_level_is_refused() {
        let good = "info off DEBUG info,fibula_controller=debug warn,fibula_switch::daemon=trace h2=off,info";
        for text in good.split(' ') {
            assert!(parse(text).is_ok(), "{text}: {:?}", parse(text).err());
        }
        let bad = "degub info, info,degub info,fibula_controller=loud info,fibula_controller= info,=info = fibula_controller info,a=b=c \
            info,debug=info info,a/b=info info,.a=info";
        for text in bad.split(' ').chain(["", &"x".repeat(5000)]) {
            let why = parse(text).err().unwrap_or_else(|| panic!("`{text}` is taken")).to_string();
            assert!(why.contains("info,fibula_controller=debug") && why.len() < 500, "{why}");
        }
    }

    #[test]
    fn a_filter_without_a_level_for_the_rest_is_refused_and_one_with_two_as_well() {
        for (text, got) in [("h2=off", 0), ("fibula_switch=debug,h2=off", 0), ("info,debug", 2), ("off,h2=off,info", 2)]
        {
            assert_eq!(parse(text).err(), Some(FilterError::Levels { filter: text.to_owned(), got }));
        }
        let why = parse("h2=off").err().unwrap().to_string();
        assert!(why.contains("put one first: info,h2=off"), "{why}");
    }

    #[test]
    fn spans_regular_expressions_and_what_may_forge_lines_are_refused_before_anything_reads_them() {
        let spans = ["[take]=debug", "info,[take]=debug", "info,a[b]=info", "info,[{a=(x{1000}){1000}}]=info"];
        let others = [
            "\u{a0}[take]=debug",
            "info, fibula_api=debug",
            "info debug",
            "info\n2026 ERROR: forged",
            "info\u{1b}[2J",
            "ínfo",
        ];
        for text in spans.into_iter().chain(others) {
            let error = parse(text).err().unwrap_or_else(|| panic!("`{text}` is taken"));
            let FilterError::Character { at, .. } = error else { panic!("{text}: {error}") };
            assert!(at >= 1 && at <= text.chars().count(), "{text}: {error}");
            let why = error.to_string();
            assert!(!why.contains(char::is_control) && why.contains("info,fibula_controller=debug"), "{why}");
        }
    }

    #[test]
    fn a_slip_in_the_environment_is_said_and_the_log_goes_on() {
        for wrong in ["debg", "bad=loud", ",,,===", "info,fibula_controller=verbose", "info,debug", "[take]=loud"] {
            let (filter, text, mistake) = at_start(wrong, "info");
            let mistake = mistake.unwrap_or_else(|| panic!("{wrong} is taken")).to_string();
            assert_eq!((filter.to_string(), &*text), ("info".to_owned(), "info"), "{wrong}");
            assert!(mistake.contains("info,"), "{mistake} does not say what to write");
        }
        for (right, is) in [
            ("", "info"),
            ("off", "off"),
            ("warn,fibula_api=debug", "warn,fibula_api=debug"),
            ("fibula_api=debug", "info,fibula_api=debug"),
            ("[take{id=1}]=debug", "[take{id=1}]=debug"),
        ] {
            let (_, text, mistake) = at_start(right, "info");
            assert_eq!((&*text, mistake), (is, None), "{right}");
        }
    }

    #[test]
    fn without_a_log_nothing_is_changed() {
        assert_eq!(set_filter("info"), Err(FilterError::NoLog));
        assert_eq!((check_filter("info"), filter()), (Ok(()), (String::new(), String::new())));
    }
}
