//! Flow tables: exact keys of 8, 16 or 40 bytes, values of one or two words, and a lifetime for each flow.

use crate::arrays::{elements, places, reading, value_error, writing};
use lookup::flow::{self, InsertError, Settings};
use lookup::hash::{Digest, Family};
use numpy::PyArray1;
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use std::hint::black_box;
use std::sync::{PoisonError, RwLock};
use std::time::{Duration, Instant};

/// Flows that are hashed, then looked up, together.
const CHUNK: usize = 1024;

/// The outcome of an insertion; the numbers are those of `fibula.Inserted`.
#[derive(Clone, Copy)]
#[repr(u8)]
enum Inserted {
    New = 0,
    Replaced = 1,
    Exists = 2,
    Full = 3,
}

/// A table of some widths. Keys are bytes one after the other.
trait Flows: Send + Sync {
    fn put(&mut self, keys: &[u8], values: &[u64], lifetime: u16, replace: bool, done: &mut [u8])
    -> Result<(), String>;
    fn lookup(&self, keys: &[u8], values: &mut [u64], found: &mut [bool]);
    /// The time that a Rust program takes to look up keys of its own type.
    fn pass(&self, keys: &[u8]) -> Duration;
    fn remove(&mut self, keys: &[u8], removed: &mut [bool]);
    fn advance(&mut self, now: u64);
    fn scan(&mut self) -> (Vec<u8>, Vec<u64>);
    fn items(&self) -> (Vec<u8>, Vec<u64>);
    fn grow(&mut self) -> Result<(), String>;
    fn clear(&mut self);
    fn len(&self) -> usize;
    fn capacity(&self) -> usize;
    fn now(&self) -> u64;
    fn size_bytes(&self) -> usize;
}

/// A key of as many words from its bytes.
fn key<const K: usize>(bytes: &[u8]) -> [u64; K] {
    let mut key = [0; K];
    key.iter_mut().zip(bytes.as_chunks().0).for_each(|(word, bytes)| *word = u64::from_le_bytes(*bytes));
    key
}

fn value<const V: usize>(words: &[u64]) -> [u64; V] {
    let mut value = [0; V];
    value.copy_from_slice(words);
    value
}

/// Adds a flow to a list.
fn push<const K: usize, const V: usize>((keys, values): &mut (Vec<u8>, Vec<u64>), key: &[u64; K], value: &[u64; V]) {
    key.iter().for_each(|word| keys.extend(word.to_le_bytes()));
    values.extend(value);
}

impl<const K: usize, const V: usize> Flows for flow::FlowTable<K, V> {
    fn put(
        &mut self,
        keys: &[u8],
        values: &[u64],
        lifetime: u16,
        replace: bool,
        done: &mut [u8],
    ) -> Result<(), String> {
        let mut digests = [Digest(0); CHUNK];
        let chunks = keys.chunks(CHUNK * 8 * K).zip(values.chunks(CHUNK * V)).zip(done.chunks_mut(CHUNK));
        for ((keys, values), done) in chunks {
            let keys: Vec<[u64; K]> = keys.chunks_exact(8 * K).map(key).collect();
            let digests = &mut digests[..keys.len()];
            self.digests(&keys, digests);
            self.begin_batch(digests);
            for (((key, digest), words), done) in keys.iter().zip(digests).zip(values.chunks_exact(V)).zip(done) {
                let value = value(words);
                let outcome = if replace {
                    let put = self.upsert(key, *digest, &value, lifetime, |_, _| {});
                    put.map(|(_, was_there)| if was_there { Inserted::Replaced } else { Inserted::New })
                } else {
                    self.insert(key, *digest, &value, lifetime, |_, _| {}).map(|_| Inserted::New)
                };
                *done = match outcome {
                    Ok(outcome) => outcome,
                    Err(InsertError::Exists { .. }) => Inserted::Exists,
                    Err(InsertError::Full { .. } | InsertError::Crowded) => Inserted::Full,
                    // Of the first flow if of any: none was inserted.
                    Err(error) => return Err(error.to_string()),
                } as u8;
            }
        }
        Ok(())
    }

    fn lookup(&self, keys: &[u8], values: &mut [u64], found: &mut [bool]) {
        found.fill(false);
        let mut digests = [Digest(0); CHUNK];
        let mut words = [[0; K]; CHUNK];
        let chunks = keys.chunks(CHUNK * 8 * K).zip(values.chunks_mut(CHUNK * V)).zip(found.chunks_mut(CHUNK));
        for ((keys, values), found) in chunks {
            let words = &mut words[..found.len()];
            words.iter_mut().zip(keys.chunks_exact(8 * K)).for_each(|(word, bytes)| *word = key(bytes));
            let digests = &mut digests[..found.len()];
            self.digests(words, digests);
            self.for_each_found(words, digests, |at, _, value| {
                found[at] = true;
                values[at * V..(at + 1) * V].copy_from_slice(value);
            });
        }
    }

    fn pass(&self, keys: &[u8]) -> Duration {
        let keys: Vec<[u64; K]> = keys.chunks_exact(8 * K).map(key).collect();
        // Written to, so that no page of them is new to the pass.
        let (mut values, mut found) = (vec![[u64::MAX; V]; keys.len()], vec![true; keys.len()]);
        let mut digests = [Digest(0); CHUNK];
        let start = Instant::now();
        found.fill(false);
        let chunks = keys.chunks(CHUNK).zip(values.chunks_mut(CHUNK)).zip(found.chunks_mut(CHUNK));
        for ((keys, values), found) in chunks {
            let digests = &mut digests[..keys.len()];
            self.digests(keys, digests);
            self.for_each_found(keys, digests, |at, _, value| (found[at], values[at]) = (true, *value));
        }
        black_box((&values, &found));
        start.elapsed()
    }

    fn remove(&mut self, keys: &[u8], removed: &mut [bool]) {
        removed.fill(false);
        let keys: Vec<[u64; K]> = keys.chunks_exact(8 * K).map(key).collect();
        let mut digests = vec![Digest(0); keys.len()];
        self.digests(&keys, &mut digests);
        self.remove_batch(&keys, &digests, |at, _| removed[at] = true);
    }

    fn advance(&mut self, now: u64) {
        flow::FlowTable::advance(self, now);
    }

    fn scan(&mut self) -> (Vec<u8>, Vec<u64>) {
        let mut ended = Default::default();
        flow::FlowTable::scan(self, usize::MAX, |key, value| push(&mut ended, key, value));
        ended
    }

    fn items(&self) -> (Vec<u8>, Vec<u64>) {
        let mut items = Default::default();
        self.iter().for_each(|(_, key, value)| push(&mut items, key, value));
        items
    }

    fn grow(&mut self) -> Result<(), String> {
        flow::FlowTable::grow(self).map_err(|error| error.to_string())?;
        // A flow that finds no place stays where it is found as before, and is tried again when the table grows again.
        while self.is_growing() && self.migrate(usize::MAX, |_, _| {}).n_moved > 0 {}
        Ok(())
    }

    fn clear(&mut self) {
        flow::FlowTable::clear(self);
    }

    fn len(&self) -> usize {
        self.iter().count()
    }

    fn capacity(&self) -> usize {
        flow::FlowTable::capacity(self)
    }

    fn now(&self) -> u64 {
        flow::FlowTable::now(self)
    }

    fn size_bytes(&self) -> usize {
        let memory = self.memory();
        memory.buckets_bytes + memory.entries_bytes
    }
}

/// A table of flows.
#[pyclass(module = "fibula._native", frozen)]
pub(crate) struct FlowTable {
    flows: RwLock<Box<dyn Flows>>,
    /// Bytes of a key, words of a value.
    widths: (usize, usize),
}

impl FlowTable {
    fn read<T>(&self, then: impl FnOnce(&dyn Flows) -> T) -> T {
        then(&**self.flows.read().unwrap_or_else(PoisonError::into_inner))
    }

    fn write<T>(&self, then: impl FnOnce(&mut dyn Flows) -> T) -> T {
        then(&mut **self.flows.write().unwrap_or_else(PoisonError::into_inner))
    }

    /// The number of keys in as many bytes.
    fn n_keys(&self, keys: &[u8]) -> PyResult<usize> {
        let width = self.widths.0;
        if keys.len().is_multiple_of(width) {
            return Ok(keys.len() / width);
        }
        Err(value_error(format!("{} bytes are not keys of {width} bytes", keys.len())))
    }
}

fn check(what: &str, got: usize, wanted: usize) -> PyResult<()> {
    if got == wanted { Ok(()) } else { Err(value_error(format!("{got} {what}, {wanted} are needed"))) }
}

/// Keys and values of flows.
type Items<'py> = (Bound<'py, PyBytes>, Bound<'py, PyArray1<u64>>);

#[pymethods]
impl FlowTable {
    #[new]
    fn new(
        key_bytes: usize,
        value_words: usize,
        capacity: usize,
        max_capacity: usize,
        hash: &str,
        now: u64,
    ) -> PyResult<FlowTable> {
        let family: Family = crate::arrays::parsed(hash)?;
        let settings = Settings { max_capacity, family, now, ..Settings::new(capacity) };
        fn of<const K: usize, const V: usize>(settings: &Settings) -> PyResult<Box<dyn Flows>> {
            Ok(Box::new(flow::FlowTable::<K, V>::new(settings).map_err(value_error)?))
        }
        let flows = match (key_bytes, value_words) {
            (8, 1) => of::<1, 1>(&settings)?,
            (8, 2) => of::<1, 2>(&settings)?,
            (16, 1) => of::<2, 1>(&settings)?,
            (16, 2) => of::<2, 2>(&settings)?,
            (40, 1) => of::<5, 1>(&settings)?,
            (40, 2) => of::<5, 2>(&settings)?,
            _ => {
                let text = format!("keys of {key_bytes} bytes, values of {value_words} words");
                return Err(value_error(format!("{text}: keys have 8, 16 or 40 bytes, values 1 or 2 words")));
            }
        };
        Ok(FlowTable { flows: RwLock::new(flows), widths: (key_bytes, value_words) })
    }

    fn put(
        &self,
        py: Python<'_>,
        keys: Bound<'_, PyArray1<u8>>,
        values: Bound<'_, PyArray1<u64>>,
        lifetime: u16,
        replace: bool,
        done: Bound<'_, PyArray1<u8>>,
    ) -> PyResult<()> {
        let (keys, values, mut done) = (reading(&keys)?, reading(&values)?, writing(&done)?);
        let (keys, values, done) = (elements(&keys)?, elements(&values)?, places(&mut done)?);
        let n = self.n_keys(keys)?;
        check("words of values", values.len(), n * self.widths.1)?;
        check("places", done.len(), n)?;
        py.detach(|| self.write(|flows| flows.put(keys, values, lifetime, replace, done))).map_err(value_error)
    }

    fn lookup(
        &self,
        py: Python<'_>,
        keys: Bound<'_, PyArray1<u8>>,
        values: Bound<'_, PyArray1<u64>>,
        found: Bound<'_, PyArray1<bool>>,
    ) -> PyResult<()> {
        let (keys, mut values, mut found) = (reading(&keys)?, writing(&values)?, writing(&found)?);
        let (keys, values, found) = (elements(&keys)?, places(&mut values)?, places(&mut found)?);
        let n = self.n_keys(keys)?;
        check("words for values", values.len(), n * self.widths.1)?;
        check("places", found.len(), n)?;
        py.detach(|| self.read(|flows| flows.lookup(keys, values, found)));
        Ok(())
    }

    fn remove(
        &self,
        py: Python<'_>,
        keys: Bound<'_, PyArray1<u8>>,
        removed: Bound<'_, PyArray1<bool>>,
    ) -> PyResult<()> {
        let (keys, mut removed) = (reading(&keys)?, writing(&removed)?);
        let (keys, removed) = (elements(&keys)?, places(&mut removed)?);
        check("places", removed.len(), self.n_keys(keys)?)?;
        py.detach(|| self.write(|flows| flows.remove(keys, removed)));
        Ok(())
    }

    /// Seconds of one pass over keys without Python in between: see `fibula.rate`.
    fn rust_pass(&self, py: Python<'_>, keys: Bound<'_, PyArray1<u8>>) -> PyResult<f64> {
        let keys = reading(&keys)?;
        let keys = elements(&keys)?;
        self.n_keys(keys)?;
        Ok(py.detach(|| self.read(|flows| flows.pass(keys))).as_secs_f64())
    }

    fn advance(&self, now: u64) {
        self.write(|flows| flows.advance(now));
    }

    fn scan<'py>(&self, py: Python<'py>) -> Items<'py> {
        let (keys, values) = py.detach(|| self.write(|flows| flows.scan()));
        (PyBytes::new(py, &keys), PyArray1::from_vec(py, values))
    }

    fn items<'py>(&self, py: Python<'py>) -> Items<'py> {
        let (keys, values) = py.detach(|| self.read(|flows| flows.items()));
        (PyBytes::new(py, &keys), PyArray1::from_vec(py, values))
    }

    fn grow(&self, py: Python<'_>) -> PyResult<()> {
        py.detach(|| self.write(|flows| flows.grow())).map_err(value_error)
    }

    fn clear(&self, py: Python<'_>) {
        py.detach(|| self.write(|flows| flows.clear()));
    }

    /// Flows that have not ended. O(slots).
    fn __len__(&self, py: Python<'_>) -> usize {
        py.detach(|| self.read(|flows| flows.len()))
    }

    #[getter]
    fn capacity(&self) -> usize {
        self.read(|flows| flows.capacity())
    }

    #[getter]
    fn now(&self) -> u64 {
        self.read(|flows| flows.now())
    }

    #[getter]
    fn size_bytes(&self) -> usize {
        self.read(|flows| flows.size_bytes())
    }

    #[getter]
    fn key_bytes(&self) -> usize {
        self.widths.0
    }

    #[getter]
    fn value_words(&self) -> usize {
        self.widths.1
    }
}
