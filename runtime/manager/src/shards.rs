//! Leadership by shards: every replica acts, each on the keys of the shards that it holds.
//!
//! This module connects [`windlass_sharding`] to the controllers of the process. All controllers start at the same
//! time, on every replica, and cache the objects of the held shards; a replica without shards is idle and ready. Shards
//! are acquired and released while the controllers run:
//!
//! | event | steps, in this order |
//! |---|---|
//! | acquired | the informers list the objects of the shard; each controller waits until its own caches are synced and reflect what the previous holder wrote; its parked keys are resumed |
//! | handoff requested | no reconcile of the shard starts; running reconciles finish; its objects leave the caches; the Lease is released with the versions that were written |
//! | lost | the same, and the closed fence blocks all writes |
//! | shutdown | nothing is acquired; all controllers drain as without shards; all Leases are released together, without versions: the next holders relist their caches |
//!
//! Guarantees:
//! - A reconcile writes through the fence of its key's shard. Writes that belong to no key, such as Events, are sent
//!   while any shard is held.
//! - A key that is enqueued during the takeover of its shard is parked until the controller starts on the shard.
//! - A lost shard stops the work on this shard only. When this replica can acquire the shard again, all reconciles that
//!   its fence has stopped have ended, and the controller keeps no state for its keys.
//! - A task on a dedicated thread renews the Leases, so no worker delays a renewal.
//!
//! A namespaced key is in the shard of its namespace, a key without a namespace in the shard of a namespace of its
//! name. The UID is not used, as it is for caches and API servers, because a key must be in one shard before its object
//! exists, after it is deleted, and when another object gets its name. So a controller must cache all objects of a kind
//! without namespaces ([`windlass_informer::Selection::with_every_shard`]): its keys are divided, its caches are not. A
//! controller [on one shard](windlass_controller::Descriptor::on_one_shard) caches all objects, and all its keys are in
//! one shard. A controller that watches the held shards of such a kind is rejected, because its caches would be divided
//! differently from its keys. When a replica acquires a shard, it enqueues the keys of the shard that such caches
//! contain.
//!
//! Not supported: runnables that require the leader, because there is none.

use std::collections::BTreeMap;
use std::fmt;
use std::future::Future;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures_util::StreamExt as _;
use futures_util::future::{self, BoxFuture, Either};
use futures_util::stream::FuturesUnordered;
use tokio::sync::Notify;
use windlass_admin::Pages;
use windlass_client::{RawClient, one_line};
use windlass_controller::host::{PreparedController, ShardHandoff};
use windlass_election::{ElectionError, LeaseLost, LossReason, PreviousHolder, WrittenVersions};
use windlass_env::watch_channel::Receiver;
use windlass_env::{DedicatedRuntime, Env};
use windlass_informer::{InformerFactory, ShardSelection, ShardSet};
use windlass_object::Scope;
use windlass_object::shard::{HashRanges, ShardId};
use windlass_sharding::{
    CountOutcome, HeldShard, ProposalOutcome, Rebalancer, ShardElector, ShardElectorTask, ShardEvent,
    ShardTable, ShardsOverview, ShardsReport,
};

use crate::error::ManagerError;
use crate::explain::answer;
use crate::race::first;
use crate::takeover::{Takeover, merged};

/// The path of the shards report.
const SHARDS: &str = "/debug/shards";

/// Interval at which the caches that delay the start on a shard are logged.
const LOG_INTERVAL: Duration = Duration::from_secs(30);

/// The state that controllers and their leadership share. Clones share one state.
#[derive(Clone, Default)]
pub(crate) struct ShardContext {
    pub(crate) table: ShardTable,
    pub(crate) set: ShardSet,
    controllers: Arc<ActiveControllers>,
}

/// The running controllers.
#[derive(Default)]
struct ActiveControllers {
    handoffs: Mutex<Vec<ShardHandoff>>,
    joined: Notify,
}

impl ShardContext {
    /// Registers a controller. From now on a shard is released only after the reconciles of this controller.
    pub(crate) fn register_controller(&self, handoff: ShardHandoff) {
        self.controllers.lock().push(handoff);
        self.controllers.joined.notify_one();
    }
}

impl ActiveControllers {
    fn handoffs(&self) -> Vec<ShardHandoff> {
        self.lock().clone()
    }

    /// Returns the versions that all controllers have written; `None` if the outcome of a write is unknown.
    fn written(&self) -> Option<WrittenVersions> {
        self.lock().iter().map(ShardHandoff::written).fold(Some(WrittenVersions::new()), merged)
    }

    /// Locks the list. Nothing else runs under this lock, so a poisoned lock does not mean a broken list.
    fn lock(&self) -> MutexGuard<'_, Vec<ShardHandoff>> {
        self.handoffs.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Starts and stops the work on shards as this replica acquires and loses them.
pub(crate) struct ShardCoordinator {
    env: Env,
    context: ShardContext,
    rebalancer: Rebalancer,
    lease: String,
    elector: ShardElectorTask,
    overview: Receiver<ShardsOverview>,
    /// The number of controllers of the process.
    controllers: usize,
    /// The number of controllers that have started on the held shards.
    started: usize,
    /// Whether the process is shutting down.
    stopping: bool,
    transitions: FuturesUnordered<BoxFuture<'static, ShardTransition>>,
}

/// A completed step of a shard.
enum ShardTransition {
    /// The step does not matter any more.
    Superseded,
    /// A controller has started on a shard.
    Started(ShardId),
    /// No reconcile of a shard runs.
    Drained(ShardId),
    /// The Lease of a shard was released.
    Released(ShardId, Result<(), ElectionError>),
    /// The objects of all namespaces were counted.
    Counted(CountOutcome),
    /// A division was proposed.
    Proposed(ProposalOutcome),
}

impl ShardCoordinator {
    /// Returns a coordinator whose elector has not started. `lease` names the election in logs and errors.
    pub(crate) fn new(
        runtime: DedicatedRuntime,
        elector: ShardElector,
        lease: String,
        context: ShardContext,
        factory: InformerFactory,
        reader: RawClient,
    ) -> Self {
        let env = reader.env().clone();
        let overview = elector.overview();
        let (elector, transitions) = (ShardElectorTask::new(runtime, elector), FuturesUnordered::new());
        let rebalancer = Rebalancer::new(env.clone(), factory, reader);
        let (controllers, started, stopping) = (0, 0, false);
        Self {
            env,
            context,
            rebalancer,
            lease,
            elector,
            overview,
            controllers,
            started,
            stopping,
            transitions,
        }
    }

    /// Sets the number of controllers of the process.
    pub(crate) fn with_controllers(self, controllers: usize) -> Self {
        Self { controllers, ..self }
    }

    /// Starts the elector.
    pub(crate) fn begin(&mut self) {
        self.elector.start(&self.lease);
    }

    /// Runs `work`, and processes the events of shards meanwhile.
    ///
    /// # Errors
    /// When the elector has exited. `work` is dropped then.
    pub(crate) async fn during<T>(&mut self, work: impl Future<Output = T>) -> Result<T, ManagerError> {
        match first(self.run(), work).await {
            Either::Left(failure) => Err(failure),
            Either::Right(done) => Ok(done),
        }
    }

    /// Acquires no more shards. Held shards are renewed and kept until [`Self::release_all`].
    pub(crate) fn stop_acquiring(&mut self) {
        self.stopping = true;
        self.elector.stop_acquiring();
    }

    /// Releases all held shards after all work has stopped.
    pub(crate) async fn release_all(&mut self, written: Option<WrittenVersions>) -> Result<(), ManagerError> {
        self.stopping = true;
        match self.elector.release_all(written).await {
            Some(released) => Ok(released?),
            None => Err(self.failure()),
        }
    }

    /// Stops the elector without releasing Leases; they expire.
    pub(crate) async fn abort(&mut self) {
        self.stopping = true;
        self.elector.abort().await;
    }

    /// Processes events until the elector has exited.
    ///
    /// # Cancel safety
    /// Steps in progress continue with the next call.
    async fn run(&mut self) -> ManagerError {
        loop {
            tokio::select! {
                biased;
                event = self.elector.event() => match event {
                    Some(event) => self.on_event(event),
                    // A killed process observes nothing.
                    None if !self.env.is_alive() => future::pending().await,
                    None => return self.failure(),
                },
                Ok(overview) = self.overview.changed() => {
                    self.rebalancer.set_shard_map(overview.shard_map.as_ref());
                    self.context.table.set_overview(overview);
                }
                () = self.context.controllers.joined.notified() => self.start_new_controllers(),
                Some(transition) = self.transitions.next(), if !self.transitions.is_empty() => {
                    self.on_transition(transition);
                }
            }
        }
    }

    fn on_event(&mut self, event: ShardEvent) {
        match event {
            // During shutdown all shards are released together.
            _ if self.stopping => {}
            ShardEvent::Acquired { shard, ranges, fence, previous_holder } => {
                let held = HeldShard::new(ranges.clone(), fence, previous_holder);
                self.join(shard, ranges, held);
            }
            ShardEvent::HandoffRequested { shard } => self.begin_release(shard),
            ShardEvent::Lost { shard, lost } => {
                tracing::warn!(%shard, %lost, "shard lost; stopping its reconciles");
                self.context.table.lose(shard);
                self.begin_release(shard);
            }
            // The reply to the release contains the outcome.
            ShardEvent::Released { .. } => {}
        }
    }

    /// Adds the objects of a shard to the caches, and starts each controller once its own caches are synced.
    fn join(&mut self, shard: ShardId, ranges: HashRanges, held: HeldShard) {
        // Before any of its objects is cached, so that no key is dropped.
        self.context.table.join(shard, held.clone());
        if let Err(overlap) = self.context.set.insert(shard, ranges) {
            // An election excludes this. The shard is released, because its objects would never be cached.
            tracing::error!(%shard, error = one_line(&overlap), "shard overlaps a held shard; releasing it");
            return self.begin_release(shard);
        }
        for handoff in self.context.controllers.handoffs() {
            self.start(shard, &held, handoff);
        }
        if shard == ShardId(0) {
            self.rebalancer.set_shard_map(self.overview.get().shard_map.as_ref());
            let count = self.rebalancer.first_count(held.leaving().clone());
            self.spawn_count(count);
        }
    }

    /// Starts newly registered controllers on the held shards.
    fn start_new_controllers(&mut self) {
        let handoffs = self.context.controllers.handoffs();
        let held = self.context.table.staying();
        for handoff in handoffs.get(self.started..).unwrap_or_default() {
            held.iter().for_each(|(shard, held)| self.start(*shard, held, handoff.clone()));
        }
        self.started = handoffs.len();
    }

    fn start(&mut self, shard: ShardId, held: &HeldShard, handoff: ShardHandoff) {
        let (env, table, held) = (self.env.clone(), self.context.table.clone(), held.clone());
        let count = self.controllers;
        self.transitions.push(Box::pin(async move {
            let ready = ready(&env, shard, &handoff, held.previous_holder());
            if let Either::Right(Some(reflected)) = first(held.leaving().cancelled(), ready).await
                && table.start(shard, &held, handoff.name(), count, &reflected)
            {
                handoff.resume_parked();
                handoff.requeue_cached(|key| held.contains(key, handoff.key_position()));
                return ShardTransition::Started(shard);
            }
            ShardTransition::Superseded
        }));
    }

    /// Stops the work on a shard, and releases it afterwards.
    fn begin_release(&mut self, shard: ShardId) {
        let Some(ranges) = self.context.table.stop(shard) else { return };
        let handoffs = self.context.controllers.handoffs();
        self.transitions.push(Box::pin(async move {
            let ranges = &ranges;
            let drained = handoffs.iter().map(|handoff| {
                let position = handoff.key_position();
                handoff.drain_keys(move |key| ranges.contains(position.hash_of(key)))
            });
            future::join_all(drained).await;
            // A write without a response must have taken effect, or never will, before the next holder reads.
            future::join_all(handoffs.iter().map(ShardHandoff::writes_settled)).await;
            ShardTransition::Drained(shard)
        }));
    }

    fn on_transition(&mut self, transition: ShardTransition) {
        match transition {
            ShardTransition::Superseded => {}
            ShardTransition::Started(shard) => tracing::debug!(%shard, "controller started on shard"),
            ShardTransition::Drained(shard) => self.release(shard),
            ShardTransition::Released(shard, Ok(())) => tracing::info!(%shard, "shard released"),
            ShardTransition::Released(shard, Err(error)) => {
                tracing::warn!(%shard, error = one_line(&error), "shard release failed; leaving its lease to expire");
            }
            ShardTransition::Counted(outcome) => self.on_count(outcome),
            ShardTransition::Proposed(outcome) => {
                tracing::debug!(?outcome, "shard map proposed");
            }
        }
    }

    /// Releases the Lease of a shard after its last reconcile.
    fn release(&mut self, shard: ShardId) {
        if self.stopping {
            return;
        }
        // Before the Lease is released, because this replica can acquire the same ranges next.
        self.context.set.remove(shard);
        let Some(left) = self.context.table.leave(shard) else { return };
        // Without versions the next holder relists its caches.
        let written = merged(self.context.controllers.written(), left.record());
        let released = self.elector.release(shard, written);
        self.transitions.push(Box::pin(async move {
            let released = released.await;
            released.map_or(ShardTransition::Superseded, |it| ShardTransition::Released(shard, it))
        }));
    }

    /// Proposes a division after a count, and counts again later.
    fn on_count(&mut self, outcome: CountOutcome) {
        if let Some((shard_map, heavy)) = self.rebalancer.proposal(&outcome) {
            let proposed = self.elector.propose(shard_map, heavy);
            self.transitions.push(Box::pin(async move {
                proposed.await.map_or(ShardTransition::Superseded, ShardTransition::Proposed)
            }));
        }
        let count = self.rebalancer.next_count(outcome);
        self.spawn_count(count);
    }

    fn spawn_count(&self, count: impl Future<Output = Option<CountOutcome>> + Send + 'static) {
        self.transitions.push(Box::pin(async move {
            count.await.map_or(ShardTransition::Superseded, ShardTransition::Counted)
        }));
    }

    fn failure(&self) -> ManagerError {
        let source = LeaseLost { reason: LossReason::ElectorStopped };
        ManagerError::LeaseLost { lease: self.lease.clone(), source }
    }
}

/// Waits until a controller can start on a shard, and returns the versions at which its caches reflect the writes of
/// the previous holders; `None` if one of its caches was shut down.
async fn ready(
    env: &Env,
    shard: ShardId,
    handoff: &ShardHandoff,
    previous_holder: &PreviousHolder,
) -> Option<WrittenVersions> {
    loop {
        match env.timeout(LOG_INTERVAL, handoff.caches_synced()).await {
            Ok(true) => break,
            Ok(false) => return None,
            Err(_) => {
                tracing::warn!(%shard, controller = handoff.name(), "waiting for the caches of a shard");
            }
        }
    }
    let takeover = Takeover::new(env.clone(), handoff.caches(), previous_holder);
    takeover.wait_for_writes(handoff.name(), |_| true).await;
    Some(takeover.reflected())
}

/// Rejects controllers whose keys and caches would be divided differently.
///
/// # Errors
/// The first of them, with the kind.
pub(crate) fn check(prepared: &[PreparedController], factory: &InformerFactory) -> Result<(), ManagerError> {
    let shared: BTreeMap<_, ()> = factory.kinds().into_iter().map(|kind| (kind, ())).collect();
    for one in prepared {
        let watches = one.declaration().watches.into_iter().filter(|watch| shared.contains_key(watch));
        let mut unshareable = watches.filter(|(kind, selection)| {
            kind.scope == Scope::Cluster && selection.shards == ShardSelection::Held
        });
        if let Some((kind, _)) = unshareable.next() {
            return Err(ManagerError::Unshareable { controller: one.descriptor().name, kind });
        }
    }
    Ok(())
}

/// Adds the shards report to the admin server.
pub(crate) fn add_page(pages: &Pages, table: &ShardTable) {
    let table = table.clone();
    pages.add(
        SHARDS,
        Arc::new(move |request| {
            let report = ShardsReport::new(&table);
            answer(request, &report, || report.to_string())
        }),
    );
}

impl fmt::Debug for ShardCoordinator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ShardCoordinator").field("lease", &self.lease).finish_non_exhaustive()
    }
}
