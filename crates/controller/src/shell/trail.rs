//! The audit trail, as operators read it.

use api::audit::{LineError, records};
use api::v1;
use std::collections::VecDeque;
use std::path::{Path, PathBuf};
use tonic::Status;

/// Records of a page, by default and at most.
const USUAL_PAGE: u32 = 1000;
const MOST_OF_PAGE: u32 = 10_000;

/// The last records of the trail at `path` that fit, the oldest first. Reads all of its files.
pub(crate) async fn page(path: PathBuf, request: v1::ShowAuditRequest) -> Result<v1::AuditPage, Status> {
    let read = tokio::task::spawn_blocking(move || read(&path, &request)).await;
    read.map_err(|error| Status::internal(error.to_string()))?
}

/// Records that a page may have.
pub(crate) fn limit_of(request: &v1::ShowAuditRequest) -> usize {
    (if request.limit == 0 { USUAL_PAGE } else { request.limit.min(MOST_OF_PAGE) }) as usize
}

fn read(path: &Path, request: &v1::ShowAuditRequest) -> Result<v1::AuditPage, Status> {
    let limit = limit_of(request);
    let v1::ShowAuditRequest { since_ms, who, outcome, .. } = request;
    let cannot = |error: &dyn std::fmt::Display| Status::internal(format!("the audit trail cannot be read: {error}"));
    let (mut kept, mut more, mut damaged) = (VecDeque::new(), false, 0);
    for record in records(path).map_err(|error| cannot(&error))? {
        let record = match record {
            Ok(record) => record,
            Err(LineError::Damaged { .. }) => {
                damaged += 1;
                continue;
            }
            Err(error) => return Err(cannot(&error)),
        };
        let ended = serde_json::to_value(record.outcome).ok().and_then(|word| word.as_str().map(str::to_owned));
        let ended = ended.unwrap_or_default();
        let fits = (*since_ms == 0 || record.at_ms().is_some_and(|at| at >= *since_ms))
            && (who.is_empty() || *who == record.who)
            && (outcome.is_empty() || *outcome == ended);
        if !fits {
            continue;
        }
        if kept.len() == limit {
            kept.pop_front();
            more = true;
        }
        kept.push_back(v1::AuditRecord {
            time: record.time,
            who: record.who,
            role: record.role,
            from: record.from,
            what: record.what,
            detail: record.detail,
            outcome: ended,
            changed: record.changed,
            reason: match record.times {
                0 | 1 => record.reason,
                times => format!("{} ({times} times)", record.reason),
            },
        });
    }
    Ok(v1::AuditPage { records: kept.into(), more, damaged })
}
