//! Carries a plan out, each step in one transaction.

use super::files::{Link, Lists};
use super::names;
use super::plan::{Plan, Pruning, SetLink};
use crate::remote::{Client, PortOf, answer};
use crate::rib::replace::{self, Counts};
use api::v1;

/// Maximum objects in a request.
const BATCH: usize = 50_000;

/// Carries out the plan, and returns how many objects were changed.
/// # Errors
/// Those of the controller; completed steps stay, and the next apply continues from there.
pub(super) async fn carry_out(
    client: &mut Client,
    lists: &Lists,
    plan: Plan,
    counts: Counts,
    pruning: Pruning,
) -> anyhow::Result<u64> {
    let mut changed = 0;
    let all: Vec<String> =
        plan.add_switches.iter().filter(|(_, of)| of.is_empty()).map(|(name, _)| name.clone()).collect();
    for names in all.chunks(BATCH) {
        changed += answer(client.add_switches(v1::AddSwitchesRequest { names: names.to_vec() }).await)?.changed;
    }
    for (name, tenants) in plan.add_switches.iter().filter(|(_, of)| !of.is_empty()) {
        let request = v1::AddSwitchRequest { name: name.clone(), tenants: tenants.clone() };
        changed += answer(client.add_switch(request).await)?.changed;
    }
    changed += remove_links(client, &plan.free_links).await?;
    for (name, to) in &plan.rename_hosts {
        let request = v1::RenameHostRequest { name: name.clone(), to: to.clone() };
        changed += answer(client.rename_host(request).await)?.changed;
    }
    let host = |(name, PortOf { switch, port }): &(String, PortOf)| v1::Host {
        name: name.clone(),
        switch: switch.clone(),
        port: (*port).into(),
        ..v1::Host::default()
    };
    for hosts in plan.add_hosts.chunks(BATCH) {
        let hosts = v1::HostList { hosts: hosts.iter().map(host).collect(), ..v1::HostList::default() };
        changed += answer(client.add_hosts(hosts).await)?.changed;
    }
    // Also covers names at a host that moved, which are no longer where they should be.
    let has_moved = plan.moves().next().is_some();
    if let Some(path) = lists.names.as_ref().filter(|_| counts.n_differ() > 0 || has_moved) {
        let answers = names::ask(client, path, &plan, pruning, false).await?;
        changed += replace::read(answers, |_| Ok(())).await?.changed;
    }
    for name in plan.remove_hosts {
        if pruning.learnt {
            answer(client.forget_host(v1::ForgetHostRequest { name: name.clone() }).await)?;
        }
        changed += answer(client.remove_host(v1::RemoveHostRequest { name }).await)?.changed;
    }
    for links in plan.add_links.chunks(BATCH) {
        let links = v1::LinkList { links: links.iter().map(link).collect(), ..v1::LinkList::default() };
        changed += answer(client.add_links(links).await)?.changed;
    }
    for SetLink { end, cost, weight, up } in plan.set_links {
        let request = v1::SetLinkRequest { end: Some(end.into()), cost, raised: None, up, weight };
        changed += answer(client.set_link(request).await)?.changed;
    }
    changed += remove_links(client, &plan.remove_links).await?;
    for name in plan.remove_switches {
        changed += answer(client.remove_switch(v1::RemoveSwitchRequest { name }).await)?.changed;
    }
    Ok(changed)
}

async fn remove_links(client: &mut Client, ends: &[PortOf]) -> anyhow::Result<u64> {
    let mut changed = 0;
    for end in ends {
        let request = v1::RemoveLinkRequest { end: Some(end.clone().into()) };
        changed += answer(client.remove_link(request).await)?.changed;
    }
    Ok(changed)
}

fn link(Link { a, b, cost, weight, up }: &Link) -> v1::Link {
    v1::Link {
        a: Some(a.clone().into()),
        b: Some(b.clone().into()),
        cost: *cost,
        weight: Some(*weight),
        up: up.unwrap_or(true),
        ..v1::Link::default()
    }
}
