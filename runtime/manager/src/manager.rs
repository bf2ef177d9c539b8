//! Assembling a process from what was registered and configured, and running it.

use std::fmt;
use std::num::NonZeroU16;
use std::sync::Arc;

use windlass_admin::{AdminServerDeps, Health, OwnershipReport, Pages};
use windlass_client::{ClientError, Clients, Fence, OpenFence};
use windlass_controller::host::{Host, PreparedController, Triggers};
use windlass_controller::{Registration, RunsOn, Trigger};
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
use crate::explain::{Explainer, standing_by};
use crate::holdings::{self, OwnershipSource};
use crate::leadership::{ElectedLeadership, GroupLeadership};
use crate::phase::ProcessPhase;
use crate::process::Process;
use crate::registry::Registry;
use crate::replica_team::ReplicaTeam;
use crate::runnables::{ManagerHandle, RunnableDeps, Runnables, Site};
use crate::shards::{ShardContext, ShardCoordinator};
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
    pages: Pages,
    explainer: Explainer,
    runnables: Runnables,
    triggers: Triggers,
    fault: Option<RegistryError>,
}

impl Manager {
    /// A manager of the controllers that will be registered, for this cluster. Nothing is asked of it yet.
    ///
    /// # Errors
    /// When the configuration contradicts itself.
    pub fn new(env: Env, config: ManagerConfig, cluster: kube::Config) -> Result<Self, ManagerError> {
        Self::with_clients(env, config, move |env, config, metrics, fence| {
            Clients::new(env.clone(), cluster, config.client_options(), metrics, fence)
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
        config.feature_gates.export(&metrics);
        let health = Health::new(metrics.clone());
        let runnables = match config.shards {
            Some(_) => Runnables::leaderless(),
            None => Runnables::new(),
        };
        let connect = Box::new(connect);
        let (registry, pages, explainer) = (Registry::new(), Pages::new(), Explainer::default());
        explainer.add_pages(&pages);
        let (triggers, fault) = (Triggers::default(), None);
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
            fault,
        })
    }

    /// Adds a controller or a runnable. A name that is taken is an error of [`Manager::run`].
    #[must_use]
    pub fn register(mut self, registration: impl Into<Registration>) -> Self {
        if let Err(fault) = self.registry.register(registration.into()) {
            self.fault.get_or_insert(fault);
        }
        self
    }

    /// Adds runnables while the manager runs, and before.
    pub fn handle(&self) -> ManagerHandle {
        ManagerHandle::new(self.runnables.clone())
    }

    /// Replaces the controllers and runnables registered so far.
    #[must_use]
    pub fn with_registry(self, registry: Registry) -> Self {
        Self { registry, ..self }
    }

    /// The registered controllers and runnables.
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

    /// The pages of this manager's admin server. More may be added, also while it runs.
    pub fn pages(&self) -> &Pages {
        &self.pages
    }

    /// The trigger that `controller` declares under `name` in its setup, by which other code sends keys to it. Keys that
    /// are sent before the controller starts are kept. If no controller of this process declares it, sending to it fails
    /// once the manager runs.
    pub fn trigger(&self, controller: &str, name: &str) -> Trigger {
        self.triggers.get(controller, name)
    }

    /// Answers why an object has not been reconciled, once the manager runs.
    pub fn explainer(&self) -> &Explainer {
        &self.explainer
    }

    /// Runs the selected controllers until the first signal, then stops in order. Returns only when every task it
    /// spawned has ended.
    ///
    /// # Errors
    /// When something keeps the process from starting; when it cannot continue ([`ManagerError::LeaseLost`] above all:
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
        let shards = self.config.shards.map(|_| ShardContext::default());
        let factory = self.factory(shards.as_ref());
        let prepared = self.prepare(&selected, &factory, shards.as_ref())?;
        self.set_up_runnables(&factory)?;
        self.explain(&prepared, &factory, shards.as_ref())?;
        self.triggers.refuse_undeclared();
        let Self { env, config, connect, metrics, health, pages, runnables, .. } = self;
        let (clients, election, stand) =
            connect_fenced(connect, &env, &config, &metrics, shards.as_ref(), &factory)?;
        let admin_parts = AdminServerDeps {
            metrics: metrics.clone(),
            health: health.clone(),
            pages,
            about: about(&config, election.as_ref(), holdings(&stand, config.shards, shards.as_ref())),
            reviews: clients.for_reviews()?,
        };
        let phase = ProcessPhase::new();
        let needs = CacheRequirements::of(&prepared);
        phase.add_checks(&health);
        needs.add_checks(&health);
        tell_tasks(&env, &metrics);
        add_liveness(&health, &stand, &factory);
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
        let means = RunnableDeps::of(&parts);
        let (everywhere, led): (Vec<_>, Vec<_>) =
            prepared.into_iter().partition(|one| one.descriptor().runs_on == RunsOn::EveryReplica);
        let everywhere = Controllers::new(parts.of_every_replica(), everywhere);
        let everywhere = ReplicaTeam::new(env.clone(), everywhere);
        let team = assemble_team(stand, led, parts);
        Ok(Process {
            api_server: clients.for_health(),
            election_client: clients.for_election()?,
            common: GroupContext { env: env.clone(), factory, runnables, means, election_events: None },
            team,
            everywhere,
            env,
            config,
            metrics,
            reader,
            admin_parts,
            admin: None,
            election_events: Recorders::default(),
            phase,
            needs,
            started: Vec::new(),
        })
    }

    /// Lets pages tell of what was prepared.
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
        self.explainer.fill(self.registry.descriptors(), prepared.iter().map(PreparedController::insight));
        Ok(())
    }

    fn factory(&self, shards: Option<&ShardContext>) -> InformerFactory {
        let period = self.config.cache.resync;
        let resync = (!period.is_zero()).then(|| self.env.rng("informer resync").jitter(period, 1.0));
        let shards = shards.map(|shards| shards.set.clone());
        let options = FactoryOptions { resync, shards, ..self.config.cache.factory() };
        InformerFactory::new(self.env.clone(), self.metrics.clone(), options)
    }

    /// Where controllers and runnables are set up.
    fn host(&self, factory: &InformerFactory) -> Host {
        let host = Host::new(self.env.clone(), self.metrics.clone(), factory.clone());
        Host { triggers: self.triggers.clone(), ..host }
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
        let prepare = |one: &Registration| {
            let controller = one.descriptor().name;
            let host = self.host(factory);
            let host = match shards.filter(|_| one.descriptor().runs_on == RunsOn::Leader) {
                Some(shards) => Host { ownership: shards.table.ownership(controller), ..host },
                None => host,
            };
            let prepared = one.prepare(host);
            let mut prepared = prepared.map_err(|source| ManagerError::Setup { controller, source })?;
            prepared.cache_sync_by_default(self.config.cache_sync);
            Ok(prepared)
        };
        selected.iter().map(prepare).collect()
    }
}

/// Shows how many tasks live whenever the metrics are gathered: a process that leaks one is seen before it is slow.
fn tell_tasks(env: &Env, metrics: &Metrics) {
    let (env, tasks) = (env.clone(), metrics.manager().tasks.clone());
    metrics.on_gather(Box::new(move || tasks.set(i64::try_from(env.tasks().len()).unwrap_or(i64::MAX))));
}

/// What opens the fence of the team.
#[expect(clippy::large_enum_variant, reason = "there is one per process, and it is moved once")]
enum LeadershipMode {
    /// Nothing: nobody is elected.
    Unopposed,
    /// Its lease.
    Elected(Election, DedicatedRuntime, Elector),
    /// The shards that are held.
    Sharded(ShardCoordinator, HealthCheck),
}

/// What there is for this replica to hold.
fn holdings(
    stand: &LeadershipMode,
    shards: Option<NonZeroU16>,
    context: Option<&ShardContext>,
) -> OwnershipReport {
    let holding = match stand {
        LeadershipMode::Unopposed => None,
        LeadershipMode::Elected(election, _, elector) => {
            Some(OwnershipSource::Lease(election.lease().to_string(), elector.leadership()))
        }
        LeadershipMode::Sharded(..) => context
            .zip(shards)
            .map(|(context, shards)| OwnershipSource::Shards(context.table.clone(), shards)),
    };
    holdings::shown(holding)
}

/// Returns the clients behind their fence, the election with its namespace, and what opens the fence.
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
    let stand = match (shards, sharding, election.clone()) {
        (Some(shards), Some(sharding), _) => shard(env, sharding, &clients, metrics, shards, factory)?,
        (_, _, Some(election)) => elect(env, election, &clients, leader_fence, metrics)?,
        (_, _, None) => LeadershipMode::Unopposed,
    };
    Ok((clients, election, stand))
}

/// Returns what opens the fence of a leader.
fn elect(
    env: &Env,
    election: Election,
    clients: &Clients,
    fence: Arc<LeaderFence>,
    metrics: &Metrics,
) -> Result<LeadershipMode, ManagerError> {
    let aside = env.dedicated_runtime("elections").map_err(ManagerError::NoThread)?;
    // What an elector's client keeps to itself belongs on the same thread.
    let (client, watch) = (aside.enter(|| clients.for_election())?, clients.for_informers()?);
    let elector = Elector::new(env.clone(), election.clone(), client, watch, fence, metrics)
        .map_err(ConfigError::Election)?;
    Ok(LeadershipMode::Elected(election, aside, elector))
}

/// Returns what opens the fences of the shards that are held.
fn shard(
    env: &Env,
    config: ShardsConfig,
    clients: &Clients,
    metrics: &Metrics,
    shards: &ShardContext,
    factory: &InformerFactory,
) -> Result<LeadershipMode, ManagerError> {
    let aside = env.dedicated_runtime("elections").map_err(ManagerError::NoThread)?;
    // What an elector's client keeps to itself belongs on the same thread.
    let (client, reader) = (aside.enter(|| clients.for_election())?, clients.for_informers()?);
    let lease = config.election.lease().to_string();
    let elector = ShardElector::new(env.clone(), config, client, reader.clone(), metrics)
        .map_err(ConfigError::Shards)?;
    let health = elector.health();
    let coordinator = ShardCoordinator::new(aside, elector, lease, shards.clone(), factory.clone(), reader);
    Ok(LeadershipMode::Sharded(coordinator, health))
}

fn assemble_team(
    stand: LeadershipMode,
    prepared: Vec<PreparedController>,
    parts: StartDeps,
) -> ControllerGroup {
    let (leadership, election) = match stand {
        LeadershipMode::Unopposed => (GroupLeadership::Always, None),
        LeadershipMode::Sharded(coordinator, _) => (GroupLeadership::Sharded(Box::new(coordinator)), None),
        LeadershipMode::Elected(election, aside, elector) => {
            let lease = election.lease().to_string();
            let standing = standing_by(lease.clone(), elector.leadership());
            prepared.iter().for_each(|one| one.insight().set_phase(standing.clone()));
            let elected = ElectedLeadership::new(parts.env.clone(), aside, lease, elector);
            (GroupLeadership::Elected(Box::new(elected)), Some(election))
        }
    };
    ControllerGroup {
        leadership,
        election,
        needs: CacheRequirements::of(&prepared),
        controllers: Controllers::new(parts, prepared),
        predecessor: None,
        takeover: None,
        caught_up: false,
        started: Vec::new(),
    }
}

/// A replica whose requests are not authenticated can neither lead nor stand by; a restart does not help.
pub(crate) fn add_credentials(health: &Health, clients: &Clients) {
    let clients = clients.clone();
    let check = move || clients.credentials_error().map_or(Ok(()), |error| Err(error.to_string()));
    health.ready("credentials", Arc::new(check));
}

/// What only a restart can mend. An API server that is away is not among it.
fn add_liveness(health: &Health, stand: &LeadershipMode, factory: &InformerFactory) {
    match stand {
        LeadershipMode::Unopposed => {}
        LeadershipMode::Elected(_, _, elector) => health.live("leaderElection", elector.health()),
        LeadershipMode::Sharded(_, check) => health.live("leaderElection", Arc::clone(check)),
    }
    let (died, silent) = (factory.clone(), factory.clone());
    health.live(
        "informers",
        Arc::new(move || match died.stopped_reflectors().first() {
            Some((kind, selection)) => Err(format!("the informer of {kind} ({selection}) has died")),
            None => Ok(()),
        }),
    );
    health.live(
        "watches",
        Arc::new(move || match silent.stalled().first() {
            Some((kind, stuck)) => Err(format!("the informer of {kind} has got nowhere for {stuck:?}")),
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
