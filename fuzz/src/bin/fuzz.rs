//! libFuzzer over the target that the environment variable `FIBULA_FUZZ` names; `list` prints all. If `FIBULA_SEEDS` names
//! a directory, the seeds of the target are written there instead.
#![no_main]

use libfuzzer_sys::fuzz_target;
use std::path::Path;
use std::sync::OnceLock;

static RUN: OnceLock<fn(&[u8])> = OnceLock::new();

#[expect(clippy::disallowed_methods, reason = "libFuzzer has the main function: this is the only way not to fuzz")]
fn init() {
    let name = std::env::var("FIBULA_FUZZ").unwrap_or_default();
    if name == "list" {
        fibula_fuzz::targets().iter().for_each(|target| println!("{}", target.name));
        std::process::exit(0);
    }
    let target = fibula_fuzz::target(&name).expect("FIBULA_FUZZ names a target; `list` prints all");
    if let Some(directory) = std::env::var_os("FIBULA_SEEDS") {
        std::fs::create_dir_all(&directory).expect("the directory can be made");
        for (i, seed) in (target.seeds)().iter().enumerate() {
            let path = Path::new(&directory).join(format!("seed-{i}"));
            std::fs::write(path, seed).expect("a seed can be written");
        }
        std::process::exit(0);
    }
    RUN.get_or_init(|| target.run);
}

fuzz_target!(init: init(), |data: &[u8]| RUN.get().expect("set by init")(data));
