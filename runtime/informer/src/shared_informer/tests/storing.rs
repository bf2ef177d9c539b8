//! Transforms, byte budgets, indexes and concurrent readers.

use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering as Atomic};

use k8s_openapi::api::core::v1::Pod;
use kube::core::ObjectMeta;
use windlass_object::{MetadataRef, ObjectHeader};

use super::*;
use crate::ObjectForm;
use crate::compact::CompactObject;
use crate::delta_fifo::Batch;
use crate::reflector::STUCK_AFTER;
use crate::store::{Store, StoreWriter};
use crate::{UnsyncedReason, indexes};

fn managed(name: &str) -> bytes::Bytes {
    format!(
        r#"{{"metadata":{{"name":"{name}","namespace":"default","uid":"u","resourceVersion":"1","managedFields":[{{"manager":"m","operation":"Update"}}]}}}}"#
    )
    .into()
}

// parity: default-transform
#[tokio::test(start_paused = true)]
async fn managed_fields_are_dropped_unless_configured() {
    for (keep_managed_fields, kept) in [(false, 0), (true, 1)] {
        let rig = Rig::with_options(FactoryOptions { keep_managed_fields, ..FactoryOptions::default() });
        let script = Script::new(&rig.env, [Answer::List(Ok(page(5, &[managed("a")])))]);
        rig.start(&script);
        rig.settle().await;
        let object = rig.lister.get_lossy(&key("a")).unwrap();
        assert_eq!(object.metadata.managed_fields.as_ref().map_or(0, Vec::len), kept);
    }
}

/// Drops the data of an object unless its value is `precious`; rejects the value `poison`.
fn strip(map: &mut ConfigMap) -> Result<(), String> {
    if brief(map).ends_with("=poison") {
        return Err("poison".to_owned());
    }
    if !brief(map).ends_with("=precious") {
        map.data = None;
    }
    Ok(())
}

// parity: transformer-runs-enqueue-twice, test-transforming-informer, default-transform
#[tokio::test(start_paused = true)]
async fn transform_runs_before_store_and_handlers_and_for_deletions() {
    let (rig, server, log) = (Rig::new(), Server::new(), Log::default());
    rig.informer.set_transform(strip).unwrap();
    let by_value = rig.lister.index(|map| map.data.clone().unwrap_or_default().into_values());
    log.attach(&rig.informer, "log");
    server.set("a", "large");
    server.set("b", "precious");
    rig.start(&server);
    rig.settle().await;
    server.set("a", "larger");
    server.delete("a");
    rig.settle().await;
    let expected =
        ["+a@1= InitialList", "+b@2=precious InitialList", "~a@1=>a@3= Watch", "-a@4= Watch Observed"];
    assert_eq!(log.take(), expected);
    assert_eq!(
        (rig.held(), by_value.values()),
        (vec!["b@2=precious".to_owned()], vec!["precious".to_owned()])
    );
}

// parity: test-real-fifo-pop-broken-items-in-batch, errors-store-transform-lose
#[tokio::test(start_paused = true)]
async fn object_rejected_by_transform_is_isolated_without_failing_list() {
    let (rig, server, log) = (Rig::new(), Server::new(), Log::default());
    rig.informer.set_transform(strip).unwrap();
    log.attach(&rig.informer, "log");
    server.set("a", "poison");
    server.set("b", "precious");
    rig.start(&server);
    rig.settle().await;
    assert!(rig.informer.has_synced(), "the list succeeded");
    assert_eq!((rig.held(), rig.lister.get(&key("a")).is_err()), (vec!["b@2=precious".to_owned()], true));
    let version = server.set("b", "poison");
    rig.settle().await;
    assert_eq!((rig.held().len(), rig.lister.undecodable().len()), (0, 2));
    assert_eq!(
        rig.informer.version(),
        Some(at(version)),
        "the version advances, because the isolated objects are known"
    );
    server.compact(true);
    server.cut(cut_connection());
    rig.env.sleep(LONG).await;
    for name in ["a", "b"] {
        server.set(name, "precious");
    }
    rig.settle().await;
    let expected = [
        "+b@2=precious InitialList",
        "-b@2=precious Watch Inferred",
        "+a@4=precious Watch",
        "+b@5=precious Watch",
    ];
    assert_eq!((log.take(), rig.lister.undecodable().len()), (expected.map(str::to_owned).to_vec(), 0));
}

// parity: test-transforming-informer-race
#[tokio::test(start_paused = true)]
async fn transform_is_set_once_and_before_the_first_object() {
    let (rig, server) = (Rig::new(), Server::new());
    rig.informer.set_transform(strip).unwrap();
    let maps = ResourceKind::of::<ConfigMap>().group_resource();
    assert!(rig.factory.has_transform(&maps), "a replacement would send the transformed object");
    let again = rig.informer.set_transform(strip);
    assert!(matches!(again, Err(InformerError::DuplicateTransform { .. })));
    rig.start(&server);
    let late = rig.informer.set_transform(strip);
    assert!(matches!(late, Err(InformerError::AlreadyStarted { .. })));
}

#[tokio::test(start_paused = true)]
async fn caches_of_both_forms_contain_equal_objects() {
    let mut contents = Vec::new();
    for form in [ObjectForm::Compact, ObjectForm::Decoded] {
        let options = FactoryOptions { form, ..FactoryOptions::default() };
        let (rig, server, log) = (Rig::with_options(options), Server::new(), Log::default());
        let by_value = rig.lister.index(|map| map.data.clone().unwrap_or_default().into_values());
        log.attach(&rig.informer, "log");
        for name in ["a", "b", "c"] {
            server.set(name, "first");
        }
        rig.start(&server);
        rig.settle().await;
        server.set("a", "second");
        server.delete("b");
        rig.settle().await;
        let stored = rig.informer.store.snapshot();
        let is_compact = |object: &Object| object.is::<CompactObject>();
        assert!(stored.objects().values().all(|object| is_compact(object) == (form == ObjectForm::Compact)));
        let everything = rig.lister.select(None, &LabelSelector::from_map(&BTreeMap::new()));
        contents.push((log.take(), rig.lister.list(), everything, by_value.get(&"second".to_owned())));
    }
    assert_eq!((contents[0].1.len(), contents[0].3.len()), (2, 1));
    assert_eq!(contents[0], contents[1]);
}

#[tokio::test(start_paused = true)]
async fn user_that_keeps_objects_decoded_decides_for_all() {
    let (rig, server) = (Rig::new(), Server::new());
    rig.informer.keep_decoded();
    server.set("a", "first");
    rig.start(&server);
    rig.settle().await;
    let first = rig.lister.get(&key("a")).unwrap().unwrap();
    let again = rig.lister.get(&key("a")).unwrap().unwrap();
    assert!(Arc::ptr_eq(&first, &again));
    assert!(!rig.informer.store.snapshot().objects().values().any(|object| object.is::<CompactObject>()));
}

/// Returns a rig with a byte budget for that many objects with a one-letter name and the value `first`.
fn rig_for(objects: u64) -> Rig {
    let one = object("a", "uid-1", 1, "first").len() as u64;
    let byte_budget = Some(objects * one + one / 2);
    Rig::with_options(FactoryOptions { byte_budget, ..FactoryOptions::default() })
}

// parity: memory-caches-selector-per
#[tokio::test(start_paused = true)]
async fn list_over_budget_is_rejected_until_the_source_shrinks() {
    let (rig, server, log) = (rig_for(2), Server::new(), Log::default());
    log.attach(&rig.informer, "log");
    for name in ["a", "b", "c", "d"] {
        server.set(name, "first");
    }
    rig.start(&server);
    rig.env.sleep(LONG).await;
    assert_eq!((rig.informer.has_synced(), rig.held().len(), log.take().len()), (false, 0, 0));
    let lists = rig.counts().lists.get();
    assert!((2..=6).contains(&lists), "{lists} lists in five minutes, instead of 2 to 6");
    assert_eq!(rig.counts().over_budget.get(), lists);
    let behind = rig.factory.wait_for_sync(Some(Duration::ZERO)).await.unwrap_err();
    assert!(matches!(behind.unsynced[0].reason, UnsyncedReason::OverBudget(_)), "{behind}");
    assert!(behind.to_string().contains("raise the budget"), "{behind}");
    server.delete("c");
    server.delete("d");
    rig.env.sleep(LONG).await;
    assert_eq!((rig.informer.has_synced(), rig.held().len()), (true, 2));
    assert_eq!(rig.informer.last_error(), None);
}

// parity: memory-22-7-k
#[tokio::test(start_paused = true)]
async fn stored_objects_stay_served_over_budget_until_budget_grows() {
    let (rig, server, log) = (rig_for(2), Server::new(), Log::default());
    log.attach(&rig.informer, "log");
    for name in ["a", "b"] {
        server.set(name, "first");
    }
    rig.start(&server);
    rig.settle().await;
    log.take();
    server.set("c", "first");
    server.set("a", "second");
    rig.env.sleep(LONG).await;
    assert_eq!(rig.held(), ["a@1=first", "b@2=first"]);
    assert_eq!(
        (log.take(), rig.informer.version()),
        (vec![], Some(at(2))),
        "the version does not advance beyond the stored objects"
    );
    assert!(rig.informer.last_error().is_some_and(|error| error.contains("byte budget")));
    rig.informer.set_byte_budget(Some(10_000));
    rig.env.sleep(LONG).await;
    assert_eq!(rig.held(), ["a@4=second", "b@2=first", "c@3=first"]);
    assert_eq!(rig.informer.last_error(), None);
    assert_eq!(log.take(), ["~a@1=first>a@4=second Relist", "+c@3=first Relist"]);
}

#[tokio::test(start_paused = true)]
async fn repeatedly_replaced_object_counts_once_in_budget() {
    let (rig, server) = (rig_for(2), Server::new());
    server.set("a", "first");
    rig.start(&server);
    for _ in 0..50 {
        server.set("a", "first");
        rig.settle().await;
    }
    server.delete("a");
    server.set("b", "first");
    rig.settle().await;
    assert_eq!((rig.held().len(), rig.counts().over_budget.get()), (1, 0));
}

// parity: add-indexers-after
#[tokio::test(start_paused = true)]
async fn index_lasts_as_long_as_its_handles() {
    let (rig, server, _log) = running(&["a"]).await;
    let everything = rig.lister.index(|_| ["x".to_owned(), "y".to_owned()]);
    let clone = everything.clone();
    drop(everything);
    server.set("b", "first");
    rig.settle().await;
    assert_eq!(clone.values(), ["x", "y"]);
    assert_eq!((clone.count(&"x".to_owned()), clone.count(&"z".to_owned())), (2, 0));
    assert_eq!(clone.keys(&"y".to_owned()), [key("a"), key("b")]);
    drop(clone);
    assert_eq!(rig.informer.state.lock().unwrap().writer.indexes(), 0);
}

/// A rejected handler is dropped while the lock of its informer is held.
#[tokio::test(start_paused = true)]
async fn index_dropped_under_lock_is_removed_by_next_lock_holder() {
    let (rig, _server, _log) = running(&["a"]).await;
    let index = rig.lister.index(|_| ["x".to_owned()]);
    rig.env.kill();
    rig.informer.add_handler("refused", move |_: &TestEvent| drop(index.values())).unwrap();
    let _next = rig.lister.index(|_| ["y".to_owned()]);
    assert_eq!(rig.informer.state.lock().unwrap().writer.indexes(), 1);
}

#[tokio::test(start_paused = true)]
async fn ready_made_indexes_find_pods() {
    let env = Env::virtual_time(1);
    let factory = InformerFactory::new(env.clone(), Metrics::new(), FactoryOptions::default());
    let pods = factory.typed::<Pod>().lister();
    let (by_node, by_ip) = (pods.index(indexes::node_name), pods.index(indexes::pod_ips));
    let (by_owner, by_app) = (pods.index(indexes::owner_uids), pods.index(indexes::label_value("app")));
    let raw = r#"{"metadata":{"name":"p","namespace":"n","uid":"u","resourceVersion":"1","labels":{"app":"web"},
        "ownerReferences":[{"apiVersion":"v1","kind":"Node","name":"n","uid":"o"}]},
        "spec":{"nodeName":"n1","containers":[]},"status":{"podIPs":[{"ip":"10.0.0.1"},{"ip":"fd00::1"}]}}"#;
    let script = Script::new(&env, [Answer::List(Ok(page(5, &[raw.into()])))]);
    factory.start(Arc::new(Only(script)));
    settle(&env).await;
    let text = |text: &str| text.to_owned();
    assert_eq!((by_node.count(&text("n1")), by_app.count(&text("web"))), (1, 1));
    assert_eq!((by_ip.count(&text("10.0.0.1")), by_ip.count(&text("fd00::1"))), (1, 1));
    assert_eq!(by_owner.count(&"o".into()), 1);
}

/// Many readers and one writer: each read is one snapshot, snapshots never move back, and the writer makes progress.
// parity: readers-starve-writer
#[test]
fn readers_get_ordered_snapshots_and_do_not_block_the_writer() {
    // Under miri, each round takes a thousand times as long.
    const ROUNDS: u64 = if cfg!(miri) { 12 } else { 2000 };
    const READERS: usize = if cfg!(miri) { 2 } else { 8 };
    let metrics = Metrics::new().informer("", "v1", "configmaps");
    let budget = Arc::new(crate::budget::ByteBudget::new(None, metrics));
    let store = Arc::new(Store::new());
    let mut writer =
        StoreWriter::new(Arc::clone(&store), |map: &Arc<ConfigMap>| ObjectHeader::of(&map.metadata), budget);
    let by_version = writer.add_index(
        "version",
        Arc::new(|map: &Arc<ConfigMap>| Vec::from_iter(map.metadata.resource_version.clone())),
    );
    let done = AtomicBool::new(false);
    let (reading, began) = blocking::channel();
    let read = |reading: blocking::Sender<()>| {
        let (mut seen, mut kept) = (0, Vec::new());
        loop {
            let last = done.load(Atomic::Acquire);
            let snapshot = store.snapshot();
            let version = snapshot.progress().version.as_ref().map_or(0, |it| it.as_str().parse().unwrap());
            assert!(version >= seen, "from {seen} back to {version}");
            seen = version;
            for object in snapshot.objects().values() {
                let version = object.metadata.resource_version.as_deref().unwrap();
                assert_eq!(
                    snapshot.index(by_version).unwrap().count(version),
                    1,
                    "index and object are from one snapshot"
                );
            }
            kept.push(snapshot);
            kept.drain(..kept.len().saturating_sub(100));
            if last {
                assert_eq!(seen, ROUNDS, "a reader that starts after the last write observes it");
                return;
            }
            if seen == 0 && kept.len() == 1 {
                reading.send(()).unwrap();
            }
        }
    };
    std::thread::scope(|scope| {
        let readers: Vec<_> = (0..READERS)
            .map(|_| {
                let (read, reading) = (&read, reading.clone());
                scope.spawn(move || read(reading))
            })
            .collect();
        // From here on, the writer runs concurrently with readers, each of which holds its last snapshot.
        (0..READERS).for_each(|_| began.recv().unwrap());
        for version in 1..=ROUNDS {
            writer.apply(Batch::Changes(vec![crate::delta_fifo::Delta::Added(crate::delta_fifo::Item {
                head: windlass_object::ObjectHeader {
                    key: key(&(version % 7).to_string()),
                    uid: None,
                    version: Some(at(version)),
                },
                body: crate::delta_fifo::Body::Decoded(Arc::new(map_at(version))),
                bytes: 1,
            })]));
        }
        done.store(true, Atomic::Release);
        readers.into_iter().for_each(|reader| reader.join().expect("a reader without a violation"));
    });
    assert_eq!(
        (store.snapshot().objects().len(), store.snapshot().progress().version.clone()),
        (7, Some(at(ROUNDS)))
    );
}

/// An object with slow readers: each reader signals that it reads the labels and waits for permission to continue.
struct Slow {
    metadata: ObjectMeta,
    gates: Option<(Barrier, Barrier)>,
}

impl Slow {
    fn new(version: u64, gates: Option<(Barrier, Barrier)>) -> Self {
        Self { metadata: map_at(version).metadata, gates }
    }
}

/// Returns the metadata of such an object, for a reader.
fn read_slowly(object: &Object) -> MetadataRef<'_> {
    let slow: &Slow = object.downcast_ref().expect("a slow object");
    if let Some((reading, may_continue)) = &slow.gates {
        reading.wait();
        may_continue.wait();
    }
    (&slow.metadata).into()
}

fn slow_head(version: u64) -> ObjectHeader {
    ObjectHeader { key: key(&version.to_string()), uid: None, version: Some(at(version)) }
}

fn stored_slowly(version: u64, gates: Option<(Barrier, Barrier)>) -> Batch<Object> {
    let body = crate::delta_fifo::Body::Decoded(Arc::new(Slow::new(version, gates)) as Object);
    let item = crate::delta_fifo::Item { head: slow_head(version), body, bytes: 1 };
    Batch::Changes(vec![crate::delta_fifo::Delta::Added(item)])
}

/// Upstream's readers hold a lock for the duration of a list, and its writer waits for them (kubernetes#130767).
// parity: readers-starve-writer
#[test]
fn writer_continues_during_slow_lists_of_all_readers() {
    const READERS: usize = 4;
    const CHANGES: u64 = 100;
    let gates = (Barrier::new(READERS + 1), Barrier::new(READERS + 1));
    let metrics = Metrics::new().informer("", "v1", "configmaps");
    let budget = Arc::new(crate::budget::ByteBudget::new(None, metrics));
    let mut codec = Codec::of(TypedObjects::<ConfigMap>::new());
    codec.meta = read_slowly;
    let env = Env::virtual_time(1);
    let informer = crate::Informer::new(
        &env,
        &Metrics::new(),
        "slow",
        codec,
        Selection::default(),
        InformerSettings::default(),
        None,
    );
    let mut writer = StoreWriter::new(Arc::clone(&informer.store), |_| slow_head(1), budget);
    let (store, lister) = (Arc::clone(&informer.store), Lister::<Slow>::new(Arc::new(informer)));
    writer.apply(stored_slowly(1, Some(gates)));
    let first = Arc::clone(store.snapshot().objects().values().next().expect("stored"));
    let first: Arc<Slow> = first.downcast().expect("a slow object");
    let (reading, may_continue) = first.gates.as_ref().expect("with gates");
    let everything = LabelSelector::from_map(&BTreeMap::new());
    let (wrote, written) = blocking::channel();
    std::thread::scope(|scope| {
        let readers: Vec<_> =
            (0..READERS).map(|_| scope.spawn(|| lister.select(None, &everything).len())).collect();
        reading.wait();
        scope.spawn(move || {
            for version in 2..=CHANGES {
                writer.apply(stored_slowly(version, None));
            }
            wrote.send(()).unwrap();
        });
        // Whatever the outcome, the readers continue, so that the test ends.
        let ended = written.recv_timeout(Duration::from_secs(30));
        may_continue.wait();
        let seen: Vec<usize> = readers.into_iter().map(|reader| reader.join().expect("a list")).collect();
        assert_eq!((ended, seen), (Ok(()), vec![1; READERS]), "the writer waited for the readers");
    });
    assert_eq!(store.snapshot().objects().len() as u64, CHANGES);
}

fn map_at(version: u64) -> ConfigMap {
    let mut map = ConfigMap::default();
    map.metadata.name = Some((version % 7).to_string());
    map.metadata.namespace = Some("default".to_owned());
    map.metadata.resource_version = Some(version.to_string());
    map
}

// parity: deadlocks-start
#[tokio::test(start_paused = true)]
async fn hanging_user_code_is_reported_even_when_called_under_the_lock() {
    let (rig, server) = (Rig::new(), Server::new());
    let looks = Arc::new(Mutex::new(Vec::new()));
    let look = |what: &'static str| {
        let (looks, informer, env) = (Arc::clone(&looks), rig.informer.clone(), rig.env.clone());
        move || {
            let later = env.now() + STUCK_AFTER + Duration::from_secs(1);
            let polled = informer.informer.poll_timers.longest(later).is_some_and(|poll| poll > STUCK_AFTER);
            let stuck = polled && informer.stuck_at(later).is_some();
            let lags: Vec<UnsyncedReason> =
                informer.unsynced().into_iter().map(|unsynced| unsynced.reason).collect();
            looks.lock().unwrap().push((what, stuck && informer.is_following(), lags));
        }
    };
    let (indexed, handled) = (look("index"), look("handler"));
    let _index = rig.lister.index(move |_| {
        indexed();
        None::<String>
    });
    rig.informer.add_handler("looks", move |_: &Event<Arc<ConfigMap>>| handled()).unwrap();
    server.set("a", "first");
    rig.start(&server);
    rig.settle().await;
    let listing = vec![UnsyncedReason::Listing];
    assert_eq!(*looks.lock().unwrap(), [("index", true, listing.clone()), ("handler", true, listing)]);
    assert_eq!(rig.informer.stalled_for(), None, "both have returned");
}

#[tokio::test(start_paused = true)]
async fn union_returns_each_object_once_in_the_order_of_keys() {
    let (rig, server) = (Rig::new(), Server::new());
    let by_value = rig.lister.index(|map: &ConfigMap| map.data.clone().unwrap_or_default().into_values());
    for (name, value) in [("c", "red"), ("b", "blue"), ("a", "red"), ("d", "green")] {
        server.set(name, value);
    }
    rig.start(&server);
    rig.settle().await;
    let [red, blue, none] = ["red", "blue", "none"].map(str::to_owned);
    let names = |values: [&String; 4]| -> Vec<String> {
        by_value.union(values).iter().map(|map| map.metadata.name.clone().unwrap_or_default()).collect()
    };
    assert_eq!(names([&red, &blue, &none, &red]), ["a", "b", "c"]);
    assert_eq!(names([&none; 4]), [""; 0]);
}
