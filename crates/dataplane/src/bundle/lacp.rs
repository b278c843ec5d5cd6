//! LACP at one member of a bundle (IEEE 802.1AX-2020, 6.4). It decides from its inputs and their times; it has no clock.
//!
//! ```text
//!  receive:  NoCarrier ─► Expired ─► Defaulted        mux:  Detached ⇄ Attached ⇄ Collecting ⇄ Distributing
//!                            ▲  └──► Current ◄── PDU             selected   partner     partner
//!                            └─ time ──┘                                    in sync     collects
//! ```
//! **Independent control**: a member takes frames first, and sends some when its partner reports that it takes them. So no frame is sent
//! on a member whose other end does not take it, except while a PDU is on its way.
//!
//! Differs from the standard: a member that may be used is used at once, and does not wait two seconds for others to come: flows move to
//! it and from it one by one, in whatever order members come ([`crate::spread`]). An unheard partner is never assumed to be there: a silent
//! member is not used. A link whose partner does not bundle it is used if it is alone. The churn machines are omitted:
//! [`Aggregate`](super::aggregate::Aggregate) tells what a member waits for.

use super::pdu::{End, Pdu, State};
use std::time::{Duration, Instant};

/// Seconds between two PDUs, where the partner wants them often and where not; a partner that is silent for three times as long is missing.
const FAST: Duration = Duration::from_secs(1);
const SLOW: Duration = Duration::from_secs(30);
const LOST: u32 = 3;
/// The most PDUs in [`FAST`], whatever happens.
const MOST_AT_ONCE: usize = 3;

/// How the protocol is spoken.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Manner {
    /// Even to a partner that does not speak first.
    pub is_active: bool,
    /// A partner counts as missing after 3 seconds, not after 90.
    pub is_fast: bool,
}

/// The state of its knowledge of its partner.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Receive {
    /// Nothing: there is no carrier.
    NoCarrier,
    /// What was reported earlier; it asks for more.
    Expired,
    /// There was no answer.
    Defaulted,
    /// What was reported recently.
    Current,
}

/// Which frames may pass.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Mux {
    /// None: it belongs to no bundle.
    Detached,
    /// None: it belongs to the bundle, and its partner has not confirmed that yet.
    Attached,
    /// Incoming frames.
    Collecting,
    /// All frames.
    Distributing,
}

/// See the module.
#[derive(Debug)]
pub struct Lacp {
    own: End,
    manner: Manner,
    born: Instant,
    partner: End,
    receive: Receive,
    /// When its partner spoke last.
    heard: Option<Instant>,
    /// Until when what is known is valid.
    current_until: Option<Instant>,
    is_selected: bool,
    mux: Mux,
    /// Whether something has changed that the partner must know.
    has_news: bool,
    /// When it spoke last, the latest first.
    said: [Option<Instant>; MOST_AT_ONCE],
}

impl Lacp {
    /// LACP for the end `own`, whose state bits are not read. A carrier is assumed until the contrary is reported.
    pub fn new(own: End, manner: Manner, now: Instant) -> Self {
        let mut lacp = Self {
            own,
            manner,
            born: now,
            partner: End::default(),
            receive: Receive::NoCarrier,
            heard: None,
            current_until: None,
            is_selected: false,
            mux: Mux::Detached,
            has_news: true,
            said: [None; MOST_AT_ONCE],
        };
        lacp.expire(now);
        lacp
    }

    /// The state of knowledge of the partner.
    pub fn receive(&self) -> Receive {
        self.receive
    }

    /// Which frames may pass.
    pub fn mux(&self) -> Mux {
        self.mux
    }

    /// The partner, if it has spoken recently.
    pub fn partner(&self) -> Option<&End> {
        (self.receive == Receive::Current).then_some(&self.partner)
    }

    /// When its partner spoke last.
    pub fn heard(&self) -> Option<Instant> {
        self.heard
    }

    /// The information that this end sends about itself.
    pub fn actor(&self) -> End {
        let Self { manner, mux, receive, .. } = self;
        let mut state = State(State::AGGREGATES);
        state.set(State::ACTIVE, manner.is_active);
        state.set(State::SHORT, manner.is_fast);
        state.set(State::IN_SYNC, *mux >= Mux::Attached);
        state.set(State::COLLECTS, *mux >= Mux::Collecting);
        state.set(State::DISTRIBUTES, *mux >= Mux::Distributing);
        state.set(State::DEFAULTED, *receive == Receive::Defaulted);
        state.set(State::EXPIRED, *receive == Receive::Expired);
        End { state, ..self.own }
    }

    /// Notes that the carrier came or went.
    pub fn carrier(&mut self, has_carrier: bool, now: Instant) {
        if !has_carrier {
            self.receive = Receive::NoCarrier;
            self.current_until = None;
            self.partner.state.set(State::IN_SYNC, false);
        } else if self.receive == Receive::NoCarrier {
            self.expire(now);
        }
        self.pass();
    }

    /// Takes a PDU of another system.
    pub fn hear(&mut self, pdu: &Pdu, now: Instant) {
        if self.receive == Receive::NoCarrier {
            return;
        }
        let own = self.actor();
        let Pdu { actor, partner } = pdu;
        let is_us = |end: &End| End { state: State(0), ..*end } == End { state: State(0), ..own };
        let watched = State::ACTIVE | State::SHORT | State::AGGREGATES | State::IN_SYNC;
        if !is_us(partner) || (partner.state.0 ^ own.state.0) & watched != 0 {
            // Its information about this end is out of date.
            self.has_news = true;
        }
        self.partner = *actor;
        let is_spoken_to =
            actor.state.has(State::ACTIVE) || (self.manner.is_active && partner.state.has(State::ACTIVE));
        let knows_us = is_us(partner) || !holds(Rule::KnowsUs);
        let is_in_sync = actor.state.has(State::IN_SYNC) && knows_us && is_spoken_to;
        self.partner.state.set(State::IN_SYNC, is_in_sync);
        self.receive = Receive::Current;
        self.heard = Some(now);
        let wait = LOST * if self.manner.is_fast { FAST } else { SLOW };
        self.current_until = Some(now + wait);
        self.pass();
    }

    /// Whether it is in the bundle.
    pub fn select(&mut self, is_selected: bool) {
        self.is_selected = is_selected;
        self.pass();
    }

    /// Takes the time into account.
    pub fn judge(&mut self, now: Instant) {
        if self.current_until.is_some_and(|until| until <= now) && holds(Rule::Expires) {
            match self.receive {
                Receive::Current => self.expire(now),
                Receive::Expired => {
                    self.receive = Receive::Defaulted;
                    self.current_until = None;
                    self.partner = End::default();
                    self.has_news = true;
                }
                Receive::NoCarrier | Receive::Defaulted => {}
            }
        }
        self.pass();
    }

    /// Notes that this switch stood still for this long, so it cannot tell who was silent meanwhile.
    pub fn excuse(&mut self, stood_still: Duration) {
        if self.receive == Receive::Current {
            self.current_until = self.current_until.map(|until| until + stood_still);
        }
    }

    /// The latest time to [judge](Self::judge) or to [speak](Self::say).
    pub fn deadline(&self) -> Option<Instant> {
        [self.current_until, self.speaks_at()].into_iter().flatten().min()
    }

    /// The PDU to send now, if one is due.
    pub fn say(&mut self, now: Instant) -> Option<Pdu> {
        if self.speaks_at().is_none_or(|at| now < at) {
            return None;
        }
        self.has_news = false;
        self.said.rotate_right(1);
        self.said[0] = Some(now);
        Some(Pdu { actor: self.actor(), partner: self.partner })
    }

    /// When it speaks next; none if no one wants to hear anything.
    fn speaks_at(&self) -> Option<Instant> {
        let is_wanted = self.manner.is_active || self.partner.state.has(State::ACTIVE);
        if self.receive == Receive::NoCarrier || !is_wanted {
            return None;
        }
        let [Some(last), ..] = self.said else { return Some(self.born) };
        // A partner that is missing is spoken to often.
        let is_often = self.partner.state.has(State::SHORT) || self.receive != Receive::Current;
        let in_turn = last + if is_often { FAST } else { SLOW };
        let allowed = match self.said[MOST_AT_ONCE - 1] {
            Some(earlier) if holds(Rule::NotTooOften) => earlier + FAST,
            _ => last,
        };
        Some(if self.has_news { allowed } else { in_turn.max(allowed) })
    }

    fn expire(&mut self, now: Instant) {
        self.receive = Receive::Expired;
        self.current_until = Some(now + LOST * FAST);
        self.partner.state.set(State::IN_SYNC, false);
        self.has_news = true;
    }

    /// Takes the steps of the mux that it may take.
    fn pass(&mut self) {
        loop {
            let in_sync = self.is_selected && (self.partner.state.has(State::IN_SYNC) || !holds(Rule::BothInSync));
            let is_taken = self.partner.state.has(State::COLLECTS) || !holds(Rule::TakenFirst);
            let next = match self.mux {
                Mux::Detached if self.is_selected => Mux::Attached,
                Mux::Attached if !self.is_selected => Mux::Detached,
                Mux::Attached if in_sync => Mux::Collecting,
                Mux::Collecting if !in_sync => Mux::Attached,
                Mux::Collecting if is_taken => Mux::Distributing,
                Mux::Distributing if !in_sync || !is_taken => Mux::Collecting,
                now => now,
            };
            if next == self.mux {
                return;
            }
            self.mux = next;
            self.has_news |= holds(Rule::SaysNews);
        }
    }
}

/// The rules that the state of a member follows from. A test leaves out each in turn, and must notice.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Rule {
    /// A member passes frames only if its partner says that it is in the bundle.
    BothInSync,
    /// The partner must say so of this very end.
    KnowsUs,
    /// Frames are sent only to a partner that takes them.
    TakenFirst,
    /// A partner that is no longer heard is gone.
    Expires,
    /// A change is announced at once.
    SaysNews,
    /// Even changes are announced at a limited rate.
    NotTooOften,
    /// All members of a bundle have the same partner.
    OnePartner,
    /// A switch that hears itself has no partner.
    NotItself,
    /// Without carrier a member passes nothing.
    CarrierCounts,
}

#[cfg(not(test))]
pub(super) const fn holds(_: Rule) -> bool {
    true
}

#[cfg(test)]
pub(super) use super::model::holds;
