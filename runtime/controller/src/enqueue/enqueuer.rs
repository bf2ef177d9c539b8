//! Maps changed objects to keys and enqueues the keys.
//!
//! A mapper is a function from an object to keys. After an update, both the old and the new state are mapped, so that a
//! key to which the object no longer refers is enqueued too. Each key is enqueued once per event. A mapper that needs
//! other objects captures a lister, which also provides the indexes of its cache.
//!
//! Keys from the initial list and from resyncs (background keys) have a lower priority than keys of changed objects;
//! [`Setup::background_priority`](crate::Setup) sets it. Keys that another replica owns ([`KeyOwnership`]) are not
//! enqueued.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use kube::Resource;
use windlass_informer::{Event, Index, Lister};
use windlass_object::{HasMetadata, MetadataRef, ObjectKey, OwnerRef, ResourceKind, Scope, Scoped};
use windlass_sharding::{KeyOwnership, Ownership};
use windlass_workqueue::{AddDelay, AddOptions, ParkReason, Priority, Queue};

use crate::enqueue::history::{EnqueueReason, History, KeyOrigin, ObservedEvent};
use crate::enqueue::predicate::Predicate;
use crate::enqueue::quarantine::Quarantine;

/// Maps an object to its own key.
pub fn by_self<K: HasMetadata>(object: &K) -> Vec<ObjectKey> {
    vec![object.metadata().key()]
}

/// Maps an object to the key of its controlling owner, if that owner is an `O`. API versions are not compared: an owner
/// reference keeps its API version when the owner is migrated to a newer one.
pub fn by_owner<O>(object: &impl HasMetadata) -> Vec<ObjectKey>
where
    O: Resource<DynamicType = ()>,
    O::Scope: Scoped,
{
    controlling(object.metadata(), &ResourceKind::of::<O>())
}

/// Maps an object to the keys of all its owners that are an `O`, whether they control the object or not.
pub fn by_any_owner<O>(object: &impl HasMetadata) -> Vec<ObjectKey>
where
    O: Resource<DynamicType = ()>,
    O::Scope: Scoped,
{
    owning(object.metadata(), &ResourceKind::of::<O>())
}

/// Creates a mapper to the objects that refer to the changed object, as recorded in `index`.
///
/// # Examples
/// ```
/// # use k8s_openapi::api::core::v1::{ConfigMap, Pod};
/// # use windlass_controller::{Setup, by_index};
/// # use windlass_object::ObjectKey;
/// # fn settings_of(pod: &Pod) -> Vec<ObjectKey> { Vec::new() }
/// # fn declare(setup: &mut Setup) {
/// let users = setup.watch::<Pod>().lister().index(settings_of);
/// setup.watch::<ConfigMap>().enqueue(by_index(&users));
/// # }
/// ```
pub fn by_index<K, T>(index: &Index<T, ObjectKey>) -> impl Fn(&K) -> Vec<ObjectKey> + Send + Sync + 'static
where
    K: HasMetadata,
    T: Send + Sync + 'static,
{
    let index = index.clone();
    move |object| index.keys(&object.metadata().key())
}

/// Creates a mapper to all objects of a lister, for a change that affects each of them.
pub fn all_of<K, T>(lister: &Lister<T>) -> impl Fn(&K) -> Vec<ObjectKey> + Send + Sync + 'static
where
    T: Send + Sync + 'static,
{
    let lister = lister.clone();
    move |_| lister.keys()
}

/// Creates a mapper to the object whose name is the value of the label `key`, in the namespace of the changed object.
/// An object without the label, or with an empty value, is mapped to no key. The index function
/// [`indexes::label_value`](windlass_informer::indexes::label_value) returns the value itself.
///
/// # Examples
/// ```
/// # use k8s_openapi::api::core::v1::Pod;
/// # use windlass_controller::{Setup, by_label};
/// # fn declare(setup: &mut Setup) {
/// setup.watch::<Pod>().enqueue(by_label("example.com/site"));
/// # }
/// ```
pub fn by_label<K: HasMetadata>(key: &str) -> impl Fn(&K) -> Vec<ObjectKey> + Send + Sync + use<K> {
    let key = key.to_owned();
    move |object| named_by_label(object.metadata(), &key).into_iter().collect()
}

/// The owners of an object that a mapper returns.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Owners {
    /// The owner that controls the object.
    Controller,
    /// All owners, whether they control the object or not.
    All,
}

/// Creates a mapper like [`by_owner`] or [`by_any_owner`], for a kind of owner that is known only at run time.
pub fn by_owner_kind<K: HasMetadata>(
    kind: ResourceKind,
    owners: Owners,
) -> impl Fn(&K) -> Vec<ObjectKey> + Send + Sync + 'static {
    move |object| match owners {
        Owners::Controller => controlling(object.metadata(), &kind),
        Owners::All => owning(object.metadata(), &kind),
    }
}

/// The handle with which handlers enqueue keys. It sets the priority by the cause of the event, and filters out
/// quarantined keys and keys that another replica owns.
#[derive(Clone)]
pub struct Enqueuer {
    queue: Queue<ObjectKey>,
    quarantine: Quarantine,
    history: History,
    ownership: Arc<dyn KeyOwnership>,
    origin: KeyOrigin,
    priority: Priority,
    change_kind: ChangeKind,
}

/// The kind of the cause for which keys are enqueued.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
enum ChangeKind {
    /// A change, or an explicit request.
    Change,
    /// No change: the initial list, a resync or a timer.
    Routine,
}

impl Enqueuer {
    /// Creates an enqueuer for changes.
    pub(crate) fn new(
        queue: Queue<ObjectKey>,
        quarantine: Quarantine,
        history: History,
        ownership: Arc<dyn KeyOwnership>,
    ) -> Self {
        let origin = KeyOrigin::Other(EnqueueReason::Controller);
        Self {
            queue,
            quarantine,
            history,
            ownership,
            origin,
            priority: Priority::NORMAL,
            change_kind: ChangeKind::Change,
        }
    }

    /// Returns an enqueuer for the keys of one watch.
    pub(crate) fn for_watch(&self, sighting: Arc<ObservedEvent>) -> Self {
        Self { origin: KeyOrigin::Watch(sighting), ..self.clone() }
    }

    /// Returns an enqueuer for keys with this reason, which is not an event of a watch.
    pub(crate) fn of(&self, reason: EnqueueReason) -> Self {
        Self { origin: KeyOrigin::Other(reason), ..self.clone() }
    }

    /// Returns whether `event` passes all `predicates`. Records the first predicate that rejects it.
    pub(crate) fn passes_predicates<O: HasMetadata>(
        &self,
        event: &Event<Arc<O>>,
        predicates: &[Predicate<O>],
    ) -> bool {
        let Some(by) = predicates.iter().find(|predicate| !predicate.passes(event)) else { return true };
        if let KeyOrigin::Watch(sighting) = &self.origin {
            self.history.record_filtered(event.object().metadata(), event, sighting, by.name());
        }
        false
    }

    /// Returns an enqueuer for background keys.
    pub(crate) fn for_background(&self) -> Self {
        Self { change_kind: ChangeKind::Routine, ..self.clone() }
    }

    /// Adds every key that the history contains.
    pub(crate) fn add_known(&self) {
        self.add_all(self.history.keys());
    }

    /// Returns an enqueuer for the same queue with another priority.
    #[must_use]
    pub fn with_priority(&self, priority: Priority) -> Self {
        Self { priority, ..self.clone() }
    }

    /// Returns the priority of the keys that this enqueuer adds.
    pub fn priority(&self) -> Priority {
        self.priority
    }

    /// Enqueues `key`. A key that is already queued keeps its position, or moves to a higher priority. A key that is
    /// being reconciled is reconciled once more afterwards, and a key that rests at the end of its rest. A key that
    /// another replica owns is ignored.
    pub fn add(&self, key: ObjectKey) {
        self.enqueue(key, AddOptions::now());
    }

    /// Enqueues `key` after `delay`, like [`add`](Self::add).
    pub fn add_after(&self, key: ObjectKey, delay: Duration) {
        self.enqueue(key, AddOptions::after(delay));
    }

    /// Enqueues each of `keys` once.
    pub fn add_all(&self, keys: impl IntoIterator<Item = ObjectKey>) {
        // Collected before the queue is locked: the iterator is user code, which can use the queue.
        let accepted: Vec<ObjectKey> = keys.into_iter().filter(|key| self.accepts(key)).collect();
        self.history.record_enqueue(&accepted, &self.origin);
        accepted.iter().for_each(|key| self.end_rest_if_urgent(key));
        self.queue.add_all(accepted, self.priority);
    }

    /// Ends the rest of `key`, so that the next [`add`](Self::add) does not wait for it. If the key is being
    /// reconciled, it does not rest afterwards. For changes to which a controller with [long
    /// rests](crate::Context::rest_at_least) reacts at once. A new spec of the object of the key, and an add with
    /// [`Priority::HIGH`] or more, always end its rest.
    pub fn end_rest(&self, key: &ObjectKey) {
        self.queue.end_rest(key);
    }

    /// Cancels delayed adds of `key` by [`add_after`](Self::add_after) and by retries. A key whose delay has passed
    /// stays in the queue.
    pub fn cancel(&self, key: &ObjectKey) {
        self.queue.cancel_delayed(key);
    }

    fn enqueue(&self, key: ObjectKey, add: AddOptions) {
        if self.accepts(&key) {
            self.enqueue_accepted(key, add);
        }
    }

    /// Enqueues `key`, which the caller has [checked](Self::accepts), without another ownership check.
    pub(crate) fn enqueue_accepted(&self, key: ObjectKey, add: AddOptions) {
        self.history.record_enqueue([&key], &self.origin);
        if add.when == AddDelay::Now {
            self.end_rest_if_urgent(&key);
        }
        self.queue.add_with(key, add.priority(self.priority));
    }

    /// A user waits for keys of [`Priority::HIGH`].
    fn end_rest_if_urgent(&self, key: &ObjectKey) {
        if self.priority >= Priority::HIGH {
            self.end_rest(key);
        }
    }

    /// Returns whether `key` is parked for `reason`.
    pub(crate) fn is_parked(&self, key: &ObjectKey, reason: ParkReason) -> bool {
        self.queue.is_parked(key, reason)
    }

    /// Returns the number of keys parked for `reason`.
    pub(crate) fn count_parked(&self, reason: ParkReason) -> usize {
        self.queue.count_parked(reason)
    }

    /// Enqueues `key` at its previous priority if it is parked for `reason`. The worker that dequeues it checks its
    /// ownership.
    pub(crate) fn release(&self, key: &ObjectKey, reason: ParkReason) {
        if self.is_parked(key, reason) {
            self.history.record_enqueue([key], &self.origin);
            self.queue.release(key, reason);
        }
    }

    /// Returns whether `key` can be enqueued. A quarantined key is enqueued for changes only. A key that another
    /// replica owns is never enqueued. Calls [`KeyOwnership`], which is user code.
    pub(crate) fn accepts(&self, key: &ObjectKey) -> bool {
        !matches!(self.ownership.ownership(key), Ownership::NotOwned { .. })
            && (self.change_kind == ChangeKind::Change || !self.quarantine.is_quarantined(key))
    }
}

impl fmt::Debug for Enqueuer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Enqueuer")
            .field("queue", &self.queue)
            .field("origin", &self.origin)
            .field("priority", &self.priority)
            .finish_non_exhaustive()
    }
}

fn named_by_label(meta: MetadataRef<'_>, key: &str) -> Option<ObjectKey> {
    let name = meta.labels().get(key).filter(|name| !name.is_empty())?;
    Some(ObjectKey::new(meta.namespace(), name))
}

fn controlling(meta: MetadataRef<'_>, kind: &ResourceKind) -> Vec<ObjectKey> {
    meta.controller().and_then(|owner| key_of_owner(meta, kind, owner)).into_iter().collect()
}

fn owning(meta: MetadataRef<'_>, kind: &ResourceKind) -> Vec<ObjectKey> {
    distinct(meta.owners().filter_map(|owner| key_of_owner(meta, kind, owner)).collect())
}

fn key_of_owner(meta: MetadataRef<'_>, kind: &ResourceKind, owner: OwnerRef<'_>) -> Option<ObjectKey> {
    if owner.kind != kind.kind || group(owner.api_version) != kind.group {
        return None;
    }
    let namespace = match kind.scope {
        Scope::Namespaced => meta.namespace(),
        Scope::Cluster => None,
    };
    Some(ObjectKey::new(namespace, owner.name))
}

/// Returns the keys of an event: the keys of the old state, then the keys that only the new state has.
pub(crate) fn keys_of<T>(event: &Event<T>, map: impl Fn(&T) -> Vec<ObjectKey>) -> Vec<ObjectKey> {
    match event {
        Event::Added { object, .. } => distinct(map(object)),
        Event::Updated { old, new, .. } => distinct([map(old), map(new)].concat()),
        Event::Deleted { last, .. } => distinct(map(last)),
    }
}

fn distinct(keys: Vec<ObjectKey>) -> Vec<ObjectKey> {
    let mut seen = std::collections::BTreeSet::new();
    keys.into_iter().filter(|key| seen.insert(key.clone())).collect()
}

fn group(api_version: &str) -> &str {
    api_version.split_once('/').map_or("", |(group, _)| group)
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::apps::v1::ReplicaSet;
    use k8s_openapi::api::core::v1::{Node, Pod, ReplicationController};
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
    use windlass_informer::Cause;

    use super::*;

    fn owned(api_version: &str, kind: &str, controller: Option<bool>) -> Pod {
        let owner = OwnerReference {
            api_version: api_version.into(),
            kind: kind.into(),
            name: "web".into(),
            uid: "1".into(),
            controller,
            block_owner_deletion: None,
        };
        let metadata = ObjectMeta {
            namespace: Some("shop".into()),
            name: Some("web-1".into()),
            owner_references: Some(vec![owner]),
            ..ObjectMeta::default()
        };
        Pod { metadata, ..Pod::default() }
    }

    // parity: enqueue-object-map-function
    #[test]
    fn by_owner_enqueues_only_controlling_owner_of_kind() {
        let web = ObjectKey::namespaced("shop", "web");
        let pod = owned("apps/v1", "ReplicaSet", Some(true));
        assert_eq!(by_owner::<ReplicaSet>(&pod), std::slice::from_ref(&web));
        assert_eq!(by_owner::<ReplicationController>(&pod), []);
        assert_eq!(by_owner::<ReplicaSet>(&owned("apps/v1", "ReplicaSet", None)), []);
        assert_eq!(by_owner::<ReplicaSet>(&owned("apps/v1beta2", "ReplicaSet", Some(true))), [web]);
        assert_eq!(by_owner::<ReplicaSet>(&owned("other.io/v1", "ReplicaSet", Some(true))), []);
    }

    // parity: match-every-owner
    #[test]
    fn by_any_owner_enqueues_each_owner_of_kind_once() {
        let mut pod = owned("apps/v1", "ReplicaSet", Some(true));
        let first = pod.metadata.owner_references.as_ref().and_then(|all| all.first()).cloned().expect("one");
        let named = |name: &str| OwnerReference { name: name.into(), controller: None, ..first.clone() };
        let other = OwnerReference { kind: "Job".into(), api_version: "batch/v1".into(), ..named("job") };
        pod.metadata.owner_references = Some(vec![first.clone(), named("api"), named("web"), other]);
        let (web, api) = (ObjectKey::namespaced("shop", "web"), ObjectKey::namespaced("shop", "api"));
        assert_eq!(by_any_owner::<ReplicaSet>(&pod), [web.clone(), api.clone()]);
        assert_eq!(by_owner::<ReplicaSet>(&pod), std::slice::from_ref(&web));
        let kind = ResourceKind::of::<ReplicaSet>();
        assert_eq!(by_owner_kind(kind.clone(), Owners::All)(&pod), [web.clone(), api]);
        assert_eq!(by_owner_kind(kind, Owners::Controller)(&pod), [web]);
        assert_eq!(by_any_owner::<ReplicaSet>(&Pod::default()), []);
    }

    #[test]
    fn label_names_an_object_in_the_same_namespace() {
        let mut pod = owned("v1", "Node", None);
        let mut labeled = |value: &str| {
            pod.metadata.labels = Some([("site".to_owned(), value.to_owned())].into());
            by_label("site")(&pod)
        };
        assert_eq!(labeled("web"), [ObjectKey::namespaced("shop", "web")]);
        assert_eq!(labeled(""), []);
        let mut node = Node::default();
        assert_eq!(by_label("site")(&node), []);
        node.metadata.labels = Some([("site".to_owned(), "web".to_owned())].into());
        assert_eq!(by_label("site")(&node), [ObjectKey::cluster("web")]);
    }

    // parity: enqueue-object-map-function
    #[test]
    fn cluster_scoped_owner_has_a_key_without_namespace() {
        assert_eq!(by_owner::<Node>(&owned("v1", "Node", Some(true))), [ObjectKey::cluster("web")]);
    }

    // parity: enqueue-requests-from-map-func, enqueue-object-map-function
    #[test]
    fn update_maps_to_old_and_new_keys_once_each() {
        let key = ObjectKey::cluster;
        let map = |names: &Vec<&str>| names.iter().map(|name| key(name)).collect();
        let event = Event::Updated { old: vec!["a", "b"], new: vec!["b", "c"], cause: Cause::Watch };
        assert_eq!(keys_of(&event, map), [key("a"), key("b"), key("c")]);
    }
}
