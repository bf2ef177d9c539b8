//! Computes the desired Endpoints of a Service and the action that is required.
//!
//! Pure: the inputs are the Service, its pods, the current object and the trigger time.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{EndpointAddress, EndpointPort, EndpointSubset, Endpoints};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use windlass_object::time::rfc3339_nanos;
use windlass_object::{Labels, Metadata};

use super::addresses::{address, has_cluster_ip, is_headless, is_listed};
use super::ports::{endpoint_port, find_port};
use super::service_view::ServiceView;
use super::subsets::{equivalent, repack, some};
use super::truncate::truncate;
use crate::shared::pod_view::PodView;
use crate::shared::pods;

/// Label with the name of the controller that manages the object.
pub(super) const MANAGED_BY: &str = "endpoints.kubernetes.io/managed-by";
/// Value of the label for objects of this controller; its historical name.
pub(super) const MANAGER: &str = "endpoint-controller";
/// Label on the Endpoints of a Service without a cluster IP.
pub(super) const HEADLESS: &str = "service.kubernetes.io/headless";
/// Annotation with the time of the change that caused the update.
pub(super) const TRIGGER_TIME: &str = "endpoints.kubernetes.io/last-change-trigger-time";
/// Annotation on an object that does not contain all addresses.
pub(super) const OVER_CAPACITY: &str = "endpoints.kubernetes.io/over-capacity";
/// Value of that annotation.
pub(super) const TRUNCATED: &str = "truncated";

/// Action for the Endpoints of a Service.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Action<'a> {
    /// No change.
    Nothing,
    /// The Endpoints do not exist.
    Create(Box<Endpoints>),
    /// The Endpoints differ.
    Update {
        /// The current object.
        current: &'a Endpoints,
        /// The desired object.
        desired: Box<Endpoints>,
    },
}

/// Returns the selector of a Service if this controller manages its endpoints.
///
/// A Service with an external name has no endpoints. Another client writes the Endpoints of a Service without a
/// selector.
pub(super) fn selector(service: &ServiceView) -> Option<&BTreeMap<String, String>> {
    if service.kind.as_deref() == Some("ExternalName") {
        return None;
    }
    service.selector.as_ref()
}

/// Compares the current with the desired Endpoints of a Service that selects these pods. `kept` are the current subsets
/// that must stay.
pub(super) fn plan<'a>(
    service: &ServiceView,
    pods: &[Arc<PodView>],
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
    if let Some(current) = current
        && is_current(current, service, &subsets, truncated)
    {
        return Action::Nothing;
    }
    let desired = Box::new(endpoints(service, subsets, truncated, current, trigger_time));
    match current {
        None => Action::Create(desired),
        Some(current) => Action::Update { current, desired },
    }
}

/// Returns the packed subsets of all addresses, without a limit.
pub(super) fn desired_subsets(service: &ServiceView, pods: &[Arc<PodView>]) -> Vec<EndpointSubset> {
    let leaving_too = service.publish_not_ready_addresses;
    let listed = pods.iter().filter(|pod| is_listed(pod, leaving_too));
    let subsets: Vec<_> = listed
        .filter_map(|pod| Some((pod, address(service, pod)?)))
        .flat_map(|(pod, address)| pod_subsets(service, pod, &address))
        .collect();
    repack(&subsets)
}

/// Returns one subset for each port of the Service that the pod has.
fn pod_subsets(service: &ServiceView, pod: &PodView, address: &EndpointAddress) -> Vec<EndpointSubset> {
    let serves = service.publish_not_ready_addresses || pods::is_ready(pod);
    match &*service.ports {
        // DNS needs no ports, so a headless Service can have none.
        [] if is_headless(service) => vec![single_subset(address, None, serves)],
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

/// Returns whether an update would change nothing relevant. The trigger time is not relevant on its own.
fn is_current(
    current: &Endpoints,
    service: &ServiceView,
    subsets: &[EndpointSubset],
    truncated: bool,
) -> bool {
    let annotations = current.metadata.annotations.as_ref();
    let over_capacity =
        annotations.and_then(|annotations| annotations.get(OVER_CAPACITY)).map(String::as_str);
    over_capacity == truncated.then_some(TRUNCATED)
        && has_labels_of(&current.metadata, &service.metadata)
        && equivalent(current.subsets.as_deref().unwrap_or_default(), subsets)
}

/// Returns whether the labels equal those of the Service. The two labels of this controller are excluded on both sides;
/// otherwise a Service with one of them would cause endless updates.
fn has_labels_of(endpoints: &ObjectMeta, service: &Metadata) -> bool {
    let manager = endpoints.labels.as_ref().and_then(|labels| labels.get(MANAGED_BY));
    let [current, given] = [Labels::from(endpoints.labels.as_ref()), Labels::from(&service.labels)];
    manager.is_some_and(|manager| manager == MANAGER) && given_labels(current).eq(given_labels(given))
}

fn given_labels(labels: Labels<'_>) -> impl Iterator<Item = (&str, &str)> {
    labels.iter().filter(|(key, _)| *key != HEADLESS && *key != MANAGED_BY)
}

/// Returns the object to write. Other fields, such as foreign annotations, are kept.
fn endpoints(
    service: &ServiceView,
    subsets: Vec<EndpointSubset>,
    truncated: bool,
    current: Option<&Endpoints>,
    trigger_time: Option<Timestamp>,
) -> Endpoints {
    let mut metadata = current.map_or_else(
        || ObjectMeta {
            namespace: service.metadata.header.key.namespace().map(str::to_owned),
            name: Some(service.metadata.header.key.name().to_owned()),
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

fn labels(service: &ServiceView) -> BTreeMap<String, String> {
    let given = service.metadata.labels.iter();
    let mut labels: BTreeMap<_, _> = given.map(|(key, value)| (key.to_owned(), value.to_owned())).collect();
    let headless = !has_cluster_ip(service);
    set(&mut labels, HEADLESS, headless.then(String::new));
    set(&mut labels, MANAGED_BY, Some(MANAGER.to_owned()));
    labels
}

/// Sets an entry, or removes it.
fn set(map: &mut BTreeMap<String, String>, key: &str, value: Option<String>) {
    match value {
        Some(value) => map.insert(key.to_owned(), value),
        None => map.remove(key),
    };
}
