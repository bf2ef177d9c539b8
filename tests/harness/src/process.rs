//! Programs that never outlive the process which started them.
//!
//! Each runs under `supervise`, which holds one end of a pipe whose other end is ours alone. When our
//! process ends, even by `SIGKILL`, the kernel closes the pipe, and supervise kills the program's
//! whole process group. Nothing here needs an async runtime: a process may be started under one and
//! awaited under another, as tests that share a plane do.

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

/// What to run, and with which surroundings.
#[derive(Debug)]
pub(crate) struct Program {
    path: PathBuf,
    arguments: Vec<OsString>,
    /// The whole environment; `None` inherits ours.
    environment: Option<Vec<(OsString, OsString)>>,
}

impl Program {
    /// A program that inherits our environment.
    pub(crate) fn new<A: Into<OsString>>(path: PathBuf, arguments: impl IntoIterator<Item = A>) -> Self {
        Self { path, arguments: arguments.into_iter().map(Into::into).collect(), environment: None }
    }

    /// Gives it a home and nothing else of our environment: no proxy, no setting of the user's.
    pub(crate) fn isolated(mut self, home: &Path) -> Self {
        self.environment = Some(vec![("HOME".into(), home.into())]);
        self
    }
}

/// How far a process has come.
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
    orders: Mutex<ChildStdin>,
    life: watch::Receiver<ProcessPhase>,
}

impl Process {
    /// Starts `program`; all it prints is appended to `log`.
    pub(crate) fn start(supervise: &Path, program: &Program, name: &str, log: &Path) -> anyhow::Result<Self> {
        let mut command = Command::new(supervise);
        command.arg(&program.path).args(&program.arguments);
        if let Some(environment) = &program.environment {
            command.env_clear().envs(environment.iter().map(|(key, value)| (key, value)));
        }
        let file = File::options().create(true).append(true).open(log)?;
        let mut child = spawn(command.stdout(Stdio::piped()).stderr(file))?;
        let orders = child.stdin.take().context("the supervisor has a pipe for orders")?;
        let reports = child.stdout.take().context("the supervisor has a pipe for reports")?;
        let mut reports = BufReader::new(reports).lines();
        let Some(pid) = read_report(&mut reports, "started ") else {
            bail!("{name} did not start: {}", logs::tail(log));
        };
        let (told, life) = watch::channel(ProcessPhase::Running);
        std::thread::Builder::new()
            .name(format!("await {name}"))
            .spawn(move || told.send_replace(await_exit(reports, child)))?;
        let pid = u32::try_from(pid).context("a process id is positive")?;
        Ok(Self { name: name.to_owned(), pid, log: log.to_owned(), orders: Mutex::new(orders), life })
    }

    /// The id of the program itself, as seen in `/proc`; not that of its supervisor.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.pid
    }

    /// What it was started as.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The file that holds all it prints.
    #[must_use]
    pub fn log(&self) -> &Path {
        &self.log
    }

    /// Asks it to end, by `SIGTERM`. Nothing happens when it has ended already.
    pub fn terminate(&self) {
        self.order("term\n");
    }

    /// Kills its process group, by `SIGKILL`. Nothing happens when it has ended already.
    pub fn kill(&self) {
        self.order("kill\n");
    }

    /// Its exit status, once it has ended.
    #[must_use]
    pub fn exited(&self) -> Option<ExitStatus> {
        match *self.life.borrow() {
            ProcessPhase::Running => None,
            ProcessPhase::Exited(status) => Some(status),
            ProcessPhase::Lost => Some(killed()),
        }
    }

    /// Waits until it has ended.
    ///
    /// # Errors
    /// When it still runs after `within`, or its supervisor was killed.
    ///
    /// # Cancel safety
    /// Nothing is lost: the status can be asked for again.
    pub async fn wait_exit(&self, within: Duration) -> anyhow::Result<ExitStatus> {
        let mut life = self.life.clone();
        let ended = life.wait_for(|life| *life != ProcessPhase::Running);
        let Ok(ended) = tokio::time::timeout(within, ended).await else {
            bail!("{} still runs after {within:?}: {}", self.name, logs::tail(&self.log));
        };
        match *ended.map_err(|_| anyhow!("nobody awaits {} any more", self.name))? {
            ProcessPhase::Exited(status) => Ok(status),
            ProcessPhase::Running | ProcessPhase::Lost => bail!("the supervisor of {} was killed", self.name),
        }
    }

    fn order(&self, order: &str) {
        let mut orders = self.orders.lock().unwrap_or_else(PoisonError::into_inner);
        // A broken pipe means that the supervisor is gone, and the program with it.
        let _ = orders.write_all(order.as_bytes());
    }
}

/// Removes a plane's folders once our process has ended, this value is dropped, or
/// [`finish`](Self::finish) is called.
#[derive(Debug)]
pub(crate) struct Janitor {
    supervisor: Option<Child>,
}

impl Janitor {
    /// Appoints a janitor for the folder `data`, and for the folder `run` except for its logs if
    /// they are marked to be kept.
    pub(crate) fn appoint(supervise: &Path, data: &Path, run: &Path) -> anyhow::Result<Self> {
        let mut command = Command::new(supervise);
        let arguments = [OsStr::new("-remove"), data.as_os_str(), OsStr::new("-remove-run"), run.as_os_str()];
        // No log for its own complaints: it would lie in a folder that is removed.
        command.args(arguments).stdout(Stdio::null()).stderr(Stdio::inherit());
        Ok(Self { supervisor: Some(spawn(&mut command)?) })
    }

    /// Has the folders removed now, and waits for it; blocks the thread.
    pub(crate) fn finish(mut self) -> anyhow::Result<()> {
        let status = self.dismiss()?;
        ensure!(status.is_none_or(|status| status.success()), "the plane's folders could not be removed");
        Ok(())
    }

    fn dismiss(&mut self) -> std::io::Result<Option<ExitStatus>> {
        let Some(mut supervisor) = self.supervisor.take() else { return Ok(None) };
        // `wait` closes the pipe first.
        supervisor.wait().map(Some)
    }
}

impl Drop for Janitor {
    fn drop(&mut self) {
        // What it could not remove it has said itself.
        let _ = self.dismiss();
    }
}

fn spawn(command: &mut Command) -> anyhow::Result<Child> {
    // In its own group a supervisor survives the Ctrl-C that ends us, and tidies up.
    command
        .stdin(Stdio::piped())
        .process_group(0)
        .spawn()
        .with_context(|| format!("starting {}", command.get_program().display()))
}

fn await_exit(mut reports: Lines<BufReader<ChildStdout>>, mut supervisor: Child) -> ProcessPhase {
    let status = read_report(&mut reports, "exited ");
    // Reaped here, so that no zombie stays; its own status says nothing more.
    let _ = supervisor.wait();
    status.map_or(ProcessPhase::Lost, |raw| ProcessPhase::Exited(ExitStatus::from_raw(raw)))
}

fn read_report(reports: &mut Lines<BufReader<ChildStdout>>, prefix: &str) -> Option<i32> {
    reports.next()?.ok()?.strip_prefix(prefix)?.parse().ok()
}

fn killed() -> ExitStatus {
    ExitStatus::from_raw(9)
}
