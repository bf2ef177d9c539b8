//! Read-your-writes for incomplete responses: bindings, and deletions without a UID.

use k8s_openapi::api::core::v1::Pod;
use windlass_client::{Write, WriteLog as _, WriteTarget};
use windlass_env::Task;

use super::*;
use crate::ReadYourWrites;
use crate::consistency::caches::{Cache, Caches};
use crate::consistency::read_your_writes::{CacheFreshness, ReadYourWritesBarrier};
use crate::consistency::unknown_outcomes::OutcomeResolver;
use crate::consistency::write_tracker::SharedWriteTracker;

/// Binds the Pod of its key by a POST to `place`, if the Pod is unbound in the cache, and requeues immediately.
async fn binder(world: &World, resource: &'static str, place: fn(&str) -> String) -> Workers {
    let pods: Arc<Mutex<Option<Lister<Pod>>>> = Arc::default();
    let theirs = Arc::clone(&pods);
    let wire = move |setup: &mut Setup| {
        setup.uses_rule(windlass_object::Rule::new("", resource, [Verb::Create]));
        *theirs.lock().expect("whole") = Some(setup.primary::<Pod>().lister());
    };
    let act = move |key: ObjectKey, cx: Context| {
        let pod = pods.lock().expect("whole").as_ref().expect("set up").get_lossy(&key);
        let bound = pod.and_then(|pod| pod.spec.as_ref()?.node_name.clone()).is_some();
        async move {
            if bound {
                return Ok(Outcome::Done);
            }
            let binding = json!({
                "apiVersion": "v1", "kind": "Binding",
                "metadata": { "name": key.name() }, "target": { "kind": "Node", "name": "node-1" },
            });
            let request = http::Request::post(place(key.name())).header("content-type", "application/json");
            let request = request.body(binding.to_string().into_bytes()).map_err(terminal)?;
            cx.client().request::<serde_json::Value>(request).await?;
            Ok(Outcome::RequeueAfter(Duration::from_millis(1)))
        }
    };
    world.start_with(world.scripted(wire, act)).await
}

async fn binds_once(resource: &'static str, place: fn(&str) -> String) {
    let world = World::with(&[]);
    let container = json!({ "name": "main", "image": "web" });
    world.api.upsert("/api/v1/namespaces/shop/pods/p", json!({ "spec": { "containers": [container] } }));
    world.api.inject_fault(|_| Some(LATE));
    let _workers = binder(&world, resource, place).await;
    world.pass(60).await;
    assert_eq!(world.work().len(), 1, "{:?}", world.work());
    assert!(world.metrics.reconcile("scripted").stale_skips.get() > 0, "the cache was in fact behind");
    let pod = world.api.object("/api/v1/namespaces/shop/pods/p").expect("there");
    assert_eq!(pod["spec"]["nodeName"], "node-1");
}

#[tokio::test(start_paused = true)]
async fn binding_is_waited_for_in_the_pods_it_changes() {
    binds_once("pods/binding", |pod| format!("/api/v1/namespaces/shop/pods/{pod}/binding")).await;
}

#[tokio::test(start_paused = true)]
async fn binding_delays_key_until_pod_cache_contains_it() {
    binds_once("bindings", |_| "/api/v1/namespaces/shop/bindings".to_owned()).await;
}

#[tokio::test(start_paused = true)]
async fn deletion_without_uid_is_resolved_by_fresh_read() {
    let world = World::with(&["m"]);
    let (gate, _resolver) = gate(&world).await;
    world.api.inject_fault(|_| Some(LATE));
    let key = ObjectKey::namespaced("shop", "m");
    let log = gate.log(&key);
    world.api.delete(&path("m"));
    let target = target(Verb::Delete, "m");
    let cached = log.cached(&target);
    log.wrote(Write { target, key: Some(key.clone()), uid: None, version: None, is_removed: false, cached });
    let is_held = || gate.caches.all()[0].version_and_uid(&key).is_some();
    assert!(
        matches!(gate.wait_until_fresh(&key).await, CacheFreshness::Stale { .. }),
        "the cache still shows it"
    );
    assert!(is_held());
    world.pass(10).await;
    assert_eq!(gate.wait_until_fresh(&key).await, CacheFreshness::Fresh);
    assert!(!is_held());
}

/// Returns a gate over a cache of the ConfigMaps of `world`, and the resolver of unknown outcomes.
async fn gate(world: &World) -> (ReadYourWritesBarrier, Task<()>) {
    let wire = |setup: &mut Setup| drop(setup.primary::<ConfigMap>());
    let Readied { factory, resources, .. } =
        world.ready(world.scripted(wire, |_, _| async { Ok(Outcome::Done) }));
    let informer = factory.typed::<ConfigMap>();
    assert!(informer.synced().await);
    let (env, tracker, caches) = (world.env.clone(), SharedWriteTracker::default(), Caches::default());
    caches.add(Cache::of(informer.erased()));
    let gate = ReadYourWritesBarrier { env, tracker, caches, mode: ReadYourWrites::Requeue };
    let ReadYourWritesBarrier { env, tracker, caches, .. } = gate.clone();
    let resolver = OutcomeResolver { env, tracker, caches, reader: resources.reader };
    (gate, world.env.spawn("write outcomes", resolver.run()))
}

fn target(verb: Verb, name: &str) -> WriteTarget {
    let resource = GroupResource::new("", "configmaps");
    WriteTarget { verb, resource, subresource: None, namespace: Some("shop".into()), name: Some(name.into()) }
}

#[tokio::test(start_paused = true)]
async fn write_at_already_passed_version_is_resolved_by_list() {
    let world = World::with(&["m"]);
    let (gate, _resolver) = gate(&world).await;
    let key = ObjectKey::namespaced("shop", "m");
    let lists = || world.metrics.informer("", "v1", "configmaps").lists.get();
    let log = gate.log(&key);
    let wrote = |verb: Verb, name: &str, version: &str| {
        let (target, version) = (target(verb, name), Some(ResourceVersion::new(version)));
        let (cached, key) = (log.cached(&target), Some(ObjectKey::namespaced("shop", name)));
        log.wrote(Write { target, key, uid: None, version, is_removed: false, cached });
    };
    let before = lists();
    // An update without a change returns the version of the object.
    wrote(Verb::Patch, "m", "1");
    assert_eq!((gate.wait_until_fresh(&key).await, lists()), (CacheFreshness::Fresh, before));
    // The server was restored and assigns versions a second time.
    wrote(Verb::Patch, "m", "1");
    wrote(Verb::Create, "n", "2");
    assert!(matches!(gate.wait_until_fresh(&key).await, CacheFreshness::Stale { .. }));
    world.pass(5).await;
    assert_eq!((gate.wait_until_fresh(&key).await, lists()), (CacheFreshness::Fresh, before + 1));
}

#[tokio::test(start_paused = true)]
async fn deletion_of_uncached_object_is_resolved_by_read() {
    let world = World::with(&["m"]);
    let (gate, _resolver) = gate(&world).await;
    let key = ObjectKey::namespaced("shop", "m");
    let log = gate.log(&key);
    let delete = |name: &str, uid: Option<windlass_object::Uid>| {
        let target = target(Verb::Delete, name);
        let (cached, key) = (log.cached(&target), Some(ObjectKey::namespaced("shop", name)));
        log.wrote(Write { target, key, uid, version: None, is_removed: false, cached });
    };
    let held = gate.caches.all()[0].version_and_uid(&key).and_then(|(_, uid)| uid);
    world.api.delete(&path("m"));
    delete("m", held.map(Into::into));
    world.pass(1).await;
    assert_eq!(gate.wait_until_fresh(&key).await, CacheFreshness::Fresh, "the cache contained it");
    delete("late", Some("u-late".into()));
    assert!(
        matches!(gate.wait_until_fresh(&key).await, CacheFreshness::Stale { .. }),
        "it can arrive in the cache"
    );
    world.pass(5).await;
    assert_eq!(gate.wait_until_fresh(&key).await, CacheFreshness::Fresh);
}
