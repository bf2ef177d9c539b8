//! Samples, and the table that compares them.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Instant;

/// Result of one measurement of one workload.
#[derive(Clone, Copy, Debug)]
pub struct Sample {
    /// Wall time per key, or per unit of the workload.
    pub nanoseconds: f64,
    /// Allocations per key.
    pub allocations: f64,
}

/// Measures a workload of this side: calls `round`, which processes `keys` keys, for about `milliseconds`, after one
/// warm-up call.
pub fn measure(milliseconds: u32, keys: u32, mut round: impl FnMut()) -> Sample {
    round();
    let (start, mut rounds) = (Instant::now(), 0u32);
    let counted = allocation_counter::measure(|| {
        while start.elapsed().as_millis() < u128::from(milliseconds) {
            round();
            rounds += 1;
        }
    });
    let handled = f64::from(rounds) * f64::from(keys);
    Sample {
        nanoseconds: start.elapsed().as_secs_f64() * 1e9 / handled,
        allocations: counted.count_total as f64 / handled,
    }
}

/// Samples by workload and by side, in the order of insertion.
#[derive(Debug, Default)]
pub struct Table {
    workloads: Vec<String>,
    sides: Vec<String>,
    samples: BTreeMap<(usize, usize), Vec<Sample>>,
}

impl Table {
    /// Adds one sample.
    pub fn note(&mut self, workload: &str, side: &str, sample: Sample) {
        let place = (index(&mut self.workloads, workload), index(&mut self.sides, side));
        self.samples.entry(place).or_default().push(sample);
    }

    /// Returns the median and the maximum of the samples' times.
    fn times(&self, workload: usize, side: usize) -> Option<(f64, f64)> {
        let samples = self.samples.get(&(workload, side))?;
        let mut times: Vec<f64> = samples.iter().map(|sample| sample.nanoseconds).collect();
        times.sort_by(f64::total_cmp);
        Some((times[times.len() / 2], *times.last()?))
    }

    fn allocations(&self, workload: usize, side: usize) -> Option<f64> {
        self.samples.get(&(workload, side))?.last().map(|sample| sample.allocations)
    }
}

fn index(names: &mut Vec<String>, name: &str) -> usize {
    names.iter().position(|known| known == name).unwrap_or_else(|| {
        names.push(name.to_owned());
        names.len() - 1
    })
}

impl fmt::Display for Table {
    /// Prints one line per workload and side. The ratio is the side's median over that of the first side.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "{:<20} {:<22} {:>10} {:>10} {:>8} {:>8}",
            "workload", "side", "median ns", "worst ns", "allocs", "ratio"
        )?;
        for (workload, name) in self.workloads.iter().enumerate() {
            let base = self.times(workload, 0).map(|(median, _)| median);
            for (side, side_name) in self.sides.iter().enumerate() {
                let Some((median, worst)) = self.times(workload, side) else { continue };
                let allocations = self.allocations(workload, side).unwrap_or_default();
                let ratio = base.map_or_else(String::new, |base| format!("{:.1}", median / base));
                writeln!(
                    f,
                    "{name:<20} {side_name:<22} {median:>10.1} {worst:>10.1} {allocations:>8.2} {ratio:>8}"
                )?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn table_shows_medians_worst_cases_and_ratios_to_the_first_side() {
        let mut table = Table::default();
        for nanoseconds in [30.0, 10.0, 20.0] {
            table.note("ints", "ours", Sample { nanoseconds, allocations: 0.0 });
            table.note("ints", "theirs", Sample { nanoseconds: nanoseconds * 10.0, allocations: 2.0 });
        }
        let text = table.to_string();
        let lines: Vec<Vec<&str>> =
            text.lines().skip(1).map(|line| line.split_whitespace().collect()).collect();
        assert_eq!(lines[0], ["ints", "ours", "20.0", "30.0", "0.00", "1.0"]);
        assert_eq!(lines[1], ["ints", "theirs", "200.0", "300.0", "2.00", "10.0"]);
    }
}
