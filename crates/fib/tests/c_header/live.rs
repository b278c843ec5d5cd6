//! Tables in memory that a program in C reads while this one writes them.

use super::{DESIGNS, compile, fib, names, questions, root, run};
use fibula_fib::action::{Action, PortId};
use fibula_fib::designs::Table;
use fibula_fib::file::Fib;
use fibula_fib::name::NameKind;
use lookup::base::arena::Arena;
use lookup::base::shown;
use lookup::hash::{Digest, Family, Hasher, SecretKey};
use lookup::line::LineTable;
use lookup::othello::Othello;
use lookup::testkit::{self, Rng};
use lookup::traits::{Control, Query, Replicated};
use std::fmt::Write as _;
use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};

/// A folder in memory, where files of gigabytes that are mostly empty cost nothing.
fn memory() -> tempfile::TempDir {
    let shared = Path::new("/dev/shm");
    if shared.is_dir() { tempfile::tempdir_in(shared).unwrap() } else { tempfile::tempdir().unwrap() }
}

fn create(path: &Path) -> File {
    OpenOptions::new().read(true).write(true).create(true).truncate(true).open(path).unwrap()
}

/// The table of a FIB in a file.
fn share(fib: &Fib, path: &Path) -> Box<dyn Table> {
    let file = create(path);
    let mut table = fib.spec().table(&fib.image()).unwrap();
    let make = &mut |bytes| Arena::on_file(file.try_clone()?, bytes);
    table.share(fib.spec(), shown::this_process().unwrap(), make).unwrap();
    table.tell_actions(fib.actions()).unwrap();
    table
}

#[test]
fn tables_in_memory_answer_as_files_do() {
    let (seed, dir) = (testkit::seed(), memory());
    let programs = [
        compile("gcc", "examples/c/lookup.c", &["-std=c11", "-O2"], dir.path()),
        compile("g++", "examples/c/lookup.c", &["-std=c++17", "-O2", "-x", "c++"], dir.path()),
    ];
    let path = dir.path().join("table");
    for (at, kind) in [NameKind::Mac, NameKind::Ipv6, NameKind::Text, NameKind::Fixed(9)].into_iter().enumerate() {
        let all = names(kind, 8_000, seed);
        for (which, design) in DESIGNS.into_iter().enumerate() {
            let value_bits = [None, Some(8), Some(11), Some(16)][(at + which) % 4];
            let fib = fib(design, kind, Family::ALL[(at + which) % 4], &all[..6_000], 9, value_bits);
            let table = share(&fib, &path);
            let (input, expected) = questions(&fib, &all);
            for program in &programs {
                assert_eq!(run(program, &[path.to_str().unwrap()], &input), expected, "{design} of {kind}");
            }
            drop(table);
            // What its writer leaves stays readable.
            assert_eq!(run(&programs[0], &[path.to_str().unwrap()], &input), expected, "{design} of {kind}");
        }
    }
}

/// A control half, and its query half in a file.
struct Writer<C: Control> {
    control: C,
    query: C::Query,
    hasher: Hasher,
    updates: Vec<<C::Query as Query>::Update>,
}

/// Names of a table that changes: those that are always there, and those that come and go.
const N_STAYING: u64 = 20_000;
const N_PASSING: u64 = 20_000;

/// A MAC address.
fn mac(number: u64) -> [u8; 6] {
    let [a, b, c, d, ..] = number.to_le_bytes();
    [2, 0, a, b, c, d]
}

/// What a watching program is told: names, and their values modulo 100.
fn staying() -> String {
    let mut text = String::new();
    for number in 0..N_STAYING {
        for byte in mac(number) {
            write!(text, "{byte:02x}").unwrap();
        }
        writeln!(text, " {}", number % 100).unwrap();
    }
    text
}

impl<C: Control> Writer<C>
where
    C::Query: Query<Key = Digest> + Replicated,
    C: Control<Key = Digest>,
{
    fn new(mut control: C, key: &SecretKey, path: &Path) -> Self {
        let hasher = Hasher::new(Family::MulAdd, key);
        let entries: Vec<_> = (0..N_STAYING).map(|at| (hasher.digest(&mac(at)), at % 100)).collect();
        control.insert_batch(&entries, &mut Vec::new()).unwrap();
        let file = create(path);
        let made = control.export().moved_to(&mut |bytes| Arena::on_file(file.try_clone()?, bytes));
        let mut query = made.unwrap();
        let spec = fibula_fib::designs::Spec::new(
            fibula_fib::designs::Design::by_name("concise").unwrap(),
            NameKind::Mac,
            Family::MulAdd,
            key.clone(),
            8,
            1,
        );
        let outside = query.outside().unwrap();
        outside.complete(spec.names_in_memory(), shown::this_process().unwrap());
        let actions: Vec<_> =
            std::iter::once(Action::Drop).chain((1..300).map(|at| Action::Port(PortId(at % 100)))).collect();
        // Value 0 is a port here, so that every name has one.
        let mut records = fibula_fib::codec::actions_in_memory(&actions);
        records[0] = 1;
        outside.set_annex(&records).unwrap();
        Self { control, query, hasher, updates: Vec::new() }
    }

    fn put(&mut self, number: u64, value: u64) {
        self.control.insert(self.hasher.digest(&mac(number)), value, &mut self.updates).unwrap();
        self.apply();
    }

    fn apply(&mut self) {
        for update in self.updates.drain(..) {
            self.query.apply(&update).unwrap();
        }
    }

    /// A change: of the value of a name, or a name that comes or goes.
    fn change(&mut self, rng: &mut Rng) {
        match rng.below(4) {
            0 => {
                let passing = self.hasher.digest(&mac(N_STAYING + rng.below(N_PASSING)));
                self.control.remove(passing, &mut self.updates);
                self.apply();
            }
            1 => self.put(N_STAYING + rng.below(N_PASSING), rng.below(200)),
            _ => {
                let number = rng.below(N_STAYING);
                self.put(number, number % 100 + 100 * rng.below(2));
            }
        }
    }
}

fn othello(key: &SecretKey, value_bits: u8) -> Othello {
    Othello::new(lookup::othello::Settings::new(value_bits, 200_000, key))
}

/// Changes a table as fast as possible while `program` looks `n` names up. Returns its wrong answers.
fn watched<C>(control: C, key: &SecretKey, program: &Path, path: &Path, n: u64) -> u64
where
    C: Control<Key = Digest> + Send,
    C::Query: Query<Key = Digest> + Replicated,
    <C::Query as Query>::Update: Send,
{
    let mut writer = Writer::new(control, key, path);
    let (done, mut n_changes) = (AtomicBool::new(false), 0u64);
    let said = std::thread::scope(|scope| {
        let reader = scope.spawn(|| {
            let said = run(program, &[path.to_str().unwrap(), &n.to_string()], &staying());
            done.store(true, Ordering::Relaxed);
            said
        });
        let mut rng = Rng::new(7);
        while !done.load(Ordering::Relaxed) && !reader.is_finished() {
            writer.change(&mut rng);
            n_changes += 1;
        }
        reader.join().unwrap()
    });
    let [lookups, wrong, is_written] = said.trim().split(' ').collect::<Vec<_>>().try_into().unwrap();
    assert!(
        lookups.parse::<u64>().unwrap() >= n && is_written == "1" && n_changes > 1000,
        "{said}, {n_changes} changes"
    );
    wrong.parse().unwrap()
}

/// Lookups beside a writer at full speed.
const N_WATCHED: u64 = 10_000_000;

#[test]
fn readers_outside_see_whole_states_of_a_table_that_changes() {
    let (key, dir) = (SecretKey::from_seed(testkit::seed()), memory());
    let watch = compile("gcc", "crates/fib/tests/c_header/watch.c", &["-std=c11", "-O2"], dir.path());
    let path = dir.path().join("table");
    assert_eq!(watched(othello(&key, 8), &key, &watch, &path, N_WATCHED), 0);
    assert_eq!(watched(othello(&key, 11), &key, &watch, &path, N_WATCHED / 4), 0);
    let line = LineTable::new(lookup::line::Settings::new(8, 200_000, &key));
    assert_eq!(watched(line, &key, &watch, &path, N_WATCHED), 0);
}

#[test]
fn readers_that_leave_out_a_check_are_wrong() {
    let (key, dir) = (SecretKey::from_seed(testkit::seed()), memory());
    let header = std::fs::read_to_string(root().join("c/include/fibula.h")).unwrap();
    let path = dir.path().join("table");
    let count = "fibula_load_(fib->words + FIBULA_COUNT_) == view->count";
    let reuse = "fibula_load_(fib->words + FIBULA_REUSE_) == view->reuse";
    // A reader that looks at neither; one that takes a write under way for the end of it.
    for (name, mutants) in [
        ("unchecked", vec![(count, "fib"), (reuse, "view"), ("if (!(view.count & 1)) {", "if (1) {")]),
        ("odd", vec![("if (!(view.count & 1)) {", "if (1) {"), ("return view.count & 1 || ", "return ")]),
    ] {
        let mut broken = header.clone();
        for (whole, mutant) in mutants {
            assert!(broken.contains(whole), "{name}: no `{whole}` in the header");
            broken = broken.replace(whole, mutant);
        }
        let folder = dir.path().join(name);
        std::fs::create_dir(&folder).unwrap();
        std::fs::write(folder.join("fibula.h"), broken).unwrap();
        let flags = ["-std=c11", "-O2", "-iquote", folder.to_str().unwrap()];
        let watch = compile("gcc", "crates/fib/tests/c_header/watch.c", &flags, &folder);
        let is_wrong = (0..10).any(|_| watched(othello(&key, 8), &key, &watch, &path, N_WATCHED / 2) > 0);
        assert!(is_wrong, "{name}: a reader without the check was never wrong");
    }
}

/// Changes a table until it is killed.
fn write_for_ever(path: &Path, seed: u64) -> ! {
    let key = SecretKey::from_seed(seed);
    let mut writer = Writer::new(othello(&key, 8), &key, path);
    println!("ready");
    io::stdout().flush().unwrap();
    let mut rng = Rng::new(seed);
    loop {
        writer.change(&mut rng);
    }
}

#[test]
fn a_writer_that_is_killed_leaves_its_last_table() {
    // The writers are this test in processes of their own.
    if let Some(path) = std::env::var_os("FIBULA_TEST_WRITER") {
        write_for_ever(Path::new(&path), std::env::var("FIBULA_TEST_SEED").unwrap().parse().unwrap());
    }
    let (seed, dir) = (testkit::seed(), memory());
    let watch = compile("gcc", "crates/fib/tests/c_header/watch.c", &["-std=c11", "-O2"], dir.path());
    let path = dir.path().join("table");
    let names = staying();
    let mut rng = Rng::new(seed);
    for kill in 0..20 {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["live::a_writer_that_is_killed_leaves_its_last_table", "--exact", "--nocapture"])
            .env("FIBULA_TEST_WRITER", &path)
            .env("FIBULA_TEST_SEED", (seed + kill).to_string())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let (mut out, mut said) = (child.stdout.take().unwrap(), Vec::new());
        while !said.windows(5).any(|window| window == b"ready") {
            let mut byte = [0];
            out.read_exact(&mut byte).unwrap();
            said.push(byte[0]);
        }
        // It writes as long as this program spins here.
        for at in 0..rng.below(2_000_000) {
            std::hint::black_box(at);
        }
        child.kill().unwrap();
        child.wait().unwrap();
        let said = run(&watch, &[path.to_str().unwrap(), "1"], &names);
        let [_, wrong, is_written] = said.trim().split(' ').collect::<Vec<_>>().try_into().unwrap();
        assert_eq!((wrong, is_written), ("0", "0"), "seed {seed}, kill {kill}");
    }
}

#[test]
fn a_write_that_its_writer_did_not_end_is_undone() {
    let (key, dir) = (SecretKey::from_seed(testkit::seed()), memory());
    let watch = compile("gcc", "crates/fib/tests/c_header/watch.c", &["-std=c11", "-O2"], dir.path());
    let path = dir.path().join("table");
    let writer = Writer::new(othello(&key, 8), &key, &path);
    let file = OpenOptions::new().read(true).write(true).open(&path).unwrap();
    let word = |at: u64| {
        let mut bytes = [0; 8];
        file.read_exact_at(&mut bytes, 8 * at).unwrap();
        u64::from_le_bytes(bytes)
    };
    let set = |at: u64, word: u64| file.write_all_at(&word.to_le_bytes(), 8 * at).unwrap();
    let ask = || run(&watch, &[path.to_str().unwrap(), "1"], &staying());
    assert!(ask().ends_with(" 0 1\n"));
    // Words of the first part, which begin where its entry says, are written over; the note says what they were.
    let first = 8 * (word(8 * (word(8) & 0xFFFF_FFFF)) >> 32);
    set(16, word(16) | 1);
    let n = 200;
    for at in 0..n {
        set(33 + 2 * at, first + at);
        set(34 + 2 * at, word(first + at));
        set(first + at, 0x5555_5555_5555_5555 ^ at);
    }
    set(32, n);
    assert!(ask().ends_with(" 0 1\n"), "the note undoes it");
    // Without the note the same names are wrong.
    set(32, 0);
    assert!(!ask().ends_with(" 0 1\n"), "the words matter");
    drop(writer);
}

#[test]
fn tables_that_are_cut_or_made_up_do_no_harm() {
    let (seed, dir) = (testkit::seed(), memory());
    let flags = ["-std=c11", "-O1", "-g", "-fsanitize=address,undefined", "-fno-sanitize-recover"];
    let program = compile("gcc", "examples/c/lookup.c", &flags, dir.path());
    let mut rng = Rng::new(seed);
    let mut n_refused = 0;
    for design in ["concise", "ofw", "line"] {
        let all = names(NameKind::Mac, 2_000, seed);
        let path = dir.path().join("table");
        drop(share(&fib(design, NameKind::Mac, Family::MulAdd, &all, 9, None), &path));
        let good = std::fs::read(&path).unwrap();
        let (input, _) = questions(&fib(design, NameKind::Mac, Family::MulAdd, &all, 9, None), &all);
        for round in 0..150 {
            let mut bytes = good.clone();
            match rng.below(5) {
                0 => bytes.truncate(rng.below(good.len() as u64) as usize),
                1 => bytes.truncate(rng.below(9_000) as usize),
                _ => {
                    for _ in 0..1 + rng.below(4) {
                        // The root, the directory, or anything that is in use.
                        let most = [256, 6_000, 60_000][rng.below(3) as usize];
                        let at = rng.below(most) as usize;
                        bytes[at] = [0, 255, rng.below(256) as u8][rng.below(3) as usize];
                    }
                }
            }
            std::fs::write(&path, &bytes).unwrap();
            let mut child = Command::new(&program)
                .arg(&path)
                .stdin(Stdio::piped())
                .stdout(Stdio::null())
                .stderr(Stdio::piped())
                .spawn()
                .unwrap();
            let _ = child.stdin.take().unwrap().write_all(input.as_bytes());
            let output = child.wait_with_output().unwrap();
            let error = String::from_utf8_lossy(&output.stderr);
            let code = output.status.code();
            assert!(
                code == Some(0) || code == Some(3) && error.lines().count() == 1,
                "{design}, {round}: {code:?} {error}"
            );
            n_refused += usize::from(code == Some(3));
        }
    }
    assert!((100..440).contains(&n_refused), "{n_refused} of 450 tables refused");
}

#[test]
fn c_reads_the_golden_images() {
    let dir = memory();
    let golden = compile("gcc", "crates/fib/tests/c_header/golden.c", &["-std=c11", "-O2"], dir.path());
    let path = dir.path().join("table");
    for what in ["concise-8", "concise-16", "ofw", "line", "line-small"] {
        let text = |kind| std::fs::read_to_string(root().join(format!("vectors/memory-{what}.{kind}"))).unwrap();
        let byte = |digits: &[u8]| u8::from_str_radix(std::str::from_utf8(digits).unwrap(), 16).unwrap();
        let image: Vec<u8> = text("hex").lines().flat_map(|line| line.as_bytes().chunks(2).map(byte)).collect();
        // The file is as long as its arena, of which the image has what is in use.
        let file = create(&path);
        file.write_all_at(&image, 0).unwrap();
        file.set_len(u64::from_le_bytes(image[8..16].try_into().unwrap())).unwrap();
        let (mut digests, mut expected) = (String::new(), String::new());
        for row in text("csv").lines().skip(1) {
            let [_, name, value] = row.split(',').collect::<Vec<_>>().try_into().unwrap();
            let digest: Vec<u8> = name.as_bytes().chunks(2).map(byte).collect();
            writeln!(digests, "{:016x}", u64::from_le_bytes(digest.try_into().unwrap())).unwrap();
            writeln!(expected, "{value}").unwrap();
        }
        assert_eq!(run(&golden, &[path.to_str().unwrap()], &digests), expected, "{what}");
    }
}
