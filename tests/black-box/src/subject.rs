//! What is tested: windlass, or upstream's controller manager in its place.

use std::{path::Path, time::Duration};

use anyhow::{Context as _, Result, bail, ensure};
use windlass_harness::{ControlPlane, ManagerProcess, Process};

/// The controllers under test, by their canonical names.
pub const CONTROLLERS: [&str; 3] =
    ["replicaset-controller", "replicationcontroller-controller", "endpoints-controller"];

/// How the clients of these controllers end their user agents, here and upstream.
pub const CLIENTS: [&str; 3] = ["replicaset-controller", "replication-controller", "endpoint-controller"];

/// Requests per second and burst granted to a subject, so that it is never the limiter that is measured.
const LIMITS: [&str; 2] = ["--kube-api-qps=1000", "--kube-api-burst=1000"];

/// An implementation of the controllers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Subject {
    /// The `windlass` binary.
    Windlass,
    /// kube-controller-manager with the same controllers.
    Upstream,
}

/// A subject at work. Dropping it kills it.
#[derive(Debug)]
pub enum Running {
    /// The `windlass` binary.
    Windlass(ManagerProcess),
    /// kube-controller-manager.
    Upstream(Process),
}

impl Subject {
    /// The one that `WINDLASS_SUBJECT` names: `windlass`, also when unset, or `upstream`.
    ///
    /// # Errors
    /// Any other name.
    pub fn chosen() -> Result<Self> {
        match std::env::var("WINDLASS_SUBJECT").as_deref() {
            Err(_) | Ok("" | "windlass") => Ok(Subject::Windlass),
            Ok("upstream") => Ok(Subject::Upstream),
            Ok(other) => bail!("WINDLASS_SUBJECT is {other:?}; say \"windlass\" or \"upstream\""),
        }
    }

    /// How its requests begin to name themselves.
    pub fn user_agent(self) -> &'static str {
        match self {
            Subject::Windlass => "windlass/",
            Subject::Upstream => "kube-controller-manager/",
        }
    }

    /// Starts it against `plane` with the controllers under test, more `args`, and no election.
    ///
    /// # Errors
    /// A binary that is missing or does not start.
    pub async fn start(self, plane: &ControlPlane, args: &[&str]) -> Result<Running> {
        let mut arguments = vec!["--leader-elect=false"];
        arguments.extend(LIMITS);
        arguments.extend(args);
        Ok(match self {
            Subject::Windlass => Running::Windlass(ManagerProcess::start(plane, &arguments).await?),
            Subject::Upstream => {
                Running::Upstream(plane.start_upstream_controllers(&CONTROLLERS, &arguments)?)
            }
        })
    }
}

impl Running {
    /// The process id.
    pub fn pid(&self) -> u32 {
        match self {
            Running::Windlass(manager) => manager.pid(),
            Running::Upstream(process) => process.pid(),
        }
    }

    /// Where it logs to.
    pub fn log(&self) -> &Path {
        match self {
            Running::Windlass(manager) => manager.log(),
            Running::Upstream(process) => process.log(),
        }
    }
}

/// Tells `manager` to end, and waits until it has, in order.
///
/// # Errors
/// When it does not end within `patience`, or with another code than 0.
pub async fn ends_in_order(manager: &ManagerProcess, patience: Duration) -> Result<()> {
    manager.terminate();
    let status = manager.wait_exit(patience).await?;
    ensure!(status.code() == Some(0), "it ended with {status}");
    Ok(())
}

/// Waits until `manager` answers `/readyz` with 200.
///
/// # Errors
/// When it ended, or is not ready within `patience`; with the last answer.
pub async fn ready(manager: &ManagerProcess, patience: Duration) -> Result<()> {
    let started = std::time::Instant::now();
    loop {
        if let Some(status) = manager.exited() {
            bail!("windlass ended with {status} before it was ready; see {}", manager.log().display());
        }
        let answer = manager.get("/readyz").await;
        if matches!(answer, Ok((200, _))) {
            return Ok(());
        }
        if started.elapsed() > patience {
            return answer.map(|_| ()).and_then(|()| bail!("not ready")).context("waiting for /readyz");
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}
