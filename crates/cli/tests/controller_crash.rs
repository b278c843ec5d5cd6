//! kill -9 of the controller at random points: all acknowledged changes survive, and all switches agree.

mod support;

use api::v1;
use fib::action::{Action, PortId};
use fib::messages::ValueMode;
use fib::name::{Name, NameKind};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use support::{Client, HOST_PORT, PATIENCE, Site, add_full_mesh, eventually, in_step, mac, record};
use tokio::sync::Notify;

const N_KILLS: usize = 50;
const N_KILLS_EGRESS: usize = 10;
const N_SWITCHES: u32 = 3;
const N_WRITERS: u32 = 4;
const NAMES_A_WRITER: u32 = 100;

/// A name's host; `None`: the name does not exist.
type State = BTreeMap<u32, Option<u32>>;

/// The names of one writer: the acknowledged state, and the one change in flight when the controller died.
#[derive(Default)]
struct Ledger {
    acknowledged: State,
    under_way: Option<Vec<(u32, Option<u32>)>>,
}

/// Makes random changes until the controller is killed.
async fn write_until_killed(
    mut client: Client,
    writer: u32,
    seed: u64,
    n_acked: &AtomicUsize,
    enough: (usize, &Notify),
) -> Ledger {
    let mut rng = StdRng::seed_from_u64(seed);
    let mut ledger = Ledger::default();
    loop {
        let n_names = if rng.random_bool(0.2) { rng.random_range(2..20) } else { 1 };
        let remove = rng.random_bool(0.3);
        let mut change = BTreeMap::new();
        for _ in 0..n_names {
            let name = writer * NAMES_A_WRITER + rng.random_range(0..NAMES_A_WRITER);
            change.insert(name, (!remove).then(|| rng.random_range(1..=N_SWITCHES)));
        }
        let change: Vec<_> = change.into_iter().collect();
        let answered = if remove {
            let names = change.iter().map(|(name, _)| mac(*name)).collect();
            client.remove_names(v1::RemoveNamesRequest { names, ignore_missing: true }).await
        } else {
            let host = |host: Option<u32>| format!("h{}", host.unwrap());
            let names = change.iter().map(|&(name, at)| record(name, &host(at))).collect();
            client.put_names(v1::PutNamesRequest { names, only_new: false }).await
        };
        if answered.is_err() {
            ledger.under_way = Some(change);
            return ledger;
        }
        ledger.acknowledged.extend(change);
        if n_acked.fetch_add(1, Relaxed) + 1 == enough.0 {
            enough.1.notify_one();
        }
    }
}

async fn state_of(client: &mut Client) -> State {
    let mut state = State::new();
    let mut batches = client.export_names(v1::ExportNamesRequest {}).await.unwrap().into_inner();
    let numbers: BTreeMap<String, u32> = (0..N_WRITERS * NAMES_A_WRITER).map(|i| (mac(i), i)).collect();
    while let Some(batch) = batches.message().await.unwrap() {
        for name in batch.names {
            state.insert(numbers[&name.name], Some(name.host[1..].parse().unwrap()));
        }
    }
    state
}

/// The state must be what was acknowledged; a change in flight is there completely or not at all.
fn check(expected: &mut State, found: &State, ledgers: Vec<Ledger>, round: usize) {
    for ledger in ledgers {
        expected.extend(ledger.acknowledged);
        let Some(change) = ledger.under_way else { continue };
        let matches = |at: &dyn Fn(u32, Option<u32>) -> Option<u32>| {
            change.iter().all(|&(name, new)| found.get(&name).copied().flatten() == at(name, new))
        };
        let done = matches(&|_, new| new);
        let not_done = matches(&|name, _| expected.get(&name).copied().flatten());
        assert!(done || not_done, "round {round}: a change is there in part: {change:?}");
        if done {
            expected.extend(change);
        }
    }
    for (name, at) in expected.iter() {
        assert_eq!(found.get(name).copied().flatten(), *at, "round {round}: name {name} was acknowledged otherwise");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn killed_controller_loses_nothing_acknowledged_and_switches_agree() {
    kill_again_and_again(ValueMode::Port, N_KILLS).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn killed_controller_loses_nothing_in_egress_mode_either() {
    kill_again_and_again(ValueMode::Egress, N_KILLS_EGRESS).await;
}

async fn kill_again_and_again(mode: ValueMode, n_kills: usize) {
    let seed: u64 = rand::random();
    println!("seed {seed}");
    let mut rng = StdRng::seed_from_u64(seed);
    let site = Site::new(&format!("phase_timeout_ms = 200\nvalue_mode = \"{mode}\"\n"));
    let mut controller = site.start();
    add_full_mesh(&mut site.client().await, N_SWITCHES).await;
    let switches: Vec<_> = (1..=N_SWITCHES).map(|i| site.switch(&format!("s{i}"))).collect();

    let mut expected = State::new();
    for round in 0..n_kills {
        let client = site.client().await;
        if round % 2 == 0 {
            eventually("all switches in step", async || in_step(&client).await == N_SWITCHES as usize).await;
        }
        let n_acked = Arc::new(AtomicUsize::new(0));
        let enough = Arc::new(Notify::new());
        let n_enough = rng.random_range(1..60);
        let writers: Vec<_> = (0..N_WRITERS)
            .map(|writer| {
                let (client, seed) = (client.clone(), rng.random());
                let (n_acked, enough) = (Arc::clone(&n_acked), Arc::clone(&enough));
                tokio::spawn(
                    async move { write_until_killed(client, writer, seed, &n_acked, (n_enough, &enough)).await },
                )
            })
            .collect();
        tokio::time::timeout(PATIENCE, enough.notified()).await.expect("the writers get their answers");
        controller.kill();
        let mut ledgers = Vec::new();
        for writer in writers {
            ledgers.push(writer.await.unwrap());
        }
        controller = site.start();
        check(&mut expected, &state_of(&mut site.client().await).await, ledgers, round);
    }

    let client = site.client().await;
    eventually("all switches in step", async || in_step(&client).await == N_SWITCHES as usize).await;
    check_switches(mode, &expected, &switches);

    // All switches are up to date: a restart, this time an orderly one, sends nothing.
    assert_eq!(controller.terminate(), Some(0));
    let _controller = site.start();
    let client = site.client().await;
    eventually("all switches in step", async || in_step(&client).await == N_SWITCHES as usize).await;
    let listed = client.clone().list_switches(v1::ListSwitchesRequest {}).await.unwrap().into_inner().switches;
    let sent: Vec<u64> = listed.iter().map(|s| s.sent_messages).collect();
    assert_eq!(sent, [0, 0, 0], "messages sent to switches that have everything");
}

type Switch = Arc<switch::daemon::agent::Shared<fib::replica::MemoryTables>>;

fn check_switches(mode: ValueMode, expected: &State, switches: &[Switch]) {
    let live: BTreeMap<Name, u32> = expected
        .iter()
        .filter_map(|(&name, &at)| Some((Name::parse(NameKind::Mac, &mac(name)).unwrap(), at?)))
        .collect();
    for (index, switch) in switches.iter().enumerate() {
        let replica = switch.replica();
        for (name, &at) in &live {
            let port = if at as usize == index + 1 { HOST_PORT } else { at };
            let is_local = at as usize == index + 1 && mode == ValueMode::Egress;
            let action = replica.action(name);
            let is_right = if is_local { action == Action::Local } else { action.port() == Some(PortId(port as u16)) };
            assert!(is_right, "s{}: {name}: {action}, not port {port}", index + 1);
        }
        let valid: Vec<&Name> = replica.tables().valid.keys().collect();
        assert_eq!(valid.len(), live.len(), "s{}: valid names", index + 1);
        assert!(valid.into_iter().all(|name| live.contains_key(name)));
    }
}
