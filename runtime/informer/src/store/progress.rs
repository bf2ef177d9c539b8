//! How far a store has come, as a whole and part by part.
//!
//! Guarantees:
//! - The version never moves back within an epoch, whatever part joins, leaves or vanishes: while one is still to be
//!   listed the version stands still. Its first list is a consistent one that was asked for after it joined, and
//!   therefore not older.
//! - What a part has not listed counts as not reached, however far the version is; so a write to a namespace that just
//!   joined is never taken to be visible before that namespace was listed.
//! - What a part holds is known to be of a version: it moves with every change and bookmark, and to every list, be it an
//!   older one. A state of an object from before that is an old story, whether the object is held or was deleted.
//! - A part that goes back in time begins a new epoch for all; the others count again when they have been listed again.
//! - No question and no change but a new epoch looks at every part: there may be thousands.

use windlass_object::{ObjectHeader, ResourceVersion};

use self::partitions::{CoverageScope, LocationProgress};
pub(super) use self::tracker::Tracker;
use super::VersionTrust;
use crate::handler::Cause;
use crate::partition::{ObjectLocation, Partition};

mod partitions;
mod tracker;

/// How far a store has come.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// The store holds everything up to this version, and nothing later. `None` before the first list. Where
    /// namespaces or shards are followed one by one, the least of theirs: see [`Progress::version_in`].
    pub version: Option<ResourceVersion>,
    /// How many times a consistent list went back in versions. Versions of different epochs cannot be
    /// compared.
    pub epoch: u64,
    /// Whether the initial list has arrived: of every namespace or shard there was at the start, where many are followed.
    pub synced: bool,
    /// What is followed, and how far each part of it has come.
    pub coverage: Coverage,
}

/// What an informer follows. The default: one list that is all there is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Coverage(CoverageScope);

/// What to make of a list that arrived.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(super) struct ListHandling {
    pub(super) trust: VersionTrust,
    pub(super) cause: Cause,
}

impl Progress {
    /// Whether everything up to `wanted` has arrived, of every part. A version that cannot be compared counts as
    /// reached: waiting for it would never end. So does any version where nothing is followed.
    pub fn has_reached(&self, wanted: &ResourceVersion) -> bool {
        match &self.coverage.0 {
            CoverageScope::Many(parts) if parts.len() == 0 => self.synced,
            CoverageScope::Many(parts) => parts.sums.behind == 0 && reached(self.version.as_ref(), wanted),
            CoverageScope::Whole { unserved, .. } => !unserved && reached(self.version.as_ref(), wanted),
        }
    }

    /// Whether everything up to `wanted` has arrived of the part that holds what is at `site`; of every part, if that is
    /// everywhere. Of what is not followed nothing will ever arrive, so it counts as reached.
    pub fn has_reached_in<'a>(&self, site: impl Into<ObjectLocation<'a>>, wanted: &ResourceVersion) -> bool {
        match self.coverage.at(site.into()) {
            LocationProgress::With(part) => part.counts(self.epoch) && reached(part.version.as_ref(), wanted),
            LocationProgress::Unfollowed => true,
            LocationProgress::Everywhere => self.has_reached(wanted),
        }
    }

    /// Up to which version everything has arrived of the part that holds what is at `site`. `None` also if that part is
    /// not followed or has not been listed.
    pub fn version_in<'a>(&self, site: impl Into<ObjectLocation<'a>>) -> Option<&ResourceVersion> {
        match self.coverage.at(site.into()) {
            LocationProgress::With(part) if part.counts(self.epoch) => part.version.as_ref(),
            LocationProgress::With(_) | LocationProgress::Unfollowed => None,
            LocationProgress::Everywhere => self.version.as_ref(),
        }
    }

    /// Returns whether no followed part contains objects at `site`.
    pub fn is_unfollowed<'a>(&self, site: impl Into<ObjectLocation<'a>>) -> bool {
        matches!(self.coverage.at(site.into()), LocationProgress::Unfollowed)
    }

    /// Whether the list of the part that holds what is at `site` is in the store.
    pub fn has_listed<'a>(&self, site: impl Into<ObjectLocation<'a>>) -> bool {
        match (&self.coverage.0, self.coverage.at(site.into())) {
            (CoverageScope::Whole { unserved, .. }, _) => self.synced && !unserved,
            (CoverageScope::Many(_), LocationProgress::With(part)) => part.counts(self.epoch),
            (CoverageScope::Many(_), LocationProgress::Unfollowed) => false,
            (CoverageScope::Many(parts), LocationProgress::Everywhere) => parts.sums.behind == 0,
        }
    }

    /// Whether a part has no first list to wait for any more.
    pub(crate) fn has_come(&self, partition: &Partition) -> bool {
        match (&self.coverage.0, partition) {
            (CoverageScope::Many(parts), Partition::Namespace(_) | Partition::Shard(_)) => {
                parts.get(partition).is_some_and(|part| part.counts(self.epoch))
            }
            (CoverageScope::Many(_), Partition::Whole) => self.synced,
            (CoverageScope::Whole { .. }, Partition::Whole) => self.synced,
            (CoverageScope::Whole { unserved, .. }, _) => self.synced && !unserved,
        }
    }

    /// Whether nothing moved since `earlier`, a state of the same informer.
    pub(crate) fn is_still(&self, earlier: &Progress) -> bool {
        let parts = match (&self.coverage.0, &earlier.coverage.0) {
            (CoverageScope::Many(now), CoverageScope::Many(then)) => now.sums.turn == then.sums.turn,
            (now, then) => now == then,
        };
        let whole = |it: &Progress| (it.epoch, it.synced, it.version.clone());
        parts && whole(self) == whole(earlier)
    }

    /// The part that an object belongs to; none if that is not followed.
    pub(crate) fn part_of(&self, head: &ObjectHeader) -> Option<Partition> {
        match &self.coverage.0 {
            CoverageScope::Whole { .. } => Some(Partition::Whole),
            CoverageScope::Many(parts) => parts.name_of(head),
        }
    }

    /// Whether an object belongs to what is followed.
    pub(crate) fn covers(&self, head: &ObjectHeader) -> bool {
        match &self.coverage.0 {
            CoverageScope::Whole { .. } => true,
            CoverageScope::Many(parts) => parts.of(head).is_some(),
        }
    }

    /// Whether an object's state came before what is held of its part, so that whatever became of the object since is
    /// known. Versions that cannot be compared, also because they are of different epochs, leave that open, and so does
    /// the same version: not every source gives each to one object only.
    pub(super) fn is_past(&self, head: &ObjectHeader) -> bool {
        let held = match &self.coverage.0 {
            CoverageScope::Whole { held, .. } => held.as_ref(),
            CoverageScope::Many(parts) => {
                parts.of(head).filter(|part| part.counts(self.epoch)).and_then(|part| part.held.as_ref())
            }
        };
        matches!((&head.version, held), (Some(version), Some(held)) if version < held)
    }

    pub(crate) fn follows(&self, partition: &Partition) -> bool {
        match (&self.coverage.0, partition) {
            (CoverageScope::Whole { .. }, Partition::Whole) => true,
            (CoverageScope::Many(parts), partition) => parts.get(partition).is_some(),
            _ => false,
        }
    }

    /// Whether what is held of a part at a version is what the server has at that version: not if another part went
    /// back in time since this one was listed.
    pub(crate) fn trusts(&self, partition: &Partition) -> bool {
        match &self.coverage.0 {
            CoverageScope::Many(parts) => parts.get(partition).is_none_or(|part| part.epoch == self.epoch),
            CoverageScope::Whole { .. } => true,
        }
    }
}

impl Coverage {
    fn at(&self, site: ObjectLocation<'_>) -> LocationProgress<'_> {
        match &self.0 {
            CoverageScope::Many(parts) => parts.at(site),
            CoverageScope::Whole { .. } => LocationProgress::Everywhere,
        }
    }
}

fn reached(held: Option<&ResourceVersion>, wanted: &ResourceVersion) -> bool {
    held.is_some_and(|held| held.reached(wanted).unwrap_or(true))
}

#[cfg(test)]
mod tests;
