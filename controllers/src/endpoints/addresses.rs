//! The address of a pod in a Service: its IP and the attached fields.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use k8s_openapi::api::core::v1::{EndpointAddress, ObjectReference};

use super::service_view::ServiceView;
use crate::shared::pod_view::PodView;
use crate::shared::pods;

/// Cluster IP of a headless Service.
const NO_CLUSTER_IP: &str = "None";

/// Returns whether the Service has no cluster IP by request, so that clients find the pods through DNS.
pub(super) fn is_headless(service: &ServiceView) -> bool {
    service.cluster_ip.as_deref() == Some(NO_CLUSTER_IP)
}

/// Returns whether the Service has a cluster IP that is assigned.
pub(super) fn has_cluster_ip(service: &ServiceView) -> bool {
    service.cluster_ip.as_deref().is_some_and(|ip| !ip.is_empty() && ip != NO_CLUSTER_IP)
}

/// Returns whether the pod is listed, ready or not.
///
/// Pods that have terminated or have no IP are not listed. Terminating pods are listed only with `leaving_too`.
pub(super) fn is_listed(pod: &PodView, leaving_too: bool) -> bool {
    !pods::is_terminal(pod) && has_ip(pod) && (leaving_too || !pods::is_being_deleted(pod))
}

/// Returns the pod's address for a Service; `None` if the pod has no IP of the Service's family, as during a migration
/// to dual stack.
pub(super) fn address(service: &ServiceView, pod: &PodView) -> Option<EndpointAddress> {
    let family = Family::of(service, pod);
    let ip = pod_ips(pod).filter_map(parse).find(|ip| Family::speaks(*ip) == family)?;
    let header = &pod.metadata.header;
    Some(EndpointAddress {
        hostname: hostname(service, pod),
        ip: ip.to_string(),
        node_name: Some(pod.node.as_ref().to_owned()),
        target_ref: Some(ObjectReference {
            kind: Some("Pod".into()),
            namespace: header.key.namespace().map(str::to_owned),
            name: Some(header.key.name().to_owned()),
            uid: header.uid.as_ref().map(ToString::to_string),
            ..ObjectReference::default()
        }),
    })
}

/// Returns the host name of a pod whose subdomain is the Service. The pod has its own DNS name there.
fn hostname(service: &ServiceView, pod: &PodView) -> Option<String> {
    let belongs = pod.subdomain.as_deref().unwrap_or_default() == pods::name(&service.metadata)
        && pods::namespace(&service.metadata) == pods::namespace(&pod.metadata);
    let hostname = pod.hostname.as_deref().filter(|hostname| belongs && !hostname.is_empty());
    hostname.map(str::to_owned)
}

fn has_ip(pod: &PodView) -> bool {
    pod_ip(pod).is_some() || !pod.pod_ips.is_empty()
}

fn pod_ip(pod: &PodView) -> Option<&str> {
    Some(&*pod.pod_ip).filter(|ip| !ip.is_empty())
}

fn pod_ips(pod: &PodView) -> impl Iterator<Item = &str> {
    pod.pod_ips.iter().map(|ip| &*ip.ip)
}

/// IP family.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Family {
    V4,
    V6,
}

impl Family {
    /// Returns the family of a Service's endpoints: the first in its list. Without a list (API servers set it, but old
    /// objects can lack it) it is the family of the cluster IP or, without a cluster IP, of the pod's IP.
    fn of(service: &ServiceView, pod: &PodView) -> Self {
        if let Some(first) = service.ip_families.first() {
            return if &**first == "IPv6" { Self::V6 } else { Self::V4 };
        }
        let ip = if has_cluster_ip(service) { service.cluster_ip.as_deref() } else { pod_ip(pod) };
        ip.and_then(parse).map_or(Self::V4, Self::speaks)
    }

    fn speaks(ip: IpAddr) -> Self {
        match ip {
            IpAddr::V4(_) => Self::V4,
            IpAddr::V6(_) => Self::V6,
        }
    }
}

/// Parses an IP as leniently as old nodes wrote it: leading zeros are decimal, and an IPv4-mapped IPv6 address is an
/// IPv4 address. Formatting the result yields the canonical form.
fn parse(text: &str) -> Option<IpAddr> {
    if text.contains(':') {
        let ip: Ipv6Addr = text.parse().ok()?;
        return Some(ip.to_ipv4_mapped().map_or(IpAddr::V6(ip), IpAddr::V4));
    }
    let octets: Vec<u8> = text.split('.').map(octet).collect::<Option<_>>()?;
    let octets: [u8; 4] = octets.try_into().ok()?;
    Some(IpAddr::V4(Ipv4Addr::from(octets)))
}

fn octet(text: &str) -> Option<u8> {
    let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    if digits { text.parse().ok() } else { None }
}
