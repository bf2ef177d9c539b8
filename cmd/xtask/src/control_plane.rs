//! Builds, starts and stops a real Kubernetes control plane for manual tests.
//!
//! `up` leaves one process running, the keeper, which owns the control plane and all its processes. `down` stops only
//! this process: the state file identifies it by process id, start time and boot, so a reused id of another process is
//! never signalled.

use std::fs::{self, File, TryLockError};
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, bail, ensure};
use clap::{Args, Subcommand};
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal, setsid};
use serde::{Deserialize, Serialize};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc;
use windlass_harness::{Assets, Binary, ControlPlane, ControlPlaneOptions, SUPPORTING_CONTROLLERS};

/// Command from `up` that lets the keeper outlive it, after the state file is written.
const DETACH_COMMAND: &str = "stay";

/// Time limit for the keeper to stop all processes.
const STOP_TIMEOUT: Duration = Duration::from_secs(30);

/// Arguments of `cargo xtask control-plane`.
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    step: Step,
}

#[derive(Debug, Subcommand)]
enum Step {
    /// Builds the missing binaries and prints their paths.
    Build,
    /// Starts a control plane in the background and prints the path of its kubeconfig.
    Up(UpOptions),
    /// Stops the control plane that `up` started.
    Down,
    /// Runs the keeper, which owns the control plane until it is stopped.
    #[command(hide = true)]
    Keep(UpOptions),
}

#[derive(Debug, Args)]
struct UpOptions {
    /// Number of nodes that kwok simulates.
    #[arg(long, default_value_t = 3)]
    nodes: usize,

    /// Names of the upstream controllers to run; `*` for all that upstream enables by default.
    #[arg(long, value_name = "NAMES", value_delimiter = ',', default_values_t = SUPPORTING_CONTROLLERS.map(String::from))]
    upstream_controllers: Vec<String>,
}

/// The running control plane, as stored in the state file.
#[derive(Debug, Serialize, Deserialize)]
struct Record {
    keeper: ProcessIdentity,
    kubeconfig: PathBuf,
}

/// Unambiguous identity of a process.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
struct ProcessIdentity {
    pid: u32,
    /// In clock ticks since boot.
    start_time: u64,
    boot: String,
}

/// Runs the subcommand.
///
/// # Errors
/// If a binary cannot be built, a control plane is already running, or one does not start or stop.
pub(crate) fn run(arguments: Arguments) -> anyhow::Result<()> {
    match arguments.step {
        Step::Build => build(),
        Step::Up(options) => up(&options),
        Step::Down => down(),
        Step::Keep(options) => keep(options),
    }
}

fn build() -> anyhow::Result<()> {
    let assets = Assets::ensure()?;
    for binary in Binary::ALL {
        println!("{}", assets.path(binary).display());
    }
    Ok(())
}

fn up(options: &UpOptions) -> anyhow::Result<()> {
    let state = State::open()?;
    if let Some(record) = state.read()?
        && record.keeper.is_alive()
    {
        bail!(
            "a control plane is already running with the kubeconfig {}; stop it with `cargo xtask control-plane down`",
            record.kubeconfig.display()
        );
    }
    // Built in this process, so that its progress is visible.
    let assets = Assets::ensure()?;
    let mut keeper = start_keeper(options, &state.keeper_log())?;
    let outcome = take_over(&mut keeper, &state);
    let kubeconfig = outcome.with_context(|| format!("see {}", state.keeper_log().display()))?;
    eprintln!("kubectl is {}", assets.path(Binary::Kubectl).display());
    eprintln!("stop the control plane with `cargo xtask control-plane down`");
    println!("{}", kubeconfig.display());
    Ok(())
}

fn start_keeper(options: &UpOptions, log: &Path) -> anyhow::Result<Child> {
    let mut command = Command::new(std::env::current_exe()?);
    command
        .args(["control-plane", "keep", &format!("--nodes={}", options.nodes)])
        .arg(format!("--upstream-controllers={}", options.upstream_controllers.join(",")))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(File::create(log)?);
    command.spawn().context("cannot start the keeper")
}

/// Waits until the keeper's control plane is running, writes the state file, and lets the keeper stay.
fn take_over(keeper: &mut Child, state: &State) -> anyhow::Result<PathBuf> {
    let mut commands = keeper.stdin.take().context("the keeper has a pipe for commands")?;
    let reports = keeper.stdout.take().context("the keeper has a pipe for reports")?;
    let mut line = String::new();
    BufReader::new(reports).read_line(&mut line)?;
    ensure!(line.ends_with('\n'), "the control plane did not start");
    let kubeconfig = PathBuf::from(line.trim_end());
    state.write(&Record { keeper: ProcessIdentity::of(keeper.id())?, kubeconfig: kubeconfig.clone() })?;
    writeln!(commands, "{DETACH_COMMAND}")?;
    Ok(kubeconfig)
}

fn down() -> anyhow::Result<()> {
    let state = State::open()?;
    match state.read()? {
        Some(record) if record.keeper.end()? => eprintln!("control plane stopped"),
        _ => eprintln!("no control plane is running"),
    }
    state.remove()
}

#[tokio::main]
async fn keep(options: UpOptions) -> anyhow::Result<()> {
    // A new session, so that closing the terminal does not stop the control plane.
    setsid().context("cannot leave the terminal's session")?;
    let mut terminated = signal(SignalKind::terminate())?;
    let mut commands = read_commands();
    let options = ControlPlaneOptions::default()
        .nodes(options.nodes)
        .upstream_controllers(options.upstream_controllers);
    let plane = tokio::select! {
        biased;
        // The `up` process has exited. Dropping a partial start removes its processes.
        _ = commands.recv() => return Ok(()),
        plane = ControlPlane::start(options) => plane?,
    };
    println!("{}", plane.kubeconfig_path().display());
    if commands.recv().await.as_deref() == Some(DETACH_COMMAND) {
        terminated.recv().await;
    }
    plane.stop().await
}

/// Reads the lines of standard input. Uses a thread, because the runtime would wait for a blocked read when the process
/// exits.
fn read_commands() -> mpsc::UnboundedReceiver<String> {
    let (sender, commands) = mpsc::unbounded_channel();
    std::thread::spawn(move || {
        let lines = std::io::stdin().lines().map_while(Result::ok);
        // The receiver is dropped once the keeper stays.
        lines.for_each(|line| drop(sender.send(line)));
    });
    commands
}

/// The user's state folder, locked for one command at a time.
struct State {
    folder: PathBuf,
    _lock: File,
}

impl State {
    fn open() -> anyhow::Result<Self> {
        let set = |name| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
        let folder = set("XDG_STATE_HOME")
            .or_else(|| set("HOME").map(|home| home.join(".local/state")))
            .context("neither XDG_STATE_HOME nor HOME is set")?
            .join("windlass");
        fs::create_dir_all(&folder).with_context(|| format!("cannot create {}", folder.display()))?;
        let lock = File::create(folder.join("control-plane.lock"))?;
        match lock.try_lock() {
            Ok(()) => Ok(Self { folder, _lock: lock }),
            Err(TryLockError::WouldBlock) => bail!("another `cargo xtask control-plane` is running"),
            Err(TryLockError::Error(error)) => Err(error.into()),
        }
    }

    fn record(&self) -> PathBuf {
        self.folder.join("control-plane.json")
    }

    fn keeper_log(&self) -> PathBuf {
        self.folder.join("control-plane.log")
    }

    fn read(&self) -> anyhow::Result<Option<Record>> {
        let path = self.record();
        match fs::read(&path) {
            Ok(text) => serde_json::from_slice(&text)
                .map(Some)
                .with_context(|| format!("cannot read {}", path.display())),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error).with_context(|| format!("cannot read {}", path.display())),
        }
    }

    fn write(&self, record: &Record) -> anyhow::Result<()> {
        Ok(fs::write(self.record(), serde_json::to_vec_pretty(record)?)?)
    }

    fn remove(&self) -> anyhow::Result<()> {
        match fs::remove_file(self.record()) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(error.into()),
            _ => Ok(()),
        }
    }
}

impl ProcessIdentity {
    /// Returns the identity of the process with this id.
    fn of(pid: u32) -> anyhow::Result<Self> {
        let start_time = start_time(pid).with_context(|| format!("process {pid} has ended"))?;
        Ok(Self { pid, start_time, boot: boot()? })
    }

    fn is_alive(&self) -> bool {
        Self::of(self.pid).is_ok_and(|found| found == *self)
    }

    /// Stops the process and waits until it has exited. Returns `false` if it had exited before.
    fn end(&self) -> anyhow::Result<bool> {
        let pid = i32::try_from(self.pid).ok().and_then(Pid::from_raw).context("not a process id")?;
        // The handle is opened before the check: if the process is the right one then, so is the handle.
        let handle = match pidfd_open(pid, PidfdFlags::empty()) {
            Ok(handle) => handle,
            Err(rustix::io::Errno::SRCH) => return Ok(false),
            Err(error) => return Err(error).context("cannot open a handle on the keeper"),
        };
        if !self.is_alive() {
            return Ok(false);
        }
        pidfd_send_signal(&handle, Signal::TERM)?;
        let stopping_since = Instant::now();
        while self.is_alive() {
            ensure!(
                stopping_since.elapsed() < STOP_TIMEOUT,
                "process {} did not stop within {STOP_TIMEOUT:?}",
                self.pid
            );
            std::thread::sleep(Duration::from_millis(20));
        }
        Ok(true)
    }
}

fn boot() -> anyhow::Result<String> {
    Ok(fs::read_to_string("/proc/sys/kernel/random/boot_id")?.trim().to_owned())
}

/// Returns the start time of a process in clock ticks since boot; `None` if it has exited, reaped or not.
fn start_time(pid: u32) -> Option<u64> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name is in parentheses and can contain any character. The state follows it.
    let (_, rest) = stat.rsplit_once(") ")?;
    let mut fields = rest.split(' ');
    let state = fields.next()?;
    // The start time is field 22, and the 20th field from the state on.
    let start_time = fields.nth(18)?.parse().ok()?;
    (state != "Z").then_some(start_time)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exited_process_is_not_signalled() {
        let mut child = Command::new("sleep").arg("100").spawn().unwrap();
        let identity = ProcessIdentity::of(child.id()).unwrap();
        assert!(identity.is_alive());
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(!identity.is_alive());
        assert!(!identity.end().unwrap());
    }

    #[test]
    fn process_with_reused_id_is_not_signalled() {
        let mut child = Command::new("sleep").arg("100").spawn().unwrap();
        let foreign = ProcessIdentity::of(child.id()).unwrap();
        let recorded = ProcessIdentity { start_time: foreign.start_time - 1, ..foreign };
        assert!(!recorded.end().unwrap());
        let other_boot =
            ProcessIdentity { boot: "another".into(), ..ProcessIdentity::of(child.id()).unwrap() };
        assert!(!other_boot.end().unwrap());
        assert!(child.try_wait().unwrap().is_none(), "another process was stopped");
        child.kill().unwrap();
        child.wait().unwrap();
    }

    #[test]
    fn matching_process_is_stopped_and_awaited() {
        let mut child = Command::new("sleep").arg("100").spawn().unwrap();
        assert!(ProcessIdentity::of(child.id()).unwrap().end().unwrap());
        assert!(!child.wait().unwrap().success());
    }
}
