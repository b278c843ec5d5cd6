//! `fibula trace`: which switches a frame passes, and where it ends.

use super::plain;
use crate::remote::{Client, Remote, answer};
use api::v1;
use command::output::{Exit, Failure, Output, write_out};
use fib::name::{Name, NameKind};
use serde::Serialize;
use std::fmt::Write;
use switch::groups::{group_of, is_for_all};
use switch::parse::{NameField, Names};

/// Bytes of an Ethernet header: from as many bytes of hexadecimal digits on, a text is a frame.
const HEADER: usize = 14;

/// Where the type of a frame is, without a shim and VLAN tags.
const TYPE_AT: usize = 12;

/// Arguments of `fibula trace`.
#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    remote: Remote,
    /// The name that the frame is to, or a whole frame in hexadecimal digits
    what: String,
    /// The switch at which it enters; without it, the paths from all switches with hosts
    #[arg(long, default_value = "", hide_default_value = true)]
    from: String,
    /// Where the name is in a frame, for names that are fixed fields
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
}

#[derive(Serialize)]
struct EndRow<'a> {
    from: &'a str,
    end: &'a str,
    sentence: &'a str,
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
    let name = match bytes_of(&what) {
        Some(frame) => {
            let kind = answer(client.get_status(v1::GetStatusRequest {}).await)?.name_kind;
            if kind == NameKind::Mac.to_string() && frame[0] & 1 != 0 {
                return to_everybody(client, &frame, out).await;
            }
            name_in(&frame, &kind, offset).map_err(|why| Failure::new(Exit::BadInput, why))?
        }
        None => what,
    };
    let is_one = !from.is_empty();
    let v1::TraceReply { record, at, paths } =
        answer(client.trace(v1::TraceRequest { name: name.clone(), from }).await)?;
    let arrives = paths.iter().all(|path| path.end == "delivered");
    if out.is_json() {
        for path in &paths {
            let hops = (1..).zip(&path.hops).map(|(hop, v1::Hop { switch, does, port })| HopRow {
                from: &path.from,
                hop,
                switch,
                does,
                port: *port,
            });
            out.rows(&hops.collect::<Vec<_>>())?;
            out.rows(&[EndRow { from: &path.from, end: &path.end, sentence: &path.sentence }])?;
        }
    } else {
        write_out(&text(&name, record.as_ref(), at.as_ref(), &paths, is_one))?;
    }
    // A script wants to know.
    if arrives { Ok(()) } else { Err(Failure::new(Exit::Refused, "not every frame arrives")) }
}

/// A name that gets a copy of a frame to everybody.
#[derive(Serialize)]
struct CopyRow {
    name: String,
}

/// Says who gets a frame to everybody: each copy is a frame to a name.
async fn to_everybody(mut client: Client, frame: &[u8], out: &Output) -> anyhow::Result<()> {
    let sender = Name::from_bytes(NameKind::Mac, &frame[6..12]);
    let sender = sender.map_err(|error| Failure::new(Exit::BadInput, format!("its source is no name: {error}")))?;
    let record = answer(client.get_name(v1::GetNameRequest { name: sender.to_string() }).await)?;
    let groups = answer(client.list_groups(v1::ListGroupsRequest {}).await)?;
    let (audience, sentence) = audience(frame, record.tenant, &groups);
    let mut names = match audience {
        Audience::Nobody => Vec::new(),
        Audience::Subscribers(names) => names,
        Audience::Tenant => {
            let (mut names, mut after, mut more) = (Vec::new(), String::new(), true);
            while more {
                let request = v1::ListNamesRequest { after, limit: 10_000, ..v1::ListNamesRequest::default() };
                let page = answer(client.list_names(request).await)?;
                (after, more) = (page.names.last().map(|last| last.name.clone()).unwrap_or_default(), page.more);
                let of_tenant = page.names.into_iter().filter(|other| other.tenant == record.tenant);
                names.extend(of_tenant.map(|other| other.name));
            }
            names
        }
    };
    names.retain(|name| *name != record.name);
    if !out.is_json() {
        write_out(&format!("{}, tenant {}: {sentence}\n", plain(&record.name), record.tenant))?;
    }
    let is_heard = !names.is_empty();
    out.rows(&names.into_iter().map(|name| CopyRow { name }).collect::<Vec<_>>())?;
    if is_heard { Ok(()) } else { Err(Failure::new(Exit::Refused, "nobody gets it")) }
}

#[derive(PartialEq, Debug)]
enum Audience {
    Nobody,
    Subscribers(Vec<String>),
    Tenant,
}

/// Who gets a frame to everybody from a name of a tenant, and why.
fn audience(frame: &[u8], tenant: u32, groups: &v1::GroupList) -> (Audience, String) {
    if !groups.tenants.contains(&tenant) {
        let why = "it is among no `[groups] tenants` in controller.toml, so its switch answers the frame or drops it";
        return (Audience::Nobody, why.to_owned());
    }
    let of_ip = group_of(frame, TYPE_AT).filter(|_| groups.snooping);
    let Some(group) = of_ip.filter(|group| !is_for_all(*group, groups.mdns_for_all)) else {
        let why = "a question that its switch can answer goes no further; each other name of the tenant gets a copy of the rest";
        return (Audience::Tenant, why.to_owned());
    };
    let text = group.to_string();
    // A sender that wants its own group is no other host that does.
    let sender = Name::from_bytes(NameKind::Mac, frame.get(6..12).unwrap_or_default()).map(|name| name.to_string());
    let is_other = |row: &v1::Subscribed| sender.as_ref().is_ok_and(|sender| row.name != *sender);
    let wants = |row: &&v1::Subscribed| row.tenant == tenant && row.group == text && is_other(row);
    let names: Vec<String> = groups.subscribed.iter().filter(wants).map(|row| row.name.clone()).collect();
    match (names.is_empty(), groups.floods_unknown) {
        (false, _) => (Audience::Subscribers(names), format!("those who have joined {group} get a copy")),
        (true, true) => (Audience::Tenant, format!("no other name has joined {group}, so each gets a copy")),
        (true, false) => (Audience::Nobody, format!("no other name has joined {group}")),
    }
}

fn text(
    name: &str,
    record: Option<&v1::NameRecord>,
    at: Option<&v1::LinkEnd>,
    paths: &[v1::Path],
    is_one: bool,
) -> String {
    let mut text = String::new();
    let name = plain(name);
    let _ = match (record, at) {
        (Some(record), Some(v1::LinkEnd { switch, port })) => {
            let ip = if record.ip.is_empty() { String::new() } else { format!(", address {}", record.ip) };
            writeln!(text, "{name} is at host {} ({switch}:{port}), tenant {}{ip}", plain(&record.host), record.tenant)
        }
        _ => writeln!(text, "{name} is nowhere"),
    };
    for path in paths {
        if is_one {
            for (n, hop) in (1..).zip(&path.hops) {
                let _ = writeln!(text, "{n:>3}  {}  {}", plain(&hop.switch), plain(&hop.does));
            }
            let _ = writeln!(text, "     {}: {}", path.end, plain(&path.sentence));
        } else {
            let way: Vec<String> = path.hops.iter().map(|hop| plain(&hop.switch)).collect();
            let _ = writeln!(text, "{:<9}  {}  {}", path.end, way.join(" → "), plain(&path.sentence));
        }
    }
    text
}

/// The bytes of a frame in hexadecimal digits, with spaces or colons between bytes or not. None: it is a name.
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

/// The name that a frame of a host is looked up by.
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
        let row = v1::Subscribed { tenant: 7, group: "239.1.2.3".to_owned(), name: "a".to_owned(), at: None };
        let groups = v1::GroupList {
            subscribed: vec![v1::Subscribed { tenant: 8, name: "b".to_owned(), ..row.clone() }, row],
            tenants: vec![7],
            snooping: true,
            floods_unknown: false,
            mdns_for_all: true,
        };
        let gets = |frame: &[u8], tenant, groups: &v1::GroupList| audience(frame, tenant, groups).0;
        let (wanted, other) = (to("01005e010203", "ef010203"), to("01005e010204", "ef010204"));
        let mdns = to("01005e0000fb", "e00000fb");
        assert_eq!(gets(&wanted, 7, &groups), Audience::Subscribers(vec!["a".to_owned()]));
        assert_eq!((gets(&wanted, 8, &groups), gets(&other, 7, &groups)), (Audience::Nobody, Audience::Nobody));
        assert_eq!(gets(&mdns, 7, &groups), Audience::Tenant);
        assert_eq!(gets(&to("ffffffffffff", "ffffffff"), 7, &groups), Audience::Tenant);
        let flood = v1::GroupList { floods_unknown: true, mdns_for_all: false, ..groups.clone() };
        assert_eq!((gets(&other, 7, &flood), gets(&mdns, 7, &flood)), (Audience::Tenant, Audience::Tenant));
        let own = v1::Subscribed { name: "02:00:00:00:00:02".to_owned(), ..groups.subscribed[1].clone() };
        let [alone, alone_with_flood] =
            [&groups, &flood].map(|groups| v1::GroupList { subscribed: vec![own.clone()], ..groups.clone() });
        assert_eq!(gets(&wanted, 7, &alone), Audience::Nobody, "the sender is the only one");
        assert_eq!(gets(&wanted, 7, &alone_with_flood), Audience::Tenant);
        let off = v1::GroupList { snooping: false, ..groups };
        assert_eq!(gets(&wanted, 7, &off), Audience::Tenant);
    }

    #[test]
    fn a_path_is_told_hop_by_hop() {
        let hop =
            |switch: &str, does: &str| v1::Hop { switch: switch.to_owned(), does: does.to_owned(), port: Some(1) };
        let path = v1::Path {
            from: "s1".to_owned(),
            hops: vec![hop("s1", "sends it by port 1 to s2"), hop("s2", "delivers it by port 3 to host h2")],
            end: "delivered".to_owned(),
            sentence: "to host h2 at s2:3".to_owned(),
        };
        let record = v1::NameRecord { host: "h2".to_owned(), ip: "10.0.0.2".to_owned(), ..v1::NameRecord::default() };
        let at = v1::LinkEnd { switch: "s2".to_owned(), port: 3 };
        let told = text("02:00:00:00:00:01", Some(&record), Some(&at), &[path], true);
        let expected = "02:00:00:00:00:01 is at host h2 (s2:3), tenant 0, address 10.0.0.2\n  1  s1  sends it by port 1 to s2\n  \
                        2  s2  delivers it by port 3 to host h2\n     delivered: to host h2 at s2:3\n";
        assert_eq!(told, expected);
    }
}
