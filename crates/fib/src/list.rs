//! Lists of names from outside: `name,action` CSV, or one name per line. Every error carries its line number.
//!
//! Cost: one pass; the names read so far are kept (40 bytes each plus their own) so that a duplicate is reported with
//! both its lines.
//!
//! The CSV is that of RFC 4180 without line breaks inside fields: a name with a comma or a quote is written in double
//! quotes, with quotes inside doubled. A first line `name,action` is a header. Empty lines are skipped, and lines that
//! start with `#` are comments, except in lists of [`NameKind::Text`], whose names may start with `#`.

use crate::action::{Action, ActionError};
use crate::name::{Name, NameError, NameKind, clip};
use std::borrow::Cow;
use std::collections::HashMap;
use std::io;

/// One line of a list.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Entry {
    /// Line number, from 1.
    pub line: u64,
    /// The name.
    pub name: Name,
    /// Its action; `None` in a plain list.
    pub action: Option<Action>,
}

/// What the lines look like.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Layout {
    /// `name,action` on every line.
    Csv,
    /// A name on every line, taken literally.
    Plain,
}

/// Reads a list line by line. The caller may stop at the first error, or go on and collect them all.
///
/// ```
/// use fibula_fib::{list::{Layout, List}, name::NameKind};
/// let text = "name,action\n02:00:00:00:00:01,3\n\n02:00:00:00:00:02,drop\n";
/// let lines = text.lines().map(|line| Ok(line.to_owned()));
/// let entries: Result<Vec<_>, _> = List::new(NameKind::Mac, Layout::Csv, lines).collect();
/// assert_eq!(entries.unwrap()[1].line, 4);
/// ```
pub struct List<I> {
    kind: NameKind,
    layout: Layout,
    lines: I,
    line: u64,
    seen: HashMap<Name, u64>,
}

impl<I: Iterator<Item = io::Result<String>>> List<I> {
    /// A list of names of one kind; `lines` is what `BufRead::lines` returns.
    pub fn new(kind: NameKind, layout: Layout, lines: I) -> List<I> {
        List { kind, layout, lines, line: 0, seen: HashMap::new() }
    }

    fn entry(&mut self, text: &str) -> Result<Option<Entry>, ListError> {
        let line = self.line;
        let text = if line == 1 { text.trim_start_matches('\u{feff}') } else { text };
        let comment = text.starts_with('#') && self.kind != NameKind::Text;
        if text.trim().is_empty() || comment {
            return Ok(None);
        }
        let (name, action) = match self.layout {
            Layout::Plain => (Cow::Borrowed(text), None),
            Layout::Csv => {
                let fields = fields(text).map_err(|why| ListError::Csv { line, got: clip(text), why })?;
                let [name, action] = <[Cow<'_, str>; 2]>::try_from(fields).map_err(|fields| ListError::Fields {
                    line,
                    got: fields.len(),
                    text: clip(text),
                })?;
                let is = |field: &str, word| field.trim().eq_ignore_ascii_case(word);
                if line == 1 && is(&name, "name") && is(&action, "action") {
                    return Ok(None);
                }
                (name, Some(action.parse().map_err(|source| ListError::Action { line, source })?))
            }
        };
        let name = Name::parse(self.kind, &name).map_err(|source| ListError::Name { line, source })?;
        if let Some(first) = self.seen.get(&name) {
            return Err(ListError::Duplicate { line, first: *first, name: clip(&name.to_string()) });
        }
        self.seen.insert(name.clone(), line);
        Ok(Some(Entry { line, name, action }))
    }
}

impl<I: Iterator<Item = io::Result<String>>> Iterator for List<I> {
    type Item = Result<Entry, ListError>;
    fn next(&mut self) -> Option<Self::Item> {
        loop {
            let text = self.lines.next()?;
            self.line += 1;
            let entry = match text {
                Ok(text) => self.entry(text.strip_suffix('\r').unwrap_or(&text)),
                Err(source) => Err(ListError::Read { line: self.line, source }),
            };
            if let Some(item) = entry.transpose() {
                return Some(item);
            }
        }
    }
}

/// One field of a CSV line, quoted where needed. The inverse of what [`List`] reads.
pub fn quote(field: &str) -> Cow<'_, str> {
    // A byte order mark in the beginning of a file is none of a name.
    if field.contains([',', '"']) || field.trim() != field || field.starts_with('\u{feff}') {
        Cow::Owned(format!("\"{}\"", field.replace('"', "\"\"")))
    } else {
        Cow::Borrowed(field)
    }
}

/// The fields of one CSV line.
fn fields(line: &str) -> Result<Vec<Cow<'_, str>>, &'static str> {
    let mut fields = Vec::with_capacity(2);
    let mut rest = line;
    loop {
        let (field, after) = match rest.strip_prefix('"') {
            None => {
                let end = rest.find(',').unwrap_or(rest.len());
                if rest[..end].contains('"') {
                    return Err("a quote inside a field that does not start with one");
                }
                (Cow::Borrowed(&rest[..end]), &rest[end..])
            }
            Some(quoted) => {
                let mut end = 0;
                loop {
                    end += quoted[end..].find('"').ok_or("a quoted field without its closing quote")?;
                    if !quoted[end + 1..].starts_with('"') {
                        break;
                    }
                    end += 2;
                }
                let field = &quoted[..end];
                let field = if field.contains('"') { field.replace("\"\"", "\"").into() } else { Cow::Borrowed(field) };
                (field, &quoted[end + 1..])
            }
        };
        fields.push(field);
        match after.strip_prefix(',') {
            Some(next) => rest = next,
            None if after.is_empty() => return Ok(fields),
            None => return Err("text between a closing quote and the next comma"),
        }
    }
}

/// Why a line was refused.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
#[expect(missing_docs, reason = "the messages say what the fields are")]
pub enum ListError {
    /// The name is invalid.
    #[error("line {line}: {source}")]
    Name { line: u64, source: NameError },
    /// The action is invalid.
    #[error("line {line}: {source}")]
    Action { line: u64, source: ActionError },
    /// Not two fields.
    #[error(
        "line {line}: {got} fields in `{text}`, expected two (`name,action`); put a name with commas in double quotes"
    )]
    Fields { line: u64, got: usize, text: String },
    /// Broken quoting.
    #[error("line {line}: {why} in `{got}`; a name with quotes is written \"like \"\"this\"\"\"")]
    Csv { line: u64, got: String, why: &'static str },
    /// The name is on an earlier line.
    #[error("line {line}: `{name}` is on line {first} already; remove one of the two")]
    Duplicate { line: u64, first: u64, name: String },
    /// The line could not be read, for example because it is not UTF-8.
    #[error("line {line}: {source}")]
    Read { line: u64, source: io::Error },
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::action::PortId;
    use proptest::prelude::*;

    fn read(kind: NameKind, layout: Layout, text: &str) -> Vec<Result<Entry, String>> {
        let lines = text.split('\n').map(|line| Ok(line.to_owned()));
        List::new(kind, layout, lines).map(|entry| entry.map_err(|e| e.to_string())).collect()
    }

    #[test]
    fn csv_with_header_comments_and_windows_line_ends() {
        let text = "\u{feff}name,action\r\n# a comment\r\n02:00:00:00:00:01, port:3 \r\n\r\n02:00:00:00:00:02,drop";
        let entries = read(NameKind::Mac, Layout::Csv, text);
        assert_eq!(entries.len(), 2);
        let first = entries[0].clone().unwrap();
        assert_eq!((first.line, first.action), (3, Some(Action::Port(PortId(3)))));
        assert_eq!(entries[1].clone().unwrap().action, Some(Action::Drop));
    }

    #[test]
    fn text_names_keep_commas_quotes_hashes_and_spaces() {
        let entries = read(NameKind::Text, Layout::Csv, "\"/a,b\",1\n\"say \"\"hi\"\"\",2\n# x,3\n  y ,4");
        let names: Vec<String> = entries.into_iter().map(|e| e.unwrap().name.to_string()).collect();
        assert_eq!(names, ["/a,b", "say \"hi\"", "# x", "  y "]);
        let plain = read(NameKind::Text, Layout::Plain, "/a,b\n\"q\"");
        assert_eq!(plain[0].clone().unwrap().name.to_string(), "/a,b");
        assert_eq!(plain[1].clone().unwrap().action, None);
    }

    #[test]
    fn every_error_names_its_line_and_the_reader_goes_on() {
        let text = "10.0.0.1,1\nbogus,1\n10.0.0.2\n10.0.0.3,99999\n10.0.0.1,2\n\"10.0.0.4,1\n10.0.0.5,1,2\n\"10.0.0.6\"x,1\n10\"0,1\n10.0.0.7,7";
        let entries = read(NameKind::Ipv4, Layout::Csv, text);
        assert_eq!(entries.len(), 10);
        for (i, entry) in entries.iter().enumerate() {
            match i {
                0 | 9 => assert_eq!(entry.as_ref().unwrap().line, i as u64 + 1),
                _ => assert!(entry.as_ref().unwrap_err().starts_with(&format!("line {}: ", i + 1)), "{entry:?}"),
            }
        }
        assert!(entries[4].as_ref().unwrap_err().contains("on line 1 already"));
    }

    #[test]
    fn unreadable_line_is_an_error_with_its_number() {
        let lines = vec![Ok("1.1.1.1".to_owned()), Err(io::Error::new(io::ErrorKind::InvalidData, "not UTF-8"))];
        let last = List::new(NameKind::Ipv4, Layout::Plain, lines.into_iter()).last().unwrap();
        assert_eq!(last.unwrap_err().to_string(), "line 2: not UTF-8");
    }

    proptest! {
        #[test]
        fn quoted_fields_round_trip(name in "[^\\p{Cc}]{1,40}", port in any::<u16>()) {
            // A first line of that text is a header, and a blank one is skipped.
            let text = format!("name,action\n{},{port}", quote(&name));
            let entries = read(NameKind::Text, Layout::Csv, &text);
            prop_assert_eq!(entries.len(), 1);
            let entry = entries[0].clone().unwrap();
            prop_assert_eq!(entry.name.to_string(), name);
            prop_assert_eq!(entry.action, Some(Action::Port(PortId(port))));
        }

        #[test]
        fn arbitrary_lines_never_panic(text in "[\",a1.\\n ]{0,60}") {
            for layout in [Layout::Csv, Layout::Plain] {
                let _ = read(NameKind::Text, layout, &text);
                let _ = read(NameKind::Ipv4, layout, &text);
            }
        }
    }
}
