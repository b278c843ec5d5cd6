//! What is drawn at a switch other than its links: hosts, and ports to networks outside.

use super::{Refused, switch};
use crate::shell::north::North;
use api::v1::northbound_server::Northbound;
use api::v1::{self};
use fib::topology::NodeId;
use serde_json::{Value, json};
use std::collections::HashMap;
use tonic::Request;

/// A larger network is drawn without them.
const MOST_SWITCHES: usize = 60;
const MOST_HOSTS: u64 = 2000;

/// How many of a switch's are listed; the rest is counted.
const OF_A_SWITCH: usize = 6;

/// The switches, each with what is at its edge.
pub(super) async fn of(north: &North, switches: &[v1::Switch], n_hosts: u64) -> Result<Vec<Value>, Refused> {
    if switches.len() > MOST_SWITCHES || n_hosts > MOST_HOSTS {
        return Ok(switches.iter().map(switch).collect());
    }
    let hosts = north.list_hosts(Request::new(v1::ListHostsRequest {})).await?.into_inner().hosts;
    let mut at: HashMap<&str, Vec<&v1::Host>> = HashMap::new();
    for host in &hosts {
        at.entry(&host.switch).or_default().push(host);
    }
    let now = api::seam::now();
    let of_one = |one: &v1::Switch| {
        let counters = north.shared.session(NodeId(one.id)).and_then(|session| session.lock().said().counters(now));
        let ports = counters.map(|counters| counters.ports).unwrap_or_default();
        // The port of a gateway's name has no device.
        let is_up = |port: u32| ports.iter().find(|known| known.port == port).is_none_or(|known| known.up);
        let hosts = at.get(&*one.name).map(Vec::as_slice).unwrap_or_default();
        let outside = ports.iter().filter(|port| port.role == "outside");
        let outside = outside.map(|port| json!({ "role": "outside", "port": port.port, "up": port.up }));
        let of_hosts = hosts
            .iter()
            .map(|host| json!({ "role": "host", "port": host.port, "name": host.name, "up": is_up(host.port) }));
        let all: Vec<Value> = outside.chain(of_hosts).collect();
        let mut value = switch(one);
        value["n_edges"] = all.len().into();
        value["edges"] = all.into_iter().take(OF_A_SWITCH).collect();
        value
    };
    Ok(switches.iter().map(of_one).collect())
}
