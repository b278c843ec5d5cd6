use super::*;

/// Notes what it is asked to do. Bursts are numbers; this stage has something to wait for with those that are not multiples of its own.
struct Noting {
    name: char,
    nothing_for_multiples_of: u32,
}

impl Stage<Vec<String>, u32> for Noting {
    fn begin(&mut self, log: &mut Vec<String>, burst: &mut u32, before: Option<&mut u32>) -> bool {
        let before = before.map(|before| format!(" beside {before}")).unwrap_or_default();
        log.push(format!("{} begins {burst}{before}", self.name));
        !(*burst).is_multiple_of(self.nothing_for_multiples_of)
    }

    fn finish(&mut self, log: &mut Vec<String>, burst: &mut u32) {
        log.push(format!("{} finishes {burst}", self.name));
    }
}

struct End;

impl Rest<Vec<String>, u32> for End {
    fn pass(&mut self, log: &mut Vec<String>, burst: u32, _: bool) {
        log.push(format!("{burst} leaves"));
    }

    fn drain(&mut self, _: &mut Vec<String>) {}
}

fn stage(name: char) -> Noting {
    Noting { name, nothing_for_multiples_of: 100 }
}

/// What two stages do with bursts, each of which may wait or not, and with a drain at the end.
fn log_of(stages: [Option<Noting>; 2], bursts: &[(u32, bool)]) -> Vec<String> {
    let [first, second] = stages;
    let (mut path, mut log) = (Step::new(first, Step::new(second, End)), Vec::new());
    for &(burst, may_wait) in bursts {
        path.pass(&mut log, burst, may_wait);
    }
    log.push("drain".to_owned());
    path.drain(&mut log);
    log
}

fn left(log: &[String]) -> Vec<&str> {
    log.iter().filter_map(|line| line.strip_suffix(" leaves")).collect()
}

#[test]
fn burst_waits_in_each_stage_until_the_next_has_begun_there() {
    let log = log_of([Some(stage('a')), Some(stage('b'))], &[(1, true), (2, true), (3, true)]);
    let expected = [
        "a begins 1",
        "a begins 2 beside 1",
        "a finishes 1",
        "b begins 1",
        "a begins 3 beside 2",
        "a finishes 2",
        "b begins 2 beside 1",
        "b finishes 1",
        "1 leaves",
        "drain",
        "a finishes 3",
        "b begins 3 beside 2",
        "b finishes 2",
        "2 leaves",
        "b finishes 3",
        "3 leaves",
    ];
    assert_eq!(log, expected);
}

#[test]
fn burst_that_may_not_wait_leaves_at_once_and_after_those_before_it() {
    let log = log_of([Some(stage('a')), Some(stage('b'))], &[(1, true), (2, true), (3, false)]);
    let drain = log.iter().position(|line| line == "drain").unwrap();
    assert_eq!(left(&log[..drain]), ["1", "2", "3"]);
    assert_eq!(log[drain..], ["drain"]);
}

#[test]
fn stage_that_is_not_configured_does_nothing_and_holds_nothing_up() {
    let log = log_of([None, Some(stage('b'))], &[(1, true), (2, true)]);
    assert_eq!(
        log,
        ["b begins 1", "b begins 2 beside 1", "b finishes 1", "1 leaves", "drain", "b finishes 2", "2 leaves"]
    );
    assert_eq!(log_of([None, None], &[(1, true), (2, false)]), ["1 leaves", "2 leaves", "drain"]);
}

#[test]
fn burst_with_nothing_to_wait_for_passes_a_stage_and_overtakes_none() {
    let even = || Noting { name: 'a', nothing_for_multiples_of: 2 };
    let log = log_of([Some(even()), None], &[(1, true), (2, true), (4, true)]);
    assert_eq!(left(&log), ["1", "2", "4"]);
    let drain = log.iter().position(|line| line == "drain").unwrap();
    assert_eq!(log[drain..], ["drain"]);
    // In the next stage it may wait.
    let log = log_of([Some(even()), Some(stage('b'))], &[(1, true), (2, true)]);
    assert_eq!(log[log.len() - 2..], ["b finishes 2", "2 leaves"]);
}
