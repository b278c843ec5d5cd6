//! Tells the controllers that do not serve this switch which one does, and the state of the switch, so that each can answer for all switches.

use super::about::About;
use super::controllers::controllers_of;
use super::leader::{Client, ToLeader, process};
use super::shared::{Served, Shared};
use api::tls::Tls;
use api::v1;
use fib::replica::Tables;
use std::sync::Arc;
use std::time::Duration;
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout_at};

/// Interval at which each of them is told, and how long that may take.
const EVERY: Duration = Duration::from_secs(2);
const PATIENCE: Duration = Duration::from_secs(2);

/// Of so many times once with what holds the memory.
const MEMORY_EVERY: u32 = 5;

/// Tells each of several controllers, for ever.
pub(super) async fn tell_each<T: Tables>(
    switch: &str,
    controllers: &str,
    tls: Option<&Arc<Tls>>,
    shared: &Shared<T>,
    about: &Arc<dyn About>,
) {
    let mut tasks = JoinSet::new();
    if controllers_of(controllers).count() > 1 {
        for controller in controllers_of(controllers) {
            let way = ToLeader::new(controller, tls.cloned(), PATIENCE);
            let (switch, controller) = (switch.to_owned(), controller.to_owned());
            tasks.spawn(tell(switch, controller, way, shared.served(), Arc::clone(about)));
        }
    }
    while tasks.join_next().await.is_some() {}
}

async fn tell(
    switch: String,
    controller: String,
    mut way: ToLeader,
    mut served: tokio::sync::watch::Receiver<Served>,
    about: Arc<dyn About>,
) {
    let mut n_told = 0_u32;
    loop {
        let Served { by, standing } = served.borrow_and_update().clone();
        if by.as_ref() != Some(&controller) {
            let request = v1::SeeSwitchRequest {
                switch: switch.clone(),
                process: process(),
                served_by: by.unwrap_or_default(),
                standing: Some(standing),
                counters: about.counters(),
                // To count it costs more, and it changes less.
                memory: n_told.is_multiple_of(MEMORY_EVERY).then(|| about.memory()),
            };
            n_told = n_told.wrapping_add(1);
            let ask = |mut client: Client| {
                let request = request.clone();
                async move { client.see_switch(request).await.is_ok() }
            };
            let _ = way.ask(ask).await;
        }
        // Sooner if another one serves it, or if it is found otherwise.
        let until = Instant::now() + EVERY;
        if let Ok(Err(_)) = timeout_at(until, served.changed()).await {
            return;
        }
    }
}
