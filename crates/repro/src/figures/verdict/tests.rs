//! Claims are judged where they hold least; losses and numbers.

use super::*;

fn claim(to: Option<&str>, rest: &str) -> Claim {
    let to = to.map_or(String::new(), |to| format!("to = \"{to}\"\n"));
    toml::from_str(&format!("says = \"c\"\nplace = \"p\"\nof = \"A\"\n{to}{rest}")).expect("a claim")
}

fn points() -> Vec<Point> {
    let at = |x: f64| Some(X::Number(x));
    vec![
        Point::exact("A", at(1.0), 30.0),
        Point::exact("B", at(1.0), 10.0),
        Point::exact("A", at(2.0), 18.0),
        Point::exact("B", at(2.0), 10.0),
        Point::exact("A", at(4.0), 9.0),
    ]
}

fn outcome(claim: &Claim) -> (Outcome, Option<f64>, Option<X>) {
    let points = points();
    let value = |x: f64, y: f64| PaperValue {
        figure: "f".into(),
        series: "A".into(),
        x: Some(X::Number(x)),
        y,
        unit: "u".into(),
        quote: String::new(),
    };
    let values = [value(1.0, 31.0), value(2.0, 18.0)];
    let verdict = judge(claim, &points.iter().collect::<Vec<_>>(), &values.iter().collect::<Vec<_>>());
    (verdict.outcome, verdict.measured, verdict.at)
}

#[test]
fn claim_of_a_ratio_is_judged_where_it_holds_least() {
    let at = |x: f64| Some(X::Number(x));
    assert_eq!(outcome(&claim(Some("B"), "at_least = 1.5")), (Outcome::Met, Some(1.8), at(2.0)));
    assert_eq!(outcome(&claim(Some("B"), "at_least = 2.0")), (Outcome::Missed, Some(1.8), at(2.0)));
    assert_eq!(outcome(&claim(Some("B"), "at_least = 2.0\nx = 1")), (Outcome::Met, Some(3.0), at(1.0)));
    assert_eq!(outcome(&claim(Some("B"), "at_most = 0.4")), (Outcome::Contradicted, Some(3.0), at(1.0)));
    assert_eq!(outcome(&claim(Some("B"), "at_least = 1.0\nat_most = 2.0")).0, Outcome::Missed);
    assert_eq!(outcome(&claim(Some("A"), "near = 0.3\nwithin = 0.01\nx = 4\nto_x = 1")).0, Outcome::Met);
}

#[test]
fn claim_of_a_value_is_judged_by_itself_or_by_what_the_paper_prints() {
    assert_eq!(outcome(&claim(None, "at_least = 10.0")).0, Outcome::Missed);
    assert_eq!(outcome(&claim(None, "at_least = 9.0")).0, Outcome::Met);
    assert_eq!(outcome(&claim(None, "near = 20.0\nwithin = 0.2\nx = 2")).0, Outcome::Met);
    assert_eq!(outcome(&claim(None, "within = 0.05")), (Outcome::Met, Some(30.0), Some(X::Number(1.0))));
    assert_eq!(outcome(&claim(None, "within = 0.01")).0, Outcome::Missed);
}

#[test]
fn equality_and_ties_are_not_more() {
    // A is 18 where B is 10, and equal to itself.
    let itself = |rest: &str| outcome(&claim(Some("A"), rest)).0;
    assert_eq!(itself("at_least = 1.0"), Outcome::Met);
    assert_eq!(itself("more_than = 1.0"), Outcome::Missed);
    assert_eq!(itself("less_than = 1.0\ncounted = true"), Outcome::Missed);
    let of_b = |rest: &str| outcome(&claim(Some("B"), &format!("{rest}\nx = 2"))).0;
    assert_eq!(of_b("more_than = 1.76"), Outcome::Missed, "a tie");
    assert_eq!(of_b("more_than = 1.76\ncounted = true"), Outcome::Met);
    assert_eq!(of_b("more_than = 1.7"), Outcome::Met);
    assert_eq!(of_b("less_than = 1.0"), Outcome::Contradicted);
}

#[test]
fn slightly_and_alike_have_two_sides() {
    assert_eq!(outcome(&claim(Some("B"), "at_least = 0.85\nat_most = 1.0")).0, Outcome::Contradicted);
    assert_eq!(outcome(&claim(Some("B"), "near = 1.0\nwithin = 0.9\nx = 2")).0, Outcome::Met);
    assert_eq!(outcome(&claim(Some("B"), "near = 1.0\nwithin = 0.5\nx = 2")).0, Outcome::Missed);
    assert_eq!(outcome(&claim(Some("B"), "near = 1.0\nwithin = 0.5")).0, Outcome::Contradicted, "3 times as much");
}

#[test]
fn distributions_are_compared_where_they_reach_the_same_share() {
    // Half of A is below 10 and all below 100; of B, half below 20 and all below 200.
    let at = |series: &str, x: f64, y: f64| Point::exact(series, Some(X::Number(x)), y);
    let points = [at("A", 10.0, 0.5), at("A", 100.0, 1.0), at("B", 20.0, 0.5), at("B", 200.0, 1.0)];
    let points: Vec<&Point> = points.iter().collect();
    let below = claim(Some("B"), "quantiles = [0.5, 0.9]\nless_than = 1.0");
    let verdict = judge(&below, &points, &[]);
    assert_eq!((verdict.outcome, verdict.measured, verdict.places), (Outcome::Met, Some(0.5), (0, 2)));
    let alike = claim(Some("B"), "quantiles = [0.9]\nnear = 1.0\nwithin = 0.25");
    assert_eq!(judge(&alike, &points, &[]).outcome, Outcome::Missed);
    let value = claim(None, "quantiles = [0.9]\nless_than = 100.0");
    assert_eq!(judge(&value, &points, &[]).outcome, Outcome::Missed);
}

#[test]
fn an_explanation_needs_a_claim_that_fails_and_numbers_that_bear_it_out() {
    let why = |of_b: f64| format!("[[why]]\ntext = \"t\"\n[[why.given]]\nsays = \"B\"\nof = \"B\"\nat_most = {of_b:?}");
    let reasons = |rest: &str, of_b: f64| {
        let claim = claim(Some("B"), &format!("{rest}\n{}", why(of_b)));
        let points = points();
        let points: Vec<&Point> = points.iter().collect();
        judge(&claim, &points, &[]).explained(&points, &[], &Run::new()).reasons.len()
    };
    assert_eq!(reasons("at_least = 2.0", 10.0), 1);
    assert_eq!(reasons("at_least = 2.0", 9.0), 0, "the run does not show it");
    assert_eq!(reasons("at_least = 1.5", 10.0), 0, "the claim is met");
    assert_eq!(reasons("at_least = 2.0\nx = 4", 10.0), 0, "nothing was measured there");
}

#[test]
fn what_rates_have_in_common_may_be_taken_off() {
    // Of 1/18 and 1/12, 1/36 is common: 1/36 and 1/18 remain.
    let at = |series: &str, y: f64| Point::exact(series, Some(X::Number(2.0)), y);
    let points = [at("A", 18.0), at("B", 12.0), at("C", 36.0), at("D", 40.0)];
    let points: Vec<&Point> = points.iter().collect();
    let measured = |to: &str, beyond: &str| {
        judge(&claim(Some(to), &format!("at_least = 1.0\nbeyond = \"{beyond}\"")), &points, &[]).measured
    };
    assert!((measured("B", "C").expect("a ratio") - 2.0).abs() < 1e-9);
    assert_eq!(measured("B", "A"), None, "nothing of A is beyond itself");
    assert_eq!(measured("B", "E"), None);
}

#[test]
fn a_condition_may_be_about_the_place_that_decided() {
    // A is 30, 18, 9 at 1, 2, 4; B is 10.
    let is_shown = |place: &str| {
        let text = format!("more_than = 2.0\n[[why]]\ntext = \"t\"\n[[why.given]]\nsays = \"A\"\nof = \"A\"\n{place}");
        let claim = claim(Some("B"), &format!("{text}\nnear = 18.0\nwithin = 0.0"));
        let points = points();
        let points: Vec<&Point> = points.iter().collect();
        !judge(&claim, &points, &[]).explained(&points, &[], &Run::new()).reasons.is_empty()
    };
    assert!(is_shown("at_worst = true"));
    assert!(!is_shown("at_worst = false") && !is_shown("x = 1"));
}

#[test]
fn claim_without_a_series_is_not_measured() {
    assert_eq!(outcome(&claim(Some("C"), "at_least = 1.0")).0, Outcome::NotMeasured);
    assert_eq!(outcome(&claim(Some("B"), "at_least = 1.0\nx = 4")).0, Outcome::NotMeasured);
}

#[test]
fn peer_that_is_better_is_named_with_its_factor() {
    let text = r#"
        id = "f"
        place = "F"
        title = "t"
        shows = "s"
        method = "none"
        better = "higher"
        series = [{ name = "A" }, { name = "B", ours = true }, { name = "C", peer = true }, { name = "D", peer = true }]
    "#;
    let figure: Figure = toml::from_str(text).expect("a figure");
    let mut all = points();
    all.push(Point::exact("C", Some(X::Number(1.0)), 12.0));
    all.push(Point::exact("C", Some(X::Number(2.0)), 10.1));
    all.push(Point::exact("D", Some(X::Number(2.0)), 2.0));
    let losses = losses(&figure, &all.iter().collect::<Vec<_>>());
    assert_eq!(losses.len(), 1, "a tie and a slower peer are none");
    assert_eq!((losses[0].peer.as_str(), losses[0].best.as_str(), losses[0].places), ("C", "B", (1, 2)));
    assert!((losses[0].factor - 1.2).abs() < 1e-9);
}

#[test]
fn numbers_have_three_significant_digits() {
    for (x, text) in [
        (0.0, "0"),
        (1.0, "1"),
        (2.345, "2.35"),
        (0.0123456, "0.0123"),
        (412.4, "412"),
        (18974.0, "18974"),
        (1.7399e-5, "1.74e-5"),
        (2e9, "2e9"),
    ] {
        assert_eq!(number(x), text);
    }
    assert_eq!(x_text(&X::Number(65536.0)), "64K");
}

#[test]
fn runs_that_scatter_more_than_they_miss_a_claim_by_leave_it_open() {
    let at = |series: &str, x: f64, [y, min, max]: [f64; 3]| Point {
        series: series.into(),
        x: Some(X::Number(x)),
        y,
        min,
        max,
    };
    let scatter = |of: [f64; 3], rest: &str| {
        // At 2 the claims below hold or fail by far.
        let points =
            [at("A", 1.0, of), at("B", 1.0, [10.0, 8.0, 12.0]), at("A", 2.0, [40.0; 3]), at("B", 2.0, [10.0; 3])];
        let claim = claim(Some("B"), rest);
        judge(&claim, &points.iter().collect::<Vec<_>>(), &[]).scatter
    };
    assert_eq!(scatter([18.0, 15.0, 20.0], "at_least = 2.0"), Some((15.0 / 12.0, 20.0 / 8.0)));
    assert_eq!(scatter([18.0, 15.0, 20.0], "near = 2.0\nwithin = 0.05\nx = 1"), Some((1.25, 2.5)));
    assert_eq!(scatter([20.0, 15.0, 24.0], "at_least = 2.0"), None, "it holds");
    assert_eq!(scatter([12.0, 11.0, 15.9], "at_least = 2.0"), None, "not even the fastest run is fast enough");
    assert_eq!(scatter([18.0; 3], "at_least = 2.0"), None, "it ran once");
    assert_eq!(scatter([18.0, 15.0, 20.0], "at_most = 1.5"), None, "it fails elsewhere without a doubt");
    assert_eq!(scatter([18.0, 15.0, 20.0], "more_than = 2.0\ncounted = true"), None, "counts do not scatter");
}
