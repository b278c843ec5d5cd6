//! Texts that people and tools wrote: lists of names, prefixes, rules, routes, hosts and links, and questions. Every reader of such a
//! text reads it through this module, so that all have one dialect:
//!
//! | | |
//! |---|---|
//! | encoding | UTF-8, with a byte order mark or without; gzip and bzip2 are [unpacked](unpacked), told by their first bytes |
//! | ends of lines | `\n`, `\r\n`, `\r` |
//! | comments | a line that begins with one of [`COMMENTS`]; `#` or `;` after white space, to the end of the line |
//! | fields | of RFC 4180: commas between them, quotes round one that has commas or quotes, which are doubled inside; white space round a field and empty fields at the end of a line, as spreadsheets write them, say nothing |
//! | header | the first line that is neither empty nor a comment, if its fields are the names of columns |
//! | addresses | [`address`] |
//!
//! Names of kind [`Text`](crate::name::NameKind::Text) may be anything: in [`Dialect::Literal`] nothing is a comment, and white space
//! belongs to its field. What is wrong is said with the number of its line.
//!
//! Cost: one pass, one allocation for each line. Limits: [`MAX_LINE`].

pub mod address;
mod unpack;

pub use unpack::{bounded, unpacked};

use std::borrow::Cow;
use std::io::{BufRead, BufReader, ErrorKind, Read};

/// Maximum bytes of one line: several times the longest name, quoted.
pub const MAX_LINE: usize = 64 << 10;

/// Signs that begin a line that is a comment.
pub const COMMENTS: [&str; 5] = ["#", ";", "//", "!", "%"];

/// A mark that some editors write at the beginning of a file.
const BYTE_ORDER_MARK: char = '\u{feff}';

/// An error in a line.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {reason}")]
pub struct LineError {
    /// Line number, from 1.
    pub line: u64,
    /// What is wrong, and what to write.
    pub reason: String,
}

/// A line of a text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Line {
    /// Line number, from 1.
    pub number: u64,
    /// Its text, without its end.
    pub text: String,
}

impl Line {
    /// An error about this line.
    pub fn error(&self, reason: impl Into<String>) -> LineError {
        LineError { line: self.number, reason: reason.into() }
    }
}

/// The lines of an input.
///
/// An input that is not text, is packed in an unsupported way, or has an endless line is refused before it fills the memory. After
/// an error the lines behind it may be read, unless they cannot be.
pub struct Lines<'a> {
    input: Input<'a>,
    number: u64,
    after_return: bool,
}

enum Input<'a> {
    /// Nothing was read yet.
    Fresh(Box<dyn Read + 'a>),
    Open(BufReader<Box<dyn Read + 'a>>),
    Ended,
}

impl<'a> Lines<'a> {
    /// The lines of `input`, [unpacked]. Nothing is read before the first line is asked for, and of an interactive input no more than
    /// that line.
    pub fn new(input: impl Read + 'a) -> Self {
        Lines { input: Input::Fresh(Box::new(input)), number: 0, after_return: false }
    }

    fn read(&mut self) -> Result<Option<Vec<u8>>, String> {
        self.input = match std::mem::replace(&mut self.input, Input::Ended) {
            Input::Fresh(input) => {
                Input::Open(BufReader::with_capacity(1 << 18, unpacked(input).map_err(|error| error.to_string())?))
            }
            begun => begun,
        };
        let Input::Open(reader) = &mut self.input else { return Ok(None) };
        let mut line = Vec::new();
        loop {
            let bytes = match reader.fill_buf() {
                Ok(bytes) => bytes,
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                Err(error) => return Err(error.to_string()),
            };
            if bytes.is_empty() {
                return Ok(if line.is_empty() { None } else { Some(line) });
            }
            if std::mem::take(&mut self.after_return) && bytes[0] == b'\n' {
                reader.consume(1);
                continue;
            }
            let end = bytes.iter().position(|byte| matches!(byte, b'\n' | b'\r'));
            let part = &bytes[..end.unwrap_or(bytes.len())];
            if line.len() + part.len() > MAX_LINE {
                return Err(format!("a line of more than {MAX_LINE} bytes; is this a text file?"));
            }
            line.extend_from_slice(part);
            let n_read = part.len();
            if let Some(end) = end {
                self.after_return = bytes[end] == b'\r';
                reader.consume(end + 1);
                return Ok(Some(line));
            }
            reader.consume(n_read);
        }
    }
}

impl Iterator for Lines<'_> {
    type Item = Result<Line, LineError>;

    fn next(&mut self) -> Option<Self::Item> {
        let read = self.read();
        self.number += 1;
        let number = self.number;
        let wrong = |reason: &str| Some(Err(LineError { line: number, reason: reason.to_owned() }));
        match read {
            Ok(None) => None,
            Ok(Some(bytes)) if bytes.contains(&0) => {
                self.input = Input::Ended;
                wrong("this is not text: it has a byte 0")
            }
            Ok(Some(bytes)) => match String::from_utf8(bytes) {
                Ok(text) => {
                    let mark = if number == 1 { text.strip_prefix(BYTE_ORDER_MARK).map(str::to_owned) } else { None };
                    Some(Ok(Line { number, text: mark.unwrap_or(text) }))
                }
                Err(_) => wrong("this is not UTF-8 text; save it as UTF-8"),
            },
            Err(reason) => {
                self.input = Input::Ended;
                wrong(&reason)
            }
        }
    }
}

/// The text of a line, and errors in it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Dialect {
    /// With comments; white space round a field says nothing.
    Plain,
    /// Without comments, and white space belongs to its field.
    Literal,
}

impl Dialect {
    /// The dialect of lists of names of this kind.
    pub fn of(kind: crate::name::NameKind) -> Dialect {
        if kind == crate::name::NameKind::Text { Dialect::Literal } else { Dialect::Plain }
    }

    /// The part of a line that is not a comment, without white space and empty fields at its end; nothing for a line without content.
    pub fn content(self, line: &str) -> &str {
        if self == Dialect::Literal {
            return if line.chars().all(|c| c.is_whitespace() || c == ',') { "" } else { line };
        }
        // A mark inside a text was the first of a file that was put behind another one.
        let line = line.trim_start_matches(BYTE_ORDER_MARK).trim();
        if COMMENTS.iter().any(|sign| line.starts_with(sign)) {
            return "";
        }
        let mut is_quoted = false;
        let mut after_space = false;
        for (at, c) in line.char_indices() {
            match c {
                '"' => is_quoted = !is_quoted,
                '#' | ';' if after_space && !is_quoted => return line[..at].trim_end_matches(says_nothing),
                _ => {}
            }
            after_space = c.is_whitespace();
        }
        line.trim_end_matches(says_nothing)
    }

    /// The fields of a line, without empty ones at its end.
    /// # Errors
    /// The error in its quotes.
    pub fn fields(self, content: &str) -> Result<Vec<Cow<'_, str>>, String> {
        let mut fields = split(content).map_err(|why| {
            format!("{why} in `{}`; a field with quotes is written \"like \"\"this\"\"\"", crate::name::clip(content))
        })?;
        if self == Dialect::Plain {
            for field in &mut fields {
                let trimmed = field.trim();
                if trimmed.len() < field.len() {
                    *field = trimmed.to_owned().into();
                }
            }
        }
        while fields.len() > 1 && fields.last().is_some_and(|field| field.trim().is_empty()) {
            fields.pop();
        }
        Ok(fields)
    }
}

fn says_nothing(c: char) -> bool {
    c == ',' || c.is_whitespace()
}

/// The lines of a text that say something: what is empty, a comment, or a header is left out.
pub struct Records<I> {
    lines: I,
    dialect: Dialect,
    header: Option<&'static [&'static [&'static str]]>,
}

/// The names of columns that each field of a header may have.
pub type Columns = &'static [&'static [&'static str]];

/// How the column of names is called.
pub const NAMES: &[&str] = &[
    "name",
    "names",
    "mac",
    "macs",
    "macaddress",
    "address",
    "addresses",
    "ip",
    "ipaddress",
    "ipv4",
    "ipv6",
    "teid",
    "flow",
    "flows",
];

impl<I: Iterator<Item = Result<Line, LineError>>> Records<I> {
    /// The records of `lines`, whose header has these columns.
    pub fn new(lines: I, dialect: Dialect, columns: Columns) -> Self {
        Records { lines, dialect, header: Some(columns).filter(|columns| !columns.is_empty()) }
    }
}

impl<I: Iterator<Item = Result<Line, LineError>>> Iterator for Records<I> {
    type Item = Result<Line, LineError>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            let mut line = match self.lines.next()? {
                Ok(line) => line,
                Err(error) => return Some(Err(error)),
            };
            let content = self.dialect.content(&line.text);
            if content.is_empty() {
                continue;
            }
            if self.header.take().is_some_and(|columns| is_header(content, columns)) {
                continue;
            }
            if content.len() < line.text.len() {
                line.text = content.to_owned();
            }
            return Some(Ok(line));
        }
    }
}

/// The names of a list that has nothing else, such as the questions of a look-up.
pub fn names<I>(lines: I, dialect: Dialect) -> impl Iterator<Item = Result<Line, LineError>>
where
    I: Iterator<Item = Result<Line, LineError>>,
{
    // A text may be a name, whatever it says.
    let columns: Columns = if dialect == Dialect::Literal { &[] } else { &[NAMES] };
    Records::new(lines, dialect, columns).map(move |line| {
        let line = line?;
        if dialect == Dialect::Literal {
            return Ok(line);
        }
        let fields = dialect.fields(&line.text).map_err(|reason| line.error(reason))?;
        match &fields[..] {
            [name] => Ok(Line { number: line.number, text: name.to_string() }),
            _ => Err(line.error(format!(
                "{} fields in `{}`: write one name",
                fields.len(),
                crate::name::clip(&line.text)
            ))),
        }
    })
}

/// Whether a line is a header with these columns, of which those behind may be missing.
pub fn is_header(content: &str, columns: Columns) -> bool {
    let names = column_names(content);
    // White space is between words of the only column there is.
    let names: Vec<&str> = names.split(',').collect();
    let joined = names.concat();
    if columns.len() == 1 && !content.contains(',') {
        return columns[0].contains(&&joined[..]);
    }
    (1..=columns.len()).contains(&names.len()) && names.iter().zip(columns).all(|(name, column)| column.contains(name))
}

/// What the fields of a line are as names of columns: letters and digits in lower case, with commas between them. White space is
/// between the fields of a line that has no commas.
pub fn column_names(content: &str) -> String {
    let Ok(fields) = Dialect::Plain.fields(content) else { return String::new() };
    let fields: Vec<&str> = match &fields[..] {
        [Cow::Borrowed(field)] if !content.contains('"') => field.split_whitespace().collect(),
        fields => fields.iter().map(|field| &field[..]).collect(),
    };
    let plain = |field: &&str| field.chars().filter(|c| c.is_alphanumeric()).flat_map(char::to_lowercase).collect();
    fields.iter().map(plain).collect::<Vec<String>>().join(",")
}

/// One field of a line, quoted where needed. The inverse of what [`Dialect::fields`] reads.
pub fn quote(field: &str) -> Cow<'_, str> {
    // A byte order mark at the beginning of a file is none of a name.
    if field.contains([',', '"']) || field.trim() != field || field.starts_with(BYTE_ORDER_MARK) {
        Cow::Owned(format!("\"{}\"", field.replace('"', "\"\"")))
    } else {
        Cow::Borrowed(field)
    }
}

/// The fields of a line as they are.
fn split(line: &str) -> Result<Vec<Cow<'_, str>>, &'static str> {
    let mut fields = Vec::with_capacity(4);
    let mut rest = line;
    loop {
        let (field, after) = match rest.trim_start().strip_prefix('"') {
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
                (field, quoted[end + 1..].trim_start())
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

#[cfg(test)]
mod tests;
