//! Tables to look up in: the list that `FIBULA_PREFIXES` names, or one that resembles a full table, with lengths in the
//! same proportions and half of the prefixes inside others.

use std::collections::HashSet;
use std::io::Read as _;

use lookup::lpm::Prefix;

use crate::BenchError;
use crate::names::Random;

/// The lines of the prefix list that the environment variable `FIBULA_PREFIXES` names, compressed with gzip or not;
/// `None` if it is not set. Parsers of a line ignore what follows a comma.
/// # Errors
/// [`BenchError::Setting`] if the file cannot be read.
pub fn listed() -> Result<Option<String>, BenchError> {
    let Some(path) = std::env::var_os("FIBULA_PREFIXES") else { return Ok(None) };
    let read = || {
        let bytes = std::fs::read(&path)?;
        let mut text = String::new();
        match bytes.starts_with(&[0x1f, 0x8b]) {
            true => flate2::read::MultiGzDecoder::new(&bytes[..]).read_to_string(&mut text)?,
            false => (&bytes[..]).read_to_string(&mut text)?,
        };
        Ok(text)
    };
    let wrong = |error: std::io::Error| BenchError::Setting(format!("FIBULA_PREFIXES, {}: {error}", path.display()));
    read().map(Some).map_err(wrong)
}

/// Prefixes of each length from 8 to 32 in a full IPv4 table of 901,899 prefixes.
const OF_LENGTH: [u64; 25] = [
    16, 13, 38, 103, 299, 581, 1203, 2100, 13_490, 8235, 13_798, 24_870, 42_611, 50_750, 108_623, 96_510, 537_698, 20,
    3, 11, 18, 17, 3, 3, 886,
];

/// `n` distinct prefixes, fewer if a length has no more; shorter ones first.
pub fn generate(n: usize, seed: u64) -> Vec<Prefix<u32>> {
    let total: u64 = OF_LENGTH.iter().sum();
    let mut random = Random::new(seed ^ 0x7072_6566);
    let mut prefixes: Vec<Prefix<u32>> = Vec::with_capacity(n);
    let mut known = HashSet::new();
    let mut end = 0;
    for (len, share) in (8u8..).zip(OF_LENGTH) {
        end += share;
        let until = (n as u64 * end / total) as usize;
        let n_shorter = prefixes.len() as u64;
        // Bounded, because there are only 256 prefixes of 8 bits.
        for _ in 0..4 * (until - prefixes.len()) {
            if prefixes.len() == until {
                break;
            }
            let any = (random.next_u64() as u32 % (223 << 24)).saturating_add(1 << 24);
            let address = match random.below(2) {
                0 if n_shorter > 0 => {
                    let wider = prefixes[random.below(n_shorter) as usize];
                    wider.address() | (any & (wider.address() ^ wider.last()))
                }
                _ => any,
            };
            let prefix = Prefix::of(address, len);
            if known.insert(prefix) {
                prefixes.push(prefix);
            }
        }
    }
    prefixes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_are_in_the_proportions_of_a_full_table() {
        let prefixes = generate(100_000, 1);
        assert!((99_900..=100_000).contains(&prefixes.len()), "{}", prefixes.len());
        let of_24 = prefixes.iter().filter(|prefix| prefix.len() == 24).count();
        assert!((59_000..60_200).contains(&of_24), "{of_24}");
        let distinct: HashSet<_> = prefixes.iter().collect();
        assert_eq!(distinct.len(), prefixes.len());
        let short: HashSet<_> = prefixes.iter().filter(|prefix| prefix.len() < 24).collect();
        let is_nested =
            |prefix: &&Prefix<u32>| (8..prefix.len()).any(|len| short.contains(&Prefix::of(prefix.address(), len)));
        assert!(prefixes.iter().filter(is_nested).count() > 40_000);
    }
}
