//! Every kernel of this processor gives the answers of lookups one by one.

use super::{Rng, seed};
use crate::base::prefetch::BURST;
use crate::base::processor::Kernel;
use crate::hash::Digest;
use crate::traits::Query;

/// A query structure that has a loop per kernel.
pub(crate) trait ByKernel: Query<Key = Digest> {
    /// As [`Query::lookup_batch`], by the loop of a kernel.
    fn by_batch(&self, kernel: Kernel, digests: &[Digest], values: &mut [u64]);
    /// The same for one burst, begun and then finished.
    fn by_phases(&self, kernel: Kernel, digests: &[Digest], values: &mut [u64]);
}

/// Looks up batches of all lengths up to two bursts, and some long ones, of live names and aliens.
/// # Panics
/// When a kernel gives another answer.
pub(crate) fn agree(query: &impl ByKernel, live: &[Digest]) {
    let mut rng = Rng::new(seed());
    println!("not run, for want of a processor: {:?}", Kernel::unavailable().collect::<Vec<_>>());
    for kernel in Kernel::available() {
        for length in (0..=2 * BURST).chain([8 * BURST - 1, 8 * BURST, 8 * BURST + 1, 1000]) {
            let digest = |rng: &mut Rng| match rng.below(4) {
                0 => Digest(rng.next_u64()),
                _ => live[rng.below(live.len() as u64) as usize],
            };
            let digests: Vec<Digest> = (0..length).map(|_| digest(&mut rng)).collect();
            let expected: Vec<u64> = digests.iter().map(|&digest| query.lookup(digest)).collect();
            let mut values = vec![u64::MAX; length + 1];
            query.by_batch(kernel, &digests, &mut values);
            assert_eq!(values.pop(), Some(u64::MAX), "{kernel}: a value behind the batch was written");
            assert_eq!(values, expected, "{kernel}, {length} names");
            if length <= BURST {
                values.fill(u64::MAX);
                query.by_phases(kernel, &digests, &mut values);
                assert_eq!(values, expected, "{kernel}, {length} names by phases");
            }
        }
    }
}
