//! Finds the pod port of a Service port.

use k8s_openapi::api::core::v1::EndpointPort;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

use super::service_view::ServicePortView;
use crate::shared::pod_view::{ContainerPortView, InitContainerView, PodView};

/// Default protocol.
const DEFAULT_PROTOCOL: &str = "TCP";

/// Returns the port of an Endpoints object.
pub(super) fn endpoint_port(port: &ServicePortView, number: i32) -> EndpointPort {
    EndpointPort {
        name: port.name.as_deref().filter(|name| !name.is_empty()).map(str::to_owned),
        port: number,
        protocol: port.protocol.as_deref().map(str::to_owned),
        app_protocol: port.app_protocol.as_deref().map(str::to_owned),
    }
}

/// Returns the number of the target port in the pod.
///
/// A number is used as is. Without a target, the number of the Service port is used. A name is looked up with the
/// protocol, first in the containers and then in the sidecars; `None` if the pod has no such port.
pub(super) fn find_port(pod: &PodView, port: &ServicePortView) -> Option<i32> {
    match &port.target_port {
        None => Some(port.port),
        Some(IntOrString::Int(number)) => Some(*number),
        Some(IntOrString::String(name)) => named_port(pod, name, protocol(port.protocol.as_deref())),
    }
}

/// Returns the protocol or its default.
pub(super) fn protocol(protocol: Option<&str>) -> &str {
    protocol.filter(|protocol| !protocol.is_empty()).unwrap_or(DEFAULT_PROTOCOL)
}

fn named_port(pod: &PodView, name: &str, wanted: &str) -> Option<i32> {
    let sidecars = pod.init_containers.iter().filter(|container| InitContainerView::is_sidecar(container));
    let ports = pod.containers.iter().map(|container| &container.ports);
    ports.chain(sidecars.map(|container| &container.ports)).find_map(|ports| port_of(ports, name, wanted))
}

fn port_of(ports: &[ContainerPortView], name: &str, wanted: &str) -> Option<i32> {
    let port = ports
        .iter()
        .find(|port| port.name.as_deref() == Some(name) && protocol(port.protocol.as_deref()) == wanted)?;
    Some(port.container_port)
}
