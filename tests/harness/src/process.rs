//! Programs that never outlive the process that started them.
//!
//! Each program runs under `supervise`, which holds one end of a pipe whose other end only this process holds. When
//! this process ends, even by `SIGKILL`, the kernel closes the pipe, and supervise kills the program's process group.
//! No async runtime is needed: a process can be started under one runtime and awaited under another, as tests that
//! share a control plane do.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{BufRead, BufReader, Lines, Write};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, ExitStatus, Stdio};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context, anyhow, bail, ensure};
use tokio::sync::watch;

use crate::logs;

/// A program to run, with arguments and environment.
#[derive(Debug)]
pub(crate) struct Program {
    path: PathBuf,
    arguments: Vec<OsString>,
    /// Complete environment; `None` inherits it.
    environment: Option<Vec<(OsString, OsString)>>,
}

impl Program {
    /// Creates a program that inherits the environment.
    pub(crate) fn new<A: Into<OsString>>(path: PathBuf, arguments: impl IntoIterator<Item = A>) -> Self {
        Self { path, arguments: arguments.into_iter().map(Into::into).collect(), environment: None }
    }

    /// Replaces the environment by a home folder, so that no proxy and no user setting applies.
    pub(crate) fn isolated(mut self, home: &Path) -> Self {
        self.environment = Some(vec![("HOME".into(), home.into())]);
        self
    }
}

/// State of a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ProcessPhase {
    Running,
    Exited(ExitStatus),
    /// Its supervisor was killed; the kernel then killed the program.
    Lost,
}

/// A running program. Dropping it kills the program's process group.
#[derive(Debug)]
pub struct Process {
    name: String,
    pid: u32,
    log: PathBuf,
    commands: Mutex<ChildStdin>,
    phase: watch::Receiver<ProcessPhase>,
}

impl Process {
    /// Starts `program`; its output is appended to `log`.
    pub(crate) fn start(supervise: &Path, program: &Program, name: &str, log: &Path) -> anyhow::Result<Self> {
        let mut command = Command::new(supervise);
        command.arg(&program.path).args(&program.arguments);
        if let Some(environment) = &program.environment {
            command.env_clear().envs(environment.iter().map(|(key, value)| (key, value)));
        }
        let file = File::options().create(true).append(true).open(log)?;
        let mut child = spawn(command.stdout(Stdio::piped()).stderr(file))?;
        let commands = child.stdin.take().context("the supervisor has a pipe for orders")?;
        let reports = child.stdout.take().context("the supervisor has a pipe for reports")?;
        let mut reports = BufReader::new(reports).lines();
        let Some(pid) = read_report(&mut reports, "started ") else {
            bail!("{name} did not start: {}", logs::tail(log));
        };
        let (phase_sender, phase) = watch::channel(ProcessPhase::Running);
        std::thread::Builder::new()
            .name(format!("await {name}"))
            .spawn(move || phase_sender.send_replace(await_exit(reports, child)))?;
        let pid = u32::try_from(pid).context("a process id is positive")?;
        Ok(Self { name: name.to_owned(), pid, log: log.to_owned(), commands: Mutex::new(commands), phase })
    }

    /// Returns the process ID of the program itself, as in `/proc`, not of its supervisor.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.pid
    }

    /// Returns the name of the process.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the file with its output.
    #[must_use]
    pub fn log(&self) -> &Path {
        &self.log
    }

    /// Requests a graceful exit with `SIGTERM`. Has no effect after the program exited.
    pub fn terminate(&self) {
        self.send_command("term\n");
    }

    /// Kills its process group with `SIGKILL`. Has no effect after the program exited.
    pub fn kill(&self) {
        self.send_command("kill\n");
    }

    /// Returns the exit status, or `None` while the program runs.
    #[must_use]
    pub fn exited(&self) -> Option<ExitStatus> {
        match *self.phase.borrow() {
            ProcessPhase::Running => None,
            ProcessPhase::Exited(status) => Some(status),
            ProcessPhase::Lost => Some(killed()),
        }
    }

    /// Waits until the program exits.
    ///
    /// # Errors
    /// Returns an error if it still runs after `within`, or its supervisor was killed.
    ///
    /// # Cancel safety
    /// Cancel safe: a later call returns the status.
    pub async fn wait_exit(&self, within: Duration) -> anyhow::Result<ExitStatus> {
        let mut phase = self.phase.clone();
        let ended = phase.wait_for(|phase| *phase != ProcessPhase::Running);
        let Ok(ended) = tokio::time::timeout(within, ended).await else {
            bail!("{} still runs after {within:?}: {}", self.name, logs::tail(&self.log));
        };
        match *ended.map_err(|_| anyhow!("the thread that waits for {} has ended", self.name))? {
            ProcessPhase::Exited(status) => Ok(status),
            ProcessPhase::Running | ProcessPhase::Lost => bail!("the supervisor of {} was killed", self.name),
        }
    }

    fn send_command(&self, order: &str) {
        let mut commands = self.commands.lock().unwrap_or_else(PoisonError::into_inner);
        // A broken pipe means that the supervisor has exited, and the program with it.
        let _ = commands.write_all(order.as_bytes());
    }
}

/// Removes a control plane's folders when this process ends, this value is dropped, or [`finish`](Self::finish) is
/// called.
#[derive(Debug)]
pub(crate) struct FolderRemover {
    supervisor: Option<Child>,
}

impl FolderRemover {
    /// Starts a janitor for the folder `data`, and for the folder `run` except for its logs if they are marked to be
    /// kept.
    pub(crate) fn start(supervise: &Path, data: &Path, run: &Path) -> anyhow::Result<Self> {
        let mut command = Command::new(supervise);
        let arguments = [OsStr::new("-remove"), data.as_os_str(), OsStr::new("-remove-run"), run.as_os_str()];
        // Without a log, because it would be in a folder that the janitor removes.
        command.args(arguments).stdout(Stdio::null()).stderr(Stdio::inherit());
        Ok(Self { supervisor: Some(spawn(&mut command)?) })
    }

    /// Removes the folders now and waits for completion; blocks the thread.
    pub(crate) fn finish(mut self) -> anyhow::Result<()> {
        let status = self.stop()?;
        ensure!(
            status.is_none_or(|status| status.success()),
            "cannot remove the folders of the control plane"
        );
        Ok(())
    }

    fn stop(&mut self) -> std::io::Result<Option<ExitStatus>> {
        let Some(mut supervisor) = self.supervisor.take() else { return Ok(None) };
        // `wait` closes the pipe first.
        supervisor.wait().map(Some)
    }
}

impl Drop for FolderRemover {
    fn drop(&mut self) {
        // The janitor has printed its own errors.
        let _ = self.stop();
    }
}

fn spawn(command: &mut Command) -> anyhow::Result<Child> {
    // In its own process group, a supervisor survives a Ctrl-C and cleans up.
    command
        .stdin(Stdio::piped())
        .process_group(0)
        .spawn()
        .with_context(|| format!("starting {}", command.get_program().display()))
}

fn await_exit(mut reports: Lines<BufReader<ChildStdout>>, mut supervisor: Child) -> ProcessPhase {
    let status = read_report(&mut reports, "exited ");
    // Reaped here to avoid a zombie; its status contains no further information.
    let _ = supervisor.wait();
    status.map_or(ProcessPhase::Lost, |raw| ProcessPhase::Exited(ExitStatus::from_raw(raw)))
}

fn read_report(reports: &mut Lines<BufReader<ChildStdout>>, prefix: &str) -> Option<i32> {
    reports.next()?.ok()?.strip_prefix(prefix)?.parse().ok()
}

fn killed() -> ExitStatus {
    ExitStatus::from_raw(9)
}
