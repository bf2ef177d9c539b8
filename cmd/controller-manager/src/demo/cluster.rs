//! The cluster of the demo: an API server, nodes, and windlass, all in this process.

use std::io::ErrorKind;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context as _, Result, anyhow, bail, ensure};
use bytes::Bytes;
use http::{Request, Response, Uri};
use tempfile::TempDir;
use tokio::net::TcpListener;
use tower::{BoxError, Layer as _, Service};
use windlass::client::{ClientOptions, Clients};
use windlass::controller::{Descriptor, Registration};
use windlass::env::{Env, Task};
use windlass::manager::{Manager, ManagerConfig, ManagerError, ShutdownSignals, ShutdownTrigger};
use windlass::metrics::Metrics;
use windlass_api_server::faults::{Journal, Network};
use windlass_api_server::storage::{Memory, MemoryOptions, Storage};
use windlass_api_server::{ApiServer, ApiServerOptions, ServeError};
use windlass_controllers::Options;
use windlass_testing::nodes::{self, NodeOptions};

use super::arguments::Arguments;
use super::deeds::Deeds;
use super::panel::{ControllerView, Panel};
use super::trouble;

/// The first line of the kubeconfigs written here, by which they are known again.
const MARK: &str = "# Written by `windlass demo`, and of use as long as it runs.";

/// A running cluster.
pub(super) struct Cluster {
    address: SocketAddr,
    client: kube::Client,
    memory: Arc<Memory>,
    kubeconfig: Kubeconfig,
    state: Option<PathBuf>,
    windlass: Running,
    nodes: Running,
    panel: Panel,
    server: ApiServer,
    serving: Task<Result<(), ServeError>>,
    trouble: Option<Task<()>>,
}

/// Where the kubeconfig is. A temporary one goes with its folder.
struct Kubeconfig {
    path: PathBuf,
    _folder: Option<TempDir>,
}

/// A manager that runs.
struct Running {
    name: String,
    stop: ShutdownTrigger,
    task: Task<Result<(), ManagerError>>,
}

impl Cluster {
    /// Starts everything.
    ///
    /// # Errors
    /// When the port is taken, a file cannot be read or written, or a manager cannot be put together.
    pub(super) async fn start(env: &Env, arguments: &Arguments) -> Result<Self> {
        let memory = Arc::new(remembered(arguments.state.as_deref())?);
        let storage = Arc::clone(&memory) as Arc<dyn Storage>;
        let options = ApiServerOptions { storage: Some(storage), ..ApiServerOptions::default() };
        let server = ApiServer::new(&env.incarnation("api-server", 0), options);
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, arguments.port));
        let listener = TcpListener::bind(address).await;
        let listener =
            listener.with_context(|| format!("--port={}: cannot listen on {address}", arguments.port))?;
        let address = listener.local_addr().context("asking for the port")?;
        let kubeconfig = Kubeconfig::write(arguments, &server.kubeconfig(address))?;
        let serving = env.spawn("api server", server.serve(listener));
        let nodes = start_nodes(env, arguments, &server)?;
        let (windlass, panel) = start_windlass(env, arguments, &server)?;
        let client = kube::Client::new(server.as_user("demo"), "default");
        let trouble = arguments.faults.then(|| trouble::start(env, client.clone()));
        let state = arguments.state.clone();
        Ok(Self {
            address,
            client,
            memory,
            kubeconfig,
            state,
            windlass,
            nodes,
            panel,
            server,
            serving,
            trouble,
        })
    }

    /// Where kubectl finds it.
    pub(super) fn address(&self) -> String {
        format!("http://{}", self.address)
    }

    /// The file that tells kubectl.
    pub(super) fn kubeconfig(&self) -> &Path {
        &self.kubeconfig.path
    }

    /// What it holds.
    pub(super) fn storage(&self) -> &dyn Storage {
        &*self.memory
    }

    /// Every controller now.
    pub(super) fn panel(&self) -> Vec<ControllerView> {
        self.panel.look()
    }

    /// An administrator's client.
    pub(super) fn client(&self) -> kube::Client {
        self.client.clone()
    }

    /// Fails once a part has ended by itself.
    ///
    /// # Errors
    /// When one has.
    pub(super) fn must_run(&self) -> Result<()> {
        for part in [&self.windlass, &self.nodes] {
            if part.task.is_finished() {
                bail!("{} ended by itself", part.name);
            }
        }
        Ok(())
    }

    /// Ends everything in order: who writes before who is written to. Keeps the state, where that was asked for.
    ///
    /// # Errors
    /// What did not end as it should, or could not be kept.
    pub(super) async fn end(self) -> Result<()> {
        if let Some(trouble) = &self.trouble {
            trouble.abort();
        }
        let windlass = self.windlass.end().await;
        let nodes = self.nodes.end().await;
        self.server.stop();
        self.serving.await.map_err(|error| anyhow!("the API server did not end in order: {error}"))??;
        if let Some(path) = &self.state {
            self.memory.snapshot_to(path).with_context(|| format!("--state={}", path.display()))?;
        }
        windlass.and(nodes)
    }
}

/// A server's memory: that of an earlier demo, if there is one.
fn remembered(state: Option<&Path>) -> Result<Memory> {
    let Some(path) = state else { return Ok(Memory::new(MemoryOptions::default())) };
    let about = || format!("--state={}", path.display());
    if path.try_exists().with_context(about)? {
        return Memory::restore_from(path, MemoryOptions::default()).with_context(about);
    }
    // Told now and not when there is something to lose.
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    ensure!(folder.is_dir(), "{}: there is no folder {}; make it first", about(), folder.display());
    Ok(Memory::new(MemoryOptions::default()))
}

impl Kubeconfig {
    fn write(arguments: &Arguments, text: &str) -> Result<Self> {
        let kubeconfig = match &arguments.kubeconfig_out {
            Some(path) => {
                must_be_ours(path).with_context(|| format!("--kubeconfig-out={}", path.display()))?;
                Self { path: path.clone(), _folder: None }
            }
            None => {
                let folder = tempfile::Builder::new().prefix("windlass-demo-").tempdir();
                let folder = folder.context("making a folder for the kubeconfig")?;
                Self { path: folder.path().join("kubeconfig"), _folder: Some(folder) }
            }
        };
        let path = &kubeconfig.path;
        std::fs::write(path, format!("{MARK}\n{text}"))
            .with_context(|| format!("writing the kubeconfig {}", path.display()))?;
        Ok(kubeconfig)
    }
}

/// Fails if there is a file that no demo has written: above all the user's own kubeconfig.
fn must_be_ours(path: &Path) -> Result<()> {
    match std::fs::read_to_string(path) {
        Ok(text) if text.starts_with(MARK) => Ok(()),
        Ok(_) => bail!("there is a file already, which no demo has written; name another"),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
        Err(error) => Err(error.into()),
    }
}

/// Starts windlass, with its requests noted, and on a bad line if faults are asked for.
fn start_windlass(env: &Env, arguments: &Arguments, server: &ApiServer) -> Result<(Running, Panel)> {
    let registrations = windlass_controllers::registrations(&Options::default());
    let descriptors: Vec<Descriptor> = registrations.iter().map(Registration::descriptor).collect();
    let deeds = Deeds::default();
    let server = server.as_user("windlass");
    let env = env.incarnation("windlass", 0);
    let identity = env.rng("identity").identifier();
    let config = ManagerConfig::new(identity);
    let (running, metrics) = if arguments.faults {
        let plan = trouble::plan(env.rng("faults").next_u64());
        let network = Network::new(&env, Arc::new(server), plan, Journal::new(0, None));
        Running::start(env.clone(), config, registrations, deeds.layer(network.line(&env)))?
    } else {
        Running::start(env, config, registrations, deeds.layer(server))?
    };
    Ok((running, Panel::new(&metrics, &descriptors, deeds)))
}

/// Starts the nodes, which are alone and on a good line.
fn start_nodes(env: &Env, arguments: &Arguments, server: &ApiServer) -> Result<Running> {
    let options = NodeOptions { count: arguments.nodes, ..NodeOptions::default() };
    let env = env.incarnation("nodes", 0);
    let config = ManagerConfig { name: "nodes".into(), election: None, ..ManagerConfig::new("nodes") };
    let (nodes, _) = Running::start(env, config, nodes::registrations(&options), server.as_user("nodes"))?;
    Ok(nodes)
}

impl Running {
    /// Starts a manager of these controllers, whose requests go into `service` at any rate: in one process nobody has
    /// to be spared.
    fn start<S, B>(
        env: Env,
        config: ManagerConfig,
        registrations: Vec<Registration>,
        service: S,
    ) -> Result<(Self, Metrics)>
    where
        S: Service<Request<kube::client::Body>, Response = Response<B>> + Clone + Send + Sync + 'static,
        S::Future: Send + 'static,
        S::Error: Into<BoxError>,
        B: http_body::Body<Data = Bytes> + Send + 'static,
        B::Error: Into<BoxError>,
    {
        let name = config.name.clone();
        let client = ClientOptions { qps: 0.0, ..ClientOptions::default() };
        let config = ManagerConfig { client, ..config };
        let manager = Manager::with_clients(env.clone(), config, move |env, config, metrics, fence| {
            let base = Uri::from_static("http://api-server");
            Clients::over_service(env.clone(), service, base, config.client.clone(), metrics, fence)
        })?;
        let manager = registrations.into_iter().fold(manager, Manager::register);
        let metrics = manager.metrics().clone();
        let (stop, signals) = ShutdownSignals::manual();
        let task = env.spawn(format!("manager {name}"), manager.run(signals));
        Ok((Self { name, stop, task }, metrics))
    }

    /// Ends it in order.
    async fn end(self) -> Result<()> {
        self.stop.fire();
        let outcome =
            self.task.await.map_err(|error| anyhow!("{} did not end in order: {error}", self.name))?;
        outcome.with_context(|| format!("{} did not end in order", self.name))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_no_demo_has_written_is_left_alone() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("config");
        assert!(must_be_ours(&path).is_ok());
        std::fs::write(&path, format!("{MARK}\nkind: Config\n")).expect("it is written");
        assert!(must_be_ours(&path).is_ok());
        std::fs::write(&path, "kind: Config\n").expect("it is written");
        assert!(must_be_ours(&path).is_err());
    }

    #[test]
    fn a_state_that_cannot_be_kept_is_refused_at_the_start() {
        let folder = tempfile::tempdir().expect("a folder");
        assert!(remembered(Some(&folder.path().join("state"))).is_ok());
        let lost = remembered(Some(&folder.path().join("missing/state"))).expect_err("no such folder");
        assert!(lost.to_string().contains("missing; make it first"), "{lost}");
    }
}
