//! The counters of a worker. Every frame that is received, or that the switch makes itself, is either sent, a hello of a
//! neighbour, copied to a group, or dropped for one of the reasons here:
//! `received + originated == sent + hellos + groups + dropped`, exactly. Frames that devices discard before a worker receives them are not
//! in these counters, but in [`crate::losses`].

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
    /// The frame ends inside a header that the name is read from, or a header claims more bytes than there are.
    Truncated = "truncated",
    /// A frame from a trunk has no shim: the device at the other end is not a switch.
    NoShim = "no_shim",
    /// A frame from a trunk has no shim, and is one that the kernel of the machine at the other end sends on its own wherever an
    /// interface is up.
    KernelChatter = "kernel_chatter",
    /// The frame has more VLAN tags than are read.
    VlanTags = "vlan_tags",
    /// The frame has no name of the configured kind, for example because it is of another protocol.
    NoName = "no_name",
    /// A later fragment: only the first fragment has the ports that belong to the name, or that an access list compares.
    Fragment = "fragment",
    /// A frame from a host to a name that does not exist.
    Alien = "alien",
    /// From a host port or from outside: no rule of the port's access list permits it.
    Acl = "acl",
    /// From a host port: the source MAC address is no name at this port.
    SourceMac = "source_mac",
    /// From a host port: the sender of an ARP packet is not at this port, or its IP address belongs to a name elsewhere.
    SourceArp = "source_arp",
    /// From a host port: neighbour discovery speaks for a MAC or IP address elsewhere, or for a router.
    SourceNd = "source_nd",
    /// From a host port: the IP source belongs to a name elsewhere, or is not that of the name that sent the packet.
    SourceIp = "source_ip",
    /// The FIB says drop: the name was removed, or has no route. At a gateway: no route has the address, or one that
    /// discards.
    NoRoute = "no_route",
    /// The value that the FIB gave has no entry in the action table.
    NoAction = "no_action",
    /// There is no FIB yet.
    NoFib = "no_fib",
    /// The names of the FIB cannot be read from frames: they are text, or a fixed field at an unknown offset.
    NoField = "no_field",
    /// The action is a tunnel or the control plane. This data plane has neither.
    Unsupported = "unsupported",
    /// The action names a port that this switch does not have.
    NoPort = "no_port",
    /// The frame would leave by the port where it came in.
    InputPort = "input_port",
    /// The frame would leave to a host that does not have this name.
    NotLocal = "not_local",
    /// The frame has passed as many switches as a frame may.
    HopLimit = "hop_limit",
    /// The buffer has no room for the shim.
    NoHeadroom = "no_headroom",
    /// The port of exit is down.
    PortDown = "port_down",
    /// The queue of the port of exit is full, or there is no cable: the kernel reports both alike.
    TxFull = "tx_full",
    /// The port of exit cannot send such a frame (longer than its MTU).
    TxRefused = "tx_refused",
    /// A DHCP broadcast that speaks for a host other than its sender, or is malformed.
    Dhcp = "dhcp",
    /// A DHCP request that claims to come through a relay, from a port where none is allowed.
    DhcpRelay = "dhcp_relay",
    /// A DHCP request to a group or broadcast address, above the port's rate.
    DhcpRate = "dhcp_rate",
    /// A DHCP answer to a group or broadcast address, from a port where no server is allowed.
    DhcpServer = "dhcp_server",
    /// A broadcast or multicast above the port's rate, or whose copies exceed its tenant's rate.
    GroupRate = "group_rate",
    /// A broadcast from a trunk, or one that is not an ARP request and has no receivers.
    Broadcast = "broadcast",
    /// From a host port: a frame that is only for the other end of its cable, such as a hello of a switch, or one between switches.
    LinkLocal = "link_local",
    /// A multicast from a trunk, or one that is not a neighbour solicitation and has no receivers.
    Multicast = "multicast",
    /// An ARP request for an address of no known host, or a malformed one.
    ArpUnknown = "arp_unknown",
    /// An ARP probe or announcement of the sender's own address, which needs no answer.
    ArpOwn = "arp_own",
    /// A neighbour solicitation for an address of no known host, or a malformed one.
    NdUnknown = "nd_unknown",
    /// A neighbour solicitation for the sender's own address (duplicate address detection), which needs no answer.
    NdOwn = "nd_own",
    /// An IPv6 router solicitation without receivers.
    RouterSolicitation = "router_solicitation",
    /// A host's report of the multicast groups that it wants, which goes no further; also one of IPv6 that no switch is to learn.
    ListenerReport = "listener_report",
    /// Such a report in a wrong form, or above the permitted rate or number of groups.
    ListenerRefused = "listener_refused",
    /// A host's query for the groups that others want, which is the switch's task.
    ListenerQuery = "listener_query",
    /// A multicast to an IP group that no other host of the tenant wants.
    NoSubscriber = "no_subscriber",
    /// The first packet of a flow that no rule of the flow stage accepts.
    FlowRefused = "flow_refused",
    /// The flow stage found the packet malformed, of no flow, or impossible in the state of its flow.
    FlowInvalid = "flow_invalid",
    /// A fragment: the flow stage cannot tell which flow it belongs to.
    FlowFragment = "flow_fragment",
    /// The table of the flow stage is full.
    FlowTable = "flow_table",
    /// A packet to a virtual address that has no server for new flows, or none whose MAC address is known.
    FlowNoServer = "flow_no_server",
    /// Source NAT has no free port for the flow.
    FlowNoPort = "flow_no_port",
    /// At a gateway: the IP header or its checksum is wrong.
    BadHeader = "bad_header",
    /// At a gateway: the TTL or hop limit of the packet has reached 0.
    TtlExpired = "ttl_expired",
    /// At a gateway: the packet is longer than the link outside that it has to leave by accepts.
    TooBig = "too_big",
    /// A frame from outside to a MAC address that is not the gateway's.
    NotForGateway = "not_for_gateway",
    /// A packet to or from an address that routers do not forward, or one to the gateway itself that is not an echo
    /// request.
    NotRoutable = "not_routable",
    /// The MAC address of the next hop outside is not known yet. The gateway has asked for it.
    NoNeighbour = "no_neighbour",
    /// A frame that told the gateway the MAC address of a neighbour outside, and has no other use.
    NeighbourLearnt = "neighbour_learnt",
}

/// The counters of one worker. Only its thread writes them, any thread may read them. They have cache lines of their
/// own.
#[derive(Debug)]
#[repr(align(128))]
pub struct WorkerCounters {
    /// Frames received.
    pub received: Counter,
    /// Frames sent, answers included.
    pub sent: Counter,
    /// ARP requests and neighbour solicitations turned into answers.
    pub answered: Counter,
    /// Hellos, copies of broadcasts and multicasts, and questions of a gateway for its neighbours outside: frames that the switch
    /// makes itself.
    pub originated: Counter,
    /// Frames to unknown names that were sent on nevertheless.
    pub aliens: Counter,
    /// Hellos of neighbours at trunks, and LLDP frames where the switch listens for them.
    pub hellos: Counter,
    /// Broadcasts and multicasts of which copies were made.
    pub groups: Counter,
    /// The copies of broadcasts and multicasts.
    pub copies: Counter,
    /// Names of frames that were looked up in the FIB.
    pub lookups: Counter,
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
            aliens: Counter::default(),
            hellos: Counter::default(),
            groups: Counter::default(),
            copies: Counter::default(),
            lookups: Counter::default(),
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
            aliens: self.aliens.get(),
            hellos: self.hellos.get(),
            groups: self.groups.get(),
            copies: self.copies.get(),
            lookups: self.lookups.get(),
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
    /// Hellos, copies of broadcasts and multicasts, and questions of a gateway for its neighbours outside: frames that the switch
    /// makes itself.
    pub originated: u64,
    /// Frames to unknown names, sent to a port or a server for them.
    pub aliens: u64,
    /// Hellos of neighbours at trunks, and LLDP frames, which go no further.
    pub hellos: u64,
    /// Broadcasts and multicasts of which copies were made.
    pub groups: u64,
    /// The copies of broadcasts and multicasts.
    pub copies: u64,
    /// Names of frames that were looked up in the FIB.
    pub lookups: u64,
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

    /// The number of frames dropped.
    pub fn dropped_total(&self) -> u64 {
        self.drops.iter().sum()
    }
}

impl std::ops::AddAssign for Counts {
    fn add_assign(&mut self, other: Self) {
        self.received += other.received;
        self.sent += other.sent;
        self.answered += other.answered;
        self.hellos += other.hellos;
        self.groups += other.groups;
        self.copies += other.copies;
        self.lookups += other.lookups;
        self.originated += other.originated;
        self.aliens += other.aliens;
        self.sleeps += other.sleeps;
        self.drops.iter_mut().zip(other.drops).for_each(|(mine, theirs)| *mine += theirs);
    }
}
