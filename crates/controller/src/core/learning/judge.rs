//! Decides what to do with a name that was seen: it moves, takes an address over, is listed, or stays as it is.

use super::decided::add_address;
use super::{
    Conflict, ELSEWHERE, FROZEN, FROZEN_STATE, LEFT, LISTED_FOR, MAX_CONFLICTS, MAX_CONFLICTS_OF_PORT, MAX_MOVED,
    MAX_TROUBLED, MAX_TROUBLES, MAX_UNKNOWN, MAX_UNKNOWN_OF_PORT, MOST_MOVES, MOVES_WITHIN, REPORTED, SAID_FOR, Seen,
    Settings, Sight, Trouble, Unknown, text,
};
use crate::core::change::State;
use crate::hosts::names::MAX_MORE;
use fib::name::{Name, NameKind};
use fib::topology::{End, NodeId};
use std::collections::{HashMap, VecDeque};
use std::net::IpAddr;
use std::time::Instant;

/// How many more names a port and its switch may have, not counting those that this report adds.
#[derive(Clone, Copy)]
pub(super) struct Room {
    pub(super) port: u32,
    pub(super) switch: u32,
}

/// What a name is to become.
pub(super) struct Judged {
    pub(super) tenant: u32,
    pub(super) ip: Option<IpAddr>,
    /// Its further addresses, if they changed.
    pub(super) more: Option<Vec<IpAddr>>,
    pub(super) moves: bool,
}

impl Seen {
    /// Whether a name may take over the address of another: both are learnt, of one tenant, and it announces the address, as a new
    /// holder does. An address that goes back and forth stays.
    pub(super) fn may_take_over(
        &mut self,
        state: &State,
        sight: &Sight,
        owner: &Name,
        ip: IpAddr,
        now: Instant,
    ) -> bool {
        let (rib, learnt) = (state.network.rib(), &state.hosts.learnt);
        let is_learnt = |name: &Name| learnt.since_ms(name).is_some();
        let (Some(from), Some(to)) = (rib.get(owner), rib.get(&sight.name)) else { return false };
        // An address that its holder had before its present one of the same family need not be announced: it may have a new holder.
        let of_family = |other: &&IpAddr| other.is_ipv4() == ip.is_ipv4();
        let latest = learnt.more_of(owner).iter().rfind(of_family).copied().or(from.ip.filter(|ip| of_family(&ip)));
        let may = (sight.announces || latest != Some(ip))
            && sight.accepts
            && is_learnt(owner)
            && is_learnt(&sight.name)
            && from.tenant == sight.tenant
            && to.tenant == sight.tenant
            && to.end() == sight.end;
        // Addresses are told apart from names by their kind.
        let key = match ip {
            IpAddr::V4(ip) => Name::from_bytes(NameKind::Ipv4, &ip.octets()),
            IpAddr::V6(ip) => Name::from_bytes(NameKind::Ipv6, &ip.octets()),
        };
        may && key.is_ok_and(|key| self.may_move(&key, (from.end(), to.end()), now))
    }

    /// Decides what a name that was seen becomes; nothing, if it stays as it is. `n_added`: names that the port gets before it.
    pub(super) fn judge(
        &mut self,
        state: &State,
        sight: &Sight,
        room: Room,
        now: Instant,
        now_ms: u64,
    ) -> Option<Judged> {
        let Sight { name, end, ip, tenant, accepts, max_names, .. } = sight;
        let learnt = &state.hosts.learnt;
        let is_full = learnt.count(*end) >= room.port || learnt.count_at(end.node) >= room.switch;
        let full = |seen: &mut Seen| {
            seen.counts.full += 1;
            let place = text(state, *end);
            seen.trouble(
                *end,
                now,
                format!("{place} has {max_names} learnt names, which is the maximum; others are dropped there"),
            );
            None
        };
        let Some(known) = state.network.rib().get(name) else {
            if !accepts {
                self.list(sight, now, now_ms, REPORTED);
                return None;
            }
            if is_full {
                return full(self);
            }
            self.counts.learnt += 1;
            return Some(Judged { tenant: *tenant, ip: *ip, more: None, moves: false });
        };
        let at = known.end();
        if state.hosts.learnt.since_ms(name).is_none() {
            if at != *end {
                self.counts.declared += 1;
                let (place, at) = (text(state, *end), text(state, at));
                let why = format!("{name} is seen at {place}, but was declared to be at {at}");
                self.conflict(sight, ELSEWHERE, why, (now, now_ms));
            }
            return None;
        }
        let has = learnt.more_of(name);
        let is_new = |ip: &IpAddr| known.ip != Some(*ip) && !has.contains(ip);
        let is_room = learnt.holders().len() < MAX_MORE || !has.is_empty() || known.ip.is_none();
        let news = ip.filter(|ip| is_new(ip) && is_room);
        let (mut own, mut more) = (known.ip, has.to_vec());
        if let Some(ip) = news {
            add_address(&mut own, &mut more, ip);
        }
        let more = Some(more).filter(|more| more != has);
        if at == *end {
            news.filter(|_| *accepts)?;
            if !self.may_move(name, (at, at), now) {
                self.counts.flapping += 1;
                let place = text(state, at);
                let why = format!("{name} at {place} repeatedly claims another address");
                self.conflict(sight, FROZEN_STATE, why, (now, now_ms));
                return None;
            }
            self.counts.addresses += 1;
            return Some(Judged { tenant: known.tenant, ip: own, more, moves: false });
        }
        let (place, from) = (text(state, *end), text(state, at));
        if known.tenant != *tenant {
            self.counts.refused += 1;
            let own = known.tenant;
            let why =
                format!("{name} of tenant {own} is seen at {place}, which is of tenant {tenant}: it stays at {from}");
            self.conflict(sight, ELSEWHERE, why, (now, now_ms));
            return None;
        }
        if !accepts {
            self.list(sight, now, now_ms, "it is learnt elsewhere, and the port, or the controller, only reports");
            return None;
        }
        if is_full {
            return full(self);
        }
        if !self.may_move(name, (at, *end), now) {
            self.counts.flapping += 1;
            let home = self.moves.get(name).and_then(|moves| moves.home).map_or(from, |home| text(state, home));
            let why = format!(
                "{name} moves repeatedly between {home} and {place}: two hosts have it, or frames loop; it stays at {home}, where it was before, for {} s",
                FROZEN.as_secs()
            );
            self.conflict(sight, FROZEN_STATE, why, (now, now_ms));
            return None;
        }
        self.counts.moved += 1;
        Some(Judged { tenant: *tenant, ip: own, more, moves: true })
    }

    /// The unknown names that their ports and switches have room for, first seen first. The others are counted, and reported as
    /// too many. Names that were not seen for long are forgotten.
    pub(super) fn allowed(&mut self, state: &State, settings: &Settings, now: Instant, left: &mut u64) -> Vec<Name> {
        self.unknown.retain(|_, unknown| now.saturating_duration_since(unknown.seen) < LISTED_FOR);
        let learnt = &state.hosts.learnt;
        let mut all: Vec<_> = self.unknown.iter_mut().collect();
        all.retain(|(name, _)| state.network.rib().get(name).is_none());
        all.sort_unstable_by(|(a, one), (b, other)| (one.turn, a).cmp(&(other.turn, b)));
        let (mut at_port, mut at_switch) = (HashMap::<End, u32>::new(), HashMap::<NodeId, u32>::new());
        let mut allowed = Vec::new();
        for (name, unknown) in all {
            let end = unknown.end;
            let of_port = at_port.entry(end).or_insert_with(|| learnt.count(end));
            let of_switch = at_switch.entry(end.node).or_insert_with(|| learnt.count_at(end.node));
            if *of_port >= unknown.max_names || *of_switch >= settings.max_names_per_switch {
                unknown.why = LEFT;
                *left += 1;
                continue;
            }
            *of_port += 1;
            *of_switch += 1;
            allowed.push(name.clone());
        }
        allowed
    }

    /// Counts a move, if it is allowed. A name that is frozen may go home.
    pub(super) fn may_move(&mut self, name: &Name, (from, to): (End, End), now: Instant) -> bool {
        let is_recent = |at: &Instant| now.duration_since(*at) < MOVES_WITHIN;
        if self.moves.len() >= MAX_MOVED && !self.moves.contains_key(name) {
            self.moves.retain(|_, moves| moves.frozen_until > Some(now) || moves.at.back().is_some_and(is_recent));
            if self.moves.len() >= MAX_MOVED {
                return false;
            }
        }
        let moves = self.moves.entry(name.clone()).or_default();
        let goes_home = from != to && moves.home == Some(to);
        if moves.frozen_until.is_some_and(|until| now < until) {
            return goes_home;
        }
        moves.at.retain(is_recent);
        if moves.at.len() >= MOST_MOVES {
            (moves.at, moves.frozen_until) = (VecDeque::new(), Some(now + FROZEN));
            return goes_home;
        }
        if moves.at.is_empty() {
            moves.home = Some(from);
        }
        moves.at.push_back(now);
        true
    }

    pub(super) fn list(&mut self, sight: &Sight, now: Instant, now_ms: u64, why: &'static str) {
        if self.unknown.len() >= MAX_UNKNOWN && !self.unknown.contains_key(&sight.name) {
            self.unknown.retain(|_, unknown| now.duration_since(unknown.seen) < LISTED_FOR);
            if self.unknown.len() >= MAX_UNKNOWN {
                self.counts.refused += 1;
                return;
            }
        }
        let of_port = self.unknown.values().filter(|unknown| unknown.end == sight.end).count();
        if of_port >= MAX_UNKNOWN_OF_PORT && !self.unknown.contains_key(&sight.name) {
            self.counts.full += 1;
            return;
        }
        let Sight { name, end, ip, tenant, max_names, .. } = sight;
        let before = self.unknown.get(name);
        let first_ms = before.map_or(now_ms, |unknown| unknown.first_ms);
        let turn = before.map_or(self.next_turn, |unknown| unknown.turn);
        // Its next frame does not change that.
        let was_left = why == REPORTED && before.is_some_and(|unknown| unknown.why == LEFT && unknown.end == sight.end);
        let why = if was_left { LEFT } else { why };
        let ip = ip.or(before.and_then(|unknown| unknown.ip));
        let (end, tenant, max_names) = (*end, *tenant, *max_names);
        let unknown = Unknown { end, ip, tenant, first_ms, last_ms: now_ms, turn, seen: now, max_names, why };
        self.next_turn = self.next_turn.max(turn + 1);
        self.unknown.insert(name.clone(), unknown);
    }

    /// Records a conflicting claim to a name, and a sentence for the port.
    pub(super) fn conflict(&mut self, sight: &Sight, is: &'static str, why: String, (now, now_ms): (Instant, u64)) {
        let Sight { name, end, tenant, .. } = sight;
        self.trouble(*end, now, why.clone());
        if self.conflicts.len() >= MAX_CONFLICTS && !self.conflicts.contains_key(name) {
            self.conflicts.retain(|_, conflict| now.saturating_duration_since(conflict.seen) < SAID_FOR);
            if self.conflicts.len() >= MAX_CONFLICTS {
                return;
            }
        }
        let of_port = self.conflicts.values().filter(|conflict| conflict.end == *end).count();
        if of_port >= MAX_CONFLICTS_OF_PORT && !self.conflicts.contains_key(name) {
            return;
        }
        let before = self.conflicts.get(name).filter(|before| now.saturating_duration_since(before.seen) < SAID_FOR);
        let first_ms = before.map_or(now_ms, |before| before.first_ms);
        let (end, tenant, last_ms, seen) = (*end, *tenant, now_ms, now);
        self.conflicts.insert(name.clone(), Conflict { end, tenant, is, why, first_ms, last_ms, seen });
    }

    /// Keeps a sentence; for each port, the latest few.
    pub(super) fn trouble(&mut self, end: End, now: Instant, sentence: String) {
        if self.troubles.len() >= MAX_TROUBLED && !self.troubles.contains_key(&end) {
            let is_said = |trouble: &Trouble| now.saturating_duration_since(trouble.seen) < SAID_FOR;
            self.troubles.retain(|_, of_port| of_port.iter().any(is_said));
            if self.troubles.len() >= MAX_TROUBLED {
                return;
            }
        }
        let of_port = self.troubles.entry(end).or_default();
        if let Some(same) = of_port.iter_mut().find(|trouble| trouble.sentence == sentence) {
            same.seen = now;
            return;
        }
        if of_port.len() >= MAX_TROUBLES {
            of_port.remove(0);
        }
        of_port.push(Trouble { sentence, seen: now });
    }
}
