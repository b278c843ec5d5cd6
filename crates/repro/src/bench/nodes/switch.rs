//! The node that forwards: the switch's own worker over ports of DPDK, with a table or without.

use super::failed;
use super::plan::{Plan, exit_of};
use crate::BenchError;
use dataplane::assembly::{self, PortSpec, Settings};
use dataplane::exact::ExactTable;
use dataplane::parse::Names;
use dataplane::plane::PlaneWriter;
use dataplane::port::Role;
use dataplane::shim;
use dataplane::table::{FibTable, Table};
use fib::action::{Action, PortId};
use fib::designs::{self, Burst, Design, Reader, Spec};
use fib::name::{Name, NameKind};
use lookup::base::marked::Searches;
use lookup::hash::Digest;
use lookup::traits::BatchReader;
use netio::BURST;
use netio::backend::dpdk::{Dpdk, Eal, EalOptions, Options};
use std::sync::atomic::AtomicBool;
use std::time::Duration;

/// Starts EAL and opens a device as a switch does.
pub(super) fn open(plan: &Plan, device: &str) -> Result<Dpdk, BenchError> {
    let options = EalOptions { arguments: plan.eal.clone(), devices: plan.devices.clone() };
    let eal = Eal::start(&options).map_err(|error| failed("starting DPDK", &error))?;
    // Both sides have processors of their own, so neither sleeps.
    let options = Options { room: shim::LEN as u16, longest_nap: Duration::ZERO, ..Options::default() };
    let members = match Dpdk::open_group(eal, device, &options, 1) {
        Err(error) if error.is_transient() => Dpdk::absent_group(eal, device, &options, 1),
        opened => opened,
    };
    let mut members = members.map_err(|error| failed("opening a port", &error))?;
    Ok(members.remove(0))
}

/// Says that it is ready, and forwards until the process ends.
pub(super) fn run(
    plan: &Plan,
    design: Option<&str>,
    astray: Option<u64>,
    ready: impl FnOnce() -> Result<(), BenchError>,
) -> Result<(), BenchError> {
    let words = plan.names.words()?;
    let input = plan.names.input(&words)?;
    let hasher = input.hasher();
    let Some(design) = design else {
        drop(words);
        let n_ports = plan.n_ports;
        return forward(plan, ready, |writer: &mut PlaneWriter<SaysItself>| {
            writer.set_table(NameKind::Mac, &hasher, || SaysItself { n_ports });
        });
    };
    let design = crate::design(design).map_err(|error| failed("a design", &error))?;
    let (key, family) = (input.secret_key(), input.family);
    let spec = Spec::new(design, NameKind::Mac, family, key, plan.names.value_bits, words.len());
    let macs = words.iter().map(|name| Name::from_bytes(NameKind::Mac, &name.to_le_bytes()[..6]));
    let macs = macs.collect::<Result<Vec<_>, _>>().map_err(|error| failed("a name", &error))?;
    let exit = |word: u64| match exit_of(word, plan.n_ports) {
        // Neither its own port nor the one that it comes by, if there are three.
        exit if astray == Some(word) => 1 + (exit + 1) % plan.n_ports,
        exit => exit,
    };
    let entries =
        designs::keys(&hasher, macs.iter()).into_iter().zip(&words).map(|(key, &word)| (key, exit(word) as u16));
    let table = spec.build(&entries.collect::<Vec<_>>(), input.build_threads);
    let table = table.map_err(|error| input.build_error(design.name, error))?;
    drop(macs);
    forward(plan, ready, |writer: &mut PlaneWriter<FibTable>| {
        writer.set_table(NameKind::Mac, &hasher, || FibTable::new(NameKind::Mac, hasher.clone(), table.reader()));
    })
}

fn forward<T: Table + 'static>(
    plan: &Plan,
    ready: impl FnOnce() -> Result<(), BenchError>,
    set_up: impl FnOnce(&mut PlaneWriter<T>),
) -> Result<(), BenchError> {
    super::bind(plan.cpu)?;
    let ids = (1..=plan.n_ports as u16).map(PortId);
    let ports = ids
        .clone()
        .zip(&plan.devices)
        .map(|(id, device)| Ok::<_, BenchError>(PortSpec::with(id, Role::Trunk, Box::new(open(plan, device)?))));
    let ports = ports.collect::<Result<Vec<_>, _>>()?;
    let (mut workers, _monitor, mut writer) =
        assembly::build::<T>(&Settings::default(), ports).map_err(|error| failed("building a switch", &error))?;
    let actions: Vec<Action> = std::iter::once(Action::Drop).chain(ids.map(Action::Port)).collect();
    writer.set_actions(&actions);
    set_up(&mut writer);
    ready()?;
    let idle_polls = Settings::default().idle_polls;
    workers[0].run(&AtomicBool::new(false), idle_polls).map_err(|error| failed("forwarding", &error))
}

/// The same loop without a lookup: names say by themselves where they lead.
struct SaysItself {
    n_ports: usize,
}

impl Table for SaysItself {
    #[inline]
    fn digests(&self, _: &Names, _: &mut [Digest; BURST]) {}

    #[inline]
    fn begin_members(&self, _: &ExactTable, _: &[Digest], _: &mut Searches) {}

    #[inline]
    fn advance_members(&self, _: &ExactTable, _: &Names, _: &[Digest; BURST], _: &mut Searches) {}

    #[inline]
    fn members(&self, _: &ExactTable, _: &Names, _: &[Digest; BURST], _: &Searches) -> u32 {
        u32::MAX
    }

    #[inline]
    fn reader(&mut self) -> &mut Reader {
        self
    }
}

impl BatchReader<Burst<'_>> for SaysItself {
    #[inline]
    fn lookup_batch(&mut self, names: &Burst<'_>, values: &mut [u64]) {
        names.names.fill(1, false, values);
        values.iter_mut().for_each(|value| *value = exit_of(*value, self.n_ports) as u64);
    }

    fn offline(&mut self) {}
}
