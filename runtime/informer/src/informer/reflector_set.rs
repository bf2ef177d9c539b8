//! Whom an informer follows: one source of everything, or one for each namespace or shard of a set, begun and ended while
//! the informer runs.
//!
//! What such a part leads to enters the queue in this order, whatever else happens: that it joined, what its reflector
//! finds, that it left. Its reflector has ended before the last is queued, and a later one of the same part begins
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
use crate::reflector::{Heartbeat, Reflector, ReflectorParams, RelistHandle, STUCK_AFTER, Trouble, Urgency};
use crate::settings::IngestOptions;
use crate::shards::Shards;
use crate::store::Progress;

/// The reflectors of one informer.
pub(super) struct ReflectorSet {
    pub(super) board: AvailabilityTracker,
    /// What all of them have in common about failures.
    pub(super) trouble: Trouble,
    state: Mutex<State>,
    /// Set whenever a reflector has begun or ended.
    turns: Sender<()>,
}

#[derive(Default)]
struct State {
    followers: BTreeMap<Partition, ReflectorHandle>,
    /// How many reflectors there have been of all parts: one number for each, and nothing kept of parts that are gone.
    begun: u64,
}

/// What outsiders need to know of one reflector.
#[derive(Clone)]
pub(super) struct ReflectorHandle {
    /// How many reflectors the informer had before this one.
    number: u64,
    pub(super) trouble: Trouble,
    pub(super) refresh: RelistHandle,
    pulse: Heartbeat,
}

/// A request for fresh lists of an informer, or of the parts of it that can hold what is at one site
/// ([`VersionSource::request_refresh`](crate::VersionSource::request_refresh)). Cheap to clone. Valid for the informer
/// that issued it. The default is a request for nothing, which is done.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct RefreshTicket(pub(super) Arc<[PartTicket]>);

/// A request for a fresh list of one part.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct PartTicket {
    partition: Partition,
    /// Which reflector of the informer was asked; the next one if the part had none.
    number: u64,
    ticket: u64,
}

impl PartTicket {
    /// The ticket as this reflector counts. A reflector that began after the request has listed after it, too.
    fn ticket_of(&self, follower: &ReflectorHandle) -> u64 {
        if follower.number == self.number { self.ticket } else { 0 }
    }
}

/// Where an informer's objects come from, and what stands between them and the store.
pub(super) struct SourceConfig {
    pub(super) sources: Arc<dyn SourceProvider>,
    pub(super) admission: IngestOptions,
}

/// What users' code gave for one part.
pub(super) struct PartitionSource {
    selection: Selection,
    source: Arc<dyn ListerWatcher>,
}

/// The reflectors of the parts, each with what ends it.
type Followed = BTreeMap<Partition, (CancellationToken, Task<()>)>;

impl ReflectorSet {
    pub(super) fn new() -> Self {
        Self {
            board: AvailabilityTracker::new(),
            trouble: Trouble::default(),
            state: Mutex::default(),
            turns: channel(()).0,
        }
    }

    /// What the reflectors last failed at, if nothing has succeeded since: that of the first who did.
    pub(super) fn last_error(&self) -> Option<String> {
        let state = self.lock();
        state.followers.iter().find_map(|(partition, follower)| {
            let error = follower.trouble.get()?;
            Some(match partition {
                Partition::Whole => error,
                Partition::Namespace(_) | Partition::Shard(_) => format!("{partition}: {error}"),
            })
        })
    }

    /// For how long a reflector has been stuck, if one is.
    pub(super) fn stuck_for(&self, now: Instant) -> Option<Duration> {
        let silences: Vec<Duration> =
            self.lock().followers.values().map(|follower| follower.pulse.silence(now)).collect();
        silences.into_iter().max().filter(|silence| *silence > STUCK_AFTER)
    }

    pub(super) fn error_of(&self, partition: &Partition) -> Option<String> {
        self.lock().followers.get(partition).and_then(|follower| follower.trouble.get())
    }

    pub(super) fn followers(&self) -> Vec<(Partition, ReflectorHandle)> {
        let state = self.lock();
        state.followers.iter().map(|(partition, follower)| (partition.clone(), follower.clone())).collect()
    }

    /// Has those parts read again that are not of the newest epoch: if one went back in time, so did all.
    pub(super) fn distrust_old_epochs(&self, progress: &Progress) {
        for (partition, follower) in &self.lock().followers {
            if !progress.trusts(partition) {
                follower.refresh.ask(Urgency::Urgent);
            }
        }
    }

    /// Requests a fresh list of a part. The first list of a reflector that begins later is as good.
    fn ask(&self, partition: Partition, urgency: Urgency) -> PartTicket {
        let state = self.lock();
        match state.followers.get(&partition) {
            Some(ReflectorHandle { number, refresh, .. }) => {
                PartTicket { number: *number, ticket: refresh.ask(urgency), partition }
            }
            None => PartTicket { number: state.begun, ticket: 0, partition },
        }
    }

    /// The follower of a part, as soon as there is one.
    async fn follower(&self, partition: &Partition) -> ReflectorHandle {
        let mut turns = self.turns.subscribe();
        loop {
            let follower = self.lock().followers.get(partition).cloned();
            match follower {
                Some(follower) => return follower,
                None => self.turn(&mut turns).await,
            }
        }
    }

    /// Waits until that follower of a part is none any more.
    async fn gone(&self, partition: &Partition, number: u64) {
        let mut turns = self.turns.subscribe();
        while self.lock().followers.get(partition).is_some_and(|follower| follower.number == number) {
            self.turn(&mut turns).await;
        }
    }

    async fn turn(&self, turns: &mut Receiver<()>) {
        // It closes only with this table.
        let _seen = turns.changed().await;
    }

    /// Enters a part.
    fn begin(&self, partition: &Partition, progress: RequestProgress) -> ReflectorHandle {
        let (trouble, refresh) = (self.trouble.sibling(), RelistHandle::new());
        let follower = {
            let state = &mut *self.lock();
            let follower =
                ReflectorHandle { number: state.begun, trouble, refresh, pulse: Heartbeat::new(progress) };
            state.begun += 1;
            state.followers.insert(partition.clone(), follower.clone());
            follower
        };
        self.turns.set(());
        follower
    }

    fn end(&self, partition: &Partition) {
        self.lock().followers.remove(partition);
        self.board.forget(partition);
        self.turns.set(());
    }

    /// No code of others runs under this lock, so poison cannot mean a broken table.
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Informer {
    /// Asks users' code for what it takes to follow one part. To be called under no lock.
    pub(super) fn ask(&self, partition: &Partition, sources: &dyn SourceProvider) -> PartitionSource {
        let selection = self.selection_of(partition);
        let source = sources.source(&self.codec.kind, &selection);
        PartitionSource { selection, source }
    }

    /// What is selected of one part.
    pub(super) fn selection_of(&self, partition: &Partition) -> Selection {
        let selection = self.selection.clone();
        match partition {
            Partition::Whole => selection,
            Partition::Namespace(namespace) => {
                Selection { namespace: Some(namespace.to_string()), ..selection }
            }
            Partition::Shard(shard) => Selection { shards: Shards::One(Arc::clone(shard)), ..selection },
        }
    }

    /// Follows one part, until `stop` says otherwise.
    pub(super) fn follow(
        &self,
        partition: Partition,
        given: PartitionSource,
        admission: IngestOptions,
        stop: CancellationToken,
    ) -> Task<()> {
        let PartitionSource { selection: Selection { namespace, .. }, source } = given;
        let progress = source.progress().cloned().unwrap_or_default();
        let ReflectorHandle { number: before, trouble, refresh, pulse } =
            self.following.begin(&partition, progress);
        let reflector = Reflector::new(ReflectorParams {
            informer: Arc::clone(&self.name),
            stream: stream(&self.path, &partition, before),
            sighting: self.following.board.sighting(partition.clone(), self.codec.kind.clone(), namespace),
            partition: partition.clone(),
            source,
            codec: Arc::clone(&self.codec),
            fifo: Arc::clone(&self.fifo),
            store: Arc::clone(&self.store),
            admission,
            env: self.env.clone(),
            metrics: self.metrics.clone(),
            trouble,
            refresh,
            pulse,
        });
        let alive = self.unfollowed.clone().drop_guard();
        let name = match &partition {
            Partition::Whole => "reflector".to_owned(),
            Partition::Namespace(_) | Partition::Shard(_) => format!("reflector of {partition}"),
        };
        self.spawn(&name, async move {
            stop.run_until_cancelled(reflector.run()).await;
            // Told to end; whatever else ends it leaves the guard to tell.
            let _disarmed = alive.disarm();
        })
    }

    /// Keeps to the members of a set, as it changes.
    pub(super) fn spawn_members(self: &Arc<Self>, members: PartitionSet, feed: SourceConfig) -> Task<()> {
        let (inner, alive) = (Arc::clone(self), self.unfollowed.clone().drop_guard());
        let name = if members.namespaces().is_some() { "namespaces" } else { "shards" };
        self.spawn(name, async move {
            let mut followed = Followed::new();
            inner.stop.run_until_cancelled(inner.keep_to(&members, &feed, &mut followed)).await;
            for (_, task) in followed.values_mut() {
                // A panic in a task has been reported under its name by the Env.
                let _ended = task.await;
            }
            let _disarmed = alive.disarm();
        })
    }

    /// Requests fresh lists of the parts that can hold what is at `site`.
    pub(super) fn request_lists(&self, site: ObjectLocation<'_>, urgency: Urgency) -> RefreshTicket {
        // Not those that are followed: one that has joined just now might not be followed yet.
        let parts = match &self.members {
            Some(members) => members.current(),
            None => BTreeSet::from([Partition::Whole]),
        };
        let parts = parts.into_iter().filter(|part| part.can_hold(site));
        RefreshTicket(parts.map(|part| self.following.ask(part, urgency)).collect())
    }

    /// Whether the list of a ticket is in the store, or the part is followed no longer.
    pub(super) fn is_refreshed(&self, part: &PartTicket) -> bool {
        let left = self.members.as_ref().is_some_and(|members| !members.current().contains(&part.partition));
        let follower = self.following.lock().followers.get(&part.partition).cloned();
        let given = follower.and_then(|follower| follower.refresh.given(part.ticket_of(&follower)));
        left || given.is_some_and(|position| self.fifo.has_come_to(position))
    }

    /// Waits until the list of a ticket is in the store. A part that leaves meanwhile holds nothing that is old; a part
    /// that is about to join is waited for.
    pub(super) async fn refreshed(&self, part: &PartTicket) {
        let leaves = async {
            match &self.members {
                Some(members) => members.lack(&part.partition).await,
                None => future::pending().await,
            }
        };
        future::select(pin!(leaves), pin!(self.listed_since(part))).await;
    }

    async fn listed_since(&self, part: &PartTicket) {
        loop {
            let follower = self.following.follower(&part.partition).await;
            let granted = follower.refresh.granted(part.ticket_of(&follower));
            let gone = self.following.gone(&part.partition, follower.number);
            match future::select(pin!(granted), pin!(gone)).await {
                Either::Left((position, _)) => return self.fifo.comes_to(position).await,
                // It left and might be back: its successor lists anyway.
                Either::Right(((), _)) => {}
            }
        }
    }

    async fn keep_to(&self, members: &PartitionSet, feed: &SourceConfig, followed: &mut Followed) {
        let mut changes = members.observe();
        self.join(members.current(), feed, followed, true);
        loop {
            changes.changed().await;
            let wanted = members.current();
            self.leave(&wanted, followed).await;
            self.join(wanted, feed, followed, false);
        }
    }

    /// Begins with those that are wanted and not followed yet. The first time that is told even if there is none.
    fn join(&self, wanted: BTreeSet<Partition>, feed: &SourceConfig, followed: &mut Followed, first: bool) {
        let new: Vec<Partition> = wanted.into_iter().filter(|part| !followed.contains_key(part)).collect();
        if !new.is_empty() || first {
            self.fifo.join(new.clone());
        }
        for partition in new {
            let stop = self.stop.child_token();
            let given = self.ask(&partition, &*feed.sources);
            let task = self.follow(partition.clone(), given, feed.admission.clone(), stop.clone());
            followed.insert(partition, (stop, task));
        }
    }

    /// Ends those that are not wanted any more.
    ///
    /// # Cancel safety
    /// Whom it was about to end is still in `followed`.
    async fn leave(&self, wanted: &BTreeSet<Partition>, followed: &mut Followed) {
        let left: Vec<Partition> = followed.keys().filter(|part| !wanted.contains(part)).cloned().collect();
        for partition in left {
            if let Some((stop, task)) = followed.get_mut(&partition) {
                stop.cancel();
                // A panic in a task has been reported under its name by the Env.
                let _ended = task.await;
            }
            followed.remove(&partition);
            self.following.end(&partition);
            self.budget.nothing_to_list(&partition);
            self.fifo.empty(partition, RemovalReason::Deselected);
        }
    }
}

/// Where the random numbers of a part's reflector come from: each has its own, also of a part that comes back.
fn stream(path: &str, partition: &Partition, before: u64) -> String {
    match (partition, before) {
        (Partition::Whole, _) => path.to_owned(),
        (Partition::Namespace(namespace), before) => format!("{path}/{namespace}/{before}"),
        (Partition::Shard(shard), before) => format!("{path}/{shard}/{before}"),
    }
}

impl fmt::Debug for ReflectorSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Following").field("board", &self.board).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_that_come_and_go_leave_nothing_behind_and_no_two_reflectors_have_one_number() {
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
        assert!(used.bytes_current < 1_000, "{} bytes of a thousand parts", used.bytes_current);
        assert_ne!(come_and_go("first"), first);
    }
}
