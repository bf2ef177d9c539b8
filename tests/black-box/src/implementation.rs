//! The implementation under test: windlass or kube-controller-manager.

use std::{path::Path, time::Duration};

use anyhow::{Context as _, Result, bail, ensure};
pub use windlass_harness::WORKLOAD_CONTROLLERS as CONTROLLERS;
use windlass_harness::{ControlPlane, ManagerProcess, Process};

/// The controllers of namespaces and nodes, by their canonical names.
pub const HOUSEKEEPING_CONTROLLERS: [&str; 4] = [
    "serviceaccount-controller",
    "root-ca-certificate-publisher-controller",
    "ttl-controller",
    "pod-garbage-collector-controller",
];

/// Suffixes of their user agents, in windlass and upstream.
pub const HOUSEKEEPING_CLIENTS: [&str; 4] =
    ["service-account-controller", "root-ca-cert-publisher", "ttl-controller", "pod-garbage-collector"];

/// Suffixes of the user agents of [`CONTROLLERS`], in windlass and upstream.
pub const CLIENTS: [&str; 6] = [
    "deployment-controller",
    "daemon-set-controller",
    "replicaset-controller",
    "replication-controller",
    "statefulset-controller",
    "endpoint-controller",
];

/// Requests per second and burst of a subject, high enough that the limiter never throttles.
const LIMITS: [&str; 2] = ["--kube-api-qps=1000", "--kube-api-burst=1000"];

/// An implementation of the controllers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Implementation {
    /// The `windlass` binary.
    Windlass,
    /// kube-controller-manager with the same controllers.
    Upstream,
}

/// A running subject. Dropping it kills the process.
#[derive(Debug)]
pub enum Running {
    /// The `windlass` binary.
    Windlass(ManagerProcess),
    /// kube-controller-manager.
    Upstream(Process),
}

impl Implementation {
    /// Returns the subject that `WINDLASS_SUBJECT` names: `windlass` (the default) or `upstream`.
    ///
    /// # Errors
    /// The variable has another value.
    pub fn chosen() -> Result<Self> {
        match std::env::var("WINDLASS_SUBJECT").as_deref() {
            Err(_) | Ok("" | "windlass") => Ok(Implementation::Windlass),
            Ok("upstream") => Ok(Implementation::Upstream),
            Ok(other) => bail!("WINDLASS_SUBJECT is {other:?}; set it to \"windlass\" or \"upstream\""),
        }
    }

    /// Returns the prefix of its user agents.
    pub fn user_agent(self) -> &'static str {
        match self {
            Implementation::Windlass => "windlass/",
            Implementation::Upstream => "kube-controller-manager/",
        }
    }

    /// Starts the subject on `plane` with [`CONTROLLERS`], additional `args` and no leader election.
    ///
    /// # Errors
    /// The binary is missing or does not start.
    pub async fn start(self, plane: &ControlPlane, args: &[&str]) -> Result<Running> {
        self.start_controllers(plane, &CONTROLLERS, args).await
    }

    /// Starts the subject like [`start`](Self::start), with these controllers.
    ///
    /// # Errors
    /// As [`start`](Self::start).
    pub async fn start_controllers(
        self,
        plane: &ControlPlane,
        controllers: &[&str],
        args: &[&str],
    ) -> Result<Running> {
        let named = format!("--controllers={}", controllers.join(","));
        let mut arguments = vec!["--leader-elect=false"];
        arguments.extend(LIMITS);
        arguments.extend(args);
        Ok(match self {
            Implementation::Windlass => {
                arguments.push(&named);
                Running::Windlass(ManagerProcess::start(plane, &arguments).await?)
            }
            Implementation::Upstream => {
                Running::Upstream(plane.start_upstream_controllers(controllers, &arguments)?)
            }
        })
    }
}

impl Running {
    /// Returns the process id.
    pub fn pid(&self) -> u32 {
        match self {
            Running::Windlass(manager) => manager.pid(),
            Running::Upstream(process) => process.pid(),
        }
    }

    /// Returns the path of the log.
    pub fn log(&self) -> &Path {
        match self {
            Running::Windlass(manager) => manager.log(),
            Running::Upstream(process) => process.log(),
        }
    }
}

/// Terminates `manager` and waits until it has exited gracefully.
///
/// # Errors
/// It does not exit within `timeout`, or its exit code is not 0.
pub async fn exits_gracefully(manager: &ManagerProcess, timeout: Duration) -> Result<()> {
    manager.terminate();
    let status = manager.wait_exit(timeout).await?;
    ensure!(status.code() == Some(0), "the process exited with {status}");
    Ok(())
}

/// Waits until `/readyz` of `manager` returns 200.
///
/// # Errors
/// The process exits, or is not ready within `timeout`; the error contains the last response.
pub async fn ready(manager: &ManagerProcess, timeout: Duration) -> Result<()> {
    let started = std::time::Instant::now();
    loop {
        if let Some(status) = manager.exited() {
            bail!("windlass exited with {status} before it was ready; see {}", manager.log().display());
        }
        let answer = manager.get("/readyz").await;
        if matches!(answer, Ok((200, _))) {
            return Ok(());
        }
        if started.elapsed() > timeout {
            return answer.map(|_| ()).and_then(|()| bail!("not ready")).context("waiting for /readyz");
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}
