//! Both halves of Bloom forwarders, of whatever policy: filters of all values, and an exact table of what they get wrong.

use super::Spec;
use super::each::{self, Maker};
use super::keys::Key;
use super::skeleton::Skeleton;
use super::table::{Served, Table, TableError};
use lookup::bloom_fib::{BloomFib, BloomFibQuery, Form, Policy, Settings};
use lookup::hash::Digest;
use lookup::traits::{Control, InsertError};

/// Share of alien names that all filters together take for others, at most, where a policy is sized by it.
pub(super) const FALSE_POSITIVES: f64 = 0.01;

/// The ports that values of so many bits can stand for.
pub(super) fn n_ports(value_bits: u8) -> usize {
    (1 << value_bits) - 1
}

/// What a forwarder of this policy, which may depend on the number of ports, is built with.
pub(super) fn settings(spec: &Spec, policy: fn(usize) -> Policy) -> Settings {
    Settings::new(spec.value_bits, spec.max_names, policy(n_ports(spec.value_bits)), Form::Separate, &spec.key)
}

/// A forwarder of `entries`.
pub(super) fn make(settings: &Settings, entries: &[(Digest, u64)]) -> Result<BloomFib, InsertError> {
    let mut control = BloomFib::new(settings.clone());
    control.insert_batch(entries, &mut Vec::new()).map(|()| control)
}

/// The controller's half: a forwarder for each view, since filters hold values.
pub(super) fn skeleton(
    spec: &Spec,
    policy: fn(usize) -> Policy,
    names: &[(Key<'_>, u32)],
) -> Result<Box<dyn Skeleton>, InsertError> {
    let settings = settings(spec, policy);
    each::skeleton::<BloomFib>(Maker { kind: spec.kind, settings, make, is_static: false }, names)
}

/// The switch's half.
pub(super) fn table(spec: &Spec, policy: fn(usize) -> Policy, image: &[u8]) -> Result<Box<dyn Table>, TableError> {
    Served::<BloomFibQuery>::from_image(spec.kind, &settings(spec, policy), image)
}
