//! The counters of the flow stage.

macro_rules! counts {
    ($($(#[$doc:meta])* $field:ident,)*) => {
        /// Counts of one stage, or of several.
        #[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
        pub struct FlowCounts { $($(#[$doc])* pub $field: u64,)* }

        impl FlowCounts {
            /// All counts with their names, in a fixed order.
            pub fn fields(self) -> impl Iterator<Item = (&'static str, u64)> {
                [$((stringify!($field), self.$field),)*].into_iter()
            }
        }

        impl std::ops::AddAssign for FlowCounts {
            fn add_assign(&mut self, other: Self) {
                $(self.$field += other.$field;)*
            }
        }
    };
}

counts! {
    /// Packets of known flows.
    tracked,
    /// Flows that began.
    begun,
    /// Flows that began and got a server of a virtual address.
    balanced,
    /// Flows that began and got an outside address and port.
    translated,
    /// ICMP errors about known flows.
    related,
    /// Frames that passed untracked: not IP, to a group, or neighbour discovery.
    passed,
    /// Flows that ended because no packet came before their timeout.
    expired,
    /// Flows that ended because their endpoints began a new one.
    reopened,
    /// Flows that ended because an ICMP error said that the destination would not answer.
    unreachable,
    /// Unanswered or finished flows that made room for others.
    evicted,
    /// Flows that were flushed.
    flushed,
    /// New flows refused: no rule accepts them.
    refused_rule,
    /// Packets refused: malformed, of no known flow and not able to begin one, or impossible in the state of their
    /// flow.
    refused_invalid,
    /// Packets refused: fragments.
    refused_fragment,
    /// New flows refused: the virtual address has no servers, or all are drained or removed.
    refused_no_server,
    /// New flows refused: the MAC address of the server is not known.
    refused_no_server_mac,
    /// New flows refused: the server has another flow with the address and port of the client, directly or by another
    /// virtual address.
    refused_server_taken,
    /// New flows refused: every port of the outside address is in use.
    refused_nat_exhausted,
    /// New flows refused: their host has its share of the ports of the outside address.
    refused_nat_share,
    /// New flows refused: their protocol has no ports, or no outside address has their version of IP.
    refused_nat_impossible,
    /// New flows refused: their answers could not be told from those of another flow.
    refused_nat_taken,
    /// New flows refused: there are `max_flows` flows already, and none makes room.
    refused_limit,
    /// New flows refused: the port that they came in by has its share of the table.
    refused_share,
    /// New flows refused: the table is full.
    refused_table_full,
    /// New flows refused: too many flows have the same buckets of the table.
    refused_table_crowded,
    /// Ended flows that were not exported because too many ended at once.
    export_lost,
    /// Ended flows that were not exported because the writer was too slow or failed.
    export_blocked,
}
