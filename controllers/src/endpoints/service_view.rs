//! The fields of a Service that the controller reads.
//!
//! The status is not among them: its conditions can lack a time, which API servers send as `null`, and a full Service
//! with such a condition cannot be decoded.

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use windlass_macros::View;
use windlass_object::Metadata;

/// A Service.
#[derive(Clone, Debug, PartialEq, View)]
#[view(of = "v1/Service", crate = windlass_object)]
pub(super) struct ServiceView {
    pub(super) metadata: Metadata,
    #[view(path = "spec.type")]
    pub(super) kind: Option<Arc<str>>,
    #[view(path = "spec.selector")]
    pub(super) selector: Option<BTreeMap<String, String>>,
    #[view(path = "spec.clusterIP")]
    pub(super) cluster_ip: Option<Box<str>>,
    #[view(path = "spec.ipFamilies")]
    pub(super) ip_families: Box<[Arc<str>]>,
    #[view(path = "spec.publishNotReadyAddresses")]
    pub(super) publish_not_ready_addresses: bool,
    #[view(path = "spec.ports")]
    pub(super) ports: Box<[ServicePortView]>,
}

impl ServiceView {
    /// Returns whether the two states have the same spec. API servers do not count the generations of Services.
    pub(super) fn has_spec_of(&self, other: &Self) -> bool {
        let Self { metadata: _, kind, selector, cluster_ip, ip_families, publish_not_ready_addresses, ports } =
            self;
        kind == &other.kind
            && selector == &other.selector
            && cluster_ip == &other.cluster_ip
            && ip_families == &other.ip_families
            && publish_not_ready_addresses == &other.publish_not_ready_addresses
            && ports == &other.ports
    }
}

/// A port of a Service.
#[derive(Clone, Debug, PartialEq, View)]
#[view(of = "v1/Service", at = "spec.ports", crate = windlass_object)]
pub(super) struct ServicePortView {
    #[view(path = "name")]
    pub(super) name: Option<Arc<str>>,
    #[view(path = "protocol")]
    pub(super) protocol: Option<Arc<str>>,
    #[view(path = "appProtocol")]
    pub(super) app_protocol: Option<Arc<str>>,
    #[view(path = "port")]
    pub(super) port: i32,
    #[view(path = "targetPort")]
    pub(super) target_port: Option<IntOrString>,
}
