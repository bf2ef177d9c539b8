//! Samples, and their statistics.
//!
//! Guarantees: a comparison contains only samples of one workload and one metric, and all samples of a workload are
//! from one run. The median is the middle sample, never a mean; the worst sample is the largest cost or smallest rate.

use std::borrow::Cow;

use serde::{Deserialize, Serialize};

/// A measured quantity.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Metric {
    /// The name in tables.
    pub name: Cow<'static, str>,
    /// The unit.
    pub unit: Unit,
    /// The goal of Windlass, if one is defined.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub goal: Option<Goal>,
}

/// The unit of a metric. A rate is better if it is higher, all others if they are lower.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Unit {
    /// Bytes.
    Bytes,
    /// Seconds.
    Seconds,
    /// Nanoseconds.
    Nanoseconds,
    /// A number without a unit.
    Number,
    /// A number per second.
    PerSecond,
}

/// A goal of Windlass.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Goal {
    /// At most this value.
    AtMost(f64),
    /// This many times better than the best peer.
    TimesBetter(f64),
    /// At most this multiple of the floor.
    OfFloor(f64),
}

/// The role of a measured program in a comparison.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Role {
    /// A part of this project.
    Windlass,
    /// A counterpart of another project.
    Peer,
    /// A program that does only the unavoidable part of the work.
    Floor,
}

/// The measured program.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Contender {
    /// The name in tables.
    pub name: Cow<'static, str>,
    /// Its role.
    pub role: Role,
}

/// One measured value.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Sample {
    /// The workload.
    pub workload: String,
    /// The number of objects, if the workload is measured for several numbers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub size: Option<usize>,
    /// The measured quantity.
    pub metric: Metric,
    /// The measured program.
    pub contender: Contender,
    /// The value, in the unit of the metric.
    pub value: f64,
}

/// Median and worst sample of one contender.
#[derive(Clone, Debug, PartialEq)]
pub struct Figure {
    /// The measured program.
    pub contender: Contender,
    /// The middle sample.
    pub median: f64,
    /// The largest cost, or the smallest rate.
    pub worst: f64,
}

/// All figures of one metric of one workload, in the order of measurement.
#[derive(Clone, Debug, PartialEq)]
pub struct Comparison {
    /// The workload.
    pub workload: String,
    /// The number of objects, if the workload is measured for several numbers.
    pub size: Option<usize>,
    /// The measured quantity.
    pub metric: Metric,
    /// Figures of all contenders.
    pub figures: Vec<Figure>,
}

/// The values of each contender, in the order of measurement.
type ContenderValues<'a> = Vec<(&'a Contender, Vec<f64>)>;

impl Metric {
    /// Returns a metric without a goal.
    pub const fn new(name: &'static str, unit: Unit) -> Metric {
        Metric { name: Cow::Borrowed(name), unit, goal: None }
    }

    /// Returns this metric with a goal.
    #[must_use]
    pub const fn with_goal(name: &'static str, unit: Unit, goal: Goal) -> Metric {
        Metric { name: Cow::Borrowed(name), unit, goal: Some(goal) }
    }
}

impl Contender {
    /// Returns a part of this project.
    pub const fn windlass(name: &'static str) -> Contender {
        Contender { name: Cow::Borrowed(name), role: Role::Windlass }
    }

    /// Returns a counterpart of another project.
    pub const fn peer(name: &'static str) -> Contender {
        Contender { name: Cow::Borrowed(name), role: Role::Peer }
    }

    /// Returns a program that does only the unavoidable part of the work.
    pub const fn floor(name: &'static str) -> Contender {
        Contender { name: Cow::Borrowed(name), role: Role::Floor }
    }
}

impl Unit {
    /// Returns how many times better the first value is than the second one.
    fn advantage(self, value: f64, other: f64) -> f64 {
        // Two equal values can both be zero.
        match self {
            _ if value == other => 1.0,
            Unit::PerSecond => value / other,
            Unit::Bytes | Unit::Seconds | Unit::Nanoseconds | Unit::Number => other / value,
        }
    }

    fn is_better(self, value: f64, other: f64) -> bool {
        if self == Unit::PerSecond { value > other } else { value < other }
    }
}

impl Comparison {
    /// Groups samples by workload, size and metric, in the order of their first sample.
    pub fn of(samples: &[Sample]) -> Vec<Comparison> {
        let mut groups: Vec<(&Sample, ContenderValues<'_>)> = Vec::new();
        for sample in samples {
            let key = |sample: &Sample| (sample.workload.clone(), sample.size, sample.metric.name.clone());
            let is_same = |first: &Sample| key(first) == key(sample);
            let at = groups.iter().position(|(first, _)| is_same(first)).unwrap_or_else(|| {
                groups.push((sample, Vec::new()));
                groups.len() - 1
            });
            let contenders = &mut groups[at].1;
            match contenders.iter_mut().find(|(contender, _)| **contender == sample.contender) {
                Some((_, values)) => values.push(sample.value),
                None => contenders.push((&sample.contender, vec![sample.value])),
            }
        }
        let comparison = |(first, contenders): (&Sample, ContenderValues<'_>)| Comparison {
            workload: first.workload.clone(),
            size: first.size,
            metric: first.metric.clone(),
            figures: contenders
                .into_iter()
                .map(|(contender, values)| Figure::of(contender, values, first.metric.unit))
                .collect(),
        };
        groups.into_iter().map(comparison).collect()
    }

    /// Returns the best figure of a role.
    pub fn best(&self, role: Role) -> Option<&Figure> {
        let unit = self.metric.unit;
        let of_role = self.figures.iter().filter(|figure| figure.contender.role == role);
        of_role.reduce(|best, figure| if unit.is_better(figure.median, best.median) { figure } else { best })
    }

    /// Returns how many times better a figure is than the best peer; `None` without a peer.
    pub fn advantage(&self, figure: &Figure) -> Option<f64> {
        let peer = self.best(Role::Peer)?;
        Some(self.metric.unit.advantage(figure.median, peer.median))
    }

    /// Returns whether a figure reaches the goal; `None` without a goal, or if the program to compare with is missing.
    pub fn reaches_goal(&self, figure: &Figure) -> Option<bool> {
        match self.metric.goal? {
            Goal::AtMost(limit) => Some(figure.median <= limit),
            Goal::TimesBetter(times) => Some(self.advantage(figure)? >= times),
            Goal::OfFloor(multiple) => Some(figure.median <= self.best(Role::Floor)?.median * multiple),
        }
    }
}

impl Figure {
    fn of(contender: &Contender, mut values: Vec<f64>, unit: Unit) -> Figure {
        values.sort_by(f64::total_cmp);
        let worst = if unit == Unit::PerSecond { values.first() } else { values.last() };
        let (median, worst) = (values[values.len() / 2], worst.copied().unwrap_or(f64::NAN));
        Figure { contender: contender.clone(), median, worst }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn samples(unit: Unit, values: &[(Contender, f64)]) -> Vec<Sample> {
        let metric = Metric::with_goal("speed", unit, Goal::TimesBetter(2.0));
        let sample = |(contender, value): &(Contender, f64)| Sample {
            workload: "w".to_owned(),
            size: None,
            metric: metric.clone(),
            contender: contender.clone(),
            value: *value,
        };
        values.iter().map(sample).collect()
    }

    #[test]
    fn comparison_contains_median_and_worst_sample() {
        let (ours, theirs) = (Contender::windlass("ours"), Contender::peer("theirs"));
        let values = [30.0, 10.0, 20.0];
        let both: Vec<_> =
            values.iter().flat_map(|value| [(ours.clone(), *value), (theirs.clone(), value * 3.0)]).collect();
        let costs = Comparison::of(&samples(Unit::Nanoseconds, &both));
        assert_eq!(costs.len(), 1);
        assert_eq!((costs[0].figures[0].median, costs[0].figures[0].worst), (20.0, 30.0));
        assert_eq!(costs[0].advantage(&costs[0].figures[0]), Some(3.0));
        assert_eq!(costs[0].reaches_goal(&costs[0].figures[0]), Some(true));
        let rates = Comparison::of(&samples(Unit::PerSecond, &both));
        assert_eq!((rates[0].figures[0].median, rates[0].figures[0].worst), (20.0, 10.0));
        assert_eq!(rates[0].reaches_goal(&rates[0].figures[0]), Some(false));
    }

    #[test]
    fn best_peer_has_the_lowest_cost_or_the_highest_rate() {
        let values = [(Contender::peer("a"), 5.0), (Contender::peer("b"), 4.0), (Contender::floor("c"), 1.0)];
        for (unit, best) in [(Unit::Seconds, "b"), (Unit::PerSecond, "a")] {
            let comparisons = Comparison::of(&samples(unit, &values));
            assert_eq!(
                comparisons[0].best(Role::Peer).map(|figure| figure.contender.name.as_ref()),
                Some(best)
            );
        }
    }

    #[test]
    fn sample_is_equal_after_encoding_and_decoding() {
        for sample in samples(Unit::Bytes, &[(Contender::floor("c"), 1.5)]) {
            let text = serde_json::to_string(&sample).expect("a sample is JSON");
            assert_eq!(serde_json::from_str::<Sample>(&text).expect("a sample"), sample);
        }
    }
}
