//! What runs in the process beside controllers: servers, syncers, whatever has a start and an end.
//!
//! A [`Runnable`] says in which group it runs, and with that at which step of [`START`](crate::START) it starts. One that
//! is added before its step waits for it, one that is added later starts at once, and one that is added when the process
//! is on its way out is refused.
//!
//! Guarantees:
//! - The first error ends the manager and is told with the runnable's name; a panic is such an error. One that ends
//!   without an error has simply done its work.
//! - Each is told to stop at its step's place in the reverse order, has what is left of the shutdown timeout to end, and
//!   is aborted after that, and named.
//! - What a runnable that needs leadership writes stands behind the same fence as the controllers it goes with.
//! - What a runnable declares that it asks of the API server is told with what controllers declare, and nothing else leaves.
//!
//! What it refuses: to start anything twice, or again after it has ended; and to guess what a runnable asks that declares
//! nothing. Such a one is held to nothing, and whoever writes its role has to know.

use std::collections::BTreeMap;
use std::fmt;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Poll;
use std::time::Duration;

use async_trait::async_trait;
use tokio_util::sync::CancellationToken;
use windlass_admin::Health;
use windlass_client::{Clients, Fence};
use windlass_controller::{Declaration, Trigger, Triggers};
use windlass_env::cell::{Publisher, cell};
use windlass_env::{Env, Task, caught};
use windlass_metrics::Metrics;

use crate::error::{AddError, ManagerError, RunnableError};

/// When, and on which replicas, a runnable runs.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum RunnableGroup {
    /// On every replica, before caches fill: conversion webhooks, above all, without which a kind may not be listed.
    BeforeCaches,
    /// On every replica, once caches are synced, leading or not.
    EveryReplica,
    /// Where this process leads, or everywhere without an election. The default, since two replicas should not write the
    /// same.
    #[default]
    Leader,
}

/// Something that runs in the process beside controllers.
#[async_trait]
pub trait Runnable: Send + Sync + 'static {
    /// What people call it, in errors and in the log; also the identity of its client.
    fn name(&self) -> &str;

    /// When it runs. Default [`RunnableGroup::Leader`].
    fn group(&self) -> RunnableGroup {
        RunnableGroup::Leader
    }

    /// Whether the next step of the start waits until it has called [`RunnableContext::ready`], or has ended. Default
    /// false.
    fn says_when_ready(&self) -> bool {
        false
    }

    /// What it asks of the API server. Where it declares that, its client is of the descriptor's identity and refuses every
    /// other request, and [`Registry::declarations_for`](crate::Registry::declarations_for) tells it to whoever writes roles,
    /// if it was added before the manager ran. Default none: then nothing is checked and nothing told.
    fn declaration(&self) -> Option<Declaration> {
        None
    }

    /// Runs until [`RunnableContext::stopped`] resolves, or its work is done. It is called once, in a task of its own.
    ///
    /// # Errors
    /// Whatever the process should not go on without: the first error of a runnable ends it.
    async fn run(&self, cx: RunnableContext) -> Result<(), RunnableError>;
}

/// A runnable of this name and group that is no more than a function.
pub fn runnable<F, R>(name: impl Into<String>, group: RunnableGroup, run: F) -> impl Runnable
where
    F: Fn(RunnableContext) -> R + Send + Sync + 'static,
    R: Future<Output = Result<(), RunnableError>> + Send + 'static,
{
    Function { name: name.into(), group, run }
}

/// `runnable`, which declares this, and is called and identified as it says.
pub fn declaring(declaration: Declaration, runnable: impl Runnable) -> impl Runnable {
    Declaring { declaration, runnable }
}

struct Declaring<R> {
    declaration: Declaration,
    runnable: R,
}

#[async_trait]
impl<R: Runnable> Runnable for Declaring<R> {
    fn name(&self) -> &str {
        self.declaration.descriptor.name
    }

    fn group(&self) -> RunnableGroup {
        self.runnable.group()
    }

    fn says_when_ready(&self) -> bool {
        self.runnable.says_when_ready()
    }

    fn declaration(&self) -> Option<Declaration> {
        Some(self.declaration.clone())
    }

    async fn run(&self, cx: RunnableContext) -> Result<(), RunnableError> {
        self.runnable.run(cx).await
    }
}

struct Function<F> {
    name: String,
    group: RunnableGroup,
    run: F,
}

#[async_trait]
impl<F, R> Runnable for Function<F>
where
    F: Fn(RunnableContext) -> R + Send + Sync + 'static,
    R: Future<Output = Result<(), RunnableError>> + Send + 'static,
{
    fn name(&self) -> &str {
        &self.name
    }

    fn group(&self) -> RunnableGroup {
        self.group
    }

    async fn run(&self, cx: RunnableContext) -> Result<(), RunnableError> {
        (self.run)(cx).await
    }
}

/// The means of a runnable.
#[derive(Clone)]
pub struct RunnableContext {
    means: Means,
    client: kube::Client,
    stop: CancellationToken,
    ready: CancellationToken,
}

impl RunnableContext {
    /// Resolves when it is to end.
    pub fn stopped(&self) -> impl Future<Output = ()> + Send + 'static + use<> {
        self.stop.clone().cancelled_owned()
    }

    /// Whether it is to end.
    pub fn is_stopped(&self) -> bool {
        self.stop.is_cancelled()
    }

    /// Says that others may rely on it from now on; see [`Runnable::says_when_ready`].
    pub fn ready(&self) {
        self.ready.cancel();
    }

    /// A client of its own identity and limits, for what the runnable declares if it declares anything. It writes behind the fence of the lease that the runnable needs; without
    /// such a need it writes at any time, and from every replica.
    pub fn client(&self) -> &kube::Client {
        &self.client
    }

    /// The clock, timers, randomness and tasks of this process.
    pub fn env(&self) -> &Env {
        &self.means.env
    }

    /// The metrics of this manager.
    pub fn metrics(&self) -> &Metrics {
        &self.means.metrics
    }

    /// The health checks of this manager. More may be added.
    pub fn health(&self) -> &Health {
        &self.means.health
    }

    /// The trigger that `controller` declares under `name` in its setup: sends keys to that controller.
    pub fn trigger(&self, controller: &str, name: &str) -> Trigger {
        self.means.triggers.get(controller, name)
    }
}

/// Adds runnables to a manager, before it runs and while it does. Clones are the same.
#[derive(Clone, Debug)]
pub struct ManagerHandle {
    runnables: Runnables,
}

impl ManagerHandle {
    pub(crate) fn new(runnables: Runnables) -> Self {
        Self { runnables }
    }

    /// Adds a runnable, which starts in its place: at once if its step has been reached.
    ///
    /// # Errors
    /// When the manager stops, or has no leader and the runnable needs one.
    ///
    /// # Panics
    /// Outside a tokio runtime, if it starts at once.
    pub fn add(&self, runnable: impl Runnable) -> Result<(), AddError> {
        self.runnables.add(Arc::new(runnable))
    }

    #[cfg(test)]
    pub(crate) fn kept(&self, group: RunnableGroup) -> usize {
        self.runnables.kept(group)
    }
}

/// What the runnables of a group are given.
#[derive(Clone)]
pub(crate) struct Means {
    pub(crate) env: Env,
    pub(crate) clients: Clients,
    /// What they write behind; `None` for the fence of all.
    pub(crate) fence: Option<Arc<dyn Fence>>,
    pub(crate) metrics: Metrics,
    pub(crate) health: Health,
    pub(crate) triggers: Triggers,
}

/// The runnables of one process. Clones share them.
#[derive(Clone)]
pub(crate) struct Runnables {
    state: Arc<Mutex<State>>,
    failed: Publisher<bool>,
}

struct State {
    groups: BTreeMap<RunnableGroup, Group>,
    /// No more are taken.
    closed: bool,
    /// The first.
    failure: Option<ManagerError>,
}

enum Group {
    /// Its step has not been reached.
    Waiting(Vec<Arc<dyn Runnable>>),
    /// It has.
    Started(Box<Started>),
}

struct Started {
    means: Means,
    stop: CancellationToken,
    running: Vec<Running>,
}

struct Running {
    name: String,
    /// Set once it is ready, or has ended.
    ready: CancellationToken,
    awaited: bool,
    task: Task<()>,
}

impl Runnables {
    /// None so far.
    pub(crate) fn new() -> Self {
        let groups = [RunnableGroup::BeforeCaches, RunnableGroup::EveryReplica, RunnableGroup::Leader];
        let groups = groups.map(|group| (group, Group::Waiting(Vec::new()))).into();
        let state = State { groups, closed: false, failure: None };
        Self { state: Arc::new(Mutex::new(state)), failed: cell(false).0 }
    }

    /// None so far, in a process without a leader.
    pub(crate) fn leaderless() -> Self {
        let runnables = Self::new();
        runnables.lock().groups.remove(&RunnableGroup::Leader);
        runnables
    }

    pub(crate) fn add(&self, runnable: Arc<dyn Runnable>) -> Result<(), AddError> {
        let (name, group) = (runnable.name().to_owned(), runnable.group());
        let awaited = runnable.says_when_ready();
        let mut state = self.lock();
        if state.closed {
            return Err(AddError::Stopping { name });
        }
        match state.groups.get_mut(&group) {
            None => Err(AddError::NoLeader { name }),
            Some(Group::Waiting(waiting)) => {
                waiting.push(runnable);
                Ok(())
            }
            Some(Group::Started(started)) if started.stop.is_cancelled() => Err(AddError::Stopping { name }),
            Some(Group::Started(started)) => {
                let running = self.launch(&started.means, &started.stop, runnable, name, awaited);
                // Those that have ended are forgotten, so that many short ones weigh no more than a few.
                started.running.retain(|one| !one.task.is_finished());
                started.running.push(running);
                Ok(())
            }
        }
    }

    /// Whether a runnable waits for this group to start.
    pub(crate) fn has_waiting(&self, group: RunnableGroup) -> bool {
        matches!(self.lock().groups.get(&group), Some(Group::Waiting(waiting)) if !waiting.is_empty())
    }

    /// How many are kept of a group that has started, ended or not.
    #[cfg(test)]
    pub(crate) fn kept(&self, group: RunnableGroup) -> usize {
        match self.lock().groups.get(&group) {
            Some(Group::Started(started)) => started.running.len(),
            Some(Group::Waiting(_)) | None => 0,
        }
    }

    /// Starts those that wait for this group, and from now on whatever is added to it. Returns when those have said that
    /// they are ready that do say so.
    ///
    /// # Cancel safety
    /// They run by then.
    pub(crate) async fn start(&self, group: RunnableGroup, means: Means) {
        for ready in self.launch_all(group, means) {
            ready.cancelled().await;
        }
    }

    fn launch_all(&self, group: RunnableGroup, means: Means) -> Vec<CancellationToken> {
        // User's code is asked outside the lock.
        let waiting = match self.lock().groups.get_mut(&group) {
            Some(Group::Waiting(waiting)) => std::mem::take(waiting),
            Some(Group::Started(_)) | None => return Vec::new(),
        };
        let named = waiting.into_iter().map(|one| (one.name().to_owned(), one.says_when_ready(), one));
        let named: Vec<_> = named.collect();
        let stop = CancellationToken::new();
        let launch = |(name, awaited, one)| self.launch(&means, &stop, one, name, awaited);
        let running: Vec<Running> = named.into_iter().map(launch).collect();
        let awaited = running.iter().filter(|one| one.awaited).map(|one| one.ready.clone()).collect();
        let late =
            self.lock().groups.insert(group, Group::Started(Box::new(Started { means, stop, running })));
        // Whoever came in between waits no longer than those before.
        if let Some(Group::Waiting(late)) = late {
            for one in late {
                let name = one.name().to_owned();
                if let Err(error) = self.add(one) {
                    tracing::warn!(runnable = %name, %error, "not started");
                }
            }
        }
        awaited
    }

    fn launch(
        &self,
        means: &Means,
        stop: &CancellationToken,
        runnable: Arc<dyn Runnable>,
        name: String,
        awaited: bool,
    ) -> Running {
        let (ready, all) = (CancellationToken::new(), self.clone());
        let (means, stop, told) = (means.clone(), stop.clone(), ready.clone());
        let (env, own) = (means.env.clone(), name.clone());
        let run = async move {
            // Whoever waits for it to be ready does not wait for one that has ended.
            let _ended = ready_at_the_end(&told);
            let ended = caught(run(&*runnable, &own, means, stop.clone(), told.clone())).await;
            all.note(own, ended, stop.is_cancelled());
        };
        let task = env.spawn(format!("runnable {name}"), run);
        Running { name, ready, awaited, task }
    }

    /// Keeps the first failure, which ends the process; one that comes of being told to stop is only told.
    fn note(&self, name: String, ended: Result<Result<(), RunnableError>, String>, stopping: bool) {
        let source = match ended {
            Ok(Ok(())) => return tracing::debug!(runnable = %name, "ended"),
            Ok(Err(error)) => error,
            Err(message) => format!("it panicked: {message}").into(),
        };
        tracing::error!(runnable = %name, error = %source, "a runnable failed");
        if !stopping {
            self.lock().failure.get_or_insert(ManagerError::Runnable { name, source });
            self.failed.set(true);
        }
    }

    /// Resolves when one has failed.
    ///
    /// # Cancel safety
    /// Safe.
    pub(crate) async fn failure(&self) -> ManagerError {
        loop {
            let _told = self.failed.observe().wait_until(|failed| *failed).await;
            if let Some(failure) = self.lock().failure.take() {
                return failure;
            }
            // It has been told of, and more than one is not.
            std::future::pending::<()>().await;
        }
    }

    /// The first failure, if nobody has been told of it.
    pub(crate) fn untold_failure(&self) -> Option<ManagerError> {
        self.lock().failure.take()
    }

    /// Takes no more: the process is on its way out. What has not started never will.
    pub(crate) fn close(&self) {
        let dropped: Vec<_> = {
            let mut state = self.lock();
            state.closed = true;
            let waiting = state.groups.values_mut().filter_map(|group| match group {
                Group::Waiting(waiting) => Some(std::mem::take(waiting)),
                Group::Started(_) => None,
            });
            waiting.flatten().collect()
        };
        // User's destructors run outside the lock.
        drop(dropped);
    }

    /// Tells a group to stop, and waits until it has; for at most `within`, after which what is left is aborted.
    ///
    /// # Errors
    /// Names what had to be aborted.
    ///
    /// # Cancel safety
    /// They have been told by then; calling it again waits for the rest.
    pub(crate) async fn end(
        &self,
        env: &Env,
        group: RunnableGroup,
        within: Duration,
    ) -> Result<(), ManagerError> {
        if !self.tell(group) {
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
        let groups: Vec<RunnableGroup> = self.lock().groups.keys().copied().collect();
        for group in groups.into_iter().rev() {
            self.abort_one(env, group).await;
        }
    }

    /// Ends a group at its next await, and waits for that: not for long, since what never awaits never ends.
    pub(crate) async fn abort_one(&self, env: &Env, group: RunnableGroup) {
        if !self.tell(group) {
            return;
        }
        self.abort_group(group);
        if env.timeout(GONE, self.ended(group)).await.is_err() {
            tracing::error!(runnables = ?self.living(group), "these do not even stop: they never await");
        }
    }

    /// Tells a group to stop; `false` if there is nothing in it.
    fn tell(&self, group: RunnableGroup) -> bool {
        match self.lock().groups.get(&group) {
            Some(Group::Started(started)) => {
                started.stop.cancel();
                !started.running.is_empty()
            }
            Some(Group::Waiting(_)) | None => false,
        }
    }

    fn abort_group(&self, group: RunnableGroup) {
        if let Some(Group::Started(started)) = self.lock().groups.get(&group) {
            started.running.iter().for_each(|one| one.task.abort());
        }
    }

    fn living(&self, group: RunnableGroup) -> Vec<String> {
        match self.lock().groups.get(&group) {
            Some(Group::Started(started)) => started.living(),
            Some(Group::Waiting(_)) | None => Vec::new(),
        }
    }

    /// Waits until none of a group is left.
    async fn ended(&self, group: RunnableGroup) {
        poll_fn(|cx| {
            let mut state = self.lock();
            let Some(Group::Started(started)) = state.groups.get_mut(&group) else { return Poll::Ready(()) };
            // How one ended has been noted by itself.
            started.running.retain_mut(|one| Pin::new(&mut one.task).poll(cx).is_pending());
            if started.running.is_empty() { Poll::Ready(()) } else { Poll::Pending }
        })
        .await;
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// How long what was aborted may take to be gone.
const GONE: Duration = Duration::from_secs(1);

async fn run(
    runnable: &dyn Runnable,
    name: &str,
    means: Means,
    stop: CancellationToken,
    ready: CancellationToken,
) -> Result<(), RunnableError> {
    let declaration = runnable.declaration();
    let identity = declaration.as_ref().map_or(name, |declared| declared.descriptor.client_name);
    let clients = means.clients.for_controller(identity)?;
    let clients = match &means.fence {
        Some(fence) => clients.behind(fence.clone()),
        None => clients,
    };
    let client = match declaration {
        Some(declared) => clients.declared(declared.enforced(means.metrics.clone())),
        None => clients.client(),
    };
    runnable.run(RunnableContext { means, client, stop, ready }).await
}

/// Says that it is ready when dropped.
fn ready_at_the_end(ready: &CancellationToken) -> impl Drop + use<> {
    ready.clone().drop_guard()
}

impl Started {
    fn living(&self) -> Vec<String> {
        self.running.iter().filter(|one| !one.task.is_finished()).map(|one| one.name.clone()).collect()
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

impl fmt::Debug for RunnableContext {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RunnableContext").field("stopped", &self.is_stopped()).finish_non_exhaustive()
    }
}
