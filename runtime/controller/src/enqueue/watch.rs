//! One watched kind while it is being declared: selection, predicates, mappers, handlers, and at the end a lister.

use std::fmt;
use std::sync::Arc;

use kube::Resource;
use kube::core::ObjectMeta;
use serde::de::DeserializeOwned;
use windlass_env::catch_panic_sync;
use windlass_informer::{Cause, Event, Lister, Selection, SharedInformer};
use windlass_object::{ObjectKey, ResourceKind, Scoped};
use windlass_workqueue::Priority;

use crate::consistency::caches::Cache;
use crate::enqueue::enqueuer::{Enqueuer, by_self, keys_of};
use crate::enqueue::history::ObservedEvent;
use crate::enqueue::pause::{PauseAnnotation, resume};
use crate::enqueue::predicate::Predicate;
use crate::enqueue::wiring::{Attach, Replay, Wired, attach};
use crate::error::SetupError;
use crate::ownership::ApiScope;

/// A Rust type whose objects can be watched: k8s-openapi's, and those that derive `CustomResource`.
pub trait Watchable:
    Resource<DynamicType = (), Scope: Scoped + ApiScope> + DeserializeOwned + Send + Sync + 'static
{
}

impl<K> Watchable for K where
    K: Resource<DynamicType = (), Scope: Scoped + ApiScope> + DeserializeOwned + Send + Sync + 'static
{
}

/// One watched kind, while it is being declared. Ends with [`Watch::lister`], or is dropped when only the events matter.
///
/// The order of its methods has no meaning, with one exception: [`when`](Self::when) and [`priority`](Self::priority) hold
/// for the mappers and handlers that are declared after them, and for the own keys of a [`primary`](Self::primary) watch.
pub struct Watch<'s, T: Resource + Send + Sync + 'static> {
    wired: &'s mut Wired,
    /// `None` once the informer is made: when it is first needed, and so after the selection is known.
    make: Option<Make<'s, T>>,
    selection: Selection,
    informer: Option<SharedInformer<T>>,
    predicates: Vec<Predicate<T>>,
    priority: Option<Priority>,
    is_primary: bool,
}

/// Makes the informer of a selection.
type Make<'s, T> = Box<dyn FnOnce(Selection) -> SharedInformer<T> + 's>;

/// Maps an object to keys.
type Map<T> = Arc<dyn Fn(&T) -> Vec<ObjectKey> + Send + Sync>;

/// Receives events.
type Handle<T> = Box<dyn FnMut(&Event<Arc<T>>, &Enqueuer) + Send>;

impl<'s, T: Resource + Send + Sync + 'static> Watch<'s, T> {
    pub(crate) fn new(wired: &'s mut Wired, make: Make<'s, T>) -> Self {
        let (make, selection) = (Some(make), Selection::default());
        Self {
            wired,
            make,
            selection,
            informer: None,
            predicates: Vec::new(),
            priority: None,
            is_primary: false,
        }
    }

    /// The keys of the controller name the objects of this watch: each object enqueues its own key when it changes. While
    /// an object exists and cannot be decoded, its key is [not reconciled](crate::Setup::reconcile_undecodable).
    ///
    /// Several watches of a controller can be primary, if their objects have the same names. A key then waits while one of
    /// them cannot be decoded.
    pub fn primary(mut self) -> Self {
        self.wired.needs_queue("primary");
        self.is_primary = true;
        self
    }

    /// Watches the objects that `selection` leaves. Controllers that select alike share one cache.
    ///
    /// To be called before any mapper, handler or pause: setup fails otherwise.
    pub fn selecting(mut self, selection: Selection) -> Self {
        if let Some(informer) = &self.informer {
            let kind = informer.kind().to_string();
            let message = "select before mappers, handlers and pauses are declared".to_owned();
            self.wired.fail(SetupError::Watch { kind, message });
        }
        self.selection = selection;
        self
    }

    /// From here on only events that `predicate` lets pass reach this watch's mappers and handlers. Several must all
    /// agree; those declared before are not affected. A panic in one is counted and costs that one event's keys.
    pub fn when(mut self, predicate: Predicate<T>) -> Self {
        self.predicates.push(predicate);
        self
    }

    /// From here on mappers and handlers of this watch queue keys at this priority, whatever the cause of the event.
    /// Otherwise changes are queued at [`Priority::NORMAL`], and what nothing happened to at the controller's
    /// [background priority](crate::Setup::background_priority).
    pub fn priority(mut self, priority: Priority) -> Self {
        self.priority = Some(priority);
        self
    }

    /// Enqueues the keys that `map` finds in an object whenever it changes. Old and new state are both mapped; a key
    /// is enqueued once per event. A panic in `map` is counted and costs that one event's keys. A `map` that captures
    /// a lister can look at other objects, and by every index.
    ///
    /// Where replicas share shards and this watch is of [every shard](Selection::of_every_shard), the keys of one that is
    /// taken over are enqueued too: the cache has had their objects all the time. What [`on_event`](Self::on_event) queued
    /// is not.
    pub fn enqueue<I>(mut self, map: impl Fn(&T) -> I + Send + Sync + 'static) -> Self
    where
        I: IntoIterator<Item = ObjectKey>,
    {
        self.wired.needs_queue("enqueue");
        self.map(Arc::new(move |object| map(object).into_iter().collect()));
        self
    }

    /// Calls `handle` with every change, first with one `Added` for each object that exists when the controller
    /// starts. It runs in the watch's own task, so it does not wait. A panic is counted.
    pub fn on_event(mut self, handle: impl FnMut(&Event<Arc<T>>, &Enqueuer) + Send + 'static) -> Self {
        self.wired.needs_queue("on_event");
        self.handle(Box::new(handle));
        self
    }

    /// Pauses the keys of this watch's own objects: while the object that a key names has this annotation, with any value
    /// but `false`, the key is not reconciled, whatever asks for it. Once the annotation goes, or the object, the key
    /// is queued at once, whatever predicates say. A reconcile that runs when it comes goes on to its end. While the object
    /// cannot be decoded, its key is [not reconciled](crate::Setup::reconcile_undecodable) either. The
    /// annotation is the controller author's to choose; `windlass.dev/paused` is one. Makes the watch
    /// [primary](Self::primary).
    pub fn paused_by(mut self, annotation: &'static str) -> Self {
        self.wired.needs_queue("paused_by");
        let cache = Cache::of(self.informer().erased());
        self.wired.pauses.push(PauseAnnotation::new(annotation, cache));
        self.join(Box::new(resume(annotation)));
        self.primary()
    }

    /// Reads of the cache. Empty until the manager runs.
    pub fn lister(mut self) -> Lister<T> {
        self.informer().lister()
    }

    /// The informer itself, for what is not offered here.
    pub fn informer(&mut self) -> &SharedInformer<T> {
        let Self { make, selection, informer, .. } = self;
        informer.get_or_insert_with(|| {
            let make = make.take().expect("an informer is made once");
            make(std::mem::take(selection))
        })
    }

    fn map(&mut self, map: Map<T>) {
        if self.informer().shards().is_none() {
            let replay = self.replay(Arc::clone(&map));
            self.wired.replays.push(replay);
        }
        self.handle(Box::new(to_keys(move |object| map(object))));
    }

    fn handle(&mut self, mut handle: Handle<T>) {
        let (predicates, priority) = (self.predicates.clone(), self.priority);
        self.join(Box::new(move |event: &Event<_>, queue: &Enqueuer| {
            if queue.passes_predicates(event, &predicates) {
                match priority {
                    Some(priority) => handle(event, &queue.at(priority)),
                    None => handle(event, queue),
                }
            }
        }));
    }

    fn join(&mut self, handle: Handle<T>) {
        let informer = self.informer().clone();
        let kind = informer.kind().to_string();
        let attach: Attach = Box::new(move |wiring| attach(&informer, wiring, handle));
        self.wired.handlers.push((kind, attach));
    }

    fn replay(&mut self, map: Map<T>) -> Replay {
        let (predicates, priority) = (self.predicates.clone(), self.priority);
        let informer = self.informer().clone();
        let kind = informer.kind().clone();
        let each: Each = Box::new(move |queue, found| {
            for object in informer.lister().list() {
                let event = Event::Added { object, cause: Cause::InitialList };
                let keys = || keys_of(&event, |object| map(object));
                let is_let_in = || queue.passes_predicates(&event, &predicates);
                found(event.object().meta(), catch_panic_sync(|| is_let_in().then(keys).unwrap_or_default()));
            }
        });
        replay(kind, priority, each)
    }
}

/// Calls a function with every object of a cache, and with its keys or the message of a panic of users' code.
type Each = Box<dyn Fn(&Enqueuer, &mut dyn FnMut(&ObjectMeta, Result<Vec<ObjectKey>, String>)) + Send + Sync>;

/// The replay of a watch with objects of any type.
fn replay(kind: ResourceKind, priority: Option<Priority>, each: Each) -> Replay {
    Arc::new(move |wiring, wanted| {
        let sighting = ObservedEvent::of(&kind.to_string());
        let queue = wiring.queue.for_watch(sighting).for_cause(Cause::InitialList, wiring.background);
        let queue = priority.map_or_else(|| queue.clone(), |priority| queue.at(priority));
        each(&queue, &mut |object, keys| match keys {
            Ok(keys) => queue.add_all(keys.into_iter().filter(|key| wanted(key))),
            Err(message) => wiring.panicked(&kind.kind, object, &message),
        });
    })
}

/// What is declared by the watch as a whole: its cache, and the own keys of a primary one.
impl<T: Resource + Send + Sync + 'static> Drop for Watch<'_, T> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            return;
        }
        let cache = Cache::of(self.informer().erased());
        if self.is_primary {
            self.wired.own.push(cache);
            self.map(Arc::new(by_self));
        }
    }
}

impl<T: Resource + Send + Sync + 'static> fmt::Debug for Watch<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Watch<{}>", std::any::type_name::<T>())
    }
}

/// A handler that enqueues the keys that `map` finds in the old and the new state.
pub(crate) fn to_keys<O>(
    map: impl Fn(&O) -> Vec<ObjectKey> + Send + 'static,
) -> impl FnMut(&Event<Arc<O>>, &Enqueuer) + Send + 'static {
    move |event, queue| queue.add_all(keys_of(event, |object| map(object)))
}
