//! The date, for people, files and certificates. A clock may be set at any time, so no waiting and no election depends
//! on it.

use std::time::SystemTime;

/// The date and the time of day.
#[expect(clippy::disallowed_methods, reason = "the one place where the date is asked for")]
pub fn now() -> SystemTime {
    SystemTime::now()
}

/// Milliseconds since 1970; 0 before it.
pub fn unix_ms() -> u64 {
    now().duration_since(SystemTime::UNIX_EPOCH).map_or(0, |since| since.as_millis() as u64)
}

/// Seconds since 1970; 0 before it.
pub fn unix_seconds() -> i64 {
    now().duration_since(SystemTime::UNIX_EPOCH).map_or(0, |since| since.as_secs() as i64)
}
