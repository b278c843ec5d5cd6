//! The look-up service: the [`Directory`] over gRPC and HTTP.

use api::lookup::LookupSource;
use api::v1::{LookupAnswer, LookupOutcome};
use dataplane::directory::{Answer, Directory, DirectoryError};
use fib::text::Dialect;
use std::sync::Arc;
use tonic::Status;

/// More threads than this are for a switch that has no frames to forward.
const MAX_THREADS: usize = 8;

/// Threads that answer at the same time at most, on this machine.
pub fn threads() -> usize {
    std::thread::available_parallelism().map_or(1, |cores| cores.get().min(MAX_THREADS))
}

pub(super) struct Answers(pub(super) Arc<Directory>);

impl LookupSource for Answers {
    fn lookup(&self, names: &[&str]) -> Result<Vec<LookupAnswer>, Status> {
        let answers = self.0.lookup(names).map_err(|error| match &error {
            DirectoryError::NoFib => Status::unavailable(error.to_string()),
            DirectoryError::Name { index, .. } => {
                let mut status = Status::invalid_argument(error.to_string());
                status.metadata_mut().insert(api::REFUSED_ITEM, (*index as u64).into());
                status
            }
        })?;
        Ok(answers.into_iter().map(to_wire).collect())
    }

    fn dialect(&self) -> Dialect {
        self.0.kind().map_or(Dialect::Plain, Dialect::of)
    }

    fn refused(&self) {
        self.0.count_refused();
    }
}

fn to_wire(answer: Answer) -> LookupAnswer {
    let (outcome, port) = match answer {
        Answer::Unknown => (LookupOutcome::Unknown, 0),
        Answer::Found(port) => (LookupOutcome::Found, port.0),
        Answer::Unchecked(port) => (LookupOutcome::Unchecked, port.0),
        Answer::Unreachable => (LookupOutcome::Unreachable, 0),
    };
    LookupAnswer { outcome: outcome.into(), port: port.into() }
}
