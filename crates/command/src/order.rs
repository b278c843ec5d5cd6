//! Natural order of names: `s2` before `s10`.

use std::cmp::Ordering;

/// Compares texts piece by piece: digits by the number that they are, everything else by its characters. Texts that are equal so,
/// such as `s1` and `s01`, are in the order of their bytes.
pub fn natural(a: &str, b: &str) -> Ordering {
    let (mut rest_a, mut rest_b) = (a, b);
    loop {
        if rest_a.is_empty() || rest_b.is_empty() {
            return rest_a.len().cmp(&rest_b.len()).then_with(|| a.cmp(b));
        }
        let (piece_a, piece_b) = (piece(rest_a), piece(rest_b));
        let is_number = |piece: &str| piece.starts_with(|c: char| c.is_ascii_digit());
        let order = match (is_number(piece_a), is_number(piece_b)) {
            (true, true) => {
                let [a, b] = [piece_a, piece_b].map(|piece| piece.trim_start_matches('0'));
                a.len().cmp(&b.len()).then_with(|| a.cmp(b))
            }
            _ => piece_a.cmp(piece_b),
        };
        if order != Ordering::Equal {
            return order;
        }
        (rest_a, rest_b) = (&rest_a[piece_a.len()..], &rest_b[piece_b.len()..]);
    }
}

/// The digits that a text begins with, or what is before its first digit.
fn piece(text: &str) -> &str {
    let is_number = text.starts_with(|c: char| c.is_ascii_digit());
    let end = text.find(|c: char| c.is_ascii_digit() != is_number).unwrap_or(text.len());
    &text[..end]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_in_names_count_as_numbers() {
        let sorted = ["", "7", "10", "leaf", "s1", "s01", "s1:3", "s1:20", "s2", "s3", "s10", "s10a", "spine", "ü1"];
        let mut names = sorted;
        names.reverse();
        names.sort_by(|a, b| natural(a, b));
        let mut expected = sorted;
        expected.sort_by(|a, b| natural(a, b));
        assert_eq!(names, expected, "it is an order");
        for pair in
            ["s2 s10", "s1:3 s1:20", "s1 s2", "s1 s1:3", "7 10", "s10 s10a", "s10 s99999999999999999999", "leaf s1"]
        {
            let (less, more) = pair.split_once(' ').unwrap();
            assert_eq!((natural(less, more), natural(more, less)), (Ordering::Less, Ordering::Greater), "{pair}");
        }
        assert_eq!(natural("s1", "s1"), Ordering::Equal);
        assert_ne!(natural("s1", "s01"), Ordering::Equal);
    }
}
