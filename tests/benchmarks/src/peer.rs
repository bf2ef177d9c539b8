//! Benchmarks of a peer: built once, run repeatedly.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result, bail};
use tempfile::TempDir;

use crate::figures::Sample;

/// A compiled Go module in `go/`.
#[derive(Debug)]
pub struct Peer {
    name: &'static str,
    program: PathBuf,
    /// Folder of the program, kept as long as the program is needed.
    _folder: TempDir,
}

impl Peer {
    /// Compiles the benchmarks of the module `go/<name>`.
    ///
    /// # Errors
    /// Returns an error if Go is missing or the module does not build.
    pub fn build(name: &'static str) -> Result<Peer> {
        let folder = TempDir::new().context("cannot make a folder for the peer")?;
        let program = folder.path().join("benchmarks");
        let module = Path::new(env!("CARGO_MANIFEST_DIR")).join("go").join(name);
        let status = Command::new("go")
            .args(["test", "-mod=readonly", "-c", "-o"])
            .arg(&program)
            .arg(".")
            .current_dir(&module)
            .status()
            .with_context(|| format!("cannot start go to build {}", module.display()))?;
        if !status.success() {
            bail!("go cannot build {} ({status})", module.display());
        }
        Ok(Peer { name, program, _folder: folder })
    }

    /// Returns the name of the folder.
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// Runs the benchmark `Benchmark<workload>` for about `milliseconds`.
    ///
    /// # Errors
    /// Returns an error if the benchmark fails, or prints no figures.
    pub fn measure(&self, workload: &str, milliseconds: u32) -> Result<Sample> {
        let output = Command::new(&self.program)
            .args(["-test.run=^$", &format!("-test.bench=^Benchmark{workload}$")])
            .arg(format!("-test.benchtime={milliseconds}ms"))
            .stderr(Stdio::inherit())
            .output()
            .with_context(|| format!("cannot start the benchmarks of {}", self.name))?;
        if !output.status.success() {
            bail!("{}: {workload} failed ({})", self.name, output.status);
        }
        let text = String::from_utf8(output.stdout).context("go test does not write UTF-8")?;
        sample(&text, workload).with_context(|| format!("{} has no workload {workload}", self.name))
    }
}

/// Parses a line such as `BenchmarkInts-2  100  251000 ns/op  251.0 ns/key  0 B/op  0 allocs/op`.
fn sample(text: &str, workload: &str) -> Option<Sample> {
    let wanted = format!("Benchmark{workload}");
    let line = text.lines().find(|line| {
        let name = line.split_whitespace().next().unwrap_or_default();
        name == wanted || name.strip_prefix(&wanted).is_some_and(|rest| rest.starts_with('-'))
    })?;
    let words: Vec<&str> = line.split_whitespace().collect();
    let value = |unit: &str| -> Option<f64> {
        let at = words.iter().position(|word| *word == unit)?;
        words.get(at.checked_sub(1)?)?.parse().ok()
    };
    let (per_operation, nanoseconds) = (value("ns/op")?, value("ns/key")?);
    // One operation of a benchmark processes many keys, and allocations are counted per operation.
    let keys = (per_operation / nanoseconds).max(1.0);
    Some(Sample { nanoseconds, allocations: value("allocs/op")? / keys })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn benchmarks_figures_are_read_per_key() {
        let text = "goos: linux\nBenchmarkIntsMeasured-2 \t 9\t 9 ns/op\t 9 ns/key\t 9 B/op\t 9 allocs/op\n\
                    BenchmarkInts-2   \t    4402\t    250000 ns/op\t       250.0 ns/key\t    8000 B/op\t    500 allocs/op\nPASS\n";
        let found = sample(text, "Ints").expect("the line is there");
        assert!(
            (found.nanoseconds - 250.0).abs() < 1e-9 && (found.allocations - 0.5).abs() < 1e-9,
            "{found:?}"
        );
        assert!(sample(text, "Strings").is_none());
    }
}
