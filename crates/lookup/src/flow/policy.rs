//! The six lookup policies: when a lookup continues in the second bucket, and what decides that.
//!
//! All other code is shared; the compiler instantiates it for each policy.

/// What decides whether a lookup that found nothing in the first bucket reads the second.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Second {
    /// Always, and fetched only then.
    Always,
    /// Always, and fetched together with the first.
    Fetched,
    /// If the first bucket's Bloom filter holds the tag.
    Filter,
    /// As [`Filter`](Self::Filter), but the filter is the published one: two bits a tag, and it forgets none until no
    /// entry of its bucket is elsewhere.
    Uncounted,
    /// If the first bucket's remap array has a function for the tag, which also says which bucket is the second.
    Remap,
}

/// A lookup policy; sealed.
pub trait Policy: sealed::Sealed + Copy + Default + Send + Sync + std::fmt::Debug + 'static {
    /// What decides whether the second bucket is read.
    const SECOND: Second;
    /// Whether entries expire.
    const TIMED: bool;
    /// The name in benches and on the command line.
    const NAME: &'static str;
}

mod sealed {
    /// Keeps [`Policy`](super::Policy) to this module.
    pub trait Sealed {}
}

macro_rules! policy {
    ($(#[$doc:meta])* $name:ident, $second:ident, $timed:literal, $text:literal) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Default, Debug)]
        pub struct $name;

        impl sealed::Sealed for $name {}

        impl Policy for $name {
            const SECOND: Second = Second::$second;
            const TIMED: bool = $timed;
            const NAME: &'static str = $text;
        }
    };
}

policy! {
    /// Cuckoo++: the second bucket if the first one's Bloom filter holds the tag. Without timers.
    CuckooPlusPlus, Filter, false, "cuckoo++"
}
policy! {
    /// Cuckoo++ with timers: the flow table of the switch.
    Timed, Filter, true, "cuckoo++ timed"
}
policy! {
    /// Cuckoo++ as published, to compare with: after turnovers its filter holds most tags. Without timers.
    Published, Uncounted, false, "cuckoo++ published"
}
policy! {
    /// Always the second bucket, fetched only if the first has no match: good for hits (CuckooSwitch, MemC3).
    Optimistic, Always, false, "optimistic"
}
policy! {
    /// Both buckets fetched at once: good for misses (`rte_hash`).
    Pessimistic, Fetched, false, "pessimistic"
}
policy! {
    /// Horton tables on a CPU: a remap array names one of seven second buckets, or none.
    Horton, Remap, false, "horton"
}
