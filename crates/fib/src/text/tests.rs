use super::*;
use flate2::Compression;
use flate2::write::GzEncoder;
use std::io::Write;

fn read(bytes: &[u8]) -> Vec<Result<String, String>> {
    Lines::new(bytes).take(5).map(|line| line.map(|line| line.text).map_err(|e| e.to_string())).collect()
}

fn packed(text: &[u8]) -> [Vec<u8>; 2] {
    let mut gzip = GzEncoder::new(Vec::new(), Compression::fast());
    gzip.write_all(text).unwrap();
    let mut bzip2 = bzip2::write::BzEncoder::new(Vec::new(), bzip2::Compression::fast());
    bzip2.write_all(text).unwrap();
    [gzip.finish().unwrap(), bzip2.finish().unwrap()]
}

#[test]
fn line_ends_and_the_mark_of_editors_are_not_part_of_lines() {
    let text = |lines: &[&str]| lines.iter().map(|&line| Ok(line.to_owned())).collect::<Vec<_>>();
    assert_eq!(read("\u{feff}a\r\n\u{feff}b\n\nc".as_bytes()), text(&["a", "\u{feff}b", "", "c"]));
    assert_eq!(read(b"a\rb\r\r\nc\n"), text(&["a", "b", "", "c"]));
    let longest = "x".repeat(MAX_LINE);
    assert_eq!(read(format!("{longest}\n{longest}\n").as_bytes()), text(&[&longest, &longest]));
}

#[test]
fn packed_text_is_read_as_it_was() {
    let text = b"\xef\xbb\xbfa\r\nb\n";
    for mut packed in packed(text) {
        assert_eq!(read(&packed), read(text));
        // Several files behind each other, as parallel packers write them.
        let twice = [&packed[..], &packed].concat();
        assert_eq!(read(&twice).len(), 4);
        packed.truncate(packed.len() - 5);
        let error = read(&packed).pop().unwrap().unwrap_err();
        assert!(error.contains("too early") || error.contains("damaged"), "{error}");
    }
    // What only begins like a packed file is text.
    assert_eq!(read(b"B\nBZ\n").len(), 2);
    assert_eq!(read(b"BZ"), [Ok("BZ".to_owned())]);
}

#[test]
fn what_is_larger_than_it_may_be_is_refused_and_not_cut() {
    let read = |max| Lines::new(bounded(&b"ab\ncd\n"[..], max)).collect::<Result<Vec<_>, _>>();
    assert_eq!(read(6).unwrap().len(), 2);
    assert!(read(5).unwrap_err().to_string().contains("more than 5 bytes"));
}

#[test]
fn what_is_no_text_is_refused_with_the_reason_and_its_line() {
    for (bytes, reason) in [
        (&b"PK\x03\x04"[..], "line 1: this is a zip archive"),
        (b"\x28\xb5\x2f\xfd", "zstd"),
        (b"\xff\xfea\0", "UTF-16"),
        (b"a\xffb\n", "line 1: this is not UTF-8"),
        (b"a\0b\n", "byte 0"),
        (&[b'x'; MAX_LINE + 1], "65536 bytes"),
    ] {
        let error = read(bytes).remove(0).unwrap_err();
        assert!(error.contains(reason), "{reason}: {error}");
    }
    let error = read(b"a\nb\nc\xff\nd\n");
    assert!(error[2].as_ref().unwrap_err().starts_with("line 3: ") && error[3].is_ok(), "{error:?}");
}

#[test]
fn line_without_an_end_is_refused_in_little_memory() {
    let mut lines = Lines::new(std::io::repeat(b'a'));
    assert!(lines.next().unwrap().unwrap_err().to_string().contains("65536 bytes"));
    assert!(lines.next().is_none());
}

/// Gives one byte a call, and fails when it is asked for more than there is.
struct Typed<'a>(&'a [u8]);

impl Read for Typed<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        let (byte, rest) = self.0.split_first().expect("nothing more is typed yet");
        buffer[0] = *byte;
        self.0 = rest;
        Ok(1)
    }
}

#[test]
fn no_more_is_read_than_the_line_that_is_asked_for() {
    for typed in ["B\n", "7\n", "\u{feff}x\r", "\n"] {
        let line = Lines::new(Typed(typed.as_bytes())).next().unwrap().unwrap();
        assert_eq!(line.text, typed.trim_matches(['\u{feff}', '\r', '\n']));
    }
}

#[test]
fn comments_and_white_space_say_nothing() {
    let plain = |line| Dialect::Plain.content(line);
    for line in ["", " \t", "# a", "  ; a", "// a", "! a", "% a", ",,,", "\u{feff}# a", " , ,", "\u{a0}"] {
        assert_eq!(plain(line), "", "{line:?}");
    }
    assert_eq!(plain("\u{feff} a b,c ,,\t # x, y"), "a b,c");
    assert_eq!(plain("a#b;c ; d"), "a#b;c");
    assert_eq!(plain("\"a # b\",c # d"), "\"a # b\",c");
    let literal = |line| Dialect::Literal.content(line);
    for line in ["# a", " a ,1", "a ; b"] {
        assert_eq!(literal(line), line);
    }
    assert_eq!((literal(" \t"), literal(",,")), ("", ""));
}

#[test]
fn fields_are_those_of_spreadsheets() {
    let plain = |line| Dialect::Plain.fields(line).unwrap();
    assert_eq!(plain("a, \"b,c\" ,\"say \"\"hi\"\"\",, ,"), ["a", "b,c", "say \"hi\""]);
    assert_eq!(plain("a,,b"), ["a", "", "b"]);
    assert_eq!(Dialect::Literal.fields(" a ,b,,").unwrap(), [" a ", "b"]);
    for wrong in ["\"a", "a\"b", "\"a\"b"] {
        assert!(Dialect::Plain.fields(wrong).unwrap_err().contains("written"), "{wrong}");
    }
}

#[test]
fn header_is_the_first_line_that_says_something() {
    const COLUMNS: Columns = &[NAMES, &["action"]];
    let records = |text: &'static str| -> Vec<(u64, String)> {
        let lines = Lines::new(text.as_bytes());
        Records::new(lines, Dialect::Plain, COLUMNS).map(|line| line.map(|l| (l.number, l.text)).unwrap()).collect()
    };
    for header in ["name,action", "\u{feff}# made by hand\n\nName , Action,,", "\"MAC address\",action", "name\taction"]
    {
        let text = format!("{header}\na,1\nname,action\n");
        let n_lines = text.lines().count() as u64;
        let got = records(text.leak());
        let expected = [(n_lines - 1, "a,1".to_owned()), (n_lines, "name,action".to_owned())];
        assert_eq!(got, expected, "{header}");
    }
}
