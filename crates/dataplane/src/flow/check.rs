//! Health checks of the servers of a virtual address: what they ask, and when a server is down.
//!
//! ```text
//!         fall failures in a row
//!   up ──────────────────────────► down
//!      ◄──────────────────────────
//!         rise successes in a row
//! ```
//! A server that is down gets no new flows, unless all are. The daemon asks, from the network of its machine; `docs/decisions/0035-health-checks.md`
//! says why. A check that the machine could not even send says nothing about the server, and changes nothing.

use std::net::IpAddr;
use std::ops::RangeInclusive;
use std::time::Duration;

/// What a check asks of a server.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Question {
    /// To accept a TCP connection.
    Connect,
    /// To answer `GET` with a status of this range.
    Http {
        /// The path with its query, such as `/healthz`.
        path: String,
        /// The header `Host`; the address of the server if there is none.
        host: Option<String>,
        /// The status codes of a server that works.
        status: RangeInclusive<u16>,
    },
}

/// The health check of a virtual address.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Check {
    /// What the check asks.
    pub question: Question,
    /// The port that the check uses, if it is not that of the server.
    pub port: Option<u16>,
    /// The time from one check to the next.
    pub interval: Duration,
    /// The time in which a server must have answered.
    pub timeout: Duration,
    /// Successes in a row after which a server is up.
    pub rise: u32,
    /// Failures in a row after which a server is down.
    pub fall: u32,
    /// Whether the connections of a server that is down also end.
    pub ends_connections: bool,
    /// The address of this machine that checks come from.
    pub source: Option<IpAddr>,
}

/// The result of a check.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Outcome {
    /// The server answered as it should.
    Good,
    /// It did not, for this reason.
    Bad(String),
    /// The machine could not ask, for this reason.
    Unasked(String),
}

/// The state of a server, according to its checks.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Health {
    /// Whether it is down.
    pub is_down: bool,
    /// Checks in a row that contradict that.
    against: u32,
}

impl Health {
    /// The state of a server without any checks so far.
    pub fn of(is_down: bool) -> Self {
        Self { is_down, against: 0 }
    }

    /// Takes a check into account. Returns whether it brought the server down or up.
    pub fn note(&mut self, check: &Check, outcome: &Outcome) -> bool {
        let is_against = match outcome {
            Outcome::Good => self.is_down,
            Outcome::Bad(_) => !self.is_down,
            Outcome::Unasked(_) => return false,
        };
        self.against = if is_against { self.against + 1 } else { 0 };
        let turns = self.against >= if self.is_down { check.rise } else { check.fall };
        if turns {
            *self = Self::of(!self.is_down);
        }
        turns
    }
}

/// The status code of an answer's first line; none if it is not HTTP.
pub fn status_of(answer: &[u8]) -> Option<u16> {
    let line = answer.split(|&byte| byte == b'\n').next()?;
    let line = std::str::from_utf8(line).ok()?;
    let (version, rest) = line.split_once(' ')?;
    let code = rest.split_whitespace().next()?;
    (version.starts_with("HTTP/1.") && code.len() == 3).then(|| code.parse().ok())?
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(rise: u32, fall: u32) -> Check {
        Check {
            question: Question::Connect,
            port: None,
            interval: Duration::from_secs(1),
            timeout: Duration::from_secs(1),
            rise,
            fall,
            ends_connections: false,
            source: None,
        }
    }

    #[test]
    fn a_server_goes_down_and_comes_up_after_as_many_checks_in_a_row_as_are_asked_for() {
        for (rise, fall, outcomes, states) in [
            (1, 1, "+-+-", "uduu".replace("uu", "ud")),
            (2, 3, "--+---+-++", "uuuuuddddu".to_owned()),
            (3, 2, "-+-+--", "uuuuud".to_owned()),
            // A check that could not be sent changes nothing, and interrupts nothing.
            (2, 3, "--?-?+?+", "uuuddddu".to_owned()),
        ] {
            let (check, mut health) = (check(rise, fall), Health::default());
            let mut said = String::new();
            for outcome in outcomes.chars() {
                let before = health.is_down;
                let outcome = match outcome {
                    '+' => Outcome::Good,
                    '-' => Outcome::Bad(String::new()),
                    _ => Outcome::Unasked(String::new()),
                };
                assert_eq!(health.note(&check, &outcome), health.is_down != before);
                said.push(if health.is_down { 'd' } else { 'u' });
            }
            assert_eq!(said, states, "rise {rise}, fall {fall}: {outcomes}");
        }
    }

    #[test]
    fn the_first_line_of_an_answer_has_its_status() {
        for (answer, status) in [
            ("HTTP/1.1 200 OK\r\nServer: x\r\n", Some(200)),
            ("HTTP/1.0 503\r\n", Some(503)),
            ("HTTP/1.1 404 Not Found", Some(404)),
            ("HTTP/2 200\r\n", None),
            ("SSH-2.0-OpenSSH\r\n", None),
            ("HTTP/1.1 2000 x\n", None),
            ("HTTP/1.1 abc x\n", None),
            ("HTTP/1.1\n", None),
            ("\n", None),
            ("", None),
        ] {
            assert_eq!(status_of(answer.as_bytes()), status, "{answer:?}");
        }
        assert_eq!(status_of(&[0xff, b' ', b'2', b'0', b'0']), None);
    }
}
