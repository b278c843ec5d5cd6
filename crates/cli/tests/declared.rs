//! A network as lists say it: `apply`, `diff` and `export`, and names that are replaced as a whole.

mod support;

use api::v1;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use support::{FIBULA, Process, Site, add_full_mesh, exit_code, mac, stderr, stdout};

/// A network with lists.
struct Declared {
    site: Site,
    controller: Option<Process>,
    lists: PathBuf,
}

impl Declared {
    /// Switches s1 and s2 with a link at ports 2 and 1, and a host at port 100 of each, as lists.
    async fn new() -> Declared {
        let site = Site::new("");
        let controller = site.start();
        add_full_mesh(&mut site.client().await, 2).await;
        let lists = site.path("net");
        let declared = Declared { site, controller: Some(controller), lists };
        declared.done(&["name", "add", &mac(1), "h1", "--ip", "10.0.0.1"]);
        declared.done(&["name", "add", &mac(2), "h2"]);
        declared.done(&["export", "-d", declared.lists.to_str().unwrap()]);
        declared
    }

    fn list(&self, file: &str) -> String {
        std::fs::read_to_string(self.lists.join(file)).unwrap()
    }

    fn write(&self, file: &str, text: &str) {
        std::fs::write(self.lists.join(file), text).unwrap();
    }

    fn run(&self, verb: &str, more: &[&str]) -> Output {
        self.site.fibula(&[&[verb, "-f", self.lists.to_str().unwrap()], more].concat())
    }

    fn done(&self, arguments: &[&str]) -> String {
        let output = self.site.fibula(arguments);
        assert_eq!(exit_code(&output), 0, "{arguments:?}: {}", stderr(&output));
        stdout(&output)
    }

    /// Applies, and then nothing differs any more. What was said.
    fn applied(&self, more: &[&str]) -> String {
        let output = self.run("apply", &[more, &["--yes"]].concat());
        assert_eq!(exit_code(&output), 0, "{}", stderr(&output));
        let diff = self.run("diff", more);
        assert_eq!((exit_code(&diff), &*stdout(&diff)), (0, "nothing differs\n"), "{}", stderr(&diff));
        stdout(&output)
    }

    fn names(&self) -> String {
        self.done(&["name", "export"])
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_exported_and_applied_changes_nothing() {
    let net = Declared::new().await;
    assert_eq!(net.list("switches.csv"), "name,tenants\ns1,\ns2,\n");
    assert_eq!(net.list("links.csv"), "a,b,cost,weight,state\ns1:2,s2:1,1,1,up\n");
    assert_eq!(net.list("hosts.csv"), "name,port\nh1,s1:100\nh2,s2:100\n");
    assert_eq!(net.list("names.csv"), format!("name,host,tenant,ip\n{},h1,0,10.0.0.1\n{},h2,0,\n", mac(1), mac(2)));
    for more in [&[][..], &["--prune"], &["--prune", "--learnt"]] {
        let output = net.run("apply", &[more, &["--yes"]].concat());
        assert_eq!((exit_code(&output), &*stdout(&output)), (0, "nothing to change\n"), "{}", stderr(&output));
    }
    let status = net.site.client().await.get_status(v1::GetStatusRequest {}).await.unwrap().into_inner();
    let changes = status.changes;
    net.applied(&["--prune"]);
    let status = net.site.client().await.get_status(v1::GetStatusRequest {}).await.unwrap().into_inner();
    assert_eq!(status.changes, changes);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_plan_is_printed_and_nothing_happens_until_somebody_says_yes() {
    let net = Declared::new().await;
    net.write("switches.csv", "s1\ns2\ns3,7 9\n");
    net.write("links.csv", "s1:2,s2:1,5,2,down\ns2:7,s3:7\n");
    net.write("hosts.csv", "name,port\nh1,s1:100\nmail,s2:100\nh3,s3:1\n");
    net.write("names.csv", &format!("{},h1,0,10.0.0.9\n{},mail\n{},h3,7\n", mac(1), mac(2), mac(3)));
    let plan = [
        "+ switch s3: tenants 7 9",
        "~ host h2: is renamed to mail",
        "+ host h3: at s3:1",
        "~ link s1:2 – s2:1: cost 1 -> 5, weight 1 -> 2, taken out of use",
        "+ link s2:7 – s3:7: cost 1, weight 1",
        &format!("~ name {}: address 10.0.0.1 -> 10.0.0.9", mac(1)),
        &format!("+ name {} at h3, tenant 7", mac(3)),
    ];
    for (verb, code) in [("diff", 6), ("apply", 2)] {
        let output = net.run(verb, &[]);
        let lines: Vec<String> = stdout(&output).lines().map(str::to_owned).collect();
        assert_eq!((exit_code(&output), &lines[..]), (code, &plan.map(str::to_owned)[..]), "{}", stderr(&output));
        assert!(stderr(&output).contains("3 to be added, 2 to be changed, 0 to be removed"), "{}", stderr(&output));
    }
    let json = stdout(&net.run("diff", &["-j"]));
    assert_eq!(json.lines().count(), plan.len(), "{json}");
    assert!(!net.done(&["switch", "list"]).contains("s3"));
    net.applied(&[]);
    assert!(net.names().contains(&format!("{},h3,7,", mac(3))) && net.names().contains(&format!("{},mail,0,", mac(2))));
    let links = net.done(&["-j", "link", "list"]);
    assert!(links.contains("\"cost\":5,\"weight\":2,\"up\":false,\"state\":\"down\""), "{links}");
    // The tenants of a switch stay as they are.
    net.write("switches.csv", "s1\ns2\ns3\n");
    let refused = net.run("diff", &[]);
    assert!(
        exit_code(&refused) == 5 && stderr(&refused).contains("remove the switch and add it again"),
        "{}",
        stderr(&refused)
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn hosts_that_change_places_take_their_names_along() {
    let net = Declared::new().await;
    net.write("hosts.csv", "h1,s2:100\nh2,s1:100\n");
    let said = net.applied(&[]);
    assert!(
        said.contains("~ host h1: moves from s1:100 to s2:100\n~ host h2: moves from s2:100 to s1:100\n"),
        "{said}"
    );
    let hosts = net.done(&["-j", "host", "list"]);
    assert!(hosts.lines().count() == 2 && hosts.contains("\"host\":\"h1\",\"switch\":\"s2\",\"port\":100"), "{hosts}");
    assert!(
        net.names().contains(&format!("{},h1,0,10.0.0.1", mac(1))) && net.names().contains(&format!("{},h2", mac(2)))
    );
    // To a free port, and without its names in a list.
    net.write("hosts.csv", "h1,s2:50\nh2,s1:100\n");
    net.write("names.csv", &format!("{},h2\n", mac(2)));
    let refused = net.run("apply", &["--yes"]);
    assert_eq!(exit_code(&refused), 3);
    let reason = format!("host h1 moves from s2:100 to s2:50, and names.csv lacks 1 of its names, such as {}", mac(1));
    assert!(stderr(&refused).contains(&reason), "{}", stderr(&refused));
    assert!(
        net.done(&["-j", "host", "list"]).contains("\"host\":\"h1\",\"switch\":\"s2\",\"port\":100"),
        "nothing was done"
    );
    net.write("names.csv", &format!("{},h2\n{},h1\n", mac(2), mac(1)));
    net.applied(&[]);
    let hosts = net.done(&["-j", "host", "list"]);
    assert!(hosts.lines().count() == 2 && hosts.contains("\"switch\":\"s2\",\"port\":50"), "{hosts}");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_lists_lack_goes_with_prune_alone_and_what_was_learnt_only_if_that_is_said() {
    let net = Declared::new().await;
    let mut client = net.site.client().await;
    // As switches find hosts: named after the port.
    net.done(&["host", "add", "s1.7", "s1:7"]);
    net.done(&["switch", "add", "s9"]);
    net.done(&["link", "add", "s1:9", "s9:1"]);
    net.done(&["host", "add", "h9", "s9:5"]);
    net.done(&["name", "add", &mac(9), "h9"]);
    net.applied(&[]);
    assert!(net.names().contains(&mac(9)), "without --prune it stays");
    let said = net.applied(&["--prune"]);
    for line in ["- switch s9", "- host h9: at s9:5", "- link s1:9 – s9:1", &format!("- name {} at h9", mac(9))] {
        assert!(said.contains(line), "{line} is not in {said}");
    }
    assert!(!net.done(&["switch", "list"]).contains("s9"));
    let hosts = net.done(&["-j", "host", "list"]);
    assert!(hosts.contains("s1.7") && !hosts.contains("h9"), "nobody declared it: {hosts}");
    let said = net.applied(&["--prune", "--learnt"]);
    assert!(said.contains("- host s1.7"), "{said}");
    net.write("names.csv", "name,host\n");
    let refused = net.run("apply", &["--prune", "--yes"]);
    assert!(
        exit_code(&refused) == 3 && stderr(&refused).contains("all names would be removed"),
        "{}",
        stderr(&refused)
    );
    // A list that is not there says nothing.
    std::fs::remove_file(net.lists.join("names.csv")).unwrap();
    net.applied(&["--prune"]);
    let names = client.get_status(v1::GetStatusRequest {}).await.unwrap().into_inner().names;
    assert_eq!(names, 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn whoever_is_killed_half_way_applies_again() {
    let mut net = Declared::new().await;
    net.write("switches.csv", &(1..=40).map(|i| format!("s{i}\n")).collect::<String>());
    net.write("hosts.csv", &(1..=40).map(|i| format!("h{i},s{}:100\n", 41 - i)).collect::<String>());
    net.write("links.csv", &(1..40).map(|i| format!("s{i}:2,s{}:1\n", i + 1)).collect::<String>());
    let names: String = (1..=5000).map(|i| format!("{},h{}\n", mac(i), 1 + i % 40)).collect();
    net.write("names.csv", &names);
    // The command is killed when the first of its changes are there, whatever is done by then.
    let mut child = Command::new(FIBULA)
        .args(["apply", "--prune", "--yes", "-f", net.lists.to_str().unwrap()])
        .env("FIBULA_CONTROLLER", &net.site.url)
        .stdout(std::process::Stdio::null())
        .stderr(std::process::Stdio::null())
        .spawn()
        .unwrap();
    let client = net.site.client().await;
    support::eventually("some of it is done", async || {
        client.clone().get_status(v1::GetStatusRequest {}).await.is_ok_and(|status| status.into_inner().switches > 2)
    })
    .await;
    child.kill().unwrap();
    child.wait().unwrap();
    net.controller.take().unwrap().kill();
    net.controller = Some(net.site.start());
    net.applied(&["--prune"]);
    let status = net.site.client().await.get_status(v1::GetStatusRequest {}).await.unwrap().into_inner();
    assert_eq!((status.switches, status.hosts, status.links, status.names), (40, 40, 39, 5000));
    let fresh = net.site.path("fresh");
    net.done(&["export", "-d", fresh.to_str().unwrap()]);
    let sorted = |path: &Path| {
        let text = std::fs::read_to_string(path).unwrap();
        let mut lines: Vec<String> = text.lines().skip(1).map(str::to_owned).collect();
        lines.sort();
        lines
    };
    let mut asked: Vec<String> = names.lines().map(|line| format!("{line},0,")).collect();
    asked.sort();
    assert_eq!(sorted(&fresh.join("names.csv")), asked);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_names_become_those_of_a_file_in_one_transaction() {
    let net = Declared::new().await;
    let file = net.site.path("all.csv");
    let import = |text: &str, more: &[&str]| {
        std::fs::write(&file, text).unwrap();
        net.site.fibula(&[&["name", "import", file.to_str().unwrap()], more].concat())
    };
    net.done(&["name", "add", &mac(3), "h2", "--ip", "10.0.0.3"]);
    // The addresses of the first and the third change places; the second goes.
    let text = format!("{},h1,0,10.0.0.3\n{},h2,0,10.0.0.1\n{},h1\n", mac(1), mac(3), mac(4));
    let said = import(&text, &["--replace", "--dry-run"]);
    assert_eq!(exit_code(&said), 0, "{}", stderr(&said));
    let expected = format!(
        "~ name {}: address 10.0.0.1 -> 10.0.0.3\n- name {} at h2\n~ name {}: address 10.0.0.3 -> 10.0.0.1\n+ name {} at h1\n\
         nothing changed: 1 to be added, 2 to be changed, 1 to be removed, 0 unchanged\n",
        mac(1),
        mac(2),
        mac(3),
        mac(4)
    );
    assert_eq!(stdout(&said), expected);
    assert!(net.names().contains(&mac(2)), "a dry run changes nothing");
    let before = net.site.client().await.get_status(v1::GetStatusRequest {}).await.unwrap().into_inner();
    let done = import(&text, &["--replace"]);
    assert_eq!(exit_code(&done), 0, "{}", stderr(&done));
    assert!(stdout(&done).contains("3 names, 4 changes made"), "{}", stdout(&done));
    let after = net.site.client().await.get_status(v1::GetStatusRequest {}).await.unwrap().into_inner();
    assert_eq!((after.names, after.transactions), (3, before.transactions + 1));
    assert_eq!(net.names().lines().count(), 4);
    assert!(net.names().contains(&format!("{},h1,0,10.0.0.3", mac(1))));
    let again = import(&text, &["--replace"]);
    assert!(stdout(&again).contains("0 changes made"), "{}", stdout(&again));
    // Refused as a whole.
    for (text, code, reason) in [
        ("name,host\n".to_owned(), 3, "all names would be removed"),
        (format!("{},h9\n", mac(7)), 3, "line 1: there is no host `h9`"),
        (format!("{0},h1\n{0},h2\n", mac(7)), 3, "line 2"),
    ] {
        let refused = import(&text, &["--replace"]);
        assert_eq!(exit_code(&refused), code, "{}", stderr(&refused));
        assert!(stderr(&refused).contains(reason), "{}", stderr(&refused));
    }
    assert_eq!(net.names().lines().count(), 4);
    // Without --replace the others stay.
    let said = import(&format!("{},h2\n", mac(4)), &["--dry-run"]);
    assert!(stdout(&said).starts_with(&format!("~ name {}: host h1 -> h2\n", mac(4))), "{}", stdout(&said));
    assert!(stdout(&said).contains("0 to be removed"), "{}", stdout(&said));
}

/// Anyone who sends names to replace all others and goes before the end has changed nothing.
#[tokio::test(flavor = "multi_thread")]
async fn a_replacement_that_ends_early_changes_nothing() {
    let net = Declared::new().await;
    let mut client = net.site.client().await;
    let request = v1::ReplaceNamesRequest { names: vec![support::record(7, "h1")], ..Default::default() };
    let mut answers = client.replace_names(tokio_stream::iter([request.clone()])).await.unwrap().into_inner();
    let refused = answers.message().await.unwrap_err();
    assert!(refused.message().contains("nothing was changed"), "{refused}");
    assert!(net.names().contains(&mac(1)) && !net.names().contains(&mac(7)));
    let whole = v1::ReplaceNamesRequest { end: true, ..request };
    let mut answers = client.replace_names(tokio_stream::iter([whole])).await.unwrap().into_inner();
    assert_eq!(answers.message().await.unwrap().unwrap().changed.unwrap().changed, 3);
    assert!(!net.names().contains(&mac(1)) && net.names().contains(&mac(7)));
}
