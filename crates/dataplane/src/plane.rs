//! State that the workers read, and the control side changes while they run.
//!
//! A [`Plane`] is one published unit: the name field, the generation of the hasher, the exact tables and the action
//! table. A worker loads it once a burst (one `arc-swap` load) and uses it for the whole burst. So a FIB is never read
//! with the names, the hasher or the actions of another. The cells of the FIB and the entries of the exact tables
//! change in place, each through a publication of its own. Only the replacement of a whole table makes a new plane.
//!
//! Neighbours (IP address to MAC address) are separate, behind a lock: an index into the table of valid names. Only ARP,
//! ND and checks of IP sources take the lock; other frames never do. Workers do not see names of another kind than the FIB's, or texts, which frames do not carry. The replica
//! needs such names, and the [directory](crate::directory) answers for them.

mod names;

pub use names::{LocalNames, ValidNames};

use crate::asked::Asked;
use crate::counters::DropReason;
use crate::exact::{Addresses, Entries, ExactTable, ExactWriter};
use crate::groups::Groups;
use crate::kernel::Kernel;
use crate::learn::Learner;
use crate::links::Links;
use crate::neighbours::Neighbours;
use crate::parse::{FieldError, NameField};
use crate::share::Share;
use crate::table::FibTable;
use crate::tap::Taps;
use arc_swap::ArcSwap;
use fib::action::Action;
use fib::designs::Spec;
use fib::name::NameKind;
use fib::replica::{Meaning, Tables};
use lookup::hash::{Family, Hasher, SecretKey};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};

/// One published state. See the module.
pub struct Plane<T> {
    /// Counts the FIBs; 0 means that there is none.
    pub(crate) generation: u64,
    pub(crate) field: Result<NameField, DropReason>,
    /// One table for each worker, which takes it when it sees a new generation.
    pub(crate) tables: Arc<[Mutex<Option<T>>]>,
    pub(crate) valid: Arc<ExactTable>,
    pub(crate) local: Arc<ExactTable>,
    pub(crate) actions: Arc<[Action]>,
    /// The readers of the directory, if there is one.
    pub(crate) asked: Option<Arc<Asked>>,
    /// Whether every name is in the table of valid names, so that a missing one does not exist.
    pub(crate) valid_held: bool,
}

impl<T> Clone for Plane<T> {
    fn clone(&self) -> Self {
        Self {
            generation: self.generation,
            field: self.field,
            tables: self.tables.clone(),
            valid: self.valid.clone(),
            local: self.local.clone(),
            actions: self.actions.clone(),
            asked: self.asked.clone(),
            valid_held: self.valid_held,
        }
    }
}

/// The state that the workers and the control side share.
pub struct Shared<T> {
    pub(crate) plane: ArcSwap<Plane<T>>,
    pub(crate) neighbours: Neighbours,
    /// Which trunks are down, and the hellos that come and go.
    pub(crate) links: Arc<Links>,
    /// What the workers saw at ports that learn.
    pub(crate) learner: Arc<Learner>,
    /// The receivers of broadcasts and multicasts.
    pub(crate) groups: Arc<Groups>,
    /// Copies of frames for people who look.
    pub(crate) taps: Arc<Taps>,
    /// Counts changes of everything else that decides where a frame leaves. It is raised after the change took effect.
    epoch: AtomicU32,
    /// See [`crate::spread::flow`].
    pub(crate) spread_seed: u64,
}

impl<T> Shared<T> {
    /// Publishes a changed plane. There is one writer, so no change is lost between load and store.
    fn publish(&self, change: impl FnOnce(&mut Plane<T>)) {
        let mut plane = Plane::clone(&self.plane.load());
        change(&mut plane);
        self.plane.store(Arc::new(plane));
        self.changed();
    }

    /// Tells the workers that names may leave by other ports than before.
    fn changed(&self) {
        self.epoch.fetch_add(1, Ordering::Release);
    }

    /// The epoch of routes. Read it before the plane and anything in it: the port of exit found for a name is valid as
    /// long as the epoch stays the same. A change that takes effect in between makes a valid route look old, but never
    /// an old one look valid.
    #[inline]
    pub(crate) fn epoch(&self) -> u32 {
        self.epoch.load(Ordering::Acquire).wrapping_add(self.links.version())
    }
}

/// The other readers of the workers' table. There is one table, so it is in one place.
#[derive(Debug, Clone, Default)]
pub enum ShownTo {
    /// No readers: it is in memory of this process.
    #[default]
    Nobody,
    /// Other programs, in a file that they map.
    Programs(Share),
    /// The kernel, which forwards from trunks by it.
    Kernel(Arc<Kernel>),
}

impl ShownTo {
    /// The kernel, if it forwards.
    pub fn kernel(&self) -> Option<&Arc<Kernel>> {
        if let Self::Kernel(kernel) = self { Some(kernel) } else { None }
    }

    /// Where other programs find it, and the status of that, if they are to find it.
    pub fn share(&self) -> Option<&Share> {
        if let Self::Programs(share) = self { Some(share) } else { None }
    }
}

/// The control side of a data plane: the one writer of everything that workers read. A
/// [`Replica`](fib::replica::Replica) calls it for every message, and the workers see each change at once.
pub struct PlaneWriter<T = FibTable> {
    pub(crate) shared: Arc<Shared<T>>,
    n_workers: usize,
    fixed_offset: Option<usize>,
    /// Whether there are ports. Without any, the names need not be in frames.
    has_ports: bool,
    /// The number of readers that the directory has of each FIB.
    pub(crate) n_asking: usize,
    field_error: Option<FieldError>,
    shown_to: ShownTo,
    pub(crate) valid: ValidNames<T>,
    pub(crate) local: LocalNames<T>,
}

impl<T> PlaneWriter<T> {
    /// Makes a plane without a FIB, which drops everything, and its writer.
    pub(crate) fn new(
        n_workers: usize,
        fixed_offset: Option<usize>,
        has_ports: bool,
        neighbours: Neighbours,
        shown_to: ShownTo,
        groups: Groups,
        spread_seed: u64,
    ) -> (Arc<Shared<T>>, Self) {
        // Any key is right until there is a FIB.
        let (kind, hasher) = (NameKind::Mac, Hasher::new(Family::default(), &SecretKey::from_seed(0)));
        let valid = ExactWriter::new(kind, hasher.clone());
        let local = Entries::new(kind, hasher);
        neighbours.replace_hosts(Addresses::new(valid.table().clone()));
        let plane = Plane {
            generation: 0,
            field: Err(DropReason::NoFib),
            tables: Arc::from([]),
            valid: valid.table().clone(),
            local: local.table().clone(),
            actions: Arc::from([Action::Drop]),
            asked: None,
            valid_held: false,
        };
        let (plane, links, learner) = (ArcSwap::from_pointee(plane), Arc::default(), Arc::default());
        let (groups, taps) = (Arc::new(groups), Arc::default());
        let epoch = AtomicU32::new(1);
        let shared = Arc::new(Shared { plane, neighbours, links, learner, groups, taps, epoch, spread_seed });
        let kernel = shown_to.kernel().cloned();
        let writer = Self {
            shared: shared.clone(),
            n_workers,
            fixed_offset,
            has_ports,
            n_asking: 0,
            field_error: None,
            shown_to,
            valid: ValidNames::new(shared.clone(), valid),
            local: LocalNames::new(shared.clone(), local, kernel),
        };
        (shared, writer)
    }

    /// The number of workers that read this plane.
    pub fn n_workers(&self) -> usize {
        self.n_workers
    }

    /// Replaces the FIB. Its names are of `kind` and hashed by `hasher`; `table` is called once for each worker.
    pub fn set_table(&mut self, kind: NameKind, hasher: &Hasher, table: impl FnMut() -> T) {
        self.publish_table(kind, hasher, table, None);
    }

    fn publish_table(
        &mut self,
        kind: NameKind,
        hasher: &Hasher,
        mut table: impl FnMut() -> T,
        asked: Option<Arc<Asked>>,
    ) {
        let tables = (0..self.n_workers).map(|_| Mutex::new(Some(table()))).collect();
        let valid = self.valid.rekey(kind, hasher);
        let local = self.local.rekey(kind, hasher);
        let field = NameField::new(kind, self.fixed_offset);
        let unused = self.fixed_offset.filter(|_| !matches!(kind, NameKind::Fixed(_)));
        let error = field.err().or(unused.map(|offset| FieldError::OffsetUnused { kind, offset }));
        self.field_error = error.filter(|_| self.has_ports);
        if let Some(error) = self.field_error {
            tracing::error!("{error}");
        }
        self.shared.taps.set_field(field.ok());
        self.shared.publish(|plane| {
            plane.generation += 1;
            plane.field = field.map_err(|_| DropReason::NoField);
            plane.tables = tables;
            plane.valid = valid;
            plane.local = local;
            plane.asked = asked;
        });
    }

    /// The reason why names cannot be read from frames, or why the configured offset is not used.
    pub fn field_error(&self) -> Option<FieldError> {
        self.field_error
    }

    /// Readers of the table other than the workers, and the status of showing it.
    pub fn shown_to(&self) -> &ShownTo {
        &self.shown_to
    }

    /// Replaces the action table.
    pub fn set_actions(&mut self, actions: &[Action]) {
        self.shared.publish(|plane| plane.actions = actions.into());
    }

    /// The valid names, with their IP addresses.
    pub fn valid(&mut self) -> &mut ValidNames<T> {
        &mut self.valid
    }

    /// The local names, with their ports.
    pub fn local(&mut self) -> &mut LocalNames<T> {
        &mut self.local
    }
}

impl Tables for PlaneWriter<FibTable> {
    type Valid = ValidNames<FibTable>;
    type Local = LocalNames<FibTable>;

    fn valid(&mut self) -> &mut Self::Valid {
        &mut self.valid
    }

    fn local(&mut self) -> &mut Self::Local {
        &mut self.local
    }

    fn shared(&self) -> (&Self::Valid, &Self::Local) {
        (&self.valid, &self.local)
    }

    fn set_actions(&mut self, actions: &[Action]) {
        PlaneWriter::set_actions(self, actions);
    }

    fn valid_held(&mut self, held: bool) {
        self.shared.publish(|plane| plane.valid_held = held);
    }

    fn fib_changed(&mut self) {
        self.shared.changed();
    }

    fn show(&mut self, spec: &Spec, actions: Meaning<'_>, fib: &mut dyn fib::designs::Table) {
        match &mut self.shown_to {
            ShownTo::Nobody => {}
            ShownTo::Programs(share) => share.show(spec, actions, fib),
            ShownTo::Kernel(kernel) => kernel.show(spec, actions.actions, fib),
        }
    }

    fn show_actions(&mut self, actions: Meaning<'_>, fib: &mut dyn fib::designs::Table) {
        match &mut self.shown_to {
            ShownTo::Nobody => {}
            ShownTo::Programs(share) => share.show_actions(actions, fib),
            ShownTo::Kernel(kernel) => kernel.show_actions(actions.actions),
        }
    }

    fn fib_replaced(&mut self, kind: NameKind, hasher: &Hasher, fib: &dyn fib::designs::Table) {
        let readers = (0..self.n_asking).map(|_| fib.reader());
        let asked = (self.n_asking > 0).then(|| Arc::new(Asked::new(kind, hasher.clone(), readers)));
        self.publish_table(kind, hasher, || FibTable::new(kind, hasher.clone(), fib.reader()), asked);
    }
}
