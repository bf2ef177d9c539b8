//! Contents, events and memory of a cache after lost watches and restarts.

use std::borrow::Cow;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use http::Method;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::Resource;
use kube::core::ObjectMeta;
use serde_json::json;
use tokio::sync::oneshot;
use windlass::informer::{Cause, DeletionEvidence, Event, Selection};
use windlass::object::{DecodeError, Decoder, Representation, ResourceKind, TypedObjects};
use windlass::prelude::ObjectKey;
use windlass::testing::api_server::faults::RequestSummary;
use windlass::testing::{Fault, FaultAction};

use crate::world::{ReconcileLog, World, map};

const DAY: Duration = Duration::from_secs(86_400);

/// In kube-rs an object with a field of the wrong type fails the whole list (kube#774, #265).
// parity: bad-object-fails-list
#[tokio::test(start_paused = true)]
async fn undecodable_object_does_not_fail_list() {
    let world = World::with_faults(vec![Fault::until(DAY, FaultAction::Poison { name: "bad".into() })]);
    world.api.upsert(&map("bad"), json!({ "data": { "is": "bad" } }));
    ["a", "c"].iter().for_each(|name| world.put(name));
    let factory = world.factory("caches");
    let maps = factory.typed::<ConfigMap>().lister();
    world.sync(&factory).await;
    let names: Vec<_> = maps.list().iter().map(|map| map.metadata.name.clone().unwrap_or_default()).collect();
    assert_eq!(names, ["a", "c"]);
    assert!(maps.get(&ObjectKey::namespaced("shop", "bad")).is_err());
}

/// Numbers of decoded objects: alive now, alive at most, decoded in total.
#[derive(Default)]
struct Count {
    alive: AtomicUsize,
    most: AtomicUsize,
    decoded: AtomicUsize,
}

/// A decoded object that is counted until it is dropped.
struct Held(ConfigMap, Arc<Count>);

impl Resource for Held {
    type DynamicType = ();
    type Scope = <ConfigMap as Resource>::Scope;

    fn kind(_: &()) -> Cow<'_, str> {
        ConfigMap::kind(&())
    }

    fn group(_: &()) -> Cow<'_, str> {
        <ConfigMap as Resource>::group(&())
    }

    fn version(_: &()) -> Cow<'_, str> {
        <ConfigMap as Resource>::version(&())
    }

    fn plural(_: &()) -> Cow<'_, str> {
        ConfigMap::plural(&())
    }

    fn meta(&self) -> &ObjectMeta {
        self.0.meta()
    }

    fn meta_mut(&mut self) -> &mut ObjectMeta {
        self.0.meta_mut()
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.1.alive.fetch_sub(1, Ordering::Relaxed);
    }
}

#[derive(Default)]
struct Counted(Arc<Count>);

impl Representation for Counted {
    type Object = Held;
    type Decoder = CountingDecoder;

    fn kind(&self) -> ResourceKind {
        ResourceKind::of::<ConfigMap>()
    }

    fn decoder(&self) -> CountingDecoder {
        CountingDecoder(TypedObjects::<ConfigMap>::new().decoder(), Arc::clone(&self.0))
    }
}

struct CountingDecoder(<TypedObjects<ConfigMap> as Representation>::Decoder, Arc<Count>);

impl Decoder for CountingDecoder {
    type Object = Held;

    fn decode(&mut self, raw: &bytes::Bytes) -> Result<Held, DecodeError> {
        let object = self.0.decode(raw)?;
        let count = &self.1;
        count.decoded.fetch_add(1, Ordering::Relaxed);
        let alive = count.alive.fetch_add(1, Ordering::Relaxed) + 1;
        count.most.fetch_max(alive, Ordering::Relaxed);
        Ok(Held(object, Arc::clone(count)))
    }
}

/// A relist doubles the memory of kube-rs (2.0 times, measured on kube 5.0.0; kube#1505). client-go holds the list, a
/// temporary store, a new map and the old objects at the same time (kubernetes#73497).
// parity: page-buffer-size, list-with-alloc, test-reflector-list-extract, memory-re-lists, memory-caches-selector-per
// parity: memory-22-7-k
#[tokio::test(start_paused = true)]
async fn relist_decodes_and_stores_only_changed_objects() {
    const MANY: usize = 1200;
    let world = World::new();
    (0..MANY).for_each(|number| world.put(&format!("map-{number}")));
    let counted = Counted::default();
    let count = Arc::clone(&counted.0);
    let factory = world.factory("caches");
    let informer = factory.informer(counted, Selection::default());
    world.sync(&factory).await;
    assert_eq!(count.alive.load(Ordering::Relaxed), MANY);
    let received = ReconcileLog::default();
    let log = received.clone();
    let handler = move |event: &Event<Arc<Held>>| {
        if event.cause() == Cause::Relist {
            log.note(windlass::env::Instant::ORIGIN, event.object().0.metadata.name.as_deref().unwrap_or(""));
        }
    };
    informer.add_handler("received", handler).expect("running");
    world.pass(1).await;
    world.inject_into_first(1, RequestSummary::is_watch, FaultAction::WatchExpired);
    world.put("map-7");
    world.pass(30).await;
    assert_eq!(received.lines(), ["map-7"], "the relist delivered the change");
    assert_eq!(count.decoded.load(Ordering::Relaxed), MANY + 1);
    assert!(count.most.load(Ordering::Relaxed) <= MANY + 2, "{:?} at once", count.most);
    assert_eq!(count.alive.load(Ordering::Relaxed), MANY, "the relist releases old objects");
}

/// client-go requests its first list at version 0, which any server answers from its cache: after a restart a
/// controller can observe an old state (elastic/cloud-on-k8s #4956; nineteen of the 46 bugs that Sieve found).
// parity: first-list-version-0, first-list-back-time
#[tokio::test(start_paused = true)]
async fn restarted_cache_is_not_older_than_previous_cache() {
    let stale = Fault::until(DAY, FaultAction::StaleReplica).from(Duration::from_secs(5));
    let world = World::with_faults(vec![stale]);
    world.put("a");
    let before = world.factory("before");
    let old = before.typed::<ConfigMap>().lister();
    world.sync(&before).await;
    world.pass(10).await;
    world.put("b");
    world.pass(400).await;
    before.shutdown().await;
    let after = world.factory("after");
    let new = after.typed::<ConfigMap>().lister();
    world.sync(&after).await;
    assert!(new.version() >= old.version(), "{:?} after {:?}", new.version(), old.version());
    assert_eq!(new.len(), 2, "a consistent list is not served from a stale cache");
}

/// kube-rs delivers no event for an object that was deleted while its watch was disconnected (measured on kube 5.0.0).
/// client-go delivers a tombstone, whose downcast crashes programs (kuma#17065).
// parity: deleted-final-state-unknown, downcasts-tombstones-crash-users, delete-event-tombstone-tombstones
// parity: deletes-lost-across-re
#[tokio::test(start_paused = true)]
async fn missed_deletion_is_delivered_as_inferred_with_last_state() {
    let world = World::new();
    world.api.upsert(&map("a"), json!({ "data": { "last": "words" } }));
    world.put("b");
    let factory = world.factory("caches");
    let informer = factory.typed::<ConfigMap>();
    let received = Arc::new(Mutex::new(Vec::new()));
    let ends = Arc::clone(&received);
    let handler = move |event: &Event<Arc<ConfigMap>>| {
        if let Event::Deleted { last, observed, cause } = event {
            let words = last.data.as_ref().and_then(|data| data.get("last")).cloned();
            ends.lock().expect("no panic").push((words, *observed, *cause));
        }
    };
    let handle = informer.add_handler("received", handler).expect("not stopped");
    world.sync(&factory).await;
    assert!(handle.synced().await);
    world.api.inject_fault(|request| request.is_watch().then_some(FaultAction::WatchExpired));
    world.api.remove(&map("a"));
    world.pass(1).await;
    world.api.inject_fault(|_| None);
    world.pass(60).await;
    let end = (Some("words".to_owned()), DeletionEvidence::Inferred, Cause::Relist);
    assert_eq!(*received.lock().expect("no panic"), [end]);
}

/// In kube-rs an object that is deleted before a reader of the shared stream polls leaves that reader asleep forever.
/// Deletions never reach it (kube#1590; one hour of virtual time, measured on kube 5.0.0).
// parity: shared-streams-unstable-duplicates, shared-streams-without-deletes
#[tokio::test(start_paused = true)]
async fn object_deleted_before_delivery_does_not_block_later_events() {
    let world = World::new();
    let factory = world.factory("caches");
    let informer = factory.typed::<ConfigMap>();
    let log = ReconcileLog::default();
    let received = log.clone();
    let handler = move |event: &Event<Arc<ConfigMap>>| {
        let what = if matches!(event, Event::Deleted { .. }) { "gone" } else { "there" };
        let name = event.object().metadata.name.as_deref().unwrap_or("").to_owned();
        received.note(windlass::env::Instant::ORIGIN, &format!("{name} {what}"));
    };
    informer.add_handler("received", handler).expect("not stopped");
    world.sync(&factory).await;
    world.pass(1).await;
    // No task is polled between these calls.
    world.put("brief");
    world.api.remove(&map("brief"));
    world.put("live");
    world.pass(1).await;
    assert_eq!(log.lines(), ["brief there", "brief gone", "live there"]);
}

/// A slow handler blocks client-go's shutdown until it has processed its whole backlog.
// parity: slow-handler-blocks-shutdown
#[tokio::test(start_paused = true)]
async fn shutdown_does_not_wait_for_undelivered_events() {
    const MANY: usize = 1500;
    let world = World::new();
    (0..MANY).for_each(|number| world.put(&format!("map-{number}")));
    let factory = world.factory("caches");
    let informer = factory.typed::<ConfigMap>();
    let received = Arc::new(AtomicUsize::new(0));
    let (begin, begun) = oneshot::channel();
    let (count, mut begin) = (Arc::clone(&received), Some(begin));
    let handler = move |_: &Event<Arc<ConfigMap>>| {
        count.fetch_add(1, Ordering::Relaxed);
        if let Some(begin) = begin.take() {
            let _unreceived = begin.send(());
        }
    };
    informer.add_handler("received", handler).expect("not stopped");
    factory.start(world.sources());
    // A spawned task is polled more often than the test's own future.
    let stops = world.env.spawn("stops", async move {
        begun.await.expect("the handler received an event");
        factory.shutdown().await;
    });
    stops.await.expect("no panic");
    let received_by_then = received.load(Ordering::Relaxed);
    assert!(received_by_then < MANY, "all {received_by_then} events were delivered");
    world.pass(10).await;
    assert_eq!(received.load(Ordering::Relaxed), received_by_then, "no event is delivered after shutdown");
    let left = world.env.tasks().into_iter().filter(|task| task.starts_with("caches/"));
    assert_eq!(left.collect::<Vec<_>>(), Vec::<String>::new());
}

/// Reads of controller-runtime return deep copies. With `UnsafeDisableDeepCopy` a reader can change the cache.
// parity: mutation-detector-environment-variable, test-transforming-informer-race, test-mutation-detector
// parity: unsafe-disable-deep-copy, deep-copy-unsafe-disable
#[tokio::test(start_paused = true)]
async fn cached_objects_are_shared_and_immutable() {
    let world = World::new();
    world.api.upsert(&map("a"), json!({ "data": { "value": "old" } }));
    let factory = world.factory("caches");
    let maps = factory.typed::<ConfigMap>().lister();
    world.sync(&factory).await;
    let key = ObjectKey::namespaced("shop", "a");
    let (first, second) = (maps.get_lossy(&key).expect("held"), maps.get_lossy(&key).expect("held"));
    assert!(Arc::ptr_eq(&first, &second), "readers share one copy");
    world.api.upsert(&map("a"), json!({ "data": { "value": "new" } }));
    world.pass(1).await;
    assert_eq!(first.data.as_ref().expect("data")["value"], "old");
    assert_eq!(maps.get_lossy(&key).expect("held").data.as_ref().expect("data")["value"], "new");
    let (code, _) = world.api.request(&Method::DELETE, &map("a"), None);
    assert_eq!(code, 200);
    world.pass(1).await;
    assert_eq!(maps.get_lossy(&key), None, "a missing object is `None`, not an error");
}
