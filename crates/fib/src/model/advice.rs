//! Which design to take at a gateway and at a core node, by the figures of the model.
//!
//! The rule: of the designs that a single name can be changed in, and that let few enough aliens pass (at a gateway;
//! a core node gets valid names only), the one with the least memory. Designs within [`TIE`] of the least are even,
//! and the one that reads fewer lines is taken: at a gateway by the mean over valid and alien names.

use super::designs::{Demand, Figures, Updates, all};

/// Memory that counts as no difference: less than what rounding to words or powers of two takes.
pub const TIE: f64 = 0.05;

/// Where a switch stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Node {
    /// At the border: names come from outside, aliens among them.
    Gateway,
    /// Inside: gateways have sorted aliens out.
    Core,
}

/// Why a design is not the one to take.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Against {
    /// A change rebuilds everything.
    Static,
    /// More aliens than wanted get an action.
    Aliens,
    /// So many times the memory of the one taken.
    Memory(f64),
    /// About the same memory, and so many times the lines.
    Lines(f64),
}

/// The design to take, and what speaks against the others.
#[derive(Clone, Debug, PartialEq)]
pub struct Advice {
    /// Where.
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

/// Lines of a lookup where the switch stands.
pub fn lines(node: Node, figures: &Figures) -> f64 {
    match node {
        Node::Gateway => f64::midpoint(figures.lines, figures.lines_alien),
        Node::Core => figures.lines,
    }
}

fn refused(node: Node, demand: &Demand, figures: &Figures) -> Option<Against> {
    if figures.updates == Updates::Rebuild {
        Some(Against::Static)
    } else if node == Node::Gateway && !figures.meets(demand) {
        Some(Against::Aliens)
    } else {
        None
    }
}

fn choose(node: Node, demand: &Demand, rows: Vec<Figures>) -> Advice {
    let (mut fit, unfit): (Vec<Figures>, Vec<Figures>) =
        rows.into_iter().partition(|row| refused(node, demand, row).is_none());
    let least = fit.iter().map(|row| row.bits).fold(f64::MAX, f64::min);
    let even = |row: &Figures| row.bits <= least * (1.0 + TIE);
    fit.sort_by(|a, b| {
        let by_lines = lines(node, a).total_cmp(&lines(node, b));
        let by_memory = a.bits.total_cmp(&b.bits);
        if even(a) && even(b) { by_lines.then(by_memory) } else { by_memory }
    });
    let taken = fit.remove(0);
    let beaten = fit.into_iter().map(|row| {
        let against = if even(&row) {
            Against::Lines(lines(node, &row) / lines(node, &taken))
        } else {
            Against::Memory(row.bits / taken.bits)
        };
        (row, against)
    });
    let mut others: Vec<_> = beaten.collect();
    others.extend(unfit.into_iter().filter_map(|row| refused(node, demand, &row).map(|against| (row, against))));
    Advice { node, taken, others }
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

    #[test]
    fn core_nodes_get_an_othello_without_fingerprint_and_gateways_a_filtable() {
        assert_eq!(taken(Node::Core, &demand(0.01)), "concise");
        assert_eq!(taken(Node::Gateway, &demand(0.001)), "cfw");
        // The papers' insight, at the sizes of the papers: long names make it plainer still.
        assert_eq!(taken(Node::Gateway, &Demand { kind: NameKind::Ipv6, ..demand(0.001) }), "cfw");
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
        assert_eq!(taken(Node::Gateway, &demand(0.4)), "ofw");
    }

    #[test]
    fn advice_follows_the_figures_and_nothing_else() {
        let demand = demand(0.01);
        let mut rows = all(&demand);
        let sizes: Vec<f64> = rows.iter().map(|row| row.bits).collect();
        for (index, row) in rows.iter_mut().enumerate() {
            row.bits = sizes[index] * 10.0;
            row.fast_bits = row.bits;
        }
        let bfw = rows.iter().position(|row| row.design == "bfw").unwrap();
        rows[bfw].bits = 1.0;
        assert_eq!(choose(Node::Gateway, &demand, rows.clone()).taken.design, "bfw");
        // Even within five per cent: the lines decide.
        let ofw = rows.iter().position(|row| row.design == "ofw").unwrap();
        rows[ofw].bits = 1.04;
        let advice = choose(Node::Gateway, &demand, rows.clone());
        assert_eq!(advice.taken.design, "ofw");
        assert!(matches!(advice.others[0], (Figures { design: "bfw", .. }, Against::Lines(more)) if more > 5.0));
        rows[ofw].fp = 0.02;
        assert_eq!(choose(Node::Gateway, &demand, rows.clone()).taken.design, "bfw");
        rows[bfw].updates = Updates::Rebuild;
        let advice = choose(Node::Gateway, &demand, rows);
        assert!(advice.others.iter().any(|other| other.0.design == "bfw" && other.1 == Against::Static));
        assert_eq!(advice.others.len(), 10);
    }
}
