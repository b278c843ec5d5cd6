//! The agents of all switches, without ports.

use super::Network;
use api::v1::MemoryUse;
use fib::replica::{Limits, MemoryTables, Replica};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};
use switch::daemon::agent::{self, LinkStatus, Shared};
use tokio::runtime::Runtime;
use tokio::task::AbortHandle;
use tracing::instrument::WithSubscriber as _;
use tracing::subscriber::NoSubscriber;

struct Agent {
    shared: Arc<Shared<MemoryTables>>,
    /// Number of times that it has changed, and when it did last, in nanoseconds since the crowd began.
    changes: Arc<AtomicU64>,
    changed: Arc<AtomicU64>,
    tasks: [AbortHandle; 2],
}

/// See the module. The agents end when it is dropped.
pub(super) struct Crowd {
    began: Instant,
    agents: Vec<Agent>,
}

impl Crowd {
    pub(super) fn start(runtime: &Runtime, network: Network, controller: &str) -> Self {
        let began = Instant::now();
        let agent = |n: u16| {
            let limits = Limits { max_table_bytes: 16 << 30, ..Limits::default() };
            let shared = Shared::new(Replica::new(limits, MemoryTables::default()));
            let memory = Arc::new(MemoryUse::default);
            let run = agent::run(Network::switch(n), controller.to_owned(), None, shared.clone(), memory);
            // A line from each of them when the controller goes and comes would be of no help.
            let run = run.with_subscriber(NoSubscriber::new());
            let (changes, changed) = (Arc::<AtomicU64>::default(), Arc::<AtomicU64>::default());
            let (mut watched, n_changes, when) = (shared.changes(), changes.clone(), changed.clone());
            let watch = async move {
                while watched.changed().await.is_ok() {
                    when.store(began.elapsed().as_nanos() as u64, Relaxed);
                    n_changes.fetch_add(1, Relaxed);
                }
            };
            let tasks = [runtime.spawn(run).abort_handle(), runtime.spawn(watch).abort_handle()];
            Agent { shared, changes, changed, tasks }
        };
        Self { began, agents: (0..network.n_switches).map(agent).collect() }
    }

    pub(super) fn statuses(&self) -> impl Iterator<Item = LinkStatus> {
        self.agents.iter().map(|agent| agent.shared.status())
    }

    /// Number of times that each has changed.
    pub(super) fn mark(&self) -> Vec<u64> {
        self.agents.iter().map(|agent| agent.changes.load(Relaxed)).collect()
    }

    /// How many have changed since, and when the last one did.
    pub(super) fn changed_since(&self, mark: &[u64]) -> (usize, Instant) {
        let changed = self.agents.iter().zip(mark).filter(|(agent, mark)| agent.changes.load(Relaxed) > **mark);
        let (n, last) = changed.fold((0, 0), |(n, last), (agent, _)| (n + 1, last.max(agent.changed.load(Relaxed))));
        (n, self.began + Duration::from_nanos(last))
    }
}

impl Drop for Crowd {
    fn drop(&mut self) {
        self.agents.iter().flat_map(|agent| &agent.tasks).for_each(AbortHandle::abort);
    }
}
