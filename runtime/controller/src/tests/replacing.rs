//! Writes of whole objects, over the in-process API server.

use std::borrow::Cow;
use std::sync::atomic::{AtomicUsize, Ordering};

use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::api::core::v1::Service;
use kube::Resource;
use kube::core::ObjectMeta;
use serde::{Deserialize, Serialize, Serializer};

use super::writing::{label, once, put_service};
use super::*;
use crate::{Change, Owned, WriteError};

/// The number of encodings of a [`Counted`].
static ENCODED: AtomicUsize = AtomicUsize::new(0);

/// A ConfigMap that counts how often it is encoded.
#[derive(Clone, Deserialize)]
#[serde(transparent)]
struct Counted(ConfigMap);

impl Serialize for Counted {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        ENCODED.fetch_add(1, Ordering::Relaxed);
        self.0.serialize(serializer)
    }
}

impl Resource for Counted {
    type DynamicType = ();
    type Scope = NamespaceResourceScope;

    fn kind((): &()) -> Cow<'_, str> {
        ConfigMap::kind(&())
    }

    fn group((): &()) -> Cow<'_, str> {
        ConfigMap::group(&())
    }

    fn version((): &()) -> Cow<'_, str> {
        ConfigMap::version(&())
    }

    fn plural((): &()) -> Cow<'_, str> {
        ConfigMap::plural(&())
    }

    fn meta(&self) -> &ObjectMeta {
        self.0.meta()
    }

    fn meta_mut(&mut self) -> &mut ObjectMeta {
        self.0.meta_mut()
    }
}

#[tokio::test(start_paused = true)]
async fn update_encodes_each_version_once() {
    let world = World::with(&["m"]);
    let result = once::<Counted, _>(
        &world,
        |writer| writer.update().build(),
        |maps, cx, map| async move {
            assert_eq!(maps.update(&cx, &map, |map| label(&mut map.0)).await?.change, Change::Updated);
            Ok(())
        },
    );
    result.await.expect("written");
    assert_eq!((ENCODED.load(Ordering::Relaxed), world.work().len()), (2, 1));
}

#[tokio::test(start_paused = true)]
async fn update_keeps_the_lock_of_the_object_that_was_read() {
    let world = World::with(&["m"]);
    let result = once::<ConfigMap, _>(
        &world,
        |writer| writer.update().build(),
        |maps, cx, map| async move {
            let unlocked = |map: &mut ConfigMap| {
                map.metadata.resource_version = None;
                map.metadata.uid = None;
            };
            assert_eq!(maps.update(&cx, &map, unlocked).await?.change, Change::Unchanged);
            maps.update(&cx, &map, label).await?;
            let stale = |map: &mut ConfigMap| {
                unlocked(map);
                map.immutable = Some(true);
            };
            maps.update(&cx, &map, stale).await.map(drop).map_err(Into::into)
        },
    );
    assert!(result.await.expect_err("outdated").is_conflict());
    assert_eq!(world.api.object(&path("m")).expect("there").get("immutable"), None);
}

#[tokio::test(start_paused = true)]
async fn create_or_update_sends_a_request_only_if_something_changes() {
    let world = World::with(&["m"]);
    let result = once::<ConfigMap, _>(
        &world,
        |writer| writer.create().update().build(),
        |maps, cx, map| async move {
            let (there, new) = (ObjectKey::of(&map.metadata), ObjectKey::namespaced("shop", "new"));
            let updated = maps.create_or_update(&cx, &there, Some(&map), label).await?;
            assert_eq!(updated.change, Change::Updated);
            assert_eq!(
                maps.create_or_update(&cx, &there, Some(&updated), label).await?.change,
                Change::Unchanged
            );
            let replace = |map: &mut ConfigMap| {
                assert_eq!(map.metadata.name.as_deref(), Some("new"));
                *map = ConfigMap { immutable: Some(true), ..ConfigMap::default() };
            };
            let created = maps.create_or_update(&cx, &new, None, replace).await?;
            assert_eq!((created.change, ObjectKey::of(&created.metadata)), (Change::Created, new.clone()));
            let same = maps.create_or_update(&cx, &new, Some(&created), replace).await?;
            assert_eq!(
                same.change,
                Change::Unchanged,
                "metadata set by the server does not count as a change"
            );
            maps.create_or_update(&cx, &new, None, label).await.map(drop).map_err(Into::into)
        },
    );
    let error = result.await.expect_err("it exists").cause().to_string();
    assert!(error.contains("already exists"), "{error}");
    assert_eq!(world.api.object(&path("new")).expect("created")["immutable"], true);
    assert_eq!(world.work().len(), 3, "an update and two creations: {:?}", world.work());
}

#[tokio::test(start_paused = true)]
async fn create_or_update_patches_if_patch_is_granted() {
    let world = World::with(&["m"]);
    let result = once::<ConfigMap, _>(
        &world,
        |writer| writer.create().update().patch().build(),
        |maps, cx, map| async move {
            let key = ObjectKey::of(&map.metadata);
            maps.create_or_update(&cx, &key, Some(&map), label).await.map(drop).map_err(Into::into)
        },
    );
    result.await.expect("patched");
    assert!(matches!(&*world.work(), [patch] if patch.starts_with("PATCH")), "{:?}", world.work());
}

#[tokio::test(start_paused = true)]
async fn create_or_update_takes_both_grants() {
    let world = World::with(&["m"]);
    let result = once::<ConfigMap, _>(
        &world,
        |writer| writer.create().build(),
        |maps, cx, map| async move {
            let key = ObjectKey::namespaced("shop", "new");
            let refused = maps.create_or_update(&cx, &key, None, label).await.map(drop);
            assert!(matches!(refused, Err(WriteError::NotGranted { operation: "patch", .. })), "{refused:?}");
            maps.create_or_update(&cx, &key, Some(&map), label).await.map(drop).map_err(Into::into)
        },
    );
    assert!(result.await.expect_err("not granted").is_terminal());
    assert_eq!(world.work(), Vec::<String>::new());
}

/// Maintains a ConfigMap with the name of each Service, and one in the namespace of its annotation `more`.
struct Keeper {
    services: Lister<Service>,
    maps: Owned<ConfigMap, Service>,
}

impl Controller for Keeper {
    const NAME: &'static str = "keeper";
    /// Whether it adopts maps without a controller.
    type Config = bool;

    fn setup(setup: &mut Setup, adopts: &bool) -> Result<Self, SetupError> {
        let maps = setup.owned::<ConfigMap, Service>().create().update();
        let maps = if *adopts { maps.adopt_orphans() } else { maps }.build();
        Ok(Self { services: setup.primary::<Service>().lister(), maps })
    }

    async fn reconcile(&self, key: &ObjectKey, cx: &Context) -> Result<Outcome, ReconcileError> {
        let Some(service) = self.services.get(key)? else { return Ok(Outcome::Done) };
        let namespaces = service.metadata.annotations.as_ref().and_then(|it| it.get("more")).cloned();
        let namespace = namespaces.filter(|it| !it.is_empty()).unwrap_or_else(|| "shop".to_owned());
        let child = ObjectKey::namespaced(&namespace, key.name());
        self.maps.create_or_update(cx, &service, &child, label).await?;
        Ok(Outcome::RequeueAfter(Duration::from_secs(1)))
    }
}

#[tokio::test(start_paused = true)]
async fn owned_create_or_update_sets_the_owner_and_settles() {
    let world = World::with(&["adopted"]);
    // The owner of the child is not the last one.
    let others = json!({ "apiVersion": "v1", "kind": "Node", "name": "n", "uid": "u" });
    put_service(&world, "web", "");
    put_service(&world, "adopted", "");
    let _workers = world.start_with(Registration::controller_with::<Keeper>(true)).await;
    world.pass(5).await;
    let owners =
        |name: &str| world.api.object(&path(name)).expect("there")["metadata"]["ownerReferences"].clone();
    for name in ["web", "adopted"] {
        assert_eq!((&owners(name)[0]["name"], &owners(name)[0]["controller"]), (&json!(name), &json!(true)));
    }
    assert_eq!(world.work().len(), 2, "{:?}", world.work());
    let several = json!({ "metadata": { "ownerReferences": [owners("web")[0], others] } });
    world.api.upsert(&path("web"), several.clone());
    world.pass(5).await;
    assert_eq!(owners("web"), several["metadata"]["ownerReferences"]);
    assert_eq!(world.work().len(), 2, "the order of owners is no change: {:?}", world.work());
}

#[tokio::test(start_paused = true)]
async fn owned_create_or_update_refuses_children_of_others() {
    let world = World::with(&["web"]);
    put_service(&world, "web", "");
    put_service(&world, "away", "elsewhere");
    let workers = world.start_with(Registration::controller_with::<Keeper>(false)).await;
    world.pass(1).await;
    let cause = |name: &str| workers.inspector().explain(&ObjectKey::namespaced("shop", name)).to_string();
    assert!(
        cause("web").contains("cannot write configmaps.v1 shop/web: it exists and no object controls it"),
        "{}",
        cause("web")
    );
    assert!(cause("away").contains("elsewhere/away: its owner is in another namespace"), "{}", cause("away"));
    assert_eq!(world.work(), Vec::<String>::new());
}
