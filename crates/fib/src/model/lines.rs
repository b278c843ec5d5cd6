//! Cache lines that a read of a number of bits touches.
//!
//! Cells, slots and buckets are adjacent without gaps, the first at the start of a line, each read equally often. A
//! cell of `len` bits then starts at a multiple of `gcd(len, l_c)` bits of its line, at each of them equally often.
//! `docs/derivations/model.md` has the sums.

/// Greatest common divisor; the papers' `l_g` is `gcd(l_f + l_p, l_c)`.
pub fn gcd(a: u64, b: u64) -> u64 {
    if b == 0 { a } else { gcd(b, a % b) }
}

/// Lines that one of many adjacent cells of `len` bits touches, on average: `1 + (len - gcd(len, l_c)) / l_c`.
///
/// This is the papers' `C(C_b)` where `len` is a bucket, and the factor of their equation (6) where it is a cell.
pub fn expected_lines(len: u64, l_c: u64) -> f64 {
    expected_prefix_lines(len, len, l_c)
}

/// Lines that the first `prefix` bits of one of many adjacent cells of `len` bits touch, on average: with
/// `g = gcd(len, l_c)`, `1 + (g ceil(prefix / g) - g) / l_c`. This is the papers' `C_m,i` where `prefix` ends with a
/// slot of a bucket.
pub fn expected_prefix_lines(prefix: u64, len: u64, l_c: u64) -> f64 {
    if prefix == 0 {
        return 0.0;
    }
    let g = gcd(len, l_c);
    1.0 + (g * prefix.div_ceil(g) - g) as f64 / l_c as f64
}

/// Lines that one of many adjacent cells of `len` bits touches at most.
pub fn max_lines(len: u64, l_c: u64) -> u64 {
    (l_c - gcd(len, l_c) + len).div_ceil(l_c)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Lines of the prefix of each cell of a whole period, counted bit by bit.
    fn counted(prefix: u64, len: u64, l_c: u64) -> (f64, u64) {
        let n = l_c / gcd(len, l_c);
        let lines = |cell: u64| (cell * len + prefix - 1) / l_c - cell * len / l_c + 1;
        ((0..n).map(lines).sum::<u64>() as f64 / n as f64, (0..n).map(lines).max().unwrap())
    }

    #[test]
    fn closed_forms_are_the_counts_over_a_period() {
        for l_c in [64, 256, 512] {
            for len in (1u64..200).chain([544, 1536, 1664, 4099]) {
                for prefix in [1, len.div_ceil(4), len.div_ceil(2), len] {
                    let (mean, most) = counted(prefix, len, l_c);
                    let computed = expected_prefix_lines(prefix, len, l_c);
                    assert!((computed - mean).abs() < 1e-9, "{prefix} of {len} in {l_c}: {computed}, {mean} counted");
                    assert!(prefix != len || max_lines(len, l_c) == most);
                }
            }
        }
    }
}
