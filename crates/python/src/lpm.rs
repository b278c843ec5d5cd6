//! Tables of IP prefixes, as `fibula lpm` builds, writes and reads them.

use crate::arrays::{elements, places, reading, value_error, writing};
use ::fib::prefixes::default_by;
use ::fib::text::address::{self, AnyPrefix, is_any};
use lookup::hash::SecretKey;
use lookup::lpm::bloom::Pushed;
use lookup::lpm::file::{self, PrefixFile};
use lookup::lpm::prefix::{Address, Prefix};
use lookup::lpm::trie::Settings;
use numpy::PyArray1;
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use std::collections::HashSet;
use std::hint::black_box;
use std::time::Instant;

/// Addresses that are looked up together.
const CHUNK: usize = 1024;
/// The most next hops, and the most bytes of the name of one.
const MAX_HOPS: usize = 1 << 24;
const MAX_HOP_BYTES: usize = 255;

/// A table that does not change, and the bytes of its file: of the tables alone no file can be made.
#[pyclass(module = "fibula._native", frozen)]
pub(crate) struct PrefixTable {
    tables: PrefixFile,
    bytes: Vec<u8>,
}

impl PrefixTable {
    fn of(bytes: Vec<u8>) -> PyResult<PrefixTable> {
        let tables = file::decode(&bytes).map_err(value_error)?;
        Ok(PrefixTable { tables, bytes })
    }
}

/// The routes of one version of IP.
struct Routes<A> {
    list: Vec<(Prefix<A>, u64)>,
    seen: HashSet<Prefix<A>>,
}

impl<A: Address> Routes<A> {
    fn new() -> Routes<A> {
        Routes { list: Vec::new(), seen: HashSet::new() }
    }

    fn add(&mut self, prefix: Prefix<A>, hop: u64) -> Result<(), String> {
        if !self.seen.insert(prefix) {
            return Err(format!("{prefix} is in the list twice: leave one of the two"));
        }
        if self.list.len() == Settings::MAX_PREFIXES {
            return Err(format!("more than {} prefixes", Settings::MAX_PREFIXES));
        }
        self.list.push((prefix, hop));
        Ok(())
    }
}

fn built(prefixes: &[String], hops: &[String], numbers: &[u32], design: &str) -> Result<Vec<u8>, String> {
    if hops.len() > MAX_HOPS || hops.iter().any(|hop| hop.len() > MAX_HOP_BYTES) {
        return Err("at most 2^24 next hops, of at most 255 bytes each".to_owned());
    }
    let (mut ipv4, mut ipv6) = (Routes::<u32>::new(), Routes::<u128>::new());
    for (at, (text, number)) in prefixes.iter().zip(numbers).enumerate() {
        let hop = u64::from(*number) + 1;
        let prefixes = match is_any(text.trim()) {
            true => Ok(default_by(hops.get(*number as usize).and_then(|hop| hop.parse().ok()))),
            false => address::prefix(text).map(|prefix| vec![prefix]),
        };
        let added = prefixes.and_then(|prefixes| {
            prefixes.into_iter().try_for_each(|prefix| match prefix {
                AnyPrefix::V4(prefix) => ipv4.add(prefix, hop),
                AnyPrefix::V6(prefix) => ipv6.add(prefix, hop),
            })
        });
        added.map_err(|error| format!("prefix {at}: {error}"))?;
    }
    let key = SecretKey::random();
    let bytes = match design {
        "trie" => file::encode_trie(&key, hops, &ipv4.list, &ipv6.list),
        "bloom" => file::encode_bloom(Pushed::Basic, &key, hops, &ipv4.list, &ipv6.list),
        "bloom-pushed" => file::encode_bloom(Pushed::Few, &key, hops, &ipv4.list, &ipv6.list),
        other => return Err(format!("no design `{other}`: there are trie, bloom, bloom-pushed")),
    };
    bytes.map_err(|error| format!("the table cannot be built: {error}"))
}

#[pymethods]
impl PrefixTable {
    /// `hops` are names of next hops, `numbers` says which of them each prefix has.
    #[staticmethod]
    fn build(
        py: Python<'_>,
        prefixes: Vec<String>,
        hops: Vec<String>,
        numbers: Bound<'_, PyArray1<u32>>,
        design: &str,
    ) -> PyResult<PrefixTable> {
        let numbers = reading(&numbers)?;
        let numbers = elements(&numbers)?;
        if numbers.len() != prefixes.len() || numbers.iter().any(|&number| number as usize >= hops.len()) {
            return Err(value_error("one next hop a prefix, of those that there are"));
        }
        py.detach(|| built(&prefixes, &hops, numbers, design).map_err(value_error).and_then(PrefixTable::of))
    }

    #[staticmethod]
    fn decode(py: Python<'_>, bytes: &[u8]) -> PyResult<PrefixTable> {
        py.detach(|| PrefixTable::of(bytes.to_vec()))
    }

    fn encode<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        PyBytes::new(py, &self.bytes)
    }

    /// The numbers of the next hops of IPv4 addresses; 0 without a route.
    fn lookup_ipv4(
        &self,
        py: Python<'_>,
        addresses: Bound<'_, PyArray1<u32>>,
        out: Bound<'_, PyArray1<u32>>,
    ) -> PyResult<()> {
        let (addresses, mut out) = (reading(&addresses)?, writing(&out)?);
        let (addresses, out) = (elements(&addresses)?, places(&mut out)?);
        if addresses.len() != out.len() {
            return Err(value_error(format!("{} places for {} addresses", out.len(), addresses.len())));
        }
        py.detach(|| {
            let mut numbers = [0; CHUNK];
            for (addresses, out) in addresses.chunks(CHUNK).zip(out.chunks_mut(CHUNK)) {
                self.tables.ipv4.lookup_batch(addresses, &mut numbers[..out.len()]);
                // There are at most 2^24 next hops.
                out.iter_mut().zip(numbers).for_each(|(out, number)| *out = number as u32);
            }
        });
        Ok(())
    }

    /// The same of IPv6 addresses: 16 bytes each, in the order in which packets carry them.
    fn lookup_ipv6(
        &self,
        py: Python<'_>,
        addresses: Bound<'_, PyArray1<u8>>,
        out: Bound<'_, PyArray1<u32>>,
    ) -> PyResult<()> {
        let (addresses, mut out) = (reading(&addresses)?, writing(&out)?);
        let (addresses, out) = (elements(&addresses)?, places(&mut out)?);
        if addresses.len() != 16 * out.len() {
            return Err(value_error(format!("{} places for {} bytes of addresses", out.len(), addresses.len())));
        }
        py.detach(|| {
            let (mut words, mut numbers) = ([0; CHUNK], [0; CHUNK]);
            for (addresses, out) in addresses.as_chunks().0.chunks(CHUNK).zip(out.chunks_mut(CHUNK)) {
                words.iter_mut().zip(addresses).for_each(|(word, bytes)| *word = u128::from_be_bytes(*bytes));
                self.tables.ipv6.lookup_batch(&words[..out.len()], &mut numbers[..out.len()]);
                out.iter_mut().zip(numbers).for_each(|(out, number)| *out = number as u32);
            }
        });
        Ok(())
    }

    /// Seconds of one pass over IPv4 addresses without Python in between: see `fibula.rate`.
    fn rust_pass(&self, py: Python<'_>, addresses: Bound<'_, PyArray1<u32>>) -> PyResult<f64> {
        let addresses = reading(&addresses)?;
        let addresses = elements(&addresses)?;
        // Written to, so that no page of it is new to the pass.
        let mut numbers = vec![u64::MAX; addresses.len()];
        Ok(py.detach(|| {
            let start = Instant::now();
            self.tables.ipv4.lookup_batch(addresses, &mut numbers);
            black_box(&numbers);
            start.elapsed().as_secs_f64()
        }))
    }

    /// Names of the next hops; number n of a lookup is the one at n - 1.
    #[getter]
    fn next_hops(&self) -> Vec<String> {
        self.tables.hops.clone()
    }

    /// The numbers of IPv4 and IPv6 prefixes.
    #[getter]
    fn n_prefixes(&self) -> (u64, u64) {
        (self.tables.ipv4.n_prefixes, self.tables.ipv6.n_prefixes)
    }

    #[getter]
    fn design(&self) -> &'static str {
        match self.tables.pushed {
            None => "trie",
            Some(Pushed::Few) => "bloom-pushed",
            Some(_) => "bloom",
        }
    }
}
