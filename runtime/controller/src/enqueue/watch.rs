//! The builder with which setup declares one watch: selection, predicates, mappers, handlers, and a lister.

use std::fmt;
use std::sync::Arc;

use kube::Resource;
use serde::de::DeserializeOwned;
use windlass_env::catch_panic_sync;
use windlass_informer::{Cause, Event, Lister, Selection, SharedInformer};
use windlass_object::{HasMetadata, MetadataRef, ObjectKey, ResourceKind, Scoped};
use windlass_workqueue::Priority;

use crate::api_scope::ApiScope;
use crate::consistency::caches::Cache;
use crate::enqueue::enqueuer::{Enqueuer, by_self, keys_of};
use crate::enqueue::history::ObservedEvent;
use crate::enqueue::pause::{PauseAnnotation, resume};
use crate::enqueue::predicate::Predicate;
use crate::enqueue::wiring::{Attach, DeclaredWatches, Replay, attach};
use crate::error::SetupError;

/// A Rust type of full objects: types of k8s-openapi, and types that derive `CustomResource`. Unlike a
/// [view](windlass_object::view), such an object can be written.
pub trait FullObject:
    Resource<DynamicType = (), Scope: Scoped + ApiScope> + DeserializeOwned + Send + Sync + 'static
{
}

impl<K> FullObject for K where
    K: Resource<DynamicType = (), Scope: Scoped + ApiScope> + DeserializeOwned + Send + Sync + 'static
{
}

/// The builder of one watch. End the declaration with [`Watch::lister`], or drop the builder if no lister is needed.
///
/// The order of the methods does not matter, with two exceptions: [`with_selection`](Self::with_selection) comes first,
/// and [`when`](Self::when) and [`priority`](Self::priority) apply to the mappers and handlers that are declared after
/// them, and to the own keys of a [`primary`](Self::primary) watch.
pub struct Watch<'s, T: HasMetadata> {
    declared_watches: &'s mut DeclaredWatches,
    /// `None` once the informer is created. It is created on first use, so that the selection is known.
    make: Option<Make<'s, T>>,
    selection: Selection,
    informer: Option<SharedInformer<T>>,
    predicates: Vec<Predicate<T>>,
    priority: Option<Priority>,
    is_primary: bool,
    is_decoded: bool,
}

/// Creates the informer of a selection.
type Make<'s, T> = Box<dyn FnOnce(Selection) -> SharedInformer<T> + 's>;

/// Maps an object to keys.
type Map<T> = Arc<dyn Fn(&T) -> Vec<ObjectKey> + Send + Sync>;

/// Receives events.
type Handle<T> = Box<dyn FnMut(&Event<Arc<T>>, &Enqueuer) + Send>;

impl<'s, T: HasMetadata> Watch<'s, T> {
    pub(crate) fn new(declared_watches: &'s mut DeclaredWatches, make: Make<'s, T>) -> Self {
        let (make, selection) = (Some(make), Selection::default());
        Self {
            declared_watches,
            make,
            selection,
            informer: None,
            predicates: Vec::new(),
            priority: None,
            is_primary: false,
            is_decoded: false,
        }
    }

    /// Makes this watch primary: the controller's keys name its objects, and a changed object enqueues its own key.
    /// While an object exists but cannot be decoded, its key is [not reconciled](crate::Setup::reconcile_undecodable).
    ///
    /// Several watches of a controller can be primary, if their objects have the same names. A key then waits while any
    /// of its objects cannot be decoded.
    pub fn primary(mut self) -> Self {
        self.declared_watches.needs_queue("primary");
        self.is_primary = true;
        self
    }

    /// Watches only the objects that `selection` selects. Controllers with the same selection share one cache.
    ///
    /// Call this before any mapper, handler or pause is declared; otherwise setup fails.
    pub fn with_selection(mut self, selection: Selection) -> Self {
        if let Some(informer) = &self.informer {
            let kind = informer.kind().to_string();
            let message =
                "with_selection() was called after a mapper, handler or pause was declared; call it first"
                    .to_owned();
            self.declared_watches.fail(SetupError::Watch { kind, message });
        }
        self.selection = selection;
        self
    }

    /// Passes only events that `predicate` accepts to the mappers and handlers that are declared afterwards. If there
    /// are several predicates, an event must pass all of them. A panic in a predicate is counted; the keys of that
    /// event are not enqueued.
    pub fn when(mut self, predicate: Predicate<T>) -> Self {
        self.predicates.push(predicate);
        self
    }

    /// Sets the priority at which the mappers and handlers that are declared afterwards enqueue keys, for all causes of
    /// an event. By default, changes have [`Priority::NORMAL`], and the initial list and resyncs have the controller's
    /// [background priority](crate::Setup::background_priority).
    pub fn priority(mut self, priority: Priority) -> Self {
        self.priority = Some(priority);
        self
    }

    /// Enqueues the keys that `map` returns for a changed object. After an update, both the old and the new state are
    /// mapped; each key is enqueued once per event. A panic in `map` is counted; the keys of that event are not
    /// enqueued. A `map` that captures a lister can read other objects and indexes.
    ///
    /// If the controller is sharded and this watch covers [every shard](Selection::with_every_shard), the keys of a
    /// shard are also enqueued when this replica takes the shard over, because the cache already contains their objects
    /// and sends no events. Keys that [`on_event`](Self::on_event) enqueued are not enqueued again.
    pub fn enqueue<I>(mut self, map: impl Fn(&T) -> I + Send + Sync + 'static) -> Self
    where
        I: IntoIterator<Item = ObjectKey>,
    {
        self.declared_watches.needs_queue("enqueue");
        self.map(Arc::new(move |object| map(object).into_iter().collect()));
        self
    }

    /// Calls `handle` with every change, first with one `Added` event for each object that exists when the controller
    /// starts. `handle` must not block, because it runs in the task of the watch. A panic is counted.
    pub fn on_event(mut self, handle: impl FnMut(&Event<Arc<T>>, &Enqueuer) + Send + 'static) -> Self {
        self.declared_watches.needs_queue("on_event");
        self.handle(Box::new(handle));
        self
    }

    /// Pauses keys by an annotation, and makes the watch [primary](Self::primary). While the object of a key has the
    /// annotation, with any value except `false`, the key is not reconciled. When the annotation or the object is
    /// removed, the key is enqueued immediately, regardless of predicates. A reconcile that runs when the annotation is
    /// set completes. While the object cannot be decoded, its key is [not
    /// reconciled](crate::Setup::reconcile_undecodable) either. The author of the controller chooses the annotation
    /// key, for example `windlass.dev/paused`.
    pub fn paused_by(mut self, annotation: &'static str) -> Self
    where
        T: Resource,
    {
        self.declared_watches.needs_queue("paused_by");
        let cache = Cache::of(self.informer().erased());
        self.declared_watches.pauses.push(PauseAnnotation::new(annotation, cache));
        self.join(Box::new(resume(annotation)));
        self.primary()
    }

    /// Stores the objects [decoded](windlass_informer::ObjectForm::Decoded), for every controller that shares the
    /// cache. By default a cache is compact, and a read decodes the object. A compact cache keeps up
    /// to 2 MiB of objects decoded, counted on the wire. Use this method if each reconcile scans a larger collection. A
    /// decoded Pod takes 40 KB.
    pub fn decoded(mut self) -> Self {
        self.is_decoded = true;
        if let Some(informer) = &self.informer {
            informer.keep_decoded();
        }
        self
    }

    /// Returns the lister of the cache. The cache is empty until the manager runs.
    pub fn lister(mut self) -> Lister<T> {
        self.informer().lister()
    }

    /// Returns the informer, for features that this builder does not offer.
    pub fn informer(&mut self) -> &SharedInformer<T> {
        let Self { make, selection, informer, is_decoded, .. } = self;
        informer.get_or_insert_with(|| {
            let make = make.take().expect("an informer is created once");
            let informer = make(std::mem::take(selection));
            if *is_decoded {
                informer.keep_decoded();
            }
            informer
        })
    }

    fn map(&mut self, map: Map<T>) {
        self.replay_at_takeover(Arc::clone(&map));
        self.handle(Box::new(to_keys(move |object| map(object))));
    }

    /// Enqueues the key of each object. A new spec ends the rest of the key: users wait for its effect.
    fn map_to_self(&mut self) {
        self.replay_at_takeover(Arc::new(by_self));
        let mut enqueue = to_keys(by_self);
        self.handle(Box::new(move |event, queue| {
            if changes_spec(event) {
                queue.end_rest(&event.object().metadata().key());
            }
            enqueue(event, queue);
        }));
    }

    fn replay_at_takeover(&mut self, map: Map<T>) {
        if self.informer().shards().is_none() {
            let replay = self.replay(map);
            self.declared_watches.replays.push(replay);
        }
    }

    fn handle(&mut self, mut handle: Handle<T>) {
        let (predicates, priority) = (self.predicates.clone(), self.priority);
        self.join(Box::new(move |event: &Event<_>, queue: &Enqueuer| {
            if queue.passes_predicates(event, &predicates) {
                match priority {
                    Some(priority) => handle(event, &queue.with_priority(priority)),
                    None => handle(event, queue),
                }
            }
        }));
    }

    fn join(&mut self, handle: Handle<T>) {
        let informer = self.informer().clone();
        let kind = informer.kind().to_string();
        let attach: Attach = Box::new(move |wiring| attach(&informer, wiring, handle));
        self.declared_watches.handlers.push((kind, attach));
    }

    fn replay(&mut self, map: Map<T>) -> Replay {
        let (predicates, priority) = (self.predicates.clone(), self.priority);
        let informer = self.informer().clone();
        let kind = informer.kind().clone();
        let each: Each = Box::new(move |queue, found| {
            // One object at a time: a compact cache decodes each.
            let lister = informer.lister();
            for object in lister.keys().iter().filter_map(|key| lister.get_lossy(key)) {
                let event = Event::Added { object, cause: Cause::InitialList };
                let keys = || keys_of(&event, |object| map(object));
                let passes = || queue.passes_predicates(&event, &predicates);
                found(
                    event.object().metadata(),
                    catch_panic_sync(|| passes().then(keys).unwrap_or_default()),
                );
            }
        });
        replay(kind, priority, each)
    }
}

/// Calls a function with every object of a cache, and with its keys or the panic message of user code.
type Each =
    Box<dyn Fn(&Enqueuer, &mut dyn FnMut(MetadataRef<'_>, Result<Vec<ObjectKey>, String>)) + Send + Sync>;

/// Creates the replay of a watch with objects of any type.
fn replay(kind: ResourceKind, priority: Option<Priority>, each: Each) -> Replay {
    Arc::new(move |wiring, wanted| {
        let observed = ObservedEvent::of(&kind.to_string());
        let queue = wiring.queue.for_watch(observed).for_background().with_priority(wiring.background);
        let queue = priority.map_or_else(|| queue.clone(), |priority| queue.with_priority(priority));
        each(&queue, &mut |object, keys| match keys {
            Ok(keys) => queue.add_all(keys.into_iter().filter(|key| wanted(key))),
            Err(message) => wiring.panicked(&kind.kind, object, &message),
        });
    })
}

/// Completes the declaration: registers the cache and the mapper of a primary watch.
impl<T: HasMetadata> Drop for Watch<'_, T> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            return;
        }
        let cache = Cache::of(self.informer().erased());
        if self.is_primary {
            self.declared_watches.primary.push(cache);
            self.map_to_self();
        }
    }
}

impl<T: HasMetadata> fmt::Debug for Watch<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Watch<{}>", std::any::type_name::<T>())
    }
}

/// Returns whether an event shows a new generation, a deletion, or another object. API servers do not count the
/// generations of some kinds with a spec, such as Services.
fn changes_spec<T: HasMetadata>(event: &Event<Arc<T>>) -> bool {
    match event {
        Event::Added { .. } | Event::Deleted { .. } => true,
        Event::Updated { old, new, .. } => {
            let (old, new) = (old.metadata(), new.metadata());
            let starts_deletion = old.deletion_timestamp().is_none() && new.deletion_timestamp().is_some();
            starts_deletion || old.generation() != new.generation()
        }
    }
}

/// Returns a handler that enqueues the keys that `map` returns for the old and the new state.
pub(crate) fn to_keys<O>(
    map: impl Fn(&O) -> Vec<ObjectKey> + Send + 'static,
) -> impl FnMut(&Event<Arc<O>>, &Enqueuer) + Send + 'static {
    move |event, queue| queue.add_all(keys_of(event, |object| map(object)))
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::apps::v1::ReplicaSet;
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
    use windlass_env::Env;

    use super::*;

    #[test]
    fn new_spec_and_deletion_end_the_rest() {
        let set = |generation, deleted: bool| {
            let mut set = ReplicaSet::default();
            set.metadata.generation = Some(generation);
            set.metadata.deletion_timestamp = deleted.then(|| Time(Env::virtual_time(1).wall()));
            Arc::new(set)
        };
        let ends = |old: &Arc<ReplicaSet>, new: &Arc<ReplicaSet>| {
            let (old, new) = (Arc::clone(old), Arc::clone(new));
            changes_spec(&Event::Updated { old, new, cause: Cause::Watch })
        };
        let (first, second, leaving) = (set(1, false), set(2, false), set(1, true));
        assert!(ends(&first, &second) && ends(&first, &leaving));
        assert!(!ends(&first, &first) && !ends(&leaving, &leaving));
        assert!(changes_spec(&Event::Added { object: first, cause: Cause::Watch }));
    }
}
