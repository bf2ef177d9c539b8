//! The runnables of one process: their start, their failures and their stop.
//!
//! A runnable starts at the step of [`START`](crate::START) that its [`RunsOn`] selects. If it is added before its
//! step, it waits for the step; if it is added later, it starts immediately; if it is added during shutdown, it is
//! rejected.
//!
//! Guarantees:
//! - The first error stops the manager and is returned with the name of the runnable. A runnable that returns without
//!   an error has completed.
//! - Each runnable receives the stop signal at the position of its step in the reverse order. It has the remaining
//!   shutdown timeout to stop; after that it is aborted and reported by name.
//! - A runnable of the leader writes behind the same fence as the controllers.
//!
//! Not supported: starting a runnable twice, or again after it has ended.

use std::collections::BTreeMap;
use std::fmt;
use std::future::poll_fn;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Poll;
use std::time::Duration;

use futures_util::future::join_all;
use tokio_util::sync::CancellationToken;
use windlass_admin::Health;
use windlass_client::{Clients, Fence};
use windlass_controller::host::{Cleanup, Host, PreparedPart, PreparedRunnable, RunnableResources};
use windlass_controller::{BoxError, CacheSync, Descriptor, Registration, RunsOn, SetupError};
use windlass_env::watch_channel::{Sender, channel};
use windlass_env::{Env, Task};
use windlass_object::Rule;

use crate::controllers::StartDeps;
use crate::error::{AddError, ManagerError};
use crate::takeover::Takeover;

/// Interval at which runnables that are not ready are logged.
const LOG_INTERVAL: Duration = Duration::from_secs(30);

/// Time for aborted runnables to end.
const GONE: Duration = Duration::from_secs(1);

/// Adds runnables to a manager before and while it runs. Clones share one manager.
#[derive(Clone, Debug)]
pub struct ManagerHandle {
    runnables: Runnables,
}

impl ManagerHandle {
    pub(crate) fn new(runnables: Runnables) -> Self {
        Self { runnables }
    }

    /// Adds a runnable, which starts at its step, or immediately if that step has been reached. Its name can be used
    /// again after it has ended.
    ///
    /// Manifests do not contain its declarations. Register the runnables that are known before the manager runs.
    ///
    /// # Errors
    /// When its setup fails, its name is taken, the manager is stopping, or it requires a leader and replicas share
    /// shards.
    ///
    /// # Panics
    /// Outside a tokio runtime, if the manager runs.
    pub fn add(&self, runnable: Registration) -> Result<(), AddError> {
        self.runnables.add(runnable)
    }

    #[cfg(test)]
    pub(crate) fn kept(&self, group: RunsOn) -> usize {
        self.runnables.kept(group)
    }
}

/// The dependencies of the runnables of a group.
#[derive(Clone)]
pub(crate) struct RunnableDeps {
    pub(crate) env: Env,
    pub(crate) clients: Clients,
    /// The fence of their writes; `None` for the fence of the process.
    pub(crate) fence: Option<Arc<dyn Fence>>,
    pub(crate) health: Health,
    pub(crate) event_cache_size: usize,
    /// The wait for the writes of the previous leader, on a new leader.
    pub(crate) takeover: Option<Takeover>,
}

impl RunnableDeps {
    /// Returns the dependencies in a process, behind its fence.
    pub(crate) fn of(parts: &StartDeps) -> Self {
        Self {
            env: parts.env.clone(),
            clients: parts.clients.clone(),
            fence: None,
            health: parts.health.clone(),
            event_cache_size: parts.config.event_cache_size,
            takeover: None,
        }
    }
}

/// The environment in which runnables are set up.
#[derive(Clone)]
pub(crate) struct Site {
    pub(crate) host: Host,
    pub(crate) health: Health,
    pub(crate) cache_sync: CacheSync,
}

/// The runnables of one process. Clones share them.
#[derive(Clone)]
pub(crate) struct Runnables {
    state: Arc<Mutex<State>>,
    /// Whether a runnable that can write has run under the lease.
    led_writes: Arc<AtomicBool>,
    failed: Sender<bool>,
    /// Canceled when the shutdown begins.
    shutdown: CancellationToken,
}

struct State {
    /// Set when the process is assembled.
    site: Option<Site>,
    /// Runnables that were added before that.
    early: Vec<Registration>,
    groups: BTreeMap<RunsOn, Group>,
    /// The number of started runnables.
    launched: u64,
    /// No more runnables are accepted.
    closed: bool,
    /// The first failure.
    failure: Option<ManagerError>,
}

enum Group {
    /// Its step has not been reached.
    Waiting(Vec<PreparedRunnable>),
    /// Its step has been reached.
    Started(Box<Started>),
}

struct Started {
    deps: RunnableDeps,
    stop: CancellationToken,
    running: Vec<Running>,
}

struct Running {
    name: &'static str,
    /// Set once it is ready, or has ended.
    ready: CancellationToken,
    cleanup: Cleanup,
    shutdown_extension: Duration,
    task: Task<()>,
}

impl Runnables {
    /// Returns an empty set.
    pub(crate) fn new() -> Self {
        let groups = [RunsOn::BeforeCaches, RunsOn::EveryReplica, RunsOn::Leader];
        let groups = groups.map(|group| (group, Group::Waiting(Vec::new()))).into();
        let (site, early, launched, closed, failure) = (None, Vec::new(), 0, false, None);
        let state = State { site, early, groups, launched, closed, failure };
        Self {
            state: Arc::new(Mutex::new(state)),
            led_writes: Arc::default(),
            failed: channel(false).0,
            shutdown: CancellationToken::new(),
        }
    }

    /// Returns an empty set for a process without a leader.
    pub(crate) fn leaderless() -> Self {
        let runnables = Self::new();
        runnables.lock().groups.remove(&RunsOn::Leader);
        runnables
    }

    pub(crate) fn add(&self, registration: Registration) -> Result<(), AddError> {
        let descriptor = registration.descriptor();
        if !registration.is_runnable() {
            return Err(AddError::Controller { name: descriptor.name });
        }
        let site = {
            let mut state = self.lock();
            state.check(descriptor)?;
            match state.site.clone() {
                Some(site) => site,
                None => {
                    state.early.push(registration);
                    return Ok(());
                }
            }
        };
        self.set_up(&site, &registration)
    }

    /// Sets up the registered runnables and those that were added so far. Later ones are set up when they are added.
    pub(crate) fn open(&self, site: Site, registered: Vec<Registration>) -> Result<(), AddError> {
        let early = {
            let mut state = self.lock();
            state.site = Some(site.clone());
            std::mem::take(&mut state.early)
        };
        registered.into_iter().chain(early).try_for_each(|one| self.set_up(&site, &one))
    }

    /// Calls user code, so it must not hold the lock.
    fn set_up(&self, site: &Site, registration: &Registration) -> Result<(), AddError> {
        let descriptor = registration.descriptor();
        self.lock().check(descriptor)?;
        let prepared = match registration.set_up(site.host.clone()) {
            Err(SetupError::Absent(reason)) => {
                tracing::info!(runnable = descriptor.name, reason, "runnable not started");
                return Ok(());
            }
            prepared => prepared.map_err(|source| AddError::Setup { name: descriptor.name, source })?,
        };
        match prepared {
            PreparedPart::Controller(_) => Err(AddError::Controller { name: descriptor.name }),
            PreparedPart::Runnable(mut prepared) => {
                prepared.cache_sync_by_default(site.cache_sync);
                if !prepared.declaration().watches.is_empty() {
                    let check = format!("informer-sync-{}", descriptor.name);
                    site.health.ready(&check, Arc::new(prepared.caches()));
                }
                self.admit(*prepared)
            }
        }
    }

    /// Starts the runnable if its step has been reached; otherwise it waits for the step.
    fn admit(&self, prepared: PreparedRunnable) -> Result<(), AddError> {
        let mut state = self.lock();
        state.check(prepared.descriptor())?;
        let State { groups, launched, .. } = &mut *state;
        match groups.get_mut(&prepared.descriptor().runs_on) {
            None => {}
            Some(Group::Waiting(waiting)) => waiting.push(prepared),
            Some(Group::Started(started)) => {
                // Ended ones are dropped, so that memory does not grow with the number of short runnables.
                started.running.retain(|one| !one.task.is_finished());
                let running = self.launch(&started.deps, &started.stop, prepared, launched);
                started.running.push(running);
            }
        }
        Ok(())
    }

    /// Returns the number of runnables of a started group that are kept, ended or not.
    #[cfg(test)]
    pub(crate) fn kept(&self, group: RunsOn) -> usize {
        match self.lock().groups.get(&group) {
            Some(Group::Started(started)) => started.running.len(),
            Some(Group::Waiting(_)) | None => 0,
        }
    }

    /// Starts the waiting runnables of this group. Runnables that are added later start immediately.
    pub(crate) fn start(&self, group: RunsOn, deps: RunnableDeps) {
        let mut state = self.lock();
        let State { groups, launched, .. } = &mut *state;
        let Some(Group::Waiting(waiting)) = groups.get_mut(&group) else { return };
        let stop = CancellationToken::new();
        let launch = |prepared| self.launch(&deps, &stop, prepared, launched);
        let running = std::mem::take(waiting).into_iter().map(launch).collect();
        groups.insert(group, Group::Started(Box::new(Started { deps, stop, running })));
    }

    /// Waits until every runnable of a group that has started is ready or has ended.
    ///
    /// # Cancel safety
    /// Dropping the future withdraws the wait.
    pub(crate) async fn ready(&self, env: &Env, group: RunsOn) {
        loop {
            let unready = self.unready(group);
            let ready = join_all(unready.iter().map(|(_, ready)| ready.cancelled()));
            if env.timeout(LOG_INTERVAL, ready).await.is_ok() {
                return;
            }
            let runnables: Vec<_> = self.unready(group).into_iter().map(|(name, _)| name).collect();
            tracing::warn!(?runnables, "waiting for runnables to call RunnableContext::ready");
        }
    }

    fn unready(&self, group: RunsOn) -> Vec<(&'static str, CancellationToken)> {
        match self.lock().groups.get(&group) {
            Some(Group::Started(started)) => {
                let unready = started.running.iter().filter(|one| !one.ready.is_cancelled());
                unready.map(|one| (one.name, one.ready.clone())).collect()
            }
            Some(Group::Waiting(_)) | None => Vec::new(),
        }
    }

    fn launch(
        &self,
        deps: &RunnableDeps,
        stop: &CancellationToken,
        prepared: PreparedRunnable,
        launched: &mut u64,
    ) -> Running {
        let (name, ready, cleanup) =
            (prepared.descriptor().name, CancellationToken::new(), prepared.cleanup());
        let (shutdown_extension, shutdown) = (prepared.shutdown_extension(), self.shutdown.clone());
        let (number, all, is_ready) = (*launched, self.clone(), ready.clone());
        if deps.takeover.is_some() && may_write(&prepared) {
            self.led_writes.store(true, Ordering::Relaxed);
        }
        let (env, deps, stop) = (deps.env.clone(), deps.clone(), stop.clone());
        *launched += 1;
        let task = env.spawn(format!("runnable {name}"), async move {
            // A wait for readiness must not outlast the runnable.
            let _ready_at_the_end = is_ready.clone().drop_guard();
            let ended = run(prepared, deps, number, (shutdown, stop.clone()), is_ready).await;
            all.ended_with(name, ended, stop.is_cancelled());
        });
        Running { name, ready, cleanup, shutdown_extension, task }
    }

    /// Records the first failure, which ends the process. A failure after the stop signal is only logged.
    fn ended_with(&self, name: &'static str, ended: Result<(), BoxError>, stopping: bool) {
        let Err(source) = ended else { return tracing::debug!(runnable = name, "ended") };
        tracing::error!(runnable = name, error = %source, "runnable failed");
        if !stopping {
            self.fail(ManagerError::Runnable { name, source });
        }
    }

    /// Records the first failure, which ends the process.
    pub(crate) fn fail(&self, failure: ManagerError) {
        self.lock().failure.get_or_insert(failure);
        self.failed.set(true);
    }

    /// Returns whether a runnable can have written in this term. These writes are not recorded, so the successor
    /// relists.
    pub(crate) fn led_writes(&self) -> bool {
        self.led_writes.load(Ordering::Relaxed)
    }

    /// Resolves when a runnable has failed.
    ///
    /// # Cancel safety
    /// Dropping the future withdraws the wait.
    pub(crate) async fn failure(&self) -> ManagerError {
        loop {
            let _failed = self.failed.subscribe().wait_for(|failed| *failed).await;
            if let Some(failure) = self.lock().failure.take() {
                return failure;
            }
            // It has been returned, and the process reports only one failure.
            std::future::pending::<()>().await;
        }
    }

    /// Returns the first failure, unless [`failure`](Self::failure) has returned it.
    pub(crate) fn take_unreported_failure(&self) -> Option<ManagerError> {
        self.lock().failure.take()
    }

    /// Returns the time that a group needs to stop in addition to the shutdown timeout.
    pub(crate) fn shutdown_extension(&self, group: RunsOn) -> Duration {
        match self.lock().groups.get(&group) {
            Some(Group::Started(started)) => {
                started.running.iter().map(|one| one.shutdown_extension).max().unwrap_or_default()
            }
            Some(Group::Waiting(_)) | None => Duration::ZERO,
        }
    }

    /// Announces the shutdown of the process to all runnables and rejects further ones. Waiting runnables are dropped
    /// without a start.
    pub(crate) fn close(&self) {
        self.shutdown.cancel();
        let dropped: (Vec<_>, Vec<_>) = {
            let mut state = self.lock();
            state.closed = true;
            let waiting = state.groups.values_mut().filter_map(|group| match group {
                Group::Waiting(waiting) => Some(std::mem::take(waiting)),
                Group::Started(_) => None,
            });
            (waiting.flatten().collect(), std::mem::take(&mut state.early))
        };
        // User destructors run outside the lock.
        drop(dropped);
    }

    /// Sends a group the stop signal and waits until it has ended; aborts the rest after `within`.
    ///
    /// # Errors
    /// Returns the names of aborted runnables.
    ///
    /// # Cancel safety
    /// The signal has been sent by then; calling it again waits for the rest.
    pub(crate) async fn end(&self, env: &Env, group: RunsOn, within: Duration) -> Result<(), ManagerError> {
        if !self.stop(group) {
            return Ok(());
        }
        let begun = env.now();
        if env.timeout(within, self.ended(group)).await.is_ok() {
            return Ok(());
        }
        let waited = env.now().saturating_duration_since(begun);
        let names = self.running(group);
        self.abort_one(env, group).await;
        Err(ManagerError::RunnablesStuck { waited, names })
    }

    /// Aborts all of them at their next await.
    pub(crate) async fn abort(&self, env: &Env) {
        self.close();
        let groups: Vec<RunsOn> = self.lock().groups.keys().copied().collect();
        for group in groups.into_iter().rev() {
            self.abort_one(env, group).await;
        }
    }

    /// Aborts a group at its next await, and waits for [`GONE`] at most, because a task that never awaits never ends.
    pub(crate) async fn abort_one(&self, env: &Env, group: RunsOn) {
        if !self.stop(group) {
            return;
        }
        let cleanup = self.abort_tasks(group);
        let gone = async {
            self.ended(group).await;
            join_all(cleanup.iter().map(Cleanup::finish)).await;
        };
        if env.timeout(GONE, gone).await.is_err() {
            tracing::error!(runnables = ?self.running(group), "runnables did not stop after abort; they never yield");
        }
    }

    /// Sends a group the stop signal; returns `false` if none of its runnables runs.
    fn stop(&self, group: RunsOn) -> bool {
        match self.lock().groups.get(&group) {
            Some(Group::Started(started)) => {
                started.stop.cancel();
                !started.running.is_empty()
            }
            Some(Group::Waiting(_)) | None => false,
        }
    }

    fn abort_tasks(&self, group: RunsOn) -> Vec<Cleanup> {
        let state = self.lock();
        let Some(Group::Started(started)) = state.groups.get(&group) else { return Vec::new() };
        started.running.iter().for_each(|one| one.task.abort());
        started.running.iter().map(|one| one.cleanup.clone()).collect()
    }

    fn running(&self, group: RunsOn) -> Vec<&'static str> {
        match self.lock().groups.get(&group) {
            Some(Group::Started(started)) => started.running(),
            Some(Group::Waiting(_)) | None => Vec::new(),
        }
    }

    /// Waits until all runnables of a group have ended.
    async fn ended(&self, group: RunsOn) {
        poll_fn(|cx| {
            let mut state = self.lock();
            let Some(Group::Started(started)) = state.groups.get_mut(&group) else { return Poll::Ready(()) };
            // The task has recorded its result.
            started.running.retain_mut(|one| Pin::new(&mut one.task).poll(cx).is_pending());
            if started.running.is_empty() { Poll::Ready(()) } else { Poll::Pending }
        })
        .await;
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// Returns an error if a runnable cannot be added now.
    fn check(&self, Descriptor { name, runs_on, .. }: Descriptor) -> Result<(), AddError> {
        if self.groups.values().any(|group| group.has(name)) {
            return Err(AddError::NameTaken { name });
        }
        match self.groups.get(&runs_on) {
            _ if self.closed => Err(AddError::Stopping { name }),
            None => Err(AddError::NoLeader { name }),
            Some(Group::Started(started)) if started.stop.is_cancelled() => Err(AddError::Stopping { name }),
            Some(Group::Started(_) | Group::Waiting(_)) => Ok(()),
        }
    }
}

impl Group {
    fn has(&self, name: &str) -> bool {
        match self {
            Self::Waiting(waiting) => waiting.iter().any(|one| one.descriptor().name == name),
            Self::Started(started) => started.running().contains(&name),
        }
    }
}

async fn run(
    prepared: PreparedRunnable,
    deps: RunnableDeps,
    number: u64,
    (shutdown, stop): (CancellationToken, CancellationToken),
    ready: CancellationToken,
) -> Result<(), BoxError> {
    let RunnableDeps { clients, fence, health, event_cache_size, takeover, .. } = deps;
    let descriptor = prepared.descriptor();
    let clients = clients.for_controller_with_rate(descriptor.client_name, descriptor.rate)?;
    let clients = match fence {
        Some(fence) => clients.with_fence(fence),
        None => clients,
    };
    let watches = prepared.declaration().watches;
    let caught_up = async move {
        if let Some(takeover) = takeover {
            takeover
                .wait_for_writes(descriptor.name, |kind| watches.iter().any(|(watched, _)| watched == kind))
                .await;
        }
    };
    let resources = RunnableResources { clients, health, event_cache_size, number, shutdown, stop, ready };
    prepared.run(resources, caught_up).await
}

impl Started {
    fn running(&self) -> Vec<&'static str> {
        self.running.iter().filter(|one| !one.task.is_finished()).map(|one| one.name).collect()
    }
}

impl fmt::Debug for Runnables {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = self.lock();
        let mut map = f.debug_map();
        for (group, members) in &state.groups {
            match members {
                Group::Waiting(waiting) => map.entry(group, &format!("{} waiting", waiting.len())),
                Group::Started(started) => map.entry(group, &started.running()),
            };
        }
        map.finish()
    }
}

/// Returns whether a runnable declares writes that caches must reflect: writes of anything except Events.
fn may_write(prepared: &PreparedRunnable) -> bool {
    let is_write =
        |rule: &Rule| rule.resource != "events" && rule.verbs.iter().any(|verb| verb.is_mutating());
    prepared.declaration().rules.iter().any(is_write)
}
