//! One watched kind while it is being wired: predicates, mappers, handlers, indexes, and at the end a lister.

use std::any::Any as _;
use std::fmt;
use std::sync::Arc;

use kube::Resource;
use serde::de::DeserializeOwned;
use windlass_env::caught_now;
use windlass_informer::{Cause, Event, Lister, SharedInformer};
use windlass_object::{ObjectKey, Scoped};
use windlass_workqueue::Priority;

use crate::consistency::caches::Cache;
use crate::enqueue::enqueuer::{Enqueuer, by_self, keys_of};
use crate::enqueue::history::Sighting;
use crate::enqueue::pause::{Pause, resume};
use crate::enqueue::predicate::Predicate;
use crate::enqueue::wiring::{Attach, Replay, Wired, attach};

/// A Rust type whose objects can be watched: k8s-openapi's, and those that derive `CustomResource`.
pub trait Watchable:
    Resource<DynamicType = (), Scope: Scoped> + DeserializeOwned + Send + Sync + 'static
{
}

impl<K> Watchable for K where
    K: Resource<DynamicType = (), Scope: Scoped> + DeserializeOwned + Send + Sync + 'static
{
}

/// One watched kind, while it is being wired. Ends with [`Watch::lister`], or is simply dropped when only the events
/// matter.
pub struct Watch<'s, T> {
    wired: &'s mut Wired,
    informer: SharedInformer<T>,
    predicates: Vec<Predicate<T>>,
    priority: Option<Priority>,
    is_primary: bool,
}

impl<'s, T: Resource + Send + Sync + 'static> Watch<'s, T> {
    pub(crate) fn new(wired: &'s mut Wired, informer: SharedInformer<T>) -> Self {
        Self { wired, informer, predicates: Vec::new(), priority: None, is_primary: false }
    }

    /// Says that the controller's keys name the objects of this watch. While such an object exists and cannot be decoded,
    /// its key is [not reconciled](crate::Setup::reconcile_undecodable). [`enqueue`](Self::enqueue) with
    /// [`by_self`](crate::by_self) and [`paused_by`](Self::paused_by) imply it.
    #[must_use]
    pub fn primary(mut self) -> Self {
        if !self.is_primary {
            self.wired.own.push(Cache::of(self.informer.erased()));
        }
        self.is_primary = true;
        self
    }

    /// From here on only events that `predicate` lets pass reach this watch's mappers and handlers. Several must all
    /// agree; those declared before are not affected. A panic in one is counted and costs that one event's keys.
    #[must_use]
    pub fn when(mut self, predicate: Predicate<T>) -> Self {
        self.predicates.push(predicate);
        self
    }

    /// From here on mappers and handlers of this watch queue keys at this priority, whatever the cause of the event.
    /// Otherwise changes are queued at [`Priority::NORMAL`], and what nothing happened to at the controller's
    /// [background priority](crate::Setup::background_priority).
    #[must_use]
    pub fn priority(mut self, priority: Priority) -> Self {
        self.priority = Some(priority);
        self
    }

    /// Enqueues the keys that `map` finds in an object whenever it changes. Old and new state are both mapped; a key
    /// is enqueued once per event. A panic in `map` is counted and costs that one event's keys. A `map` that captures
    /// a lister can look at other objects, and by every index.
    ///
    /// Where replicas share shards and this watch is of [every shard](crate::Setup::watch_every_shard), the keys of one that is
    /// taken over are enqueued too: the cache has had their objects all the time. What [`on_event`](Self::on_event) queued
    /// is not.
    pub fn enqueue(mut self, map: impl Fn(&T) -> Vec<ObjectKey> + Send + Sync + 'static) -> Self {
        if map.type_id() == by_self::<T>.type_id() {
            self = self.primary();
        }
        let map = Arc::new(map);
        if self.informer.shards().is_none() {
            let replay = self.replay(Arc::clone(&map));
            self.wired.replays.push(replay);
        }
        self.on_event(to_keys(move |object| map(object)))
    }

    fn replay(&self, map: Arc<impl Fn(&T) -> Vec<ObjectKey> + Send + Sync + 'static>) -> Replay {
        let (informer, predicates, priority) =
            (self.informer.clone(), self.predicates.clone(), self.priority);
        Arc::new(move |wiring, wanted| {
            let sighting = Sighting::of(&informer.kind().to_string());
            let queue = wiring.queue.of_watch(sighting).caused_by(Cause::InitialList, wiring.background);
            let queue = priority.map_or_else(|| queue.clone(), |priority| queue.at(priority));
            for object in informer.lister().list() {
                let event = Event::Added { object, cause: Cause::InitialList };
                let keys = caught_now(|| match queue.lets_in(&event, &predicates) {
                    true => keys_of(&event, |object| map(object)),
                    false => Vec::new(),
                });
                match keys {
                    Ok(keys) => queue.add_all(keys.into_iter().filter(|key| wanted(key))),
                    Err(message) => wiring.panicked(&informer.kind().kind, event.object().meta(), &message),
                }
            }
        })
    }

    /// Calls `handle` with every change, first with one `Added` for each object that exists when the controller
    /// starts. It runs in the watch's own task, so it does not wait. A panic is counted.
    pub fn on_event(self, mut handle: impl FnMut(&Event<Arc<T>>, &Enqueuer) + Send + 'static) -> Self {
        let (predicates, priority) = (self.predicates.clone(), self.priority);
        let handle = move |event: &Event<_>, queue: &Enqueuer| {
            if queue.lets_in(event, &predicates) {
                match priority {
                    Some(priority) => handle(event, &queue.at(priority)),
                    None => handle(event, queue),
                }
            }
        };
        self.join(handle)
    }

    /// Pauses the keys of this watch's own objects: while the object that a key names has this annotation, with any value
    /// but `false`, the key is not reconciled, whatever asks for it. Once the annotation goes, or the object, the key
    /// is queued at once, whatever predicates say. A reconcile that runs when it comes goes on to its end. While the object
    /// cannot be decoded, its key is [not reconciled](crate::Setup::reconcile_undecodable) either. The
    /// annotation is the controller author's to choose; `windlass.dev/paused` is one.
    pub fn paused_by(self, annotation: &'static str) -> Self {
        self.wired.pauses.push(Pause::new(annotation, Cache::of(self.informer.erased())));
        self.primary().join(resume(annotation))
    }

    fn join(self, handle: impl FnMut(&Event<Arc<T>>, &Enqueuer) + Send + 'static) -> Self {
        let informer = self.informer.clone();
        let attach: Attach = Box::new(move |wiring| attach(&informer, wiring, handle));
        self.wired.handlers.push((self.informer.kind().to_string(), attach));
        self
    }

    /// Reads of the cache. Empty until the manager runs.
    pub fn lister(self) -> Lister<T> {
        self.informer.lister()
    }

    /// The informer itself, for what is not offered here.
    pub fn informer(&self) -> &SharedInformer<T> {
        &self.informer
    }
}

impl<T> fmt::Debug for Watch<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Watch<{}>", self.informer.kind())
    }
}

/// A handler that enqueues the keys that `map` finds in the old and the new state.
pub fn to_keys<O>(
    map: impl Fn(&O) -> Vec<ObjectKey> + Send + 'static,
) -> impl FnMut(&Event<Arc<O>>, &Enqueuer) + Send + 'static {
    move |event, queue| queue.add_all(keys_of(event, |object| map(object)))
}
