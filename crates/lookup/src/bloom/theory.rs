//! The formulas of Lu et al., "Low Computational Cost Bloom Filters", numbered and lettered as there.
//!
//! | symbol | is |
//! |---|---|
//! | `m`, `n`, `k` | bits of a filter, names in it, positions per name |
//! | `m_i` | bits of partition i |
//! | `f_s`, `f_o` | false-positive rate of a standard and of a one-hashing filter |
//! | `L`, `L^e` | bits of the word that a name is hashed to, and its effective bits |
//!
//! (11) to (16) test hash functions, and are in the hash laboratory. The *expected* rate of a filter is
//! [`Shape::expected_fp`](super::Shape::expected_fp). It agrees with (7) for one-hashing filters, and is more exact
//! than (1) for standard ones: (1) takes a power of the mean instead of the mean of the power.

/// (1): `(1 - (1 - 1/m)^(n k))^k`.
pub fn f_s(m: u64, n: u64, k: u32) -> f64 {
    hit(m, n as f64 * f64::from(k)).powi(k as i32)
}

/// (1), its approximation: `(1 - e^(-n k / m))^k`.
pub fn f_s_approximate(m: u64, n: u64, k: u32) -> f64 {
    (-(-(n as f64 * f64::from(k)) / m as f64).exp_m1()).powi(k as i32)
}

/// (2): `m/n ln 2`, the number of positions with the fewest false positives.
pub fn k_opt(m: u64, n: u64) -> f64 {
    m as f64 / n as f64 * std::f64::consts::LN_2
}

/// (3): whether the sizes are pairwise relatively prime.
pub fn are_pairwise_prime(m_i: &[u64]) -> bool {
    let common = |mut a: u64, mut b: u64| {
        while b != 0 {
            (a, b) = (b, a % b);
        }
        a
    };
    m_i.iter().enumerate().all(|(i, &one)| m_i[i + 1..].iter().all(|&other| common(one, other) == 1))
}

/// (4): `Pr(E) + Pr(F | not E) (1 - Pr(E))`, with words of `word_bits` = L bits. Where `L^e` does not exist, all bits
/// of a word count as effective.
pub fn f_o_with_words(m_i: &[u64], n: u64, word_bits: u32) -> f64 {
    let bits = effective_bits(m_i, word_bits).unwrap_or(word_bits.into());
    let same_word = pr_same_word(n, bits);
    same_word + f_o(m_i, n) * (1.0 - same_word)
}

/// `L^e = log2(2^L - 2^L % (m_1 ... m_k))`; none where the product is greater than 2^L, which Theorem 1 does not cover.
/// # Panics
/// When `word_bits` is more than 64.
pub fn effective_bits(m_i: &[u64], word_bits: u32) -> Option<f64> {
    assert!(word_bits <= 64, "words of {word_bits} bits");
    let words = 1u128 << word_bits;
    let product = m_i.iter().try_fold(1u128, |product, &size| product.checked_mul(size.into()))?;
    (1..=words).contains(&product).then(|| ((words - words % product) as f64).log2())
}

/// (5): `Pr(E) = 1 - (1 - 2^-L^e)^n`, that an alien's word equals that of one of `n` names; `effective_bits` is `L^e`.
pub fn pr_same_word(n: u64, effective_bits: f64) -> f64 {
    -(n as f64 * (-(-effective_bits).exp2()).ln_1p()).exp_m1()
}

/// (6), (7): `prod (1 - (1 - 1/m_i)^n)`, that each remainder of an alien's word equals that of some name.
pub fn f_o(m_i: &[u64], n: u64) -> f64 {
    m_i.iter().map(|&size| hit(size, n as f64)).product()
}

/// (8): lower and upper bound of `f_o`, from the largest and the smallest partition.
pub fn f_o_bounds(m_i: &[u64], n: u64) -> (f64, f64) {
    let all_like = |size: Option<&u64>| size.map_or(1.0, |&size| hit(size, n as f64).powi(m_i.len() as i32));
    (all_like(m_i.iter().max()), all_like(m_i.iter().min()))
}

/// (9), Theorem 2: `(1 - (prod (1 - 1/m_i))^(n/k))^k`, which `f_o` never exceeds.
pub fn f_o_limit(m_i: &[u64], n: u64) -> f64 {
    let k = m_i.len() as f64;
    let ln_miss: f64 = m_i.iter().map(|&size| (-1.0 / size as f64).ln_1p()).sum();
    (-(ln_miss * n as f64 / k).exp_m1()).powf(k)
}

/// (9), approximated with `e^(-1/m_i)` for `1 - 1/m_i`.
pub fn f_o_limit_approximate(m_i: &[u64], n: u64) -> f64 {
    let k = m_i.len() as f64;
    let exponent: f64 = m_i.iter().map(|&size| n as f64 / size as f64).sum();
    (-(-exponent / k).exp_m1()).powf(k)
}

/// (10): `sum log2 m_i`, the bits that storing the partition sizes takes.
pub fn partition_cost_bits(m_i: &[u64]) -> f64 {
    m_i.iter().map(|&size| (size as f64).log2()).sum()
}

/// (17): `W f + 1`, the expected number of hash probes of a longest-prefix match over `w` prefix lengths, each behind a
/// filter with false-positive rate `f`; with the best k, `f = 2^-k`.
pub fn expected_probes(w: u32, f: f64) -> f64 {
    f64::from(w) * f + 1.0
}

/// `1 - (1 - 1/m)^throws`: that a bit is hit.
fn hit(m: u64, throws: f64) -> f64 {
    if throws == 0.0 { 0.0 } else { -(throws * (-1.0 / m as f64).ln_1p()).exp_m1() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bloom::{OneHashing, Shape, partition_sizes};

    /// Table II: m, f_s, f_o, and their difference in percent, n = 1000.
    const TABLE_II: [(u32, u64, f64, f64, f64); 9] = [
        (3, 10003, 1.7399e-2, 1.7404e-2, 0.026),
        (3, 19993, 2.7054e-3, 2.7058e-3, 0.014),
        (3, 29989, 8.6273e-4, 8.6281e-4, 0.010),
        (3, 39995, 3.7740e-4, 3.7743e-4, 0.007),
        (3, 49991, 1.9761e-4, 1.9762e-4, 0.006),
        (10, 10012, 1.0118e-2, 1.0149e-2, 0.308),
        (10, 19986, 8.9441e-5, 8.9612e-5, 0.192),
        (10, 30034, 3.3187e-6, 3.3238e-6, 0.154),
        (10, 39994, 2.8084e-7, 2.8116e-7, 0.113),
    ];

    #[test]
    fn table_ii_comes_out() {
        for (k, m, standard, one_hashing, percent) in TABLE_II {
            let m_i = partition_sizes(m, k);
            assert_eq!(m_i.iter().sum::<u64>(), m);
            let (f_s, f_o) = (f_s(m, 1000, k), f_o(&m_i, 1000));
            assert!((f_s / standard - 1.0).abs() < 5e-5, "m = {m}: {f_s}, {standard} in the paper");
            assert!((f_o / one_hashing - 1.0).abs() < 5e-5, "m = {m}: {f_o}, {one_hashing} in the paper");
            let difference = (f_o - f_s) / f_s * 100.0;
            assert!((difference - percent).abs() < 1.5e-3, "m = {m}: {difference} %, {percent} in the paper");
            assert_eq!(Shape::<OneHashing>::new(m, k).unwrap().expected_fp(1000), f_o);
        }
    }

    #[test]
    fn bounds_hold_and_approximations_are_near() {
        for (k, m) in [(3, 10_003), (10, 10_012), (32, 50_000), (1, 101)] {
            let m_i = partition_sizes(m, k);
            let m = m_i.iter().sum();
            for n in [1, 100, 1000] {
                let (f_o, (low, high)) = (f_o(&m_i, n), f_o_bounds(&m_i, n));
                assert!(low <= f_o && f_o <= high * 1.000_000_1, "{low} {f_o} {high}");
                assert!(f_o <= f_o_limit(&m_i, n) * 1.000_000_1);
                assert!((f_o_limit_approximate(&m_i, n) / f_o_limit(&m_i, n) - 1.0).abs() < 0.02);
                assert!((f_s_approximate(m, n, k) / f_s(m, n, k) - 1.0).abs() < 0.02);
            }
        }
    }

    #[test]
    fn the_papers_examples_come_out() {
        // "C = 100 when m = 10012, k = 10".
        assert_eq!(partition_cost_bits(&partition_sizes(10_012, 10)).round(), 100.0);
        // "W = 25 ... k = 10 ... E_exp = 1.02".
        assert_eq!((expected_probes(25, 0.5f64.powi(10)) * 100.0).round(), 102.0);
        // 9.4 Mbit for 650K prefixes make k = 10 optimal.
        assert_eq!(k_opt(9_400_000, 650_000).round(), 10.0);
    }

    #[test]
    fn words_count_with_fewer_bits_where_the_product_does_not_divide_their_number() {
        assert!(are_pairwise_prime(&[11, 13, 15]) && !are_pairwise_prime(&[11, 9, 15]) && are_pairwise_prime(&[4]));
        assert_eq!(effective_bits(&[2], 64), Some(64.0));
        let third = effective_bits(&[3, 5, 7], 8).unwrap();
        assert_eq!(third, 210f64.log2());
        // k = 10 partitions of 65,000 bits: their product exceeds all 64-bit words.
        assert_eq!(effective_bits(&partition_sizes(650_000, 10), 64), None);
        assert!((pr_same_word(1000, 32.0) * 2f64.powi(32) / 1000.0 - 1.0).abs() < 1e-6);
        let m_i = partition_sizes(10_003, 3);
        assert!((f_o_with_words(&m_i, 1000, 64) / f_o(&m_i, 1000) - 1.0).abs() < 1e-9);
        assert!(f_o_with_words(&m_i, 1000, 40) > f_o(&m_i, 1000));
    }
}
