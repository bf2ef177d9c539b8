//! A manager of all controllers in this process, on a link with faults.

use std::time::Duration;

use anyhow::{Context as _, Result, anyhow, ensure};
use http::Uri;
use windlass_api_server::faults::{Link, Network};
use windlass_client::{ClientOptions, Clients};
use windlass_controllers::{ControllerOptions, registrations};
use windlass_election::ElectionConfig;
use windlass_env::{Env, Task};
use windlass_harness::WORKLOAD_CONTROLLERS;
use windlass_manager::{
    ControllerSelection, Manager, ManagerConfig, ManagerError, ShutdownSignals, ShutdownTrigger,
};

/// Timeout of a graceful stop.
const TIMEOUT: Duration = Duration::from_secs(30);

/// A running manager.
pub(crate) struct Subject {
    env: Env,
    line: Link,
    stop: ShutdownTrigger,
    task: Task<Result<(), ManagerError>>,
}

impl Subject {
    /// Starts a manager with a Lease in `namespace`, no rate limit, and a request timeout.
    pub(crate) fn start(
        parent: &Env,
        network: &Network,
        namespace: &str,
        request_timeout: Duration,
    ) -> Result<Self> {
        let env = parent.with_incarnation("windlass", 0);
        let line = network.link(&env);
        let wire = line.clone();
        let manager = Manager::with_clients(
            env.clone(),
            config(namespace, request_timeout),
            move |env, config, metrics, fence| {
                let base = Uri::from_static("http://api-server");
                Clients::from_service(env.clone(), wire, base, config.client.clone(), metrics, fence)
            },
        )?;
        let manager =
            registrations(&ControllerOptions::default()).into_iter().fold(manager, Manager::register);
        let (stop, signals) = ShutdownSignals::manual();
        let task = parent.spawn("manager", manager.run(signals));
        Ok(Self { env, line, stop, task })
    }

    /// Returns its link to the server.
    pub(crate) fn line(&self) -> &Link {
        &self.line
    }

    /// Fails if the manager has stopped on its own.
    pub(crate) fn must_run(&self) -> Result<()> {
        ensure!(!self.task.is_finished(), "the manager stopped on its own");
        Ok(())
    }

    /// Stops the manager gracefully and checks that no task is left.
    pub(crate) async fn end(self) -> Result<()> {
        self.stop.fire();
        let ended = tokio::time::timeout(TIMEOUT, self.task).await;
        let ended = ended.map_err(|_| anyhow!("the manager did not stop within {TIMEOUT:?}"))?;
        ended
            .map_err(|error| anyhow!("the manager: {error}"))?
            .context("the manager did not stop gracefully")?;
        ensure!(self.env.tasks().is_empty(), "the manager left tasks behind: {:?}", self.env.tasks());
        Ok(())
    }
}

fn config(namespace: &str, request_timeout: Duration) -> ManagerConfig {
    let election = ElectionConfig {
        lease_namespace: Some(namespace.to_owned()),
        // Longer than any test, because the loss of the lease is not tested here.
        lease_duration: Duration::from_secs(900),
        renew_deadline: Duration::from_secs(600),
        ..ElectionConfig::new("stormy")
    };
    let client = ClientOptions { request_timeout, ..ClientOptions::default() };
    // The others would delete the pods of nodes that do not exist.
    let controllers = ControllerSelection::parse(WORKLOAD_CONTROLLERS);
    ManagerConfig { election: Some(election), client, controllers, ..ManagerConfig::new("stormy") }
}
