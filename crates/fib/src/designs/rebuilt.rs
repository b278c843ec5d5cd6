//! Both halves of designs that are static maps: any change makes the map anew, and sends all of it.
//!
//! Cost: a build of all names and a message as long as the table for every batch of changes and every view. For names
//! that hardly change, for small tables, and to compare.

use super::each::{self, Maker};
use super::keys::{Key, StructureKey};
use super::skeleton::Skeleton;
use super::table::{Served, Table, TableError};
use super::{RestoreError, Spec};
use lookup::static_map::{Rebuilt, RebuiltQuery, Settings, StaticMap};
use lookup::traits::{Control, InsertError};

/// Threads of a build, at most.
const MAX_THREADS: usize = 8;

fn settings(spec: &Spec) -> Settings {
    Settings::new(spec.value_bits, &spec.key)
}

pub(super) fn skeleton<M>(spec: &Spec, names: &[(Key<'_>, u32)], _: usize) -> Result<Box<dyn Skeleton>, InsertError>
where
    M: StaticMap + Send + Sync + 'static,
    M::Key: StructureKey + Ord,
{
    let make = |settings: &Settings, entries: &[(M::Key, u64)]| {
        let threads = std::thread::available_parallelism().map_or(1, |cores| cores.get().min(MAX_THREADS));
        let mut control = Rebuilt::<M>::new(settings.clone(), usize::MAX, threads);
        control.insert_batch(entries, &mut Vec::new()).map(|()| control)
    };
    each::skeleton(Maker { kind: spec.kind, settings: settings(spec), make, is_static: true }, names)
}

pub(super) fn restore<M>(
    spec: &Spec,
    _rows: super::Rows,
    names: &[(Key<'_>, u32)],
    threads: usize,
) -> Result<Box<dyn Skeleton>, RestoreError>
where
    M: StaticMap + Send + Sync + 'static,
    M::Key: StructureKey + Ord,
{
    Ok(skeleton::<M>(spec, names, threads)?)
}

pub(super) fn table<M>(spec: &Spec, image: &[u8]) -> Result<Box<dyn Table>, TableError>
where
    M: StaticMap + Send + Sync + 'static,
    M::Key: StructureKey,
{
    Served::<RebuiltQuery<M>>::from_image(spec.kind, &settings(spec), image)
}
