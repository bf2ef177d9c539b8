//! Which Services a change of a pod concerns.
//!
//! Pods change often, mostly in ways no endpoint shows. What counts: labels, readiness, IPs, and everything about a
//! pod on its way out.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use k8s_openapi::api::core::v1::{Pod, Service};
use windlass_informer::{Cause, Event};
use windlass_object::ObjectKey;

use crate::shared::pods;

type Labels = BTreeMap<String, String>;

/// The labels by which concerned Services are found.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum AffectedServices<'a> {
    /// None.
    Nobody,
    /// Those that select the pod.
    Selecting(Option<&'a Labels>),
    /// Those that select it by its old or its new labels.
    EitherOf(Option<&'a Labels>, Option<&'a Labels>),
    /// Those that select it by one of the two only: for the others nothing has changed.
    OneOf(Option<&'a Labels>, Option<&'a Labels>),
}

/// What a change of a pod concerns.
pub(super) fn concerned_by(event: &Event<Arc<Pod>>) -> AffectedServices<'_> {
    match event {
        // Every Service is enqueued for itself when the controller starts; each pod on top would only cost time.
        Event::Added { cause: Cause::InitialList, .. } => AffectedServices::Nobody,
        Event::Added { object, .. } => AffectedServices::Selecting(object.metadata.labels.as_ref()),
        // Services see to themselves then. Equal versions would prove nothing: a server restored from a backup gives
        // them again.
        Event::Updated { cause: Cause::Resync, .. } => AffectedServices::Nobody,
        Event::Updated { old, new, .. } => concerned_by_update(old, new),
        Event::Deleted { last, .. } => AffectedServices::Selecting(last.metadata.labels.as_ref()),
    }
}

fn concerned_by_update<'a>(old: &'a Pod, new: &'a Pod) -> AffectedServices<'a> {
    let (old_labels, new_labels) = (old.metadata.labels.as_ref(), new.metadata.labels.as_ref());
    match (endpoint_changed(old, new), same_labels(old_labels, new_labels)) {
        (false, true) => AffectedServices::Nobody,
        (true, true) => AffectedServices::Selecting(new_labels),
        (true, false) => AffectedServices::EitherOf(old_labels, new_labels),
        (false, false) => AffectedServices::OneOf(old_labels, new_labels),
    }
}

/// The Services among those of the pod's namespace that are meant. One without a selector selects nothing.
pub(super) fn among(concerned: &AffectedServices<'_>, services: &[Arc<Service>]) -> BTreeSet<ObjectKey> {
    let meant = |service: &&Arc<Service>| match concerned {
        AffectedServices::Nobody => false,
        AffectedServices::Selecting(labels) => selects(service, *labels),
        AffectedServices::EitherOf(old, new) => selects(service, *old) || selects(service, *new),
        AffectedServices::OneOf(old, new) => selects(service, *old) != selects(service, *new),
    };
    services.iter().filter(meant).map(|service| ObjectKey::of(&service.metadata)).collect()
}

/// Whether the pod's address moves, appears or vanishes.
fn endpoint_changed(old: &Pod, new: &Pod) -> bool {
    // A pod on its way out may end at any update, which matters to Services that publish such pods.
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

/// Whether the labels have all the Service asks for. Compared in place: this runs for every Service of a namespace
/// whenever one of its pods changes.
fn selects(service: &Service, labels: Option<&Labels>) -> bool {
    let has = |key: &String, value: &String| labels.and_then(|labels| labels.get(key)) == Some(value);
    let selector = service.spec.as_ref().and_then(|spec| spec.selector.as_ref());
    selector.is_some_and(|selector| selector.iter().all(|(key, value)| has(key, value)))
}
