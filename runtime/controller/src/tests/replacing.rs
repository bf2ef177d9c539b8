//! Writes of whole objects, over the in-process API server.

use std::borrow::Cow;
use std::sync::atomic::{AtomicUsize, Ordering};

use k8s_openapi::NamespaceResourceScope;
use kube::Resource;
use kube::core::ObjectMeta;
use serde::{Deserialize, Serialize, Serializer};

use super::writing::{label, once};
use super::*;
use crate::Change;

/// How often a [`Counted`] was encoded.
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
            assert_eq!(maps.update(&cx, &map, unlocked).await?.change, Change::None);
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
