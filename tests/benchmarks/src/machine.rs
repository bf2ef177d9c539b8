//! Facts about the machine and the build that results depend on.

use std::process::Command;

use anyhow::{Context as _, Result, ensure};
use serde::{Deserialize, Serialize};

/// The machine, the tools and the commit of a run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Machine {
    /// Model of the processor.
    pub processor: String,
    /// Number of usable processors.
    pub processors: usize,
    /// Memory in GiB.
    pub memory_gib: u64,
    /// Name and version of the kernel.
    pub kernel: String,
    /// Load average over a minute before the run: other processes distort results.
    pub load: String,
    /// Date of the run, in UTC.
    pub date: String,
    /// The commit, with a `+` if files differ from it.
    pub commit: String,
    /// Version of the Rust compiler.
    pub rust: String,
    /// Version of Go.
    pub go: String,
}

impl Machine {
    /// Reads the facts.
    ///
    /// # Errors
    /// If a file of the kernel cannot be read or a tool is missing.
    pub fn read() -> Result<Machine> {
        let (cpu, memory) = (read("/proc/cpuinfo")?, read("/proc/meminfo")?);
        let changes = output("git", &["status", "--porcelain", "--untracked-files=no"])?;
        let dirty = if changes.is_empty() { "" } else { "+" };
        Ok(Machine {
            processor: field(&cpu, "model name").unwrap_or("unknown").to_owned(),
            processors: std::thread::available_parallelism()?.get(),
            memory_gib: kibibytes(&memory).context("no total memory")? / (1024 * 1024),
            kernel: output("uname", &["-sr"])?,
            load: read("/proc/loadavg")?.split(' ').next().unwrap_or_default().to_owned(),
            date: output("date", &["--utc", "+%Y-%m-%d"])?,
            commit: output("git", &["rev-parse", "--short=12", "HEAD"])? + dirty,
            rust: output("rustc", &["--version"])?,
            go: output("go", &["version"])?,
        })
    }
}

fn read(path: &str) -> Result<String> {
    std::fs::read_to_string(path).with_context(|| format!("cannot read {path}"))
}

/// Returns the value of the first line `<name> : <value>`.
fn field<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    let line = text.lines().find(|line| line.starts_with(name))?;
    Some(line.split_once(':')?.1.trim())
}

fn kibibytes(memory: &str) -> Option<u64> {
    field(memory, "MemTotal")?.trim_end_matches(" kB").parse().ok()
}

fn output(program: &str, arguments: &[&str]) -> Result<String> {
    let mut command = Command::new(program);
    let output = command.args(arguments).current_dir(env!("CARGO_MANIFEST_DIR")).output();
    let output = output.with_context(|| format!("cannot start {program}"))?;
    ensure!(output.status.success(), "{program} failed ({})", output.status);
    Ok(String::from_utf8(output.stdout)?.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn facts_are_read_from_the_kernels_files() {
        assert_eq!(
            field("processor\t: 0\nmodel name\t: Some CPU @ 2 GHz\n", "model name"),
            Some("Some CPU @ 2 GHz")
        );
        assert_eq!(kibibytes("MemTotal:       24576000 kB\nMemFree: 1 kB\n"), Some(24_576_000));
    }
}
