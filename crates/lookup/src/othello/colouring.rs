//! What one switch's cells hold: a graph of names, coloured by what each name means at that switch.
//!
//! Phase II of the papers. The values of names come from a function of their payload, so that hundreds of switches
//! share one graph and keep, a shard, only the digest of their cells and the last version sent. Colours are canonical:
//! the smallest vertex of every component has colour 0 (or a pseudo-random one: [`super::spread`]), so cells are a pure function of (graph, tombstones, values)
//! and a restarted controller derives the same. What an edge XORs to is its name's value and, where cells have them
//! ([`super::fingerprint`]), its fingerprint; the emptiness indicator spreads from the root of a component, for no edge
//! changes it.
//!
//! Cost (10M names): about 12 ns a name and switch for whole shards, and once 10 for their order; an update walks one
//! component. Source: "Memory-efficient and Ultra-fast Network Lookup and Forwarding using Othello Hashing", IV.B, V.A.

use super::fingerprint::Check;
use super::graph::{Change, Delta, Graph};
use super::index::Index;
use super::kernel::prefetch;
use super::query::OthelloQuery;
use super::shard::{Payload, Peeled, Shard};
use super::sizing::{Sides, Sizing};
use super::spread::Roots;
use super::update::{CellsUpdate, ShardImage, Update};
use super::{Settings, ShardId, cell_prf};
use crate::cells::{Cells, CellsVisitor, cells_per_word, with_cells};
use crate::hash::{Digest, mix64};

/// What the other side of the seam has of one shard, as far as this side knows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Sent {
    version: u64,
    digest: u64,
}

impl Sent {
    fn of(image: &ShardImage) -> Self {
        Self { version: image.version, digest: image.digest }
    }
}

/// One switch's colouring of a graph: 16 bytes a shard, or also a copy of its cells, which spares an update the way
/// to the root of its component.
#[derive(Clone, Debug)]
pub struct Colouring {
    /// By slot of the graph.
    sent: Vec<Sent>,
    /// The cells, by slot, where they are kept.
    kept: Option<Vec<Vec<u64>>>,
    colours: Vec<u64>,
    path: Vec<usize>,
}

impl Colouring {
    /// Colours the whole graph: the colouring, and the query structure that it describes.
    ///
    /// `value` gives the value of a live name's payload at this switch; it must fit into a cell.
    pub fn export<S: Sizing, P: Payload>(graph: &Graph<S, P>, value: impl Fn(P) -> u64) -> (Self, OthelloQuery<S>) {
        Self::export_many(graph, 1, |_, payload| value(payload)).pop().expect("one was asked for")
    }

    /// Colours the graph for `n` switches at once, which shares the search for an order; `value` also takes the
    /// number of the switch.
    pub fn export_many<S: Sizing, P: Payload>(
        graph: &Graph<S, P>,
        n: usize,
        value: impl Fn(usize, P) -> u64,
    ) -> Vec<(Self, OthelloQuery<S>)> {
        let mut order = Vec::new();
        let empty = Self::empty(graph, None);
        let mut views = vec![(empty, Vec::new()); n];
        for (slot, shard) in graph.slots() {
            shard.order(&mut order);
            for (view, (colouring, images)) in views.iter_mut().enumerate() {
                let image = colour(graph.settings(), shard, &order, |payload| value(view, payload));
                colouring.sent[slot as usize] = Sent::of(&image);
                images.push(image);
            }
        }
        let settings = graph.settings();
        views.into_iter().map(|(colouring, images)| (colouring, OthelloQuery::from_own(settings, &images))).collect()
    }

    /// A colouring of which the other side has `images` (the shards of the graph, in order), and which keeps their
    /// cells.
    pub(super) fn of_images<S: Sizing, P: Payload>(graph: &Graph<S, P>, images: Vec<ShardImage>) -> Self {
        let mut colouring = Self::empty(graph, Some(Vec::new()));
        for ((slot, _), image) in graph.slots().zip(images) {
            colouring.sent[slot as usize] = Sent::of(&image);
            colouring.kept.as_mut().expect("as made above")[slot as usize] = image.words;
        }
        colouring
    }

    /// A colouring of nothing: a place holder.
    pub(super) fn none() -> Self {
        Self { sent: Vec::new(), kept: None, colours: Vec::new(), path: Vec::new() }
    }

    fn empty<S: Sizing, P: Payload>(graph: &Graph<S, P>, kept: Option<Vec<Vec<u64>>>) -> Self {
        let mut colouring = Self { sent: Vec::new(), kept, colours: Vec::new(), path: Vec::new() };
        colouring.grow(graph.slot_limit());
        colouring
    }

    fn grow(&mut self, slots: usize) {
        if self.sent.len() < slots {
            self.sent.resize(slots, Sent::default());
            if let Some(kept) = &mut self.kept {
                kept.resize(slots, Vec::new());
            }
        }
    }

    /// Notes that the other side has or will have `image`.
    fn note(&mut self, slot: u32, image: &ShardImage) {
        self.sent[slot as usize] = Sent::of(image);
        if let Some(kept) = &mut self.kept {
            kept[slot as usize].clone_from(&image.words);
        }
    }

    /// Starts fetching the cells that an insert of `digest` looks at, where a copy is kept.
    pub(super) fn prefetch<S: Sizing, P: Payload>(&self, graph: &Graph<S, P>, digest: Digest) {
        if let Some(kept) = &self.kept {
            let (slot, vertices) = graph.cells_of(digest);
            let (words, cell_bits) = (&kept[slot as usize], graph.settings().cell_bits());
            for vertex in vertices {
                prefetch(words.as_ptr().wrapping_add((vertex / cells_per_word(cell_bits)) as usize).cast());
            }
        }
    }

    /// Appends the update that brings this switch along after `change`, the latest mutation of `graph`.
    ///
    /// Where some cells changed and none of them is another at this switch, nothing is appended. `value` is the one that
    /// the colouring was made with.
    pub fn updates<S: Sizing, P: Payload>(
        &mut self,
        graph: &Graph<S, P>,
        change: &Change,
        value: impl Fn(P) -> u64,
        updates: &mut Vec<Update>,
    ) {
        match change {
            Change::None => {}
            Change::Cells { slot } => {
                let drop = graph.settings().check().fingerprint;
                let value = |_, payload: Option<P>| payload.map_or(drop, &value);
                updates.extend(self.recolour(graph, *slot, value).map(Update::Cells));
            }
            Change::Shards { slots, .. } => {
                updates.push(Update::Shards(slots.iter().map(|&slot| self.image(graph, slot, &value)).collect()));
            }
        }
    }

    /// The new values of the cells that the latest mutation changed. `value` is what an edge XORs to beside its
    /// fingerprint, by its index and its payload (`None` where it is a tombstone).
    pub(super) fn recolour<S: Sizing, P: Payload>(
        &mut self,
        graph: &Graph<S, P>,
        slot: u32,
        value: impl Fn(u32, Option<P>) -> u64,
    ) -> Option<CellsUpdate> {
        let walk = graph.last_walk();
        let shard = graph.shard(slot);
        let settings = graph.settings();
        let (seed, cell_bits, check) = (settings.seed, settings.cell_bits(), settings.check());
        let id = ShardId { prefix: shard.prefix, depth: shard.depth };
        let roots = Roots::new(settings, id);
        let joint = match &mut self.kept {
            Some(kept) => with_cells(&mut kept[slot as usize], cell_bits, Read(walk.joint)) | check.touched,
            None => {
                shard.path(walk.joint, &mut self.path);
                self.path.iter().fold(roots.colour(shard.root(walk.joint)) | check.touched, |colour, &index| {
                    let edge = &shard.edges[index];
                    colour ^ value(index as u32, edge.value()) ^ check.fingerprint_of(edge.digest)
                })
            }
        };
        self.colours.clear();
        for (at, step) in walk.steps.iter().enumerate() {
            let parent = if at == 0 { joint } else { self.colours[step.parent as usize] };
            let over = value(step.edge, step.payload);
            debug_assert!(step.payload.is_none() || over <= check.value, "a value must fit into its field");
            self.colours.push(parent ^ over ^ step.fingerprint);
        }
        let delta = match walk.delta {
            Delta::OldRoot(step) => {
                let touched = if walk.fresh { 0 } else { check.touched };
                self.colours[step] ^ (roots.colour(walk.steps[step].vertex) | touched)
            }
            Delta::Altered(old, new) => {
                let edge = walk.steps[0].edge;
                value(edge, old) ^ value(edge, new)
            }
        };
        let sent = &mut self.sent[slot as usize];
        let mut cells = Vec::with_capacity(walk.steps.len() + 1);
        if walk.fresh_joint && check.touched != 0 {
            // An isolated vertex becomes the root of a component.
            sent.digest ^= cell_prf(seed, walk.joint, joint);
            cells.push((walk.joint, joint));
        }
        if delta != 0 {
            for (step, &colour) in walk.steps.iter().zip(&self.colours) {
                sent.digest ^= cell_prf(seed, step.vertex, colour ^ delta) ^ cell_prf(seed, step.vertex, colour);
                cells.push((step.vertex, colour));
            }
        }
        if cells.is_empty() {
            return None;
        }
        if let Some(kept) = &mut self.kept {
            with_cells(&mut kept[slot as usize], cell_bits, Edit(&cells));
        }
        // Without the walked part, only a joint changed that was isolated.
        let fresh = walk.fresh || delta == 0;
        let from = std::mem::replace(&mut sent.version, shard.version);
        Some(CellsUpdate { id, from, to: shard.version, digest: sent.digest, fresh, cells })
    }

    /// The whole shard in `slot` for this switch: after a rebuild, or because the switch asked for it.
    pub fn image<S: Sizing, P: Payload>(
        &mut self,
        graph: &Graph<S, P>,
        slot: u32,
        value: impl Fn(P) -> u64,
    ) -> ShardImage {
        let shard = graph.shard(slot);
        let mut order = Vec::new();
        shard.order(&mut order);
        let image = colour(graph.settings(), shard, &order, value);
        self.grow(graph.slot_limit());
        self.note(slot, &image);
        image
    }

    /// As [`Colouring::image`], with a value for every edge and every place in the stash.
    pub(super) fn image_by_edge<S: Sizing, P: Payload>(
        &mut self,
        graph: &Graph<S, P>,
        slot: u32,
        value: impl Fn(u32, Option<P>) -> u64,
        stashed: impl Fn(usize, Option<P>) -> u64,
    ) -> ShardImage {
        let shard = graph.shard(slot);
        let mut order = Vec::new();
        shard.order(&mut order);
        let image = colour_by_edge(graph.settings(), shard, &order, value, stashed);
        self.grow(graph.slot_limit());
        self.note(slot, &image);
        image
    }

    /// What a switch that is up to date has of every shard, in order of digests: (shard, version, digest). The version
    /// is that of the last message; later versions of the shard changed no cell of this switch.
    pub fn held<'a, S: Sizing, P: Payload>(
        &'a self,
        graph: &'a Graph<S, P>,
    ) -> impl Iterator<Item = (u32, ShardId, u64, u64)> + 'a {
        graph.slots().map(|(slot, shard)| {
            // Should an undo leave a shard that was never coloured here: of it nothing was sent.
            let Sent { version, digest } = self.sent.get(slot as usize).copied().unwrap_or_default();
            (slot, ShardId { prefix: shard.prefix, depth: shard.depth }, version, digest)
        })
    }

    /// Digest of the cells of the shard in `slot`, as of the last update or image.
    pub(super) fn digest(&self, slot: u32) -> u64 {
        self.sent[slot as usize].digest
    }

    /// Notes that the switch has `version` of the shard in `slot`: it reported so, with the digest that is due.
    pub fn set_version(&mut self, slot: u32, version: u64) {
        self.sent[slot as usize].version = version;
    }
}

/// Reads one cell.
struct Read(u32);
impl CellsVisitor for Read {
    type Output = u64;
    fn visit(self, cells: impl Cells) -> u64 {
        cells.get(self.0 as usize)
    }
}

/// Sets some cells.
pub(super) struct Edit<'a>(pub(super) &'a [(u32, u64)]);
impl CellsVisitor for Edit<'_> {
    type Output = ();
    fn visit(self, mut cells: impl Cells) {
        for &(cell, value) in self.0 {
            cells.set(cell as usize, value);
        }
    }
}

/// Colours one shard along `order`.
pub(super) fn colour<S: Sizing, P: Payload>(
    settings: &Settings,
    shard: &Shard<S, P>,
    order: &[Peeled<S::Index>],
    value: impl Fn(P) -> u64,
) -> ShardImage {
    let drop = settings.check().fingerprint;
    let of_edge = |_, payload: Option<P>| payload.map_or(drop, &value);
    colour_by_edge(settings, shard, order, of_edge, |_, payload| payload.map_or(0, &value))
}

/// As [`colour`], with a value for every edge (beside its fingerprint) and every place in the stash; payloads are
/// `None` where names were removed.
fn colour_by_edge<S: Sizing, P: Payload>(
    settings: &Settings,
    shard: &Shard<S, P>,
    order: &[Peeled<S::Index>],
    value: impl Fn(u32, Option<P>) -> u64,
    stashed: impl Fn(usize, Option<P>) -> u64,
) -> ShardImage {
    struct Paint<'a, S: Sizing, P: Payload, F, const FINGERPRINTS: bool, const SPREAD: bool> {
        seed: u64,
        roots: Roots,
        shard: &'a Shard<S, P>,
        order: &'a [Peeled<S::Index>],
        check: Check,
        value: F,
    }
    impl<S: Sizing, P: Payload, F: Fn(u32, Option<P>) -> u64, const FINGERPRINTS: bool, const SPREAD: bool> CellsVisitor
        for Paint<'_, S, P, F, FINGERPRINTS, SPREAD>
    {
        type Output = u64;
        fn visit(self, mut cells: impl Cells) -> u64 {
            let Self { seed, roots, shard, order, check, value } = self;
            let mut digest = 0;
            if SPREAD {
                // As if every vertex were isolated; those that are not get their colours below.
                for vertex in 0..shard.sides.cells() {
                    let colour = roots.colour(vertex);
                    cells.set(vertex as usize, colour);
                    digest ^= cell_prf(seed, vertex, colour);
                }
            }
            for step in order {
                let edge = &shard.edges[step.edge.get()];
                let mut over = value(step.edge.get() as u32, edge.value());
                let mut parent = cells.get(step.parent.get());
                if FINGERPRINTS {
                    over ^= check.fingerprint_of(edge.digest);
                    if parent == 0 {
                        // The root of a component, seen for the first time.
                        parent = check.touched;
                        cells.set(step.parent.get(), parent);
                        digest ^= cell_prf(seed, step.parent.get() as u32, parent);
                    }
                }
                let colour = parent ^ over;
                if SPREAD {
                    digest ^= cell_prf(seed, step.child.get() as u32, cells.get(step.child.get()));
                }
                cells.set(step.child.get(), colour);
                digest ^= cell_prf(seed, step.child.get() as u32, colour);
            }
            digest
        }
    }
    let (seed, cell_bits, check) = (settings.seed, settings.cell_bits(), settings.check());
    let n_words = shard.sides.cells() / settings.cells_per_word();
    let mut words = vec![0; n_words as usize];
    let id = ShardId { prefix: shard.prefix, depth: shard.depth };
    let mut digest = geometry_prf(seed, id, shard.sides, shard.tweak);
    let roots = Roots::new(settings, id);
    macro_rules! paint {
        ($fingerprints:literal, $spread:literal) => {{
            let value = &value;
            with_cells(
                &mut words,
                cell_bits,
                Paint::<_, _, _, $fingerprints, $spread> { seed, roots, shard, order, check, value },
            )
        }};
    }
    digest ^= match (check.touched != 0, settings.spread) {
        (true, _) => paint!(true, false),
        (false, true) => paint!(false, true),
        (false, false) => paint!(false, false),
    };
    let stash: Vec<_> =
        shard.stash.iter().enumerate().map(|(at, edge)| (Digest(edge.digest), stashed(at, edge.value()))).collect();
    for &(name, value) in &stash {
        digest ^= stash_prf(seed, name, value);
    }
    ShardImage { id, version: shard.version, sides: shard.sides, tweak: shard.tweak, digest, stash, words }
}

/// The share of its id, sizes and tweak in a shard's digest: shards of the same cells but another reading differ.
pub(super) fn geometry_prf(seed: u64, id: ShardId, sides: Sides, tweak: u16) -> u64 {
    let place = mix64(seed ^ (u64::from(id.prefix) << 8 | u64::from(id.depth)));
    mix64(place ^ (u64::from(sides.a) << 32 | u64::from(sides.b))) ^ mix64(place.wrapping_add(u64::from(tweak) + 1))
}

/// A stashed name's share of its shard's digest.
pub(super) fn stash_prf(seed: u64, name: Digest, value: u64) -> u64 {
    mix64(mix64(seed ^ name.0).wrapping_add(value))
}
