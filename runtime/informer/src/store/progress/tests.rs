//! Compares the reported progress with the delivered events while namespaces join and leave.

use std::collections::BTreeMap;
use std::sync::Arc;

use proptest::prelude::*;
use windlass_object::ObjectKey;
use windlass_object::shard::{self, HashRange, ShardField, ShardId};

use super::*;
use crate::delta_fifo::ListMetadata;
use crate::partition::RemovalReason;
use crate::shards::Shard;

const NAMES: [&str; 3] = ["a", "b", "c"];

fn at(version: u64) -> ResourceVersion {
    ResourceVersion::new(&version.to_string())
}

fn part(name: usize) -> Partition {
    Partition::Namespace(NAMES[name].into())
}

/// Returns a shard that contains only that namespace.
fn shard_of(name: usize) -> Partition {
    let start = shard::hash(NAMES[name]);
    let ranges = HashRange::new(start, u128::from(start) + 1).expect("a range").into();
    let id = ShardId(u16::try_from(name).expect("few"));
    Partition::Shard(Arc::new(Shard { id, field: ShardField::Namespace, ranges, term: 0 }))
}

fn head(name: usize, version: u64) -> ObjectHeader {
    ObjectHeader { key: ObjectKey::namespaced(NAMES[name], "x"), uid: None, version: Some(at(version)) }
}

fn list_metadata(partition: Partition, version: u64, consistent: bool) -> ListMetadata {
    ListMetadata { partition, version: at(version), consistent, initial: false }
}

/// Records a list as a separate batch.
fn apply_list(tracker: &mut Tracker, list: &ListMetadata) -> ListHandling {
    let handling = tracker.listed(list);
    tracker.settle();
    handling
}

/// A step between an informer and its server.
#[derive(Clone, Debug)]
enum Step {
    /// A client writes to a namespace.
    Write(usize),
    Join(usize),
    Leave(usize),
    /// The kind is no longer served, and the reflector of a namespace notices.
    Unserve(usize),
    /// A namespace begins a list; a later step delivers it.
    BeginList(usize),
    EndList(usize),
    /// A namespace's watch delivers the pending changes.
    Watch(usize),
    Bookmark(usize),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let name = 0..NAMES.len();
    let step = prop_oneof![
        4 => name.clone().prop_map(Step::Write),
        2 => name.clone().prop_map(Step::Join),
        1 => name.clone().prop_map(Step::Leave),
        1 => name.clone().prop_map(Step::Unserve),
        3 => name.clone().prop_map(Step::BeginList),
        3 => name.clone().prop_map(Step::EndList),
        4 => name.clone().prop_map(Step::Watch),
        2 => name.prop_map(Step::Bookmark),
    ];
    proptest::collection::vec(step, 0..120)
}

/// The server, the deliveries to each namespace of the informer, and the reported progress.
#[derive(Default)]
struct World {
    version: u64,
    /// The version of the last write to each namespace.
    written: BTreeMap<usize, u64>,
    /// The followed namespaces.
    followed: BTreeMap<usize, Followed>,
    tracker: Tracker,
    /// Whether namespaces are followed as shards.
    shards: bool,
}

#[derive(Default)]
struct Followed {
    listing: Option<u64>,
    /// The version up to which everything was delivered; `None` before the first delivery.
    delivered: Option<u64>,
}

impl World {
    fn new(shards: bool) -> Self {
        let mut world = Self { version: 10, shards, ..Self::default() };
        world.tracker.join(Vec::new());
        world.tracker.settle();
        world
    }

    /// Returns the partition of a step.
    fn part_of(&self, step: &Step) -> Partition {
        let (Step::Write(name)
        | Step::Join(name)
        | Step::Leave(name)
        | Step::Unserve(name)
        | Step::BeginList(name)
        | Step::EndList(name)
        | Step::Watch(name)
        | Step::Bookmark(name)) = *step;
        if self.shards { shard_of(name) } else { part(name) }
    }

    fn take(&mut self, step: &Step) {
        let part = self.part_of(step);
        match *step {
            Step::Write(name) => {
                self.version += 1;
                self.written.insert(name, self.version);
            }
            Step::Join(name) if !self.followed.contains_key(&name) => {
                self.followed.insert(name, Followed::default());
                self.tracker.join(vec![part]);
            }
            Step::Leave(name) if self.followed.remove(&name).is_some() => {
                self.tracker.emptied(&part, RemovalReason::Deselected);
            }
            Step::Unserve(name) => {
                if let Some(followed) = self.followed.get_mut(&name) {
                    *followed = Followed::default();
                    self.tracker.emptied(&part, RemovalReason::Unserved);
                }
            }
            Step::BeginList(name) => {
                if let Some(followed) = self.followed.get_mut(&name) {
                    followed.listing = Some(self.version);
                }
            }
            Step::EndList(name) => {
                let listed = self.followed.get_mut(&name).and_then(|followed| followed.listing.take());
                if let Some(listed) = listed {
                    self.deliver(name, listed);
                    apply_list(&mut self.tracker, &list_metadata(part, listed, true));
                }
            }
            Step::Watch(name) if self.was_listed(name) => {
                let written = self.written.get(&name).copied().unwrap_or_default();
                self.deliver(name, written);
                self.tracker.advance_of(&head(name, written.max(1)));
            }
            Step::Bookmark(name) if self.was_listed(name) => {
                self.deliver(name, self.version);
                self.tracker.advance(&part, &at(self.version));
            }
            _ => {}
        }
        self.tracker.settle();
    }

    /// Delivers up to a version. A reflector discards a list that began before the last delivery.
    fn deliver(&mut self, name: usize, up_to: u64) {
        if let Some(followed) = self.followed.get_mut(&name) {
            followed.delivered = followed.delivered.max(Some(up_to));
            followed.listing = followed.listing.filter(|begun| *begun >= up_to);
        }
    }

    fn was_listed(&self, name: usize) -> bool {
        self.followed.get(&name).is_some_and(|followed| followed.delivered.is_some())
    }

    /// Returns whether every write to a namespace up to `version` was delivered.
    fn delivered(&self, name: usize, version: u64) -> bool {
        let Some(followed) = self.followed.get(&name) else { return true };
        let due = self.written.get(&name).copied().filter(|written| *written <= version);
        followed.delivered.is_some_and(|delivered| due.is_none_or(|due| delivered >= due))
    }

    fn progress(&self) -> &Progress {
        self.tracker.progress()
    }

    fn check(&self) {
        for version in 1..=self.version + 1 {
            let mut all = true;
            for (name, text) in NAMES.iter().enumerate() {
                all &= self.delivered(name, version);
                if self.progress().has_reached_in(Some(*text), &at(version)) {
                    assert!(
                        self.delivered(name, version),
                        "{text} has not reached {version}: {:?}",
                        self.progress()
                    );
                }
            }
            if self.progress().has_reached(&at(version)) {
                assert!(all, "not all partitions have reached {version}: {:?}", self.progress());
            }
        }
    }
}

proptest! {
    // parity: test-store-resource-version
    #[test]
    fn undelivered_versions_are_never_reached_and_version_never_moves_back(
        steps in steps(), shards: bool,
    ) {
        let mut world = World::new(shards);
        let mut before: Option<ResourceVersion> = None;
        for step in &steps {
            world.take(step);
            world.check();
            let now = world.progress().version.clone();
            assert!(before <= now, "moved back from {before:?} to {now:?} by {step:?}");
            before = now;
        }
        assert_eq!((world.progress().epoch, world.progress().synced), (0, true));
    }

    #[test]
    fn every_version_is_reached_after_full_delivery(steps in steps(), shards: bool) {
        let mut world = World::new(shards);
        steps.iter().for_each(|step| world.take(step));
        for name in 0..NAMES.len() {
            world.take(&Step::BeginList(name));
            world.take(&Step::EndList(name));
            world.take(&Step::Bookmark(name));
        }
        assert!(world.progress().has_reached(&at(world.version)), "{:?}", world.progress());
    }
}

#[test]
fn version_is_minimum_of_partition_versions() {
    let mut tracker = Tracker::default();
    tracker.join(vec![part(0), part(1)]);
    apply_list(&mut tracker, &list_metadata(part(0), 7, true));
    assert_eq!((tracker.progress().synced, tracker.progress().version.clone()), (false, None));
    apply_list(&mut tracker, &list_metadata(part(1), 5, true));
    assert_eq!((tracker.progress().synced, tracker.progress().version.clone()), (true, Some(at(5))));
    assert_eq!(tracker.progress().version_in(Some("a")), Some(&at(7)));
    assert_eq!(
        (tracker.progress().version_in(Some("c")), tracker.progress().version_in(None)),
        (None, Some(&at(5)))
    );
}

#[test]
fn events_of_removed_namespace_are_ignored() {
    let mut tracker = Tracker::default();
    tracker.join(vec![part(0)]);
    tracker.emptied(&part(0), RemovalReason::Deselected);
    let before = tracker.progress().clone();
    apply_list(&mut tracker, &list_metadata(part(0), 7, true));
    tracker.advance(&part(0), &at(9));
    tracker.advance_of(&head(0, 9));
    assert!(!tracker.progress().follows(&part(0)) && !tracker.progress().covers(&head(0, 9)));
    assert_eq!(tracker.progress().version, before.version);
}

#[test]
fn partition_moving_back_begins_epoch_and_others_count_after_relist() {
    let mut tracker = Tracker::default();
    tracker.join(vec![part(0), part(1)]);
    for name in [0, 1] {
        apply_list(&mut tracker, &list_metadata(part(name), 20, true));
    }
    assert_eq!(apply_list(&mut tracker, &list_metadata(part(0), 12, true)).reuse, VersionReuse::Possible);
    assert_eq!((tracker.progress().epoch, tracker.progress().version.clone()), (1, Some(at(12))));
    assert!(tracker.progress().trusts(&part(0)) && !tracker.progress().trusts(&part(1)));
    assert!(!tracker.progress().has_reached(&at(1)) && !tracker.progress().has_reached_in(Some("b"), &at(1)));
    assert!(tracker.progress().has_reached_in(Some("a"), &at(12)));
    // An inconsistent list proves nothing. A consistent list counts, and belongs to the same epoch.
    apply_list(&mut tracker, &list_metadata(part(1), 25, false));
    assert!(!tracker.progress().trusts(&part(1)));
    assert_eq!(apply_list(&mut tracker, &list_metadata(part(1), 14, true)).reuse, VersionReuse::Possible);
    assert_eq!((tracker.progress().epoch, tracker.progress().version.clone()), (1, Some(at(12))));
    assert!(tracker.progress().has_reached(&at(12)) && tracker.progress().trusts(&part(1)));
}

#[test]
fn incomparable_versions_count_as_reached() {
    let opaque = ResourceVersion::new("opaque");
    let mut tracker = Tracker::default();
    tracker.join(vec![part(0), part(1)]);
    for name in [0, 1] {
        apply_list(
            &mut tracker,
            &ListMetadata { version: opaque.clone(), ..list_metadata(part(name), 1, true) },
        );
    }
    assert!(tracker.progress().has_reached(&at(9)) && tracker.progress().has_reached_in(Some("a"), &opaque));
}

#[test]
fn first_list_of_kind_that_is_served_again_is_a_relist() {
    for part in [Partition::Whole, part(0)] {
        let mut tracker = Tracker::default();
        if part != Partition::Whole {
            tracker.join(vec![part.clone()]);
        }
        let mut cause = |version| apply_list(&mut tracker, &list_metadata(part.clone(), version, true)).cause;
        assert_eq!((cause(5), cause(6)), (Cause::InitialList, Cause::Relist), "{part}");
        tracker.emptied(&part, RemovalReason::Unserved);
        let mut cause = |version| apply_list(&mut tracker, &list_metadata(part.clone(), version, true)).cause;
        assert_eq!((cause(8), cause(9)), (Cause::Relist, Cause::Relist), "{part}");
    }
}
