//! Maps events of ReplicaSets and pods to Deployments.
//!
//! The controller reference of a ReplicaSet, checked by kind, name and UID, identifies its Deployment. An orphan is
//! mapped to each Deployment that selects it, because one of them can adopt it.

use std::sync::Arc;

use k8s_openapi::api::apps::v1::{Deployment, ReplicaSet};
use windlass_informer::{Cause, Event, Lister};
use windlass_object::owner::controller_of;
use windlass_object::{HasMetadata as _, LabelSelector, ObjectKey, OwnerRef};

use super::spec::{Strategy, strategy};
use crate::shared::pod_view::PodView;
use crate::shared::pods;

/// Returns the Deployments to sync after an event of a ReplicaSet.
pub(super) fn affected_by_set(
    event: &Event<Arc<ReplicaSet>>,
    deployments: &Lister<Deployment>,
) -> Vec<ObjectKey> {
    match event {
        Event::Added { object, .. } if object.metadata.deletion_timestamp.is_some() => {
            owner(object, deployments)
        }
        Event::Added { object, .. } => owner_or_adopters(object, deployments),
        // Deployments have their own resyncs.
        Event::Updated { cause: Cause::Resync, .. } => Vec::new(),
        Event::Updated { old, new, .. } => updated(old, new, deployments),
        Event::Deleted { last, .. } => owner(last, deployments),
    }
}

fn updated(old: &ReplicaSet, new: &ReplicaSet, deployments: &Lister<Deployment>) -> Vec<ObjectKey> {
    let (before, after) = (controller_of(&old.metadata), controller_of(&new.metadata));
    let mut keys = if before == after { Vec::new() } else { owner(old, deployments) };
    if after.is_some() {
        keys.extend(owner(new, deployments));
    } else if before.is_some() || old.metadata.labels != new.metadata.labels {
        keys.extend(adopters(new, deployments));
    }
    keys
}

fn owner_or_adopters(set: &ReplicaSet, deployments: &Lister<Deployment>) -> Vec<ObjectKey> {
    if controller_of(&set.metadata).is_some() { owner(set, deployments) } else { adopters(set, deployments) }
}

fn owner(set: &ReplicaSet, deployments: &Lister<Deployment>) -> Vec<ObjectKey> {
    owning_deployment(set, deployments).map(|it| ObjectKey::of(&it.metadata)).into_iter().collect()
}

/// Returns the Deployment that controls a ReplicaSet.
pub(super) fn owning_deployment(
    set: &ReplicaSet,
    deployments: &Lister<Deployment>,
) -> Option<Arc<Deployment>> {
    let reference: OwnerRef<'_> = controller_of(&set.metadata)?.into();
    if reference.kind != "Deployment" {
        return None;
    }
    let key = ObjectKey::namespaced(pods::namespace(&set.metadata), reference.name);
    let deployment = deployments.get_lossy(&key)?;
    (pods::uid(&deployment.metadata) == reference.uid).then_some(deployment)
}

fn adopters(set: &ReplicaSet, deployments: &Lister<Deployment>) -> Vec<ObjectKey> {
    let Some(labels) = set.metadata.labels.as_ref().filter(|labels| !labels.is_empty()) else {
        return Vec::new();
    };
    let selects = |deployment: &Arc<Deployment>| {
        let selector = deployment.spec.as_ref().map(|spec| LabelSelector::from_api(&spec.selector));
        selector.is_some_and(|selector| {
            selector.is_ok_and(|selector| !selector.is_empty() && selector.matches(labels))
        })
    };
    let neighbours = deployments.list_namespace(pods::namespace(&set.metadata));
    neighbours.into_iter().filter(selects).map(|it| ObjectKey::of(&it.metadata)).collect()
}

/// Returns the Deployment whose pod was deleted, if it waits for the end of its pods: a Deployment that recreates its
/// pods.
pub(super) fn recreating(
    event: &Event<Arc<PodView>>,
    sets: &Lister<ReplicaSet>,
    deployments: &Lister<Deployment>,
) -> Option<Arc<Deployment>> {
    let Event::Deleted { last, .. } = event else { return None };
    let metadata = last.metadata();
    let reference = metadata.controller().filter(|reference| reference.kind == "ReplicaSet")?;
    let set = sets.get_lossy(&ObjectKey::namespaced(pods::namespace(metadata), reference.name))?;
    if pods::uid(&set.metadata) != reference.uid {
        return None;
    }
    owning_deployment(&set, deployments).filter(|deployment| strategy(deployment) == Strategy::Recreate)
}
