//! Weights of links, at switches that know them and at one of an earlier version.

use super::*;

/// What a switch does with a name once this is so; it has some time to become so.
async fn does(shared: &agent::Shared<MemoryTables>, index: u32, action: &str) {
    let is_so = async || shared.replica().action(&name(index)).to_string() == action;
    eventually(&format!("the action {action}"), is_so).await;
}

impl Manual {
    /// Applies and acknowledges the next message, if one comes within a moment.
    async fn take(&mut self, replica: &mut Replica<MemoryTables>) {
        if let Ok(next) = tokio::time::timeout(A_MOMENT, self.incoming.message()).await {
            let ToSwitch { sequence, message, .. } = next.unwrap().unwrap();
            replica.receive(&message).unwrap();
            self.send(Body::Ack(Ack { sequence })).await;
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_weight_that_is_set_reaches_switches_and_those_that_know_none_go_on_without() {
    let site = Site::new("");
    let controller = site.start();
    let mut client = site.client().await;
    add_full_mesh(&mut client, 2).await;
    put(&client, 1, "h1").await;
    put(&client, 2, "h2").await;
    let first = site.switch("s1");
    let mut replica = replica();
    let Body::Hello(old) = hello("s2", report(&replica)) else { unreachable!() };
    let mut old = Manual::attach(&site, Body::Hello(Hello { weighs_ways: false, ..old })).await.unwrap();
    let fibula = |arguments: &[&str]| stdout(&site.fibula(arguments));
    // Beside the link from port 2 of s1 to port 1 of s2.
    assert_eq!(fibula(&["link", "add", "s1:20", "s2:20"]), "1 link added\n");
    does(&first, 2, "ports:2|20").await;
    assert!(
        fibula(&["trace", &mac(2), "--from", "s1"])
            .contains("by port 2 to s2 or by port 20 to s2, depending on its flow")
    );

    assert_eq!(fibula(&["link", "set", "s2:20", "--weight", "3"]), "1 link set\n");
    does(&first, 2, "ports:2*1|20*3").await;
    let list = fibula(&["link", "list"]);
    assert!(
        list.lines().any(|line| line.split_whitespace().eq(["s1:20", "s2:20", "1", "3", "yes", "up", "no", "no"])),
        "{list}"
    );
    let path = fibula(&["trace", &mac(2), "--from", "s1"]);
    assert!(path.contains("by port 2 to s2 (1 of 4) or by port 20 to s2 (3 of 4), depending on its flow"), "{path}");
    assert!(fibula(&["monitor", "--once"]).contains("s2:20 – s1:20: weight 3"));
    assert_eq!(fibula(&["link", "set", "s1:20", "--weight", "3"]), "0 links set, 1 unchanged\n");

    // The other switch takes what it is sent, is in step, and spreads evenly.
    put(&client, 3, "h2").await;
    // Not until it knows the new name: before, that is an alien, which may have any action.
    let began = Instant::now();
    while replica.action(&name(1)).to_string() != "ports:1|20" {
        assert!(began.elapsed() < PATIENCE, "it does not spread");
        old.take(&mut replica).await;
    }
    let path = fibula(&["trace", &mac(1), "--from", "s2"]);
    assert!(path.contains("by port 1 to s1 or by port 20 to s1, depending on its flow"), "{path}");
    let began = Instant::now();
    while in_step(&client).await < 2 {
        assert!(began.elapsed() < PATIENCE, "it is never in step");
        old.take(&mut replica).await;
    }
    // After an upgrade it has the same version of its table, and gets another one; a restart of the controller changes nothing.
    drop((old, controller));
    let _controller = site.start();
    let mut new = Manual::attach(&site, hello("s2", report(&replica))).await.unwrap();
    let is_weighed = |replica: &Replica<MemoryTables>| replica.action(&name(1)).to_string() == "ports:1*1|20*3";
    let began = Instant::now();
    while !is_weighed(&replica) {
        assert!(began.elapsed() < PATIENCE, "it is sent no weights");
        new.take(&mut replica).await;
    }
    does(&first, 2, "ports:2*1|20*3").await;
}
