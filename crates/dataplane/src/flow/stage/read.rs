//! The first phases of a burst: packets of flows are read, and the memory of their flows is asked for.

use super::{Stage, Tracking};
use crate::counters::DropReason;
use crate::flow::key::{Key, Keys};
use crate::flow::packet::{self, Body, Brief, Headers, Untracked};
use crate::parse::envelope;
use crate::shim;
use netio::Burst;
use std::ops::Range;

/// Packets whose digests are computed together.
const GROUP: usize = 8;

impl Stage {
    /// The first phase of a burst: reads the packets that belong to flows, and begins the lookups of their flows.
    pub(crate) fn begin(&mut self, tracking: &mut Tracking, burst: &Burst, from_trunk: bool, epoch: u32) {
        tracking.clear();
        tracking.epoch = epoch;
        tracking.n = self.read(tracking, burst, from_trunk);
    }

    /// The second phase, which may be left out: starts fetching the entries of the flows.
    pub(crate) fn advance(&self, tracking: &mut Tracking) {
        let Tracking { n, keys, digests, in_flight, .. } = tracking;
        self.table.advance_batch(&keys[..*n], &digests[..*n], in_flight);
    }

    /// Reads the packets of a burst that belong to flows, and returns their number. The table's lines for the first
    /// packets are prefetched while later packets are read.
    #[inline]
    fn read(&mut self, tracking: &mut Tracking, burst: &Burst, from_trunk: bool) -> usize {
        let (mut n, mut n_asked) = (0, 0);
        for (i, packet) in burst.iter().enumerate() {
            let frame = packet.frame();
            // The worker drops frames without an envelope when it reads their names.
            let Ok(type_at) = envelope(frame, from_trunk) else { continue };
            if from_trunk && shim::flags(frame) & shim::COPY != 0 {
                self.counts.passed += 1;
                continue;
            }
            tracking.type_at = type_at;
            let (Key { words, downwards }, brief) = if let Some(usual) = packet::usual(frame, type_at) {
                (Keys::short(usual.source, usual.destination, usual.protocol, 0), usual.brief)
            } else {
                match packet::parse(frame, type_at) {
                    // The switch answers it itself.
                    Ok(headers) if self.is_own_echo(&headers) => {
                        self.counts.passed += 1;
                        continue;
                    }
                    Ok(headers) => (self.keys.key(&headers.tuple), Brief::from(&headers)),
                    Err(Untracked::Pass) => {
                        self.counts.passed += 1;
                        continue;
                    }
                    Err(why) => {
                        let reason = match why {
                            Untracked::Fragment => DropReason::FlowFragment,
                            Untracked::Tags => DropReason::VlanTags,
                            _ => DropReason::FlowInvalid,
                        };
                        tracking.refuse(i, self.refuse(reason));
                        continue;
                    }
                }
            };
            tracking.keys[n] = words;
            tracking.briefs[n] = brief;
            tracking.owners[n] = i as u8;
            tracking.downwards |= u32::from(downwards) << n;
            n += 1;
            if n - n_asked == GROUP {
                self.ask(tracking, n_asked..n);
                n_asked = n;
            }
        }
        self.ask(tracking, n_asked..n);
        n
    }

    /// Whether a packet is an echo request to a virtual or an outside address, which belongs to no flow.
    fn is_own_echo(&self, headers: &Headers) -> bool {
        let to = headers.tuple.destination.address;
        headers.body == Body::Echo { reply: false }
            && (self.settings.virtuals.iter().any(|service| service.endpoint.address == to)
                || self.settings.nat.as_ref().is_some_and(|nat| nat.addresses.contains(&to)))
    }

    /// Computes digests, and prefetches the lines that lookups read first.
    #[inline]
    fn ask(&self, tracking: &mut Tracking, range: Range<usize>) {
        let Tracking { keys, digests, .. } = tracking;
        self.table.digests(&keys[range.clone()], &mut digests[range.clone()]);
        self.table.begin_batch(&digests[range]);
    }
}
