//! Assembling a process from what was registered and configured, and running it.

use std::fmt;
use std::sync::Arc;

use windlass_client::{ClientError, Clients, Fence, OpenFence};
use windlass_controller::{Prepared, Registration};
use windlass_election::{Elector, LeaderFence};
use windlass_env::Env;
use windlass_informer::{FactoryOptions, InformerFactory};
use windlass_metrics::Metrics;

use crate::config::{ConfigError, ManagerConfig};
use crate::controllers::{Controllers, Parts, Recorders};
use crate::error::ManagerError;
use crate::health::Health;
use crate::leadership::Leadership;
use crate::needs::Needs;
use crate::phase::Phase;
use crate::process::Process;
use crate::registry::{Registry, RegistryError};
use crate::shutdown::ShutdownSignals;

type Connect =
    Box<dyn FnOnce(&Env, &ManagerConfig, &Metrics, Arc<dyn Fence>) -> Result<Clients, ClientError> + Send>;

/// A process that runs controllers. Built, then [run](Manager::run) once.
pub struct Manager {
    env: Env,
    config: ManagerConfig,
    connect: Connect,
    registry: Registry,
    metrics: Metrics,
    health: Health,
    fault: Option<RegistryError>,
}

impl Manager {
    /// A manager of the controllers that will be registered, for this cluster. Nothing is asked of it yet.
    ///
    /// # Errors
    /// When the configuration contradicts itself.
    pub fn new(env: Env, config: ManagerConfig, cluster: kube::Config) -> Result<Self, ManagerError> {
        Self::with_clients(env, config, move |env, config, metrics, fence| {
            Clients::new(env.clone(), cluster, config.client.clone(), metrics, fence)
        })
    }

    /// A manager whose clients are made by `connect`, given the fence that guards writes: for an API server in the
    /// same process, above all.
    ///
    /// # Errors
    /// When the configuration contradicts itself.
    pub fn with_clients(
        env: Env,
        config: ManagerConfig,
        connect: impl FnOnce(&Env, &ManagerConfig, &Metrics, Arc<dyn Fence>) -> Result<Clients, ClientError>
        + Send
        + 'static,
    ) -> Result<Self, ManagerError> {
        config.validate()?;
        let metrics = Metrics::new();
        let health = Health::new(metrics.clone());
        let connect = Box::new(connect);
        Ok(Self { env, config, connect, registry: Registry::new(), metrics, health, fault: None })
    }

    /// Adds a controller. A name that is taken is told by [`Manager::run`].
    #[must_use]
    pub fn register(mut self, registration: Registration) -> Self {
        if let Err(fault) = self.registry.register(registration) {
            self.fault.get_or_insert(fault);
        }
        self
    }

    /// Replaces everything registered so far.
    #[must_use]
    pub fn with_registry(mut self, registry: Registry) -> Self {
        self.registry = registry;
        self
    }

    /// The controllers this manager knows.
    pub fn registry(&self) -> &Registry {
        &self.registry
    }

    /// The metrics of this manager.
    pub fn metrics(&self) -> &Metrics {
        &self.metrics
    }

    /// The health checks of this manager. More may be added.
    pub fn health(&self) -> &Health {
        &self.health
    }

    /// Runs the selected controllers until the first signal, then stops in order. Returns only when every task it
    /// spawned has ended.
    ///
    /// # Errors
    /// When something keeps the process from starting; when it cannot go on ([`ManagerError::LeaseLost`] above all:
    /// the caller then ends the process); when it did not stop cleanly.
    ///
    /// # Cancel safety
    /// Not cancel safe: dropping it leaves its tasks running until `Env::kill`. Give a signal instead.
    pub async fn run(self, signals: ShutdownSignals) -> Result<(), ManagerError> {
        self.assemble()?.run(&signals).await
    }

    /// Puts the process together; nothing runs yet.
    fn assemble(mut self) -> Result<Process, ManagerError> {
        if let Some(fault) = self.fault.take() {
            return Err(fault.into());
        }
        let selected = self.registry.select(&self.config.controllers)?;
        let factory = self.factory();
        let prepared = self.prepare(&selected, &factory)?;
        let Self { env, config, connect, metrics, health, .. } = self;
        let (clients, leadership) = connect_and_elect(connect, &env, &config, &metrics)?;
        let reader = clients.for_informers()?;
        let phase = Phase::new();
        let needs = Needs::of(&prepared);
        phase.add_checks(&health);
        needs.add_checks(&health);
        add_liveness(&health, &leadership, &factory);
        let config = Arc::new(config);
        let parts = Parts {
            env: env.clone(),
            clients: clients.clone(),
            reader: reader.clone(),
            metrics: metrics.clone(),
            health: health.clone(),
            config: Arc::clone(&config),
        };
        Ok(Process {
            api_server: clients.for_health(),
            election_client: clients.for_election()?,
            controllers: Controllers::new(parts, prepared),
            env,
            config,
            metrics,
            health,
            reader,
            factory,
            leadership,
            admin: None,
            election_events: Recorders::default(),
            phase,
            needs,
            caught_up: false,
            started: Vec::new(),
        })
    }

    fn factory(&self) -> InformerFactory {
        let period = self.config.resync;
        let resync = (!period.is_zero()).then(|| self.env.rng("informer resync").jitter(period, 1.0));
        let namespaces = self.config.namespaces.clone();
        let options = FactoryOptions { resync, namespaces, ..FactoryOptions::default() };
        InformerFactory::new(self.env.clone(), self.metrics.clone(), options)
    }

    fn prepare(
        &self,
        selected: &[Registration],
        factory: &InformerFactory,
    ) -> Result<Vec<Prepared>, ManagerError> {
        let prepare = |one: &Registration| {
            let prepared = one.prepare(self.env.clone(), self.metrics.clone(), factory.clone());
            let mut prepared = prepared
                .map_err(|source| ManagerError::Setup { controller: one.descriptor().name, source })?;
            prepared.cache_sync_by_default(self.config.cache_sync);
            Ok(prepared)
        };
        selected.iter().map(prepare).collect()
    }
}

/// The clients behind their fence, and what opens it.
fn connect_and_elect(
    connect: Connect,
    env: &Env,
    config: &ManagerConfig,
    metrics: &Metrics,
) -> Result<(Clients, Leadership), ManagerError> {
    let Some(election) = config.election.clone() else {
        return Ok((connect(env, config, metrics, Arc::new(OpenFence))?, Leadership::Unopposed));
    };
    let fence = LeaderFence::new(env.clone());
    let clients = connect(env, config, metrics, Arc::clone(&fence) as _)?;
    let (client, watch) = (clients.for_election()?, clients.for_informers()?);
    let elector =
        Elector::new(env.clone(), election, client, watch, fence, metrics).map_err(ConfigError::Election)?;
    Ok((clients, Leadership::Elected(Box::new(elector))))
}

/// What only a restart can mend. An API server that is away is not among it.
fn add_liveness(health: &Health, leadership: &Leadership, factory: &InformerFactory) {
    if let Leadership::Elected(elector) = leadership {
        health.live("leaderElection", elector.health());
    }
    let factory = factory.clone();
    health.live(
        "informers",
        Arc::new(move || match factory.stuck().first() {
            Some((kind, selection)) => Err(format!("the informer of {kind} ({selection}) has died")),
            None => Ok(()),
        }),
    );
}

impl fmt::Debug for Manager {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Manager")
            .field("config", &self.config)
            .field("registry", &self.registry)
            .finish_non_exhaustive()
    }
}
