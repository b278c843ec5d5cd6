//! A worker's handling of multicast reports: see [`crate::subscriptions`]. They end here: other hosts must not hear them, or
//! hosts of old protocols would keep silent.

use crate::counters::DropReason;
use crate::groups::{Groups, is_for_all, sender};
use crate::mac::Mac;
use crate::port::Role;
use crate::subscriptions::report::{Message, find};
use crate::subscriptions::{Allowance, Why};
use std::time::Instant;

/// Keeps a frame's report on groups; returns why the frame goes no further, if it is one. `is_here` tells
/// whether a name is at this port: sources may not have been checked.
#[cold]
pub(super) fn hear(
    groups: &Groups,
    (role, index, allowance): (Role, u8, &mut Allowance),
    frame: &[u8],
    type_at: usize,
    is_here: impl FnOnce(&Mac) -> bool,
) -> Option<DropReason> {
    let (snooping, subscriptions) = groups.snooping().zip(groups.subscriptions()).filter(|_| role == Role::Host)?;
    let found = find(frame, type_at)?;
    // A name without a tenant here has no receivers, and can want nothing that it could get.
    let name = sender(frame).filter(|name| groups.of(*name).is_some())?;
    if !is_here(&name) {
        return Some(DropReason::SourceMac);
    }
    // Before it is read: a flood costs no more than this.
    if !subscriptions.admit(index, allowance) {
        return Some(DropReason::ListenerRefused);
    }
    let report = match found.read() {
        Ok(Message::Report(report)) => report,
        Ok(Message::Query) => return Some(DropReason::ListenerQuery),
        Err(_) => {
            subscriptions.refuse(index, Why::Malformed);
            return Some(DropReason::ListenerRefused);
        }
    };
    let times = (snooping.timing, Instant::now());
    let keeps = |group| !is_for_all(group, snooping.mdns_for_all);
    match subscriptions.hear(index, name, &report, times, keeps) {
        Ok(()) => Some(DropReason::ListenerReport),
        Err(_) => Some(DropReason::ListenerRefused),
    }
}
