//! How a design that gives alien names any action is made to drop them: another design, round it.

use super::registry::{all, is_elsewhere, named, where_it_is};
use super::{Design, LABORATORY};
use std::fmt;
use std::str::FromStr;

/// What tells aliens from names.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Guard {
    /// A checksum of the name beside its action.
    Checksum,
    /// A Bloom filter of the names in front of the table.
    Bloom,
}

impl Guard {
    /// All of them.
    pub const ALL: [Guard; 2] = [Guard::Checksum, Guard::Bloom];

    /// The suffix of a design's name.
    fn suffix(self) -> String {
        format!("+{self}")
    }

    /// The design that it is round in `design`.
    pub fn inside(self, design: &Design) -> Option<&'static Design> {
        named(design.name.strip_suffix(&self.suffix())?)
    }

    /// The designs that it can be round, here or in the laboratory.
    fn designs(self) -> String {
        let names = all().map(|design| design.name).chain(LABORATORY);
        let mut guarded: Vec<_> = names.filter_map(|name| name.strip_suffix(&self.suffix())).collect();
        guarded.dedup();
        guarded.join(", ")
    }
}

impl fmt::Display for Guard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Guard::Checksum => "checksum",
            Guard::Bloom => "bloom",
        })
    }
}

impl FromStr for Guard {
    type Err = String;
    fn from_str(text: &str) -> Result<Guard, String> {
        let all = Guard::ALL.map(|guard| guard.to_string());
        let known = Guard::ALL.into_iter().find(|guard| guard.to_string() == text);
        known.ok_or_else(|| format!("nothing called `{text}` tells aliens: use {}", all.join(" or ")))
    }
}

impl Design {
    /// This design with `guard` round it, if it has one already: itself.
    /// # Errors
    /// [`GuardError`]: it is of no use round this design.
    pub fn guarded(&'static self, guard: Guard) -> Result<&'static Design, GuardError> {
        if self.name.ends_with(&guard.suffix()) {
            return Ok(self);
        }
        let with = named(&format!("{}{}", self.name, guard.suffix()));
        with.ok_or_else(|| GuardError { design: self.name, guard, designs: guard.designs() })
    }

    /// The design to take for a wanted false-positive rate: this one, or, if it gives alien names any action, this one
    /// with checksums.
    pub fn recognising(&'static self) -> &'static Design {
        self.guarded(Guard::Checksum).unwrap_or(self)
    }
}

/// A design that gains nothing from a guard, or that this program does not have with it.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{}", self.text())]
pub struct GuardError {
    /// The design.
    pub design: &'static str,
    /// The guard.
    pub guard: Guard,
    /// The designs that can have it.
    pub designs: String,
}

impl GuardError {
    fn guarded(&self) -> String {
        format!("{}{}", self.design, self.guard.suffix())
    }

    /// Whether `fibula-lab` has the design with this guard.
    pub fn is_in_laboratory(&self) -> bool {
        is_elsewhere(&self.guarded())
    }

    fn text(&self) -> String {
        if self.is_in_laboratory() {
            return where_it_is(&self.guarded());
        }
        let Self { design, guard, designs } = self;
        format!(
            "`{design}` with `{guard}` against aliens is not a design: leave that out if `{design}` drops aliens itself, or take one of {designs}"
        )
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Aliens, CFW, CONCISE, CONCISE_CHECKSUM, CUCKOO, DESIGNS, LINE, Spec};
    use super::*;
    use crate::name::NameKind;
    use lookup::hash::{Family, SecretKey};

    #[test]
    fn every_design_that_gives_aliens_any_action_can_have_checksums_and_no_other() {
        for &design in DESIGNS {
            let spec = Spec::new(design, NameKind::Mac, Family::Wy, SecretKey::from_seed(1), 8, 1000);
            let is_arbitrary = spec.aliens() == Aliens::Arbitrary;
            let has = design.name.ends_with("+checksum");
            assert_eq!(design.guarded(Guard::Checksum).is_ok(), is_arbitrary || has, "{design}");
            assert_eq!(design.recognising() == design, !is_arbitrary, "{design}");
        }
        assert_eq!(CONCISE.guarded(Guard::Checksum), Ok(&CONCISE_CHECKSUM));
        assert_eq!(CONCISE_CHECKSUM.guarded(Guard::Checksum), Ok(&CONCISE_CHECKSUM));
        assert_eq!(LINE.recognising().name, "line+checksum");
        let error = CFW.guarded(Guard::Checksum).unwrap_err().to_string();
        assert!(error.contains("`cfw`") && error.contains("take one of concise, line, "), "{error}");
        assert!("sum".parse::<Guard>().unwrap_err().contains("use checksum or bloom"));
        let error = CFW.guarded(Guard::Bloom).unwrap_err();
        assert!(error.is_in_laboratory() && error.to_string().starts_with("design `cfw+bloom` is in the laboratory"));
        assert!(CUCKOO.guarded(Guard::Bloom).unwrap_err().to_string().contains("`cuckoo`"));
    }
}
