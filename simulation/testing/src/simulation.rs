//! Runs a script in its own simulated world.

use std::collections::BTreeMap;
use std::fmt;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::{self, Either, LocalBoxFuture};
use tokio::runtime::{Builder, Handle};
use windlass_api_server::faults::{Fault, FaultAction, FaultPlan, Journal, Network, Server};
use windlass_api_server::{ApiServer, ApiServerOptions};
use windlass_client::ClientOptions;
use windlass_controller::FullObject;
use windlass_env::{Env, PollMonitor, catch_panic};
use windlass_manager::ManagerConfig;

use crate::cluster::{Cluster, replica_name};
use crate::exact_permissions::ExactPermissions;
use crate::oracle::Oracle;
use crate::ownership_gaps::OwnershipGaps;
use crate::plans::Faults;
use crate::probe::{CacheInspector, inspector_of};
use crate::state::ClusterState;
use crate::trace_excerpt::Trace;
use crate::violation::{SimulationFailure, Violation};
use crate::watchdog::Watchdog;
use crate::world::World;

/// Time for a cluster to become idle after the last fault: twice the longest key backoff of 1000 s, because the next
/// attempt can meet a stale cache, plus a margin.
const CONVERGENCE_TIMEOUT: Duration = Duration::from_secs(45 * 60);
/// Required time without writes: longer than a write can be in flight after the last fault, unless the server sent a
/// longer `Retry-After`.
const MIN_IDLE_TIME: Duration = Duration::from_secs(25);
/// Time for which the final state must stay unchanged.
const STABLE_TIME: Duration = Duration::from_secs(60);
/// Time for processes to stop gracefully: more than their shutdown timeout.
const STOP_TIMEOUT: Duration = Duration::from_secs(60);
/// Default number of kept records: about the last hour of a run.
const DEFAULT_JOURNAL_CAPACITY: usize = 20_000;

type Script<'a> = Box<dyn FnOnce(Cluster) -> LocalBoxFuture<'a, ()> + 'a>;
type MakeServer = Arc<dyn Fn(&Env) -> Arc<dyn Server> + Send + Sync>;

/// Definition of a simulation. Cheap to clone.
///
/// # Examples
/// ```
/// use windlass_testing::{FaultKind, Faults, Simulation};
///
/// // Three replicas under ten minutes of random crashes and lost messages.
/// let faults = Faults::only([FaultKind::Crash, FaultKind::Loss]);
/// let simulation = Simulation::new(7).minutes(10).replicas(3).faults(faults);
/// assert!(!simulation.fault_plan().faults.is_empty());
/// ```
#[derive(Clone)]
pub struct Simulation {
    seed: u64,
    span: Duration,
    faults: Faults,
    plan: Option<FaultPlan>,
    replicas: usize,
    config: ManagerConfig,
    resources: Vec<String>,
    cache_inspectors: Vec<CacheInspector>,
    convergence_timeout: Duration,
    checks_reads: bool,
    permissions: Option<Arc<ExactPermissions>>,
    server: MakeServer,
    journal_capacity: usize,
    max_virtual_time: Duration,
}

/// Result of a run without violations.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// Final state.
    pub state: ClusterState,
    /// Number of writes of the processes under test, without Leases and events.
    pub writes: u64,
    /// Number of requests of the processes under test, without Leases and watches.
    pub requests: u64,
    /// Number of creates of the processes under test, by resource, namespace and name or name prefix.
    pub created: BTreeMap<String, u64>,
    /// Durations for which shards had no active holder, with sharding.
    pub ownership_gaps: OwnershipGaps,
    /// Duration of the run in virtual time.
    pub virtual_duration: Duration,
    /// Number of faults in the plan.
    pub faults: u64,
    /// Number of these faults that began after the script had returned. No user changes objects then.
    pub faults_after_script: u64,
    /// Trace, if it was kept.
    pub trace: String,
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Report { writes, requests, virtual_duration, .. } = self;
        write!(f, "{writes} writes, {requests} requests, {} s of virtual time", virtual_duration.as_secs())
    }
}

impl Simulation {
    /// Returns a simulation whose runs use a new API server. `seed` determines all random choices.
    pub fn new(seed: u64) -> Self {
        Self::with_server(seed, |env| Arc::new(ApiServer::new(env, ApiServerOptions::default())))
    }

    /// Returns a simulation whose runs use this server. `seed` determines all random choices.
    pub fn with_server(seed: u64, server: impl Fn(&Env) -> Arc<dyn Server> + Send + Sync + 'static) -> Self {
        let resources = ["pods", "leases", "events"].map(str::to_owned).to_vec();
        Simulation {
            seed,
            span: Duration::from_secs(600),
            faults: Faults::none(),
            plan: None,
            replicas: 2,
            config: ManagerConfig::new("set per life"),
            resources,
            cache_inspectors: Vec::new(),
            convergence_timeout: CONVERGENCE_TIMEOUT,
            checks_reads: true,
            permissions: None,
            server: Arc::new(server),
            journal_capacity: DEFAULT_JOURNAL_CAPACITY,
            max_virtual_time: Duration::from_secs(6 * 3600),
        }
    }

    /// Sets the seed.
    #[must_use]
    pub fn with_seed(self, seed: u64) -> Self {
        Simulation { seed, ..self }
    }

    /// Sets the duration of faults in minutes. Default 10.
    #[must_use]
    pub fn minutes(self, minutes: u64) -> Self {
        self.fault_duration(Duration::from_secs(minutes * 60))
    }

    /// Sets the duration of faults in hours.
    #[must_use]
    pub fn hours(self, hours: u64) -> Self {
        self.fault_duration(Duration::from_secs(hours * 3600))
    }

    /// Sets the duration of faults in days.
    #[must_use]
    pub fn days(self, days: u64) -> Self {
        self.fault_duration(Duration::from_secs(days * 24 * 3600))
    }

    /// Sets the duration of faults.
    #[must_use]
    pub fn fault_duration(self, span: Duration) -> Self {
        Simulation { span, ..self }
    }

    /// Sets the kinds of faults that are generated from the seed. Default none.
    #[must_use]
    pub fn faults(self, faults: Faults) -> Self {
        Simulation { faults, ..self }
    }

    /// Uses a given plan instead of random faults, for example a plan from a failure message.
    #[must_use]
    pub fn plan(self, plan: FaultPlan) -> Self {
        Simulation { seed: plan.seed, plan: Some(plan), ..self }
    }

    /// Sets the number of processes that run the controllers. Default 2, of which one leads. A single process needs no
    /// election.
    #[must_use]
    pub fn replicas(self, replicas: usize) -> Self {
        Simulation { replicas, ..self }
    }

    /// Changes the configuration of the processes. The identity is set for each incarnation.
    #[must_use]
    pub fn with_config(mut self, change: impl FnOnce(&mut ManagerConfig)) -> Self {
        change(&mut self.config);
        self
    }

    /// Adds resources, by plural name, to pods, leases and events. A fault that targets one resource picks it from this
    /// list; other faults affect all requests.
    #[must_use]
    pub fn resources<S: Into<String>>(mut self, resources: impl IntoIterator<Item = S>) -> Self {
        self.resources.extend(resources.into_iter().map(Into::into));
        self
    }

    /// Compares the caches of `K` in every process with the objects of the server at the end. The processes then watch
    /// `K`.
    #[must_use]
    pub fn caches_of<K: FullObject>(mut self) -> Self {
        self.cache_inspectors.push(inspector_of::<K>());
        self
    }

    /// Sets the time after the last fault for the cluster to become idle in the expected state, and for the conditions
    /// that the script [waits for](Cluster::eventually). Default 45 minutes: twice the longest key backoff of 1000 s,
    /// because the next attempt can meet a stale cache, plus a margin. Less is enough after faults that are too short
    /// for such a backoff.
    #[must_use]
    pub fn convergence_timeout(self, time: Duration) -> Self {
        Simulation { convergence_timeout: time, ..self }
    }

    /// Sets whether the oracle checks cache reads: when a reconcile begins, the caches of its controller must contain
    /// all earlier writes of its key that took effect. Default true.
    #[must_use]
    pub fn with_read_checks(self, checks_reads: bool) -> Self {
        Simulation { checks_reads, ..self }
    }

    /// Restricts each process under test to the roles of its [manifests](windlass_manager::Manifests). A run fails if
    /// the server denies a request. A campaign fails if a setup declares a rule that none of its runs used. Rules that
    /// the runtime adds (events, the election, `list` next to `watch`, finalizers of owners) are exempt.
    #[must_use]
    pub fn exact_permissions(self) -> Self {
        Simulation { permissions: Some(Arc::default()), ..self }
    }

    /// Keeps the whole trace for [`Report::trace`]. By default only its end is kept, for failures.
    #[must_use]
    pub fn with_full_trace(self) -> Self {
        Simulation { journal_capacity: usize::MAX, ..self }
    }

    /// Runs a script.
    ///
    /// A run is limited to 6 h of virtual time or twice the [duration of faults](Self::fault_duration), whichever is
    /// longer, plus 90 min. A script that takes longer fails with [`Violation::VirtualTimeLimit`]: raise the duration
    /// of faults.
    ///
    /// # Errors
    /// Returns the first violation of any oracle.
    #[expect(clippy::result_large_err, reason = "a failure ends a test, and is moved once")]
    pub fn run(&self, script: impl AsyncFnOnce(Cluster)) -> Result<Report, SimulationFailure> {
        self.run_compared_to(None, script)
    }

    /// Runs a script and compares the result with a run without faults, if one is given.
    ///
    /// # Errors
    /// Returns the first violation of any oracle.
    #[expect(clippy::result_large_err, reason = "a failure ends a test, and is moved once")]
    pub fn run_compared_to(
        &self,
        expected: Option<&Report>,
        script: impl AsyncFnOnce(Cluster),
    ) -> Result<Report, SimulationFailure> {
        let plan = self.fault_plan();
        let journal_of =
            |oracle: &Arc<Oracle>| Journal::new(self.journal_capacity, Some(Arc::clone(oracle) as _));
        let oracle = Oracle::new();
        let journal = journal_of(&oracle);
        let failed = |FailedRun { violation, unfinished }| SimulationFailure {
            violation,
            unfinished,
            plan: plan.clone(),
            trace: Trace::of(&journal.records(), |instance| {
                (0..self.replicas).any(|replica| replica_name(replica) == instance)
            }),
        };
        let runtime = Builder::new_current_thread().enable_time().start_paused(true).build();
        let runtime = runtime.map_err(|error| failed(Violation::Panicked(error.to_string()).into()))?;
        // Boxed, so that the code below is compiled once and not once per script.
        let script: Script<'_> = Box::new(|cluster| Box::pin(script(cluster)));
        let result = runtime.block_on(self.drive(&plan, &oracle, &journal, expected, script));
        let mut report = result.map_err(failed)?;
        if self.journal_capacity == usize::MAX {
            report.trace = journal.lines();
        }
        Ok(report)
    }

    /// Fails if a setup declares a rule that no run has used, with exact permissions.
    pub(crate) fn check_unused(&self) -> Result<(), Box<SimulationFailure>> {
        match self.permissions.as_ref().and_then(|permissions| permissions.unused()) {
            Some(violation) => {
                let (unfinished, plan) = (Vec::new(), self.fault_plan());
                Err(Box::new(SimulationFailure { violation, unfinished, plan, trace: Trace::default() }))
            }
            None => Ok(()),
        }
    }

    /// Returns the plan that a run follows.
    pub fn fault_plan(&self) -> FaultPlan {
        self.plan
            .clone()
            .unwrap_or_else(|| self.faults.plan(self.seed, self.span, self.replicas, &self.resources))
    }

    async fn drive(
        &self,
        plan: &FaultPlan,
        oracle: &Arc<Oracle>,
        journal: &Journal,
        expected: Option<&Report>,
        script: Script<'_>,
    ) -> Result<Report, FailedRun> {
        let alive = Handle::current().metrics().num_alive_tasks();
        let poll_monitor = PollMonitor::new();
        let _watchdog = Watchdog::over(poll_monitor.clone(), plan.to_string());
        let env = Env::virtual_time(plan.seed).with_poll_monitor(&poll_monitor);
        let (served, user) = (env.with_incarnation("server", 0), env.with_incarnation("user", 0));
        let network = Network::new(&env, (self.server)(&served), plan.clone(), journal.clone());
        let others = vec![user.clone(), served];
        let world = World::new(
            env.clone(),
            network,
            Arc::clone(oracle),
            self.cache_inspectors.clone(),
            (self.convergence_timeout, self.checks_reads),
            self.permissions.clone(),
            others,
        );
        let result = {
            let cluster = Cluster::new(&world, user, self.replicas, self.config());
            let work = catch_panic(async {
                script(cluster).await;
                let script_end = world.env.now().since_origin();
                conclude(&world, script_end, expected).await
            });
            let max_virtual_time =
                self.max_virtual_time.max(self.span * 2).max(plan.end() * 2) + CONVERGENCE_TIMEOUT * 2;
            let broken = first_of(
                async { Err(oracle.wait_for_violation().await) },
                first_of(
                    async { Err(Violation::Livelock { task: poll_monitor.livelocked().await.to_string() }) },
                    async {
                        env.sleep(max_virtual_time).await;
                        Err(Violation::VirtualTimeLimit(max_virtual_time))
                    },
                ),
            );
            let done = async { work.await.unwrap_or_else(|message| Err(Violation::Panicked(message))) };
            first_of(broken, done).await
        };
        if let Some(permissions) = &self.permissions {
            permissions.add(world.network.server().used());
        }
        let result = result.map_err(|violation| FailedRun { violation, unfinished: world.unfinished() });
        world.end();
        drop(world);
        let left = left_behind(&env, alive).await;
        // A violation might have been reported at the very end.
        let report = result.and_then(|report| oracle.found().map_or(Ok(report), |it| Err(it.into())))?;
        match left {
            0 => Ok(report),
            tasks => {
                let tasks = format!("{tasks} tasks");
                Err(Violation::LeakedTasks { process: "the run".into(), tasks }.into())
            }
        }
    }

    fn config(&self) -> ManagerConfig {
        let mut config = self.config.clone();
        if self.replicas < 2 {
            config.election = None;
        }
        config
    }
}

/// A violation, and the failing keys at its time.
struct FailedRun {
    violation: Violation,
    unfinished: Vec<String>,
}

impl From<Violation> for FailedRun {
    fn from(violation: Violation) -> Self {
        Self { violation, unfinished: Vec::new() }
    }
}

async fn first_of<T>(one: impl Future<Output = T>, other: impl Future<Output = T>) -> T {
    match future::select(pin!(one), pin!(other)).await {
        Either::Left((result, _)) | Either::Right((result, _)) => result,
    }
}

/// Runs the final checks: state reached, state kept, and no excess work.
async fn conclude(
    world: &Arc<World>,
    script_end: Duration,
    expected: Option<&Report>,
) -> Result<Report, Violation> {
    world.env.sleep_until(windlass_env::Instant::ORIGIN + world.plan.end()).await;
    let state = wait_for_convergence(world, expected).await?;
    check_unchanged(world, &state).await?;
    let faults = &world.plan.faults;
    let is_late = |fault: &&Fault| Duration::from_millis(fault.from_ms) >= script_end;
    let report = Report {
        state,
        writes: world.network.writes(),
        requests: world.oracle.requests(),
        created: world.oracle.created(),
        ownership_gaps: world.oracle.ownership_gaps(),
        virtual_duration: world.env.now().since_origin(),
        faults: faults.len() as u64,
        faults_after_script: faults.iter().filter(is_late).count() as u64,
        trace: String::new(),
    };
    if let Some(expected) = expected {
        compare(world, &report, expected)?;
    }
    if !world.stop(STOP_TIMEOUT).await {
        return Err(Violation::NotStopped(STOP_TIMEOUT));
    }
    Ok(report)
}

async fn wait_for_convergence(
    world: &Arc<World>,
    expected: Option<&Report>,
) -> Result<ClusterState, Violation> {
    let begun = world.env.now().since_origin();
    let work = world.oracle.work();
    let longest_rest = MIN_IDLE_TIME + longest_retry_after(&world.plan).max(longest_silence(&world.plan));
    loop {
        let now = world.env.now().since_origin();
        let elapsed = now.saturating_sub(begun);
        // Idle time before the last fault proves nothing: the fault can cost a replica its Lease, and a new one acts.
        let rest = now.saturating_sub(world.oracle.last_work().max(begun));
        if let Some(violation) = expected.and_then(|expected| created_too_often(world, expected)) {
            return Err(violation);
        }
        let violation = if rest < longest_rest {
            let writes = world.oracle.work() - work;
            Some(Violation::NotConverged { writes, elapsed })
        } else {
            let state = ClusterState::from_objects(&world.network.objects());
            match expected.map(|expected| state.difference(&expected.state)).filter(|it| !it.is_empty()) {
                Some(difference) => {
                    Some(Violation::StateDiffers { after: elapsed, difference: difference.to_string() })
                }
                None => match world.find_cache_difference() {
                    None => return Ok(state),
                    violation => violation,
                },
            }
        };
        if let Some(violation) = violation.filter(|_| elapsed >= world.convergence_timeout) {
            return Err(violation);
        }
        // Checks are expensive, and a state that is not reached soon takes minutes.
        let pause =
            if rest < longest_rest { longest_rest - rest } else { (elapsed / 4).max(Duration::from_secs(5)) };
        world.env.sleep(pause.max(Duration::from_millis(1))).await;
    }
}

/// Returns the longest `Retry-After` of the plan's faults. Values of a few seconds are within [`MIN_IDLE_TIME`].
fn longest_retry_after(plan: &FaultPlan) -> Duration {
    let waits = plan.faults.iter().filter_map(|fault| match fault.action {
        FaultAction::TooManyRequests { retry_after_seconds } => Some(u64::from(retry_after_seconds)),
        _ => None,
    });
    Duration::from_secs(waits.max().filter(|seconds| *seconds > 5).unwrap_or_default())
}

/// Returns the time after which a client repeats a write whose response was lost silently: the request timeout.
fn longest_silence(plan: &FaultPlan) -> Duration {
    let is_silent = |fault: &Fault| {
        matches!(
            fault.action,
            FaultAction::RequestLost { silently: true }
                | FaultAction::ResponseLost { silently: true }
                | FaultAction::HalfOpen
                | FaultAction::ServerDies
        )
    };
    if plan.faults.iter().any(is_silent) { ClientOptions::default().request_timeout } else { Duration::ZERO }
}

async fn check_unchanged(world: &Arc<World>, state: &ClusterState) -> Result<(), Violation> {
    let work = world.oracle.work();
    world.env.sleep(STABLE_TIME).await;
    let more = world.oracle.work() - work;
    if more > 0 {
        return Err(Violation::StateChanged(format!("{more} writes in {STABLE_TIME:?}")));
    }
    let difference = ClusterState::from_objects(&world.network.objects()).difference(state);
    if difference.is_empty() { Ok(()) } else { Err(Violation::StateChanged(difference.to_string())) }
}

/// Compares a run with faults against the limits derived from the run without faults.
fn compare(world: &World, report: &Report, expected: &Report) -> Result<(), Violation> {
    let plan = &world.plan;
    if let Some(violation) = created_too_often(world, expected) {
        return Err(violation);
    }
    // A fault costs attempts: a backoff permits about a dozen per minute for each key or watch, and a crash repeats a
    // whole start.
    let minutes = plan.end().as_secs() / 60 + 1;
    let limit = expected.requests * 10 + 200 * plan.faults.len() as u64 + 100 * minutes;
    if report.requests > limit {
        return Err(Violation::TooManyRequests { requests: report.requests, limit });
    }
    Ok(())
}

fn created_too_often(world: &World, expected: &Report) -> Option<Violation> {
    world.oracle.created().iter().find_map(|(object, count)| {
        let expected = expected.created.get(object).copied().unwrap_or_default();
        (*count > expected).then(|| Violation::CreatedTooOften {
            object: object.clone(),
            count: *count,
            expected,
        })
    })
}

/// Returns the number of tasks that remain after the world ended, beyond `before`.
async fn left_behind(env: &Env, before: usize) -> usize {
    env.wait_for_tasks().await;
    // A task whose handle was dropped ends at its next poll, such as the nested buffers of kube.
    for _ in 0..1_000 {
        if Handle::current().metrics().num_alive_tasks() <= before {
            return 0;
        }
        tokio::task::yield_now().await;
    }
    Handle::current().metrics().num_alive_tasks() - before
}

impl fmt::Debug for Simulation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Simulation")
            .field("seed", &self.seed)
            .field("span", &self.span)
            .field("faults", &self.faults)
            .field("plan", &self.plan)
            .field("replicas", &self.replicas)
            .finish_non_exhaustive()
    }
}
