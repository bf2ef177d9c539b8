//! Keys that rest because their object says so: an annotation of the controller's choosing.
//!
//! While the object that a key names has the annotation, with any value but `false`, the key is not reconciled, whatever
//! asks for it. When the annotation goes, or the object, the key is queued at once. A reconcile that runs when the
//! annotation comes goes on to its end.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Resource;
use windlass_informer::{Event, Lister};
use windlass_object::ObjectKey;

use crate::caches::Observed;
use crate::enqueue::Enqueuer;

type Holds = dyn Fn(&ObjectKey) -> bool + Send + Sync;

/// An annotation that pauses the keys of one watch's objects.
#[derive(Clone)]
pub(crate) struct Pause {
    pub(crate) annotation: &'static str,
    holds: Arc<Holds>,
}

impl Pause {
    pub(crate) fn new<R: Observed>(annotation: &'static str, objects: Lister<R>) -> Self {
        let holds = move |key: &ObjectKey| {
            objects.get(key).is_some_and(|object| is_paused(object.meta(), annotation))
        };
        Self { annotation, holds: Arc::new(holds) }
    }

    /// The annotation by which `key` is paused, if it is by one of `pauses`.
    pub(crate) fn of(pauses: &[Pause], key: &ObjectKey) -> Option<&'static str> {
        pauses.iter().find(|pause| (pause.holds)(key)).map(|pause| pause.annotation)
    }
}

/// A handler that queues an object's key when the annotation or the object goes.
pub(crate) fn resume<O: Resource>(annotation: &'static str) -> impl FnMut(&Event<Arc<O>>, &Enqueuer) + Send {
    move |event, queue| {
        let was_paused = match event {
            Event::Updated { old, new, .. } => {
                is_paused(old.meta(), annotation) && !is_paused(new.meta(), annotation)
            }
            Event::Deleted { last, .. } => is_paused(last.meta(), annotation),
            Event::Added { .. } => false,
        };
        if was_paused {
            queue.add(ObjectKey::of(event.object().meta()));
        }
    }
}

fn is_paused(meta: &ObjectMeta, annotation: &str) -> bool {
    let value = |all: &BTreeMap<String, String>| all.get(annotation).is_some_and(|value| value != "false");
    meta.annotations.as_ref().is_some_and(value)
}

impl fmt::Debug for Pause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Pause").field(&self.annotation).finish()
    }
}
