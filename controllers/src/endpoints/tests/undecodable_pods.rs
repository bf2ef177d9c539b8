//! Addresses that are kept because their pods are undecodable.

use k8s_openapi::api::core::v1::{EndpointSubset, Endpoints};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use windlass_informer::UndecodableObject;
use windlass_object::{ObjectKey, Uid};

use super::{address, pod_address, pods, port, service, subset};
use crate::endpoints::plan::{Action, plan};
use crate::endpoints::undecodable_pods::addresses_of_undecodable_pods;

fn undecodable(namespace: &str, name: &str, uid: Option<&str>) -> UndecodableObject {
    let key = ObjectKey::namespaced(namespace, name);
    UndecodableObject {
        key,
        uid: uid.map(Uid::from),
        version: None,
        error: "not a list".into(),
        metadata: None,
    }
}

/// Returns Endpoints with a ready pod 0, a pod 1 that is not ready, and an address without a pod.
fn current() -> Endpoints {
    let metadata = ObjectMeta { namespace: Some("default".into()), ..ObjectMeta::default() };
    let written = subset([pod_address(0), address("9.9.9.9")], [pod_address(1)], [port(8080, "TCP")]);
    Endpoints { metadata, subsets: Some(vec![written]) }
}

fn keeps(pods: &[UndecodableObject], expected: &[EndpointSubset]) {
    assert_eq!(addresses_of_undecodable_pods(Some(&current()), pods), expected);
}

#[test]
fn only_addresses_of_undecodable_pods_are_kept() {
    let ready = subset([pod_address(0)], [], [port(8080, "TCP")]);
    let unready = subset([], [pod_address(1)], [port(8080, "TCP")]);
    keeps(&[], &[]);
    keeps(&[undecodable("default", "pod0", Some("uid-pod0"))], std::slice::from_ref(&ready));
    keeps(&[undecodable("default", "pod0", None)], &[ready]);
    keeps(&[undecodable("default", "pod1", Some("uid-pod1"))], &[unready]);
    keeps(&[undecodable("default", "pod0", Some("a-namesake"))], &[]);
    keeps(&[undecodable("elsewhere", "pod0", Some("uid-pod0"))], &[]);
    assert_eq!(addresses_of_undecodable_pods(None, &[undecodable("default", "pod0", None)]), []);
}

#[test]
fn kept_addresses_are_packed_with_desired_ones() {
    let stays = subset([pod_address(1)], [], [port(8080, "TCP")]);
    let Action::Create(planned) = plan(&service(), &pods(1, 0), &[stays], None, None) else {
        panic!("the Endpoints do not exist")
    };
    assert_eq!(
        planned.subsets,
        Some(vec![subset([pod_address(0), pod_address(1)], [], [port(8080, "TCP")])])
    );
}
