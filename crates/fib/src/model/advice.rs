//! Which design to take at a gateway and at a core node, by the figures of the model.
//!
//! The rule takes the design with the least memory as built, of those that can change a single name, let few enough
//! aliens pass (at a gateway; a core node gets valid names only), and read at most [`SLOW`] times the cache lines of
//! the design that reads fewest. Designs within [`TIE`] of the least are equal; of these it takes the one that reads
//! fewer lines, at a gateway by the mean over valid and alien names.

use super::designs::{Demand, Figures, Updates, all};

/// Relative difference in memory that counts as none.
pub const TIE: f64 = 0.05;

/// A design that reads more than this many times the fewest lines of any is too slow, whatever its memory: filters for
/// 32 ports save a fourth of the memory of a table, and take ten times its time.
pub const SLOW: f64 = 4.0;

/// The position of a switch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Node {
    /// At the border: names come from outside, aliens among them.
    Gateway,
    /// Inside: gateways have dropped aliens.
    Core,
}

/// Why a design is not the one to take.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Against {
    /// A change rebuilds everything.
    Static,
    /// More aliens than wanted get an action.
    Aliens,
    /// It reads this many times the lines of the one that reads fewest.
    Slow(f64),
    /// It needs this many times the memory of the one taken.
    Memory(f64),
    /// It needs about the same memory, and reads this many times the lines.
    Lines(f64),
}

/// The design to take, and the reasons against the others.
#[derive(Clone, Debug, PartialEq)]
pub struct Advice {
    /// The position of the switch.
    pub node: Node,
    /// The design to take.
    pub taken: Figures,
    /// All others, from the second best.
    pub others: Vec<(Figures, Against)>,
}

/// The design to take. There is always one: a cuckoo table of full names lets no alien pass and takes changes.
pub fn advise(node: Node, demand: &Demand) -> Advice {
    choose(node, demand, all(demand))
}

/// The design to take of those with these figures, of which one must take changes and let few enough aliens pass.
pub fn choose(node: Node, demand: &Demand, rows: Vec<Figures>) -> Advice {
    let unfit = |row: &Figures| {
        if row.updates == Updates::Rebuild {
            Some(Against::Static)
        } else if node == Node::Gateway && !row.meets(demand) {
            Some(Against::Aliens)
        } else {
            None
        }
    };
    let fewest = rows.iter().filter(|row| unfit(row).is_none()).map(|row| lines(node, row)).fold(f64::MAX, f64::min);
    let slow = |row: &Figures| Some(lines(node, row) / fewest).filter(|times| *times > SLOW).map(Against::Slow);
    let (mut fit, mut refused) = (Vec::new(), Vec::new());
    for row in rows {
        match unfit(&row).or_else(|| slow(&row)) {
            None => fit.push(row),
            Some(against) => refused.push((row, against)),
        }
    }
    let least = fit.iter().map(|row| row.built_bits).fold(f64::MAX, f64::min);
    let even = |row: &Figures| row.built_bits <= least * (1.0 + TIE);
    fit.sort_by(|a, b| {
        let by_lines = lines(node, a).total_cmp(&lines(node, b));
        let by_memory = a.built_bits.total_cmp(&b.built_bits);
        if even(a) && even(b) { by_lines.then(by_memory) } else { by_memory }
    });
    let taken = fit.remove(0);
    let beaten = fit.into_iter().map(|row| {
        let against = if even(&row) {
            Against::Lines(lines(node, &row) / lines(node, &taken))
        } else {
            Against::Memory(row.built_bits / taken.built_bits)
        };
        (row, against)
    });
    let mut others: Vec<_> = beaten.collect();
    // Designs that are only too slow come first.
    refused.sort_by_key(|(_, against)| !matches!(against, Against::Slow(_)));
    others.extend(refused);
    Advice { node, taken, others }
}

/// Lines of a lookup at this position.
pub fn lines(node: Node, figures: &Figures) -> f64 {
    match node {
        Node::Gateway => f64::midpoint(figures.lines, figures.lines_alien),
        Node::Core => figures.lines,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::name::NameKind;

    fn demand(fp: f64) -> Demand {
        Demand::new(NameKind::Mac, 10_000_000, 32, fp)
    }

    fn taken(node: Node, demand: &Demand) -> &'static str {
        advise(node, demand).taken.design
    }

    /// The advice if there were no line designs, which are not the papers'.
    fn of_papers(node: Node, demand: &Demand) -> Advice {
        choose(node, demand, all(demand).into_iter().filter(|row| !row.design.starts_with("line")).collect())
    }

    #[test]
    fn core_nodes_get_lines_and_gateways_lines_with_checksums() {
        assert_eq!(taken(Node::Core, &demand(0.01)), "line-small");
        for fp in [0.4, 0.01, 0.001] {
            assert_eq!(taken(Node::Gateway, &demand(fp)), "line-small+checksum");
        }
        // Of the papers' designs it is an Othello without fingerprint, and a Filtable.
        assert_eq!(of_papers(Node::Core, &demand(0.01)).taken.design, "concise");
        assert_eq!(of_papers(Node::Gateway, &demand(0.001)).taken.design, "cfw");
        // The papers' insight, at the sizes of the papers: long names make it clearer still.
        let long = Demand { kind: NameKind::Ipv6, ..demand(0.001) };
        assert_eq!(of_papers(Node::Gateway, &long).taken.design, "cfw");
    }

    #[test]
    fn exactness_is_bought_with_full_names() {
        assert_eq!(taken(Node::Gateway, &demand(0.0)), "cuckoo");
        let advice = advise(Node::Gateway, &demand(0.0));
        let cfw = advice.others.iter().find(|other| other.0.design == "cfw").unwrap();
        assert_eq!(cfw.1, Against::Aliens);
    }

    #[test]
    fn one_bit_is_enough_for_gateways_that_mind_aliens_little() {
        assert_eq!(of_papers(Node::Gateway, &demand(0.4)).taken.design, "ofw");
    }

    #[test]
    fn advice_follows_the_figures_and_nothing_else() {
        let demand = demand(0.01);
        let mut rows = all(&demand);
        let sizes: Vec<f64> = rows.iter().map(|row| row.built_bits).collect();
        for (index, row) in rows.iter_mut().enumerate() {
            row.built_bits = sizes[index] * 10.0;
        }
        let cuckoo = rows.iter().position(|row| row.design == "cuckoo").unwrap();
        rows[cuckoo].built_bits = 1.0;
        assert_eq!(choose(Node::Gateway, &demand, rows.clone()).taken.design, "cuckoo");
        // Equal within five per cent: the lines decide.
        let ofw = rows.iter().position(|row| row.design == "ofw").unwrap();
        rows[ofw].built_bits = 1.04;
        let advice = choose(Node::Gateway, &demand, rows.clone());
        assert_eq!(advice.taken.design, "ofw");
        assert!(matches!(advice.others[0], (Figures { design: "cuckoo", .. }, Against::Lines(more)) if more > 1.2));
        rows[ofw].fp = 0.02;
        assert_eq!(choose(Node::Gateway, &demand, rows.clone()).taken.design, "cuckoo");
        rows[cuckoo].updates = Updates::Rebuild;
        let advice = choose(Node::Gateway, &demand, rows);
        assert!(advice.others.iter().any(|other| other.0.design == "cuckoo" && other.1 == Against::Static));
        assert_eq!(advice.others.len(), all(&demand).len() - 1);
    }
}
