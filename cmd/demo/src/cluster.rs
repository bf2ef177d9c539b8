//! The cluster of the demo: a control plane, windlass in this process, and informers that observe.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, anyhow, bail};
use http::{Request, Response, Uri};
use kube::client::Body;
use tempfile::TempDir;
use tower::{BoxError, Layer as _, Service, service_fn};
use windlass::client::{ClientOptions, Clients, one_line};
use windlass::controller::{Descriptor, Registration};
use windlass::env::{Env, Task};
use windlass::manager::{Manager, ManagerConfig, ManagerError, ShutdownSignals, ShutdownTrigger};
use windlass::metrics::Metrics;
use windlass_controllers::Options;

use crate::arguments::Arguments;
use crate::control_plane::ControlPlane;
use crate::deeds::Deeds;
use crate::observed::{Observed, Observer};
use crate::panel::{ControllerView, Panel};
use crate::trouble;

/// The first line of the kubeconfigs that a demo writes.
const MARK: &str = "# Written by the windlass demo, and of use as long as it runs.";

/// A running cluster.
pub(crate) struct Cluster {
    control_plane: ControlPlane,
    parts: Parts,
}

/// What runs beside the control plane.
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

/// A manager that runs.
pub(crate) struct Running {
    name: String,
    stop: ShutdownTrigger,
    task: Task<Result<(), ManagerError>>,
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
    pub(crate) fn observe(&self, before: Observed) -> Observed {
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
        let env_of_windlass = env.incarnation("windlass", 0);
        let client = control_plane.client_of_windlass(&env_of_windlass, arguments.faults);
        let (windlass, panel) = start_windlass(env_of_windlass, client)?;
        let trouble = arguments.faults.then(|| trouble::start(env, control_plane.client("demo")));
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
    let registrations = windlass_controllers::registrations(&Options::default());
    let descriptors: Vec<Descriptor> = registrations.iter().map(Registration::descriptor).collect();
    let deeds = Deeds::default();
    let config = ManagerConfig::new(env.rng("identity").identifier());
    let (running, metrics) = Running::start(env, config, registrations, deeds.layer(service(client)))?;
    Ok((running, Panel::new(&metrics, &descriptors, deeds)))
}

impl Running {
    /// Starts a manager of these controllers. Its requests are not limited: the demo is alone on its control plane.
    pub(crate) fn start<S>(
        env: Env,
        config: ManagerConfig,
        registrations: Vec<Registration>,
        service: S,
    ) -> Result<(Self, Metrics)>
    where
        S: Service<Request<Body>, Response = Response<Body>> + Clone + Send + Sync + 'static,
        S::Future: Send + 'static,
        S::Error: Into<BoxError>,
    {
        let name = config.name.clone();
        let config = ManagerConfig { client: unlimited(), ..config };
        let manager = Manager::with_clients(env.clone(), config, move |env, config, metrics, fence| {
            Clients::over_service(env.clone(), service, base(), config.client.clone(), metrics, fence)
        })?;
        let manager = registrations.into_iter().fold(manager, Manager::register);
        let metrics = manager.metrics().clone();
        let (stop, signals) = ShutdownSignals::manual();
        let task = env.spawn(format!("manager {name}"), manager.run(signals));
        Ok((Self { name, stop, task }, metrics))
    }

    /// Fails once it has ended by itself.
    ///
    /// # Errors
    /// When it has.
    pub(crate) fn must_run(&self) -> Result<()> {
        if self.task.is_finished() {
            bail!("{} ended by itself", self.name);
        }
        Ok(())
    }

    /// Ends it in order.
    ///
    /// # Errors
    /// When it fails meanwhile.
    pub(crate) async fn end(self) -> Result<()> {
        self.stop.fire();
        let outcome =
            self.task.await.map_err(|error| anyhow!("{} did not end in order: {error}", self.name))?;
        outcome.with_context(|| format!("{} did not end in order", self.name))
    }
}

/// A client as the lowest part of a stack of ours.
pub(crate) fn service(
    client: kube::Client,
) -> impl Service<Request<Body>, Response = Response<Body>, Error = kube::Error, Future: Send>
+ Clone
+ Send
+ Sync
+ 'static {
    service_fn(move |request| {
        let client = client.clone();
        async move { client.send(request).await }
    })
}

/// Options of clients without a rate limit.
pub(crate) fn unlimited() -> ClientOptions {
    ClientOptions { qps: 0.0, ..ClientOptions::default() }
}

/// What requests are relative to until a `kube::Client` sets the address of its server.
pub(crate) fn base() -> Uri {
    Uri::from_static("http://api-server")
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
