//! The kernel half of a switch: a program before the sockets of trunks that forwards frames to other trunks and to hosts by
//! the switch's own table. Frames that it does not decide come to the workers, as with AF_XDP: `forward.bpf.c`.
//!
//! ```text
//!  replica ─► table in an arena of BPF ◄─ workers
//!                     ▲
//!  trunk ─► program ──┴─► lead of the value ─┬──────────────────► devmap ─► another trunk
//!              │                             └─► map of local names ─┴────► the host that has the name
//!              └─► AF_XDP ─► worker
//! ```
//! **Exact at hosts.** A frame leaves for a host only if the exact map of local names has its name at that very port: the check
//! that the workers make. Frames from hosts go to the workers (`docs/decisions/0021-kernel-half.md` says why).
//!
//! **Ports that take frames.** An interface may not take frames that a program sends there, and then loses them without a
//! count, if the program is in a driver. The kernel reports which do ([`netio::takers`]); the workers send to the others.
//!
//! **One table.** The arena of the table is memory that the kernel shares with this process: a BPF arena, or, before Linux
//! 6.9, the one value of an array. The writer treats the program as every reader outside
//! (`docs/formats/table-in-memory.md`): it waits for none, and the program notices that it was overtaken. After four
//! attempts a frame goes to the workers.
//!
//! **When the table is replaced**, maps and programs are made anew, and each trunk's link takes the new program by one system
//! call. Until a table can be read in the kernel, trunks forward as with AF_XDP; [`Kernel::status`] says why.
//!
//! Names: MAC addresses and IPv4 addresses, hashed by muladd. Designs: those that other programs can read. Without connection
//! tracking, which must see every frame.

mod local;
mod moved;
mod settings;

use fib::action::{Action, PortId};
use fib::designs::{Spec, Table};
use fib::name::{Name, NameKind};
use local::Local;
use lookup::traits::ShareError;
use moved::InKernel;
use netio::DeviceSnapshot;
use netio::backend::af_xdp::{Ahead, Attached};
use netio::bpf::{Map, Program, Words};
use netio::takers::Takers;
use std::io;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

/// Words of the counters of a port.
const COUNTS: usize = 4;

/// Why the kernel does not forward.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum KernelError {
    /// The kernel has no such maps for this process.
    #[error(
        "the kernel makes no maps for a program: {0}; run as root or with CAP_BPF, CAP_NET_ADMIN and CAP_PERFMON, on Linux 5.9 or later"
    )]
    Maps(#[source] io::Error),
    /// The table cannot be moved to where programs read it.
    #[error("design {design}: {source}")]
    Table {
        /// Its design.
        design: &'static str,
        /// Why.
        source: ShareError,
    },
    /// The program does not read such names.
    #[error(
        "the program in the kernel reads mac and ipv4 names with --hash muladd, but these are {kind} with {family}"
    )]
    Names {
        /// The kind of the names.
        kind: NameKind,
        /// How they are hashed.
        family: String,
    },
    /// The program is refused.
    #[error("the kernel does not load the program for port {port}: {source}")]
    Program {
        /// The trunk.
        port: PortId,
        /// Why.
        source: netio::bpf::LoadError,
    },
    /// The map of local names may have a name at a former port.
    #[error(
        "the map of local names was not changed: {source}; it is emptied with the next table, or when the switch is restarted"
    )]
    Local {
        /// Why.
        source: io::Error,
    },
    /// The program is not attached.
    #[error("the program cannot be attached at port {port}: {source}")]
    Attach {
        /// The trunk.
        port: PortId,
        /// Why.
        source: io::Error,
    },
}

/// A port that the kernel may send frames to, and, if it is a trunk, whose frames it forwards.
#[derive(Debug)]
struct Exit {
    id: PortId,
    attached: Weak<Attached>,
    /// The program attached there, unless everything is handed on.
    program: Option<Program>,
    /// Whether its device works.
    is_up: bool,
    /// Whether its link carries frames.
    is_linked: bool,
    /// Whether its interface takes frames that a program in a driver sends there.
    takes: bool,
}

impl Exit {
    /// Whether frames may be sent there.
    fn is_open(&self) -> bool {
        self.is_up && self.is_linked
    }

    fn is_there(&self) -> bool {
        self.attached.strong_count() > 0
    }
}

#[derive(Debug)]
struct State {
    /// The ports by slot.
    exits: Vec<Exit>,
    table: Option<InKernel>,
    actions: Vec<Action>,
    error: Option<String>,
}

/// The kinds of memory for a table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Memory {
    /// In an arena where the kernel has them, otherwise in an array.
    Best,
    /// In an array, as before Linux 6.9.
    Array,
}

/// The kernel half of one switch. See the module.
#[derive(Debug)]
pub struct Kernel {
    memory: Memory,
    /// The program to use instead of the one for the memory.
    program: Option<Vec<u8>>,
    /// By slot: the trunks, and then the hosts.
    ports: Vec<PortId>,
    n_trunks: usize,
    counts: Map,
    longest: Map,
    longest_words: Words,
    /// Maps for programs in a driver, which cannot send to every interface, and for those in front of the stack.
    interfaces: [Map; 2],
    local: Local,
    takers: Mutex<Option<Takers>>,
    state: Mutex<State>,
}

/// The status of the kernel half.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KernelStatus {
    /// Where the table is: `arena` or `array`. None if the kernel does not forward.
    pub memory: Option<&'static str>,
    /// Why it does not, if the reason is not just that there is no table yet.
    pub error: Option<String>,
    /// Frames that it sent, from trunks to other trunks and to hosts.
    pub forwarded: u64,
    /// Ports that take none of them, so that the workers send.
    pub not_taking: Vec<PortId>,
}

/// The place of a port in a [`Kernel`], which its device reports to when its interface is there.
#[derive(Debug)]
pub struct Place {
    kernel: Arc<Kernel>,
    slot: u32,
}

impl Ahead for Place {
    fn attached(&self, to: &Arc<Attached>) {
        self.kernel.attached(self.slot, to);
    }
}

impl Kernel {
    /// A kernel half for these trunks and host ports; none of them is there yet.
    /// # Errors
    /// [`KernelError::Maps`].
    pub fn new(trunks: &[PortId], hosts: &[PortId], memory: Memory) -> Result<Arc<Self>, KernelError> {
        Self::with_program(trunks, hosts, memory, None)
    }

    /// As [`Kernel::new`], with another program, as `scripts/kernel-program` makes it: for tests of tests.
    /// # Errors
    /// [`KernelError::Maps`].
    pub fn with_program(
        trunks: &[PortId],
        hosts: &[PortId],
        memory: Memory,
        program: Option<Vec<u8>>,
    ) -> Result<Arc<Self>, KernelError> {
        let ports = [trunks, hosts].concat();
        let n = ports.len() as u32;
        let exit = |&id| Exit { id, attached: Weak::new(), program: None, is_up: true, is_linked: true, takes: true };
        let exits = ports.iter().map(exit).collect();
        let takers = Takers::open().unwrap_or_else(|error| {
            tracing::warn!("the kernel does not say which ports accept its frames, so all are tried: {error}");
            None
        });
        let interfaces = || Map::interfaces(n).map_err(KernelError::Maps);
        let longest = Map::array(8, n).map_err(KernelError::Maps)?;
        Ok(Arc::new(Self {
            memory,
            program,
            ports,
            n_trunks: trunks.len(),
            counts: Map::per_cpu(COUNTS * 8, n).map_err(KernelError::Maps)?,
            longest_words: longest.words().map_err(KernelError::Maps)?,
            longest,
            interfaces: [interfaces()?, interfaces()?],
            local: Local::new().map_err(KernelError::Maps)?,
            takers: Mutex::new(takers),
            state: Mutex::new(State { exits, table: None, actions: Vec::new(), error: None }),
        }))
    }

    /// The setup for opening a port's device. None for another port.
    pub fn place(self: &Arc<Self>, id: PortId) -> Option<Arc<Place>> {
        let slot = self.slot(id)?;
        Some(Arc::new(Place { kernel: self.clone(), slot }))
    }

    fn slot(&self, id: PortId) -> Option<u32> {
        self.ports.iter().position(|&port| port == id).map(|slot| slot as u32)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn attached(&self, slot: u32, to: &Arc<Attached>) {
        let takes = self.takes(to);
        self.longest_words[slot as usize].store(to.longest() as u64, Ordering::Relaxed);
        let mut state = self.state();
        let exit = &mut state.exits[slot as usize];
        (exit.attached, exit.takes) = (Arc::downgrade(to), takes);
        self.set_interface(slot, exit);
        if slot as usize >= self.n_trunks {
            return;
        }
        let loaded = state.table.as_ref().map(|table| self.load(table, slot, to)).transpose();
        match loaded {
            Ok(program) => state.exits[slot as usize].program = program,
            Err(error) => self.failed(&mut state, &error),
        }
    }

    /// Whether an interface takes frames that a program in a driver sends there. An interface that is gone takes none.
    fn takes(&self, to: &Attached) -> bool {
        let mut takers = self.takers.lock().unwrap_or_else(PoisonError::into_inner);
        let said = takers.as_mut().map(|takers| takers.takes(to.ifindex()));
        said.is_none_or(|said| said.inspect_err(|error| tracing::debug!("what a port takes: {error}")).unwrap_or(false))
    }

    /// Has the program send frames to a port, or leave them to the workers.
    fn set_interface(&self, slot: u32, exit: &Exit) {
        let attached = exit.attached.upgrade().filter(|_| exit.is_open());
        for (interfaces, takes) in self.interfaces.iter().zip([exit.takes, true]) {
            let done = match attached.as_ref().filter(|_| takes) {
                Some(attached) => interfaces.set(slot, &attached.ifindex().to_ne_bytes()),
                None => interfaces.remove(slot),
            };
            if let Err(error) = done {
                tracing::warn!(port = %exit.id, "the kernel was not informed of the port: {error}");
            }
        }
    }

    /// Checks a port again: whether its device works now, and whether its interface takes frames. If not, these go by
    /// other ways, if there are any, and to the workers, which take alternates and count.
    pub fn look_at(&self, id: PortId, is_up: bool) {
        let Some(slot) = self.slot(id) else { return };
        let attached = self.state().exits[slot as usize].attached.upgrade();
        let takes = attached.is_some_and(|attached| self.takes(&attached));
        self.set(slot, |exit| (exit.is_up, exit.takes) = (is_up, takes));
    }

    /// Has the kernel send frames to a trunk, or not while its link carries none.
    pub fn set_linked(&self, id: PortId, is_linked: bool) {
        if let Some(slot) = self.slot(id) {
            self.set(slot, |exit| exit.is_linked = is_linked);
        }
    }

    fn set(&self, slot: u32, set: impl FnOnce(&mut Exit)) {
        let mut state = self.state();
        let exit = &mut state.exits[slot as usize];
        let (was_open, took) = (exit.is_open(), exit.takes);
        set(exit);
        let is_open = exit.is_open();
        if (is_open, exit.takes) != (was_open, took) || !exit.is_there() {
            self.set_interface(slot, exit);
        }
        if let Some(table) = state.table.as_ref().filter(|_| is_open != was_open) {
            self.lead(&table.leads_words, &state.actions, &state.exits);
        }
    }

    /// Notes that a name has its host at a port of this switch, or at none, if there is no port.
    pub fn put_local(&self, name: &Name, port: Option<PortId>) {
        let put = self.local.put(name, port.and_then(|port| self.host_slot(port)));
        self.check_local(put);
    }

    /// Replaces the local names; `port_of` knows the port of each. To be called before new ones are put.
    pub fn put_local_again(&self, port_of: impl Fn(&Name) -> Option<PortId>) {
        let put = self.local.put_again(|name| port_of(name).and_then(|port| self.host_slot(port)));
        self.check_local(put);
    }

    /// Whether all local names are to be put, because frames have names of another kind than before. True only once.
    pub fn lacks_local(&self) -> bool {
        self.local.lacks_names()
    }

    fn host_slot(&self, id: PortId) -> Option<u32> {
        self.slot(id).filter(|&slot| slot as usize >= self.n_trunks)
    }

    /// Stops all programs from using a wrong entry.
    fn check_local(&self, put: io::Result<()>) {
        if let Err(source) = put {
            self.local.failed();
            self.failed(&mut self.state(), &KernelError::Local { source });
        }
    }

    /// Stops all trunks from using a former table.
    fn detach(&self, state: &mut State) {
        for trunk in &mut state.exits[..self.n_trunks] {
            trunk.program = None;
            if let Some(Err(error)) = trunk.attached.upgrade().map(|attached| attached.replace(None)) {
                tracing::error!(port = %trunk.id, "frames may be forwarded by an old table: {error}; restart the switch");
            }
        }
    }

    fn failed(&self, state: &mut State, error: &KernelError) {
        tracing::warn!("the kernel does not forward, so the workers do: {error}");
        self.detach(state);
        (state.table, state.error) = (None, Some(error.to_string()));
    }

    /// Moves a table that has no reader yet to where the kernel reads it, and has it forward by it. Errors are
    /// logged, and shown by the status; the workers forward then.
    pub fn show(&self, spec: &Spec, actions: &[Action], fib: &mut dyn Table) {
        if !self.local.is_of(spec.kind) {
            // Programs leave everything to the workers until they read names of this kind.
            self.detach(&mut self.state());
            self.check_local(self.local.begin(spec.kind));
            if !self.local.is_of(spec.kind) {
                return;
            }
        }
        let mut state = self.state();
        state.actions = actions.to_vec();
        let shown = self.move_table(spec, actions, fib, &state).and_then(|table| {
            for (slot, trunk) in (0..).zip(&mut state.exits[..self.n_trunks]) {
                if let Some(attached) = trunk.attached.upgrade() {
                    trunk.program = Some(self.load(&table, slot, &attached)?);
                }
            }
            Ok(table)
        });
        match shown {
            // The former table is freed: no program reads it any more.
            Ok(table) => (state.table, state.error) = (Some(table), None),
            Err(error) => self.failed(&mut state, &error),
        }
    }

    /// Notes that the actions of the table changed.
    pub fn show_actions(&self, actions: &[Action]) {
        let mut state = self.state();
        state.actions = actions.to_vec();
        if let Some(table) = &state.table {
            self.lead(&table.leads_words, actions, &state.exits);
        }
    }

    /// Runs the program of a trunk over a frame `repeat` times, as if it had come there each time: the last verdict, the
    /// frame afterwards, and nanoseconds a run. Frames are counted, and not sent. None if there is no program.
    /// # Errors
    /// The error of the operating system.
    pub fn try_frame(&self, id: PortId, frame: &[u8], repeat: u32) -> io::Result<Option<(u32, Vec<u8>, u32)>> {
        let state = self.state();
        let program = state.exits.iter().find(|trunk| trunk.id == id).and_then(|trunk| trunk.program.as_ref());
        program.map(|program| program.run(frame, repeat)).transpose()
    }

    /// Has a program find another name's port for a name, as one reads it whose entry was removed and its memory used again:
    /// for tests.
    /// # Errors
    /// The error of the operating system.
    pub fn mistake_entry(&self, found: &Name, read: &Name) -> io::Result<()> {
        self.local.mistake(found, read)
    }

    /// The status of the kernel half.
    pub fn status(&self) -> KernelStatus {
        let received = |id: &PortId| self.counters(*id).map_or(0, |counts| counts.rx_frames);
        let forwarded = self.ports.iter().map(received).sum();
        let state = self.state();
        let memory = state.table.as_ref().map(|table| if table.is_arena { "arena" } else { "array" });
        let in_driver = |exit: &Exit| exit.attached.upgrade().is_some_and(|attached| attached.is_in_driver());
        let is_asked = state.exits[..self.n_trunks].iter().any(in_driver);
        let is_not_taking = |exit: &&Exit| is_asked && !exit.takes && exit.is_up && exit.is_there();
        let not_taking = state.exits.iter().filter(is_not_taking).map(|exit| exit.id).collect();
        KernelStatus { memory, error: state.error.clone(), forwarded, not_taking }
    }

    /// Counts of what it received from a port and sent to it. None for another port.
    pub fn counters(&self, id: PortId) -> Option<DeviceSnapshot> {
        let words = self.counts.words_of_cpus(self.slot(id)?).unwrap_or_default();
        let sum = |at: usize| words.iter().skip(at).step_by(COUNTS).sum();
        Some(DeviceSnapshot {
            rx_frames: sum(0),
            rx_bytes: sum(1),
            tx_frames: sum(2),
            tx_bytes: sum(3),
            ..DeviceSnapshot::default()
        })
    }
}
