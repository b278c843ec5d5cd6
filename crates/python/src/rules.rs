//! Lists of rules over five-tuples, as `fibula rules` builds, writes and reads them.

use crate::arrays::{NamesArg, parsed, places, value_error, writing};
use ::fib::name::NameKind;
use ::fib::rules::{self, Actions, AnyFlow, ListedRule};
use lookup::rules::{Flow, RulesQuery};
use lookup::traits::Query;
use numpy::PyArray1;
use pyo3::prelude::*;
use pyo3::types::PyBytes;

/// Flows that are looked up together.
const CHUNK: usize = 1024;

/// A table that does not change, and the bytes of its file: of the table alone no file can be made.
#[pyclass(module = "fibula._native", frozen)]
pub(crate) struct RuleTable {
    table: rules::RuleTable,
    bytes: Vec<u8>,
}

impl RuleTable {
    fn of(bytes: Vec<u8>) -> PyResult<RuleTable> {
        let table = rules::RuleTable::decode(&bytes).map_err(value_error)?;
        Ok(RuleTable { table, bytes })
    }
}

/// The flows of one version of IP among those that are looked up together, and where their answers belong.
struct Side<const W: usize> {
    flows: Vec<Flow<W>>,
    places: Vec<usize>,
    numbers: [u64; CHUNK],
}

impl<const W: usize> Side<W> {
    fn new() -> Side<W> {
        Side { flows: Vec::with_capacity(CHUNK), places: Vec::with_capacity(CHUNK), numbers: [0; CHUNK] }
    }

    #[inline]
    fn push(&mut self, flow: Flow<W>, place: usize) {
        self.flows.push(flow);
        self.places.push(place);
    }

    /// Looks them up and forgets them.
    fn answer(&mut self, table: &RulesQuery<W>, out: &mut [u32]) {
        let numbers = &mut self.numbers[..self.flows.len()];
        table.lookup_batch(&self.flows, numbers);
        // There are fewer than 2^32 rules.
        self.places.drain(..).zip(numbers).for_each(|(place, number)| out[place] = *number as u32);
        self.flows.clear();
    }
}

#[pymethods]
impl RuleTable {
    /// The table of a list, and how many of its rules have flags of TCP, which are not compared. `actions`: those that rules may have,
    /// with commas between them.
    #[staticmethod]
    fn build(py: Python<'_>, list: &str, actions: &str) -> PyResult<(RuleTable, usize)> {
        let actions = parsed::<Actions>(actions)?.or("; for other actions, list all of them with actions=");
        py.detach(|| {
            let rules = rules::read(list.as_bytes(), &actions).map_err(value_error)?;
            let n_flags = rules.iter().filter(|ListedRule { had_flags, .. }| *had_flags).count();
            let bytes = rules::encode(&rules).map_err(value_error)?;
            Ok((RuleTable::of(bytes)?, n_flags))
        })
    }

    #[staticmethod]
    fn decode(py: Python<'_>, bytes: &[u8]) -> PyResult<RuleTable> {
        py.detach(|| RuleTable::of(bytes.to_vec()))
    }

    fn encode<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        PyBytes::new(py, &self.bytes)
    }

    /// The numbers of the rules that answer for flows, from 1; 0 if none matches.
    fn lookup(&self, py: Python<'_>, flows: NamesArg<'_>, out: Bound<'_, PyArray1<u32>>) -> PyResult<()> {
        let (flows, mut out) = (flows.borrow()?, writing(&out)?);
        let (flows, out) = (flows.packed(NameKind::FiveTuple)?, places(&mut out)?);
        if flows.len() != out.len() {
            return Err(value_error(format!("{} places for {} flows", out.len(), flows.len())));
        }
        py.detach(|| {
            let (mut v4, mut v6) = (Side::new(), Side::new());
            for (from, out) in (0..).step_by(CHUNK).zip(out.chunks_mut(CHUNK)) {
                for (place, out) in out.iter_mut().enumerate() {
                    match AnyFlow::of_bytes(flows.get(from + place)) {
                        Some(AnyFlow::V4(flow)) => v4.push(flow, place),
                        Some(AnyFlow::V6(flow)) => v6.push(flow, place),
                        None => *out = 0,
                    }
                }
                v4.answer(self.table.v4(), out);
                v6.answer(self.table.v6(), out);
            }
        });
        Ok(())
    }

    /// Line in the list and action of each rule.
    #[getter]
    fn rules(&self) -> Vec<(u32, String)> {
        self.table.rules().map(|rule| (rule.line, rule.action.to_owned())).collect()
    }

    /// Hash tables of IPv4 and of IPv6.
    #[getter]
    fn n_tables(&self) -> (usize, usize) {
        (self.table.v4().n_tables(), self.table.v6().n_tables())
    }
}
