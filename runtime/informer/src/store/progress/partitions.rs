//! What an informer follows, part by part, and what is known of all parts without a look at each.
//!
//! Guarantees: finding the part of an object takes as long as finding a name, however many parts there are, and whether
//! every part counts, or every first one was listed, is known at once.
//!
//! It refuses to move by itself: its [`Tracker`](super::Tracker) does that, and sees to it that the sums are right.

use std::sync::Arc;

use imbl::OrdMap;
use windlass_object::shard::{HashRange, ShardField};
use windlass_object::{ObjectHeader, ResourceVersion};

use crate::partition::{ObjectLocation, Partition};
use crate::shards::Shard;

/// What there is to follow.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum CoverageScope {
    /// One list is all there is.
    Whole {
        /// Whether it was served once and is not any more.
        unserved: bool,
        /// The version of what is held; nothing before there is a list.
        held: Option<ResourceVersion>,
    },
    /// Each of these is listed for itself.
    Many(PartitionMap),
}

/// Namespaces or shards; never both, and shards all of one field. They do not overlap.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct PartitionMap {
    namespaces: OrdMap<Arc<str>, PartitionProgress>,
    shards: OrdMap<Arc<Shard>, PartitionProgress>,
    /// Whose the hashes are: each range by its start.
    ring: OrdMap<u64, (HashRange, Arc<Shard>)>,
    pub(super) sums: PartitionTotals,
}

/// What holds of all parts together.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct PartitionTotals {
    /// How many parts do not count: see [`Part::counts`].
    pub(super) behind: usize,
    /// How many of those that were there at the start are not listed.
    pub(super) unlisted: usize,
    /// How many times a part came, went or moved. Two states of one informer with the same number are the same.
    pub(super) turn: u64,
}

/// What is followed of a site, where many parts are.
pub(super) enum LocationProgress<'a> {
    /// All of it, with this part.
    With(&'a PartitionProgress),
    /// Nothing.
    Unfollowed,
    /// It is spread over all parts, or meant to be none.
    Everywhere,
}

/// One namespace or shard of many.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct PartitionProgress {
    /// How far it has come; before its first list, what that cannot be older than.
    pub(super) version: Option<ResourceVersion>,
    /// The version of what is held; nothing before there is a list. Less than `version` after an older list.
    pub(super) held: Option<ResourceVersion>,
    /// Whether the version is that of what is held.
    pub(super) listed: bool,
    /// The epoch of the version.
    pub(super) epoch: u64,
    /// Whether it was there at the start.
    pub(super) initial: bool,
}

impl PartitionMap {
    pub(super) fn len(&self) -> usize {
        self.namespaces.len() + self.shards.len()
    }

    pub(super) fn get(&self, partition: &Partition) -> Option<&PartitionProgress> {
        match partition {
            Partition::Whole => None,
            Partition::Namespace(namespace) => self.namespaces.get(namespace),
            Partition::Shard(shard) => self.shards.get(shard),
        }
    }

    pub(super) fn get_mut(&mut self, partition: &Partition) -> Option<&mut PartitionProgress> {
        match partition {
            Partition::Whole => None,
            Partition::Namespace(namespace) => self.namespaces.get_mut(namespace),
            Partition::Shard(shard) => self.shards.get_mut(shard),
        }
    }

    /// Lets a part in that is not there.
    pub(super) fn enter(&mut self, partition: Partition, part: PartitionProgress) {
        match partition {
            Partition::Whole => {}
            Partition::Namespace(namespace) => {
                self.namespaces.insert(namespace, part);
            }
            Partition::Shard(shard) => {
                for range in shard.ranges.iter() {
                    self.ring.insert(range.start(), (range, Arc::clone(&shard)));
                }
                self.shards.insert(shard, part);
            }
        }
    }

    pub(super) fn remove(&mut self, partition: &Partition) -> Option<PartitionProgress> {
        match partition {
            Partition::Whole => None,
            Partition::Namespace(namespace) => self.namespaces.remove(namespace),
            Partition::Shard(shard) => {
                for range in shard.ranges.iter() {
                    self.ring.remove(&range.start());
                }
                self.shards.remove(shard)
            }
        }
    }

    /// The name of the part that an object belongs to.
    pub(super) fn name_of(&self, head: &ObjectHeader) -> Option<Partition> {
        let namespace = head.key.namespace().and_then(|name| self.namespaces.get_key_value(name));
        let namespace = namespace.map(|(name, _)| Partition::Namespace(Arc::clone(name)));
        namespace.or_else(|| self.shard_of(head).map(|shard| Partition::Shard(Arc::clone(shard))))
    }

    /// The part that an object belongs to.
    pub(super) fn of(&self, head: &ObjectHeader) -> Option<&PartitionProgress> {
        let namespace = head.key.namespace().and_then(|namespace| self.namespaces.get(namespace));
        namespace.or_else(|| self.shards.get(self.shard_of(head)?))
    }

    pub(super) fn at(&self, site: ObjectLocation<'_>) -> LocationProgress<'_> {
        let part = match (self.field(), site.namespace) {
            (None, None) => return LocationProgress::Everywhere,
            (None, Some(namespace)) => self.namespaces.get(namespace),
            (Some(field), _) => {
                let Some(hash) = site.hash(field) else { return LocationProgress::Everywhere };
                self.shard_at(hash).and_then(|shard| self.shards.get(shard))
            }
        };
        part.map_or(LocationProgress::Unfollowed, LocationProgress::With)
    }

    /// What shards are told apart by, if there are any.
    fn field(&self) -> Option<ShardField> {
        self.shards.get_min().map(|(shard, _)| shard.field)
    }

    fn shard_of(&self, head: &ObjectHeader) -> Option<&Arc<Shard>> {
        let (any, _) = self.shards.get_min()?;
        self.shard_at(any.hash_of(&head.key, head.uid.as_ref()))
    }

    fn shard_at(&self, hash: u64) -> Option<&Arc<Shard>> {
        let (_, (range, shard)) = self.ring.get_prev(&hash)?;
        range.contains(hash).then_some(shard)
    }
}

impl PartitionProgress {
    /// Whether its version says what is held in this epoch.
    pub(super) fn counts(&self, epoch: u64) -> bool {
        self.listed && self.epoch == epoch
    }

    /// Whether the informer has not synced for want of its list.
    pub(super) fn holds_up_the_start(&self) -> bool {
        self.initial && !self.listed
    }
}

impl Default for CoverageScope {
    fn default() -> Self {
        CoverageScope::Whole { unserved: false, held: None }
    }
}
