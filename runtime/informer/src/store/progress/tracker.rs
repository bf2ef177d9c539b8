//! Updates of the progress by lists, changes and bookmarks.
//!
//! The version of the whole is the minimum of all partitions. The tracker keeps the versions of the current partitions
//! sorted, so that an update costs the logarithm of their number. Only the writer has this order, because readers need
//! the minimum only. A new epoch discards it: from then on only the partition that began the epoch is current.

use std::cmp::Ordering;
use std::collections::BTreeMap;

use windlass_object::{ObjectHeader, ResourceVersion};

use super::partitions::{CoverageScope, PartitionProgress};
use super::{ListHandling, Progress, VersionReuse};
use crate::delta_fifo::ListMetadata;
use crate::handler::Cause;
use crate::partition::{Partition, RemovalReason};

/// The progress and its updates.
#[derive(Debug, Default)]
pub(in crate::store) struct Tracker {
    progress: Progress,
    versions: VersionCounts,
}

/// The sorted versions of the current partitions, with the number of partitions at each version.
#[derive(Debug, Default)]
struct VersionCounts {
    partitions: BTreeMap<VersionOrder, usize>,
    len: usize,
}

/// A version with a total order: incomparable versions first, then numbers.
#[derive(Clone, Debug, PartialEq, Eq)]
struct VersionOrder(ResourceVersion);

impl Tracker {
    /// Returns the progress of the store.
    pub(in crate::store) fn progress(&self) -> &Progress {
        &self.progress
    }

    /// Adds partitions to follow.
    pub(in crate::store) fn join(&mut self, partitions: Vec<Partition>) {
        let (version, epoch) = (self.progress.version.clone(), self.progress.epoch);
        let initial = matches!(self.progress.coverage.0, CoverageScope::Whole { .. });
        if initial {
            self.progress.coverage.0 = CoverageScope::Partitioned(Default::default());
        }
        for partition in partitions {
            let part = PartitionProgress {
                version: version.clone(),
                content_version: None,
                listed: false,
                had_list: false,
                epoch,
                initial,
            };
            self.enter(partition, part);
        }
    }

    /// Records the removal of all objects of a partition.
    pub(in crate::store) fn emptied(&mut self, partition: &Partition, reason: RemovalReason) {
        match (&mut self.progress.coverage.0, reason) {
            (CoverageScope::Whole { unserved, content_version: held }, _) => {
                *unserved = self.progress.synced;
                *held = None;
            }
            (CoverageScope::Partitioned(_), RemovalReason::Deselected) => self.remove(partition),
            (CoverageScope::Partitioned(_), RemovalReason::Unserved) => {
                self.change(partition, |part, _, _| (part.listed, part.content_version) = (false, None));
            }
        }
    }

    /// Advances the partition of an object to the version of its change.
    pub(in crate::store) fn advance_of(&mut self, head: &ObjectHeader) {
        if let (Some(to), Some(partition)) = (&head.version, self.progress.partition_of(head)) {
            self.advance(&partition, to);
        }
    }

    /// Advances a partition to this version.
    pub(in crate::store) fn advance(&mut self, partition: &Partition, to: &ResourceVersion) {
        match &mut self.progress.coverage.0 {
            CoverageScope::Whole { content_version: held, .. } => {
                forward(&mut self.progress.version, to);
                held.iter_mut().for_each(|held| advance_content_version(held, to));
            }
            CoverageScope::Partitioned(_) => {
                self.change(partition, |part, _, _| {
                    forward(&mut part.version, to);
                    part.content_version.iter_mut().for_each(|held| advance_content_version(held, to));
                });
            }
        }
    }

    /// Records a list, before [`settle`](Self::settle): sets the partition to the list's version, in a new epoch if a
    /// consistent list moved back.
    pub(in crate::store) fn listed(&mut self, list: &ListMetadata) -> ListHandling {
        match &mut self.progress.coverage.0 {
            CoverageScope::Whole { unserved, content_version: held } => {
                (*unserved, *held) = (false, Some(list.version.clone()));
                let cause = cause_of(self.progress.synced);
                self.progress.synced = true;
                ListHandling { reuse: self.whole_listed(list), cause }
            }
            CoverageScope::Partitioned(_) => {
                let reading = self.change(&list.partition, |part, epoch, version| {
                    let cause = cause_of(std::mem::replace(&mut part.had_list, true));
                    ListHandling { reuse: part_listed(part, epoch, version, list), cause }
                });
                reading.unwrap_or(ListHandling { reuse: VersionReuse::Impossible, cause: Cause::Relist })
            }
        }
    }

    /// Computes the totals of the whole from its partitions.
    pub(in crate::store) fn settle(&mut self) {
        let CoverageScope::Partitioned(parts) = &self.progress.coverage.0 else { return };
        self.progress.synced |= parts.totals.unlisted == 0;
        if parts.totals.outdated == 0
            && let Some(least) = self.versions.minimum()
        {
            forward(&mut self.progress.version, least);
        }
    }

    fn whole_listed(&mut self, list: &ListMetadata) -> VersionReuse {
        let Progress { version, epoch, .. } = &mut self.progress;
        if !went_back(version.as_ref(), list) {
            forward(version, &list.version);
            return VersionReuse::Impossible;
        }
        begin_epoch(epoch, version, list);
        VersionReuse::Possible
    }

    /// Adds a partition if it is not present.
    fn enter(&mut self, partition: Partition, part: PartitionProgress) {
        let CoverageScope::Partitioned(parts) = &mut self.progress.coverage.0 else { return };
        if parts.get(&partition).is_none() {
            parts.totals.unlisted += usize::from(part.delays_sync());
            parts.enter(partition, part);
            self.update_totals();
        }
    }

    fn remove(&mut self, partition: &Partition) {
        let CoverageScope::Partitioned(parts) = &mut self.progress.coverage.0 else { return };
        if let Some(part) = parts.remove(partition) {
            parts.totals.unlisted -= usize::from(part.delays_sync());
            self.versions.leave(&part, self.progress.epoch);
            self.update_totals();
        }
    }

    /// Changes a partition, if present, with epoch and version of the whole; updates the totals.
    fn change<T>(
        &mut self,
        partition: &Partition,
        change: impl FnOnce(&mut PartitionProgress, &mut u64, &mut Option<ResourceVersion>) -> T,
    ) -> Option<T> {
        let Progress { version, epoch, coverage, .. } = &mut self.progress;
        let CoverageScope::Partitioned(parts) = &mut coverage.0 else { return None };
        let part = parts.get_mut(partition)?;
        let (before, epoch_before) = (part.clone(), *epoch);
        let changed = change(part, epoch, version);
        if *part == before {
            return Some(changed);
        }
        if *epoch == epoch_before {
            self.versions.leave(&before, *epoch);
        } else {
            self.versions = VersionCounts::default();
        }
        self.versions.enter(part, *epoch);
        let delays = (before.delays_sync(), part.delays_sync());
        parts.totals.unlisted += usize::from(delays.1);
        parts.totals.unlisted -= usize::from(delays.0);
        self.update_totals();
        Some(changed)
    }

    /// Records a change of the partitions.
    fn update_totals(&mut self) {
        if let CoverageScope::Partitioned(parts) = &mut self.progress.coverage.0 {
            parts.totals.outdated = parts.len() - self.versions.len;
            parts.totals.change_count += 1;
        }
    }
}

impl VersionCounts {
    fn minimum(&self) -> Option<&ResourceVersion> {
        self.partitions.first_key_value().map(|(VersionOrder(version), _)| version)
    }

    fn enter(&mut self, part: &PartitionProgress, epoch: u64) {
        if let Some(order) = VersionOrder::of(part, epoch) {
            *self.partitions.entry(order).or_default() += 1;
            self.len += 1;
        }
    }

    /// Removes the entry of a partition in its previous state.
    fn leave(&mut self, part: &PartitionProgress, epoch: u64) {
        let Some(order) = VersionOrder::of(part, epoch) else { return };
        if let Some(parts) = self.partitions.get_mut(&order) {
            (*parts, self.len) = (*parts - 1, self.len - 1);
            if *parts == 0 {
                self.partitions.remove(&order);
            }
        }
    }
}

impl VersionOrder {
    /// Returns the sort key of a partition, if the partition is current.
    fn of(part: &PartitionProgress, epoch: u64) -> Option<Self> {
        part.version.clone().filter(|_| part.is_current(epoch)).map(Self)
    }

    /// Numbers are sorted by length first.
    fn rank(&self) -> (bool, usize, &str) {
        let text = self.0.as_str();
        (self.0.is_comparable(), text.len(), text)
    }
}

impl Ord for VersionOrder {
    fn cmp(&self, other: &Self) -> Ordering {
        self.rank().cmp(&other.rank())
    }
}

impl PartialOrd for VersionOrder {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// Returns the cause of the changes by a list. The list of a kind that is served again is a relist: a handler that
/// ignores initial lists received the deletions of its objects.
fn cause_of(had_list: bool) -> Cause {
    if had_list { Cause::Relist } else { Cause::InitialList }
}

fn part_listed(
    part: &mut PartitionProgress,
    epoch: &mut u64,
    whole: &mut Option<ResourceVersion>,
    list: &ListMetadata,
) -> VersionReuse {
    part.listed = true;
    part.content_version = Some(list.version.clone());
    let went_back = went_back(part.version.as_ref(), list);
    if went_back && part.epoch == *epoch {
        begin_epoch(epoch, whole, list);
    }
    if !went_back && (part.epoch == *epoch || !list.consistent) {
        forward(&mut part.version, &list.version);
        return VersionReuse::Impossible;
    }
    part.epoch = *epoch;
    part.version = Some(list.version.clone());
    VersionReuse::Possible
}

fn went_back(held: Option<&ResourceVersion>, list: &ListMetadata) -> bool {
    list.consistent && held.is_some_and(|held| list.version < *held)
}

fn begin_epoch(epoch: &mut u64, held: &mut Option<ResourceVersion>, list: &ListMetadata) {
    *epoch += 1;
    tracing::warn!(
        held = held.as_ref().map(ResourceVersion::as_str),
        listed = list.version.as_str(),
        epoch = *epoch,
        "resource version decreased; API server was restored to an older state"
    );
    *held = Some(list.version.clone());
}

/// Like [`forward`], for an existing version.
fn advance_content_version(held: &mut ResourceVersion, to: &ResourceVersion) {
    if to.partial_cmp(held) == Some(Ordering::Greater) || !held.is_comparable() {
        *held = to.clone();
    }
}

/// Moves a version forward. An incomparable version replaces only another incomparable version.
fn forward(held: &mut Option<ResourceVersion>, to: &ResourceVersion) {
    let forward = match held.as_ref().and_then(|held| to.partial_cmp(held)) {
        Some(order) => order == Ordering::Greater,
        None => held.as_ref().is_none_or(|held| !held.is_comparable()),
    };
    if forward {
        *held = Some(to.clone());
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use proptest::prelude::*;
    use windlass_object::shard::{HashRange, HashRanges, ShardField, ShardId};
    use windlass_object::{ObjectKey, Uid};

    use super::*;
    use crate::shards::Shard;

    const PARTS: u16 = 6;

    /// Returns a shard with two ranges of the ring; the shards alternate and leave gaps.
    fn shard(number: u16) -> Partition {
        let stretch = |nth: u64| {
            let start = (u64::from(number) + nth * u64::from(PARTS)) << 60;
            HashRange::new(start, u128::from(start) + (1 << 59)).expect("a range")
        };
        let ranges: HashRanges = [0, 1].map(stretch).into_iter().collect();
        Partition::Shard(Arc::new(Shard { id: ShardId(number), field: ShardField::Uid, ranges, term: 0 }))
    }

    fn namespace(number: u16) -> Partition {
        Partition::Namespace(number.to_string().as_str().into())
    }

    #[derive(Clone, Debug)]
    enum Step {
        Join(u16),
        Empty(u16, RemovalReason),
        List { part: u16, version: ResourceVersion, consistent: bool },
        Advance(u16, ResourceVersion),
        Change(u16, ResourceVersion),
    }

    fn any_version() -> impl Strategy<Value = ResourceVersion> {
        let number = (1..130u32).prop_map(|number| number.to_string());
        prop_oneof![12 => number, 1 => "[a-c]"].prop_map(|text| ResourceVersion::new(&text))
    }

    fn any_step() -> impl Strategy<Value = Step> {
        let reason = prop_oneof![Just(RemovalReason::Deselected), Just(RemovalReason::Unserved)];
        prop_oneof![
            2 => (0..PARTS).prop_map(Step::Join),
            1 => (0..PARTS, reason).prop_map(|(part, reason)| Step::Empty(part, reason)),
            4 => (0..PARTS, any_version(), any::<bool>())
                .prop_map(|(part, version, consistent)| Step::List { part, version, consistent }),
            3 => (0..PARTS, any_version()).prop_map(|(part, version)| Step::Advance(part, version)),
            3 => (0..PARTS, any_version()).prop_map(|(part, version)| Step::Change(part, version)),
        ]
    }

    /// Returns the header of an object in the namespace `number`.
    fn head(number: u16, version: &ResourceVersion) -> ObjectHeader {
        let (key, uid) = (ObjectKey::namespaced(&number.to_string(), "x"), format!("uid-{number}"));
        ObjectHeader { key, uid: Some(Uid::from(uid.as_str())), version: Some(version.clone()) }
    }

    fn take(tracker: &mut Tracker, step: Step, part: fn(u16) -> Partition) {
        match step {
            Step::Join(number) => tracker.join(vec![part(number)]),
            Step::Empty(number, reason) => tracker.emptied(&part(number), reason),
            Step::List { part: number, version, consistent } => {
                tracker.listed(&ListMetadata {
                    partition: part(number),
                    version,
                    consistent,
                    initial: false,
                });
            }
            Step::Advance(number, version) => tracker.advance(&part(number), &version),
            Step::Change(number, version) => tracker.advance_of(&head(number, &version)),
        }
        tracker.settle();
    }

    /// Returns the lower version; of two incomparable versions, one that is not a number.
    fn lesser<'a>(one: &'a ResourceVersion, other: &'a ResourceVersion) -> &'a ResourceVersion {
        match one.partial_cmp(other) {
            Some(Ordering::Greater) => other,
            Some(_) => one,
            None if one.is_comparable() => other,
            None => one,
        }
    }

    fn check(tracker: &Tracker, part: fn(u16) -> Partition) {
        let CoverageScope::Partitioned(many) = &tracker.progress.coverage.0 else {
            panic!("several partitions are followed")
        };
        let all: Vec<(Partition, &PartitionProgress)> =
            (0..PARTS).map(part).filter_map(|part| Some((part.clone(), many.get(&part)?))).collect();
        let current = || all.iter().filter(|(_, part)| part.is_current(tracker.progress.epoch));
        assert_eq!(many.totals.outdated, all.len() - current().count());
        assert_eq!(many.totals.unlisted, all.iter().filter(|(_, part)| part.delays_sync()).count());
        let least = current().filter_map(|(_, part)| part.version.as_ref()).reduce(lesser);
        match (least, tracker.versions.minimum()) {
            (Some(least), Some(kept)) if !least.is_comparable() => assert!(!kept.is_comparable()),
            (least, kept) => assert_eq!(least, kept),
        }
        for number in 0..200 {
            let head = head(number, &ResourceVersion::new("1"));
            let found = all.iter().find(|(part, _)| part.contains(&head.key, head.uid.as_ref()));
            assert_eq!(many.name_of(&head), found.map(|(part, _)| part.clone()), "{head:?}");
            assert_eq!(many.of(&head), found.map(|(_, part)| *part));
        }
    }

    /// Clears the change counter, to compare the partitions themselves.
    fn normalized(mut progress: Progress) -> Progress {
        if let CoverageScope::Partitioned(many) = &mut progress.coverage.0 {
            many.totals.change_count = 0;
        }
        progress
    }

    proptest! {
        #[test]
        fn totals_equal_recomputation_over_all_partitions(
            steps in proptest::collection::vec(any_step(), 0..60), shards: bool,
        ) {
            let part = if shards { shard } else { namespace };
            let mut tracker = Tracker::default();
            tracker.join(vec![part(0), part(1)]);
            for step in steps {
                let before = tracker.progress.clone();
                take(&mut tracker, step, part);
                check(&tracker, part);
                let is_unchanged_since = tracker.progress.is_unchanged_since(&before);
                prop_assert_eq!(is_unchanged_since, normalized(tracker.progress.clone()) == normalized(before));
            }
        }
    }
}
