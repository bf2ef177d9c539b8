//! The pods of a DaemonSet after its requests.
//!
//! As in kube-controller-manager, the status and the cleanup of revisions use the cache after the requests. The cache
//! might not reflect these requests yet, so adopted pods and new labels are added to it.

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use windlass_object::{HasMetadata as _, LabelSelector};

use crate::shared::adoption::{Claim, claim};
use crate::shared::pod_view::PodView;
use crate::shared::pods;

/// Returns the `cached` pods that the DaemonSet owns.
///
/// `claimed` contains the owned pods at the start of the sync, with the orphans that the sync adopted. A pod whose
/// cached version did not change since then is returned as in `claimed`.
pub(super) fn refreshed(
    set: &ObjectMeta,
    selector: &LabelSelector,
    cached: Vec<Arc<PodView>>,
    claimed: &[Arc<PodView>],
) -> Vec<Arc<PodView>> {
    let claimed: BTreeMap<&str, _> = claimed.iter().map(|pod| (pods::uid(&pod.metadata), pod)).collect();
    let refresh = |pod: Arc<PodView>| {
        let known = claimed.get(pods::uid(&pod.metadata)).copied();
        let is_selected = selector.matches(&pod.metadata.labels);
        match (claim(set, is_selected, pod.metadata()), known) {
            (Claim::Keep | Claim::Adopt, Some(known)) if is_same_version(known, &pod) => {
                Some(Arc::clone(known))
            }
            (Claim::Keep, _) | (Claim::Adopt, Some(_)) => Some(pod),
            (Claim::Adopt | Claim::Release | Claim::Ignore, _) => None,
        }
    };
    cached.into_iter().filter_map(refresh).collect()
}

fn is_same_version(one: &PodView, other: &PodView) -> bool {
    one.metadata().resource_version() == other.metadata().resource_version()
}
