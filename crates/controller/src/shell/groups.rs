//! Keeps all connected switches up to date with [`crate::core::groups`].
//!
//! Cost: every half second a turn of the writer of O(tenants), and one of O(its names) for each tenant with names that changed
//! (`fib::rib` keeps them apart); to begin with, and when a controller that follows reads the store anew, a pass over all names.

use crate::core::groups::{All, ByTenant, Members, Settings, names_of};
use crate::core::happened::Level;
use crate::shell::job::Jobs;
use crate::shell::shared::Shared;
use api::throttle::Throttle;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Interval between checks for changes.
const EVERY: Duration = Duration::from_millis(500);
/// Delay of the check after switches reported what names want; while reports continue, it doubles each time, up to [`EVERY`].
const SOON: Duration = Duration::from_millis(20);
/// How long to wait for switches that have reported nothing yet, from the first one on. Each reports when it connects,
/// and every 10 s to controllers that do not serve it.
const AT_MOST: Duration = Duration::from_secs(15);

/// Keeps all connected switches up to date, until the writer ends.
pub(crate) async fn tell(settings: Settings, jobs: Jobs, shared: Arc<Shared>) {
    let settings = Arc::new(settings);
    let mut all = All::default();
    // The last change that was looked at, and what the members of each tenant are of.
    let (mut known, mut versions) = (None, BTreeMap::new());
    // The version of their wishes; whether these are sent yet.
    let (mut heard, mut tells_wishes, mut began) = (None, false, None::<Instant>);
    let (mut soon, lines) = (SOON, Throttle::of_frames());
    loop {
        tokio::select! {
            () = pause(EVERY) => soon = SOON,
            () = shared.known.subscriptions_changed.notified() => {
                pause(soon).await;
                soon = (soon * 2).min(EVERY);
            }
        }
        if jobs.is_closed() {
            return;
        }
        if all.follow_addresses(&jobs).await.is_none() {
            return;
        }
        if settings.tenants.is_empty() {
            // They are told that no names receive anything.
            all.tell(&settings, &shared);
            continue;
        }
        let mut is_news = false;
        let (there, forgets, before) = (Arc::clone(&settings), Arc::clone(&shared), known);
        let looked = jobs.ask(move |state| {
            let change = state.network.change();
            if before != Some(change) {
                // This is a turn of the writer, so no switch can be added, and report, meanwhile.
                let nodes = state.network.topology().nodes().map(|(node, _)| node).collect();
                forgets.known.subscriptions.lock().retain(&nodes);
            }
            (change, state.network.rib().watch(&there.tenants))
        });
        let Some((change, now)) = looked.await else { return };
        if known.is_none() || now != versions {
            let mut found = all.members.clone();
            for (tenant, version) in now {
                if versions.get(&tenant) == Some(&version) {
                    continue;
                }
                let most = settings.max_names as usize;
                // This is one turn of the writer: the RIB may differ from that of the version above, and have no watches.
                let there = Arc::clone(&settings);
                let looked = jobs
                    .ask(move |state| names_of(state.network.rib(), &state.hosts.learnt, &there.tenants, tenant, most));
                let Some((version, names)) = looked.await else { return };
                let (names, left_out) = names.map_or((None, 0), |(names, left_out)| (Some(names), left_out));
                found.insert(tenant, Members { left_out, ..Members::of(names) });
                versions.insert(tenant, version);
            }
            say(&settings, &all.members, &found, (&shared, &lines));
            all.replace(found);
            is_news = true;
        }
        known = Some(change);
        if began.is_none() && !shared.sessions().is_empty() {
            began = Some(Instant::now());
        }
        if settings.snooping && !tells_wishes {
            let mut nodes = all.members.values().flat_map(|members| &members.nodes);
            let all_are_heard = nodes.all(|node| shared.known.subscriptions.lock().is_settled(*node));
            tells_wishes = all_are_heard || began.is_some_and(|began| began.elapsed() >= AT_MOST);
        }
        let now_heard = (tells_wishes, shared.known.subscriptions.lock().version());
        if is_news || heard != Some(now_heard) {
            all.refresh(|members| tells_wishes.then(|| shared.known.subscriptions.lock().wanted(&members.names)));
            heard = Some(now_heard);
        }
        all.tell(&settings, &shared);
    }
}

impl All {
    /// Takes the further addresses of names, if they changed.
    async fn follow_addresses(&mut self, jobs: &Jobs) -> Option<()> {
        let before = self.addresses.clone();
        let changed = jobs.ask(move |state| {
            let now = state.hosts.learnt.holders();
            (*now != before).then(|| now.clone())
        });
        if let Some(now) = changed.await? {
            self.addresses = now;
            self.generation += 1;
        }
        Some(())
    }

    fn tell(&self, settings: &Settings, shared: &Shared) {
        for session in shared.sessions() {
            let node = session.lock().node();
            session.lock().tell_groups(self.generation, || self.key(node), || self.for_switch(settings, node));
        }
    }
}

#[expect(clippy::disallowed_methods, reason = "how often it is looked")]
async fn pause(time: Duration) {
    tokio::time::sleep(time).await;
}

/// Logs the tenants whose broadcasts stop or start being delivered.
fn say(settings: &Settings, before: &ByTenant, now: &ByTenant, (shared, lines): (&Shared, &Throttle)) {
    for (tenant, members) in now {
        let was_crowded = before.get(tenant).is_some_and(|members| members.is_crowded);
        let (level, text) = match (was_crowded, members.is_crowded) {
            (false, true) => {
                let text = format!(
                    "has more than groups.max_names = {} names: its broadcasts are not carried",
                    settings.max_names
                );
                // Hosts that are found make names.
                if let Some(unsaid) = lines.pass() {
                    tracing::warn!(tenant, unsaid, "{text}");
                }
                (Level::Warning, text)
            }
            (true, false) => (Level::Good, "its broadcasts are carried again".to_owned()),
            _ => match (before.get(tenant).is_some_and(|members| members.left_out > 0), members.left_out > 0) {
                (false, true) => {
                    let text = format!(
                        "has more than groups.max_names = {} names: broadcasts are carried to the oldest names of the \
                         ports with most learnt names, and {} others do not receive them; `fibula host list` shows them",
                        settings.max_names, members.left_out
                    );
                    if let Some(unsaid) = lines.pass() {
                        tracing::warn!(tenant, unsaid, "{text}");
                    }
                    (Level::Warning, text)
                }
                (true, false) => (Level::Good, "broadcasts are carried to all its names again".to_owned()),
                _ => continue,
            },
        };
        shared.events.note("names", level, format!("tenant {tenant}"), text);
    }
}
