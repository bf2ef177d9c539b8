//! The shards that this replica holds, and their stages: the [`KeyOwnership`] of every controller, and the fence of
//! writes that belong to no key.
//!
//! It is read for every key that is enqueued, so readers take a snapshot and never wait. One task writes it.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;

use arc_swap::ArcSwap;
use futures_util::future::BoxFuture;
use tokio_util::sync::CancellationToken;
use windlass_client::{Fence, FenceState};
use windlass_election::{LeaderFence, PreviousHolder, WrittenVersions, merge_written};
use windlass_object::ObjectKey;
use windlass_object::shard::{HashRanges, ShardId, hash};

use crate::overview::ShardsOverview;
use crate::ownership::{KeyOwnership, Ownership};

/// The held shards, and an overview of all shards. Clones share one table.
#[derive(Clone, Default)]
pub struct ShardTable(Arc<ArcSwap<TableState>>);

#[derive(Clone, Default)]
struct TableState {
    held: BTreeMap<ShardId, HeldShard>,
    overview: Arc<ShardsOverview>,
}

/// The stage of a held shard.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum ShardStage {
    /// The caches are filled. Each controller starts when its own caches are synced.
    Joining,
    /// Every controller works on the shard.
    Working,
    /// No reconcile of the shard starts any more.
    Leaving,
}

/// A held shard.
#[derive(Clone)]
pub struct HeldShard {
    ranges: HashRanges,
    fence: Arc<LeaderFence>,
    stage: ShardStage,
    lost: bool,
    /// The controllers that work on it.
    controllers: BTreeSet<&'static str>,
    /// The versions at which the caches of the controllers have reflected the writes of the previous holders.
    reflected: WrittenVersions,
    /// Whether all controllers have worked on it.
    caught_up: bool,
    previous_holder: PreviousHolder,
    leaving: CancellationToken,
}

impl HeldShard {
    /// Returns a shard on which no controller works.
    pub fn new(ranges: HashRanges, fence: Arc<LeaderFence>, previous_holder: PreviousHolder) -> Self {
        let (controllers, leaving) = (BTreeSet::new(), CancellationToken::new());
        let (stage, lost, caught_up) = (ShardStage::Joining, false, false);
        let reflected = WrittenVersions::new();
        Self { ranges, fence, stage, lost, controllers, reflected, caught_up, previous_holder, leaving }
    }

    /// Returns the previous holder of the shard.
    pub fn previous_holder(&self) -> &PreviousHolder {
        &self.previous_holder
    }

    /// Returns a token that is canceled when the shard begins to leave.
    pub fn leaving(&self) -> &CancellationToken {
        &self.leaving
    }

    /// Returns the record of the holders before this one for the next holder; `None` if the Lease was lost, or the next
    /// holder must relist its caches.
    pub fn record(&self) -> Option<WrittenVersions> {
        let reflected = self.caught_up.then_some(&self.reflected);
        if self.lost { None } else { self.previous_holder.record_for_successor(reflected) }
    }

    /// Returns whether a key at this position of its controller is in the shard.
    pub fn contains(&self, key: &ObjectKey, position: KeyPosition) -> bool {
        self.ranges.contains(position.hash_of(key))
    }
}

/// The position of a controller's keys on the hash ring.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum KeyPosition {
    /// The hash of the key's namespace or, if it has none, of its name.
    OfKey,
    /// One position for all keys, so that one shard has them all.
    Fixed(u64),
}

impl KeyPosition {
    /// Returns the hash of a key.
    pub fn hash_of(self, key: &ObjectKey) -> u64 {
        match self {
            KeyPosition::OfKey => hash(key.namespace().unwrap_or(key.name())),
            KeyPosition::Fixed(hash) => hash,
        }
    }
}

/// For readers.
impl ShardTable {
    /// Returns the ownership of the keys of one controller, which are at this position.
    pub fn ownership(&self, controller: &'static str, position: KeyPosition) -> Arc<dyn KeyOwnership> {
        Arc::new(ControllerOwnership { table: self.clone(), controller, position })
    }

    /// Returns the fence of writes that belong to no key. It is open while any shard is held.
    pub fn fence(&self) -> Arc<dyn Fence> {
        Arc::new(AnyShardFence(self.clone()))
    }

    /// Returns the members and the holders, as last observed.
    pub fn overview(&self) -> Arc<ShardsOverview> {
        Arc::clone(&self.0.load().overview)
    }

    /// Returns the held shards and their stages.
    pub fn stages(&self) -> BTreeMap<ShardId, ShardStage> {
        self.0.load().held.iter().map(|(shard, held)| (*shard, held.stage)).collect()
    }

    /// Returns the held shards that are not leaving.
    pub fn staying(&self) -> Vec<(ShardId, HeldShard)> {
        let state = self.0.load();
        let staying = state.held.iter().filter(|(_, held)| held.stage != ShardStage::Leaving);
        staying.map(|(shard, held)| (*shard, held.clone())).collect()
    }

    /// Returns the fence that stays open longest.
    fn last_to_close(&self) -> Option<Arc<LeaderFence>> {
        let state = self.0.load();
        let open = state.held.values().filter_map(|held| Some((held.fence.open_until()?, &held.fence)));
        open.max_by_key(|(until, _)| *until).map(|(_, fence)| Arc::clone(fence))
    }
}

/// For the task that owns the shards. The stages of a shard follow each other in the order of these methods.
impl ShardTable {
    /// Sets the overview.
    pub fn set_overview(&self, overview: ShardsOverview) {
        let overview = Arc::new(overview);
        self.change(|state| state.overview = Arc::clone(&overview));
    }

    /// Adds an acquired shard. Its keys are pending.
    pub fn join(&self, shard: ShardId, held: HeldShard) {
        self.change(|state| {
            state.held.insert(shard, held.clone());
        });
    }

    /// Starts a controller, one of `all`, on the keys of a shard; `false` if this term of the shard is over. Its caches
    /// have reflected the writes of the previous holders at the versions `reflected`.
    pub fn start(
        &self,
        shard: ShardId,
        term: &HeldShard,
        controller: &'static str,
        all: usize,
        reflected: &WrittenVersions,
    ) -> bool {
        let mut started = false;
        self.change(|state| {
            let is_term = |held: &&mut HeldShard| {
                held.stage != ShardStage::Leaving && Arc::ptr_eq(&held.fence, &term.fence)
            };
            let held = state.held.get_mut(&shard).filter(is_term);
            started = held.is_some();
            if let Some(held) = held {
                held.controllers.insert(controller);
                let is_last = held.controllers.len() >= all;
                held.stage = if is_last { ShardStage::Working } else { ShardStage::Joining };
                held.caught_up = is_last;
                merge_written(&mut held.reflected, reflected);
            }
        });
        started
    }

    /// Records that the shard's lease was lost.
    pub fn lose(&self, shard: ShardId) {
        self.change(|state| {
            if let Some(held) = state.held.get_mut(&shard) {
                held.lost = true;
            }
        });
    }

    /// Stops the work on a shard: none of its keys is owned any more. Returns its ranges; `None` if it is leaving
    /// already.
    pub fn stop(&self, shard: ShardId) -> Option<HashRanges> {
        let mut ranges = None;
        self.change(|state| {
            let held = state.held.get_mut(&shard).filter(|held| held.stage != ShardStage::Leaving);
            ranges = held.map(|held| {
                held.stage = ShardStage::Leaving;
                held.leaving.cancel();
                held.ranges.clone()
            });
        });
        ranges
    }

    /// Removes a shard after its last reconcile. Returns it, if it was held.
    pub fn leave(&self, shard: ShardId) -> Option<HeldShard> {
        let mut left = None;
        self.change(|state| left = state.held.remove(&shard));
        left
    }

    fn change(&self, mut change: impl FnMut(&mut TableState)) {
        let mut state = TableState::clone(&self.0.load());
        change(&mut state);
        self.0.store(Arc::new(state));
    }
}

/// The keys of one controller.
struct ControllerOwnership {
    table: ShardTable,
    controller: &'static str,
    position: KeyPosition,
}

impl KeyOwnership for ControllerOwnership {
    fn ownership(&self, key: &ObjectKey) -> Ownership {
        let (state, hash) = (self.table.0.load(), self.position.hash_of(key));
        match state.held.iter().find(|(_, held)| held.ranges.contains(hash)) {
            Some((shard, held)) if held.stage == ShardStage::Leaving => state.not_owned(*shard),
            Some((_, held)) if held.controllers.contains(self.controller) => {
                Ownership::Owned(Some(Arc::clone(&held.fence) as _))
            }
            Some((shard, _)) => Ownership::Pending { shard: *shard },
            None => {
                let shard_map = state.overview.shard_map.as_ref();
                state.not_owned(shard_map.map_or(ShardId(0), |shard_map| shard_map.shard_of(hash)))
            }
        }
    }
}

impl TableState {
    fn not_owned(&self, shard: ShardId) -> Ownership {
        Ownership::NotOwned { shard, holder: self.overview.holders.get(&shard).cloned().flatten() }
    }
}

/// Open while any shard is held.
#[derive(Debug)]
struct AnyShardFence(ShardTable);

impl Fence for AnyShardFence {
    fn state(&self) -> FenceState {
        self.0.last_to_close().map_or(FenceState::Closed, |fence| fence.state())
    }

    fn closed(&self) -> BoxFuture<'static, ()> {
        let table = self.0.clone();
        Box::pin(async move {
            while let Some(fence) = table.last_to_close() {
                fence.closed().await;
            }
        })
    }
}

impl fmt::Debug for ShardTable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.stages()).finish()
    }
}

impl fmt::Debug for HeldShard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HeldShard")
            .field("ranges", &self.ranges)
            .field("stage", &self.stage)
            .finish_non_exhaustive()
    }
}
