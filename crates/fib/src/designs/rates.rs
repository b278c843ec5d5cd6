//! A wanted false-positive rate: the share of alien names that may get an action, and the fingerprints that hold it.
//!
//! A design declares what aliens get with each fingerprint ([`Design::aliens`]), at the fullest that a table gets while
//! names come and go. So the rate holds at any time, and is not only what a new table has.

use super::{Aliens, Design, Spec, all};

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
        let holds = |design: &&'static Design| {
            !design.is_static && Spec { design, ..self.clone() }.bits_for(rate, n_actions).is_some()
        };
        let others = all().filter(holds).map(|design| design.name).collect::<Vec<_>>().join(", ");
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
    use crate::designs::{CFW, CONCISE, CUCKOO, DESIGNS, LINE, OFW};
    use crate::name::NameKind;
    use lookup::hash::{Family, SecretKey};

    fn spec(design: &'static Design, kind: NameKind, seed: u64) -> Spec {
        Spec::new(design, kind, Family::MulAdd, SecretKey::from_seed(seed), 5, 20_000)
    }

    #[test]
    fn aliens_pass_at_the_wanted_rate_at_most_and_after_churn_too() {
        crate::testkit::aliens_pass_at_the_wanted_rate_at_most(DESIGNS);
    }

    #[test]
    fn a_table_of_many_actions_says_of_itself_what_is_computed_and_what_aliens_get() {
        crate::testkit::tables_of_many_actions_say_what_aliens_get(DESIGNS, &[], 0);
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
    }

    #[test]
    fn a_design_that_cannot_hold_a_rate_says_which_can() {
        let refused = |design, kind, rate| spec(design, kind, 1).with_rate(rate, 31).unwrap_err().to_string();
        for design in [&CONCISE, &LINE] {
            let error = refused(design, NameKind::Mac, 0.01);
            assert!(error.contains("any action") && error.contains("take ofw, cfw, cuckoo"), "{error}");
        }
        let error = refused(&CFW, NameKind::Mac, 1e-9);
        assert!(error.contains("at best") && error.ends_with("or take cuckoo"), "{error}");
        assert!(
            refused(&CFW, NameKind::Mac, 1.0).contains("not a share")
                && refused(&CFW, NameKind::Mac, f64::NAN).contains("not a share")
        );
        assert!(spec(&CUCKOO, NameKind::Text, 1).with_rate(0.0, 31).is_ok());
    }
}
