//! Time in a flow table: a monotonic count of units; entries keep the low 16 bits of their end.
//!
//! A 16-bit end is ambiguous after 2^16 units. Ends are at most [`WINDOW`] ahead, so an expired entry may stay for
//! `2^16 - WINDOW` units before its end looks like a future one. The scan therefore visits every bucket within that
//! time. If the caller falls behind, the clock is **held** instead: entries then live longer than asked, but none
//! revives. A clock that goes back a little is waited for; one that goes back by more than [`GUARD`] units was set, and
//! time continues from there. A step of more than a window ends all entries, so it counts as one window, and needs no
//! scan at once.
//!
//! Source: Le Scouarnec, "Cuckoo++ Hash Tables", section 4.2. Differs: the window is 2^14 units, not 2^10; the paper
//! leaves the scan's deadline, and the clock, to the user.

/// How far ahead of the clock a timer may end, in units: longer lives for entries, but a tighter deadline for scans.
pub(super) const WINDOW: u16 = 1 << 14;
/// Units between the longest lifetime and the window, and those by which a caller's clock may go back.
const GUARD: u16 = 64;
/// The longest lifetime of an entry, in units: 4.5 hours in units of a second, 5.6 days in units of 30 s.
pub const MAX_LIFETIME: u16 = WINDOW - GUARD;
/// Units that the clock may advance after a scan began, whatever the caller does.
const LEASE: u64 = (1 << 16) - WINDOW as u64;

/// The result of a step of the clock.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Step {
    /// The clock equals the caller's.
    Exact,
    /// The caller's clock is this many units behind its latest time: time stops until it catches up, or continues from
    /// there if it was set back by much.
    Back(u64),
    /// The scan is behind, so the clock was held back by this many units. Continue the scan.
    Held(u64),
}

/// The clock of a table.
#[derive(Clone, Debug)]
pub(super) struct Clock {
    /// The caller's latest time.
    caller: u64,
    /// The table's time; entries keep its low bits.
    now: u64,
    /// When the latest complete scan began: no entry that ended by then is still stored.
    clean: u64,
    /// When the current scan began.
    began: u64,
}

impl Clock {
    pub(super) fn new(caller: u64) -> Self {
        Self { caller, now: 0, clean: 0, began: 0 }
    }

    /// The time that entries are compared with.
    #[inline(always)]
    pub(super) fn low(&self) -> u16 {
        self.now as u16
    }

    pub(super) fn caller(&self) -> u64 {
        self.caller
    }

    /// The end of a timer that starts now.
    #[inline(always)]
    pub(super) fn end(&self, lifetime: u16) -> u16 {
        self.low().wrapping_add(lifetime)
    }

    pub(super) fn advance(&mut self, caller: u64) -> Step {
        let Some(step) = caller.checked_sub(self.caller) else {
            let back = self.caller - caller;
            if back > u64::from(GUARD) {
                self.caller = caller;
            }
            return Step::Back(back);
        };
        self.caller = caller;
        let wanted = self.now + step.min(u64::from(WINDOW));
        self.now = wanted.min(self.clean + LEASE);
        match wanted - self.now {
            0 => Step::Exact,
            held => Step::Held(held),
        }
    }

    /// Units until the clock must be held, unless a scan completes before.
    pub(super) fn left(&self) -> u64 {
        self.clean + LEASE - self.now
    }

    /// Restarts the scan: what was visited so far is void.
    pub(super) fn scan_begins(&mut self) {
        self.began = self.now;
    }

    /// Every bucket was visited since the scan began; the next begins.
    pub(super) fn scan_is_complete(&mut self) {
        self.clean = self.began;
        self.began = self.now;
    }
}
