//! `fibula trace`: which switches a frame passes, and where it ends.

mod entry;

use super::plain;
use crate::remote::{Client, Remote, answer};
use api::v1;
use command::output::{Exit, Failure, Output, write_out};
use command::visible::visible_lines;
use dataplane::groups::{Groups, Snooping, Told, Wanted, group_of, is_for_all, may_be_copied};
use dataplane::mac::Mac;
use dataplane::parse::{NameField, Names};
use dataplane::subscriptions::Timing;
use fib::name::{Name, NameKind};
use serde::Serialize;
use std::fmt::Write;

/// Bytes of an Ethernet header: a text of at least this many bytes in hexadecimal digits is a frame.
const HEADER: usize = 14;

/// Where the type of a frame is, without a shim and VLAN tags.
const TYPE_AT: usize = 12;

/// Arguments of `fibula trace`.
#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    remote: Remote,
    /// The destination name, its IP address, or a whole frame in hexadecimal digits
    what: String,
    /// The switch where the frame enters [default: for a frame, where its sender is; for a name, every switch with
    /// hosts]
    #[arg(long, default_value = "", hide_default_value = true)]
    from: String,
    /// Offset of the name in a frame, for names that are fixed fields
    #[arg(long)]
    offset: Option<usize>,
}

/// A hop as a row of JSON.
#[derive(Serialize)]
struct HopRow<'a> {
    from: &'a str,
    hop: usize,
    switch: &'a str,
    does: &'a str,
    port: Option<u32>,
    value: Option<u32>,
    action: Option<&'a str>,
}

#[derive(Serialize)]
struct EndRow<'a> {
    from: &'a str,
    end: &'a str,
    sentence: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    not_looked_at: Option<&'a str>,
}

impl Args {
    /// # Errors
    /// Those of the controller; [`Exit::Refused`] if a frame does not arrive.
    pub(crate) fn run(self, out: &Output) -> anyhow::Result<()> {
        let Args { remote, what, from, offset } = self;
        remote.run(|client| trace(client, what, from, offset, out))
    }
}

async fn trace(
    mut client: Client,
    what: String,
    from: String,
    offset: Option<usize>,
    out: &Output,
) -> anyhow::Result<()> {
    let Some(frame) = bytes_of(&what) else { return by_name(client, what, from, None, None, out).await };
    let kind = answer(client.get_status(v1::GetStatusRequest {}).await)?.name_kind;
    if kind != NameKind::Mac.to_string() {
        let name = name_in(&frame, &kind, offset).map_err(|why| Failure::new(Exit::BadInput, why))?;
        return by_name(client, name, from, None, Some(entry::NO_SENDERS), out).await;
    }
    let came = match entry::enter(&mut client, &frame, from).await? {
        entry::Entry::By(came) => came,
        entry::Entry::Dropped(path) => {
            print(&[path], None, true, Some(entry::NOT_LOOKED_AT), out)?;
            return Err(not_all_arrive());
        }
    };
    if frame[0] & 1 != 0 {
        return to_everybody(client, &frame, out).await;
    }
    let name = name_in(&frame, &kind, offset).map_err(|why| Failure::new(Exit::BadInput, why))?;
    let from = came.switch.clone();
    by_name(client, name, from, Some(came), Some(entry::NOT_LOOKED_AT), out).await
}

fn not_all_arrive() -> anyhow::Error {
    // Scripts rely on the exit code.
    Failure::new(Exit::Refused, "not every frame arrives")
}

/// Reports the paths of frames to a name. A frame that `came` in at a port never leaves by it.
async fn by_name(
    mut client: Client,
    name: String,
    from: String,
    came: Option<v1::LinkEnd>,
    not_looked_at: Option<&str>,
    out: &Output,
) -> anyhow::Result<()> {
    let is_one = !from.is_empty();
    let v1::TraceReply { record, at, mut paths } =
        answer(client.trace(v1::TraceRequest { name: name.clone(), from }).await)?;
    if let (Some(came), Some(path)) = (came.filter(|came| at.as_ref() == Some(came)), paths.first_mut()) {
        *path = entry::dropped(&came.switch, "input_port");
    }
    let about = about(&name, record.as_ref(), at.as_ref());
    print(&paths, Some(&about), is_one, not_looked_at, out)?;
    if paths.iter().all(|path| path.end == "delivered") { Ok(()) } else { Err(not_all_arrive()) }
}

fn print(
    paths: &[v1::Path],
    about: Option<&str>,
    is_one: bool,
    not_looked_at: Option<&str>,
    out: &Output,
) -> anyhow::Result<()> {
    if out.is_json() {
        for path in paths {
            let hops = (1..).zip(&path.hops).map(|(hop, v1::Hop { switch, does, port, value, action })| HopRow {
                from: &path.from,
                hop,
                switch,
                does,
                port: *port,
                value: *value,
                action: Some(&**action).filter(|action| !action.is_empty()),
            });
            out.rows(&hops.collect::<Vec<_>>())?;
            out.rows(&[EndRow { from: &path.from, end: &path.end, sentence: &path.sentence, not_looked_at }])?;
        }
        return Ok(());
    }
    let not_looked_at = not_looked_at.map(|what| format!("not checked: {what}\n")).unwrap_or_default();
    write_out(&visible_lines(&format!("{}{}{not_looked_at}", about.unwrap_or_default(), text(paths, is_one))))
}

/// A name that gets a copy of a broadcast or multicast.
#[derive(Serialize)]
struct CopyRow {
    name: String,
    why: &'static str,
}

/// Reports who gets a broadcast or multicast: each copy is a frame to a name.
async fn to_everybody(mut client: Client, frame: &[u8], out: &Output) -> anyhow::Result<()> {
    let sender = Name::from_bytes(NameKind::Mac, &frame[6..12]);
    let sender = sender.map_err(|error| Failure::new(Exit::BadInput, format!("its source is not a name: {error}")))?;
    let ask = v1::GetNameRequest { name: sender.to_string(), ip: String::new() };
    let record = answer(client.get_name(ask).await)?;
    let mut groups = v1::GroupList::default();
    let group = group_of(frame, TYPE_AT);
    let (mut after, mut more) = (None, true);
    while more {
        // For a frame without a group, only the members matter.
        let limit = if group.is_none() { 1 } else { 10_000 };
        let (group_text, name) = (group.map(|group| group.to_string()).unwrap_or_default(), String::new());
        let ask = v1::ListGroupsRequest { after, limit, group: group_text, tenant: Some(record.tenant), name };
        let page = answer(client.list_groups(ask).await)?;
        (after, more) = (page.subscribed.last().cloned(), page.more && group.is_some());
        let mut subscribed = std::mem::take(&mut groups.subscribed);
        subscribed.extend(page.subscribed);
        groups = v1::GroupList { subscribed, ..page };
    }
    let (names, sentence) = audience(frame, record.tenant, &groups);
    if !out.is_json() {
        write_out(&visible_lines(&format!("{}, tenant {}: {sentence}\n", record.name, record.tenant)))?;
    }
    let is_heard = !names.is_empty();
    out.rows(&names)?;
    if !out.is_json() {
        write_out(&format!("not checked: {}\n", entry::NOT_LOOKED_AT))?;
    }
    if is_heard { Ok(()) } else { Err(Failure::new(Exit::Refused, "no name gets it")) }
}

/// Who gets a broadcast or multicast from a name of a tenant, and why: the names for which its switch, told the same,
/// makes copies. What a switch keeps, answers or drops before that is not checked, except by [`may_be_copied`].
fn audience(frame: &[u8], tenant: u32, list: &v1::GroupList) -> (Vec<CopyRow>, String) {
    let nobody = |why: &str| (Vec::new(), why.to_owned());
    if !list.tenants.contains(&tenant) {
        return nobody(
            "no `[groups] tenants` in controller.toml include it, so its switch answers the frame or drops it",
        );
    }
    let Some(members) = list.members.as_ref().filter(|_| !list.crowded.contains(&tenant)) else {
        return nobody("it has more names than groups.max_names in controller.toml, so broadcasts are not carried");
    };
    if !may_be_copied(frame, TYPE_AT) {
        return nobody("no switch forwards such a frame: it is for one link only, or claims a broadcast address");
    }
    let macs = |texts: &[String]| texts.iter().filter_map(|text| mac_of(text)).collect::<Vec<_>>();
    let group = group_of(frame, TYPE_AT);
    let is_asked = |row: &&v1::Subscribed| row.tenant == tenant && row.group.parse().ok() == group;
    let joined: Vec<Mac> =
        list.subscribed.iter().filter(|row| is_asked(row)).filter_map(|row| mac_of(&row.name)).collect();
    let by_group = group.map(|group| (group, joined.clone())).into_iter().collect();
    let of_all = macs(&members.of_all);
    let wanted = Some(Wanted { by_group, of_all: of_all.clone() });
    let v1::GroupList { floods_unknown, mdns_for_all, .. } = *list;
    let snooping = list.snooping.then(|| Snooping { timing: Timing::new(1), floods_unknown, mdns_for_all });
    let groups = Groups::new(None);
    groups.tell(snooping, [Told { id: tenant, names: macs(&members.names), wanted }]);
    let sender = frame.get(6..12).and_then(|sender| Mac::try_from(sender).ok()).unwrap_or_default();
    let heard = groups.audience(sender, group).unwrap_or_default();
    let group = group.filter(|group| list.snooping && !is_for_all(*group, list.mdns_for_all));
    let other = |name: &&Mac| **name != sender;
    let others = heard.iter().filter(other).count();
    let sentence = match group {
        None => "its switch answers the questions that it can; each other name of the tenant gets a copy of the rest"
            .to_owned(),
        Some(group) if joined.iter().any(|name| *name != sender) => {
            format!("the names that have joined {group} get a copy")
        }
        Some(group) if list.floods_unknown => format!("no other name has joined {group}, so each gets a copy"),
        Some(group) if others > 0 => {
            format!("no other name has joined {group}; the subscriptions of these are unknown")
        }
        Some(group) => format!("no other name has joined {group}"),
    };
    let row = |mac: &Mac| {
        let why = match group {
            None => "every name hears it",
            Some(_) if joined.contains(mac) => "has joined",
            Some(_) if of_all.contains(mac) => "gets every group: its subscriptions are unknown",
            Some(_) => "no other name has joined",
        };
        Some(CopyRow { name: Name::from_bytes(NameKind::Mac, mac).ok()?.to_string(), why })
    };
    (heard.iter().filter(other).filter_map(row).collect(), sentence)
}

fn mac_of(text: &str) -> Option<Mac> {
    Mac::try_from(Name::parse(NameKind::Mac, text).ok()?.as_bytes()).ok()
}

/// Where a name is.
fn about(name: &str, record: Option<&v1::NameRecord>, at: Option<&v1::LinkEnd>) -> String {
    let name = plain(name);
    match (record, at) {
        (Some(record), Some(v1::LinkEnd { switch, port })) => {
            // The user may have asked by address.
            let name = plain(&record.name);
            let ip = if record.ip.is_empty() { String::new() } else { format!(", address {}", record.ip) };
            format!("{name} is at host {} ({switch}:{port}), tenant {}{ip}\n", plain(&record.host), record.tenant)
        }
        _ => format!("{name} is nowhere\n"),
    }
}

fn text(paths: &[v1::Path], is_one: bool) -> String {
    let mut text = String::new();
    for path in paths {
        if is_one {
            for (n, hop) in (1..).zip(&path.hops) {
                let _ = write!(text, "{n:>3}  {}  {}", plain(&hop.switch), plain(&hop.does));
                // Where it has no such name there is none.
                if let Some(value) = hop.value {
                    let _ = write!(text, "  [value {value}: {}]", plain(&hop.action));
                }
                text.push('\n');
            }
            let _ = writeln!(text, "     {}: {}", path.end, plain(&path.sentence));
        } else {
            let way: Vec<String> = path.hops.iter().map(|hop| plain(&hop.switch)).collect();
            let _ = writeln!(text, "{:<9}  {}  {}", path.end, way.join(" → "), plain(&path.sentence));
        }
    }
    text
}

/// The bytes of a frame in hexadecimal digits, with or without spaces or colons between bytes. None: the text is a
/// name.
fn bytes_of(text: &str) -> Option<Vec<u8>> {
    let is_address = text.contains(':') && text.split(':').any(|group| group.trim().len() != 2);
    if is_address || text.starts_with("0x") {
        return None;
    }
    let digits: Vec<u8> = text
        .chars()
        .filter(|c| !c.is_whitespace() && *c != ':')
        .map(|c| c.to_digit(16).map(|digit| digit as u8))
        .collect::<Option<_>>()?;
    let is_frame = digits.len() >= 2 * HEADER && digits.len().is_multiple_of(2);
    is_frame.then(|| digits.chunks(2).map(|pair| pair[0] << 4 | pair[1]).collect())
}

/// The name by which a switch looks up a host's frame.
fn name_in(frame: &[u8], kind: &str, offset: Option<usize>) -> Result<String, String> {
    let kind: NameKind =
        kind.parse().map_err(|error| format!("the controller's kind of names is `{kind}`: {error}"))?;
    let field = NameField::new(kind, offset).map_err(|error| format!("{error}; give it with --offset"))?;
    let mut names = Names::default();
    field.extract(frame, TYPE_AT, &mut names).map_err(|why| {
        let name = why.name();
        format!("a switch drops this frame before it is looked up: {name}. {}", api::drops::why(name))
    })?;
    // Short names are words.
    let (word, n_bytes) = (names.word(0).to_le_bytes(), names.name_len(0));
    let bytes = if n_bytes <= word.len() { &word[..n_bytes] } else { &names.padded(0)[..n_bytes] };
    Name::from_bytes(kind, bytes).map(|name| name.to_string()).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_frame_is_known_from_a_name_and_its_name_is_read() {
        let mac = "02:00:00:00:00:01";
        assert!(bytes_of(mac).is_none() && bytes_of("10.0.0.1").is_none() && bytes_of("0x00000001").is_none());
        assert!(bytes_of("fd00:1111:2222:3333:4444:5555:6666:7777").is_none(), "32 digits, and an address");
        let frame = "020000000001 020000000002 0800 4500001c00000000401100000a0000010a000002 0035003500080000";
        let bytes = bytes_of(frame).unwrap();
        assert_eq!(name_in(&bytes, "mac", None).unwrap(), mac);
        assert_eq!(name_in(&bytes, "ipv4", None).unwrap(), "10.0.0.2");
        let to_all = bytes_of(&frame.replacen("020000000001", "ffffffffffff", 1)).unwrap();
        assert_eq!(name_in(&to_all, "ipv4", None).unwrap(), "10.0.0.2");
        let short = bytes_of(&"00".repeat(HEADER)).unwrap();
        assert!(name_in(&short, "ipv4", None).unwrap_err().contains("no_name"));
    }

    #[test]
    fn a_multicast_is_for_those_who_want_it_and_other_frames_to_everybody_for_the_tenant() {
        let to = |ethernet: &str, ip: &str| {
            bytes_of(&format!("{ethernet} 020000000002 0800 4500001c00000000401100000a000001{ip} 0035003500080000"))
                .unwrap()
        };
        let name = |i: u8| format!("02:00:00:00:00:{i:02x}");
        let row = |i| v1::Subscribed { tenant: 7, group: "239.1.2.3".to_owned(), name: name(i), at: None };
        let members = v1::GroupMembers { names: (1..5).map(name).collect(), of_all: vec![name(4)] };
        let list = v1::GroupList {
            subscribed: vec![row(1)],
            tenants: vec![7, 9],
            snooping: true,
            mdns_for_all: true,
            crowded: vec![9],
            members: Some(members),
            ..v1::GroupList::default()
        };
        let gets = |frame: &[u8], tenant, list: &v1::GroupList| -> Vec<(u8, &str)> {
            let rows = audience(frame, tenant, list).0;
            rows.iter().map(|row| (row.name[15..].parse().unwrap(), row.why)).collect()
        };
        let who = |frame: &[u8], list: &v1::GroupList| gets(frame, 7, list).iter().map(|row| row.0).collect::<Vec<_>>();
        let wanted = to("01005e010203", "ef010203");
        let other = to("01005e010204", "ef010204");
        let nobody_joined = |list: &v1::GroupList| v1::GroupList { subscribed: vec![], ..list.clone() };
        let unknown = "gets every group: its subscriptions are unknown";
        assert_eq!(gets(&wanted, 7, &list), [(1, "has joined"), (4, unknown)]);
        assert_eq!(gets(&other, 7, &nobody_joined(&list)), [(4, unknown)]);
        assert!(gets(&wanted, 8, &list).is_empty());
        // Rows of other tenants and groups do not count.
        let others =
            [v1::Subscribed { tenant: 9, ..row(2) }, v1::Subscribed { group: "239.1.2.4".to_owned(), ..row(3) }];
        let more = v1::GroupList { subscribed: [&[row(1)][..], &others].concat(), ..list.clone() };
        assert_eq!(gets(&wanted, 7, &more), [(1, "has joined"), (4, unknown)]);
        let (rows, why) = audience(&wanted, 9, &list);
        assert!(rows.is_empty() && why.contains("max_names"), "{why}");
        let mdns = to("01005e0000fb", "e00000fb");
        assert_eq!(who(&mdns, &nobody_joined(&list)), [1, 3, 4]);
        assert_eq!(who(&to("ffffffffffff", "ffffffff"), &list), [1, 3, 4]);
        let flood = v1::GroupList { floods_unknown: true, mdns_for_all: false, ..list.clone() };
        assert_eq!(who(&other, &nobody_joined(&flood)), [1, 3, 4]);
        assert_eq!(who(&mdns, &nobody_joined(&flood)), [1, 3, 4]);
        let alone = |list: &v1::GroupList| v1::GroupList { subscribed: vec![row(2)], ..list.clone() };
        assert_eq!((who(&wanted, &alone(&list)), who(&wanted, &alone(&flood))), (vec![4], vec![1, 3, 4]));
        let off = v1::GroupList { snooping: false, ..list.clone() };
        assert_eq!(who(&other, &nobody_joined(&off)), [1, 3, 4]);
        // No bridge forwards what is to this address, and nobody believes who says unasked where an address is.
        assert!(who(&to("0180c2000000", "ef010203"), &list).is_empty());
        let claim = "ffffffffffff 020000000002 0806 0001080006040002 020000000002 0a000002 000000000000 0a000001";
        assert!(who(&bytes_of(claim).unwrap(), &list).is_empty());
        assert_eq!(who(&bytes_of(&claim.replace("06040002", "06040001")).unwrap(), &list), [1, 3, 4]);
    }

    #[test]
    fn a_path_is_told_hop_by_hop() {
        let hop = |switch: &str, does: &str, entry: Option<(u32, &str)>| {
            let (value, action) = entry.map(|(value, action)| (value, action.to_owned())).unzip();
            let (switch, does, action) = (switch.to_owned(), does.to_owned(), action.unwrap_or_default());
            v1::Hop { switch, does, port: Some(1), value, action }
        };
        let path = v1::Path {
            from: "s1".to_owned(),
            hops: vec![
                hop("s1", "sends it by port 1 to s2", Some((2, "port:1"))),
                hop("s2", "delivers it by port 3 to host h2", None),
            ],
            end: "delivered".to_owned(),
            sentence: "to host h2 at s2:3".to_owned(),
        };
        let [name, host, ip] = ["02:00:00:00:00:01", "h2", "10.0.0.2"].map(str::to_owned);
        let record = v1::NameRecord { name, host, ip, ..v1::NameRecord::default() };
        let at = v1::LinkEnd { switch: "s2".to_owned(), port: 3 };
        // Also where it was asked for by its address.
        assert_eq!(about("02:00:00:00:00:01", Some(&record), Some(&at)), about("10.0.0.2", Some(&record), Some(&at)));
        let told = about("02:00:00:00:00:01", Some(&record), Some(&at)) + &text(&[path], true);
        let expected = "02:00:00:00:00:01 is at host h2 (s2:3), tenant 0, address 10.0.0.2\n  1  s1  sends it by port 1 to s2  [value 2: port:1]\n  \
                        2  s2  delivers it by port 3 to host h2\n     delivered: to host h2 at s2:3\n";
        assert_eq!(told, expected);
    }
}
