//! Explains claims that do not hold: by numbers of the same run, or by saying that the cause is not known.

use std::collections::HashMap;

use super::judge::{judge, judge_at};
use super::{Outcome, Verdict, number};
use crate::figures::store::Stored;
use crate::figures::{Claim, Figure, Point, Why};

/// The complete results of a paper's figures that explanations of one figure may stand on, by id.
pub type Run<'a> = HashMap<&'a str, Evidence<'a>>;

/// The results of a figure.
#[derive(Clone, Copy, Debug)]
pub struct Evidence<'a> {
    /// What was measured.
    pub stored: &'a Stored,
    /// The record that it is from, if that is not the one of the figure to explain.
    pub from: Option<&'a str>,
}

/// A condition that was judged.
#[derive(Clone, Debug)]
pub struct Given<'a> {
    /// The figure, if that is another one than the claim's.
    pub figure: Option<&'a Figure>,
    /// The record that has it, if that is another one than the claim's.
    pub from: Option<String>,
    /// What was measured.
    pub verdict: Verdict<'a>,
}

/// An explanation, and the numbers of the run that bear it out.
#[derive(Clone, Debug)]
pub struct Reason<'a> {
    /// The explanation.
    pub text: &'a str,
    /// What was measured of its conditions.
    pub given: Vec<Given<'a>>,
}

/// The explanation of a claim that does not hold.
#[derive(Clone, Debug)]
pub enum Explanation<'a> {
    /// The run shows it.
    Shown(&'a [Reason<'a>]),
    /// None is needed: with the fastest runs of one side and the slowest of the other the claim holds. These are the least
    /// and the greatest ratio or value of the runs.
    Scattered(f64, f64),
    /// These figures may show it, and have no results in this run.
    Unchecked(&'a [&'a str]),
    /// It is not known; this was tried for this outcome.
    Open(&'a str),
    /// It is not known: to look for it takes what is not here.
    Needs(&'a str),
    /// It is not known, and no cause was searched for in this outcome.
    NotLookedFor,
}

impl<'a> Verdict<'a> {
    /// With the explanations of the claim that the run bears out, if it does not hold. `all` are the paper's figures.
    pub(super) fn explained(mut self, points: &[&Point], all: &'a [Figure], run: &Run<'_>) -> Self {
        if !self.is_unmet() {
            return self;
        }
        for why in &self.claim.why {
            let lacking = why.given.iter().filter_map(|given| given.figure.as_deref());
            let lacking: Vec<&str> = lacking.filter(|id| !run.contains_key(id)).collect();
            if lacking.is_empty() {
                self.reasons.extend(self.reason(why, points, all, run));
            } else {
                self.unchecked.extend(lacking);
            }
        }
        self.unchecked.sort_unstable();
        self.unchecked.dedup();
        self
    }

    /// An explanation, if the run bears out all its conditions.
    fn reason(&self, why: &'a Why, points: &[&Point], all: &'a [Figure], run: &Run<'_>) -> Option<Reason<'a>> {
        let judged = |given: &'a Claim| {
            let Some(id) = &given.figure else {
                let verdict = match given.at_worst {
                    true => judge_at(given, self.at.as_ref(), points, &[]),
                    false => judge(given, points, &[]),
                };
                return Given { figure: None, from: None, verdict };
            };
            let evidence = run.get(id.as_str());
            let points: Vec<&Point> = evidence.iter().flat_map(|evidence| evidence.stored.points()).collect();
            Given {
                figure: all.iter().find(|figure| figure.id == *id),
                from: evidence.and_then(|evidence| evidence.from).map(str::to_owned),
                verdict: judge(given, &points, &[]),
            }
        };
        let given: Vec<_> = why.given.iter().map(judged).collect();
        let is_met = given.iter().all(|given| given.verdict.outcome == Outcome::Met);
        is_met.then_some(Reason { text: &why.text, given })
    }

    /// The explanation, if the claim does not hold.
    pub fn explanation(&self) -> Option<Explanation<'_>> {
        if !self.is_unmet() {
            None
        } else if !self.reasons.is_empty() {
            Some(Explanation::Shown(&self.reasons))
        } else if let Some((least, most)) = self.scatter {
            Some(Explanation::Scattered(least, most))
        } else if !self.unchecked.is_empty() {
            Some(Explanation::Unchecked(&self.unchecked))
        } else if self.was_tried {
            Some(Explanation::Open(&self.claim.open))
        } else if !self.claim.needs.is_empty() {
            Some(Explanation::Needs(&self.claim.needs))
        } else {
            Some(Explanation::NotLookedFor)
        }
    }
}

impl Reason<'_> {
    /// The numbers that it stands on.
    pub fn numbers(&self, figure: &Figure) -> String {
        let numbers = self.given.iter().map(|Given { figure: other, from, verdict }| {
            let place = other.map_or(String::new(), |other| format!(", in {}", other.place));
            let from = from.as_ref().map_or(String::new(), |record| format!(" of `{record}`"));
            format!("{}: {}{place}{from}", verdict.claim.says, verdict.measured_text(other.unwrap_or(figure)))
        });
        numbers.collect::<Vec<_>>().join("; ")
    }
}

impl Explanation<'_> {
    /// What it is, what it says, and the numbers for it; a text without numbers may be that of several claims.
    pub fn parts(&self, figure: &Figure) -> Vec<(&'static str, String, String)> {
        let plain = |text: &str| text.trim_end_matches('.').to_owned();
        match self {
            Self::Shown(reasons) => {
                reasons.iter().map(|reason| ("Why", plain(reason.text), reason.numbers(figure))).collect()
            }
            Self::Scattered(least, most) => {
                let text = "the runs of this measurement scatter more than they miss the claim by".to_owned();
                vec![("Not sure", text, format!("{} to {}", number(*least), number(*most)))]
            }
            Self::Unchecked(figures) => {
                let text = format!("no results of {}, which may show it", figures.join(", "));
                vec![("Cause not checked", text, String::new())]
            }
            Self::Open(tried) => vec![("Cause not found", plain(tried), String::new())],
            Self::Needs(what) => vec![("Cause not checked", format!("it needs {}", plain(what)), String::new())],
            Self::NotLookedFor => vec![("Cause not looked for", String::new(), String::new())],
        }
    }
}
