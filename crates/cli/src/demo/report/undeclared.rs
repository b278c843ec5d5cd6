//! What the report says of a network in which nothing is declared.

use serde::Serialize;

use super::super::phases::Findings;
use super::{healed, milliseconds};

/// Results of a network in which nothing is declared.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(in super::super) struct Undeclared {
    /// From the start of the switches until they, their links, and the hosts with their addresses were in all tables.
    pub(super) found_switches_ms: f64,
    pub(super) found_links_ms: f64,
    pub(super) found_hosts_ms: f64,
    /// A cut without loss of carrier.
    pub(super) silent_link: Option<String>,
    pub(super) silent_converged_ms: Option<f64>,
    pub(super) silent_outage_ms: Option<f64>,
    pub(super) moved_host: Option<String>,
    pub(super) moved_to: Option<String>,
    /// From the move until every switch had confirmed it.
    pub(super) followed_ms: Option<f64>,
    pub(super) move_outage_ms: Option<f64>,
}

impl Undeclared {
    pub(super) fn new(findings: &Findings) -> Option<Self> {
        let Findings { found, silent, moved, .. } = findings;
        let (silent, moved) = (silent.as_ref(), moved.as_ref());
        found.map(|found| Self {
            found_switches_ms: milliseconds(found.switches),
            found_links_ms: milliseconds(found.links),
            found_hosts_ms: milliseconds(found.hosts),
            silent_link: silent.map(|cut| cut.link.clone()),
            silent_converged_ms: silent.map(|cut| cut.converged_ms),
            silent_outage_ms: silent.map(|cut| cut.outage_ms),
            moved_host: moved.map(|moved| moved.host.clone()),
            moved_to: moved.map(|moved| moved.to.clone()),
            followed_ms: moved.map(|moved| milliseconds(moved.followed)),
            move_outage_ms: moved.map(|moved| milliseconds(moved.outage)),
        })
    }

    /// How long it took until all was found, as a line of the table.
    pub(super) fn found(&self) -> (&'static str, String) {
        let Self { found_switches_ms: switches, found_links_ms: links, found_hosts_ms: hosts, .. } = self;
        ("found, in all tables", format!("switches after {switches:.0} ms, links {links:.0} ms, hosts {hosts:.0} ms"))
    }

    /// What became of the silent cut and of the host that moved, as lines of the table.
    pub(super) fn lines(&self) -> Vec<(&'static str, String)> {
        let mut lines = Vec::new();
        if let (Some(link), Some(converged), Some(outage)) =
            (&self.silent_link, self.silent_converged_ms, self.silent_outage_ms)
        {
            lines.push(("the same after a silent cut", healed(converged, outage, link)));
        }
        if let (Some(host), Some(to), Some(followed), Some(outage)) =
            (&self.moved_host, &self.moved_to, self.followed_ms, self.move_outage_ms)
        {
            lines.push((
                "a host moved",
                format!("{host} to {to}: in all tables after {followed:.1} ms, last frame lost after {outage:.1} ms"),
            ));
        }
        lines
    }
}
