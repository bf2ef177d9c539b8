//! The control plane: an API server in this process with simulated nodes, or a real control plane.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context as _, Result, anyhow, ensure};
use kube::Client;
use tokio::net::TcpListener;
use windlass::client::{load_config, server_authority};
use windlass::env::{Env, Task};
use windlass::manager::ManagerConfig;
use windlass_api_server::faults::{Journal, Network};
use windlass_api_server::storage::{InMemoryStorage, MemoryOptions, Storage};
use windlass_api_server::{ApiServer, ApiServerOptions, ServeError};
use windlass_harness::{self as harness, Assets, Binary, ControlPlaneOptions};
use windlass_testing::nodes::{self, NodeOptions};

use crate::arguments::{Arguments, ControlPlaneKind};
use crate::fault_plan;
use crate::running::{Running, service};

/// A running control plane.
pub(crate) enum ControlPlane {
    /// In this process.
    InProcess(Box<InProcess>),
    /// etcd and kube-apiserver. Their processes are stopped on drop.
    Real(Box<Real>),
}

/// An API server with nodes.
pub(crate) struct InProcess {
    address: SocketAddr,
    memory: Arc<InMemoryStorage>,
    state: Option<PathBuf>,
    nodes: Running,
    server: ApiServer,
    serving: Task<Result<(), ServeError>>,
}

/// The control plane that the tests use.
pub(crate) struct Real {
    plane: harness::ControlPlane,
    client: Client,
    kubectl: PathBuf,
}

/// Builds the real control plane if it is missing, which takes minutes, and reports progress.
///
/// # Errors
/// If it cannot be built.
pub(crate) fn build() -> Result<()> {
    Assets::ensure().map(drop).context("cannot build the control plane")
}

impl ControlPlane {
    /// Starts the control plane with its nodes.
    ///
    /// # Errors
    /// When the port is in use, the state cannot be read, or a process does not start.
    pub(crate) async fn start(env: &Env, arguments: &Arguments) -> Result<Self> {
        match arguments.control_plane {
            ControlPlaneKind::InProcess => {
                InProcess::start(env, arguments).await.map(|it| Self::InProcess(Box::new(it)))
            }
            ControlPlaneKind::Real => Real::start(arguments).await.map(|it| Self::Real(Box::new(it))),
        }
    }

    /// Returns the URL for kubectl.
    pub(crate) fn address(&self) -> String {
        match self {
            Self::InProcess(plane) => format!("http://{}", plane.address),
            Self::Real(plane) => plane.plane.config().cluster_url.to_string(),
        }
    }

    /// Returns a kubeconfig with administrator permissions.
    ///
    /// # Errors
    /// When the kubeconfig of the real control plane cannot be read.
    pub(crate) fn kubeconfig(&self) -> Result<String> {
        match self {
            Self::InProcess(plane) => Ok(plane.server.kubeconfig(plane.address)),
            Self::Real(plane) => {
                std::fs::read_to_string(plane.plane.kubeconfig_path()).context("cannot read the kubeconfig")
            }
        }
    }

    /// Returns the CA that verifies the API server, in PEM; empty if it serves without TLS.
    ///
    /// # Errors
    /// When the CA cannot be read.
    pub(crate) async fn root_ca(&self) -> Result<Arc<str>> {
        match self {
            Self::InProcess(_) => Ok(Arc::default()),
            Self::Real(plane) => {
                // The harness's own configuration does not name the file of the CA.
                let kubeconfig = Some(plane.plane.kubeconfig_path());
                let config = load_config(kubeconfig, None).await.context("cannot read the kubeconfig")?;
                let pem = server_authority(&config, kubeconfig).context("cannot read the CA")?;
                Ok(String::from_utf8_lossy(&pem).into())
            }
        }
    }

    /// Returns the kubectl that was built with the control plane, if there is one.
    pub(crate) fn kubectl(&self) -> Option<&Path> {
        match self {
            Self::InProcess(_) => None,
            Self::Real(plane) => Some(&plane.kubectl),
        }
    }

    /// Returns a client with this user name. The real control plane has only one administrator.
    pub(crate) fn client(&self, user: &'static str) -> Client {
        match self {
            Self::InProcess(plane) => Client::new(plane.server.as_user(user), "default"),
            Self::Real(plane) => plane.client.clone(),
        }
    }

    /// Returns the client of windlass. If `faults` is set, its requests and responses are subject to faults.
    pub(crate) fn client_of_windlass(&self, env: &Env, faults: bool) -> Client {
        match self {
            Self::InProcess(plane) if faults => {
                let (server, plan) =
                    (plane.server.as_user("windlass"), fault_plan::plan(env.rng("faults").next_u64()));
                let network = Network::new(env, Arc::new(server), plan, Journal::new(0, None));
                Client::new(network.link(env), "default")
            }
            Self::InProcess(_) | Self::Real(_) => self.client("windlass"),
        }
    }

    /// Checks that all parts are running.
    ///
    /// # Errors
    /// When a part has stopped on its own.
    pub(crate) fn must_run(&self) -> Result<()> {
        match self {
            Self::InProcess(plane) => {
                ensure!(!plane.serving.is_finished(), "the API server stopped unexpectedly");
                plane.nodes.must_run()
            }
            Self::Real(_) => Ok(()),
        }
    }

    /// Keeps the logs of its processes, if there are any.
    pub(crate) fn keep_logs(&self) {
        if let Self::Real(plane) = self {
            plane.plane.keep_logs();
        }
    }

    /// Stops the control plane, and writes the state if requested.
    ///
    /// # Errors
    /// When a part did not stop gracefully, or the state could not be written.
    pub(crate) async fn end(self) -> Result<()> {
        match self {
            Self::InProcess(plane) => plane.end().await,
            Self::Real(plane) => plane.plane.stop().await,
        }
    }
}

impl InProcess {
    async fn start(env: &Env, arguments: &Arguments) -> Result<Self> {
        let memory = Arc::new(memory(arguments.state.as_deref())?);
        let storage = Arc::clone(&memory) as Arc<dyn Storage>;
        let options = ApiServerOptions {
            storage: Some(storage),
            // Windlass has no garbage collector yet.
            without_garbage_collector: true,
            service_account_admission: true,
            ..ApiServerOptions::default()
        };
        let server = ApiServer::new(&env.with_incarnation("api-server", 0), options);
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, arguments.port));
        let listener = TcpListener::bind(address).await;
        let listener =
            listener.with_context(|| format!("--port={}: cannot listen on {address}", arguments.port))?;
        let address = listener.local_addr().context("cannot read the port")?;
        let serving = env.spawn("api server", server.serve(listener));
        let nodes = start_nodes(env, arguments.nodes, &server)?;
        Ok(Self { address, memory, state: arguments.state.clone(), nodes, server, serving })
    }

    async fn end(self) -> Result<()> {
        let nodes = self.nodes.end().await;
        self.server.stop();
        let served = match self.serving.await {
            Ok(served) => served.context("the API server did not stop gracefully"),
            Err(error) => Err(anyhow!("the API server did not stop gracefully: {error}")),
        };
        let kept = self.state.as_ref().map_or(Ok(()), |path| {
            self.memory.snapshot_to(path).with_context(|| format!("--state={}", path.display()))
        });
        nodes.and(served).and(kept)
    }
}

/// Returns the state of an earlier demo if the file exists, otherwise an empty state.
fn memory(state: Option<&Path>) -> Result<InMemoryStorage> {
    let Some(path) = state else { return Ok(InMemoryStorage::new(MemoryOptions::default())) };
    let about = || format!("--state={}", path.display());
    if path.try_exists().with_context(about)? {
        return InMemoryStorage::restore_from(path, MemoryOptions::default()).with_context(about);
    }
    // Checked at start, before there is state to lose.
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    ensure!(
        folder.is_dir(),
        "{}: the directory {} does not exist; create it first",
        about(),
        folder.display()
    );
    Ok(InMemoryStorage::new(MemoryOptions::default()))
}

/// Starts the nodes with a separate connection without faults.
fn start_nodes(env: &Env, count: u32, server: &ApiServer) -> Result<Running> {
    let options = NodeOptions { count, ..NodeOptions::default() };
    let config = ManagerConfig { name: "nodes".into(), election: None, ..ManagerConfig::new("nodes") };
    let client = Client::new(server.as_user("nodes"), "default");
    Running::start(env.with_incarnation("nodes", 0), config, nodes::registrations(&options), service(client))
        .map(|(nodes, _)| nodes)
}

impl Real {
    async fn start(arguments: &Arguments) -> Result<Self> {
        let options = ControlPlaneOptions::default().nodes(usize::try_from(arguments.nodes)?);
        let plane = harness::ControlPlane::start(options).await.context("cannot start the control plane")?;
        let kubectl = Assets::ensure()?.path(Binary::Kubectl);
        let client = plane.client().await;
        Ok(Self { plane, client, kubectl })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unwritable_state_is_rejected_at_start() {
        let folder = tempfile::tempdir().expect("a folder");
        assert!(memory(Some(&folder.path().join("state"))).is_ok());
        let lost = memory(Some(&folder.path().join("missing/state"))).expect_err("no such folder");
        assert!(lost.to_string().contains("missing does not exist; create it first"), "{lost}");
    }
}
