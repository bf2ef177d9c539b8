//! The API server as the source, over the wire: the requests and the resulting caches.

mod protobuf;

use std::time::Duration;

use k8s_openapi::api::core::v1::ConfigMap;
use serde_json::{Value, json};
use windlass_api_server::faults::{Fault, FaultAction, FaultPlan, FaultyServer};
use windlass_env::Env;
use windlass_metrics::Metrics;
use windlass_object::{DynamicObjects, MetadataObjects, ObjectKey, Representation, TypedObjects};

use super::*;
use crate::{FactoryOptions, InformerFactory, SharedInformer};

const MAPS: &str = "/api/v1/namespaces/default/configmaps";
const HOUR: Duration = Duration::from_secs(3600);

struct World {
    env: Env,
    scene: FaultyServer,
    factory: InformerFactory,
    sources: ApiServerSources,
}

impl World {
    fn with(faults: Vec<Fault>) -> Self {
        let env = Env::virtual_time(1);
        let scene = FaultyServer::new(&env, FaultPlan { seed: 1, faults });
        let client = RawClient::new(kube::Client::new(scene.link(), "default"), env.clone());
        let factory = InformerFactory::new(env.clone(), Metrics::new(), FactoryOptions::default());
        Self { env, scene, factory, sources: ApiServerSources::new(client) }
    }

    fn put(&self, name: &str, tier: &str) {
        let labels = json!({"metadata": {"labels": {"tier": tier}}, "data": {"value": tier}});
        self.scene.upsert(&format!("{MAPS}/{name}"), labels);
    }

    fn informer<R: Representation>(
        &self,
        representation: R,
        selection: Selection,
    ) -> SharedInformer<R::Object> {
        let informer = self.factory.informer(representation, selection);
        self.factory.start(Arc::new(self.sources.clone()));
        informer
    }

    async fn settle(&self) {
        self.env.sleep(Duration::from_secs(1)).await;
    }

    /// Returns the kinds of the requests for ConfigMaps: `stream`, `page` or `watch`.
    fn asked(&self) -> Vec<&'static str> {
        let sent = self.scene.sent_requests();
        let about_maps = sent.iter().filter(|asked| asked.resource == "configmaps");
        about_maps
            .map(|asked| match () {
                () if asked.uri.contains("sendInitialEvents=true") => "stream",
                () if asked.is_watch() => "watch",
                () => "page",
            })
            .collect()
    }
}

fn maps() -> TypedObjects<ConfigMap> {
    TypedObjects::new()
}

fn kind() -> ResourceKind {
    ResourceKind::of::<ConfigMap>()
}

fn names(informer: &SharedInformer<ConfigMap>) -> Vec<String> {
    let list = informer.lister().list();
    list.iter()
        .filter_map(|map| map.metadata.name.clone())
        .filter(|name| name != "kube-root-ca.crt")
        .collect()
}

#[tokio::test(start_paused = true)]
async fn list_and_watch_share_one_stream() {
    let world = World::with(vec![]);
    world.put("a", "front");
    let informer = world.informer(maps(), Selection::default());
    world.settle().await;
    assert_eq!(names(&informer), ["a"]);
    world.put("b", "back");
    world.settle().await;
    assert_eq!((names(&informer), world.asked()), (vec!["a".to_owned(), "b".to_owned()], vec!["stream"]));
}

// parity: test-to-list-watcher-with-watch-list
#[tokio::test(start_paused = true)]
async fn source_without_watch_list_requests_no_streams() {
    let world = World::with(vec![]);
    for number in 0..1_100 {
        world.put(&format!("map-{number:04}"), "front");
    }
    let informer = world.factory.informer(maps(), Selection::default());
    world.factory.start(Arc::new(world.sources.clone().without_watch_list()));
    world.settle().await;
    assert_eq!((names(&informer).len(), world.asked()), (1_100, vec!["page", "page", "page", "watch"]));
}

// parity: watch-list-falls-back, watch-list-never-falls
#[tokio::test(start_paused = true)]
async fn broken_streams_fall_back_to_pages_for_all_informers_for_hours() {
    let world = World::with(vec![Fault::until(HOUR, FaultAction::EndBookmarkMissing)]);
    world.put("a", "front");
    let informer = world.informer(maps(), Selection::default());
    world.env.sleep(Duration::from_secs(20)).await;
    assert_eq!((names(&informer), world.asked()), (vec!["a".to_owned()], vec!["stream", "page", "watch"]));

    let other = world.informer(maps(), Selection::in_namespace("default"));
    world.settle().await;
    assert_eq!((names(&other), &world.asked()[3..]), (vec!["a".to_owned()], ["page", "watch"].as_slice()));

    world.env.sleep(WATCH_LIST_PAUSE).await;
    let asked = world.asked().len();
    let later = world.informer(DynamicObjects::new(kind()), Selection::default());
    world.settle().await;
    assert!(
        later.has_synced() && world.asked()[asked..].contains(&"stream"),
        "{:?}",
        &world.asked()[asked..]
    );
}

// parity: any-semantic
#[tokio::test(start_paused = true)]
async fn server_applies_namespace_label_and_field_selectors() {
    let world = World::with(vec![]);
    for (name, tier) in [("a", "front"), ("b", "back"), ("c", "front")] {
        world.put(name, tier);
    }
    let labels = Some("tier in (front)".to_owned());
    let fields = Some("metadata.name!=c".to_owned());
    let cases = [
        (Selection { labels: labels.clone(), ..Selection::default() }, vec!["a", "c"]),
        (Selection { fields: fields.clone(), ..Selection::in_namespace("default") }, vec!["a", "b"]),
        (Selection { labels, fields, ..Selection::default() }, vec!["a"]),
        (Selection::in_namespace("elsewhere"), vec![]),
    ];
    let informers: Vec<_> = cases
        .into_iter()
        .map(|(selection, expected)| (world.informer(maps(), selection), expected))
        .collect();
    world.settle().await;
    for (informer, expected) in &informers {
        assert_eq!(names(informer), *expected, "{}", informer.selection());
    }
    // An object that no longer matches a selection is removed from it.
    world.put("a", "back");
    world.settle().await;
    let left: Vec<_> = informers.iter().map(|(informer, _)| names(informer)).collect();
    assert_eq!(left, [vec!["c"], vec!["a", "b"], vec![], vec![]]);
}

// parity: for-resource, factories-listers-metadatainformer
#[tokio::test(start_paused = true)]
async fn metadata_and_dynamic_informers_follow_changes() {
    let world = World::with(vec![]);
    world.put("a", "front");
    let metadata = world.informer(MetadataObjects::new(kind()), Selection::default());
    let dynamic = world.informer(DynamicObjects::new(kind()), Selection::default());
    world.settle().await;
    let key = ObjectKey::namespaced("default", "a");
    for tier in ["front", "back"] {
        world.put("a", tier);
        world.settle().await;
        let of_metadata = metadata.lister().get_lossy(&key).expect("it is cached");
        let labels = of_metadata.metadata.labels.clone().unwrap_or_default();
        assert_eq!(labels.get("tier").map(String::as_str), Some(tier));
        assert_eq!(of_metadata.types.as_ref().map(|types| &*types.kind), Some("ConfigMap"));
        let of_dynamic = dynamic.lister().get_lossy(&key).expect("it is cached");
        assert_eq!(of_dynamic.data["data"]["value"], Value::from(tier));
    }
    world.scene.delete(&format!("{MAPS}/a"));
    world.settle().await;
    assert!(metadata.lister().get_lossy(&key).is_none() && dynamic.lister().get_lossy(&key).is_none());
    assert_eq!(world.asked(), ["stream", "stream"]);
}

#[tokio::test(start_paused = true)]
async fn caches_equal_server_after_every_stream_fault() {
    let second = |seconds| Duration::from_secs(seconds);
    let faults = [
        FaultAction::EndBookmarkMissing,
        FaultAction::WatchReset,
        FaultAction::WatchClosed,
        FaultAction::WatchExpired,
        FaultAction::WatchStalled,
        FaultAction::Expired,
        FaultAction::TooManyRequests { retry_after_seconds: 2 },
        FaultAction::InternalError,
        FaultAction::Unavailable,
        FaultAction::EventDuplicated,
        FaultAction::WatchDelayed { by_ms: 3_000 },
    ];
    for what in faults {
        let world = World::with(vec![Fault::until(second(120), what.clone()).permille(600)]);
        world.put("a", "front");
        let informer = world.informer(maps(), Selection::default());
        for round in 0..40 {
            world.put(&format!("map-{}", round % 7), &format!("tier-{round}"));
            if round % 5 == 0 {
                world.scene.delete(&format!("{MAPS}/map-{}", round % 7));
            }
            world.env.sleep(second(5)).await;
        }
        world.env.sleep(second(400)).await;
        let held = essences(informer.lister().list().iter().map(|map| json!(**map)));
        let there = essences(world.scene.all(MAPS));
        assert_eq!(held, there, "{what:?}");
        assert!(!there.is_empty(), "there is something to compare");
    }
}

/// Returns name, version and data of each object.
fn essences(objects: impl IntoIterator<Item = Value>) -> Vec<Value> {
    let essence = |object: Value| {
        let version = &object["metadata"]["resourceVersion"];
        name(&object).map(|name| json!([name, version, object["data"]]))
    };
    objects.into_iter().filter_map(essence).collect()
}

fn name(object: &Value) -> Option<String> {
    object["metadata"]["name"].as_str().filter(|name| *name != "kube-root-ca.crt").map(str::to_owned)
}
