//! What the cells of one switch hold: a colouring of the graph of names, by what each name means at that switch.
//!
//! This is Phase II of the papers. The value of a name is a function of its payload. So hundreds of switches share one
//! graph, and a colouring keeps only the digest of the cells of each shard and the last version that was sent. Colours
//! are canonical: the smallest vertex of every component has colour 0 (or a pseudo-random one: [`super::spread`]). So
//! cells are a pure function of (graph, tombstones, values), and a restarted controller derives the same cells. The two
//! cells of an edge XOR to the value of its name and, where cells have them ([`super::fingerprint`]), its fingerprint.
//! The emptiness indicator is the same in all cells of a component, because no edge changes it.
//!
//! Cost (10M names): about 12 ns per name and switch for whole shards, and once 10 ns for their order. An update walks
//! one component. Source: "Memory-efficient and Ultra-fast Network Lookup and Forwarding using Othello Hashing", IV.B,
//! V.A.

use super::fingerprint::Check;
use super::graph::{Delta, Graph};
use super::index::Index;
use super::query::OthelloQuery;
use super::shard::{Peeled, Shard};
use super::sizing::{Sides, Sizing};
use super::spread::Roots;
use super::update::{CellsUpdate, ShardImage, Update};
use super::{Settings, cell_prf};
use crate::base::cells::{Cells, CellsVisitor, cells_per_word, with_cells};
use crate::base::directory::Sent;
use crate::base::part::{Change, HeldPart, PartId, Payload};
use crate::base::prefetch::prefetch;
use crate::hash::{Digest, mix64};
use crate::traits::{Image, InsertError, Replicated, Skeleton, View};

/// The colouring of one switch: 16 bytes per shard. It may also keep a copy of the cells, so that an update need not
/// follow the path to the root of its component.
#[derive(Clone, Debug, Default)]
pub struct Colouring {
    sent: Sent,
    /// The cells, by slot, where they are kept.
    kept: Option<Vec<Vec<u64>>>,
    colours: Vec<u64>,
    path: Vec<usize>,
}

impl Colouring {
    /// The colouring of a switch that holds nothing.
    pub(super) fn none() -> Self {
        Self::default()
    }

    /// The colouring of a switch that holds `images`, the shards of the graph in order. It keeps their cells.
    pub(super) fn keeping<S: Sizing, P: Payload>(graph: &Graph<S, P>, images: Vec<ShardImage>) -> Self {
        let mut colouring = Self { kept: Some(Vec::new()), ..Self::default() };
        for ((slot, _), image) in graph.shards().iter().zip(images) {
            colouring.note_cells(slot, image.held(), || image.words);
        }
        colouring
    }

    /// Notes that the other side has or will have these cells of a shard.
    fn note_cells(&mut self, slot: u32, held: HeldPart, words: impl FnOnce() -> Vec<u64>) {
        self.sent.note(slot, held.version, held.digest);
        if let Some(kept) = &mut self.kept {
            if kept.len() <= slot as usize {
                kept.resize(slot as usize + 1, Vec::new());
            }
            kept[slot as usize] = words();
        }
    }

    /// The new values of the cells that the latest mutation changed. `value` gives what the cells of an edge XOR to
    /// besides its fingerprint, from the edge's index and payload (`None` for a tombstone).
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
        let id = shard.id;
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
        let (from, mut digest) = self.sent.get(slot);
        let mut cells = Vec::with_capacity(walk.steps.len() + 1);
        if walk.fresh_joint && check.touched != 0 {
            // An isolated vertex becomes the root of a component.
            digest ^= cell_prf(seed, walk.joint, joint);
            cells.push((walk.joint, joint));
        }
        if delta != 0 {
            for (step, &colour) in walk.steps.iter().zip(&self.colours) {
                digest ^= cell_prf(seed, step.vertex, colour ^ delta) ^ cell_prf(seed, step.vertex, colour);
                cells.push((step.vertex, colour));
            }
        }
        if cells.is_empty() {
            return None;
        }
        // The walk's order follows from how the shard came about, a restart included; this one does not.
        cells.sort_unstable_by_key(|&(cell, _)| cell);
        if let Some(kept) = &mut self.kept {
            with_cells(&mut kept[slot as usize], cell_bits, Edit(&cells));
        }
        // If no walked vertex changed, only an isolated joint did.
        let fresh = walk.fresh || delta == 0;
        self.sent.note(slot, shard.version, digest);
        Some(CellsUpdate { id, from, to: shard.version, digest, fresh, cells })
    }

    /// The image of the shard in `slot`, with a value for every edge and every place in the stash.
    pub(super) fn image_by_edge<S: Sizing, P: Payload>(
        graph: &Graph<S, P>,
        slot: u32,
        value: impl Fn(u32, Option<P>) -> u64,
        stashed: impl Fn(usize, Option<P>) -> u64,
    ) -> ShardImage {
        let shard = graph.shard(slot);
        let mut order = Vec::new();
        shard.order(&mut order);
        fill_by_edge(graph.settings(), shard, &order, value, stashed)
    }

    /// The digest of the cells of the shard in `slot`, as of the last update or image.
    pub(super) fn digest(&self, slot: u32) -> u64 {
        self.sent.get(slot).1
    }
}

impl<S: Sizing, P: Payload> View<Graph<S, P>> for Colouring {
    fn export(graph: &Graph<S, P>, value: impl Fn(P) -> u64) -> Result<(Self, Vec<ShardImage>), InsertError> {
        let (mut order, mut colouring) = (Vec::new(), Self::none());
        let mut image = |(slot, shard): (u32, &Shard<S, P>)| {
            shard.order(&mut order);
            let image = fill(graph.settings(), shard, &order, &value);
            colouring.sent.note(slot, image.version, image.digest);
            image
        };
        let images = graph.shards().iter().map(&mut image).collect();
        Ok((colouring, images))
    }

    fn without_parts() -> Option<Self> {
        Some(Self::none())
    }

    /// All switches share the search for a colouring order.
    fn export_many(
        graph: &Graph<S, P>,
        n: usize,
        value: impl Fn(usize, P) -> u64,
    ) -> Result<Vec<OthelloQuery<S>>, InsertError> {
        let mut order = Vec::new();
        let mut images = vec![Vec::new(); n];
        for (_, shard) in graph.shards().iter() {
            shard.order(&mut order);
            for (switch, images) in images.iter_mut().enumerate() {
                images.push(fill(graph.settings(), shard, &order, |payload| value(switch, payload)));
            }
        }
        Ok(images.iter().map(|images| OthelloQuery::from_own(graph.settings(), images)).collect())
    }

    fn updates(
        &mut self,
        graph: &Graph<S, P>,
        change: &Change,
        value: impl Fn(P) -> u64,
        updates: &mut Vec<Update>,
    ) -> Result<(), InsertError> {
        match change {
            Change::None => {}
            Change::Part { slot } => {
                let drop = graph.settings().check().fingerprint;
                let value = |_, payload: Option<P>| payload.map_or(drop, &value);
                updates.extend(self.recolour(graph, *slot, value).map(Update::Cells));
            }
            Change::Parts { slots, .. } => {
                let mut images = Vec::with_capacity(slots.len());
                for &slot in slots {
                    let image = self.image(graph, slot, &value)?;
                    self.note(graph, slot, &image);
                    images.push(image);
                }
                updates.push(Update::Shards(images));
            }
        }
        Ok(())
    }

    fn image(&self, graph: &Graph<S, P>, slot: u32, value: impl Fn(P) -> u64) -> Result<ShardImage, InsertError> {
        let shard = graph.shard(slot);
        let mut order = Vec::new();
        shard.order(&mut order);
        Ok(fill(graph.settings(), shard, &order, value))
    }

    fn note(&mut self, _: &Graph<S, P>, slot: u32, image: &ShardImage) {
        self.note_cells(slot, image.held(), || image.words.clone());
    }

    fn held(&self, graph: &Graph<S, P>) -> Vec<(u32, HeldPart)> {
        self.sent.held(graph.shards())
    }

    fn set_version(&mut self, slot: u32, version: u64) {
        self.sent.note(slot, version, self.digest(slot));
    }

    /// The vertices, and the cells where a copy of them is kept, all at once.
    fn prefetch(&self, graph: &Graph<S, P>, digest: Digest) {
        if let Some(kept) = &self.kept {
            let (slot, vertices) = graph.cells_of(digest);
            let (words, cell_bits) = (&kept[slot as usize], graph.settings().cell_bits());
            for vertex in vertices {
                prefetch(words.as_ptr().wrapping_add((vertex / cells_per_word(cell_bits)) as usize).cast());
            }
        }
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
struct Edit<'a>(&'a [(u32, u64)]);
impl CellsVisitor for Edit<'_> {
    type Output = ();
    fn visit(self, mut cells: impl Cells) {
        for &(cell, value) in self.0 {
            cells.set(cell as usize, value);
        }
    }
}

/// Fills the cells of one shard along `order`.
pub(super) fn fill<S: Sizing, P: Payload>(
    settings: &Settings,
    shard: &Shard<S, P>,
    order: &[Peeled<S::Index>],
    value: impl Fn(P) -> u64,
) -> ShardImage {
    let drop = settings.check().fingerprint;
    let of_edge = |_, payload: Option<P>| payload.map_or(drop, &value);
    fill_by_edge(settings, shard, order, of_edge, |_, payload| payload.map_or(0, &value))
}

/// As [`fill`], with a value for every edge (besides its fingerprint) and every place in the stash. Payloads are `None`
/// where names were removed.
fn fill_by_edge<S: Sizing, P: Payload>(
    settings: &Settings,
    shard: &Shard<S, P>,
    order: &[Peeled<S::Index>],
    value: impl Fn(u32, Option<P>) -> u64,
    stashed: impl Fn(usize, Option<P>) -> u64,
) -> ShardImage {
    struct Fill<'a, S: Sizing, P: Payload, F, const FINGERPRINTS: bool, const SPREAD: bool> {
        seed: u64,
        roots: Roots,
        shard: &'a Shard<S, P>,
        order: &'a [Peeled<S::Index>],
        check: Check,
        value: F,
    }
    impl<S: Sizing, P: Payload, F: Fn(u32, Option<P>) -> u64, const FINGERPRINTS: bool, const SPREAD: bool> CellsVisitor
        for Fill<'_, S, P, F, FINGERPRINTS, SPREAD>
    {
        type Output = u64;
        fn visit(self, mut cells: impl Cells) -> u64 {
            let Self { seed, roots, shard, order, check, value } = self;
            let mut digest = 0;
            if SPREAD {
                // First every vertex gets the colour of an isolated one. Those that have edges get their colours below.
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
    let id = shard.id;
    let mut digest = geometry_prf(seed, id, shard.sides, shard.tweak);
    let roots = Roots::new(settings, id);
    macro_rules! fill {
        ($fingerprints:literal, $spread:literal) => {{
            let value = &value;
            with_cells(
                &mut words,
                cell_bits,
                Fill::<_, _, _, $fingerprints, $spread> { seed, roots, shard, order, check, value },
            )
        }};
    }
    digest ^= match (check.touched != 0, settings.spread) {
        (true, _) => fill!(true, false),
        (false, true) => fill!(false, true),
        (false, false) => fill!(false, false),
    };
    let stash: Vec<_> =
        shard.stash.iter().enumerate().map(|(at, edge)| (Digest(edge.digest), stashed(at, edge.value()))).collect();
    for &(name, value) in &stash {
        digest ^= stash_prf(seed, name, value);
    }
    ShardImage { id, version: shard.version, sides: shard.sides, tweak: shard.tweak, digest, stash, words }
}

/// The contribution of a shard's id, sizes and tweak to its digest. So shards of the same cells that are read in
/// another way have other digests.
pub(super) fn geometry_prf(seed: u64, id: PartId, sides: Sides, tweak: u16) -> u64 {
    let place = mix64(seed ^ (u64::from(id.prefix) << 8 | u64::from(id.depth)));
    mix64(place ^ (u64::from(sides.a) << 32 | u64::from(sides.b))) ^ mix64(place.wrapping_add(u64::from(tweak) + 1))
}

/// The contribution of a stashed name to the digest of its shard.
pub(super) fn stash_prf(seed: u64, name: Digest, value: u64) -> u64 {
    mix64(mix64(seed ^ name.0).wrapping_add(value))
}
