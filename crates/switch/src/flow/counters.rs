//! What the flow stage counts.

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
    /// Packets of flows that were there.
    tracked,
    /// Flows that began.
    begun,
    /// Flows that began with another's server.
    balanced,
    /// Flows that began with an address and port of ours.
    translated,
    /// ICMP errors about flows that are there.
    related,
    /// Frames passed untracked: no IP, groups, neighbour discovery.
    passed,
    /// Flows that ended because no packet came in time.
    expired,
    /// Flows that ended because their two ends began another.
    reopened,
    /// Flows that were flushed.
    flushed,
    /// New flows refused: no rule accepts them.
    refused_rule,
    /// Packets refused: malformed, of no flow and not the first of one, or not possible in its state.
    refused_invalid,
    /// Packets refused: fragments.
    refused_fragment,
    /// New flows refused: all servers of the virtual address are drained or removed, or it has none.
    refused_no_server,
    /// New flows refused: the MAC address of the server is not known.
    refused_no_server_mac,
    /// New flows refused: the server has another flow with that client's address and port, directly or by another virtual
    /// address.
    refused_server_taken,
    /// New flows refused: every port of the outside address is in use.
    refused_nat_exhausted,
    /// New flows refused: of a protocol without ports, or of a family without outside address.
    refused_nat_impossible,
    /// New flows refused: answers could not be told from those of another flow.
    refused_nat_taken,
    /// New flows refused: as many flows as `max_flows` are there.
    refused_limit,
    /// New flows refused: no room in the table.
    refused_table_full,
    /// New flows refused: too many share a place in the table.
    refused_table_crowded,
    /// Flows that ended and were not exported, because too many ended at once.
    export_lost,
    /// Flows that ended and were not exported, because those before them were not written yet, or cannot be.
    export_blocked,
}
