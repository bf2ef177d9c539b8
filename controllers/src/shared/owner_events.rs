//! Maps events of pods and of other children to owners.
//!
//! A child's controller reference, checked by kind, name and UID, identifies its owner. An orphan is mapped to each
//! owner that selects it, because one of them can adopt it. A pod with a deletion timestamp counts as deleted: its
//! owner must replace it immediately, before the node has stopped it. An event that changes the number of active pods
//! ends the rest of the owner.

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::apimachinery::pkg::apis::meta::v1 as meta;
use kube::Resource;
use windlass_controller::{Enqueuer, Setup};
use windlass_informer::{Cause, Event, Lister};
use windlass_object::{HasMetadata, LabelSelector, MetadataRef, ObjectKey, OwnerRef, SelectorError};

use super::availability::minimum;
use super::pod_view::PodView;
use super::pods::{self, controller_of};
use super::replicated::ReplicaOwner;

/// A kind of owners that selects its pods by labels. Other children have the labels of the pods.
pub(crate) trait PodOwner:
    Resource<DynamicType = (), Scope = NamespaceResourceScope> + Send + Sync + 'static
{
    /// Returns the selector of the children.
    ///
    /// # Errors
    /// If the selector of the object is invalid.
    fn pod_selector(&self) -> Result<LabelSelector, SelectorError>;

    /// Returns the time after which the owner is requeued when a pod becomes ready; `None` if a ready pod is available
    /// immediately.
    fn requeue_after_ready(&self) -> Option<Duration>;
}

impl<R: ReplicaOwner> PodOwner for R {
    fn pod_selector(&self) -> Result<LabelSelector, SelectorError> {
        self.selector()
    }

    fn requeue_after_ready(&self) -> Option<Duration> {
        minimum(self.min_ready_seconds())
    }
}

/// Returns the selector in the spec of an owner. Without a spec, it selects nothing.
pub(crate) fn selector_of(selector: Option<&meta::LabelSelector>) -> Result<LabelSelector, SelectorError> {
    selector.map_or_else(|| Ok(LabelSelector::nothing()), LabelSelector::from_api)
}

/// Lookup of the owners of one kind.
pub(crate) trait Owners<R> {
    /// Returns the owner that a reference names, if it exists.
    fn by_reference(&self, namespace: &str, reference: OwnerRef<'_>) -> Option<Arc<R>>;
    /// Returns the owners that would adopt a child with this metadata.
    fn by_selector(&self, child: MetadataRef<'_>) -> Vec<Arc<R>>;
}

impl<R: PodOwner> Owners<R> for Lister<R> {
    fn by_reference(&self, namespace: &str, reference: OwnerRef<'_>) -> Option<Arc<R>> {
        if reference.kind != R::kind(&()) {
            return None;
        }
        let owner = self.get_lossy(&ObjectKey::namespaced(namespace, reference.name))?;
        (pods::uid(owner.meta()) == reference.uid).then_some(owner)
    }

    fn by_selector(&self, child: MetadataRef<'_>) -> Vec<Arc<R>> {
        let labels = child.labels();
        if labels.iter().next().is_none() {
            return Vec::new();
        }
        let selects = |owner: &Arc<R>| {
            owner.pod_selector().is_ok_and(|selector| !selector.is_empty() && selector.matches(labels))
        };
        self.list_namespace(pods::namespace(child)).into_iter().filter(selects).collect()
    }
}

/// Requeue of an owner.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum OwnerRequeue {
    /// Immediately.
    Now(ObjectKey),
    /// When a ready pod becomes available.
    After(ObjectKey, Duration),
}

/// Returns the owners to requeue after an event of a pod.
pub(crate) fn pod_changed<R: PodOwner>(
    event: &Event<Arc<PodView>>,
    owners: &impl Owners<R>,
) -> Vec<OwnerRequeue> {
    let notice = PodEventContext { owners, kind: std::marker::PhantomData };
    match event {
        Event::Added { object, .. } if pods::is_being_deleted(object) => notice.of_owner(object),
        Event::Added { object, .. } => notice.added(object),
        // Owners have their own resyncs. The versions are not compared, because a server that was restored from a
        // backup reuses versions.
        Event::Updated { cause: Cause::Resync, .. } => Vec::new(),
        Event::Updated { old, new, .. } if pods::is_being_deleted(new) => notice.updated_leaving(old, new),
        Event::Updated { old, new, .. } => notice.updated(old, new),
        Event::Deleted { last, .. } => notice.of_owner(last),
    }
}

/// Returns whether an event changes the number of active pods of an owner, so that it might have to create or delete
/// one.
fn changes_active_pods(event: &Event<Arc<PodView>>) -> bool {
    match event {
        Event::Added { object: pod, .. } | Event::Deleted { last: pod, .. } => pods::is_active(pod),
        Event::Updated { old, new, .. } => {
            pods::is_active(old) != pods::is_active(new) || controller_of(old) != controller_of(new)
        }
    }
}

/// Watches pods, and enqueues their owners.
pub(crate) fn watch_pods<R: PodOwner>(setup: &mut Setup, owners: &Lister<R>) -> Lister<PodView> {
    let owners = owners.clone();
    let pods = setup.watch::<PodView>().on_event(move |event, queue| {
        let ends_rest = changes_active_pods(event);
        pod_changed(event, &owners).into_iter().for_each(|wake| enqueue(wake, ends_rest, queue));
    });
    pods.lister()
}

/// Returns the owners to sync after an event of a child that is not a pod.
pub(crate) fn child_changed<R: PodOwner, C: HasMetadata>(
    event: &Event<Arc<C>>,
    owners: &impl Owners<R>,
) -> Vec<ObjectKey> {
    match event {
        Event::Added { object, .. } => match object.metadata() {
            child if child.deletion_timestamp().is_some() => owner_of(child, owners),
            child if child.controller().is_some() => owner_of(child, owners),
            orphan => adopters_of(orphan, owners),
        },
        // Owners have their own resyncs.
        Event::Updated { cause: Cause::Resync, .. } => Vec::new(),
        Event::Updated { old, new, .. } => child_updated(old.metadata(), new.metadata(), owners),
        Event::Deleted { last, .. } => owner_of(last.metadata(), owners),
    }
}

fn child_updated<R: PodOwner>(
    old: MetadataRef<'_>,
    new: MetadataRef<'_>,
    owners: &impl Owners<R>,
) -> Vec<ObjectKey> {
    let (before, after) = (old.controller(), new.controller());
    let mut keys = if before == after { Vec::new() } else { owner_of(old, owners) };
    if after.is_some() {
        keys.extend(owner_of(new, owners));
    } else if before.is_some() || old.labels() != new.labels() {
        keys.extend(adopters_of(new, owners));
    }
    keys
}

fn owner_of<R: PodOwner>(child: MetadataRef<'_>, owners: &impl Owners<R>) -> Vec<ObjectKey> {
    let owner = child.controller().and_then(|it| owners.by_reference(pods::namespace(child), it));
    owner.iter().map(|owner| key_of(&**owner)).collect()
}

fn adopters_of<R: PodOwner>(orphan: MetadataRef<'_>, owners: &impl Owners<R>) -> Vec<ObjectKey> {
    owners.by_selector(orphan).iter().map(|owner| key_of(&**owner)).collect()
}

/// Enqueues an owner. `ends_rest` is whether an immediate requeue does not wait for the end of its rest.
fn enqueue(wake: OwnerRequeue, ends_rest: bool, queue: &Enqueuer) {
    match wake {
        OwnerRequeue::Now(key) => {
            if ends_rest {
                queue.end_rest(&key);
            }
            queue.add(key);
        }
        OwnerRequeue::After(key, delay) => queue.add_after(key, delay),
    }
}

/// Shared arguments of the event handling.
struct PodEventContext<'a, R, O> {
    owners: &'a O,
    kind: std::marker::PhantomData<fn() -> R>,
}

impl<R: PodOwner, O: Owners<R>> PodEventContext<'_, R, O> {
    fn added(&self, pod: &PodView) -> Vec<OwnerRequeue> {
        if controller_of(pod).is_none() { self.orphan(pod) } else { self.of_owner(pod) }
    }

    fn updated(&self, old: &PodView, new: &PodView) -> Vec<OwnerRequeue> {
        let (before, after) = (controller_of(old), controller_of(new));
        let mut wakes = Vec::new();
        if before != after {
            wakes.extend(self.of_owner(old));
        }
        match after {
            Some(_) => wakes.extend(self.owned(old, new)),
            None if before.is_some() || old.metadata.labels != new.metadata.labels => {
                wakes.extend(self.orphan(new));
            }
            None => {}
        }
        wakes
    }

    fn owned(&self, old: &PodView, new: &PodView) -> Vec<OwnerRequeue> {
        let Some(owner) = self.owner(new) else { return Vec::new() };
        let key = key_of(&*owner);
        let mut wakes = vec![OwnerRequeue::Now(key.clone())];
        let became_ready = !pods::is_ready(old) && pods::is_ready(new);
        if let Some(delay) = owner.requeue_after_ready().filter(|_| became_ready) {
            wakes.push(OwnerRequeue::After(key, delay));
        }
        wakes
    }

    fn updated_leaving(&self, old: &PodView, new: &PodView) -> Vec<OwnerRequeue> {
        let mut wakes = self.of_owner(new);
        if controller_of(old) != controller_of(new) {
            wakes.extend(self.of_owner(old));
        }
        wakes
    }

    fn of_owner(&self, pod: &PodView) -> Vec<OwnerRequeue> {
        self.owner(pod).map(|owner| OwnerRequeue::Now(key_of(&*owner))).into_iter().collect()
    }

    fn orphan(&self, pod: &PodView) -> Vec<OwnerRequeue> {
        self.owners
            .by_selector(pod.metadata())
            .iter()
            .map(|owner| OwnerRequeue::Now(key_of(&**owner)))
            .collect()
    }

    fn owner(&self, pod: &PodView) -> Option<Arc<R>> {
        self.owners.by_reference(pods::namespace(&pod.metadata), controller_of(pod)?)
    }
}

fn key_of<R: PodOwner>(owner: &R) -> ObjectKey {
    ObjectKey::of(owner.meta())
}

#[cfg(test)]
mod tests;
