//! Taps: copies of frames at the ports of the workers, with the fate of each, for people who look.
//!
//! ```text
//!  worker ─► frames as they came (Seen) ─► verdicts ─► chunk of records ─► ring of 64 ─► Reader (daemon::capture)
//!                                                           ▲                                │
//!                                                           └──────── empty chunks ◄─────────┘
//! ```
//! When off, which is the norm, a worker reads one word a poll, relaxed, and asks once a burst whether it has a tap.
//! When on, a frame is copied when it comes, because answers, translations and the gateway change it in place, and once more with
//! its verdict. Outgoing frames are copied before they are sent. Where only drops are wanted, other frames are not copied; a frame
//! that was changed before it was dropped is shown as it was then.
//!
//! Nothing waits for a reader: there are [`CHUNKS`] chunks of a worker, and when none is empty, frames are counted as
//! [lost](Reader::lost) and not copied. One set of rings serves all captures; each picks from the records what it wants.
//!
//! Limits: frames that the kernel forwards on its own ([`crate::kernel`]) are not seen. A frame that a port cannot send for its length is
//! told from its neighbours by that length. Frames that are under way when the tap is opened have a record only if they are
//! dropped or leave afterwards.

mod ends;
mod record;

pub use ends::Ends;
pub use record::{Direction, Record, Verdict, records};

use crate::bits::PortSet;
use crate::counters::DropReason;
use crate::parse::NameField;
use crate::port::Port;
use arrayvec::ArrayVec;
use fib::action::PortId;
use netio::{BURST, Burst, Counter};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The size at which a chunk goes to the reader. With [`CHUNKS`] of them, a worker holds 4 MiB: 3 ms of a port of
/// 10 Gbit/s, and a reader looks every 2 ms.
pub const CHUNK_BYTES: usize = 64 << 10;
/// Chunks of a worker.
pub const CHUNKS: usize = 64;
/// The number of polls after which a chunk that is not full goes to the reader: a busy worker is never idle, and its drops may be
/// rare.
const MOST_POLLS: u32 = 64;
/// Ports of a worker, by their indices.
const PORTS: usize = 256;

/// Which frames are to be copied, for all captures together.
#[derive(Clone, Copy, Debug, Default)]
pub struct Wanted {
    all: PortSet,
    drops: PortSet,
    snap_bytes: usize,
}

impl Wanted {
    /// Selects frames of the port with this index, or only those that are dropped there; and how many bytes of each.
    pub fn add(&mut self, index: u8, drops_only: bool, snap_bytes: usize) {
        if drops_only { &mut self.drops } else { &mut self.all }.insert(index);
        self.snap_bytes = self.snap_bytes.max(snap_bytes);
    }
}

/// Frames that a worker could not copy, by the indices of their ports: all, and those that were dropped.
type Lost = [[Counter; 2]; PORTS];

/// A worker's end of a ring.
#[derive(Debug)]
struct Ring {
    full: SyncSender<Vec<u8>>,
    empty: Receiver<Vec<u8>>,
    lost: Arc<Lost>,
}

/// Takes the records of one worker.
#[derive(Debug)]
pub struct Reader {
    full: Receiver<Vec<u8>>,
    empty: SyncSender<Vec<u8>>,
    lost: Arc<Lost>,
}

impl Reader {
    /// Takes a chunk of records, if one is there, and gives it back after `read`. Returns whether there was one.
    pub fn read(&self, read: impl FnOnce(&[u8])) -> bool {
        let Ok(mut chunk) = self.full.try_recv() else { return false };
        read(&chunk);
        chunk.clear();
        // There are as many places as chunks; a worker that has closed its end needs none.
        let _ = self.empty.try_send(chunk);
        true
    }

    /// Frames at the port with this index that could not be copied, or the dropped ones among them.
    pub fn lost(&self, index: u8, drops_only: bool) -> u64 {
        self.lost[usize::from(index)][usize::from(drops_only)].get()
    }
}

/// State shared by workers and readers.
#[derive(Debug, Default)]
pub struct Taps {
    /// Raised with every change of `state`.
    version: AtomicU32,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// None while the tap is closed.
    wanted: Option<Wanted>,
    /// The ends that workers have not taken yet.
    rings: Vec<Option<Ring>>,
    field: Option<NameField>,
}

impl Taps {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn change(&self, change: impl FnOnce(&mut State)) {
        change(&mut self.state());
        self.version.fetch_add(1, Ordering::Release);
    }

    /// Opens it: a reader for each worker. Workers that sleep see it with their next frame.
    pub fn open(&self, n_workers: usize, wanted: Wanted) -> Vec<Reader> {
        let (mut rings, mut readers) = (Vec::new(), Vec::new());
        for _ in 0..n_workers {
            let (full, is_full) = sync_channel(CHUNKS);
            let (empty, is_empty) = sync_channel(CHUNKS);
            for _ in 0..CHUNKS {
                // Unused memory is never touched.
                let _ = empty.try_send(Vec::with_capacity(CHUNK_BYTES + (CHUNK_BYTES >> 3)));
            }
            let lost: Arc<Lost> = Arc::new(std::array::from_fn(|_| Default::default()));
            rings.push(Some(Ring { full, empty: is_empty, lost: lost.clone() }));
            readers.push(Reader { full: is_full, empty, lost });
        }
        self.change(|state| (state.wanted, state.rings) = (Some(wanted), rings));
        readers
    }

    /// Has other frames copied from now on.
    pub fn set(&self, wanted: Wanted) {
        self.change(|state| state.wanted = Some(wanted));
    }

    /// Closes it. Workers give their memory back when they see it: wake them.
    pub fn close(&self) {
        self.change(|state| (state.wanted, state.rings) = (None, Vec::new()));
    }

    /// Where names are in frames, if there is a table and frames have its names.
    pub fn field(&self) -> Option<NameField> {
        self.state().field
    }

    pub(crate) fn set_field(&self, field: Option<NameField>) {
        self.state().field = field;
    }

    #[inline]
    pub(crate) fn version(&self) -> u32 {
        self.version.load(Ordering::Relaxed)
    }

    /// Brings the tap of a worker up to date.
    #[cold]
    pub(crate) fn refresh(&self, worker: usize, tap: &mut Option<Box<Tap>>) {
        let mut state = self.state();
        let Some(wanted) = state.wanted else {
            *tap = None;
            return;
        };
        if let Some(ring) = state.rings.get_mut(worker).and_then(Option::take) {
            *tap =
                Some(Box::new(Tap { ring, wanted, chunk: None, polls: 0, time_ns: None, exits: Some(Box::default()) }));
        }
        if let Some(tap) = tap {
            tap.wanted = wanted;
        }
    }
}

/// A frame that was seen before its verdict was known.
#[derive(Clone, Copy, Debug)]
enum Frame {
    /// It is not copied unless it is dropped.
    Passed,
    /// It is to be copied, but no chunk was empty.
    Lost {
        original_len: usize,
    },
    Copied {
        at: usize,
        len: usize,
        original_len: usize,
    },
}

/// The frames of a burst as they were before anything was done with them.
#[derive(Debug, Default)]
pub(crate) struct Seen {
    time_ns: u64,
    bytes: Vec<u8>,
    frames: ArrayVec<Frame, BURST>,
}

impl Seen {
    fn begin(&mut self, time_ns: u64) {
        self.time_ns = time_ns;
        self.bytes.clear();
        self.frames.clear();
    }

    fn copy(&mut self, frame: &[u8], snap_bytes: usize) {
        let (at, len) = (self.bytes.len(), frame.len().min(snap_bytes));
        self.bytes.extend_from_slice(&frame[..len]);
        self.frames.push(Frame::Copied { at, len, original_len: frame.len() });
    }

    /// Notes that nothing more is recorded of the `i`th frame.
    pub(crate) fn forget(&mut self, i: usize) {
        if let Some(frame) = self.frames.get_mut(i) {
            *frame = Frame::Passed;
        }
    }

    /// Forgets the frames `gone`, a bit each, as the burst does.
    pub(crate) fn remove(&mut self, gone: u32) {
        let mut i = 0;
        self.frames.retain(|_| {
            i += 1;
            gone >> (i - 1) & 1 == 0
        });
    }
}

/// A worker's tap.
#[derive(Debug)]
pub(crate) struct Tap {
    ring: Ring,
    wanted: Wanted,
    chunk: Option<Vec<u8>>,
    /// The number of polls since a chunk was handed over.
    polls: u32,
    /// The time of this poll, once it was needed: frames of a poll leave by many ports, a few by each.
    time_ns: Option<u64>,
    /// Frames that are about to leave by one port. Boxed, since it is taken out while verdicts are recorded.
    exits: Option<Box<Seen>>,
}

/// The position of a frame: the index and the number of its port, and whether it comes or goes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct At {
    index: u8,
    port: PortId,
    direction: Direction,
}

impl At {
    pub(crate) fn of_entry(index: usize, port: &Port) -> Self {
        Self { index: index as u8, port: port.id, direction: Direction::In }
    }
}

impl Tap {
    /// A burst came in by the port with this index.
    #[inline(never)]
    pub(crate) fn see(&mut self, seen: &mut Seen, index: usize, burst: &Burst) {
        seen.begin(self.time_ns());
        if !self.wanted.all.contains(index as u8) {
            return;
        }
        let has_room = self.has_room();
        for packet in burst {
            match has_room {
                true => seen.copy(packet.frame(), self.wanted.snap_bytes),
                false => seen.frames.push(Frame::Lost { original_len: packet.len() }),
            }
        }
    }

    /// Records the fate of the `i`th frame of a burst, which looks like `now`.
    #[inline(never)]
    pub(crate) fn tell(&mut self, seen: &Seen, i: usize, at: At, now: &[u8], verdict: Verdict) {
        let is_drop = matches!(verdict, Verdict::Dropped(_));
        match seen.frames.get(i) {
            Some(&Frame::Copied { at: start, len, original_len }) => {
                self.record(at, seen.time_ns, original_len, &seen.bytes[start..start + len], verdict);
            }
            Some(Frame::Lost { .. }) => self.lose(at.index, is_drop),
            Some(Frame::Passed) | None => {
                if is_drop && (self.wanted.drops.contains(at.index) || self.wanted.all.contains(at.index)) {
                    let len = now.len().min(self.wanted.snap_bytes);
                    self.record(at, seen.time_ns, now.len(), &now[..len], verdict);
                }
            }
        }
    }

    /// Copies the staged frames of a port, which are about to be sent.
    #[inline(never)]
    pub(crate) fn leave(&mut self, index: usize, port: &Port) {
        let Some(mut exits) = self.exits.take() else { return };
        exits.begin(self.time_ns());
        self.about_to_leave(index as u8, port, &mut exits);
        self.exits = Some(exits);
    }

    fn about_to_leave(&mut self, index: u8, port: &Port, exits: &mut Seen) {
        let (wants_all, wants_drops) = (self.wanted.all.contains(index), self.wanted.drops.contains(index));
        if !wants_all && !wants_drops {
            return;
        }
        let (longest, has_room) = (port.device.max_frame(), self.has_room());
        for packet in &port.staged {
            // A frame that is too long is gone before its refusal is known.
            match wants_all || packet.wire_len() > longest {
                true if has_room => exits.copy(packet.frame(), self.wanted.snap_bytes),
                true => exits.frames.push(Frame::Lost { original_len: packet.len() }),
                false => exits.frames.push(Frame::Passed),
            }
        }
    }

    /// Records that of these frames the port sent some, refused `n_refused` for good, and left the rest, for a reason.
    #[inline(never)]
    pub(crate) fn left(&mut self, index: usize, port: &Port, n_refused: usize, reason: DropReason) {
        let at = At { index: index as u8, port: port.id, direction: Direction::Out };
        let Some(exits) = self.exits.take() else { return };
        let n_taken = exits.frames.len().saturating_sub(port.staged.len());
        let refused = longest(&exits.frames[..n_taken], n_refused);
        for i in 0..n_taken {
            let is_refused = refused >> i & 1 != 0;
            self.tell(
                &exits,
                i,
                at,
                &[],
                if is_refused { Verdict::Dropped(DropReason::TxRefused) } else { Verdict::Sent },
            );
        }
        for (i, packet) in port.staged.iter().enumerate() {
            self.tell(&exits, n_taken + i, at, packet.frame(), Verdict::Dropped(reason));
        }
        self.exits = Some(exits);
    }

    fn time_ns(&mut self) -> u64 {
        *self.time_ns.get_or_insert_with(|| {
            let since = clock::date::now().duration_since(std::time::SystemTime::UNIX_EPOCH).unwrap_or_default();
            since.as_nanos() as u64
        })
    }

    /// To be called after each poll.
    #[inline]
    pub(crate) fn polled(&mut self) {
        self.polls += 1;
        self.time_ns = None;
        if self.polls >= MOST_POLLS {
            self.hand_over();
        }
    }

    fn has_room(&mut self) -> bool {
        if self.chunk.is_none() {
            self.chunk = self.ring.empty.try_recv().ok();
        }
        self.chunk.is_some()
    }

    fn lose(&mut self, index: u8, is_drop: bool) {
        let lost = &self.ring.lost[usize::from(index)];
        lost[0].add(1);
        lost[1].add(u64::from(is_drop));
    }

    fn record(&mut self, at: At, time_ns: u64, original_len: usize, bytes: &[u8], verdict: Verdict) {
        if !self.has_room() {
            return self.lose(at.index, matches!(verdict, Verdict::Dropped(_)));
        }
        let Some(chunk) = &mut self.chunk else { return };
        let At { index, port, direction } = at;
        Record { time_ns, index, port, direction, verdict, original_len: original_len as u32, bytes }.encode(chunk);
        if chunk.len() >= CHUNK_BYTES {
            self.hand_over();
        }
    }

    /// Gives the reader what was recorded. An idle worker does so at once.
    #[inline]
    pub(crate) fn hand_over(&mut self) {
        (self.polls, self.time_ns) = (0, None);
        if let Some(chunk) = self.chunk.take_if(|chunk| !chunk.is_empty()) {
            // There are as many places as chunks; without a reader the tap is closed soon.
            let _ = self.ring.full.try_send(chunk);
        }
    }
}

/// The `n` longest of the frames that were copied or were to be, as a bit each.
fn longest(frames: &[Frame], n: usize) -> u32 {
    let mut lens: ArrayVec<(usize, usize), BURST> = ArrayVec::new();
    if n > 0 {
        lens.extend(frames.iter().enumerate().filter_map(|(i, frame)| match *frame {
            Frame::Copied { original_len, .. } | Frame::Lost { original_len } => Some((original_len, i)),
            Frame::Passed => None,
        }));
        lens.sort_unstable_by(|a, b| b.cmp(a));
    }
    lens.iter().take(n).fold(0, |bits, &(_, i)| bits | 1 << i)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_refused_is_what_is_longest() {
        let copied = |original_len| Frame::Copied { at: 0, len: 0, original_len };
        let lost = Frame::Lost { original_len: 1650 };
        let frames = [copied(60), copied(1600), lost, copied(1514), copied(1700), Frame::Passed];
        assert_eq!(longest(&frames, 0), 0);
        assert_eq!(longest(&frames, 1), 0b10000);
        assert_eq!(longest(&frames, 2), 0b10100);
        assert_eq!(longest(&frames, 3), 0b10110);
        assert_eq!(longest(&frames, 9), 0b11111);
    }

    #[test]
    fn a_tap_without_an_empty_chunk_counts_what_it_cannot_copy_and_never_waits() {
        let (taps, mut tap) = (Taps::default(), None);
        let mut wanted = Wanted::default();
        wanted.add(3, false, 2000);
        let reader = taps.open(1, wanted).pop().unwrap();
        taps.refresh(0, &mut tap);
        let mut tap = tap.unwrap();
        let at = At { index: 3, port: PortId(7), direction: Direction::In };
        let (seen, frame) = (Seen::default(), [5; 2000]);
        let drop = Verdict::Dropped(DropReason::Alien);
        let n = 2 * CHUNKS * CHUNK_BYTES / frame.len();
        for _ in 0..n {
            tap.tell(&seen, 0, at, &frame, drop);
        }
        let lost = reader.lost(3, true);
        assert_eq!((reader.lost(3, false), reader.lost(4, false)), (lost, 0));
        let mut read = 0;
        while reader.read(|chunk| read += records(chunk).filter(|record| record.bytes == frame).count() as u64) {}
        assert!(lost > 0 && read + lost == n as u64, "{read} read, {lost} lost of {n}");
        // There is room again.
        tap.tell(&seen, 0, at, &frame, drop);
        tap.hand_over();
        assert!(reader.read(|chunk| assert_eq!(records(chunk).count(), 1)));
        assert_eq!(reader.lost(3, true), lost);
    }
}
