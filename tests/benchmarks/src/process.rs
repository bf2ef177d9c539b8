//! Measured processes. Memory and CPU time are from the kernel, never from the process itself.

use std::io::{self, BufRead as _, BufReader};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};

/// Time limit until a process is synced, and until it is idle: much longer than the slowest measured sync of 100,000
/// Pods.
const TIMEOUT: Duration = Duration::from_secs(300);
/// Time limit until the memory of a process is settled; the last reading is used then.
const SETTLE_TIMEOUT: Duration = Duration::from_secs(15);
const SETTLE_INTERVAL: Duration = Duration::from_millis(500);
/// The kernel's unit of processor time, as Linux has fixed it for user space.
const TICKS_PER_SECOND: f64 = 100.0;

/// A process that fills a cache, prints `synced <count>`, frees the memory that it can free, prints `idle`, and holds
/// the cache until its standard input is closed.
#[derive(Debug)]
pub struct CacheProcess {
    child: Child,
    started: Instant,
    lines: mpsc::Receiver<io::Result<String>>,
}

/// Costs of the sync of a cache.
#[derive(Clone, Copy, Debug)]
pub struct Sync {
    /// Number of objects, or bytes, that the process reported.
    pub count: usize,
    /// Time since the start of the process.
    pub elapsed: Duration,
    /// User and system time of the process in seconds.
    pub processor_seconds: f64,
}

/// Memory of an idle process, in bytes.
#[derive(Clone, Copy, Debug)]
pub struct Memory {
    /// Resident memory.
    pub resident: f64,
    /// Maximum of the resident memory since the start.
    pub peak: f64,
}

impl CacheProcess {
    /// Starts a process.
    ///
    /// # Errors
    /// If the program cannot be started.
    pub fn start(command: &mut Command) -> Result<CacheProcess> {
        let started = Instant::now();
        let child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn();
        let mut child = child.with_context(|| format!("cannot start {}", command.get_program().display()))?;
        let output = child.stdout.take().context("the standard output is not piped")?;
        let (sender, lines) = mpsc::channel();
        // The thread ends with the output of the process, or when the receiver is dropped.
        thread::spawn(move || BufReader::new(output).lines().try_for_each(|line| sender.send(line)));
        Ok(CacheProcess { child, started, lines })
    }

    /// Waits until the process reports that its cache is synced.
    ///
    /// # Errors
    /// If the process exits first, or is not synced within five minutes.
    pub fn synced(&self) -> Result<Sync> {
        let line = self.line()?;
        let elapsed = self.started.elapsed();
        let processor_seconds = processor_seconds(self.child.id())?;
        let count = line.strip_prefix("synced ").with_context(|| format!("the process printed {line:?}"))?;
        Ok(Sync { count: count.parse()?, elapsed, processor_seconds })
    }

    /// Waits until the process is idle and its resident memory changes by less than one percent in half a second.
    ///
    /// # Errors
    /// If the process exits first, or is not idle within five minutes.
    pub fn settled_memory(&self) -> Result<Memory> {
        let line = self.line()?;
        ensure!(line == "idle", "the process printed {line:?}");
        let (started, mut last) = (Instant::now(), memory(self.child.id())?);
        loop {
            thread::sleep(SETTLE_INTERVAL);
            let next = memory(self.child.id())?;
            let is_settled = (next.resident - last.resident).abs() < last.resident / 100.0;
            if is_settled || started.elapsed() > SETTLE_TIMEOUT {
                return Ok(next);
            }
            last = next;
        }
    }

    fn line(&self) -> Result<String> {
        match self.lines.recv_timeout(TIMEOUT) {
            Ok(line) => Ok(line?),
            Err(RecvTimeoutError::Timeout) => bail!("the process is not synced and idle within {TIMEOUT:?}"),
            Err(RecvTimeoutError::Disconnected) => bail!("the process exited before it was synced and idle"),
        }
    }

    /// Closes the standard input of the process and waits until it exits.
    ///
    /// # Errors
    /// If the process fails.
    pub fn stop(mut self) -> Result<()> {
        drop(self.child.stdin.take());
        let status = self.child.wait()?;
        if !status.success() {
            bail!("the process failed ({status})");
        }
        Ok(())
    }
}

impl Drop for CacheProcess {
    fn drop(&mut self) {
        // Both fail if the process has exited. A failed measurement must not leave a process with gigabytes behind.
        let _exited = self.child.kill();
        let _exited = self.child.wait();
    }
}

fn memory(process: u32) -> Result<Memory> {
    let status = std::fs::read_to_string(format!("/proc/{process}/status"))?;
    let bytes = |field: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(field)).context("no such field")?;
        let kibibytes: f64 = line.trim_start_matches(':').trim().trim_end_matches(" kB").trim().parse()?;
        anyhow::Ok(kibibytes * 1024.0)
    };
    Ok(Memory { resident: bytes("VmRSS")?, peak: bytes("VmHWM")? })
}

fn processor_seconds(process: u32) -> Result<f64> {
    let stat = std::fs::read_to_string(format!("/proc/{process}/stat"))?;
    let after_name = stat.rsplit(')').next().context("an empty stat")?;
    let fields: Vec<&str> = after_name.split_whitespace().collect();
    // Fields 14 and 15 of the whole line are user and system time; the first field after the name is field 3.
    let ticks = |index: usize| anyhow::Ok(fields.get(index).context("no such field")?.parse::<f64>()?);
    Ok((ticks(11)? + ticks(12)?) / TICKS_PER_SECOND)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str) -> Command {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        command
    }

    #[test]
    fn process_is_measured_while_it_holds_its_cache() -> Result<()> {
        let process = CacheProcess::start(&mut shell("echo synced 7; echo idle; cat"))?;
        let sync = process.synced()?;
        assert_eq!(sync.count, 7);
        let memory = process.settled_memory()?;
        assert!(memory.resident > 0.0 && memory.peak >= memory.resident, "{memory:?}");
        process.stop()
    }

    #[test]
    fn process_that_exits_before_sync_is_an_error() -> Result<()> {
        let process = CacheProcess::start(&mut shell("exit 3"))?;
        assert!(process.synced().is_err());
        assert!(process.stop().is_err());
        Ok(())
    }
}
