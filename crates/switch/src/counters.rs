//! What a worker counts. Every frame received is sent on (or back, as an answer) or dropped for one of the reasons
//! here, and so is every frame that begins here: `received + originated == sent + dropped`, to the frame.

use netio::Counter;

macro_rules! drop_reasons {
    ($($(#[$doc:meta])* $variant:ident = $name:literal,)*) => {
        /// Why a frame was dropped.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
        #[repr(u8)]
        #[non_exhaustive]
        pub enum DropReason { $($(#[$doc])* $variant,)* }

        impl DropReason {
            /// All reasons, in the order of their counters.
            pub const ALL: &[DropReason] = &[$(DropReason::$variant,)*];

            /// The name of its counter.
            pub fn name(self) -> &'static str {
                match self { $(DropReason::$variant => $name,)* }
            }
        }
    };
}

drop_reasons! {
    /// Shorter than an Ethernet header.
    Runt = "runt",
    /// It ends inside a header that the name is read from, or claims more bytes than there are.
    Truncated = "truncated",
    /// From a trunk, without a shim: the other end is no switch.
    NoShim = "no_shim",
    /// It has no name of the configured kind (another protocol).
    NoName = "no_name",
    /// A later fragment: the ports that belong to its name are in the first.
    Fragment = "fragment",
    /// From a host, to a name that no host has.
    Alien = "alien",
    /// The FIB says drop: a removed name, or no route. At a gateway: no route has the address, or one that discards.
    NoRoute = "no_route",
    /// The FIB's value is in no row of the action table.
    NoAction = "no_action",
    /// There is no FIB yet.
    NoFib = "no_fib",
    /// The FIB's names cannot be read from frames: text, or a fixed field that nobody said the place of.
    NoField = "no_field",
    /// The action is a tunnel or the control plane, which this data plane does not have.
    Unsupported = "unsupported",
    /// The action names a port that this switch does not have.
    NoPort = "no_port",
    /// It would leave by the port it came from.
    InputPort = "input_port",
    /// It would leave to a host that does not have this name.
    NotLocal = "not_local",
    /// It has entered as many switches as a frame may.
    HopLimit = "hop_limit",
    /// The buffer has no room for the shim.
    NoHeadroom = "no_headroom",
    /// The port of exit is down.
    PortDown = "port_down",
    /// The queue of the port of exit is full.
    TxFull = "tx_full",
    /// The port of exit cannot send such a frame (longer than its MTU).
    TxRefused = "tx_refused",
    /// Broadcast that is no ARP request, or from a trunk.
    Broadcast = "broadcast",
    /// Multicast that is no neighbour solicitation, or from a trunk.
    Multicast = "multicast",
    /// An ARP request for an address of no known host, or no proper request.
    ArpUnknown = "arp_unknown",
    /// An ARP probe or announcement of the sender's own address: nothing to answer.
    ArpOwn = "arp_own",
    /// A neighbour solicitation for an address of no known host, or a malformed one.
    NdUnknown = "nd_unknown",
    /// A neighbour solicitation for the sender's own address (duplicate address detection): nothing to answer.
    NdOwn = "nd_own",
    /// An IPv6 router solicitation: there is no router.
    RouterSolicitation = "router_solicitation",
    /// An IPv6 multicast listener report: there are no multicast groups.
    ListenerReport = "listener_report",
    /// The first packet of a flow that no rule of the flow stage accepts.
    FlowRefused = "flow_refused",
    /// To the flow stage malformed, of no flow, or not possible in the state of its flow.
    FlowInvalid = "flow_invalid",
    /// A fragment, which the flow stage cannot tell the flow of.
    FlowFragment = "flow_fragment",
    /// The flow stage has no room for another flow.
    FlowTable = "flow_table",
    /// To a virtual address of which no server takes new flows, or none whose MAC address is known.
    FlowNoServer = "flow_no_server",
    /// Source NAT has no port for the flow.
    FlowNoPort = "flow_no_port",
    /// At a gateway: an IP header that is wrong, or whose checksum is.
    BadHeader = "bad_header",
    /// At a gateway: the TTL or hop limit of the packet has ended.
    TtlExpired = "ttl_expired",
    /// From outside, to another MAC address than the gateway's.
    NotForGateway = "not_for_gateway",
    /// To or from an address that no router forwards for, or to the gateway itself and no echo request.
    NotRoutable = "not_routable",
    /// The MAC address of the next hop outside is not known yet: it was asked for.
    NoNeighbour = "no_neighbour",
    /// What a gateway learnt the MAC address of a neighbour outside from.
    NeighbourLearnt = "neighbour_learnt",
}

/// The counters of one worker: written by its thread alone, read by anybody, on lines of their own.
#[derive(Debug)]
#[repr(align(128))]
pub struct WorkerCounters {
    /// Frames received.
    pub received: Counter,
    /// Frames sent, answers included.
    pub sent: Counter,
    /// ARP requests and neighbour solicitations turned into answers.
    pub answered: Counter,
    /// Questions of a gateway for its neighbours outside: frames that begin here.
    pub originated: Counter,
    /// Times the worker slept.
    pub sleeps: Counter,
    drops: [Counter; DropReason::ALL.len()],
}

impl Default for WorkerCounters {
    fn default() -> Self {
        Self {
            received: Counter::default(),
            sent: Counter::default(),
            answered: Counter::default(),
            originated: Counter::default(),
            sleeps: Counter::default(),
            drops: std::array::from_fn(|_| Counter::default()),
        }
    }
}

impl WorkerCounters {
    /// Counts a dropped frame. Only the worker may call it.
    #[inline]
    pub fn drop_frame(&self, reason: DropReason) {
        self.drop_frames(reason, 1);
    }

    /// Counts `n` dropped frames. Only the worker may call it.
    #[inline]
    pub fn drop_frames(&self, reason: DropReason, n: u64) {
        self.drops[reason as usize].add(n);
    }

    /// Frames dropped for a reason.
    pub fn dropped(&self, reason: DropReason) -> u64 {
        self.drops[reason as usize].get()
    }

    /// All counts, as they are now.
    pub fn snapshot(&self) -> Counts {
        Counts {
            received: self.received.get(),
            sent: self.sent.get(),
            answered: self.answered.get(),
            originated: self.originated.get(),
            sleeps: self.sleeps.get(),
            drops: std::array::from_fn(|i| self.drops[i].get()),
        }
    }
}

/// Counts of one or several workers at one moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Counts {
    /// Frames received.
    pub received: u64,
    /// Frames sent, answers included.
    pub sent: u64,
    /// ARP requests and neighbour solicitations turned into answers.
    pub answered: u64,
    /// Questions of a gateway for its neighbours outside: frames that begin here.
    pub originated: u64,
    /// Times a worker slept.
    pub sleeps: u64,
    drops: [u64; DropReason::ALL.len()],
}

impl Default for Counts {
    fn default() -> Self {
        WorkerCounters::default().snapshot()
    }
}

impl Counts {
    /// Frames dropped for a reason.
    pub fn dropped(&self, reason: DropReason) -> u64 {
        self.drops[reason as usize]
    }

    /// Every reason with its count, in a fixed order, zeros included.
    pub fn drops(&self) -> impl Iterator<Item = (DropReason, u64)> + '_ {
        DropReason::ALL.iter().map(|&reason| (reason, self.dropped(reason)))
    }

    /// Frames dropped in all.
    pub fn dropped_total(&self) -> u64 {
        self.drops.iter().sum()
    }
}

impl std::ops::AddAssign for Counts {
    fn add_assign(&mut self, other: Self) {
        self.received += other.received;
        self.sent += other.sent;
        self.answered += other.answered;
        self.originated += other.originated;
        self.sleeps += other.sleeps;
        self.drops.iter_mut().zip(other.drops).for_each(|(mine, theirs)| *mine += theirs);
    }
}
