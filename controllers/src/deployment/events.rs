//! Maps events of pods to Deployments.
//!
//! ReplicaSets are mapped by [`crate::shared::owner_events`].

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::apps::v1::{Deployment, ReplicaSet};
use windlass_informer::{Event, Lister};
use windlass_object::owner::controller_of;
use windlass_object::{HasMetadata as _, LabelSelector, ObjectKey, SelectorError};

use super::spec::{Strategy, strategy};
use crate::shared::owner_events::{Owners as _, PodOwner, selector_of};
use crate::shared::pod_view::PodView;
use crate::shared::pods;

impl PodOwner for Deployment {
    fn pod_selector(&self) -> Result<LabelSelector, SelectorError> {
        selector_of(self.spec.as_ref().map(|spec| &spec.selector))
    }

    /// The status of a ReplicaSet reports available pods.
    fn requeue_after_ready(&self) -> Option<Duration> {
        None
    }
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
    let deployment =
        deployments.by_reference(pods::namespace(metadata), controller_of(&set.metadata)?.into())?;
    (strategy(&deployment) == Strategy::Recreate).then_some(deployment)
}
