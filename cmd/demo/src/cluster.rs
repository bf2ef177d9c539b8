//! The cluster of the demo: a control plane, windlass in this process, and informers that observe the cluster.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail};
use tempfile::TempDir;
use tower::Layer as _;
use windlass::client::one_line;
use windlass::controller::{Descriptor, Registration};
use windlass::env::{Env, Task};
use windlass::manager::ManagerConfig;
use windlass_controllers::ControllerOptions;

use crate::arguments::Arguments;
use crate::control_plane::ControlPlane;
use crate::fault_plan;
use crate::last_actions::LastActions;
use crate::observed::{ClusterSnapshot, Observer};
use crate::panel::{ControllerView, Panel};
use crate::running::{Running, service};

/// The first line of the kubeconfigs that a demo writes.
const MARK: &str = "# Written by the windlass demo, and of use as long as it runs.";

/// A running cluster.
pub(crate) struct Cluster {
    control_plane: ControlPlane,
    parts: Parts,
}

/// The parts that use the control plane.
struct Parts {
    kubeconfig: Kubeconfig,
    windlass: Running,
    observer: Observer,
    panel: Panel,
    fault_task: Option<Task<()>>,
}

/// The kubeconfig file. A temporary one is deleted with its directory.
struct Kubeconfig {
    path: PathBuf,
    _folder: Option<TempDir>,
}

impl Cluster {
    /// Starts all parts.
    ///
    /// # Errors
    /// When a file cannot be read or written, or a part does not start.
    pub(crate) async fn start(env: &Env, arguments: &Arguments) -> Result<Self> {
        let kubeconfig = Kubeconfig::prepare(arguments.kubeconfig_out.as_deref())?;
        let control_plane = ControlPlane::start(env, arguments).await?;
        let parts = Parts::start(env, arguments, kubeconfig, &control_plane).await;
        if parts.is_err() {
            control_plane.keep_logs();
        }
        Ok(Self { parts: parts?, control_plane })
    }

    /// Returns the URL for kubectl.
    pub(crate) fn address(&self) -> String {
        self.control_plane.address()
    }

    /// Returns the path of the kubeconfig.
    pub(crate) fn kubeconfig(&self) -> &Path {
        &self.parts.kubeconfig.path
    }

    /// Returns the kubectl that was built with the control plane, if there is one.
    pub(crate) fn kubectl(&self) -> Option<&Path> {
        self.control_plane.kubectl()
    }

    /// Returns the current objects, or `before` if there are no changes.
    pub(crate) fn observe(&self, before: ClusterSnapshot) -> ClusterSnapshot {
        self.parts.observer.observe(before)
    }

    /// Returns the current state of every controller.
    pub(crate) fn panel(&self) -> Vec<ControllerView> {
        self.parts.panel.look()
    }

    /// Returns a client with administrator permissions.
    pub(crate) fn client(&self) -> kube::Client {
        self.control_plane.client("demo")
    }

    /// Checks that all parts are running.
    ///
    /// # Errors
    /// When a part has stopped on its own.
    pub(crate) fn must_run(&self) -> Result<()> {
        self.parts.windlass.must_run()?;
        self.control_plane.must_run()
    }

    /// Keeps the logs of the control plane, if there are any.
    pub(crate) fn keep_logs(&self) {
        self.control_plane.keep_logs();
    }

    /// Stops all parts gracefully: a part that writes stops before the part that it writes to.
    ///
    /// # Errors
    /// When a part did not stop gracefully, or a file could not be written.
    pub(crate) async fn end(self) -> Result<()> {
        let Self { control_plane, parts } = self;
        if let Some(fault_task) = &parts.fault_task {
            fault_task.abort();
        }
        let windlass = match parts.windlass.end().await {
            // Faults are injected into its last requests as well.
            Err(error) if parts.fault_task.is_some() => {
                tracing::warn!(error = one_line(error.as_ref()), "the last requests failed");
                Ok(())
            }
            ended => ended,
        };
        parts.observer.end().await;
        if windlass.is_err() {
            control_plane.keep_logs();
        }
        windlass.and(control_plane.end().await)
    }
}

impl Parts {
    async fn start(
        env: &Env,
        arguments: &Arguments,
        kubeconfig: Kubeconfig,
        control_plane: &ControlPlane,
    ) -> Result<Self> {
        kubeconfig.write(&control_plane.kubeconfig()?)?;
        let observer = Observer::start(env, control_plane.client("demo"))?;
        let env_of_windlass = env.with_incarnation("windlass", 0);
        let client = control_plane.client_of_windlass(&env_of_windlass, arguments.faults);
        let options =
            ControllerOptions { root_ca: control_plane.root_ca().await?, ..ControllerOptions::default() };
        let (windlass, panel) = start_windlass(env_of_windlass, client, &options)?;
        let fault_task = arguments.faults.then(|| fault_plan::start(env, control_plane.client("demo")));
        Ok(Self { kubeconfig, windlass, observer, panel, fault_task })
    }
}

impl Kubeconfig {
    /// Selects the file before any part is started.
    fn prepare(kubeconfig: Option<&Path>) -> Result<Self> {
        let Some(path) = kubeconfig else {
            let folder = tempfile::Builder::new().prefix("windlass-demo-").tempdir();
            let folder = folder.context("cannot create a directory for the kubeconfig")?;
            return Ok(Self { path: folder.path().join("kubeconfig"), _folder: Some(folder) });
        };
        let about = || format!("--kubeconfig-out={}", path.display());
        check_owner(path).with_context(about)?;
        // The user pastes the path into another terminal with another working directory.
        Ok(Self { path: std::path::absolute(path).with_context(about)?, _folder: None })
    }

    fn write(&self, text: &str) -> Result<()> {
        std::fs::write(&self.path, format!("{MARK}\n{text}"))
            .with_context(|| format!("cannot write the kubeconfig {}", self.path.display()))
    }
}

/// Rejects a file that was not written by a demo, such as the user's own kubeconfig.
fn check_owner(path: &Path) -> Result<()> {
    match std::fs::read_to_string(path) {
        Ok(text) if text.starts_with(MARK) => Ok(()),
        Ok(_) => bail!("the file exists and was not written by a demo; name another file"),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
        Err(error) => Err(error.into()),
    }
}

fn start_windlass(env: Env, client: kube::Client, options: &ControllerOptions) -> Result<(Running, Panel)> {
    let registrations = windlass_controllers::registrations(options);
    let descriptors: Vec<Descriptor> = registrations.iter().map(Registration::descriptor).collect();
    let last_actions = LastActions::default();
    let config = ManagerConfig::new(env.rng("identity").identifier());
    let (running, metrics) = Running::start(env, config, registrations, last_actions.layer(service(client)))?;
    Ok((running, Panel::new(&metrics, &descriptors, last_actions)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn file_that_demo_did_not_write_is_kept() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("config");
        assert!(check_owner(&path).is_ok());
        std::fs::write(&path, format!("{MARK}\nkind: Config\n")).expect("it is written");
        assert!(check_owner(&path).is_ok());
        std::fs::write(&path, "kind: Config\n").expect("it is written");
        assert!(check_owner(&path).is_err());
    }
}
