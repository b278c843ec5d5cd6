//! What designs of static maps share: any change rebuilds the map, and sends all of it.
//!
//! Cost: a build of all names and a message as long as the table for every batch of changes and every view. Meant for
//! names that hardly change, for small tables, and for comparison.

use fib::designs::{Checkable, Spec, Structure};
use lookup::alien::checked::Marked;
use lookup::hash::Digest;
use lookup::static_map::{Entries, Settings, StaticMap};
use std::marker::PhantomData;

/// A static map.
pub(crate) struct Fixed<M>(PhantomData<M>);

impl<M> Structure for Fixed<M>
where
    M: StaticMap + Send + Sync + 'static,
    M::Key: Ord + Send + Sync,
{
    type Skeleton = Entries<M, u32>;
    fn settings(spec: &Spec) -> Settings {
        Settings::new(spec.value_bits, &spec.key)
    }
}

impl<M: StaticMap<Key = Digest> + Send + Sync + 'static> Checkable for Fixed<M> {
    type Marked = Entries<M, Marked<u32>>;
}
