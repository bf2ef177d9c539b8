//! Runs the process: controllers, runtime and cluster connection.
//!
//! Guarantees: all arguments are validated before a file is opened or a request is sent; the process exits as soon as
//! the manager returns, without waiting for threads that resolve names.

use std::fs::File;
use std::io::{self, Read as _};
use std::path::Path;
use std::sync::Arc;

use anyhow::{Context as _, Result, anyhow};
use tokio::runtime::{Builder, Runtime};
use windlass::Log;
use windlass::admin::{AdminError, Tls};
use windlass::client::load_config;
use windlass::controller::Controller as _;
use windlass::env::Env;
use windlass::manager::{Manager, ManagerConfig, ManagerError, ShutdownSignals};
use windlass_controllers::{ControllerOptions, RootCaPublisherController};

use crate::config::{Config, Logging};
use crate::manifests::registry;
use crate::settings::{self, Settings};
use crate::{logging, root_ca};

/// Runs controllers until a signal, or until an error.
///
/// # Errors
/// The settings are invalid, or the process cannot start, continue or stop cleanly.
pub(crate) fn run(settings: Settings) -> Result<()> {
    let env = Env::system("windlass");
    let config = Config::new(settings, &windlass::identity(&env))?;
    let Logging { verbosity, format } = config.logging;
    let log = Log::install(&env, "windlass", logging::filter(verbosity), format)?;
    // One provider for the whole process, chosen here and not by the first library that needs one.
    let provider = rustls::crypto::ring::default_provider().install_default();
    provider.map_err(|_| anyhow!("cannot install the TLS provider: the process has one already"))?;
    let mut runtime = Builder::new_multi_thread();
    runtime.worker_threads(config.worker_threads).enable_all();
    let runtime = runtime.build().context("cannot start a runtime")?;
    let outcome = runtime.block_on(manage(env, config));
    log.close();
    end(runtime);
    outcome
}

async fn manage(env: Env, config: Config) -> Result<()> {
    let Config { cluster, manager, controllers, root_ca_file, worker_threads: _, logging: _ } = config;
    let (is_anonymous, kubeconfig) = (cluster.is_anonymous(), cluster.kubeconfig);
    let cluster = load_config(kubeconfig.as_deref(), cluster.master.as_deref()).await?;
    let root_ca = match publishes_root_ca(&manager, &controllers)? {
        true => root_ca::load(root_ca_file.as_deref(), &cluster, kubeconfig.as_deref())?,
        false => Arc::default(),
    };
    let controllers = ControllerOptions { root_ca, ..controllers };
    let server = cluster.cluster_url.to_string();
    let tls = manager.admin.as_ref().map(|admin| admin.tls.clone());
    let signals = ShutdownSignals::from_process(&env).context("cannot install signal handlers")?;
    if is_anonymous {
        tracing::warn!(server, "--master without --kubeconfig; sending requests without credentials");
    }
    tracing::info!(
        version = env!("CARGO_PKG_VERSION"),
        identity = manager.identity,
        server,
        "windlass starting"
    );
    let manager = Manager::new(env, manager, cluster)?;
    let manager =
        windlass_controllers::registrations(&controllers).into_iter().fold(manager, Manager::register);
    manager.run(signals).await.map_err(|error| explained(error, &server, tls))
}

/// Returns whether the controller that publishes the certificates runs. Otherwise their file can be absent, as
/// upstream.
///
/// # Errors
/// The selection names an unknown controller.
fn publishes_root_ca(manager: &ManagerConfig, controllers: &ControllerOptions) -> Result<bool> {
    let running = manager.controllers.resolve(&registry(controllers)?.descriptors())?;
    Ok(running.contains(&RootCaPublisherController::NAME))
}

/// Reads a configuration file, and at most one byte more than the longest valid one.
pub(crate) fn read_file(path: &Path) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    let most = settings::MAX_SIZE as u64 + 1;
    File::open(path)?.take(most).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// Adds the flags to change, which only the binary knows.
fn explained(error: ManagerError, server: &str, tls: Option<Tls>) -> anyhow::Error {
    match error {
        ManagerError::Admin(AdminError::Bind { address, source }) => {
            let problem = format!("cannot listen on {address}: {source}");
            let remedy = "choose another port, or 0 to disable the server";
            anyhow!("--secure-port={}: {problem}; {remedy}", address.port())
        }
        ManagerError::Admin(AdminError::Tls(problem)) => match tls {
            Some(Tls::Persisted { folder, .. }) => {
                let remedy = "name a directory that this process can write, or leave it out";
                anyhow!("--cert-dir={}: {problem}; {remedy}", folder.display())
            }
            Some(Tls::Files { certificate, key }) => {
                windlass::Error::Certificate { certificate, key, source: Box::new(problem) }.into()
            }
            Some(Tls::Plain | Tls::SelfSigned) | None => AdminError::Tls(problem).into(),
        },
        ManagerError::ApiServerUnreachable { .. } => {
            anyhow!(
                "{error}; check the address {server}, its CA in --kubeconfig, and the state of the API server"
            )
        }
        other => other.into(),
    }
}

/// Shuts the runtime down immediately: a process that lost its lease must exit without waiting for name resolution.
fn end(runtime: Runtime) {
    runtime.shutdown_background();
}
