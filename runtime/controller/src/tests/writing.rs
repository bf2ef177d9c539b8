//! Writers against the in-process API server: sent and rejected requests.

use k8s_openapi::api::apps::v1::ReplicaSet;
use k8s_openapi::api::core::v1::Service;
use kube::api::DeleteParams;
use windlass_informer::KindOptions;

use super::*;
use crate::{Change, Deletion, FullObject, Owned, Writable, WriteError, Writer, WriterBuilder};

const FINALIZER: &str = "example.com/cleanup";

/// A controller that calls `act` once, with a writer of `K` and the object `shop/m` as the server has it.
struct Once<K: FullObject + Writable> {
    grant: fn(WriterBuilder<'_, K>) -> Writer<K>,
    act: Act<K>,
}

type Act<K> = Box<dyn Fn(Writer<K>, Context, Arc<K>) -> Acting + Send + Sync>;

type Acting = BoxFuture<'static, Result<(), ReconcileError>>;

/// The result of that call.
type Results = Arc<Mutex<Vec<Result<(), ReconcileError>>>>;

struct Calling<K: FullObject + Writable> {
    writer: Writer<K>,
    objects: Lister<K>,
    once: Arc<Once<K>>,
    results: Results,
}

impl<K: FullObject + Writable> Controller for Calling<K> {
    const NAME: &'static str = "calling";
    type Config = (Arc<Once<K>>, Results);

    fn setup(setup: &mut Setup, (once, results): &Self::Config) -> Result<Self, SetupError> {
        let (once, results) = (Arc::clone(once), Arc::clone(results));
        setup.uses::<K>([Verb::Get]);
        let writer = (once.grant)(setup.writer::<K>());
        Ok(Self { objects: setup.primary::<K>().lister(), writer, once, results })
    }

    async fn reconcile(&self, key: &ObjectKey, cx: &Context) -> Result<Outcome, ReconcileError> {
        let Some(object) = self.objects.get(key)?.filter(|_| key.name() == "m") else {
            return Ok(Outcome::Done);
        };
        if self.results.lock().expect("whole").is_empty() {
            let result = (self.once.act)(self.writer.clone(), cx.clone(), object).await;
            self.results.lock().expect("whole").push(result);
        }
        Ok(Outcome::Done)
    }
}

/// Runs `act` once and returns its result.
pub(super) async fn once<K, F>(
    world: &World,
    grant: fn(WriterBuilder<'_, K>) -> Writer<K>,
    act: impl Fn(Writer<K>, Context, Arc<K>) -> F + Send + Sync + 'static,
) -> Result<(), ReconcileError>
where
    K: FullObject + Writable,
    F: Future<Output = Result<(), ReconcileError>> + Send + 'static,
{
    let once = Once { grant, act: Box::new(move |writer, cx, object| Box::pin(act(writer, cx, object))) };
    let results = Results::default();
    let _workers = world
        .start_with(Registration::controller_with::<Calling<K>>((Arc::new(once), Arc::clone(&results))))
        .await;
    world.pass(5).await;
    let result = results.lock().expect("whole").pop();
    result.expect("it was called")
}

pub(super) fn label(map: &mut ConfigMap) {
    map.metadata.labels.get_or_insert_default().insert("tier".to_owned(), "front".to_owned());
}

#[tokio::test(start_paused = true)]
async fn patch_and_update_send_one_request_only_if_object_changes() {
    let world = World::with(&["m"]);
    let result = once::<ConfigMap, _>(
        &world,
        |writer| writer.patch().update().build(),
        |maps, cx, map| async move {
            let patched = maps.patch(&cx, &map, label).await?;
            assert_eq!(
                (patched.change, patched.metadata.labels.as_ref().map(BTreeMap::len)),
                (Change::Updated, Some(1))
            );
            assert_eq!(maps.patch(&cx, &patched, label).await?.change, Change::Unchanged);
            assert_eq!(maps.update(&cx, &patched, label).await?.change, Change::Unchanged);
            let updated = maps.update(&cx, &patched, |map| map.metadata.labels = None).await?;
            assert_eq!(updated.metadata.labels, None);
            Ok(())
        },
    );
    result.await.expect("written");
    assert_eq!(world.work().len(), 2, "{:?}", world.work());
    assert!(world.api.object(&path("m")).expect("there")["metadata"].get("labels").is_none());
}

#[tokio::test(start_paused = true)]
async fn write_from_a_state_that_is_outdated_is_a_conflict() {
    let world = World::with(&["m"]);
    let result = once::<ConfigMap, _>(
        &world,
        |writer| writer.patch().update().build(),
        |maps, cx, map| async move {
            maps.patch(&cx, &map, label).await?;
            let stale = maps.patch(&cx, &map, |map| map.immutable = Some(true)).await;
            assert!(ReconcileError::from(stale.expect_err("outdated")).is_conflict());
            let stale = maps.update(&cx, &map, |map| map.immutable = Some(true)).await;
            Err(stale.expect_err("outdated").into())
        },
    );
    assert!(result.await.expect_err("outdated").is_conflict());
    assert!(world.api.object(&path("m")).expect("there").get("immutable").is_none());
}

#[tokio::test(start_paused = true)]
async fn undeclared_operation_sends_nothing_and_names_missing_call() {
    let world = World::with(&["m"]);
    let result = once::<ConfigMap, _>(
        &world,
        |writer| writer.patch().build(),
        |maps, cx, map| async move {
            let params = DeleteParams::default();
            let refused = [
                (maps.create(&cx, &map).await.map(drop), "create"),
                (maps.update(&cx, &map, label).await.map(drop), "update"),
                (maps.delete(&cx, &map, &params).await.map(drop), "delete"),
                (maps.apply(&cx, &map).await.map(drop), "apply"),
                (maps.update_status(&cx, &map, label).await.map(drop), "patch_status"),
            ];
            for (outcome, operation) in refused {
                let text = outcome.expect_err("not granted").to_string();
                assert!(
                    text.ends_with(&format!("add .{operation}() to the builder of the writer")),
                    "{text}"
                );
            }
            let finalized = maps.finalize(&cx, &map, async { Ok::<(), WriteError>(()) }).await.map(drop);
            let text = finalized.as_ref().expect_err("not granted").to_string();
            assert!(text.contains("add .finalizer(\"<name>\") to the builder"), "{text}");
            finalized
        },
    );
    assert!(result.await.expect_err("not granted").is_terminal());
    assert_eq!(world.work(), Vec::<String>::new());
}

fn replica_set_spec() -> serde_json::Value {
    let pod = json!({ "metadata": { "labels": { "app": "m" } }, "spec": { "containers": [{ "name": "m", "image": "m" }] } });
    json!({ "replicas": 3, "selector": { "matchLabels": { "app": "m" } }, "template": pod })
}

#[tokio::test(start_paused = true)]
async fn status_is_written_alone_by_patch_and_by_put() {
    for grant in [
        |writer: WriterBuilder<'_, ReplicaSet>| writer.patch_status().build(),
        |writer: WriterBuilder<'_, ReplicaSet>| writer.replace_status().build(),
    ] {
        let world = World::with(&[]);
        world
            .api
            .upsert("/apis/apps/v1/namespaces/shop/replicasets/m", json!({ "spec": replica_set_spec() }));
        let result = once::<ReplicaSet, _>(&world, grant, |sets, cx, set| async move {
            let report = |set: &mut ReplicaSet| {
                set.spec.get_or_insert_default().replicas = Some(7);
                set.status.get_or_insert_default().observed_generation = Some(1);
            };
            let written = sets.update_status(&cx, &set, report).await?;
            assert_eq!(written.spec.as_ref().and_then(|spec| spec.replicas), Some(3));
            assert_eq!(sets.update_status(&cx, &written, |_| ()).await?.change, Change::Unchanged);
            Ok(())
        });
        result.await.expect("written");
        let set = world.api.object("/apis/apps/v1/namespaces/shop/replicasets/m").expect("there");
        assert_eq!((&set["spec"]["replicas"], &set["status"]["observedGeneration"]), (&json!(3), &json!(1)));
        assert_eq!(world.work().len(), 1, "{:?}", world.work());
    }
}

#[tokio::test(start_paused = true)]
async fn write_that_the_server_ignores_is_counted() {
    let world = World::with(&[]);
    world.api.upsert("/apis/apps/v1/namespaces/shop/replicasets/m", json!({ "spec": replica_set_spec() }));
    let result = once::<ReplicaSet, _>(
        &world,
        |writer| writer.patch().build(),
        |sets, cx, set| async move {
            let scaled = |set: &mut ReplicaSet| set.spec.get_or_insert_default().replicas = Some(7);
            sets.patch(&cx, &set, scaled).await?;
            let set = cx.get_live::<ReplicaSet>(&ObjectKey::namespaced("shop", "m")).await?.expect("there");
            let reported = |set: &mut ReplicaSet| set.status.get_or_insert_default().replicas = 7;
            sets.patch(&cx, &set, reported).await.map(drop).map_err(Into::into)
        },
    );
    result.await.expect("written");
    assert_eq!((world.work().len(), world.metrics.reconcile("calling").noop_writes.get()), (2, 1));
}

#[tokio::test(start_paused = true)]
async fn apply_creates_and_owns_its_fields_alone() {
    let world = World::with(&["m"]);
    let result = once::<ConfigMap, _>(
        &world,
        |writer| writer.apply().build(),
        |maps, cx, map| async move {
            for name in ["m", "new"] {
                let data = BTreeMap::from([("color".to_owned(), "blue".to_owned())]);
                let mut desired = ConfigMap { data: Some(data), ..ConfigMap::default() };
                desired.metadata.name = Some(name.to_owned());
                desired.metadata.namespace = Some("shop".to_owned());
                desired.metadata.resource_version.clone_from(&map.metadata.resource_version);
                maps.apply(&cx, &desired).await?;
            }
            Ok(())
        },
    );
    result.await.expect("applied");
    for name in ["m", "new"] {
        let map = world.api.object(&path(name)).expect("there");
        let managers = map["metadata"]["managedFields"].as_array().cloned().unwrap_or_default();
        assert!(
            managers.iter().any(|it| it["manager"] == "calling" && it["operation"] == "Apply"),
            "{managers:?}"
        );
        assert_eq!(map["data"]["color"], "blue");
    }
    let kept = &world.api.object(&path("m")).expect("there")["metadata"]["annotations"];
    assert!(kept.get("put-at").is_some(), "what others set is left alone");
}

#[tokio::test(start_paused = true)]
async fn delete_spares_a_later_object_of_the_same_name() {
    let world = World::with(&["m"]);
    let result = once::<ConfigMap, _>(
        &world,
        |writer| writer.delete().build(),
        |maps, cx, map| async move {
            let params = DeleteParams::default();
            let mut earlier = ConfigMap::clone(&map);
            earlier.metadata.uid = Some("earlier".to_owned());
            assert_eq!(maps.delete(&cx, &earlier, &params).await?, Deletion::AlreadyGone);
            assert_eq!(maps.delete(&cx, &map, &params).await?, Deletion::Accepted);
            assert_eq!(maps.delete(&cx, &map, &params).await?, Deletion::AlreadyGone);
            Ok(())
        },
    );
    result.await.expect("deleted");
    assert!(world.api.object(&path("m")).is_none());
}

// parity: controllerutil-references
#[tokio::test(start_paused = true)]
async fn finalizer_stays_until_the_cleanup_succeeds() {
    let world = World::with(&["m"]);
    world.api.upsert(&path("m"), json!({ "metadata": { "finalizers": ["example.com/others"] } }));
    let result = once::<ConfigMap, _>(
        &world,
        |writer| writer.finalizer(FINALIZER).delete().build(),
        |maps, cx, map| async move {
            let too_early = || async { Err::<(), _>("cleaned up while it lives") };
            let alive = maps.finalize(&cx, &map, too_early()).await?.expect("it lives");
            let again = maps.finalize(&cx, &alive, too_early()).await?.expect("it lives");
            assert!(Arc::ptr_eq(&alive, &again));
            maps.delete(&cx, &alive, &DeleteParams::default()).await?;
            let ending = cx
                .get_live::<ConfigMap>(&ObjectKey::namespaced("shop", "m"))
                .await?
                .expect("it is being deleted");
            let failed =
                maps.finalize(&cx, &Arc::new(ending.clone()), async { Err::<(), _>("not yet") }).await;
            assert_eq!(failed.expect_err("the cleanup failed").to_string(), "not yet");
            let done = maps.finalize(&cx, &Arc::new(ending), async { Ok::<_, WriteError>(()) }).await?;
            assert!(done.is_none());
            Ok(())
        },
    );
    result.await.expect("finalized");
    let map = world.api.object(&path("m")).expect("another finalizer keeps it");
    assert_eq!(map["metadata"]["finalizers"], json!(["example.com/others"]));
}

#[tokio::test(start_paused = true)]
async fn removing_finalizer_of_deleted_object_succeeds() {
    let world = World::with(&["m"]);
    world.api.upsert(&path("m"), json!({ "metadata": { "finalizers": [FINALIZER] } }));
    world.api.remove(&path("m"));
    let result = once::<ConfigMap, _>(
        &world,
        |writer| writer.finalizer(FINALIZER).patch().build(),
        |maps, cx, map| async move {
            assert!(map.metadata.deletion_timestamp.is_some(), "it is being deleted");
            maps.patch(&cx, &map, |map| map.metadata.finalizers = None).await?;
            let cleanup = async { Ok::<_, WriteError>(()) };
            assert!(maps.finalize(&cx, &map, cleanup).await?.is_none());
            Ok(())
        },
    );
    result.await.expect("finalized");
    assert!(world.api.object(&path("m")).is_none());
}

#[tokio::test(start_paused = true)]
async fn apply_reports_whether_it_created_the_object() {
    let world = World::with(&["m"]);
    let result = once::<ConfigMap, _>(
        &world,
        |writer| writer.apply().build(),
        |maps, cx, _| async move {
            let named = json!({ "metadata": { "name": "n", "namespace": "shop" } });
            let desired: ConfigMap = serde_json::from_value(named).expect("a ConfigMap");
            assert_eq!(maps.apply(&cx, &desired).await?.change, Change::Created);
            assert_eq!(maps.apply(&cx, &desired).await?.change, Change::Updated);
            Ok(())
        },
    );
    result.await.expect("applied");
}

/// Maintains ConfigMaps for each Service: one with its name, and one for each name in its annotation `more`.
struct Parent {
    services: Lister<Service>,
    maps: Owned<ConfigMap, Service>,
}

impl Controller for Parent {
    const NAME: &'static str = "parent";
    /// Whether it adopts maps without a controller.
    type Config = bool;

    fn setup(setup: &mut Setup, adopts: &bool) -> Result<Self, SetupError> {
        let maps = setup.owned::<ConfigMap, Service>().apply().delete();
        let maps = if *adopts { maps.adopt_orphans() } else { maps }.build();
        Ok(Self { services: setup.primary::<Service>().lister(), maps })
    }

    async fn reconcile(&self, key: &ObjectKey, cx: &Context) -> Result<Outcome, ReconcileError> {
        let Some(service) = self.services.get(key)? else { return Ok(Outcome::Done) };
        if service.metadata.deletion_timestamp.is_some() {
            return Ok(Outcome::Done);
        }
        let more = service.metadata.annotations.as_ref().and_then(|it| it.get("more")).map(String::as_str);
        let wanted: Vec<&str> =
            more.into_iter().flat_map(str::split_whitespace).chain([key.name()]).collect();
        for name in &wanted {
            let mut map = ConfigMap {
                data: Some(BTreeMap::from([("of".into(), key.to_string())])),
                ..ConfigMap::default()
            };
            map.metadata.name = Some((*name).to_owned()).filter(|name| name != key.name());
            self.maps.apply(cx, &service, map).await?;
        }
        let is_wanted =
            |map: &ConfigMap| wanted.iter().any(|name| map.metadata.name.as_deref() == Some(*name));
        self.maps.prune(cx, &service, is_wanted).await?;
        Ok(Outcome::Done)
    }
}

pub(super) fn put_service(world: &World, name: &str, more: &str) {
    let spec = json!({ "ports": [{ "port": 80 }] });
    let service = json!({ "metadata": { "annotations": { "more": more } }, "spec": spec });
    world.api.upsert(&format!("/api/v1/namespaces/shop/services/{name}"), service);
}

#[tokio::test(start_paused = true)]
async fn children_have_their_owner_wake_it_and_are_pruned() {
    let world = World::with(&[]);
    put_service(&world, "web", "cache");
    let workers = world.start_with(Registration::controller_with::<Parent>(false)).await;
    world.pass(5).await;
    for name in ["web", "cache"] {
        let reference = &world.api.object(&path(name)).expect("applied")["metadata"]["ownerReferences"][0];
        assert_eq!((&reference["kind"], &reference["name"]), (&json!("Service"), &json!("web")));
        assert_eq!(
            (&reference["controller"], &reference["blockOwnerDeletion"]),
            (&json!(true), &json!(true))
        );
    }
    world.api.remove(&path("cache"));
    world.pass(5).await;
    assert!(world.api.object(&path("cache")).is_some(), "a child that goes wakes its owner");
    let applies = || world.work().iter().filter(|line| line.contains("PATCH")).count();
    let before = applies();
    put_service(&world, "web", "");
    world.pass(5).await;
    assert_eq!(applies(), before, "a child that is as it should be is not applied again");
    assert!(world.api.object(&path("cache")).is_none() && world.api.object(&path("web")).is_some());
    drop(workers);
}

#[tokio::test(start_paused = true)]
async fn child_of_other_owner_is_rejected_and_orphan_unless_adopted() {
    for adopts in [false, true] {
        let world = World::with(&["web"]);
        put_service(&world, "shop", "theirs");
        let theirs =
            json!({ "apiVersion": "v1", "kind": "Node", "name": "n", "uid": "u", "controller": true });
        world.api.upsert(&path("theirs"), json!({ "metadata": { "ownerReferences": [theirs] } }));
        put_service(&world, "web", "");
        let workers = world.start_with(Registration::controller_with::<Parent>(adopts)).await;
        world.pass(1).await;
        let cause =
            |name: &str| workers.inspector().explain(&ObjectKey::namespaced("shop", name)).to_string();
        let of_another =
            "cannot write configmaps.v1 shop/theirs: Node n controls it; use another name, or delete it";
        assert!(cause("shop").contains(of_another), "{}", cause("shop"));
        let adopted =
            world.api.object(&path("web")).expect("there")["metadata"].get("ownerReferences").is_some();
        assert_eq!(adopted, adopts);
        assert_eq!(
            cause("web").contains("adopt such objects with .adopt_orphans()"),
            !adopts,
            "{}",
            cause("web")
        );
        assert!(world.api.object(&path("theirs")).expect("there").get("data").is_none(), "it is left alone");
    }
}

#[tokio::test(start_paused = true)]
async fn context_reads_past_the_cache_and_makes_conditions() {
    let world = World::with(&["m"]);
    let result = once::<ConfigMap, _>(
        &world,
        |writer| writer.patch().build(),
        |_, cx, map| async move {
            let live = |name| ObjectKey::namespaced("shop", name);
            assert_eq!(
                cx.get_live::<ConfigMap>(&live("m")).await?.map(|it| it.metadata.uid),
                Some(map.metadata.uid.clone())
            );
            assert_eq!(cx.get_live::<ConfigMap>(&live("gone")).await?, None);
            let mut about = ConfigMap::clone(&map);
            about.metadata.generation = Some(3);
            let ready = cx.condition(&about, "Ready", true, "Replicas", "3 are ready");
            assert_eq!((ready.status.as_str(), ready.observed_generation), ("True", Some(3)));
            assert_eq!(ready.last_transition_time, cx.time());
            Ok(())
        },
    );
    result.await.expect("read");
}

#[tokio::test(start_paused = true)]
async fn write_of_object_without_read_metadata_is_rejected() {
    let world = World::with(&["m"]);
    let grant = |writer: WriterBuilder<'_, ConfigMap>| writer.patch().delete().apply().build();
    let result = once::<ConfigMap, _>(&world, grant, |maps, cx, map| async move {
        let lacks = |error: WriteError| match error {
            WriteError::Incomplete { lacks, .. } => lacks,
            other => panic!("{other}"),
        };
        let mut made = ConfigMap::clone(&map);
        made.metadata.uid = None;
        assert_eq!(lacks(maps.patch(&cx, &made, label).await.expect_err("no UID")), "UID");
        let deleted = maps.delete(&cx, &made, &DeleteParams::default()).await;
        assert_eq!(lacks(deleted.expect_err("no UID")), "UID");
        made.metadata.resource_version = None;
        assert_eq!(lacks(maps.patch(&cx, &made, label).await.expect_err("no version")), "resource version");
        made.metadata.name = None;
        assert_eq!(lacks(maps.apply(&cx, &made).await.expect_err("no name")), "name");
        // Empty metadata fields that the closure adds do not count as a change.
        let emptied = |map: &mut ConfigMap| drop(map.metadata.labels.get_or_insert_default().remove("tier"));
        assert_eq!(maps.patch(&cx, &map, emptied).await?.change, Change::Unchanged);
        Ok(())
    });
    result.await.expect("refused");
    assert_eq!(world.work(), Vec::<String>::new());
}

/// The watch does not select the child, so only the server contains it.
#[tokio::test(start_paused = true)]
async fn child_missing_from_cache_is_not_adopted() {
    struct Selecting(Lister<Service>, Owned<ConfigMap, Service>);

    impl Controller for Selecting {
        const NAME: &'static str = "selecting";
        type Config = ();

        fn setup(setup: &mut Setup, (): &()) -> Result<Self, SetupError> {
            let labeled = Selection::by_labels("of=selecting");
            let maps = setup.owned::<ConfigMap, Service>().apply().with_selection(labeled).build();
            Ok(Self(setup.primary::<Service>().lister(), maps))
        }

        async fn reconcile(&self, key: &ObjectKey, cx: &Context) -> Result<Outcome, ReconcileError> {
            let Some(service) = self.0.get(key)? else { return Ok(Outcome::Done) };
            self.1.apply(cx, &service, ConfigMap::default()).await?;
            Ok(Outcome::Done)
        }
    }

    let world = World::with(&["web"]);
    put_service(&world, "web", "");
    let workers = world.start_with(Registration::controller::<Selecting>()).await;
    world.pass(1).await;
    let explanation = workers.inspector().explain(&ObjectKey::namespaced("shop", "web")).to_string();
    assert!(explanation.contains("shop/web: it exists and no object controls it"), "{explanation}");
    assert!(world.api.object(&path("web")).expect("there")["metadata"].get("ownerReferences").is_none());
}

#[tokio::test(start_paused = true)]
async fn namespaced_object_cannot_own_one_of_the_cluster() {
    struct Impossible;

    impl Controller for Impossible {
        const NAME: &'static str = "impossible";
        type Config = ();

        fn setup(setup: &mut Setup, (): &()) -> Result<Self, SetupError> {
            drop(setup.owned::<k8s_openapi::api::core::v1::Node, Service>().apply().build());
            Ok(Self)
        }

        async fn reconcile(&self, _: &ObjectKey, _: &Context) -> Result<Outcome, ReconcileError> {
            Ok(Outcome::Done)
        }
    }

    let error = Registration::controller::<Impossible>()
        .declaration(&Env::virtual_time(1))
        .map(drop)
        .expect_err("refused");
    assert!(
        error.to_string().contains("cannot declare owned nodes.v1: services.v1 is namespaced"),
        "{error}"
    );
}

#[tokio::test(start_paused = true)]
async fn setup_fails_when_a_writer_replaces_objects_that_a_transform_changes() {
    let world = World::with(&[]);
    let (env, metrics) = (world.env.clone(), world.metrics.clone());
    let set_up = |wire: fn(&mut Setup)| {
        let mut options = FactoryOptions::default();
        options.kinds.set(KindOptions::<ConfigMap>::new().transform(|map| map.data = None));
        let factory = InformerFactory::new(env.clone(), metrics.clone(), options);
        let registration = world.scripted(wire, |_, _| async { Ok(Outcome::Done) });
        registration.prepare(Host::new(env.clone(), metrics.clone(), factory)).map(drop)
    };
    let replaces: [fn(&mut Setup); 2] = [
        |setup| drop(setup.writer::<ConfigMap>().update().build()),
        |setup| drop(setup.writer::<ConfigMap>().replace_status().build()),
    ];
    for wire in replaces {
        let error = set_up(wire).expect_err("it would delete the data").to_string();
        assert!(error.contains("configmaps") && error.contains("patch"), "{error}");
    }
    set_up(|setup| drop(setup.writer::<ConfigMap>().patch().build())).expect("a patch keeps the data");
}
