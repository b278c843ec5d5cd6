//! Whether what a switch serves is what it says that it holds: all digests are computed again, from the memory that
//! lookups read.
//!
//! Versions and digests of a report are kept beside the tables. They follow the messages, so they do not show that a bit
//! of a table has changed since. Who compares [`Verified::report`] with [`Network::held`](crate::network::Network::held)
//! compares the tables themselves with what the controller says.

use super::{Exact, ExactState, Replica, Tables};
use crate::codec::actions_digest;
use crate::messages::{ExactValue, Held, Report};

/// A switch's findings after it computed all digests again.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Verified {
    /// Its report. A damaged table counts as empty: the answer to this report replaces it.
    pub report: Report,
    /// A sentence for each table that is not as its digest says.
    pub damage: Vec<String>,
}

impl<T: Tables> Replica<T> {
    /// Computes all digests again. A damaged table is still served, and no longer reported as held.
    ///
    /// Takes as long as a restart from a saved image, and memory for the FIB once more.
    pub fn verify(&mut self) -> Verified {
        let mut damage = Vec::new();
        if let Some(fib) = &self.fib
            && let Err(error) = fib.verify()
        {
            self.is_damaged = true;
            damage.push(format!("the FIB: {error}"));
        }
        let expected = self.actions_held.digest;
        let got = actions_digest(&self.actions);
        if self.actions_held != Held::default() && got != expected {
            self.actions_held = Held::default();
            damage.push(other_digest("the action table", got, expected));
        }
        let (valid, local) = self.tables.shared();
        damage.extend(self.valid.verify("the valid names", valid));
        damage.extend(self.local.verify("the local names", local));
        Verified { report: self.report(), damage }
    }

    /// Puts another table in place of the FIB, as damage to its memory would.
    #[cfg(test)]
    pub(crate) fn replace_fib(
        &mut self,
        replace: impl FnOnce(Box<dyn crate::designs::Table>) -> Box<dyn crate::designs::Table>,
    ) {
        self.fib = self.fib.take().map(replace);
    }
}

impl<L> ExactState<L> {
    /// Forgets the version of a table that is not as its digest says, and says so. Whatever version the controller's has,
    /// the switch's is ahead of it, so it is sent everything.
    fn verify<V: ExactValue>(&mut self, what: &str, table: &impl Exact<V>) -> Option<String> {
        let (mut got, mut n_names) = (0, 0);
        table.for_each(&mut |name, value| {
            got ^= value.share(name);
            n_names += 1;
        });
        let expected = self.held.digest;
        if got == expected && n_names == self.n_names {
            return None;
        }
        let n_expected = self.n_names;
        // A version that no controller reaches: even an empty table replaces it.
        (self.held.version, self.n_names) = (u64::MAX, n_names);
        Some(format!("{}, {n_names} of {n_expected} names", other_digest(what, got, expected)))
    }
}

fn other_digest(what: &str, got: u64, expected: u64) -> String {
    format!("{what}: digest {got:#018x}, {expected:#018x} expected")
}
