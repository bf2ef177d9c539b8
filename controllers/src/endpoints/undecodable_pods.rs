//! Pods that exist but cannot be decoded: their addresses stay as they were last written.
//!
//! Such a pod may serve as before, and most often does: what cannot be read is seldom about its network. Taking its
//! address away would cut off every client on the strength of not knowing; keeping it is as wrong as the network
//! already was.

use k8s_openapi::api::core::v1::{EndpointAddress, EndpointSubset, Endpoints};
use windlass_informer::UndecodableObject;

use super::subsets::{address_count, some};

/// What of the subsets is about pods that cannot be decoded.
pub(super) fn kept(current: Option<&Endpoints>, unreadable: &[UndecodableObject]) -> Vec<EndpointSubset> {
    let Some(current) = current.filter(|_| !unreadable.is_empty()) else { return Vec::new() };
    let namespace = current.metadata.namespace.as_deref();
    let keep = |addresses: Option<&Vec<EndpointAddress>>| {
        let of_any = |address: &&EndpointAddress| unreadable.iter().any(|pod| is_of(address, pod, namespace));
        some(addresses.into_iter().flatten().filter(of_any).cloned().collect())
    };
    let subsets = current.subsets.iter().flatten().map(|subset| EndpointSubset {
        addresses: keep(subset.addresses.as_ref()),
        not_ready_addresses: keep(subset.not_ready_addresses.as_ref()),
        ports: subset.ports.clone(),
    });
    subsets.filter(|subset| address_count(std::slice::from_ref(subset)) > 0).collect()
}

/// Whether the address is that of the pod. An identity that is not told is no evidence against it.
fn is_of(address: &EndpointAddress, pod: &UndecodableObject, namespace: Option<&str>) -> bool {
    let Some(target) = &address.target_ref else { return false };
    let uids = (target.uid.as_deref(), pod.uid.as_ref().map(|uid| uid.as_str()));
    target.kind.as_deref() == Some("Pod")
        && target.name.as_deref() == Some(pod.key.name())
        && target.namespace.as_deref().or(namespace) == pod.key.namespace()
        && !matches!(uids, (Some(target), Some(pod)) if target != pod)
}
