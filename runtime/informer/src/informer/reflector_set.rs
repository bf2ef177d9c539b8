//! The reflectors of one informer: one in total, or one per namespace or shard of a set that changes at run time.
//!
//! The queue receives the entries of a partition in this order: its addition, the entries of its reflector, its
//! removal. The reflector has stopped before the last entry is queued. A later reflector of the same partition starts
//! after it.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures_util::future::{self, Either};
use tokio_util::sync::CancellationToken;
use windlass_client::RequestProgress;
use windlass_env::watch_channel::{Receiver, Sender, channel};
use windlass_env::{Instant, Task};

use super::Informer;
use crate::availability::AvailabilityTracker;
use crate::list_watch::{ListerWatcher, Selection, SourceProvider};
use crate::partition::{ObjectLocation, Partition, PartitionSet, RemovalReason};
use crate::reflector::{
    FailureReporter, Heartbeat, Reflector, ReflectorParams, RelistHandle, STUCK_AFTER, Urgency,
};
use crate::settings::IngestOptions;
use crate::shards::ShardSelection;
use crate::store::Progress;

/// The reflectors of one informer.
pub(super) struct ReflectorSet {
    pub(super) availability: AvailabilityTracker,
    /// The failure handling that all reflectors share.
    pub(super) failures: FailureReporter,
    state: Mutex<State>,
    /// Set whenever a reflector was started or stopped.
    last_change: Sender<()>,
}

#[derive(Default)]
struct State {
    reflectors: BTreeMap<Partition, ReflectorHandle>,
    /// The number of reflectors started so far. A single counter, so that removed partitions leave no state.
    begun: u64,
}

/// The handle of one reflector.
#[derive(Clone)]
pub(super) struct ReflectorHandle {
    /// The number of reflectors that the informer started before this one.
    number: u64,
    pub(super) failures: FailureReporter,
    pub(super) relist: RelistHandle,
    heartbeat: Heartbeat,
}

/// A request to relist an informer, or the partitions of one location
/// ([`VersionedCache::request_relist`](crate::VersionedCache::request_relist)). Cheap to clone. Valid for the informer
/// that issued it. The default requests no list and is done.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct RelistTicket(pub(super) Arc<[PartitionTicket]>);

/// A request to relist one partition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct PartitionTicket {
    partition: Partition,
    /// The number of the reflector that received the request, or of the next one if the partition had none.
    number: u64,
    ticket: u64,
}

impl PartitionTicket {
    /// Returns the ticket for this reflector. A reflector that started after the request has listed after it, too.
    fn ticket_of(&self, reflector: &ReflectorHandle) -> u64 {
        if reflector.number == self.number { self.ticket } else { 0 }
    }
}

/// The sources of an informer and the steps between them and the store.
pub(super) struct SourceConfig {
    pub(super) sources: Arc<dyn SourceProvider>,
    pub(super) ingest_options: IngestOptions,
}

/// The source of one partition, created by user code.
pub(super) struct PartitionSource {
    selection: Selection,
    source: Arc<dyn ListerWatcher>,
}

/// The reflectors of the partitions, each with the token that stops it.
type Followed = BTreeMap<Partition, (CancellationToken, Task<()>)>;

impl ReflectorSet {
    pub(super) fn new() -> Self {
        Self {
            availability: AvailabilityTracker::new(),
            failures: FailureReporter::default(),
            state: Mutex::default(),
            last_change: channel(()).0,
        }
    }

    /// Returns the last error of the first reflector that has not succeeded since its error.
    pub(super) fn last_error(&self) -> Option<String> {
        let state = self.lock();
        state.reflectors.iter().find_map(|(partition, reflector)| {
            let error = reflector.failures.get()?;
            Some(match partition {
                Partition::Whole => error,
                Partition::Namespace(_) | Partition::Shard(_) => format!("{partition}: {error}"),
            })
        })
    }

    /// Returns how long a reflector has been stuck, if one is.
    pub(super) fn stalled_for(&self, now: Instant) -> Option<Duration> {
        let silences: Vec<Duration> = self
            .lock()
            .reflectors
            .values()
            .map(|reflector| reflector.heartbeat.time_since_beat(now))
            .collect();
        silences.into_iter().max().filter(|silence| *silence > STUCK_AFTER)
    }

    pub(super) fn error_of(&self, partition: &Partition) -> Option<String> {
        self.lock().reflectors.get(partition).and_then(|reflector| reflector.failures.get())
    }

    pub(super) fn reflectors(&self) -> Vec<(Partition, ReflectorHandle)> {
        let state = self.lock();
        state.reflectors.iter().map(|(partition, reflector)| (partition.clone(), reflector.clone())).collect()
    }

    /// Relists the partitions that are not of the newest epoch: if the version of one moved back, all moved back.
    pub(super) fn distrust_old_epochs(&self, progress: &Progress) {
        for (partition, reflector) in &self.lock().reflectors {
            if !progress.trusts(partition) {
                reflector.relist.request(Urgency::Urgent);
            }
        }
    }

    /// Requests a relist of a partition. The first list of a reflector that starts later is sufficient.
    fn request_relist(&self, partition: Partition, urgency: Urgency) -> PartitionTicket {
        let state = self.lock();
        match state.reflectors.get(&partition) {
            Some(ReflectorHandle { number, relist, .. }) => {
                PartitionTicket { number: *number, ticket: relist.request(urgency), partition }
            }
            None => PartitionTicket { number: state.begun, ticket: 0, partition },
        }
    }

    /// Waits for the reflector of a partition.
    async fn reflector(&self, partition: &Partition) -> ReflectorHandle {
        let mut changes = self.last_change.subscribe();
        loop {
            let reflector = self.lock().reflectors.get(partition).cloned();
            match reflector {
                Some(reflector) => return reflector,
                None => self.next_change(&mut changes).await,
            }
        }
    }

    /// Waits until that reflector of a partition has been removed.
    async fn stopped(&self, partition: &Partition, number: u64) {
        let mut changes = self.last_change.subscribe();
        while self.lock().reflectors.get(partition).is_some_and(|reflector| reflector.number == number) {
            self.next_change(&mut changes).await;
        }
    }

    async fn next_change(&self, changes: &mut Receiver<()>) {
        // It closes only when `self` is dropped.
        let _seen = changes.changed().await;
    }

    /// Adds a partition.
    fn begin(&self, partition: &Partition, progress: RequestProgress) -> ReflectorHandle {
        let (failures, relist) = (self.failures.sibling(), RelistHandle::new());
        let reflector = {
            let state = &mut *self.lock();
            let reflector = ReflectorHandle {
                number: state.begun,
                failures,
                relist,
                heartbeat: Heartbeat::new(progress),
            };
            state.begun += 1;
            state.reflectors.insert(partition.clone(), reflector.clone());
            reflector
        };
        self.last_change.set(());
        reflector
    }

    fn end(&self, partition: &Partition) {
        self.lock().reflectors.remove(partition);
        self.availability.forget(partition);
        self.last_change.set(());
    }

    /// No user code runs under this lock, so poison cannot mean a broken table.
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Informer {
    /// Gets the source of one partition from user code. Must not be called under a lock.
    pub(super) fn source_of(&self, partition: &Partition, sources: &dyn SourceProvider) -> PartitionSource {
        let selection = self.selection_of(partition);
        let source = sources.source(&self.codec.kind, &selection);
        PartitionSource { selection, source }
    }

    /// Returns the selection of one partition.
    pub(super) fn selection_of(&self, partition: &Partition) -> Selection {
        let selection = self.selection.clone();
        match partition {
            Partition::Whole => selection,
            Partition::Namespace(namespace) => {
                Selection { namespace: Some(namespace.name.to_string()), ..selection }
            }
            Partition::Shard(shard) => {
                Selection { shards: ShardSelection::One(Arc::clone(shard)), ..selection }
            }
        }
    }

    /// Starts the reflector of one partition. It runs until `stop` is canceled.
    pub(super) fn spawn_reflector(
        &self,
        partition: Partition,
        given: PartitionSource,
        ingest_options: IngestOptions,
        stop: CancellationToken,
    ) -> Task<()> {
        let PartitionSource { selection: Selection { namespace, .. }, source } = given;
        let progress = source.progress().cloned().unwrap_or_default();
        let ReflectorHandle { number, failures, relist, heartbeat } =
            self.reflectors.begin(&partition, progress);
        let reflector = Reflector::new(ReflectorParams {
            informer: Arc::clone(&self.name),
            stream: stream(&self.rng_prefix, &partition, number),
            availability: self.reflectors.availability.reporter(
                partition.clone(),
                self.codec.kind.clone(),
                namespace,
            ),
            partition: partition.clone(),
            source,
            codec: Arc::clone(&self.codec),
            fifo: Arc::clone(&self.fifo),
            store: Arc::clone(&self.store),
            ingest_options,
            env: self.env.clone(),
            metrics: self.metrics.clone(),
            failures,
            relist,
            heartbeat,
        });
        let alive = self.core_task_died.clone().drop_guard();
        let name = match &partition {
            Partition::Whole => "reflector".to_owned(),
            Partition::Namespace(_) | Partition::Shard(_) => format!("reflector of {partition}"),
        };
        self.spawn(&name, async move {
            stop.run_until_cancelled(reflector.run()).await;
            // Canceled; any other end leaves the guard armed, which reports it.
            let _disarmed = alive.disarm();
        })
    }

    /// Spawns the task that keeps the reflectors in line with the partitions of a set.
    pub(super) fn spawn_partition_set(
        self: &Arc<Self>,
        partitions: PartitionSet,
        feed: SourceConfig,
    ) -> Task<()> {
        let (inner, alive) = (Arc::clone(self), self.core_task_died.clone().drop_guard());
        let name = if partitions.namespaces().is_some() { "namespaces" } else { "shards" };
        self.spawn(name, async move {
            let mut followed = Followed::new();
            inner
                .stop
                .run_until_cancelled(inner.follow_partition_set(&partitions, &feed, &mut followed))
                .await;
            for (_, task) in followed.values_mut() {
                // A panic in a task has been reported under its name by the Env.
                let _ended = task.await;
            }
            let _disarmed = alive.disarm();
        })
    }

    /// Requests relists of the partitions that can contain objects at `location`.
    pub(super) fn request_relists(&self, location: ObjectLocation<'_>, urgency: Urgency) -> RelistTicket {
        // Use the desired partitions, because a partition that has just joined might not be followed yet.
        let parts = match &self.partitions {
            Some(partitions) => partitions.current(),
            None => BTreeSet::from([Partition::Whole]),
        };
        let parts = parts.into_iter().filter(|part| part.can_contain(location));
        RelistTicket(parts.map(|part| self.reflectors.request_relist(part, urgency)).collect())
    }

    /// Returns whether the list of a ticket is in the store, or the partition is no longer followed. If it has left and
    /// joined again, the first list of its new term is required.
    pub(super) fn is_relisted(&self, part: &PartitionTicket) -> bool {
        let reflector = self.reflectors.lock().reflectors.get(&part.partition).cloned();
        let given =
            reflector.and_then(|reflector| reflector.relist.granted_position(part.ticket_of(&reflector)));
        given.is_some_and(|position| self.fifo.is_processed(position))
            || self.has_left(&part.partition, &self.progress.get())
    }

    /// Returns whether a partition is no longer followed, and each later term of it has been listed.
    fn has_left(&self, partition: &Partition, progress: &Progress) -> bool {
        self.partitions.as_ref().is_some_and(|partitions| {
            let current = partitions.current();
            let mut again = current.iter().filter(|current| current.is_term_of_same(partition));
            !current.contains(partition) && again.all(|term| progress.has_listed_partition(term))
        })
    }

    /// Waits until the list of a ticket is in the store. If the partition leaves, this returns, because no outdated
    /// object remains. If the partition is about to join, this waits for it.
    pub(super) async fn wait_partition_relisted(&self, part: &PartitionTicket) {
        let leaves = async {
            match &self.partitions {
                Some(partitions) => partitions.wait_removed(&part.partition).await,
                None => future::pending().await,
            }
        };
        if let Either::Left(_) = future::select(pin!(leaves), pin!(self.listed_since(part))).await {
            let mut progress = self.progress.subscribe();
            // It closes only when the informer is dropped.
            let _stopped = progress.wait_for(|progress| self.has_left(&part.partition, progress)).await;
        }
    }

    async fn listed_since(&self, part: &PartitionTicket) {
        loop {
            let reflector = self.reflectors.reflector(&part.partition).await;
            let granted = reflector.relist.granted(part.ticket_of(&reflector));
            let gone = self.reflectors.stopped(&part.partition, reflector.number);
            match future::select(pin!(granted), pin!(gone)).await {
                Either::Left((position, _)) => return self.fifo.wait_processed(position).await,
                // The partition left and might have joined again: a new reflector lists in any case.
                Either::Right(((), _)) => {}
            }
        }
    }

    async fn follow_partition_set(
        &self,
        partitions: &PartitionSet,
        feed: &SourceConfig,
        followed: &mut Followed,
    ) {
        let mut changes = partitions.subscribe();
        self.join(partitions.current(), feed, followed, true);
        loop {
            changes.changed().await;
            let wanted = partitions.current();
            self.leave(&wanted, followed).await;
            self.join(wanted, feed, followed, false);
        }
    }

    /// Starts the reflectors of new partitions. The first call queues an entry even if there is none.
    fn join(&self, wanted: BTreeSet<Partition>, feed: &SourceConfig, followed: &mut Followed, first: bool) {
        let new: Vec<Partition> = wanted.into_iter().filter(|part| !followed.contains_key(part)).collect();
        if !new.is_empty() || first {
            self.fifo.add_partitions(new.clone());
        }
        for partition in new {
            let stop = self.stop.child_token();
            let given = self.source_of(&partition, &*feed.sources);
            let task =
                self.spawn_reflector(partition.clone(), given, feed.ingest_options.clone(), stop.clone());
            followed.insert(partition, (stop, task));
        }
    }

    /// Stops the reflectors of partitions that are no longer desired.
    ///
    /// # Cancel safety
    /// A partition whose reflector is being stopped is still in `followed`.
    async fn leave(&self, wanted: &BTreeSet<Partition>, followed: &mut Followed) {
        let left: Vec<Partition> = followed.keys().filter(|part| !wanted.contains(part)).cloned().collect();
        for partition in left {
            if let Some((stop, task)) = followed.get_mut(&partition) {
                stop.cancel();
                // A panic in a task has been reported under its name by the Env.
                let _ended = task.await;
            }
            followed.remove(&partition);
            self.reflectors.end(&partition);
            self.budget.clear_exceeded(&partition);
            self.fifo.remove_partition(partition, RemovalReason::Deselected);
        }
    }
}

/// Returns the name of the random stream of a reflector. Each reflector has a separate stream, also after a rejoin.
fn stream(path: &str, partition: &Partition, before: u64) -> String {
    match (partition, before) {
        (Partition::Whole, _) => path.to_owned(),
        (Partition::Namespace(namespace), before) => format!("{path}/{}/{before}", namespace.name),
        (Partition::Shard(shard), before) => format!("{path}/{shard}/{before}"),
    }
}

impl fmt::Debug for ReflectorSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ReflectorSet").field("availability", &self.availability).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn removed_partitions_leave_no_memory_and_numbers_are_unique() {
        let following = ReflectorSet::new();
        let come_and_go = |name: &str| {
            let partition = Partition::Namespace(name.into());
            let number = following.begin(&partition, RequestProgress::default()).number;
            following.end(&partition);
            number
        };
        let first = come_and_go("first");
        let used = allocation_counter::measure(|| {
            for number in 0..1_000 {
                come_and_go(&format!("namespace-{number}"));
            }
        });
        assert!(used.bytes_current < 1_000, "{} bytes after a thousand partitions", used.bytes_current);
        assert_ne!(come_and_go("first"), first);
    }
}
