//! The manual pages are whole, and render without a warning.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Command;

const FIBULA: &str = env!("CARGO_BIN_EXE_fibula");

type Keys = BTreeMap<String, BTreeSet<String>>;
type Parse = fn(&str) -> Result<(), String>;

/// A key that no section has.
const NO_KEY: &str = "surely-no-key";

/// Keys that stand above all sections.
const TOP: &str = "Top level";

fn pages() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../contrib/man")
}

/// The keys that a page describes, by section.
fn described(page: &str) -> Keys {
    let text = std::fs::read_to_string(pages().join(page)).unwrap();
    let keys = text.split_once(".SH KEYS\n").unwrap().1.split("\n.SH ").next().unwrap().to_owned();
    let (mut sections, mut section, mut is_tagged) = (Keys::new(), String::new(), false);
    for line in keys.lines() {
        if let Some(title) = line.strip_prefix(".SS ") {
            section = title.trim_matches('"').to_owned();
            assert!(sections.insert(section.clone(), BTreeSet::new()).is_none(), "{page} has two sections {section}");
        } else if is_tagged && let Some(key) = line.strip_prefix(".B ") {
            assert!(sections.get_mut(&section).unwrap().insert(key.to_owned()), "{page} has {key} twice in {section}");
        }
        is_tagged = line == ".TP";
    }
    sections
}

/// The words in backquotes behind `expected` in the refusal of a key that is in no section; or, of states, behind `are`.
fn expected(refusal: &str) -> BTreeSet<String> {
    if let Some((_, states)) = refusal.split_once("the states are ") {
        return states.split(", ").map(|state| state.trim().to_owned()).collect();
    }
    let (_, list) = refusal.split_once("expected ").unwrap_or_else(|| panic!("this names no keys: {refusal}"));
    list.split('`').skip(1).step_by(2).map(str::to_owned).collect()
}

/// Asks the configuration itself which keys a section has: it lists them when there is another one.
fn known(parse: Parse, sections: &[(&str, String)]) -> Keys {
    let keys = |(title, text): &(&str, String)| {
        let refusal = parse(text).expect_err("a key that nobody knows is refused");
        assert!(refusal.contains(NO_KEY), "{title}: {refusal}");
        ((*title).to_owned(), expected(&refusal))
    };
    sections.iter().map(keys).collect()
}

/// As most sections are written.
fn section<'a>(title: &'a str, before: &str) -> (&'a str, String) {
    (title, format!("{before}{title}\n{NO_KEY} = 1\n"))
}

/// A section is a key of the section that it is in: `[flow.nat]` of `[flow]`, `[limits]` of the top level.
fn with_sections(mut keys: Keys) -> Keys {
    let titles: Vec<String> = keys.keys().cloned().collect();
    for path in titles.iter().filter(|title| title.starts_with('[')).map(|title| title.trim_matches(['[', ']'])) {
        let (parent, key) = match path.rsplit_once('.') {
            Some((parent, key)) => (format!("[{parent}]"), key),
            None => (TOP.to_owned(), path),
        };
        // `[port.bundle]` belongs to a `[[port]]`.
        let parent = if keys.contains_key(&parent) { parent } else { format!("[{parent}]") };
        keys.get_mut(&parent).unwrap().insert(key.to_owned());
    }
    keys
}

fn agree(page: &str, parse: Parse, sections: &[(&str, String)]) {
    let (described, known) = (with_sections(described(page)), known(parse, sections));
    let titles = |keys: &Keys| keys.keys().cloned().collect::<Vec<_>>();
    assert_eq!(titles(&described), titles(&known), "the sections of {page}, and those that there are");
    for (title, keys) in &known {
        assert_eq!(&described[title], keys, "the keys of {title} in {page}, and those that there are");
    }
}

/// The numbers and words that a page gives as defaults, by section and key.
fn defaults(page: &str) -> BTreeMap<(String, String), String> {
    let text = std::fs::read_to_string(pages().join(page)).unwrap();
    let (mut defaults, mut section, mut key) = (BTreeMap::new(), String::new(), String::new());
    let mut before = "";
    for line in text.lines() {
        if let Some(title) = line.strip_prefix(".SS ") {
            section = title.trim_matches('"').to_owned();
        } else if before == ".TP" {
            key = line.trim_start_matches(".B ").to_owned();
        } else if let Some(value) = line.strip_prefix("Default: ").and_then(|rest| rest.strip_suffix('.')) {
            defaults.insert((section.clone(), key.clone()), value.to_owned());
        }
        before = line;
    }
    defaults
}

/// Compares the defaults of a page with the fields of a configuration that says nothing, printed by `{:#?}`.
fn agree_on_defaults(page: &str, configuration: &str, at_least: usize) {
    let defaults = defaults(page);
    let (mut path, mut n_compared) = (Vec::new(), 0);
    for line in configuration.lines() {
        let line = line.trim();
        if line.ends_with(['{', '[', '(']) {
            path.push(line.split(':').next().unwrap().to_owned());
        } else if line.trim_end_matches(',').ends_with(['}', ']', ')']) && !line.contains(':') {
            path.pop();
        } else if let Some((field, value)) = line.trim_end_matches(',').split_once(": ") {
            let section = match path.as_slice() {
                [_] => TOP.to_owned(),
                [_, section] => format!("[{section}]"),
                [_, list, _] if list == "ports" => "[[port]]".to_owned(),
                _ => continue,
            };
            let Some(given) = defaults.get(&(section.clone(), field.to_owned())) else { continue };
            if value.parse::<u64>().is_ok() || value.parse::<bool>().is_ok() {
                assert_eq!(given, value, "the default of {field} in {section} of {page}");
                n_compared += 1;
            }
        }
    }
    assert!(n_compared >= at_least, "{n_compared} defaults of {page} were compared");
}

fn controller(text: &str) -> Result<(), String> {
    controller::config::Config::parse(text).map(drop)
}

fn switch(text: &str) -> Result<(), String> {
    switch::daemon::config::Config::parse(text).map(drop)
}

const CONTROLLER: &str = "listen = '127.0.0.1:4600'\nstore = '/tmp/x'\nname_kind = 'mac'\nmax_names = 1000\n";
const SWITCH: &str = "name = 's1'\ncontroller = 'http://127.0.0.1:4600'\nstate_dir = '/tmp/s1'\n";
const PORT: &str = "[[port]]\nid = 1\ndevice = 'eth1'\nrole = 'host'\n";

#[test]
fn page_of_the_controller_has_every_key_and_no_other() {
    let mut sections = vec![(TOP, format!("{NO_KEY} = 1\n"))];
    let others =
        ["[tls]", "[etcd]", "[audit]", "[design]", "[groups]", "[learn]", "[telemetry]", "[limits]", "[rates]"];
    sections.extend(others.map(|title| section(title, "")));
    agree("controller.toml.5", controller, &sections);
}

#[test]
fn page_of_the_switch_has_every_key_and_no_other() {
    let mut sections = vec![(TOP, format!("{NO_KEY} = 1\n"))];
    let others = [
        "[[port]]",
        "[[alien_server]]",
        "[subscriptions]",
        "[links]",
        "[dpdk]",
        "[tls]",
        "[audit]",
        "[limits]",
        "[flow]",
        "[[flow.rule]]",
        "[[flow.virtual]]",
        "[flow.nat]",
        "[gateway]",
        "[[gateway.outside]]",
        "[[gateway.route]]",
    ];
    sections.extend(others.map(|title| section(title, "")));
    let servers = format!("[[flow.virtual]]\nservers = [{{ {NO_KEY} = 1 }}]\n");
    sections.push(("servers of [[flow.virtual]]", servers));
    sections.push(section("[flow.virtual.check]", "[[flow.virtual]]\naddress = '10.0.0.1'\nport = 80\n"));
    sections.push(section("[port.bundle]", "[[port]]\nid = 1\nrole = 'host'\n"));
    // States are no fields: they are looked at when the file is whole.
    sections.push(section("[flow.timeouts]", &format!("{SWITCH}{PORT}")));
    agree("switch.toml.5", switch, &sections);
}

#[test]
fn pages_give_the_defaults_that_there_are() {
    let text = format!("{CONTROLLER}[design]\n");
    let config = controller::config::Config::parse(&text).unwrap();
    agree_on_defaults("controller.toml.5", &format!("{config:#?}"), 25);
    let config = switch::daemon::config::Config::parse(&format!("{SWITCH}{PORT}[flow]\n")).unwrap();
    agree_on_defaults("switch.toml.5", &format!("{config:#?}"), 25);
    let defaults = defaults("switch.toml.5");
    for state in dataplane::flow::state::State::ALL {
        let given = &defaults[&("[flow.timeouts]".to_owned(), state.name().to_owned())];
        assert_eq!(given, &state.default_timeout().to_string(), "the default of {}", state.name());
    }
}

/// What groff says of a page, with all its warnings on.
fn warnings(groff: &Path, page: &Path) -> String {
    let output = Command::new(groff).args(["-ww", "-z", "-man", "-Tutf8"]).arg(page).output().unwrap();
    assert!(output.status.success(), "{}", page.display());
    String::from_utf8(output.stderr).unwrap()
}

fn files(directory: &Path) -> Vec<PathBuf> {
    std::fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path()).collect()
}

#[test]
fn pages_render_without_a_warning() {
    let Some(groff) = netio::testkit::tool_or_skip("groff", "groff-base") else { return };
    let directory = tempfile::tempdir().unwrap();
    let wrong = directory.path().join("wrong.1");
    std::fs::write(&wrong, ".TH WRONG 1\n.SH NAME\n\\*[no-such-string]\n").unwrap();
    assert!(!warnings(&groff, &wrong).is_empty(), "groff warns of nothing");
    std::fs::remove_file(&wrong).unwrap();

    let made = Command::new(FIBULA).arg("man").arg(directory.path()).output().unwrap();
    assert!(made.status.success(), "{made:?}");
    let made = files(directory.path());
    for name in ["fibula.1", "fibula-controller.1", "fibula-name-add.1", "fibula-flow-server-add.1"] {
        assert!(made.contains(&directory.path().join(name)), "there is no {name}");
    }
    assert!(!made.contains(&directory.path().join("fibula-man.1")), "what is hidden has no page");
    let written = files(&pages());
    assert_eq!(written.len(), 4);
    for page in made.iter().chain(&written) {
        assert_eq!(warnings(&groff, page), "", "{}", page.display());
    }
}
