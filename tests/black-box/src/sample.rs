//! Samples of the programs that `cargo xtask bench` runs, one JSON object per line.

use std::io::{self, Write as _};

use serde_json::{Value, json};

/// A measured quantity: name, unit (`seconds`, `bytes` or `per_second`) and goal.
#[derive(Clone, Copy, Debug)]
pub struct Metric {
    /// The name in tables.
    pub name: &'static str,
    /// The unit.
    pub unit: &'static str,
    /// Goal of Windlass as a multiple of its peer; `None` without a goal.
    pub times_better: Option<f64>,
}

/// Writes one sample to the standard output. `tests/benchmarks/src/results.rs` defines the format.
///
/// # Errors
/// If the output is closed.
pub fn write_sample(
    workload: &str,
    metric: Metric,
    contender: &str,
    is_windlass: bool,
    value: f64,
) -> io::Result<()> {
    let goal = metric.times_better.map(|times| json!({ "times_better": times }));
    let mut described = json!({ "name": metric.name, "unit": metric.unit });
    if let (Some(goal), Value::Object(fields)) = (goal, &mut described) {
        fields.insert("goal".to_owned(), goal);
    }
    let role = if is_windlass { "windlass" } else { "peer" };
    let sample = json!({
        "workload": workload, "metric": described, "contender": { "name": contender, "role": role }, "value": value,
    });
    writeln!(io::stdout(), "{sample}")
}
