//! What a worker does with the sources of frames from host ports: see [`crate::source`].

use super::Worker;
use crate::bits::ones;
use crate::counters::DropReason;
use crate::plane::Plane;
use crate::source::{CheckSource, Checked, Place, source};
use crate::table::Table;
use lookup::hash::Digest;
use netio::BURST;

impl<T: Table> Worker<T> {
    /// Drops the frames of the burst that do not say truly who sent them. This comes before everything else, so that they
    /// begin no flow, end none, and get no answer.
    #[inline]
    pub(super) fn check_sources(&mut self, plane: &Plane<T>, entry: usize) {
        let port = &self.ports[entry];
        if port.check_source == CheckSource::Off {
            return;
        }
        // Without a FIB all frames are dropped anyway.
        let (Ok(field), Some(hasher)) = (plane.field, self.table.as_ref().and_then(Table::hasher)) else { return };
        let checked = port.check_source.with_names(field.kind());
        if checked == Checked::Nothing {
            return;
        }
        let n = self.work.burst.len();
        let (mut sources, mut digests) = ([0; BURST], [Digest(0); BURST]);
        // Frames that are too short for addresses are dropped as such.
        let (mut whole, mut more) = (0, 0);
        for (i, packet) in self.work.burst.iter().enumerate() {
            if let Some((address, says_more)) = source(packet.frame(), checked) {
                sources[i] = address;
                whole |= 1 << i;
                more |= u32::from(says_more) << i;
            }
        }
        let here = match checked {
            Checked::Ip => whole,
            _ => {
                hasher.digest_words(&sources[..n], 6, &mut digests[..n]);
                plane.local.hold(&sources[..n], &digests[..n], port.id.0)
            }
        };
        let (forged, more) = (whole & !here, more & here);
        if forged | more != 0 {
            self.refuse(plane, entry, checked, forged, more);
        }
    }

    /// Drops the frames `forged`, and those of `more` whose other claims are wrong.
    #[inline(never)]
    fn refuse(&mut self, plane: &Plane<T>, entry: usize, checked: Checked, forged: u32, more: u32) {
        let Some(hasher) = self.table.as_ref().and_then(Table::hasher) else { return };
        let mut reasons = [None; BURST];
        ones(forged).for_each(|i| reasons[i] = Some(DropReason::SourceMac));
        if more != 0 {
            let port = self.ports[entry].id;
            let (local, valid, neighbours) = (&*plane.local, &*plane.valid, self.shared.neighbours.view());
            let place = Place { port, checked, local, valid, hasher, neighbours };
            ones(more).for_each(|i| reasons[i] = place.check(self.work.burst[i].frame()).err());
        }
        if reasons.iter().all(Option::is_none) {
            return;
        }
        for (packet, reason) in std::mem::take(&mut self.work.burst).into_iter().zip(reasons) {
            match reason {
                None => self.work.burst.push(packet),
                Some(reason) => {
                    self.counters.drop_frame(reason);
                    self.pool.put(packet);
                }
            }
        }
    }
}
