//! Questions beside changes.

use super::*;
use crate::core::owner::Seen;
use crate::shell::job::Jobs;

/// Polls it once; what it gives, if it is ready.
fn poll<F: Future>(asked: &mut std::pin::Pin<Box<F>>) -> Option<F::Output> {
    match asked.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(output) => Some(output),
        Poll::Pending => None,
    }
}

#[test]
fn a_change_waits_for_a_few_questions_however_many_there_are() {
    let Bench { mut writer, .. } = bench(usize::MAX);
    let (jobs, mut waiting) = Jobs::channel(16);
    let shared = Arc::clone(&writer.shared);
    let n_names = |state: &State, _: &mut Seen| state.network.rib().len();
    let mut asked: Vec<_> = (0..500).map(|_| Box::pin(shared.reads.ask(&jobs, n_names))).collect();
    assert!(asked.iter_mut().all(|one| poll(one).is_none()));
    let mut n_answered = |least: usize| {
        let before = asked.len();
        asked.retain_mut(|one| match poll(one) {
            Some(answer) => {
                assert!(answer.unwrap() >= least, "a question that is answered after a change sees it");
                false
            }
            None => true,
        });
        before - asked.len()
    };
    for i in 1..=3 {
        let (job, answer) = put(i);
        writer.turn(job, || None).unwrap();
        assert!(answer.now_or_never().unwrap().unwrap().is_ok());
        assert_eq!(n_answered(usize::from(i)), TURN_READS);
    }
    // Without changes the writer goes on with them, though not every question has a job of its own.
    waiting.close();
    let mut n_all = 3 * TURN_READS;
    while shared.reads.wait() {
        writer.go_on_alone().unwrap();
        n_all += n_answered(3);
    }
    assert_eq!(n_all, 500);
}

#[test]
fn what_nobody_waits_for_is_not_read_and_nobody_waits_for_a_writer_that_has_ended() {
    let Bench { mut writer, .. } = bench(usize::MAX);
    let (jobs, _waiting) = Jobs::channel(16);
    let shared = Arc::clone(&writer.shared);
    let n_read = Arc::new(AtomicUsize::new(0));
    let ask = || {
        let n_read = Arc::clone(&n_read);
        Box::pin(shared.reads.ask(&jobs, move |_, _| n_read.fetch_add(1, Relaxed)))
    };
    let (mut gone, mut kept) = (ask(), ask());
    assert!(poll(&mut gone).is_none() && poll(&mut kept).is_none());
    drop(gone);
    writer.go_on_alone().unwrap();
    assert_eq!((poll(&mut kept), n_read.load(Relaxed)), (Some(Some(0)), 1));

    let mut late = ask();
    assert!(poll(&mut late).is_none());
    drop(Answers(Arc::clone(&shared)));
    assert_eq!((poll(&mut late), poll(&mut ask())), (Some(None), Some(None)));
    assert_eq!(n_read.load(Relaxed), 1);
}
