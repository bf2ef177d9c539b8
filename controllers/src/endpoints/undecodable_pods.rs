//! Keeps the addresses of undecodable pods as they were last written.
//!
//! Such a pod usually still serves, because the undecodable part rarely concerns its network. Removing its address
//! could disconnect all clients without a reason; keeping it changes nothing.

use k8s_openapi::api::core::v1::{EndpointAddress, EndpointSubset, Endpoints};
use windlass_informer::UndecodableObject;

use super::subsets::{address_count, some};

/// Returns the subsets of the current Endpoints with addresses of undecodable pods.
pub(super) fn addresses_of_undecodable_pods(
    current: Option<&Endpoints>,
    undecodable: &[UndecodableObject],
) -> Vec<EndpointSubset> {
    let Some(current) = current.filter(|_| !undecodable.is_empty()) else { return Vec::new() };
    let namespace = current.metadata.namespace.as_deref();
    let keep = |addresses: Option<&Vec<EndpointAddress>>| {
        let of_any =
            |address: &&EndpointAddress| undecodable.iter().any(|pod| is_of(address, pod, namespace));
        some(addresses.into_iter().flatten().filter(of_any).cloned().collect())
    };
    let subsets = current.subsets.iter().flatten().map(|subset| EndpointSubset {
        addresses: keep(subset.addresses.as_ref()),
        not_ready_addresses: keep(subset.not_ready_addresses.as_ref()),
        ports: subset.ports.clone(),
    });
    subsets.filter(|subset| address_count(std::slice::from_ref(subset)) > 0).collect()
}

/// Returns whether the address belongs to the pod. A missing UID counts as a match.
fn is_of(address: &EndpointAddress, pod: &UndecodableObject, namespace: Option<&str>) -> bool {
    let Some(target) = &address.target_ref else { return false };
    let uids = (target.uid.as_deref(), pod.uid.as_ref().map(|uid| uid.as_str()));
    target.kind.as_deref() == Some("Pod")
        && target.name.as_deref() == Some(pod.key.name())
        && target.namespace.as_deref().or(namespace) == pod.key.namespace()
        && !matches!(uids, (Some(target), Some(pod)) if target != pod)
}
