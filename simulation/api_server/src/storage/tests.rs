use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::pin::pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Wake, Waker};

use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;

fn pods() -> Collection {
    Collection::new("", "pods")
}

fn nodes() -> Collection {
    Collection::new("", "nodes")
}

fn key(name: &str) -> Key {
    Key::new("default", name)
}

fn pod(name: &str, note: u64) -> Value {
    json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": "default"}, "note": note})
}

fn create(storage: &InMemoryStorage, collection: &Collection, name: &str) -> u64 {
    let change = Change::Put(pod(name, 0));
    storage.commit(collection, &key(name), Precondition::Absent, change).unwrap().revision
}

/// Creates or replaces the object.
fn put(storage: &InMemoryStorage, name: &str, note: u64) -> u64 {
    let held = storage.get(&pods(), &key(name));
    let expected = held.map_or(Precondition::Absent, |it| Precondition::Revision(it.revision));
    storage.commit(&pods(), &key(name), expected, Change::Put(pod(name, note))).unwrap().revision
}

fn delete(storage: &InMemoryStorage, name: &str) -> Option<u64> {
    let held = storage.get(&pods(), &key(name))?;
    let change = Change::Delete(held.value.clone());
    let expected = Precondition::Revision(held.revision);
    Some(storage.commit(&pods(), &key(name), expected, change).unwrap().revision)
}

fn notes(snapshot: &Snapshot) -> BTreeMap<String, u64> {
    let note = |stored: &Arc<Stored>| stored.value["note"].as_u64().unwrap();
    snapshot.objects.iter().map(|(key, stored)| (key.name.to_string(), note(stored))).collect()
}

fn remembering(history: usize) -> InMemoryStorage {
    InMemoryStorage::new(MemoryOptions { history })
}

#[test]
fn every_write_sets_one_global_revision_in_value_and_bytes() {
    let storage = InMemoryStorage::default();
    assert_eq!(storage.revision(), 1, "zero means any to clients");
    assert_eq!(create(&storage, &pods(), "a"), 2);
    assert_eq!(create(&storage, &nodes(), "a"), 3);
    assert_eq!(put(&storage, "a", 7), 4);
    let held = storage.get(&pods(), &key("a")).unwrap();
    assert_eq!(held.value["metadata"]["resourceVersion"], "4");
    assert_eq!(serde_json::from_slice::<Value>(&held.bytes).unwrap(), *held.value);
    assert_eq!(delete(&storage, "a"), Some(5));
    assert!(storage.get(&pods(), &key("a")).is_none());
    assert!(storage.get(&nodes(), &key("a")).is_some());
}

#[test]
fn rejected_write_uses_no_revision() {
    let storage = InMemoryStorage::default();
    let at = create(&storage, &pods(), "a");
    let (a, b) = (key("a"), key("b"));
    let cases = [
        (&a, Precondition::Absent, pod("a", 1), StorageError::Exists { key: a.clone(), found: at }),
        (&b, Precondition::Revision(at), pod("b", 1), StorageError::Missing { key: b.clone() }),
        (
            &a,
            Precondition::Revision(1),
            pod("a", 1),
            StorageError::Conflict { key: a.clone(), expected: 1, found: at },
        ),
        (&b, Precondition::Absent, json!([1]), StorageError::NotAnObject { key: b.clone() }),
        (&b, Precondition::Absent, json!({"kind": "Pod"}), StorageError::NotAnObject { key: b.clone() }),
    ];
    for (key, expected, value, refusal) in cases {
        assert_eq!(storage.commit(&pods(), key, expected, Change::Put(value)).unwrap_err(), refusal);
    }
    let nothing = storage.commit(&pods(), &b, Precondition::Absent, Change::Delete(pod("b", 1)));
    assert_eq!(nothing.unwrap_err(), StorageError::Missing { key: b });
    assert_eq!(storage.revision(), at);
    assert!(storage.changes(&pods(), at, at + 9, 9).unwrap().is_empty());
}

#[test]
fn keys_sort_like_upstream_paths() {
    let paths = ["a", "a-b", "a0", "ab", "b", "", "a-", "kube-system", "kube"];
    let mut keys: Vec<_> = paths
        .iter()
        .flat_map(|namespace| ["x", "x-1", "x1"].map(|name| Key::new(*namespace, name)))
        .collect();
    keys.sort();
    let path = |key: &Key| format!("{}/{}", key.namespace, key.name);
    let mut expected: Vec<_> = keys.iter().map(path).collect();
    expected.sort();
    assert_eq!(keys.iter().map(path).collect::<Vec<_>>(), expected);
}

proptest! {
    #[test]
    fn every_kept_revision_reads_as_it_was(
        writes in proptest::collection::vec((0..6u64, prop::bool::weighted(0.3)), 0..60),
        history in 0..40usize,
    ) {
        let storage = remembering(history);
        let mut known = BTreeMap::from([(1, BTreeMap::new())]);
        for (at, (name, gone)) in writes.into_iter().enumerate() {
            let name = format!("pod-{name}");
            let revision = if gone { delete(&storage, &name) } else { Some(put(&storage, &name, at as u64)) };
            if let Some(revision) = revision {
                known.insert(revision, notes(&storage.read(&pods(), None).unwrap()));
            }
        }
        let floor = storage.floor();
        prop_assert_eq!(storage.revision() - floor, (history as u64).min(storage.revision() - 1));
        for (revision, expected) in known {
            let read = storage.read(&pods(), Some(revision));
            if revision < floor {
                prop_assert_eq!(read.unwrap_err(), StorageError::Compacted { asked: revision, floor });
            } else {
                prop_assert_eq!(notes(&read.unwrap()), expected);
                // The later changes lead to the latest state.
                let changes = storage.changes(&pods(), revision, u64::MAX, usize::MAX).unwrap();
                let revisions: Vec<_> = changes.iter().map(|it| it.revision()).collect();
                prop_assert_eq!(revisions, (revision + 1..=storage.revision()).collect::<Vec<_>>());
            }
        }
    }
}

#[test]
fn future_revision_cannot_be_read() {
    let storage = InMemoryStorage::default();
    let refusal = storage.read(&pods(), Some(2)).unwrap_err();
    assert_eq!(refusal, StorageError::Future { asked: 2, current: 1 });
}

#[test]
fn compaction_drops_only_older_history() {
    let storage = InMemoryStorage::default();
    for name in ["a", "b", "c"] {
        create(&storage, &pods(), name);
    }
    storage.compact(3);
    assert_eq!(storage.floor(), 3);
    assert!(storage.read(&pods(), Some(3)).is_ok());
    let forgotten = StorageError::Compacted { asked: 2, floor: 3 };
    assert_eq!(storage.read(&pods(), Some(2)).unwrap_err(), forgotten);
    assert_eq!(storage.changes(&pods(), 2, 9, 9).unwrap_err(), forgotten);
    assert_eq!(storage.changes(&pods(), 3, 9, 9).unwrap().len(), 1);
    storage.compact(2);
    assert_eq!(storage.floor(), 3, "the floor never decreases");
    storage.compact(100);
    assert_eq!(storage.floor(), 4, "the floor is never above the revision");
    assert_eq!(notes(&storage.read(&pods(), Some(4)).unwrap()).len(), 3);
}

#[test]
fn changes_are_returned_in_order_in_batches_per_collection() {
    let storage = InMemoryStorage::default();
    for name in ["a", "b", "c", "d"] {
        create(&storage, &pods(), name);
        create(&storage, &nodes(), name);
    }
    let revisions = |after, through, most| {
        let changes = storage.changes(&pods(), after, through, most).unwrap();
        changes.iter().map(|it| it.revision()).collect::<Vec<_>>()
    };
    assert_eq!(revisions(1, 9, 9), [2, 4, 6, 8]);
    assert_eq!(revisions(1, 9, 2), [2, 4]);
    assert_eq!(revisions(4, 7, 9), [6]);
    assert_eq!(revisions(8, 9, 9), [0; 0]);
}

#[test]
fn readers_share_the_bytes_encoded_once() {
    let storage = InMemoryStorage::default();
    put(&storage, "a", 1);
    put(&storage, "a", 2);
    let held = storage.get(&pods(), &key("a")).unwrap();
    let one = storage.changes(&pods(), 2, 3, 9).unwrap();
    let two = storage.changes(&pods(), 2, 3, 9).unwrap();
    assert!(Arc::ptr_eq(one[0].now(), &held));
    assert!(
        Arc::ptr_eq(&one[0].leaving(), &two[0].leaving()),
        "the state created on first use is shared, too"
    );
    assert_eq!(one[0].leaving().value["metadata"]["resourceVersion"], "3");
    assert_eq!(one[0].leaving().value["note"], 1);
}

struct Bell(usize, Arc<Mutex<Vec<usize>>>);

impl Wake for Bell {
    fn wake(self: Arc<Self>) {
        self.1.lock().unwrap().push(self.0);
    }
}

#[test]
fn observers_wake_in_registration_order_and_only_for_their_collection() {
    let storage = InMemoryStorage::default();
    let rung = Arc::new(Mutex::new(Vec::new()));
    let mut observers: Vec<_> = (0..6)
        .map(|at| if at == 3 { storage.observe(Some(&nodes())) } else { storage.observe(Some(&pods())) })
        .collect();
    let mut waits: Vec<_> = observers.iter_mut().map(|it| Box::pin(it.changed())).collect();
    for at in [4, 0, 3, 5, 1, 2] {
        let waker = Waker::from(Arc::new(Bell(at, Arc::clone(&rung))));
        assert!(waits[at].as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
    }
    create(&storage, &pods(), "a");
    assert_eq!(*rung.lock().unwrap(), [4, 0, 5, 1, 2]);
    let mut any = storage.observe(None);
    let mut any = pin!(any.changed());
    assert!(any.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
    create(&storage, &nodes(), "a");
    assert_eq!(any.as_mut().poll(&mut Context::from_waker(Waker::noop())), Poll::Ready(Ok(3)));
}

fn restore(path: &Path) -> Result<InMemoryStorage, SnapshotError> {
    InMemoryStorage::restore_from(path, MemoryOptions::default())
}

#[test]
fn restored_storage_continues_from_the_snapshot() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("objects");
    let storage = InMemoryStorage::default();
    put(&storage, "a", 1);
    put(&storage, "b", 2);
    create(&storage, &nodes(), "n");
    delete(&storage, "b");
    storage.snapshot_to(&path).unwrap();
    let restored = restore(&path).unwrap();
    assert_eq!((restored.revision(), restored.floor()), (5, 5));
    for collection in [pods(), nodes()] {
        let (old, new) =
            (storage.read(&collection, None).unwrap(), restored.read(&collection, None).unwrap());
        let bytes = |it: &Snapshot| it.objects.values().map(|it| it.bytes.clone()).collect::<Vec<_>>();
        assert_eq!(bytes(&old), bytes(&new));
    }
    assert!(matches!(restored.read(&pods(), Some(4)), Err(StorageError::Compacted { asked: 4, floor: 5 })));
    assert_eq!(put(&restored, "a", 2), 6);
    restored.snapshot_to(&path).unwrap();
    assert_eq!(restore(&path).unwrap().revision(), 6, "a snapshot replaces the previous one");
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1, "no temporary file remains");
}

#[test]
fn restore_undoes_later_writes_and_assigns_their_revisions_again() {
    let storage = InMemoryStorage::default();
    put(&storage, "a", 1);
    put(&storage, "b", 1);
    let backup = storage.revision();
    let (pods_of_then, observer) = (storage.read(&pods(), None).unwrap(), storage.observe(Some(&pods())));
    let undone = put(&storage, "a", 2);
    create(&storage, &pods(), "c");
    delete(&storage, "b");
    storage.restore(backup).unwrap();
    assert_eq!(notes(&storage.read(&pods(), None).unwrap()), notes(&pods_of_then));
    assert_eq!(storage.revision(), backup);
    assert!(observer.is_closed() && !storage.observe(Some(&pods())).is_closed());
    assert_eq!(put(&storage, "a", 3), undone);
    let changes = storage.changes(&pods(), backup, undone, 10).unwrap();
    assert_eq!(changes.iter().map(|it| it.revision()).collect::<Vec<_>>(), [undone]);
    assert!(matches!(storage.restore(undone + 1), Err(StorageError::Future { .. })));
    assert!(matches!(storage.restore(backup - 1), Err(StorageError::Compacted { .. })));
}

#[test]
fn invalid_snapshot_files_are_rejected_and_named() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("objects");
    let storage = InMemoryStorage::default();
    put(&storage, "a", 1);
    put(&storage, "b", 1);
    storage.snapshot_to(&path).unwrap();
    let whole = fs::read_to_string(&path).unwrap();
    let lines: Vec<_> = whole.lines().collect();
    let other = whole.replacen("windlass-objects/1", "windlass-objects/2", 1);
    let cases = [
        (String::new(), "damaged at line 1"),
        ("apiVersion: v1\nkind: Config\n".to_owned(), "damaged at line 1"),
        (other, "unknown format \"windlass-objects/2\"; expected \"windlass-objects/1\""),
        (lines[..2].join("\n"), "damaged at line 2: the file ends after 1 of 2 objects"),
        (whole[..whole.len() - 9].to_owned(), "damaged at line 3"),
        ([lines[0], lines[1], lines[1]].join("\n"), "damaged at line 3: default/a is there twice"),
        (whole.replacen("\"revision\":3", "\"revision\":2", 1), "behind the snapshot's 2"),
    ];
    for (text, why) in cases {
        fs::write(&path, &text).unwrap();
        let message = restore(&path).unwrap_err().to_string();
        assert!(message.contains(why), "{message:?} does not contain {why:?}, for {text:?}");
        assert!(message.contains("objects"), "{message:?} does not name the file");
    }
}

#[test]
fn failed_snapshot_keeps_the_old_file() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("objects");
    let storage = InMemoryStorage::default();
    put(&storage, "a", 1);
    storage.snapshot_to(&path).unwrap();
    let before = fs::read(&path).unwrap();
    // The temporary file cannot be written: there is a directory with its name.
    fs::create_dir(folder.path().join("objects.new")).unwrap();
    put(&storage, "b", 1);
    let error = storage.snapshot_to(&path).unwrap_err();
    assert!(error.to_string().contains("cannot be written"), "{error}");
    assert_eq!(fs::read(&path).unwrap(), before);
}

#[test]
fn old_changes_are_kept_unparsed() {
    let storage = InMemoryStorage::default();
    for note in 0..400 {
        put(&storage, "a", note);
    }
    let log = storage.changes(&pods(), 1, u64::MAX, usize::MAX).unwrap();
    let apart = |it: &Arc<Stored>| !it.value.is_unparsed();
    let unfolded: Vec<_> = log.iter().filter(|it| apart(it.now())).map(|it| it.revision()).collect();
    assert_eq!((unfolded.len(), unfolded.last()), (128, Some(&401)));
    let old = &log[9];
    assert_eq!(
        (old.now().value["note"].as_u64(), &old.now().value["metadata"]["resourceVersion"]),
        (Some(9), &json!("11"))
    );
    assert_eq!(old.leaving().value["note"], 8);
}

#[test]
fn idle_object_is_kept_unparsed() {
    let storage = InMemoryStorage::default();
    put(&storage, "idle", 7);
    let before = storage.get(&pods(), &key("idle")).unwrap();
    for note in 0..1200 {
        put(&storage, "busy", note);
    }
    let idle = storage.get(&pods(), &key("idle")).unwrap();
    assert!(idle.value.is_unparsed() && !before.value.is_unparsed());
    assert_eq!((&*idle.value, idle.bytes.as_ptr()), (&*before.value, before.bytes.as_ptr()));
    let busy = storage.get(&pods(), &key("busy")).unwrap();
    assert!(!busy.value.is_unparsed(), "an object in use stays parsed");
    assert_eq!(delete(&storage, "idle"), Some(1203));
}

/// Returns whether all stored pods are unparsed.
fn all_folded(storage: &InMemoryStorage) -> bool {
    let objects = storage.read(&pods(), None).unwrap().objects;
    !objects.is_empty() && objects.values().all(|it| it.value.is_unparsed())
}

#[test]
fn restored_objects_are_unparsed_and_reading_keeps_them_so() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("objects");
    let storage = InMemoryStorage::default();
    for name in ["a", "b"] {
        create(&storage, &pods(), name);
    }
    storage.snapshot_to(&path).unwrap();
    let restored = restore(&path).unwrap();
    assert!(all_folded(&restored));
    let held = restored.get(&pods(), &key("a")).unwrap();
    assert_eq!(held.value["metadata"]["name"], "a");
    assert_eq!(held.bytes.as_ptr(), restored.get(&pods(), &key("a")).unwrap().bytes.as_ptr());
    for stored in restored.read(&pods(), None).unwrap().objects.values() {
        assert_eq!(stored.value.read()["kind"], "Pod");
    }
    assert!(all_folded(&restored));
}

#[test]
fn late_leaving_state_is_kept_unparsed() {
    let storage = InMemoryStorage::default();
    for note in 0..200 {
        put(&storage, "a", note);
    }
    let log = storage.changes(&pods(), 1, u64::MAX, usize::MAX).unwrap();
    assert_eq!(log[9].leaving().value.read()["note"], 8);
    assert!(log[9].leaving().value.is_unparsed() && log[9].before().is_some_and(|it| it.value.is_unparsed()));
}

/// Returns a pod with lists and objects nested to this depth.
fn nested(depth: usize) -> Value {
    let mut pod = pod("deep", 7);
    pod["note"] =
        (1..depth).fold(json!(7), |inner, at| if at % 2 == 0 { json!([inner]) } else { json!({"a": inner}) });
    pod
}

#[test]
fn too_deeply_nested_object_is_rejected() {
    let storage = InMemoryStorage::default();
    let deep = key("deep");
    for depth in [125, 127, 128, 1000] {
        let refused = storage.commit(&pods(), &deep, Precondition::Absent, Change::Put(nested(depth)));
        assert_eq!(refused.unwrap_err(), StorageError::TooDeep { key: deep.clone() }, "{depth}");
        assert!(Stored::new(deep.clone(), 1, nested(depth)).is_none());
    }
    assert_eq!(storage.revision(), 1);
}

#[test]
fn most_deeply_nested_object_is_readable_in_every_form() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("objects");
    let storage = InMemoryStorage::default();
    storage.commit(&pods(), &key("deep"), Precondition::Absent, Change::Put(nested(124))).unwrap();
    let held = storage.get(&pods(), &key("deep")).unwrap();
    let bytes = std::str::from_utf8(&held.bytes).unwrap();
    let table = format!("{{\"rows\":[{{\"object\":{bytes}}}]}}");
    assert!(serde_json::from_str::<Value>(&table).is_ok());
    storage.snapshot_to(&path).unwrap();
    let restored = restore(&path).unwrap().get(&pods(), &key("deep")).unwrap();
    assert_eq!(*restored.value.read(), *held.value);
}
