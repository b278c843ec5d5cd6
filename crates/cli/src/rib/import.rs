//! `fibula name import`: millions of names from a CSV file, one transaction per batch.
//!
//! There are two passes. The first checks every line (fields, names, hosts, addresses, duplicates) and reports errors
//! with their line numbers before anything is sent; the second sends. The controller refuses what only it can know,
//! such as an address that a name outside the file has; its refusal is reported with the line, too. Cost: the file is
//! read twice, and names and addresses are kept once, about 60 bytes each, to find duplicates.

use crate::remote::{Client, answer, refusal};
use crate::rib::replace;
use api::v1;
use command::output::{Exit, Failure, OrExit, Output};
use fib::name::{Name, NameKind};
use fib::text::address::digits;
use fib::text::{Columns, Dialect, Line, LineError, Lines as TextLines, NAMES, Records};
use fib::unicast::check_unicast;
use indicatif::{ProgressBar, ProgressStyle};
use serde::Serialize;
use std::borrow::Cow;
use std::collections::{HashMap, HashSet, VecDeque};
use std::io::{Cursor, Read, Seek, SeekFrom};
use std::net::IpAddr;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use tokio::sync::mpsc;

/// The first line of an export; optional in an import.
pub(crate) const HEADER: [&str; 4] = ["name", "host", "tenant", "ip"];

/// The names of its columns.
const COLUMNS: Columns = &[NAMES, &["host"], &["tenant"], &["ip", "ipaddress", "address"]];

/// Maximum number of errors shown for a file.
const MAX_ERRORS: usize = 10;

/// Bytes of text after which a batch is full: far below the message limit.
const MAX_BATCH_BYTES: usize = 8 << 20;

/// Batches that are sent before the first of them is committed: one is being committed while the next one waits there.
/// HTTP/2 libraries close connections on which many small messages wait to be read.
const BATCHES_AHEAD: usize = 4;

/// An input that can be read twice.
pub(crate) trait Source: Read + Seek + Send {}
impl<T: Read + Seek + Send> Source for T {}

#[derive(Serialize)]
struct ImportRow {
    names: u64,
    changed: u64,
    unchanged: u64,
}

/// Imports a file. `batch`: names per transaction, by default [`batch_of`] the number of names. `all`: the names become
/// exactly those of the file, or the differences are reported.
pub(crate) async fn run(
    mut client: Client,
    file: &Path,
    batch: Option<u32>,
    all: Option<replace::Options>,
    out: &Output,
) -> anyhow::Result<()> {
    let kind = kind_of(&mut client).await?;
    let hosts = answer(client.list_hosts(v1::ListHostsRequest {}).await)?.hosts;
    let hosts: HashSet<String> = hosts.into_iter().map(|host| host.name).collect();

    let shown = file.display().to_string();
    let (source, total) = whole(file, kind, hosts, "nothing imported").await?;
    if let Some(options) = all {
        return replace::run(client, (source, kind), total, (&shown, options), out).await;
    }
    let batch = batch.map_or_else(|| batch_of(total), |batch| batch as usize);

    let bar = progress_bar(total, "imported");
    let (batches, requests) = mpsc::channel(1);
    let (room, mut rooms) = mpsc::channel(BATCHES_AHEAD);
    (0..BATCHES_AHEAD).for_each(|_| _ = room.try_send(()));
    let lines = Lines::default();
    let sent = lines.clone();
    let reader = tokio::task::spawn_blocking(move || send((source, kind), batch, &batches, &mut rooms, &sent));
    let stream = tokio_stream::wrappers::ReceiverStream::new(requests);
    let mut progress = answer(client.import_names(stream).await)?;
    let mut row = ImportRow { names: 0, changed: 0, unchanged: 0 };
    loop {
        match progress.message().await {
            Ok(Some(v1::ImportProgress { committed, changed })) => {
                let changed = changed.unwrap_or_default();
                row.names = committed;
                row.changed += changed.changed;
                row.unchanged += changed.unchanged;
                bar.set_position(committed);
                lines.done();
                let _ = room.try_send(());
            }
            Ok(None) => break,
            Err(status) => {
                let committed = row.names;
                let place = match lines.of(api::lookup::refused_item(&status)) {
                    Some(line) => format!("{shown}: line {line} is refused, and its whole batch with it"),
                    None => format!("{shown}: stopped in the {batch} names after the first {committed}"),
                };
                return Err(refusal(&status).context(format!("{place}; the first {committed} names were imported")));
            }
        }
    }
    drop(room);
    reader.await??;
    bar.finish_and_clear();
    let sentence = format!("{} names imported: {} changed, {} unchanged", row.names, row.changed, row.unchanged);
    out.done(&row, sentence)
}

/// The kind of names of the network.
pub(crate) async fn kind_of(client: &mut Client) -> anyhow::Result<NameKind> {
    let kind = answer(client.get_status(v1::GetStatusRequest {}).await)?.name_kind;
    kind.parse().or_exit(Exit::Internal, "this version does not know the controller's kind of names")
}

/// A file whose lines have all been checked, and its number of names.
/// # Errors
/// The first wrong lines; `so` is the consequence.
pub(crate) async fn whole(
    file: &Path,
    kind: NameKind,
    hosts: HashSet<String>,
    so: &str,
) -> anyhow::Result<(Box<dyn Source>, u64)> {
    let from = file.to_owned();
    let source = reading(move || open(&from)).await??;
    let wrong =
        |errors: Vec<String>| Failure::new(Exit::BadInput, format!("{}: {so}\n{}", file.display(), errors.join("\n")));
    checked(source, kind, hosts).await?.map_err(wrong)
}

/// The names in the first column of a file, each with its line.
/// # Errors
/// A file that cannot be read.
pub(crate) fn names_of(file: &Path, kind: NameKind) -> anyhow::Result<Vec<(u64, String)>> {
    let mut source = open(file)?;
    records(&mut *source, kind)
        .map(|record| {
            let Record { line, fields } = record.or_exit(Exit::BadInput, file.display())?;
            Ok((line, fields.into_iter().next().unwrap_or_default()))
        })
        .collect()
}

/// Reads on a thread of its own: a file can take longer to read than the controller waits for an answer to its
/// keep-alive probes, so the connection must be served meanwhile.
async fn reading<T: Send + 'static>(read: impl FnOnce() -> T + Send + 'static) -> anyhow::Result<T> {
    Ok(tokio::task::spawn_blocking(read).await?)
}

/// Checks every line. Returns the rewound source and the number of names, or the first errors.
async fn checked(
    mut source: Box<dyn Source>,
    kind: NameKind,
    hosts: HashSet<String>,
) -> anyhow::Result<Result<(Box<dyn Source>, u64), Vec<String>>> {
    reading(move || {
        let total = check(&mut *source, kind, &hosts)?;
        source.seek(SeekFrom::Start(0)).map_err(|error| vec![error.to_string()])?;
        Ok((source, total))
    })
    .await
}

/// Names per transaction for a file of `n_names`. Each transaction changes most shards of the table, so its cost grows
/// with the number of existing names: few transactions are fastest. But the controller holds a batch in several forms
/// at once: importing a million names in batches of 25,000 used 1.38 times the memory that it kept.
fn batch_of(n_names: u64) -> usize {
    (n_names / 50).clamp(20_000, 100_000) as usize
}

/// The lines of the names in each batch that is not committed yet, the oldest first.
#[derive(Clone, Default)]
struct Lines(Arc<Mutex<VecDeque<Vec<u64>>>>);

impl Lines {
    fn with<T>(&self, f: impl FnOnce(&mut VecDeque<Vec<u64>>) -> T) -> T {
        f(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Records that a batch with names from these lines was sent.
    fn sent(&self, lines: Vec<u64>) {
        self.with(|batches| batches.push_back(lines));
    }

    /// Records that the oldest batch was committed.
    fn done(&self) {
        self.with(|batches| _ = batches.pop_front());
    }

    /// The line of an item of the oldest batch; without an index, of its only item.
    fn of(&self, item: Option<usize>) -> Option<u64> {
        self.with(|batches| match (&batches.front()?[..], item) {
            (lines, Some(item)) => lines.get(item).copied(),
            ([line], None) => Some(*line),
            _ => None,
        })
    }
}

fn open(file: &Path) -> anyhow::Result<Box<dyn Source>> {
    if file.as_os_str() == "-" {
        let mut bytes = Vec::new();
        let read = std::io::stdin().read_to_end(&mut bytes);
        read.or_exit(Exit::BadInput, "standard input")?;
        return Ok(Box::new(Cursor::new(bytes)));
    }
    Ok(Box::new(command::open(file)?))
}

/// A progress bar on standard error with rate and remaining time; hidden unless that is a terminal.
pub(crate) fn progress_bar(total: u64, verb: &'static str) -> ProgressBar {
    let template = "{bar:30} {human_pos} of {human_len} names {msg}, {per_sec}, {eta} left";
    let style = ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar());
    ProgressBar::new(total).with_style(style).with_message(verb)
}

/// The fields of a line, and its number.
#[derive(Debug)]
pub(crate) struct Record {
    pub(crate) line: u64,
    pub(crate) fields: Vec<String>,
}

/// The records of a source, without its header.
pub(crate) fn records<'a>(
    source: &'a mut dyn Source,
    kind: NameKind,
) -> impl Iterator<Item = Result<Record, LineError>> + 'a {
    let dialect = Dialect::of(kind);
    Records::new(TextLines::new(source), dialect, COLUMNS).map(move |line| {
        let Line { number, text } = line?;
        let fields = dialect.fields(&text).map_err(|reason| LineError { line: number, reason })?;
        Ok(Record { line: number, fields: fields.into_iter().map(Cow::into_owned).collect() })
    })
}

/// A writer in the format that [`records`] reads.
pub(crate) fn writer<W: std::io::Write>(to: W) -> csv::Writer<W> {
    csv::WriterBuilder::new().comment(Some(b'#')).from_writer(to)
}

/// Checks every line. Returns the number of names, or the first errors.
fn check(source: &mut dyn Source, kind: NameKind, hosts: &HashSet<String>) -> Result<u64, Vec<String>> {
    let mut seen = Seen::default();
    let mut errors = Vec::new();
    for record in records(source, kind) {
        match record {
            Ok(record) => {
                if let Err(error) = check_line(&record, kind, hosts, &mut seen) {
                    errors.push(format!("line {}: {error}", record.line));
                }
            }
            Err(error) => errors.push(error.to_string()),
        }
        if errors.len() >= MAX_ERRORS {
            errors.push("and possibly more".to_owned());
            break;
        }
    }
    if errors.is_empty() { Ok(seen.names.len() as u64) } else { Err(errors) }
}

/// The lines of all names and addresses so far.
#[derive(Default)]
struct Seen {
    names: HashMap<Name, u64>,
    ips: HashMap<IpAddr, u64>,
}

fn check_line(record: &Record, kind: NameKind, hosts: &HashSet<String>, seen: &mut Seen) -> Result<(), String> {
    let line = record.line;
    let parsed = parse(record)?;
    let name = Name::parse(kind, &parsed.name).map_err(|e| e.to_string())?;
    name.check_unicast().map_err(|e| e.to_string())?;
    let ip: Option<IpAddr> = parsed.ip.parse().ok();
    ip.map_or(Ok(()), check_unicast).map_err(|e| e.to_string())?;
    if !hosts.contains(&parsed.host) {
        return Err(format!("there is no host `{}`; add it with `fibula host add`", parsed.host));
    }
    if let Some(before) = seen.names.insert(name, line) {
        return Err(format!("`{}` is already on line {before}", parsed.name));
    }
    match ip.and_then(|ip| seen.ips.insert(ip, line)) {
        Some(before) => Err(format!("the address {} is already on line {before}; give each name its own", parsed.ip)),
        None => Ok(()),
    }
}

pub(crate) fn parse(Record { fields, .. }: &Record) -> Result<v1::NameRecord, String> {
    let field = |i: usize| fields.get(i).map_or("", |field| field.trim());
    if !(2..=4).contains(&fields.len()) {
        return Err(format!("{} fields instead of name,host[,tenant[,ip]]", fields.len()));
    }
    let tenant = match field(2) {
        "" => 0,
        text => digits(text).ok_or_else(|| format!("tenant `{text}` is not a number from 0 to {}", u32::MAX))?,
    };
    if !field(3).is_empty() && field(3).parse::<IpAddr>().is_err() {
        return Err(format!("`{}` is not an IP address", field(3)));
    }
    // The kind of name decides whether leading and trailing blanks belong to it.
    let name = fields.first().map_or("", |name| &name[..]);
    let [name, host, ip] = [name, field(1), field(3)].map(str::to_owned);
    Ok(v1::NameRecord { name, host, tenant, ip, ..v1::NameRecord::default() })
}

/// Sends the lines in batches, each after a `()` from `rooms`; ends early when the other end of either channel is gone.
fn send(
    (mut source, kind): (Box<dyn Source>, NameKind),
    batch: usize,
    batches: &mpsc::Sender<v1::NameBatch>,
    rooms: &mut mpsc::Receiver<()>,
    sent: &Lines,
) -> anyhow::Result<()> {
    let mut hand_over = |names, lines| {
        sent.sent(lines);
        rooms.blocking_recv().is_some() && batches.blocking_send(v1::NameBatch { names }).is_ok()
    };
    let mut names = Vec::with_capacity(batch);
    let mut lines = Vec::with_capacity(batch);
    let mut n_bytes = 0;
    for record in records(&mut *source, kind) {
        let record = record?;
        lines.push(record.line);
        // Fails only if the file changed between the passes.
        names.push(parse(&record).map_err(|e| Failure::new(Exit::BadInput, e))?);
        n_bytes += record.fields.iter().map(String::len).sum::<usize>();
        if names.len() == batch || n_bytes >= MAX_BATCH_BYTES {
            n_bytes = 0;
            let full = std::mem::replace(&mut names, Vec::with_capacity(batch));
            if !hand_over(full, std::mem::replace(&mut lines, Vec::with_capacity(batch))) {
                return Ok(());
            }
        }
    }
    if !names.is_empty() {
        hand_over(names, lines);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn errors(text: &str) -> Vec<String> {
        let hosts = HashSet::from(["h1".to_owned()]);
        check(&mut Cursor::new(text.as_bytes().to_vec()), NameKind::Mac, &hosts).err().unwrap_or_default()
    }

    #[test]
    fn header_comments_and_short_lines_are_read() {
        let hosts = HashSet::from(["h1".to_owned()]);
        let text = "name,host,tenant,ip\n# a comment\n02:00:00:00:00:01,h1\n02:00:00:00:00:02,h1,7\n\n02:00:00:00:00:03, h1 ,,10.0.0.1\n";
        assert_eq!(check(&mut Cursor::new(text.as_bytes()), NameKind::Mac, &hosts), Ok(3));
    }

    #[test]
    fn exported_names_of_any_text_are_imported_as_they_were() {
        let names = ["# no comment", "#", " blanks ", "a,b", "say \"hi\"", "name"];
        let mut csv = writer(Vec::new());
        csv.write_record(HEADER).unwrap();
        names.iter().for_each(|name| csv.write_record([name, "h1", "0", ""]).unwrap());
        let bytes = csv.into_inner().unwrap();
        let hosts = HashSet::from(["h1".to_owned()]);
        assert_eq!(check(&mut Cursor::new(bytes.clone()), NameKind::Text, &hosts), Ok(names.len() as u64));
        let (batches, mut sent) = mpsc::channel(1);
        let (room, mut rooms) = mpsc::channel(1);
        room.try_send(()).unwrap();
        send((Box::new(Cursor::new(bytes)), NameKind::Text), 100, &batches, &mut rooms, &Lines::default()).unwrap();
        let sent: Vec<String> = sent.try_recv().unwrap().names.into_iter().map(|record| record.name).collect();
        assert_eq!(sent, names);
    }

    #[test]
    fn batches_wait_until_there_is_room_for_them() {
        let text: String = (0..20).map(|i| format!("02:00:00:00:00:{i:02},h1\n")).collect();
        let (batches, mut sent) = mpsc::channel(100);
        let (room, mut rooms) = mpsc::channel(100);
        (0..3).for_each(|_| room.try_send(()).unwrap());
        let reader = std::thread::spawn(move || {
            send((Box::new(Cursor::new(text.into_bytes())), NameKind::Mac), 2, &batches, &mut rooms, &Lines::default())
                .unwrap();
        });
        (0..3).for_each(|_| assert_eq!(sent.blocking_recv().unwrap().names.len(), 2));
        assert!(sent.try_recv().is_err(), "there is room for three");
        room.try_send(()).unwrap();
        assert!(sent.blocking_recv().is_some());
        drop(room);
        reader.join().unwrap();
        assert!(sent.blocking_recv().is_none(), "nobody waits for more");
    }

    /// A source that comes once something else has run.
    struct Late(std::sync::mpsc::Receiver<()>, Cursor<&'static [u8]>);

    impl Read for Late {
        fn read(&mut self, into: &mut [u8]) -> std::io::Result<usize> {
            if self.1.position() == 0 {
                self.0.recv_timeout(std::time::Duration::from_secs(20)).map_err(std::io::Error::other)?;
            }
            self.1.read(into)
        }
    }

    impl Seek for Late {
        fn seek(&mut self, to: SeekFrom) -> std::io::Result<u64> {
            self.1.seek(to)
        }
    }

    // The connection answers the controller's probes only while its runtime runs.
    #[tokio::test(flavor = "current_thread")]
    async fn connection_goes_on_while_the_file_is_read() {
        let (others_ran, late) = std::sync::mpsc::channel();
        let connection = tokio::spawn(async move { others_ran.send(()) });
        let source = Late(late, Cursor::new(b"02:00:00:00:00:01,h1\n"));
        let hosts = HashSet::from(["h1".to_owned()]);
        let total = checked(Box::new(source), NameKind::Mac, hosts).await.unwrap().map(|(_, total)| total);
        assert_eq!(total, Ok(1));
        connection.await.unwrap().unwrap();
    }

    #[test]
    fn every_bad_line_is_reported_with_its_number() {
        let text = "02:00:00:00:00:01,h1\nnonsense,h1\n02:00:00:00:00:02,h9\n02:00:00:00:00:03\n02:00:00:00:00:01,h1\n\
                    02:00:00:00:00:04,h1,x\n02:00:00:00:00:05,h1,0,10.0.0\n";
        let errors = errors(text);
        let expected = [
            "line 2: ",
            "line 3: there is no host `h9`",
            "line 4: 1 fields",
            "is already on line 1",
            "line 6: tenant",
            "line 7: ",
        ];
        assert_eq!(errors.len(), expected.len(), "{errors:#?}");
        for (error, part) in errors.iter().zip(expected) {
            assert!(error.contains(part), "{error} should contain {part}");
        }
    }

    #[test]
    fn names_and_addresses_that_no_host_has_or_two_have_are_reported_by_line() {
        let text = "02:00:00:00:00:01,h1,0,10.0.0.1\n01:00:00:00:00:01,h1\n00:00:00:00:00:00,h1\n\
                    02:00:00:00:00:02,h1,0,10.0.0.1\n02:00:00:00:00:03,h1,0,224.0.0.1\n02:00:00:00:00:04,h1,0,0.0.0.0\n";
        let errors = errors(text);
        let expected = [
            "line 2: `01:00:00:00:00:01` is a group address",
            "line 3: `00:00:00:00:00:00` is the zero address",
            "line 4: the address 10.0.0.1 is already on line 1",
            "line 5: `224.0.0.1` is a multicast address",
            "line 6: `0.0.0.0` is the unspecified address",
        ];
        assert_eq!(errors.len(), expected.len(), "{errors:#?}");
        for (error, part) in errors.iter().zip(expected) {
            assert!(error.contains(part), "{error} should contain {part}");
        }
    }

    #[test]
    fn line_of_what_is_refused_is_known_in_a_batch_of_one_too() {
        let lines = Lines::default();
        lines.sent(vec![7, 9]);
        assert_eq!([lines.of(Some(1)), lines.of(Some(2)), lines.of(None)], [Some(9), None, None]);
        lines.done();
        lines.sent(vec![11]);
        assert_eq!([lines.of(Some(0)), lines.of(None)], [Some(11), Some(11)]);
    }

    #[test]
    fn file_is_the_same_however_it_was_saved() {
        let plain = "name,host,tenant,ip\n02:00:00:00:00:01,h1,7,10.0.0.1\n02:00:00:00:00:02,h1\n";
        let mut packed = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        std::io::Write::write_all(&mut packed, plain.as_bytes()).unwrap();
        let read = |bytes: &[u8]| {
            let mut source = Cursor::new(bytes.to_vec());
            let all = records(&mut source, NameKind::Mac).map(|record| parse(&record.unwrap()));
            let names: Result<Vec<_>, _> = all.collect();
            let name = |record: v1::NameRecord| {
                (Name::parse(NameKind::Mac, &record.name).unwrap(), record.host, record.tenant, record.ip)
            };
            names.unwrap().into_iter().map(name).collect::<Vec<_>>()
        };
        for bytes in [
            &b"\xef\xbb\xbf# mine\r\nName,Host,Tenant,IP\r\n02-00-00-00-00-01,h1,7,10.0.0.1\r\n\"0200.0000.0002\" , h1,,\r\n,,,\r\n"[..],
            b"; no header\r020000000001,h1,7,10.0.0.1 # the first\r020000000002,h1",
            &packed.finish().unwrap(),
        ] {
            assert_eq!(read(bytes), read(plain.as_bytes()));
            let hosts = HashSet::from(["h1".to_owned()]);
            assert_eq!(check(&mut Cursor::new(bytes), NameKind::Mac, &hosts), Ok(2));
        }
    }

    #[test]
    fn reading_stops_after_ten_errors() {
        assert_eq!(errors(&"x,y\n".repeat(1000)).len(), MAX_ERRORS + 1);
    }
}
