//! Keys that are parked because their object says so: an annotation of the controller's choosing.
//!
//! While the object that a key names has the annotation, with any value but `false`, the key is not reconciled, whatever
//! asks for it: a worker that takes it parks it, with the annotation as the reason. When the annotation goes, or the object, the key is queued at once, also where the watch was not told
//! that it had come: states that follow each other fast may be told as one. A reconcile that runs when the annotation
//! comes goes on to its end. The annotation of an object that cannot be decoded cannot be seen, but such a key is
//! [withheld](crate::Setup::reconcile_undecodable) by default, so a paused object stays paused.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Resource;
use windlass_informer::Event;
use windlass_object::ObjectKey;
use windlass_workqueue::ParkReason;

use crate::consistency::caches::Cache;
use crate::enqueue::enqueuer::Enqueuer;

type Holds = dyn Fn(&ObjectKey) -> bool + Send + Sync;

/// An annotation that pauses the keys of one watch's objects.
#[derive(Clone)]
pub(crate) struct PauseAnnotation {
    pub(crate) annotation: &'static str,
    holds: Arc<Holds>,
}

impl PauseAnnotation {
    pub(crate) fn new(annotation: &'static str, objects: Cache) -> Self {
        let holds = move |key: &ObjectKey| {
            objects.with_metadata(key, |meta| is_paused(meta, annotation)).unwrap_or(false)
        };
        Self { annotation, holds: Arc::new(holds) }
    }

    /// The annotation by which `key` is paused, if it is by one of `pauses`.
    pub(crate) fn of(pauses: &[PauseAnnotation], key: &ObjectKey) -> Option<&'static str> {
        pauses.iter().find(|pause| (pause.holds)(key)).map(|pause| pause.annotation)
    }
}

/// A handler that queues an object's key when the annotation or the object goes.
pub(crate) fn resume<O: Resource>(annotation: &'static str) -> impl FnMut(&Event<Arc<O>>, &Enqueuer) + Send {
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
        f.debug_tuple("Pause").field(&self.annotation).finish()
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
    async fn key_that_a_worker_let_go_of_is_queued_also_when_nobody_was_told_of_the_annotation() {
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
        assert_eq!(update("told", true, false), 2);
    }
}
