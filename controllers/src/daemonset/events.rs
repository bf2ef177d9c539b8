//! Maps events of pods, revisions and nodes to DaemonSets.
//!
//! Pods are mapped as in [`crate::shared::owner_events`].

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::apps::v1::DaemonSet;
use windlass_informer::{Cause, Event, Index, Lister};
use windlass_object::{HasMetadata, LabelSelector, MetadataRef, ObjectKey, SelectorError};

use super::placement::{Fit, Placement};
use super::spec::min_ready_seconds;
use crate::shared::node_view::NodeView;
use crate::shared::owner_events::{Owners, PodOwner};
use crate::shared::pod_view::PodView;
use crate::shared::pods;

/// Addition to the minimum ready time, because stored times have no fractions of a second.
const CLOCK_SKEW: Duration = Duration::from_secs(1);

impl PodOwner for DaemonSet {
    fn pod_selector(&self) -> Result<LabelSelector, SelectorError> {
        match &self.spec {
            Some(spec) => LabelSelector::from_api(&spec.selector),
            None => Ok(LabelSelector::nothing()),
        }
    }

    fn requeue_after_ready(&self) -> Option<Duration> {
        let minimum = u64::try_from(min_ready_seconds(self)).unwrap_or(0);
        (minimum > 0).then(|| Duration::from_secs(minimum) + CLOCK_SKEW)
    }
}

/// Returns the DaemonSets to sync after an event of a revision. A new revision with an owner causes no sync, because
/// its owner created it.
pub(super) fn affected_by_revision<C: HasMetadata>(
    event: &Event<Arc<C>>,
    sets: &impl Owners<DaemonSet>,
) -> Vec<ObjectKey> {
    match event {
        Event::Added { object, .. } => {
            let metadata = object.metadata();
            match metadata.controller() {
                Some(_) if metadata.deletion_timestamp().is_some() => owner(metadata, sets),
                None if metadata.deletion_timestamp().is_none() => adopters(metadata, sets),
                _ => Vec::new(),
            }
        }
        // DaemonSets have their own resyncs.
        Event::Updated { cause: Cause::Resync, .. } => Vec::new(),
        Event::Updated { old, new, .. } => affected_by_update(old.metadata(), new.metadata(), sets),
        Event::Deleted { last, .. } => owner(last.metadata(), sets),
    }
}

fn affected_by_update(
    old: MetadataRef<'_>,
    new: MetadataRef<'_>,
    sets: &impl Owners<DaemonSet>,
) -> Vec<ObjectKey> {
    let (before, after) = (old.controller(), new.controller());
    let mut keys = if before == after { Vec::new() } else { owner(old, sets) };
    if after.is_some() {
        keys.extend(owner(new, sets));
    } else if before.is_some() || old.labels() != new.labels() {
        keys.extend(adopters(new, sets));
    }
    keys
}

fn owner(child: MetadataRef<'_>, sets: &impl Owners<DaemonSet>) -> Vec<ObjectKey> {
    let owner = child.controller().and_then(|it| sets.by_reference(pods::namespace(child), it));
    owner.iter().map(|set| ObjectKey::of(&set.metadata)).collect()
}

fn adopters(child: MetadataRef<'_>, sets: &impl Owners<DaemonSet>) -> Vec<ObjectKey> {
    sets.by_selector(child).iter().map(|set| ObjectKey::of(&set.metadata)).collect()
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
