//! A controller on the scheduler of a simulation: it drives the [owner](controller::kit::Owner) of the network and its pusher, commits
//! turns to a store, and hands them out.

use api::seam::{Moment, now};
use api::v1::from_switch::Body;
use controller::change::{Change, Changed, Refusal, State};
use controller::kit::{self, Heard, Input, Kind, Line, Pushed, Pusher, Stream, Task, Turn, Verdict, Verifying};
use controller::store::{Commit, Follower, NOTHING, Position, Store, StoreError};
use controller::{StartError, kit::Sight};
use fib::messages::Report;
use fib::network::{Network, Settings};
use lookup::hash::SecretKey;
use std::cell::RefCell;
use std::collections::VecDeque;
use std::rc::Rc;
use std::time::Duration;

/// How a site differs from a controller with a configuration file.
#[derive(Clone, Debug)]
pub(crate) struct Bounds {
    /// Most bytes that wait for a switch.
    pub(crate) switch_backlog_bytes: usize,
    /// Most bytes that wait for all.
    pub(crate) waiting_bytes: usize,
    /// Fewest names of a bulk batch.
    pub(crate) bulk_names: usize,
    /// How long a phase waits for late switches.
    pub(crate) phase_timeout: Duration,
    /// Names that are read for answers to reports between two turns.
    pub(crate) turn_names: usize,
}

/// An answer that is to come.
#[derive(Debug)]
pub(crate) struct Answer<T>(Rc<RefCell<Option<Result<T, Refusal>>>>);

impl<T> Answer<T> {
    /// For who answers, and for who waits.
    fn pair() -> (Answer<T>, Answer<T>) {
        let answer = Rc::default();
        (Answer(Rc::clone(&answer)), Answer(answer))
    }

    /// Whether the other end is gone.
    fn is_left(&self) -> bool {
        Rc::strong_count(&self.0) == 1
    }

    fn give(self, answer: Result<T, Refusal>) {
        *self.0.borrow_mut() = Some(answer);
    }

    /// The answer, once it is there. The controller that stops, or is dropped, answers so.
    pub(crate) fn poll(&mut self) -> Option<Result<T, Refusal>> {
        let is_left = self.is_left();
        self.0.borrow_mut().take().or_else(|| is_left.then_some(Err(Refusal::Stopping)))
    }
}

/// Who waits for what.
enum Ticket {
    Changed(Answer<Changed>),
    Attached(Answer<Stream>),
}

impl Ticket {
    fn refuse(self, refusal: Refusal) {
        match self {
            Ticket::Changed(answer) => answer.give(Err(refusal)),
            Ticket::Attached(answer) => answer.give(Err(refusal)),
        }
    }
}

enum Job {
    Input(Input<Stream, Ticket>),
    /// Lead, with this store.
    Lead(Box<dyn Store>, Box<Settings>),
}

/// A controller without threads.
pub(crate) struct Site {
    owner: kit::Owner<Stream, Ticket>,
    /// None while another controller leads.
    store: Option<Box<dyn Store>>,
    pusher: Pusher<Stream>,
    /// Messages that wait for the pusher.
    pushes: Vec<kit::Outgoing<Stream>>,
    jobs: VecDeque<Job>,
    n_verified: u64,
}

impl Site {
    /// Restores the network in the store, as a start of the controller does. `settings` are those of a new network.
    pub(crate) fn start(settings: Settings, store: Box<dyn Store>, bounds: &Bounds) -> Result<Site, StartError> {
        let (state, store) = kit::restore(settings, store)?;
        let owner = kit::Owner::leading(state, owner_bounds(bounds), kit::Rates::default(), now());
        Ok(Site::of(owner, Some(store), bounds))
    }

    /// The network as of a commit of another controller, which this one follows.
    pub(crate) fn follow(
        settings: Settings,
        follower: &Follower,
        at: Position,
        bounds: &Bounds,
    ) -> Result<Site, StartError> {
        let state = kit::state_at(settings, follower, at)?;
        let (limits, rates) = (owner_bounds(bounds), kit::Rates::default());
        Ok(Site::of(kit::Owner::following(state, Some(at.number), limits, rates, now()), None, bounds))
    }

    fn of(owner: kit::Owner<Stream, Ticket>, store: Option<Box<dyn Store>>, bounds: &Bounds) -> Site {
        let pusher = Pusher::new(bounds.phase_timeout);
        Site { owner, store, pusher, pushes: Vec::new(), jobs: VecDeque::new(), n_verified: 0 }
    }

    fn ask(&mut self, input: Input<Stream, Ticket>) {
        self.jobs.push_back(Job::Input(input));
    }

    /// A commit of the controller that leads.
    pub(crate) fn commit(&mut self, commit: Commit) {
        self.ask(Input::Follow(kit::followed(commit)));
    }

    /// The number of the last commit that was carried out while this controller followed; none if it has strayed.
    pub(crate) fn position(&self) -> Option<u64> {
        self.owner.position()
    }

    /// Reads all rows again.
    pub(crate) fn read_again(
        &mut self,
        settings: Settings,
        follower: &Follower,
        at: Position,
    ) -> Result<(), StartError> {
        let state = Box::new(kit::state_at(settings, follower, at)?);
        self.ask(Input::Replace { state, number: at.number });
        Ok(())
    }

    /// Leads, with this store.
    pub(crate) fn lead(&mut self, store: Box<dyn Store>, settings: Settings) {
        self.jobs.push_back(Job::Lead(store, Box::new(settings)));
    }

    /// What the store does beside its owner goes on to its end: it applies the last big commit.
    pub(crate) fn settle(&mut self) -> Result<(), StoreError> {
        self.store.as_ref().map_or(Ok(()), |store| store.rows_after(None, 0).map(drop))
    }

    /// Gives the lead back.
    pub(crate) fn close(&mut self) -> Result<(), StoreError> {
        self.store.as_mut().map_or(Ok(()), |store| store.close())
    }

    /// The network and its hosts.
    pub(crate) fn state(&self) -> &State {
        &self.owner.state
    }

    /// The network.
    pub(crate) fn network(&self) -> &Network {
        &self.owner.state.network
    }

    /// The network, to ask it what a switch lacks.
    pub(crate) fn network_mut(&mut self) -> &mut Network {
        &mut self.owner.state.network
    }

    /// As the owner and the status have it.
    pub(crate) fn sight(&self) -> Sight<'_> {
        self.owner.sight()
    }

    /// Whether there is something to do for the owner.
    pub(crate) fn has_work(&mut self) -> bool {
        !self.jobs.is_empty() || self.owner.may_go_on(now())
    }

    /// A change for the owner.
    pub(crate) fn change(&mut self, change: Change) -> Answer<Changed> {
        let (ticket, answer) = Answer::pair();
        self.ask(Input::Change { change, ticket: Ticket::Changed(ticket), is_traced: false });
        answer
    }

    /// An operator asks for another hash key.
    pub(crate) fn rekey(&mut self) -> Answer<Changed> {
        let (ticket, answer) = Answer::pair();
        self.ask(Input::Task(Task::Rekey(Ticket::Changed(ticket))));
        answer
    }

    /// Begins to verify a switch. None while nothing is made for it, or it does not have the answer to its report.
    pub(crate) fn verify(&mut self, stream: &Stream) -> Option<Verifying> {
        let held = self.owner.state.network.held(stream.node())?;
        self.n_verified += 1;
        stream.with(|session| Verifying::begin(session, &held, self.n_verified))
    }

    /// A switch says hello, with its report; or why it is none.
    pub(crate) fn hello(&mut self, switch: &str, report: &[u8]) -> Result<Answer<Stream>, String> {
        let report: Report = kit::decode(report)?;
        let (ticket, answer) = Answer::pair();
        let (switch, ticket) = (switch.to_owned(), Ticket::Attached(ticket));
        self.ask(Input::Task(Task::Attach { switch, report, weighs_ways: true, ticket }));
        Ok(answer)
    }

    /// A switch says something later. What came of a verification, if it is that; or why its stream ends.
    pub(crate) fn hear(
        &mut self,
        switch: &str,
        stream: &Stream,
        body: Body,
        verifying: Option<&Verifying>,
    ) -> Result<Option<Verdict>, String> {
        match kit::hear(stream, Some(body), now())? {
            Heard::Acknowledged { is_caught_up, .. } => {
                let wants_room = self.owner.take_wants_room();
                if wants_room || is_caught_up {
                    self.ask(Input::Task(Task::Release));
                }
            }
            Heard::Asks { is_first: true, .. } => self.ask(Input::Task(Task::Resync(stream.clone()))),
            Heard::Stuck { .. } => self.ask(Input::Task(Task::Stuck(stream.clone()))),
            Heard::Trunks(trunks) => self.ask(Input::Trunks { switch: switch.to_owned(), trunks, ticket: None }),
            Heard::Verified(answer) => {
                let after = self.owner.state.network.held(stream.node());
                return Ok(verifying.and_then(|verifying| verifying.verdict(&answer, after.as_ref())));
            }
            _ => {}
        }
        Ok(None)
    }

    /// The connection of a stream ended.
    pub(crate) fn hang_up(&mut self, stream: Stream) {
        stream.with(|session| session.end());
        self.ask(Input::Task(Task::Detach(stream)));
    }

    /// The owner takes at most so many jobs, and their turns are handed out. False: there was nothing to do.
    pub(crate) fn turn(&mut self, most: usize) -> Result<bool, StoreError> {
        self.owner.set_tells(self.store.as_ref().is_some_and(|store| store.has_followers()));
        if self.jobs.is_empty() {
            let may_go_on = self.owner.may_go_on(now());
            if may_go_on {
                self.owner.go_on();
                self.round()?;
            }
            return Ok(may_go_on);
        }
        for _ in 0..most {
            match self.jobs.pop_front() {
                Some(Job::Input(input)) => _ = self.owner.take(input, now()),
                Some(Job::Lead(store, settings)) => {
                    self.round()?;
                    self.take_the_lead(store, *settings)?;
                    break;
                }
                None => break,
            }
            if self.owner.is_full() {
                break;
            }
        }
        self.round()?;
        Ok(true)
    }

    fn take_the_lead(&mut self, mut store: Box<dyn Store>, settings: Settings) -> Result<(), StoreError> {
        if self.owner.has_followed_to(store.n_commits()) {
            let rows = self.owner.lead(store.term(), kit::view_rows(&*store)?);
            store.commit_told(&rows, NOTHING)?;
        } else {
            let unusable = |error: StartError| StoreError::Unusable { what: error.to_string() };
            let (state, restored) = kit::restore(settings, store).map_err(unusable)?;
            self.owner.lead_anew(state);
            store = restored;
        }
        self.owner.set_tells(store.has_followers());
        self.store = Some(store);
        self.owner.take(Input::SeeAll, now());
        Ok(())
    }

    fn round(&mut self) -> Result<(), StoreError> {
        while let Some(turn) = self.owner.next(now()) {
            // Memory is ahead of the store.
            self.hand_out(turn).inspect_err(|_| self.owner.end_sessions())?;
            self.owner.took(Duration::ZERO, now());
        }
        Ok(())
    }

    fn hand_out(&mut self, turn: Turn<Stream, Ticket>) -> Result<(), StoreError> {
        turn.refused.into_iter().for_each(|(ticket, refusal)| ticket.refuse(refusal));
        if let Some((store, term)) = self.store.as_mut().zip(turn.raise_term) {
            let raised = store.raise_term(term);
            self.owner.raised(raised.map_err(|error| error.to_string()));
        }
        let told = kit::told(&turn.told, &turn.rows);
        if let Some(store) = self.store.as_mut().filter(|_| !turn.rows.is_empty() || told.is_some()) {
            self.owner.at(Moment::Committing);
            if let Err(error) = store.commit_told(&turn.rows, &told.unwrap_or_default()) {
                for answer in turn.answers {
                    if let kit::Answer::Changed(ticket, _) = answer {
                        ticket.refuse(Refusal::StoreFailed { reason: error.to_string() });
                    }
                }
                return Err(error);
            }
            self.owner.at(Moment::Committed);
        }
        if let Some(store) = self.store.as_mut().filter(|_| !turn.views.is_empty()) {
            // Without them a switch is sent its table anew after a restart.
            let _ = store.commit_told(&turn.views, NOTHING);
        }
        for answer in turn.answers {
            match answer {
                kit::Answer::Changed(Ticket::Changed(answer), changed) => {
                    answer.give(Ok(changed));
                    self.owner.at(Moment::Answered);
                }
                kit::Answer::Attached(Ticket::Attached(answer), stream) => {
                    if answer.is_left() {
                        self.owner.take(Input::Task(Task::Detach(stream.clone())), now());
                    }
                    answer.give(Ok(stream));
                }
                _ => {}
            }
        }
        self.pushes.extend(turn.outgoing);
        match turn.kind {
            Kind::Messages => self.owner.at(Moment::Made),
            Kind::Sent => self.owner.at(Moment::Sent),
            Kind::Group | Kind::Other => {}
        }
        if let Some(rekey) = turn.build {
            // When the tables are ready follows from the seed.
            self.owner.rekeyed(rekey.build(1));
        }
        Ok(())
    }

    /// Whether switches wait that may be released when nothing happens for [`kit::QUIET`]. Asks once.
    pub(crate) fn has_parked(&mut self) -> bool {
        self.owner.take_wants_release()
    }

    /// Nothing happened for so long.
    pub(crate) fn release(&mut self) {
        self.ask(Input::Task(Task::Release));
    }

    /// Lets the pusher do what it can now. Returns after how long it goes on without the switches that it waits for;
    /// `None`: it waits for the owner.
    pub(crate) fn push(&mut self) -> Option<Duration> {
        loop {
            match self.pusher.go_on(now(), |_| {}) {
                Pushed::Waits { until, .. } => return Some(until - now()),
                Pushed::All if self.pushes.is_empty() => return None,
                Pushed::All => self.pusher.take(self.pushes.drain(..)),
            }
        }
    }
}

fn owner_bounds(bounds: &Bounds) -> kit::Bounds {
    kit::Bounds {
        switch_backlog_bytes: bounds.switch_backlog_bytes,
        waiting_bytes: bounds.waiting_bytes,
        bulk_names: bounds.bulk_names,
        turn_names: bounds.turn_names,
        new_key: || SecretKey::from_seed(api::seam::simulated().unwrap_or_default().as_nanos() as u64),
    }
}
