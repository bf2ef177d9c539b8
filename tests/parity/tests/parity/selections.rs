//! Contents of caches: scenarios of controller-runtime's cache tests that apply to Windlass.

use std::collections::BTreeMap;
use std::time::Duration;

use k8s_openapi::api::core::v1::{ConfigMap, Node, Pod, Secret};
use serde_json::json;
use windlass::object::LabelSelector;
use windlass::prelude::*;
use windlass::testing::api_server::faults::RequestSummary;

use crate::world::{ReconcileLog, World, act, controller};

fn put_pod(world: &World, namespace: &str, name: &str, group: &str) {
    world.api.upsert(&format!("/api/v1/namespaces/{namespace}"), json!({}));
    let pod = json!({
        "metadata": { "labels": { "group": group } },
        "spec": { "containers": [{ "name": "main", "image": "example/shop" }] },
    });
    world.api.upsert(&format!("/api/v1/namespaces/{namespace}/pods/{name}"), pod);
}

/// Creates two namespaces with three pods each.
fn world_of_pods() -> World {
    let world = World::new();
    for namespace in ["one", "two"] {
        put_pod(&world, namespace, "a", "front");
        put_pod(&world, namespace, "b", "front");
        put_pod(&world, namespace, "c", "back");
    }
    world
}

fn names(pods: &Lister<Pod>) -> Vec<String> {
    let key = |pod: &std::sync::Arc<Pod>| ObjectKey::of(&pod.metadata).to_string();
    pods.list().iter().map(key).collect()
}

/// controller-runtime has one selector per kind and cache: two controllers with different selectors must cache the
/// whole kind (scylla-operator #3659).
// parity: namespace-field-selector-tweak, default-label-selector, table-label-field-namespace
// parity: memory-caches-selector-per
#[tokio::test(start_paused = true)]
async fn each_cache_contains_the_objects_of_its_selection() {
    let world = world_of_pods();
    let factory = world.factory("caches");
    let all = |namespace: Option<&str>, labels: Option<&str>, fields: Option<&str>| Selection {
        namespace: namespace.map(str::to_owned),
        labels: labels.map(str::to_owned),
        fields: fields.map(str::to_owned),
        ..Selection::default()
    };
    let table: &[(Selection, &[&str])] = &[
        (all(None, None, None), &["one/a", "one/b", "one/c", "two/a", "two/b", "two/c"]),
        (all(Some("one"), None, None), &["one/a", "one/b", "one/c"]),
        (all(Some("none"), None, None), &[]),
        (all(None, Some("group=front"), None), &["one/a", "one/b", "two/a", "two/b"]),
        (all(None, Some("group in (back)"), None), &["one/c", "two/c"]),
        (all(None, Some("group=nothing"), None), &[]),
        (all(None, None, Some("metadata.name=a")), &["one/a", "two/a"]),
        (all(None, None, Some("metadata.name=z")), &[]),
        (all(None, None, Some("metadata.namespace!=one")), &["two/a", "two/b", "two/c"]),
        (all(Some("two"), Some("group=front"), Some("metadata.name=b")), &["two/b"]),
    ];
    let informers: Vec<_> = table
        .iter()
        .map(|(selection, _)| {
            factory.informer(windlass::object::TypedObjects::<Pod>::new(), selection.clone())
        })
        .collect();
    world.sync(&factory).await;
    for (informer, (selection, expected)) in informers.iter().zip(table) {
        assert_eq!(names(&informer.lister()), *expected, "{selection}");
    }
    put_pod(&world, "two", "d", "front");
    world.pass(1).await;
    let grown: Vec<usize> = informers.iter().map(|informer| informer.lister().len()).collect();
    assert_eq!(grown, [7, 3, 0, 5, 2, 0, 2, 0, 4, 1], "caches follow changes");
}

/// An object that no longer matches the selector is removed from the cache.
// parity: leaves-selector-leaves-cache
#[tokio::test(start_paused = true)]
async fn relabeled_object_leaves_and_reenters_selected_cache() {
    let world = world_of_pods();
    let factory = world.factory("caches");
    let front = Selection { labels: Some("group=front".into()), ..Selection::default() };
    let pods = factory.informer(windlass::object::TypedObjects::<Pod>::new(), front).lister();
    world.sync(&factory).await;
    world.pass(1).await;
    let relabel = |group: &str| {
        let labels = json!({ "metadata": { "labels": { "group": group } } });
        world.api.upsert("/api/v1/namespaces/one/pods/a", labels);
    };
    relabel("back");
    world.pass(1).await;
    assert_eq!(names(&pods), ["one/b", "two/a", "two/b"]);
    relabel("front");
    world.pass(1).await;
    assert_eq!(names(&pods), ["one/a", "one/b", "two/a", "two/b"]);
}

/// controller-runtime scans the whole kind for every label selector, and for all but the first field (reports like
/// grove #655). Here each index is used directly, and can be added after the sync.
// parity: add-indexers-index, index-by, test-get-index-func-values, index-field, index-field-several-cluster
// parity: label-lists-linear, store-primary
#[tokio::test(start_paused = true)]
async fn objects_are_found_by_every_value_of_every_index() {
    fn by_group(pod: &Pod) -> Vec<String> {
        pod.metadata.labels.iter().flatten().map(|(_, group)| group.clone()).collect()
    }
    let world = world_of_pods();
    let factory = world.factory("caches");
    let informer = factory.typed::<Pod>();
    let pods = informer.lister();
    let groups = pods.index(by_group);
    world.sync(&factory).await;
    let letters = pods.index(|pod| ["any".into(), pod.metadata.name.clone().unwrap_or_default()]);
    assert_eq!(groups.get(&"back".to_owned()).len(), 2);
    let under = |letter: &str| letters.get(&letter.to_owned()).len();
    assert_eq!((under("any"), under("b"), under("nothing")), (6, 2, 0));
    assert_eq!(groups.values(), ["back", "front"]);
}

/// "should be able to list objects by namespace", "should support filtering by labels in a single namespace" and "from
/// multiple namespaces".
// parity: filtering-labels-namespace-several
#[tokio::test(start_paused = true)]
async fn lister_reads_by_key_namespace_and_labels() {
    let world = world_of_pods();
    let factory = world.factory("caches");
    let pods = factory.typed::<Pod>().lister();
    world.sync(&factory).await;
    let labels = [("group".to_owned(), "front".to_owned())].into();
    let front = LabelSelector::from_map(&labels);
    assert_eq!(pods.list_namespace("one").len(), 3);
    assert_eq!(pods.select(Some("two"), &front).len(), 2);
    assert_eq!(pods.select(None, &front).len(), 4);
    assert!(pods.get_lossy(&ObjectKey::namespaced("one", "c")).is_some());
    assert!(pods.get_lossy(&ObjectKey::namespaced("none", "c")).is_none());
}

/// "test multinamespaced cache for cluster scoped resources": a process that is confined to a namespace still reads
/// cluster-scoped kinds.
// parity: restrict-cache-namespace-cluster
#[tokio::test(start_paused = true)]
async fn cluster_scoped_kind_is_cached_next_to_single_namespace() {
    let world = world_of_pods();
    world.api.upsert("/api/v1/nodes/left", json!({}));
    world.api.upsert("/api/v1/nodes/right", json!({ "metadata": { "labels": { "disk": "fast" } } }));
    let factory = world.factory("caches");
    let pods = factory
        .informer(windlass::object::TypedObjects::<Pod>::new(), Selection::in_namespace("one"))
        .lister();
    let nodes = factory.typed::<Node>().lister();
    let fast = Selection { labels: Some("disk=fast".to_owned()), ..Selection::default() };
    let fast = factory.informer(windlass::object::TypedObjects::<Node>::new(), fast).lister();
    world.sync(&factory).await;
    assert_eq!((pods.len(), nodes.len(), fast.keys()), (3, 2, vec![ObjectKey::cluster("right")]));
}

/// kube-rs opens a watch for every controller of a kind (kube#1080), 400 connections in one report (#1823).
// parity: shared-index-informer, shared-streams-unstable-duplicates, http-1-1-connection
#[tokio::test(start_paused = true)]
async fn listers_of_the_same_objects_share_one_list_and_watch() {
    let world = World::new();
    world.put("a");
    let factory = world.factory("caches");
    let listers: Vec<_> = (0..10).map(|_| factory.typed::<ConfigMap>().lister()).collect();
    world.sync(&factory).await;
    world.pass(1).await;
    assert!(listers.iter().all(|maps| maps.len() == 1));
    assert_eq!(world.sent_uris("configmaps", RequestSummary::is_watch).len(), 1);
    assert!(world.sent_uris("configmaps", |_| true).len() <= 2);
}

/// Reads do not start caches: not before a cache is synced, not outside of its selection, and not for missing objects
/// (controller-runtime #2397, #1222, #3424).
// parity: reader-fail-on-missing-informer-off, get-list, list-get-objects-not, cache-reader-fail-on-missing-informer
// parity: reader-waits-cache-sync, implicit-informers
#[tokio::test(start_paused = true)]
async fn reads_do_not_start_caches() {
    let world = world_of_pods();
    world.put("a");
    world.forbid("secrets", true);
    let barred = world.factory("barred");
    let (log, forbidden) = (ReconcileLog::default(), barred.typed::<Secret>().lister());
    barred.start(world.sources());
    let notes = log.clone();
    let reads = controller("reads", move |setup| {
        let (notes, forbidden) = (notes.clone(), forbidden.clone());
        let maps = setup.primary::<ConfigMap>().lister();
        let pods = setup.watch::<Pod>().with_selection(Selection::in_namespace("one")).lister();
        act(move |key, cx| {
            assert!(
                forbidden.is_empty() && !forbidden.has_synced(),
                "the read does not wait, and the lister reports that it is not synced"
            );
            assert!(maps.get_lossy(&ObjectKey::namespaced("one", "nothing")).is_none());
            assert_eq!((pods.list_namespace("one").len(), pods.list_namespace("two").len()), (3, 0));
            assert!(pods.get_lossy(&ObjectKey::namespaced("two", "a")).is_none());
            assert_eq!(pods.select(Some("two"), &LabelSelector::from_map(&BTreeMap::new())).len(), 0);
            notes.note(cx.env().now(), key.name());
            async { Ok(Outcome::RequeueAfter(Duration::from_secs(1))) }
        })
    });
    let _workers = world.run([reads]).await;
    let uris = || world.api.sent_requests().iter().map(|request| request.uri.clone()).collect::<Vec<_>>();
    let before = uris();
    world.pass(60).await;
    assert!(log.lines().len() > 50, "the reconcile reads every second");
    assert_eq!(uris(), before, "reads send no requests");
    assert!(world.sent_uris("pods", |request| request.namespace != "one").is_empty());
}
