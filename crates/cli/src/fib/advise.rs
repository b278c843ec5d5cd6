//! `fibula fib advise`: which design to choose, and why, from the model's figures.

use clap::Args;
use command::output::{Output, write_out};
use command::parse_size;
use fib::model::advice::{Advice, Against, Node, SLOW, TIE, advise, lines};
use fib::model::designs::{Demand, Figures};
use serde::Serialize;

use super::compare::{Row, size};
use super::crossover::Crossover;
use super::demand::{DemandArgs, sentence, share};

/// The demand, and the kind of node.
#[derive(Args, Debug)]
pub(crate) struct AdviseArgs {
    #[command(flatten)]
    demand: DemandArgs,
    /// Only for a switch at the edge, which sees alien names
    #[arg(long, conflicts_with = "core")]
    gateway: bool,
    /// Only for a switch in the core, behind gateways
    #[arg(long)]
    core: bool,
    /// Also measure from how many names on a line table is faster than concise on this processor, at a core switch
    #[arg(long, conflicts_with = "gateway")]
    measure: bool,
    /// Maximum number of names to measure with [default: as many as -n, but at least 4M and at most 16M]
    #[arg(long, value_parser = parse_size, requires = "measure")]
    measure_n: Option<u64>,
    /// Seed of the names to measure with
    #[arg(long, default_value_t = 1, requires = "measure")]
    seed: u64,
}

/// Advice for one node.
#[derive(Serialize)]
struct Advised {
    node: &'static str,
    #[serde(flatten)]
    taken: Row,
    because: Vec<String>,
    /// The command that builds a FIB of this design.
    build: String,
    /// The lines of `controller.toml` that select it.
    configure: String,
    others: Vec<Other>,
    #[serde(skip_serializing_if = "Option::is_none")]
    measured: Option<Crossover>,
}

#[derive(Serialize)]
struct Other {
    design: &'static str,
    memory_bytes: u64,
    against: String,
}

impl AdviseArgs {
    /// Prints the advice.
    /// # Errors
    /// Exit code 2 for an impossible demand.
    pub(crate) fn run(self, out: &Output) -> anyhow::Result<()> {
        let demand = self.demand.demand()?;
        let nodes = [Node::Gateway, Node::Core].into_iter();
        let nodes = nodes.filter(|node| if *node == Node::Gateway { !self.core } else { !self.gateway });
        let mut advices: Vec<Advised> = nodes.map(|node| advised(&advise(node, &demand), &demand)).collect();
        if self.measure {
            let core = advices.iter_mut().find(|advice| advice.node == "core").expect("clap refuses --gateway");
            core.measured = Some(Crossover::measure(&demand, self.measure_n, self.seed)?);
        }
        if out.is_json() {
            return out.rows(&advices);
        }
        let mut text = sentence(&demand) + "\n";
        for advice in &advices {
            text += &format!("\n{}: take {} ({})\n", advice.node, advice.taken.design(), advice.taken.parameters());
            advice.because.iter().for_each(|reason| text += &format!("  {reason}\n"));
            text += &format!("  Build: {}\n", advice.build);
            text += &format!("  In controller.toml: {}\n", advice.configure.replace('\n', "; "));
            let width = advice.others.iter().map(|other| other.design.len()).max().unwrap_or(0);
            advice
                .others
                .iter()
                .for_each(|other| text += &format!("  not {:width$}  {}\n", other.design, other.against));
            if let Some(measured) = &advice.measured {
                text += &format!("\n{measured}");
            }
        }
        write_out(&text)
    }
}

fn advised(advice: &Advice, demand: &Demand) -> Advised {
    let others = advice.others.iter().map(|(figures, against)| Other {
        design: figures.design,
        memory_bytes: (figures.built_bits / 8.0).ceil() as u64,
        against: why_not(advice.node, demand, figures, *against),
    });
    Advised {
        node: match advice.node {
            Node::Gateway => "gateway",
            Node::Core => "core",
        },
        taken: Row::new(&advice.taken, demand),
        because: because(advice, demand),
        build: build(advice, demand),
        configure: configure(advice, demand),
        others: others.collect(),
        measured: None,
    }
}

/// The rate to build the design for; none where it recognises no aliens, as in the core.
fn rate(advice: &Advice, demand: &Demand) -> Option<f64> {
    advice.taken.holds.then_some(demand.fp)
}

fn build(advice: &Advice, demand: &Demand) -> String {
    let mut command =
        format!("fibula fib build LIST --out FIB --kind {} --design {}", demand.kind, advice.taken.design);
    if let Some(fp) = rate(advice, demand) {
        command += &format!(" --fp {fp}");
    }
    if demand.value_bits > Demand::new(demand.kind, demand.n_names, demand.n_actions, demand.fp).value_bits {
        command += &format!(" --value-bits {}", demand.value_bits);
    }
    command
}

fn configure(advice: &Advice, demand: &Demand) -> String {
    let design = advice.taken.design;
    match (advice.node, rate(advice, demand)) {
        (Node::Core, _) => format!("core_design = \"{design}\""),
        (Node::Gateway, None) => format!("gateway_design = \"{design}\""),
        (Node::Gateway, Some(fp)) => format!("gateway_design = \"{design}\"\n[design]\nfp = {fp:?}"),
    }
}

fn because(advice: &Advice, demand: &Demand) -> Vec<String> {
    let taken = &advice.taken;
    let (size, bits) = (size(taken.built_bits), taken.built_bits / demand.n_names as f64);
    let beaten_by_lines = advice.others.iter().any(|other| matches!(other.1, Against::Lines(_)));
    let among = match advice.node {
        Node::Gateway => "the designs that let few enough aliens pass and take changes one name at a time",
        Node::Core => "the designs that take changes one name at a time",
    };
    let is_slow =
        |other: &(Figures, Against)| matches!(other.1, Against::Slow(_)) && other.0.built_bits < taken.built_bits;
    let fast = if advice.others.iter().any(is_slow) { ", and are not too slow" } else { "" };
    let least = if beaten_by_lines {
        format!("within {:.0} % of the smallest of {among}{fast}, and it reads the fewest lines of those", TIE * 100.0)
    } else {
        format!("the smallest of {among}{fast}")
    };
    let aliens = match (advice.node, taken.fp) {
        (Node::Gateway, 0.0) => "No alien gets an action: names are stored whole.".to_owned(),
        (Node::Gateway, fp) => {
            format!(
                "{} of the aliens get an action, {} are allowed; the others are dropped here.",
                share(fp),
                share(demand.fp)
            )
        }
        (Node::Core, 1.0) => {
            "An alien may get any action, so gateways must keep aliens from coming this far.".to_owned()
        }
        (Node::Core, fp) => {
            format!("Aliens, which gateways refuse, get an action in {} of the cases.", share(fp))
        }
    };
    let mut reasons = vec![
        format!("Memory: {size}, {bits:.1} bits a name: {least}."),
        format!(
            "Lookup: {:.1} cache lines for a valid name, {:.1} for an alien, by the equations; one digest of the name.",
            taken.lines, taken.lines_alien
        ),
        format!("Aliens: {aliens}"),
    ];
    if let Some(cr) = taken.cr.filter(|cr| *cr > 0.0) {
        let wrong = share(cr);
        reasons.push(format!(
            "Valid names: {wrong} of them are also kept in an exact table, because the design answers them wrongly."
        ));
    }
    reasons
}

fn why_not(node: Node, demand: &Demand, figures: &Figures, against: Against) -> String {
    let size = size(figures.built_bits);
    match against {
        Against::Static => format!("{size}, but changing one name rebuilds everything"),
        Against::Aliens if figures.fp == 1.0 => {
            format!("{size}, but nothing tells aliens from valid names: any of them may get an action")
        }
        Against::Aliens => {
            format!("{size}, but {} of the aliens get an action, {} are allowed", share(figures.fp), share(demand.fp))
        }
        Against::Slow(times) => {
            let lines = lines(node, figures);
            format!("{size}, but {lines:.1} lines a lookup, {times:.1} times the fewest; the limit is {SLOW:.0} times")
        }
        Against::Memory(times) => {
            format!("{times:.2} times the memory, {size}, and {:.1} lines a lookup", lines(node, figures))
        }
        Against::Lines(times) => {
            format!("about the same memory, {size}, and {times:.2} times the lines, {:.1}", lines(node, figures))
        }
    }
}
