//! FIBs of one kind of name, as `fibula fib` builds, writes and reads them.

use crate::arrays::{NamesArg, elements, parsed, places, reading, value_error, writing};
use crate::burst::{Bare, Hashed, look_up};
use ::fib::action::Action;
use ::fib::designs::{Aliens, Design, Guard, Reader, all};
use ::fib::file::{self, Widths};
use ::fib::name::{Name, NameKind};
use lookup::hash::{Digest, Family, Hasher};
use numpy::PyArray1;
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use std::cell::Cell;
use std::sync::{Mutex, PoisonError};

/// A FIB that does not change.
#[pyclass(module = "fibula._native", frozen)]
pub(crate) struct Fib {
    /// Only one thread at a time builds or writes.
    pub(crate) fib: Mutex<file::Fib>,
    pub(crate) hasher: Hasher,
    pub(crate) kind: NameKind,
    /// Drop included: at most 2^16.
    pub(crate) n_actions: usize,
    design: &'static str,
    /// Readers that no thread uses. There are as many as there were lookups at once.
    readers: Mutex<Vec<Box<Reader>>>,
}

impl Fib {
    fn of(fib: file::Fib) -> Fib {
        let (kind, design, hasher) = (fib.kind(), fib.design().name, fib.spec().hasher());
        let n_actions = fib.actions().len();
        Fib { fib: Mutex::new(fib), hasher, kind, n_actions, design, readers: Mutex::default() }
    }

    pub(crate) fn with<T>(&self, then: impl FnOnce(&file::Fib) -> T) -> T {
        then(&self.fib.lock().unwrap_or_else(PoisonError::into_inner))
    }

    pub(crate) fn with_reader<T>(&self, then: impl FnOnce(&mut Reader) -> T) -> T {
        let free = self.readers.lock().unwrap_or_else(PoisonError::into_inner).pop();
        let mut reader = free.unwrap_or_else(|| self.with(file::Fib::reader));
        let done = then(&mut *reader);
        reader.offline();
        self.readers.lock().unwrap_or_else(PoisonError::into_inner).push(reader);
        done
    }
}

#[pymethods]
impl Fib {
    /// `how`: kind, design and hash. `actions` are texts, `numbers` says which of them each name has.
    #[staticmethod]
    #[expect(clippy::too_many_arguments, reason = "keywords in Python")]
    fn build(
        py: Python<'_>,
        how: (String, String, String),
        names: NamesArg<'_>,
        actions: Vec<String>,
        numbers: Bound<'_, PyArray1<u32>>,
        fp: Option<f64>,
        aliens: Option<&str>,
        value_bits: Option<u8>,
        threads: usize,
    ) -> PyResult<Fib> {
        let (kind, family): (NameKind, Family) = (parsed(&how.0)?, parsed(&how.2)?);
        let design = Design::by_name(&how.1).map_err(value_error)?;
        let design = match (aliens, fp) {
            (Some(guard), _) => design.guarded(parsed::<Guard>(guard)?).map_err(value_error)?,
            (None, Some(_)) => design.recognising(),
            (None, None) => design,
        };
        let actions: Vec<Action> = actions.iter().map(|action| parsed(action)).collect::<PyResult<_>>()?;
        let (names, numbers) = (names.borrow()?, reading(&numbers)?);
        let (names, numbers) = (names.packed(kind)?, elements(&numbers)?);
        if numbers.len() != names.len() || numbers.iter().any(|&number| number as usize >= actions.len()) {
            return Err(value_error("one action a name, of those that there are"));
        }
        let threads = match threads {
            0 => std::thread::available_parallelism().map_or(1, |cores| cores.get()),
            threads => threads,
        };
        py.detach(|| {
            let names = names.names(kind)?;
            let entries: Vec<(Name, Action)> =
                names.into_iter().zip(numbers).map(|(name, &number)| (name, actions[number as usize])).collect();
            let widths = Widths { rate: fp, value_bits };
            file::Fib::build_as(design, kind, family, threads, widths, &entries).map(Fib::of).map_err(value_error)
        })
    }

    #[staticmethod]
    fn decode(py: Python<'_>, bytes: &[u8]) -> PyResult<Fib> {
        py.detach(|| file::Fib::decode(bytes).map(Fib::of).map_err(value_error))
    }

    fn encode<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        let bytes = py.detach(|| self.with(file::Fib::encode));
        PyBytes::new(py, &bytes)
    }

    /// The number of each name's action.
    fn lookup(&self, py: Python<'_>, names: NamesArg<'_>, out: Bound<'_, PyArray1<u16>>) -> PyResult<()> {
        let names = names.borrow()?;
        let names = names.packed(self.kind)?;
        let mut out = writing(&out)?;
        let out = places(&mut out)?;
        if out.len() != names.len() {
            return Err(value_error(format!("{} places for {} names", out.len(), names.len())));
        }
        let names = Hashed { names, hasher: &self.hasher };
        py.detach(|| self.with_reader(|reader| look_up(reader, self.n_actions, &names, out)));
        Ok(())
    }

    /// The same for digests.
    fn lookup_digests(
        &self,
        py: Python<'_>,
        digests: Bound<'_, PyArray1<u64>>,
        out: Bound<'_, PyArray1<u16>>,
    ) -> PyResult<()> {
        let (digests, mut out) = (reading(&digests)?, writing(&out)?);
        let (digests, out) = (elements(&digests)?, places(&mut out)?);
        if out.len() != digests.len() {
            return Err(value_error(format!("{} places for {} digests", out.len(), digests.len())));
        }
        let names_were_wanted = py.detach(|| {
            let names = Bare { digests, names_were_wanted: Cell::new(false) };
            self.with_reader(|reader| look_up(reader, self.n_actions, &names, out));
            names.names_were_wanted.get()
        });
        if names_were_wanted {
            let text = format!("{} holds whole names, and cannot look digests up: give the names", self.design);
            return Err(value_error(text));
        }
        Ok(())
    }

    /// The digests of names.
    fn digests(&self, py: Python<'_>, names: NamesArg<'_>, out: Bound<'_, PyArray1<u64>>) -> PyResult<()> {
        let names = names.borrow()?;
        let names = names.packed(self.kind)?;
        let mut out = writing(&out)?;
        let out = places(&mut out)?;
        if out.len() != names.len() {
            return Err(value_error(format!("{} places for {} names", out.len(), names.len())));
        }
        py.detach(|| {
            let mut digests = [Digest(0); 256];
            for (chunk, out) in out.chunks_mut(digests.len()).enumerate() {
                let digests = &mut digests[..out.len()];
                names.digests(&self.hasher, chunk * 256, digests);
                out.iter_mut().zip(digests).for_each(|(out, digest)| *out = digest.0);
            }
        });
        Ok(())
    }

    #[getter]
    fn kind(&self) -> String {
        self.kind.to_string()
    }

    #[getter]
    fn design(&self) -> &'static str {
        self.design
    }

    #[getter]
    fn hash(&self) -> &'static str {
        self.hasher.family().name()
    }

    #[getter]
    fn n_names(&self) -> u64 {
        self.with(file::Fib::n_names)
    }

    /// The texts of the actions; number 0 is drop.
    #[getter]
    fn actions(&self) -> Vec<String> {
        self.with(|fib| fib.actions().iter().map(Action::to_string).collect())
    }

    /// The port of each action; -1 of those without one.
    #[getter]
    fn ports(&self) -> Vec<i32> {
        self.with(|fib| fib.actions().iter().map(|action| action.port().map_or(-1, |port| port.0.into())).collect())
    }

    #[getter]
    fn size_bits(&self) -> u64 {
        self.with(file::Fib::size_bits)
    }

    #[getter]
    fn fingerprint_bits(&self) -> u8 {
        self.with(|fib| fib.spec().fingerprint_bits)
    }

    /// The share of alien names that get an action, at most.
    #[getter]
    fn false_positive_rate(&self) -> f64 {
        match self.with(file::Fib::aliens) {
            Aliens::Arbitrary => 1.0,
            Aliens::DroppedBut { rate } => rate,
            Aliens::Dropped => 0.0,
        }
    }
}

/// Name and summary of every design.
#[pyfunction]
pub(crate) fn designs() -> Vec<(&'static str, &'static str)> {
    all().map(|design| (design.name, design.summary)).collect()
}
