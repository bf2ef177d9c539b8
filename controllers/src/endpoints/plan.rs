//! What the Endpoints object of a Service should be, and whether that takes a request.
//!
//! Pure: the Service, its pods, the object as it is and a date go in, an action comes out.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{
    EndpointAddress, EndpointPort, EndpointSubset, Endpoints, Pod, Service, ServiceSpec,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use windlass_object::time::rfc3339_nanos;

use super::addresses::{address, has_cluster_ip, is_headless, is_listed};
use super::ports::{endpoint_port, find_port};
use super::subsets::{equivalent, repack, some};
use super::truncate::truncate;
use crate::shared::pods;

/// The label that says which controller writes the object.
pub(super) const MANAGED_BY: &str = "endpoints.kubernetes.io/managed-by";
/// Its value for objects written here: the name under which this controller has always been known.
pub(super) const MANAGER: &str = "endpoint-controller";
/// The label on the Endpoints of a Service without a cluster IP.
pub(super) const HEADLESS: &str = "service.kubernetes.io/headless";
/// The annotation that dates the change an update answers to.
pub(super) const TRIGGER_TIME: &str = "endpoints.kubernetes.io/last-change-trigger-time";
/// The annotation on an object that could not hold all addresses.
pub(super) const OVER_CAPACITY: &str = "endpoints.kubernetes.io/over-capacity";
/// Its value.
pub(super) const TRUNCATED: &str = "truncated";

/// What to do about the Endpoints of a Service.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Action<'a> {
    /// They are as they should be.
    Nothing,
    /// There are none yet.
    Create(Box<Endpoints>),
    /// They should be others instead.
    Update {
        /// These are there.
        current: &'a Endpoints,
        /// These should be.
        desired: Box<Endpoints>,
    },
}

/// The selector by which a Service finds its endpoints, if it leaves that to this controller.
///
/// A Service with an external name has none, and one without a selector gets its Endpoints from somebody else.
pub(super) fn selector(service: &Service) -> Option<&BTreeMap<String, String>> {
    let spec = service.spec.as_ref()?;
    if spec.type_.as_deref() == Some("ExternalName") {
        return None;
    }
    spec.selector.as_ref()
}

/// Compares the Endpoints a Service should have, given the pods it selects, with those it has, of which `kept` is to
/// stay.
pub(super) fn plan<'a>(
    service: &Service,
    pods: &[Arc<Pod>],
    kept: &[EndpointSubset],
    current: Option<&'a Endpoints>,
    trigger_time: Option<Timestamp>,
) -> Action<'a> {
    let mut desired = desired_subsets(service, pods);
    if !kept.is_empty() {
        desired.extend_from_slice(kept);
        desired = repack(&desired);
    }
    let (subsets, truncated) = truncate(desired);
    let write = || Box::new(endpoints(service, subsets.clone(), truncated, current, trigger_time));
    match current {
        None => Action::Create(write()),
        Some(current) if is_current(current, service, &subsets, truncated) => Action::Nothing,
        Some(current) => Action::Update { current, desired: write() },
    }
}

/// The packed subsets of all addresses, however many.
pub(super) fn desired_subsets(service: &Service, pods: &[Arc<Pod>]) -> Vec<EndpointSubset> {
    let Some(spec) = &service.spec else { return Vec::new() };
    let leaving_too = publishes_unready(spec);
    let listed = pods.iter().filter(|pod| is_listed(pod, leaving_too));
    let subsets: Vec<_> = listed
        .filter_map(|pod| Some((pod, address(service, pod)?)))
        .flat_map(|(pod, address)| pod_subsets(spec, pod, &address))
        .collect();
    repack(&subsets)
}

/// One subset for each port of the Service that the pod has.
fn pod_subsets(spec: &ServiceSpec, pod: &Pod, address: &EndpointAddress) -> Vec<EndpointSubset> {
    let serves = publishes_unready(spec) || pods::is_ready(pod);
    match spec.ports.as_deref().unwrap_or_default() {
        // DNS needs no ports, so a headless Service may do without.
        [] if is_headless(spec) => vec![single_subset(address, None, serves)],
        ports => ports
            .iter()
            .filter_map(|port| Some(endpoint_port(port, find_port(pod, port)?)))
            .map(|port| single_subset(address, Some(port), serves))
            .collect(),
    }
}

fn single_subset(address: &EndpointAddress, port: Option<EndpointPort>, serves: bool) -> EndpointSubset {
    let address = || vec![address.clone()];
    EndpointSubset {
        addresses: serves.then(address),
        not_ready_addresses: (!serves).then(address),
        ports: some(port.into_iter().collect()),
    }
}

fn publishes_unready(spec: &ServiceSpec) -> bool {
    spec.publish_not_ready_addresses.unwrap_or_default()
}

/// Whether writing would change nothing that counts. The trigger time does not: it dates a change and is none.
fn is_current(current: &Endpoints, service: &Service, subsets: &[EndpointSubset], truncated: bool) -> bool {
    let annotations = current.metadata.annotations.as_ref();
    let over_capacity =
        annotations.and_then(|annotations| annotations.get(OVER_CAPACITY)).map(String::as_str);
    over_capacity == truncated.then_some(TRUNCATED)
        && has_labels_of(&current.metadata, &service.metadata)
        && equivalent(current.subsets.as_deref().unwrap_or_default(), subsets)
}

/// Whether the labels follow from the Service's. The two labels set here are compared on neither side, or a Service
/// that carries one of them would have its Endpoints written again and again.
fn has_labels_of(endpoints: &ObjectMeta, service: &ObjectMeta) -> bool {
    let manager = endpoints.labels.as_ref().and_then(|labels| labels.get(MANAGED_BY));
    manager.is_some_and(|manager| manager == MANAGER) && given_labels(endpoints).eq(given_labels(service))
}

fn given_labels(meta: &ObjectMeta) -> impl Iterator<Item = (&String, &String)> {
    meta.labels.iter().flatten().filter(|(key, _)| *key != HEADLESS && *key != MANAGED_BY)
}

/// The object to write. What is not decided here, other people's annotations above all, stays as it is.
fn endpoints(
    service: &Service,
    subsets: Vec<EndpointSubset>,
    truncated: bool,
    current: Option<&Endpoints>,
    trigger_time: Option<Timestamp>,
) -> Endpoints {
    let mut metadata = current.map_or_else(
        || ObjectMeta {
            namespace: service.metadata.namespace.clone(),
            name: service.metadata.name.clone(),
            ..ObjectMeta::default()
        },
        |current| current.metadata.clone(),
    );
    metadata.labels = Some(labels(service));
    let mut annotations = metadata.annotations.take().unwrap_or_default();
    set(&mut annotations, TRIGGER_TIME, trigger_time.map(rfc3339_nanos));
    set(&mut annotations, OVER_CAPACITY, truncated.then(|| TRUNCATED.to_owned()));
    metadata.annotations = (!annotations.is_empty()).then_some(annotations);
    Endpoints { metadata, subsets: some(subsets) }
}

fn labels(service: &Service) -> BTreeMap<String, String> {
    let mut labels = service.metadata.labels.clone().unwrap_or_default();
    let headless = !service.spec.as_ref().is_some_and(has_cluster_ip);
    set(&mut labels, HEADLESS, headless.then(String::new));
    set(&mut labels, MANAGED_BY, Some(MANAGER.to_owned()));
    labels
}

/// Sets an entry, or takes it away.
fn set(map: &mut BTreeMap<String, String>, key: &str, value: Option<String>) {
    match value {
        Some(value) => map.insert(key.to_owned(), value),
        None => map.remove(key),
    };
}
