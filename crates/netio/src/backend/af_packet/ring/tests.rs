//! A ring in memory of this process, with a model of the kernel at its other end.

use super::*;
use proptest::prelude::*;
use std::cell::{Cell, RefCell};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::rc::Rc;

/// A ring in memory of this process, and the kernel's end of it, as `tpacket_rcv` has it.
struct Model {
    memory: NonNull<u8>,
    shape: Shape,
    head: Cell<usize>,
    next_frame: Cell<u32>,
    /// Of the frames in slots.
    accepted: RefCell<Vec<u32>>,
    dropped: Cell<u32>,
}

impl Model {
    fn new(n_frames: usize) -> Self {
        let shape = Shape::new(n_frames, 1518);
        // SAFETY: a private mapping of memory that no one else has.
        let memory = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                shape.bytes(),
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
                -1,
                0,
            )
        };
        assert_ne!(memory, libc::MAP_FAILED);
        let model = Self {
            memory: NonNull::new(memory.cast()).unwrap(),
            shape,
            head: Cell::new(0),
            next_frame: Cell::new(0),
            accepted: RefCell::default(),
            dropped: Cell::new(0),
        };
        let ring = model.reader();
        for (word, value) in [(2, VERSION), (3, shape.slot_bytes as u32), (4, shape.n_slots as u32)] {
            ring.noted(word).store(value, Ordering::Relaxed);
        }
        Model::let_go(ring);
        model
    }

    /// A reader of the ring that does not know its place. It must be let go.
    fn reader(&self) -> Ring {
        Ring { memory: self.memory, shape: self.shape, next: 0 }
    }

    /// The reader ends, and the ring stays.
    fn let_go(reader: Ring) {
        std::mem::forget(reader);
    }

    fn successor(&self) -> Ring {
        let mut ring = self.reader();
        ring.resume().unwrap();
        ring
    }

    /// The kernel receives a frame with the next number in it.
    fn receive(&self) {
        let slot = self.shape.slot_at(self.head.get());
        // SAFETY: a slot of the mapping; the test has one thread.
        unsafe {
            let slot = self.memory.as_ptr().add(slot);
            let status = AtomicU32::from_ptr(slot.cast());
            if status.load(Ordering::Relaxed) != 0 {
                self.dropped.update(|n| n + 1);
            } else {
                let mut header = slot.cast::<libc::tpacket2_hdr>().read();
                (header.tp_len, header.tp_snaplen, header.tp_mac) = (60, 60, 80);
                slot.cast::<libc::tpacket2_hdr>().write(header);
                slot.add(80).cast::<[u8; 4]>().write(self.next_frame.get().to_be_bytes());
                status.store(libc::TP_STATUS_USER, Ordering::Relaxed);
                self.head.update(|head| (head + 1) % self.shape.n_slots);
                self.accepted.borrow_mut().push(self.next_frame.get());
            }
        }
        self.next_frame.update(|n| n + 1);
    }

    /// The numbers of the frames that wait, at most `n`.
    fn waiting(ring: &Ring, n: usize) -> Vec<u32> {
        let number = |slot: Slot<'_>| u32::from_be_bytes(slot.bytes[..4].try_into().unwrap());
        (0..n).map_while(|ahead| ring.peek(ahead).map(number)).collect()
    }

    /// As [`Model::waiting`], and they are taken.
    fn take(ring: &mut Ring, n: usize) -> Vec<u32> {
        let taken = Self::waiting(ring, n);
        ring.release(taken.len());
        taken
    }
}

/// Steps of [`Ring::release`] before the note that frames are taken.
const STEPS_UNTIL_NOTED: usize = 1;

thread_local! {
    /// What happens before each store that others see.
    static BEFORE_STEP: RefCell<Option<Box<dyn FnMut()>>> = const { RefCell::new(None) };
}

pub(super) fn before_step() {
    BEFORE_STEP.with_borrow_mut(|hook| {
        if let Some(hook) = hook {
            hook();
        }
    });
}

/// Whether `work` was killed: before its store number `step`, the first of which is 0. Before each store `n_a_step` frames come.
fn killed_at(step: usize, n_a_step: usize, model: &Rc<Model>, work: impl FnOnce()) -> bool {
    struct Killed;
    let (model, mut steps) = (Rc::clone(model), 0);
    let hook = move || {
        (0..n_a_step).for_each(|_| model.receive());
        if steps == step {
            resume_unwind(Box::new(Killed));
        }
        steps += 1;
    };
    BEFORE_STEP.set(Some(Box::new(hook)));
    let ended = catch_unwind(AssertUnwindSafe(work));
    BEFORE_STEP.set(None);
    match ended {
        Ok(()) => false,
        Err(cause) if cause.is::<Killed>() => true,
        Err(cause) => resume_unwind(cause),
    }
}

impl Drop for Model {
    fn drop(&mut self) {
        // SAFETY: what was mapped above, and all readers are gone.
        unsafe { libc::munmap(self.memory.as_ptr().cast(), self.shape.bytes()) };
    }
}

#[test]
fn a_slot_has_room_for_the_longest_frame_and_what_the_kernel_puts_before_it() {
    for max_frame in [60, 1518, 1522, 1900, 2000, 9018, 64_000, crate::MAX_FRAME_LIMIT] {
        let shape = Shape::new(100, max_frame);
        assert!(shape.slot_bytes >= max_frame + libc::TPACKET2_HDRLEN + HEADER_BYTES + 32, "{max_frame}");
        assert!(shape.slot_bytes.is_multiple_of(size_of::<libc::tpacket2_hdr>()), "a header is in one cache line");
        assert!(shape.slots_a_block.is_power_of_two() && shape.n_slots >= 100);
        // The kernel divides a block by slots without remainder itself, and wants exactly that many.
        assert_eq!(shape.block_bytes / shape.slot_bytes, shape.slots_a_block);
        let end = shape.slot_at(shape.n_slots - 1) + shape.slot_bytes;
        assert!(end <= shape.note_at(), "no slot is where the place is noted");
    }
    assert_eq!(Shape::new(1024, 1522).bytes(), 1024 * 2048);
}

#[test]
fn a_successor_finds_its_place_in_an_empty_ring_wherever_that_is() {
    let model = Model::new(64);
    for n in [0, 1, 31, 32, 33, 63, 64, 7] {
        let mut ring = model.successor();
        (0..n).for_each(|_| model.receive());
        assert_eq!(Model::take(&mut ring, n).len(), n);
        Model::let_go(ring);
        let mut ring = model.successor();
        assert!(!ring.is_ready());
        let first = model.next_frame.get();
        model.receive();
        assert_eq!(Model::take(&mut ring, 9), [first]);
        Model::let_go(ring);
    }
}

#[test]
fn a_successor_finds_its_place_in_a_full_ring_and_what_came_later_is_lost() {
    let model = Model::new(64);
    let mut ring = model.successor();
    (0..40).for_each(|_| model.receive());
    Model::take(&mut ring, 40);
    Model::let_go(ring);
    (0..100).for_each(|_| model.receive());
    let mut ring = model.successor();
    assert_eq!(Model::take(&mut ring, 200), (40..104).collect::<Vec<_>>());
    assert_eq!((model.dropped.get(), Model::take(&mut ring, 200)), (36, vec![]));
    model.receive();
    assert_eq!(Model::take(&mut ring, 200), [140]);
    Model::let_go(ring);
}

#[test]
fn frames_that_were_copied_and_not_noted_are_the_successor_s() {
    let model = Model::new(64);
    let ring = model.successor();
    (0..5).for_each(|_| model.receive());
    assert_eq!(Model::waiting(&ring, 32), [0, 1, 2, 3, 4]);
    Model::let_go(ring);
    let mut ring = model.successor();
    assert_eq!(Model::take(&mut ring, 32), [0, 1, 2, 3, 4]);
    Model::let_go(ring);
}

#[test]
fn what_was_taken_and_not_given_back_is_given_back_by_the_successor_and_not_read_again() {
    for given_back in 0..=5 {
        let model = Rc::new(Model::new(64));
        let mut ring = model.successor();
        // Over the end of the ring.
        (0..61).for_each(|_| model.receive());
        Model::take(&mut ring, 61);
        (0..8).for_each(|_| model.receive());
        // It is killed in the middle of `release(5)`.
        assert!(killed_at(2 + given_back, 0, &model, || ring.release(5)));
        Model::let_go(ring);
        let mut ring = model.successor();
        assert_eq!(Model::take(&mut ring, 32), [66, 67, 68]);
        (0..64).for_each(|_| model.receive());
        assert_eq!(Model::take(&mut ring, 64).len(), 64, "every slot is the kernel's again");
        assert_eq!(model.dropped.get(), 0);
        Model::let_go(ring);
    }
}

#[test]
fn a_ring_that_says_what_cannot_be_is_not_taken_over() {
    let model = Model::new(64);
    let wrong = |word: usize, value: u32| {
        let mut ring = model.reader();
        let was = ring.noted(word).swap(value, Ordering::Relaxed);
        let refused = ring.resume().unwrap_err();
        ring.noted(word).store(was, Ordering::Relaxed);
        Model::let_go(ring);
        refused
    };
    assert!(matches!(wrong(2, 0), Misfit::Version), "a ring that nobody noted anything in");
    assert!(matches!(wrong(3, 2048), Misfit::Sizes));
    assert!(matches!(wrong(4, 128), Misfit::Sizes));
    for (next, taken) in [(64, 0), (0, 65), (u32::MAX, u32::MAX)] {
        let mut ring = model.reader();
        ring.note(Place { next, taken });
        assert!(matches!(ring.resume(), Err(Misfit::Place)), "{next} {taken}");
        Model::let_go(ring);
    }
}

proptest! {
    /// Whatever comes and is taken, and however often the reader is another, each frame is taken once and in order.
    #[test]
    fn each_frame_is_taken_once_and_in_order_over_any_number_of_readers(
        steps in prop::collection::vec((0_usize..70, 0_usize..70, any::<bool>()), 1..60),
    ) {
        let model = Model::new(64);
        let mut ring = model.successor();
        let (mut taken, mut lost) = (Vec::new(), 0);
        for (n_come, n_taken, ends) in steps {
            for _ in 0..n_come {
                model.receive();
            }
            taken.extend(Model::take(&mut ring, n_taken));
            if ends {
                Model::let_go(ring);
                ring = model.successor();
            }
            lost = model.dropped.get();
        }
        taken.extend(Model::take(&mut ring, 64));
        Model::let_go(ring);
        prop_assert!(taken.is_sorted_by(|a, b| a < b));
        prop_assert_eq!(taken.len() as u32 + lost, model.next_frame.get());
    }

    /// Whatever comes and is taken, and wherever readers and those after them are killed, each frame is read once and in order, or
    /// was in the hands of a reader that was killed, or is one that the kernel counts; and the ring works on.
    #[test]
    fn each_frame_is_read_once_and_in_order_wherever_readers_are_killed(
        rounds in prop::collection::vec(
            (0_usize..70, 0_usize..40, 0_usize..50, 0_usize..4, prop::collection::vec(0_usize..40, 0..3), 0_usize..70), 1..40),
    ) {
        let model = Rc::new(Model::new(32));
        let mut ring = model.successor();
        // What was read, or was in hand when a reader was killed.
        let mut gone = Vec::new();
        for (n_come, n_taken, step, n_a_step, heirs, n_while_away) in rounds {
            (0..n_come).for_each(|_| model.receive());
            let burst = Model::waiting(&ring, n_taken);
            if killed_at(step, n_a_step, &model, || ring.release(burst.len())) {
                // Before the note it has taken none of them, and after it all.
                if step > STEPS_UNTIL_NOTED {
                    gone.extend(&burst);
                }
                Model::let_go(ring);
                (0..n_while_away).for_each(|_| model.receive());
                for step in heirs {
                    let mut heir = model.reader();
                    killed_at(step, n_a_step, &model, || heir.resume().unwrap());
                    Model::let_go(heir);
                }
                ring = model.successor();
            } else {
                gone.extend(&burst);
            }
            prop_assert_eq!(&gone[..], &model.accepted.borrow()[..gone.len()]);
        }
        gone.extend(Model::take(&mut ring, 32));
        prop_assert_eq!(&gone[..], &model.accepted.borrow()[..]);
        prop_assert_eq!(gone.len() as u32 + model.dropped.get(), model.next_frame.get());
        // It is empty: each of as many as it holds is readable at once, and one more is not.
        for n in 1..=32 {
            model.receive();
            prop_assert_eq!(Model::waiting(&ring, 64).len(), n);
        }
        prop_assert_eq!(Model::take(&mut ring, 64).len(), 32);
        model.receive();
        prop_assert_eq!(Model::take(&mut ring, 64), [model.next_frame.get() - 1]);
        Model::let_go(ring);
    }
}
