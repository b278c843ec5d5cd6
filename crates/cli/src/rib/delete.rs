//! `fibula name del --file`: removes the names in a file, in as many transactions as needed.

use crate::remote::{Client, refusal};
use crate::rib::{import, print_changed};
use api::v1;
use command::output::{Exit, Failure, Output};
use std::path::Path;

/// Names per transaction, and bytes of text after which one is full: far below the limits of a request.
const BATCH: usize = 100_000;
const BATCH_BYTES: usize = 8 << 20;

/// Reads the whole file before sending anything.
pub(crate) async fn run(mut client: Client, file: &Path, ignore_missing: bool, out: &Output) -> anyhow::Result<()> {
    let shown = file.display().to_string();
    let (from, kind) = (file.to_owned(), import::kind_of(&mut client).await?);
    let named = tokio::task::spawn_blocking(move || import::names_of(&from, kind)).await??;
    let n_names = named.len();
    let (mut all, mut named) = (v1::Changed::default(), named.into_iter().peekable());
    while named.peek().is_some() {
        let (mut lines, mut names, mut n_bytes) = (Vec::new(), Vec::new(), 0);
        while let Some((line, name)) = named.next_if(|_| names.len() < BATCH && n_bytes < BATCH_BYTES) {
            n_bytes += name.len();
            lines.push(line);
            names.push(name);
        }
        let request = v1::RemoveNamesRequest { names, ignore_missing };
        let changed = match client.remove_names(request).await {
            Ok(changed) => changed.into_inner(),
            Err(status) => {
                let line = api::lookup::refused_item(&status).and_then(|item| lines.get(item));
                let place = line.map_or(shown.clone(), |line| format!("{shown}: line {line}"));
                let removed = match all.changed {
                    0 => "nothing was removed".to_owned(),
                    n => format!("the first {n} names were removed"),
                };
                return Err(refusal(&status).context(format!("{place}; {removed}")));
            }
        };
        all.changed += changed.changed;
        all.unchanged += changed.unchanged;
    }
    if n_names == 0 {
        return Err(Failure::new(Exit::BadInput, format!("{shown}: it contains no names")));
    }
    print_changed(out, all, "name", "removed")
}
