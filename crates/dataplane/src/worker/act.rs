//! How frames leave a worker: staged at their ports of exit, with the shims that these need, and sent.

use super::context::{Context, Flight};
use super::pipeline::Rest;
use super::rules::Rules;
use super::work::{Fate, Work};
use crate::counters::DropReason;
use crate::gateway::Question;
use crate::shim;
use crate::tap::{At, Verdict};
use netio::{Packet, offload};
use std::marker::PhantomData;

/// The end of the path: frames leave, or are dropped.
pub(super) struct Act<R>(pub(super) PhantomData<R>);

impl<T, R: Rules> Rest<Context<T>, Flight<T>> for Act<R> {
    fn pass(&mut self, context: &mut Context<T>, mut burst: Flight<T>, _: bool) {
        context.distribute::<R>(&mut burst.work);
        context.ask_outside();
        context.flush();
        context.idle.push(burst.work);
    }

    fn drain(&mut self, _: &mut Context<T>) {}
}

impl<T> Context<T> {
    /// Stages the packets of the burst at their ports of exit, and pushes, changes or removes shims.
    fn distribute<R: Rules>(&mut self, work: &mut Work) {
        let Work { burst, seen, fates, entry, from_trunk, bare, is_copied, .. } = work;
        let (entry, from_trunk, bare, is_copied) = (*entry, *from_trunk, *bare, *is_copied);
        // Asked once, so that without a tap no frame pays for the question.
        let is_tapped = self.tap.is_some();
        for (i, mut packet) in burst.drain(..).enumerate() {
            let fate = fates[i];
            let (exit, changed) = match fate {
                Fate::Forward(exit) | Fate::Alien(exit) => {
                    if fate != Fate::Forward(exit) {
                        self.counters.aliens.add(1);
                    }
                    let to_trunk = self.ports.is_trunk(exit);
                    let has_shim = from_trunk && bare >> i & 1 == 0;
                    (usize::from(exit), change_shim::<R>(&mut packet, has_shim, to_trunk))
                }
                Fate::Marked(exit, flags) => {
                    let changed = change_shim::<R>(&mut packet, from_trunk && bare >> i & 1 == 0, true);
                    if changed.is_ok() {
                        shim::set_flags(packet.frame_mut(), flags);
                    }
                    (usize::from(exit), changed)
                }
                Fate::Answer => {
                    self.counters.answered.add(1);
                    (entry, Ok(()))
                }
                Fate::Hello => {
                    self.counters.hellos.add(1);
                    if is_tapped {
                        self.tell(seen, i, entry, packet.frame(), Verdict::Heard);
                    }
                    self.pool.put(packet);
                    continue;
                }
                Fate::Copy => match self.copies.keep(&self.shared.groups, entry, packet) {
                    Ok(kept) => {
                        if is_tapped && let Some(tap) = &mut self.tap {
                            let at = At::of_entry(entry, &self.ports[entry]);
                            tap.tell(seen, i, at, kept.frame(), Verdict::Copied);
                        }
                        continue;
                    }
                    Err(refused) => {
                        packet = refused;
                        (entry, Err(DropReason::GroupRate))
                    }
                },
                Fate::Drop(reason) => (entry, Err(reason)),
            };
            if is_tapped {
                let verdict = match changed {
                    Err(reason) => Verdict::Dropped(reason),
                    Ok(()) if fate == Fate::Answer => Verdict::Answered,
                    Ok(()) => Verdict::Forwarded(self.ports[exit].id),
                };
                self.tell(seen, i, entry, packet.frame(), verdict);
            }
            if let Err(reason) = changed {
                self.counters.drop_frame(reason);
                self.pool.put(packet);
                continue;
            }
            if is_copied && self.ports.is_trunk(exit as u8) {
                shim::set_flags(packet.frame_mut(), shim::COPY);
            }
            // There is room: only one burst is staged at a time, and a staging holds a burst.
            self.ports.stage(exit as u8, packet);
        }
    }

    /// Sends the staged packets. Drops those that a port does not take.
    fn flush(&mut self) {
        let mut sent = 0;
        while let Some(exit) = self.ports.next_staging() {
            let port = &mut self.ports[exit];
            let (before, mut refused) = (port.staged.len(), 0);
            if let Some(tap) = &mut self.tap {
                tap.leave(exit, port);
            }
            let reason = if port.health.is_up() {
                let result = offload::transmit(&mut *port.device, &mut self.pool, &mut port.staged);
                let n = *result.as_ref().unwrap_or(&0);
                sent += n as u64;
                refused = before - n - port.staged.len();
                if refused > 0 {
                    self.counters.drop_frames(DropReason::TxRefused, refused as u64);
                }
                match result {
                    Ok(_) => DropReason::TxFull,
                    Err(error) => {
                        self.ports.failed(exit, &error);
                        DropReason::PortDown
                    }
                }
            } else {
                DropReason::PortDown
            };
            let left = self.ports[exit].staged.len() as u64;
            let leads_on = left == 0 || reason != DropReason::TxFull || self.ports[exit].device.leads_on();
            let reason = if leads_on { reason } else { DropReason::PortDown };
            if let Some(tap) = &mut self.tap {
                tap.left(exit, &self.ports[exit], refused, reason);
            }
            if left > 0 {
                self.counters.drop_frames(reason, left);
                self.pool.put_all(&mut self.ports[exit].staged);
            }
        }
        self.counters.sent.add(sent);
    }

    /// Stages the gateway's questions for its neighbours.
    fn ask_outside(&mut self) {
        let Some(router) = &mut self.router else { return };
        for Question { port, frame } in router.questions.drain(..) {
            let Some(mut packet) = self.pool.take() else { return };
            // If the staging is full, a later packet asks again.
            let exit = self.ports.index_of(port).filter(|exit| !self.ports[usize::from(*exit)].staged.is_full());
            let Some(exit) = exit.filter(|_| packet.fill(&frame).is_ok()) else {
                self.pool.put(packet);
                continue;
            };
            self.ports.stage(exit, packet);
            self.counters.originated.add(1);
        }
    }

    /// Sends the frames of the keeper of trunks. A trunk that is down sends nothing.
    #[cold]
    pub(super) fn send_hellos(&mut self) {
        // Frames in flight are not staged for any of these ports yet, and have their turn after this.
        for (exit, frame) in self.shared.links.take_frames() {
            let Some(mut packet) = self.pool.take() else { break };
            let port = self.ports.get_mut(exit).filter(|port| port.health.is_up() && !port.staged.is_full());
            if port.is_none_or(|_| packet.fill(&frame).is_err()) {
                self.pool.put(packet);
                continue;
            }
            self.shared.links.left(exit, packet.frame());
            self.ports.stage(exit, packet);
            self.counters.originated.add(1);
        }
        self.flush();
    }
}

#[inline(always)]
pub(super) fn change_shim<R: Rules>(packet: &mut Packet, from_trunk: bool, to_trunk: bool) -> Result<(), DropReason> {
    let (done, otherwise) = match (from_trunk, to_trunk) {
        (true, true) => (R::count_hop(packet.frame_mut()), DropReason::HopLimit),
        (false, true) => (shim::push(packet), DropReason::NoHeadroom),
        (true, false) => (shim::pop(packet), DropReason::HopLimit),
        (false, false) => return Ok(()),
    };
    if done { Ok(()) } else { Err(otherwise) }
}
