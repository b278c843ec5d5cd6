//! A worker's handling of the sources of frames from host ports: see [`crate::source`].
//!
//! ```text
//!  begin                                        finish
//!  source addresses ─► digests ─► lines ─ ─ ─ ► local at this port? ─┬─ IPv4, and no IP sources are checked: true
//!                              └► lines ─ ─ ─ ► address of the name ─┴─ other frames: what they say, one by one
//! ```
//! If all sources of a burst were [known](crate::known) to be true before, it needs no check.
//! The check comes before everything else that is done with a burst. So a full burst whose check has begun waits for the next
//! burst, and its lines come meanwhile.

use super::check::Sources;
use super::context::{Context, Flight};
use super::pipeline::Stage;
use super::work::Work;
use crate::bits::{first, ones};
use crate::counters::DropReason;
use crate::learn::{Claim, may_claim_address};
use crate::links::{lldp, local};
use crate::plane::Plane;
use crate::source::{CheckSource, Checked, Place, Tables, ip_source, source};
use crate::table::Table;
use arrayvec::ArrayVec;
use netio::BURST;
use std::time::Instant;

/// The position of the period in a version: local names change less often than that.
const PERIOD_SHIFT: u32 = 40;

/// The stage that drops frames of hosts that do not state their true sender.
pub(super) struct SourceCheck;

impl<T: Table> Stage<Context<T>, Flight<T>> for SourceCheck {
    #[inline]
    fn begin(&mut self, context: &mut Context<T>, burst: &mut Flight<T>, _: Option<&mut Flight<T>>) -> bool {
        let Flight { plane, work } = burst;
        // The source of a copy was checked when the frame itself came.
        !work.is_copied && context.begin_sources(plane, work)
    }

    /// This comes before everything else, so that frames without a true source begin no flow, end none, and get no answer.
    #[inline]
    fn finish(&mut self, context: &mut Context<T>, burst: &mut Flight<T>) {
        let checked = std::mem::replace(&mut burst.work.sources.checked, Checked::Nothing);
        if checked != Checked::Nothing {
            context.finish_sources(&burst.plane, &mut burst.work, checked);
        }
    }
}

impl<T: Table> Context<T> {
    /// Begins to check the sources of a burst. False if there is nothing to check.
    #[inline]
    fn begin_sources(&mut self, plane: &Plane<T>, work: &mut Work) -> bool {
        let port = &self.ports[work.entry];
        if port.check_source == CheckSource::Off {
            return false;
        }
        // Without a FIB all frames are dropped anyway.
        let (Ok(field), Some(hasher)) = (plane.field, self.table.as_ref().and_then(Table::hasher)) else {
            return false;
        };
        let checked = port.check_source.with_names(field.kind());
        if checked == Checked::Nothing {
            return false;
        }
        let Work { sources, burst, .. } = work;
        let n = burst.len();
        (sources.checked, sources.whole, sources.more) = (checked, 0, 0);
        let name_len = if checked == Checked::Ip {
            for (i, packet) in burst.iter().enumerate() {
                let read = ip_source(packet.frame(), field.kind());
                sources.names[i] = read.unwrap_or(0);
                sources.whole |= u32::from(read.is_some()) << i;
            }
            sources.more = first(n);
            4
        } else {
            // Frames that are too short for addresses are dropped as such.
            for (i, packet) in burst.iter().enumerate() {
                let read = source(packet.frame(), checked);
                let (address, says_more) = read.unwrap_or((0, false));
                sources.names[i] = address;
                sources.whole |= u32::from(read.is_some()) << i;
                sources.more |= u32::from(says_more) << i;
            }
            6
        };
        if checked == Checked::Mac {
            // What is known is for one period where true sources are to be noted as well.
            let period = if port.notes.is_some() { u64::from(self.shared.learner.period()) } else { 0 };
            sources.version = plane.local.version() ^ period << PERIOD_SHIFT;
            let unknown = port.known.first_unknown(sources.version, &sources.names[..n]);
            if unknown.is_none() && sources.more == 0 && sources.whole == first(n) {
                sources.checked = Checked::Nothing;
                return false;
            }
            sources.unknown = unknown.unwrap_or(n);
        }
        sources.digest(hasher, n, name_len);
        plane.local.begin(&sources.digests[..n], &mut sources.searches);
        if checked == Checked::MacAndIp {
            self.shared.neighbours.view().begin(&sources.digests[..n]);
        }
        true
    }

    /// Drops the frames of a burst that do not state their true sender.
    #[inline]
    fn finish_sources(&mut self, plane: &Plane<T>, work: &mut Work, checked: Checked) {
        let (here, mut wrong, mut reasons) = self.judge(plane, work, checked);
        let mut strangers = wrong;
        if wrong != 0 {
            // These frames come from switches: neither they nor hosts behind them are to be learnt as hosts here.
            let (heard, of_switches) = self.hear_switches(work, wrong);
            (wrong, strangers) = (wrong & !heard, wrong & !of_switches);
            work.sources.more &= !of_switches;
            ones(of_switches).for_each(|i| reasons[i] = DropReason::LinkLocal);
        }
        let Sources { version, unknown, names, .. } = &work.sources;
        // True sources from the first unknown one on. Invented sources hide none of them.
        let trues = here & u32::MAX.checked_shl(*unknown as u32).unwrap_or(0);
        if checked == Checked::Mac && trues != 0 {
            let port = &mut self.ports[work.entry];
            let mut trues = ones(trues).map(|i| names[i]);
            // A source that could not be noted comes again with its next frame. A frame that waited tells who was here.
            let source = match &mut port.notes {
                None => trues.next(),
                Some(_) if work.has_waited => None,
                Some(notes) => {
                    let (learner, index) = (&self.shared.learner, work.entry as u8);
                    let claim = |source: u64| Claim::new(&source.to_le_bytes()[..6], None);
                    notes.note(learner.period(), work.burst.is_full(), trues, |source| {
                        learner.note_true(index, claim(source), Instant::now())
                    })
                }
            };
            if let Some(source) = source {
                port.known.add(*version, source);
            }
        }
        let entry = work.entry;
        if self.ports[entry].learns && !work.has_waited && (strangers | work.sources.more) != 0 {
            self.note_sources(plane, work, strangers);
        }
        if wrong != 0 {
            self.refuse(work, wrong, &reasons);
        }
    }

    /// Those of the frames that are read as LLDP and go no further, and all that are from switches. The contents of all but LLDP are kept
    /// here: no flow, nor anything else, is to begin with a frame whose source is unknown.
    #[cold]
    fn hear_switches(&self, work: &Work, frames: u32) -> (u32, u32) {
        let Work { burst, entry, has_waited, .. } = work;
        let (links, index) = (&self.shared.links, *entry as u8);
        let listens = links.lldp().listens(index);
        let (mut heard, mut all) = (0, 0);
        for i in ones(frames).filter(|i| local::is_of_switch(burst[*i].frame())) {
            all |= 1 << i;
            if listens && lldp::is_lldp(burst[i].frame()) {
                heard |= 1 << i;
            } else {
                links.hear_at_host(index, burst[i].frame(), *has_waited);
            }
        }
        (heard, all)
    }

    /// Notes unknown sources, and hosts that claim an address that is not theirs: the frames `wrong` of hosts, and those that
    /// say more than a source.
    #[cold]
    fn note_sources(&self, plane: &Plane<T>, work: &Work, wrong: u32) {
        let Ok(field) = &plane.field else { return };
        let Work { sources, burst, entry, .. } = work;
        // Most IPv6 frames, and with `mac+ip` all IPv4 frames, claim no more than was checked.
        let may_claim = |i: &usize| wrong >> i & 1 != 0 || may_claim_address(burst[*i].frame());
        let mut candidates = ones(wrong | sources.more).filter(may_claim).peekable();
        if candidates.peek().is_none() {
            return;
        }
        let (kind, view) = (field.kind(), self.shared.neighbours.view());
        let news = candidates.filter_map(|i| {
            let claim = Claim::of(burst[i].frame(), kind)?;
            let is_wrong = wrong >> i & 1 != 0;
            let is_given = claim.ip.is_some_and(|ip| view.get(ip).is_none_or(|owner| owner != claim.name()));
            (is_wrong || is_given).then_some(claim)
        });
        let claims: ArrayVec<Claim, BURST> = news.collect();
        drop(view);
        if !claims.is_empty() {
            self.shared.learner.note(*entry as u8, claims.into_iter(), Instant::now());
        }
    }

    /// The frames from names that are local at this port; those that do not state their true sender, with the reasons.
    #[inline]
    fn judge(&self, plane: &Plane<T>, work: &Work, checked: Checked) -> (u32, u32, [DropReason; BURST]) {
        let mut reasons = [DropReason::SourceMac; BURST];
        let Work { sources, burst, entry, .. } = work;
        let (n, port, has_router) = (burst.len(), self.ports[*entry].id, self.ports[*entry].ra_trusted);
        let view = || self.shared.neighbours.view();
        // Changes of addresses wait from the first question to the last answer: a slot keeps its name.
        let early = (checked == Checked::MacAndIp).then(view);
        let mut slots = [None; BURST];
        if let Some(neighbours) = &early {
            for i in ones(sources.more) {
                slots[i] = neighbours.advance(sources.digests[i], sources.names[i]);
            }
        }
        let mut searches = sources.searches;
        let here = plane.local.hold(&mut searches, &sources.names[..n], &sources.digests[..n], port.0);
        let (mut wrong, more) = match checked {
            // A packet from a name that is here claims nothing else.
            Checked::Ip => (0, sources.more & !(sources.whole & here)),
            _ => (sources.whole & !here, sources.more & here),
        };
        if let (true, Some(hasher)) = (more != 0, self.table.as_ref().and_then(Table::hasher)) {
            let (local, valid, neighbours) = (&*plane.local, &*plane.valid, early.unwrap_or_else(view));
            let known = Tables { local, valid, hasher, neighbours };
            let mut place = Place { port, checked, has_router, known: &known, led: None };
            for i in ones(more) {
                place.led = slots[i].and_then(|slot| known.neighbours.finish(slot));
                if let Err(reason) = place.check(burst[i].frame()) {
                    wrong |= 1 << i;
                    reasons[i] = reason;
                }
            }
        }
        (here, wrong, reasons)
    }
}
