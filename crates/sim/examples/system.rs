//! Simulations of a whole system under faults: `system KEY[=VALUE] ...`
//!
//! | key | what |
//! |---|---|
//! | `seed=1` | the first seed |
//! | `seeds=1` | how many |
//! | `jobs=1` | threads |
//! | `switches=N` | 3 to 50; 3 to 8, by the seed, if not given |
//! | `steps=40` | requests of operators |
//! | `bits=N` | bits of a value in port mode; 8 or 3, by the seed, if not given |
//! | `kill=every` | for each seed also a run for each named point, with a crash there |
//! | `kill=N` | one run, with a crash at the N-th point |
//! | `mutant=NAME` | with this mistake |
//! | `log` | print the events on standard error |
//! | `json` | print the totals as one line of JSON, and nothing else on standard output |
//!
//! Exit code 0: nothing was found; 1: something was, and standard error has it, with its seed.
//!
//! The line of JSON: `kind` ("simulation"), `version`, `first_seed`, `seeds`, `runs`, `events`, `virtual_seconds`,
//! `requests_answered`, `messages` (to switches), `checks` (answers of switches), `claims` (that a switch is in step),
//! `frames` (followed to their hosts), `rekeys` (asked for), `verified` (switches, while they ran), `displaced` (values of port mode that got another meaning), `crashes`, `faults`, `points` (objects: kind to number), `findings` (a number),
//! `findings_by_kind` (an object), `trace` (a hash over all runs).

use fibula_sim::system::{Mutant, Scenario, Totals, run};
use std::process::ExitCode;

#[derive(Clone)]
struct Wanted {
    seeds: std::ops::Range<u64>,
    switches: Option<usize>,
    steps: Option<usize>,
    value_bits: Option<u8>,
    mutant: Option<Mutant>,
    kill: Option<u64>,
    kill_every: bool,
    log: bool,
}

impl Wanted {
    fn run(self) -> Totals {
        let mut totals = Totals::default();
        for seed in self.seeds {
            let mut scenario = Scenario { mutant: self.mutant, kill: self.kill, log: self.log, ..Scenario::new(seed) };
            scenario.switches = self.switches.unwrap_or(scenario.switches);
            scenario.steps = self.steps.unwrap_or(scenario.steps);
            scenario.value_bits = self.value_bits.unwrap_or(scenario.value_bits);
            totals.seeds += 1;
            let result = run(&scenario);
            let n_points = result.as_ref().map_or(0, |outcome| outcome.n_points());
            totals.add(&scenario, result);
            for kill in (0..n_points).filter(|_| self.kill_every) {
                let scenario = Scenario { kill: Some(kill), ..scenario.clone() };
                totals.add(&scenario, run(&scenario));
            }
        }
        totals
    }
}

fn main() -> Result<ExitCode, Box<dyn std::error::Error>> {
    let (mut first, mut n_seeds, mut jobs, mut json) = (1, 1, 1, false);
    let mut wanted = Wanted {
        seeds: 0..0,
        switches: None,
        steps: None,
        value_bits: None,
        mutant: None,
        kill: None,
        kill_every: false,
        log: false,
    };
    for argument in std::env::args().skip(1) {
        let (key, value) = argument.split_once('=').unwrap_or((&argument, ""));
        match key {
            "seed" => first = value.parse()?,
            "seeds" => n_seeds = value.parse()?,
            "jobs" => jobs = value.parse::<u64>()?.max(1),
            "switches" => wanted.switches = Some(value.parse()?),
            "steps" => wanted.steps = Some(value.parse()?),
            "bits" => wanted.value_bits = Some(value.parse()?),
            "kill" if value == "every" => wanted.kill_every = true,
            "kill" => wanted.kill = Some(value.parse()?),
            "mutant" => {
                let is_it = |mutant: &Mutant| format!("{mutant:?}") == value;
                let unknown = || format!("there is no mutant `{value}`; there are {:?}", Mutant::ALL);
                wanted.mutant = Some(Mutant::ALL.iter().copied().find(is_it).ok_or_else(unknown)?);
            }
            "log" => wanted.log = true,
            "json" => json = true,
            _ => return Err(format!("there is no parameter `{key}`; crates/sim/examples/system.rs lists them").into()),
        }
    }
    let bound = |job: u64| first + n_seeds * job / jobs;
    let parts = (0..jobs).map(|job| Wanted { seeds: bound(job)..bound(job + 1), ..wanted.clone() });
    let running: Vec<_> = parts.map(|part| std::thread::spawn(|| part.run())).collect();
    let mut totals = Totals::default();
    for part in running {
        totals.merge(part.join().map_err(|_| "a daemon panicked: see above")?);
    }
    for (scenario, violation) in &totals.findings {
        eprintln!("{scenario:?}: {violation}");
    }
    println!("{}", if json { totals.json(first) } else { totals.to_string() });
    Ok(if totals.findings.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
