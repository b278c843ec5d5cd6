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

/// A text from elsewhere without what a terminal would obey or hide.
fn plain(text: &str) -> String {
    visible(text).into_owned()
}

/// A number of things in a second, in at most six characters: 12, 3.4k, 56.7M.
fn rate(a_second: f64) -> String {
    match a_second {
        x if x < 0.05 => "0".to_owned(),
        x if x < 10.0 => format!("{x:.1}"),
        x if x < 1e4 => format!("{x:.0}"),
        // What would be rounded up to 1000.0 has the next letter.
        x if x < 999_950.0 => format!("{:.1}k", x / 1e3),
        x if x < 999_950e3 => format!("{:.1}M", x / 1e6),
        x if x < 999_950e6 => format!("{:.1}G", x / 1e9),
        x => format!("{:.1}T", x / 1e12),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_and_times_are_short_and_texts_are_harmless() {
        let rates = [0.0, 0.3, 12.4, 9_999.0, 12_345.0, 999_960.0, 2.5e6, 1.2e10, 1.3e12].map(rate);
        assert_eq!(rates, ["0", "0.3", "12", "9999", "12.3k", "1.0M", "2.5M", "12.0G", "1.3T"]);
        assert_eq!(time_of_day(1_790_000_000_123), "14:13:20.123");
        assert_eq!(time_of_day(u64::MAX), "-");
        assert_eq!(plain("a\u{1b}[2Jb\n\u{202e}"), "a\\u001b[2Jb\\u000a\\u202e");
    }
}
