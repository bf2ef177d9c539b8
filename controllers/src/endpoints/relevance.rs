//! Finds the Services that an event of a pod affects.
//!
//! Pods change often, and most changes affect no endpoints. Relevant are labels, readiness, IPs, and all changes of
//! terminating pods.

use std::collections::BTreeSet;
use std::sync::Arc;

use windlass_informer::{Cause, Event};
use windlass_object::{Labels, ObjectKey};

use super::service_view::ServiceView;
use crate::shared::pod_view::PodView;
use crate::shared::pods;

/// Labels that select the affected Services.
#[derive(Debug, PartialEq)]
pub(super) enum AffectedServices<'a> {
    /// No Service.
    None,
    /// Services that select the pod.
    Selecting(Labels<'a>),
    /// Services that select the pod by its old or its new labels.
    EitherOf(Labels<'a>, Labels<'a>),
    /// Services that select the pod by exactly one of the two label sets.
    OneOf(Labels<'a>, Labels<'a>),
}

/// Returns the Services that an event of a pod affects.
pub(super) fn affected_by(event: &Event<Arc<PodView>>) -> AffectedServices<'_> {
    match event {
        // At the start all Services are enqueued; enqueueing them for each pod is unnecessary.
        Event::Added { cause: Cause::InitialList, .. } => AffectedServices::None,
        Event::Added { object, .. } => AffectedServices::Selecting((&object.metadata.labels).into()),
        // Services have their own resyncs. The versions are not compared, because a server that was restored from a
        // backup reuses versions.
        Event::Updated { cause: Cause::Resync, .. } => AffectedServices::None,
        Event::Updated { old, new, .. } => affected_by_update(old, new),
        Event::Deleted { last, .. } => AffectedServices::Selecting((&last.metadata.labels).into()),
    }
}

fn affected_by_update<'a>(old: &'a PodView, new: &'a PodView) -> AffectedServices<'a> {
    let [old_labels, new_labels] = [old, new].map(|pod| Labels::from(&pod.metadata.labels));
    match (endpoint_changed(old, new), old_labels == new_labels) {
        (false, true) => AffectedServices::None,
        (true, true) => AffectedServices::Selecting(new_labels),
        (true, false) => AffectedServices::EitherOf(old_labels, new_labels),
        (false, false) => AffectedServices::OneOf(old_labels, new_labels),
    }
}

/// Returns the keys of the affected `services`, which are those of the pod's namespace. A Service without a selector
/// selects nothing.
pub(super) fn among(concerned: &AffectedServices<'_>, services: &[Arc<ServiceView>]) -> BTreeSet<ObjectKey> {
    let meant = |service: &&Arc<ServiceView>| match concerned {
        AffectedServices::None => false,
        AffectedServices::Selecting(labels) => selects(service, *labels),
        AffectedServices::EitherOf(old, new) => selects(service, *old) || selects(service, *new),
        AffectedServices::OneOf(old, new) => selects(service, *old) != selects(service, *new),
    };
    services.iter().filter(meant).map(|service| service.metadata.header.key.clone()).collect()
}

/// Returns whether the pod's address changes, appears or disappears.
fn endpoint_changed(old: &PodView, new: &PodView) -> bool {
    // A terminating pod can stop at any update, which affects Services that publish such pods.
    pods::is_being_deleted(old)
        || pods::is_being_deleted(new)
        || pods::is_ready(old) != pods::is_ready(new)
        || old.pod_ips != new.pod_ips
}

/// Returns whether the labels match the selector of the Service. Compared in place, because this runs for each Service
/// of a namespace after each change of a pod.
fn selects(service: &ServiceView, labels: Labels<'_>) -> bool {
    let has = |key: &String, value: &String| labels.get(key) == Some(value);
    service.selector.as_ref().is_some_and(|selector| selector.iter().all(|(key, value)| has(key, value)))
}
