//! The reasons for drops of the data plane have the sentences of [`api::drops`].

use dataplane::counters::DropReason;

#[test]
fn every_reason_has_a_sentence_for_operators_and_no_sentence_lacks_its_reason() {
    let reasons: Vec<&str> = DropReason::ALL.iter().map(|why| why.name()).chain(dataplane::losses::names()).collect();
    let explained: Vec<&str> = api::drops::REASONS.iter().map(|(name, _)| *name).collect();
    assert_eq!(explained, reasons);
    assert!(reasons.iter().all(|name| api::drops::why(name).ends_with('.')));
    let events: Vec<_> = reasons.iter().filter(|name| api::drops::worth_an_event(name).is_some()).collect();
    assert_eq!(events.len(), api::drops::N_EVENTS, "each reason that is worth an event exists");
}

#[test]
fn what_a_kernel_says_by_itself_is_expected() {
    assert!(api::drops::is_expected(DropReason::KernelChatter.name()));
}
