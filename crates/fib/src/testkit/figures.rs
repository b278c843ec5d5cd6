//! What designs are computed to cost.

use crate::designs::{self, Design, Spec};
use crate::model::designs::{Demand, all};
use crate::name::NameKind;
use lookup::hash::{Family, SecretKey};

fn demand() -> Demand {
    Demand::new(NameKind::Mac, 10_000_000, 32, 0.01)
}

/// Every design has a row that it can be built with.
pub fn every_design_has_a_row_that_it_can_be_built_with() {
    let names: Vec<_> = all(&demand()).iter().map(|row| row.design).collect();
    assert_eq!(names, designs::all().map(|design| design.name).collect::<Vec<_>>());
    for n_actions in [1, 2, 32, 300, 5000, 65_535] {
        for fp in [0.0, 1e-6, 0.01, 0.5, 0.999] {
            let demand = Demand::new(NameKind::Mac, 1000, n_actions, fp);
            for row in all(&demand) {
                let design = Design::by_name(row.design).unwrap();
                let key = SecretKey::from_seed(1);
                let spec = Spec::new(design, demand.kind, Family::Wy, key, demand.value_bits as u8, 1000);
                assert!(spec.with_fingerprint(row.l_f as u8).is_ok(), "{demand:?}: {row:?}");
            }
        }
    }
}

/// Memory does not depend on the length of names but where a design keeps them.
pub fn memory_does_not_depend_on_the_length_of_names_but(keep_names: &[&str]) {
    let long = Demand { kind: NameKind::Fixed(64), ..demand() };
    for (short, long) in all(&demand()).into_iter().zip(all(&long)) {
        let keeps_names = keep_names.contains(&short.design);
        assert_eq!(short.built_bits < long.built_bits, keeps_names, "{}", short.design);
    }
}

/// The figures of any demand are numbers.
pub fn figures_of_any_demand_are_numbers() {
    let kinds = [NameKind::Mac, NameKind::Ipv6, NameKind::FiveTuple, NameKind::Text, NameKind::Fixed(1)];
    for kind in kinds {
        for n in [0, 1, 1000, 1 << 36] {
            for n_actions in [1, 2, 300, 65_535] {
                for fp in [0.0, 1e-9, 0.01, 0.999] {
                    let demand = Demand::new(kind, n, n_actions, fp);
                    for row in all(&demand) {
                        let numbers = [
                            row.bits,
                            row.built_bits,
                            row.fast_bits,
                            row.lines,
                            row.lines_alien,
                            row.hashes,
                            row.hashes_alien,
                            row.fp,
                            row.cr.unwrap_or(0.0),
                        ];
                        assert!(numbers.iter().all(|x| x.is_finite() && *x >= 0.0), "{demand:?}: {row:?}");
                        assert!(
                            row.bits > 0.0 && row.fp <= 1.0 && row.cr.is_none_or(|cr| cr <= 1.0),
                            "{demand:?}: {row:?}"
                        );
                        assert!(row.fast_bits <= row.bits * 1.000_001);
                    }
                }
            }
        }
    }
}
