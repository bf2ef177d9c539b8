//! Maps events of revisions and nodes to DaemonSets.
//!
//! Pods are mapped by [`crate::shared::owner_events`].

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::apps::v1::DaemonSet;
use windlass_informer::{Cause, Event, Index, Lister};
use windlass_object::{HasMetadata, LabelSelector, MetadataRef, ObjectKey, SelectorError};

use super::placement::{Fit, Placement};
use super::spec::min_ready_seconds;
use crate::shared::availability::minimum;
use crate::shared::node_view::NodeView;
use crate::shared::owner_events::{Owners, PodOwner, child_changed, selector_of};
use crate::shared::pod_view::PodView;
use crate::shared::pods;

/// Addition to the minimum ready time, because stored times have no fractions of a second.
const CLOCK_SKEW: Duration = Duration::from_secs(1);

impl PodOwner for DaemonSet {
    fn pod_selector(&self) -> Result<LabelSelector, SelectorError> {
        selector_of(self.spec.as_ref().map(|spec| &spec.selector))
    }

    fn requeue_after_ready(&self) -> Option<Duration> {
        Some(minimum(min_ready_seconds(self))? + CLOCK_SKEW)
    }
}

/// Returns the DaemonSets to sync after an event of a revision. A new revision with an owner causes no sync, because
/// its owner created it.
pub(super) fn affected_by_revision<C: HasMetadata>(
    event: &Event<Arc<C>>,
    sets: &impl Owners<DaemonSet>,
) -> Vec<ObjectKey> {
    let is_created = |revision: MetadataRef<'_>| {
        revision.controller().is_some() && revision.deletion_timestamp().is_none()
    };
    match event {
        Event::Added { object, .. } if is_created(object.metadata()) => Vec::new(),
        _ => child_changed(event, sets),
    }
}

/// Returns the node of a pod that a DaemonSet controls and that is bound.
pub(super) fn node_of_daemon_pod(pod: &PodView) -> Option<String> {
    let is_ours = pods::controller_of(pod).is_some_and(|controller| controller.kind == "DaemonSet");
    (is_ours && !pod.node.is_empty()).then(|| pod.node.to_string())
}

/// Returns the DaemonSets to sync after an event of a node.
///
/// Heartbeats and deletions cause no sync. Initial nodes cause no sync, because each initial DaemonSet is synced when
/// all caches are synced.
pub(super) fn affected_by_node(
    event: &Event<Arc<NodeView>>,
    sets: &Lister<DaemonSet>,
    daemon_pods: &Index<PodView, String>,
) -> Vec<ObjectKey> {
    let Some(node) = relevant_node(event) else { return Vec::new() };
    let pods = daemon_pods.get(&node.metadata.header.key.name().to_owned());
    let scheduled = owners(&pods);
    // The last status does not count a node that was undecodable.
    let is_new = matches!(event, Event::Added { .. });
    let is_affected = |set: &Arc<DaemonSet>| {
        let is_scheduled = scheduled.contains(&(pods::namespace(&set.metadata), pods::name(&set.metadata)));
        (is_new && is_scheduled) || needs_sync(set, Placement::from_set(set).fit(node), is_scheduled)
    };
    sets.list().into_iter().filter(is_affected).map(|set| ObjectKey::of(&set.metadata)).collect()
}

/// Returns the node of an event that can change a placement.
pub(super) fn relevant_node(event: &Event<Arc<NodeView>>) -> Option<&NodeView> {
    match event {
        Event::Added { cause: Cause::InitialList, .. } | Event::Deleted { .. } => None,
        Event::Added { object, .. } => Some(object),
        Event::Updated { old, new, .. } => {
            let differs = old.metadata.labels != new.metadata.labels || old.taints != new.taints;
            differs.then_some(&**new)
        }
    }
}

/// Returns namespaces and names of the DaemonSets that control these pods.
fn owners(daemon_pods: &[Arc<PodView>]) -> BTreeSet<(&str, &str)> {
    let owned = daemon_pods.iter().filter_map(|pod| Some((pod, pods::controller_of(pod)?)));
    owned.map(|(pod, controller)| (pods::namespace(&pod.metadata), controller.name)).collect()
}

/// Returns whether a DaemonSet must create or delete a pod on a node, or count misplaced pods again.
pub(super) fn needs_sync(set: &DaemonSet, fit: Fit, is_scheduled: bool) -> bool {
    let misscheduled = set.status.as_ref().map(|status| status.number_misscheduled).unwrap_or_default();
    match (fit, is_scheduled) {
        (Fit::Run, false) | (Fit::Leave, true) => true,
        (Fit::Run | Fit::Keep, true) => misscheduled > 0,
        (Fit::Keep | Fit::Leave, false) => false,
    }
}
