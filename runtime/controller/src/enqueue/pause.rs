//! Pauses keys by an annotation on their object. The controller chooses the annotation key.
//!
//! While the object of a key has the annotation, with any value except `false`, the key is not reconciled: a worker
//! that dequeues the key parks it, with the annotation as the reason. When the annotation or the object is removed, the
//! key is enqueued immediately. This also holds if the watch did not deliver the update that set the annotation,
//! because updates in quick succession can arrive as one event. A reconcile that runs when the annotation is set
//! completes. The annotation of an undecodable object cannot be read, but such a key is
//! [withheld](crate::Setup::reconcile_undecodable) by default, so a paused object stays paused.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Resource;
use windlass_informer::Event;
use windlass_object::{HasMetadata, MetadataRef, ObjectKey};
use windlass_workqueue::ParkReason;

use crate::consistency::caches::Cache;
use crate::enqueue::enqueuer::Enqueuer;

type IsPaused = dyn Fn(&ObjectKey) -> bool + Send + Sync;

/// An annotation that pauses the keys of one watch's objects.
#[derive(Clone)]
pub(crate) struct PauseAnnotation {
    pub(crate) annotation: &'static str,
    is_paused: Arc<IsPaused>,
}

impl PauseAnnotation {
    pub(crate) fn new(annotation: &'static str, objects: Cache) -> Self {
        let holds = move |key: &ObjectKey| {
            let annotated =
                |meta: MetadataRef<'_>| meta.full().is_some_and(|meta| is_paused(meta, annotation));
            objects.with_metadata(key, annotated).unwrap_or(false)
        };
        Self { annotation, is_paused: Arc::new(holds) }
    }

    /// Returns the first annotation of `pauses` that pauses `key`.
    pub(crate) fn of(pauses: &[PauseAnnotation], key: &ObjectKey) -> Option<&'static str> {
        pauses.iter().find(|pause| (pause.is_paused)(key)).map(|pause| pause.annotation)
    }
}

/// Returns a handler that enqueues an object's key when the annotation or the object is removed.
pub(crate) fn resume<O: HasMetadata + Resource>(
    annotation: &'static str,
) -> impl FnMut(&Event<Arc<O>>, &Enqueuer) + Send {
    move |event, queue| {
        let (was_paused, is_still) = match event {
            Event::Updated { old, new, .. } => {
                (is_paused(old.meta(), annotation), is_paused(new.meta(), annotation))
            }
            Event::Deleted { last, .. } => (is_paused(last.meta(), annotation), false),
            Event::Added { object, .. } => (false, is_paused(object.meta(), annotation)),
        };
        if is_still {
            return;
        }
        let key = ObjectKey::of(event.object().meta());
        if was_paused || queue.is_parked(&key, ParkReason(annotation)) {
            queue.add(key);
        }
    }
}

fn is_paused(meta: &ObjectMeta, annotation: &str) -> bool {
    let value = |all: &BTreeMap<String, String>| all.get(annotation).is_some_and(|value| value != "false");
    meta.annotations.as_ref().is_some_and(value)
}

impl fmt::Debug for PauseAnnotation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("PauseAnnotation").field(&self.annotation).finish()
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::ConfigMap;
    use windlass_env::Env;
    use windlass_informer::Cause;
    use windlass_sharding::OwnsAllKeys;
    use windlass_workqueue::Queue;

    use super::*;
    use crate::enqueue::history::History;
    use crate::enqueue::quarantine::Quarantine;

    const PAUSED: &str = "example.com/paused";

    fn map(name: &str, paused: bool) -> Arc<ConfigMap> {
        let annotations = paused.then(|| BTreeMap::from([(PAUSED.to_owned(), String::new())]));
        let metadata = ObjectMeta { name: Some(name.to_owned()), annotations, ..ObjectMeta::default() };
        Arc::new(ConfigMap { metadata, ..ConfigMap::default() })
    }

    #[tokio::test(start_paused = true)]
    async fn parked_key_is_enqueued_without_event_that_set_annotation() {
        let env = Env::virtual_time(1);
        let queue = Queue::new(env.clone(), "test", None);
        let enqueuer = Enqueuer::new(
            queue.clone(),
            Quarantine::new(None),
            History::new(env, "test"),
            Arc::new(OwnsAllKeys),
        );
        for (name, annotation) in [("parked", PAUSED), ("others", "example.com/other")] {
            queue.add(ObjectKey::cluster(name));
            queue.get().await.expect("the key").park(ParkReason(annotation));
        }
        let mut handle = resume::<ConfigMap>(PAUSED);
        let mut update = |name: &str, old: bool, new: bool| {
            let (old, new) = (map(name, old), map(name, new));
            handle(&Event::Updated { old, new, cause: Cause::Watch }, &enqueuer);
            queue.len()
        };
        assert_eq!(update("parked", false, true), 0, "it is paused");
        assert_eq!(update("others", false, false), 0);
        assert_eq!(update("never-paused", false, false), 0);
        assert_eq!(update("parked", false, false), 1);
        assert_eq!(update("resumed", true, false), 2);
    }
}
