//! Frames a second through the Click modular router, by each element of `contrib/click` and without a lookup.
//!
//! The configuration is that of the papers: a source of frames with valid names, a switch that looks each up, and a
//! counter at each of its ports, in one thread. `empty` takes the port from a byte of the name. Click passes one packet
//! at a time and frees it at the end, so a lookup is only a part of what a frame costs.
//!
//! The bench writes a list of names and a FIB file of each design, as `fibula fib build` does, each under a random hash
//! key. In every round each contestant runs once, in a process of its own that reads them first. Every name is sent
//! equally often, and the bench compares the counter of each port with the names that lead there.
//!
//! Click is no part of the build: `FIBULA_CLICK` names its source tree, and `scripts/click` makes the package of elements.
//!
//! Source: Yu, Belazzougui, Liu, Qian, "A Concise Forwarding Information Base for Scalable and Fast Name Lookups",
//! section 6.4.1. Limits: values of at most 8 bits, because the configuration has 256 ports.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use fib::action::{Action, PortId};
use fib::file::{Fib, Widths};
use fib::name::{Name, NameKind};
use tempfile::TempDir;

use super::{Listener, Options, failed};
use crate::BenchError;
use crate::names::{NameSet, value_of};
use crate::report::{Row, Setting, size_text};

/// The contestants, all of which run when none are named: `empty`, and designs that have an element.
pub const CONTESTANTS: [(&str, &str); 9] = [
    (EMPTY, "the same configuration without a lookup"),
    ("concise", "FibulaConcise: an Othello in shards"),
    ("cuckoo", "FibulaCuckoo: (2,4)-Cuckoo with whole names"),
    ("obf", "FibulaOrthogonalBloom: a Bloom filter a bit of the action"),
    ("sorted", "FibulaBinarySearch: binary search over whole names"),
    ("line", "FibulaLine: one cache line a lookup"),
    ("line-fast", "FibulaLine, fewer names a line"),
    ("line-small", "FibulaLine, more names a line"),
    ("ofw", "FibulaFib: an Othello with fingerprints"),
];

/// What looks nothing up.
const EMPTY: &str = "empty";
/// What every configuration requires, and the configurations by name.
const FORWARD: &str = include_str!("../../../../contrib/click/conf/forward.click");
const CONFIGURATIONS: [(&str, &str); 7] = [
    ("none", include_str!("../../../../contrib/click/conf/none.click")),
    ("concise", include_str!("../../../../contrib/click/conf/concise.click")),
    ("cuckoo", include_str!("../../../../contrib/click/conf/cuckoo.click")),
    ("orthogonal-bloom", include_str!("../../../../contrib/click/conf/orthogonal-bloom.click")),
    ("binary-search", include_str!("../../../../contrib/click/conf/binary-search.click")),
    ("line", include_str!("../../../../contrib/click/conf/line.click")),
    ("fib", include_str!("../../../../contrib/click/conf/fib.click")),
];
/// Ports of the configuration.
const PORTS: usize = 256;
/// The byte of a name that `empty` takes the port from.
const PORT_BYTE: u32 = 5;
/// Frames of a run, at least.
const FRAMES: u64 = 10 << 20;

/// Checks the settings.
/// # Errors
/// [`BenchError::Setting`] or [`BenchError::UnknownContestant`], which say what is allowed.
pub(crate) fn check(options: &Options) -> Result<Vec<String>, BenchError> {
    options.check()?;
    let setting = |text: String| Err(BenchError::Setting(text));
    if options.names == NameSet::Zipf {
        return setting("Click's source sends every name equally often; use --names mac, seq, lfsr or uniform".into());
    }
    if options.value_bits > 8 {
        let bits = options.value_bits;
        return setting(format!("values have {bits} bits, but Click's switch {PORTS} ports; use --value-bits 1 to 8"));
    }
    if options.threads != [1] {
        return setting("the elements count in one thread; use --threads 1".into());
    }
    options.chosen(&CONTESTANTS)
}

/// Runs the bench: a table for each n.
/// # Errors
/// [`BenchError`]; tables completed before the error have been handed to `listener`.
pub fn run(options: &Options, listener: &mut dyn Listener) -> Result<(), BenchError> {
    let chosen = check(options)?;
    let tree = std::env::var_os("FIBULA_CLICK").map(PathBuf::from);
    let click = match Click::of(tree.as_deref(), &packages()) {
        Ok(click) => click,
        Err(error) => {
            let goes_on = chosen.iter().all(|name| listener.goes_without(name, &error));
            return if goes_on { Ok(()) } else { Err(error) };
        }
    };
    options.n.iter().try_for_each(|&n| run_size(options, n, &chosen, &click, listener))
}

fn run_size(
    options: &Options,
    n: u64,
    chosen: &[String],
    click: &Click,
    listener: &mut dyn Listener,
) -> Result<(), BenchError> {
    let names = options.names.generate(n as usize, options.seed);
    // So that every name is sent equally often.
    let frames = options.operations.unwrap_or(FRAMES).next_multiple_of(n);
    let files = Files::new(options, &names)?;
    let mut contestants = Vec::new();
    for name in chosen {
        listener.say(&format!("click, {} names: {name} is built", size_text(n)));
        contestants.push((files.contestant(options, &names, name)?, Vec::new()));
    }
    for round in 1..=options.runs {
        listener.say(&format!("click, {} names: round {round} of {}", size_text(n), options.runs));
        for (contestant, rates) in &mut contestants {
            rates.push(click.measure(&files, contestant, frames, n)? / 1e6);
        }
    }
    let setting = Setting {
        n,
        value_bits: options.value_bits,
        names: options.names.to_string(),
        threads: 1,
        batch: 1,
        in_flight: 1,
    };
    let rows = contestants.into_iter().map(|(contestant, rates)| {
        let mut row = Row::new("forward/click", &contestant.name, &setting, "Mpkt/s", rates);
        row.bits_per_name = contestant.size_bits.map(|bits| bits as f64 / n as f64);
        row
    });
    listener.table(&rows.collect::<Vec<_>>());
    Ok(())
}

/// What Click reads: the configurations, the names, and the FIB files, in a folder that is removed at the end.
struct Files(TempDir);

impl Files {
    fn new(options: &Options, names: &[u64]) -> Result<Self, BenchError> {
        let folder = TempDir::new().map_err(|error| failed("making a folder for Click", &error))?;
        let files = Self(folder);
        let conf = files.path("conf");
        fs::create_dir(&conf).map_err(|error| failed("making a folder for Click", &error))?;
        files.write("conf/forward.click", FORWARD.as_bytes())?;
        for (name, text) in CONFIGURATIONS {
            files.write(&format!("conf/{name}.click"), text.as_bytes())?;
        }
        let mut list = String::with_capacity(names.len() * (2 * options.names.name_len() + 1));
        for name in names {
            // The bytes of a name, the first of which is the lowest.
            let bytes = name.swap_bytes() >> (64 - 8 * options.names.name_len());
            let _ = writeln!(list, "{bytes:0digits$x}", digits = 2 * options.names.name_len());
        }
        files.write("names", list.as_bytes())?;
        Ok(files)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn write(&self, name: &str, bytes: &[u8]) -> Result<(), BenchError> {
        let path = self.path(name);
        fs::write(&path, bytes).map_err(|error| failed(&path.display().to_string(), &error))
    }

    /// The contestant of this name, with its FIB file.
    fn contestant(&self, options: &Options, names: &[u64], name: &str) -> Result<Contestant, BenchError> {
        let mut expected = vec![0; PORTS];
        if name == EMPTY {
            let mask = (1 << options.value_bits) - 1;
            names.iter().for_each(|name| expected[(name >> (8 * PORT_BYTE) & mask) as usize] += 1);
            let fib = (mask + 1).to_string().into();
            return Ok(Contestant {
                name: name.to_owned(),
                configuration: "none".into(),
                fib,
                size_bits: None,
                expected,
            });
        }
        let configuration = match name {
            "obf" => "orthogonal-bloom",
            "sorted" => "binary-search",
            "ofw" => "fib",
            "line-fast" | "line-small" => "line",
            other => other,
        };
        let unbuilt = |reason: &dyn std::fmt::Display| BenchError::Build {
            contestant: name.to_owned(),
            n: names.len() as u64,
            reason: reason.to_string(),
        };
        let len = options.names.name_len();
        let kind = if len == 6 { NameKind::Mac } else { NameKind::Fixed(len as u8) };
        let mut entries = Vec::with_capacity(names.len());
        for word in names {
            let port = value_of(*word, options.value_bits) as u16 - 1;
            expected[usize::from(port)] += 1;
            let name = Name::from_bytes(kind, &word.to_le_bytes()[..len]).map_err(|error| unbuilt(&error))?;
            entries.push((name, Action::Port(PortId(port))));
        }
        let threads = std::thread::available_parallelism().map_or(1, |cores| cores.get());
        let design = crate::design(name).map_err(|error| unbuilt(&error))?;
        let widths = Widths { rate: None, value_bits: Some(options.value_bits) };
        let fib = Fib::build_as(design, kind, options.family, threads, widths, &entries);
        let fib = fib.map_err(|error| unbuilt(&error))?;
        let file = format!("{name}.fib");
        self.write(&file, &fib.encode())?;
        let size_bits = Some(fib.size_bits());
        Ok(Contestant {
            name: name.to_owned(),
            configuration: configuration.to_owned(),
            fib: self.path(&file),
            size_bits,
            expected,
        })
    }
}

/// A configuration with its FIB file.
struct Contestant {
    name: String,
    configuration: String,
    /// The FIB file; of `empty`, the number of ports.
    fib: PathBuf,
    /// Memory that lookups need.
    size_bits: Option<u64>,
    /// How many names lead to each port.
    expected: Vec<u64>,
}

impl Contestant {
    /// The frames a second that Click's handlers say, if every port has counted the names that lead there `times`.
    fn rate(&self, said: &str, times: u64) -> Result<f64, BenchError> {
        let read = handlers(said);
        let rate = read.get("source.rate").and_then(|text| text.parse().ok()).filter(|rate| *rate > 0.0);
        let rate = rate.ok_or_else(|| failed(&self.name, &"Click does not say how many frames it sent a second"))?;
        let (mut counted, mut expected) = (Vec::new(), Vec::new());
        for (port, names) in self.expected.iter().enumerate() {
            let count = read.get(&format!("p{port}/c.count")).and_then(|text| text.parse().ok());
            counted.push(count.ok_or_else(|| failed(&self.name, &format!("Click has no count of port {port}")))?);
            expected.push(names * times);
        }
        if counted == expected {
            return Ok(rate);
        }
        let sum = |counts: &[u64]| counts.iter().zip(1..).fold(0u64, |sum, (&n, port)| sum.wrapping_add(n * port));
        Err(BenchError::Checksum { contestant: self.name.clone(), got: sum(&counted), expected: sum(&expected) })
    }
}

/// Where the package of elements may be: in the folder that this program was built in, or below the current one.
fn packages() -> Vec<PathBuf> {
    let program = std::env::current_exe().unwrap_or_default();
    program.ancestors().skip(1).map(|folder| folder.join("click")).chain([PathBuf::from("target/click")]).collect()
}

/// Click, and the package of elements that was built for it.
#[derive(Debug)]
struct Click {
    program: PathBuf,
    package: PathBuf,
}

impl Click {
    /// The Click that was built in `tree`, and the first of `packages` that was built for it.
    fn of(tree: Option<&Path>, packages: &[PathBuf]) -> Result<Self, BenchError> {
        let unavailable = |reason: String| Err(BenchError::Unavailable { contestant: "Click", reason });
        let Some(tree) = tree.filter(|tree| !tree.as_os_str().is_empty()) else {
            return unavailable(
                "FIBULA_CLICK names no source tree of it; get one by `git clone https://github.com/kohler/click \
                 ../click && make click FIBULA_CLICK=../click`, and run this again with `FIBULA_CLICK=../click`"
                    .into(),
            );
        };
        let program = tree.join("userlevel/click");
        let tree = tree.canonicalize().unwrap_or_else(|_| tree.to_owned());
        let is_of_tree = |package: &&PathBuf| {
            let built_for = fs::read_to_string(package.join("tree")).unwrap_or_default();
            package.join("lib/fibula.uo").is_file() && Path::new(built_for.trim_end()) == tree
        };
        let package = packages.iter().find(is_of_tree);
        match package.and_then(|package| package.canonicalize().ok()) {
            Some(package) if program.is_file() => Ok(Self { program, package }),
            _ => unavailable(format!(
                "it is not built in {0}, or its package of elements is not; run `make click FIBULA_CLICK={0}`",
                tree.display()
            )),
        }
    }

    /// Frames a second of a contestant, after the names of `n` that it sends equally often.
    fn measure(&self, files: &Files, contestant: &Contestant, frames: u64, n: u64) -> Result<f64, BenchError> {
        let name = &contestant.name;
        let configuration = format!("conf/{}.click", contestant.configuration);
        let path = std::env::join_paths([&self.package, files.0.path()])
            .map_err(|error| failed("naming the folders of Click", &error))?;
        let output = Command::new(&self.program)
            .args(["-h", "source.rate", "-h", "p*/c.count"])
            .arg(files.path(&configuration))
            .arg(format!("FIB={}", contestant.fib.display()))
            .arg(format!("NAMES={}", files.path("names").display()))
            .arg(format!("FRAMES={frames}"))
            .env("CLICKPATH", path)
            .output()
            .map_err(|error| failed(&format!("starting {}", self.program.display()), &error))?;
        if !output.status.success() {
            let said = String::from_utf8_lossy(&output.stderr);
            return Err(failed(&format!("{name}: Click ends with {}", output.status), &said.trim()));
        }
        contestant.rate(&String::from_utf8_lossy(&output.stdout), frames / n)
    }
}

/// What the handlers of Click's option `-h` say: a line with a name and a colon, then the lines of its value.
fn handlers(text: &str) -> BTreeMap<String, String> {
    let mut read: BTreeMap<String, String> = BTreeMap::new();
    let mut of = None;
    for line in text.lines() {
        let head = line.strip_suffix(':').filter(|name| name.contains('.') && !name.contains(char::is_whitespace));
        if let Some(name) = head {
            of = Some(read.entry(name.to_owned()).or_default());
        } else if let Some(value) = of.as_mut().filter(|_| !line.is_empty()) {
            if !value.is_empty() {
                value.push('\n');
            }
            value.push_str(line);
        }
    }
    read
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(rate: &str, counts: &[u64]) -> String {
        let ports = counts.iter().enumerate().map(|(port, n)| format!("p{port}/c.count:\n{n}\n\n"));
        format!("source.rate:\n{rate}\n\n{}", ports.collect::<String>())
    }

    #[test]
    fn handlers_are_read_as_click_prints_them() {
        let read = handlers("source.rate:\n17023456.5\n\np0/c.count:\n12\n\nswitch.config:\n\"a.fib\",\nOFFSET 0\n\n");
        let of = |name: &str| read.get(name).map(String::as_str);
        assert_eq!((of("source.rate"), of("p0/c.count")), (Some("17023456.5"), Some("12")));
        assert_eq!(of("switch.config"), Some("\"a.fib\",\nOFFSET 0"));
        assert_eq!(read.len(), 3);
        assert!(handlers("").is_empty() && handlers("17023456.5\n").is_empty(), "a value without a name");
    }

    #[test]
    fn rate_counts_only_if_every_frame_left_by_its_port() {
        let expected = vec![3, 0, 5];
        let contestant =
            Contestant { name: "line".into(), configuration: "line".into(), fib: "".into(), size_bits: None, expected };
        assert_eq!(contestant.rate(&said("1.5e7", &[6, 0, 10]), 2).unwrap(), 1.5e7);
        for counts in [[6, 1, 9], [6, 0, 9], [12, 0, 20]] {
            let wrong = contestant.rate(&said("1.5e7", &counts), 2);
            assert!(matches!(wrong, Err(BenchError::Checksum { .. })), "{counts:?}: {wrong:?}");
        }
        // As many frames, and a sum of ports as it should be.
        assert!(contestant.rate(&said("1.5e7", &[5, 2, 9]), 2).unwrap_err().is_wrong_answer());
        for (said, why) in [
            (said("1.5e7", &[6, 0]), "no count of port 2"),
            (said("nan", &[6, 0, 10]), "frames it sent"),
            (said("", &[6, 0, 10]), "frames it sent"),
            (said("0", &[6, 0, 10]), "frames it sent"),
        ] {
            let error = contestant.rate(&said, 2).unwrap_err().to_string();
            assert!(error.contains(why) && error.contains("line"), "{error}");
        }
    }

    #[test]
    fn without_click_the_reason_says_how_to_get_it() {
        let folder = TempDir::new().unwrap();
        let at = |name: &str| folder.path().join(name);
        let why = |tree: Option<&Path>| {
            let error = Click::of(tree, &[at("target/click")]).unwrap_err();
            assert!(matches!(error, BenchError::Unavailable { .. }), "{error:?}");
            error.to_string()
        };
        for tree in [None, Some(Path::new(""))] {
            let text = why(tree);
            assert!(text.contains("git clone https://github.com/kohler/click"), "{text}");
            assert!(text.contains("make click FIBULA_CLICK=../click"), "{text}");
        }
        let make = |file: &str, content: &str| {
            fs::create_dir_all(at(file).parent().unwrap()).unwrap();
            fs::write(at(file), content).unwrap();
        };
        make("tree/README", "");
        let tree = at("tree").canonicalize().unwrap();
        let build = format!("run `make click FIBULA_CLICK={}`", tree.display());
        assert!(why(Some(&tree)).contains(&build), "there is neither Click nor a package");
        make("tree/userlevel/click", "");
        assert!(why(Some(&tree)).contains(&build), "there is no package");
        make("target/click/lib/fibula.uo", "");
        make("target/click/tree", "/another/tree\n");
        assert!(why(Some(&tree)).contains(&build), "the package was built for another tree");
        make("target/click/tree", &format!("{}\n", tree.display()));
        let click = Click::of(Some(&tree), &[at("none"), at("target/click")]).unwrap();
        assert_eq!(click.program, tree.join("userlevel/click"));
        assert_eq!(click.package, at("target/click").canonicalize().unwrap());
    }
}
