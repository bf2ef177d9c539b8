//! The project's controller manager as a process next to a control plane.

use std::path::{Path, PathBuf};
use std::process::ExitStatus;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use anyhow::{Context, bail, ensure};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::control_plane::ControlPlane;
use crate::ports::Port;
use crate::process::{Process, Program};

/// Environment variable with the path of the binary under test.
const BINARY_VARIABLE: &str = "WINDLASS_BIN";

/// File name of the binary.
const BINARY: &str = "windlass";

/// Timeout of requests to the admin server.
const SCRAPE: Duration = Duration::from_secs(10);

/// Timeout of a command.
const COMMAND: Duration = Duration::from_secs(30);

/// The controllers of the binary that own workloads.
pub const WORKLOAD_CONTROLLERS: [&str; 6] = [
    "deployment-controller",
    "daemonset-controller",
    "replicaset-controller",
    "replicationcontroller-controller",
    "statefulset-controller",
    "endpoints-controller",
];

/// A running controller manager. Dropping it kills the process.
#[derive(Debug)]
pub struct ManagerProcess {
    process: Process,
    admin: Port,
}

impl ManagerProcess {
    /// Starts the `windlass` binary against `plane` with `args`, and returns when the process runs. Use
    /// [`get`](Self::get) to check readiness.
    ///
    /// It runs [`WORKLOAD_CONTROLLERS`] unless `args` contain `--controllers` or `--config`, because the others delete
    /// pods of nodes that do not exist. It acts as the administrator unless `args` contain another `--kubeconfig`. The
    /// harness sets `--secure-port`. The admin server listens on loopback with plain HTTP unless `args` configure it.
    /// The binary is the one in `WINDLASS_BIN`, or else the one built next to the running test.
    ///
    /// # Errors
    /// Returns an error if there is no binary, or it cannot be started.
    // Async like `ControlPlane::start`, so that it can wait for readiness in the future.
    #[allow(clippy::unused_async)]
    pub async fn start(plane: &ControlPlane, args: &[&str]) -> anyhow::Result<Self> {
        static STARTED: AtomicUsize = AtomicUsize::new(0);
        let admin = Port::reserve()?;
        let mut arguments: Vec<String> = args.iter().map(ToString::to_string).collect();
        if !["--controllers", "--config"].iter().any(|flag| names(args, flag)) {
            arguments.push(format!("--controllers={}", WORKLOAD_CONTROLLERS.join(",")));
        }
        if !names(args, "--kubeconfig") {
            arguments.push(format!("--kubeconfig={}", plane.kubeconfig_path().display()));
        }
        if !["--bind-address", "--plain-http", "--tls-cert-file"].iter().any(|flag| names(args, flag)) {
            arguments.extend(["--bind-address=127.0.0.1", "--plain-http"].map(str::to_owned));
        }
        arguments.push(format!("--secure-port={}", admin.number()));
        let program = Program::new(binary()?, arguments);
        let name = format!("windlass-{}", STARTED.fetch_add(1, Ordering::Relaxed));
        Ok(Self { process: plane.start_additional(&program, &name)?, admin })
    }

    /// Starts an operator from `examples/src/bin/` or `templates/` against `plane`, by the name of its binary. It acts
    /// as the administrator unless `args` contain another `--kubeconfig`. Its admin server listens on loopback, with
    /// plain HTTP and without authentication unless `args` contain `--tls-cert-file`.
    ///
    /// # Errors
    /// Returns the errors of [`start`](Self::start).
    pub fn start_example(plane: &ControlPlane, name: &str, args: &[&str]) -> anyhow::Result<Self> {
        let admin = Port::reserve()?;
        let mut arguments: Vec<String> = args.iter().map(ToString::to_string).collect();
        if !names(args, "--kubeconfig") {
            arguments.push(format!("--kubeconfig={}", plane.kubeconfig_path().display()));
        }
        arguments.push(format!("--address=127.0.0.1:{}", admin.number()));
        let program = Program::new(example(name)?, arguments);
        Ok(Self { process: plane.start_additional(&program, name)?, admin })
    }

    /// Runs an operator from `examples/src/bin/` or `templates/` until it exits, and returns its output, for example of
    /// `manifests`.
    ///
    /// # Errors
    /// Returns the errors of [`command`](Self::command), and an error if the command fails.
    pub async fn example_prints(name: &str, words: &[&str]) -> anyhow::Result<String> {
        let output = output_of(&example(name)?, words).await?;
        ensure!(output.status.success(), "{name} {words:?}: {}", String::from_utf8_lossy(&output.stderr));
        Ok(String::from_utf8(output.stdout)?)
    }

    /// Runs the binary with `words` until it exits, and returns its output, for commands such as `explain`.
    ///
    /// # Errors
    /// Returns an error if there is no binary, it cannot be started, or it does not exit in thirty seconds.
    pub async fn command(words: &[&str]) -> anyhow::Result<std::process::Output> {
        output_of(&binary()?, words).await
    }

    /// Returns the process ID.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.process.pid()
    }

    /// Requests a graceful shutdown with `SIGTERM`.
    pub fn terminate(&self) {
        self.process.terminate();
    }

    /// Kills the process with `SIGKILL`.
    pub fn kill(&self) {
        self.process.kill();
    }

    /// Returns the exit status, or `None` while the process runs.
    #[must_use]
    pub fn exited(&self) -> Option<ExitStatus> {
        self.process.exited()
    }

    /// Waits until the process exits.
    ///
    /// # Errors
    /// Returns an error with the end of the log if the process still runs after `within`.
    pub async fn wait_exit(&self, within: Duration) -> anyhow::Result<ExitStatus> {
        self.process.wait_exit(within).await
    }

    /// Returns the file with its standard error and standard output.
    #[must_use]
    pub fn log(&self) -> &Path {
        self.process.log()
    }

    /// Returns the address of its admin server, as `127.0.0.1:<port>`.
    #[must_use]
    pub fn admin_address(&self) -> String {
        format!("127.0.0.1:{}", self.admin.number())
    }

    /// Sends a GET request for `path`, such as `/readyz`, to its admin server. Returns the status code and the body.
    ///
    /// # Errors
    /// Returns an error if the connection is refused, or no response arrives in ten seconds.
    pub async fn get(&self, path: &str) -> anyhow::Result<(u16, String)> {
        let address = self.admin_address();
        let answer = tokio::time::timeout(SCRAPE, exchange(&address, path)).await;
        parse_answer(&answer.with_context(|| format!("no response to {path} within {SCRAPE:?}"))??)
    }

    /// Returns all its metrics in Prometheus' text format.
    ///
    /// # Errors
    /// Returns the errors of [`get`](Self::get), and an error if the status is not 200.
    pub async fn metrics(&self) -> anyhow::Result<String> {
        let (code, body) = self.get("/metrics").await?;
        ensure!(code == 200, "/metrics answered {code}: {body}");
        Ok(body)
    }

    /// Returns the sum of all samples of the metric `name` whose labels contain each of `labels`, written as in the
    /// text format: `result="error"`. `None` if there is no such sample.
    ///
    /// # Errors
    /// Returns the errors of [`metrics`](Self::metrics).
    pub async fn metric(&self, name: &str, labels: &[&str]) -> anyhow::Result<Option<f64>> {
        Ok(sum_samples(&self.metrics().await?, name, labels))
    }
}

fn names(args: &[&str], flag: &str) -> bool {
    args.iter().any(|arg| arg.strip_prefix(flag).is_some_and(|rest| rest.is_empty() || rest.starts_with('=')))
}

async fn output_of(binary: &Path, words: &[&str]) -> anyhow::Result<std::process::Output> {
    let mut command = tokio::process::Command::new(binary);
    command.args(words).env_remove("KUBECONFIG").kill_on_drop(true);
    let output = tokio::time::timeout(COMMAND, command.output()).await;
    Ok(output
        .with_context(|| format!("{} {words:?} did not exit within {COMMAND:?}", binary.display()))??)
}

/// Returns the binary of an example.
fn example(name: &str) -> anyhow::Result<PathBuf> {
    binary_next_to(&std::env::current_exe()?, name)
}

/// Returns the binary under test.
fn binary() -> anyhow::Result<PathBuf> {
    if let Some(path) = std::env::var_os(BINARY_VARIABLE).map(PathBuf::from) {
        ensure!(path.is_file(), "{BINARY_VARIABLE} names {}, which is not a file", path.display());
        return Ok(path);
    }
    binary_next_to(&std::env::current_exe()?, BINARY)
}

/// Returns a binary that was built with the program `test`, which is in `<profile>/deps`, `<profile>/examples` or, like
/// the binary, in `<profile>`.
fn binary_next_to(test: &Path, name: &str) -> anyhow::Result<PathBuf> {
    let found = test.ancestors().skip(1).take(2).map(|folder| folder.join(name)).find(|path| path.is_file());
    found.with_context(|| {
        format!("binary `{name}` not found next to {}; run `cargo build --workspace --bins`", test.display())
    })
}

async fn exchange(address: &str, path: &str) -> anyhow::Result<String> {
    let mut stream = TcpStream::connect(address).await.with_context(|| format!("connecting to {address}"))?;
    // HTTP/1.0 responses are not chunked and end with the connection.
    let request = format!("GET {path} HTTP/1.0\r\nHost: {address}\r\n\r\n");
    stream.write_all(request.as_bytes()).await?;
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).await?;
    Ok(String::from_utf8(answer)?)
}

fn parse_answer(answer: &str) -> anyhow::Result<(u16, String)> {
    let Some((head, body)) = answer.split_once("\r\n\r\n") else { bail!("not an HTTP response: {answer:?}") };
    let code = head.split(' ').nth(1).and_then(|code| code.parse().ok());
    Ok((code.with_context(|| format!("no status code in {head:?}"))?, body.to_owned()))
}

fn sum_samples(text: &str, name: &str, labels: &[&str]) -> Option<f64> {
    let samples = text.lines().filter_map(|line| {
        let rest = line.strip_prefix(name)?;
        let (pairs, value) = rest.rsplit_once(' ')?;
        let named_exactly = pairs.is_empty() || pairs.starts_with('{');
        let matches = named_exactly && labels.iter().all(|label| pairs.contains(label));
        matches.then(|| value.parse::<f64>().ok())?
    });
    samples.fold(None, |sum, sample| Some(sum.unwrap_or(0.0) + sample))
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "# TYPE requests_total counter\n\
        requests_total{code=\"200\",verb=\"get\"} 3\n\
        requests_total{code=\"404\",verb=\"get\"} 2\n\
        requests_total_other 9\n\
        up 1\n";

    #[test]
    fn samples_are_summed_over_other_labels() {
        assert_eq!(sum_samples(TEXT, "requests_total", &[]), Some(5.0));
        assert_eq!(sum_samples(TEXT, "requests_total", &["code=\"404\""]), Some(2.0));
        assert_eq!(sum_samples(TEXT, "up", &[]), Some(1.0));
        assert_eq!(sum_samples(TEXT, "requests_total", &["verb=\"put\""]), None);
    }

    #[test]
    fn answer_is_split_into_code_and_body() {
        assert_eq!(parse_answer("HTTP/1.0 503 no\r\nA: b\r\n\r\nnot yet").unwrap(), (503, "not yet".into()));
        assert!(parse_answer("").is_err());
    }

    #[test]
    fn binary_of_the_test_profile_is_used_or_reported_as_missing() {
        let profile = tempfile::tempdir().unwrap();
        let test = profile.path().join("deps").join("scenarios-0123");
        let complaint = binary_next_to(&test, BINARY).unwrap_err().to_string();
        assert!(complaint.contains("cargo build --workspace --bins"), "{complaint}");
        std::fs::write(profile.path().join(BINARY), "").unwrap();
        assert_eq!(binary_next_to(&test, BINARY).unwrap(), profile.path().join("windlass"));
    }

    #[test]
    fn kubeconfig_argument_of_the_test_is_detected() {
        assert!(names(&["--kubeconfig=x"], "--kubeconfig"));
        assert!(names(&["--kubeconfig", "x"], "--kubeconfig"));
        assert!(!names(&["--kubeconfigs=x"], "--kubeconfig"));
    }
}
