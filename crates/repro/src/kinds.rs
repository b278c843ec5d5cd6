//! Names of several kinds, from real data where available: vendor prefixes of MACs, a table of address prefixes, a list
//! of domains, the file names of this machine's packages. `scripts/real-names` fetches prefixes and domains.
//!
//! No data is copied into the project; where a source is not available, names are made up, and [`Named::source`] says
//! so. All names of a set are distinct, in random order, and determined by the seed and the source.
//! Source of the choice: "Re-designing Compact-structure based Forwarding for Programmable Networks", Figure 17.

use std::collections::HashSet;
use std::fmt;
use std::io::Read as _;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use fib::name::{Name, NameKind};

use crate::names::Random;

/// A kind of names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// IPv4 addresses, one or more per prefix of a table.
    Ipv4,
    /// MAC addresses of vendors.
    Mac,
    /// IPv6 addresses, likewise.
    Ipv6,
    /// Flows over IPv4: both addresses, protocol and ports.
    FiveTuple,
    /// Domain and path.
    Url,
    /// Paths of files.
    FileName,
}

impl Kind {
    /// All kinds.
    pub const ALL: [Self; 6] = [Self::Ipv4, Self::Mac, Self::Ipv6, Self::FiveTuple, Self::Url, Self::FileName];

    /// The name in parameters.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Ipv4 => "ipv4",
            Self::Mac => "mac",
            Self::Ipv6 => "ipv6",
            Self::FiveTuple => "5-tuple",
            Self::Url => "url",
            Self::FileName => "file-name",
        }
    }

    /// The kind that tables are keyed by.
    pub fn name_kind(self) -> NameKind {
        match self {
            Self::Ipv4 => NameKind::Ipv4,
            Self::Mac => NameKind::Mac,
            Self::Ipv6 => NameKind::Ipv6,
            Self::FiveTuple => NameKind::FiveTuple,
            Self::Url | Self::FileName => NameKind::Text,
        }
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl FromStr for Kind {
    type Err = String;

    fn from_str(s: &str) -> Result<Self, String> {
        Self::ALL.into_iter().find(|kind| kind.as_str() == s).ok_or_else(|| {
            let known = Self::ALL.map(Self::as_str).join(", ");
            format!("no such kind of names: `{s}`; there are {known}")
        })
    }
}

/// Where real names are.
#[derive(Clone, Debug)]
pub struct Sources {
    /// Prefixes of both families, one per line.
    pub prefixes: Option<PathBuf>,
    /// The IEEE list of vendor prefixes.
    pub vendors: PathBuf,
    /// Domains, one per line.
    pub domains: Option<PathBuf>,
    /// A folder of file lists, `*.list`.
    pub file_lists: PathBuf,
}

impl Default for Sources {
    /// The files that `scripts/real-names` has written to the folder given by `FIBULA_NAMES`, `real-names` by default;
    /// and the files of Debian's packages.
    fn default() -> Self {
        let folder = std::env::var_os("FIBULA_NAMES").map_or_else(|| FOLDER.into(), PathBuf::from);
        let fetched = |file: &str| Some(folder.join(file)).filter(|path| path.exists());
        Self {
            prefixes: fetched("prefixes.txt"),
            vendors: "/usr/share/ieee-data/oui.txt".into(),
            domains: fetched("domains.txt"),
            file_lists: "/var/lib/dpkg/info".into(),
        }
    }
}

/// Names and their source.
#[derive(Clone, Debug)]
pub struct Named {
    /// In random order.
    pub names: Vec<Name>,
    /// The source, in a few words.
    pub source: &'static str,
}

/// The default output folder of `scripts/real-names`.
const FOLDER: &str = "real-names";

/// The source of made-up names.
const MADE_UP: &str = "made up";

impl Sources {
    /// `n` names, or as many as the source has.
    pub fn names(&self, kind: Kind, n: usize, seed: u64) -> Named {
        let mut random = Random::new(seed ^ 0x6b69_6e64);
        let (bytes, source) = match kind {
            Kind::Ipv4 => {
                let (mut draw, source) = self.addresses::<4>();
                (distinct(n, || draw(&mut random).to_vec()), source)
            }
            Kind::Ipv6 => {
                let (mut draw, source) = self.addresses::<16>();
                (distinct(n, || draw(&mut random).to_vec()), source)
            }
            Kind::Mac => {
                let (vendors, source) = vendors(&self.vendors);
                (distinct(n, || mac(&vendors, &mut random)), source)
            }
            Kind::FiveTuple => {
                let (mut draw, source) = self.addresses::<4>();
                (distinct(n, || five_tuple(draw(&mut random), draw(&mut random), &mut random)), source)
            }
            Kind::FileName => self.file_names(n, &mut random),
            Kind::Url => self.urls(n, &mut random),
        };
        let name = |bytes: Vec<u8>| Name::from_bytes(kind.name_kind(), &bytes).ok();
        Named { names: bytes.into_iter().filter_map(name).collect(), source }
    }

    /// Draws addresses of `BYTES` bytes: a random prefix of the table, followed by random bits.
    fn addresses<const BYTES: usize>(&self) -> (impl FnMut(&mut Random) -> [u8; BYTES] + use<BYTES>, &'static str) {
        let prefixes: Vec<([u8; BYTES], u32)> =
            lines(self.prefixes.as_deref()).iter().filter_map(|l| prefix(l)).collect();
        let source = if prefixes.is_empty() { MADE_UP } else { "a table of prefixes" };
        // Otherwise global unicast addresses.
        let any = ([if BYTES == 4 { 0 } else { 0x20 }; BYTES], if BYTES == 4 { 0 } else { 3 });
        let draw = move |random: &mut Random| loop {
            let (mut address, len) = match prefixes.len() as u64 {
                0 => any,
                n => prefixes[random.below(n) as usize],
            };
            for (at, byte) in address.iter_mut().enumerate() {
                let kept = len.saturating_sub(8 * at as u32).min(8);
                let mask = (0xFF_u32 >> kept) as u8;
                *byte = *byte & !mask | random.next_u64() as u8 & mask;
            }
            if BYTES == 16 || (1..224).contains(&address[0]) {
                return address;
            }
        };
        (draw, source)
    }

    fn file_names(&self, n: usize, random: &mut Random) -> (Vec<Vec<u8>>, &'static str) {
        let mut lists: Vec<PathBuf> = std::fs::read_dir(&self.file_lists)
            .map(|folder| folder.filter_map(|entry| Some(entry.ok()?.path())).collect())
            .unwrap_or_default();
        lists.retain(|path| path.extension().is_some_and(|extension| extension == "list"));
        lists.sort();
        let files: HashSet<Vec<u8>> = lists
            .iter()
            .flat_map(|path| lines(Some(path)))
            .filter(|line| line.len() > 2)
            .map(String::into_bytes)
            .collect();
        if files.is_empty() {
            let made = || format!("/usr/{}/{}/{}", word(random), word(random), word(random)).into_bytes();
            return (distinct(n, made), MADE_UP);
        }
        let mut files: Vec<Vec<u8>> = files.into_iter().collect();
        files.sort_unstable();
        let n = n.min(files.len());
        random.shuffle_front(&mut files, n);
        files.truncate(n);
        (files, "Debian's packages")
    }

    fn urls(&self, n: usize, random: &mut Random) -> (Vec<Vec<u8>>, &'static str) {
        let (paths, source) = self.file_names(n, random);
        let mut domains = lines(self.domains.as_deref());
        domains.retain(|domain| domain.contains('.') && !domain.contains(char::is_whitespace));
        let source = match (domains.is_empty(), source) {
            (true, MADE_UP) => MADE_UP,
            (true, _) => "made-up domains, Debian's files",
            (false, MADE_UP) => "a list of domains, made-up files",
            (false, _) => "a list of domains, Debian's files",
        };
        if domains.is_empty() {
            domains = (0..4096).map(|_| format!("www.{}{}.example", word(random), word(random))).collect();
        }
        // A path may occur on several domains.
        let url = || {
            let domain = &domains[random.below(domains.len() as u64) as usize];
            let path = &paths[random.below(paths.len() as u64) as usize];
            ["https://".as_bytes(), domain.as_bytes(), path].concat()
        };
        (distinct(n, url), source)
    }
}

/// The lines of a text, compressed with gzip or not; none if it cannot be read.
fn lines(path: Option<&Path>) -> Vec<String> {
    let mut text = path.and_then(|path| std::fs::read(path).ok()).unwrap_or_default();
    if text.starts_with(&[0x1f, 0x8b]) {
        let mut unpacked = Vec::new();
        // The lines before an error count, too.
        let _ = flate2::read::MultiGzDecoder::new(&text[..]).read_to_end(&mut unpacked);
        text = unpacked;
    }
    String::from_utf8_lossy(&text).lines().map(|line| line.trim().to_owned()).filter(|line| !line.is_empty()).collect()
}

/// Parses `10.0.0.0/8`, with addresses of `BYTES` bytes; what follows is ignored.
fn prefix<const BYTES: usize>(line: &str) -> Option<([u8; BYTES], u32)> {
    let text = line.split([' ', '\t', ',']).next()?;
    let (address, len) = text.split_once('/')?;
    let bytes = match address.parse().ok()? {
        IpAddr::V4(address) => address.octets().to_vec(),
        IpAddr::V6(address) => address.octets().to_vec(),
    };
    let len: u32 = len.parse().ok()?;
    Some((bytes.try_into().ok()?, len)).filter(|(_, len)| *len > 0 && *len <= 8 * BYTES as u32)
}

/// The first three bytes of MACs, from lines such as `00-22-72   (hex)  Vendor`.
fn vendors(path: &Path) -> (Vec<[u8; 3]>, &'static str) {
    let vendor = |line: String| {
        let mut bytes = line.get(..8)?.split('-').map(|byte| u8::from_str_radix(byte, 16));
        let vendor = [bytes.next()?.ok()?, bytes.next()?.ok()?, bytes.next()?.ok()?];
        (bytes.next().is_none() && line.contains("(hex)")).then_some(vendor)
    };
    let vendors: Vec<_> = lines(Some(path)).into_iter().filter_map(vendor).collect();
    if vendors.is_empty() { ((0..=255).map(|i| [0, 0x16, i]).collect(), MADE_UP) } else { (vendors, "vendors of IEEE") }
}

fn mac(vendors: &[[u8; 3]], random: &mut Random) -> Vec<u8> {
    let vendor = vendors[random.below(vendors.len() as u64) as usize];
    let host = random.next_u64().to_le_bytes();
    [vendor, [host[0], host[1], host[2]]].concat()
}

/// Bytes in the layout of [`NameKind::FiveTuple`]: mostly TCP, from an ephemeral port to a common one.
fn five_tuple(source: [u8; 4], destination: [u8; 4], random: &mut Random) -> Vec<u8> {
    const PORTS: [u16; 8] = [443, 80, 53, 22, 25, 123, 993, 8080];
    let protocol = if random.below(8) == 0 { 17 } else { 6 };
    let from = (32_768 + random.below(28_232)) as u16;
    let to = PORTS[random.below(8) as usize];
    let mut bytes = [source, destination].concat();
    bytes.push(protocol);
    bytes.extend(from.to_be_bytes());
    bytes.extend(to.to_be_bytes());
    bytes
}

/// Two to five syllables.
fn word(random: &mut Random) -> String {
    const SYLLABLES: [&str; 16] =
        ["ba", "cor", "den", "fi", "gra", "ho", "jun", "ka", "lem", "mi", "nor", "pa", "ri", "sto", "tu", "ve"];
    (0..2 + random.below(4)).map(|_| SYLLABLES[random.below(16) as usize]).collect()
}

/// `n` distinct results of `draw`, or as many as there seem to be.
fn distinct(n: usize, mut draw: impl FnMut() -> Vec<u8>) -> Vec<Vec<u8>> {
    let (mut seen, mut names) = (HashSet::with_capacity(n), Vec::with_capacity(n));
    let mut tries = 8 * n + 64;
    while names.len() < n && tries > 0 {
        tries -= 1;
        let name = draw();
        if seen.insert(name.clone()) {
            names.push(name);
        }
    }
    names
}

#[cfg(test)]
mod tests {
    use super::*;

    fn nothing() -> Sources {
        let none = PathBuf::from("/nonexistent");
        Sources { prefixes: None, vendors: none.clone(), domains: None, file_lists: none }
    }

    #[test]
    fn names_of_every_kind_are_distinct_and_as_many_as_wanted_without_any_source() {
        for kind in Kind::ALL {
            let named = nothing().names(kind, 5000, 3);
            let distinct: HashSet<&Name> = named.names.iter().collect();
            assert_eq!((distinct.len(), named.source), (5000, MADE_UP), "{kind}");
            assert_eq!(named.names, nothing().names(kind, 5000, 3).names, "{kind} follows from the seed");
            assert_eq!(kind.as_str().parse(), Ok(kind));
        }
    }

    #[test]
    fn names_come_from_sources_that_are_at_hand() {
        let folder = std::env::temp_dir().join(format!("fibula-kinds-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let file = |name: &str, text: &str| {
            let path = folder.join(name);
            std::fs::write(&path, text).unwrap();
            path
        };
        let sources = Sources {
            prefixes: Some(file("prefixes", "10.20.0.0/14\n2001:db8:7::/48 1\nno prefix\n1.2.3.4/99\n")),
            vendors: file("oui.txt", "OUI/MA-L\n\n00-22-72   (hex)\t\tAcme\n002272     (base 16)\tAcme\n"),
            domains: Some(file("domains", "one.example\ntwo.example\n")),
            file_lists: folder.clone(),
        };
        file("a.list", "/.\n/usr/bin/a\n/usr/share/doc\n");
        file("b.list", "/.\n/usr/share/doc\n/usr/bin/b\n");
        let names = |kind, n| sources.names(kind, n, 1);
        assert!(names(Kind::Ipv4, 1000).names.iter().all(|name| {
            let bytes = name.as_bytes();
            bytes[0] == 10 && bytes[1] & 0xFC == 20
        }));
        assert!(names(Kind::Ipv6, 100).names.iter().all(|name| name.as_bytes()[..6] == [0x20, 1, 0xd, 0xb8, 0, 7]));
        assert!(names(Kind::Mac, 100).names.iter().all(|name| name.as_bytes()[..3] == [0, 0x22, 0x72]));
        assert!(names(Kind::FiveTuple, 100).names.iter().all(|name| name.as_bytes()[0] == 10));
        let files = names(Kind::FileName, 100);
        assert_eq!((files.names.len(), files.source), (3, "Debian's packages"), "as many as there are");
        let urls = names(Kind::Url, 100);
        assert_eq!((urls.names.len(), urls.source), (6, "a list of domains, Debian's files"));
        assert!(urls.names.iter().any(|name| name.as_bytes() == b"https://two.example/usr/bin/b"));
        std::fs::remove_dir_all(&folder).unwrap();
    }
}
