//! Changes that need no restart: CRDs that are installed late and removed, missing permissions, and namespaces and
//! watches that are added and removed.

use std::time::Duration;

use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use serde_json::json;
use windlass::controller::CacheSync;
use windlass::informer::{NamespaceSet, Selection};
use windlass::object::{DynamicObjects, ResourceKind, Scope, TypedObjects};
use windlass::prelude::*;
use windlass::testing::api_server::faults::RequestSummary;
use windlass_informer::FactoryOptions;

use crate::world::{ReconcileLog, World, act, controller, map, noting};

const DEFINITION: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/widgets.example.com";

fn widgets() -> ResourceKind {
    ResourceKind {
        group: "example.com".into(),
        version: "v1".into(),
        kind: "Widget".into(),
        plural: "widgets".into(),
        scope: Scope::Namespaced,
    }
}

fn widget(name: &str) -> String {
    format!("/apis/example.com/v1/namespaces/shop/widgets/{name}")
}

fn define_widgets(world: &World) {
    let schema =
        json!({ "openAPIV3Schema": { "type": "object", "x-kubernetes-preserve-unknown-fields": true } });
    let version = json!({ "name": "v1", "served": true, "storage": true, "schema": schema });
    let names =
        json!({ "kind": "Widget", "plural": "widgets", "singular": "widget", "listKind": "WidgetList" });
    let spec =
        json!({ "group": "example.com", "scope": "Namespaced", "names": names, "versions": [version] });
    world.api.upsert(DEFINITION, json!({ "spec": spec }));
}

fn put_widget(world: &World, name: &str) {
    let head = json!({ "apiVersion": "example.com/v1", "kind": "Widget", "metadata": { "labels": { "some": name } } });
    world.api.upsert(&widget(name), head);
}

/// A controller of ConfigMaps that must not be affected by failures of other controllers.
fn healthy(log: &ReconcileLog) -> Registration {
    let log = log.clone();
    controller("healthy", move |setup| {
        setup.primary::<ConfigMap>();
        noting(&log)
    })
}

fn of_widgets(log: &ReconcileLog) -> Registration {
    let log = log.clone();
    controller("of-widgets", move |setup| {
        setup.cache_sync(CacheSync::Forever);
        let widgets = setup.watch_dynamic(widgets()).primary().lister();
        let log = log.clone();
        act(move |key, cx| {
            let there = if widgets.get_lossy(&key).is_some() { "there" } else { "gone" };
            log.note(cx.env().now(), &format!("{} {there}", key.name()));
            async { Ok(Outcome::Done) }
        })
    })
}

/// controller-runtime fails the whole manager if a CRD is missing at the start, and does not detect that a CRD is
/// removed later (controller-runtime #1179, #840).
// parity: controller-context-available-resources, kind-polls, crd-absent-start-uninstalled
#[tokio::test(start_paused = true)]
async fn installing_and_removing_crd_does_not_affect_other_controllers() {
    let world = World::new();
    let (maps, seen) = (ReconcileLog::default(), ReconcileLog::default());
    let (healthy, late) = (world.launch(healthy(&maps)), world.launch(of_widgets(&seen)));
    world.pass(30).await;
    world.put("a");
    world.pass(1).await;
    assert!(healthy.works(), "{:?}", healthy.error());
    assert_eq!(maps.lines(), ["a"], "other controllers do not wait for the missing CRD");
    assert!(!late.works() && late.error().is_none(), "{:?}", late.error());
    let count = world.sent_uris("widgets", |_| true).len();
    assert!((1..20).contains(&count), "{count} requests for a missing kind in 30 s");
    define_widgets(&world);
    put_widget(&world, "first");
    world.pass(120).await;
    assert!(late.works(), "{:?}", late.error());
    assert_eq!(seen.lines(), ["first there"]);
    seen.clear();
    world.api.delete(DEFINITION);
    world.pass(300).await;
    assert_eq!(seen.lines(), ["first gone"], "removing the CRD deletes its objects");
    seen.clear();
    define_widgets(&world);
    put_widget(&world, "second");
    world.pass(120).await;
    assert_eq!(seen.lines(), ["second there"]);
    world.put("b");
    world.pass(1).await;
    assert_eq!(maps.lines(), ["a", "b"]);
}

fn of_secrets(log: &ReconcileLog, timeout: CacheSync) -> Registration {
    let log = log.clone();
    controller("of-secrets", move |setup| {
        setup.cache_sync(timeout);
        setup.primary::<Secret>();
        noting(&log)
    })
}

/// In controller-runtime one missing permission blocks every controller of the process, and the error does not name the
/// permission (controller-runtime #550, #1653; kubeswift #460, kuberay #5186).
// parity: missing-right-blocks-everything
#[tokio::test(start_paused = true)]
async fn missing_permission_stops_only_dependent_controller() {
    let world = World::new();
    world.forbid("secrets", true);
    let (maps, secrets) = (ReconcileLog::default(), ReconcileLog::default());
    let within = CacheSync::Within(Duration::from_secs(20));
    let (healthy, barred) = (world.launch(healthy(&maps)), world.launch(of_secrets(&secrets, within)));
    world.put("a");
    world.pass(5).await;
    assert!(healthy.works());
    assert_eq!(maps.lines(), ["a"]);
    world.pass(60).await;
    let error = barred.error().expect("the start failed");
    assert!(
        error.contains("secrets") && error.contains("list"),
        "the error must name the resource and the verb: {error}"
    );
}

/// A controller without a sync timeout starts automatically once the permission is granted.
// parity: missing-right-blocks-everything
#[tokio::test(start_paused = true)]
async fn permission_granted_later_is_detected_without_restart() {
    let world = World::new();
    world.forbid("secrets", true);
    world.api.upsert("/api/v1/namespaces/shop/secrets/one", json!({}));
    let secrets = ReconcileLog::default();
    let patient = world.launch(of_secrets(&secrets, CacheSync::Forever));
    world.pass(600).await;
    assert!(!patient.works());
    world.forbid("secrets", false);
    world.pass(180).await;
    assert!(patient.works(), "{:?}", patient.error());
    assert_eq!(secrets.lines(), ["one"]);
}

/// The set of namespaces of a controller-runtime cache is fixed at its start (controller-runtime #2829, #1590).
// parity: with-namespace, default-namespaces, multi-namespace-cache-informer, namespace-all, dynamic-namespaces
#[tokio::test(start_paused = true)]
async fn namespaces_are_added_and_removed_while_controllers_run() {
    let namespaces = NamespaceSet::from_names(["shop", "mail"]);
    let options = FactoryOptions { namespaces: Some(namespaces.clone()), ..FactoryOptions::default() };
    let world = World::new().with(options);
    let put = |namespace: &str, name: &str| {
        world.api.upsert(&format!("/api/v1/namespaces/{namespace}"), json!({}));
        world.api.upsert(&format!("/api/v1/namespaces/{namespace}/configmaps/{name}"), json!({}));
    };
    for namespace in ["shop", "mail", "news"] {
        put(namespace, namespace);
    }
    let log = ReconcileLog::default();
    let notes = log.clone();
    let of_a_few = controller("of-a-few", move |setup| {
        let notes = notes.clone();
        let maps = setup.primary::<ConfigMap>().lister();
        act(move |key, cx| {
            let there = if maps.get_lossy(&key).is_some() { "there" } else { "gone" };
            notes.note(cx.env().now(), &format!("{} {there}", key.name()));
            async { Ok(Outcome::Done) }
        })
    });
    let _workers = world.run([of_a_few]).await;
    world.pass(5).await;
    let sorted = |log: &ReconcileLog| {
        let mut lines = log.lines();
        lines.sort();
        log.clear();
        lines
    };
    assert_eq!(sorted(&log), ["mail there", "shop there"]);
    namespaces.insert("news");
    world.pass(5).await;
    assert_eq!(sorted(&log), ["news there"], "adding a namespace does not affect the others");
    namespaces.remove("mail");
    world.pass(5).await;
    assert_eq!(sorted(&log), ["mail gone"], "objects of a removed namespace are delivered as deleted");
    put("mail", "unseen");
    put("news", "seen");
    put("shop", "seen-too");
    world.pass(5).await;
    assert_eq!(sorted(&log), ["seen there", "seen-too there"]);
    assert!(
        world.sent_uris("configmaps", |request| request.namespace.is_empty()).is_empty(),
        "no request spans all namespaces"
    );
}

/// controller-runtime cannot remove a watch at run time (controller-runtime #1884, #2983), and kube-rs cannot add one
/// either. Here a removed watch delivers no more events, and its cache stops if it has no other reader.
// parity: two-types-for-neither, watches-controllers-cannot-removed, no-watches-added-removed
#[tokio::test(start_paused = true)]
async fn controller_adds_a_watch_and_removes_it_while_it_runs() {
    let world = World::new();
    define_widgets(&world);
    put_widget(&world, "w");
    let log = ReconcileLog::default();
    let notes = log.clone();
    let flexible = controller("flexible", move |setup| {
        setup.uses_rule(Rule::new("example.com", "widgets", [Verb::List, Verb::Watch]));
        setup.primary::<ConfigMap>();
        let (notes, watches) = (notes.clone(), setup.watches());
        act(move |key, cx| {
            notes.note(cx.env().now(), key.name());
            match key.name() {
                "wish" => {
                    let added = watches.add(
                        "widgets",
                        DynamicObjects::new(widgets()),
                        Selection::default(),
                        |event, queue| queue.add_all(by_self(&**event.object())),
                    );
                    drop(added.expect("declared"));
                }
                "enough" => assert!(watches.remove("widgets")),
                _ => {}
            }
            async { Ok(Outcome::Done) }
        })
    });
    let _workers = world.run([flexible]).await;
    world.pass(5).await;
    assert_eq!(world.sent_uris("widgets", |_| true), Vec::<String>::new());
    world.put("wish");
    world.pass(5).await;
    put_widget(&world, "w2");
    world.pass(5).await;
    assert_eq!(log.lines(), ["wish", "w", "w2"]);
    world.put("enough");
    world.pass(5).await;
    put_widget(&world, "w3");
    world.pass(5).await;
    assert_eq!(log.lines(), ["wish", "w", "w2", "enough"]);
    let opened = world.sent_uris("widgets", |_| true).len();
    log.clear();
    world.put("wish");
    world.pass(5).await;
    let mut received = log.lines();
    received.sort();
    assert_eq!(received, ["w", "w2", "w3", "wish"]);
    assert_eq!(
        world.sent_uris("widgets", |_| true).len(),
        2 * opened,
        "the cache without readers stopped and is created again"
    );
}

/// One factory has a dynamic and a typed cache of the same kind.
// parity: for-resource
#[tokio::test(start_paused = true)]
async fn kind_known_only_at_run_time_is_cached_like_any_other() {
    let world = World::new();
    define_widgets(&world);
    put_widget(&world, "w");
    world.put("a");
    let factory = world.factory("caches");
    let dynamic = factory.informer(DynamicObjects::new(widgets()), Selection::default());
    let known =
        factory.informer(DynamicObjects::new(ResourceKind::of::<ConfigMap>()), Selection::default()).lister();
    let typed = factory.informer(TypedObjects::<ConfigMap>::new(), Selection::default()).lister();
    let widgets = dynamic.lister();
    let labeled = widgets.index(|widget| widget.metadata.labels.clone().unwrap_or_default().into_values());
    world.sync(&factory).await;
    assert_eq!(labeled.count(&"w".to_owned()), 1);
    assert_eq!(widgets.list()[0].types.as_ref().map(|types| types.kind.as_str()), Some("Widget"));
    assert_eq!((known.len(), typed.len()), (1, 1));
    world.api.remove(&map("a"));
    world.pass(1).await;
    assert_eq!((known.len(), typed.len()), (0, 0));
    assert_eq!(
        world.sent_uris("configmaps", RequestSummary::is_watch).len(),
        2,
        "one watch per representation"
    );
}
