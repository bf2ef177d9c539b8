//! Batches applied to a store on its own.

use windlass_object::shard::{self, HashRange, ShardField, ShardId};
use windlass_object::{Decoder as _, Representation as _, TypedObjects, wire};

use super::*;
use crate::shards::Shard;
use crate::testing::{at, brief, brief_event, key, object};

type Map = k8s_openapi::api::core::v1::ConfigMap;
type Writer = StoreWriter<Arc<Map>>;

fn writer() -> Writer {
    let metrics = windlass_metrics::Metrics::new().informer("", "v1", "configmaps");
    StoreWriter::new(Arc::new(Store::new()), head, Arc::new(ByteBudget::new(None, metrics)))
}

fn head(map: &Arc<Map>) -> ObjectHeader {
    ObjectHeader::of(&map.metadata)
}

fn item(name: &str, uid: &str, version: u64) -> Item<Arc<Map>> {
    let raw = object(name, uid, version, "v");
    let decoded = TypedObjects::<Map>::new().decoder().decode(&raw).expect("a sound object");
    Item {
        head: wire::object_header(&raw).expect("a sound head"),
        body: Body::Decoded(Arc::new(decoded)),
        bytes: 1,
    }
}

fn spoiled(name: &str, uid: &str, version: u64) -> Item<Arc<Map>> {
    Item { body: Body::Undecodable { error: "spoiled".into(), metadata: None }, ..item(name, uid, version) }
}

fn list(writer: &mut Writer, version: u64, consistent: bool, items: Vec<Item<Arc<Map>>>) -> Vec<String> {
    let known = PartitionContents { store: &writer.store, head };
    let missing = known.missing_from(&Partition::Whole, &items.iter().map(|item| &item.head.key).collect());
    let initial = !writer.tracker.progress().synced;
    let list = ListMetadata { partition: Partition::Whole, version: at(version), consistent, initial };
    events(writer.apply(Batch::Replacement { missing, items, list }))
}

fn change(writer: &mut Writer, delta: Delta<Arc<Map>>) -> Vec<String> {
    events(writer.apply(Batch::Changes(vec![delta])))
}

fn bookmark(version: ResourceVersion) -> Delta<Arc<Map>> {
    Delta::Bookmark { partition: Partition::Whole, version }
}

fn events(applied: Applied<Arc<Map>>) -> Vec<String> {
    match applied {
        Applied::Filled => vec!["filled".to_owned()],
        Applied::Resync(target) => vec![format!("again {target:?}")],
        Applied::Changes(changes) => changes.iter().map(|change| brief_event(&change.event)).collect(),
    }
}

fn held(writer: &Writer) -> Vec<String> {
    writer.store.snapshot().objects().values().map(|object| brief(object)).collect()
}

fn version(writer: &Writer) -> Option<ResourceVersion> {
    writer.store.snapshot().progress().version.clone()
}

// parity: last-sync-resource-version, test-store-resource-version, test-reflector-watch-handler
#[test]
fn version_follows_lists_events_deletes_and_bookmarks() {
    let mut writer = writer();
    assert_eq!(version(&writer), None);
    list(&mut writer, 3, true, vec![item("a", "u", 2)]);
    assert_eq!(version(&writer), Some(at(3)));
    change(&mut writer, Delta::Updated(item("a", "u", 4)));
    assert_eq!(version(&writer), Some(at(4)));
    change(&mut writer, Delta::Deleted(item("a", "u", 5)));
    assert_eq!(version(&writer), Some(at(5)));
    change(&mut writer, bookmark(at(9)));
    assert_eq!(version(&writer), Some(at(9)));
}

// parity: last-store-sync-resource-version, test-store-resource-version
#[test]
fn version_never_moves_back() {
    let mut writer = writer();
    list(&mut writer, 10, true, vec![item("a", "u", 8)]);
    assert_eq!(change(&mut writer, Delta::Updated(item("a", "u", 7))), Vec::<String>::new());
    change(&mut writer, bookmark(at(9)));
    change(&mut writer, Delta::Added(item("b", "w", 9)));
    list(&mut writer, 9, false, vec![item("a", "u", 8)]);
    assert_eq!((version(&writer), writer.store.snapshot().progress().epoch), (Some(at(10)), 0));
}

#[test]
fn consistent_list_at_lower_version_begins_epoch_without_trust() {
    let mut writer = writer();
    list(&mut writer, 10, true, vec![item("a", "u", 8), item("b", "w", 9)]);
    let events = list(&mut writer, 9, true, vec![item("a", "u", 8)]);
    assert_eq!(events, ["-b@9=v Relist Inferred", "~a@8=v>a@8=v Relist"]);
    let progress = writer.store.snapshot().progress().clone();
    assert_eq!((progress.version, progress.epoch), (Some(at(9)), 1));
}

// parity: replace-resync, test-replace-events, test-real-fifo-replace-with-delete-delta
#[test]
fn store_reports_only_differences_of_a_relist() {
    let mut writer = writer();
    assert_eq!(
        list(&mut writer, 3, true, vec![item("a", "u", 1), item("b", "w", 2), item("c", "x", 3)]),
        ["filled"]
    );
    let events = list(&mut writer, 9, false, vec![item("a", "u", 1), item("b", "w", 5), item("d", "y", 6)]);
    assert_eq!(events, ["-c@3=v Relist Inferred", "~b@2=v>b@5=v Relist", "+d@6=v Relist"]);
}

#[test]
fn new_uid_under_same_key_is_deletion_and_addition() {
    let mut writer = writer();
    list(&mut writer, 1, true, vec![item("a", "u", 1)]);
    let events = list(&mut writer, 5, false, vec![item("a", "other", 4)]);
    assert_eq!(events, ["-a@1=v Relist Inferred", "+a@4=v Relist"]);
    let events = change(&mut writer, Delta::Added(item("a", "third", 7)));
    assert_eq!(events, ["-a@4=v Watch Inferred", "+a@7=v Watch"]);
}

#[test]
fn deletion_of_later_object_removes_cached_object_as_inferred() {
    let mut writer = writer();
    list(&mut writer, 1, true, vec![item("a", "u", 1)]);
    assert_eq!(change(&mut writer, Delta::Deleted(item("a", "other", 5))), ["-a@1=v Watch Inferred"]);
    assert_eq!(held(&writer), Vec::<String>::new());
}

// parity: typed-resource-event-handler, test-deletion-handling-object-to-name
#[test]
fn deletion_carries_final_or_last_known_state() {
    let mut writer = writer();
    list(&mut writer, 2, true, vec![item("a", "u", 1), item("b", "w", 2)]);
    assert_eq!(change(&mut writer, Delta::Deleted(item("a", "u", 3))), ["-a@3=v Watch Observed"]);
    assert_eq!(change(&mut writer, Delta::Deleted(spoiled("b", "w", 4))), ["-b@2=v Watch Observed"]);
}

// parity: deletion-unknown-object-delivered, test-real-fifo-enqueueing-no-lister
#[test]
fn deletion_of_unknown_object_causes_no_event() {
    let mut writer = writer();
    list(&mut writer, 1, true, vec![]);
    assert_eq!(change(&mut writer, Delta::Deleted(item("a", "u", 2))), Vec::<String>::new());
    assert_eq!(version(&writer), Some(at(2)));
}

#[test]
fn undecodable_object_is_excluded_until_it_changes() {
    let mut writer = writer();
    list(&mut writer, 2, true, vec![item("a", "u", 1), item("b", "w", 2)]);
    assert_eq!(change(&mut writer, Delta::Updated(spoiled("a", "u", 3))), ["-a@1=v Watch Inferred"]);
    assert_eq!(held(&writer), ["b@2=v"]);
    let snapshot = writer.store.snapshot();
    let undecodable = &snapshot.undecodable()[&key("a")];
    assert_eq!((undecodable.version.clone(), &*undecodable.error), (Some(at(3)), "spoiled"));
    assert_eq!(change(&mut writer, Delta::Updated(item("a", "u", 4))), ["+a@4=v Watch"]);
    assert!(writer.store.snapshot().undecodable().is_empty());
}

#[test]
fn deleted_or_unlisted_object_is_no_longer_undecodable() {
    let mut writer = writer();
    list(&mut writer, 2, true, vec![spoiled("a", "u", 1), spoiled("b", "w", 2)]);
    assert_eq!(change(&mut writer, Delta::Deleted(spoiled("a", "u", 3))), Vec::<String>::new());
    assert_eq!(writer.store.snapshot().undecodable().len(), 1);
    assert_eq!(list(&mut writer, 4, false, vec![]), Vec::<String>::new());
    assert!(writer.store.snapshot().undecodable().is_empty());
}

#[test]
fn replayed_events_do_not_restore_deleted_objects() {
    let mut writer = writer();
    let nothing = Vec::<String>::new();
    list(&mut writer, 2, true, vec![]);
    change(&mut writer, Delta::Updated(item("a", "u", 5)));
    change(&mut writer, Delta::Deleted(item("a", "u", 6)));
    for stale in [item("a", "u", 5), spoiled("a", "u", 5), item("older-than-the-list", "w", 1)] {
        assert_eq!(change(&mut writer, Delta::Added(stale.clone())), nothing);
        assert_eq!(change(&mut writer, Delta::Updated(stale)), nothing);
    }
    change(&mut writer, bookmark(at(9)));
    assert_eq!(change(&mut writer, Delta::Added(item("a", "again", 8))), nothing);
    assert_eq!(held(&writer), nothing);
    assert!(writer.store.snapshot().undecodable().is_empty());
    assert_eq!(change(&mut writer, Delta::Added(item("a", "again", 10))), ["+a@10=v Watch"]);
}

#[test]
fn several_objects_can_share_one_version() {
    let mut writer = writer();
    list(&mut writer, 2, true, vec![item("c", "x", 2)]);
    assert_eq!(change(&mut writer, Delta::Added(item("a", "u", 5))), ["+a@5=v Watch"]);
    assert_eq!(change(&mut writer, Delta::Added(item("b", "w", 5))), ["+b@5=v Watch"]);
    assert_eq!(change(&mut writer, Delta::Added(item("b", "w", 5))), Vec::<String>::new());
    assert_eq!(change(&mut writer, Delta::Deleted(item("c", "x", 2))), ["-c@2=v Watch Observed"]);
}

#[test]
fn events_after_older_list_are_applied_again() {
    let mut writer = writer();
    list(&mut writer, 10, true, vec![item("a", "u", 8), item("b", "w", 9)]);
    // Once from a stale server, and once in a new epoch.
    for (listed, consistent) in [(7, false), (6, true)] {
        list(&mut writer, listed, consistent, vec![item("a", "u", 6)]);
        assert_eq!(change(&mut writer, Delta::Added(item("b", "w", 9))), ["+b@9=v Watch"]);
    }
}

#[test]
fn incomparable_version_is_never_stale() {
    let mut writer = writer();
    list(&mut writer, 10, true, vec![]);
    let opaque = |name: &str, version: &str| {
        let mut item = item(name, "u", 1);
        item.head.version = Some(ResourceVersion::new(version));
        item
    };
    assert_eq!(change(&mut writer, Delta::Added(opaque("a", "opaque"))).len(), 1);
    let mut unversioned = opaque("b", "opaque");
    unversioned.head.version = None;
    assert_eq!(change(&mut writer, Delta::Added(unversioned)).len(), 1);
}

#[test]
fn staleness_is_tracked_per_namespace() {
    let mut writer = writer();
    let parts = ["default", "other"].map(|name| Partition::Namespace(name.into()));
    let within = |namespace: &str, version: u64| {
        let mut item = item("a", "u", version);
        item.head.key = ObjectKey::namespaced(namespace, "a");
        item
    };
    let listed = |writer: &mut Writer, part: usize, version: u64| {
        let partition = parts[part].clone();
        let list = ListMetadata { partition, version: at(version), consistent: true, initial: false };
        writer.apply(Batch::Replacement { missing: Vec::new(), items: Vec::new(), list });
    };
    writer.apply(Batch::AddedPartitions(parts.to_vec()));
    listed(&mut writer, 0, 20);
    listed(&mut writer, 1, 10);
    assert_eq!(change(&mut writer, Delta::Added(within("other", 15))).len(), 1, "its version is 10");
    assert_eq!(change(&mut writer, Delta::Added(within("default", 15))).len(), 0, "its version is 20");
    // One namespace moves back. Events of the other are not compared with versions of the previous epoch.
    listed(&mut writer, 1, 5);
    assert_eq!(change(&mut writer, Delta::Added(within("default", 15))).len(), 1);
    assert_eq!(change(&mut writer, Delta::Added(within("other", 4))).len(), 0);
    // A namespace that leaves and rejoins has no version before its next list.
    writer.apply(Batch::RemovedPartition {
        partition: parts[1].clone(),
        reason: RemovalReason::Deselected,
        removed: vec![ObjectKey::namespaced("other", "a")],
    });
    writer.apply(Batch::AddedPartitions(vec![parts[1].clone()]));
    assert_eq!(change(&mut writer, Delta::Added(within("other", 4))).len(), 1);
}

// parity: on-update
#[test]
fn resync_changes_nothing() {
    let mut writer = writer();
    list(&mut writer, 2, true, vec![item("a", "u", 1)]);
    let before = writer.store.snapshot();
    assert_eq!(events(writer.apply(Batch::Resync(ResyncTarget::Only(3)))), ["again Only(3)"]);
    assert!(Arc::ptr_eq(&before, &writer.store.snapshot()));
}

// parity: test-list-all
#[test]
fn byte_accounting_follows_every_change() {
    let metrics = windlass_metrics::Metrics::new().informer("", "v1", "configmaps");
    let budget = Arc::new(ByteBudget::new(Some(1000), metrics.clone()));
    let mut writer = StoreWriter::new(Arc::new(Store::new()), head, budget);
    let sized = |name: &str, uid: &str, version: u64, bytes: u32| Item { bytes, ..item(name, uid, version) };
    let held = || metrics.bytes.get();
    list(&mut writer, 2, true, vec![sized("a", "u", 1, 10), sized("b", "w", 2, 20)]);
    assert_eq!(held(), 30);
    change(&mut writer, Delta::Updated(sized("a", "u", 3, 15)));
    assert_eq!(held(), 35);
    change(&mut writer, Delta::Added(sized("a", "another", 4, 5)));
    assert_eq!(held(), 25, "a recreated object replaces its predecessor");
    change(&mut writer, Delta::Updated(spoiled("b", "w", 5)));
    assert_eq!(held(), 5, "undecodable objects do not count");
    list(&mut writer, 9, false, vec![sized("c", "x", 8, 7)]);
    assert_eq!(held(), 7);
    change(&mut writer, Delta::Deleted(item("c", "x", 10)));
    assert_eq!(held(), 0);
}

// parity: indexer-thread, readers-starve-writer, store-primary
#[test]
fn readers_with_many_snapshots_never_block_writer() {
    let mut writer = writer();
    list(&mut writer, 1, true, vec![]);
    let reader = Arc::clone(&writer.store);
    let mut snapshots = Vec::new();
    for version in 2..100 {
        snapshots.push((reader.snapshot(), reader.current.load()));
        change(&mut writer, Delta::Added(item(&format!("object-{version}"), "u", version)));
    }
    let sizes: Vec<usize> = snapshots.iter().map(|(held, _)| held.objects().len()).collect();
    assert_eq!((sizes, held(&writer).len()), ((0..98).collect(), 98));
}

#[test]
fn reader_keeps_its_snapshot() {
    let mut writer = writer();
    list(&mut writer, 2, true, vec![item("a", "u", 1)]);
    let before = writer.store.snapshot();
    change(&mut writer, Delta::Deleted(item("a", "u", 3)));
    assert_eq!((before.objects().len(), held(&writer).len()), (1, 0));
}

// parity: malformed-empty-versions-fail
#[test]
fn non_numeric_version_never_blocks_store() {
    let mut writer = writer();
    let opaque = ResourceVersion::new("opaque-1");
    change(&mut writer, bookmark(opaque.clone()));
    assert_eq!(version(&writer), Some(opaque));
    change(&mut writer, bookmark(ResourceVersion::new("opaque-2")));
    assert_eq!(version(&writer), Some(ResourceVersion::new("opaque-2")));
    assert!(writer.store.snapshot().progress().has_reached(&at(1_000_000)));
    change(&mut writer, bookmark(at(5)));
    change(&mut writer, bookmark(ResourceVersion::new("opaque-3")));
    assert_eq!(version(&writer), Some(at(5)));
}

/// Returns two shards by UID: the first contains `u` and the second `w`.
fn two_shards() -> [Partition; 2] {
    let shard = |number: u16, uid: &str| {
        let start = shard::hash(uid);
        let ranges = HashRange::new(start, u128::from(start) + 1).expect("a range").into();
        Partition::Shard(Arc::new(Shard { id: ShardId(number), field: ShardField::Uid, ranges, term: 0 }))
    };
    [shard(0, "u"), shard(1, "w")]
}

fn listed(writer: &mut Writer, part: &Partition, version: u64, items: Vec<Item<Arc<Map>>>) -> Vec<String> {
    let known = PartitionContents { store: &writer.store, head };
    let missing = known.missing_from(part, &items.iter().map(|item| &item.head.key).collect());
    let list =
        ListMetadata { partition: part.clone(), version: at(version), consistent: true, initial: false };
    events(writer.apply(Batch::Replacement { missing, items, list }))
}

#[test]
fn late_event_of_old_shard_does_not_replace_object_of_new_shard() {
    let (mut writer, [first, second]) = (writer(), two_shards());
    writer.apply(Batch::AddedPartitions(vec![first.clone(), second.clone()]));
    listed(&mut writer, &first, 10, vec![item("a", "u", 5)]);
    listed(&mut writer, &second, 10, vec![]);
    // The object was deleted at 11 and recreated at 12; the second shard delivers first.
    let made = change(&mut writer, Delta::Added(item("a", "w", 12)));
    assert_eq!(made, ["-a@5=v Watch Inferred", "+a@12=v Watch"]);
    assert_eq!(listed(&mut writer, &first, 10, vec![item("a", "u", 5)]), Vec::<String>::new());
    assert_eq!(change(&mut writer, Delta::Deleted(item("a", "u", 11))), Vec::<String>::new());
    assert_eq!(listed(&mut writer, &first, 13, vec![]), Vec::<String>::new());
    assert_eq!(writer.store.snapshot().objects().len(), 1);
    // And back to the first shard.
    assert_eq!(
        change(&mut writer, Delta::Added(item("a", "u", 20))),
        ["-a@12=v Watch Inferred", "+a@20=v Watch"]
    );
    assert_eq!(listed(&mut writer, &second, 21, vec![]), Vec::<String>::new());
    assert_eq!(writer.store.snapshot().objects().len(), 1);
}

#[test]
fn shard_list_removes_objects_of_that_shard_only() {
    let (mut writer, [first, second]) = (writer(), two_shards());
    writer.apply(Batch::AddedPartitions(vec![first.clone(), second.clone()]));
    listed(&mut writer, &first, 10, vec![item("a", "u", 5), spoiled("c", "u", 6)]);
    listed(&mut writer, &second, 10, vec![item("b", "w", 5), spoiled("d", "w", 6)]);
    assert_eq!(listed(&mut writer, &first, 12, vec![]), ["-a@5=v Relist Inferred"]);
    let snapshot = writer.store.snapshot();
    assert_eq!(snapshot.objects().keys().collect::<Vec<_>>(), [&key("b")]);
    assert_eq!(snapshot.undecodable().keys().collect::<Vec<_>>(), [&key("d")]);
}

#[test]
fn later_of_two_states_in_a_first_list_is_stored() {
    let mut writer = writer();
    let states = vec![item("b", "w", 1), item("a", "u", 2), item("a", "u", 3), item("c", "x", 1)];
    list(&mut writer, 4, true, states);
    assert_eq!(held(&writer)[0], "a@3=v");
}

#[test]
fn items_in_steps_are_complete() {
    assert_eq!(in_steps(vec![0, 1, 2, 3, 4], 2).collect::<Vec<_>>(), [0, 2, 4, 1, 3]);
    assert_eq!(in_steps(vec![0, 1, 2], 1).collect::<Vec<_>>(), [0, 1, 2]);
    assert_eq!(in_steps(Vec::<u8>::new(), 2).count(), 0);
}
