//! The names of a list: how those of the network differ from them once the hosts are as planned.

use super::files::Lists;
use super::plan::{Plan, Pruning};
use crate::remote::{Client, answer};
use crate::rib::import;
use crate::rib::replace::{self, Counts, Options};
use api::v1;
use command::output::{Exit, Failure, Output};
use fib::name::Name;
use std::collections::HashSet;
use std::path::Path;

/// Names of a host that are read in one request.
const PAGE: u32 = 10_000;

/// Finds the differences; prints the first of them.
/// # Errors
/// Those of the list and of the controller, and names of a moving host that the list lacks.
pub(super) async fn differences(
    client: &mut Client,
    lists: &Lists,
    plan: &Plan,
    pruning: Pruning,
    shown: usize,
    out: &Output,
) -> anyhow::Result<Counts> {
    check_moves(client, lists, plan).await?;
    let Some(path) = &lists.names else { return Ok(Counts::default()) };
    let answers = ask(client, path, plan, pruning, true).await?;
    let (mut counts, mut left) = (Counts::default(), shown);
    let changed = replace::read(answers, |page| {
        let differs = |difference: &&v1::NameDifference| !plan.explains(difference);
        let page: Vec<v1::NameDifference> = page.iter().filter(differs).cloned().collect();
        page.iter().for_each(|difference| counts.count(difference));
        let first = &page[..page.len().min(left)];
        left -= first.len();
        if first.is_empty() { Ok(()) } else { replace::print(first, out) }
    });
    let v1::Changed { changed, unchanged, .. } = changed.await?;
    counts.unchanged = unchanged + changed - counts.n_differ();
    let others = counts.n_differ().saturating_sub(shown as u64);
    if others > 0 {
        eprintln!("fibula: and {others} other names; `fibula diff` prints all");
    }
    Ok(counts)
}

/// Sends the list. A dry run keeps the names of the network.
pub(super) async fn ask(
    client: &mut Client,
    path: &Path,
    plan: &Plan,
    pruning: Pruning,
    dry_run: bool,
) -> anyhow::Result<tonic::Streaming<v1::NameDifferences>> {
    let kind = import::kind_of(client).await?;
    let (source, n_names) = import::whole(path, kind, plan.hosts(), "nothing changed").await?;
    if n_names == 0 && pruning.others {
        let why = format!("{}: the list is empty, and all names would be removed; nothing changed", path.display());
        return Err(Failure::new(Exit::BadInput, why));
    }
    let options = Options { dry_run, keep_others: !pruning.others, remove_learnt: pruning.learnt };
    replace::ask(client, (source, kind), options).await
}

/// Checks that the list has all declared names of moving hosts: the others would stay at a port that their host has
/// left.
async fn check_moves(client: &mut Client, lists: &Lists, plan: &Plan) -> anyhow::Result<()> {
    for (host, from, to) in plan.moves() {
        let mut left = HashSet::new();
        let (mut after, mut more) = (String::new(), true);
        while more {
            let ask =
                v1::ListNamesRequest { after, limit: PAGE, host: host.clone(), ..v1::ListNamesRequest::default() };
            let page = answer(client.list_names(ask).await)?;
            (after, more) = (page.names.last().map(|last| last.name.clone()).unwrap_or_default(), page.more);
            left.extend(page.names.into_iter().filter(|name| name.learnt_ms == 0).map(|name| name.name));
        }
        if left.is_empty() {
            continue;
        }
        if let Some(path) = &lists.names {
            let (kind, path) = (import::kind_of(client).await?, path.clone());
            left = tokio::task::spawn_blocking(move || -> anyhow::Result<HashSet<String>> {
                for (_, name) in import::names_of(&path, kind)? {
                    // In the controller's notation.
                    let name = Name::parse(kind, &name).map(|name| name.to_string()).unwrap_or(name);
                    left.remove(&name);
                }
                Ok(left)
            })
            .await??;
        }
        if let Some(name) = left.iter().min() {
            let n = left.len();
            let why = format!(
                "host {host} moves from {from} to {to}, and names.csv lacks {n} of its names, such as {name}: add them to it, so that they \
                 move with their host, or remove them with `fibula name del`"
            );
            return Err(Failure::new(Exit::BadInput, why));
        }
    }
    Ok(())
}
