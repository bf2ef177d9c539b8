//! The partitions of an informer, with totals that need no iteration over the partitions.
//!
//! Guarantees: the cost of a partition lookup is that of a map lookup, however many partitions exist. The totals are
//! available in constant time: whether every partition is current, and whether every initial one is listed.
//!
//! The [`Tracker`](super::Tracker) changes the partitions and keeps the totals correct.

use std::sync::Arc;

use imbl::OrdMap;
use windlass_object::shard::{HashRange, ShardField};
use windlass_object::{ObjectHeader, ResourceVersion};

use crate::partition::{NamespacePartition, ObjectLocation, Partition};
use crate::shards::Shard;

/// The scope of an informer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum CoverageScope {
    /// One list of everything.
    Whole {
        /// Whether the kind was served before and is no longer served.
        unserved: bool,
        /// The version of the content; `None` before the first list.
        content_version: Option<ResourceVersion>,
    },
    /// Several partitions, each with its own list.
    Partitioned(PartitionMap),
}

/// Namespaces or shards; never both, and all shards by the same field. They do not overlap.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct PartitionMap {
    /// By name, each with its term. The previous term of a namespace has left before the next one joins.
    namespaces: OrdMap<Arc<str>, (u64, PartitionProgress)>,
    shards: OrdMap<Arc<Shard>, PartitionProgress>,
    /// The shard of each hash range, by the start of the range.
    ring: OrdMap<u64, (HashRange, Arc<Shard>)>,
    pub(super) totals: PartitionTotals,
}

/// Totals of all partitions.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct PartitionTotals {
    /// Number of partitions that are not current: see [`PartitionProgress::is_current`].
    pub(super) outdated: usize,
    /// Number of initial partitions that are not listed.
    pub(super) unlisted: usize,
    /// Number of changes to the set of partitions or to a partition. Two states of one informer with the same number
    /// are equal.
    pub(super) change_count: u64,
}

/// The followed partition of a location, if there are several partitions.
pub(super) enum LocationProgress<'a> {
    /// The location is in this partition.
    Partition(&'a PartitionProgress),
    /// The location is not followed.
    Unfollowed,
    /// The location is spread over all partitions, or is not restricted.
    All,
}

/// The progress of one namespace or shard of several.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct PartitionProgress {
    /// The version of the partition; before its first list, the lower bound of that list.
    pub(super) version: Option<ResourceVersion>,
    /// The version of the content; `None` before the first list. Lower than `version` after an older list.
    pub(super) content_version: Option<ResourceVersion>,
    /// Whether `version` is the version of the content.
    pub(super) listed: bool,
    /// Whether a list has arrived since the partition joined.
    pub(super) had_list: bool,
    /// The epoch of the version.
    pub(super) epoch: u64,
    /// Whether the partition was present at the start.
    pub(super) initial: bool,
}

impl PartitionMap {
    pub(super) fn len(&self) -> usize {
        self.namespaces.len() + self.shards.len()
    }

    pub(super) fn get(&self, partition: &Partition) -> Option<&PartitionProgress> {
        match partition {
            Partition::Whole => None,
            Partition::Namespace(NamespacePartition { name, term }) => {
                self.namespaces.get(name).filter(|(held, _)| held == term).map(|(_, part)| part)
            }
            Partition::Shard(shard) => self.shards.get(shard),
        }
    }

    pub(super) fn get_mut(&mut self, partition: &Partition) -> Option<&mut PartitionProgress> {
        match partition {
            Partition::Whole => None,
            Partition::Namespace(NamespacePartition { name, term }) => {
                self.namespaces.get_mut(name).filter(|(held, _)| held == term).map(|(_, part)| part)
            }
            Partition::Shard(shard) => self.shards.get_mut(shard),
        }
    }

    /// Adds a partition that is not present.
    pub(super) fn enter(&mut self, partition: Partition, part: PartitionProgress) {
        match partition {
            Partition::Whole => {}
            Partition::Namespace(NamespacePartition { name, term }) => {
                self.namespaces.insert(name, (term, part));
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
            Partition::Namespace(namespace) => self.namespaces.remove(&namespace.name).map(|(_, part)| part),
            Partition::Shard(shard) => {
                for range in shard.ranges.iter() {
                    self.ring.remove(&range.start());
                }
                self.shards.remove(shard)
            }
        }
    }

    /// Returns the name of an object's partition.
    pub(super) fn name_of(&self, head: &ObjectHeader) -> Option<Partition> {
        let namespace = head.key.namespace().and_then(|name| self.namespaces.get_key_value(name));
        let namespace = namespace.map(|(name, (term, _))| {
            Partition::Namespace(NamespacePartition { name: Arc::clone(name), term: *term })
        });
        namespace.or_else(|| self.shard_of(head).map(|shard| Partition::Shard(Arc::clone(shard))))
    }

    /// Returns the progress of an object's partition.
    pub(super) fn of(&self, head: &ObjectHeader) -> Option<&PartitionProgress> {
        let namespace = head.key.namespace().and_then(|namespace| self.namespaces.get(namespace));
        namespace.map(|(_, part)| part).or_else(|| self.shards.get(self.shard_of(head)?))
    }

    pub(super) fn at(&self, location: ObjectLocation<'_>) -> LocationProgress<'_> {
        let part = match (self.field(), location.namespace) {
            (None, None) => return LocationProgress::All,
            (None, Some(namespace)) => self.namespaces.get(namespace).map(|(_, part)| part),
            (Some(field), _) => {
                let Some(hash) = location.hash(field) else { return LocationProgress::All };
                self.shard_at(hash).and_then(|shard| self.shards.get(shard))
            }
        };
        part.map_or(LocationProgress::Unfollowed, LocationProgress::Partition)
    }

    /// Returns the field by which shards are distinguished; `None` without shards.
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
    /// Returns whether the version describes the content in this epoch.
    pub(super) fn is_current(&self, epoch: u64) -> bool {
        self.listed && self.epoch == epoch
    }

    /// Returns whether the missing list of this partition delays the initial sync.
    pub(super) fn delays_sync(&self) -> bool {
        self.initial && !self.listed
    }
}

impl Default for CoverageScope {
    fn default() -> Self {
        CoverageScope::Whole { unserved: false, content_version: None }
    }
}
