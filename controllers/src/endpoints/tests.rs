//! Decisions about Endpoints, one file of cases each.

mod addresses;
mod packing;
mod planning;
mod relevance;
mod trigger_time;
mod truncation;
mod undecodable_pods;

use std::sync::Arc;

use k8s_openapi::api::core::v1::{
    EndpointAddress, EndpointPort, EndpointSubset, ObjectReference, Service, ServicePort, ServiceSpec,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use serde_json::{Value, json};
use windlass_object::{Decoder as _, Representation as _, Watchable as _};

use super::service_view::{ServicePortView, ServiceView};
use crate::shared::fixtures::{bare_pod, labels, ready_condition, with_labels};
use crate::shared::pod_view::{ContainerPortView, ContainerView, PodIpView, PodView};

pub(super) const V4: &[&str] = &["IPv4"];
pub(super) const V6: &[&str] = &["IPv6"];
pub(super) const V4_V6: &[&str] = &["IPv4", "IPv6"];
pub(super) const V6_V4: &[&str] = &["IPv6", "IPv4"];

/// Returns pod `id` with an IP per family and a port 8080.
pub(super) fn pod(id: usize, ready: bool, families: &[&str]) -> PodView {
    let ip = |family: &&str| match *family {
        "IPv4" => format!("1.2.{}.{}", 3 + (4 + id) / 256, (4 + id) % 256),
        _ => format!("2000::{:x}", 4 + id),
    };
    let mut pod = with_labels(bare_pod(&format!("pod{id}")), &[("foo", "bar")]);
    let ips: Vec<String> = families.iter().map(ip).collect();
    pod.pod_ip = ips.first().cloned().unwrap_or_default().into();
    pod.pod_ips = ips.into_iter().map(|ip| PodIpView { ip: ip.into() }).collect();
    pod.ready = Some(ready_condition(if ready { "True" } else { "False" }, None));
    with_container_ports(pod, &[("port0", 8080, "TCP")])
}

pub(super) fn with_container_ports(mut pod: PodView, ports: &[(&str, i32, &str)]) -> PodView {
    let port = |(name, number, protocol): &(&str, i32, &str)| ContainerPortView {
        name: Some((*name).into()),
        container_port: *number,
        protocol: Some((*protocol).into()),
    };
    pod.containers = [ContainerView { ports: ports.iter().map(port).collect() }].into();
    pod
}

/// Returns ready pods, followed by pods that are not ready.
pub(super) fn pods(ready: usize, unready: usize) -> Vec<Arc<PodView>> {
    (0..ready + unready).map(|id| Arc::new(pod(id, id < ready, V4))).collect()
}

/// Returns a Service port `port` with this target.
pub(super) fn service_port(protocol: &str, target: IntOrString) -> ServicePort {
    ServicePort {
        port: 80,
        protocol: Some(protocol.into()),
        target_port: Some(target),
        ..ServicePort::default()
    }
}

/// Returns Service `foo` with a cluster IP, which selects the pods above and has the target port 8080.
pub(super) fn service() -> ServiceView {
    service_from(|_| ())
}

/// Returns the Service with a change.
pub(super) fn service_from(change: impl FnOnce(&mut Service)) -> ServiceView {
    let mut service = Service {
        metadata: ObjectMeta {
            namespace: Some("default".into()),
            name: Some("foo".into()),
            ..ObjectMeta::default()
        },
        spec: Some(ServiceSpec {
            cluster_ip: Some("10.0.0.1".into()),
            ip_families: Some(vec!["IPv4".into()]),
            ports: Some(vec![service_port("TCP", IntOrString::Int(8080))]),
            selector: Some(labels(&[("foo", "bar")])),
            ..ServiceSpec::default()
        }),
        ..Service::default()
    };
    change(&mut service);
    service_view(&json!(service))
}

/// Returns the view of a Service in JSON.
pub(super) fn service_view(service: &Value) -> ServiceView {
    let mut decoder = ServiceView::representation().decoder();
    decoder.decode(&service.to_string().into()).expect("a Service")
}

/// Returns the view of a port of a Service.
pub(super) fn port_view(port: ServicePort) -> ServicePortView {
    let service = service_with(|spec| spec.ports = Some(vec![port]));
    service.ports.first().expect("the port").clone()
}

/// Returns the Service with a changed spec.
pub(super) fn service_with(change: impl FnOnce(&mut ServiceSpec)) -> ServiceView {
    service_from(|service| change(service.spec.get_or_insert_default()))
}

pub(super) fn address(ip: &str) -> EndpointAddress {
    EndpointAddress { ip: ip.into(), ..EndpointAddress::default() }
}

/// Returns the address of a pod with this UID.
pub(super) fn address_of(ip: &str, uid: &str) -> EndpointAddress {
    let target = ObjectReference { uid: Some(uid.into()), ..ObjectReference::default() };
    EndpointAddress { target_ref: Some(target), ..address(ip) }
}

/// Returns the address of [`pod`] `id` in [`service`].
pub(super) fn pod_address(id: usize) -> EndpointAddress {
    EndpointAddress {
        node_name: Some(String::new()),
        target_ref: Some(ObjectReference {
            kind: Some("Pod".into()),
            namespace: Some("default".into()),
            name: Some(format!("pod{id}")),
            uid: Some(format!("uid-pod{id}")),
            ..ObjectReference::default()
        }),
        ..address(&format!("1.2.3.{}", 4 + id))
    }
}

pub(super) fn port(number: i32, protocol: &str) -> EndpointPort {
    EndpointPort { port: number, protocol: Some(protocol.into()), ..EndpointPort::default() }
}

/// Returns a subset of ready addresses, other addresses, and ports.
pub(super) fn subset(
    ready: impl IntoIterator<Item = EndpointAddress>,
    unready: impl IntoIterator<Item = EndpointAddress>,
    ports: impl IntoIterator<Item = EndpointPort>,
) -> EndpointSubset {
    EndpointSubset {
        addresses: super::subsets::some(ready.into_iter().collect()),
        not_ready_addresses: super::subsets::some(unready.into_iter().collect()),
        ports: super::subsets::some(ports.into_iter().collect()),
    }
}
