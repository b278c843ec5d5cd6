//! Parts of a table, compared with what a switch reports, and put into messages.

use crate::codec::PART_BYTES;
use lookup::traits::{HeldPart, Image};
use std::ops::Range;

/// The parts of a table in which a switch differs: runs of our shards, each run covering whole shards of both sides.
///
/// `None` when the report does not cover every digest exactly once.
pub(super) fn differing(report: &[HeldPart], ours: &[HeldPart]) -> Option<Vec<Range<usize>>> {
    let mut runs = Vec::new();
    let (mut theirs_at, mut at) = (0, 0);
    while at < ours.len() {
        let start = at;
        let (mut end, mut their_end) = (ours[at].id.span().start, report.get(theirs_at)?.id.span().start);
        if end != their_end {
            return None;
        }
        let alike = ours[at] == report[theirs_at];
        // Take shards from whichever side is behind until both end at the same digest.
        loop {
            if end <= their_end {
                let next = ours.get(at)?.id.span();
                (at, end) = (at + 1, next.end);
            } else {
                let next = report.get(theirs_at)?.id.span();
                if next.start != their_end {
                    return None;
                }
                (theirs_at, their_end) = (theirs_at + 1, next.end);
            }
            if end == their_end {
                break;
            }
        }
        if !(alike && at == start + 1) {
            runs.push(start..at);
        }
    }
    (theirs_at == report.len()).then_some(runs)
}

/// Groups parts into messages of about [`PART_BYTES`], cut only before parts where `may_cut` holds.
pub(super) fn in_messages<I: Image>(images: Vec<I>, may_cut: impl Fn(&I) -> bool) -> impl Iterator<Item = Vec<I>> {
    let mut images = images.into_iter().peekable();
    std::iter::from_fn(move || {
        let mut message = vec![images.next()?];
        let mut bytes = message[0].n_bytes();
        while let Some(image) = images.next_if(|next| bytes < PART_BYTES || !may_cut(next)) {
            bytes += image.n_bytes();
            message.push(image);
        }
        Some(message)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use lookup::traits::PartId;

    fn held(prefix: u32, depth: u8, version: u64) -> HeldPart {
        HeldPart { id: PartId { prefix, depth }, version, digest: 0 }
    }

    #[test]
    fn differing_runs_cover_whole_shards_of_both_sides() {
        let ours = [held(0, 2, 1), held(1, 2, 1), held(1, 1, 5)];
        assert_eq!(differing(&ours, &ours), Some(vec![]));
        // A split that the switch missed.
        let one_run = |range| Some(Vec::from([range]));
        assert_eq!(differing(&[held(0, 1, 1), held(1, 1, 5)], &ours), one_run(0..2));
        // A merge that it missed, and an older version.
        let theirs = [held(0, 2, 1), held(1, 2, 0), held(2, 2, 5), held(3, 2, 5)];
        assert_eq!(differing(&theirs, &ours), Some(vec![1..2, 2..3]));
        assert_eq!(differing(&[held(0, 0, 1)], &ours), one_run(0..3));
    }

    #[test]
    fn reports_that_do_not_cover_all_digests_say_nothing() {
        let ours = [held(0, 1, 1), held(1, 1, 5)];
        for report in [
            vec![],
            vec![held(0, 1, 1)],
            vec![held(1, 1, 5)],
            vec![held(0, 1, 1), held(0, 1, 1)],
            vec![held(0, 1, 1), held(1, 1, 5), held(1, 1, 5)],
            vec![held(0, 2, 1), held(1, 1, 5)],
        ] {
            assert_eq!(differing(&report, &ours), None, "{report:?}");
        }
    }
}
