//! The kinds of frames before anything is looked up: their names are read, and frames without one get their fate.

use crate::answer::answer_own_echo;
use crate::counters::DropReason;
use crate::dhcp::Dhcp;
use crate::flow::Route;
use crate::links::{is_chatter, lldp};
use crate::parse::envelope;
use crate::plane::Plane;
use crate::table::Table;
use crate::worker::context::Context;
use crate::worker::everybody::Entry;
use crate::worker::work::{Fate, Parsed, Work};
use fib::name::NameKind;

/// Fills `names` and `owners`, and the fates of all frames without a name and of those whose flow knows the port of exit. It skips the
/// frames whose bits are set in `decided`: they have a fate already.
pub(super) fn parse<T: Table, const TRACKED: bool>(
    context: &mut Context<T>,
    plane: &Plane<T>,
    work: &mut Work,
    decided: u32,
) {
    let Context { table, shared, ports, .. } = context;
    let Work { burst, entry, from_trunk, has_waited, is_copied, names, tracking, fates, owners, .. } = work;
    let (entry, from_trunk, has_waited, is_copied) = (*entry, *from_trunk, *has_waited, *is_copied);
    names.clear();
    let field = if table.is_some() { plane.field } else { Err(DropReason::NoFib) };
    let has_macs = field.is_ok_and(|field| field.kind() == NameKind::Mac);
    // A copy was judged when the frame itself came.
    let judges = has_macs && !is_copied;
    let server = ports[entry].dhcp.as_ref().filter(|_| judges).and_then(Dhcp::guarded);
    let answers_echoes = shared.neighbours.has_own() && !is_copied;
    for (i, packet) in burst.iter_mut().enumerate() {
        if TRACKED && tracking.refused >> i & 1 != 0 {
            fates[i] = Fate::Drop(tracking.reasons[i]);
            continue;
        }
        if decided >> i & 1 != 0 {
            continue;
        }
        let n = names.len();
        let parsed = envelope(packet.frame(), from_trunk).and_then(|type_at| {
            let frame = packet.frame();
            if frame[0] & 1 != 0 && from_trunk {
                return match frame[..6] == [0xff; 6] {
                    true => Err(DropReason::Broadcast),
                    false if shared.links.hear(entry as u8, frame, has_waited) => Ok(Parsed::Hello),
                    false => Err(DropReason::Multicast),
                };
            }
            let is_to_server = server.is_some_and(|server| frame.first_chunk() == Some(&server));
            if frame[0] & 1 != 0 || is_to_server {
                let port = &mut ports[entry];
                let hasher = table.as_ref().and_then(Table::hasher).filter(|_| has_macs);
                let place = Entry { shared: &**shared, plane, hasher, port, index: entry as u8, has_waited };
                if is_to_server {
                    place.ask(frame, type_at)?;
                } else if let Some(parsed) = place.hear(packet, type_at)? {
                    return Ok(parsed);
                }
                // It has one destination, whose name is looked up.
            } else if answers_echoes && answer_own_echo(packet, type_at, from_trunk, &shared.neighbours) {
                return Ok(Parsed::Answer);
            }
            field?.extract(packet.frame(), type_at, names).map(|()| Parsed::Name)
        });
        match parsed {
            Ok(Parsed::Name) => {
                if TRACKED && names.name_len(n) <= Route::NAME_BYTES {
                    let exit = tracking.routes[i].exit_of(names.word(n), from_trunk);
                    if let Some(exit) = exit.filter(|&exit| usize::from(exit) != entry) {
                        names.pop();
                        fates[i] = Fate::Forward(exit);
                        continue;
                    }
                }
                owners[n] = i as u8;
            }
            Ok(Parsed::Answer) => fates[i] = Fate::Answer,
            Ok(Parsed::Hello) => fates[i] = Fate::Hello,
            Ok(Parsed::Copy) => fates[i] = Fate::Copy,
            // These are not a sign that frames come from a device that is not a switch.
            Err(DropReason::NoShim) if lldp::is_lldp(packet.frame()) => {
                shared.links.hear_lldp(entry as u8, packet.frame(), has_waited);
                fates[i] = Fate::Hello;
            }
            // Neither is this.
            Err(DropReason::NoShim) if is_chatter(packet.frame()) => {
                fates[i] = Fate::Drop(DropReason::KernelChatter);
            }
            Err(reason) => fates[i] = Fate::Drop(reason),
        }
    }
}
