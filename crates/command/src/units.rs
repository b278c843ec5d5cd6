//! Numbers for people: three digits and a unit. JSON has them whole.

/// A number of things, or of things in a second: 0.3, 12, 3.42k, 567M.
pub fn short(n: f64) -> String {
    scaled(n, 1000.0, &["", "k", "M", "G", "T"])
}

/// A number of bytes: 12 B, 3.42 KiB, 567 MiB.
pub fn bytes(n: u64) -> String {
    scaled(n as f64, 1024.0, &[" B", " KiB", " MiB", " GiB", " TiB"])
}

fn scaled(n: f64, step: f64, units: &[&str]) -> String {
    let (mut n, mut unit) = (n, 0);
    // What would be rounded up to a thousand has the next unit.
    while n >= 999.5 && unit + 1 < units.len() {
        (n, unit) = (n / step, unit + 1);
    }
    let unit_text = units.get(unit).copied().unwrap_or_default();
    let digits = match n {
        // Whole numbers have no tenths; small rates have.
        n if unit == 0 && (n < 0.05 || n.fract() == 0.0 || n >= 9.95) => format!("{n:.0}"),
        n if unit == 0 => format!("{n:.1}"),
        n if n < 9.995 => format!("{n:.2}"),
        n if n < 99.95 => format!("{n:.1}"),
        n => format!("{n:.0}"),
    };
    format!("{digits}{unit_text}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_three_digits_and_a_unit() {
        let shown = [
            0.0, 0.04, 0.3, 5.0, 9.96, 12.4, 999.4, 999.5, 1234.0, 9_999.0, 12_345.0, 123_456.0, 999_960.0, 2.5e6,
            1.2e10, 1.3e12, 5e15,
        ];
        let shown = shown.map(short);
        assert_eq!(
            shown,
            [
                "0", "0", "0.3", "5", "10", "12", "999", "1.00k", "1.23k", "10.0k", "12.3k", "123k", "1.00M", "2.50M",
                "12.0G", "1.30T", "5000T"
            ]
        );
        assert_eq!(
            [0, 12, 1000, 1204, 1 << 20, 123 << 20, u64::MAX].map(bytes),
            ["0 B", "12 B", "0.98 KiB", "1.18 KiB", "1.00 MiB", "123 MiB", "16777216 TiB"]
        );
    }
}
