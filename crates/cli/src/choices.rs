//! Values that completions offer for an option. A separate parser reads the value and reports errors in its own words.

use clap::builder::{PossibleValue, TypedValueParser};
use std::ffi::OsStr;

/// A parser of values, and the values offered.
#[derive(Clone)]
pub(crate) struct Choices<P> {
    reads: P,
    offered: Vec<&'static str>,
}

/// Offers values for the parser `reads`.
pub(crate) fn choices<P>(reads: P, offered: impl IntoIterator<Item = &'static str>) -> Choices<P> {
    Choices { reads, offered: offered.into_iter().collect() }
}

impl<P: TypedValueParser> TypedValueParser for Choices<P> {
    type Value = P::Value;

    fn parse_ref(
        &self,
        command: &clap::Command,
        argument: Option<&clap::Arg>,
        value: &OsStr,
    ) -> Result<P::Value, clap::Error> {
        self.reads.parse_ref(command, argument, value)
    }

    fn possible_values(&self) -> Option<Box<dyn Iterator<Item = PossibleValue> + '_>> {
        Some(Box::new(self.offered.iter().copied().map(PossibleValue::new)))
    }
}
