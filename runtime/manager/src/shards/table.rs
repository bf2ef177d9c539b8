//! Which shards are held here, and how far each has come: what every controller's scope reads, and the fence of what
//! belongs to no key.
//!
//! It is read for every key that is queued, so readers take a snapshot and never wait. One task writes it.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;

use arc_swap::ArcSwap;
use futures_util::future::BoxFuture;
use tokio_util::sync::CancellationToken;
use windlass_client::{Fence, FenceState};
use windlass_controller::{Scope, Verdict};
use windlass_election::shards::ShardsOverview;
use windlass_election::{LeaderFence, Predecessor};
use windlass_object::ObjectKey;
use windlass_object::shard::{Ranges, ShardId, hash};

/// The shards held here, and what is known of all. Clones are one.
#[derive(Clone, Default)]
pub(crate) struct Table(Arc<ArcSwap<Book>>);

#[derive(Clone, Default)]
struct Book {
    held: BTreeMap<ShardId, Held>,
    view: Arc<ShardsOverview>,
}

/// How far a shard has come.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(crate) enum Stage {
    /// Caches fill. A controller whose own have begins.
    Joining,
    /// Every controller works on it.
    Working,
    /// No key of it begins any more.
    Leaving,
}

/// A shard that is held.
#[derive(Clone)]
pub(crate) struct Held {
    ranges: Ranges,
    fence: Arc<LeaderFence>,
    stage: Stage,
    pub(super) lost: bool,
    /// The controllers that work on it.
    open: BTreeSet<&'static str>,
    /// Whether all controllers have worked on it.
    caught_up: bool,
    pub(crate) predecessor: Predecessor,
    /// Cancelled when it begins to leave.
    pub(crate) over: CancellationToken,
}

impl Held {
    pub(crate) fn new(ranges: Ranges, fence: Arc<LeaderFence>, predecessor: Predecessor) -> Self {
        let (open, over) = (BTreeSet::new(), CancellationToken::new());
        let (stage, lost, caught_up) = (Stage::Joining, false, false);
        Self { ranges, fence, stage, lost, open, caught_up, predecessor, over }
    }

    /// Whether the caches of all controllers have reflected what the last holder wrote.
    pub(super) fn is_caught_up(&self) -> bool {
        self.caught_up
    }

    /// Whether a key is in it.
    pub(super) fn has(&self, key: &ObjectKey) -> bool {
        self.ranges.contains(hash_of(key))
    }
}

/// Where a key lies on the ring: where its namespace does or, if it has none, its name.
pub(super) fn hash_of(key: &ObjectKey) -> u64 {
    hash(key.namespace().unwrap_or(key.name()))
}

impl Table {
    /// The scope of one controller.
    pub(crate) fn scope(&self, controller: &'static str) -> Arc<dyn Scope> {
        Arc::new(OfController { table: self.clone(), controller })
    }

    /// The fence of what belongs to no key: open while any shard is held.
    pub(crate) fn fence(&self) -> Arc<dyn Fence> {
        Arc::new(AnyHeld(self.clone()))
    }

    /// What is known of the election.
    pub(super) fn view(&self) -> Arc<ShardsOverview> {
        Arc::clone(&self.0.load().view)
    }

    pub(super) fn stages(&self) -> BTreeMap<ShardId, Stage> {
        self.0.load().held.iter().map(|(shard, held)| (*shard, held.stage)).collect()
    }

    pub(super) fn show(&self, view: ShardsOverview) {
        let view = Arc::new(view);
        self.change(|book| book.view = Arc::clone(&view));
    }

    pub(super) fn join(&self, shard: ShardId, held: Held) {
        self.change(|book| {
            book.held.insert(shard, held.clone());
        });
    }

    /// What is held and does not leave.
    pub(super) fn working(&self) -> Vec<(ShardId, Held)> {
        let book = self.0.load();
        let stays = book.held.iter().filter(|(_, held)| held.stage != Stage::Leaving);
        stays.map(|(shard, held)| (*shard, held.clone())).collect()
    }

    /// A controller, one of `all`, has the keys of a shard from now on; `false` if this holding of it is over.
    pub(super) fn open(&self, shard: ShardId, of: &Held, controller: &'static str, all: usize) -> bool {
        let mut opened = false;
        self.change(|book| {
            let held = book.held.get_mut(&shard);
            let held = held.filter(|it| it.stage != Stage::Leaving && Arc::ptr_eq(&it.fence, &of.fence));
            opened = held.is_some();
            if let Some(held) = held {
                held.open.insert(controller);
                held.stage = if held.open.len() >= all { Stage::Working } else { Stage::Joining };
                held.caught_up = held.stage == Stage::Working;
            }
        });
        opened
    }

    /// The shard is not ours any more.
    pub(super) fn lose(&self, shard: ShardId) {
        self.change(|book| {
            if let Some(held) = book.held.get_mut(&shard) {
                held.lost = true;
            }
        });
    }

    /// No key of the shard begins from now on; what it covers, unless it leaves already.
    pub(super) fn close(&self, shard: ShardId) -> Option<Ranges> {
        let mut ranges = None;
        self.change(|book| {
            let held = book.held.get_mut(&shard).filter(|held| held.stage != Stage::Leaving);
            ranges = held.map(|held| {
                held.stage = Stage::Leaving;
                held.over.cancel();
                held.ranges.clone()
            });
        });
        ranges
    }

    /// Nothing of the shard runs any more. Returns the shard as it was, if it was held.
    pub(super) fn leave(&self, shard: ShardId) -> Option<Held> {
        let mut left = None;
        self.change(|book| left = book.held.remove(&shard));
        left
    }

    fn change(&self, mut change: impl FnMut(&mut Book)) {
        let mut book = Book::clone(&self.0.load());
        change(&mut book);
        self.0.store(Arc::new(book));
    }

    /// The fence that is open for longest.
    fn latest(&self) -> Option<Arc<LeaderFence>> {
        let book = self.0.load();
        let open = book.held.values().filter_map(|held| Some((held.fence.open_until()?, &held.fence)));
        open.max_by_key(|(until, _)| *until).map(|(_, fence)| Arc::clone(fence))
    }
}

/// The keys of one controller.
struct OfController {
    table: Table,
    controller: &'static str,
}

impl Scope for OfController {
    fn verdict(&self, key: &ObjectKey) -> Verdict {
        let (book, hash) = (self.table.0.load(), hash_of(key));
        let ours = book.held.iter().find(|(_, held)| held.ranges.contains(hash));
        match ours {
            Some((shard, held)) if held.stage == Stage::Leaving => book.elsewhere(*shard),
            Some((_, held)) if held.open.contains(self.controller) => {
                Verdict::Mine(Some(Arc::clone(&held.fence) as _))
            }
            Some((shard, _)) => Verdict::Soon { shard: *shard },
            None => {
                let division = book.view.division.as_ref();
                book.elsewhere(division.map_or(ShardId(0), |division| division.shard_of(hash)))
            }
        }
    }
}

impl Book {
    fn elsewhere(&self, shard: ShardId) -> Verdict {
        Verdict::Elsewhere { shard, holder: self.view.holders.get(&shard).cloned().flatten() }
    }
}

/// Open while any shard is held.
#[derive(Debug)]
struct AnyHeld(Table);

impl Fence for AnyHeld {
    fn state(&self) -> FenceState {
        self.0.latest().map_or(FenceState::Closed, |fence| fence.state())
    }

    fn closed(&self) -> BoxFuture<'static, ()> {
        let table = self.0.clone();
        Box::pin(async move {
            while let Some(fence) = table.latest() {
                fence.closed().await;
            }
        })
    }
}

impl fmt::Debug for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.stages()).finish()
    }
}
