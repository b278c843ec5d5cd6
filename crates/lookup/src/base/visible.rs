//! Texts from elsewhere in sentences, logs and tables: names and messages as their characters are, and not as a terminal would obey
//! or hide them.
//!
//! It is here because everything that says something of a name is above this crate.

use std::borrow::Cow;
use std::fmt::Write as _;

/// A text with what a terminal obeys, reverses or does not show written as `\u202e`: control characters, marks of direction, and
/// characters without a width. What can be seen stays as it is.
pub fn visible(text: &str) -> Cow<'_, str> {
    escaped(text, is_unseen)
}

/// As [`visible`], for text of several lines.
pub fn visible_lines(text: &str) -> Cow<'_, str> {
    escaped(text, |c| c != '\n' && c != '\t' && is_unseen(c))
}

/// As [`visible`], for a line of a log: control characters, which colours are made of, stay. What makes such lines takes those of
/// others out.
pub fn visible_letters(text: &str) -> Cow<'_, str> {
    escaped(text, |c| !c.is_control() && is_unseen(c))
}

/// As [`visible`], for lines of JSON, which mean what they meant before.
pub fn visible_json(text: &str) -> Cow<'_, str> {
    escaped(text, |c| c != '\n' && is_unseen(c))
}

/// A text as a word of a command that can be copied into a shell: in quotes if it needs them, and with what cannot be seen written
/// out, which bash and zsh read in `$'...'`.
pub fn shell_word(text: &str) -> Cow<'_, str> {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_.:/@%+,=".contains(c);
    if !text.is_empty() && text.chars().all(is_plain) {
        return Cow::Borrowed(text);
    }
    if !text.chars().any(is_unseen) {
        return format!("'{}'", text.replace('\'', "'\\''")).into();
    }
    let mut word = "$'".to_owned();
    for c in text.chars() {
        match c {
            '\'' | '\\' => word.extend(['\\', c]),
            c if is_unseen(c) => _ = write!(word, "\\U{:08x}", u32::from(c)),
            c => word.push(c),
        }
    }
    word.push('\'');
    word.into()
}

fn escaped(text: &str, is_escaped: impl Fn(char) -> bool) -> Cow<'_, str> {
    if !text.chars().any(&is_escaped) {
        return Cow::Borrowed(text);
    }
    let mut shown = String::with_capacity(text.len() + 8);
    for c in text.chars() {
        if is_escaped(c) {
            push_escaped(&mut shown, c);
        } else {
            shown.push(c);
        }
    }
    Cow::Owned(shown)
}

/// As JSON has it: those beyond 16 bits are two.
fn push_escaped(shown: &mut String, c: char) {
    for unit in c.encode_utf16(&mut [0; 2]) {
        // Writing to a string does not fail.
        let _ = write!(shown, "\\u{unit:04x}");
    }
}

/// Unicode's characters of format and control, fillers without ink, and selectors of variants.
pub fn is_unseen(c: char) -> bool {
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
        assert_eq!(visible("x\u{e0001}"), "x\\udb40\\udc01");
        assert_eq!(visible_lines("a\n\tb\u{1b}"), "a\n\tb\\u001b");
        assert_eq!(visible_letters("\u{1b}[1ma\u{202e}b\u{1b}[0m\n"), "\u{1b}[1ma\\u202eb\u{1b}[0m\n");
        assert_eq!(visible_json("{\"a\":\"\u{7f}\u{e0001}\"}\n"), "{\"a\":\"\\u007f\\udb40\\udc01\"}\n");
    }

    #[test]
    fn a_word_of_a_command_is_one_word_of_a_shell_and_can_be_seen() {
        for plain in ["s1", "02:00:00:00:00:01", "/video/a.mp4", "fd00::1"] {
            assert!(matches!(shell_word(plain), Cow::Borrowed(text) if text == plain));
        }
        let words =
            ["", "a b", "it's; rm -rf x", "$(reboot)", "a`id`", "größer", "a\u{202e}'b\\\u{e0001}"].map(shell_word);
        let expected = [
            "''",
            "'a b'",
            "'it'\\''s; rm -rf x'",
            "'$(reboot)'",
            "'a`id`'",
            "'größer'",
            "$'a\\U0000202e\\'b\\\\\\U000e0001'",
        ];
        assert_eq!(words, expected);
        // What a shell makes of each is the text.
        for text in ["", "a b", "it's; x", "$(reboot)", "größer", "a\u{202e}'b\\\u{e0001}", "\u{1b}[2J\n'"] {
            let command = format!("printf %s {}", shell_word(text));
            let Ok(said) = std::process::Command::new("bash").env("LC_ALL", "C.UTF-8").args(["-c", &command]).output()
            else {
                return;
            };
            assert_eq!(String::from_utf8(said.stdout).unwrap(), text, "{command}");
        }
    }
}
