//! The controller on the scheduler: when it starts, takes turns and ends, and what its streams carry.

use super::store::Disk;
use super::store::SharedDisk;
use super::watch::Watched;
use super::world::{Event, Link, System};
use super::{Mutant, Violation};
use crate::site::{Answer, Bounds, Site};
use api::v1::from_switch::Body;
use controller::change::{Changed, Refusal};
use controller::kit::{Next, QUIET, Verdict};
use std::collections::VecDeque;
use std::time::Duration;

/// Most messages of a stream that are on their way; more wait in the controller.
const ON_THE_WAY: usize = 8;

/// A controller that another one has replaced, and that runs on. No operator asks it for anything.
pub(super) struct Old {
    controller: Option<Box<Site>>,
    pub(super) generation: u64,
    turn_at: Option<u64>,
    release_at: Option<u64>,
    disk: SharedDisk,
    watched: Watched,
    asked: VecDeque<(u64, Answer<Changed>)>,
}

impl System {
    pub(super) fn start_controller(&mut self) -> Result<(), Violation> {
        if self.controller.is_some() {
            return Ok(());
        }
        let bounds = Bounds {
            switch_backlog_bytes: self.backlog_bytes,
            waiting_bytes: 4 * self.backlog_bytes,
            bulk_names: 8,
            phase_timeout: Duration::from_millis(80),
            turn_names: self.turn_names,
        };
        let (settings, store, watched) = (self.settings.clone(), self.disk.open(&self.watched), self.watched.clone());
        let Some(started) = watched.until_crash(|| Site::start(settings, store, &bounds)) else {
            self.crash_controller("controller while it starts");
            return Ok(());
        };
        let controller = match started {
            Ok(controller) => controller,
            Err(_) if self.disk.lock().full => {
                let pause = 50 + self.random.below(300);
                self.schedule(pause, Event::StartController);
                return Ok(());
            }
            Err(error) => return Err(Violation::Restore { why: error.to_string() }),
        };
        let sight = controller.sight();
        if std::mem::take(&mut self.is_set_back) {
            self.facts.set_back(&sight);
            self.switches.iter_mut().for_each(|switch| switch.forget());
        } else {
            self.facts.after_restart(&sight)?;
        }
        self.watched.lock().begin(controller.network());
        self.controller = Some(Box::new(controller));
        Ok(())
    }

    pub(super) fn crash_controller(&mut self, kind: &'static str) {
        *self.outcome.crashes.entry(kind).or_default() += 1;
        self.end_controller();
    }

    /// The process is gone. Its answers are heard.
    fn end_controller(&mut self) {
        self.controller = None;
        self.hear_answers();
        // Messages to it go nowhere.
        let ended = self.generation;
        self.n_starts += 1;
        self.generation = self.n_starts;
        (self.turn_at, self.release_at) = (None, None);
        let n_there = self.random.below(3);
        self.disk.lock().crash(n_there);
        self.end_links(ended);
        let pause = 10 + self.random.below(200);
        self.schedule(pause, Event::StartController);
    }

    /// The connections to a controller that ended break.
    fn end_links(&mut self, generation: u64) {
        for link in self.links_of(generation) {
            self.links[link].lose_controller();
            if !self.links[link].broken {
                self.links[link].broken = true;
                self.links[link].lossy = self.random.below(2) == 0;
                let notice = 1 + self.random.below(50);
                self.schedule(notice, Event::BrokenBelow { link });
            }
        }
    }

    /// Operators take the controller for dead, and start another one on a copy of its store. But it runs on, and serves the
    /// switches that reach it.
    pub(super) fn twin(&mut self, copy: Option<Disk>) {
        self.hear_answers();
        self.end_old();
        let Some(controller) = self.controller.take() else { return };
        self.fault("second controller");
        self.is_set_back = copy.is_some();
        self.replaced.insert(self.generation);
        let copy = copy.unwrap_or_else(|| self.disk.lock().backup());
        // Requests whose answers no one hears.
        self.asked.clear();
        let watched = self.watched.part();
        self.old = Some(Old {
            controller: Some(controller),
            generation: self.generation,
            turn_at: self.turn_at.take(),
            release_at: self.release_at.take(),
            disk: std::mem::replace(&mut self.disk, SharedDisk::with(copy)),
            watched: std::mem::replace(&mut self.watched, watched),
            asked: VecDeque::new(),
        });
        self.n_starts += 1;
        self.generation = self.n_starts;
        let (start, end) = (10 + self.random.below(200), 200 + self.random.below(4_000));
        self.schedule(start, Event::StartController);
        self.schedule(end, Event::EndOld);
    }

    /// Stops the old controller of the two.
    pub(super) fn end_old(&mut self) {
        if let Some(old) = self.old.take() {
            self.end_links(old.generation);
        }
    }

    /// What follows happens to the other controller of the two, until this is called again.
    pub(super) fn change_sides(&mut self) {
        let Some(old) = &mut self.old else { return };
        self.on_old_side = !self.on_old_side;
        std::mem::swap(&mut self.controller, &mut old.controller);
        std::mem::swap(&mut self.generation, &mut old.generation);
        std::mem::swap(&mut self.turn_at, &mut old.turn_at);
        std::mem::swap(&mut self.release_at, &mut old.release_at);
        std::mem::swap(&mut self.disk, &mut old.disk);
        std::mem::swap(&mut self.watched, &mut old.watched);
        std::mem::swap(&mut self.asked, &mut old.asked);
    }

    /// The connections to a controller.
    fn links_of(&self, generation: u64) -> Vec<usize> {
        (0..self.links.len()).filter(|link| self.links[*link].generation == generation).collect()
    }

    /// The store is a copy that was made some time ago.
    pub(super) fn set_back(&mut self, backup: Disk) {
        self.crash_controller("controller for a backup");
        *self.disk.lock() = backup;
        self.is_set_back = true;
    }

    /// Something waits for the writer.
    pub(super) fn wake_writer(&mut self) {
        if self.turn_at.is_none() {
            let pause = self.random.below(8);
            self.turn_at = Some(self.now + pause);
            let generation = self.generation;
            self.schedule(pause, Event::Turn { generation });
        }
    }

    /// A step of the controller, which may crash in it.
    fn step<R>(&mut self, step: impl FnOnce(&mut Site) -> R) -> Option<R> {
        let mut controller = self.controller.take()?;
        match self.watched.clone().until_crash(|| step(&mut controller)) {
            Some(result) => {
                self.controller = Some(controller);
                Some(result)
            }
            None => {
                // The pusher and the streams are threads of their own: they may have gone on until the process ended.
                let generation = self.generation;
                if self.random.below(2) == 0 {
                    controller.push();
                    self.controller = Some(controller);
                    self.pump();
                }
                if self.generation == generation {
                    self.crash_controller("controller at a point");
                }
                None
            }
        }
    }

    pub(super) fn turn(&mut self) {
        self.turn_at = None;
        let most = 1 + self.random.below(8) as usize;
        let Some(turned) = self.step(|controller| controller.turn(most)) else { return };
        self.hear_answers();
        if turned.is_err() && self.on_old_side {
            self.controller = None;
            return self.schedule(0, Event::EndOld);
        }
        if turned.is_err() && !self.is(Mutant::GoesOnAfterFailure) {
            return self.crash_controller("controller with a full disk");
        }
        self.welcome();
        let Some(controller) = &mut self.controller else { return };
        if controller.has_work() {
            self.wake_writer();
        }
        self.push();
    }

    /// The pusher goes on, and what is queued for switches is sent.
    pub(super) fn push(&mut self) {
        let Some(waits) = self.step(Site::push) else { return };
        let generation = self.generation;
        if let Some(waits) = waits {
            self.schedule(1 + waits.as_millis() as u64, Event::Push { generation });
        }
        let Some(controller) = &mut self.controller else { return };
        if controller.has_parked() && self.release_at.is_none() {
            self.release_at = Some(self.now);
            self.schedule(QUIET.as_millis() as u64, Event::Release { generation });
        }
        self.pump();
    }

    pub(super) fn release(&mut self) {
        self.release_at = None;
        if let Some(controller) = &mut self.controller {
            controller.release();
            self.wake_writer();
        }
    }

    /// The controller does nothing for a while, and time passes.
    pub(super) fn stand_still(&mut self) {
        self.fault("controller stands still");
        let pause = 50 + self.random.below(3_000);
        self.still_until = self.now + pause;
        let generation = self.generation;
        self.schedule(pause, Event::Push { generation });
    }

    /// An operator has a switch verified.
    pub(super) fn verify(&mut self, i: usize) {
        let link = self.switches[i].agent.as_ref().and_then(|agent| agent.link);
        let Some(link) = link.filter(|link| self.links[*link].generation == self.generation) else { return };
        let Link { above, verifying, .. } = &self.links[link];
        let (Some(controller), Some(stream), None) = (&mut self.controller, above, verifying) else { return };
        if let Some(verifying) = controller.verify(stream) {
            self.links[link].verifying = Some(verifying);
            self.pump();
        }
    }

    /// Streams that were asked for begin.
    fn welcome(&mut self) {
        for link in self.links_of(self.generation) {
            let Some(welcome) = &mut self.links[link].welcome else { continue };
            let Some(answer) = welcome.poll() else { continue };
            self.links[link].welcome = None;
            match answer {
                Ok(stream) => self.links[link].above = Some(stream),
                Err(Refusal::Stopping) => {}
                // For example, there is no such switch now.
                Err(_) => self.break_link(link),
            }
        }
    }

    /// Messages leave, as long as there is room on the way.
    pub(super) fn pump(&mut self) {
        if self.now < self.still_until {
            return;
        }
        for link in self.links_of(self.generation) {
            while self.links[link].on_the_way < ON_THE_WAY
                && let Some(stream) = &mut self.links[link].above
            {
                match stream.take() {
                    Next::Nothing => break,
                    Next::Ended => {
                        self.hang_up(link);
                        self.break_link(link);
                    }
                    Next::Message(message) => {
                        self.send_down(link, *message);
                        if self.watched.point("message leaves") {
                            return self.crash_controller("controller at a point");
                        }
                    }
                }
            }
        }
    }

    pub(super) fn hello(&mut self, link: usize, report: &[u8]) {
        let switch = super::operators::switch_name(self.links[link].switch);
        let Some(controller) = &mut self.controller else { return };
        match controller.hello(&switch, report) {
            Ok(welcome) => {
                self.links[link].welcome = Some(welcome);
                self.wake_writer();
            }
            Err(_) => self.break_link(link),
        }
    }

    /// The controller notices that a connection ended.
    pub(super) fn hang_up(&mut self, link: usize) {
        // No one waits for the answer to a hello any more.
        (self.links[link].welcome, self.links[link].verifying) = (None, None);
        let (Some(controller), Some(stream)) = (&mut self.controller, self.links[link].above.take()) else { return };
        controller.hang_up(stream);
        self.wake_writer();
    }

    /// A message of a switch arrives.
    pub(super) fn up(&mut self, link: usize, body: Body) {
        let switch = super::operators::switch_name(self.links[link].switch);
        if matches!(body, Body::Resync(_)) && self.is(Mutant::ResyncIgnored) {
            return;
        }
        let Link { above, verifying, .. } = &mut self.links[link];
        let (Some(controller), Some(stream)) = (&mut self.controller, above) else { return };
        let heard = controller.hear(&switch, stream, body, verifying.as_ref());
        let acked = stream.acked_change();
        if controller.has_work() {
            self.wake_writer();
        }
        if let Ok(Some(verdict)) = &heard {
            self.links[link].verifying = None;
            self.outcome.verified += 1;
            if let Verdict::Differs(what) = verdict {
                let switch = self.links[link].switch;
                self.found.get_or_insert(Violation::Verified { switch, what: what.clone() });
            }
        }
        // From now on the switch answers as of the last change that counts as acknowledged, or a later one.
        if self.is_followed(link) && !self.on_old_side {
            let i = self.links[link].switch;
            self.switches[i].since = self.switches[i].since.max(acked);
            self.touched = Some(i);
        }
        if heard.is_err() {
            self.hang_up(link);
            self.break_link(link);
        }
        self.push();
    }
}
