//! The lines of the designs' figures beside those that lookups of built tables read.

use std::collections::BTreeSet;

use fibula_fib::model::demand::Demand;
use fibula_fib::model::designs;
use fibula_fib::name::NameKind;
use lookup::base::arena::LINE;
use lookup::base::touches::{Region, Touches};
use lookup::hash::{Digest, SecretKey};
use lookup::line::{self, LineSkeleton, Trade};
use lookup::othello::{self, Graph, Sharded};
use lookup::testkit::Rng;
use lookup::traits::{SettingsOf, Single, Skeleton};

use super::{names, seed};

const N_NAMES: usize = 60_000;

/// The mean number of lines of its words that a lookup of a name reads.
fn read_lines<S: Skeleton<Key = Digest, Payload = u64>>(settings: SettingsOf<S>, rng: &mut Rng) -> f64
where
    S::Query: Touches,
{
    let digests: Vec<Digest> = names(rng, N_NAMES, 0).0.into_iter().map(Digest).collect();
    let entries: Vec<(Digest, u64)> = digests.iter().map(|&digest| (digest, 1 + digest.0 % 31)).collect();
    let (_, query) = Single::<S>::build(settings, &entries, 1).unwrap();
    let lines = |&key: &Digest| {
        let mut lines = BTreeSet::new();
        query.touches(key, &mut |touch| {
            if touch.region == Region::Words {
                lines.extend(touch.offset / LINE..(touch.offset + touch.bytes).div_ceil(LINE));
            }
        });
        lines.len()
    };
    digests.iter().map(lines).sum::<usize>() as f64 / digests.len() as f64
}

#[test]
fn built_lines_and_othellos_read_as_many_lines_as_computed() {
    let mut rng = Rng::new(seed());
    let key = SecretKey::from_seed(rng.next_u64());
    let trades = [("line", Trade::Balanced), ("line-fast", Trade::Fast), ("line-small", Trade::Small)];
    // Values, or values and checksums, of so many bits in a cell.
    for (value_bits, fp) in [(5, 1.0), (8, 1.0), (11, 1.0), (16, 1.0), (6, 0.01), (6, 1e-4)] {
        let demand = Demand { value_bits, ..Demand::new(NameKind::Mac, N_NAMES as u64, 31, fp) };
        let rows = designs::all(&demand);
        let check = |design: &str, read: &mut dyn FnMut(u8) -> f64| {
            let design = if fp < 1.0 { format!("{design}+checksum") } else { design.to_owned() };
            let row = rows.iter().find(|row| row.design == design).unwrap();
            let cell = (value_bits + if fp < 1.0 { row.l_f } else { 0 }) as u8;
            let read = read(cell);
            println!("{design}, cells of {cell} bits: {read:.3} lines read, {:.3} computed", row.lines);
            // Cells of the equations may lie across two lines, built ones do not.
            assert!((read / row.lines - 1.0).abs() < 0.04, "{design}, {cell} bits: {read} of {}", row.lines);
        };
        for (design, trade) in trades {
            check(design, &mut |cell| {
                let settings = line::Settings::new(cell, N_NAMES, &key).with_trade(trade);
                read_lines::<LineSkeleton<u64>>(settings, &mut rng)
            });
        }
        check("concise", &mut |cell| {
            read_lines::<Graph<Sharded, u64>>(othello::Settings::new(cell, N_NAMES, &key), &mut rng)
        });
    }
}
