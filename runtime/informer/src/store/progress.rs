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
//! - A part that goes back in time begins a new epoch for all; the others count again when they have been listed anew.

use std::cmp::Ordering;
use std::sync::Arc;

use imbl::OrdMap;
use windlass_object::shard::{self, ShardField};
use windlass_object::{Head, ResourceVersion};

use super::Trust;
use crate::delta_fifo::ListFacts;
use crate::handler::Cause;
use crate::partition::{Departure, Partition};
use crate::shards::Shard;

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
pub struct Coverage(Parts);

#[derive(Clone, Debug, PartialEq, Eq)]
enum Parts {
    /// One list is all there is.
    Whole {
        /// Whether it was served once and is not any more.
        unserved: bool,
        /// The version of what is held; nothing before there is a list.
        held: Option<ResourceVersion>,
    },
    /// Each of these is listed for itself.
    Many(Many),
}

/// Namespaces or shards; never both. Shards are few.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Many {
    namespaces: OrdMap<Arc<str>, Part>,
    shards: OrdMap<Arc<Shard>, Part>,
}

/// What is followed of a namespace, where many parts are.
enum InNamespace<'a> {
    /// All of it, with this part.
    With(&'a Part),
    /// Nothing.
    Unfollowed,
    /// It is spread over all parts, or meant to be none.
    Everywhere,
}

/// One namespace or shard of many.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Part {
    /// How far it has come; before its first list, what that cannot be older than.
    version: Option<ResourceVersion>,
    /// The version of what is held; nothing before there is a list. Less than `version` after an older list.
    held: Option<ResourceVersion>,
    /// Whether the version is that of what is held.
    listed: bool,
    /// The epoch of the version.
    epoch: u64,
    /// Whether it was there at the start.
    initial: bool,
}

/// What to make of a list that arrived.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(super) struct Reading {
    pub(super) trust: Trust,
    pub(super) cause: Cause,
}

impl Progress {
    /// Whether everything up to `wanted` has arrived, of every part. A version that cannot be compared counts as
    /// reached: waiting for it would never end. So does any version where nothing is followed.
    pub fn has_reached(&self, wanted: &ResourceVersion) -> bool {
        match &self.coverage.0 {
            Parts::Many(parts) if parts.values().next().is_none() => self.synced,
            Parts::Many(parts) => {
                parts.values().all(|part| part.counts(self.epoch)) && reached(self.version.as_ref(), wanted)
            }
            Parts::Whole { unserved, .. } => !unserved && reached(self.version.as_ref(), wanted),
        }
    }

    /// Whether everything up to `wanted` has arrived of the part that holds `namespace`; of every part, if that is
    /// `None`. Of a namespace that is not followed nothing will ever arrive, so it counts as reached.
    pub fn has_reached_in(&self, namespace: Option<&str>, wanted: &ResourceVersion) -> bool {
        match self.coverage.in_namespace(namespace) {
            InNamespace::With(part) => part.counts(self.epoch) && reached(part.version.as_ref(), wanted),
            InNamespace::Unfollowed => true,
            InNamespace::Everywhere => self.has_reached(wanted),
        }
    }

    /// Whether everything up to `wanted` has arrived of one part. Of one that is not followed nothing will ever arrive.
    pub(crate) fn has_reached_of(&self, partition: &Partition, wanted: &ResourceVersion) -> bool {
        match (&self.coverage.0, partition) {
            (Parts::Many(parts), Partition::Namespace(_) | Partition::Shard(_)) => parts
                .get(partition)
                .is_none_or(|part| part.counts(self.epoch) && reached(part.version.as_ref(), wanted)),
            (Parts::Many(_), Partition::Whole) | (Parts::Whole { .. }, _) => self.has_reached(wanted),
        }
    }

    /// Up to which version everything has arrived of the part that holds `namespace`. `None` also if that part is not
    /// followed or has not been listed.
    pub fn version_in(&self, namespace: Option<&str>) -> Option<&ResourceVersion> {
        match self.coverage.in_namespace(namespace) {
            InNamespace::With(part) if part.counts(self.epoch) => part.version.as_ref(),
            InNamespace::With(_) | InNamespace::Unfollowed => None,
            InNamespace::Everywhere => self.version.as_ref(),
        }
    }

    /// Whether the list of the part that holds `namespace` is in the store.
    pub fn has_listed(&self, namespace: &str) -> bool {
        match (&self.coverage.0, self.coverage.in_namespace(Some(namespace))) {
            (Parts::Whole { unserved, .. }, _) => self.synced && !unserved,
            (Parts::Many(_), InNamespace::With(part)) => part.counts(self.epoch),
            (Parts::Many(_), InNamespace::Unfollowed) => false,
            (Parts::Many(parts), InNamespace::Everywhere) => {
                parts.values().all(|part| part.counts(self.epoch))
            }
        }
    }

    /// Whether a part has no first list to wait for any more.
    pub(crate) fn has_come(&self, partition: &Partition) -> bool {
        match (&self.coverage.0, partition) {
            (Parts::Many(parts), Partition::Namespace(_) | Partition::Shard(_)) => {
                parts.get(partition).is_some_and(|part| part.counts(self.epoch))
            }
            (Parts::Many(_), Partition::Whole) => self.synced,
            (Parts::Whole { .. }, Partition::Whole) => self.synced,
            (Parts::Whole { unserved, .. }, _) => self.synced && !unserved,
        }
    }

    /// The part that an object belongs to; none if that is not followed.
    pub(crate) fn part_of(&self, head: &Head) -> Option<Partition> {
        match &self.coverage.0 {
            Parts::Whole { .. } => Some(Partition::Whole),
            Parts::Many(parts) => parts.name_of(head),
        }
    }

    /// Whether an object belongs to what is followed.
    pub(crate) fn covers(&self, head: &Head) -> bool {
        match &self.coverage.0 {
            Parts::Whole { .. } => true,
            Parts::Many(parts) => parts.of(head).is_some(),
        }
    }

    /// Whether an object's state came before what is held of its part, so that whatever became of the object since is
    /// known. Versions that cannot be compared, also because they are of different epochs, leave that open, and so does
    /// the same version: not every source gives each to one object only.
    pub(super) fn is_past(&self, head: &Head) -> bool {
        let held = match &self.coverage.0 {
            Parts::Whole { held, .. } => held.as_ref(),
            Parts::Many(parts) => {
                parts.of(head).filter(|part| part.counts(self.epoch)).and_then(|part| part.held.as_ref())
            }
        };
        matches!((&head.version, held), (Some(version), Some(held)) if version < held)
    }

    pub(crate) fn follows(&self, partition: &Partition) -> bool {
        match (&self.coverage.0, partition) {
            (Parts::Whole { .. }, Partition::Whole) => true,
            (Parts::Many(parts), partition) => parts.get(partition).is_some(),
            _ => false,
        }
    }

    /// Whether what is held of a part at a version is what the server has at that version: not if another part went
    /// back in time since this one was listed.
    pub(crate) fn trusts(&self, partition: &Partition) -> bool {
        match &self.coverage.0 {
            Parts::Many(parts) => parts.get(partition).is_none_or(|part| part.epoch == self.epoch),
            Parts::Whole { .. } => true,
        }
    }

    /// These parts are followed from now on.
    pub(super) fn join(&mut self, partitions: Vec<Partition>) {
        let (version, epoch) = (self.version.clone(), self.epoch);
        let initial = matches!(self.coverage.0, Parts::Whole { .. });
        let mut parts = match std::mem::take(&mut self.coverage.0) {
            Parts::Many(parts) => parts,
            Parts::Whole { .. } => Many::default(),
        };
        for partition in partitions {
            let part = Part { version: version.clone(), held: None, listed: false, epoch, initial };
            parts.enter(partition, part);
        }
        self.coverage.0 = Parts::Many(parts);
    }

    /// Everything in a part went.
    pub(super) fn emptied(&mut self, partition: &Partition, departure: Departure) {
        match (&mut self.coverage.0, partition, departure) {
            (Parts::Whole { unserved, held }, ..) => {
                *unserved = self.synced;
                *held = None;
            }
            (Parts::Many(parts), partition, Departure::Deselected) => parts.remove(partition),
            (Parts::Many(parts), partition, Departure::Unserved) => {
                if let Some(part) = parts.get_mut(partition) {
                    part.listed = false;
                    part.held = None;
                }
            }
        }
    }

    /// A change of this object arrived: its part has come to the change's version.
    pub(super) fn advance_of(&mut self, head: &Head) {
        let Some(to) = &head.version else { return };
        match &mut self.coverage.0 {
            Parts::Whole { held, .. } => {
                forward(&mut self.version, to);
                held.iter_mut().for_each(|held| forward_held(held, to));
            }
            Parts::Many(parts) => {
                if let Some(part) = parts.of_mut(head) {
                    part.advance(to);
                }
            }
        }
    }

    /// A part has come to this version.
    pub(super) fn advance(&mut self, partition: &Partition, to: &ResourceVersion) {
        match &mut self.coverage.0 {
            Parts::Whole { held, .. } => {
                forward(&mut self.version, to);
                held.iter_mut().for_each(|held| forward_held(held, to));
            }
            Parts::Many(parts) => {
                if let Some(part) = parts.get_mut(partition) {
                    part.advance(to);
                }
            }
        }
    }

    /// A list arrived: its part moves to the list's version, into a new epoch if a consistent one went back.
    pub(super) fn listed(&mut self, list: &ListFacts) -> Reading {
        let reading = match (&mut self.coverage.0, &list.partition) {
            (Parts::Whole { unserved, held }, _) => {
                *unserved = false;
                *held = Some(list.version.clone());
                let cause = if self.synced { Cause::Relist } else { Cause::InitialList };
                self.synced = true;
                Reading { trust: self.whole_listed(list), cause }
            }
            (Parts::Many(parts), partition) => match parts.get_mut(partition) {
                Some(part) => {
                    let cause = if part.listed { Cause::Relist } else { Cause::InitialList };
                    let trust = part.listed(&mut self.epoch, &mut self.version, list);
                    Reading { trust, cause }
                }
                None => Reading { trust: Trust::Versions, cause: Cause::Relist },
            },
        };
        self.settle();
        reading
    }

    fn whole_listed(&mut self, list: &ListFacts) -> Trust {
        if !went_back(self.version.as_ref(), list) {
            forward(&mut self.version, &list.version);
            return Trust::Versions;
        }
        begin_epoch(&mut self.epoch, &mut self.version, list);
        Trust::Nothing
    }

    /// Draws the whole from its parts.
    pub(super) fn settle(&mut self) {
        let Parts::Many(parts) = &self.coverage.0 else { return };
        self.synced |= parts.values().all(|part| part.listed || !part.initial);
        if !parts.values().all(|part| part.counts(self.epoch)) {
            return;
        }
        let versions = parts.values().filter_map(|part| part.version.as_ref());
        if let Some(least) = versions.reduce(least) {
            forward(&mut self.version, least);
        }
    }
}

impl Coverage {
    fn in_namespace(&self, namespace: Option<&str>) -> InNamespace<'_> {
        match (&self.0, namespace) {
            (Parts::Many(parts), Some(namespace)) => parts.in_namespace(namespace),
            _ => InNamespace::Everywhere,
        }
    }
}

impl Many {
    fn values(&self) -> impl Iterator<Item = &Part> {
        self.namespaces.values().chain(self.shards.values())
    }

    fn get(&self, partition: &Partition) -> Option<&Part> {
        match partition {
            Partition::Whole => None,
            Partition::Namespace(namespace) => self.namespaces.get(namespace),
            Partition::Shard(shard) => self.shards.get(shard),
        }
    }

    fn get_mut(&mut self, partition: &Partition) -> Option<&mut Part> {
        match partition {
            Partition::Whole => None,
            Partition::Namespace(namespace) => self.namespaces.get_mut(namespace),
            Partition::Shard(shard) => self.shards.get_mut(shard),
        }
    }

    /// Lets a part in that is not there.
    fn enter(&mut self, partition: Partition, part: Part) {
        match partition {
            Partition::Whole => {}
            Partition::Namespace(namespace) => {
                self.namespaces.entry(namespace).or_insert(part);
            }
            Partition::Shard(shard) => {
                self.shards.entry(shard).or_insert(part);
            }
        }
    }

    fn remove(&mut self, partition: &Partition) {
        match partition {
            Partition::Whole => {}
            Partition::Namespace(namespace) => {
                self.namespaces.remove(namespace);
            }
            Partition::Shard(shard) => {
                self.shards.remove(shard);
            }
        }
    }

    fn shard_of(&self, head: &Head) -> Option<&Arc<Shard>> {
        self.shards.keys().find(|shard| shard.holds(&head.key, head.uid.as_ref()))
    }

    fn name_of(&self, head: &Head) -> Option<Partition> {
        let namespace = head.key.namespace().and_then(|name| self.namespaces.get_key_value(name));
        let namespace = namespace.map(|(name, _)| Partition::Namespace(Arc::clone(name)));
        namespace.or_else(|| self.shard_of(head).map(|shard| Partition::Shard(Arc::clone(shard))))
    }

    fn of(&self, head: &Head) -> Option<&Part> {
        let namespace = head.key.namespace().and_then(|namespace| self.namespaces.get(namespace));
        namespace.or_else(|| self.shards.get(self.shard_of(head)?))
    }

    fn of_mut(&mut self, head: &Head) -> Option<&mut Part> {
        if self.shards.is_empty() {
            return head.key.namespace().and_then(|namespace| self.namespaces.get_mut(namespace));
        }
        let shard = Arc::clone(self.shard_of(head)?);
        self.shards.get_mut(&shard)
    }

    fn in_namespace(&self, namespace: &str) -> InNamespace<'_> {
        let hash = shard::hash(namespace);
        let part = match self.shards.keys().next().map(|shard| shard.field) {
            None => self.namespaces.get(namespace),
            Some(ShardField::Namespace) => {
                self.shards.iter().find(|(shard, _)| shard.ranges.contains(hash)).map(|(_, part)| part)
            }
            Some(ShardField::Uid) => return InNamespace::Everywhere,
        };
        part.map_or(InNamespace::Unfollowed, InNamespace::With)
    }
}

impl Part {
    /// It has come to this version.
    fn advance(&mut self, to: &ResourceVersion) {
        forward(&mut self.version, to);
        self.held.iter_mut().for_each(|held| forward_held(held, to));
    }

    /// Whether its version says what is held in this epoch.
    fn counts(&self, epoch: u64) -> bool {
        self.listed && self.epoch == epoch
    }

    fn listed(&mut self, epoch: &mut u64, whole: &mut Option<ResourceVersion>, list: &ListFacts) -> Trust {
        self.listed = true;
        self.held = Some(list.version.clone());
        let went_back = went_back(self.version.as_ref(), list);
        if went_back && self.epoch == *epoch {
            begin_epoch(epoch, whole, list);
        }
        if !went_back && (self.epoch == *epoch || !list.consistent) {
            forward(&mut self.version, &list.version);
            return Trust::Versions;
        }
        self.epoch = *epoch;
        self.version = Some(list.version.clone());
        Trust::Nothing
    }
}

impl Default for Parts {
    fn default() -> Self {
        Parts::Whole { unserved: false, held: None }
    }
}

fn went_back(held: Option<&ResourceVersion>, list: &ListFacts) -> bool {
    list.consistent && held.is_some_and(|held| list.version < *held)
}

fn begin_epoch(epoch: &mut u64, held: &mut Option<ResourceVersion>, list: &ListFacts) {
    *epoch += 1;
    tracing::warn!(
        held = held.as_ref().map(ResourceVersion::as_str),
        listed = list.version.as_str(),
        epoch = *epoch,
        "the server went back in time: a consistent list is older than what is held; a new epoch begins"
    );
    *held = Some(list.version.clone());
}

/// The same for a version there is.
fn forward_held(held: &mut ResourceVersion, to: &ResourceVersion) {
    if to.partial_cmp(held) == Some(Ordering::Greater) || !held.is_comparable() {
        *held = to.clone();
    }
}

/// Moves a version forward; one that cannot be compared replaces only another such.
fn forward(held: &mut Option<ResourceVersion>, to: &ResourceVersion) {
    let forward = match held.as_ref().and_then(|held| to.partial_cmp(held)) {
        Some(order) => order == Ordering::Greater,
        None => held.as_ref().is_none_or(|held| !held.is_comparable()),
    };
    if forward {
        *held = Some(to.clone());
    }
}

/// The lesser; of two that cannot be compared, one that stands in no order to anything.
fn least<'a>(one: &'a ResourceVersion, other: &'a ResourceVersion) -> &'a ResourceVersion {
    match one.partial_cmp(other) {
        Some(Ordering::Greater) => other,
        Some(_) => one,
        None if one.is_comparable() => other,
        None => one,
    }
}

fn reached(held: Option<&ResourceVersion>, wanted: &ResourceVersion) -> bool {
    held.is_some_and(|held| held.reached(wanted).unwrap_or(true))
}

#[cfg(test)]
mod tests;
