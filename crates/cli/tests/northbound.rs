//! The command line against a controller: its effects, its refusals, and its messages.

mod support;

use api::v1;
use support::{Client, Process, Site, add_full_mesh, eventually, exit_code, in_step, mac, stderr, stdout, write};

/// A controller with two switches and two hosts.
async fn site_with_hosts() -> (Site, Process) {
    let site = Site::new("");
    let controller = site.start();
    add_full_mesh(&mut site.client().await, 2).await;
    (site, controller)
}

#[tokio::test(flavor = "multi_thread")]
async fn names_can_be_added_moved_shown_and_removed() {
    let (site, _controller) = site_with_hosts().await;
    let done = |arguments: &[&str]| {
        let output = site.fibula(arguments);
        assert_eq!(exit_code(&output), 0, "{arguments:?}: {}", stderr(&output));
        stdout(&output)
    };
    assert_eq!(done(&["name", "add", &mac(1), "h1", "--ip", "10.0.0.1"]), "1 name added\n");
    assert_eq!(
        done(&["-j", "name", "show", &mac(1)]),
        "{\"name\":\"02:00:00:00:00:01\",\"host\":\"h1\",\"tenant\":0,\"ip\":\"10.0.0.1\"}\n"
    );
    assert_eq!(done(&["name", "set", &mac(1), "h2"]), "1 name set\n");
    assert_eq!(done(&["name", "set", &mac(1), "h2"]), "0 names set, 1 unchanged\n");
    assert!(done(&["name", "list"]).contains("h2"));
    assert_eq!(done(&["-j", "name", "count"]), "{\"names\":1,\"max_names\":1000000}\n");
    assert_eq!(done(&["name", "del", &mac(1)]), "1 name removed\n");
    assert_eq!(
        done(&["-j", "link", "list"]),
        "{\"a\":\"s1:2\",\"b\":\"s2:1\",\"cost\":1,\"weight\":1,\"up\":true,\"state\":\"up\",\"drained\":false,\"found\":false}\n"
    );
    assert_eq!(done(&["link", "set", "s2:1", "--state", "down", "--cost", "7", "--weight", "64"]), "1 link set\n");
    assert_eq!(
        done(&["-j", "link", "list"]),
        "{\"a\":\"s1:2\",\"b\":\"s2:1\",\"cost\":7,\"weight\":64,\"up\":false,\"state\":\"down\",\"drained\":false,\"found\":false}\n"
    );
    assert!(done(&["-j", "switch", "show", "s1"]).contains("\"connected\":false"));
    assert_eq!(done(&["host", "del", "h2"]), "1 host removed\n");
    assert_eq!(done(&["link", "del", "s1:2"]), "1 link removed\n");
    assert_eq!(done(&["switch", "del", "s2"]), "1 switch removed\n");
}

#[tokio::test(flavor = "multi_thread")]
async fn switches_and_links_of_a_file_are_added_all_or_none() {
    let (site, _controller) = site_with_hosts().await;
    let import = |noun: &str, text: &str| {
        let file = site.path("list.csv");
        std::fs::write(&file, text).unwrap();
        site.fibula(&[noun, "import", file.to_str().unwrap()])
    };
    let listed = |noun: &str| stdout(&site.fibula(&["-j", noun, "list"])).lines().count();
    for (noun, text, code, reason) in [
        ("switch", "name\nt1\nt 2\n", 3, "not a name for a switch or host"),
        ("switch", "t1\ns2\n", 5, "already"),
        ("switch", "t1\nt2\nt1\n", 5, "already"),
        (
            "link",
            "s1:7,s2:7\ns1:8\n",
            3,
            "line 2: 1 fields in `s1:8`: write switch:port,switch:port[,cost[,weight]]; nothing imported",
        ),
        ("link", "s1:7,s2:7,x\n", 3, "line 1: cost `x`"),
        ("link", "s1:7,s2:7,1,2,3\n", 3, "line 1: 5 fields in `s1:7,s2:7,1,2,3`"),
        ("link", "s1:7,s2:7,1,x\n", 3, "weight `x`"),
        ("link", "s1:7,s2:7\ns1:8,s2:8,1,65\n", 3, "a link's weight is 1 to 64"),
        ("link", "s1:7,s2:7\ns1:8,s9:8\n", 4, "no switch `s9`"),
        ("link", "s1:7,s2:7\ns1:7,s2:8\n", 5, "already"),
        ("link", "s1:7,s2:7\ns1:8,s2:8,0\n", 3, "cost"),
    ] {
        let output = import(noun, text);
        assert_eq!(exit_code(&output), code, "{text}: {}", stderr(&output));
        assert!(stderr(&output).contains(reason), "{text}: {}", stderr(&output));
    }
    assert_eq!((listed("switch"), listed("link")), (2, 1), "nothing was added");
    assert_eq!(stdout(&import("switch", "name\n# more\nt1\n\nt2\n")), "2 switches added\n");
    assert_eq!(stdout(&import("link", "a,b,cost,weight\ns1:7,t1:1\nt1:2, t2:1, 5, 3\n")), "2 links added\n");
    assert_eq!(stdout(&import("link", "")), "0 links added\n");
    assert_eq!((listed("switch"), listed("link")), (4, 3));
    assert!(stdout(&site.fibula(&["-j", "link", "list"])).contains(
        r#"{"a":"t1:2","b":"t2:1","cost":5,"weight":3,"up":true,"state":"up","drained":false,"found":false}"#
    ));
}

#[tokio::test(flavor = "multi_thread")]
async fn refusals_have_exit_codes_by_kind_and_say_what_is_wrong() {
    let (site, _controller) = site_with_hosts().await;
    assert_eq!(exit_code(&site.fibula(&["name", "add", &mac(1), "h1"])), 0);
    let port = format!("s1:{}", support::HOST_PORT);
    let cases: &[(&[&str], i32, &str)] = &[
        (&["name", "add", "02:00:00:00:00", "h1"], 3, "02:00:00:00:00"),
        (&["name", "add", &mac(2), "h9"], 4, "no host `h9`"),
        (&["name", "add", &mac(1), "h2"], 5, "exists"),
        (&["name", "del", &mac(3)], 4, "there is no name"),
        (&["name", "show", &mac(3)], 4, "there is no name"),
        (&["name", "add", &mac(2), "h1", "--ip", "10.0.0"], 2, "10.0.0"),
        (&["host", "add", "h1", "s2:5"], 5, "already"),
        (&["host", "add", "h3", "s9:5"], 4, "no switch `s9`"),
        (&["host", "add", "h3", &port], 5, "h1"),
        (&["host", "add", "h3", "s1:2"], 5, "link"),
        (&["host", "add", "h 3", "s1:3"], 3, "not a name for a switch or host"),
        (&["switch", "add", "--", "-s"], 3, "not a name for a switch or host"),
        (&["host", "del", "h1"], 5, "names are attached"),
        (&["host", "add", "h3", "s1"], 2, "s1:3"),
        (&["link", "add", "s1:2", "s2:9"], 5, "already"),
        (&["link", "add", "s1:7", "s1:8"], 3, "joins two switches"),
        (&["link", "add", "s1:7", "s2:8", "--cost", "0"], 3, "cost"),
        (&["link", "add", "s1:7", "s2:8", "--weight", "0"], 3, "a link's weight is 1 to 64"),
        (&["link", "set", "s1:2", "--weight", "0"], 3, "a link's weight is 1 to 64"),
        (&["link", "set", "s1:2", "--weight", "65"], 3, "a link's weight is 1 to 64"),
        (&["link", "set", "s1:2", "--weight", "4294967297"], 2, "4294967297"),
        (&["link", "set", "s1:2", "--weight", "257", "--state", "down"], 3, "a link's weight is 1 to 64"),
        (&["link", "set", "s1:77", "--weight", "2"], 4, "no link"),
        (&["link", "accept", "--weight", "65"], 3, "a link's weight is 1 to 64"),
        (&["link", "set", "s1:77", "--state", "up"], 4, "no link"),
        (&["link", "set", "s1:2"], 2, "--cost"),
        (&["switch", "add", "s1"], 5, "already"),
        (&["switch", "del", "s1"], 5, "first"),
        (&["switch", "show", "s9"], 4, "no switch `s9`"),
        (&["name", "import", "/nonexistent.csv"], 4, "/nonexistent.csv"),
        (&["name", "import", "/"], 3, "is a directory"),
        (&["name", "import", "/dev/zero"], 3, "is this a text file?"),
        (&["name", "add", "01:00:5e:00:00:01", "h1"], 3, "a group address"),
        (&["name", "add", "00:00:00:00:00:00", "h1"], 3, "the zero address"),
        (&["name", "add", &mac(2), "h1", "--ip", "0.0.0.0"], 3, "the unspecified address"),
        (&["name", "add", &mac(2), "h1", "--ip", "ff02::1"], 3, "a multicast address"),
        (&["name", "add", &mac(2), "h1", "--ip", "255.255.255.255"], 3, "the broadcast address"),
        (&["fib", "lookup", "/dev/zero", "x"], 3, "not a FIB file"),
    ];
    for (arguments, code, reason) in cases {
        let output = site.fibula(arguments);
        let said = stderr(&output);
        assert_eq!(exit_code(&output), *code, "{arguments:?}: {said}");
        assert!(said.contains(reason), "{arguments:?} should mention {reason}: {said}");
    }
    assert_eq!(stdout(&site.fibula(&["-j", "name", "count"])), "{\"names\":1,\"max_names\":1000000}\n");
}

#[tokio::test(flavor = "multi_thread")]
async fn import_that_the_controller_refuses_names_the_line() {
    let (site, _controller) = site_with_hosts().await;
    assert_eq!(exit_code(&site.fibula(&["name", "add", &mac(999), "h1", "--ip", "10.0.0.7"])), 0);
    let file = site.path("names.csv");
    let line = |i: u32| format!("{},h1,0,10.0.0.{i}", mac(i));
    write(&file, std::iter::once("# a comment".to_owned()).chain((1..=9).map(line)));
    let output = site.fibula(&["name", "import", "--batch", "4", file.to_str().unwrap()]);
    assert_eq!(exit_code(&output), 5);
    let said = stderr(&output);
    assert!(said.contains("line 8 is refused") && said.contains("the first 4 names were imported"), "{said}");
    assert!(said.contains(&format!("10.0.0.7 belongs to `{}`", mac(999))), "{said}");
    // In a batch of one, and where all others of the batch are there already.
    for batch in ["1", "5"] {
        write(&file, [1, 2, 3, 4, 7].into_iter().map(line));
        let output = site.fibula(&["name", "import", "--batch", batch, file.to_str().unwrap()]);
        let said = stderr(&output);
        assert!(exit_code(&output) == 5 && said.contains("line 5 is refused"), "{batch}: {said}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn import_refuses_a_file_with_a_duplicate_whole_and_takes_the_repaired_one() {
    const N_NAMES: u32 = 100_000;
    let (site, _controller) = site_with_hosts().await;
    let file = site.path("names.csv");
    let line = |i: u32| format!("{},h{}", mac(i), 1 + i % 2);
    write(&file, (0..N_NAMES).map(line).chain([line(777)]));
    let output = site.fibula(&["name", "import", file.to_str().unwrap()]);
    assert_eq!(exit_code(&output), 3);
    let expected = format!("line {}: `{}` is already on line 778", N_NAMES + 1, mac(777));
    assert!(stderr(&output).contains(&expected), "{}", stderr(&output));
    assert_eq!(stdout(&site.fibula(&["name", "count"])), "0 names of at most 1000000\n");

    write(&file, (0..N_NAMES).map(line));
    let output = site.fibula(&["-j", "name", "import", file.to_str().unwrap()]);
    assert_eq!(stdout(&output), "{\"names\":100000,\"changed\":100000,\"unchanged\":0}\n", "{}", stderr(&output));

    // The export equals the import, and importing it again changes nothing.
    let exported = site.path("exported.csv");
    assert_eq!(exit_code(&site.fibula(&["name", "export", exported.to_str().unwrap()])), 0);
    let text = std::fs::read_to_string(&exported).unwrap();
    assert_eq!(text.lines().count() as u32, N_NAMES + 1);
    assert!(text.lines().nth(1).unwrap().starts_with(&format!("{},h1,0,", mac(0))));
    let output = site.fibula(&["-j", "name", "import", exported.to_str().unwrap()]);
    assert_eq!(stdout(&output), "{\"names\":100000,\"changed\":0,\"unchanged\":100000}\n", "{}", stderr(&output));
}

#[test]
fn second_controller_on_a_store_is_refused() {
    let site = Site::new("");
    let _first = site.start();
    let config = std::fs::read_to_string(site.path("controller.toml")).unwrap();
    let other = site.path("other.toml");
    let listen = format!("\"{}\"", site.url.trim_start_matches("http://"));
    std::fs::write(&other, config.replace(&listen, "\"127.0.0.1:0\"")).unwrap();
    let output = site.fibula(&["controller", "--config", other.to_str().unwrap()]);
    assert_eq!(exit_code(&output), 5, "{}", stderr(&output));
    assert!(stderr(&output).contains("in use by another controller"), "{}", stderr(&output));
}

#[test]
fn unreachable_controller_is_named_with_what_to_set() {
    let site = Site::new("");
    let output = site.fibula(&["name", "count"]);
    assert_eq!(exit_code(&output), 4);
    for part in [&site.url[..], "--controller", "FIBULA_CONTROLLER"] {
        assert!(stderr(&output).contains(part), "{}", stderr(&output));
    }
    let output = site.fibula(&["-j", "name", "count", "--controller", "nonsense"]);
    assert_eq!(exit_code(&output), 2, "{}", stderr(&output));
    assert!(stderr(&output).contains("is not the URL of a controller"), "{}", stderr(&output));
}

#[test]
fn configurations_are_checked_without_starting() {
    let site = Site::new("");
    let config = site.path("controller.toml");
    let check = || site.fibula(&["controller", "--check", "--config", config.to_str().unwrap()]);
    assert_eq!(exit_code(&check()), 0);
    assert!(!site.path("rib.sqlite").exists());
    std::fs::write(&config, "listen = \"127.0.0.1:1\"\nstorage = \"x\"\n").unwrap();
    let output = check();
    assert_eq!(exit_code(&output), 2);
    assert!(stderr(&output).contains("storage"), "{}", stderr(&output));

    let config = site.path("switch.toml");
    std::fs::write(&config, "name = \"s1\"\ncontroller = \"http://127.0.0.1:1\"\nstate_dir = \"/tmp\"\nworkers = 0\n")
        .unwrap();
    let output = site.fibula(&["switch", "--check", "--config", config.to_str().unwrap()]);
    assert_eq!(exit_code(&output), 2);
    assert!(stderr(&output).contains("workers"), "{}", stderr(&output));
}

/// The link between two switches of the mesh: state bits, and how much longer it counts.
async fn link_of(client: &Client, a: &str, b: &str) -> (bool, u32, u32) {
    let links = client.clone().list_links(v1::ListLinksRequest {}).await.unwrap().into_inner().links;
    let is_it = |link: &&v1::Link| {
        let mut ends = [&link.a, &link.b].map(|end| end.as_ref().unwrap().switch.as_str());
        ends.sort_unstable();
        ends == [a, b]
    };
    let link = links.iter().find(is_it).unwrap();
    (link.up, link.cost, link.raised)
}

#[tokio::test(flavor = "multi_thread")]
async fn links_and_switches_are_drained_step_by_step_and_come_back() {
    let site = Site::new("value_mode = \"egress\"");
    let controller = site.start();
    let mut client = site.client().await;
    add_full_mesh(&mut client, 3).await;
    let end = |switch: &str, port| Some(v1::LinkEnd { switch: switch.to_owned(), port });
    let drain_link = |undo| v1::DrainLinkRequest { end: end("s1", 2), undo };
    // A switch that does not confirm anything could use the old tables for ever.
    let refused = client.drain_link(drain_link(false)).await.unwrap_err();
    assert_eq!(refused.code(), tonic::Code::FailedPrecondition);
    assert!(refused.message().contains("`s1` and 2 others may still send frames"), "{}", refused.message());
    let switches: Vec<_> = (1..=3).map(|i| site.switch(&format!("s{i}"))).collect();
    eventually("all switches are in step", async || in_step(&client).await == 3).await;

    let drained = client.drain_link(drain_link(false)).await.unwrap().into_inner();
    assert!((1..=2).contains(&drained.steps), "a detour is one longer, and the tie may fall either way: {drained:?}");
    assert_eq!(link_of(&client, "s1", "s2").await, (false, 1, 0));
    assert_eq!(client.drain_link(drain_link(false)).await.unwrap().into_inner().steps, 0, "it is drained");
    let row = |ends: &str| {
        let lines = stdout(&site.fibula(&["-j", "link", "list"]));
        lines.lines().find(|line| line.contains(ends)).unwrap_or_default().to_owned()
    };
    assert!(row("\"s1:2\"").contains("\"up\":false,\"state\":\"drained\",\"drained\":true"));
    // Who puts it into use has it used; one that is taken out otherwise is not drained.
    let set_up = async |client: &Client, up| {
        let set = v1::SetLinkRequest { end: end("s1", 2), up: Some(up), ..v1::SetLinkRequest::default() };
        client.clone().set_link(set).await.unwrap();
    };
    set_up(&client, true).await;
    assert_eq!(link_of(&client, "s1", "s2").await, (true, 1, 0));
    assert!(row("\"s1:2\"").contains("\"state\":\"up\",\"drained\":false"));
    set_up(&client, false).await;
    assert!(row("\"s1:2\"").contains("\"state\":\"down\",\"drained\":false"));
    assert_eq!(client.drain_link(drain_link(false)).await.unwrap().into_inner().steps, 0, "nothing leads over it");
    assert!(row("\"s1:2\"").contains("\"state\":\"drained\",\"drained\":true"));
    // s3 is the only way round now: neither it nor its links can be spared.
    let other = v1::DrainLinkRequest { end: end("s1", 3), undo: false };
    let needed = client.drain_link(other).await.unwrap_err();
    assert!(needed.message().contains("over that link alone, so it cannot be drained"), "{}", needed.message());
    let s3 = |undo| v1::DrainSwitchRequest { name: "s3".to_owned(), undo };
    let needed = client.drain_switch(s3(false)).await.unwrap_err();
    assert_eq!(
        needed.message(),
        "`s1` reaches `s2` over that switch alone, so it cannot be drained: add another path first"
    );
    assert_eq!(client.drain_link(drain_link(true)).await.unwrap().into_inner().steps, drained.steps);
    assert_eq!(link_of(&client, "s1", "s2").await, (true, 1, 0));

    // With a long way between s1 and s2, others go through s3 until that is drained. The answer of the command is for people.
    let set = v1::SetLinkRequest { end: end("s1", 2), cost: Some(100), ..v1::SetLinkRequest::default() };
    client.set_link(set).await.unwrap();
    let said = site.fibula(&["switch", "drain", "s3"]);
    let text = String::from_utf8(said.stdout).unwrap();
    assert!(
        text.starts_with("switch s3: no path of other switches leads through it; hosts at its own 1 host port stay"),
        "{text}"
    );
    let (up, cost, raised) = link_of(&client, "s1", "s3").await;
    assert!(up && cost == 1 && raised > 0);
    let listed = String::from_utf8(site.fibula(&["link", "list"]).stdout).unwrap();
    assert!(listed.lines().skip(1).any(|line| line.contains("drained")), "{listed}");
    let are_drained = async |client: &Client| {
        let list = client.clone().list_switches(v1::ListSwitchesRequest {}).await.unwrap().into_inner();
        list.switches.into_iter().filter(|switch| switch.drained).map(|switch| switch.name).collect::<Vec<_>>()
    };
    assert_eq!(are_drained(&client).await, ["s3"]);
    // It is in the store how long it counts.
    drop(controller);
    let _controller = site.start();
    let mut client = site.client().await;
    assert_eq!(link_of(&client, "s1", "s3").await, (up, cost, raised));
    assert_eq!(are_drained(&client).await, ["s3"], "after a restart");
    eventually("all switches are in step again", async || in_step(&client).await == 3).await;
    assert_eq!(client.drain_switch(s3(false)).await.unwrap().into_inner().steps, 0, "it is drained");
    client.drain_switch(s3(true)).await.unwrap();
    assert!(are_drained(&client).await.is_empty());
    for (a, b) in [("s1", "s3"), ("s2", "s3")] {
        assert_eq!(link_of(&client, a, b).await, (true, 1, 0));
    }
    let unknown = client.drain_switch(v1::DrainSwitchRequest { name: "s9".to_owned(), undo: false }).await.unwrap_err();
    assert_eq!(unknown.code(), tonic::Code::NotFound);
    let none = client.drain_link(v1::DrainLinkRequest { end: end("s1", 77), undo: false }).await.unwrap_err();
    assert_eq!(none.code(), tonic::Code::NotFound);
    drop(switches);
}

#[tokio::test(flavor = "multi_thread")]
async fn hosts_are_renamed_and_one_that_nobody_declared_gets_the_name_that_is_added() {
    let (site, _controller) = site_with_hosts().await;
    let done = |arguments: &[&str]| {
        let output = site.fibula(arguments);
        assert_eq!(exit_code(&output), 0, "{arguments:?}: {}", stderr(&output));
        stdout(&output)
    };
    let port = format!("s1:{}", support::HOST_PORT);
    done(&["name", "add", &mac(1), "h1"]);
    assert_eq!(done(&["host", "rename", "h1", "web"]), "1 host renamed\n");
    assert_eq!(done(&["host", "rename", "web", "web"]), "0 hosts renamed, 1 unchanged\n");
    assert!(done(&["-j", "name", "show", &mac(1)]).contains("\"host\":\"web\""), "its names stay at it");
    // As switches find them: named after the port.
    done(&["host", "add", "s1.7", "s1:7"]);
    done(&["name", "add", &mac(2), "s1.7"]);
    assert_eq!(done(&["host", "add", "printer", "s1:7"]), "1 host added\n");
    assert!(done(&["-j", "name", "show", &mac(2)]).contains("\"host\":\"printer\""));
    let listed = done(&["-j", "host", "list"]);
    assert!(
        !listed.contains("s1.7") && listed.contains("\"host\":\"printer\",\"switch\":\"s1\",\"port\":7"),
        "{listed}"
    );
    for (arguments, code, reason) in [
        (["host", "rename", "h1", "x"], 4, "no host `h1`"),
        (["host", "rename", "web", "h2"], 5, "a host `h2` exists already"),
        (["host", "rename", "web", "h 2"], 3, "not a name for a switch or host"),
        (["host", "add", "mail", &port], 5, "`fibula host rename`"),
    ] {
        let output = site.fibula(&arguments);
        assert_eq!(exit_code(&output), code, "{arguments:?}: {}", stderr(&output));
        assert!(stderr(&output).contains(reason), "{arguments:?}: {}", stderr(&output));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn hosts_keep_their_new_names_over_a_restart() {
    let (site, controller) = site_with_hosts().await;
    assert_eq!(exit_code(&site.fibula(&["host", "rename", "h1", "web"])), 0);
    controller.kill();
    let _controller = site.start();
    let listed = stdout(&site.fibula(&["-j", "host", "list"]));
    assert!(listed.contains("\"host\":\"web\"") && !listed.contains("\"h1\""), "{listed}");
}

#[tokio::test(flavor = "multi_thread")]
async fn names_are_found_by_their_addresses() {
    let (site, _controller) = site_with_hosts().await;
    let ask = |arguments: &[&str]| {
        let output = site.fibula(arguments);
        (exit_code(&output), stdout(&output), stderr(&output))
    };
    for (i, ip) in [(1, "10.1.0.7"), (2, "10.1.9.9"), (3, "10.2.0.1"), (4, "fd00::7")] {
        assert_eq!(ask(&["name", "add", &mac(i), "h1", "--ip", ip]).0, 0);
    }
    assert_eq!(ask(&["name", "add", &mac(5), "h2"]).0, 0);
    let name = |text: String| text.lines().filter(|line| line.contains("02:00:")).count();
    assert!(
        ask(&["name", "show", "10.1.0.7"]).1.contains(&mac(1)) && ask(&["name", "show", "FD00::7"]).1.contains(&mac(4))
    );
    assert_eq!(name(ask(&["name", "list", "--ip", "10.1.0.0/16"]).1), 2);
    assert_eq!(name(ask(&["name", "list", "--ip", "10.1.9.9"]).1), 1);
    assert_eq!(name(ask(&["name", "list", "--ip", "10.0.0.0/8", "--limit", "1"]).1), 1);
    assert_eq!(name(ask(&["name", "list", "--ip", "10.0.0.0/8", "--after", &mac(1), "--host", "h1"]).1), 2);
    let (code, way, _) = ask(&["trace", "10.1.0.7", "--from", "s2"]);
    assert!(way.starts_with(&format!("{} is at host h1", mac(1))), "{way}");
    // No switch is connected, but the tables say where it ends.
    assert_eq!(code, 0, "{way}");
    for (arguments, code, reason) in [
        (&["name", "show", "10.9.9.9"][..], 4, "no name has the address 10.9.9.9"),
        (&["trace", "10.9.9.9"], 4, "no name has the address 10.9.9.9"),
        (
            &["name", "list", "--prefix", "10.9"],
            0,
            "no name begins with `10.9`; --ip finds names by their IP addresses",
        ),
        (
            &["name", "list", "--prefix", "10.1.0.0/16"],
            3,
            "no name of the kind `mac` begins with `10.1.0.0/16`; `--ip ADDRESS`",
        ),
        (&["name", "list", "--prefix", "xyz"], 3, "no name of the kind `mac` begins with `xyz`"),
        (&["name", "list", "--prefix", "02:77"], 0, "no name begins with `02:77`"),
        (&["name", "list", "--ip", "10.3.0.0/16"], 0, "no name has an address of `10.3.0.0/16`"),
        (&["name", "list", "--ip", "10.3"], 3, "neither an IP address nor a prefix"),
    ] {
        let (exit, _, said) = ask(arguments);
        assert_eq!(exit, code, "{arguments:?}: {said}");
        assert!(said.contains(reason), "{arguments:?}: {said}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn names_of_a_file_are_removed() {
    let (site, _controller) = site_with_hosts().await;
    let file = site.path("names.csv");
    let text =
        |names: &[u32]| format!("name,host\n{}", names.iter().map(|i| format!("{},h1\n", mac(*i))).collect::<String>());
    std::fs::write(&file, text(&[1, 2, 3, 4])).unwrap();
    let file = file.to_str().unwrap();
    assert_eq!(exit_code(&site.fibula(&["name", "import", file])), 0);
    std::fs::write(file, text(&[2, 9, 3])).unwrap();
    let refused = site.fibula(&["name", "del", "--file", file]);
    assert_eq!(exit_code(&refused), 4);
    assert!(
        stderr(&refused).contains(&format!("line 3; nothing was removed: there is no name `{}`", mac(9))),
        "{}",
        stderr(&refused)
    );
    let removed = site.fibula(&["name", "del", "--ignore-missing", "--file", file]);
    assert_eq!(stdout(&removed), "2 names removed, 1 unchanged\n");
    assert!(stdout(&site.fibula(&["-j", "name", "count"])).contains("\"names\":2"));
    assert_eq!(exit_code(&site.fibula(&["name", "del", "--file", file, &mac(1)])), 2);
    std::fs::write(file, "# nothing\n").unwrap();
    assert_eq!(exit_code(&site.fibula(&["name", "del", "--file", file])), 3);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_import_tells_every_wrong_line_and_which_one_the_controller_refuses() {
    let (site, _controller) = site_with_hosts().await;
    let import = |noun: &str, text: &str| {
        let file = site.path("list.csv");
        std::fs::write(&file, text).unwrap();
        let output = site.fibula(&[noun, "import", file.to_str().unwrap()]);
        assert_ne!(exit_code(&output), 0);
        stderr(&output)
    };
    let said = import("host", "name,port\na,s1:x\nb,s1:3\nc\nd,s9\n");
    for (line, reason) in
        [(2, "`s1:x` is not a port"), (4, "1 fields in `c`: write name,switch:port"), (5, "`s9` is not a port")]
    {
        assert!(said.contains(&format!("line {line}: {reason}")), "{said}");
    }
    let said = import("link", &"s1:1\n".repeat(50));
    assert_eq!((said.matches("line ").count(), said.contains("were not checked")), (10, true), "{said}");
    let said = import("host", "a,s1:3\nb,s9:3\n");
    assert!(said.contains("line 2; nothing imported: there is no switch `s9`"), "{said}");
    let said = import("link", "# far\ns1:7,s2:7\ns1:8,s9:8\n");
    assert!(said.contains("line 3; nothing imported: there is no switch `s9`"), "{said}");
    let said = import("switch", "t1\nt 2\n");
    assert!(said.contains("line 2; nothing imported"), "{said}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_switch_that_waits_to_be_accepted_is_called_so_and_logged_once() {
    let site = Site::new("");
    let (log, config) = (site.path("log"), site.path("controller.toml"));
    let controller = Process::logging(&["controller", "--config", config.to_str().unwrap()], &log);
    let switch = site.switch("s8");
    let client = site.client().await;
    eventually("it waits", async || {
        let list = client.clone().list_switches(v1::ListSwitchesRequest {}).await.unwrap().into_inner();
        list.pending.iter().any(|switch| switch.name == "s8")
    })
    .await;
    for arguments in [
        &["host", "add", "h8", "s8:1"][..],
        &["switch", "show", "s8"],
        &["switch", "verify", "s8"],
        &["switch", "del", "s8"],
        &["link", "add", "s8:1", "s8:2"],
    ] {
        let output = site.fibula(arguments);
        assert_eq!(exit_code(&output), 4, "{arguments:?}");
        let said = stderr(&output);
        assert!(
            said.contains("switch `s8` is waiting to be accepted; run `fibula switch accept s8`"),
            "{arguments:?}: {said}"
        );
    }
    let attempts = async || {
        let list = client.clone().list_switches(v1::ListSwitchesRequest {}).await.unwrap().into_inner();
        list.pending[0].last_ms - list.pending[0].first_ms
    };
    eventually("it has tried again and again", async || attempts().await > 1000).await;
    assert!(!switch.status().connected);
    drop(controller);
    let log = std::fs::read_to_string(log).unwrap();
    let refused: Vec<&str> = log.lines().filter(|line| line.contains("s8")).collect();
    assert_eq!(refused.len(), 1, "{log}");
    assert!(refused[0].contains("is waiting to be accepted") && !refused[0].contains("there is no switch"), "{log}");
}
