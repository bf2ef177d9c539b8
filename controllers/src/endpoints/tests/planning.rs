//! Planned requests for Endpoints, from a Service and its pods.

use std::sync::Arc;

use k8s_openapi::api::core::v1::{EndpointSubset, Endpoints, ServiceSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use proptest::prelude::*;
use serde_json::json;

use super::{
    V4, address, pod, pod_address, pods, port, service, service_from, service_port, service_view,
    service_with, subset, with_container_ports,
};
use crate::endpoints::plan::{
    Action, HEADLESS, MANAGED_BY, MANAGER, OVER_CAPACITY, TRIGGER_TIME, TRUNCATED, desired_subsets, plan,
    selector,
};
use crate::endpoints::service_view::ServiceView;
use crate::endpoints::subsets::address_count;
use crate::endpoints::truncate::MAX_ADDRESSES;
use crate::shared::fixtures::{at, being_deleted, labels, with_phase};
use crate::shared::pod_view::PodView;

/// Returns Endpoints `foo` as stored by the server, managed by this controller.
fn stored(subsets: Vec<EndpointSubset>) -> Endpoints {
    let metadata = ObjectMeta {
        namespace: Some("default".into()),
        name: Some("foo".into()),
        resource_version: Some("1".into()),
        labels: Some(labels(&[(MANAGED_BY, MANAGER)])),
        ..ObjectMeta::default()
    };
    Endpoints { metadata, subsets: Some(subsets) }
}

fn labeled(mut endpoints: Endpoints, pairs: &[(&str, &str)]) -> Endpoints {
    endpoints.metadata.labels = Some(labels(pairs));
    endpoints
}

fn annotated(mut endpoints: Endpoints, pairs: &[(&str, &str)]) -> Endpoints {
    endpoints.metadata.annotations = Some(labels(pairs));
    endpoints
}

/// Returns the planned update of existing Endpoints.
fn planned(service: &ServiceView, pods: &[Arc<PodView>], current: &Endpoints) -> Option<Endpoints> {
    match plan(service, pods, &[], Some(current), None) {
        Action::Nothing => None,
        Action::Update { desired, .. } => Some(*desired),
        Action::Create(_) => panic!("the Endpoints exist"),
    }
}

fn served(pods: &[usize], ready: bool) -> EndpointSubset {
    let addresses: Vec<_> = pods.iter().map(|id| pod_address(*id)).collect();
    let port = [port(8080, "TCP")];
    if ready { subset(addresses, [], port) } else { subset([], addresses, port) }
}

#[test]
fn services_without_selector_are_ignored() {
    assert_eq!(selector(&service_with(|spec| spec.selector = None)), None);
    let external = |spec: &mut ServiceSpec| spec.type_ = Some("ExternalName".into());
    assert_eq!(selector(&service_with(external)), None);
    assert!(selector(&service_with(|spec| spec.selector = Some(labels(&[])))).is_some());
    assert!(selector(&service()).is_some());
}

#[test]
fn endpoints_are_created_without_pods() {
    let created = |pods: &[Arc<PodView>]| match plan(&service(), pods, &[], None, None) {
        Action::Create(endpoints) => *endpoints,
        other => panic!("{other:?}"),
    };
    let expected = Endpoints {
        metadata: ObjectMeta {
            namespace: Some("default".into()),
            name: Some("foo".into()),
            labels: Some(labels(&[(MANAGED_BY, MANAGER)])),
            ..ObjectMeta::default()
        },
        subsets: None,
    };
    assert_eq!(created(&[]), expected);
    assert_eq!(created(&pods(1, 0)), Endpoints { subsets: Some(vec![served(&[0], true)]), ..expected });
}

#[test]
fn unchanged_endpoints_are_not_written() {
    let ready = pods(1, 0);
    assert_eq!(planned(&service(), &[], &stored(Vec::new())), None);
    assert_eq!(planned(&service(), &[], &Endpoints { subsets: None, ..stored(Vec::new()) }), None);
    assert_eq!(planned(&service(), &ready, &stored(vec![served(&[0], true)])), None);
    let dated = annotated(
        stored(vec![served(&[0], true)]),
        &[(TRIGGER_TIME, "2018-01-01T00:00:00Z"), ("note", "kept")],
    );
    assert_eq!(planned(&service(), &ready, &dated), None, "a trigger time alone causes no write");
}

#[test]
fn other_order_or_packing_is_not_written() {
    let all = pods(3, 0);
    let unsorted = stored(vec![served(&[2, 0, 1], true)]);
    assert_eq!(planned(&service(), &all, &unsorted), None);
    let unpacked = stored(vec![served(&[1], true), served(&[0], true), served(&[2], true)]);
    assert_eq!(planned(&service(), &all, &unpacked), None);
}

#[test]
fn new_resource_version_of_pod_is_not_written() {
    let mut old = served(&[0], true);
    let target =
        old.addresses.as_mut().and_then(|addresses| addresses[0].target_ref.as_mut()).expect("a target");
    target.resource_version = Some("1".into());
    assert_eq!(planned(&service(), &pods(1, 0), &stored(vec![old])), None);
}

#[test]
fn ready_and_other_pods_are_listed_separately() {
    let stale = stored(vec![subset([address("6.7.8.9")], [], [port(1000, "TCP")])]);
    let written =
        |pods: &[Arc<PodView>]| planned(&service(), pods, &stale).and_then(|endpoints| endpoints.subsets);
    assert_eq!(written(&pods(1, 0)), Some(vec![served(&[0], true)]));
    assert_eq!(written(&pods(0, 1)), Some(vec![served(&[0], false)]));
    let mixed = subset([pod_address(0)], [pod_address(1)], [port(8080, "TCP")]);
    assert_eq!(written(&pods(1, 1)), Some(vec![mixed]));
    assert_eq!(written(&[]), None);
}

#[test]
fn service_with_condition_without_time_is_read() {
    let condition = json!({ "type": "Ready", "status": "True", "reason": "R", "message": "", "lastTransitionTime": null });
    let service = service_view(&json!({
        "metadata": { "namespace": "default", "name": "foo" },
        "spec": { "clusterIP": "10.0.0.1", "selector": { "foo": "bar" }, "ports": [{ "port": 8080, "protocol": "TCP" }] },
        "status": { "conditions": [condition] },
    }));
    assert_eq!(selector(&service), Some(&labels(&[("foo", "bar")])));
    assert_eq!(desired_subsets(&service, &pods(1, 0)), [served(&[0], true)]);
}

#[test]
fn every_port_of_the_service_is_listed_with_its_protocol() {
    let with_ports = |protocols: &[&str]| {
        let ports = protocols.iter().map(|protocol| service_port(protocol, IntOrString::Int(8080))).collect();
        desired_subsets(&service_with(|spec| spec.ports = Some(ports)), &pods(1, 0))
    };
    for protocol in ["TCP", "UDP", "SCTP"] {
        assert_eq!(with_ports(&[protocol]), [subset([pod_address(0)], [], [port(8080, protocol)])]);
    }
    let both = subset([pod_address(0)], [], [port(8080, "TCP"), port(8080, "UDP")]);
    assert_eq!(with_ports(&["UDP", "TCP"]), [both]);
}

#[test]
fn pods_are_listed_under_the_ports_they_have() {
    let named = |name: &str, target: &str| {
        let mut port = service_port("TCP", IntOrString::String(target.into()));
        port.name = Some(name.into());
        port.app_protocol = Some("http".into());
        port
    };
    let listed = |name: &str, number: i32, id: usize| {
        let mut port = port(number, "TCP");
        (port.name, port.app_protocol) = (Some(name.into()), Some("http".into()));
        subset([pod_address(id)], [], [port])
    };
    let first = Arc::new(with_container_ports(pod(0, true, V4), &[("svc1", 100, "TCP")]));
    let second = Arc::new(with_container_ports(pod(1, true, V4), &[("svc2", 101, "TCP")]));
    let both_pods = [first, second];
    let ports = [named("portname1", "svc1"), named("portname2", "svc2")];
    let desired =
        |ports: &[_]| desired_subsets(&service_with(|spec| spec.ports = Some(ports.to_vec())), &both_pods);

    assert_eq!(desired(&ports[..1]), [listed("portname1", 100, 0)]);
    assert_eq!(desired(&ports), [listed("portname1", 100, 0), listed("portname2", 101, 1)]);
    assert_eq!(desired(&ports[1..]), [listed("portname2", 101, 1)]);
}

#[test]
fn only_a_headless_service_lists_pods_without_ports() {
    let without_ports = |cluster_ip: &str| {
        let change = |spec: &mut ServiceSpec| (spec.cluster_ip, spec.ports) = (Some(cluster_ip.into()), None);
        desired_subsets(&service_with(change), &pods(1, 0))
    };
    assert_eq!(without_ports("None"), [subset([pod_address(0)], [], [])]);
    assert_eq!(without_ports("10.0.0.1"), []);
}

/// Checks the numbers of ready and other addresses of a pod.
fn listed(pod: PodView, publish_unready: bool, expected: (usize, usize)) {
    let service = service_with(|spec| spec.publish_not_ready_addresses = Some(publish_unready));
    let context = format!("{pod:?} {publish_unready}");
    let subsets = desired_subsets(&service, &[Arc::new(pod)]);
    let count = |list: &Option<Vec<_>>| list.as_ref().map_or(0, Vec::len);
    let counts = subsets.iter().map(|subset| (count(&subset.addresses), count(&subset.not_ready_addresses)));
    assert_eq!(counts.fold((0, 0), |sum, next| (sum.0 + next.0, sum.1 + next.1)), expected, "{context}");
}

#[test]
fn phase_readiness_and_deletion_decide_the_list_of_a_pod() {
    for phase in ["Running", "Unknown", "Pending"] {
        let (ready, unready) = (with_phase(pod(0, true, V4), phase), with_phase(pod(0, false, V4), phase));
        listed(ready.clone(), false, (1, 0));
        listed(being_deleted(ready), false, (0, 0));
        listed(unready.clone(), false, (0, 1));
        listed(unready.clone(), true, (1, 0));
        listed(being_deleted(unready), true, (1, 0));
    }
    for phase in ["Failed", "Succeeded"] {
        listed(with_phase(pod(0, false, V4), phase), false, (0, 0));
        listed(with_phase(pod(0, false, V4), phase), true, (0, 0));
    }
}

#[test]
fn labels_match_service_except_own_labels() {
    let with_labels = |pairs: &[(&str, &str)], cluster_ip: &str| {
        service_from(|service| {
            service.spec.get_or_insert_default().cluster_ip = Some(cluster_ip.into());
            service.metadata.labels = Some(labels(pairs));
        })
    };
    let current = |pairs: &[(&str, &str)]| labeled(stored(vec![served(&[0], true)]), pairs);
    let check = |service: &ServiceView, current: &Endpoints, expected: Option<&[(&str, &str)]>| {
        let written = planned(service, &pods(1, 0), current).and_then(|endpoints| endpoints.metadata.labels);
        assert_eq!(written, expected.map(labels), "{current:?}");
    };
    let (plain, headless) = (with_labels(&[("a", "1")], "10.0.0.1"), with_labels(&[("a", "1")], "None"));
    let ours = (MANAGED_BY, MANAGER);

    check(&plain, &current(&[ours, ("a", "1")]), None);
    check(&plain, &current(&[ours, ("a", "2")]), Some(&[ours, ("a", "1")]));
    check(&plain, &current(&[ours, ("a", "1"), ("b", "1")]), Some(&[ours, ("a", "1")]));
    check(&plain, &current(&[("a", "1")]), Some(&[ours, ("a", "1")]));
    check(&plain, &current(&[(MANAGED_BY, "me"), ("a", "1")]), Some(&[ours, ("a", "1")]));
    check(&headless, &current(&[ours]), Some(&[ours, ("a", "1"), (HEADLESS, "")]));
    check(&headless, &current(&[ours, ("a", "1"), (HEADLESS, "")]), None);
    check(&headless, &current(&[ours, ("a", "1")]), None);
    let claiming = with_labels(&[("a", "1"), (HEADLESS, ""), (MANAGED_BY, "me")], "10.0.0.1");
    check(&claiming, &current(&[ours, ("a", "1")]), None);
    check(&claiming, &current(&[ours]), Some(&[ours, ("a", "1")]));
    let without_ip = with_labels(&[], "");
    check(&without_ip, &current(&[ours, ("a", "1")]), Some(&[ours, (HEADLESS, "")]));
}

#[test]
fn update_has_trigger_time_and_keeps_foreign_annotations() {
    let current = annotated(stored(Vec::new()), &[(TRIGGER_TIME, "2018-01-01T00:00:00Z"), ("note", "kept")]);
    let annotations = |trigger| match plan(&service(), &pods(1, 0), &[], Some(&current), trigger) {
        Action::Update { desired: endpoints, .. } => {
            assert_eq!(
                endpoints.metadata.resource_version.as_deref(),
                Some("1"),
                "the update must conflict with a concurrent write"
            );
            endpoints.metadata.annotations
        }
        other => panic!("{other:?}"),
    };
    assert_eq!(
        annotations(Some(at(0))),
        Some(labels(&[(TRIGGER_TIME, "2026-03-01T12:00:00Z"), ("note", "kept")]))
    );
    assert_eq!(annotations(None), Some(labels(&[("note", "kept")])));
}

/// Checks the annotation for this number of ready and other pods.
fn at_capacity(
    annotation: Option<&str>,
    before: usize,
    ready: usize,
    unready: usize,
    expected: (usize, usize, bool),
) {
    let all = pods(ready, unready);
    let mut current = stored(desired_subsets(&service(), &pods(before, 0)));
    if let Some(annotation) = annotation {
        current = annotated(current, &[(OVER_CAPACITY, annotation)]);
    }
    let settled = planned(&service(), &all, &current).unwrap_or_else(|| current.clone());
    let list = |ready: bool| {
        let subsets = settled.subsets.iter().flatten();
        subsets
            .map(|it| {
                if ready { &it.addresses } else { &it.not_ready_addresses }.as_ref().map_or(0, Vec::len)
            })
            .sum()
    };
    let annotation =
        settled.metadata.annotations.as_ref().and_then(|annotations| annotations.get(OVER_CAPACITY));
    let (kept, kept_unready, truncated): (usize, usize, bool) = expected;
    assert_eq!((list(true), list(false)), (kept, kept_unready));
    assert_eq!(annotation.map(String::as_str), truncated.then_some(TRUNCATED));
    assert_eq!(planned(&service(), &all, &settled), None, "the written object needs no update");
}

#[test]
fn endpoints_over_capacity_are_truncated_and_annotated() {
    const MAX: usize = MAX_ADDRESSES;
    at_capacity(None, 0, 0, 0, (0, 0, false));
    at_capacity(None, MAX - 1, MAX - 3, 4, (MAX - 3, 3, true));
    at_capacity(None, MAX - 1, MAX, 10, (MAX, 0, true));
    at_capacity(Some("truncated"), MAX - 1, MAX - 1, 0, (MAX - 1, 0, false));
    at_capacity(Some("warning"), MAX, MAX, 0, (MAX, 0, false));
    at_capacity(Some("warning"), MAX + 1, MAX + 1, 0, (MAX, 0, true));
    at_capacity(Some("truncated"), MAX, MAX, 0, (MAX, 0, false));
    at_capacity(Some("invalid"), MAX + 1, MAX + 1, 0, (MAX, 0, true));
    at_capacity(Some("truncated"), MAX + 1, MAX + 1, 0, (MAX, 0, true));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 256, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_current_object_needs_at_most_one_write(
        before in super::packing::any_subsets(5),
        ready in 0..6_usize,
        unready in 0..4_usize,
        annotation in proptest::option::of("[a-z]{1,9}"),
    ) {
        let all = pods(ready, unready);
        let mut current = stored(before);
        if let Some(annotation) = annotation {
            current = annotated(current, &[(OVER_CAPACITY, &annotation)]);
        }
        if let Some(written) = planned(&service(), &all, &current) {
            prop_assert_eq!(planned(&service(), &all, &written), None);
            prop_assert_eq!(address_count(written.subsets.as_deref().unwrap_or_default()), ready + unready);
        }
    }
}
