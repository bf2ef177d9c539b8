//! The results of scenarios as JSON, and the Markdown table that compares them.
//!
//! Guarantees: a row in which a peer wins is printed first and in bold. The table contains every contender of every
//! comparison.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;

use anyhow::{Context as _, Result};
use serde::{Deserialize, Serialize};

use crate::machine::Machine;
use crate::results::{Comparison, Figure, Goal, Role, Sample, Unit};

/// The ratio from which a row shows 1.00 and thus no advantage of the peer.
const PARITY: f64 = 0.995;

/// The results of one scenario from one run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Run {
    /// The machine and the build.
    pub machine: Machine,
    /// Number of rounds.
    pub rounds: u16,
    /// All samples.
    pub samples: Vec<Sample>,
}

/// The results of scenarios by name.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Report {
    /// One run per scenario; different scenarios can be from different runs.
    pub runs: BTreeMap<String, Run>,
}

/// A line of the table.
struct Row {
    advantage: f64,
    text: String,
}

impl Report {
    /// Reads the report in a file. Returns an empty report if the file does not exist.
    ///
    /// # Errors
    /// If the file cannot be read or does not contain a report.
    pub fn load(path: &Path) -> Result<Report> {
        if !path.exists() {
            return Ok(Report::default());
        }
        let text = std::fs::read_to_string(path)?;
        serde_json::from_str(&text).with_context(|| format!("{} is not a report", path.display()))
    }

    /// Writes the report to a file.
    ///
    /// # Errors
    /// If the file cannot be written.
    pub fn save(&self, path: &Path) -> Result<()> {
        let text = serde_json::to_string_pretty(self)? + "\n";
        std::fs::write(path, text).with_context(|| format!("cannot write {}", path.display()))
    }

    /// Returns the comparisons of all scenarios.
    pub fn comparisons(&self) -> Vec<Comparison> {
        self.runs.values().flat_map(|run| Comparison::of(&run.samples)).collect()
    }

    /// Returns the facts of the runs and the table, in Markdown.
    pub fn markdown(&self) -> String {
        let mut text = String::new();
        for (scenario, run) in &self.runs {
            text.push_str(&facts(scenario, run));
        }
        text.push_str("\n| workload | metric | Windlass | best peer | ratio | goal | other contenders |\n");
        text.push_str("|---|---|---|---|---|---|---|\n");
        let comparisons = self.comparisons();
        let mut rows: Vec<Row> = comparisons.iter().flat_map(rows).collect();
        // The sort is stable: rows in which Windlass wins keep the order of the scenarios.
        rows.sort_by(|one, other| one.advantage.min(PARITY).total_cmp(&other.advantage.min(PARITY)));
        rows.iter().for_each(|row| text.push_str(&row.text));
        text
    }
}

fn facts(scenario: &str, run: &Run) -> String {
    let Machine { processor, processors, memory_gib, kernel, load, date, commit, rust, go } = &run.machine;
    format!(
        "- `{scenario}`: {date}, commit {commit}, {} rounds, {processors} × {processor}, {memory_gib} GiB, {kernel}, \
         load {load}, {rust}, {go}\n",
        run.rounds
    )
}

/// Returns one row for each figure of Windlass that has a peer.
fn rows(comparison: &Comparison) -> Vec<Row> {
    let ours = comparison.figures.iter().filter(|figure| figure.contender.role == Role::Windlass);
    ours.filter_map(|figure| row(comparison, figure)).collect()
}

fn row(comparison: &Comparison, ours: &Figure) -> Option<Row> {
    let (peer, advantage) = (comparison.best(Role::Peer)?, comparison.advantage(ours)?);
    let unit = comparison.metric.unit;
    let others: Vec<String> = comparison
        .figures
        .iter()
        .filter(|figure| *figure != peer && figure.contender.role != Role::Windlass)
        .map(|figure| cell(figure, unit))
        .collect();
    let size = comparison.size.map(|size| format!(", {size} objects")).unwrap_or_default();
    let cells = [
        format!("{}{size}", comparison.workload),
        comparison.metric.name.to_string(),
        cell(ours, unit),
        cell(peer, unit),
        if advantage < 100.0 { format!("{advantage:.2}") } else { "over 100".to_owned() },
        goal(comparison, ours),
    ];
    let is_behind = advantage < PARITY;
    let mut text = String::new();
    for cell in cells {
        let _infallible = if is_behind && !cell.is_empty() {
            write!(text, "| **{cell}** ")
        } else {
            write!(text, "| {cell} ")
        };
    }
    let _infallible = writeln!(text, "| {} |", others.join("; "));
    Some(Row { advantage, text })
}

fn cell(figure: &Figure, unit: Unit) -> String {
    let Figure { contender, median, worst } = figure;
    format!("{}: {} ({})", contender.name, amount(*median, unit), amount(*worst, unit))
}

fn goal(comparison: &Comparison, ours: &Figure) -> String {
    let Some(goal) = comparison.metric.goal else { return String::new() };
    let text = match goal {
        Goal::AtMost(limit) => format!("at most {}", amount(limit, comparison.metric.unit)),
        Goal::TimesBetter(times) => format!("{times} × best peer"),
        Goal::OfFloor(multiple) => format!("at most {multiple} × floor"),
    };
    match comparison.reaches_goal(ours) {
        Some(true) => format!("{text}: reached"),
        Some(false) => format!("{text}: missed"),
        None => text,
    }
}

/// Returns a value with its unit and three significant digits.
pub fn amount(value: f64, unit: Unit) -> String {
    let scaled = |steps: &[(f64, &str)]| {
        let (size, name) =
            steps.iter().find(|(size, _)| value.abs() >= *size).unwrap_or(&steps[steps.len() - 1]);
        format!("{} {name}", digits(value / size))
    };
    match unit {
        Unit::Bytes => scaled(&[(1e9, "GB"), (1e6, "MB"), (1e3, "KB"), (1.0, "B")]),
        Unit::Seconds => scaled(&[(1.0, "s"), (1e-3, "ms")]),
        Unit::Nanoseconds => scaled(&[(1e9, "s"), (1e6, "ms"), (1e3, "µs"), (1.0, "ns")]),
        Unit::Number => digits(value),
        Unit::PerSecond => format!("{}/s", digits(value)),
    }
}

fn digits(value: f64) -> String {
    let decimals = if value.abs() >= 100.0 { 0 } else { usize::from(value.abs() < 10.0) + 1 };
    format!("{value:.decimals$}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::results::{Contender, Metric};

    fn report(values: &[(&str, Contender, f64)]) -> Report {
        let machine = Machine {
            processor: "CPU".to_owned(),
            processors: 2,
            memory_gib: 8,
            kernel: "Linux".to_owned(),
            load: "0.1".to_owned(),
            date: "2026-11-01".to_owned(),
            commit: "abc".to_owned(),
            rust: "rustc".to_owned(),
            go: "go".to_owned(),
        };
        let sample = |(workload, contender, value): &(&str, Contender, f64)| Sample {
            workload: (*workload).to_owned(),
            size: None,
            metric: Metric::with_goal("memory", Unit::Bytes, Goal::AtMost(1000.0)),
            contender: contender.clone(),
            value: *value,
        };
        let run = Run { machine, rounds: 1, samples: values.iter().map(sample).collect() };
        Report { runs: BTreeMap::from([("cache".to_owned(), run)]) }
    }

    #[test]
    fn rows_in_which_a_peer_wins_are_first_and_bold() {
        let text = report(&[
            ("win", Contender::windlass("windlass"), 500.0),
            ("win", Contender::peer("peer"), 1500.0),
            ("loss", Contender::windlass("windlass"), 40_700.0),
            ("loss", Contender::peer("peer"), 15_100.0),
            ("loss", Contender::floor("floor"), 100.0),
        ])
        .markdown();
        let rows: Vec<&str> = text.lines().filter(|line| line.contains("memory")).collect();
        assert_eq!(
            rows,
            [
                "| **loss** | **memory** | **windlass: 40.7 KB (40.7 KB)** | **peer: 15.1 KB (15.1 KB)** | **0.37** | \
                 **at most 1.00 KB: missed** | floor: 100 B (100 B) |",
                "| win | memory | windlass: 500 B (500 B) | peer: 1.50 KB (1.50 KB) | 3.00 | at most 1.00 KB: reached |  |",
            ]
        );
    }

    #[test]
    fn amounts_have_three_significant_digits() {
        let cases = [
            (1234.0, Unit::Bytes, "1.23 KB"),
            (0.5, Unit::Seconds, "500 ms"),
            (0.0, Unit::Seconds, "0.00 ms"),
            (12_345.0, Unit::Nanoseconds, "12.3 µs"),
            (1.0, Unit::Number, "1.00"),
            (5000.0, Unit::PerSecond, "5000/s"),
        ];
        for (value, unit, text) in cases {
            assert_eq!(amount(value, unit), text);
        }
    }

    #[test]
    fn report_is_equal_after_it_was_saved_and_loaded() -> Result<()> {
        let (folder, report) = (tempfile::TempDir::new()?, report(&[("w", Contender::peer("p"), 0.1)]));
        let path = folder.path().join("results.json");
        assert_eq!(Report::load(&path)?, Report::default());
        report.save(&path)?;
        assert_eq!(Report::load(&path)?, report);
        Ok(())
    }
}
