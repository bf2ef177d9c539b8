//! Progress of a store, as a whole and per partition.
//!
//! Guarantees:
//! - The version never moves back within an epoch, whichever partition joins, leaves or disappears. It does not advance
//!   while a partition is not listed. The first list of a partition is a consistent list that is requested after the
//!   partition joined, so it is not older.
//! - Versions of an unlisted partition are not reached, whatever the version of the whole. So a write to a namespace
//!   that has just joined is never considered visible before that namespace is listed.
//! - Each partition has a version of its content. It advances with every change and bookmark, and is set by every list,
//!   even an older one. A state of an object before that version is stale, whether the object is cached or deleted.
//! - A partition that moves back begins a new epoch for all partitions. The others are current again after their next
//!   list.
//! - Only a new epoch affects every partition. Queries and other changes do not iterate over partitions, because there
//!   can be thousands.

use windlass_object::{ObjectHeader, ResourceVersion};

use self::partitions::{CoverageScope, LocationProgress};
pub(super) use self::tracker::Tracker;
use super::VersionReuse;
use crate::handler::Cause;
use crate::partition::{ObjectLocation, Partition};

mod partitions;
mod tracker;

/// The progress of a store.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// The store contains all changes up to this version; `None` before the first list. With one partition it contains
    /// no later change. If namespaces or shards are followed separately, it is the minimum of their versions, see
    /// [`Progress::version_in`].
    pub version: Option<ResourceVersion>,
    /// Number of consistent lists at a lower version. Versions of different epochs cannot be compared.
    pub epoch: u64,
    /// Whether the initial list is complete: for several namespaces or shards, the lists of all that were present at
    /// the start.
    pub synced: bool,
    /// The followed partitions and their progress.
    pub(crate) coverage: Coverage,
}

/// The coverage of an informer. The default is one list of everything.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Coverage(CoverageScope);

/// The interpretation of a list.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(super) struct ListHandling {
    pub(super) reuse: VersionReuse,
    pub(super) cause: Cause,
}

impl Progress {
    /// Returns whether all partitions have reached `wanted`. A version that cannot be compared counts as reached,
    /// because a wait for it would never end. Without any followed partition, every version counts as reached.
    pub fn has_reached(&self, wanted: &ResourceVersion) -> bool {
        match &self.coverage.0 {
            CoverageScope::Partitioned(parts) if parts.len() == 0 => self.synced,
            CoverageScope::Partitioned(parts) => {
                parts.totals.outdated == 0 && reached(self.version.as_ref(), wanted)
            }
            CoverageScope::Whole { unserved, .. } => !unserved && reached(self.version.as_ref(), wanted),
        }
    }

    /// Returns whether the partition that contains `location` has reached `wanted`; if `location` is every location,
    /// whether all partitions have. For a location that is not followed every version counts as reached, because
    /// nothing will arrive.
    pub fn has_reached_in<'a>(
        &self,
        location: impl Into<ObjectLocation<'a>>,
        wanted: &ResourceVersion,
    ) -> bool {
        match self.coverage.at(location.into()) {
            LocationProgress::Partition(part) => {
                part.is_current(self.epoch) && reached(part.version.as_ref(), wanted)
            }
            LocationProgress::Unfollowed => true,
            LocationProgress::All => self.has_reached(wanted),
        }
    }

    /// Returns the version up to which the partition that contains `location` is complete. Returns `None` if that
    /// partition is not followed or not listed.
    pub fn version_in<'a>(&self, location: impl Into<ObjectLocation<'a>>) -> Option<&ResourceVersion> {
        match self.coverage.at(location.into()) {
            LocationProgress::Partition(part) if part.is_current(self.epoch) => part.version.as_ref(),
            LocationProgress::Partition(_) | LocationProgress::Unfollowed => None,
            LocationProgress::All => self.version.as_ref(),
        }
    }

    /// Returns whether no followed partition contains objects at `location`.
    pub fn is_unfollowed<'a>(&self, location: impl Into<ObjectLocation<'a>>) -> bool {
        matches!(self.coverage.at(location.into()), LocationProgress::Unfollowed)
    }

    /// Returns whether the list of the partition that contains `location` is in the store.
    pub fn has_listed<'a>(&self, location: impl Into<ObjectLocation<'a>>) -> bool {
        match (&self.coverage.0, self.coverage.at(location.into())) {
            (CoverageScope::Whole { unserved, .. }, _) => self.synced && !unserved,
            (CoverageScope::Partitioned(_), LocationProgress::Partition(part)) => part.is_current(self.epoch),
            (CoverageScope::Partitioned(_), LocationProgress::Unfollowed) => false,
            (CoverageScope::Partitioned(parts), LocationProgress::All) => parts.totals.outdated == 0,
        }
    }

    /// Returns whether the first list of a partition is complete or not required.
    pub(crate) fn has_listed_partition(&self, partition: &Partition) -> bool {
        match (&self.coverage.0, partition) {
            (CoverageScope::Partitioned(parts), Partition::Namespace(_) | Partition::Shard(_)) => {
                parts.get(partition).is_some_and(|part| part.is_current(self.epoch))
            }
            (CoverageScope::Partitioned(_), Partition::Whole) => self.synced,
            (CoverageScope::Whole { .. }, Partition::Whole) => self.synced,
            (CoverageScope::Whole { unserved, .. }, _) => self.synced && !unserved,
        }
    }

    /// Returns whether nothing changed since `earlier`, a state of the same informer.
    pub(crate) fn is_unchanged_since(&self, earlier: &Progress) -> bool {
        let parts = match (&self.coverage.0, &earlier.coverage.0) {
            (CoverageScope::Partitioned(now), CoverageScope::Partitioned(then)) => {
                now.totals.change_count == then.totals.change_count
            }
            (now, then) => now == then,
        };
        let whole = |it: &Progress| (it.epoch, it.synced, it.version.clone());
        parts && whole(self) == whole(earlier)
    }

    /// Returns the partition of an object; `None` if that is not followed.
    pub(crate) fn partition_of(&self, head: &ObjectHeader) -> Option<Partition> {
        match &self.coverage.0 {
            CoverageScope::Whole { .. } => Some(Partition::Whole),
            CoverageScope::Partitioned(parts) => parts.name_of(head),
        }
    }

    /// Returns whether an object belongs to a followed partition.
    pub(crate) fn covers(&self, head: &ObjectHeader) -> bool {
        match &self.coverage.0 {
            CoverageScope::Whole { .. } => true,
            CoverageScope::Partitioned(parts) => parts.of(head).is_some(),
        }
    }

    /// Returns whether a state is older than the content of its partition, so that the later history of the object is
    /// known. Versions that cannot be compared, or that belong to different epochs, are not older. Equal versions are
    /// not older either: some sources assign a version to several objects.
    pub(super) fn is_before_partition_version(&self, head: &ObjectHeader) -> bool {
        let held = match &self.coverage.0 {
            CoverageScope::Whole { content_version: held, .. } => held.as_ref(),
            CoverageScope::Partitioned(parts) => parts
                .of(head)
                .filter(|part| part.is_current(self.epoch))
                .and_then(|part| part.content_version.as_ref()),
        };
        matches!((&head.version, held), (Some(version), Some(held)) if version < held)
    }

    pub(crate) fn follows(&self, partition: &Partition) -> bool {
        match (&self.coverage.0, partition) {
            (CoverageScope::Whole { .. }, Partition::Whole) => true,
            (CoverageScope::Partitioned(parts), partition) => parts.get(partition).is_some(),
            _ => false,
        }
    }

    /// Returns whether a cached object at a version equals the server's object at that version. This is false if
    /// another partition moved back since this partition was listed.
    pub(crate) fn trusts(&self, partition: &Partition) -> bool {
        match &self.coverage.0 {
            CoverageScope::Partitioned(parts) => {
                parts.get(partition).is_some_and(|part| part.epoch == self.epoch)
            }
            CoverageScope::Whole { .. } => true,
        }
    }
}

impl Coverage {
    fn at(&self, location: ObjectLocation<'_>) -> LocationProgress<'_> {
        match &self.0 {
            CoverageScope::Partitioned(parts) => parts.at(location),
            CoverageScope::Whole { .. } => LocationProgress::All,
        }
    }
}

fn reached(held: Option<&ResourceVersion>, wanted: &ResourceVersion) -> bool {
    held.is_some_and(|held| held.reached(wanted).unwrap_or(true))
}

#[cfg(test)]
mod tests;
