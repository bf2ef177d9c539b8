//! Which controllers, on which runtime, against which cluster: the parts put together.
//!
//! Guarantees: nothing is opened before every argument has been checked; the process ends as soon as the manager has,
//! without waiting for threads that look up names.

use std::fs::File;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, anyhow};
use tokio::runtime::{Builder, Runtime};
use windlass::admin::{AdminError, Tls};
use windlass::client::load_config;
use windlass::env::Env;
use windlass::manager::{Manager, ManagerConfig, ManagerError, ShutdownSignals};

use crate::config::Config;
use crate::logging;
use crate::settings::{self, Settings};

/// Runs controllers until a signal, or until an error.
///
/// # Errors
/// The settings are invalid, or the process cannot start, continue or stop cleanly.
pub(crate) fn run(settings: Settings) -> Result<()> {
    let env = Env::system("windlass");
    let config = Config::new(settings, &windlass::identity(&env))?;
    logging::install(config.logging)?;
    // One provider for the whole process, chosen here and not by the first library that needs one.
    let provider = rustls::crypto::ring::default_provider().install_default();
    provider.map_err(|_| anyhow!("a TLS provider is installed already"))?;
    let runtime = Builder::new_multi_thread().enable_all().build().context("cannot start a runtime")?;
    let outcome = runtime.block_on(manage(env, config));
    end(runtime);
    outcome
}

async fn manage(env: Env, config: Config) -> Result<()> {
    let Config { cluster, manager, controllers, logging: _ } = config;
    let cluster = load_config(cluster.kubeconfig.as_deref(), cluster.master.as_deref()).await?;
    let server = cluster.cluster_url.to_string();
    let kept = kept(&manager);
    let signals = ShutdownSignals::from_process(&env).context("cannot listen for signals")?;
    tracing::info!(
        version = env!("CARGO_PKG_VERSION"),
        identity = manager.identity,
        server,
        "windlass starts"
    );
    let manager = Manager::new(env, manager, cluster)?;
    let manager =
        windlass_controllers::registrations(&controllers).into_iter().fold(manager, Manager::register);
    manager.run(signals).await.map_err(|error| explained(error, &server, kept.as_deref()))
}

/// Reads a configuration file, and at most one byte more than the longest valid one.
pub(crate) fn read_file(path: &Path) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    let most = settings::MAX as u64 + 1;
    File::open(path)?.take(most).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// Where the certificate of the admin server is kept, if it is.
fn kept(config: &ManagerConfig) -> Option<PathBuf> {
    match &config.admin.as_ref()?.tls {
        Tls::Persisted { folder, .. } => Some(folder.clone()),
        Tls::Plain | Tls::SelfSigned | Tls::Files { .. } => None,
    }
}

/// Adds what only the binary knows: which flag to turn.
fn explained(error: ManagerError, server: &str, kept: Option<&Path>) -> anyhow::Error {
    match error {
        ManagerError::Admin(AdminError::Bind { address, source }) => {
            let problem = format!("cannot listen on {address}: {source}");
            let remedy = "choose another port, or 0 to serve nothing";
            anyhow!("--secure-port={}: {problem}; {remedy}", address.port())
        }
        ManagerError::Admin(AdminError::Tls(problem)) => match kept {
            Some(folder) => {
                let remedy = "name a directory that this process may write, or leave it out";
                anyhow!("--cert-dir={}: {problem}; {remedy}", folder.display())
            }
            None => {
                anyhow!("{}; see --tls-cert-file and --tls-private-key-file", AdminError::Tls(problem))
            }
        },
        ManagerError::ApiServerUnreachable { .. } => {
            anyhow!("{error}; check that {server} is the address and that --kubeconfig may use it")
        }
        other => other.into(),
    }
}

/// Ends the runtime at once: whoever lost its lease must be gone, not wait for a name to be resolved.
fn end(runtime: Runtime) {
    runtime.shutdown_background();
}
