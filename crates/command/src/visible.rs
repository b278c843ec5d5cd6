//! Texts from elsewhere on a terminal: names and messages as their characters are, and not as a terminal would obey or hide them.

use std::borrow::Cow;
use std::fmt::Write as _;

/// A text with what a terminal obeys, reverses or does not show written as `\u202e`: control characters, marks of direction, and
/// characters without a width. What can be seen stays as it is.
pub fn visible(text: &str) -> Cow<'_, str> {
    escaped(text, is_unseen)
}

/// As [`visible`], for text of several lines.
pub(crate) fn visible_lines(text: &str) -> Cow<'_, str> {
    escaped(text, |c| c != '\n' && c != '\t' && is_unseen(c))
}

fn escaped(text: &str, is_escaped: impl Fn(char) -> bool) -> Cow<'_, str> {
    if !text.chars().any(&is_escaped) {
        return Cow::Borrowed(text);
    }
    let mut shown = String::with_capacity(text.len() + 8);
    for c in text.chars() {
        if is_escaped(c) {
            let _ = write!(shown, "\\u{:04x}", u32::from(c));
        } else {
            shown.push(c);
        }
    }
    Cow::Owned(shown)
}

/// Unicode's characters of format and control, fillers without ink, and selectors of variants.
fn is_unseen(c: char) -> bool {
    c.is_control()
        || matches!(u32::from(c),
            0x00ad | 0x034f | 0x061c | 0x115f..=0x1160 | 0x17b4..=0x17b5 | 0x180b..=0x180f
            | 0x200b..=0x200f | 0x2028..=0x202e | 0x2060..=0x206f | 0x3164 | 0xfe00..=0xfe0f
            | 0xfeff | 0xffa0 | 0xfff0..=0xfffb | 0x1bca0..=0x1bca3 | 0x1d173..=0x1d17a | 0xe0000..=0xe0fff)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_terminal_obeys_or_hides_is_written_out_and_the_rest_stays() {
        for plain in ["02:00:00:00:00:01", "größer → 東京", "a b", ""] {
            assert!(matches!(visible(plain), Cow::Borrowed(text) if text == plain));
        }
        assert_eq!(visible("a\u{202e}b\u{200b}c"), "a\\u202eb\\u200bc");
        assert_eq!(visible("\u{1b}[2J\n\u{9b}\u{feff}\u{2066}"), "\\u001b[2J\\u000a\\u009b\\ufeff\\u2066");
        assert_eq!(visible("x\u{e0001}"), "x\\ue0001");
        assert_eq!(visible_lines("a\n\tb\u{1b}"), "a\n\tb\\u001b");
    }
}
