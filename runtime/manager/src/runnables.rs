//! The runnables of one process: which wait, which run, and how they stop.
//!
//! A runnable starts at the step of [`START`](crate::START) that its [`RunsOn`] gives. One that is added before its step
//! waits for it, one that is added later starts at once, and one that is added when the process shuts down is rejected.
//!
//! Guarantees:
//! - The first error ends the manager and names the runnable. One that ends without an error has done its work.
//! - Each receives the stop signal at its step's position in the reverse order, has what is left of the shutdown timeout to
//!   end, and is aborted after that, and named.
//! - A runnable of the leader writes behind the same fence as the controllers.
//!
//! What it refuses: to start anything twice, or again after it has ended.

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
use windlass_controller::{BoxError, CacheSync, Descriptor, Registration, RunsOn};
use windlass_env::watch_channel::{Sender, channel};
use windlass_env::{Env, Task};
use windlass_object::Rule;

use crate::controllers::StartDeps;
use crate::error::{AddError, ManagerError};
use crate::takeover::Takeover;

/// How often runnables that are not ready are logged.
const LOG_INTERVAL: Duration = Duration::from_secs(30);

/// How long aborted runnables can take to be gone.
const GONE: Duration = Duration::from_secs(1);

/// Adds runnables to a manager, before it runs and while it does. Clones are the same.
#[derive(Clone, Debug)]
pub struct ManagerHandle {
    runnables: Runnables,
}

impl ManagerHandle {
    pub(crate) fn new(runnables: Runnables) -> Self {
        Self { runnables }
    }

    /// Adds a runnable, which starts at its step: immediately if that has been reached. Its name is free again once it has
    /// ended.
    ///
    /// Manifests do not contain what it declares: register what is known before the manager runs.
    ///
    /// # Errors
    /// When its setup fails, when its name is taken, when the manager stops, or when it needs a leader and replicas share
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

/// What the runnables of a group are given.
#[derive(Clone)]
pub(crate) struct RunnableDeps {
    pub(crate) env: Env,
    pub(crate) clients: Clients,
    /// What they write behind; `None` for the fence of the process.
    pub(crate) fence: Option<Arc<dyn Fence>>,
    pub(crate) health: Health,
    pub(crate) remembered_events: usize,
    /// What their caches must reflect first, on a new leader.
    pub(crate) takeover: Option<Takeover>,
}

impl RunnableDeps {
    /// Those of a process, behind its fence.
    pub(crate) fn of(parts: &StartDeps) -> Self {
        Self {
            env: parts.env.clone(),
            clients: parts.clients.clone(),
            fence: None,
            health: parts.health.clone(),
            remembered_events: parts.config.remembered_events,
            takeover: None,
        }
    }
}

/// Where runnables are set up.
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
    /// Whether a runnable that may write has run under the lease.
    led_writes: Arc<AtomicBool>,
    failed: Sender<bool>,
}

struct State {
    /// Known once the process is assembled.
    site: Option<Site>,
    /// Added before that.
    early: Vec<Registration>,
    groups: BTreeMap<RunsOn, Group>,
    /// How many have been launched.
    launched: u64,
    /// No more are taken.
    closed: bool,
    /// The first.
    failure: Option<ManagerError>,
}

enum Group {
    /// Its step has not been reached.
    Waiting(Vec<PreparedRunnable>),
    /// It has.
    Started(Box<Started>),
}

struct Started {
    means: RunnableDeps,
    stop: CancellationToken,
    running: Vec<Running>,
}

struct Running {
    name: &'static str,
    /// Set once it is ready, or has ended.
    ready: CancellationToken,
    remains: Cleanup,
    task: Task<()>,
}

impl Runnables {
    /// None so far.
    pub(crate) fn new() -> Self {
        let groups = [RunsOn::BeforeCaches, RunsOn::EveryReplica, RunsOn::Leader];
        let groups = groups.map(|group| (group, Group::Waiting(Vec::new()))).into();
        let (site, early, launched, closed, failure) = (None, Vec::new(), 0, false, None);
        let state = State { site, early, groups, launched, closed, failure };
        Self { state: Arc::new(Mutex::new(state)), led_writes: Arc::default(), failed: channel(false).0 }
    }

    /// None so far, in a process without a leader.
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

    /// Calls users' code: never under the lock.
    fn set_up(&self, site: &Site, registration: &Registration) -> Result<(), AddError> {
        let descriptor = registration.descriptor();
        self.lock().check(descriptor)?;
        let failed = |source| AddError::Setup { name: descriptor.name, source };
        match registration.set_up(site.host.clone()).map_err(failed)? {
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

    /// Starts it if its step has been reached, and has it wait for that otherwise.
    fn admit(&self, prepared: PreparedRunnable) -> Result<(), AddError> {
        let mut state = self.lock();
        state.check(prepared.descriptor())?;
        let State { groups, launched, .. } = &mut *state;
        match groups.get_mut(&prepared.descriptor().runs_on) {
            None => {}
            Some(Group::Waiting(waiting)) => waiting.push(prepared),
            Some(Group::Started(started)) => {
                // Those that have ended are dropped, so that many short ones weigh no more than a few.
                started.running.retain(|one| !one.task.is_finished());
                let running = self.launch(&started.means, &started.stop, prepared, launched);
                started.running.push(running);
            }
        }
        Ok(())
    }

    /// How many are kept of a group that has started, ended or not.
    #[cfg(test)]
    pub(crate) fn kept(&self, group: RunsOn) -> usize {
        match self.lock().groups.get(&group) {
            Some(Group::Started(started)) => started.running.len(),
            Some(Group::Waiting(_)) | None => 0,
        }
    }

    /// Starts those that wait for this group, and from now on each that is added to it.
    pub(crate) fn start(&self, group: RunsOn, means: RunnableDeps) {
        let mut state = self.lock();
        let State { groups, launched, .. } = &mut *state;
        let Some(Group::Waiting(waiting)) = groups.get_mut(&group) else { return };
        let stop = CancellationToken::new();
        let launch = |prepared| self.launch(&means, &stop, prepared, launched);
        let running = std::mem::take(waiting).into_iter().map(launch).collect();
        groups.insert(group, Group::Started(Box::new(Started { means, stop, running })));
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
        means: &RunnableDeps,
        stop: &CancellationToken,
        prepared: PreparedRunnable,
        launched: &mut u64,
    ) -> Running {
        let (name, ready, remains) =
            (prepared.descriptor().name, CancellationToken::new(), prepared.remains());
        let (number, all, is_ready) = (*launched, self.clone(), ready.clone());
        if means.takeover.is_some() && may_write(&prepared) {
            self.led_writes.store(true, Ordering::Relaxed);
        }
        let (env, means, stop) = (means.env.clone(), means.clone(), stop.clone());
        *launched += 1;
        let task = env.spawn(format!("runnable {name}"), async move {
            // A wait for it to be ready does not outlast it.
            let _ready_at_the_end = is_ready.clone().drop_guard();
            let ended = run(prepared, means, number, stop.clone(), is_ready).await;
            all.ended_with(name, ended, stop.is_cancelled());
        });
        Running { name, ready, remains, task }
    }

    /// Keeps the first failure, which ends the process; one that results from the stop signal is only logged.
    fn ended_with(&self, name: &'static str, ended: Result<(), BoxError>, stopping: bool) {
        let Err(source) = ended else { return tracing::debug!(runnable = name, "ended") };
        tracing::error!(runnable = name, error = %source, "a runnable failed");
        if !stopping {
            self.fail(ManagerError::Runnable { name, source });
        }
    }

    /// Keeps the first failure, which ends the process.
    pub(crate) fn fail(&self, failure: ManagerError) {
        self.lock().failure.get_or_insert(failure);
        self.failed.set(true);
    }

    /// Whether a runnable may have written in this term. What it wrote is in no log, so the successor lists again.
    pub(crate) fn led_writes(&self) -> bool {
        self.led_writes.load(Ordering::Relaxed)
    }

    /// Resolves when one has failed.
    ///
    /// # Cancel safety
    /// Safe.
    pub(crate) async fn failure(&self) -> ManagerError {
        loop {
            let _failed = self.failed.subscribe().wait_for(|failed| *failed).await;
            if let Some(failure) = self.lock().failure.take() {
                return failure;
            }
            // It has been returned, and the process reports no second one.
            std::future::pending::<()>().await;
        }
    }

    /// The first failure, unless [`failure`](Self::failure) has returned it.
    pub(crate) fn untold_failure(&self) -> Option<ManagerError> {
        self.lock().failure.take()
    }

    /// Takes no more: the process shuts down. Those that have not started never will.
    pub(crate) fn close(&self) {
        let dropped: (Vec<_>, Vec<_>) = {
            let mut state = self.lock();
            state.closed = true;
            let waiting = state.groups.values_mut().filter_map(|group| match group {
                Group::Waiting(waiting) => Some(std::mem::take(waiting)),
                Group::Started(_) => None,
            });
            (waiting.flatten().collect(), std::mem::take(&mut state.early))
        };
        // User's destructors run outside the lock.
        drop(dropped);
    }

    /// Sends a group the stop signal, and waits until it has ended; for at most `within`, after which the rest is aborted.
    ///
    /// # Errors
    /// Names the runnables that were aborted.
    ///
    /// # Cancel safety
    /// They have received the signal by then; calling it again waits for the rest.
    pub(crate) async fn end(&self, env: &Env, group: RunsOn, within: Duration) -> Result<(), ManagerError> {
        if !self.stop(group) {
            return Ok(());
        }
        let begun = env.now();
        if env.timeout(within, self.ended(group)).await.is_ok() {
            return Ok(());
        }
        let waited = env.now().saturating_duration_since(begun);
        let names = self.living(group);
        self.abort_one(env, group).await;
        Err(ManagerError::RunnablesStuck { waited, names })
    }

    /// Ends all of them at their next await.
    pub(crate) async fn abort(&self, env: &Env) {
        self.close();
        let groups: Vec<RunsOn> = self.lock().groups.keys().copied().collect();
        for group in groups.into_iter().rev() {
            self.abort_one(env, group).await;
        }
    }

    /// Ends a group at its next await, and waits for that: not for long, because a task that never awaits never ends.
    pub(crate) async fn abort_one(&self, env: &Env, group: RunsOn) {
        if !self.stop(group) {
            return;
        }
        let remains = self.abort_tasks(group);
        let gone = async {
            self.ended(group).await;
            join_all(remains.iter().map(Cleanup::finish)).await;
        };
        if env.timeout(GONE, gone).await.is_err() {
            tracing::error!(runnables = ?self.living(group), "aborted runnables do not stop: they never await");
        }
    }

    /// Sends a group the stop signal; `false` if none of it runs.
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
        started.running.iter().map(|one| one.remains.clone()).collect()
    }

    fn living(&self, group: RunsOn) -> Vec<&'static str> {
        match self.lock().groups.get(&group) {
            Some(Group::Started(started)) => started.living(),
            Some(Group::Waiting(_)) | None => Vec::new(),
        }
    }

    /// Waits until none of a group is left.
    async fn ended(&self, group: RunsOn) {
        poll_fn(|cx| {
            let mut state = self.lock();
            let Some(Group::Started(started)) = state.groups.get_mut(&group) else { return Poll::Ready(()) };
            // Its task has recorded how it ended.
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
    /// Whether a runnable can be added now.
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
            Self::Started(started) => started.living().contains(&name),
        }
    }
}

async fn run(
    prepared: PreparedRunnable,
    means: RunnableDeps,
    number: u64,
    stop: CancellationToken,
    ready: CancellationToken,
) -> Result<(), BoxError> {
    let RunnableDeps { clients, fence, health, remembered_events, takeover, .. } = means;
    let descriptor = prepared.descriptor();
    let clients = clients.for_controller(descriptor.client_name)?;
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
    let resources = RunnableResources { clients, health, remembered_events, number, stop, ready };
    prepared.run(resources, caught_up).await
}

impl Started {
    fn living(&self) -> Vec<&'static str> {
        self.running.iter().filter(|one| !one.task.is_finished()).map(|one| one.name).collect()
    }
}

impl fmt::Debug for Runnables {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = self.lock();
        let mut told = f.debug_map();
        for (group, members) in &state.groups {
            match members {
                Group::Waiting(waiting) => told.entry(group, &format!("{} waiting", waiting.len())),
                Group::Started(started) => told.entry(group, &started.living()),
            };
        }
        told.finish()
    }
}

/// Whether a runnable declares writes that a cache could lack: of anything but events.
fn may_write(prepared: &PreparedRunnable) -> bool {
    let is_write =
        |rule: &Rule| rule.resource != "events" && rule.verbs.iter().any(|verb| verb.is_mutating());
    prepared.declaration().rules.iter().any(is_write)
}
