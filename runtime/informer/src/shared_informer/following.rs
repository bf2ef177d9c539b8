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
use windlass_env::cell::{Observer, Publisher, cell};
use windlass_env::{Instant, Task};
use windlass_object::{Extent, Representation};

use super::Inner;
use crate::list_watch::{ListerWatcher, Selection, Sources};
use crate::partition::{Departure, Members, Partition};
use crate::presence::Board;
use crate::reflector::{Fresh, Parts, Pulse, Reflector, Refresh, STUCK_AFTER, Trouble};
use crate::settings::Admission;
use crate::shards::Shards;
use crate::store::Progress;

/// The reflectors of one informer.
pub(super) struct Following {
    pub(super) board: Board,
    /// What all of them have in common about failures.
    pub(super) trouble: Trouble,
    state: Mutex<State>,
    /// Set whenever a reflector has begun or ended.
    turns: Publisher<()>,
}

#[derive(Default)]
struct State {
    followers: BTreeMap<Partition, Follower>,
    /// How many reflectors there have been of all parts: one number for each, and nothing kept of parts that are gone.
    begun: u64,
}

/// What outsiders need to know of one reflector.
#[derive(Clone)]
pub(super) struct Follower {
    /// How many reflectors the informer had before this one.
    number: u64,
    pub(super) trouble: Trouble,
    pub(super) refresh: Refresh,
    pulse: Pulse,
}

/// Where an informer's objects come from, and what stands between them and the store.
pub(super) struct Feed<S> {
    pub(super) sources: Arc<dyn Sources>,
    pub(super) admission: Admission<S>,
}

/// What users' code gave for one part.
pub(super) struct Given<R: Representation> {
    selection: Selection,
    source: Arc<dyn ListerWatcher>,
    decoder: R::Decoder,
    extent: Extent,
}

/// The reflectors of the parts, each with what ends it.
type Followed = BTreeMap<Partition, (CancellationToken, Task<()>)>;

impl Following {
    pub(super) fn new() -> Self {
        Self { board: Board::new(), trouble: Trouble::default(), state: Mutex::default(), turns: cell(()).0 }
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

    pub(super) fn followers(&self) -> Vec<(Partition, Follower)> {
        let state = self.lock();
        state.followers.iter().map(|(partition, follower)| (partition.clone(), follower.clone())).collect()
    }

    /// Has those parts read anew that are not of the newest epoch: if one went back in time, so did all.
    pub(super) fn distrust_old_epochs(&self, progress: &Progress) {
        for (partition, follower) in &self.lock().followers {
            if !progress.trusts(partition) {
                follower.refresh.ask();
            }
        }
    }

    /// The follower of a part, as soon as there is one.
    async fn follower(&self, partition: &Partition) -> Follower {
        let mut turns = self.turns.observe();
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
        let mut turns = self.turns.observe();
        while self.lock().followers.get(partition).is_some_and(|follower| follower.number == number) {
            self.turn(&mut turns).await;
        }
    }

    async fn turn(&self, turns: &mut Observer<()>) {
        // It closes only with this table.
        let _seen = turns.changed().await;
    }

    /// Enters a part.
    fn begin(&self, partition: &Partition) -> Follower {
        let (trouble, refresh) = (self.trouble.sibling(), Refresh::new());
        let follower = {
            let state = &mut *self.lock();
            let follower = Follower { number: state.begun, trouble, refresh, pulse: Pulse::default() };
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

impl<R: Representation> Inner<R> {
    /// Asks users' code for what it takes to follow one part. To be called under no lock.
    pub(super) fn ask(&self, partition: &Partition, sources: &dyn Sources) -> Given<R> {
        let selection = self.selection_of(partition);
        let source = sources.source(&self.kind, &selection);
        let (decoder, extent) = (self.representation.decoder(), self.representation.extent());
        Given { selection, source, decoder, extent }
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
        given: Given<R>,
        admission: Admission<R::Stored>,
        stop: CancellationToken,
    ) -> Task<()> {
        let Given { selection: Selection { namespace, .. }, source, decoder, extent } = given;
        let Follower { number: before, trouble, refresh, pulse } = self.following.begin(&partition);
        let reflector = Reflector::<R>::new(Parts {
            informer: Arc::clone(&self.name),
            stream: stream(&self.path, &partition, before),
            sighting: self.following.board.sighting(partition.clone(), self.kind.clone(), namespace),
            partition: partition.clone(),
            source,
            decoder,
            extent,
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
    pub(super) fn spawn_members(self: &Arc<Self>, members: Members, feed: Feed<R::Stored>) -> Task<()> {
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

    /// Reads one part anew, consistently, and waits until it is in the store. One that leaves meanwhile is as fresh as it
    /// will ever be; one that is about to join is waited for.
    pub(super) async fn refresh(&self, partition: &Partition) -> bool {
        let leaves = async {
            match &self.members {
                Some(members) => members.lack(partition).await,
                None => future::pending().await,
            }
        };
        match future::select(pin!(leaves), pin!(self.read_anew(partition))).await {
            Either::Left(((), _)) => true,
            Either::Right((fresh, _)) => fresh,
        }
    }

    async fn read_anew(&self, partition: &Partition) -> bool {
        loop {
            let Follower { number, refresh, .. } = self.following.follower(partition).await;
            let gone = self.following.gone(partition, number);
            let granted = match future::select(pin!(refresh.granted()), pin!(gone)).await {
                Either::Left((granted, _)) => granted,
                // It left and may be back: its successor is asked.
                Either::Right(((), _)) => continue,
            };
            return match granted {
                Some(Fresh::At(version)) => self.reached_of(partition, version).await,
                Some(Fresh::Nothing) => true,
                None => false,
            };
        }
    }

    async fn keep_to(&self, members: &Members, feed: &Feed<R::Stored>, followed: &mut Followed) {
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
    fn join(
        &self,
        wanted: BTreeSet<Partition>,
        feed: &Feed<R::Stored>,
        followed: &mut Followed,
        first: bool,
    ) {
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
            self.fifo.empty(partition, Departure::Deselected);
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

impl fmt::Debug for Following {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Following").field("board", &self.board).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_that_come_and_go_leave_nothing_behind_and_no_two_reflectors_have_one_number() {
        let following = Following::new();
        let come_and_go = |name: &str| {
            let partition = Partition::Namespace(name.into());
            let number = following.begin(&partition).number;
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
