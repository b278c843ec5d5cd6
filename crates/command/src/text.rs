//! Reads text input in lines of bounded length. Input that is not text, or has an endless line, is refused before it
//! fills the memory.

use std::io::{self, BufRead, BufReader, Read};

/// Maximum bytes of one line: several times the longest name, quoted.
const MAX_LINE: usize = 64 << 10;

/// A reader that fails on compressed files, on UTF-16, and on lines that are too long.
#[derive(Debug)]
pub struct TextReader<R> {
    inner: R,
    /// Bytes read since the start of the line.
    since: usize,
    at_start: bool,
}

impl<R: Read> TextReader<R> {
    /// Reads text from `inner`.
    pub fn new(inner: R) -> TextReader<R> {
        TextReader { inner, since: 0, at_start: true }
    }

    /// The lines, without line ends and without a leading byte order mark.
    pub fn lines(self) -> impl Iterator<Item = io::Result<String>> {
        let mut reader = BufReader::with_capacity(1 << 18, self);
        let mut is_first = true;
        std::iter::from_fn(move || {
            let mut line = Vec::new();
            match reader.read_until(b'\n', &mut line) {
                Ok(0) => None,
                Ok(_) => {
                    let ends = line.strip_suffix(b"\n").map(|line| line.strip_suffix(b"\r").unwrap_or(line));
                    line.truncate(ends.map_or(line.len(), <[u8]>::len));
                    let mark = std::mem::take(&mut is_first) && line.starts_with("\u{feff}".as_bytes());
                    line.drain(..if mark { 3 } else { 0 });
                    Some(String::from_utf8(line).map_err(|_| invalid("this is not UTF-8 text")))
                }
                Err(error) => Some(Err(error)),
            }
        })
    }
}

impl<R: Read> Read for TextReader<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let n = self.inner.read(buffer)?;
        let bytes = &buffer[..n];
        if std::mem::take(&mut self.at_start) {
            match bytes {
                [0x1f, 0x8b, ..] | [b'P', b'K', 3, 4, ..] | [0x28, 0xb5, 0x2f, 0xfd, ..] => {
                    return Err(invalid("this is a compressed file; unpack it first"));
                }
                [0xff, 0xfe, ..] | [0xfe, 0xff, ..] => return Err(invalid("this is UTF-16; save it as UTF-8")),
                _ => {}
            }
        }
        let mut lines = bytes.split(|&byte| byte == b'\n');
        self.since += lines.next().map_or(0, <[u8]>::len);
        for line in lines {
            self.check()?;
            self.since = line.len();
        }
        self.check()?;
        Ok(n)
    }
}

impl<R> TextReader<R> {
    fn check(&self) -> io::Result<()> {
        if self.since > MAX_LINE {
            return Err(invalid(&format!("a line of more than {MAX_LINE} bytes; is this a text file?")));
        }
        Ok(())
    }
}

fn invalid(why: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, why)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(bytes: &[u8]) -> Vec<Result<String, String>> {
        TextReader::new(bytes).lines().take(5).map(|line| line.map_err(|e| e.to_string())).collect()
    }

    #[test]
    fn line_ends_and_the_mark_of_editors_are_not_part_of_lines() {
        let text = |lines: &[&str]| lines.iter().map(|&line| Ok(line.to_owned())).collect::<Vec<_>>();
        assert_eq!(lines("\u{feff}a\r\n\u{feff}b\n\nc".as_bytes()), text(&["a", "\u{feff}b", "", "c"]));
        let longest = "x".repeat(MAX_LINE);
        assert_eq!(lines(format!("{longest}\n{longest}\n").as_bytes()), text(&[&longest, &longest]));
    }

    #[test]
    fn what_is_no_text_is_refused_with_the_reason() {
        for (bytes, reason) in [
            (&b"\x1f\x8b\x08\x00"[..], "compressed"),
            (b"PK\x03\x04", "compressed"),
            (b"\xff\xfea\0", "UTF-16"),
            (b"a\xffb\n", "UTF-8"),
            (&[b'x'; MAX_LINE + 1], "65536 bytes"),
        ] {
            assert!(lines(bytes)[0].as_ref().unwrap_err().contains(reason), "{reason}");
        }
    }

    #[test]
    fn line_without_an_end_is_refused_in_little_memory() {
        let error = TextReader::new(io::repeat(b'a')).lines().next().unwrap().unwrap_err();
        assert!(error.to_string().contains("65536 bytes"));
    }
}
