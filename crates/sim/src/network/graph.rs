//! Topologies: nodes and the links between them, read from text.
//!
//! ```text
//! # a comment, and empty lines, may stand anywhere
//! topology ring-of-three
//! node a
//! node b
//! node c
//! link a b 120
//! link b c 80
//! link c a
//! ```
//! A node is declared before the links that name it. The number is the link's cost, at least 1, which is also the
//! default. Fields are separated by blanks, so names have none. `scripts/topologies` writes such files.

use std::collections::{BTreeSet, HashMap};

/// A link between two nodes, by their indices.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Edge {
    /// One node.
    pub a: usize,
    /// The other.
    pub b: usize,
    /// Length in both directions, at least 1.
    pub cost: u32,
}

/// Nodes and links; every node can be reached from every other.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Graph {
    /// Its name.
    pub name: String,
    /// Names of the nodes, all different.
    pub nodes: Vec<String>,
    /// The links, at most one between two nodes.
    pub edges: Vec<Edge>,
}

impl Graph {
    /// Parses a topology.
    /// # Errors
    /// [`GraphError`], which names the line.
    pub fn parse(text: &str) -> Result<Graph, GraphError> {
        let mut graph = Graph { name: String::new(), nodes: Vec::new(), edges: Vec::new() };
        let mut index: HashMap<&str, (usize, usize)> = HashMap::new();
        let mut pairs = BTreeSet::new();
        for (line, text) in (1..).zip(text.lines()) {
            let mut fields = text.split_whitespace();
            let Some(keyword) = fields.next().filter(|first| !first.starts_with('#')) else { continue };
            let rest: Vec<&str> = fields.collect();
            match (keyword, &rest[..]) {
                ("topology", [name]) if graph.name.is_empty() => graph.name = (*name).to_owned(),
                ("topology", [_]) => return Err(GraphError::SecondName { line }),
                ("node", [name]) => {
                    if let Some((_, first)) = index.insert(name, (graph.nodes.len(), line)) {
                        return Err(GraphError::NameTaken { line, name: (*name).to_owned(), first });
                    }
                    graph.nodes.push((*name).to_owned());
                }
                ("link", [a, b, cost @ ..]) if cost.len() < 2 => {
                    let node = |name: &str| match index.get(name) {
                        Some((index, _)) => Ok(*index),
                        None => Err(GraphError::UnknownNode { line, name: name.to_owned() }),
                    };
                    let (from, to) = (node(a)?, node(b)?);
                    let cost = cost.first().map_or(Ok(1), |cost| match cost.parse() {
                        Ok(0) | Err(_) => Err(GraphError::Cost { line, got: (*cost).to_owned() }),
                        Ok(cost) => Ok(cost),
                    })?;
                    if from == to {
                        return Err(GraphError::Loop { line, name: (*a).to_owned() });
                    }
                    if !pairs.insert((from.min(to), from.max(to))) {
                        return Err(GraphError::SecondLink { line, a: (*a).to_owned(), b: (*b).to_owned() });
                    }
                    graph.edges.push(Edge { a: from, b: to, cost });
                }
                ("topology" | "node" | "link", _) => {
                    return Err(GraphError::Fields { line, keyword: keyword.to_owned(), got: rest.len() });
                }
                _ => return Err(GraphError::Keyword { line, got: keyword.to_owned() }),
            }
        }
        if graph.nodes.is_empty() {
            return Err(GraphError::Empty);
        }
        match graph.reached().iter().position(|reached| !reached) {
            Some(node) => {
                let name = graph.nodes[node].clone();
                let line = index[name.as_str()].1;
                Err(GraphError::Unreachable { line, name, from: graph.nodes[0].clone() })
            }
            None => Ok(graph),
        }
    }

    /// The text that [`Graph::parse`] reads.
    pub fn to_text(&self) -> String {
        let mut text = String::new();
        if !self.name.is_empty() {
            text.push_str(&format!("topology {}\n", self.name));
        }
        self.nodes.iter().for_each(|node| text.push_str(&format!("node {node}\n")));
        for edge in &self.edges {
            text.push_str(&format!("link {} {} {}\n", self.nodes[edge.a], self.nodes[edge.b], edge.cost));
        }
        text
    }

    /// Which nodes can be reached from the first.
    pub(super) fn reached(&self) -> Vec<bool> {
        let neighbours = self.neighbours();
        let mut reached = vec![false; self.nodes.len()];
        let mut open = vec![0];
        while let Some(node) = open.pop() {
            if !std::mem::replace(&mut reached[node], true) {
                open.extend(neighbours[node].iter().filter(|peer| !reached[**peer]));
            }
        }
        reached
    }

    /// The neighbours of every node.
    fn neighbours(&self) -> Vec<Vec<usize>> {
        let mut neighbours = vec![Vec::new(); self.nodes.len()];
        for edge in &self.edges {
            neighbours[edge.a].push(edge.b);
            neighbours[edge.b].push(edge.a);
        }
        neighbours
    }

    /// Number of links of every node.
    pub fn degrees(&self) -> Vec<usize> {
        self.neighbours().iter().map(Vec::len).collect()
    }
}

/// Why text is not a topology.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
#[expect(missing_docs, reason = "the messages say what the fields are")]
pub enum GraphError {
    /// An unknown keyword.
    #[error("line {line} begins with `{got}`: begin it with topology, node, link or #")]
    Keyword { line: usize, got: String },
    /// Too few fields, or too many.
    #[error(
        "line {line}: {got} fields after `{keyword}`, but `topology` and `node` take a name, `link` two nodes and a cost"
    )]
    Fields { line: usize, keyword: String, got: usize },
    /// One file, one topology.
    #[error("line {line} names the topology again: remove one of the two")]
    SecondName { line: usize },
    /// Names of nodes are unique.
    #[error("line {line}: there is a node `{name}` since line {first}: give one of them another name")]
    NameTaken { line: usize, name: String, first: usize },
    /// Nodes come before links.
    #[error("line {line}: there is no node `{name}`: declare it in an earlier line")]
    UnknownNode { line: usize, name: String },
    /// An invalid cost.
    #[error("line {line}: `{got}` is not a cost: write a number from 1 to 4294967295")]
    Cost { line: usize, got: String },
    /// Both ends at one node.
    #[error("line {line} links `{name}` to itself; a link joins two nodes")]
    Loop { line: usize, name: String },
    /// At most one link joins two nodes.
    #[error("line {line}: `{a}` and `{b}` are linked already; remove one of the two links")]
    SecondLink { line: usize, a: String, b: String },
    /// A disconnected topology.
    #[error("line {line}: node `{name}` cannot be reached from `{from}`: link the parts, or make them two files")]
    Unreachable { line: usize, name: String, from: String },
    /// No nodes at all.
    #[error("the text has no node; add lines that begin with node")]
    Empty,
    /// Not a size that can be generated.
    #[error("`{got}` is not a generated topology: use ring:N, fat-tree:K (K even) or random:N, with 2 to 65535 nodes")]
    Generated { got: String },
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_comes_back_as_it_was_read() {
        let text = "# two\ntopology pair\nnode a\n\nnode b # not a comment\n";
        assert_eq!(
            Graph::parse(text),
            Err(GraphError::Fields { line: 5, keyword: "node".to_owned(), got: 5 }),
            "a comment has a line of its own"
        );
        let graph = Graph::parse("topology pair\nnode a\nnode b\nlink b a 7\n").unwrap();
        assert_eq!(graph.edges, [Edge { a: 1, b: 0, cost: 7 }]);
        assert_eq!(Graph::parse(&graph.to_text()), Ok(graph));
        let nameless = Graph::parse("node a\n").unwrap();
        assert_eq!(Graph::parse(&nameless.to_text()), Ok(nameless));
    }

    #[test]
    fn malformed_text_is_refused_with_its_line() {
        let cases = [
            ("nodes a", 1, "begins with `nodes`"),
            ("node a\nnode", 2, "0 fields after `node`"),
            ("topology t\ntopology u", 2, "names the topology again"),
            ("node a\n\nnode a", 3, "since line 1"),
            ("node a\nlink a b", 2, "no node `b`"),
            ("node a\nnode b\nlink a b 0", 3, "`0` is not a cost"),
            ("node a\nnode b\nlink a b -3", 3, "`-3` is not a cost"),
            ("node a\nnode b\nlink a b 4294967296", 3, "is not a cost"),
            ("node a\nnode b\nlink a b 1 2", 3, "4 fields after `link`"),
            ("node a\nlink a a", 2, "to itself"),
            ("node a\nnode b\nlink a b\nlink b a", 4, "are linked already"),
            ("node a\nnode b", 2, "`b` cannot be reached from `a`"),
        ];
        for (text, line, says) in cases {
            let error = Graph::parse(text).unwrap_err().to_string();
            assert!(error.starts_with(&format!("line {line}")) && error.contains(says), "{text:?}: {error}");
        }
        assert_eq!(Graph::parse("# nothing\n"), Err(GraphError::Empty));
    }
}
