//! Parts of sentences that several programs use.

/// A number of things: `1 switch`, `3 switches`.
pub fn counted(n: u64, one: &str, many: &str) -> String {
    format!("{n} {}", if n == 1 { one } else { many })
}

#[cfg(test)]
mod tests {
    #[test]
    fn one_thing_is_no_plural() {
        let said = [0, 1, 2].map(|n| super::counted(n, "switch", "switches"));
        assert_eq!(said, ["0 switches", "1 switch", "2 switches"]);
    }
}
