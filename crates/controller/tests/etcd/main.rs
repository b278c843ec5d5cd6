//! The store in etcd, over real members. Without etcd the tests are skipped.

mod faults;
mod member;

use fibula_controller::store::{
    Candidate, EtcdOptions, EtcdStore, Fault, Follower, NOTHING, RowChange, Store, StoreError,
};
use libtest_mimic::Arguments;
use member::Cluster;
use netio::testkit::{runs_here, trial};
use std::collections::BTreeMap;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

/// A lease of two seconds, and what etcd takes to find that it ran out.
const PATIENCE: Duration = Duration::from_secs(30);

fn candidate(address: &str, listens_at: &str) -> Candidate {
    let options = EtcdOptions { address: address.parse().unwrap(), tls: None };
    Candidate::new(&options, listens_at).unwrap()
}

fn open(address: &str) -> EtcdStore {
    candidate(address, "here:1").lead_within(PATIENCE).unwrap()
}

fn put(kind: u8, key: &[u8], value: &[u8]) -> RowChange {
    RowChange { kind, key: key.to_vec(), value: Some(value.to_vec()) }
}

fn delete(kind: u8, key: &[u8]) -> RowChange {
    RowChange { kind, key: key.to_vec(), value: None }
}

fn all(store: &EtcdStore) -> Vec<RowChange> {
    store.rows().collect::<Result<_, _>>().unwrap()
}

/// What a store must have.
#[derive(Clone, Default)]
struct Model(BTreeMap<(u8, Vec<u8>), Vec<u8>>);

impl Model {
    fn apply(&mut self, changes: &[RowChange]) {
        for RowChange { kind, key, value } in changes {
            match value {
                Some(value) => _ = self.0.insert((*kind, key.clone()), value.clone()),
                None => _ = self.0.remove(&(*kind, key.clone())),
            }
        }
    }

    fn rows(&self) -> Vec<RowChange> {
        self.0.iter().map(|((kind, key), value)| put(*kind, key, value)).collect()
    }
}

fn committed_rows_come_back_in_order_with_a_greater_term() {
    let cluster = Cluster::start(1, &[]);
    let address = cluster.address("a/b");
    let mut model = Model::default();
    let mut store = open(&address);
    let term = store.term();
    let many: Vec<RowChange> = (0..50_000_u32).map(|i| put((i % 3) as u8 + 1, &i.to_le_bytes(), &[7; 40])).collect();
    let groups = [
        vec![put(1, b"a", b"1"), put(255, b"\xff/\0", b""), put(1, b"", b"x"), put(1, b"a", b"2")],
        many,
        vec![delete(1, b""), delete(9, b"missing"), put(2, &1_u32.to_le_bytes(), b"new")],
        vec![],
    ];
    for group in &groups {
        store.commit(group).unwrap();
        model.apply(group);
    }
    // Another prefix that begins like ours is another store.
    let mut other = open(&cluster.address("a/bc"));
    other.commit(&[put(1, b"other", b"")]).unwrap();
    assert!(all(&store) == model.rows());
    store.close().unwrap();
    drop(store);

    let store = open(&address);
    assert!(store.term() > term);
    let rows = model.rows();
    assert!(all(&store) == rows);
    assert_eq!(store.sealed().unwrap().1.n_rows, rows.len() as u64);
    for at in [0, 1, 2047, 40_000, rows.len() - 1] {
        let after = store.rows_after(Some((rows[at].kind, &rows[at].key)), 3000).unwrap();
        assert!(after == rows[at + 1..(at + 3001).min(rows.len())], "after row {at}");
    }
    assert!(store.rows_after(None, 5).unwrap() == rows[..5]);
}

fn follower(address: &str) -> (tokio::runtime::Runtime, Arc<Follower>) {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let options = EtcdOptions { address: address.parse().unwrap(), tls: None };
    let follower = runtime.block_on(async { Follower::new(&options) }).unwrap();
    (runtime, Arc::new(follower))
}

fn whoever_follows_sees_the_rows_of_a_moment_and_every_commit_after_it() {
    let mut cluster = Cluster::start(3, &[]);
    let address = cluster.address("followed");
    let (runtime, follower) = follower(&address);
    let mut model = Model::default();
    let mut store = open(&address);
    let many: Vec<RowChange> = (0..5000_u32).map(|i| put(1, &i.to_be_bytes(), &[3; 40])).collect();
    for group in [&many[..], &[put(2, b"", b"1"), delete(1, &7_u32.to_be_bytes())]] {
        store.commit_told(group, b"before").unwrap();
        model.apply(group);
    }
    let position = runtime.block_on(follower.position()).unwrap();
    assert_eq!((position.term, position.number), (store.term(), store.n_commits()));
    let mut watching = follower.watch(position);
    let mut next =
        || runtime.block_on(async { tokio::time::timeout(PATIENCE, watching.next()).await.unwrap().unwrap() });

    let big_told = vec![5; 5 << 20];
    let commits: [(&[RowChange], &[u8]); 6] = [
        (&[put(2, b"a", b"")], b"one row"),
        (&many, b"a journal"),
        (&[put(2, b"a", b"2")], &big_told),
        (&[], NOTHING),
        (&[put(3, b"", b"")], b""),
        (&big_commit(), b"the last"),
    ];
    for (rows, told) in commits {
        store.commit_told(rows, told).unwrap();
    }
    // What came after the position is not in it.
    let rows: Vec<RowChange> = follower.rows(position).collect::<Result<_, _>>().unwrap();
    assert!(rows == model.rows());
    for (number, (_, told)) in (position.number + 1..).zip(commits) {
        let commit = next();
        assert_eq!((commit.term, commit.number), (store.term(), number));
        assert!(commit.told == told, "commit {number}");
    }

    // Another leads, and whoever follows goes on.
    let term = store.term();
    store.close().unwrap();
    drop(store);
    let mut store = open(&address);
    let commit = next();
    assert!(commit.term > term && commit.term == store.term() && commit.number == store.n_commits());
    assert_eq!(commit.told, NOTHING);
    // A member goes, whichever is asked.
    for member in 0..3 {
        cluster.kill(member);
        let told = [member as u8 + 1; 100];
        store.commit_told(&[put(4, b"", b"")], &told).unwrap();
        let commit = next();
        assert_eq!((commit.number, &commit.told[..]), (store.n_commits(), &told[..]));
        cluster.run(member);
        cluster.wait(member);
    }
}

/// More than three parts of a journal, and several transactions of rows.
fn big_commit() -> Vec<RowChange> {
    let big = (0..400_u32).map(|i| put(1, &i.to_be_bytes(), &vec![i as u8; 10_000]));
    big.chain((0..50_u32).map(|i| delete(2, &i.to_be_bytes()))).collect()
}

fn commit_that_is_cut_after_any_transaction_is_whole_or_absent() {
    let cluster = Cluster::start(1, &[]);
    let before: Vec<RowChange> =
        (0..100_u32).flat_map(|i| [put(1, &i.to_be_bytes(), b"old"), put(2, &i.to_be_bytes(), b"old")]).collect();
    let (mut n_absent, mut n_whole) = (0, 0);
    for n_transactions in 0.. {
        let address = cluster.address(&format!("cut{n_transactions}"));
        let mut model = Model::default();
        let mut store = open(&address);
        store.commit(&before).unwrap();
        // The rows of the first commit are in place.
        assert_eq!(all(&store).len(), before.len());
        model.apply(&before);
        store.cut_after(n_transactions);
        let acknowledged = store.commit(&big_commit()).is_ok();
        let done = store.close().is_ok() && acknowledged;
        drop(store);

        let mut next = open(&address);
        let absent = all(&next) == model.rows();
        model.apply(&big_commit());
        let whole = all(&next) == model.rows();
        assert!(absent || whole, "after {n_transactions} transactions a part is there");
        assert!(whole || !acknowledged, "after {n_transactions} transactions an acknowledged commit is gone");
        n_absent += u32::from(absent);
        n_whole += u32::from(whole);
        // What is left over does no harm to the next big commit, which is shorter.
        let shorter: Vec<RowChange> = (0..200_u32).map(|i| put(1, &i.to_be_bytes(), &[9; 7000])).collect();
        next.commit(&shorter).unwrap();
        next.close().unwrap();
        drop(next);
        let mut left = if whole { model } else { Model::default() };
        if !whole {
            left.apply(&before);
        }
        left.apply(&shorter);
        assert!(all(&open(&address)) == left.rows(), "after {n_transactions} transactions and another commit");
        if done {
            break;
        }
    }
    assert!(n_absent >= 4 && n_whole >= 4, "{n_absent} absent, {n_whole} whole");
}

fn second_controller_waits_and_the_first_writes_no_more_after_it_leads() {
    let cluster = Cluster::start(1, &[]);
    let address = cluster.address("two");
    let mut first = candidate(&address, "first:1").lead_within(PATIENCE).unwrap();
    first.commit(&[put(1, b"a", b"first")]).unwrap();
    let waiting = candidate(&address, "second:1").lead_within(Duration::from_secs(4)).unwrap_err();
    assert!(matches!(&waiting, StoreError::NotLeader { leader, .. } if leader.contains("first:1")), "{waiting}");
    first.commit(&[put(1, b"b", b"first")]).unwrap();

    // It believes that it leads: nobody tells it.
    first.pause();
    let mut second = candidate(&address, "second:1").lead_within(PATIENCE).unwrap();
    assert!(second.term() > first.term());
    let rows = all(&second);
    let few = [put(1, b"a", b"late"), put(1, b"c", b"late")];
    let refused = [first.commit(&few), first.commit(&big_commit()), first.commit(&[])];
    for refused in refused {
        let error = refused.unwrap_err();
        assert!(matches!(&error, StoreError::NotLeader { leader, .. } if leader.contains("second:1")), "{error}");
    }
    assert!(first.rows().any(|row| row.is_err()), "it reads no longer, either");
    assert!(all(&second) == rows);
    second.commit(&[put(1, b"c", b"second")]).unwrap();
    assert_eq!(all(&second).len(), 3);
}

fn leader_that_was_cut_within_a_big_commit_cannot_go_on_with_it() {
    let cluster = Cluster::start(1, &[]);
    let address = cluster.address("within");
    let mut first = open(&address);
    first.commit(&[put(1, b"a", b"first")]).unwrap();
    // All parts of the journal are written, and it is not valid.
    first.cut_after(4);
    first.pause();
    first.commit(&big_commit()).unwrap_err();
    let second = open(&address);
    first.cut_after(usize::MAX);
    assert!(matches!(first.commit(&big_commit()), Err(StoreError::NotLeader { .. })));
    assert!(all(&second) == [put(1, b"a", b"first")]);
}

fn leader_notices_that_its_lease_is_gone() {
    let cluster = Cluster::start(1, &[]);
    let mut store = open(&cluster.address("lost"));
    let lost = store.lost();
    store.close().unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let error = runtime.block_on(async { tokio::time::timeout(PATIENCE, lost).await.unwrap() });
    assert!(matches!(&error, StoreError::LostLead { why, .. } if why.contains("lease")), "{error}");
}

fn commits_go_on_when_one_of_three_members_dies() {
    let mut cluster = Cluster::start(3, &[]);
    let address = cluster.address("three");
    let mut store = open(&address);
    let mut model = Model::default();
    for i in 0..60_u32 {
        if i % 20 == 10 {
            cluster.kill(i as usize / 20);
        }
        let rows = [put(1, &i.to_be_bytes(), b"v"), delete(1, &(i / 2).to_be_bytes())];
        store.commit(&rows).unwrap_or_else(|error| panic!("commit {i}: {error}"));
        model.apply(&rows);
        if i % 20 == 19 {
            cluster.run(i as usize / 20);
            cluster.wait(i as usize / 20);
        }
    }
    assert!(all(&store) == model.rows());
    store.close().unwrap();
    assert!(all(&open(&address)) == model.rows());
}

fn full_etcd_says_what_to_do_and_keeps_what_was_committed() {
    let cluster = Cluster::start(1, &["--quota-backend-bytes", "4000000"]);
    let address = cluster.address("full");
    let mut store = open(&address);
    let mut model = Model::default();
    let error = loop {
        let rows: Vec<RowChange> = (0..50_u8).map(|i| put(1, &[model.0.len() as u8, i], &[7; 5000])).collect();
        match store.commit(&rows) {
            Ok(()) => model.apply(&rows),
            Err(error) => break error,
        }
    };
    assert!(matches!(error, StoreError::Etcd { fault: Fault::NoSpace, .. }), "{error}");
    assert!(error.to_string().contains("etcdctl alarm disarm"), "{error}");
    assert!(!model.0.is_empty() && all(&store) == model.rows());
}

fn etcd_that_does_not_answer_is_told_with_advice() {
    let error = candidate("etcd://127.0.0.1:1,127.0.0.1:2/none", "here:1").lead_within(PATIENCE).unwrap_err();
    assert!(matches!(error, StoreError::Etcd { fault: Fault::Unreachable, .. }), "{error}");
    assert!(error.to_string().contains("etcdctl endpoint health"), "{error}");
}

fn main() -> ExitCode {
    let is_there = member::etcd().is_some();
    macro_rules! named {
        ($($test:ident),* $(,)?) => {
            [$((stringify!($test), $test as fn())),*]
        };
    }
    let with_etcd = named![
        committed_rows_come_back_in_order_with_a_greater_term,
        whoever_follows_sees_the_rows_of_a_moment_and_every_commit_after_it,
        commit_that_is_cut_after_any_transaction_is_whole_or_absent,
        second_controller_waits_and_the_first_writes_no_more_after_it_leads,
        leader_that_was_cut_within_a_big_commit_cannot_go_on_with_it,
        leader_notices_that_its_lease_is_gone,
        commits_go_on_when_one_of_three_members_dies,
        full_etcd_says_what_to_do_and_keeps_what_was_committed,
    ];
    let with_etcd = with_etcd.into_iter().chain(faults::TESTS);
    let mut trials: Vec<_> =
        with_etcd.map(|(name, test)| runs_here(trial(name, test), is_there, member::ETCD)).collect();
    let name = "etcd_that_does_not_answer_is_told_with_advice";
    trials.push(trial(name, etcd_that_does_not_answer_is_told_with_advice));
    libtest_mimic::run(&Arguments::from_args(), trials).exit_code()
}
