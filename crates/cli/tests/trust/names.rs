//! Names as long as names may be, and texts that would harm a terminal: what decides takes the whole text, and what is shown is safe.

use crate::support::{exit_code, stderr, stdout};
use crate::{Trust, attach};
use api::identity::Kind;
use api::v1::{self, from_switch::Body};
use tonic::Code;

#[tokio::test(flavor = "multi_thread")]
async fn switches_with_names_of_every_length_attach_and_nobody_attaches_as_one_whose_name_begins_alike() {
    let trust = Trust::new();
    let _controller = trust.site.start();
    let mut admin = trust.admin().await;
    for len in [1, 2, 31, 32, 33, 58, 59, 60, 61, 62, 63] {
        // Alike in all but the last character.
        let [name, other] = ["a", "b"].map(|last| "n".repeat(len - 1) + last);
        for name in [&name, &other] {
            trust.issue(Kind::Switch, name);
            admin.add_switch(v1::AddSwitchRequest { name: name.clone(), tenants: Vec::new() }).await.unwrap();
        }
        let host = v1::Host { name: name.clone(), switch: name.clone(), port: 1, ..v1::Host::default() };
        admin.add_host(host).await.unwrap();
        let holder = format!("switch/{name}");
        let (mut stream, open) = attach(trust.channel(&holder).await, &name).await.unwrap();
        assert!(stream.message().await.unwrap().is_some(), "{len}");
        let refused = attach(trust.channel(&holder).await, &other).await.unwrap_err();
        assert_eq!(refused.code(), Code::PermissionDenied, "{len}: {}", refused.message());
        assert!(refused.message().contains(&format!("`{other}`")), "{len}: {}", refused.message());
        // Whatever else a switch says of itself.
        let mut south = api::client::southbound(open.1.clone());
        let (switch, report) = (name.clone(), Some(v1::TrunkReport::default()));
        south.see_trunks(v1::SeeTrunksRequest { switch, report, ..Default::default() }).await.unwrap();
        south.see_hosts(v1::SeeHostsRequest { switch: name.clone(), ..Default::default() }).await.unwrap();
        let ask = v1::SeeSubscriptionsRequest { switch: name.clone(), ..Default::default() };
        south.see_subscriptions(ask).await.unwrap();

        // Operators see the whole name, and can use what they see.
        let shown = admin.get_switch(v1::GetSwitchRequest { name: name.clone() }).await.unwrap().into_inner();
        assert!(shown.switch.unwrap().connected, "{len}");
        assert_eq!(shown.hosts[0].name, name);
        for arguments in [&["switch", "list"][..], &["host", "list"], &["switch", "show", &name]] {
            let output = trust.fibula("operator/admin", arguments);
            assert!(stdout(&output).contains(&name), "{len}: {arguments:?}: {}", stdout(&output));
        }
        let missing = trust.fibula("operator/admin", &["switch", "show", &"x".repeat(len)]);
        assert!(stderr(&missing).contains(&format!("`{}`", "x".repeat(len))), "{}", stderr(&missing));
    }
    let too_long = v1::AddSwitchRequest { name: "n".repeat(64), tenants: Vec::new() };
    assert_eq!(admin.add_switch(too_long).await.unwrap_err().code(), Code::InvalidArgument);
}

/// Peers wait while no server answers, and only as long as that.
#[tokio::test(flavor = "multi_thread")]
async fn a_verification_ends_when_the_stream_of_the_switch_does() {
    let trust = Trust::new();
    let _controller = trust.site.start();
    let mut admin = trust.admin().await;
    crate::support::add_full_mesh(&mut admin, 1).await;
    let (mut stream, open) = attach(trust.channel("switch/s1").await, "s1").await.unwrap();
    // Acknowledged up to where it is asked, so that it counts as one that has everything.
    let mut asking = None;
    loop {
        let message = stream.message().await.unwrap().unwrap();
        if message.verify != 0 {
            break;
        }
        if message.sequence == 0 {
            continue;
        }
        let ack = v1::Ack { sequence: message.sequence };
        open.0.send(v1::FromSwitch { body: Some(Body::Ack(ack)) }).await.unwrap();
        asking.get_or_insert_with(|| {
            let mut admin = admin.clone();
            tokio::spawn(async move { admin.verify_switch(v1::VerifySwitchRequest { name: "s1".to_owned() }).await })
        });
    }
    drop((stream, open));
    let refused = asking.unwrap().await.unwrap().unwrap_err();
    assert_eq!(refused.code(), Code::Unavailable, "not when its patience is over: {refused}");
    assert!(refused.message().contains("ended before it answered"), "{refused}");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_switches_and_hosts_call_themselves_reaches_no_terminal_as_it_is() {
    const HOSTILE: &str = "s1\u{202e}\u{200b}\u{2066}\u{1b}[2J`x`";
    let trust = Trust::new();
    let _controller = trust.site.start();
    let mut admin = trust.admin().await;
    crate::support::add_full_mesh(&mut admin, 2).await;
    let (mut stream, open) = attach(trust.channel("switch/s1").await, "s1").await.unwrap();
    assert!(stream.message().await.unwrap().is_some());
    let neighbour = v1::LinkEnd { switch: HOSTILE.to_owned(), port: 7 };
    let trunk = v1::SeenTrunk {
        port: 99,
        state: "up".to_owned(),
        neighbour: Some(neighbour),
        device_there: HOSTILE.to_owned(),
        ..v1::SeenTrunk::default()
    };
    let silent = v1::SeenTrunk { port: 98, state: "silent".to_owned(), neighbour: None, ..trunk.clone() };
    let report = Some(v1::TrunkReport { trunks: vec![trunk, silent] });
    let mut south = api::client::southbound(open.1.clone());
    let ask = v1::SeeTrunksRequest { switch: "s1".to_owned(), report, ..Default::default() };
    south.see_trunks(ask).await.unwrap();

    let is_seen = |c: char| c == '\n' || !lookup::base::visible::is_unseen(c);
    let name_of_another = format!("{HOSTILE}{}", "y".repeat(100));
    for json in [&[][..], &["--json"]] {
        for arguments in [
            &["link", "list"][..],
            &["switch", "show", "s1"],
            &["switch", "show", &name_of_another],
            &["switch", "verify", &name_of_another],
            &["trace", &name_of_another, "--from", &name_of_another],
            &["monitor", "--once"],
            &["host", "add", &name_of_another, "--at", "s1:3"],
            &["name", "list", "--host", &name_of_another],
        ] {
            let output = trust.fibula("operator/admin", &[arguments, json].concat());
            let said = stdout(&output) + &stderr(&output);
            assert!(said.chars().all(is_seen), "{arguments:?} {json:?}: {said:?}");
        }
    }
    let listed = trust.fibula("operator/admin", &["link", "list"]);
    assert_eq!(exit_code(&listed), 0, "{}", stderr(&listed));
    let said = stderr(&listed);
    assert!(said.contains("s1\\u202e\\u200b\\u2066\\u001b[2J`x`:7"), "{said}");
    assert!(said.contains("an invalid name"), "no command for such a name: {said}");
    // The log of the controller goes to a terminal, too.
    let refused = attach(trust.channel("switch/s1").await, HOSTILE).await.unwrap_err();
    assert!(refused.message().chars().all(is_seen), "{:?}", refused.message());
}
