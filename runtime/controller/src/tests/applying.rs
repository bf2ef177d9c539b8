//! Server-side apply through a writer with a cache: unchanged objects send no request.

use k8s_openapi::api::apps::v1::ReplicaSet;
use k8s_openapi::api::scheduling::v1::PriorityClass;

use kube::api::DeleteParams;
use kube::core::{ApiResource, DynamicObject, GroupVersionKind};

use super::watching::{define_widgets, widget, widgets};
use super::*;
use crate::{Change, Deletion, Enqueuer, Writer};

const SET: &str = "/apis/apps/v1/namespaces/shop/replicasets/m";

/// Applies the ReplicaSet `m` every second.
struct Applying(Writer<ReplicaSet>);

impl Controller for Applying {
    const NAME: &'static str = "applying";
    /// The selection of cached ReplicaSets.
    type Config = Selection;

    fn setup(setup: &mut Setup, selection: &Selection) -> Result<Self, SetupError> {
        let sets = setup.watch::<ReplicaSet>().with_selection(selection.clone()).lister();
        Ok(Self(setup.writer::<ReplicaSet>().apply().skip_unchanged(&sets).build()))
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
    world.start_with(Registration::controller_with::<Applying>(selection)).await
}

// parity: controllerutil-references
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
        assert_applies_once(&world, name, || drop(world.api.upsert(SET, change))).await;
    }
    assert_applies_once(&world, "deletion", || world.api.remove(SET)).await;
    let recreate = || {
        world.api.remove(SET);
        world.api.upsert(SET, json!({ "spec": set()["spec"] }));
    };
    assert_applies_once(&world, "recreation", recreate).await;
    let before = world.work().len();
    world.api.upsert(SET, json!({ "status": { "replicas": 1 } }));
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
    for what in [FaultAction::InternalError, FaultAction::ResponseLost { silently: false }] {
        let world = World::with(&[]);
        world.api.inject_fault(first_write(what));
        let _workers = applying(&world, Selection::default()).await;
        world.pass(10).await;
        let sent = world.api.sent_requests().iter().filter(|asked| asked.is_work()).count();
        assert_eq!(sent, 2, "{:?}", world.api.sent_requests());
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

/// Applies a PriorityClass every second: a kind without generation changes.
struct Classes(Writer<PriorityClass>);

impl Controller for Classes {
    const NAME: &'static str = "classes";
    type Config = ();

    fn setup(setup: &mut Setup, (): &()) -> Result<Self, SetupError> {
        let classes = setup.watch::<PriorityClass>().lister();
        Ok(Self(setup.writer::<PriorityClass>().apply().skip_unchanged(&classes).build()))
    }

    async fn reconcile(&self, _: &ObjectKey, cx: &Context) -> Result<Outcome, ReconcileError> {
        let mut class = PriorityClass {
            value: Some(7),
            description: Some("ours".to_owned()),
            ..PriorityClass::default()
        };
        class.metadata.name = Some("m".to_owned());
        self.0.apply(cx, &class).await?;
        Ok(Outcome::RequeueAfter(Duration::from_secs(1)))
    }

    fn started(&self, queue: &Enqueuer) {
        queue.add(ObjectKey::cluster("m"));
    }
}

#[tokio::test(start_paused = true)]
async fn change_that_no_generation_counts_is_undone() {
    const CLASS: &str = "/apis/scheduling.k8s.io/v1/priorityclasses/m";
    let world = World::with(&[]);
    let _workers = world.start_with(Registration::controller::<Classes>()).await;
    world.pass(10).await;
    assert_eq!(world.work().len(), 1, "{:?}", world.work());
    world.api.upsert(CLASS, json!({ "description": "theirs" }));
    assert_eq!(world.api.object(CLASS).expect("there")["metadata"]["generation"], 1);
    world.pass(10).await;
    assert_eq!(
        (&world.api.object(CLASS).expect("there")["description"], world.work().len()),
        (&json!("ours"), 2)
    );
}

/// Applies and patches a widget, then deletes it.
struct Widgets {
    cached: Lister<DynamicObject>,
    writer: Writer<DynamicObject>,
}

impl Controller for Widgets {
    const NAME: &'static str = "widgets";
    type Config = ();

    fn setup(setup: &mut Setup, (): &()) -> Result<Self, SetupError> {
        let cached = setup.watch_dynamic(widgets()).primary().lister();
        let writer = setup.writer_dynamic(widgets()).apply().patch().delete().skip_unchanged(&cached).build();
        Ok(Self { cached, writer })
    }

    async fn reconcile(&self, key: &ObjectKey, cx: &Context) -> Result<Outcome, ReconcileError> {
        let resource = ApiResource::from_gvk(&GroupVersionKind::gvk("example.com", "v1", "Widget"));
        let mut desired = DynamicObject::new(key.name(), &resource).within("shop");
        desired.data = json!({ "spec": { "size": 1 } });
        let Some(present) = self.cached.get(key)? else {
            self.writer.apply(cx, &desired).await?;
            return Ok(Outcome::Done);
        };
        if present.data["spec"]["size"] == 2 {
            let deleted = self.writer.delete(cx, &present, &DeleteParams::default()).await?;
            assert_eq!(deleted, Deletion::Accepted);
            return Ok(Outcome::Paused("deleted".into()));
        }
        assert_eq!(self.writer.apply(cx, &desired).await?.change, Change::Unchanged);
        self.writer.patch(cx, &present, |it| it.data["spec"]["size"] = json!(2)).await?;
        Ok(Outcome::Done)
    }

    fn started(&self, queue: &Enqueuer) {
        queue.add(ObjectKey::namespaced("shop", "w"));
    }
}

#[tokio::test(start_paused = true)]
async fn dynamic_kind_is_applied_patched_and_deleted() {
    let world = World::with(&[]);
    define_widgets(&world);
    let declared =
        Registration::controller::<Widgets>().declaration(&Env::virtual_time(1)).expect("set up").rules;
    assert!(declared.iter().any(|rule| rule.resource == "widgets" && rule.verbs.contains(&Verb::Delete)));
    let _workers = world.start_with(Registration::controller::<Widgets>()).await;
    world.pass(1).await;
    let first: Vec<_> = world.work().into_iter().take(3).collect();
    let of_widget = |method: &str| {
        first.iter().filter(|line| line.contains(method) && line.contains(&widget("w"))).count()
    };
    assert_eq!((of_widget("PATCH"), of_widget("DELETE")), (2, 1), "{first:?}");
}
