//! Finds the Services that an event of a pod affects.
//!
//! Pods change often, and most changes affect no endpoints. Relevant are labels, readiness, IPs, and all changes of
//! terminating pods.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use k8s_openapi::api::core::v1::{Pod, Service};
use windlass_informer::{Cause, Event};
use windlass_object::ObjectKey;

use crate::shared::pods;

type Labels = BTreeMap<String, String>;

/// Labels that select the affected Services.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum AffectedServices<'a> {
    /// No Service.
    None,
    /// Services that select the pod.
    Selecting(Option<&'a Labels>),
    /// Services that select the pod by its old or its new labels.
    EitherOf(Option<&'a Labels>, Option<&'a Labels>),
    /// Services that select the pod by exactly one of the two label sets.
    OneOf(Option<&'a Labels>, Option<&'a Labels>),
}

/// Returns the Services that an event of a pod affects.
pub(super) fn affected_by(event: &Event<Arc<Pod>>) -> AffectedServices<'_> {
    match event {
        // At the start all Services are enqueued; enqueueing them for each pod is unnecessary.
        Event::Added { cause: Cause::InitialList, .. } => AffectedServices::None,
        Event::Added { object, .. } => AffectedServices::Selecting(object.metadata.labels.as_ref()),
        // Services have their own resyncs. The versions are not compared, because a server that was restored from a
        // backup reuses versions.
        Event::Updated { cause: Cause::Resync, .. } => AffectedServices::None,
        Event::Updated { old, new, .. } => affected_by_update(old, new),
        Event::Deleted { last, .. } => AffectedServices::Selecting(last.metadata.labels.as_ref()),
    }
}

fn affected_by_update<'a>(old: &'a Pod, new: &'a Pod) -> AffectedServices<'a> {
    let (old_labels, new_labels) = (old.metadata.labels.as_ref(), new.metadata.labels.as_ref());
    match (endpoint_changed(old, new), same_labels(old_labels, new_labels)) {
        (false, true) => AffectedServices::None,
        (true, true) => AffectedServices::Selecting(new_labels),
        (true, false) => AffectedServices::EitherOf(old_labels, new_labels),
        (false, false) => AffectedServices::OneOf(old_labels, new_labels),
    }
}

/// Returns the keys of the affected `services`, which are those of the pod's namespace. A Service without a selector
/// selects nothing.
pub(super) fn among(concerned: &AffectedServices<'_>, services: &[Arc<Service>]) -> BTreeSet<ObjectKey> {
    let meant = |service: &&Arc<Service>| match concerned {
        AffectedServices::None => false,
        AffectedServices::Selecting(labels) => selects(service, *labels),
        AffectedServices::EitherOf(old, new) => selects(service, *old) || selects(service, *new),
        AffectedServices::OneOf(old, new) => selects(service, *old) != selects(service, *new),
    };
    services.iter().filter(meant).map(|service| ObjectKey::of(&service.metadata)).collect()
}

/// Returns whether the pod's address changes, appears or disappears.
fn endpoint_changed(old: &Pod, new: &Pod) -> bool {
    // A terminating pod can stop at any update, which affects Services that publish such pods.
    pods::is_being_deleted(old)
        || pods::is_being_deleted(new)
        || pods::is_ready(old) != pods::is_ready(new)
        || ips(old) != ips(new)
}

fn ips(pod: &Pod) -> Vec<&str> {
    let ips = pod.status.as_ref().and_then(|status| status.pod_ips.as_deref()).unwrap_or_default();
    ips.iter().map(|ip| ip.ip.as_str()).collect()
}

fn same_labels(old: Option<&Labels>, new: Option<&Labels>) -> bool {
    old.into_iter().flatten().eq(new.into_iter().flatten())
}

/// Returns whether the labels match the selector of the Service. Compared in place, because this runs for each Service
/// of a namespace after each change of a pod.
fn selects(service: &Service, labels: Option<&Labels>) -> bool {
    let has = |key: &String, value: &String| labels.and_then(|labels| labels.get(key)) == Some(value);
    let selector = service.spec.as_ref().and_then(|spec| spec.selector.as_ref());
    selector.is_some_and(|selector| selector.iter().all(|(key, value)| has(key, value)))
}
