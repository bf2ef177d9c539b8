//! A manager of all controllers in this process, on a line that suffers.

use std::time::Duration;

use anyhow::{Context as _, Result, anyhow, ensure};
use http::Uri;
use windlass_api_server::faults::{Link, Network};
use windlass_client::{ClientOptions, Clients};
use windlass_controllers::{ControllerOptions, registrations};
use windlass_election::ElectionConfig;
use windlass_env::{Env, Task};
use windlass_manager::{Manager, ManagerConfig, ManagerError, ShutdownSignals, ShutdownTrigger};

/// How long an orderly end may take.
const TIMEOUT: Duration = Duration::from_secs(30);

/// A manager that runs.
pub(crate) struct Subject {
    env: Env,
    line: Link,
    stop: ShutdownTrigger,
    task: Task<Result<(), ManagerError>>,
}

impl Subject {
    /// Starts it with a lease in `namespace`, no limit of requests, and this much time for each of them.
    pub(crate) fn start(
        world: &Env,
        network: &Network,
        namespace: &str,
        request_timeout: Duration,
    ) -> Result<Self> {
        let env = world.with_incarnation("windlass", 0);
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
        let task = world.spawn("manager", manager.run(signals));
        Ok(Self { env, line, stop, task })
    }

    /// Its line to the server.
    pub(crate) fn line(&self) -> &Link {
        &self.line
    }

    /// Fails once it has ended by itself.
    pub(crate) fn must_run(&self) -> Result<()> {
        ensure!(!self.task.is_finished(), "the manager ended by itself");
        Ok(())
    }

    /// Ends it in order, and leaves no task behind.
    pub(crate) async fn end(self) -> Result<()> {
        self.stop.fire();
        let ended = tokio::time::timeout(TIMEOUT, self.task).await;
        let ended = ended.map_err(|_| anyhow!("the manager did not end in {TIMEOUT:?}"))?;
        ended
            .map_err(|error| anyhow!("the manager: {error}"))?
            .context("the manager did not end in order")?;
        ensure!(self.env.tasks().is_empty(), "the manager left tasks behind: {:?}", self.env.tasks());
        Ok(())
    }
}

fn config(namespace: &str, request_timeout: Duration) -> ManagerConfig {
    let election = ElectionConfig {
        lease_namespace: Some(namespace.to_owned()),
        // Longer than any test runs: what is tested is work under a lease, not the loss of it.
        lease_duration: Duration::from_secs(900),
        renew_deadline: Duration::from_secs(600),
        ..ElectionConfig::new("stormy")
    };
    let client = ClientOptions { request_timeout, ..ClientOptions::default() };
    ManagerConfig { election: Some(election), client, ..ManagerConfig::new("stormy") }
}
