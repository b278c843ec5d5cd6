//! The table of a running switch, read by a program in C while an operator changes the network.

mod support;

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use support::{Process, Site, eventually, exit_code, in_step, stderr, write};

const N_NAMES: u32 = 20_000;

fn mac(i: u32) -> String {
    let [a, b, c, d] = i.to_be_bytes();
    format!("02:00:{a:02x}:{b:02x}:{c:02x}:{d:02x}")
}

struct Switch {
    site: Site,
    table: PathBuf,
    program: PathBuf,
}

impl Switch {
    /// A network of this design; the switch shows its table in memory.
    fn new(design: &str) -> Self {
        let site = Site::new(&format!("gateway_design = \"{design}\"\ncore_design = \"{design}\"\n"));
        let table = site.path("s1.table");
        let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let text = format!(
            "name = \"s1\"\ncontroller = \"{}\"\nstate_dir = \"{}\"\nlookup = \"{}\"\nshare = \"{}\"\n",
            site.url,
            site.path("s1").display(),
            free.local_addr().unwrap(),
            table.display()
        );
        std::fs::write(site.path("s1.toml"), text).unwrap();
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        let program = site.path("lookup");
        let compiled = Command::new("cc")
            .args(["-O2", "-I"])
            .arg(root.join("c/include"))
            .arg(root.join("examples/c/lookup.c"))
            .arg("-o")
            .arg(&program)
            .status()
            .expect("a C compiler: run scripts/setup build");
        assert!(compiled.success());
        Self { site, table, program }
    }

    fn start(&self) -> Process {
        Process::spawn(&["switch", "--config", self.site.path("s1.toml").to_str().unwrap()])
    }

    #[track_caller]
    fn done(&self, arguments: &[&str]) {
        let output = self.site.fibula(arguments);
        assert_eq!(exit_code(&output), 0, "{}", stderr(&output));
    }

    /// What the C program says of names.
    fn ask(&self, names: &[u32]) -> Output {
        let list = self.site.path("names.hex");
        write(&list, names.iter().map(|&i| mac(i).replace(':', "")));
        let input = std::fs::File::open(list).unwrap();
        Command::new(&self.program).arg(&self.table).stdin(input).stderr(Stdio::piped()).output().unwrap()
    }

    #[track_caller]
    fn expect(&self, names: &[u32], expected: &str) {
        let output = self.ask(names);
        assert_eq!(support::stdout(&output), expected, "{}", stderr(&output));
    }
}

async fn follow(design: &str) {
    let it = Switch::new(design);
    let controller = it.site.start();
    it.done(&["switch", "add", "s1"]);
    for host in 1..=9 {
        it.done(&["host", "add", &format!("h{host}"), &format!("s1:{host}")]);
    }
    let names = it.site.path("names.csv");
    write(&names, (0..N_NAMES).map(|i| format!("{},h{}", mac(i), 1 + i % 9)));
    it.done(&["name", "import", names.to_str().unwrap()]);
    let missing = it.ask(&[1]);
    assert!(exit_code(&missing) == 3 && stderr(&missing).contains("cannot read"), "{}", stderr(&missing));

    let switch = it.start();
    let client = it.site.client().await;
    eventually("the switch in step", async || in_step(&client).await == 1).await;
    let all: Vec<u32> = (0..N_NAMES).collect();
    let expected: String = all.iter().map(|i| format!("port:{}\n", 1 + i % 9)).collect();
    it.expect(&all, &expected);

    // Names move, and a host comes, for which there was no action.
    it.done(&["host", "add", "h77", "s1:77"]);
    it.done(&["name", "set", &mac(5), "h77"]);
    it.done(&["name", "set", &mac(6), "h1"]);
    it.done(&["name", "add", &mac(N_NAMES), "h2"]);
    eventually("the switch in step", async || in_step(&client).await == 1).await;
    it.expect(&[5, 6, 7, N_NAMES], "port:77\nport:1\nport:8\nport:2\n");

    // The switch dies; its last table stays until it shows another.
    switch.kill();
    it.expect(&[5, 6, 7, N_NAMES], "port:77\nport:1\nport:8\nport:2\n");
    let inode = |path: &Path| std::os::unix::fs::MetadataExt::ino(&std::fs::metadata(path).unwrap());
    // It has nothing saved, so its cells come before what they mean.
    std::fs::remove_dir_all(it.site.path("s1")).unwrap();
    let (before, switch) = (inode(&it.table), it.start());
    eventually("another table", async || inode(&it.table) != before).await;
    it.expect(&[5, 6, 7, N_NAMES], "port:77\nport:1\nport:8\nport:2\n");
    let mode = std::os::unix::fs::MetadataExt::mode(&std::fs::metadata(&it.table).unwrap());
    assert_eq!(mode & 0o777 & !0o640, 0, "{mode:o}: the file has the hash key");
    drop((switch, controller));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_c_program_follows_the_table_of_a_switch() {
    for design in ["concise", "line", "ofw"] {
        follow(design).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_table_that_cannot_be_shown_is_served_all_the_same() {
    let it = Switch::new("cuckoo");
    let controller = it.site.start();
    it.done(&["switch", "add", "s1"]);
    it.done(&["host", "add", "h1", "s1:1"]);
    it.done(&["name", "add", &mac(1), "h1"]);
    // What somebody else left there says nothing of this switch.
    std::fs::write(&it.table, "old").unwrap();
    let switch = it.start();
    let client = it.site.client().await;
    eventually("the switch in step", async || in_step(&client).await == 1).await;
    eventually("no file", async || !it.table.exists()).await;
    drop((switch, controller));
}
