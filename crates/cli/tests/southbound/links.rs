//! Links that are cut, whole and found as switches say.

use super::*;

/// What a switch sees at a trunk: port, state, whether that is down, and the neighbour.
type Seen<'a> = (u32, &'a str, bool, Option<(&'a str, u32)>);

fn trunks(seen: &[Seen<'_>]) -> Body {
    let trunk = |&(port, state, down, neighbour): &Seen<'_>| v1::SeenTrunk {
        port,
        state: state.to_owned(),
        down,
        neighbour: neighbour.map(|(switch, port)| v1::LinkEnd { switch: switch.to_owned(), port }),
        // Some device that is no switch.
        device_there: if state == "silent" && port == 3 { "patch-\u{7}9, port 3".to_owned() } else { String::new() },
        ..v1::SeenTrunk::default()
    };
    Body::Trunks(v1::TrunkReport { trunks: seen.iter().map(trunk).collect() })
}

fn ends(link: &v1::Link) -> String {
    let [a, b] = [&link.a, &link.b].map(|end| end.as_ref().unwrap());
    format!("{}:{} {}:{}", a.switch, a.port, b.switch, b.port)
}

/// Whether each link is cut, and what was found.
async fn links(client: &Client) -> (Vec<bool>, v1::LinkList) {
    let list = client.clone().list_links(v1::ListLinksRequest {}).await.unwrap().into_inner();
    (list.links.iter().map(|link| link.cut).collect(), list)
}

#[tokio::test(flavor = "multi_thread")]
async fn links_are_cut_and_whole_as_the_switches_say_and_stay_so_after_a_restart() {
    let site = Site::new("value_mode = \"egress\"");
    let controller = site.start();
    let mut client = site.client().await;
    // s1-s2, s1-s3, s2-s3: port j of switch i leads to switch j.
    add_full_mesh(&mut client, 3).await;
    put(&client, 2, "h2").await;
    let mut replica = replica();
    let mut one = Manual::attach(&site, hello("s1", report(&replica))).await.unwrap();
    let two = Manual::attach(&site, hello("s2", report(&self::replica()))).await.unwrap();
    one.apply_until(&mut replica, &name(2), PortId(2)).await;
    assert_eq!(replica.action(&name(2)).to_string(), "port:2 (or 3)", "the alternate is over s3");

    // Nothing is known of a trunk where nobody says hello.
    one.send(trunks(&[(2, "silent", false, None), (3, "silent", false, None)])).await;
    two.send(trunks(&[(1, "up", false, Some(("s1", 2)))])).await;
    put(&client, 3, "h2").await;
    let there = "s1:3 hears no switch, but a device that calls itself patch-\\u00079, port 3 is there: a cable leads elsewhere, or hellos are off";
    eventually("what they say is heard", async || links(&client).await.1.troubles == [there]).await;
    assert_eq!(links(&client).await.0, [false; 3]);
    // One end says that it is down; the other end still thinks that it is up.
    one.send(trunks(&[(2, "no_carrier", true, None), (3, "up", false, Some(("s3", 1)))])).await;
    one.apply_until(&mut replica, &name(2), PortId(3)).await;
    assert_eq!(links(&client).await.0, [true, false, false]);
    let whole = trunks(&[(2, "up", false, Some(("s2", 1))), (3, "up", false, Some(("s3", 1)))]);
    // After a restart nobody has said anything yet.
    drop(controller);
    let _controller = site.start();
    let client = site.client().await;
    assert_eq!(links(&client).await.0, [true, false, false]);
    let mut one = Manual::attach(&site, hello("s1", report(&replica))).await.unwrap();
    // Not proven by a trunk that has not come up.
    one.send(trunks(&[(2, "silent", false, None)])).await;
    put(&client, 4, "h2").await;
    assert_eq!(links(&client).await.0, [true, false, false]);
    one.send(whole).await;
    one.apply_until(&mut replica, &name(2), PortId(2)).await;
    assert_eq!(links(&client).await.0, [false; 3]);

    // A cable in the wrong port: no frames of that link come out at its other end.
    one.send(trunks(&[(2, "up", false, Some(("s3", 7)))])).await;
    one.apply_until(&mut replica, &name(2), PortId(3)).await;
    let (cut, list) = links(&client).await;
    assert_eq!(cut, [true, false, false]);
    let trouble =
        "s1:2 is joined to s3:7, and was declared to lead to s2:1: the cable or the link is in the wrong place";
    assert_eq!(list.troubles, [trouble]);
    one.send(trunks(&[(2, "several", true, Some(("s9", 1))), (8, "foreign", true, Some(("x", 1)))])).await;
    eventually("both troubles are told", async || links(&client).await.1.troubles.len() == 2).await;

    // Trunks that lead to host ports, as hellos there say; hosts may have made them up.
    let at_hosts = [(4, "host_port", false, Some(("s3", 6))), (5, "host_port", false, Some(("x\u{7}", 1)))];
    one.send(trunks(&at_hosts)).await;
    eventually("they are told", async || {
        links(&client).await.1.troubles.len() == 2 && links(&client).await.1.troubles[0].contains("host port")
    })
    .await;
    let (cut, list) = links(&client).await;
    let known =
        "s3:6, a trunk, leads to host port s1:4: make s1:4 a trunk in its switch.toml, or plug the cable elsewhere";
    let unknown = "host port s1:5 hears a trunk of a switch that calls itself x\\u0007:1, which was not added";
    assert_eq!((cut[0], list.found, list.troubles), (true, vec![], vec![known.to_owned(), unknown.to_owned()]));
    one.send(trunks(&[])).await;
    eventually("they are told no more", async || links(&client).await.1.troubles.is_empty()).await;

    // A link that carries one way only, declared when its switch has said so before: it is no way for a moment.
    one.send(trunks(&[(2, "up", false, Some(("s2", 1))), (9, "one_way", true, Some(("s3", 9)))])).await;
    let trouble = "s1:9 hears s3:9, which does not hear it: one direction fails";
    eventually("the trouble is told", async || links(&client).await.1.troubles == [trouble]).await;
    let end = |switch: &str, port| Some(v1::LinkEnd { switch: switch.to_owned(), port });
    let link = v1::Link { a: end("s3", 9), b: end("s1", 9), cost: 1, up: true, ..v1::Link::default() };
    client.clone().add_link(link).await.unwrap();
    // In the order of their ends: it is before s2-s3.
    assert_eq!(links(&client).await.0, [false, false, true, false]);
}

#[tokio::test(flavor = "multi_thread")]
async fn cables_that_nobody_declared_are_found_and_become_links_when_accepted_or_at_once() {
    for auto in ["off", "confirm", "on"] {
        let site = Site::new(&format!("auto_links = \"{auto}\""));
        let _controller = site.start();
        let mut client = site.client().await;
        add_full_mesh(&mut client, 2).await;
        client.add_switch(v1::AddSwitchRequest { name: "s3".to_owned(), tenants: vec![] }).await.unwrap();
        let attach = async |name| Manual::attach(&site, hello(name, report(&replica()))).await.unwrap();
        let (one, three) = (attach("s1").await, attach("s3").await);
        // Ports 5 and 6 of s1; h1 is at a port of its own, and port 9 leads to nobody that says so.
        let host_port = HOST_PORT;
        one.send(trunks(&[
            (5, "up", false, Some(("s3", 1))),
            (6, "one_way", true, Some(("s3", 2))),
            // One whose neighbour has just started.
            (7, "one_way", false, Some(("s3", 4))),
            (host_port, "up", false, Some(("s3", 3))),
            (9, "up", false, Some(("nobody", 1))),
        ]))
        .await;
        three
            .send(trunks(&[
                (1, "up", false, Some(("s1", 5))),
                (2, "up", false, Some(("s1", 6))),
                (3, "up", false, Some(("s1", host_port))),
            ]))
            .await;
        match auto {
            "off" => {
                put(&client, 1, "h1").await;
                // One direction fails; a host is where a cable is; nobody has added a switch.
                eventually("both have reported", async || links(&client).await.1.troubles.len() == 3).await;
                assert!(links(&client).await.1.found.is_empty());
                assert_eq!(
                    client
                        .accept_links(v1::AcceptLinksRequest { cost: 1, weight: None })
                        .await
                        .unwrap()
                        .into_inner()
                        .changed,
                    0
                );
            }
            "confirm" => {
                eventually("the cable is found", async || links(&client).await.1.found.len() == 1).await;
                assert_eq!(ends(&links(&client).await.1.found[0]), "s1:5 s3:1");
                let accepted = client
                    .accept_links(v1::AcceptLinksRequest { cost: 4, weight: Some(5) })
                    .await
                    .unwrap()
                    .into_inner();
                assert_eq!(accepted.changed, 1);
            }
            _ => {}
        }
        if auto != "off" {
            eventually("it is a link", async || links(&client).await.0.len() == 2).await;
            let list = links(&client).await.1;
            assert_eq!(
                (ends(&list.links[1]), list.links[1].cost, list.links[1].weight),
                if auto == "on" { ("s1:5 s3:1".to_owned(), 1, Some(1)) } else { ("s1:5 s3:1".to_owned(), 4, Some(5)) }
            );
            assert!(list.found.is_empty());
            assert_eq!(list.links.iter().map(|link| link.found).collect::<Vec<_>>(), [false, true]);
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cable_that_is_moved_is_a_link_where_it_is_now_unless_an_operator_declared_it() {
    // Each link with its ends, and what it is.
    let all = async |client: &Client| {
        let text = |link: &v1::Link| {
            let is = [(link.cut, " cut"), (link.found, " found")].map(|(is, what)| if is { what } else { "" });
            format!("{}{}", ends(link), is.concat())
        };
        links(client).await.1.links.iter().map(text).collect::<Vec<_>>()
    };
    for auto in ["confirm", "on"] {
        let site = Site::new(&format!("auto_links = \"{auto}\""));
        let controller = site.start();
        let mut client = site.client().await;
        add_full_mesh(&mut client, 3).await;
        let attach = async |name| Manual::attach(&site, hello(name, report(&replica()))).await.unwrap();
        let (one, two) = (attach("s1").await, attach("s2").await);
        one.send(trunks(&[(5, "up", false, Some(("s2", 5)))])).await;
        two.send(trunks(&[(5, "up", false, Some(("s1", 5)))])).await;
        let accept = async |client: &Client| {
            eventually("the cable is found", async || links(client).await.1.found.len() == 1).await;
            let all = v1::AcceptLinksRequest::default();
            assert_eq!(client.clone().accept_links(all).await.unwrap().into_inner().changed, 1);
        };
        if auto == "confirm" {
            accept(&client).await;
        }
        let first = ["s1:2 s2:1", "s1:3 s3:1", "s1:5 s2:5 found", "s2:3 s3:2"];
        eventually("it is a link that was found", async || all(&client).await == first).await;
        // A restart keeps that.
        drop((one, two, controller));
        let _controller = site.start();
        let client = site.client().await;
        assert_eq!(all(&client).await, first);

        // Its other end is at s3 now, and so is the cable of a link that was declared.
        let (one, two, three) = (attach("s1").await, attach("s2").await, attach("s3").await);
        one.send(trunks(&[(2, "up", false, Some(("s3", 6))), (5, "up", false, Some(("s3", 5)))])).await;
        two.send(trunks(&[(5, "no_carrier", true, None)])).await;
        let declared =
            "s1:2 is joined to s3:6, and was declared to lead to s2:1: the cable or the link is in the wrong place"
                .to_owned();
        eventually("one end is not enough", async || links(&client).await.1.troubles.len() == 2).await;
        let list = links(&client).await.1;
        assert_eq!((list.troubles.len(), list.found.len()), (2, 0), "{:?}", list.troubles);
        assert!(list.troubles[1].starts_with("s1:5 is joined to s3:5, and was found to lead to s2:5: "));
        assert_eq!(all(&client).await[2], "s1:5 s2:5 cut found");
        three.send(trunks(&[(5, "up", false, Some(("s1", 5))), (6, "up", false, Some(("s1", 2)))])).await;
        if auto == "confirm" {
            accept(&client).await;
        }
        let moved = ["s1:2 s2:1 cut", "s1:3 s3:1", "s1:5 s3:5 found", "s2:3 s3:2"];
        eventually("the link is where the cable is", async || all(&client).await == moved).await;
        let list = links(&client).await.1;
        assert_eq!((list.troubles, list.found.len()), (vec![declared], 0));
        let listed = stdout(&site.fibula(&["-j", "link", "list"]));
        assert!(listed.lines().any(|line| line.contains("\"s3:5\"") && line.ends_with("\"found\":true}")), "{listed}");

        // What an operator sets is his: it stays when its cable is moved again.
        assert_eq!(stdout(&site.fibula(&["link", "set", "s3:5", "--cost", "7"])), "1 link set\n");
        one.send(trunks(&[(5, "up", false, Some(("s2", 7)))])).await;
        two.send(trunks(&[(7, "up", false, Some(("s1", 5)))])).await;
        let moved =
            "s1:5 is joined to s2:7, and was declared to lead to s3:5: the cable or the link is in the wrong place";
        eventually("the link stays", async || links(&client).await.1.troubles == [moved]).await;
        put(&client, 1, "h1").await;
        assert_eq!(all(&client).await[2], "s1:5 s3:5 cut");
        assert!(links(&client).await.1.found.is_empty());
    }
}
