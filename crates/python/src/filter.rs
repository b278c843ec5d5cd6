//! Bloom filters of any layout, with or without counters, as `fibula filter` builds, writes and reads them.

use crate::arrays::{NamesArg, Packed, parsed, places, value_error, writing};
use ::fib::name::NameKind;
use lookup::bloom::image::{self, Header};
use lookup::bloom::named::{LAYOUTS, TooLong, layout_of, parse_layout, word};
use lookup::bloom::{AddressHashing, Bloom, CounterBits, Counting, Layout, Shape};
use lookup::hash::{Digest, Family, Hasher, Purpose, SecretKey};
use lookup::with_layout;
use numpy::PyArray1;
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use std::any::Any;
use std::hint::black_box;
use std::sync::{PoisonError, RwLock};
use std::time::{Duration, Instant};

/// Names that are hashed, then looked up, together.
const CHUNK: usize = 1024;
/// The most bytes of a filter with its counters, as `fibula filter` builds it.
const MOST_BYTES: u64 = 4 << 30;

/// A filter of some layout.
trait Set: Send + Sync {
    fn words(&self, hasher: &Hasher, names: &Packed<'_>, from: usize, out: &mut [Digest]) -> Result<(), TooLong>;
    fn contains(&self, words: &[Digest], present: &mut [bool]);
    /// The time that a Rust program takes to look up names.
    fn pass(&self, hasher: &Hasher, names: &Packed<'_>) -> Result<Duration, TooLong>;
    fn insert(&mut self, words: &[Digest]);
    /// Whether the name was removed; not if the counters say that it is not in, or there are none.
    fn remove(&mut self, word: Digest) -> bool;
    fn unite(&mut self, other: &dyn Set) -> Result<(), String>;
    fn encode(&self, header: &Header) -> Vec<u8>;
    fn expected_fp(&self, n_names: u64) -> f64;
    fn fp(&self) -> f64;
    fn as_any(&self) -> &dyn Any;
}

enum Held<L: Layout> {
    Plain(Bloom<L>),
    Counting(Counting<L>),
}

impl<L: Layout> Held<L> {
    fn filter(&self) -> &Bloom<L> {
        match self {
            Held::Plain(filter) => filter,
            Held::Counting(counting) => counting.filter(),
        }
    }
}

impl<L: Layout> Set for Held<L> {
    fn words(&self, hasher: &Hasher, names: &Packed<'_>, from: usize, out: &mut [Digest]) -> Result<(), TooLong> {
        if L::NAME != AddressHashing::NAME {
            names.digests(hasher, from, out);
            return Ok(());
        }
        (from..).zip(out).try_for_each(|(at, out)| word::<L>(hasher, names.get(at)).map(|word| *out = word))
    }

    fn contains(&self, words: &[Digest], present: &mut [bool]) {
        self.filter().lookup_batch(words, present);
    }

    fn pass(&self, hasher: &Hasher, names: &Packed<'_>) -> Result<Duration, TooLong> {
        // Written to, so that no page of it is new to the pass.
        let mut present = vec![true; names.len()];
        let start = Instant::now();
        by_chunks(self, hasher, names, |from, words| {
            self.filter().lookup_batch(words, &mut present[from..from + words.len()]);
        })?;
        black_box(&present);
        Ok(start.elapsed())
    }

    fn insert(&mut self, words: &[Digest]) {
        match self {
            Held::Plain(filter) => words.iter().for_each(|word| filter.insert(*word)),
            Held::Counting(counting) => {
                let mut changes = Vec::new();
                for word in words {
                    counting.insert(*word, &mut changes);
                    changes.clear();
                }
            }
        }
    }

    fn remove(&mut self, word: Digest) -> bool {
        match self {
            Held::Plain(_) => false,
            Held::Counting(counting) => counting.remove(word, &mut Vec::new()).is_ok(),
        }
    }

    fn unite(&mut self, other: &dyn Set) -> Result<(), String> {
        let other = other.as_any().downcast_ref::<Held<L>>();
        match (self, other) {
            (Held::Plain(one), Some(Held::Plain(other))) => one.union_with(other).map_err(|e| e.to_string()),
            (Held::Counting(one), Some(Held::Counting(other))) => {
                one.union_with(other, &mut Vec::new()).map_err(|e| e.to_string())
            }
            _ => Err("the other filter has another layout, or only one of both has counters".to_owned()),
        }
    }

    fn encode(&self, header: &Header) -> Vec<u8> {
        match self {
            Held::Plain(filter) => image::encode(filter, header),
            Held::Counting(counting) => image::encode_counting(counting, header),
        }
    }

    fn expected_fp(&self, n_names: u64) -> f64 {
        self.filter().shape().expected_fp(n_names)
    }

    fn fp(&self) -> f64 {
        self.filter().false_positive_rate()
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

/// A filter, and the rest of its file's header.
struct State {
    header: Header,
    set: Box<dyn Set>,
}

/// A filter over names of one kind.
#[pyclass(module = "fibula._native", frozen)]
pub(crate) struct Filter {
    state: RwLock<State>,
    hasher: Hasher,
    kind: NameKind,
    layout: &'static str,
}

/// How large a filter shall be.
struct Size {
    fp: f64,
    capacity: u64,
    bits: Option<(u64, u32)>,
}

impl Size {
    fn shape<L: Layout>(&self, counters: Option<CounterBits>) -> Result<Shape<L>, String> {
        let shape = match self.bits {
            Some((bits, positions)) => Shape::<L>::new(bits, positions),
            None => Shape::for_names(self.capacity, self.fp),
        };
        let shape = shape.map_err(|error| error.to_string())?;
        let bytes = shape.bits() / 8 * (1 + counters.map_or(0, |bits| bits as u64));
        if bytes > MOST_BYTES {
            return Err(format!(
                "the filter would take {bytes} bytes, at most {MOST_BYTES} can be built: make several"
            ));
        }
        Ok(shape)
    }
}

fn empty<L: Layout>(
    size: &Size,
    (family, counters, kind): (Family, Option<CounterBits>, NameKind),
    like: Option<&Header>,
) -> Result<State, String> {
    let shape = size.shape::<L>(counters)?;
    let key = like.map_or_else(SecretKey::random, |like| like.key.clone());
    let seed = like.map_or_else(|| key.derive(Purpose::Structure, 4), |like| like.seed);
    let held = match counters {
        None => Held::Plain(Bloom::<L>::new(shape, seed)),
        Some(bits) => Held::Counting(Counting::new(shape, bits, seed)),
    };
    let header = Header::new(held.filter(), family, &key, 0, u16::from_le_bytes(kind.to_wire()));
    Ok(State { header: Header { counters, ..header }, set: Box::new(held) })
}

fn decoded<L: Layout>(bytes: &[u8]) -> Result<State, image::ImageError> {
    let header = image::header(bytes)?;
    let held = match header.counters {
        None => Held::<L>::Plain(image::decode(bytes)?.1),
        Some(_) => Held::Counting(image::decode_counting(bytes)?.1),
    };
    Ok(State { header, set: Box::new(held) })
}

impl Filter {
    fn of(state: State) -> PyResult<Filter> {
        let header = &state.header;
        let layout = layout_of(header.layout);
        let layout =
            layout.ok_or_else(|| value_error(format!("the filter has layout {}, not known here", header.layout)))?;
        let kind = NameKind::from_wire(header.kind.to_le_bytes());
        let kind = kind
            .ok_or_else(|| value_error(format!("the filter is over names of kind {}, not known here", header.kind)))?;
        let hasher = Hasher::new(header.family, &header.key);
        Ok(Filter { state: RwLock::new(state), hasher, kind, layout })
    }

    fn read<T>(&self, then: impl FnOnce(&State) -> T) -> T {
        then(&self.state.read().unwrap_or_else(PoisonError::into_inner))
    }

    fn write<T>(&self, then: impl FnOnce(&mut State) -> T) -> T {
        then(&mut self.state.write().unwrap_or_else(PoisonError::into_inner))
    }
}

/// Calls `each` with the words of names, a chunk at a time, and where the chunk begins.
fn by_chunks<S: Set + ?Sized>(
    set: &S,
    hasher: &Hasher,
    names: &Packed<'_>,
    mut each: impl FnMut(usize, &[Digest]),
) -> Result<(), TooLong> {
    let mut words = [Digest(0); CHUNK];
    for from in (0..names.len()).step_by(CHUNK) {
        let words = &mut words[..CHUNK.min(names.len() - from)];
        set.words(hasher, names, from, words)?;
        each(from, words);
    }
    Ok(())
}

#[pymethods]
impl Filter {
    /// An empty filter. `how`: kind, layout and hash; `size`: capacity and rate. Of `like` it takes kind, layout, size, counters and hash key.
    #[new]
    fn new(
        how: (String, String, String),
        size: (u64, f64),
        bits: Option<(u64, u32)>,
        counters: Option<u8>,
        like: Option<Bound<'_, Filter>>,
    ) -> PyResult<Filter> {
        let ((kind, layout, hash), (capacity, fp)) = (how, size);
        let like = like.map(|like| {
            let like = like.get();
            (like.read(|state| state.header.clone()), like.layout, like.kind)
        });
        let state = match &like {
            Some((header, layout, kind)) => {
                let size = Size { fp, capacity, bits: Some((header.bits, header.n_hashes)) };
                let of_names = (header.family, header.counters, *kind);
                with_layout!(*layout, L => empty::<L>(&size, of_names, Some(header)))
            }
            None => {
                let layout = parse_layout(&layout).map_err(value_error)?;
                let counters = match counters {
                    None => None,
                    Some(4) => Some(CounterBits::Four),
                    Some(8) => Some(CounterBits::Eight),
                    Some(other) => return Err(value_error(format!("counters of {other} bits: 4 or 8"))),
                };
                let of_names = (parsed(&hash)?, counters, parsed(&kind)?);
                with_layout!(layout, L => empty::<L>(&Size { fp, capacity, bits }, of_names, None))
            }
        };
        Filter::of(state.map_err(value_error)?)
    }

    #[staticmethod]
    fn decode(py: Python<'_>, bytes: &[u8]) -> PyResult<Filter> {
        let header = image::header(bytes).map_err(value_error)?;
        let layout = layout_of(header.layout).unwrap_or(LAYOUTS[0]);
        let state = py.detach(|| with_layout!(layout, L => decoded::<L>(bytes)));
        Filter::of(state.map_err(value_error)?)
    }

    fn encode<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        let bytes = py.detach(|| self.read(|state| state.set.encode(&state.header)));
        PyBytes::new(py, &bytes)
    }

    fn insert(&self, py: Python<'_>, names: NamesArg<'_>) -> PyResult<()> {
        let names = names.borrow()?;
        let names = names.packed(self.kind)?;
        py.detach(|| {
            self.write(|state| {
                let mut words = vec![Digest(0); names.len()];
                // All names or none.
                state.set.words(&self.hasher, &names, 0, &mut words)?;
                state.set.insert(&words);
                state.header.n_names += names.len() as u64;
                Ok(())
            })
        })
        .map_err(|error: TooLong| value_error(error))
    }

    /// Says of each name whether it was removed.
    fn remove(&self, py: Python<'_>, names: NamesArg<'_>, removed: Bound<'_, PyArray1<bool>>) -> PyResult<()> {
        let names = names.borrow()?;
        let names = names.packed(self.kind)?;
        let mut removed = writing(&removed)?;
        let removed = places(&mut removed)?;
        if self.read(|state| state.header.counters.is_none()) {
            return Err(value_error("a filter without counters cannot remove names: make one with counters=4"));
        }
        if removed.len() != names.len() {
            return Err(value_error(format!("{} places for {} names", removed.len(), names.len())));
        }
        py.detach(|| {
            self.write(|state| {
                let mut words = vec![Digest(0); names.len()];
                state.set.words(&self.hasher, &names, 0, &mut words)?;
                for (word, removed) in words.into_iter().zip(removed) {
                    *removed = state.set.remove(word);
                    state.header.n_names = state.header.n_names.saturating_sub((*removed).into());
                }
                Ok(())
            })
        })
        .map_err(|error: TooLong| value_error(error))
    }

    fn contains(&self, py: Python<'_>, names: NamesArg<'_>, present: Bound<'_, PyArray1<bool>>) -> PyResult<()> {
        let names = names.borrow()?;
        let names = names.packed(self.kind)?;
        let mut present = writing(&present)?;
        let present = places(&mut present)?;
        if present.len() != names.len() {
            return Err(value_error(format!("{} places for {} names", present.len(), names.len())));
        }
        py.detach(|| {
            self.read(|state| {
                by_chunks(&*state.set, &self.hasher, &names, |from, words| {
                    state.set.contains(words, &mut present[from..from + words.len()]);
                })
            })
        })
        .map_err(value_error)
    }

    /// Seconds of one pass over packed names without Python in between: see `fibula.rate`.
    fn rust_pass(&self, py: Python<'_>, names: NamesArg<'_>) -> PyResult<f64> {
        let names = names.borrow()?;
        let names = names.packed(self.kind)?;
        let took = py.detach(|| self.read(|state| state.set.pass(&self.hasher, &names)));
        Ok(took.map_err(value_error)?.as_secs_f64())
    }

    /// Takes all names of another filter that was made like this one.
    fn unite(&self, other: Bound<'_, Filter>) -> PyResult<()> {
        let other = other.get();
        if std::ptr::eq(self, other) {
            return Ok(());
        }
        // One lock at a time: another thread may unite them the other way round.
        let copy = other.read(|state| state.set.encode(&state.header));
        let other = with_layout!(other.layout, L => decoded::<L>(&copy)).map_err(value_error)?;
        self.write(|state| {
            let (one, two) = (&state.header, &other.header);
            let is_like = (one.kind, one.family, &one.key, one.seed) == (two.kind, two.family, &two.key, two.seed);
            let unlike = "the filters hash names differently: make the second one with like=the first";
            is_like.then_some(()).ok_or_else(|| unlike.to_owned())?;
            state.set.unite(&*other.set)?;
            state.header.n_names = state.header.n_names.saturating_add(other.header.n_names);
            Ok(())
        })
        .map_err(|error: String| value_error(error))
    }

    #[getter]
    fn kind(&self) -> String {
        self.kind.to_string()
    }

    #[getter]
    fn layout(&self) -> &'static str {
        self.layout
    }

    #[getter]
    fn hash(&self) -> &'static str {
        self.hasher.family().name()
    }

    /// Names that were inserted, less those removed.
    #[getter]
    fn n_names(&self) -> u64 {
        self.read(|state| state.header.n_names)
    }

    #[getter]
    fn size_bits(&self) -> u64 {
        self.read(|state| state.header.bits)
    }

    #[getter]
    fn positions(&self) -> u32 {
        self.read(|state| state.header.n_hashes)
    }

    /// Bits of a counter; 0 without.
    #[getter]
    fn counters(&self) -> u8 {
        self.read(|state| state.header.counters.map_or(0, |bits| bits as u8))
    }

    /// The share of other names that get a yes, of this filter as it is filled.
    #[getter]
    fn false_positive_rate(&self) -> f64 {
        self.read(|state| state.set.fp())
    }

    /// The same, expected of a filter of this size with as many names.
    #[getter]
    fn expected_false_positive_rate(&self) -> f64 {
        self.read(|state| state.set.expected_fp(state.header.n_names))
    }
}

/// The names of all layouts.
#[pyfunction]
pub(crate) fn layouts() -> Vec<&'static str> {
    LAYOUTS.to_vec()
}
