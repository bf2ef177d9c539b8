//! Assembles a process from registrations and configuration, and runs it.

use std::fmt;
use std::num::NonZeroU16;
use std::sync::Arc;

use windlass_admin::{AdminServerDeps, Health, OwnershipReport, Pages};
use windlass_client::{ClientError, Clients, Fence, OpenFence};
use windlass_controller::host::{Host, PreparedController, SharedValues, Triggers};
use windlass_controller::{Registration, RunsOn, SetupError, Trigger};
use windlass_election::{Election, Elector, HealthCheck, LeaderFence};
use windlass_env::{DedicatedRuntime, Env};
use windlass_informer::{FactoryOptions, InformerFactory};
use windlass_metrics::Metrics;
use windlass_sharding::{ShardElector, ShardsConfig};

use crate::cache_requirements::CacheRequirements;
use crate::config::{ConfigError, ManagerConfig};
use crate::configuration::about;
use crate::controller_group::{ControllerGroup, GroupContext};
use crate::controllers::{Controllers, Recorders, StartDeps};
use crate::error::{AddError, ManagerError, RegistryError};
use crate::explain::{Explainer, set_standby};
use crate::leadership::{ElectedLeadership, GroupLeadership};
use crate::ownership_report::{self, OwnershipSource};
use crate::phase::ProcessPhase;
use crate::process::Process;
use crate::registry::{Registry, set_up_present};
use crate::replica_controllers::ReplicaControllers;
use crate::runnables::{ManagerHandle, RunnableDeps, Runnables, Site};
use crate::shards::{ShardContext, ShardCoordinator};
use crate::shutdown::ShutdownSignals;

type Connect =
    Box<dyn FnOnce(&Env, &ManagerConfig, &Metrics, Arc<dyn Fence>) -> Result<Clients, ClientError> + Send>;

/// A process that runs controllers. Build it, then [run](Manager::run) it once.
///
/// The process installs a rustls `CryptoProvider` and a `tracing` subscriber itself. `windlass::run` does both.
///
/// # Examples
/// ```no_run
/// # use windlass_controller::Registration;
/// # use windlass_env::Env;
/// # use windlass_manager::{Manager, ManagerConfig, ShutdownSignals};
/// # async fn run(cluster: kube::Config, controller: Registration) -> Result<(), Box<dyn std::error::Error>> {
/// let env = Env::system("sites");
/// let signals = ShutdownSignals::from_process(&env)?;
/// let config = ManagerConfig::new("replica-1").named("sites");
/// Manager::new(env, config, cluster)?.register(controller).run(signals).await?;
/// # Ok(())
/// # }
/// ```
pub struct Manager {
    env: Env,
    config: ManagerConfig,
    connect: Connect,
    registry: Registry,
    metrics: Metrics,
    health: Health,
    pages: Pages,
    explainer: Explainer,
    runnables: Runnables,
    triggers: Triggers,
    shared_values: SharedValues,
    fault: Option<RegistryError>,
}

impl Manager {
    /// Returns a manager for this cluster, without controllers. No request is sent yet.
    ///
    /// # Errors
    /// When the configuration contradicts itself.
    pub fn new(env: Env, config: ManagerConfig, cluster: kube::Config) -> Result<Self, ManagerError> {
        Self::with_clients(env, config, move |env, config, metrics, fence| {
            Clients::new(env.clone(), cluster, config.client_options(), metrics, fence)
        })
    }

    /// Returns a manager whose clients are created by `connect`, which receives the fence that guards writes. Mainly
    /// for an API server in the same process.
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
        config.feature_gates.export(&metrics);
        let health = Health::new(metrics.clone());
        let runnables = match config.shards {
            Some(_) => Runnables::leaderless(),
            None => Runnables::new(),
        };
        let connect = Box::new(connect);
        let (registry, pages, explainer) = (Registry::new(), Pages::new(), Explainer::default());
        explainer.add_pages(&pages);
        let (triggers, shared_values, fault) = (Triggers::default(), SharedValues::default(), None);
        Ok(Self {
            env,
            config,
            connect,
            registry,
            metrics,
            health,
            pages,
            explainer,
            runnables,
            triggers,
            shared_values,
            fault,
        })
    }

    /// Adds a controller or a runnable. If the name is taken, [`Manager::run`] returns an error.
    #[must_use]
    pub fn register(mut self, registration: impl Into<Registration>) -> Self {
        if let Err(fault) = self.registry.register(registration.into()) {
            self.fault.get_or_insert(fault);
        }
        self
    }

    /// Returns a handle that adds runnables before the manager runs and while it runs.
    pub fn handle(&self) -> ManagerHandle {
        ManagerHandle::new(self.runnables.clone())
    }

    /// Replaces the controllers and runnables registered so far.
    #[must_use]
    pub fn with_registry(self, registry: Registry) -> Self {
        Self { registry, ..self }
    }

    /// Returns the registered controllers and runnables.
    pub fn registry(&self) -> &Registry {
        &self.registry
    }

    /// Returns the metrics of this manager.
    pub fn metrics(&self) -> &Metrics {
        &self.metrics
    }

    /// Returns the health checks of this manager. Callers can add checks.
    pub fn health(&self) -> &Health {
        &self.health
    }

    /// Returns the endpoints of this manager's admin server. Callers can add endpoints, also while it runs.
    pub fn pages(&self) -> &Pages {
        &self.pages
    }

    /// Returns the trigger that `controller` declares under `name` in its setup. Other code uses it to send keys to the
    /// controller. Keys that are sent before the controller starts are kept. If no controller of this process declares
    /// the trigger, sending fails once the manager runs.
    pub fn trigger(&self, controller: &str, name: &str) -> Trigger {
        self.triggers.get(controller, name)
    }

    /// Returns the explainer, which reports why an object has not been reconciled while the manager runs.
    pub fn explainer(&self) -> &Explainer {
        &self.explainer
    }

    /// Runs the selected controllers until the first signal, then stops gracefully. Returns after every spawned task
    /// has ended.
    ///
    /// # Errors
    /// When the process cannot start, cannot continue (most importantly [`ManagerError::LeaseLost`], after which the
    /// caller must exit the process), or did not stop cleanly.
    ///
    /// # Cancel safety
    /// Not cancel safe: dropping the future leaves its tasks running until `Env::kill`. Send a signal instead.
    pub async fn run(self, signals: ShutdownSignals) -> Result<(), ManagerError> {
        self.assemble()?.run(&signals).await
    }

    /// Assembles the process without starting it.
    fn assemble(mut self) -> Result<Process, ManagerError> {
        if let Some(fault) = self.fault.take() {
            return Err(fault.into());
        }
        let selected = self.registry.select(&self.config.controllers)?;
        let shards = self.config.shards.map(|_| ShardContext::default());
        let factory = self.factory(shards.as_ref());
        let prepared = self.prepare(&selected, &factory, shards.as_ref())?;
        self.set_up_runnables(&factory)?;
        self.explain(&prepared, &factory, shards.as_ref())?;
        self.triggers.reject_undeclared();
        let Self { env, config, connect, metrics, health, pages, runnables, .. } = self;
        let (clients, election, mode) =
            connect_fenced(connect, &env, &config, &metrics, shards.as_ref(), &factory)?;
        let admin_deps = AdminServerDeps {
            metrics: metrics.clone(),
            health: health.clone(),
            pages,
            about: about(&config, election.as_ref(), ownership_report(&mode, config.shards, shards.as_ref())),
            reviews: clients.for_reviews()?,
        };
        let phase = ProcessPhase::new();
        let cache_requirements = CacheRequirements::of(&prepared);
        phase.add_checks(&health);
        cache_requirements.add_checks(&health);
        export_task_count(&env, &metrics);
        add_liveness(&health, &mode, &factory);
        add_credentials(&health, &clients);
        let reader = clients.for_informers()?;
        let config = Arc::new(config);
        let parts = StartDeps {
            env: env.clone(),
            clients: clients.clone(),
            reader: reader.clone(),
            metrics: metrics.clone(),
            health: health.clone(),
            config: Arc::clone(&config),
            shards,
            runs_on: RunsOn::Leader,
        };
        let deps = RunnableDeps::of(&parts);
        let (replica_controllers, led): (Vec<_>, Vec<_>) =
            prepared.into_iter().partition(|one| one.descriptor().runs_on == RunsOn::EveryReplica);
        let replica_controllers = Controllers::new(parts.of_every_replica(), replica_controllers);
        let replica_controllers = ReplicaControllers::new(env.clone(), replica_controllers);
        let group = assemble_group(mode, led, parts);
        Ok(Process {
            api_server: clients.for_health(),
            election_client: clients.for_election()?,
            context: GroupContext {
                env: env.clone(),
                factory,
                runnables,
                runnable_deps: deps,
                election_events: None,
            },
            group,
            replica_controllers,
            env,
            config,
            metrics,
            reader,
            admin_deps,
            admin: None,
            election_events: Recorders::default(),
            phase,
            cache_requirements,
            started: Vec::new(),
        })
    }

    /// Provides the prepared controllers to the admin endpoints.
    fn explain(
        &self,
        prepared: &[PreparedController],
        factory: &InformerFactory,
        shards: Option<&ShardContext>,
    ) -> Result<(), ManagerError> {
        if let Some(shards) = shards {
            crate::shards::check(prepared, factory)?;
            crate::shards::add_page(&self.pages, &shards.table);
        }
        self.explainer.fill(self.registry.descriptors(), prepared.iter().map(PreparedController::inspector));
        Ok(())
    }

    fn factory(&self, shards: Option<&ShardContext>) -> InformerFactory {
        let period = self.config.cache.resync;
        let resync = (!period.is_zero()).then(|| self.env.rng("informer resync").jitter(period, 1.0));
        let shards = shards.map(|shards| shards.set.clone());
        let options = FactoryOptions { resync, shards, ..self.config.cache.factory() };
        InformerFactory::new(self.env.clone(), self.metrics.clone(), options)
    }

    /// Returns the host in which controllers and runnables are set up.
    fn host(&self, factory: &InformerFactory) -> Host {
        let host = Host::new(self.env.clone(), self.metrics.clone(), factory.clone());
        let webhooks = Arc::new(self.config.webhook_config());
        Host { triggers: self.triggers.clone(), shared_values: self.shared_values.clone(), webhooks, ..host }
    }

    fn set_up_runnables(&self, factory: &InformerFactory) -> Result<(), AddError> {
        let (host, health) = (self.host(factory), self.health.clone());
        let site = Site { host, health, cache_sync: self.config.cache_sync };
        self.runnables.open(site, self.registry.runnables().to_vec())
    }

    fn prepare(
        &self,
        selected: &[Registration],
        factory: &InformerFactory,
        shards: Option<&ShardContext>,
    ) -> Result<Vec<PreparedController>, ManagerError> {
        set_up_present(selected, |one| {
            let descriptor = one.descriptor();
            let (controller, position) = (descriptor.name, descriptor.key_position());
            let host = self.host(factory);
            let host = match shards.filter(|_| descriptor.runs_on == RunsOn::Leader) {
                Some(shards) => Host { ownership: shards.table.ownership(controller, position), ..host },
                None => host,
            };
            let mut prepared = one.prepare(host).inspect_err(|error| {
                if let SetupError::Absent(reason) = error {
                    tracing::info!(controller, reason, "controller not started");
                }
            })?;
            prepared.cache_sync_by_default(self.config.cache_sync);
            Ok(prepared)
        })
    }
}

/// Exports the number of running tasks at every scrape, so that a task leak is visible early.
fn export_task_count(env: &Env, metrics: &Metrics) {
    let (env, tasks) = (env.clone(), metrics.manager().tasks.clone());
    metrics.on_gather(Box::new(move || tasks.set(i64::try_from(env.tasks().len()).unwrap_or(i64::MAX))));
}

/// The source of the fence.
#[expect(clippy::large_enum_variant, reason = "there is one per process, and it is moved once")]
enum LeadershipMode {
    /// No election.
    Always,
    /// A Lease.
    Elected(Election, DedicatedRuntime, Elector),
    /// The held shards.
    Sharded(ShardCoordinator, HealthCheck),
}

/// Returns the report of the Lease or the shards that this replica can hold.
fn ownership_report(
    mode: &LeadershipMode,
    shards: Option<NonZeroU16>,
    context: Option<&ShardContext>,
) -> OwnershipReport {
    let holding = match mode {
        LeadershipMode::Always => None,
        LeadershipMode::Elected(election, _, elector) => {
            Some(OwnershipSource::Lease(election.lease().to_string(), elector.leadership()))
        }
        LeadershipMode::Sharded(..) => context
            .zip(shards)
            .map(|(context, shards)| OwnershipSource::Shards(context.table.clone(), shards)),
    };
    ownership_report::shown(holding)
}

/// Returns the clients behind their fence, the election with its namespace, and the source of the fence.
fn connect_fenced(
    connect: Connect,
    env: &Env,
    config: &ManagerConfig,
    metrics: &Metrics,
    shards: Option<&ShardContext>,
    factory: &InformerFactory,
) -> Result<(Clients, Option<Election>, LeadershipMode), ManagerError> {
    let leader_fence = LeaderFence::new(env.clone());
    let fence: Arc<dyn Fence> = match (shards, &config.election) {
        (Some(shards), _) => shards.table.fence(),
        (None, Some(_)) => Arc::clone(&leader_fence) as _,
        (None, None) => Arc::new(OpenFence),
    };
    let clients = connect(env, config, metrics, fence)?;
    let election = config.election(clients.default_namespace());
    let sharding = config.sharding(clients.default_namespace())?;
    let mode = match (shards, sharding, election.clone()) {
        (Some(shards), Some(sharding), _) => shard(env, sharding, &clients, metrics, shards, factory)?,
        (_, _, Some(election)) => elect(env, election, &clients, leader_fence, metrics)?,
        (_, _, None) => LeadershipMode::Always,
    };
    Ok((clients, election, mode))
}

/// Returns the leadership of a single leader, whose fence is `fence`.
fn elect(
    env: &Env,
    election: Election,
    clients: &Clients,
    fence: Arc<LeaderFence>,
    metrics: &Metrics,
) -> Result<LeadershipMode, ManagerError> {
    let runtime = env.dedicated_runtime("elections").map_err(ManagerError::NoThread)?;
    // State inside an elector's client must live on the thread of the elector.
    let (client, watch) = (runtime.enter(|| clients.for_election())?, clients.for_informers()?);
    let elector = Elector::new(env.clone(), election.clone(), client, watch, fence, metrics)
        .map_err(ConfigError::Election)?;
    Ok(LeadershipMode::Elected(election, runtime, elector))
}

/// Returns the leadership by shards, with a fence for each.
fn shard(
    env: &Env,
    config: ShardsConfig,
    clients: &Clients,
    metrics: &Metrics,
    shards: &ShardContext,
    factory: &InformerFactory,
) -> Result<LeadershipMode, ManagerError> {
    let runtime = env.dedicated_runtime("elections").map_err(ManagerError::NoThread)?;
    // State inside an elector's client must live on the thread of the elector.
    let (client, reader) = (runtime.enter(|| clients.for_election())?, clients.for_informers()?);
    let lease = config.election.lease().to_string();
    let elector = ShardElector::new(env.clone(), config, client, reader.clone(), metrics)
        .map_err(ConfigError::Shards)?;
    let health = elector.health();
    let coordinator = ShardCoordinator::new(runtime, elector, lease, shards.clone(), factory.clone(), reader);
    Ok(LeadershipMode::Sharded(coordinator, health))
}

fn assemble_group(
    mode: LeadershipMode,
    prepared: Vec<PreparedController>,
    parts: StartDeps,
) -> ControllerGroup {
    let (leadership, election) = match mode {
        LeadershipMode::Always => (GroupLeadership::Always, None),
        LeadershipMode::Sharded(coordinator, _) => {
            let coordinator = coordinator.with_controllers(prepared.len());
            (GroupLeadership::Sharded(Box::new(coordinator)), None)
        }
        LeadershipMode::Elected(election, runtime, elector) => {
            let lease = election.lease().to_string();
            let standing = set_standby(lease.clone(), elector.leadership());
            prepared.iter().for_each(|one| one.inspector().set_phase(standing.clone()));
            let elected = ElectedLeadership::new(parts.env.clone(), runtime, lease, elector);
            (GroupLeadership::Elected(Box::new(elected)), Some(election))
        }
    };
    ControllerGroup {
        leadership,
        election,
        cache_requirements: CacheRequirements::of(&prepared),
        controllers: Controllers::new(parts, prepared),
        previous_holder: None,
        takeover: None,
        caught_up: false,
        started: Vec::new(),
    }
}

/// Adds the readiness check of the credentials. A replica with invalid credentials can neither lead nor be on standby,
/// and a restart does not help.
pub(crate) fn add_credentials(health: &Health, clients: &Clients) {
    let clients = clients.clone();
    let check = move || clients.credentials_error().map_or(Ok(()), |error| Err(error.to_string()));
    health.ready("credentials", Arc::new(check));
}

/// Adds checks of failures that only a restart fixes. An unavailable API server is not one of them.
fn add_liveness(health: &Health, mode: &LeadershipMode, factory: &InformerFactory) {
    match mode {
        LeadershipMode::Always => {}
        LeadershipMode::Elected(_, _, elector) => health.live("leaderElection", elector.health()),
        LeadershipMode::Sharded(_, check) => health.live("leaderElection", Arc::clone(check)),
    }
    let (died, silent) = (factory.clone(), factory.clone());
    health.live(
        "informers",
        Arc::new(move || match died.dead_informers().first() {
            Some((kind, selection)) => Err(format!("the informer of {kind} ({selection}) has died")),
            None => Ok(()),
        }),
    );
    health.live(
        "watches",
        Arc::new(move || match silent.stalled().first() {
            Some((kind, stuck)) => Err(format!("the informer of {kind} has made no progress for {stuck:?}")),
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
