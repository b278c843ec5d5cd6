//! Which designs this program has: those of this crate, and those that a binary adds at its start.

use super::{
    CFW, CONCISE, CONCISE_CHECKSUM, CUCKOO, Design, LINE, LINE_CHECKSUM, LINE_FAST, LINE_FAST_CHECKSUM, LINE_SMALL,
    LINE_SMALL_CHECKSUM, OFW,
};
use std::str::FromStr;
use std::sync::OnceLock;

/// The designs of this crate, which every program has. Four of them also hold a false-positive rate, with checksums.
pub static DESIGNS: &[&Design] = &[
    &CONCISE,
    &LINE,
    &LINE_FAST,
    &LINE_SMALL,
    &OFW,
    &CFW,
    &CUCKOO,
    &CONCISE_CHECKSUM,
    &LINE_CHECKSUM,
    &LINE_FAST_CHECKSUM,
    &LINE_SMALL_CHECKSUM,
];

/// The designs of the crate `papers`, which `fibula-lab` adds. A program without them can say where they are.
pub static LABORATORY: [&str; 21] = [
    "ogw",
    "bfw",
    "buffalo",
    "summary-cache",
    "bgw",
    "bloomier",
    "setsep",
    "sorted",
    "obf",
    "tss",
    "bloomier+checksum",
    "setsep+checksum",
    "concise+bloom",
    "line+bloom",
    "line-fast+bloom",
    "line-small+bloom",
    "ofw+bloom",
    "cfw+bloom",
    "summary-cache+bloom",
    "bloomier+bloom",
    "setsep+bloom",
];

static ADDED: OnceLock<&'static [&'static Design]> = OnceLock::new();

/// Adds designs to those of this crate, for the whole program. Call it before anything asks for designs; only the first
/// call counts.
pub fn add(designs: &'static [&'static Design]) {
    ADDED.get_or_init(|| designs);
}

/// All designs that this program has.
pub fn all() -> impl Iterator<Item = &'static Design> + Clone {
    DESIGNS.iter().chain(ADDED.get().copied().unwrap_or_default()).copied()
}

/// The names of all designs that this program has, as error messages list them.
pub(super) fn names() -> String {
    all().map(|design| design.name).collect::<Vec<_>>().join(", ")
}

pub(super) fn named(name: &str) -> Option<&'static Design> {
    all().find(|design| design.name == name)
}

/// Whether a design of this name is in the laboratory, and not in this program.
pub(crate) fn is_elsewhere(name: &str) -> bool {
    LABORATORY.contains(&name) && named(name).is_none()
}

/// Says where a design of the laboratory is.
pub(crate) fn where_it_is(name: &str) -> String {
    format!("design `{name}` is in the laboratory: install the package fibula-lab, and run this with fibula-lab")
}

impl Design {
    /// The design of this name.
    /// # Errors
    /// [`UnknownDesign`], which lists the designs.
    pub fn by_name(name: &str) -> Result<&'static Design, UnknownDesign> {
        named(name).ok_or_else(|| UnknownDesign { got: crate::name::clip(name) })
    }
}

impl FromStr for &'static Design {
    type Err = UnknownDesign;
    fn from_str(text: &str) -> Result<Self, UnknownDesign> {
        Design::by_name(text)
    }
}

/// This program has no design of this name.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{}", self.text())]
pub struct UnknownDesign {
    /// The start of the name.
    pub got: String,
}

impl UnknownDesign {
    /// Whether `fibula-lab` has it.
    pub fn is_in_laboratory(&self) -> bool {
        is_elsewhere(&self.got)
    }

    fn text(&self) -> String {
        if self.is_in_laboratory() {
            return format!("{}; or use {}", where_it_is(&self.got), names());
        }
        format!("there is no FIB design `{}`: use {}", self.got, names())
    }
}

#[cfg(test)]
mod tests {
    use super::super::Spec;
    use super::*;
    use crate::messages::{Body, Message, TableHeader, ValueMode};
    use crate::name::NameKind;
    use crate::topology::NodeId;
    use lookup::hash::{Family, SecretKey};

    /// No test of this crate adds designs.
    #[test]
    fn a_design_that_this_program_lacks_is_said_to_be_in_the_laboratory() {
        for name in LABORATORY {
            let error = Design::by_name(name).unwrap_err();
            assert!(error.is_in_laboratory(), "{name}");
            assert!(error.to_string().contains("install the package fibula-lab"), "{error}");
        }
        let error = Design::by_name("none").unwrap_err();
        assert!(
            !error.is_in_laboratory()
                && error.to_string().starts_with("there is no FIB design `none`: use concise, line")
        );
        assert!(DESIGNS.iter().all(|design| Design::by_name(design.name) == Ok(*design)));
    }

    /// As a switch is sent it by a controller that has it.
    #[test]
    fn a_table_of_such_a_design_is_refused_with_where_to_find_it() {
        let spec = Spec::new(&CONCISE, NameKind::Mac, Family::Wy, SecretKey::from_seed(1), 8, 1000);
        let header = TableHeader { table: 1, spec, mode: ValueMode::Port, gateway: true, reset: false };
        let body = Body::Table(header);
        let mut bytes = Message { cluster: 1, term: 1, node: NodeId(1), change: 1, body }.encode();
        let at = bytes.windows(7).position(|window| window == b"concise").unwrap();
        bytes[at..at + 7].copy_from_slice(b"buffalo");
        let error = Message::decode(&bytes).unwrap_err().to_string();
        assert!(error.starts_with("design `buffalo` is in the laboratory: install the package fibula-lab"), "{error}");
        bytes[at..at + 7].copy_from_slice(b"bison!!");
        let error = Message::decode(&bytes).unwrap_err().to_string();
        assert!(error.contains("there is no FIB design `bison!!` in this version"), "{error}");
    }
}
