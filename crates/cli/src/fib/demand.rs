//! The demand that `fibula fib compare` and `fibula fib advise` compute with.

use clap::Args;
use command::output::{Exit, Failure};
use command::parse_size;
use fib::model::designs::Demand;
use fib::name::NameKind;

/// Maximum number of names: beyond it, 64-bit digests no longer identify names.
const MAX_NAMES: u64 = 1 << 32;

/// The numbers of names and actions, and the share of aliens.
#[derive(Args, Debug)]
pub(crate) struct DemandArgs {
    /// Kind of the names: mac, ipv4, ipv6, 5-tuple, teid, fixed:BYTES, text
    #[arg(long, alias = "names", default_value = "mac")]
    kind: NameKind,
    /// Number of names; K and M are powers of two
    #[arg(short, default_value = "10M", value_parser = parse_size)]
    n: u64,
    /// Number of actions besides drop: ports, neighbours, servers
    #[arg(long, default_value_t = 32, value_parser = clap::value_parser!(u32).range(1..=65_535))]
    actions: u32,
    /// Share of alien names that may get an action; 0 for none
    #[arg(long, default_value_t = 0.01)]
    fp: f64,
    /// Bits of a value [default: as many as drop and the actions need]
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=16))]
    value_bits: Option<u32>,
}

impl DemandArgs {
    /// The demand.
    /// # Errors
    /// Exit code 2 when the rate is not a probability, or the actions do not fit the value bits.
    pub(crate) fn demand(&self) -> anyhow::Result<Demand> {
        if !(0.0..1.0).contains(&self.fp) {
            let text = format!(
                "--fp {} is not a share of names: give a number from 0 (none) to less than 1, such as 0.01",
                self.fp
            );
            return Err(Failure::new(Exit::Usage, text));
        }
        if !(1..=MAX_NAMES).contains(&self.n) {
            let text = format!("-n {}: give a number of names from 1 to {}G", self.n, MAX_NAMES >> 30);
            return Err(Failure::new(Exit::Usage, text));
        }
        let mut demand = Demand::new(self.kind, self.n, self.actions, self.fp);
        if let Some(bits) = self.value_bits {
            if bits < demand.value_bits {
                let needed = demand.value_bits;
                let text = format!("drop and {} actions do not fit values of {bits} bits: give {needed}", self.actions);
                return Err(Failure::new(Exit::Usage, text));
            }
            demand.value_bits = bits;
        }
        Ok(demand)
    }
}

/// The demand as a sentence.
pub(super) fn sentence(demand: &Demand) -> String {
    let aliens = match demand.fp {
        0.0 => "no alien".to_owned(),
        fp => format!("at most {} of the aliens", share(fp)),
    };
    format!(
        "{} names of {} bits ({}), {} actions in values of {} bits; {aliens} may get an action",
        demand.n_names,
        demand.name_bits(),
        demand.kind,
        demand.n_actions,
        demand.value_bits,
    )
}

/// A share in per cent, with two digits.
pub(super) fn share(share: f64) -> String {
    let percent = share * 100.0;
    match percent {
        0.0 => "none".to_owned(),
        100.0 => "all".to_owned(),
        p if p >= 9.95 => format!("{p:.0} %"),
        p if p >= 0.995 => format!("{p:.1} %"),
        p if p >= 0.0995 => format!("{p:.2} %"),
        p if p >= 0.00995 => format!("{p:.3} %"),
        p => format!("{p:.1e} %"),
    }
}

#[cfg(test)]
mod tests {
    use super::share;

    #[test]
    fn shares_have_two_digits() {
        let shares = [0.0, 1.0, 0.334, 0.0999, 0.01, 0.0074, 0.000_64, 3e-7].map(share);
        assert_eq!(shares, ["none", "all", "33 %", "10 %", "1.0 %", "0.74 %", "0.064 %", "3.0e-5 %"]);
    }
}
