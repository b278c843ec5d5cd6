//! Lines of code of a lookup policy: the shared code, without the lines that only another policy needs.

/// The sources of flow tables with entries in an array, as compiled in.
const SOURCES: &[&str] = &[
    include_str!("../../../../lookup/src/flow/batch.rs"),
    include_str!("../../../../lookup/src/flow/bucket.rs"),
    include_str!("../../../../lookup/src/flow/clock.rs"),
    include_str!("../../../../lookup/src/flow/error.rs"),
    include_str!("../../../../lookup/src/flow/layout.rs"),
    include_str!("../../../../lookup/src/flow/policy.rs"),
    include_str!("../../../../lookup/src/flow/report.rs"),
    include_str!("../../../../lookup/src/flow/simd.rs"),
    include_str!("../../../../lookup/src/flow/split.rs"),
    include_str!("../../../../lookup/src/flow/store.rs"),
    include_str!("../../../../lookup/src/flow/table.rs"),
    include_str!("../../../../lookup/src/flow/maintenance.rs"),
];

/// What decides whether to read the second bucket, as far as lines of code are concerned.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Form {
    /// Nothing: the optimistic and the pessimistic policy.
    Plain,
    /// The Bloom filter.
    Filter,
    /// The published Bloom filter, whose tags are not counted.
    Published,
    /// The remap array.
    Remap,
}

impl Form {
    /// The form of the policy of this name.
    pub(super) fn of(policy: &str) -> Option<Self> {
        match policy {
            "pessimistic" | "optimistic" => Some(Self::Plain),
            "cuckoo++" => Some(Self::Filter),
            "cuckoo++ published" => Some(Self::Published),
            "horton" => Some(Self::Remap),
            _ => None,
        }
    }
}

/// Identifiers that both filters have.
const OF_FILTERS: &[&str] = &["FILTER_BITS", "bits"];
/// Identifiers that only the filter whose tags are counted has.
const OF_FILTER: &[&str] = &["Filter", "PROBES", "add", "subtract"];
/// The counts of tags, which the remap array has too.
const OF_COUNTS: &[&str] = &["counts"];
/// Identifiers that only the published filter has.
const OF_UNCOUNTED: &[&str] = &["Uncounted", "Published", "PROBES_UNCOUNTED"];
/// Identifiers that only the remap array has.
const OF_REMAP: &[&str] = &[
    "Remap",
    "Horton",
    "FUNCTIONS",
    "CHOICES",
    "HAS_FUNCTIONS",
    "choice",
    "choices",
    "function",
    "functions",
    "function_of",
    "set_functions",
    "count",
    "set_count",
];
/// Identifiers that both of these have but not the plain policies.
const OF_HINTS: &[&str] = &[
    "Books",
    "books",
    "set_books",
    "has_books_of",
    "moved_out",
    "moved_back",
    "has_room_to_move",
    "set_moved",
    "MAX_MOVED",
    "hint",
    "asked",
    "tells",
    "SPREAD_FILTER",
];
/// Identifiers that only timers have.
const OF_TIMERS: &[&str] = &[
    "Timed",
    "TIMED",
    "Clock",
    "clock",
    "Step",
    "advance",
    "scan",
    "scanned",
    "scan_due_in",
    "refresh",
    "renew",
    "lookup_refresh",
    "remaining",
    "running",
    "ends",
    "set_end",
    "lifetime",
    "Lifetime",
    "MAX_LIFETIME",
    "refused_lifetime",
    "ended_reused",
    "ended_scanned",
    "held_units",
    "back_units",
];

/// Lines of a policy, without comments, empty lines and tests.
pub(super) fn count(form: Form, timed: bool) -> usize {
    let mut others: Vec<&str> = Vec::new();
    if form != Form::Published {
        others.extend(OF_UNCOUNTED);
    }
    if form != Form::Filter {
        others.extend(OF_FILTER);
    }
    if !matches!(form, Form::Filter | Form::Published) {
        others.extend(OF_FILTERS);
    }
    if form == Form::Published {
        others.extend(OF_COUNTS);
    }
    if form != Form::Remap {
        others.extend(OF_REMAP);
    }
    if form == Form::Plain {
        others.extend(OF_HINTS);
    }
    if !timed {
        others.extend(OF_TIMERS);
    }
    SOURCES.iter().map(|source| without(&code(source), &others)).sum()
}

/// Lines of code before the tests.
fn code(source: &str) -> Vec<&str> {
    let lines = source.lines().take_while(|line| *line != "#[cfg(test)]");
    lines.filter(|line| !line.trim().is_empty() && !line.trim_start().starts_with("//")).collect()
}

/// The number of lines without those that name one of `others`. An item, arm or block whose first line does so is
/// removed completely; in the first line of an item only its own name counts, not its parameters.
fn without(lines: &[&str], others: &[&str]) -> usize {
    let mut n = 0;
    let mut at = 0;
    while at < lines.len() {
        let line = lines[at];
        let named: Vec<&str> = match defined(line) {
            Some(name) => vec![name],
            None => identifiers(line).collect(),
        };
        at += 1;
        if !named.iter().any(|name| others.contains(name)) {
            n += 1;
        } else if line.ends_with('{') {
            // In formatted code a block ends at the next line that is not indented further.
            let inner = lines[at..].iter().take_while(|inner| indent(inner) > indent(line)).count();
            at = lines.len().min(at + inner + 1);
        }
    }
    n
}

fn indent(line: &str) -> usize {
    line.len() - line.trim_start().len()
}

fn identifiers(line: &str) -> impl Iterator<Item = &str> {
    line.split(|c: char| !c.is_ascii_alphanumeric() && c != '_').filter(|word| !word.is_empty())
}

/// The name of the item that starts on a line.
fn defined(line: &str) -> Option<&str> {
    let mut words = identifiers(line);
    let keyword = |word: &str| ["fn", "struct", "enum", "trait", "mod"].contains(&word);
    line.ends_with(['{', '(', ';']).then(|| words.find(|word| keyword(word)).and_then(|_| words.next())).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    const SOURCE: &str = "//! Words.\n\
        \n\
        fn clock(now: u16) -> u16 {\n    // Says.\n    now\n}\n\
        fn lookup(clock: u16) -> bool {\n    let a = 1;\n    if clock > 2 {\n        a();\n    }\n    a\n}\n\
        #[cfg(test)]\nmod tests {}\n";

    #[test]
    fn what_names_another_goes_and_nothing_else() {
        let lines = code(SOURCE);
        assert_eq!(lines.len(), 10);
        assert_eq!(without(&lines, &[]), 10);
        assert_eq!(without(&lines, &["clock"]), 4);
        assert_eq!(without(&lines, &["lookup"]), 3);
    }

    #[test]
    fn each_form_has_lines_of_its_own() {
        let [plain, filter, remap] = [Form::Plain, Form::Filter, Form::Remap].map(|form| count(form, false));
        assert!(plain > 300 && plain < filter && filter < remap, "{plain}, {filter}, {remap}");
        let published = count(Form::Published, false);
        assert!(plain < published && published < filter, "{plain}, {published}, {filter}");
        for form in [Form::Plain, Form::Published, Form::Filter, Form::Remap] {
            assert!(count(form, false) < count(form, true));
        }
    }
}
