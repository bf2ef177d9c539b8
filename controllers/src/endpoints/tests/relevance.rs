//! Services that changes of pods affect.

use std::collections::BTreeSet;
use std::sync::Arc;

use windlass_informer::{Cause, Event};
use windlass_object::ObjectKey;

use super::{V4, V4_V6, pod, service_from};
use crate::endpoints::relevance::{AffectedServices, affected_by, among};
use crate::endpoints::service_view::ServiceView;
use crate::shared::fixtures::{being_deleted, labels, with_labels};
use crate::shared::pod_view::{PodIpView, PodView};

/// Returns a Service with this selector.
fn selecting(name: &str, selector: Option<&[(&str, &str)]>) -> Arc<ServiceView> {
    Arc::new(service_from(|service| {
        service.metadata.name = Some(name.into());
        service.spec.get_or_insert_default().selector = selector.map(labels);
    }))
}

fn names(concerned: &AffectedServices<'_>) -> Vec<String> {
    let services = [
        selecting("all", Some(&[])),
        selecting("blue", Some(&[("color", "blue")])),
        selecting("blue-square", Some(&[("color", "blue"), ("shape", "square")])),
        selecting("none", None),
        selecting("red", Some(&[("color", "red")])),
    ];
    among(concerned, &services).iter().map(|key| key.name().to_owned()).collect()
}

/// Returns the Services that an update between two pods of the same version affects.
fn concerned_when(cause: Cause, old: PodView, new: PodView) -> Vec<String> {
    names(&affected_by(&Event::Updated { old: Arc::new(old), new: Arc::new(new), cause }))
}

fn concerned(old: PodView, new: PodView) -> Vec<String> {
    concerned_when(Cause::Watch, old, new)
}

fn colored(color: &str) -> PodView {
    with_labels(pod(0, true, V4), &[("color", color)])
}

fn unready(color: &str) -> PodView {
    with_labels(pod(0, false, V4), &[("color", color)])
}

#[test]
fn service_is_concerned_by_pods_it_selects() {
    let blue_square = labels(&[("color", "blue"), ("shape", "square")]);
    assert_eq!(names(&AffectedServices::Selecting((&blue_square).into())), ["all", "blue", "blue-square"]);
    assert_eq!(
        names(&AffectedServices::Selecting(None.into())),
        ["all"],
        "an empty selector selects all pods, a missing one none"
    );
    assert_eq!(names(&AffectedServices::None), Vec::<String>::new());
}

#[test]
fn irrelevant_update_affects_no_service() {
    let mut annotated = colored("blue");
    annotated.deletion_cost = Some("1".into());
    assert!(concerned(colored("blue"), annotated).is_empty());
    let mut renamed = colored("blue");
    renamed.hostname = Some("me".into());
    assert!(concerned(colored("blue"), renamed).is_empty());
}

#[test]
fn resync_affects_no_service() {
    let leaving = being_deleted(colored("blue"));
    assert!(concerned_when(Cause::Resync, leaving.clone(), leaving).is_empty());
    // After a restore of the server, an equal version can have another state.
    assert_eq!(concerned_when(Cause::Relist, colored("blue"), unready("blue")), ["all", "blue"]);
}

#[test]
fn readiness_ips_and_deletion_affect_selecting_services() {
    assert_eq!(concerned(colored("blue"), unready("blue")), ["all", "blue"]);
    assert_eq!(concerned(colored("blue"), being_deleted(colored("blue"))), ["all", "blue"]);
    assert_eq!(concerned(being_deleted(colored("blue")), being_deleted(colored("blue"))), ["all", "blue"]);
    let second_ip = with_labels(pod(0, true, V4_V6), &[("color", "blue")]);
    assert_eq!(concerned(colored("blue"), second_ip), ["all", "blue"]);
    let mut moved = colored("blue");
    moved.pod_ips = [PodIpView { ip: "9.9.9.9".into() }].into();
    assert_eq!(concerned(colored("blue"), moved), ["all", "blue"]);
}

#[test]
fn label_change_affects_services_that_gain_or_lose_the_pod() {
    assert_eq!(concerned(colored("blue"), colored("red")), ["blue", "red"]);
    let square = with_labels(pod(0, true, V4), &[("color", "blue"), ("shape", "square")]);
    assert_eq!(concerned(colored("blue"), square), ["blue-square"]);
}

#[test]
fn label_and_endpoint_change_affects_old_and_new_services() {
    assert_eq!(concerned(colored("blue"), unready("red")), ["all", "blue", "red"]);
}

#[test]
fn each_service_is_listed_once() {
    let services =
        [selecting("blue", Some(&[("color", "blue")])), selecting("blue", Some(&[("color", "blue")]))];
    let blue = labels(&[("color", "blue")]);
    let expected = BTreeSet::from([ObjectKey::namespaced("default", "blue")]);
    assert_eq!(among(&AffectedServices::Selecting((&blue).into()), &services), expected);
}
