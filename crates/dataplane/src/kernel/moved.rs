//! Makes a table readable by the kernel: moves it to memory that programs read, and loads a program that reads it.

use super::settings::{SETTINGS_BYTES, Settings};
use super::{Exit, Kernel, KernelError, Memory, State};
use fib::action::{Action, PortId};
use fib::designs::{Spec, Table};
use fib::name::NameKind;
use lookup::base::arena::Arena;
use lookup::base::shown;
use netio::backend::af_xdp::Attached;
use netio::bpf::{Map, Program, Words};
use std::io;
use std::os::fd::AsFd;
use std::sync::atomic::Ordering;

/// The program for each kind of memory, made by scripts/kernel-program.
const IN_ARENA: &[u8] = include_bytes!("forward-arena.bpf");
const IN_ARRAY: &[u8] = include_bytes!("forward-array.bpf");
/// Values that a table can have.
const VALUES: u32 = 1 << 16;
/// Most bytes of an arena, less than the 4 GiB that the kernel can have.
const MOST_OF_ARENA: usize = (4 << 30) - (2 << 20);
/// Bytes of an array, whose memory is taken at once: at least, and at most, which the verifier sets.
const LEAST_OF_ARRAY: usize = 16 << 20;
const MOST_OF_ARRAY: usize = 512 << 20;
/// The kind of lead to a host: TO_HOST of `forward.bpf.c`.
const TO_HOST: u64 = 1 << 31;

/// The place where the kernel finds a table.
#[derive(Debug)]
pub(super) struct InKernel {
    memory: Map,
    pub(super) is_arena: bool,
    leads: Map,
    pub(super) leads_words: Words,
    settings: [u8; SETTINGS_BYTES],
}

impl Kernel {
    /// Moves a table to where the kernel reads it.
    pub(super) fn move_table(
        &self,
        spec: &Spec,
        actions: &[Action],
        fib: &mut dyn Table,
        state: &State,
    ) -> Result<InKernel, KernelError> {
        let names = match spec.kind {
            NameKind::Mac => Some((1, 6)),
            NameKind::Ipv4 => Some((2, 4)),
            _ => None,
        };
        let constants = names.and_then(|(kind, len)| Some((kind, spec.hasher().constants(len)?)));
        let Some((kind, constants)) = constants else {
            return Err(KernelError::Names { kind: spec.kind, family: spec.family.to_string() });
        };
        let failed = |source| KernelError::Table { design: spec.design.name, source };
        let writer = shown::this_process().map_err(|error| failed(error.into()))?;
        let bytes = fib.size_bits().div_ceil(8) as usize;
        let mut memory = None;
        let form = fib.share(spec, writer, &mut |most| {
            let (map, bytes, is_arena) = make_memory(self.memory, most, bytes)?;
            let arena = Arena::on_memory(map.file()?, bytes)?;
            let place = if is_arena { arena.base().addr() } else { bytes / 8 - 1 };
            memory = Some((map, is_arena, place as u64));
            Ok(arena)
        });
        let form = form.map_err(failed)?;
        let (memory, is_arena, place) = memory.expect("the table was moved");
        let leads = Map::array(8, VALUES).map_err(KernelError::Maps)?;
        let leads_words = leads.words().map_err(KernelError::Maps)?;
        self.lead(&leads_words, actions, &state.exits);
        let settings = Settings::new(kind, constants, place, form);
        Ok(InKernel { memory, is_arena, leads, leads_words, settings: settings.bytes() })
    }

    /// Tells the program where values lead.
    pub(super) fn lead(&self, leads: &Words, actions: &[Action], exits: &[Exit]) {
        let is_trunk = |slot: u32| (slot as usize) < self.n_trunks;
        let to = |id: PortId| match self.slot(id) {
            Some(slot) if is_trunk(slot) => u64::from(slot) + 1,
            Some(slot) => TO_HOST | (u64::from(slot) + 1),
            None => 0,
        };
        let is_open = |id: PortId| self.slot(id).is_some_and(|slot| exits[slot as usize].is_open());
        let lead = |(value, action): (usize, &Action)| match action {
            Action::Port(id) => to(*id),
            Action::Protected { port, alternate } => {
                // The workers take the alternate: the frame's shim must say so.
                if !is_open(*port) && is_open(*alternate) { 0 } else { to(*port) }
            }
            // The program does not look at flows: all frames to a destination go one way, and those to others another.
            Action::Spread { ways, alternate } => {
                let turned = ways.iter().cycle().skip(ways.place_for(value as u64)).take(ways.len());
                let open = turned.clone().find(|port| is_open(**port));
                let is_detour = open.is_none() && alternate.is_some_and(is_open);
                open.or(turned.clone().next()).filter(|_| !is_detour).map_or(0, |port| to(*port))
            }
            Action::Local => TO_HOST,
            Action::Drop | Action::Tunnel { .. } | Action::Punt => 0,
        };
        let of_actions = actions.iter().enumerate().map(lead).chain(std::iter::repeat(0));
        leads.iter().zip(of_actions).for_each(|(word, lead)| word.store(lead, Ordering::Relaxed));
    }

    /// Loads the program of a trunk, and attaches it in place of the previous one.
    pub(super) fn load(&self, table: &InKernel, slot: u32, to: &Attached) -> Result<Program, KernelError> {
        let port = self.ports[slot as usize];
        let mut settings = table.settings;
        settings[SETTINGS_BYTES - 4..].copy_from_slice(&slot.to_ne_bytes());
        let settings = Map::constant(&settings).map_err(KernelError::Maps)?;
        // In the order of scripts/kernel-program.
        let [in_driver, before_stack] = &self.interfaces;
        let maps = [
            &table.memory,
            &table.leads,
            self.local.map(),
            &self.longest,
            &self.counts,
            if to.is_in_driver() { in_driver } else { before_stack },
            to.sockets(),
            &settings,
        ];
        let program = self.program.as_deref().unwrap_or(if table.is_arena { IN_ARENA } else { IN_ARRAY });
        let program = Program::load(program, &maps.map(|map| map.as_fd()))
            .map_err(|source| KernelError::Program { port, source })?;
        to.replace(Some(&program)).map_err(|source| KernelError::Attach { port, source })?;
        Ok(program)
    }
}

/// Memory for a table that takes `bytes` now and `most` at any time.
fn make_memory(memory: Memory, most: usize, bytes: usize) -> io::Result<(Map, usize, bool)> {
    let in_arena = most.min(MOST_OF_ARENA).next_multiple_of(4096);
    if memory == Memory::Best
        && let Ok(map) = Map::arena(in_arena)
    {
        return Ok((map, in_arena, true));
    }
    // A power of two, so that a mask keeps what is read inside.
    let in_array = (4 * bytes).min(most).clamp(LEAST_OF_ARRAY, MOST_OF_ARRAY).next_power_of_two();
    Ok((Map::array(in_array, 1)?, in_array, false))
}
