//! Replacing all names: the wanted names come in a stream, are kept until it ends, and are then compared or carried out at once.
//!
//! Cost: 64 bytes a name while they come, one stream at a time; then some 600 bytes for each name that differs.

use super::{North, StreamOf};
use crate::core::change::{Change, Others, Record, Refusal, Replacement};
use crate::wire::from_wire;
use crate::wire::status::status_of;
use api::gate::Peer;
use api::v1;
use fib::name::Name;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc;
use tokio_stream::StreamExt;
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Response, Status, Streaming};

/// How long the next request may take: others wait.
const COMES_WITHIN: Duration = Duration::from_secs(60);

/// Differences of a message.
const PAGE: usize = 2000;

type Answers = mpsc::Sender<Result<v1::NameDifferences, Status>>;

impl North {
    pub(super) fn replace(
        &self,
        peer: Peer,
        requests: Streaming<v1::ReplaceNamesRequest>,
    ) -> Response<StreamOf<v1::NameDifferences>> {
        let (answers, received) = mpsc::channel(2);
        let north = self.clone();
        tokio::spawn(async move {
            if let Err(status) = north.replace_to(&peer, requests, &answers).await {
                let _ = answers.send(Err(status)).await;
            }
        });
        Response::new(Box::pin(ReceiverStream::new(received)))
    }

    async fn replace_to(
        &self,
        peer: &Peer,
        mut requests: Streaming<v1::ReplaceNamesRequest>,
        answers: &Answers,
    ) -> Result<(), Status> {
        let Ok(_alone) = Arc::clone(&self.alone.replacing).try_lock_owned() else {
            return Err(Status::resource_exhausted("another replacement of all names is under way; ask again"));
        };
        let mut request = next(&mut requests).await?;
        let v1::ReplaceNamesRequest { dry_run, keep_others, remove_learnt, .. } = request;
        if !dry_run && self.shared.lead.leader().is_some() {
            return Err(status_of(&self.shared.lead.not_leader()));
        }
        let others = match (keep_others, remove_learnt) {
            (true, false) => Others::Keep,
            (false, false) => Others::KeepLearnt,
            (false, true) => Others::Remove,
            (true, true) => {
                return Err(Status::invalid_argument(
                    "learnt names cannot be removed while others stay; ask for one of the two",
                ));
            }
        };
        let kind = self.read(|state| state.network.settings().kind).await?;
        let mut replacement = Replacement::new(others, self.max_names);
        loop {
            let is_last = request.end;
            for record in std::mem::take(&mut request.names) {
                let record: Record = from_wire(record)?;
                let name = Name::parse(kind, &record.name)
                    .map_err(|source| status_of(&Refusal::BadName { name: fib::name::clip(&record.name), source }))?;
                replacement.add(name, record).map_err(|refusal| status_of(&refusal))?;
            }
            if is_last {
                break;
            }
            request = next(&mut requests).await?;
        }
        let whole = tokio::task::spawn_blocking(move || replacement.whole()).await;
        let whole = whole.map_err(|_| status_of(&Refusal::Stopping))?.map_err(|refusal| status_of(&refusal))?;
        let whole = Arc::new(whole);
        if !dry_run {
            let changed = self.change(peer, Change::ReplaceNames(whole)).await?;
            let _ = answers.send(Ok(v1::NameDifferences { names: Vec::new(), changed: Some(changed) })).await;
            return Ok(());
        }
        let (differences, unchanged) = self.read(move |state| state.differences(&whole)).await?;
        let changed = differences.len() as u64;
        let mut left = differences.into_iter().peekable();
        while left.peek().is_some() {
            let names = left.by_ref().take(PAGE).map(|difference| v1::NameDifference {
                before: difference.before.map(|(record, is_learnt)| {
                    // Since when is not compared.
                    v1::NameRecord { learnt_ms: is_learnt.into(), ..record.into() }
                }),
                after: difference.after.map(Record::into),
            });
            if answers.send(Ok(v1::NameDifferences { names: names.collect(), changed: None })).await.is_err() {
                return Ok(());
            }
        }
        let changed = v1::Changed { changed, unchanged, ..v1::Changed::default() };
        let _ = answers.send(Ok(v1::NameDifferences { names: Vec::new(), changed: Some(changed) })).await;
        Ok(())
    }
}

/// The next request of a stream whose last one has not come yet.
async fn next(requests: &mut Streaming<v1::ReplaceNamesRequest>) -> Result<v1::ReplaceNamesRequest, Status> {
    let came = tokio::time::timeout(COMES_WITHIN, requests.next()).await;
    let came = came.map_err(|_| {
        Status::deadline_exceeded(format!("no more names came for {} s; nothing was changed", COMES_WITHIN.as_secs()))
    })?;
    came.unwrap_or_else(|| Err(Status::aborted("the stream ended before its last request; nothing was changed")))
}
