//! Answers of switches to operators' questions, each on a connection of its own: see `north/relayed.rs`.

use api::v1::Said;
use fib::name::clip;
use lookup::base::visible::visible;
use prost::Message;
use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use tokio::sync::oneshot;
use tonic::{Code, Status, Streaming};

/// Questions to switches that are not answered yet.
#[derive(Debug, Default)]
pub(crate) struct Relays(Mutex<Waiting>);

#[derive(Debug, Default)]
struct Waiting {
    n_asked: u64,
    by_number: HashMap<u64, (String, oneshot::Sender<Answer>)>,
}

/// An answer of a switch. Dropping it tells the switch that the reader is gone.
#[derive(Debug)]
pub(crate) struct Answer {
    first: Option<Said>,
    said: Streaming<Said>,
    _read: oneshot::Sender<()>,
}

/// A wait for an answer, which ends when this is dropped.
pub(crate) struct Turn<'a> {
    relays: &'a Relays,
    pub(crate) number: u64,
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        self.relays.lock().by_number.remove(&self.number);
    }
}

impl Relays {
    fn lock(&self) -> MutexGuard<'_, Waiting> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Begins to wait for an answer of a switch.
    pub(crate) fn wait(&self, switch: &str) -> (Turn<'_>, oneshot::Receiver<Answer>) {
        let (to, answer) = oneshot::channel();
        let mut waiting = self.lock();
        waiting.n_asked += 1;
        let number = waiting.n_asked;
        waiting.by_number.insert(number, (switch.to_owned(), to));
        (Turn { relays: self, number }, answer)
    }

    /// Takes the answer of a switch. Returns once its reader is gone.
    pub(crate) async fn answer(&self, first: Said, said: Streaming<Said>) -> Result<(), Status> {
        let nobody = || Status::not_found("the request for this answer has ended");
        let (_read, until_read) = oneshot::channel();
        {
            let mut waiting = self.lock();
            let is_asked = waiting.by_number.get(&first.number).is_some_and(|(switch, _)| *switch == first.switch);
            let (_, to) = is_asked.then(|| waiting.by_number.remove(&first.number)).flatten().ok_or_else(nobody)?;
            to.send(Answer { first: Some(first), said, _read }).map_err(|_| nobody())?;
        }
        let _ = until_read.await;
        Ok(())
    }
}

impl Answer {
    /// The next reply; none at the end.
    pub(crate) async fn next<M: Message + Default>(&mut self, name: &str) -> Result<Option<M>, Status> {
        let said = match self.first.take() {
            Some(first) => Some(first),
            None => self.said.message().await.map_err(|status| broken(name, status.message()))?,
        };
        let Some(Said { reply, code, reason, .. }) = said else { return Ok(None) };
        if code != 0 {
            let reason = clip(&reason);
            return Err(Status::new(Code::from_i32(code), format!("switch `{}`: {}", clip(name), visible(&reason))));
        }
        let reply = M::decode(reply).map_err(|error| {
            Status::internal(format!("the answer of switch `{}` is malformed: {error}", clip(name)))
        })?;
        Ok(Some(reply))
    }
}

pub(crate) fn broken(name: &str, why: &str) -> Status {
    let (name, why) = (clip(name), clip(why));
    Status::unavailable(format!(
        "the connection of switch `{name}` broke ({}): what came before is whole, and nothing follows; try again when it is back",
        visible(&why)
    ))
}
