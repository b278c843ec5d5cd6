//! Simulations of several controllers on one etcd: `leaders [seed=1] [seeds=1] [json]`
//!
//! Exit code 0: nothing was found; 1: something was, and standard error has it, with its seed.
//!
//! With `json` one line of JSON, and nothing else on standard output: `kind` ("leaders"), `first_seed`, `seeds`, `acknowledged`
//! (changes), `leads` (times that one began to lead), `followed` (commits), `compared` (states with etcd's), `misfortunes`
//! (requests that something befell), `findings`.

use fibula_sim::leaders::{Outcome, Scenario, run};
use std::process::ExitCode;

fn main() -> Result<ExitCode, Box<dyn std::error::Error>> {
    let (mut first, mut n_seeds, mut json) = (1_u64, 1_u64, false);
    for argument in std::env::args().skip(1) {
        match argument.split_once('=').unwrap_or((&argument, "")) {
            ("seed", value) => first = value.parse()?,
            ("seeds", value) => n_seeds = value.parse()?,
            ("json", "") => json = true,
            (key, _) => return Err(format!("there is no parameter `{key}`: seed=N, seeds=N and json").into()),
        }
    }
    let (mut sum, mut findings) = (Outcome::default(), 0);
    for seed in first..first + n_seeds {
        match run(&Scenario::new(seed)) {
            Ok(outcome) => sum.add(&outcome),
            Err(violation) => {
                findings += 1;
                eprintln!("seed {seed}: {violation}");
            }
        }
    }
    let Outcome { acknowledged, leads, followed, compared, misfortunes, .. } = sum;
    if json {
        println!(
            "{{\"kind\":\"leaders\",\"first_seed\":{first},\"seeds\":{n_seeds},\"acknowledged\":{acknowledged},\"leads\":{leads},\
             \"followed\":{followed},\"compared\":{compared},\"misfortunes\":{misfortunes},\"findings\":{findings}}}"
        );
    } else {
        println!("{n_seeds} seeds from {first} on: {sum:?}, {findings} findings");
    }
    Ok(if findings == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
