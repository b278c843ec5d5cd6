//! The papers' figures and values, which are part of the binary.

use std::collections::HashSet;

use serde::Deserialize;

use super::runner::steps;
use super::{Claim, Figure, Form, Paper, PaperValue, SharedWhy, Why, methods};
use crate::figures::store::Mode;

/// Files of a paper: its figures and its values.
type Files = (&'static str, &'static str);

macro_rules! files {
    ($paper:literal) => {
        (
            include_str!(concat!("../../../../repro/", $paper, "/figures.toml")),
            include_str!(concat!("../../../../repro/", $paper, "/values.csv")),
        )
    };
}

/// The papers, in report order.
const FILES: [Files; 5] = [
    files!("othello"),
    files!("concise"),
    files!("cuckoo-plus-plus"),
    files!("compact-structures"),
    files!("one-hashing"),
];

/// An error in a catalogue.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CatalogueError {
    /// The file of figures does not parse.
    #[error("figures.toml: {0}")]
    Figures(#[from] toml::de::Error),
    /// The file of values does not parse.
    #[error("values.csv: {0}")]
    Values(#[from] csv::Error),
    /// A figure contradicts itself.
    #[error("{paper}/{figure}: {reason}")]
    Figure {
        /// The paper.
        paper: String,
        /// The figure.
        figure: String,
        /// What is wrong.
        reason: String,
    },
    /// There is no paper or figure with this id.
    #[error("there is no paper or figure `{0}`; `fibula repro list` lists all")]
    Unknown(String),
}

/// All papers.
/// # Errors
/// [`CatalogueError`]; a test ensures that the built-in catalogue has none.
pub fn papers() -> Result<Vec<Paper>, CatalogueError> {
    FILES.iter().map(|(figures, values)| parse(figures, values)).collect()
}

/// The figures that `wanted` asks for: `concise/figure-3`, or `concise` for a whole paper; all if it is empty.
/// # Errors
/// [`CatalogueError::Unknown`].
pub fn choose<'a>(papers: &'a [Paper], wanted: &[String]) -> Result<Vec<(&'a Paper, &'a Figure)>, CatalogueError> {
    let all = || papers.iter().flat_map(|paper| paper.figures.iter().map(move |figure| (paper, figure)));
    if wanted.is_empty() {
        return Ok(all().collect());
    }
    let mut chosen = Vec::new();
    for text in wanted {
        let (paper_id, figure_id) = text.split_once('/').map_or((text.as_str(), None), |(p, f)| (p, Some(f)));
        let matching = all().filter(|(p, f)| p.id == paper_id && figure_id.is_none_or(|id| f.id == id));
        let before = chosen.len();
        chosen.extend(matching);
        if chosen.len() == before && (figure_id.is_some() || papers.iter().all(|paper| paper.id != paper_id)) {
            return Err(CatalogueError::Unknown(text.clone()));
        }
    }
    Ok(chosen)
}

/// Reads one paper and checks that figures, series, claims, values and parameters are consistent.
/// # Errors
/// [`CatalogueError`], which says what is not.
pub fn parse(figures: &str, values: &str) -> Result<Paper, CatalogueError> {
    let mut paper: Paper = toml::from_str(figures)?;
    paper.values = csv::Reader::from_reader(values.as_bytes()).deserialize().collect::<Result<_, _>>()?;
    share_whys(&mut paper)?;
    name_machines(&mut paper)?;
    let mut ids = HashSet::new();
    for figure in &paper.figures {
        let wrong =
            |reason: String| CatalogueError::Figure { paper: paper.id.clone(), figure: figure.id.clone(), reason };
        if !ids.insert(figure.id.as_str()) {
            return Err(wrong("there are two of this id".into()));
        }
        check(figure, &paper.figures).map_err(wrong)?;
    }
    let stray = paper.values.iter().find(|value| !ids.contains(value.figure.as_str()));
    if let Some(PaperValue { figure, quote, .. }) = stray {
        let reason = format!("a value (`{quote}`) of a figure that does not exist");
        return Err(CatalogueError::Figure { paper: paper.id, figure: figure.clone(), reason });
    }
    Ok(paper)
}

/// Adds the shared explanations to the claims that name them.
fn share_whys(paper: &mut Paper) -> Result<(), CatalogueError> {
    let mut unused: HashSet<&str> = paper.whys.iter().map(|why| why.id.as_str()).collect();
    for figure in &mut paper.figures {
        for claim in &mut figure.claims {
            for id in &claim.because {
                let Some(SharedWhy { text, given, .. }) = paper.whys.iter().find(|why| why.id == *id) else {
                    let reason = format!("claim `{}`: there is no shared explanation `{id}`", claim.says);
                    return Err(CatalogueError::Figure { paper: paper.id.clone(), figure: figure.id.clone(), reason });
                };
                unused.remove(id.as_str());
                claim.why.push(Why { text: text.clone(), given: given.clone() });
            }
        }
    }
    match unused.into_iter().next() {
        None => Ok(()),
        Some(id) => {
            let reason = "no claim names this shared explanation".into();
            Err(CatalogueError::Figure { paper: paper.id.clone(), figure: id.to_owned(), reason })
        }
    }
}

/// Puts the kind of a machine in place of its short name, in the outcomes for which causes were looked for.
fn name_machines(Paper { id, machines, figures, .. }: &mut Paper) -> Result<(), CatalogueError> {
    for figure in figures {
        for claim in &mut figure.claims {
            for outcome in &mut claim.open_of {
                let known = outcome.split_once(' ').and_then(|(name, rest)| Some((machines.get(name)?, rest)));
                let Some((kind, rest)) = known else {
                    let reason = format!(
                        "claim `{}`: `{outcome}` has no machine of `machines`; write it as `zen-4 quick: missed 1.85`",
                        claim.says
                    );
                    return Err(CatalogueError::Figure { paper: id.clone(), figure: figure.id.clone(), reason });
                };
                *outcome = format!("{kind} {rest}");
            }
        }
    }
    Ok(())
}

fn check(figure: &Figure, all: &[Figure]) -> Result<(), String> {
    if figure.id.is_empty() || !figure.id.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-') {
        return Err("its id may have small letters, digits and - only".into());
    }
    if (figure.method == "none") == figure.why.is_empty() {
        return Err("`why` and the method `none` must come together".into());
    }
    let mut names = HashSet::new();
    if let Some(twice) = figure.series.iter().find(|series| !names.insert(series.name.as_str())) {
        return Err(format!("there are two series `{}`; rename one", twice.name));
    }
    for claim in &figure.claims {
        let wrong = |reason: String| format!("claim `{}`: {reason}", claim.says);
        check_claim(claim, figure).map_err(wrong)?;
        if claim.figure.is_some() || claim.at_worst || claim.beyond.is_some() {
            return Err(wrong("`figure`, `at_worst` and `beyond` are for the conditions of a `why`".into()));
        }
        if claim.place.is_empty() {
            return Err(wrong("it needs its `place` in the paper".into()));
        }
        if claim.open.is_empty() != claim.open_of.is_empty() {
            return Err(wrong(
                "`open` needs the outcomes that it is of, `open_of`, as `zen-4 quick: missed 1.85`".into(),
            ));
        }
        for why in &claim.why {
            let is_bare = |given: &Claim| given.why.is_empty() && given.because.is_empty() && given.open.is_empty();
            if why.given.is_empty() || !why.given.iter().all(is_bare) {
                return Err(wrong("a `why` needs numbers of the run, `given`, which have no `why` or `open`".into()));
            }
            why.given.iter().try_for_each(|given| check_given(given, figure, all)).map_err(wrong)?;
        }
    }
    if !figure.is_runnable() {
        return Ok(());
    }
    if figure.form != Form::Table && (figure.x.label.is_empty() || figure.y.label.is_empty()) {
        return Err("a plot needs labels of both axes".into());
    }
    let method = methods::find(&figure.method).ok_or_else(|| {
        let known: Vec<&str> = methods::all().map(|method| method.name).collect();
        format!("no method `{}`: there are {}", figure.method, known.join(", "))
    })?;
    for mode in [Mode::Quick, Mode::Full] {
        let steps = steps(figure, mode, 1)?;
        if steps.is_empty() {
            return Err(format!("the {mode} run has no step"));
        }
        for step in steps {
            (method.check)(&step.setting).map_err(|error| format!("{mode} run: {error}"))?;
        }
    }
    Ok(())
}

/// Checks a condition of an explanation, which may be about another figure.
fn check_given(given: &Claim, figure: &Figure, all: &[Figure]) -> Result<(), String> {
    let Some(id) = &given.figure else { return check_claim(given, figure) };
    if given.at_worst {
        return Err("`at_worst` is a place of the claim's own figure".into());
    }
    let other = all.iter().find(|other| other.id == *id);
    check_claim(given, other.ok_or_else(|| format!("there is no figure `{id}`"))?)
}

fn check_claim(claim: &Claim, figure: &Figure) -> Result<(), String> {
    let is_known = |name: &str| figure.series.iter().any(|series| series.name == name);
    if let Some(unknown) = std::iter::once(&claim.of).chain(&claim.to).chain(&claim.beyond).find(|name| !is_known(name))
    {
        return Err(format!("there is no series `{unknown}`"));
    }
    if claim.near.is_some() && claim.within.is_none() {
        return Err("`near` needs `within`".into());
    }
    let bounds = [claim.at_least, claim.at_most].iter().flatten().count();
    let strict = [claim.more_than, claim.less_than].iter().flatten().count();
    if [bounds > 0, strict > 0, claim.within.is_some()].iter().filter(|&&is_set| is_set).count() != 1 {
        return Err("a claim needs one of: at_least, at_most or both; more_than, less_than or both; within".into());
    }
    if claim.counted && strict == 0 {
        return Err("`counted` needs more_than or less_than".into());
    }
    let shares = 0.0..=1.0;
    if !claim.quantiles.is_empty()
        && (figure.form != Form::Cdf || claim.x.is_some() || !claim.quantiles.iter().all(|q| shares.contains(q)))
    {
        return Err("`quantiles` are shares, 0 to 1, of the curves of form `cdf`, and take the place of `x`".into());
    }
    if claim.near.is_none() && claim.within.is_some() && claim.to.is_some() {
        return Err("a ratio has no value in the paper to be near to; set `near`".into());
    }
    if claim.at_worst && (claim.x.is_some() || !claim.quantiles.is_empty()) {
        return Err("`at_worst` takes the place of `x`".into());
    }
    if claim.beyond.is_some() && (claim.to.is_none() || !claim.quantiles.is_empty()) {
        return Err("`beyond` is for the ratio of two rates".into());
    }
    if claim.to_x.is_some() && (claim.x.is_none() && !claim.at_worst || claim.to.is_none()) {
        return Err("`to_x` needs `x` or `at_worst`, and `to`".into());
    }
    Ok(())
}

/// Deserialises a parameter that is written as text, with its `FromStr`.
pub(crate) fn from_text<'de, T, D>(deserializer: D) -> Result<T, D::Error>
where
    T: std::str::FromStr,
    T::Err: std::fmt::Display,
    D: serde::Deserializer<'de>,
{
    String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
}
