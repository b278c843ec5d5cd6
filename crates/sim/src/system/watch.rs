//! Observes the controller inside a turn of its writer, and crashes it there.

use super::history::History;
use crate::random::Random;
use api::seam::Moment;
use controller::kit::Sight;
use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// A process ends here; what it wrote before is written.
struct Crash;

/// The status calls a switch in step.
pub(super) struct Claim {
    pub(super) stream: usize,
    /// The last change that was answered then, and the last that was committed.
    pub(super) answered: u64,
    pub(super) committed: u64,
}

pub(super) struct Watch {
    pub(super) history: History,
    noted: u64,
    pub(super) answered: u64,
    pub(super) committed: u64,
    pub(super) claims: Vec<Claim>,
    pub(super) points: BTreeMap<&'static str, u64>,
    n_points: u64,
    kill: Option<u64>,
    random: Random,
    /// Whether crashes come without being asked for.
    pub(super) wild: bool,
}

/// Seen from the scheduler, the store and the controller.
#[derive(Clone)]
pub(super) struct Watched(Arc<Mutex<Watch>>);

impl Watched {
    pub(super) fn new(n_switches: usize, seed: u64, kill: Option<u64>) -> Watched {
        Watched(Arc::new(Mutex::new(Watch {
            history: History::new(n_switches),
            noted: 0,
            answered: 0,
            committed: 0,
            claims: Vec::new(),
            points: BTreeMap::new(),
            n_points: 0,
            kill,
            random: Random::new(!seed),
            wild: false,
        })))
    }

    /// Leaves this to a controller that is no longer relied on: no crashes come, and what is seen says nothing. What was
    /// seen so far goes on in the returned one.
    pub(super) fn part(&self) -> Watched {
        let quiet = Watch {
            history: History::new(0),
            noted: 0,
            answered: 0,
            committed: 0,
            claims: Vec::new(),
            points: BTreeMap::new(),
            n_points: 0,
            kill: None,
            random: Random::new(0),
            wild: false,
        };
        Watched(Arc::new(Mutex::new(std::mem::replace(&mut *self.lock(), quiet))))
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, Watch> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A place in the code where a crash can be asked for. True: crash here.
    pub(super) fn point(&self, name: &'static str) -> bool {
        let mut watch = self.lock();
        *watch.points.entry(name).or_default() += 1;
        let here = watch.kill == Some(watch.n_points);
        watch.n_points += 1;
        // Now and then it crashes without being asked; more often where a transaction may be torn.
        let one_in = if name == "store written" { 40 } else { 400 };
        here || watch.wild && watch.random.below(one_in) == 0
    }

    /// The same, inside [`Watched::until_crash`].
    pub(super) fn pass(&self, name: &'static str) {
        if self.point(name) {
            resume_unwind(Box::new(Crash));
        }
    }

    /// Runs a step of the controller while it is watched. `None`: it crashed.
    pub(super) fn until_crash<R>(&self, step: impl FnOnce() -> R) -> Option<R> {
        let watched = self.clone();
        controller::kit::watch(Some(Box::new(move |moment, sight| watched.see(moment, &sight))));
        let result = catch_unwind(AssertUnwindSafe(step));
        controller::kit::watch(None);
        match result {
            Ok(result) => Some(result),
            Err(payload) if payload.is::<Crash>() => None,
            Err(payload) => resume_unwind(payload),
        }
    }

    fn see(&self, moment: Moment, sight: &Sight<'_>) {
        let network = &sight.state.network;
        let point = {
            let mut watch = self.lock();
            let watch = &mut *watch;
            let change = network.change();
            let point = match moment {
                Moment::Changed => {
                    if std::mem::replace(&mut watch.noted, change) != change {
                        watch.history.note(network, change);
                    }
                    "change carried out"
                }
                Moment::Committing => "commit begins",
                Moment::Committed => {
                    watch.committed = change;
                    "commit done"
                }
                Moment::Answered => {
                    watch.answered = change;
                    "request answered"
                }
                Moment::Made => "messages made",
                Moment::Attached => "report compared",
                Moment::Sent => "report answered",
            };
            watch.claim(sight);
            point
        };
        self.pass(point);
    }
}

impl Watch {
    /// Takes down what the status says now.
    pub(super) fn claim(&mut self, sight: &Sight<'_>) {
        let (answered, committed) = (self.answered, self.committed);
        let claims = sight.in_step.iter().map(|&stream| Claim { stream, answered, committed });
        self.claims.extend(claims);
    }

    /// From now on crashes come.
    pub(super) fn begin_faults(&mut self) {
        self.wild = true;
        self.points.clear();
        self.n_points = 0;
    }

    /// A controller starts with this change.
    pub(super) fn begin(&mut self, network: &fib::network::Network) {
        let change = network.change();
        self.history.forget_after(change);
        self.history.note(network, change);
        (self.noted, self.committed, self.answered) = (change, change, self.answered.min(change));
        self.claims.clear();
    }
}
