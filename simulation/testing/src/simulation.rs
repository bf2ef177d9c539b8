//! Running a script in its own world.

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
use windlass_controller::Watchable;
use windlass_env::{Env, PollMonitor, catch_panic};
use windlass_manager::ManagerConfig;

use crate::cluster::Cluster;
use crate::exact::ExactRights;
use crate::oracle::Oracle;
use crate::ownership_gaps::OwnershipGaps;
use crate::plans::Faults;
use crate::probe::{CacheInspector, look_at};
use crate::state::ClusterState;
use crate::trace_excerpt;
use crate::violation::{SimulationFailure, Violation};
use crate::watchdog::Watchdog;
use crate::world::World;

/// How long after the last fault a cluster may take to come to rest: the longest back-off of a key is 1000 s, twice
/// over if its next attempt meets a cache that is still behind, and some.
const CONVERGES: Duration = Duration::from_secs(45 * 60);
/// For how long nothing is written by then: longer than a write is on its way under the last fault, unless the server
/// told its client to wait longer.
const REST: Duration = Duration::from_secs(25);
/// For how long the state that was reached has to be kept.
const KEPT: Duration = Duration::from_secs(60);
/// How long processes may take to stop in order: more than their own shutdown timeout.
const STOPS: Duration = Duration::from_secs(60);
/// How many records a run keeps by default: those of the last hour or so.
const KEPT_RECORDS: usize = 20_000;

type Script<'a> = Box<dyn FnOnce(Cluster) -> LocalBoxFuture<'a, ()> + 'a>;
type MakeServer = Arc<dyn Fn(&Env) -> Arc<dyn Server> + Send + Sync>;

/// What to simulate. Cheap to clone.
#[derive(Clone)]
pub struct Simulation {
    seed: u64,
    span: Duration,
    faults: Faults,
    plan: Option<FaultPlan>,
    replicas: usize,
    config: ManagerConfig,
    resources: Vec<String>,
    looks: Vec<CacheInspector>,
    converges: Duration,
    judges_reads: bool,
    rights: Option<Arc<ExactRights>>,
    server: MakeServer,
    kept_records: usize,
    longest: Duration,
}

/// What a run that nobody objected to was like.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// The state in the end.
    pub state: ClusterState,
    /// How many writes left the processes under test, leases and events apart.
    pub writes: u64,
    /// How many requests did, leases and watches apart.
    pub requests: u64,
    /// What they created, and how often: by resource, namespace and name or prefix of the name.
    pub created: BTreeMap<String, u64>,
    /// For how long shards had nobody who works on them, where replicas share any.
    pub vacancies: OwnershipGaps,
    /// How long the run took, in virtual time.
    pub lasted: Duration,
    /// The trace, if it was kept.
    pub trace: String,
}

impl Simulation {
    /// A world with a fresh API server, in which everything follows from `seed`.
    pub fn of(seed: u64) -> Self {
        Self::on(seed, |env| Arc::new(ApiServer::new(env, ApiServerOptions::default())))
    }

    /// A world on this server, in which everything follows from `seed`.
    pub fn on(seed: u64, server: impl Fn(&Env) -> Arc<dyn Server> + Send + Sync + 'static) -> Self {
        let resources = ["pods", "leases", "events"].map(str::to_owned).to_vec();
        Simulation {
            seed,
            span: Duration::from_secs(600),
            faults: Faults::none(),
            plan: None,
            replicas: 2,
            config: ManagerConfig::new("set per life"),
            resources,
            looks: Vec::new(),
            converges: CONVERGES,
            judges_reads: true,
            rights: None,
            server: Arc::new(server),
            kept_records: KEPT_RECORDS,
            longest: Duration::from_secs(6 * 3600),
        }
    }

    /// The same world with another seed.
    #[must_use]
    pub fn with_seed(self, seed: u64) -> Self {
        Simulation { seed, ..self }
    }

    /// Faults continue for this many minutes. Default 10.
    #[must_use]
    pub fn minutes(self, minutes: u64) -> Self {
        self.lasting(Duration::from_secs(minutes * 60))
    }

    /// Faults continue for this many days.
    #[must_use]
    pub fn days(self, days: u64) -> Self {
        self.lasting(Duration::from_secs(days * 24 * 3600))
    }

    /// Faults continue for this long.
    #[must_use]
    pub fn lasting(self, span: Duration) -> Self {
        Simulation { span, ..self }
    }

    /// Which faults are drawn from the seed. Default none.
    #[must_use]
    pub fn faults(self, faults: Faults) -> Self {
        Simulation { faults, ..self }
    }

    /// Faults that were thought out, or printed by a run that failed, instead of random ones.
    #[must_use]
    pub fn plan(self, plan: FaultPlan) -> Self {
        Simulation { seed: plan.seed, plan: Some(plan), ..self }
    }

    /// How many processes run the controllers, of which one leads. Default 2. One alone needs no election.
    #[must_use]
    pub fn replicas(self, replicas: usize) -> Self {
        Simulation { replicas, ..self }
    }

    /// Changes what the processes are configured with. The identity is set for each life.
    #[must_use]
    pub fn with_config(mut self, change: impl FnOnce(&mut ManagerConfig)) -> Self {
        change(&mut self.config);
        self
    }

    /// Resources that single faults may be about, by plural name, next to pods, leases and events.
    #[must_use]
    pub fn resources<S: Into<String>>(mut self, resources: impl IntoIterator<Item = S>) -> Self {
        self.resources.extend(resources.into_iter().map(Into::into));
        self
    }

    /// Compares the caches of `K` in every process with what the server holds, in the end. The processes watch `K` then.
    #[must_use]
    pub fn caches_of<K: Watchable>(mut self) -> Self {
        self.looks.push(look_at::<K>());
        self
    }

    /// How long after the last fault the cluster may take to come to rest in the state it should be in, and whatever
    /// the script [waits for](Cluster::eventually) to come true. Default 45 minutes: the longest back-off of a key is
    /// 1000 s, twice over if its next attempt meets a cache that is still behind, and some. Less is enough after
    /// faults too short for such a back-off.
    #[must_use]
    pub fn convergence_timeout(self, time: Duration) -> Self {
        Simulation { converges: time, ..self }
    }

    /// Whether each reconcile is judged by what its key wrote before: when it begins, the caches of its controller must
    /// contain each of these writes that took effect.
    #[must_use]
    pub fn judging_reads(self, judges_reads: bool) -> Self {
        Simulation { judges_reads, ..self }
    }

    /// Gives each process under test the roles of its [manifests](windlass_manager::Manifests) and nothing else: a run fails
    /// if the server denies a request. A campaign fails if a setup declares a rule that none of its runs used. Rules that
    /// the runtime adds (events, the election, `list` next to `watch`, finalizers of owners) do not count.
    #[must_use]
    pub fn exact_rights(self) -> Self {
        Simulation { rights: Some(Arc::default()), ..self }
    }

    /// Keeps the whole trace for [`Report::trace`]. By default only the end of it is kept, for failures.
    #[must_use]
    pub fn with_full_trace(self) -> Self {
        Simulation { kept_records: usize::MAX, ..self }
    }

    /// Runs a script.
    ///
    /// # Errors
    /// With the first objection of any oracle.
    #[expect(clippy::result_large_err, reason = "a failure ends a test, and is moved once")]
    pub fn run(&self, script: impl AsyncFnOnce(Cluster)) -> Result<Report, SimulationFailure> {
        self.run_compared_to(None, script)
    }

    /// Runs a script and compares with a run without faults, if one is given.
    ///
    /// # Errors
    /// With the first objection of any oracle.
    #[expect(clippy::result_large_err, reason = "a failure ends a test, and is moved once")]
    pub fn run_compared_to(
        &self,
        expected: Option<&Report>,
        script: impl AsyncFnOnce(Cluster),
    ) -> Result<Report, SimulationFailure> {
        let plan = self.fault_plan();
        let journal_of = |judge: &Arc<Oracle>| Journal::new(self.kept_records, Some(Arc::clone(judge) as _));
        let judge = Oracle::new();
        let journal = journal_of(&judge);
        let failed = |flaw| SimulationFailure {
            flaw,
            plan: plan.clone(),
            trace: trace_excerpt::excerpt(&journal.records()),
        };
        let runtime = Builder::new_current_thread().enable_time().start_paused(true).build();
        let runtime = runtime.map_err(|error| failed(Violation::Panicked(error.to_string())))?;
        // Boxed, so that all of what follows is compiled once, and not once for every script.
        let script: Script<'_> = Box::new(|cluster| Box::pin(script(cluster)));
        let result = runtime.block_on(self.drive(&plan, &judge, &journal, expected, script));
        let mut report = result.map_err(failed)?;
        if self.kept_records == usize::MAX {
            report.trace = journal.lines();
        }
        Ok(report)
    }

    /// Fails if no run so far used a rule that a setup declares, where rights are exact.
    pub(crate) fn check_unused(&self) -> Result<(), Box<SimulationFailure>> {
        match self.rights.as_ref().and_then(|rights| rights.unused()) {
            Some(flaw) => {
                Err(Box::new(SimulationFailure { flaw, plan: self.fault_plan(), trace: String::new() }))
            }
            None => Ok(()),
        }
    }

    /// The plan that a run follows.
    pub fn fault_plan(&self) -> FaultPlan {
        self.plan
            .clone()
            .unwrap_or_else(|| self.faults.plan(self.seed, self.span, self.replicas, &self.resources))
    }

    async fn drive(
        &self,
        plan: &FaultPlan,
        judge: &Arc<Oracle>,
        journal: &Journal,
        expected: Option<&Report>,
        script: Script<'_>,
    ) -> Result<Report, Violation> {
        let alive = Handle::current().metrics().num_alive_tasks();
        let vigil = PollMonitor::new();
        let _watchdog = Watchdog::over(vigil.clone(), plan.to_string());
        let env = Env::virtual_time(plan.seed).with_poll_monitor(&vigil);
        let (served, user) = (env.with_incarnation("server", 0), env.with_incarnation("user", 0));
        let network = Network::new(&env, (self.server)(&served), plan.clone(), journal.clone());
        let others = vec![user.clone(), served];
        let world = World::new(
            env.clone(),
            network,
            Arc::clone(judge),
            self.looks.clone(),
            (self.converges, self.judges_reads),
            self.rights.clone(),
            others,
        );
        let result = {
            let cluster = Cluster::new(&world, user, self.replicas, self.config());
            let work = catch_panic(async {
                script(cluster).await;
                conclude(&world, expected).await
            });
            let longest = self.longest.max(self.span * 2).max(plan.end() * 2) + CONVERGES * 2;
            let broken = first_of(
                async { Err(judge.objection().await) },
                first_of(
                    async { Err(Violation::Frozen { task: vigil.livelocked().await.to_string() }) },
                    async {
                        env.sleep(longest).await;
                        Err(Violation::TooLong(longest))
                    },
                ),
            );
            let done = async { work.await.unwrap_or_else(|message| Err(Violation::Panicked(message))) };
            first_of(broken, done).await
        };
        if let Some(rights) = &self.rights {
            rights.add(world.network.server().used());
        }
        world.end();
        drop(world);
        let left = left_behind(&env, alive).await;
        // An objection may have been made in the very last moment.
        let report = result.and_then(|report| judge.found().map_or(Ok(report), Err))?;
        match left {
            0 => Ok(report),
            tasks => Err(Violation::LeftBehind { who: "the run".into(), tasks: format!("{tasks} tasks") }),
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

async fn first_of<T>(one: impl Future<Output = T>, other: impl Future<Output = T>) -> T {
    match future::select(pin!(one), pin!(other)).await {
        Either::Left((result, _)) | Either::Right((result, _)) => result,
    }
}

/// The oracles of the end: reached, kept, and nothing more than was needed.
async fn conclude(world: &Arc<World>, expected: Option<&Report>) -> Result<Report, Violation> {
    world.env.sleep_until(windlass_env::Instant::ORIGIN + world.plan.end()).await;
    let state = reach(world, expected).await?;
    keep(world, &state).await?;
    let report = Report {
        state,
        writes: world.network.writes(),
        requests: world.judge.requests(),
        created: world.judge.created(),
        vacancies: world.judge.vacancies(),
        lasted: world.env.now().since_origin(),
        trace: String::new(),
    };
    if let Some(expected) = expected {
        compare(world, &report, expected)?;
    }
    if !world.stop(STOPS).await {
        return Err(Violation::LeftBehind {
            who: "a process that was told to stop".into(),
            tasks: "itself".into(),
        });
    }
    Ok(report)
}

async fn reach(world: &Arc<World>, expected: Option<&Report>) -> Result<ClusterState, Violation> {
    let begun = world.env.now().since_origin();
    let work = world.judge.work();
    let longest_rest = REST + longest_retry_after(&world.plan).max(longest_silence(&world.plan));
    loop {
        let now = world.env.now().since_origin();
        let over = now.saturating_sub(begun);
        let rest = now.saturating_sub(world.judge.last_work());
        if let Some(flaw) = expected.and_then(|expected| created_twice(world, expected)) {
            return Err(flaw);
        }
        let objection = if rest < longest_rest {
            let writes = world.judge.work() - work;
            Some(Violation::Restless { writes, over })
        } else {
            let state = ClusterState::of(&world.network.objects());
            match expected.map(|expected| state.difference(&expected.state)).filter(|it| !it.is_empty()) {
                Some(difference) => {
                    Some(Violation::Differs { after: over, difference: difference.to_string() })
                }
                None => match world.odd_cache() {
                    None => return Ok(state),
                    objection => objection,
                },
            }
        };
        if let Some(objection) = objection.filter(|_| over >= world.converges) {
            return Err(objection);
        }
        // Looking costs more than waiting: what is not there soon takes minutes.
        let pause =
            if rest < longest_rest { longest_rest - rest } else { (over / 4).max(Duration::from_secs(5)) };
        world.env.sleep(pause.max(Duration::from_millis(1))).await;
    }
}

/// The longest wait that a fault tells clients of. Plans of a few seconds are within [`REST`].
fn longest_retry_after(plan: &FaultPlan) -> Duration {
    let waits = plan.faults.iter().filter_map(|fault| match fault.what {
        FaultAction::TooManyRequests { retry_after_seconds } => Some(u64::from(retry_after_seconds)),
        _ => None,
    });
    Duration::from_secs(waits.max().filter(|seconds| *seconds > 5).unwrap_or_default())
}

/// After how long a write is sent again whose answer a fault loses silently: the request timeout.
fn longest_silence(plan: &FaultPlan) -> Duration {
    let is_silent = |fault: &Fault| {
        matches!(
            fault.what,
            FaultAction::RequestLost { silently: true }
                | FaultAction::ResponseLost { silently: true }
                | FaultAction::HalfOpen
                | FaultAction::ServerDies
        )
    };
    if plan.faults.iter().any(is_silent) { ClientOptions::default().request_timeout } else { Duration::ZERO }
}

async fn keep(world: &Arc<World>, state: &ClusterState) -> Result<(), Violation> {
    let work = world.judge.work();
    world.env.sleep(KEPT).await;
    let more = world.judge.work() - work;
    if more > 0 {
        return Err(Violation::NotKept(format!("{more} writes in {KEPT:?}")));
    }
    let difference = ClusterState::of(&world.network.objects()).difference(state);
    if difference.is_empty() { Ok(()) } else { Err(Violation::NotKept(difference.to_string())) }
}

/// What a run with faults may do more than one without.
fn compare(world: &World, report: &Report, expected: &Report) -> Result<(), Violation> {
    let plan = &world.plan;
    if let Some(flaw) = created_twice(world, expected) {
        return Err(flaw);
    }
    // What a fault costs is attempts: a back-off allows for a dozen in a minute per key or watch, and a crash for the
    // whole of a start.
    let minutes = plan.end().as_secs() / 60 + 1;
    let bound = expected.requests * 10 + 200 * plan.faults.len() as u64 + 100 * minutes;
    if report.requests > bound {
        return Err(Violation::TooManyRequests { requests: report.requests, bound });
    }
    Ok(())
}

fn created_twice(world: &World, expected: &Report) -> Option<Violation> {
    world.judge.created().iter().find_map(|(what, times)| {
        let expected = expected.created.get(what).copied().unwrap_or_default();
        (*times > expected).then(|| Violation::CreatedTwice { what: what.clone(), times: *times, expected })
    })
}

/// How many tasks are left of a world that has ended, beyond those that were there before.
async fn left_behind(env: &Env, before: usize) -> usize {
    env.wait_for_tasks().await;
    // Whoever was told to end by a dropped handle ends at its next poll: kube's buffers, one after the other.
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
