//! Tells switches who hears what their hosts say to everybody: for each tenant that may ([`Settings`]) and has names at a switch, all
//! names of the tenant. Switches copy such frames (`switch::groups`).
//!
//! This is beside the tables: nothing is stored, versioned or acknowledged, and a switch that missed it drops those frames as it
//! would without. What a switch is told replaces what it was told before, with every stream and whenever a member changed.
//!
//! Cost: while the network changes, one pass over all names every half second, in turns of the writer of [`PAGE`] names, or less
//! often where a pass takes more than a tenth of the time.

use crate::events::Level;
use crate::shared::Shared;
use crate::writer::Job;
use api::v1;
use bytes::Bytes;
use fib::name::Name;
use fib::rib::Attachment;
use fib::topology::NodeId;
use serde::Deserialize;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::mpsc;

/// How often it is looked whether anything changed.
const EVERY: Duration = Duration::from_millis(500);
/// A pass may take this share of the time.
const SHARE: u32 = 10;
/// Names that are looked at in one turn of the writer.
const PAGE: usize = 4096;

/// The most tenants, and names of a tenant, that can be configured: a switch is told of all in one message.
pub(crate) const MAX_TENANTS: usize = 256;
pub(crate) const MAX_NAMES: u32 = 1024;

/// The section `[groups]`: what is carried to everybody.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Settings {
    /// The tenants whose hosts hear what one of them says to everybody.
    pub tenants: BTreeSet<u32>,
    /// Nothing is carried for a tenant with more names: each such frame costs as many.
    pub max_names: u32,
}

impl Default for Settings {
    fn default() -> Self {
        Self { tenants: BTreeSet::new(), max_names: 64 }
    }
}

impl Settings {
    pub(crate) fn check(&self, is_mac: bool) -> Result<(), String> {
        let n_tenants = self.tenants.len();
        if n_tenants > MAX_TENANTS {
            return Err(format!("groups.tenants has {n_tenants} tenants; write {MAX_TENANTS} at most"));
        }
        if !(2..=MAX_NAMES).contains(&self.max_names) {
            return Err(format!("groups.max_names = {} is out of range; write 2 to {MAX_NAMES}", self.max_names));
        }
        if n_tenants > 0 && !is_mac {
            return Err("[groups] is for names that are MAC addresses; remove groups.tenants".to_owned());
        }
        Ok(())
    }
}

/// The names of a tenant, and where they are.
#[derive(Clone, Debug, Default, PartialEq)]
struct Members {
    names: Vec<Bytes>,
    nodes: BTreeSet<NodeId>,
    /// Whether there are more than may be; then `names` are none.
    is_crowded: bool,
}

impl Members {
    fn add(&mut self, name: &Name, node: NodeId, max_names: u32) {
        self.is_crowded |= self.names.len() >= max_names as usize;
        if self.is_crowded {
            // None is carried, so none that comes or goes is news.
            (self.names, self.nodes) = Default::default();
        } else {
            self.names.push(Bytes::copy_from_slice(name.as_bytes()));
            self.nodes.insert(node);
        }
    }
}

type ByTenant = BTreeMap<u32, Members>;

/// Keeps all connected switches told, until the writer ends.
pub(crate) async fn tell(settings: Settings, jobs: mpsc::Sender<Job>, shared: Arc<Shared>) {
    let settings = Arc::new(settings);
    // Counts what was found, so that a switch is told once.
    let (mut members, mut generation) = (ByTenant::new(), 0);
    // The change that they are of, and when it is looked again.
    let (mut known, mut next) = (None, Instant::now());
    loop {
        #[expect(clippy::disallowed_methods, reason = "how often it is looked")]
        tokio::time::sleep(EVERY).await;
        if jobs.is_closed() {
            return;
        }
        if !settings.tenants.is_empty() && next <= Instant::now() {
            let Some(change) = Job::ask(&jobs, |state| state.network.change()).await else { return };
            if known != Some(change) {
                let start = Instant::now();
                let Some(found) = gather(&settings, &jobs).await else { return };
                next = Instant::now() + start.elapsed() * SHARE;
                say(&settings, &members, &found, &shared);
                generation += u64::from(found != members);
                (members, known) = (found, Some(change));
            }
        }
        // Nothing is told before it is known: a switch keeps what another controller, or this one before its restart, told it.
        if known.is_some() || settings.tenants.is_empty() {
            for session in shared.sessions() {
                session.tell_groups(generation, || groups_of(&members, session.node()));
            }
        }
    }
}

/// What a switch is told.
fn groups_of(members: &ByTenant, node: NodeId) -> v1::Groups {
    let is_here = |(_, members): &(&u32, &Members)| members.nodes.contains(&node);
    let group = |(&tenant, members): (&u32, &Members)| v1::Group { tenant, names: members.names.clone() };
    v1::Groups { groups: members.iter().filter(is_here).map(group).collect() }
}

/// All members, page by page: names that come and go meanwhile may be missed, and change the network again.
async fn gather(settings: &Arc<Settings>, jobs: &mpsc::Sender<Job>) -> Option<ByTenant> {
    let mut members: ByTenant = settings.tenants.iter().map(|&tenant| (tenant, Members::default())).collect();
    let mut after: Option<Name> = None;
    loop {
        let (from, settings_there) = (after.take(), Arc::clone(settings));
        let page = Job::ask(jobs, move |state| {
            let is_wanted = |attachment: &Attachment| settings_there.tenants.contains(&attachment.tenant);
            state.network.rib().page_where(from.as_ref(), PAGE, is_wanted)
        });
        let (found, last) = page.await?;
        for (name, attachment) in found {
            if let Some(members) = members.get_mut(&attachment.tenant) {
                members.add(&name, attachment.switch, settings.max_names);
            }
        }
        after = last;
        if after.is_none() {
            return Some(members);
        }
    }
}

/// Says of which tenants nothing is carried from now on, or again something.
fn say(settings: &Settings, before: &ByTenant, now: &ByTenant, shared: &Shared) {
    for (tenant, members) in now {
        let was_crowded = before.get(tenant).is_some_and(|members| members.is_crowded);
        let (level, text) = match (was_crowded, members.is_crowded) {
            (false, true) => {
                let text = format!(
                    "has more than groups.max_names = {} names: nothing is carried to everybody there",
                    settings.max_names
                );
                tracing::warn!(tenant, "{text}");
                (Level::Warning, text)
            }
            (true, false) => (Level::Good, "frames to everybody are carried again".to_owned()),
            _ => continue,
        };
        shared.events.note("names", level, format!("tenant {tenant}"), text);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use fib::name::NameKind;

    fn name(i: u8) -> Name {
        Name::from_bytes(NameKind::Mac, &[2, 0, 0, 0, 0, i]).expect("six bytes")
    }

    #[test]
    fn a_switch_is_told_of_the_tenants_that_it_has_and_of_none_that_is_too_large() {
        let mut members = ByTenant::new();
        for i in 0..3 {
            members.entry(7).or_default().add(&name(i), NodeId(u32::from(i)), 3);
        }
        for i in 10..14 {
            members.entry(8).or_default().add(&name(i), NodeId(1), 3);
        }
        let told = groups_of(&members, NodeId(1));
        let [v1::Group { tenant: 7, names }] = &told.groups[..] else { panic!("{told:?}") };
        assert_eq!(names.iter().map(|name| name[5]).collect::<Vec<_>>(), [0, 1, 2]);
        assert!(groups_of(&members, NodeId(5)).groups.is_empty());
    }

    #[test]
    fn settings_out_of_range_are_refused() {
        let settings = |tenants: Vec<u32>, max_names| Settings { tenants: tenants.into_iter().collect(), max_names };
        assert!(settings(vec![0], 64).check(true).is_ok());
        assert!(settings(vec![], 64).check(false).is_ok());
        assert!(settings(vec![0], 64).check(false).is_err_and(|error| error.contains("MAC")));
        assert!(settings(vec![0], 1).check(true).is_err_and(|error| error.contains("groups.max_names = 1")));
        assert!(settings((0..257).collect(), 64).check(true).is_err_and(|error| error.contains("257")));
    }
}
