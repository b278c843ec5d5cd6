//! Designs in a running network: a controller as a process, switches that follow it, names that come, move and go, and a
//! restart.

use crate::support::{Client, HOST_PORT, Site, add_full_mesh, eventually, in_step, mac, record};
use api::v1;
use fib::action::{Action, PortId};
use fib::designs::Design;
use fib::name::{Name, NameKind};
use fib::replica::MemoryTables;
use std::sync::Arc;
use switch::daemon::agent::Shared;

type Switch = Arc<Shared<MemoryTables>>;

/// Names at h1, at h2, and nowhere any more.
const HERE: u32 = 40;
const THERE: u32 = 60;
const GONE: u32 = 70;

fn name(index: u32) -> Name {
    Name::parse(NameKind::Mac, &mac(index)).unwrap()
}

/// What both switches do with the names of a host at `s{at}`.
fn answer_rightly(switches: &[Switch; 2], names: impl Iterator<Item = Name> + Clone, at: usize) {
    for (i, switch) in (1..).zip(switches) {
        // Port `j` leads to switch `j`.
        let port = PortId(if i == at { HOST_PORT as u16 } else { at as u16 });
        for name in names.clone() {
            assert_eq!(switch.replica().action(&name).port(), Some(port), "{name} at s{i}");
        }
    }
}

async fn put(client: &mut Client, indices: std::ops::Range<u32>, host: &str) {
    let names = indices.map(|index| record(index, host)).collect();
    client.put_names(v1::PutNamesRequest { names, only_new: false }).await.unwrap();
}

async fn both_in_step(client: &Client, what: &str) {
    eventually(what, async || in_step(client).await == 2).await;
}

/// A controller serves each of these designs before and after a restart.
pub(crate) async fn are_served_before_and_after_a_restart(designs: &[&'static Design]) {
    for design in designs {
        let site = Site::new(&format!("gateway_design = \"{design}\"\ncore_design = \"{design}\"\n"));
        let controller = site.start();
        let mut client = site.client().await;
        add_full_mesh(&mut client, 2).await;
        let switches = [site.switch("s1"), site.switch("s2")];
        put(&mut client, 0..HERE, "h1").await;
        both_in_step(&client, &format!("{design}: switches in step")).await;
        // Some come, some move, some go.
        put(&mut client, HERE - 10..GONE, "h2").await;
        let names = (THERE..GONE).map(mac).collect();
        client.remove_names(v1::RemoveNamesRequest { names, ignore_missing: false }).await.unwrap();
        both_in_step(&client, &format!("{design}: in step with changes")).await;
        answer_rightly(&switches, (0..HERE - 10).map(name), 1);
        answer_rightly(&switches, (HERE - 10..THERE).map(name), 2);
        assert_eq!(controller.terminate(), Some(0), "{design}");
        let _controller = site.start();
        let mut client = site.client().await;
        put(&mut client, 0..5, "h2").await;
        both_in_step(&client, &format!("{design}: in step after a restart")).await;
        answer_rightly(&switches, (0..5).chain(HERE - 10..THERE).map(name), 2);
        answer_rightly(&switches, (5..HERE - 10).map(name), 1);
        assert!((0..THERE).all(|index| switches.iter().all(|s| s.replica().tables().valid.contains_key(&name(index)))));
    }
}

/// A text of `len` bytes.
fn text(len: usize, index: u32) -> String {
    let stem = format!("/a/{index}/");
    stem.chars().chain(std::iter::repeat('x')).take(len).collect()
}

/// Each of these exact designs serves texts of any length.
pub(crate) async fn serve_texts_of_any_length(designs: &[&str]) {
    for design in designs {
        let site = Site::of_kind("text", &format!("gateway_design = \"{design}\"\n"));
        let _controller = site.start();
        let mut client = site.client().await;
        add_full_mesh(&mut client, 2).await;
        let switches = [site.switch("s1"), site.switch("s2")];
        let lengths = [8, 62, 63, 64, 104, 1000, 4096];
        let texts: Vec<String> = (0..).zip(lengths).map(|(index, len)| text(len, index)).collect();
        let names = |host: &str| v1::PutNamesRequest {
            names: texts
                .iter()
                .map(|text| v1::NameRecord { name: text.clone(), host: host.to_owned(), ..Default::default() })
                .collect(),
            only_new: false,
        };
        client.put_names(names("h1")).await.unwrap();
        client.put_names(names("h2")).await.unwrap();
        let removed = v1::RemoveNamesRequest { names: texts[4..].to_vec(), ignore_missing: false };
        client.remove_names(removed).await.unwrap();
        both_in_step(&client, design).await;
        let of_text = |text: &String| Name::from_bytes(NameKind::Text, text.as_bytes()).unwrap();
        answer_rightly(&switches, texts[..4].iter().map(of_text), 2);
        // What is gone, and what is one byte longer than a name that is there, is an alien, which these recognise.
        for alien in texts[4..].iter().cloned().chain(texts[..4].iter().map(|text| format!("{text}x"))) {
            let alien = of_text(&alien);
            assert!(switches.iter().all(|s| s.replica().action(&alien) == Action::Drop), "{design}: {alien}");
        }
    }
}
