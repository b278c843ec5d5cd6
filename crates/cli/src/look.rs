//! Looking at a running network: `fibula top`, `fibula monitor`, `fibula trace`.

pub(crate) mod monitor;
pub(crate) mod top;
pub(crate) mod trace;

use command::visible::visible;
use time::OffsetDateTime;

/// A moment in milliseconds since 1970, as the time of day in UTC.
fn time_of_day(ms: u64) -> String {
    let Ok(at) = OffsetDateTime::from_unix_timestamp_nanos(i128::from(ms) * 1_000_000) else { return "-".to_owned() };
    format!("{:02}:{:02}:{:02}.{:03}", at.hour(), at.minute(), at.second(), at.millisecond())
}

/// A text from elsewhere, without characters that a terminal would obey or hide.
fn plain(text: &str) -> String {
    visible(text).into_owned()
}

/// A number of things per second, in at most five characters: 12, 3.42k, 56.7M.
fn rate(a_second: f64) -> String {
    command::units::short(a_second)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_short_and_texts_are_harmless() {
        assert_eq!(time_of_day(1_790_000_000_123), "14:13:20.123");
        assert_eq!(time_of_day(u64::MAX), "-");
        assert_eq!(plain("a\u{1b}[2Jb\n\u{202e}"), "a\\u001b[2Jb\\u000a\\u202e");
    }
}
