//! A simulated world: a server, links, processes and the oracle.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures_util::FutureExt as _;
use http::HeaderValue;
use jiff::SignedDuration;
use windlass_api_server::faults::{Fault, FaultAction, FaultPlan, Network, ProcessId};
use windlass_controller::host::{ControllerOverview, ControllerState, InProcessWebhooks};
use windlass_controller::{Registration, WebhookConfig};
use windlass_election::Election;
use windlass_env::{Env, Instant, Task, TaskError};
use windlass_manager::{Explainer, Manager, ManagerConfig, ManagerError, ShutdownSignals, ShutdownTrigger};

use crate::exact_permissions::{ExactPermissions, UserLink};
use crate::local::{over, webhook_address, webhook_handler, webhooks_in_process};
use crate::oracle::{Candidate, Oracle, identity};
use crate::ownership_gaps::LeaseTimings;
use crate::permissions::undeclared;
use crate::probe::{self, CacheInspector, Caches};
use crate::read_checks::with_read_checks;
use crate::reconcile_checks::{CheckedLink, with_reconcile_checks};
use crate::violation::Violation;

/// Restart delay of a process, unless a fault sets a longer one; about the time a kubelet needs.
const RESTART_DELAY: Duration = Duration::from_secs(1);

/// Time after a fault during which it can still delay a process: a request affected at the last moment times out after
/// 30 s, and the shutdown timeout follows.
const FAULT_AFTERMATH: Duration = Duration::from_secs(60);

/// Interval between the checks for shards without an active holder.
const SHARD_CHECK_INTERVAL: Duration = Duration::from_millis(100);

/// Default namespace of clients from a service.
const NAMESPACE: &str = "default";

/// State of one run.
pub(crate) struct World {
    pub(crate) env: Env,
    pub(crate) network: Network,
    pub(crate) oracle: Arc<Oracle>,
    pub(crate) plan: FaultPlan,
    pub(crate) cache_inspectors: Vec<CacheInspector>,
    pub(crate) convergence_timeout: Duration,
    checks_reads: bool,
    pub(crate) permissions: Option<Arc<ExactPermissions>>,
    /// Envs of the server and of the user, which exist as long as the world.
    others: Vec<Env>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    processes: BTreeMap<String, RunningProcess>,
    supervisors: Vec<Task<()>>,
    down_until: BTreeMap<String, Duration>,
    stopping: bool,
    watches_shards: bool,
}

/// A process that is restarted until the world ends.
pub(crate) struct Process {
    pub(crate) name: String,
    pub(crate) registrations: Vec<Registration>,
    pub(crate) config: ManagerConfig,
    /// Whether the plan's faults and the oracle apply to it.
    pub(crate) tested: bool,
}

/// Current incarnation of a process.
#[derive(Clone)]
struct RunningProcess {
    env: Env,
    trigger: ShutdownTrigger,
    caches: Caches,
    explainer: Explainer,
    tested: bool,
    /// Number of stop signals from the script.
    terminated: u32,
    webhooks: InProcessWebhooks,
}

impl Process {
    /// Returns its election parameters if it is a candidate, for a clock of this rate and the fastest clock of all.
    fn candidate(&self, rate: (u32, u32), fastest: (u32, u32)) -> Option<Candidate> {
        let Election { namespace, config: election } = self.config.election.clone()?.resolve(NAMESPACE);
        let is_sharded = self.config.shards.is_some();
        Some(Candidate {
            deadline: true_time(election.renew_deadline, rate),
            lease_duration: true_time(election.lease_duration, fastest),
            lease: (namespace, election.lease_name),
            is_sharded,
        })
    }
}

impl World {
    /// Runs a process until the world ends.
    pub(crate) fn start(self: &Arc<Self>, process: Process) {
        let machine = self.machine(&process.name);
        if process.tested {
            let rate = self.rate(&process.name);
            self.oracle.add_process(&process.name, process.candidate(rate, self.fastest()));
            self.watch_shards(&process);
        }
        self.schedule(&process.name, &machine);
        let name = format!("supervisor of {}", process.name);
        let supervisor = self.env.spawn(name, Arc::clone(self).supervise(process, machine));
        self.lock().supervisors.push(supervisor);
    }

    /// Registers a process that uses sharding with the oracle, and starts the periodic check of shards.
    fn watch_shards(self: &Arc<Self>, process: &Process) {
        let Some((election, shards)) = process.config.election.as_ref().zip(process.config.shards) else {
            return;
        };
        let slowest = self.slowest();
        let attempt = election.renew_deadline / 2;
        let timings = LeaseTimings {
            lease: true_time(election.lease_duration, slowest),
            retry: true_time(election.retry_period, slowest),
            // An attempt times out, and the pause after it is up to 1.2 times longer than usual.
            recovery: true_time(attempt + election.retry_period.mul_f64(2.2), slowest),
        };
        let deadline = true_time(election.renew_deadline, self.rate(&process.name));
        self.oracle.with_shard_gaps(|shard_gaps| {
            shard_gaps.add_replica(&process.name, (timings, deadline), shards.get(), &self.plan.faults);
        });
        if !std::mem::replace(&mut self.lock().watches_shards, true) {
            let world = Arc::clone(self);
            drop(self.env.spawn("looks at shards", async move {
                loop {
                    world.env.sleep(SHARD_CHECK_INTERVAL).await;
                    world.oracle.check_shards(world.env.now().since_origin());
                }
            }));
        }
    }

    /// Returns the rate of the slowest clock.
    fn slowest(&self) -> (u32, u32) {
        self.rates().min_by(|one, other| part(*one).total_cmp(&part(*other))).unwrap_or((1, 1))
    }

    /// Returns the rate of the fastest clock.
    fn fastest(&self) -> (u32, u32) {
        self.rates().max_by(|one, other| part(*one).total_cmp(&part(*other))).unwrap_or((1, 1))
    }

    fn rates(&self) -> impl Iterator<Item = (u32, u32)> {
        let rates = self.plan.faults.iter().filter_map(|fault| match fault.action {
            FaultAction::ClockRate { numerator, denominator } => Some((numerator, denominator)),
            _ => None,
        });
        rates.chain([(1, 1)])
    }

    /// Returns the maximum network delay between the end of a process's fence and the end of its Lease: five seconds by
    /// default, less with different clock rates. The server measures `timeout=` by its own clock.
    fn lateness(&self, process: &Process) -> Duration {
        let Some(election) = &process.config.election else { return Duration::MAX };
        let fence = true_time(election.renew_deadline, self.rate(&process.name));
        let fence = fence.max(election.renew_deadline);
        true_time(election.lease_duration, self.fastest()).saturating_sub(fence)
    }

    /// Kills a process without shutdown. It is restarted.
    pub(crate) fn kill(&self, name: &str) {
        let env = self.lock().processes.get(name).map(|process| process.env.clone());
        if let Some(env) = env {
            self.network.note(&env, "is killed");
            env.kill();
        }
    }

    /// Pauses the current incarnation of a process until then; later incarnations are not paused.
    async fn pause<P>(&self, name: &str, until: Instant, stop: fn(&Env) -> P) {
        let env = self.lock().processes.get(name).map(|process| process.env.clone());
        let Some(env) = env.filter(Env::is_alive) else { return };
        self.network.note(&env, "is paused");
        let pause = stop(&env);
        self.env.sleep_until(until).await;
        self.network.note(&env, "continues");
        drop(pause);
    }

    /// Sends a process a signal: the first requests a graceful shutdown, the second aborts it. It is restarted.
    pub(crate) fn terminate(&self, name: &str) {
        if let Some(process) = self.lock().processes.get_mut(name) {
            process.terminated += 1;
            process.trigger.fire();
            let now = self.env.now().since_origin();
            self.oracle.with_shard_gaps(|shard_gaps| shard_gaps.on_stop_signal(name, now));
        }
    }

    /// Returns the names of the processes that were started.
    pub(crate) fn processes(&self) -> Vec<String> {
        self.lock().processes.keys().cloned().collect()
    }

    /// Stops every process gracefully without restart. Returns whether all of them exited.
    pub(crate) async fn stop(&self, within: Duration) -> bool {
        let supervisors = {
            let mut state = self.lock();
            state.stopping = true;
            state.processes.values().for_each(|process| process.trigger.fire());
            let now = self.env.now().since_origin();
            let names = state.processes.keys();
            self.oracle
                .with_shard_gaps(|shard_gaps| names.for_each(|name| shard_gaps.on_stop_signal(name, now)));
            std::mem::take(&mut state.supervisors)
        };
        let ended = async {
            for supervisor in supervisors {
                drop(supervisor.await);
            }
        };
        self.env.timeout(within, ended).await.is_ok()
    }

    /// Ends the world: none of its tasks is polled again.
    pub(crate) fn end(&self) {
        let envs: Vec<Env> = self.lock().processes.values().map(|process| process.env.clone()).collect();
        envs.iter().chain(&self.others).for_each(Env::kill);
        self.env.kill();
    }

    /// Returns the controllers of processes under test that wait for their caches, and the keys whose last reconcile
    /// failed, with the reasons.
    pub(crate) fn unfinished(&self) -> Vec<String> {
        let processes = self.lock().processes.clone();
        let tested = processes.iter().filter(|(_, process)| process.tested);
        let of_process = |(name, process): (&String, &RunningProcess)| {
            let overviews = process.explainer.overviews().into_iter();
            let lines =
                overviews.flat_map(|ControllerOverview { name: controller, state, failing_keys, .. }| {
                    let waits = matches!(state, ControllerState::WaitingForCaches { .. });
                    let waiting = waits.then(|| format!("  {controller}: {state}"));
                    let failing = failing_keys.into_iter().map(move |key| format!("  {controller} {key}"));
                    waiting.into_iter().chain(failing)
                });
            lines.map(|line| format!("  {name}{line}")).collect::<Vec<_>>()
        };
        tested.flat_map(of_process).collect()
    }

    /// Returns the first cache of a process under test that differs from the server.
    pub(crate) fn find_cache_difference(&self) -> Option<Violation> {
        if self.cache_inspectors.is_empty() {
            return None;
        }
        let objects = self.network.objects();
        let processes: Vec<(String, RunningProcess)> = {
            let state = self.lock();
            state
                .processes
                .iter()
                .filter(|(_, it)| it.tested)
                .map(|(name, it)| (name.clone(), it.clone()))
                .collect()
        };
        processes.into_iter().find_map(|(name, process)| {
            process.caches.all().into_iter().find_map(|cache| {
                let (group, kind) = cache.kind();
                let (held, there) = (cache.versions(), crate::state::versions(&objects, &group, &kind));
                (held != there).then(|| {
                    let difference = format!(
                        "only in the cache {:?}, only at the server {:?}",
                        held.difference(&there).collect::<Vec<_>>(),
                        there.difference(&held).collect::<Vec<_>>()
                    );
                    Violation::CacheDiffers { process: name.clone(), kind, difference }
                })
            })
        })
    }

    /// Returns the Env of the machine that runs a process in all its incarnations.
    fn machine(&self, name: &str) -> Env {
        let (numerator, denominator) = self.rate(name);
        let machine = self.env.clone().with_wall_offset(SignedDuration::ZERO);
        if (numerator, denominator) == (1, 1) { machine } else { machine.with_rate(numerator, denominator) }
    }

    fn rate(&self, name: &str) -> (u32, u32) {
        let rates = self.of(name).filter_map(|fault| match fault.action {
            FaultAction::ClockRate { numerator, denominator } => Some((numerator, denominator)),
            _ => None,
        });
        rates.last().unwrap_or((1, 1))
    }

    fn of<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a Fault> {
        self.plan.faults.iter().filter(move |fault| fault.applies_to(name))
    }

    /// Schedules the plan's faults of a process and its machine.
    fn schedule(self: &Arc<Self>, name: &str, machine: &Env) {
        for fault in self.of(name).cloned() {
            let (world, name, machine) = (Arc::clone(self), name.to_owned(), machine.clone());
            let at = Instant::ORIGIN + Duration::from_millis(fault.from_ms);
            match fault.action {
                FaultAction::Crash => drop(self.env.spawn("crash", async move {
                    world.env.sleep_until(at).await;
                    let until = Duration::from_millis(fault.until_ms);
                    world.lock().down_until.insert(name.clone(), until);
                    world.kill(&name);
                })),
                FaultAction::Pause => drop(self.env.spawn("pause", async move {
                    world.env.sleep_until(at).await;
                    let until = Instant::ORIGIN + Duration::from_millis(fault.until_ms);
                    world.pause(&name, until, Env::pause).await;
                })),
                FaultAction::Suspend => drop(self.env.spawn("suspension", async move {
                    world.env.sleep_until(at).await;
                    let until = Instant::ORIGIN + Duration::from_millis(fault.until_ms);
                    world.pause(&name, until, Env::suspend).await;
                })),
                FaultAction::WallStep { by_ms } => drop(self.env.spawn("wall step", async move {
                    world.env.sleep_until(at).await;
                    machine.step_wall(SignedDuration::from_millis(by_ms));
                })),
                _ => {}
            }
        }
    }

    async fn supervise(self: Arc<Self>, process: Process, machine: Env) {
        for life in 0.. {
            let env = machine.with_incarnation(&process.name, life);
            let (trigger, signals) = ShutdownSignals::manual();
            let caches = Caches::default();
            let (webhooks, connection) = webhooks_in_process(&process.config.name);
            let manager = match self.manager(&process, &env, &caches, webhooks) {
                Ok(manager) => manager,
                Err(error) => {
                    return self.oracle.report(Violation::Panicked(format!("{}: {error}", process.name)));
                }
            };
            let metrics = manager.metrics().clone();
            let running = RunningProcess {
                env: env.clone(),
                trigger,
                caches,
                explainer: manager.explainer().clone(),
                tested: process.tested,
                terminated: 0,
                webhooks: connection,
            };
            self.lock().processes.insert(process.name.clone(), running);
            self.network.note(&env, "starts");
            let process_id = ProcessId { instance: env.instance().into(), incarnation: env.incarnation() };
            let now = self.env.now().since_origin();
            self.oracle.with_shard_gaps(|shard_gaps| shard_gaps.on_started(&process_id, now));
            let end = env.spawn("manager", manager.run(signals)).await;
            let now = self.env.now().since_origin();
            self.oracle.with_shard_gaps(|shard_gaps| shard_gaps.on_ended(&process_id, now));
            self.ended(&process.name, &env, end);
            if let Some(requests) = undeclared(&metrics).filter(|_| process.tested) {
                self.oracle.report(Violation::Undeclared { process: process.name.clone(), requests });
            }
            // After a crash only requests in flight remain; after an exit nothing must remain.
            env.kill();
            env.wait_for_tasks().await;
            if self.lock().stopping {
                return;
            }
            self.env.sleep_until(self.next_start(&process.name)).await;
            if self.lock().stopping {
                return;
            }
        }
    }

    fn ended(&self, name: &str, env: &Env, end: Result<Result<(), ManagerError>, TaskError>) {
        let left = env.tasks();
        match end {
            Err(TaskError::Panicked(message)) => {
                self.oracle.report(Violation::Panicked(format!("{}: {message}", env.instance())));
            }
            Err(TaskError::Aborted) => self.network.note(env, "crashed"),
            Ok(end) => {
                if let Some(error) = end.as_ref().err().filter(|error| !self.explains(name, error)) {
                    let (process, error) = (env.instance().to_owned(), error.to_string());
                    self.oracle.report(Violation::UnexpectedExit { process, error });
                }
                let how = end.map_or_else(|error| format!("ends: {error}"), |()| "ends".to_owned());
                self.network.note(env, how);
                if !left.is_empty() {
                    let (process, tasks) = (env.instance().to_owned(), left.join(", "));
                    self.oracle.report(Violation::LeakedTasks { process, tasks });
                }
            }
        }
    }

    /// Returns whether faults or the script explain this exit. A leader that cannot renew must exit, and so must a
    /// process without a connection at startup. A recent fault can prevent a graceful shutdown. Any other error is a
    /// violation.
    fn explains(&self, name: &str, end: &ManagerError) -> bool {
        let terminated = self.lock().processes.get(name).map_or(0, |process| process.terminated);
        match end {
            ManagerError::LeaseLost { .. } | ManagerError::ApiServerUnreachable { .. } => true,
            ManagerError::Aborted => terminated > 1,
            // Blocked reconciles, or a Lease that cannot be released.
            ManagerError::ShutdownTimeout { .. } | ManagerError::Election(_) => {
                terminated > 0 && self.is_affected_by_fault(name)
            }
            _ => false,
        }
    }

    /// Returns whether a fault affects this process now or did within [`FAULT_AFTERMATH`].
    fn is_affected_by_fault(&self, name: &str) -> bool {
        let now = self.env.now().since_origin();
        let lasts = |fault: &Fault| {
            let (from, until) = (Duration::from_millis(fault.from_ms), Duration::from_millis(fault.until_ms));
            from <= now && now <= until + FAULT_AFTERMATH
        };
        self.of(name).any(lasts)
    }

    fn next_start(&self, name: &str) -> Instant {
        let soon = self.env.now() + RESTART_DELAY;
        let state = self.lock();
        state.down_until.get(name).map_or(soon, |until| soon.max(Instant::ORIGIN + *until))
    }

    /// Connects the server to the webhooks of the tested processes.
    pub(crate) fn serve_webhooks(self: &Arc<Self>, config: &WebhookConfig) {
        let world = Arc::downgrade(self);
        let handler = webhook_handler(&config.service, move || {
            let world = world.upgrade()?;
            let (process, handler) = world.serving()?;
            let network = world.network.clone();
            Some(Arc::new(move |request| {
                let (network, process, handler) = (network.clone(), process.clone(), Arc::clone(&handler));
                async move { network.call_webhook(&process, request, |it| handler(it)).await }.boxed()
            }))
        });
        self.network.server().serve_webhooks(&webhook_address(config), handler);
    }

    /// Returns a process that serves webhooks, and its handler.
    fn serving(&self) -> Option<(Env, windlass_controller::host::WebhookHandler)> {
        let state = self.lock();
        let mut tested = state.processes.values().filter(|it| it.tested);
        tested.find_map(|it| Some((it.env.clone(), it.webhooks.handler()?)))
    }

    fn manager(
        &self,
        process: &Process,
        env: &Env,
        caches: &Caches,
        webhooks: WebhookConfig,
    ) -> Result<Manager, ManagerError> {
        let link = if process.tested {
            self.network.link_with_max_delay(env, self.lateness(process))
        } else {
            self.network.reliable_link(env)
        };
        let mut config = process.config.clone();
        let process_id = ProcessId { instance: env.instance().into(), incarnation: env.incarnation() };
        config.identity = identity(&process_id);
        // A socket is not under the control of the seed.
        config.webhooks = Some(webhooks);
        if let Some(election) = &mut config.election {
            election.identity = config.identity.clone();
        }
        let user = self.user(process, &config)?;
        let link = UserLink { link, user };
        let link = CheckedLink {
            link,
            process: process_id,
            oracle: Arc::clone(&self.oracle),
            world: self.env.clone(),
        };
        let manager = Manager::with_clients(env.clone(), config, over(link))?;
        let checks_reads = process.tested && self.checks_reads;
        let with_checks = |registration: Registration| {
            let registration =
                if process.tested { with_reconcile_checks(registration) } else { registration };
            if checks_reads { with_read_checks(registration, &self.oracle, env) } else { registration }
        };
        let registrations = process.registrations.iter().cloned().map(with_checks);
        let manager = registrations.fold(manager, Manager::register);
        let probed = process.tested && !self.cache_inspectors.is_empty();
        Ok(if probed {
            manager.register(probe::registration(&self.cache_inspectors, caches))
        } else {
            manager
        })
    }

    /// Returns the user of a process with exact permissions, restricted to its roles.
    fn user(&self, process: &Process, config: &ManagerConfig) -> Result<Option<HeaderValue>, ManagerError> {
        let Some(permissions) = self.permissions.as_ref().filter(|_| process.tested) else { return Ok(None) };
        let probe = (!self.cache_inspectors.is_empty())
            .then(|| probe::registration(&self.cache_inspectors, &Caches::default()));
        let registrations: Vec<_> = process.registrations.iter().cloned().chain(probe).collect();
        let user = permissions.restrict(&**self.network.server(), &registrations, config, &self.oracle)?;
        Ok(Some(HeaderValue::try_from(user).expect("ServiceAccount names are valid header values")))
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn new(
        env: Env,
        network: Network,
        oracle: Arc<Oracle>,
        cache_inspectors: Vec<CacheInspector>,
        (convergence_timeout, checks_reads): (Duration, bool),
        permissions: Option<Arc<ExactPermissions>>,
        others: Vec<Env>,
    ) -> Arc<Self> {
        let plan = network.plan().clone();
        Arc::new(World {
            env,
            network,
            oracle,
            plan,
            cache_inspectors,
            convergence_timeout,
            checks_reads,
            permissions,
            others,
            state: Mutex::default(),
        })
    }
}

fn part((numerator, denominator): (u32, u32)) -> f64 {
    f64::from(numerator) / f64::from(denominator)
}

/// Returns the true duration of a duration on a clock of this rate, rounded up.
fn true_time(local: Duration, (numerator, denominator): (u32, u32)) -> Duration {
    local * denominator / numerator + Duration::from_millis(u64::from(numerator != denominator))
}
