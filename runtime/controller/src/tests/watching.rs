//! Watches, predicates and the resulting keys.

use k8s_openapi::api::apps::v1::ReplicaSet;
use k8s_openapi::api::core::v1::{ConfigMap, Pod, Secret, Service};
use serde_json::json;
use windlass_informer::{Cause, Event, Handler as _, Selection};
use windlass_object::{DynamicObjects, ResourceKind, Scope};

use super::*;
use crate::enqueue::enqueuer::Enqueuer;
use crate::enqueue::predicate::{annotations_changed, any, generation_changed, labels_changed, not};
use crate::enqueue::watch::to_keys;
use crate::enqueue::wiring::{Guarded, HandlerContext};
use crate::{Owners, Predicate, WatchError, by_any_owner, by_owner, by_owner_kind};
use windlass_informer::indexes::label_value;

fn secret(name: &str) -> String {
    format!("/api/v1/namespaces/shop/secrets/{name}")
}

fn owned_by(owners: &[(&str, &str, bool)]) -> serde_json::Value {
    let reference = |(kind, name, controller): &(&str, &str, bool)| json!({ "apiVersion": "v1", "kind": kind, "name": name, "uid": format!("{kind}-{name}"), "controller": controller });
    json!({ "metadata": { "ownerReferences": owners.iter().map(reference).collect::<Vec<_>>() } })
}

const WIDGETS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/widgets.example.com";

pub(super) fn widgets() -> ResourceKind {
    ResourceKind {
        group: "example.com".into(),
        version: "v1".into(),
        kind: "Widget".into(),
        plural: "widgets".into(),
        scope: Scope::Namespaced,
    }
}

pub(super) fn define_widgets(world: &World) {
    let schema =
        json!({ "openAPIV3Schema": { "type": "object", "x-kubernetes-preserve-unknown-fields": true } });
    let version = json!({ "name": "v1", "served": true, "storage": true, "schema": schema });
    let names =
        json!({ "plural": "widgets", "singular": "widget", "kind": "Widget", "listKind": "WidgetList" });
    let spec =
        json!({ "group": "example.com", "scope": "Namespaced", "names": names, "versions": [version] });
    world.api.upsert(WIDGETS, json!({ "spec": spec }));
}

pub(super) fn widget(name: &str) -> String {
    format!("/apis/example.com/v1/namespaces/shop/widgets/{name}")
}

// parity: reconciles-owned-objects-every
#[tokio::test(start_paused = true)]
async fn existing_created_changed_and_deleted_objects_are_reconciled() {
    let world = World::with(&["old"]);
    let _workers = world.watcher(|setup| drop(setup.primary::<ConfigMap>())).await;
    world.pass(1).await;
    assert_eq!(world.diary.names(), ["old"]);
    world.put("new");
    world.pass(1).await;
    world.put("new");
    world.pass(1).await;
    world.api.delete(&path("new"));
    world.pass(1).await;
    assert_eq!(world.diary.names(), ["new", "new", "new"], "created, updated, deleted");
}

// parity: controller-without-for-custom
#[tokio::test(start_paused = true)]
async fn controller_without_primary_kind_reconciles_mapped_keys() {
    let world = World::with(&[]);
    let _workers = world
        .watcher(|setup| {
            setup.primary::<ConfigMap>();
            setup.watch::<Secret>().enqueue(by_owner::<ConfigMap>);
        })
        .await;
    world.api.upsert(&secret("s1"), owned_by(&[("ConfigMap", "web", true)]));
    world.api.upsert(&secret("s2"), owned_by(&[("ConfigMap", "db", false)]));
    world.api.upsert(&secret("s3"), json!({}));
    world.pass(1).await;
    assert_eq!(world.diary.names(), ["web"], "only the controlling owner is enqueued");
    world.api.upsert(&secret("s1"), owned_by(&[("ConfigMap", "moved", true)]));
    world.pass(1).await;
    assert_eq!(world.diary.names(), ["web", "moved"], "the old owner and the new one");
}

// parity: match-every-owner, reconciles-owned-objects-every
#[tokio::test(start_paused = true)]
async fn all_owners_are_enqueued_when_configured() {
    let world = World::with(&[]);
    let _workers =
        world.watcher(|setup| drop(setup.watch::<Secret>().enqueue(by_any_owner::<ConfigMap>))).await;
    let owners = [("ConfigMap", "web", false), ("Pod", "none", true), ("ConfigMap", "db", false)];
    world.api.upsert(&secret("s"), owned_by(&owners));
    world.pass(1).await;
    assert_eq!(world.diary.names(), ["web", "db"]);
}

// parity: reconciles-owned-objects-every
#[tokio::test(start_paused = true)]
async fn mapper_finds_related_objects_by_index_of_captured_lister() {
    let world = World::with(&[]);
    let _workers = world
        .watcher(|setup| {
            let pods = setup.watch::<Pod>().lister().index(label_value("app"));
            setup.watch::<Service>().enqueue(move |service| {
                let app = service.spec.as_ref().and_then(|spec| spec.selector.as_ref()?.get("app").cloned());
                pods.keys(&app.unwrap_or_default())
            });
        })
        .await;
    for (name, app) in [("web-1", "web"), ("web-2", "web"), ("db-1", "db")] {
        let spec = json!({ "containers": [{ "name": "main", "image": "main" }] });
        let pod = json!({ "metadata": { "labels": { "app": app } }, "spec": spec });
        world.api.upsert(&format!("/api/v1/namespaces/shop/pods/{name}"), pod);
    }
    world.pass(1).await;
    assert_eq!(world.diary.names(), Vec::<String>::new(), "a Pod alone enqueues no keys");
    let spec = json!({ "selector": { "app": "web" }, "ports": [{ "port": 80 }] });
    world.api.upsert("/api/v1/namespaces/shop/services/web", json!({ "spec": spec }));
    world.pass(1).await;
    assert_eq!(world.diary.names(), ["web-1", "web-2"]);
}

// parity: predicates-only-assigned-kind
#[tokio::test(start_paused = true)]
async fn predicates_apply_to_their_watch_and_must_all_accept() {
    let world = World::with(&[]);
    let _workers = world
        .watcher(|setup| {
            let named = |suffix: &'static str| {
                move |map: &ConfigMap| map.metadata.name.as_deref().is_some_and(|name| name.ends_with(suffix))
            };
            let both = setup.watch::<ConfigMap>().when(Predicate::on_object(named("e")));
            both.when(not(Predicate::on_object(named("ue")))).enqueue(by_self);
            setup.primary::<Secret>();
        })
        .await;
    ["blue", "white", "red"].iter().for_each(|name| world.put(name));
    world.api.upsert(&secret("red-secret"), json!({}));
    world.pass(1).await;
    let mut names = world.diary.names();
    names.sort();
    assert_eq!(names, ["red-secret", "white"], "the second predicate did not replace the first");
}

// parity: predicates-generation-labels-annotations
#[tokio::test(start_paused = true)]
async fn generation_predicate_drops_status_and_annotation_updates() {
    let world = World::with(&[]);
    let _workers = world
        .watcher(|setup| {
            setup.primary::<ReplicaSet>().when(any([generation_changed(), labels_changed()]));
            setup.primary::<ConfigMap>().when(annotations_changed());
        })
        .await;
    let path = "/apis/apps/v1/namespaces/shop/replicasets/web";
    let container = json!({ "name": "main", "image": "main" });
    let template =
        json!({ "metadata": { "labels": { "app": "web" } }, "spec": { "containers": [container] } });
    let spec = |replicas: u32| json!({ "spec": { "replicas": replicas, "selector": { "matchLabels": { "app": "web" } }, "template": template } });
    let seen = async |change: serde_json::Value, at: &str| {
        world.api.upsert(at, change);
        world.pass(1).await;
        world.diary.names().len()
    };
    assert_eq!(seen(spec(1), path).await, 1, "a creation passes");
    assert_eq!(seen(json!({ "metadata": { "annotations": { "note": "x" } } }), path).await, 0);
    assert_eq!(seen(spec(2), path).await, 1, "the generation changed");
    assert_eq!(seen(json!({ "metadata": { "labels": { "tier": "front" } } }), path).await, 1);
    let map = super::path("m");
    assert_eq!(seen(json!({ "data": { "a": "1" } }), &map).await, 1);
    assert_eq!(seen(json!({ "data": { "a": "2" } }), &map).await, 0);
    assert_eq!(seen(json!({ "metadata": { "annotations": { "note": "x" } } }), &map).await, 1);
    world.api.delete(&map);
    world.pass(1).await;
    assert_eq!(world.diary.names(), ["m"], "a deletion passes");
}

// parity: for-resource
#[tokio::test(start_paused = true)]
async fn dynamic_kinds_are_watched_like_typed_kinds() {
    let world = World::with(&[]);
    define_widgets(&world);
    world.api.upsert(&widget("old"), json!({ "spec": { "size": 1 } }));
    let _workers = world
        .watcher(|setup| {
            setup.watch_dynamic(widgets()).primary().when(generation_changed());
            let by_map = by_owner_kind(ResourceKind::of::<ConfigMap>(), Owners::Controller);
            setup.watch_dynamic(ResourceKind::of::<Secret>()).enqueue(by_map);
        })
        .await;
    world.pass(1).await;
    assert_eq!(world.diary.names(), ["old"]);
    world.api.upsert(&widget("new"), json!({ "spec": { "size": 1 } }));
    world.api.upsert(&secret("s"), owned_by(&[("ConfigMap", "web", true)]));
    world.pass(1).await;
    let mut names = world.diary.names();
    names.sort();
    assert_eq!(names, ["new", "web"]);
}

// parity: factories-listers-metadatainformer, watches-metadata, metadata-projections-several-controllers
// parity: metadata-watches
#[tokio::test(start_paused = true)]
async fn metadata_and_full_watches_of_one_kind_run_side_by_side() {
    let world = World::with(&[]);
    let _workers = world
        .watcher(|setup| {
            let kind = ResourceKind::of::<ConfigMap>();
            setup.watch_metadata(kind).when(labels_changed()).enqueue(|map| {
                vec![ObjectKey::cluster(&format!(
                    "meta-{}",
                    map.metadata.name.as_deref().unwrap_or_default()
                ))]
            });
            setup.primary::<ConfigMap>();
        })
        .await;
    world.api.upsert(&path("m"), json!({ "data": { "a": "1" } }));
    world.pass(1).await;
    let mut names = world.diary.names();
    names.sort();
    assert_eq!(names, ["m", "meta-m"]);
    world.api.upsert(&path("m"), json!({ "data": { "a": "2" } }));
    world.pass(1).await;
    assert_eq!(world.diary.names(), ["m"], "only the version in its metadata changed");
}

// parity: handler-funcs, no-cause-event-reconcile
#[tokio::test(start_paused = true)]
async fn event_cause_distinguishes_initial_list_from_deletion() {
    let world = World::with(&["m"]);
    let causes: Arc<Mutex<Vec<(&str, Cause)>>> = Arc::default();
    let noted = Arc::clone(&causes);
    let _workers = world
        .watcher(move |setup| {
            let noted = Arc::clone(&noted);
            setup.watch::<ConfigMap>().on_event(move |event, _| {
                let what = match event {
                    Event::Added { .. } => "added",
                    Event::Updated { .. } => "updated",
                    Event::Deleted { .. } => "deleted",
                };
                noted.lock().expect("whole").push((what, event.cause()));
            });
        })
        .await;
    world.put("m");
    world.pass(1).await;
    world.api.delete(&path("m"));
    world.pass(1).await;
    let causes = causes.lock().expect("whole").clone();
    let expected = [("added", Cause::InitialList), ("updated", Cause::Watch), ("deleted", Cause::Watch)];
    assert_eq!(causes, expected);
}

/// A controller that starts to watch widgets at the key `begin` and stops at the key `end`.
async fn explorer(world: &World) -> Workers {
    let wire = |setup: &mut Setup| {
        setup.uses_rule(windlass_object::Rule::new("example.com", "*", [Verb::List, Verb::Watch]));
        setup.primary::<ConfigMap>();
    };
    let act = |key: ObjectKey, cx: Context| async move {
        match key.name() {
            "begin" => {
                let widgets = DynamicObjects::new(widgets());
                cx.watches()
                    .add("widgets", widgets, Selection::default(), to_keys(by_self))
                    .map_err(terminal)?;
            }
            "end" => assert!(cx.watches().remove("widgets"), "there was one"),
            _ => {}
        }
        Ok(Outcome::Done)
    };
    world.start_with(world.scripted(wire, act)).await
}

// parity: watches-controllers-cannot-removed, no-watches-added-removed
#[tokio::test(start_paused = true)]
async fn dynamic_watch_delivers_existing_and_changed_objects() {
    let world = World::with(&["begin"]);
    define_widgets(&world);
    world.api.upsert(&widget("old"), json!({}));
    let _workers = explorer(&world).await;
    world.pass(1).await;
    assert_eq!(world.diary.names(), ["begin", "old"]);
    world.put("begin");
    world.api.upsert(&widget("new"), json!({}));
    world.pass(1).await;
    let mut names = world.diary.names();
    names.sort();
    assert_eq!(names, ["begin", "new"], "the watch exists once after two additions");
    world.put("end");
    world.pass(1).await;
    world.api.upsert(&widget("late"), json!({}));
    world.pass(1).await;
    assert_eq!(world.diary.names(), ["end"]);
    world.put("begin");
    world.pass(1).await;
    let mut names = world.diary.names();
    names.sort();
    assert_eq!(names, ["begin", "late", "new", "old"], "the watch can be added again");
}

// parity: watches-controllers-cannot-removed, no-watches-added-removed
#[tokio::test(start_paused = true)]
async fn removed_watch_drops_its_unused_cache() {
    let world = World::with(&["begin"]);
    define_widgets(&world);
    let _workers = explorer(&world).await;
    let watches = || {
        let sent = world.api.sent_requests();
        sent.iter().filter(|asked| asked.resource == "widgets" && asked.is_watch()).count()
    };
    world.pass(900).await;
    assert!(watches() > 1, "a watch lasts a few minutes, and is reopened");
    world.put("end");
    world.pass(1).await;
    let before = watches();
    world.pass(900).await;
    assert_eq!(watches(), before);
}

// parity: crd-absent-start-uninstalled
#[tokio::test(start_paused = true)]
async fn watch_on_uninstalled_kind_starts_once_its_crd_is_installed() {
    let world = World::with(&["begin", "calm"]);
    let _workers = explorer(&world).await;
    world.pass(1).await;
    let mut names = world.diary.names();
    names.sort();
    assert_eq!(names, ["begin", "calm"], "the reconcile that requested it has ended");
    world.put("calm");
    world.pass(30).await;
    assert_eq!(world.diary.names(), ["calm"]);
    define_widgets(&world);
    world.api.upsert(&widget("first"), json!({}));
    world.pass(600).await;
    assert_eq!(world.diary.names(), ["first"], "no restart, and no further request");
}

// parity: no-watches-added-removed
#[tokio::test(start_paused = true)]
async fn undeclared_or_duplicate_watch_is_rejected_with_remedy() {
    let world = World::with(&[]);
    let kept: Arc<Mutex<Option<crate::DynamicWatches>>> = Arc::default();
    let theirs = Arc::clone(&kept);
    let wire = move |setup: &mut Setup| {
        *theirs.lock().expect("whole") = Some(setup.watches());
        setup.watch::<ConfigMap>();
        setup.watch::<Secret>();
    };
    let readied = world.ready(world.scripted(wire, |_, _| async { Ok(Outcome::Done) }));
    let watches = kept.lock().expect("whole").clone().expect("set up");
    let add = |name: &str, kind| {
        watches.add(name, DynamicObjects::new(kind), Selection::default(), to_keys(by_self)).map(drop)
    };
    let maps = || ResourceKind::of::<ConfigMap>();
    assert!(matches!(add("maps", maps()), Err(WatchError::NotRunning { .. })), "setup is for that");
    let workers = readied.prepared.start(readied.resources).await.expect("started");
    add("maps", maps()).expect("declared");
    add("maps", maps()).expect("the same again");
    assert!(matches!(add("maps", ResourceKind::of::<Secret>()), Err(WatchError::NameTaken { .. })));
    let refused = add("widgets", widgets()).expect_err("not declared").to_string();
    assert!(
        refused.contains(r#"Rule::new("example.com", "widgets", [Verb::List, Verb::Watch])"#),
        "{refused}"
    );
    world.pass(1).await;
    assert_eq!(watches.has_synced("maps"), Some(true));
    assert_eq!((watches.has_synced("widgets"), watches.unsynced_reason("maps")), (None, None));
    workers.stop();
    assert!(matches!(add("more", maps()), Err(WatchError::NotRunning { .. })));
    assert_eq!(watches.list(), []);
}

// parity: several-controllers-kind, metadata-projections-several-controllers
#[tokio::test(start_paused = true)]
async fn several_controllers_watch_one_kind_in_one_cache() {
    let world = World::with(&["m"]);
    let Readied { prepared, factory, resources } = world.ready(
        world.scripted(|setup| drop(setup.primary::<ConfigMap>()), |_, _| async { Ok(Outcome::Done) }),
    );
    let other = world.scripted(
        |setup| {
            setup.watch::<ConfigMap>().enqueue(|map| {
                vec![ObjectKey::cluster(&format!(
                    "other-{}",
                    map.metadata.name.as_deref().unwrap_or_default()
                ))]
            });
        },
        |_, _| async { Ok(Outcome::Done) },
    );
    let other = other.prepare(Host::new(world.env.clone(), Metrics::new(), factory.clone())).expect("set up");
    let _first = prepared.start(resources.clone()).await.expect("started");
    let _second = other.start(resources).await.expect("started");
    world.pass(1).await;
    let mut names = world.diary.names();
    names.sort();
    assert_eq!(names, ["m", "other-m"]);
    assert_eq!(factory.kinds().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn handler_that_missed_objects_queues_every_key() {
    let world = World::with(&["a", "b"]);
    let handler_context: Arc<Mutex<Option<HandlerContext>>> = Arc::default();
    let theirs = Arc::clone(&handler_context);
    let wire = move |setup: &mut Setup| {
        setup.primary::<ConfigMap>();
        *theirs.lock().expect("whole") = Some(setup.handler_context());
    };
    let _workers = world.watcher(wire).await;
    world.pass(1).await;
    world.diary.names();
    let handler_context = handler_context.lock().expect("whole").clone().expect("set up");
    let kind = ResourceKind::of::<Secret>();
    let mut handler = Guarded::new(&kind, &handler_context, |_: &Event<Arc<ConfigMap>>, _: &Enqueuer| {});
    handler.missed();
    world.pass(1).await;
    assert_eq!(world.diary.names(), ["a", "b"]);
}

#[tokio::test(start_paused = true)]
async fn handler_reconciles_keys_of_missed_objects() {
    let world = World::with(&["a"]);
    let handler_context: Arc<Mutex<Option<HandlerContext>>> = Arc::default();
    let theirs = Arc::clone(&handler_context);
    let wire = move |setup: &mut Setup| {
        setup.watch::<ConfigMap>().enqueue(|_| vec![ObjectKey::namespaced("default", "all")]);
        *theirs.lock().expect("whole") = Some(setup.handler_context());
    };
    let _workers = world.watcher(wire).await;
    world.pass(1).await;
    world.diary.names();
    let handler_context = handler_context.lock().expect("whole").clone().expect("set up");
    let mut handler = Guarded::new(
        &ResourceKind::of::<Secret>(),
        &handler_context,
        |_: &Event<Arc<ConfigMap>>, _: &Enqueuer| {},
    );
    handler.missed();
    world.pass(1).await;
    assert_eq!(world.diary.names(), ["all"]);
}
