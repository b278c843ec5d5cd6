//! The counts of a simulation.

/// The fates of packets.
///
/// Of valid names: `sent = delivered + former + misdelivered + lost + unreachable + looped`.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Tally {
    /// Packets for valid names.
    pub sent: u64,
    /// Handed to the host that has the name.
    pub delivered: u64,
    /// Handed to the port that the name hung off before its latest move.
    pub former: u64,
    /// Handed to another host.
    pub misdelivered: u64,
    /// Dropped although there is a path.
    pub lost: u64,
    /// Dropped where there is no path.
    pub unreachable: u64,
    /// Ended by the hop limit.
    pub looped: u64,
    /// Links that the delivered packets crossed.
    pub hops: u64,
    /// Links on the shortest paths of the delivered packets: those taken where flows are not spread.
    pub shortest_hops: u64,
    /// Links on their longest shortest paths: paths of one cost may differ in links.
    pub longest_hops: u64,
    /// Aliens that came through a gateway, which checks names exactly.
    pub checked: Aliens,
    /// Aliens that came in past that check.
    pub unchecked: Aliens,
}

/// The fates of packets for names that do not exist.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Aliens {
    /// Packets.
    pub sent: u64,
    /// Refused where they came in.
    pub refused: u64,
    /// Dropped in transit: by a FIB, at the port that they came from, or by the exact check at the egress.
    pub dropped: u64,
    /// Handed to a host: one that had the name until it was removed.
    pub delivered: u64,
    /// Ended by the hop limit.
    pub looped: u64,
    /// Links that all these packets crossed.
    pub hops: u64,
}

impl Tally {
    /// Packets for valid names that reached a host which does not have the name, or none although there is a path.
    pub fn wrong(&self) -> u64 {
        self.former + self.misdelivered + self.lost + self.looped
    }

    /// Links crossed per link of the shortest path, over the delivered packets that crossed any; 1 where none did.
    pub fn stretch(&self) -> f64 {
        if self.shortest_hops == 0 { 1.0 } else { self.hops as f64 / self.shortest_hops as f64 }
    }

    pub(super) fn add(&mut self, other: &Tally) {
        let mine = [
            (&mut self.sent, other.sent),
            (&mut self.delivered, other.delivered),
            (&mut self.former, other.former),
            (&mut self.misdelivered, other.misdelivered),
            (&mut self.lost, other.lost),
            (&mut self.unreachable, other.unreachable),
            (&mut self.looped, other.looped),
            (&mut self.hops, other.hops),
            (&mut self.shortest_hops, other.shortest_hops),
            (&mut self.longest_hops, other.longest_hops),
        ];
        mine.into_iter().for_each(|(mine, theirs)| *mine += theirs);
        self.checked.add(&other.checked);
        self.unchecked.add(&other.unchecked);
    }
}

impl Aliens {
    fn add(&mut self, other: &Aliens) {
        self.sent += other.sent;
        self.refused += other.refused;
        self.dropped += other.dropped;
        self.delivered += other.delivered;
        self.looped += other.looped;
        self.hops += other.hops;
    }
}

/// Messages from the controller to the switches, in bytes on the wire, without the transport.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Traffic {
    /// Messages.
    pub messages: u64,
    /// Bytes of FIBs: images, updates, whole shards, and the header of the table.
    pub fib_bytes: u64,
    /// Bytes of action tables.
    pub action_bytes: u64,
    /// Bytes of valid names, for gateways.
    pub valid_bytes: u64,
    /// Bytes of local names, each to one switch.
    pub local_bytes: u64,
}

impl Traffic {
    /// Bytes in all.
    pub fn bytes(&self) -> u64 {
        self.fib_bytes + self.action_bytes + self.valid_bytes + self.local_bytes
    }
}

/// Bytes of the FIBs of some switches.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct FibBytes {
    /// Switches.
    pub switches: u64,
    /// All their FIBs together.
    pub total: u64,
    /// The largest.
    pub max: u64,
}

impl FibBytes {
    pub(super) fn add(&mut self, bytes: u64) {
        self.switches += 1;
        self.total += bytes;
        self.max = self.max.max(bytes);
    }
}

/// The results of a simulation. They are the same for equal topologies and scenarios, on every machine.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Report {
    /// Nodes, each a switch.
    pub nodes: usize,
    /// Links.
    pub links: usize,
    /// Switches that hosts are attached to.
    pub gateways: usize,
    /// Initial number of names.
    pub names: usize,
    /// Packets before the changes.
    pub before: Tally,
    /// Packets during the changes.
    pub during: Tally,
    /// Packets after the last message has arrived.
    pub after: Tally,
    /// Packets after every switch has reported once.
    pub healed: Tally,
    /// Messages to switches that hold nothing yet.
    pub first: Traffic,
    /// Changes of names and links.
    pub changes: u64,
    /// Messages that the changes cause, except answers to reports.
    pub updates: Traffic,
    /// Answers to reports during the changes.
    pub resyncs: Traffic,
    /// Switches' reports during the changes.
    pub reports: u64,
    /// Messages that were lost.
    pub lost: u64,
    /// Messages that were overtaken.
    pub late: u64,
    /// Messages that were delivered twice.
    pub duplicated: u64,
    /// Messages that a switch had already, or had a later version of.
    pub repeated: u64,
    /// Messages that a switch refused because it lacked an earlier one.
    pub refused: u64,
    /// Switches that lacked something after the last message had arrived.
    pub behind: u64,
    /// Messages that these switches were sent.
    pub healing: Traffic,
    /// Ticks that the changes took.
    pub ticks: u64,
    /// FIBs of gateways, without the valid names and the local names that they hold exactly.
    pub gateway_fibs: FibBytes,
    /// FIBs of the other switches.
    pub core_fibs: FibBytes,
    /// Names in the exact tables of valid names, all gateways together.
    pub valid_names: u64,
    /// Names in the exact tables of local names, all switches together.
    pub local_names: u64,
    /// Bytes of the controller's arrangements of names.
    pub skeleton_bytes: u64,
}
