//! BGW, the Bloom forwarder of a gateway: BFW behind an exact table of full names.
//!
//! Cost: that of BFW, and two buckets of whole names; 67 bits a MAC address more. Texts of up to 63 bytes fit.
//! Alien names are dropped, every one.
//! Source: "Re-designing Compact-structure based Forwarding for Programmable Networks", V.D, VII: a forwarder with full
//! key information; the paper does not say how it holds it.

use super::each::{self, Maker};
use super::keys::{Key, NameLayout, with_width};
use super::skeleton::Skeleton;
use super::table::{Served, Table, TableError};
use super::{Aliens, Design, RestoreError, Spec, bfw, bloom};
use lookup::alien::keyed::{self, NameHash};
use lookup::alien::{Filtered, FilteredQuery, KeyedQuery, Named, filtered};
use lookup::bloom_fib::{BloomFib, BloomFibQuery};
use lookup::cuckoo::exact::{self, Cuckoo, CuckooQuery};
use lookup::traits::{Control, InsertError};

/// The Bloom forwarder with full names in front.
pub static BGW: Design = Design {
    name: "bgw",
    summary: "BFW behind an exact table of whole names: BFW at a gateway",
    aliens: |_| Aliens::Dropped,
    fingerprint_bits: bloom::fingerprint_bits,
    fingerprints: |_| bloom::FINGERPRINTS,
    is_static: false,
    restarts_alike: false,
    skeleton,
    restore: |spec, _, names, threads| Ok::<_, RestoreError>(skeleton(spec, names, threads)?),
    table,
};

type Gateway<const W: usize> = Filtered<Cuckoo<W>, Named<BloomFib, W>>;
type GatewayQuery<const W: usize> = FilteredQuery<CuckooQuery<W>, KeyedQuery<BloomFibQuery, NameHash<W>>>;
type Settings<const W: usize> =
    filtered::Settings<exact::Settings, keyed::Settings<lookup::bloom_fib::Settings, NameHash<W>>>;

fn settings<const W: usize>(spec: &Spec) -> Settings<W> {
    let name_bytes = NameLayout::of(spec.kind).bytes;
    let filter = exact::Settings::new(name_bytes, 1, spec.max_names, spec.family, &spec.key);
    let map = NameHash::new(name_bytes, spec.family, &spec.key);
    Settings { filter, table: keyed::Settings { table: bloom::settings(spec, bfw::policy), map } }
}

fn skeleton(spec: &Spec, names: &[(Key<'_>, u32)], _threads: usize) -> Result<Box<dyn Skeleton>, InsertError> {
    fn of<const W: usize>(spec: &Spec, names: &[(Key<'_>, u32)]) -> Result<Box<dyn Skeleton>, InsertError> {
        let make = |settings: &Settings<W>, entries: &[([u64; W], u64)]| {
            let keyed::Settings { table, map } = settings.table.clone();
            let mut control = Gateway::new(Cuckoo::new(settings.filter.clone()), Named::new(BloomFib::new(table), map));
            control.insert_batch(entries, &mut Vec::new()).map(|()| control)
        };
        each::skeleton::<Gateway<W>>(Maker { kind: spec.kind, settings: settings(spec), make, is_static: false }, names)
    }
    with_width!(spec.kind, W => of::<W>(spec, names))
}

fn table(spec: &Spec, image: &[u8]) -> Result<Box<dyn Table>, TableError> {
    let kind = spec.kind;
    with_width!(kind, W => Served::<GatewayQuery<W>>::from_image(kind, &settings(spec), image))
}
