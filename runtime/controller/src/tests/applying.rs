//! Applies through a writer that knows a cache: which are sent, and which are not.

use k8s_openapi::api::apps::v1::ReplicaSet;

use super::*;
use crate::{Enqueuer, Writer};

const SET: &str = "/apis/apps/v1/namespaces/shop/replicasets/m";

/// Applies the ReplicaSet `m` every second.
struct Applying(Writer<ReplicaSet>);

impl Controller for Applying {
    const NAME: &'static str = "applying";
    /// Which ReplicaSets the cache contains.
    type Config = Selection;

    fn setup(setup: &mut Setup, selection: &Selection) -> Result<Self, SetupError> {
        let sets = setup.watch::<ReplicaSet>().selecting(selection.clone()).lister();
        Ok(Self(setup.writer::<ReplicaSet>().apply().cached_by(&sets).build()))
    }

    async fn reconcile(&self, _: &ObjectKey, cx: &Context) -> Result<Outcome, ReconcileError> {
        let desired: ReplicaSet = serde_json::from_value(set())?;
        self.0.apply(cx, &desired).await?;
        Ok(Outcome::RequeueAfter(Duration::from_secs(1)))
    }

    fn started(&self, queue: &Enqueuer) {
        queue.add(ObjectKey::namespaced("shop", "m"));
    }
}

fn set() -> serde_json::Value {
    let pod = json!({ "containers": [{ "name": "m", "image": "m" }] });
    let template = json!({ "metadata": { "labels": { "app": "m" } }, "spec": pod });
    let spec = json!({ "replicas": 1, "selector": { "matchLabels": { "app": "m" } }, "template": template });
    json!({ "metadata": { "name": "m", "namespace": "shop" }, "spec": spec })
}

async fn applying(world: &World, selection: Selection) -> Workers {
    world.start_with(Registration::with::<Applying>(selection)).await
}

#[tokio::test(start_paused = true)]
async fn repeated_applies_send_one_request_until_the_object_changes() {
    let world = World::with(&[]);
    let _workers = applying(&world, Selection::default()).await;
    world.pass(10).await;
    assert_eq!(world.work().len(), 1, "{:?}", world.work());
    let changes = [
        ("label", json!({ "metadata": { "labels": { "by": "user" } } })),
        ("annotation", json!({ "metadata": { "annotations": { "a": "b" } } })),
        ("finalizer", json!({ "metadata": { "finalizers": ["example.com/held"] } })),
        ("no finalizer", json!({ "metadata": { "finalizers": null } })),
        ("generation", json!({ "spec": { "replicas": 7 } })),
    ];
    for (name, change) in changes {
        assert_applies_once(&world, name, || drop(world.api.put(SET, change))).await;
    }
    assert_applies_once(&world, "deletion", || world.api.remove(SET)).await;
    let recreate = || {
        world.api.remove(SET);
        world.api.put(SET, json!({ "spec": set()["spec"] }));
    };
    assert_applies_once(&world, "recreation", recreate).await;
    let before = world.work().len();
    world.api.put(SET, json!({ "status": { "replicas": 1 } }));
    world.pass(10).await;
    assert_eq!(world.work().len(), before, "a status is not applied");
}

async fn assert_applies_once(world: &World, name: &str, change: impl FnOnce()) {
    let before = world.work().len();
    change();
    world.pass(10).await;
    assert_eq!(world.work().len(), before + 1, "{name}: {:?}", world.work());
    assert_eq!(world.api.object(SET).expect("applied")["spec"]["replicas"], 1, "{name}");
}

#[tokio::test(start_paused = true)]
async fn apply_that_failed_is_sent_again() {
    for what in [What::InternalError, What::ResponseLost { silently: false }] {
        let world = World::with(&[]);
        world.api.meddle(first_write(what));
        let _workers = applying(&world, Selection::default()).await;
        world.pass(10).await;
        let sent = world.api.sent().iter().filter(|asked| asked.is_work()).count();
        assert_eq!(sent, 2, "{:?}", world.api.sent());
        assert!(world.api.object(SET).is_some());
    }
}

#[tokio::test(start_paused = true)]
async fn apply_is_always_sent_if_the_cache_does_not_contain_the_object() {
    let world = World::with(&[]);
    let others = Selection { labels: Some("of=others".to_owned()), ..Selection::default() };
    let _workers = applying(&world, others).await;
    world.pass(10).await;
    assert!(world.work().len() > 5, "{:?}", world.work());
}
