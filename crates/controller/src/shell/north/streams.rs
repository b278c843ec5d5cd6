//! What exceeds one message: imports and exports of names, and copies of the store.

use super::{Answer, MAX_PAGE, North, StreamOf};
use crate::core::change::{Change, Refusal};
use crate::shell::job::Job;
use crate::wire::status::status_of;
use api::gate::Peer;
use api::v1;
use tokio::sync::mpsc;
use tokio_stream::StreamExt;
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Request, Response, Status, Streaming};

impl North {
    pub(super) async fn copy(&self, request: Request<v1::BackupRequest>) -> Answer<StreamOf<v1::BackupPart>> {
        let peer = Peer::of(&request)?;
        let begun = self.jobs.answer(Job::backup).await.unwrap_or(Err(Refusal::Stopping));
        let begun = begun.map_err(|refusal| status_of(&refusal));
        let end = begun.as_ref().map(|_| (0, 0)).map_err(Status::message);
        self.audit.change(&peer, "backup", "the whole store, with the hash key", end);
        let mut made = begun?;
        let (parts, answers) = mpsc::channel(1);
        let jobs = self.jobs.clone();
        tokio::spawn(async move {
            while let Some(part) = made.recv().await {
                let part = part.map(v1::BackupPart::from).map_err(|refusal| status_of(&refusal));
                if parts.send(part).await.is_err() {
                    made.close();
                }
                let _ = jobs.wake();
            }
        });
        Ok(Response::new(Box::pin(ReceiverStream::new(answers))))
    }

    pub(super) async fn import(
        &self,
        request: Request<Streaming<v1::NameBatch>>,
    ) -> Answer<StreamOf<v1::ImportProgress>> {
        let peer = Peer::of(&request)?;
        let mut batches = request.into_inner();
        let north = self.clone();
        let (progress, answers) = mpsc::channel(4);
        // A batch is read while the one before it is committed.
        let (read, mut changes) = mpsc::channel(1);
        tokio::spawn(async move {
            while let Some(batch) = batches.next().await {
                let change = batch.and_then(|batch| Ok((batch.names.len() as u64, Change::try_from(batch)?)));
                let failed = change.is_err();
                if read.send(change).await.is_err() || failed {
                    return;
                }
            }
        });
        tokio::spawn(async move {
            let mut committed = 0;
            while let Some(change) = changes.recv().await {
                let imported = async {
                    let (n_names, change) = change?;
                    committed += n_names;
                    let changed = north.change(&peer, change).await?;
                    Ok::<_, Status>(v1::ImportProgress { committed, changed: Some(changed) })
                };
                let imported = imported.await;
                let failed = imported.is_err();
                if progress.send(imported).await.is_err() || failed {
                    return;
                }
            }
        });
        Ok(Response::new(Box::pin(ReceiverStream::new(answers))))
    }

    pub(super) async fn export(&self, request: Request<v1::ExportNamesRequest>) -> Answer<StreamOf<v1::NameBatch>> {
        self.reserve(&request, 4 * MAX_PAGE, &self.shared.sizes.names)?;
        let north = self.clone();
        let (pages, answers) = mpsc::channel(2);
        tokio::spawn(async move {
            let mut after = String::new();
            loop {
                let page = north.page(after.clone(), MAX_PAGE, false).await;
                let more = page.as_ref().is_ok_and(|page| page.more);
                if let Some(last) = page.as_ref().ok().and_then(|page| page.names.last()) {
                    after.clone_from(&last.name);
                }
                let batch = page.map(|page| v1::NameBatch { names: page.names });
                if pages.send(batch).await.is_err() || !more {
                    return;
                }
            }
        });
        Ok(Response::new(Box::pin(ReceiverStream::new(answers))))
    }
}
