//! The pods of a DaemonSet after its requests.
//!
//! The status and the cleanup of revisions use the cache as it is then, like kube-controller-manager. The cache can lack
//! the requests of this sync: adopted pods and new labels are not lost.

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use windlass_object::{HasMetadata as _, LabelSelector};

use crate::shared::adoption::{Claim, claim};
use crate::shared::pod_view::PodView;
use crate::shared::pods;

/// Returns the `cached` pods that the DaemonSet owns. The `claimed` pods are those at the start of the sync: an orphan
/// among them was adopted, and a pod that did not change since then is returned as it is among them.
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
