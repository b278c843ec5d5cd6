//! Traffic into each switch, and into the network, in the last hour: for curves.
//!
//! One value every 30 s for each switch that reported its counters, in memory, lost with a restart. Cost: half a kilobyte a switch.

use std::collections::{HashMap, VecDeque};
use std::time::Duration;

/// The interval between two values.
pub(crate) const EVERY: Duration = Duration::from_secs(30);

/// The number of values in an hour.
const KEPT: usize = 120;

/// Bytes a second, oldest first; none where nothing was reported.
type Values = VecDeque<Option<f32>>;

/// The last hour.
#[derive(Debug, Default)]
pub(crate) struct History {
    /// Each has as many values as the network.
    switches: HashMap<String, Values>,
    network: Values,
}

impl History {
    /// Adds the current rate of each switch.
    pub(crate) fn add(&mut self, now: impl IntoIterator<Item = (String, Option<f64>)>) {
        let kept = self;
        let n_before = kept.network.len();
        let (mut sum, mut said) = (None, HashMap::new());
        for (name, rate) in now {
            if let Some(rate) = rate {
                *sum.get_or_insert(0.0) += rate;
            }
            said.insert(name, rate.map(|rate| rate as f32));
        }
        for name in said.keys() {
            if !kept.switches.contains_key(name) {
                kept.switches.insert(name.clone(), vec![None; n_before].into());
            }
        }
        for (name, values) in &mut kept.switches {
            push(values, said.get(name).copied().flatten());
        }
        kept.switches.retain(|_, values| values.iter().any(Option::is_some));
        push(&mut kept.network, sum.map(|sum: f64| sum as f32));
    }

    /// The values of a switch, or without a name those of the network; empty if nothing is known.
    pub(crate) fn of(&self, switch: Option<&str>) -> Vec<Option<f32>> {
        let kept = self;
        let values = switch.map_or(Some(&kept.network), |name| kept.switches.get(name));
        values.map(|values| values.iter().copied().collect()).unwrap_or_default()
    }
}

fn push(values: &mut Values, value: Option<f32>) {
    if values.len() == KEPT {
        values.pop_front();
    }
    values.push_back(value);
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::RefCell;

    #[test]
    fn an_hour_is_kept_with_gaps_where_nothing_was_said() {
        let history = RefCell::new(History::default());
        let add = |all: &[(&str, Option<f64>)]| {
            history.borrow_mut().add(all.iter().map(|(name, rate)| ((*name).to_owned(), *rate)))
        };
        add(&[("s1", Some(1.0))]);
        add(&[("s1", None), ("s2", Some(3.0))]);
        add(&[("s1", Some(2.0)), ("s2", Some(4.0))]);
        assert_eq!(history.borrow().of(Some("s1")), [Some(1.0), None, Some(2.0)]);
        assert_eq!(history.borrow().of(Some("s2")), [None, Some(3.0), Some(4.0)], "as long as that of the network");
        assert_eq!(history.borrow().of(None), [Some(1.0), Some(3.0), Some(6.0)]);
        assert!(history.borrow().of(Some("s3")).is_empty());
        (0..KEPT).for_each(|_| add(&[("s2", Some(5.0))]));
        assert_eq!(history.borrow().of(None), vec![Some(5.0); KEPT]);
        assert!(history.borrow().of(Some("s1")).is_empty(), "of one that is gone nothing stays");
    }
}
