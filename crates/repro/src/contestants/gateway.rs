//! Forwarders of a gateway, which hold full names and so drop every alien: an Othello that maps a name to its slot, and
//! Bloom filters behind a table of names. The forwarder of CFW is in `cuckoo`.

use lookup::alien::named::{self, NameHash};
use lookup::alien::{Filtered, Named, filtered};
use lookup::bloom_fib::Names;
use lookup::cuckoo::exact::{self, CuckooSkeleton};
use lookup::othello::gateway::Gateway;
use lookup::traits::{Replicated, Single};

use super::{Contestant, Input, Kind, Whole, bloom_settings};
use crate::BenchError;
use crate::names::value_of;

pub(super) const OGW: Kind = Kind {
    name: "ogw",
    about: "OFW at a gateway: an Othello from a name to its place in an array of full names",
    build: |input| {
        let table = Gateway::<1>::build(settings(input, input.value_bits), &entries(input), input.build_threads);
        Ok(whole(table.map_err(|error| input.build_error(OGW.name, error))?.1))
    },
    default: false,
};

pub(super) const BGW: Kind = Kind {
    name: "bgw",
    about: "BFW at a gateway: a (2,4)-Cuckoo of full names, and behind it Bloom filters, for a burst of names at once",
    build: build_bgw,
    default: false,
};

fn build_bgw(input: &Input<'_>) -> Result<Box<dyn Contestant>, BenchError> {
    let filters = bloom_settings(input).map_err(|reason| input.build_error(BGW.name, reason))?;
    let map = NameHash::<1>::new(input.name_len as u8, input.family, &input.secret_key());
    let table = named::Settings { table: filters, map };
    let settings = filtered::Settings { filter: settings(input, 1), table };
    let built = Single::<Filtered<CuckooSkeleton<1, ()>, Named<Names<u64>, 1>>>::build(settings, &entries(input), 1);
    Ok(whole(built.map_err(|error| input.build_error(BGW.name, error))?.1))
}

/// Settings of a table of full names.
fn settings(input: &Input<'_>, value_bits: u8) -> exact::Settings {
    let name_bytes = input.name_len as u8;
    exact::Settings::new(name_bytes, value_bits, input.names.len(), input.family, &input.secret_key())
}

fn entries(input: &Input<'_>) -> Vec<([u64; 1], u64)> {
    input.names.iter().map(|&name| ([name], value_of(name, input.value_bits))).collect()
}

fn whole<Q: Replicated<Key = [u64; 1]>>(query: Q) -> Box<dyn Contestant> {
    Box::new(Whole(query))
}
