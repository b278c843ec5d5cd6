//! The lists of a directory, read and checked line by line.

use crate::remote::PortOf;
use command::output::{Exit, Failure};
use fib::text::{Dialect, Lines, Records};
use std::borrow::Cow;
use std::collections::{BTreeSet, HashMap};
use std::path::{Path, PathBuf};

/// The lists that a directory may have, and their columns. Those in front are required.
pub(super) const SWITCHES: List = List { file: "switches.csv", columns: &["name", "tenants"], n_required: 1 };
pub(super) const HOSTS: List = List { file: "hosts.csv", columns: &["name", "port"], n_required: 2 };
pub(super) const LINKS: List =
    List { file: "links.csv", columns: &["a", "b", "cost", "weight", "state"], n_required: 2 };
/// The same columns as `fibula name import` reads.
pub(super) const NAMES: List = List { file: "names.csv", columns: &["name", "host", "tenant", "ip"], n_required: 2 };

/// Errors shown before giving up on a file.
const MAX_ERRORS: usize = 10;

/// A list.
#[derive(Clone, Copy, Debug)]
pub(super) struct List {
    pub(super) file: &'static str,
    pub(super) columns: &'static [&'static str],
    n_required: usize,
}

/// A switch that is wanted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Switch {
    pub(super) name: String,
    /// Empty: it holds all names.
    pub(super) tenants: BTreeSet<u32>,
}

/// A host that is wanted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Host {
    pub(super) name: String,
    pub(super) port: PortOf,
}

/// A link that is wanted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Link {
    pub(super) a: PortOf,
    pub(super) b: PortOf,
    pub(super) cost: u32,
    pub(super) weight: u32,
    /// None: leave it as it is, or up if the link is new.
    pub(super) up: Option<bool>,
}

/// The contents of a directory. Missing lists say nothing.
#[derive(Debug)]
pub(super) struct Lists {
    pub(super) switches: Option<Vec<Switch>>,
    pub(super) hosts: Option<Vec<Host>>,
    pub(super) links: Option<Vec<Link>>,
    /// Not read into memory: it may have millions of lines.
    pub(super) names: Option<PathBuf>,
}

impl Lists {
    /// Reads all lists except the names.
    /// # Errors
    /// The first wrong lines, and unknown lists.
    pub(super) fn read(directory: &Path) -> anyhow::Result<Lists> {
        let shown = directory.display();
        let entries = std::fs::read_dir(directory)
            .map_err(|error| Failure::new(Exit::NotFound, format!("{shown} cannot be read as a directory: {error}")))?;
        let known = [SWITCHES, HOSTS, LINKS, NAMES].map(|list| list.file);
        let mut found = BTreeSet::new();
        for entry in entries {
            let name = entry?.file_name().to_string_lossy().into_owned();
            let is_list = [".csv", ".toml", ".csv.gz"].iter().any(|end| name.to_lowercase().ends_with(end));
            match known.iter().find(|known| **known == name) {
                Some(known) => _ = found.insert(*known),
                // Editors' backup copies and files about the lists are not lists.
                None if is_list && !name.starts_with(['.', '#']) => {
                    let known = known.join(", ");
                    let why = format!("{shown}/{name}: not the name of a list; a directory may have {known}");
                    return Err(Failure::new(Exit::BadInput, why));
                }
                None => {}
            }
        }
        if found.is_empty() {
            let why = format!("{shown} has no list; a directory may have {}", known.join(", "));
            return Err(Failure::new(Exit::BadInput, why));
        }
        let path = |list: List| found.contains(list.file).then(|| directory.join(list.file));
        Ok(Lists {
            switches: path(SWITCHES)
                .map(|path| SWITCHES.read(&path, switch, |one| vec![one.name.clone()]))
                .transpose()?,
            hosts: path(HOSTS)
                .map(|path| HOSTS.read(&path, host, |one| vec![one.name.clone(), one.port.to_string()]))
                .transpose()?,
            links: path(LINKS)
                .map(|path| LINKS.read(&path, link, |one| vec![one.a.to_string(), one.b.to_string()]))
                .transpose()?,
            names: path(NAMES),
        })
    }
}

impl List {
    /// The objects of a file. No two of them may share a value of `keys`.
    fn read<T>(
        self,
        path: &Path,
        object: impl Fn(&[String]) -> Result<T, String>,
        keys: impl Fn(&T) -> Vec<String>,
    ) -> anyhow::Result<Vec<T>> {
        let (mut objects, mut errors) = (Vec::new(), Vec::new());
        let mut lines: HashMap<String, u64> = HashMap::new();
        // Position of each column: as listed, unless a header says otherwise.
        let mut places: Vec<Option<usize>> = (0..self.columns.len()).map(Some).collect();
        let mut n_columns = self.columns.len();
        for (at, line) in Records::new(Lines::new(command::open(path)?), Dialect::Plain, &[]).enumerate() {
            if errors.len() >= MAX_ERRORS {
                break;
            }
            let fields = line.and_then(|line| match Dialect::Plain.fields(&line.text) {
                Ok(fields) => Ok((line.number, fields.into_iter().map(Cow::into_owned).collect::<Vec<String>>())),
                Err(why) => Err(line.error(why)),
            });
            let (line, record) = match fields {
                Ok(fields) => fields,
                Err(error) => {
                    errors.push(error.to_string());
                    continue;
                }
            };
            if at == 0 && record.iter().any(|field| field.eq_ignore_ascii_case(self.columns[0])) {
                match self.places(&record) {
                    Ok(found) => (places, n_columns) = (found, record.len()),
                    Err(why) => {
                        errors.push(format!("line {line}: {why}"));
                        break;
                    }
                }
                continue;
            }
            let read = || {
                if record.len() > n_columns || record.iter().all(String::is_empty) {
                    let (got, columns) = (record.len(), self.columns.join(","));
                    return Err(format!("{got} fields for {n_columns} columns: write {columns}"));
                }
                let field =
                    |place: &Option<usize>| place.and_then(|place| record.get(place).cloned()).unwrap_or_default();
                let fields: Vec<String> = places.iter().map(field).collect();
                if let Some(lacks) = (0..self.n_required).find(|i| fields[*i].is_empty()) {
                    return Err(format!("there is no {}: write {}", self.columns[lacks], self.columns.join(",")));
                }
                object(&fields)
            };
            match read() {
                Ok(one) => {
                    // A link has two.
                    let twice = keys(&one).into_iter().find_map(|key| Some((lines.insert(key.clone(), line)?, key)));
                    match twice {
                        Some((before, key)) => errors.push(format!("line {line}: {key} is already on line {before}")),
                        None => objects.push(one),
                    }
                }
                Err(why) => errors.push(format!("line {line}: {why}")),
            }
        }
        if errors.is_empty() {
            return Ok(objects);
        }
        let path = path.display();
        Err(Failure::new(Exit::BadInput, format!("{path}: nothing changed\n{}", errors.join("\n"))))
    }

    /// The positions of the columns by a header.
    fn places(self, header: &[String]) -> Result<Vec<Option<usize>>, String> {
        let is = |field: &str, column: &str| field.eq_ignore_ascii_case(column);
        for (at, field) in header.iter().enumerate() {
            if !self.columns.iter().any(|column| is(field, column)) {
                let columns = self.columns.join(", ");
                return Err(format!("there is no column `{field}`; {} has {columns}", self.file));
            }
            if header.iter().take(at).any(|before| is(before, field)) {
                return Err(format!("the column `{field}` appears twice"));
            }
        }
        let places: Vec<Option<usize>> =
            self.columns.iter().map(|column| header.iter().position(|field| is(field, column))).collect();
        match places.iter().take(self.n_required).position(Option::is_none) {
            Some(lacks) => Err(format!("the column `{}` is missing", self.columns[lacks])),
            None => Ok(places),
        }
    }
}

fn number(text: &str, what: &str, default: u32) -> Result<u32, String> {
    if text.is_empty() {
        return Ok(default);
    }
    text.parse().map_err(|_| format!("{what} `{text}`: write a number"))
}

fn switch(fields: &[String]) -> Result<Switch, String> {
    let tenants = fields[1].split_whitespace().map(|tenant| number(tenant, "tenant", 0));
    Ok(Switch { name: fields[0].clone(), tenants: tenants.collect::<Result<_, _>>()? })
}

fn host(fields: &[String]) -> Result<Host, String> {
    Ok(Host { name: fields[0].clone(), port: fields[1].parse()? })
}

fn link(fields: &[String]) -> Result<Link, String> {
    let up = match &*fields[4] {
        "" => None,
        "up" => Some(true),
        "down" => Some(false),
        other => return Err(format!("state `{other}`: write up, down or nothing")),
    };
    let (cost, weight) = (number(&fields[2], "cost", 1)?, number(&fields[3], "weight", 1)?);
    let link = Link { a: fields[0].parse()?, b: fields[1].parse()?, cost, weight, up };
    if link.a == link.b { Err("the link joins a port with itself".to_owned()) } else { Ok(link) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(files: &[(&str, &str)]) -> Result<Lists, String> {
        let directory = tempfile::tempdir().unwrap();
        for (file, text) in files {
            std::fs::write(directory.path().join(file), text).unwrap();
        }
        Lists::read(directory.path()).map_err(|error| error.to_string())
    }

    #[test]
    fn columns_are_found_by_a_header_and_lists_that_are_not_there_say_nothing() {
        let lists = read(&[
            ("links.csv", "# cables\nB,a,weight\ns2:1,s1:2,3\n"),
            ("switches.csv", "s1\ns2,7 5\n\n"),
            ("notes.txt", "hello"),
        ])
        .unwrap();
        let port = |port: &str| port.parse::<PortOf>().unwrap();
        let link = Link { a: port("s1:2"), b: port("s2:1"), cost: 1, weight: 3, up: None };
        assert_eq!(lists.links, Some(vec![link]));
        let switch =
            |name: &str, tenants: &[u32]| Switch { name: name.to_owned(), tenants: tenants.iter().copied().collect() };
        assert_eq!(lists.switches, Some(vec![switch("s1", &[]), switch("s2", &[5, 7])]));
        assert!(lists.hosts.is_none() && lists.names.is_none());
    }

    #[test]
    fn what_nobody_knows_and_what_is_wrong_is_refused_with_file_and_line() {
        for (file, text, reasons) in [
            ("links.csv", "a,b,speed\ns1:1,s2:1,9\n", &["line 1: there is no column `speed`"][..]),
            ("links.csv", "a,cost\n", &["the column `b` is missing"]),
            (
                "links.csv",
                "s1:1,s2:1,1,1,off\ns1:1\ns1:x,s2:1\n",
                &["line 1: state `off`", "line 2: there is no b", "line 3: `s1:x`"],
            ),
            ("links.csv", "s1:1,s2:1\ns3:1,s1:1\n", &["line 2: s1:1 is already on line 1"]),
            (
                "hosts.csv",
                "name,port\nh1,s1:1\nh1,s1:2\nh2,s1:1\n",
                &["line 3: h1 is already on line 2", "line 4: s1:1 is already on line 2"],
            ),
            ("hosts.csv", "h1,s1:1,more\n", &["line 1: 3 fields"]),
            ("switches.csv", "name,tenants\ns1,x\n", &["line 2: tenant `x`"]),
            ("hots.csv", "h1,s1:1\n", &["hots.csv: not the name of a list"]),
            ("notes.txt", "", &["has no list"]),
        ] {
            let error = read(&[(file, text)]).unwrap_err();
            for reason in reasons {
                assert!(error.contains(reason), "{file}: {error}");
            }
        }
    }
}
