//! Lists of names from outside: `name,action` CSV, or one name per line. Every error carries its line number.
//!
//! Cost: one pass; the names read so far are kept (40 bytes each plus their own) so that a duplicate is reported with
//! both its lines.
//!
//! Lines are those of [`text`](crate::text): in lists of [`NameKind::Text`], whose names may be anything, nothing is a comment. In CSV
//! a name with a comma or a quote is written in double quotes, with quotes inside doubled. A first line `name,action`, or one with a
//! word such as `mac` or `address` in a list without actions, is a header.

use crate::action::{Action, ActionError};
use crate::name::{Name, NameError, NameKind, clip};
use crate::text::{Columns, Dialect, Line, LineError, NAMES, Records};
use std::borrow::Cow;
use std::collections::HashMap;

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

/// The format of the lines.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Layout {
    /// `name,action` on every line.
    Csv,
    /// A name on every line, taken literally.
    Plain,
}

/// Columns of lists.
const NAMES_AND_ACTIONS: Columns = &[NAMES, &["action", "actions", "port"]];
const ONLY_NAMES: Columns = &[NAMES];

/// Reads a list line by line. The caller may stop at the first error, or go on and collect them all.
///
/// ```
/// use fibula_fib::{list::{Layout, List}, name::NameKind, text::Lines};
/// let text = "name,action\n02:00:00:00:00:01,3\n\n02:00:00:00:00:02,drop\n";
/// let entries: Result<Vec<_>, _> = List::new(NameKind::Mac, Layout::Csv, Lines::new(text.as_bytes())).collect();
/// assert_eq!(entries.unwrap()[1].line, 4);
/// ```
pub struct List<I> {
    kind: NameKind,
    layout: Layout,
    records: Records<I>,
    seen: HashMap<Name, u64>,
}

impl<I: Iterator<Item = Result<Line, LineError>>> List<I> {
    /// A list of names of one kind.
    pub fn new(kind: NameKind, layout: Layout, lines: I) -> List<I> {
        let columns = match layout {
            Layout::Csv => NAMES_AND_ACTIONS,
            // A text without an action behind it may be a name.
            Layout::Plain if kind == NameKind::Text => &[],
            Layout::Plain => ONLY_NAMES,
        };
        List { kind, layout, records: Records::new(lines, Dialect::of(kind), columns), seen: HashMap::new() }
    }

    fn entry(&mut self, Line { number: line, text }: &Line) -> Result<Entry, ListError> {
        let line = *line;
        let dialect = Dialect::of(self.kind);
        let fields = || dialect.fields(text).map_err(|reason| ListError::Line(LineError { line, reason }));
        let wrong = |got, expected| ListError::Fields { line, got, expected, text: clip(text) };
        let (name, action) = match self.layout {
            Layout::Plain if dialect == Dialect::Literal => (Cow::Borrowed(&text[..]), None),
            Layout::Plain => match &mut fields()?[..] {
                [name] => (std::mem::take(name), None),
                fields => {
                    return Err(wrong(fields.len(), "one (`name`), since the action of all is given beside the list"));
                }
            },
            Layout::Csv => match &mut fields()?[..] {
                [name, action] => {
                    let action = action.parse().map_err(|source| ListError::Action { line, source })?;
                    (std::mem::take(name), Some(action))
                }
                fields => {
                    return Err(wrong(fields.len(), "two (`name,action`); put a name with commas in double quotes"));
                }
            },
        };
        let name = Name::parse(self.kind, &name).map_err(|source| ListError::Name { line, source })?;
        if let Some(first) = self.seen.get(&name) {
            return Err(ListError::Duplicate { line, first: *first, name: clip(&name.to_string()) });
        }
        self.seen.insert(name.clone(), line);
        Ok(Entry { line, name, action })
    }
}

impl<I: Iterator<Item = Result<Line, LineError>>> Iterator for List<I> {
    type Item = Result<Entry, ListError>;
    fn next(&mut self) -> Option<Self::Item> {
        Some(match self.records.next()? {
            Ok(line) => self.entry(&line),
            Err(error) => Err(error.into()),
        })
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
    /// Another number of fields.
    #[error("line {line}: {got} fields in `{text}`, expected {expected}")]
    Fields { line: u64, got: usize, expected: &'static str, text: String },
    /// The name is on an earlier line.
    #[error("line {line}: `{name}` is on line {first} already; remove one of the two")]
    Duplicate { line: u64, first: u64, name: String },
    /// The line could not be read, for example because it is not UTF-8, or its quotes are broken.
    #[error(transparent)]
    Line(#[from] LineError),
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::action::PortId;
    use crate::text::{Lines, quote};
    use proptest::prelude::*;

    fn read(kind: NameKind, layout: Layout, text: &str) -> Vec<Result<Entry, String>> {
        List::new(kind, layout, Lines::new(text.as_bytes())).map(|entry| entry.map_err(|e| e.to_string())).collect()
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
        let last = List::new(NameKind::Ipv4, Layout::Plain, Lines::new(&b"1.1.1.1\n1.1.\xff"[..])).last().unwrap();
        assert_eq!(last.unwrap_err().to_string(), "line 2: this is not UTF-8 text; save it as UTF-8");
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
