//! State that passes between the workers, which send and receive LLDP frames, the keeper, which owns the stations, and observers.

use super::pdu::Said;
use super::station::Neighbour;
use crate::budget::Budget;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

/// Frames of one cable that are read in a second: a neighbour sends one.
const READ_PER_SECOND: u32 = 8;
/// Frames of each cable that wait for the keeper.
const MOST_WAITING: usize = 8;

/// Frames of LLDP at one cable since the start.
#[derive(Debug, Default)]
pub struct Tally {
    said: AtomicU64,
    heard: AtomicU64,
    malformed: AtomicU64,
    flooded: AtomicU64,
}

impl Tally {
    /// Notes that a frame was sent.
    pub fn say(&self) {
        self.said.fetch_add(1, Relaxed);
    }

    /// Each count with its name.
    pub fn counts(&self) -> [(&'static str, u64); 4] {
        let Self { said, heard, malformed, flooded } = self;
        [("said", said), ("heard", heard), ("malformed", malformed), ("flooded", flooded)]
            .map(|(name, count)| (name, count.load(Relaxed)))
    }
}

/// Receives LLDP at one cable. Reads a limited number of frames a second, and only counts the others.
#[derive(Debug)]
pub struct Ear {
    budget: Budget,
    waiting: Vec<Said>,
    tally: Arc<Tally>,
}

impl Ear {
    /// An ear that has heard nothing.
    pub fn new(tally: Arc<Tally>, now: Instant) -> Self {
        Self { budget: Budget::full(READ_PER_SECOND, now), waiting: Vec::new(), tally }
    }

    /// Takes an LLDP frame. Returns whether the keeper has something to hear. A frame that waited for this process tells who was there, not
    /// who is.
    pub(crate) fn hear(&mut self, frame: &[u8], has_waited: bool, now: Instant) -> bool {
        self.tally.heard.fetch_add(1, Relaxed);
        if has_waited {
            return false;
        }
        // The frame is counted before it is read: a flood costs no more than this.
        if self.waiting.len() >= MOST_WAITING || !self.budget.take(now) {
            self.tally.flooded.fetch_add(1, Relaxed);
            return false;
        }
        match Said::decode(frame) {
            Ok(said) => self.waiting.push(said),
            Err(_) => _ = self.tally.malformed.fetch_add(1, Relaxed),
        }
        !self.waiting.is_empty()
    }

    /// The input since the last call.
    pub(crate) fn take(&mut self) -> Vec<Said> {
        std::mem::take(&mut self.waiting)
    }
}

/// One cable, for observers.
#[derive(Clone, Debug)]
pub struct Shown {
    /// The index of its port.
    pub index: u8,
    /// The member of a bundle that it is, if it is one.
    pub place: Option<u8>,
    /// The mode there: `off`, `send`, `listen`, `both`.
    pub manner: &'static str,
    /// Counts of frames there.
    pub tally: Arc<Tally>,
    /// The neighbours at its other end.
    pub neighbours: Vec<Arc<Neighbour>>,
}

/// A frame that announces that a switch leaves: for a port, or for a member of it.
pub(crate) type Farewell = (u8, Option<u8>, Vec<u8>);

/// Connects workers, keeper and observers.
#[derive(Debug, Default)]
pub struct Desk {
    /// Ports of one device that listen, by their indices.
    listens: [AtomicU64; 4],
    ears: Mutex<Vec<(u8, Ear)>>,
    shown: Mutex<Vec<Shown>>,
    /// The frames to send at the end; none: nothing is sent any more, or not yet.
    farewells: Mutex<Option<Vec<Farewell>>>,
}

impl Desk {
    /// Has ports of one device, by their indices, listen.
    pub fn listen(&self, ears: Vec<(u8, Ear)>) {
        let mut before = lock(&self.ears);
        for (index, _) in &ears {
            self.listens[usize::from(index >> 6)].fetch_or(1 << (index & 63), Relaxed);
        }
        *before = ears;
    }

    /// Whether a port of one device listens.
    pub(crate) fn listens(&self, index: u8) -> bool {
        self.listens[usize::from(index >> 6)].load(Relaxed) >> (index & 63) & 1 != 0
    }

    /// Takes an LLDP frame at a port of one device. Returns whether the keeper has something to hear.
    pub(crate) fn hear(&self, index: u8, frame: &[u8], has_waited: bool) -> bool {
        let mut ears = lock(&self.ears);
        let ear = ears.iter_mut().find(|(at, _)| *at == index);
        ear.is_some_and(|(_, ear)| ear.hear(frame, has_waited, Instant::now()))
    }

    /// The input at ports of one device since the last call.
    pub fn take_heard(&self) -> Vec<(u8, Said)> {
        let mut ears = lock(&self.ears);
        ears.iter_mut().flat_map(|(index, ear)| ear.take().into_iter().map(|said| (*index, said))).collect()
    }

    /// Shows the cables.
    pub fn show(&self, shown: Vec<Shown>) {
        *lock(&self.shown) = shown;
    }

    /// Shows the present neighbours at the other end of one of the cables.
    pub fn show_neighbours(&self, cable: usize, neighbours: Vec<Arc<Neighbour>>) {
        if let Some(shown) = lock(&self.shown).get_mut(cable) {
            shown.neighbours = neighbours;
        }
    }

    /// The cables, as they were last shown.
    pub fn shown(&self) -> Vec<Shown> {
        lock(&self.shown).clone()
    }

    /// Sets the frames to send at the end. Before that nothing is sent.
    pub fn set_farewells(&self, farewells: Vec<Farewell>) {
        *lock(&self.farewells) = Some(farewells);
    }

    /// Sends something, unless the end was announced.
    pub fn say(&self, say: impl FnOnce()) {
        let farewells = lock(&self.farewells);
        if farewells.is_some() {
            say();
        }
    }

    /// The frames to send now, at the end; nothing is sent after them.
    pub(crate) fn leave(&self) -> Vec<Farewell> {
        lock(&self.farewells).take().unwrap_or_default()
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::super::pdu::Own;
    use super::*;
    use fib::action::PortId;
    use std::time::Duration;

    fn frame() -> Vec<u8> {
        let (switch, device) = ("s9".to_owned(), "eth9".to_owned());
        let own = Own { switch, source: [2, 0, 0, 0, 0, 9], port: PortId(9), role: "trunk", device, address: None };
        own.encode(121, None)
    }

    fn counts(tally: &Tally) -> [u64; 4] {
        tally.counts().map(|(_, count)| count)
    }

    #[test]
    fn a_flood_is_counted_and_what_comes_after_it_is_heard() {
        let (tally, start) = (Arc::<Tally>::default(), Instant::now());
        let mut ear = Ear::new(Arc::clone(&tally), start);
        let n = (0..10_000).filter(|_| ear.hear(&frame(), false, start)).count();
        assert_eq!((n, ear.take().len(), counts(&tally)), (8, 8, [0, 10_000, 0, 9_992]));
        let wrong = [&frame()[..14], &[0xff; 40]].concat();
        let later = start + Duration::from_secs(1);
        assert!((0..1000).all(|_| !ear.hear(&wrong, false, later)));
        assert_eq!(counts(&tally), [0, 11_000, 8, 10_984]);
        let later = later + Duration::from_secs(1);
        assert!(!ear.hear(&frame(), true, later), "of before this process");
        assert!(ear.hear(&frame(), false, later));
        assert_eq!(ear.take()[0].name.as_deref(), Some("s9"));
        // The keeper does not look.
        let n = (0..100).filter(|i| ear.hear(&frame(), false, later + Duration::from_secs(*i))).count();
        assert_eq!((n, ear.take().len()), (MOST_WAITING, MOST_WAITING));
    }

    #[test]
    fn nothing_is_said_after_the_end() {
        let desk = Desk::default();
        let mut n = 0;
        desk.say(|| n += 1);
        desk.set_farewells(vec![(3, None, frame())]);
        desk.say(|| n += 10);
        assert_eq!(desk.leave().len(), 1);
        desk.say(|| n += 100);
        assert_eq!((n, desk.leave().len()), (10, 0));
    }

    #[test]
    fn only_ports_that_listen_hear() {
        let desk = Desk::default();
        assert!(!desk.listens(200) && !desk.hear(200, &frame(), false));
        desk.listen(vec![(200, Ear::new(Arc::default(), Instant::now()))]);
        assert!(desk.listens(200) && !desk.listens(72) && !desk.listens(8));
        assert!(desk.hear(200, &frame(), false) && !desk.hear(8, &frame(), false));
        assert_eq!(desk.take_heard().iter().map(|(index, _)| *index).collect::<Vec<_>>(), [200]);
    }
}
