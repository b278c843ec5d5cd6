//! The share of aliens that get an action: as the figures of a design say it, as a table says it of itself, and as it is.

use crate::action::{Action, PortId};
use crate::designs::{Aliens, Design};
use crate::file::{Fib, Widths};
use crate::model::designs::{Demand, of};
use crate::name::{Name, NameKind};
use lookup::hash::Family;
use lookup::testkit::{Rng, seed};

/// As many actions as a FIB of many ports or tunnels has: filters of a design with a filter for each hold few names.
const N_ACTIONS: u32 = 60_000;
/// A name of each action.
const N_NAMES: usize = 60_000;
/// Each may read 60,000 filters.
const N_ALIENS: usize = 2000;
const WANTED: f64 = 0.01;

/// A table of many actions says of itself what is computed, and what aliens get. The words of those `exact` say it exactly.
/// At least `n_least` designs have a rate that could be wrong.
pub fn tables_of_many_actions_say_what_aliens_get(designs: &[&'static Design], exact: &[&str], n_least: usize) {
    let mut rng = Rng::new(seed());
    let name = |number: u64| Name::from_bytes(NameKind::Mac, &number.to_be_bytes()[2..]).unwrap();
    let mut number = || rng.below(1 << 47);
    let entries: Vec<(Name, Action)> = (0..N_NAMES as u32)
        .map(|i| (name(u64::from(i) << 20 | number() & 0xF_FFFF), Action::Port(PortId((i % N_ACTIONS) as u16 + 1))))
        .collect();
    let aliens: Vec<Name> = (0..N_ALIENS).map(|_| name(1 << 47 | number())).collect();
    let aliens: Vec<&Name> = aliens.iter().collect();
    let demand = Demand::new(NameKind::Mac, N_NAMES as u64, N_ACTIONS, WANTED);
    let (mut wrong, mut n_filters) = (Vec::new(), 0);
    for &design in designs {
        let row = of(design, &demand);
        let widths = |rate| Widths { rate, ..Widths::default() };
        let build = |rate| Fib::build_as(design, NameKind::Mac, Family::MulAdd, 1, widths(rate), &entries);
        let Ok(fib) = build(Some(WANTED)).or_else(|_| build(None)) else { panic!("{design} cannot be built") };
        let mut passed = 0;
        fib.lookup_batch(&aliens, |_, action| passed += usize::from(action != Action::Drop));
        let measured = passed as f64 / N_ALIENS as f64;
        let said = match fib.aliens() {
            Aliens::Arbitrary => 1.0,
            Aliens::DroppedBut { rate } => rate,
            Aliens::Dropped => 0.0,
        };
        println!("{design}: {said:.6} said, {:.6} computed, {measured:.6} measured", row.fp);
        n_filters += usize::from((0.001..0.2).contains(&said));
        let error = 5.0 * (said.max(row.fp) / N_ALIENS as f64).sqrt() + 1.0 / N_ALIENS as f64;
        // What is computed is for names that chance distributes, so that some filters are fuller than here.
        let is_less = row.fp > 2.0 * said + error && !design.tries_values;
        // Some aliens get the value of drop where they get any.
        if said < 1.0 && (measured > said + error || said > 2.0 * row.fp + error || is_less) {
            wrong.push(format!("{design}: {said:.6} said, {:.6} computed, {measured:.6} measured", row.fp));
        }
        // The words of filters say exactly what they let pass.
        if exact.contains(&design.name) && (measured - said).abs() > error {
            wrong.push(format!("{design}: {said:.6} said, {measured:.6} measured"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(n_filters >= n_least, "{n_filters} designs have a rate that could be wrong");
}
