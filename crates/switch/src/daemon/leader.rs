//! The connection to whichever of several controllers leads, beside the stream of the one that serves this switch.

use super::controllers::{connect, controllers_of};
use api::tls::Tls;
use api::v1::southbound_client::SouthboundClient;
use lookup::hash::{Purpose, SecretKey};
use std::sync::{Arc, LazyLock};
use std::time::Duration;
use tonic::transport::Channel;

/// The number of this process: it lets the controller distinguish two switches of one name from one that restarted.
pub(super) fn process() -> u64 {
    static NUMBER: LazyLock<u64> = LazyLock::new(|| SecretKey::random().derive(Purpose::Structure, 0).max(1));
    *NUMBER
}

pub(super) type Client = SouthboundClient<Channel>;

/// The way to whichever of several controllers leads: the others refuse what only that one does.
pub(super) struct ToLeader {
    controllers: Vec<String>,
    tls: Option<Arc<Tls>>,
    /// How long a controller may take for an answer.
    patience: Duration,
    /// The one that took the last request, and the connection to it.
    last: Option<(usize, Channel)>,
}

impl ToLeader {
    pub(super) fn new(controllers: &str, tls: Option<Arc<Tls>>, patience: Duration) -> Self {
        let controllers = controllers_of(controllers).map(str::to_owned).collect();
        Self { controllers, tls, patience, last: None }
    }

    /// Asks the one that took the last request, then the others, until one takes it; whether one did.
    pub(super) async fn ask<F: Future<Output = bool>>(&mut self, ask: impl Fn(Client) -> F) -> bool {
        let (first, mut channel) = self.last.take().map_or((0, None), |(nth, channel)| (nth, Some(channel)));
        // That one again at the end: the old connection may be all that was wrong.
        for i in 0..=self.controllers.len() {
            let nth = (first + i) % self.controllers.len();
            let known = channel.take();
            let asked = async {
                let channel = match known {
                    Some(channel) => channel,
                    None => connect(&self.controllers[nth], self.tls.as_ref()).await.ok()?,
                };
                ask(api::client::southbound(channel.clone())).await.then_some(channel)
            };
            if let Ok(Some(channel)) = tokio::time::timeout(self.patience, asked).await {
                self.last = Some((nth, channel));
                return true;
            }
        }
        false
    }
}
