//! Every target holds over its seeds, over its corpus, over inputs that once failed, and over random changes of them.

use fibula_fuzz::{Target, targets};
use lookup::testkit::{self, Rng};
use std::path::Path;

/// Seeds, inputs that reach code of their own, and inputs that failed once.
fn inputs(target: &Target) -> Vec<Vec<u8>> {
    let mut inputs = (target.seeds)();
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    if let Ok(lines) = std::fs::read_to_string(root.join("corpus").join(target.name).with_extension("hex")) {
        inputs.extend(lines.lines().map(bytes));
    }
    if let Ok(files) = std::fs::read_dir(root.join("found").join(target.name)) {
        let mut paths: Vec<_> = files.map(|file| file.expect("the directory can be read").path()).collect();
        paths.sort();
        inputs.extend(paths.iter().map(|path| std::fs::read(path).expect("the file can be read")));
    }
    inputs
}

/// The input on a line of a corpus, in hexadecimal: see `scripts/corpus`.
fn bytes(line: &str) -> Vec<u8> {
    let byte = |at: usize| u8::from_str_radix(&line[at..at + 2], 16).expect("hexadecimal");
    (0..line.len()).step_by(2).map(byte).collect()
}

#[test]
fn each_corpus_is_that_of_a_target() {
    for file in std::fs::read_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus")).expect("the corpora") {
        let path = file.expect("the directory can be read").path();
        let name = path.file_stem().and_then(|name| name.to_str()).expect("a name");
        assert!(fibula_fuzz::target(name).is_some_and(|target| inputs(target).len() > 20), "{}", path.display());
    }
}

/// Runs an input; says which, if it fails.
fn run(target: &Target, input: &[u8]) {
    struct Show<'a>(&'a Target, &'a [u8]);
    impl Drop for Show<'_> {
        fn drop(&mut self) {
            if std::thread::panicking() {
                let hex: String = self.1.iter().map(|byte| format!("{byte:02x}")).collect();
                eprintln!("target {}, input {hex}", self.0.name);
            }
        }
    }
    let _show = Show(target, input);
    (target.run)(input);
}

#[test]
fn every_target_holds_over_its_seeds_its_corpus_and_what_was_found() {
    for target in targets() {
        let inputs = inputs(target);
        assert!(!inputs.is_empty(), "{}", target.name);
        inputs.iter().for_each(|input| run(target, input));
    }
}

#[test]
fn every_target_holds_over_random_changes_of_its_seeds() {
    let mut rng = Rng::new(testkit::seed());
    let n_runs = if std::env::var_os("FIBULA_DEEP").is_some() { 20_000 } else { 150 };
    for target in targets() {
        let seeds = inputs(target);
        for _ in 0..n_runs {
            let mut input = seeds[rng.below(seeds.len() as u64) as usize].clone();
            for _ in 0..=rng.below(4) {
                change(&mut input, &seeds, &mut rng);
            }
            run(target, &input);
        }
    }
}

fn change(input: &mut Vec<u8>, seeds: &[Vec<u8>], rng: &mut Rng) {
    let mut at = |n: usize| rng.below(n as u64 + 1) as usize;
    match at(5) {
        _ if input.is_empty() => input.push(at(255) as u8),
        0 => input.truncate(at(input.len())),
        1 => {
            let place = at(input.len() - 1);
            input[place] = at(255) as u8;
        }
        2 => {
            let place = at(input.len() - 1);
            input[place] ^= 1 << at(7);
        }
        3 => input.insert(at(input.len()), at(255) as u8),
        4 => {
            let place = at(input.len() - 1);
            let end = input.len().min(place + 4);
            input[place..end].fill([0, 0xff][at(1)]);
        }
        _ => {
            let other = &seeds[at(seeds.len() - 1)];
            let start = at(other.len());
            input.truncate(at(input.len()));
            input.extend(&other[start..]);
        }
    }
}
