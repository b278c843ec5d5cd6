//! The configuration file of a daemon: read and checked as a whole; errors start with its name. When it is read again,
//! finds out which keys have changed.

use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// An unusable configuration.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConfigError {
    /// The file cannot be read.
    #[error("cannot read {path}: {source}")]
    Read {
        /// The file.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// The file is not a valid configuration.
    #[error("{path}: {message}")]
    Invalid {
        /// The file.
        path: PathBuf,
        /// Where and why.
        message: String,
    },
}

/// Reads the file at `path`; `parse` turns its text into a configuration, or says what is wrong with it.
/// # Errors
/// [`ConfigError`].
pub fn load<T>(path: &Path, parse: impl FnOnce(&str) -> Result<T, String>) -> Result<T, ConfigError> {
    let text = std::fs::read_to_string(path).map_err(|source| ConfigError::Read { path: path.to_owned(), source })?;
    parse(&text).map_err(|message| ConfigError::Invalid { path: path.to_owned(), message })
}

/// The keys whose values a daemon applies while it runs.
#[derive(Clone, Copy, Debug)]
pub struct Live {
    /// Their paths; a section stands for all its keys.
    pub keys: &'static [&'static str],
    /// Optional sections of a daemon, such as `tls`: a key in one applies only if the section has been present since
    /// the start, and still is.
    pub parts: &'static [&'static str],
}

/// A configuration that its daemon can read again.
#[derive(Debug)]
pub struct Watched<C> {
    path: PathBuf,
    parse: fn(&str) -> Result<C, String>,
    keys_of: fn(&str) -> Option<Value>,
    live: Live,
    /// The values at the daemon's start.
    started: Value,
    /// The values as last read.
    last: Value,
}

/// The changed keys of a configuration, as paths: `limits.connections`, `port 3.acl`.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Changes {
    /// Keys that apply at once, changed since the last reading.
    pub live: Vec<String>,
    /// Keys that apply at the next start, changed since the start.
    pub at_restart: Vec<String>,
}

impl<C> Watched<C> {
    /// Reads the file at `path`. `keys_of` gives the values in a text by key.
    /// # Errors
    /// [`ConfigError`].
    pub fn open(
        path: &Path,
        parse: fn(&str) -> Result<C, String>,
        keys_of: fn(&str) -> Option<Value>,
        live: Live,
    ) -> Result<(Self, C), ConfigError> {
        let (config, keys) = load(path, |text| Ok((parse(text)?, keys_of(text).unwrap_or_default())))?;
        let (path, started, last) = (path.to_owned(), keys.clone(), keys);
        Ok((Self { path, parse, keys_of, live, started, last }, config))
    }

    /// The file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Reads it again.
    /// # Errors
    /// [`ConfigError`]; the next comparison is then with what was last read.
    pub fn read_again(&mut self) -> Result<(C, Changes), ConfigError> {
        let (parse, keys_of) = (self.parse, self.keys_of);
        let (config, now) = load(&self.path, |text| Ok((parse(text)?, keys_of(text).unwrap_or_default())))?;
        let changes = Changes {
            live: changed(&self.last, &now).into_iter().filter(|key| self.is_live(key, &now)).collect(),
            at_restart: changed(&self.started, &now).into_iter().filter(|key| !self.is_live(key, &now)).collect(),
        };
        self.last = now;
        Ok((config, changes))
    }

    fn is_live(&self, key: &str, now: &Value) -> bool {
        // The number or the name of an element identifies it.
        let plain: Vec<&str> = key.split('.').filter_map(|part| part.split(' ').next()).collect();
        let is_part = |part: &&&str| plain.first() == Some(*part);
        if self
            .live
            .parts
            .iter()
            .find(is_part)
            .is_some_and(|part| [&self.started, now].iter().any(|keys| keys.get(part).is_none()))
        {
            return false;
        }
        let plain = plain.join(".");
        let covers =
            |live: &&&str| plain.strip_prefix(**live).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'));
        self.live.keys.iter().any(|live| covers(&live))
    }
}

/// The keys whose values differ. List elements are identified by `id` or `name`, and compared with the one of the same
/// name; elements without either are identified by position, and if the length of such a list changes, it is reported
/// as a whole.
fn changed(before: &Value, after: &Value) -> BTreeSet<String> {
    let mut keys = BTreeSet::new();
    compare("", before, after, &mut keys);
    keys
}

fn compare(path: &str, before: &Value, after: &Value, keys: &mut BTreeSet<String>) {
    let below = |name: &str| if path.is_empty() { name.to_owned() } else { format!("{path}.{name}") };
    match (before, after) {
        _ if before == after => {}
        (Value::Object(a), Value::Object(b)) => {
            for name in a.keys().chain(b.keys()) {
                let (a, b) = (a.get(name).unwrap_or(&Value::Null), b.get(name).unwrap_or(&Value::Null));
                // A section that was added or removed is reported by its keys.
                let empty = Value::Object(serde_json::Map::new());
                match (a, b) {
                    (Value::Null, Value::Object(_)) => compare(&below(name), &empty, b, keys),
                    (Value::Object(_), Value::Null) => compare(&below(name), a, &empty, keys),
                    _ => compare(&below(name), a, b, keys),
                }
            }
        }
        (Value::Array(a), Value::Array(b)) => match (by_name(a), by_name(b)) {
            (Some(a), Some(b)) => {
                for name in a.keys().chain(b.keys()).collect::<BTreeSet<_>>() {
                    let path = format!("{path} {name}");
                    match (a.get(name), b.get(name)) {
                        (Some(a), Some(b)) => compare(&path, a, b, keys),
                        _ => _ = keys.insert(path),
                    }
                }
            }
            _ if a.len() == b.len() && a.iter().chain(b).all(Value::is_object) => {
                for (place, (a, b)) in (1..).zip(a.iter().zip(b)) {
                    compare(&format!("{path} {place}"), a, b, keys);
                }
            }
            _ => _ = keys.insert(path.to_owned()),
        },
        _ => _ = keys.insert(path.to_owned()),
    }
}

/// The elements of a list by `id` or `name`, if each has a unique one.
fn by_name(list: &[Value]) -> Option<BTreeMap<String, &Value>> {
    let name = |element: &Value| {
        ["id", "name"].iter().find_map(|key| element.get(*key)).map(|name| match name {
            Value::String(name) => name.clone(),
            name => name.to_string(),
        })
    };
    let named: BTreeMap<String, &Value> =
        list.iter().map(|element| Some((name(element)?, element))).collect::<Option<_>>()?;
    (named.len() == list.len()).then_some(named)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn names(before: &Value, after: &Value) -> Vec<String> {
        changed(before, after).into_iter().collect()
    }

    #[test]
    fn changed_keys_are_named_with_the_element_that_they_are_in() {
        let before = json!({"workers": 1, "limits": {"connections": 5}, "port": [{"id": 3, "acl": "a"}, {"id": 4}]});
        assert_eq!(names(&before, &before), [""; 0]);
        let after = json!({"workers": 2, "limits": {"connections": 6}, "port": [{"id": 3, "acl": "b"}, {"id": 4}], "log": "debug"});
        assert_eq!(names(&before, &after), ["limits.connections", "log", "port 3.acl", "workers"]);
        let after = json!({"workers": 1, "port": [{"id": 3, "acl": "a"}]});
        assert_eq!(names(&before, &after), ["limits.connections", "port 4"]);
        // One that is put before the others changes none of them.
        let after =
            json!({"workers": 1, "limits": {"connections": 5}, "port": [{"id": 1}, {"id": 3, "acl": "b"}, {"id": 4}]});
        assert_eq!(names(&before, &after), ["port 1", "port 3.acl"]);
        let rules = |n: usize| json!({"rule": vec![json!({"action": "drop"}); n]});
        assert_eq!(names(&rules(1), &rules(2)), ["rule"]);
    }

    #[test]
    fn what_needs_a_restart_is_said_until_there_is_one_and_what_does_not_once() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("x.json");
        let write = |text: &str| std::fs::write(&path, text).unwrap();
        let parse = |text: &str| serde_json::from_str::<Value>(text).map_err(|error| error.to_string());
        let keys = |text: &str| serde_json::from_str(text).ok();
        write(r#"{"workers": 1, "limits": {"streams": 1, "idle_ms": 1}}"#);
        let (mut watched, _) =
            Watched::open(&path, parse, keys, Live { keys: &["limits.idle_ms", "flow.virtual.servers"], parts: &[] })
                .unwrap();
        write(r#"{"workers": 2, "limits": {"streams": 1, "idle_ms": 2}, "flow": {"virtual": []}}"#);
        let (_, changes) = watched.read_again().unwrap();
        assert_eq!(
            (changes.live, changes.at_restart),
            (vec!["limits.idle_ms".to_owned()], vec!["flow.virtual".to_owned(), "workers".to_owned()])
        );
        write("{");
        assert!(watched.read_again().unwrap_err().to_string().contains("x.json"));
        write(r#"{"workers": 2, "limits": {"streams": 1, "idle_ms": 2}}"#);
        let (_, changes) = watched.read_again().unwrap();
        assert_eq!((changes.live, changes.at_restart), (vec![], vec!["workers".to_owned()]));
    }

    #[test]
    fn a_key_of_an_element_is_live_wherever_it_is() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("x.json");
        let service = |servers: Value| json!({"flow": {"virtual": [{"port": 80, "servers": servers}]}}).to_string();
        let parse = |text: &str| serde_json::from_str::<Value>(text).map_err(|error| error.to_string());
        std::fs::write(&path, service(json!([1]))).unwrap();
        let (mut watched, _) = Watched::open(
            &path,
            parse,
            |text| serde_json::from_str(text).ok(),
            Live { keys: &["flow.virtual.servers"], parts: &[] },
        )
        .unwrap();
        std::fs::write(&path, service(json!([1, 2]))).unwrap();
        let (_, changes) = watched.read_again().unwrap();
        assert_eq!((changes.live, changes.at_restart), (vec!["flow.virtual 1.servers".to_owned()], vec![]));
    }

    #[test]
    fn a_part_that_was_not_there_at_the_start_waits_for_a_restart_with_all_its_keys() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("x.json");
        let write = |value: Value| std::fs::write(&path, value.to_string()).unwrap();
        let parse = |text: &str| serde_json::from_str::<Value>(text).map_err(|error| error.to_string());
        let open = || {
            let live = Live { keys: &["tls", "limits"], parts: &["tls"] };
            Watched::open(&path, parse, |text| serde_json::from_str(text).ok(), live).unwrap().0
        };
        write(json!({}));
        let mut without = open();
        write(json!({"tls": {"dir": "a"}, "limits": {"idle_ms": 1}}));
        let changes = |watched: &mut Watched<Value>| {
            let Changes { live, at_restart } = watched.read_again().unwrap().1;
            (live.join(" "), at_restart.join(" "))
        };
        let said = |live: &str, at_restart: &str| (live.to_owned(), at_restart.to_owned());
        assert_eq!(changes(&mut without), said("limits.idle_ms", "tls.dir"));
        let mut with = open();
        write(json!({"tls": {"dir": "b"}}));
        assert_eq!(changes(&mut without), said("limits.idle_ms", "tls.dir"), "until it starts again");
        assert_eq!(changes(&mut with), said("limits.idle_ms tls.dir", ""));
        write(json!({}));
        assert_eq!(changes(&mut with), said("", "tls.dir"));
    }
}
