//! Computes bits and hash functions of each port, and the resulting false positives.
//!
//! The derivations are in `docs/derivations/bloom-forwarders.md`. With n names, m bits and k functions a filter's rate is
//! ```text
//! f(m) = min over k <= k_max of (1 - e^(-k n / m))^k      = e^(-(m/n) ln^2 2)  while m/n <= k_max / ln 2
//! ```
//! which is convex in m. So the weighted sum of rates in a given memory is least when all slopes are equal:
//! `w_i f'(m_i) = -lambda` for all ports. The rates of the final sizes, with whole k, are those of
//! [`Shape::expected_fp`](crate::bloom::Shape::expected_fp).

use std::f64::consts::LN_2;

use crate::bloom::MAX_HASHES;

/// The k_max that BUFFALO recommends.
pub const K_MAX: u8 = 8;
/// Bits of the smallest filter.
pub const MIN_BITS: u64 = 64;
/// Bits of the largest filter: in a larger one positions would not be uniform.
pub const MAX_BITS: u64 = 1 << 30;
/// Halvings of an interval of logarithms: down to the last bit of a double.
const HALVINGS: u32 = 100;
/// More bits per name than anyone would use.
const MOST_BITS: f64 = 1e4;

/// The demand of one port.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Demand {
    /// Names of the port.
    pub names: u64,
    /// Weight of a false positive of its filter: for example the share of the lookups that reach it.
    pub weight: f64,
}

/// The rate of one filter so that `n_ports` of them have the combined rate `fp` for an alien.
pub fn rate_of_one(fp: f64, n_ports: usize) -> f64 {
    -((-fp).ln_1p() / n_ports.max(1) as f64).exp_m1()
}

/// The probability that an alien matches any of the filters with these rates: equation 7.
pub fn rate_of_all(rates: impl IntoIterator<Item = f64>) -> f64 {
    -rates.into_iter().map(|rate| (-rate).ln_1p()).sum::<f64>().exp_m1()
}

/// The fewest functions with which `n_ports` half-full filters have a combined rate of at most `fp`.
pub fn hashes_for_false_positives(fp: f64, n_ports: usize) -> u8 {
    (-rate_of_one(fp, n_ports).log2()).ceil().clamp(1.0, MAX_HASHES.into()) as u8
}

/// The collision rate of valid names by equation 7, as published, of `n_ports` half-full filters with `hashes`
/// functions: `(1 - (1 - 2^-l)^d) / d`.
///
/// It counts the first false match at each port as if that port were the name's own. A lookup that stops at the first
/// match is wrong at a rate of about `(d - 1) / 2` times `2^-l`: see [`expected_exceptions`].
pub fn published_collision_rate(hashes: u8, n_ports: usize) -> f64 {
    let rate = 0.5f64.powi(hashes.into());
    rate_of_all(std::iter::repeat_n(rate, n_ports)) / n_ports as f64
}

/// The fewest functions with which [`published_collision_rate`] is at most `rate`.
pub fn hashes_for_collision_rate(rate: f64, n_ports: usize) -> u8 {
    let most = MAX_HASHES as u8;
    (1..most).find(|&hashes| published_collision_rate(hashes, n_ports) <= rate).unwrap_or(most)
}

/// Bits of a filter that is half full with `names` names and `hashes` functions: `m = l n / ln 2`.
pub fn half_full_bits(names: u64, hashes: u8) -> u64 {
    (f64::from(hashes) * names as f64 / LN_2).ceil() as u64
}

/// The rate of a filter with this many bits per name and the best (possibly fractional) `k` up to `k_max`.
pub fn rate(bits_a_name: f64, k_max: u8) -> f64 {
    let k = f64::from(k_max);
    if bits_a_name * LN_2 <= k { (-bits_a_name * LN_2 * LN_2).exp() } else { (-(-k / bits_a_name).exp_m1()).powf(k) }
}

/// The bits per name at which [`rate`] is `rate`.
pub fn bits_a_name(rate: f64, k_max: u8) -> f64 {
    let (k, free) = (f64::from(k_max), -rate.ln() / (LN_2 * LN_2));
    if free * LN_2 <= k { free } else { k / -(-rate.powf(1.0 / k)).ln_1p() }
}

/// The negated derivative of [`rate`]: falls with the bits, from `ln^2 2`.
fn slope(bits_a_name: f64, k_max: u8) -> f64 {
    let k = f64::from(k_max);
    if bits_a_name * LN_2 <= k {
        return LN_2 * LN_2 * rate(bits_a_name, k_max);
    }
    let zero = (-k / bits_a_name).exp();
    (k / bits_a_name).powi(2) * zero * (1.0 - zero).powf(k - 1.0)
}

/// The bits per name at which [`slope`] is `wanted`; 0 if it is never that steep.
fn bits_of_slope(wanted: f64, k_max: u8) -> f64 {
    let free = -(wanted / (LN_2 * LN_2)).ln() / (LN_2 * LN_2);
    let knee = f64::from(k_max) / LN_2;
    if free <= knee {
        return free.max(0.0);
    }
    let (mut low, mut high) = (knee, MOST_BITS);
    for _ in 0..HALVINGS {
        let middle = (low * high).sqrt();
        if slope(middle, k_max) > wanted { low = middle } else { high = middle }
    }
    low
}

/// Shares `total_bits` among ports so that the weighted sum of their false-positive rates is least, with at most `k_max`
/// functions a filter: the optimisation that BUFFALO publishes, solved by its Lagrange multiplier.
///
/// Ports of equal names and weight get equal shares; a port with more names gets more bits, but fewer per name. Each
/// filter gets [`MIN_BITS`] to [`MAX_BITS`], so the sum may be off by as much. Cost: 10^4 operations per port, or one
/// where all are alike.
pub fn share_bits(demands: &[Demand], total_bits: u64, k_max: u8) -> Vec<u64> {
    let clamped = |bits: f64| (bits as u64).clamp(MIN_BITS, MAX_BITS);
    let n_names: u64 = demands.iter().map(|demand| demand.names).sum();
    let used = |demand: &&Demand| demand.names > 0 && demand.weight > 0.0;
    let mut some = demands.iter().filter(used);
    let first = some.next().copied();
    if first.is_none() || some.all(|&demand| Some(demand) == first) {
        let bits_a_name = total_bits as f64 / n_names.max(1) as f64;
        return demands.iter().map(|demand| clamped(demand.names as f64 * bits_a_name)).collect();
    }
    let bits = |demand: &Demand, lambda: f64| {
        let names = demand.names as f64;
        if used(&demand) { names * bits_of_slope(lambda * names / demand.weight, k_max) } else { 0.0 }
    };
    let sum = |lambda: f64| demands.iter().map(|demand| bits(demand, lambda)).sum::<f64>();
    // The sum falls with lambda, from far too many bits to none.
    let (mut low, mut high) = (1e-300f64.ln(), 1e30f64.ln());
    for _ in 0..HALVINGS {
        let middle = (low + high) / 2.0;
        if sum(middle.exp()) > total_bits as f64 { low = middle } else { high = middle }
    }
    demands.iter().map(|demand| clamped(bits(demand, high.exp()))).collect()
}

/// The expected number of exceptions: names that match a filter before their own. `ports` has names and rate of each
/// port in lookup order; `n_drop` names have no port.
pub fn expected_exceptions(ports: impl IntoIterator<Item = (u64, f64)>, n_drop: u64) -> f64 {
    let (mut sum, mut ln_none) = (0.0, 0.0f64);
    for (names, rate) in ports {
        sum -= names as f64 * ln_none.exp_m1();
        ln_none += (-rate).ln_1p();
    }
    sum - n_drop as f64 * ln_none.exp_m1()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Memory of BUFFALO in table II of the Othello paper, from names and actions only.
    #[test]
    fn the_published_memory_of_buffalo_comes_out() {
        for (names, ports, mib) in
            [(700_000u64, 16, 2.64), (5_000_000, 256, 27.70), (1_000_000, 16, 3.77), (2_000_000, 256, 11.08)]
        {
            let bits = names as f64 * bits_a_name(rate_of_one(1e-4, ports), K_MAX);
            let got = bits / 8.0 / 1024.0 / 1024.0;
            assert!((got / mib - 1.0).abs() < 0.005, "{names} names, {ports} ports: {got} MiB, {mib} published");
        }
    }

    #[test]
    fn rates_and_bits_are_inverse_and_slopes_are_derivatives() {
        for k_max in [1, 4, 8, 20] {
            for bits in [0.5, 3.0, 9.6, 11.5, 12.0, 31.6, 100.0] {
                let f = rate(bits, k_max);
                assert!((bits_a_name(f, k_max) / bits - 1.0).abs() < 1e-9, "{k_max}, {bits}");
                let step = bits * 1e-5;
                let derivative = (rate(bits + step, k_max) - rate(bits - step, k_max)) / (2.0 * step);
                assert!((slope(bits, k_max) / -derivative - 1.0).abs() < 1e-4, "{k_max}, {bits}");
                assert!((bits_of_slope(slope(bits, k_max), k_max) / bits - 1.0).abs() < 1e-6, "{k_max}, {bits}");
            }
        }
    }

    #[test]
    fn no_other_shares_of_the_memory_have_fewer_false_positives() {
        let demand = |&(names, weight)| Demand { names, weight };
        let ports = [(1_000, 1.0), (30_000, 1.0), (30_000, 5.0), (500_000, 1.0), (200, 0.1)];
        let demands: Vec<Demand> = ports.iter().map(demand).collect();
        let n_names: u64 = demands.iter().map(|demand| demand.names).sum();
        for (per_name, k_max) in [(6, 8), (12, 8), (30, 8), (30, 20), (5, 3)] {
            let total = n_names * per_name;
            let bits = share_bits(&demands, total, k_max);
            assert!(bits.iter().sum::<u64>().abs_diff(total) <= 100, "{bits:?} of {total}");
            let cost = |bits: &[u64]| -> f64 {
                let one =
                    |(demand, &bits): (&Demand, &u64)| demand.weight * rate(bits as f64 / demand.names as f64, k_max);
                demands.iter().zip(bits).map(one).sum()
            };
            let best = cost(&bits);
            let even: Vec<u64> = demands.iter().map(|demand| demand.names * per_name).collect();
            assert!(best < cost(&even));
            for (from, to) in (0..5).flat_map(|from| (0..5).map(move |to| (from, to))).filter(|(from, to)| from != to) {
                for share in [200, 20] {
                    let moved = bits[from] / share;
                    if bits[from] - moved < MIN_BITS {
                        continue;
                    }
                    let mut other = bits.clone();
                    (other[from], other[to]) = (other[from] - moved, other[to] + moved);
                    assert!(cost(&other) > best * (1.0 - 1e-9), "{per_name}, {k_max}: {moved} from {from} to {to}");
                }
            }
        }
    }

    #[test]
    fn ports_that_are_alike_get_equal_shares_and_empty_ones_the_least() {
        let demand = |names| Demand { names, weight: 1.0 };
        assert_eq!(share_bits(&[1000, 0, 1000].map(demand), 20_000, 8), [10_000, MIN_BITS, 10_000]);
        let bits = share_bits(&[1000, 1000, 4000].map(demand), 60_000, 8);
        assert!(bits[0] == bits[1] && bits[2] > bits[0] && bits[2] / 4 < bits[0], "{bits:?}");
        assert_eq!(share_bits(&[0, 0].map(demand), 60_000, 8), [MIN_BITS; 2]);
        assert!(share_bits(&[], 10, 8).is_empty());
    }

    #[test]
    fn functions_for_a_rate_are_the_fewest() {
        // The paper's configuration: d = 32, collision rate 1 %.
        assert_eq!(hashes_for_collision_rate(0.01, 32), 7);
        assert!(published_collision_rate(6, 32) > 0.01);
        // All 32 half-full filters together at 1 %: 2^-12 * 32 = 0.8 %.
        assert_eq!(hashes_for_false_positives(0.01, 32), 12);
        assert!((rate_of_all([0.5, 0.5]) - 0.75).abs() < 1e-12);
        assert!((rate_of_all([rate_of_one(0.01, 9); 9]) - 0.01).abs() < 1e-12);
        assert_eq!(half_full_bits(1_000_000, 7), 10_098_866);
    }

    #[test]
    fn expected_exceptions_match_the_closed_form() {
        let (names, rate, ports) = (1000, 0.01, 32);
        let sum = expected_exceptions(std::iter::repeat_n((names, rate), ports), 500);
        let none = (1.0f64 - rate).powi(ports as i32);
        let closed = 32_000.0 * (1.0 - (1.0 - none) / (32.0 * rate)) + 500.0 * (1.0 - none);
        assert!((sum / closed - 1.0).abs() < 1e-9, "{sum} and {closed}");
    }
}
