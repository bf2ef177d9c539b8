//! From what changed to which keys want work.
//!
//! A mapper is any function from an object to keys. After an update both the old and the new state are mapped, so that
//! a key an object no longer points at still hears of it; each key is enqueued once per event. A mapper that needs more
//! than the object captures a lister, and so has every index of that cache.
//!
//! What nothing happened to waits behind what something happened to: keys from the initial list and from resyncs are
//! queued at a lower priority, unless a controller says otherwise ([`Setup::background_priority`](crate::Setup)). Keys
//! that are another replica's ([`KeyOwnership`]) are not queued.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use kube::Resource;
use windlass_informer::{Cause, Event, Index, Lister};
use windlass_object::owner::controller_of;
use windlass_object::{ObjectKey, ResourceKind, Scope, Scoped};
use windlass_sharding::{KeyOwnership, Ownership};
use windlass_workqueue::{AddOptions, ParkReason, Priority, Queue};

use crate::enqueue::history::{EnqueueReason, History, KeyOrigin, ObservedEvent};
use crate::enqueue::predicate::Predicate;
use crate::enqueue::quarantine::Quarantine;

/// The object's own key.
pub fn by_self<K: Resource>(object: &K) -> Vec<ObjectKey> {
    vec![ObjectKey::of(object.meta())]
}

/// The key of the controlling owner, if that owner is an `O`. Versions of the owner's group are not compared: an object
/// keeps the owner reference it was born with when its owner moves on to a newer version.
pub fn by_owner<O>(object: &impl Resource) -> Vec<ObjectKey>
where
    O: Resource<DynamicType = ()>,
    O::Scope: Scoped,
{
    controlling(object.meta(), &ResourceKind::of::<O>())
}

/// The keys of all owners that are an `O`, whether they control the object or not.
pub fn by_any_owner<O>(object: &impl Resource) -> Vec<ObjectKey>
where
    O: Resource<DynamicType = ()>,
    O::Scope: Scoped,
{
    owning(object.meta(), &ResourceKind::of::<O>())
}

/// The keys of the objects that `index` has under the key of the changed object: those that refer to it.
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
    K: Resource,
    T: Send + Sync + 'static,
{
    let index = index.clone();
    move |object| index.keys(&ObjectKey::of(object.meta()))
}

/// The keys of all objects of a lister, whatever changed: for what concerns each of them.
pub fn all_of<K, T>(lister: &Lister<T>) -> impl Fn(&K) -> Vec<ObjectKey> + Send + Sync + 'static
where
    T: Send + Sync + 'static,
{
    let lister = lister.clone();
    move |_| lister.keys()
}

/// The key of the object that the label `key` names, in the namespace of the changed object. An object without the label, or
/// with an empty value, has none. The index function [`indexes::by_label`](windlass_informer::indexes::by_label) returns
/// the value itself.
///
/// # Examples
/// ```
/// # use k8s_openapi::api::core::v1::Pod;
/// # use windlass_controller::{Setup, by_label};
/// # fn declare(setup: &mut Setup) {
/// setup.watch::<Pod>().enqueue(by_label("example.com/site"));
/// # }
/// ```
pub fn by_label<K: Resource>(key: &str) -> impl Fn(&K) -> Vec<ObjectKey> + Send + Sync + use<K> {
    let key = key.to_owned();
    move |object| named_by_label(object.meta(), &key).into_iter().collect()
}

/// The owners of an object that a mapper takes.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Owners {
    /// The owner that controls the object.
    Controller,
    /// All owners, whether they control the object or not.
    All,
}

/// As [`by_owner`] or [`by_any_owner`], for owners of a kind known only at run time.
pub fn by_owner_kind<K: Resource>(
    kind: ResourceKind,
    owners: Owners,
) -> impl Fn(&K) -> Vec<ObjectKey> + Send + Sync + 'static {
    move |object| match owners {
        Owners::Controller => controlling(object.meta(), &kind),
        Owners::All => owning(object.meta(), &kind),
    }
}

/// Where handlers put keys. It knows the priority that what happened deserves, which keys rest in quarantine, and which
/// are another replica's.
#[derive(Clone)]
pub struct Enqueuer {
    queue: Queue<ObjectKey>,
    quarantine: Quarantine,
    history: History,
    ownership: Arc<dyn KeyOwnership>,
    origin: KeyOrigin,
    priority: Priority,
    news: ChangeKind,
}

/// Whether something happened.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
enum ChangeKind {
    /// Something changed, or somebody asks.
    Change,
    /// Nothing did: it is a time to look again, or the first look.
    Routine,
}

impl Enqueuer {
    /// For what happened.
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
            news: ChangeKind::Change,
        }
    }

    /// For the keys of one watch.
    pub(crate) fn for_watch(&self, sighting: Arc<ObservedEvent>) -> Self {
        Self { origin: KeyOrigin::Watch(sighting), ..self.clone() }
    }

    /// For the keys of something else.
    pub(crate) fn of(&self, asker: EnqueueReason) -> Self {
        Self { origin: KeyOrigin::Other(asker), ..self.clone() }
    }

    /// Whether `event` passes every one of `predicates`; if not, it is noted which one kept it back.
    pub(crate) fn passes_predicates<O: Resource + 'static>(
        &self,
        event: &Event<Arc<O>>,
        predicates: &[Predicate<O>],
    ) -> bool {
        let Some(by) = predicates.iter().find(|one| !one.passes(event)) else { return true };
        if let KeyOrigin::Watch(sighting) = &self.origin {
            self.history.refused(event.object().meta(), event, sighting, by.name());
        }
        false
    }

    /// For the keys of an event with this cause; `background` is for those where nothing happened.
    pub(crate) fn for_cause(&self, cause: Cause, background: Priority) -> Self {
        match cause {
            Cause::InitialList | Cause::Resync => self.for_background().at(background),
            // What a re-list or a changed selection shows has happened, though nobody saw when.
            _ => self.clone(),
        }
    }

    /// For keys that nothing happened to.
    pub(crate) fn for_background(&self) -> Self {
        Self { news: ChangeKind::Routine, ..self.clone() }
    }

    /// Adds every key that the history contains.
    pub(crate) fn add_known(&self) {
        self.add_all(self.history.keys());
    }

    /// The same place, at another priority.
    #[must_use]
    pub fn at(&self, priority: Priority) -> Self {
        Self { priority, ..self.clone() }
    }

    /// The priority at which keys are added here.
    pub fn priority(&self) -> Priority {
        self.priority
    }

    /// Queues `key`. See [`Queue::add`].
    pub fn add(&self, key: ObjectKey) {
        self.put(key, AddOptions::now());
    }

    /// Queues `key` once `delay` has passed. See [`Queue::add_after`].
    pub fn add_after(&self, key: ObjectKey, delay: Duration) {
        self.put(key, AddOptions::after(delay));
    }

    /// Queues `keys`, once each.
    pub fn add_all(&self, keys: impl IntoIterator<Item = ObjectKey>) {
        // Users' code makes them one by one, and may use the queue meanwhile: not under the queue's lock.
        let wanted: Vec<ObjectKey> = keys.into_iter().filter(|key| self.accepts(key)).collect();
        self.history.queued(&wanted, &self.origin);
        self.queue.add_all(wanted, self.priority);
    }

    /// Takes back what was to queue `key` later, [`add_after`](Self::add_after) or a retry. A key that has come due stays.
    pub fn cancel(&self, key: &ObjectKey) {
        self.queue.cancel_delayed(key);
    }

    fn put(&self, key: ObjectKey, add: AddOptions) {
        if self.accepts(&key) {
            self.enqueue_accepted(key, add);
        }
    }

    /// Queues `key`, which [is wanted](Self::accepts), without another check of its ownership.
    pub(crate) fn enqueue_accepted(&self, key: ObjectKey, add: AddOptions) {
        self.history.queued([&key], &self.origin);
        self.queue.add_with(key, add.priority(self.priority));
    }

    /// Whether `key` is parked for `reason`.
    pub(crate) fn is_parked(&self, key: &ObjectKey, reason: ParkReason) -> bool {
        self.queue.is_parked(key, reason)
    }

    /// How many keys are parked for `reason`.
    pub(crate) fn count_parked(&self, reason: ParkReason) -> usize {
        self.queue.count_parked(reason)
    }

    /// Queues `key`, as urgent as it was, if it is parked for `reason`. The worker that takes it checks its ownership.
    pub(crate) fn release(&self, key: &ObjectKey, reason: ParkReason) {
        if self.is_parked(key, reason) {
            self.history.queued([key], &self.origin);
            self.queue.release(key, reason);
        }
    }

    /// A key in quarantine is woken by a change only, and one that is another replica's by nothing. Checks the ownership, which
    /// is its user's code.
    pub(crate) fn accepts(&self, key: &ObjectKey) -> bool {
        !matches!(self.ownership.ownership(key), Ownership::NotOwned { .. })
            && (self.news == ChangeKind::Change || !self.quarantine.holds(key))
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

fn named_by_label(meta: &ObjectMeta, key: &str) -> Option<ObjectKey> {
    let name = meta.labels.as_ref()?.get(key).filter(|name| !name.is_empty())?;
    Some(ObjectKey::new(meta.namespace.as_deref(), name))
}

fn controlling(meta: &ObjectMeta, kind: &ResourceKind) -> Vec<ObjectKey> {
    key_of_owner(meta, kind, controller_of(meta)).into_iter().collect()
}

fn owning(meta: &ObjectMeta, kind: &ResourceKind) -> Vec<ObjectKey> {
    let owners = meta.owner_references.iter().flatten();
    distinct(owners.filter_map(|owner| key_of_owner(meta, kind, Some(owner))).collect())
}

fn key_of_owner(meta: &ObjectMeta, kind: &ResourceKind, owner: Option<&OwnerReference>) -> Option<ObjectKey> {
    let owner = owner.filter(|owner| owner.kind == kind.kind && group(&owner.api_version) == kind.group)?;
    let namespace = match kind.scope {
        Scope::Namespaced => meta.namespace.as_deref(),
        Scope::Cluster => None,
    };
    Some(ObjectKey::new(namespace, &owner.name))
}

/// The keys an event concerns: those of the old state first, then those only the new state adds.
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
    fn only_the_controlling_owner_of_the_asked_kind_is_enqueued() {
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
    fn every_owner_of_the_asked_kind_is_enqueued_once_if_asked_for() {
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
        let mut labelled = |value: &str| {
            pod.metadata.labels = Some([("site".to_owned(), value.to_owned())].into());
            by_label("site")(&pod)
        };
        assert_eq!(labelled("web"), [ObjectKey::namespaced("shop", "web")]);
        assert_eq!(labelled(""), []);
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
    fn update_concerns_old_and_new_keys_once_each() {
        let key = ObjectKey::cluster;
        let map = |names: &Vec<&str>| names.iter().map(|name| key(name)).collect();
        let event = Event::Updated { old: vec!["a", "b"], new: vec!["b", "c"], cause: Cause::Watch };
        assert_eq!(keys_of(&event, map), [key("a"), key("b"), key("c")]);
    }
}
