//! The cluster of the demo: a control plane, windlass in this process, and informers that observe.

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
    trouble: Option<Task<()>>,
}

/// Where the kubeconfig is. A temporary one goes with its folder.
struct Kubeconfig {
    path: PathBuf,
    _folder: Option<TempDir>,
}

impl Cluster {
    /// Starts everything.
    ///
    /// # Errors
    /// When a file cannot be read or written, or a part does not start.
    pub(crate) async fn start(env: &Env, arguments: &Arguments) -> Result<Self> {
        let kubeconfig = Kubeconfig::prepare(arguments.kubeconfig_out.as_deref())?;
        let control_plane = ControlPlane::start(env, arguments).await?;
        let parts = Parts::start(env, arguments, kubeconfig, &control_plane);
        if parts.is_err() {
            control_plane.keep_logs();
        }
        Ok(Self { parts: parts?, control_plane })
    }

    /// The URL for kubectl.
    pub(crate) fn address(&self) -> String {
        self.control_plane.address()
    }

    /// The file for kubectl.
    pub(crate) fn kubeconfig(&self) -> &Path {
        &self.parts.kubeconfig.path
    }

    /// The kubectl that was built with the control plane, if one was.
    pub(crate) fn kubectl(&self) -> Option<&Path> {
        self.control_plane.kubectl()
    }

    /// The objects now. `before` is returned if nothing has changed.
    pub(crate) fn observe(&self, before: ClusterSnapshot) -> ClusterSnapshot {
        self.parts.observer.observe(before)
    }

    /// Every controller now.
    pub(crate) fn panel(&self) -> Vec<ControllerView> {
        self.parts.panel.look()
    }

    /// The client of an administrator.
    pub(crate) fn client(&self) -> kube::Client {
        self.control_plane.client("demo")
    }

    /// Fails once a part has ended by itself.
    ///
    /// # Errors
    /// When one has.
    pub(crate) fn must_run(&self) -> Result<()> {
        self.parts.windlass.must_run()?;
        self.control_plane.must_run()
    }

    /// Keeps the logs of the control plane, if it has any.
    pub(crate) fn keep_logs(&self) {
        self.control_plane.keep_logs();
    }

    /// Ends everything in order: a part that writes ends before the part it writes to.
    ///
    /// # Errors
    /// What did not end in order, or could not be written.
    pub(crate) async fn end(self) -> Result<()> {
        let Self { control_plane, parts } = self;
        if let Some(trouble) = &parts.trouble {
            trouble.abort();
        }
        let windlass = match parts.windlass.end().await {
            // Its last requests get lost as well.
            Err(error) if parts.trouble.is_some() => {
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
    fn start(
        env: &Env,
        arguments: &Arguments,
        kubeconfig: Kubeconfig,
        control_plane: &ControlPlane,
    ) -> Result<Self> {
        kubeconfig.write(&control_plane.kubeconfig()?)?;
        let observer = Observer::start(env, control_plane.client("demo"))?;
        let env_of_windlass = env.with_incarnation("windlass", 0);
        let client = control_plane.client_of_windlass(&env_of_windlass, arguments.faults);
        let (windlass, panel) = start_windlass(env_of_windlass, client)?;
        let trouble = arguments.faults.then(|| fault_plan::start(env, control_plane.client("demo")));
        Ok(Self { kubeconfig, windlass, observer, panel, trouble })
    }
}

impl Kubeconfig {
    /// Chooses the file, before anything is started.
    fn prepare(wanted: Option<&Path>) -> Result<Self> {
        let Some(path) = wanted else {
            let folder = tempfile::Builder::new().prefix("windlass-demo-").tempdir();
            let folder = folder.context("making a folder for the kubeconfig")?;
            return Ok(Self { path: folder.path().join("kubeconfig"), _folder: Some(folder) });
        };
        let about = || format!("--kubeconfig-out={}", path.display());
        must_be_ours(path).with_context(about)?;
        // The user pastes it into another terminal, whose folder is another.
        Ok(Self { path: std::path::absolute(path).with_context(about)?, _folder: None })
    }

    fn write(&self, text: &str) -> Result<()> {
        std::fs::write(&self.path, format!("{MARK}\n{text}"))
            .with_context(|| format!("writing the kubeconfig {}", self.path.display()))
    }
}

/// Rejects a file that no demo has written, such as the user's own kubeconfig.
fn must_be_ours(path: &Path) -> Result<()> {
    match std::fs::read_to_string(path) {
        Ok(text) if text.starts_with(MARK) => Ok(()),
        Ok(_) => bail!("there is a file already, which no demo has written; name another"),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
        Err(error) => Err(error.into()),
    }
}

fn start_windlass(env: Env, client: kube::Client) -> Result<(Running, Panel)> {
    let registrations = windlass_controllers::registrations(&ControllerOptions::default());
    let descriptors: Vec<Descriptor> = registrations.iter().map(Registration::descriptor).collect();
    let deeds = LastActions::default();
    let config = ManagerConfig::new(env.rng("identity").identifier());
    let (running, metrics) = Running::start(env, config, registrations, deeds.layer(service(client)))?;
    Ok((running, Panel::new(&metrics, &descriptors, deeds)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn file_that_no_demo_has_written_is_left_alone() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("config");
        assert!(must_be_ours(&path).is_ok());
        std::fs::write(&path, format!("{MARK}\nkind: Config\n")).expect("it is written");
        assert!(must_be_ours(&path).is_ok());
        std::fs::write(&path, "kind: Config\n").expect("it is written");
        assert!(must_be_ours(&path).is_err());
    }
}
