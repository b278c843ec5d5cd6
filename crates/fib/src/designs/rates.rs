//! A wanted false-positive rate: the share of alien names that may get an action, and the fingerprints that hold it.
//!
//! A design declares what aliens get with each fingerprint ([`Design::aliens`]), at the fullest that a table gets while
//! names come and go. So the rate holds at any time, and is not only what a new table has.

use super::{Aliens, DESIGNS, Design, Spec};

impl Aliens {
    /// Whether at most this share of alien names gets an action.
    pub fn holds(self, rate: f64) -> bool {
        match self {
            Aliens::Arbitrary => false,
            Aliens::DroppedBut { rate: ours } => ours <= rate,
            Aliens::Dropped => true,
        }
    }
}

impl Spec {
    /// The same with the fingerprint of least memory with which at most `rate` of the alien names get an action, where
    /// names have `n_actions` actions besides drop.
    /// # Errors
    /// [`RateError`]: no fingerprint of the design is that long.
    pub fn with_rate(self, rate: f64, n_actions: u32) -> Result<Spec, RateError> {
        if !(0.0..1.0).contains(&rate) {
            return Err(RateError::NoShare { rate });
        }
        match self.bits_for(rate, n_actions) {
            Some(fingerprint_bits) => Ok(Spec { fingerprint_bits, ..self }),
            None => Err(self.refusal(rate, n_actions)),
        }
    }

    fn bits_for(&self, rate: f64, n_actions: u32) -> Option<u8> {
        let holds = |&fingerprint_bits: &u8| {
            let spec = Spec { fingerprint_bits, ..self.clone() };
            (self.design.aliens)(&spec, n_actions).holds(rate)
        };
        let least = (self.design.fingerprints)(self.value_bits).find(holds)?;
        Some((self.design.widened)(self.value_bits, n_actions, least))
    }

    fn refusal(&self, rate: f64, n_actions: u32) -> RateError {
        let holds = |design: &&&'static Design| {
            !design.is_static && Spec { design, ..self.clone() }.bits_for(rate, n_actions).is_some()
        };
        let others = DESIGNS.iter().filter(holds).map(|design| design.name).collect::<Vec<_>>().join(", ");
        let longest = *(self.design.fingerprints)(self.value_bits).end();
        let (design, value_bits) = (self.design.name, self.value_bits);
        match (self.design.aliens)(&Spec { fingerprint_bits: longest, ..self.clone() }, n_actions) {
            Aliens::DroppedBut { rate: least } => RateError::TooLow { design, rate, least, value_bits, others },
            Aliens::Arbitrary | Aliens::Dropped => RateError::NoRate { design, rate, others },
        }
    }
}

/// Why a design cannot hold a wanted rate.
#[derive(Clone, PartialEq, Debug, thiserror::Error)]
#[non_exhaustive]
#[expect(missing_docs, reason = "the messages say what the fields are")]
pub enum RateError {
    /// No share.
    #[error(
        "a false-positive rate of {rate} is not a share of names: give a number from 0 (none) to less than 1, as 0.01"
    )]
    NoShare { rate: f64 },
    /// The design does not recognise aliens.
    #[error(
        "`{design}` gives alien names any action, so it cannot hold a false-positive rate of {rate}: take {others}, or leave the rate out"
    )]
    NoRate { design: &'static str, rate: f64, others: String },
    /// The longest fingerprint is too short.
    #[error(
        "`{design}` with values of {value_bits} bits gives {least:.2e} of alien names an action at best, more than {rate}: ask for more, or take {others}"
    )]
    TooLow { design: &'static str, rate: f64, least: f64, value_bits: u8, others: String },
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::designs::{BFW, BUFFALO, Burst, CFW, CONCISE, CUCKOO, Key, LINE, NameList, OFW, Table, keys};
    use crate::name::{Name, NameKind};
    use lookup::hash::{Family, Hasher, SecretKey};

    const N: usize = 20_000;
    const ALIENS: usize = 100_000;
    /// Tables of one design, since filters and fingerprints of one are alike for all aliens.
    const TABLES: u64 = 6;

    fn spec(design: &'static Design, kind: NameKind, seed: u64) -> Spec {
        Spec::new(design, kind, Family::MulAdd, SecretKey::from_seed(seed), 5, N)
    }

    fn names(range: std::ops::Range<usize>) -> Vec<Name> {
        let mac = |i: usize| Name::from_bytes(NameKind::Mac, &(0x0200_0000_0000 + i as u64).to_be_bytes()[2..]);
        range.map(|i| mac(i).unwrap()).collect()
    }

    fn value(number: usize, n_actions: usize) -> u32 {
        1 + (number % n_actions) as u32
    }

    fn answers(table: &dyn Table, hasher: &Hasher, names: &[Name]) -> Vec<u64> {
        let mut values = vec![0; names.len()];
        for (names, values) in names.chunks(32).zip(values.chunks_mut(32)) {
            let list: Vec<&Name> = names.iter().collect();
            let digests: Vec<_> = names.iter().map(|name| hasher.digest(name.as_bytes())).collect();
            table.lookup_batch(&Burst { digests: &digests, names: &NameList(&list) }, values);
        }
        values
    }

    /// The share of aliens that get an action from a table with this rate, new and after three turnovers; and then of the
    /// names that were removed.
    fn measured(design: &'static Design, rate: f64, n_actions: usize, seed: u64) -> [f64; 3] {
        let spec = spec(design, NameKind::Mac, seed).with_rate(rate, n_actions as u32).unwrap();
        let (hasher, live, aliens) = (spec.hasher(), names(0..N), names(1 << 30..(1 << 30) + ALIENS));
        let places = keys(&hasher, live.iter());
        let fill = |each: &mut dyn FnMut(Key<'_>, u32)| {
            places.iter().enumerate().for_each(|(i, key)| each(*key, value(i, n_actions)));
        };
        let mut control = (design.halves.control)(&spec, &fill, 2).unwrap();
        let values: Vec<u16> = (0..=n_actions as u16).collect();
        let passed = |table: &dyn Table, names: &[Name]| {
            answers(table, &hasher, names).iter().filter(|&&value| value != 0).count() as f64 / names.len() as f64
        };
        let share = |control: &dyn crate::designs::FibControl, live: &[Name], first: usize, gone: &[Name]| {
            let table = control.export_many(std::slice::from_ref(&values)).unwrap().remove(0);
            let own = answers(&*table, &hasher, live);
            let right = |(i, got): (usize, &u64)| *got == u64::from(value(first + i, n_actions));
            assert!(own.iter().enumerate().all(right), "{design}, seed {seed}: a live name is answered wrongly");
            [passed(&*table, &aliens), passed(&*table, gone)]
        };
        let [fresh, _] = share(&*control, &live, 0, &aliens);
        if design.is_static {
            return [fresh; 3];
        }
        // Three turnovers, a slice at a time, as names come and go.
        let all = names(0..4 * N);
        let all_keys = keys(&hasher, all.iter());
        for start in (0..3 * N).step_by(100) {
            let coming = start + N..start + N + 100;
            let put: Vec<_> = coming.map(|i| (all_keys[i], value(i, n_actions))).collect();
            let mut out = Vec::new();
            control.change(&[], &all_keys[start..start + 100], &mut out).unwrap();
            control.change(&put, &[], &mut out).unwrap();
        }
        let [churned, removed] = share(&*control, &all[3 * N..], 3 * N, &all[..3 * N]);
        [fresh, churned, removed]
    }

    /// Mean and standard error over tables.
    fn mean(samples: &[f64]) -> (f64, f64) {
        let n = samples.len() as f64;
        let mean = samples.iter().sum::<f64>() / n;
        let between = samples.iter().map(|sample| (sample - mean).powi(2)).sum::<f64>() / (n - 1.0) / n;
        // Where hardly an alien passes, tables differ less than chance lets them.
        (mean, between.max(mean / (n * ALIENS as f64)).sqrt())
    }

    /// The law of rates: what passes is within three standard errors of what was wanted, or less where a fingerprint is
    /// longer than it need be. It holds for a new table, and after names came and went.
    #[test]
    fn aliens_pass_at_the_wanted_rate_at_most_and_after_churn_too() {
        let seed = std::env::var("FIBULA_SEED").map_or(1, |seed| seed.parse().unwrap());
        println!("seed {seed}");
        let n_actions = 31;
        for design in DESIGNS {
            for rate in [0.2, 0.01, 0.001] {
                let Ok(made) = spec(design, NameKind::Mac, seed).with_rate(rate, n_actions) else { continue };
                if matches!(made.aliens(), Aliens::Dropped) && rate < 0.2 {
                    continue;
                }
                let samples: Vec<_> =
                    (0..TABLES).map(|i| measured(design, rate, n_actions as usize, seed * 100 + i)).collect();
                for (at, when) in ["new", "after churn", "removed names"].into_iter().enumerate() {
                    let (mean, error) = mean(&samples.iter().map(|sample| sample[at]).collect::<Vec<_>>());
                    println!("{design}, {rate} wanted, {when}: {mean:.6} +- {error:.6}");
                    assert!(mean <= rate + 3.0 * error, "{design}, seed {seed}, {when}: {mean}, {rate} wanted");
                    let Aliens::DroppedBut { rate: declared } = made.aliens_of(n_actions) else { continue };
                    assert!(mean <= declared + 3.0 * error, "{design}, {when}: {mean}, {declared} declared");
                }
            }
        }
    }

    #[test]
    fn longer_fingerprints_are_taken_than_suit_the_values_alone() {
        let bits = |design: &'static Design, rate| {
            let spec = Spec::new(design, NameKind::Mac, Family::Wy, SecretKey::from_seed(1), 6, 100_000);
            spec.with_rate(rate, 32).unwrap().fingerprint_bits
        };
        // Slots of 16 bits leave 10 for a fingerprint, which lets 0.74 % pass.
        assert_eq!((bits(&CFW, 0.01), bits(&CFW, 0.0001), bits(&CFW, 2e-7)), (10, 24, 26));
        assert_eq!((bits(&OFW, 0.01), bits(&OFW, 1e-5)), (10, 26));
        assert!(bits(&BUFFALO, 1e-6) >= 25 && bits(&BFW, 1e-6) >= 25);
    }

    #[test]
    fn a_design_that_cannot_hold_a_rate_says_which_can() {
        let refused = |design, kind, rate| spec(design, kind, 1).with_rate(rate, 31).unwrap_err().to_string();
        for design in [&CONCISE, &LINE] {
            let error = refused(design, NameKind::Mac, 0.01);
            assert!(error.contains("any action") && error.contains("take ofw, ogw, cfw, cuckoo"), "{error}");
        }
        let error = refused(&CFW, NameKind::Mac, 1e-9);
        assert!(error.contains("at best") && error.contains("take ogw, cuckoo, bgw, tss"), "{error}");
        assert!(
            refused(&CFW, NameKind::Mac, 1.0).contains("not a share")
                && refused(&CFW, NameKind::Mac, f64::NAN).contains("not a share")
        );
        assert!(spec(&CUCKOO, NameKind::Text, 1).with_rate(0.0, 31).is_ok());
    }
}
