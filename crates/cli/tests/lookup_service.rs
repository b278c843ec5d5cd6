//! Content names from a CSV to answers: a controller, a switch that only answers lookups, and the commands between
//! them.

mod support;

use std::io::Write;
use std::process::{Command, Output, Stdio};
use support::{FIBULA, Process, Site, eventually, exit_code, in_step, stderr, stdout, write};

const N_NAMES: u32 = 20_000;
const N_SERVERS: u32 = 5_000;

fn url(i: u32) -> String {
    format!("https://cdn.example/{}/clip,{i}.mp4", i % 97)
}

/// For most servers, a port above all that a switch could have.
fn port_of(server: u32) -> u32 {
    60_000 - server
}

struct Cdn {
    site: Site,
    lookup: String,
}

impl Cdn {
    fn new() -> Cdn {
        let site = Site::new("value_bits = 16\nhash = \"wy\"\n");
        let file = site.path("controller.toml");
        let text = std::fs::read_to_string(&file).unwrap();
        std::fs::write(&file, text.replace("name_kind = \"mac\"", "name_kind = \"text\"")).unwrap();
        let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let lookup = free.local_addr().unwrap().to_string();
        let text = format!(
            "name = \"l1\"\ncontroller = \"{}\"\nstate_dir = \"{}\"\nlookup = \"{lookup}\"\n",
            site.url,
            site.path("l1").display()
        );
        std::fs::write(site.path("l1.toml"), text).unwrap();
        Cdn { site, lookup }
    }

    fn start_switch(&self) -> Process {
        Process::spawn(&["switch", "--config", self.site.path("l1.toml").to_str().unwrap()])
    }

    /// Runs a command that must succeed.
    #[track_caller]
    fn done(&self, arguments: &[&str]) -> String {
        let output = self.site.fibula(arguments);
        assert_eq!(exit_code(&output), 0, "{}", stderr(&output));
        stdout(&output)
    }

    fn lookup(&self, arguments: &[&str], input: &str) -> Output {
        let mut child = Command::new(FIBULA)
            .args(["switch", "lookup"])
            .args(arguments)
            .env("FIBULA_LOOKUP", &self.lookup)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut stdin = child.stdin.take().unwrap();
        let input = input.to_owned();
        let writer = std::thread::spawn(move || drop(stdin.write_all(input.as_bytes())));
        let output = child.wait_with_output().unwrap();
        writer.join().unwrap();
        output
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn urls_are_imported_asked_for_changed_and_asked_for_again() {
    let cdn = Cdn::new();
    let controller = cdn.site.start();
    cdn.done(&["switch", "add", "l1"]);
    let (servers, names) = (cdn.site.path("servers.csv"), cdn.site.path("names.csv"));
    write(&servers, (0..N_SERVERS).map(|s| format!("cache-{s},l1:{}", port_of(s))));
    assert_eq!(cdn.done(&["host", "import", servers.to_str().unwrap()]), "5000 hosts added\n");
    let again = cdn.site.fibula(&["host", "import", servers.to_str().unwrap()]);
    assert!(exit_code(&again) == 5 && stderr(&again).contains("cache-0"), "{}", stderr(&again));
    write(&names, (0..N_NAMES).map(|i| format!("\"{}\",cache-{}", url(i), i % N_SERVERS)));
    cdn.done(&["name", "import", names.to_str().unwrap()]);

    let switch = cdn.start_switch();
    let client = cdn.site.client().await;
    eventually("the switch in step", async || in_step(&client).await == 1).await;
    let all: String = (0..N_NAMES).map(|i| url(i) + "\n").collect();
    let expected: String = (0..N_NAMES).map(|i| format!("\"{}\",found,{}\n", url(i), port_of(i % N_SERVERS))).collect();
    let output = cdn.lookup(&[], &all);
    assert!(stdout(&output) == expected, "{} {}", stderr(&output), &stdout(&output)[..200]);

    cdn.done(&["name", "set", &url(1), "cache-4999"]);
    cdn.done(&["name", "del", &url(2)]);
    cdn.done(&["name", "add", "https://cdn.example/new", "cache-7"]);
    eventually("the switch in step", async || in_step(&client).await == 1).await;
    let changed = |cdn: &Cdn| {
        let output = cdn.lookup(&[&url(0), &url(1), &url(2), "https://cdn.example/new", "--json"], "");
        let expected = [
            (url(0), "found", port_of(0).to_string()),
            (url(1), "found", port_of(4999).to_string()),
            (url(2), "unknown", "null".to_owned()),
            ("https://cdn.example/new".to_owned(), "found", port_of(7).to_string()),
        ]
        .map(|(name, outcome, port)| format!("{{\"name\":\"{name}\",\"outcome\":\"{outcome}\",\"port\":{port}}}\n"));
        assert_eq!(stdout(&output), expected.concat(), "{}", stderr(&output));
    };
    changed(&cdn);

    // Without the controller, from the saved image.
    assert_eq!(switch.terminate(), Some(0));
    controller.kill();
    let switch = cdn.start_switch();
    changed(&cdn);
    let output = cdn.lookup(&[], &format!("{}\nbell\u{7}\n", url(0)));
    assert!(exit_code(&output) == 3 && stderr(&output).contains("name 1 of the request"), "{}", stderr(&output));
    drop(switch);
    let output = cdn.lookup(&["x"], "");
    assert!(exit_code(&output) == 4 && stderr(&output).contains("no switch answers"), "{}", stderr(&output));
}

#[test]
fn a_file_of_hosts_with_a_wrong_line_adds_none() {
    let cdn = Cdn::new();
    let _controller = cdn.site.start();
    cdn.done(&["switch", "add", "l1"]);
    let file = cdn.site.path("servers.csv");
    for (line, exit, part) in [
        ("cache-2", 3, "line 3: 1 fields in `cache-2`: write name,switch:port"),
        ("cache-2,l1:65536", 3, "line 3: `l1:65536`"),
        ("cache-2,l9:2", 4, "l9"),
        ("cache-1,l1:2", 5, "cache-1"),
        ("cache-2,l1:1", 5, "port"),
    ] {
        write(&file, ["name,port", "cache-1,l1:1", line].iter().map(|line| (*line).to_owned()));
        let output = cdn.site.fibula(&["host", "import", file.to_str().unwrap()]);
        assert!(exit_code(&output) == exit && stderr(&output).contains(part), "{line}: {}", stderr(&output));
        assert_eq!(cdn.done(&["-j", "host", "list"]), "");
    }
}

#[test]
fn a_fib_of_urls_and_more_servers_than_ports_answers_offline() {
    let directory = tempfile::tempdir().unwrap();
    let (list, fib) = (directory.path().join("content.csv"), directory.path().join("content.fib"));
    let (list, fib) = (list.to_str().unwrap(), fib.to_str().unwrap());
    write(list.as_ref(), (0..70_000).map(|i| format!("\"{}\",{}", url(i), i % 65_535)));
    let run = |arguments: &[&str]| Command::new(FIBULA).args(arguments).output().unwrap();
    for design in ["concise", "ofw", "cfw", "cuckoo"] {
        let built = run(&["fib", "build", list, "-o", fib, "--kind", "text", "--hash", "wy", "--design", design]);
        assert_eq!(exit_code(&built), 0, "{design}: {}", stderr(&built));
        for i in [0, 40_000, 65_534, 65_535, 69_999] {
            let action = format!("port:{}", i % 65_535);
            let answer = run(&["-j", "fib", "lookup", fib, &url(i)]);
            assert!(stdout(&answer).contains(&action), "{design}: {} {}", stdout(&answer), stderr(&answer));
        }
    }
}
