//! Memory of forwarders, by the model's equations and of tables that are built, with gateways and without.
//!
//! With gateways no alien arrives: OFW needs no fingerprint, CFW takes the fingerprint that makes it smallest, and BFW
//! as many hash functions as keep wrong answers to valid names rare. Without gateways, each is as small as the
//! permitted rate of aliens that get an action allows. Source: "Re-designing Compact-structure based Forwarding for
//! Programmable Networks", V.D.

use fib::designs::{Spec, keys};
use fib::model::bloom::printed;
use fib::model::designs::{Demand, of};
use fib::model::{Bfw, Cfw, Cuckoo, Ofw, Symbols};
use fib::name::{Name, NameKind};
use lookup::hash::{Family, SecretKey};
use serde::Deserialize;

use super::{Method, Progress, Setting};
use crate::BenchError;
use crate::figures::Point;
use crate::names::{NameSet, value_of};

pub(super) const METHODS: &[Method] = &[Method {
    name: "model-memory",
    about: "MB of bfw, bfw-filters, bfw-printed, cfw, ofw, cuckoo by the papers' equations, of the lines as built; with \
            `built`, of tables of any design",
    check: |setting| {
        let parameters = Parameters::of(setting)?;
        setting.contestants().iter().try_for_each(|contestant| parameters.check(contestant))
    },
    run,
    toy: "n = 2000",
}];

/// Maximum hash functions per filter, and maximum bits per fingerprint.
const MOST: u32 = 32;

#[derive(Clone, Copy, Deserialize)]
#[serde(deny_unknown_fields)]
struct Parameters {
    n: u64,
    name_bits: u32,
    /// Bits of a port index: there are 2^this ports.
    port_bits: u32,
    /// Whether gateways admit only valid names.
    gateways: bool,
    /// With gateways: maximum share of valid names that BFW answers wrongly.
    #[serde(default)]
    collisions: f64,
    /// Without gateways: maximum share of aliens that get an action.
    #[serde(default)]
    fp: f64,
    /// Whether tables are built, with MACs (48 bits) or 64-bit names.
    #[serde(default)]
    built: bool,
}

impl Parameters {
    fn of(setting: &Setting) -> Result<Self, BenchError> {
        let parameters: Self = setting.parameters()?;
        let Self { n, name_bits, port_bits, gateways, collisions, fp, built } = parameters;
        let wrong = |text: String| Err(BenchError::Setting(text));
        if n == 0 || n > 1 << 36 || !(1..=15).contains(&port_bits) {
            return wrong(format!(
                "there are {n} names, and a port index has {port_bits} bits; use 1 to 2^36 names, and 1 to 15 bits"
            ));
        }
        if name_bits == 0 || name_bits > 512 || !name_bits.is_multiple_of(8) {
            return wrong(format!("names have {name_bits} bits; use 8 to 64, a multiple of 8"));
        }
        let (share, what) = if gateways { (collisions, "collisions") } else { (fp, "fp") };
        if !(1e-12..1.0).contains(&share) {
            return wrong(format!("{what} is {share}; use more than 0 and less than 1"));
        }
        if built && ![48, 64].contains(&name_bits) {
            return wrong(format!("names have {name_bits} bits, but tables are built with 48 or 64; use one of these"));
        }
        Ok(parameters)
    }

    fn check(&self, contestant: &str) -> Result<(), BenchError> {
        let known = if self.built { crate::design(contestant).is_ok() } else { self.mb(contestant).is_some() };
        let known_ones = if self.built { "the FIB designs" } else { "see the method; bfw-printed with gateways only" };
        let unknown = || BenchError::UnknownContestant { name: contestant.into(), known: known_ones.into() };
        known.then_some(()).ok_or_else(unknown)
    }

    fn symbols(&self) -> Symbols {
        Symbols {
            n_k: self.n as f64,
            d: 1 << self.port_bits,
            l_p: self.port_bits,
            l_k: self.name_bits,
            ..Symbols::default()
        }
    }

    /// The demand of tables that are built, in which value 0 means drop.
    fn demand(&self) -> Demand {
        let kind = match self.name_bits {
            48 => NameKind::Mac,
            bits => NameKind::Fixed((bits / 8) as u8),
        };
        let fp = if self.gateways { 0.5 } else { self.fp };
        Demand { value_bits: self.port_bits, ..Demand::new(kind, self.n, (1 << self.port_bits) - 1, fp) }
    }

    /// The filters with the fewest hash functions that are right often enough.
    fn filters(&self, cr: impl Fn(&Bfw) -> f64) -> Option<Bfw> {
        let half_full = |l| Bfw { s: self.symbols(), l, p: 0.5 };
        let good = |b: &Bfw| if self.gateways { cr(b) <= self.collisions } else { b.fp() <= self.fp };
        (1..=MOST).map(half_full).find(good)
    }

    fn cfw(&self) -> Option<Cfw> {
        let with = |l_f| Cfw { s: self.symbols(), l_f };
        let good = |c: &Cfw| c.e_eta() > 0.0 && (self.gateways || c.fp() <= self.fp);
        (1..=MOST).map(with).filter(good).min_by(|a, b| a.memory().total_cmp(&b.memory()))
    }

    /// Millions of bytes by the equations; `None` where there are none for this contestant.
    fn mb(&self, contestant: &str) -> Option<f64> {
        let bits = match contestant {
            "bfw" => self.filters(Bfw::cr)?.memory(),
            "bfw-filters" => self.filters(Bfw::cr)?.fast_memory(),
            "bfw-printed" if self.gateways => self.filters(printed::cr)?.memory(),
            "cfw" => self.cfw()?.memory(),
            "ofw" if self.gateways => Ofw::unrounded(self.symbols(), 0).memory(),
            "ofw" => {
                let with = |l_f| Ofw::unrounded(self.symbols(), l_f);
                (1..=MOST).map(with).find(|o| o.fp() <= self.fp)?.memory()
            }
            "cuckoo" => Cuckoo { s: self.symbols() }.memory(),
            line if line.starts_with("line") && self.gateways => {
                of(crate::design(line).ok()?, &self.demand()).built_bits
            }
            _ => return None,
        };
        Some(bits / 8e6)
    }
}

fn run(setting: &Setting, progress: &mut dyn Progress) -> Result<Vec<Point>, BenchError> {
    let parameters = Parameters::of(setting)?;
    let mut points = Vec::new();
    for series in &setting.series {
        parameters.check(series.contestant())?;
        let mb = if parameters.built {
            progress.say(&format!("building {} with {} names", series.contestant(), parameters.n));
            build(&parameters, series.contestant(), setting.seed)?
        } else {
            parameters.mb(series.contestant()).unwrap_or(f64::NAN)
        };
        points.push(Point::exact(&series.name, None, mb));
    }
    Ok(points)
}

/// Millions of bytes of a table that is built with the fingerprint that the demand asks for.
fn build(parameters: &Parameters, design: &str, seed: u64) -> Result<f64, BenchError> {
    let refused = |reason: String| BenchError::Build { contestant: design.into(), n: parameters.n, reason };
    let demand = parameters.demand();
    let design = crate::design(design).map_err(|error| refused(error.to_string()))?;
    let row = of(design, &demand);
    let (n, value_bits) = (parameters.n as usize, parameters.port_bits as u8);
    let key = SecretKey::from_seed(seed);
    let spec = Spec::new(design, demand.kind, Family::MulAdd, key, value_bits, n);
    let spec = spec.with_fingerprint(row.l_f as u8).map_err(|error| refused(error.to_string()))?;
    let set = if parameters.name_bits == 48 { NameSet::Mac } else { NameSet::Uniform };
    let numbers = set.generate(n, seed);
    let names = numbers.iter().map(|name| Name::from_bytes(demand.kind, &name.to_le_bytes()[..set.name_len()]));
    let names: Vec<Name> = names.collect::<Result<_, _>>().map_err(|error| refused(error.to_string()))?;
    let keys = keys(&spec.hasher(), names.iter()).into_iter();
    let entries: Vec<_> = keys.zip(&numbers).map(|(key, &name)| (key, value_of(name, value_bits) as u16)).collect();
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let table = spec.build(&entries, threads).map_err(|error| refused(error.to_string()))?;
    Ok(table.size_bits() as f64 / 8e6)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parameters(gateways: bool) -> Parameters {
        let (n, name_bits, port_bits) = (10_000_000, 128, 5);
        Parameters { n, name_bits, port_bits, gateways, collisions: 0.01, fp: 0.01, built: false }
    }

    #[test]
    fn memory_is_that_of_the_equations() {
        let core = parameters(true);
        // 2.33 cells of 5 bits; 11 functions keep the mean of (i - 1) f over 32 ports below 1 %, and counters are 4 bits.
        assert!((core.mb("ofw").unwrap() - 1e7 * 2.33 * 5.0 / 8e6).abs() < 1e-6);
        let filters = 11.0 * 1e7 / std::f64::consts::LN_2 / 8e6;
        assert!((core.mb("bfw-filters").unwrap() - filters).abs() < 1e-6);
        assert!((core.mb("bfw").unwrap() - 5.0 * filters).abs() < 1e-6);
        // The printed equation accepts 7 functions.
        assert!((core.mb("bfw-printed").unwrap() - 5.0 * filters * 7.0 / 11.0).abs() < 1e-6);
        assert!(core.mb("line").is_some() && core.mb("sorted").is_none() && parameters(false).mb("line").is_none());
    }

    #[test]
    fn fewer_aliens_take_more_memory() {
        for contestant in ["bfw", "bfw-filters", "cfw", "ofw"] {
            let mb = |fp| Parameters { fp, ..parameters(false) }.mb(contestant).unwrap();
            assert!(mb(0.01) < mb(0.001) && mb(0.001) < mb(0.0001), "{contestant}");
        }
    }

    #[test]
    fn tables_take_about_what_the_equations_say() {
        // 6 bits and 10 bits fill the 16-bit slots; there are enough names that the minimum table size has no effect.
        let mac = Parameters { n: 1_000_000, name_bits: 48, port_bits: 6, built: true, ..parameters(false) };
        for (design, most) in [("cfw", 1.25), ("cuckoo", 1.4)] {
            let (built, computed) = (build(&mac, design, 1).unwrap(), mac.mb(design).unwrap());
            assert!((0.95..most).contains(&(built / computed)), "{design}: {built} MB, {computed} by the equations");
        }
        assert!(mac.check("tcam").is_err() && parameters(true).check("sorted").is_err());
    }
}
