//! Which objects a cache holds: the scenarios of controller-runtime's cache tests that have a meaning here.

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

/// Two namespaces, three pods in each.
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

/// controller-runtime has one selector per kind and cache, so that two controllers with different needs hold the whole
/// kind (scylla-operator #3659).
// parity: namespace-field-selector-tweak, default-label-selector, table-label-field-namespace
// parity: memory-caches-selector-per
#[tokio::test(start_paused = true)]
async fn cache_holds_what_its_selection_says_beside_others_of_its_kind() {
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
        .map(|(selection, _)| factory.informer(windlass::object::Typed::<Pod>::new(), selection.clone()))
        .collect();
    world.sync(&factory).await;
    for (informer, (selection, expected)) in informers.iter().zip(table) {
        assert_eq!(names(&informer.lister()), *expected, "{selection}");
    }
    put_pod(&world, "two", "d", "front");
    world.pass(1).await;
    let grown: Vec<usize> = informers.iter().map(|informer| informer.lister().len()).collect();
    assert_eq!(grown, [7, 3, 0, 5, 2, 0, 2, 0, 4, 1], "and goes on to");
}

/// An object that no longer matches its selector leaves the cache and is told as deleted.
// parity: leaves-selector-leaves-cache
#[tokio::test(start_paused = true)]
async fn what_is_relabelled_out_of_a_selection_leaves_the_cache_and_comes_back() {
    let world = world_of_pods();
    let factory = world.factory("caches");
    let front = Selection { labels: Some("group=front".into()), ..Selection::default() };
    let pods = factory.informer(windlass::object::Typed::<Pod>::new(), front).lister();
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

/// controller-runtime scans the whole kind for every label selector, and for all but the first field (its #655-like
/// reports); here every index is as good as the first, and may be added late.
// parity: add-indexers-index, index-by, test-get-index-func-values, index-field, index-field-several-cluster
// parity: label-lists-linear, store-primary
#[tokio::test(start_paused = true)]
async fn objects_are_found_by_every_index_and_every_one_of_its_values() {
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
async fn readers_choose_by_key_by_namespace_and_by_labels() {
    let world = world_of_pods();
    let factory = world.factory("caches");
    let pods = factory.typed::<Pod>().lister();
    world.sync(&factory).await;
    let labels = [("group".to_owned(), "front".to_owned())].into();
    let front = LabelSelector::from_map(&labels);
    assert_eq!(pods.namespace("one").len(), 3);
    assert_eq!(pods.select(Some("two"), &front).len(), 2);
    assert_eq!(pods.select(None, &front).len(), 4);
    assert!(pods.cached(&ObjectKey::namespaced("one", "c")).is_some());
    assert!(pods.cached(&ObjectKey::namespaced("none", "c")).is_none());
}

/// "test multinamespaced cache for cluster scoped resources": a process that is confined to a namespace still sees kinds
/// that live in none.
// parity: restrict-cache-namespace-cluster
#[tokio::test(start_paused = true)]
async fn kind_without_namespaces_is_cached_beside_one_of_a_single_namespace() {
    let world = world_of_pods();
    world.api.upsert("/api/v1/nodes/left", json!({}));
    world.api.upsert("/api/v1/nodes/right", json!({ "metadata": { "labels": { "disk": "fast" } } }));
    let factory = world.factory("caches");
    let pods =
        factory.informer(windlass::object::Typed::<Pod>::new(), Selection::in_namespace("one")).lister();
    let nodes = factory.typed::<Node>().lister();
    let fast = Selection { labels: Some("disk=fast".to_owned()), ..Selection::default() };
    let fast = factory.informer(windlass::object::Typed::<Node>::new(), fast).lister();
    world.sync(&factory).await;
    assert_eq!((pods.len(), nodes.len(), fast.keys()), (3, 2, vec![ObjectKey::cluster("right")]));
}

/// kube-rs opens a watch for every controller that looks at a kind (kube#1080), 400 connections in one report (#1823).
// parity: shared-index-informer, shared-streams-unstable-duplicates, http-1-1-connection
#[tokio::test(start_paused = true)]
async fn whoever_looks_at_the_same_objects_shares_one_list_and_one_watch() {
    let world = World::new();
    world.put("a");
    let factory = world.factory("caches");
    let listers: Vec<_> = (0..10).map(|_| factory.typed::<ConfigMap>().lister()).collect();
    world.sync(&factory).await;
    world.pass(1).await;
    assert!(listers.iter().all(|maps| maps.len() == 1));
    assert_eq!(world.asked("configmaps", RequestSummary::is_watch).len(), 1);
    assert!(world.asked("configmaps", |_| true).len() <= 2);
}

/// What is read decides nothing: not before a cache is complete, not next to its selection, not of what is not there
/// (controller-runtime #2397, #1222, #3424).
// parity: reader-fail-on-missing-informer-off, get-list, list-get-objects-not, cache-reader-fail-on-missing-informer
// parity: reader-waits-cache-sync, implicit-informers
#[tokio::test(start_paused = true)]
async fn no_read_starts_a_cache() {
    let world = world_of_pods();
    world.put("a");
    world.forbid("secrets", true);
    let barred = world.factory("barred");
    let (diary, forbidden) = (ReconcileLog::default(), barred.typed::<Secret>().lister());
    barred.start(world.sources());
    let notes = diary.clone();
    let reads = controller("reads", move |setup| {
        let (notes, forbidden) = (notes.clone(), forbidden.clone());
        let maps = setup.primary::<ConfigMap>().lister();
        let pods = setup.watch::<Pod>().selecting(Selection::in_namespace("one")).lister();
        act(move |key, cx| {
            assert!(forbidden.is_empty() && !forbidden.has_synced(), "it does not wait, and says so");
            assert!(maps.cached(&ObjectKey::namespaced("one", "nothing")).is_none());
            assert_eq!((pods.namespace("one").len(), pods.namespace("two").len()), (3, 0));
            assert!(pods.cached(&ObjectKey::namespaced("two", "a")).is_none());
            assert_eq!(pods.select(Some("two"), &LabelSelector::from_map(&BTreeMap::new())).len(), 0);
            notes.note(cx.env().now(), key.name());
            async { Ok(Outcome::RequeueAfter(Duration::from_secs(1))) }
        })
    });
    let _workers = world.run([reads]).await;
    let asked = || world.api.sent_requests().iter().map(|asked| asked.uri.clone()).collect::<Vec<_>>();
    let before = asked();
    world.pass(60).await;
    assert!(diary.lines().len() > 50, "it reads again and again");
    assert_eq!(asked(), before, "and nothing is asked for");
    assert!(world.asked("pods", |asked| asked.namespace != "one").is_empty());
}
