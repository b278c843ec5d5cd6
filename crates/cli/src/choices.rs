//! Values that completions offer for an option, which something else reads: what it does not know it refuses in its own words.

use clap::builder::{PossibleValue, TypedValueParser};
use std::ffi::OsStr;

/// A reader of values, and those that are offered.
#[derive(Clone)]
pub(crate) struct Choices<P> {
    reads: P,
    offered: Vec<&'static str>,
}

/// Offers values for what `reads` reads.
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
