//! The networks a demo can run: switches by name, links with costs, from a built-in list, a shape, or a TOML file.
//!
//! The file format is that of `abilene.toml` in this folder: `name`, `switches = ["a", "b"]`,
//! `links = [{ a = "a", b = "b", cost = 1 }]`, and `core = ["b"]` for switches without hosts. Unknown keys are errors.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use serde::Deserialize;

/// Upper bound on the switches of a demo: each needs a process and a few interfaces on this machine.
pub(super) const MAX_SWITCHES: usize = 200;

/// Why a topology cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub(super) enum TopologyError {
    #[error("cannot read the topology {path}: {source}; --topology takes a TOML file or one of {known}", known = Shape::NAMES)]
    Unreadable { path: PathBuf, source: std::io::Error },
    #[error("the topology {path} is malformed: {message}")]
    Malformed { path: PathBuf, message: String },
    #[error("the topology has {got} switches; a demo takes 1 to {MAX_SWITCHES}")]
    Size { got: usize },
    #[error("switch {name:?} is listed twice under `switches`; remove one")]
    DuplicateSwitch { name: String },
    #[error("link {a:?} - {b:?} names a switch that is not listed under `switches`; add it there")]
    UnknownSwitch { a: String, b: String },
    #[error("core switch {name:?} is not listed under `switches`; add it there")]
    UnknownCore { name: String },
    #[error("all switches are listed under `core`, so none has hosts; remove some from it")]
    NoGateways,
    #[error("link {a:?} - {b:?} joins a switch to itself; a link joins two switches")]
    Loop { a: String, b: String },
    #[error("link {a:?} - {b:?} has cost 0; set it to at least 1")]
    ZeroCost { a: String, b: String },
    #[error("switch {name:?} cannot be reached from {from:?}; every switch needs a path to every other")]
    Disconnected { name: String, from: String },
    #[error("the topology {name:?} has {fixed} switches of its own; leave --switches out")]
    FixedSize { name: String, fixed: usize },
}

impl TopologyError {
    /// Whether the error is in a topology file rather than in the command line.
    pub(super) fn is_in_file(&self) -> bool {
        !matches!(self, Self::Unreadable { .. } | Self::Size { .. } | Self::FixedSize { .. })
    }
}

/// A link between two switches, by their index in [`Topology::switches`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Link {
    pub(super) a: usize,
    pub(super) b: usize,
    pub(super) cost: u32,
}

/// A connected network of switches.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Topology {
    pub(super) name: String,
    /// Switches with hosts come first.
    pub(super) switches: Vec<String>,
    pub(super) links: Vec<Link>,
    /// Switches with hosts; the others only carry transit traffic.
    pub(super) n_gateways: usize,
}

/// The topologies that need no file.
#[derive(Debug, Clone, Copy)]
enum Shape {
    Abilene,
    Line,
    Ring,
    Star,
    Mesh,
    Fabric,
}

/// Spines of a fabric, which have no hosts; the other switches are its leaves.
const SPINES: usize = 2;

impl Shape {
    const NAMES: &'static str = "abilene, line, ring, star, mesh, fabric";

    fn from_name(name: &str) -> Option<Self> {
        Some(match name {
            "abilene" => Self::Abilene,
            "line" => Self::Line,
            "ring" => Self::Ring,
            "star" => Self::Star,
            "mesh" => Self::Mesh,
            "fabric" => Self::Fabric,
            _ => return None,
        })
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    name: String,
    switches: Vec<String>,
    /// The switches without hosts.
    #[serde(default)]
    core: Vec<String>,
    links: Vec<FileLink>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct FileLink {
    a: String,
    b: String,
    #[serde(default = "unit_cost")]
    cost: u32,
}

fn unit_cost() -> u32 {
    1
}

impl Topology {
    /// Resolves `--topology` and `--switches`: a built-in name, a shape of that many switches, or a file.
    ///
    /// # Errors
    /// [`TopologyError`], which says what to change.
    pub(super) fn choose(topology: &str, n_switches: Option<usize>) -> Result<Self, TopologyError> {
        let shape = Shape::from_name(topology);
        let chosen = match shape {
            Some(Shape::Abilene) => Self::parse(include_str!("abilene.toml"), Path::new("abilene"))?,
            Some(shape) => return Self::of_shape(shape, topology, n_switches.unwrap_or(4)),
            None => {
                let path = PathBuf::from(topology);
                let text = std::fs::read_to_string(&path)
                    .map_err(|source| TopologyError::Unreadable { path: path.clone(), source })?;
                Self::parse(&text, &path)?
            }
        };
        match n_switches {
            Some(n) if n != chosen.switches.len() => {
                Err(TopologyError::FixedSize { name: chosen.name, fixed: chosen.switches.len() })
            }
            _ => Ok(chosen),
        }
    }

    fn parse(text: &str, path: &Path) -> Result<Self, TopologyError> {
        let mut file: File = toml::from_str(text)
            .map_err(|e| TopologyError::Malformed { path: path.to_owned(), message: e.to_string() })?;
        if let Some(name) = file.core.iter().find(|name| !file.switches.contains(name)) {
            return Err(TopologyError::UnknownCore { name: name.clone() });
        }
        file.switches.sort_by_key(|name| file.core.contains(name));
        let n_gateways = file.switches.iter().filter(|name| !file.core.contains(name)).count();
        let mut index = HashMap::new();
        for (i, name) in file.switches.iter().enumerate() {
            if index.insert(name.as_str(), i).is_some() {
                return Err(TopologyError::DuplicateSwitch { name: name.clone() });
            }
        }
        let mut links = Vec::with_capacity(file.links.len());
        for FileLink { a, b, cost } in &file.links {
            let (Some(&i), Some(&j)) = (index.get(a.as_str()), index.get(b.as_str())) else {
                return Err(TopologyError::UnknownSwitch { a: a.clone(), b: b.clone() });
            };
            if i == j {
                return Err(TopologyError::Loop { a: a.clone(), b: b.clone() });
            }
            if *cost == 0 {
                return Err(TopologyError::ZeroCost { a: a.clone(), b: b.clone() });
            }
            links.push(Link { a: i, b: j, cost: *cost });
        }
        Self { name: file.name, switches: file.switches, links, n_gateways }.checked()
    }

    fn of_shape(shape: Shape, name: &str, n: usize) -> Result<Self, TopologyError> {
        if n == 0 || n > MAX_SWITCHES {
            return Err(TopologyError::Size { got: n });
        }
        let link = |a, b| Link { a, b, cost: 1 };
        let links = match shape {
            Shape::Line => (1..n).map(|i| link(i - 1, i)).collect(),
            // Two switches make one link, not two parallel ones.
            Shape::Ring if n < 3 => (1..n).map(|i| link(i - 1, i)).collect(),
            Shape::Ring => (0..n).map(|i| link(i, (i + 1) % n)).collect(),
            Shape::Star => (1..n).map(|i| link(0, i)).collect(),
            Shape::Fabric => {
                let leaves = n.saturating_sub(SPINES);
                (0..leaves).flat_map(|leaf| (leaves..n).map(move |spine| link(leaf, spine))).collect()
            }
            Shape::Mesh | Shape::Abilene => (0..n).flat_map(|a| (a + 1..n).map(move |b| link(a, b))).collect(),
        };
        let n_gateways = if matches!(shape, Shape::Fabric) { n.saturating_sub(SPINES) } else { n };
        let switches = (0..n).map(|i| format!("s{i}")).collect();
        Self { name: name.to_owned(), switches, links, n_gateways }.checked()
    }

    fn checked(self) -> Result<Self, TopologyError> {
        let n = self.switches.len();
        if n == 0 || n > MAX_SWITCHES {
            return Err(TopologyError::Size { got: n });
        }
        if self.n_gateways == 0 {
            return Err(TopologyError::NoGateways);
        }
        match self.reached_without(None).iter().position(|&reached| !reached) {
            Some(i) => {
                Err(TopologyError::Disconnected { name: self.switches[i].clone(), from: self.switches[0].clone() })
            }
            None => Ok(self),
        }
    }

    /// The links whose loss leaves the network connected, so that it can recover from a cut; none in a tree, otherwise at
    /// least two.
    ///
    /// The cheapest first: shortest paths tend to use them, so their loss has an effect.
    pub(super) fn redundant_links(&self) -> Vec<usize> {
        let mut links: Vec<usize> = (0..self.links.len())
            .filter(|&cut| self.reached_without(Some(cut)).iter().all(|&reached| reached))
            .collect();
        links.sort_by_key(|&i| self.links[i].cost);
        links
    }

    /// The switches that switch 0 reaches when link `cut` is down.
    fn reached_without(&self, cut: Option<usize>) -> Vec<bool> {
        let mut reached = vec![false; self.switches.len()];
        let mut frontier = vec![0];
        while let Some(at) = frontier.pop() {
            if std::mem::replace(&mut reached[at], true) {
                continue;
            }
            for (i, link) in self.links.iter().enumerate() {
                if Some(i) != cut {
                    if link.a == at {
                        frontier.push(link.b);
                    } else if link.b == at {
                        frontier.push(link.a);
                    }
                }
            }
        }
        reached
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn abilene_has_eleven_switches_and_fourteen_links() {
        let t = Topology::choose("abilene", None).unwrap();
        assert_eq!((t.switches.len(), t.links.len()), (11, 14));
        assert_eq!(t.redundant_links()[..2], [2, 1], "the cheapest ones");
    }

    #[test]
    fn shapes_have_the_links_of_their_name() {
        for (shape, n, links) in [
            ("line", 5, 4),
            ("ring", 5, 5),
            ("ring", 2, 1),
            ("ring", 1, 0),
            ("star", 5, 4),
            ("mesh", 5, 10),
            ("fabric", 6, 8),
        ] {
            let t = Topology::choose(shape, Some(n)).unwrap();
            assert_eq!((t.switches.len(), t.links.len()), (n, links), "{shape} of {n}");
        }
    }

    #[test]
    fn a_tree_has_no_redundant_link_and_in_a_ring_all_are() {
        assert!(Topology::choose("star", Some(4)).unwrap().redundant_links().is_empty());
        assert_eq!(Topology::choose("ring", Some(4)).unwrap().redundant_links(), [0, 1, 2, 3]);
    }

    #[test]
    fn core_switches_come_last_and_keep_their_links() {
        let text = "name = \"t\"\nswitches = [\"mid\", \"a\", \"b\"]\ncore = [\"mid\"]\n\
                    links = [{ a = \"a\", b = \"mid\" }, { a = \"mid\", b = \"b\" }]";
        let t = Topology::parse(text, Path::new("t.toml")).unwrap();
        assert_eq!((t.n_gateways, t.switches.last().unwrap().as_str()), (2, "mid"));
        assert!(t.links.iter().all(|link| [link.a, link.b].contains(&2)));
        assert_eq!(Topology::choose("fabric", Some(6)).unwrap().n_gateways, 4);
        assert!(matches!(Topology::choose("fabric", Some(2)), Err(TopologyError::NoGateways)));
        let text = text.replace("core = [\"mid\"]", "core = [\"x\"]");
        assert!(matches!(Topology::parse(&text, Path::new("t.toml")), Err(TopologyError::UnknownCore { .. })));
    }

    #[test]
    fn bad_topologies_are_refused_by_kind() {
        let parse = |text: &str| Topology::parse(text, Path::new("t.toml"));
        let with = |links: &str| parse(&format!("name = \"t\"\nswitches = [\"a\", \"b\", \"c\"]\nlinks = [{links}]"));
        assert!(matches!(with(""), Err(TopologyError::Disconnected { .. })));
        assert!(matches!(with("{ a = \"a\", b = \"z\" }"), Err(TopologyError::UnknownSwitch { .. })));
        assert!(matches!(with("{ a = \"a\", b = \"a\" }"), Err(TopologyError::Loop { .. })));
        assert!(matches!(with("{ a = \"a\", b = \"b\", cost = 0 }"), Err(TopologyError::ZeroCost { .. })));
        assert!(matches!(with("{ a = \"a\", b = \"b\", price = 3 }"), Err(TopologyError::Malformed { .. })));
        assert!(matches!(
            parse("name = \"t\"\nswitches = [\"a\", \"a\"]\nlinks = []"),
            Err(TopologyError::DuplicateSwitch { .. })
        ));
        assert!(matches!(Topology::choose("ring", Some(0)), Err(TopologyError::Size { got: 0 })));
        assert!(matches!(Topology::choose("abilene", Some(4)), Err(TopologyError::FixedSize { fixed: 11, .. })));
        assert!(matches!(Topology::choose("/no/such/file", None), Err(TopologyError::Unreadable { .. })));
    }
}
