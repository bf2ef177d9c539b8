//! Read-your-writes: the modes, and deletions.

use std::collections::BTreeSet;
use std::num::NonZeroU16;
use std::sync::atomic::{AtomicU32, Ordering};

use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::rbac::v1::ClusterRole;
use kube::api::DeleteParams;
use windlass_informer::NamespaceSet;
use windlass_object::Uid;
use windlass_object::shard::{self, ShardId, ShardMap};

use super::*;
use crate::ReadYourWrites;
use crate::consistency::caches::{Cache, Caches, DeletionState};
use crate::consistency::write_tracker::{AwaitedWrite, WrittenCollection};

async fn count_with(mode: ReadYourWrites) -> (World, Workers) {
    let world = World::with(&["counter"]);
    world.api.inject_fault(|_| Some(LATE));
    let workers = world
        .start_with(
            Registration::controller::<Obedient>().with_settings(move |setup| setup.read_your_writes(mode)),
        )
        .await;
    (world, workers)
}

// parity: ensure-ready
#[tokio::test(start_paused = true)]
async fn blocking_worker_resumes_once_cache_contains_its_writes() {
    let (world, _workers) = count_with(ReadYourWrites::Block { at_most: Duration::from_secs(5) }).await;
    world.pass(60).await;
    assert_eq!(world.count().as_deref(), Some("10"));
    assert_eq!(world.work().len(), 10, "every write built on the one before");
    assert_eq!(world.metrics.reconcile(Obedient::NAME).stale_skips.get(), 0);
}

// parity: ensure-ready
#[tokio::test(start_paused = true)]
async fn blocking_worker_times_out_and_never_reconciles_stale_cache() {
    let (world, workers) = count_with(ReadYourWrites::Block { at_most: Duration::from_millis(300) }).await;
    world.pass(60).await;
    assert_eq!(world.work().len(), 10, "every write built on the one before");
    let skips = world.metrics.reconcile(Obedient::NAME).stale_skips.get();
    assert!((10..40).contains(&skips), "a cache a second late is waited for in {skips} turns");
    assert_eq!(workers.busy(), []);
}

#[tokio::test(start_paused = true)]
async fn reconcile_uses_stale_cache_when_read_your_writes_is_off() {
    let (world, _workers) = count_with(ReadYourWrites::Off).await;
    world.pass(60).await;
    assert!(world.work().len() > 10, "some writes were made twice: {}", world.work().len());
    assert_eq!(world.metrics.reconcile(Obedient::NAME).stale_skips.get(), 0);
}

/// Deletes the ConfigMap of its key, if the cache contains it, and requeues immediately.
async fn deleter(world: &World) -> Workers {
    let maps: Arc<Mutex<Option<Lister<ConfigMap>>>> = Arc::default();
    let theirs = Arc::clone(&maps);
    let wire = move |setup: &mut Setup| {
        setup.uses::<ConfigMap>([Verb::Delete]);
        *theirs.lock().expect("whole") = Some(setup.primary::<ConfigMap>().lister());
    };
    let act = move |key: ObjectKey, cx: Context| {
        let there = maps.lock().expect("whole").as_ref().expect("set up").get_lossy(&key).is_some();
        async move {
            if there {
                api_of(&cx).delete(key.name(), &DeleteParams::default()).await?;
                return Ok(Outcome::RequeueAfter(Duration::from_millis(1)));
            }
            Ok(Outcome::Done)
        }
    };
    world.start_with(world.scripted(wire, act)).await
}

// parity: test-mutation-cache-on-add-or-update, read-your-writes-0, stale-reads
#[tokio::test(start_paused = true)]
async fn stale_cache_does_not_cause_second_deletion() {
    let world = World::with(&["m"]);
    world.api.inject_fault(|_| Some(LATE));
    let _workers = deleter(&world).await;
    world.pass(60).await;
    assert_eq!(world.work().len(), 1, "{:?}", world.work());
    assert!(world.metrics.reconcile("scripted").stale_skips.get() > 0, "the cache was stale at least once");
}

// parity: clear-new
#[tokio::test(start_paused = true)]
async fn deletion_is_recognized_by_uid_not_by_name() {
    let world = World::with(&["m"]);
    let wire = |setup: &mut Setup| drop(setup.primary::<ConfigMap>());
    let Readied { factory, .. } = world.ready(world.scripted(wire, |_, _| async { Ok(Outcome::Done) }));
    let cache = Cache::of(factory.typed::<ConfigMap>().erased());
    assert!(cache.synced().await);
    let uid =
        || Uid::from(world.api.object(&path("m")).expect("there")["metadata"]["uid"].as_str().expect("one"));
    let key = ObjectKey::namespaced("shop", "m");
    let first = uid();
    assert!(!cache.reflects_deletion(&key, &first, DeletionState::Terminating));
    assert!(
        cache.reflects_deletion(&key, &Uid::from("another"), DeletionState::Gone),
        "another of that name is no reason to wait"
    );
    world.api.delete(&path("m"));
    world.put("m");
    world.pass(1).await;
    assert!(
        cache.reflects_deletion(&key, &first, DeletionState::Gone)
            && !cache.reflects_deletion(&key, &uid(), DeletionState::Terminating)
    );
    world.api.upsert(&path("m"), json!({ "metadata": { "finalizers": ["example.com/hold"] } }));
    world.api.delete(&path("m"));
    world.pass(1).await;
    assert!(cache.reflects_deletion(&key, &uid(), DeletionState::Terminating), "its deletion is in progress");
    assert!(!cache.reflects_deletion(&key, &uid(), DeletionState::Gone), "it waits for a finalizer");
}

/// Removes the finalizer of the ConfigMap of its key once it is being deleted, and requeues immediately. Returns the
/// number of removals.
async fn finalizer(world: &World) -> (Workers, Arc<AtomicU32>) {
    let maps: Arc<Mutex<Option<Lister<ConfigMap>>>> = Arc::default();
    let (theirs, cleanups) = (Arc::clone(&maps), Arc::new(AtomicU32::new(0)));
    let wire = move |setup: &mut Setup| {
        setup.uses::<ConfigMap>([Verb::Patch]);
        *theirs.lock().expect("whole") = Some(setup.primary::<ConfigMap>().lister());
    };
    let count = Arc::clone(&cleanups);
    let act = move |key: ObjectKey, cx: Context| {
        let map = maps.lock().expect("whole").as_ref().expect("set up").get_lossy(&key);
        let ends = map.is_some_and(|map| map.metadata.deletion_timestamp.is_some());
        let count = Arc::clone(&count);
        async move {
            if ends {
                count.fetch_add(1, Ordering::Relaxed);
                let patch = Patch::Merge(json!({ "metadata": { "finalizers": null } }));
                api_of(&cx).patch(key.name(), &PatchParams::default(), &patch).await?;
                return Ok(Outcome::RequeueAfter(Duration::from_millis(1)));
            }
            Ok(Outcome::Done)
        }
    };
    (world.start_with(world.scripted(wire, act)).await, cleanups)
}

#[tokio::test(start_paused = true)]
async fn cleanup_runs_once_when_cache_still_contains_object() {
    let world = World::with(&["m"]);
    world.api.upsert(&path("m"), json!({ "metadata": { "finalizers": ["example.com/hold"] } }));
    let (_workers, cleanups) = finalizer(&world).await;
    world.api.inject_fault(|_| Some(LATE));
    world.api.remove(&path("m"));
    world.pass(60).await;
    assert!(world.api.object(&path("m")).is_none(), "the finalizer is removed");
    assert_eq!(cleanups.load(Ordering::Relaxed), 1);
}

/// Evicts the Pod of its key, if the cache contains it, and requeues immediately.
async fn evictor(world: &World) -> Workers {
    let pods: Arc<Mutex<Option<Lister<Pod>>>> = Arc::default();
    let theirs = Arc::clone(&pods);
    let wire = move |setup: &mut Setup| {
        setup.writer::<Pod>().subresource("eviction", Verb::Create).build();
        *theirs.lock().expect("whole") = Some(setup.primary::<Pod>().lister());
    };
    let act = move |key: ObjectKey, cx: Context| {
        let there = pods.lock().expect("whole").as_ref().expect("set up").get_lossy(&key).is_some();
        async move {
            if there {
                cx.api::<Pod>(&key).evict(key.name(), &Default::default()).await?;
                return Ok(Outcome::RequeueAfter(Duration::from_millis(1)));
            }
            Ok(Outcome::Done)
        }
    };
    world.start_with(world.scripted(wire, act)).await
}

#[tokio::test(start_paused = true)]
async fn write_response_without_version_delays_next_reconcile() {
    let world = World::with(&[]);
    let container = json!({ "name": "main", "image": "web" });
    world.api.upsert("/api/v1/namespaces/shop/pods/p", json!({ "spec": { "containers": [container] } }));
    world.api.inject_fault(|_| Some(LATE));
    let _workers = evictor(&world).await;
    world.pass(60).await;
    assert_eq!(world.work().len(), 1, "{:?}", world.work());
    assert!(world.metrics.reconcile("scripted").stale_skips.get() > 0, "the cache was stale at least once");
}

/// Watches Leases from its first key on, and creates a Lease in every reconcile, twice for each change.
async fn lessor(world: &World) -> Workers {
    let wire = |setup: &mut Setup| {
        setup.uses::<Lease>([Verb::Create, Verb::List, Verb::Watch]);
        setup.primary::<ConfigMap>();
    };
    let act = |key: ObjectKey, cx: Context| async move {
        let leases = windlass_object::TypedObjects::<Lease>::new();
        cx.watches().add("leases", leases, Default::default(), |_, _| {}).map_err(terminal)?;
        let lease = json!({ "metadata": { "generateName": "by-" }, "spec": {} });
        let lease = serde_json::from_value(lease).map_err(terminal)?;
        let api: Api<Lease> = Api::namespaced(cx.client().clone(), "shop");
        let _made = api.create(&PostParams::default(), &lease).await?;
        let again = cx.priority() != windlass_workqueue::Priority::HIGH && key.name() == "m";
        let soon = Outcome::RequeueAfter(Duration::from_millis(1));
        Ok(if again { soon.with_priority(windlass_workqueue::Priority::HIGH) } else { Outcome::Done })
    };
    world.start_with(world.scripted(wire, act)).await
}

/// Returns a write with a version that no cache has reached.
fn far(world: &World) -> AwaitedWrite {
    AwaitedWrite {
        version: Some(ResourceVersion::new("9999")),
        deleted: Default::default(),
        settled_at: None,
        epoch: 0,
        since: world.env.now(),
        lists: Default::default(),
    }
}

#[tokio::test(start_paused = true)]
async fn write_to_unserved_kind_does_not_delay_keys() {
    let world = World::with(&["m"]);
    let wire = |setup: &mut Setup| drop(setup.primary::<ConfigMap>());
    let Readied { factory, .. } = world.ready(world.scripted(wire, |_, _| async { Ok(Outcome::Done) }));
    let kind = windlass_object::ResourceKind {
        group: "example.com".into(),
        version: "v1".into(),
        kind: "Widget".into(),
        plural: "widgets".into(),
        scope: windlass_object::Scope::Namespaced,
    };
    let informer = factory.informer(windlass_object::DynamicObjects::new(kind), Default::default());
    let caches = Caches::default();
    caches.add(Cache::of(informer.erased()));
    let place = WrittenCollection::new(GroupResource::new("example.com", "widgets"), Some("shop"));
    for settled_at in [None, Some(world.env.now())] {
        let wanted = AwaitedWrite { settled_at, ..far(&world) };
        world.pass(5).await;
        assert!(caches.reflect(&place, &wanted), "{wanted:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn key_waits_for_cache_that_cannot_sync_temporarily() {
    let world = World::with(&["m"]);
    let (env, healed) = (world.env.clone(), world.env.now() + Duration::from_secs(20));
    world.api.inject_fault(move |asked| {
        let read = asked.resource == "leases" && matches!(asked.verb, Some(Verb::List | Verb::Watch));
        (read && env.now() < healed).then_some(FaultAction::Unavailable)
    });
    let _workers = lessor(&world).await;
    world.pass(18).await;
    assert_eq!(world.diary.times("m").len(), 1, "the cache will contain the write");
    world.pass(60).await;
    assert_eq!(world.diary.times("m").len(), 2);
}

#[tokio::test(start_paused = true)]
async fn pending_write_to_unwatched_namespace_is_removed() {
    let world = World::with(&["m"]);
    let wire = |setup: &mut Setup| drop(setup.primary::<ConfigMap>());
    let Readied { resources, .. } = world.ready(world.scripted(wire, |_, _| async { Ok(Outcome::Done) }));
    let namespaces = Some(NamespaceSet::from_names(["shop"]));
    let options = FactoryOptions { name: "shop".into(), namespaces, ..FactoryOptions::default() };
    let factory = InformerFactory::new(world.env.clone(), world.metrics.clone(), options);
    factory.start(Arc::new(ApiServerSources::new(resources.reader)));
    let informer = factory.typed::<ConfigMap>();
    assert!(informer.synced().await);
    let caches = Caches::default();
    caches.add(Cache::of(informer.erased()));
    let far = far(&world);
    let place = |namespace| WrittenCollection::new(GroupResource::new("", "configmaps"), Some(namespace));
    assert!(caches.reflect(&place("elsewhere"), &far), "no object will ever appear there");
    let unknown = AwaitedWrite { settled_at: Some(world.env.now()), ..far.clone() };
    assert!(caches.reflect(&place("elsewhere"), &unknown), "the namespace is not watched");
    assert!(!caches.reflect(&place("shop"), &far));
}

/// Creates a ClusterRole in each of twelve reconciles of its key.
async fn ruler(world: &World) -> Workers {
    let roles = Arc::new(Mutex::new(0));
    let wire = |setup: &mut Setup| {
        setup.uses::<ClusterRole>([Verb::Create]);
        setup.primary::<ConfigMap>();
        drop(setup.watch::<ClusterRole>().enqueue(|_| Vec::new()));
    };
    let act = move |_, cx: Context| {
        let number = {
            let mut made = roles.lock().expect("whole");
            *made += 1;
            *made
        };
        async move {
            let role = json!({ "metadata": { "name": format!("role-{number}") } });
            let role = serde_json::from_value(role).map_err(terminal)?;
            Api::<ClusterRole>::all(cx.client().clone()).create(&PostParams::default(), &role).await?;
            Ok(if number == 12 { Outcome::Done } else { Outcome::RequeueAfter(Duration::from_millis(1)) })
        }
    };
    world.start_with(world.scripted(wire, act)).await
}

#[tokio::test(start_paused = true)]
async fn cluster_scoped_write_delays_key_only_if_its_shard_is_held() {
    let (mut world, shards) = (World::with(&["m"]), ShardSet::new());
    let division = ShardMap::even(NonZeroU16::new(4).expect("four"));
    let quarter = |uid: &str| division.shard_of(shard::hash(uid));
    let (home, neighbor) = (quarter("shop"), ShardId((quarter("shop").0 + 1) % 4));
    for held in [home, neighbor] {
        shards.insert(held, division.ranges(held).clone()).expect("apart");
    }
    world.shards = Some(shards);
    let _workers = ruler(&world).await;
    world.pass(1).await;
    let times = world.diary.times("m");
    assert_eq!(
        times.len(),
        12,
        "the read waits for an idle shard or for a shard without holder: {:?}",
        gaps(&times)
    );
    let uid_of = |number: usize| {
        let path = format!("/apis/rbac.authorization.k8s.io/v1/clusterroles/role-{number}");
        world.api.object(&path).expect("made")["metadata"]["uid"].as_str().expect("one").to_owned()
    };
    let written: BTreeSet<ShardId> = (1..=12).map(|number| quarter(&uid_of(number))).collect();
    assert_eq!(written.len(), 4, "in held shards and in other shards");
}

/// Two watches of one kind that a controller adds at run time share an informer.
#[tokio::test(start_paused = true)]
async fn cache_added_twice_remains_after_one_removal() {
    let world = World::with(&[]);
    let wire = |setup: &mut Setup| drop(setup.watch::<ConfigMap>());
    let Readied { factory, .. } = world.ready(world.scripted(wire, |_, _| async { Ok(Outcome::Done) }));
    let (caches, cache) = (Caches::default(), Cache::of(factory.typed::<ConfigMap>().erased()));
    let (first, second) = (caches.add(cache.clone()), caches.add(cache.clone()));
    let resource = cache.kind().group_resource();
    caches.remove(second);
    assert_eq!(caches.of(&resource).len(), 1);
    caches.remove(first);
    assert!(caches.epoch(&resource).is_none());
}
