//! Managers in this process, and their clients.

use anyhow::{Context as _, Result, anyhow, bail};
use http::{Request, Response, Uri};
use kube::client::Body;
use tower::{BoxError, Service, service_fn};
use windlass::client::ClientOptions;
use windlass::controller::Registration;
use windlass::env::{Env, Task};
use windlass::manager::{Manager, ManagerConfig, ManagerError, ShutdownSignals, ShutdownTrigger};
use windlass::metrics::Metrics;
use windlass_client::Clients;

/// A running manager.
pub(crate) struct Running {
    name: String,
    stop: ShutdownTrigger,
    task: Task<Result<(), ManagerError>>,
}

impl Running {
    /// Starts a manager of these controllers without a rate limit, because the demo is the only client of its control
    /// plane.
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
            Clients::from_service(env.clone(), service, base(), config.client.clone(), metrics, fence)
        })?;
        let manager = registrations.into_iter().fold(manager, Manager::register);
        let metrics = manager.metrics().clone();
        let (stop, signals) = ShutdownSignals::manual();
        let task = env.spawn(format!("manager {name}"), manager.run(signals));
        Ok((Self { name, stop, task }, metrics))
    }

    /// Checks that the manager is running.
    ///
    /// # Errors
    /// When it has stopped on its own.
    pub(crate) fn must_run(&self) -> Result<()> {
        if self.task.is_finished() {
            bail!("{} stopped unexpectedly", self.name);
        }
        Ok(())
    }

    /// Stops the manager gracefully.
    ///
    /// # Errors
    /// When it fails during shutdown.
    pub(crate) async fn end(self) -> Result<()> {
        self.stop.fire();
        let outcome =
            self.task.await.map_err(|error| anyhow!("{} did not stop gracefully: {error}", self.name))?;
        outcome.with_context(|| format!("{} did not stop gracefully", self.name))
    }
}

/// Returns a client as the innermost service of a client stack.
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

/// Returns client options without a rate limit.
pub(crate) fn unlimited() -> ClientOptions {
    ClientOptions { qps: 0.0, ..ClientOptions::default() }
}

/// Returns the base of request URIs, until a `kube::Client` sets the address of its server.
pub(crate) fn base() -> Uri {
    Uri::from_static("http://api-server")
}
