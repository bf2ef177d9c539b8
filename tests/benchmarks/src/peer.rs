//! Programs and benchmarks of peers: built once, run repeatedly.

use std::fs::File;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result, bail, ensure};
use bytes::Bytes;
use tempfile::TempDir;

use crate::figures::Cost;
use crate::pods::JsonPod;

/// Builds the command in the folder `go/<module>/<package>` and returns its path.
///
/// # Errors
/// If Go is missing or the command does not build.
pub fn build_go_program(module: &str, package: &str) -> Result<PathBuf> {
    let program = output_folder()?.join(format!("{module}-{package}"));
    let module = folder().join("go").join(module);
    let mut build = Command::new("go");
    build.args(["build", "-mod=readonly", "-o"]).arg(&program).arg(format!("./{package}"));
    succeed(build.current_dir(&module))?;
    Ok(program)
}

/// Builds the crate in `folder`, which is not part of this workspace, and returns the path of its program.
///
/// # Errors
/// If the crate does not build.
pub fn build_crate(name: &str, program: &str) -> Result<PathBuf> {
    let target = output_folder()?.join(name);
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut build = Command::new(cargo);
    build.args(["build", "--release", "--locked", "--target-dir"]).arg(&target);
    succeed(build.current_dir(folder().join(name)))?;
    Ok(target.join("release").join(program))
}

/// Returns the protobuf message of each Pod, encoded by the serializer of client-go.
///
/// # Errors
/// If the encoder fails.
pub fn encode_as_protobuf(encoder: &Path, pods: &[JsonPod]) -> Result<Vec<Bytes>> {
    let folder = TempDir::new()?;
    let (json, protobuf) = (folder.path().join("json"), folder.path().join("protobuf"));
    let mut lines = std::io::BufWriter::new(File::create(&json)?);
    for pod in pods {
        lines.write_all(&pod.object)?;
        lines.write_all(b"\n")?;
    }
    lines.flush()?;
    succeed(Command::new(encoder).stdin(File::open(&json)?).stdout(File::create(&protobuf)?))?;
    split_messages(Bytes::from(std::fs::read(&protobuf)?))
}

/// Splits messages, each of which follows its length in four bytes.
fn split_messages(mut bytes: Bytes) -> Result<Vec<Bytes>> {
    let mut messages = Vec::new();
    while !bytes.is_empty() {
        ensure!(bytes.len() >= 4, "the length of a message is incomplete");
        let length = u32::from_be_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]) as usize;
        ensure!(bytes.len() - 4 >= length, "a message is incomplete");
        messages.push(bytes.slice(4..4 + length));
        bytes = bytes.split_off(4 + length);
    }
    Ok(messages)
}

/// Returns the folder of this package.
fn folder() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// Returns the folder of peers' programs in the target directory: builds of peers take minutes and are reused.
fn output_folder() -> Result<PathBuf> {
    let own = std::env::current_exe()?;
    let target = own.ancestors().nth(2).context("this program is not in a target directory")?;
    let output = target.join("peers");
    std::fs::create_dir_all(&output)?;
    Ok(output)
}

fn succeed(command: &mut Command) -> Result<()> {
    let name = command.get_program().display().to_string();
    let status = command.status().with_context(|| format!("cannot start {name}"))?;
    if !status.success() {
        bail!("{name} failed ({status})");
    }
    Ok(())
}

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
        let mut build = Command::new("go");
        build.args(["test", "-mod=readonly", "-c", "-o"]).arg(&program).arg(".");
        succeed(build.current_dir(self::folder().join("go").join(name)))?;
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
    pub fn measure(&self, workload: &str, milliseconds: u32) -> Result<Cost> {
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
fn sample(text: &str, workload: &str) -> Option<Cost> {
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
    Some(Cost { nanoseconds, allocations: value("allocs/op")? / keys })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_split_by_their_lengths() {
        let split = split_messages(Bytes::from_static(b"\0\0\0\x02ab\0\0\0\0\0\0\0\x01c")).expect("complete");
        assert_eq!(split, ["ab", "", "c"]);
        assert!(split_messages(Bytes::from_static(b"\0\0\0\x02a")).is_err());
        assert!(split_messages(Bytes::from_static(b"\0\0")).is_err());
    }

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
