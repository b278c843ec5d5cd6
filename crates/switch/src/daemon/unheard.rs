//! Logs the ports where hosts request addresses by DHCP but no server hears them: otherwise they would silently get
//! none.

use dataplane::assembly::Monitor;
use fib::action::PortId;
use std::collections::HashMap;
use std::time::{Duration, Instant};

/// The message about a port is repeated after this time, if it still applies.
const SAID_AGAIN: Duration = Duration::from_secs(600);

/// When a port was last reported.
#[derive(Debug, Default)]
pub(super) struct Unheard(HashMap<u8, Instant>);

impl Unheard {
    /// Which of these ports to report now: each once in a while.
    fn news(&mut self, mut ports: Vec<u8>, now: Instant) -> Vec<u8> {
        self.0.retain(|_, at| now.saturating_duration_since(*at) < SAID_AGAIN);
        ports.retain(|index| !self.0.contains_key(index));
        self.0.extend(ports.iter().map(|index| (*index, now)));
        ports
    }

    /// Logs them.
    pub(super) fn say(&mut self, switch: &str, monitor: &Monitor, now: Instant) {
        for index in self.news(monitor.groups().take_unheard(), now) {
            let Some(port) = monitor.ports().find(|(other, ..)| *other == index).map(|(_, port, _)| port) else {
                continue;
            };
            tracing::warn!(switch, %port, "{}", sentence(port));
        }
    }
}

fn sentence(port: PortId) -> String {
    format!(
        "a host requests an address by DHCP, but no server hears it: write dhcp_server = \"MAC address of the server\" in switch.toml, for \
         all ports or at port {port}; or carry its broadcasts to its tenant, with [groups] tenants in controller.toml"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn that_nobody_hears_a_client_is_said_once_in_a_while_for_each_port_with_what_to_write() {
        let (mut unheard, start) = (Unheard::default(), Instant::now());
        let mut news = |ports: &[u8], at| unheard.news(ports.to_vec(), start + Duration::from_secs(at));
        assert_eq!(news(&[3, 200], 0), [3, 200]);
        let n: usize = (0..599).map(|at| news(&[3, 200], at).len()).sum();
        assert_eq!((n, news(&[3, 4], 599)), (0, vec![4]));
        assert_eq!(news(&[3, 4], 601), [3]);
        let sentence = sentence(PortId(7));
        for words in ["dhcp_server = ", "switch.toml", "port 7", "[groups] tenants in controller.toml"] {
            assert!(sentence.contains(words), "{sentence}");
        }
    }
}
