//! The status of ReplicaSets: counts, conditions, and the conversion.

use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::api::apps::v1::{ReplicaSet, ReplicaSetCondition, ReplicaSetSpec, ReplicaSetStatus};
use k8s_openapi::api::core::v1::PodTemplateSpec;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, ObjectMeta};
use windlass_object::time::seconds;

use crate::shared::fixtures::{at, bare_pod, being_deleted, labels, ready_pod, with_labels, with_phase};
use crate::shared::pod_view::PodView;
use crate::shared::replica_status::{OwnedPods, calculate};
use crate::shared::replicated::{ReplicaOwner, ReplicaStatus};

const NAME: &[(&str, &str)] = &[("name", "foo")];
const FULL: &[(&str, &str)] = &[("name", "foo"), ("type", "production")];

/// Returns a ReplicaSet whose template has all labels and whose selector uses the first.
fn replica_set(replicas: i32) -> ReplicaSet {
    let metadata = Some(ObjectMeta { labels: Some(labels(FULL)), ..ObjectMeta::default() });
    let spec = ReplicaSetSpec {
        replicas: Some(replicas),
        selector: LabelSelector { match_labels: Some(labels(NAME)), ..LabelSelector::default() },
        template: Some(PodTemplateSpec { metadata, spec: None }),
        ..ReplicaSetSpec::default()
    };
    let metadata = ObjectMeta { generation: Some(3), ..ObjectMeta::default() };
    ReplicaSet { metadata, spec: Some(spec), status: None }
}

fn patient(minimum: i32) -> ReplicaSet {
    let mut owner = replica_set(1);
    owner.spec.get_or_insert_default().min_ready_seconds = Some(minimum);
    owner
}

fn failing(mut owner: ReplicaSet) -> ReplicaSet {
    let conditions = Some(vec![condition("EarlierFailure", "reported before")]);
    owner.status = Some(ReplicaSetStatus { conditions, ..ReplicaSetStatus::default() });
    owner
}

fn condition(reason: &str, message: &str) -> ReplicaSetCondition {
    ReplicaSetCondition {
        type_: "ReplicaFailure".into(),
        status: "True".into(),
        reason: Some(reason.into()),
        message: Some(message.into()),
        last_transition_time: Some(seconds(at(0))),
    }
}

fn ready(labels: &[(&str, &str)], since: Timestamp) -> PodView {
    with_labels(ready_pod("pod", since), labels)
}

fn shared(pods: &[PodView]) -> Vec<Arc<PodView>> {
    pods.iter().cloned().map(Arc::new).collect()
}

/// Checks the counts: all, fully labeled, ready, available, terminating.
fn counts(owner: &ReplicaSet, active: &[PodView], terminating: &[PodView], expected: [i32; 5]) {
    let (active, terminating) = (shared(active), shared(terminating));
    let status =
        calculate(owner, OwnedPods { active: &active, terminating: Some(&terminating) }, None, at(0));
    let counted = [status.replicas, status.fully_labeled, status.ready, status.available];
    assert_eq!(counted, expected[..4]);
    assert_eq!(status.terminating, Some(expected[4]));
    assert_eq!(status.observed_generation, 3);
}

#[test]
fn pods_are_counted_by_labels_readiness_and_age() {
    let owner = replica_set(2);
    counts(&owner, &[], &[], [0, 0, 0, 0, 0]);
    counts(&owner, &[ready(FULL, at(0))], &[], [1, 1, 1, 1, 0]);
    counts(&owner, &[ready(NAME, at(0))], &[], [1, 0, 1, 1, 0]);
    counts(&owner, &[ready(FULL, at(0)), ready(FULL, at(0))], &[], [2, 2, 2, 2, 0]);
    counts(&owner, &[ready(NAME, at(0)), ready(NAME, at(0))], &[], [2, 0, 2, 2, 0]);
    counts(&owner, &[ready(NAME, at(0)), ready(FULL, at(0))], &[], [2, 1, 2, 2, 0]);
    let pending = with_labels(with_phase(bare_pod("pod"), "Pending"), FULL);
    counts(&owner, &[pending], &[], [1, 1, 0, 0, 0]);
    let leaving = being_deleted(ready(FULL, at(0)));
    counts(&owner, &[ready(FULL, at(0))], &[leaving.clone(), leaving], [1, 1, 1, 1, 2]);
}

#[test]
fn pod_is_available_exactly_at_its_minimum_ready_time() {
    counts(&patient(3600), &[ready(FULL, at(0))], &[], [1, 1, 1, 0, 0]);
    counts(&patient(3600), &[ready(FULL, at(-3599))], &[], [1, 1, 1, 0, 0]);
    counts(&patient(3600), &[ready(FULL, at(-3600))], &[], [1, 1, 1, 1, 0]);
    counts(&patient(3600), &[ready(FULL, at(-7200))], &[], [1, 1, 1, 1, 0]);
}

/// Checks the conditions after a sync with this number of pods and this failure.
fn conditions(owner: &ReplicaSet, active: usize, failed: Option<&str>, expected: &[ReplicaSetCondition]) {
    let active = shared(&vec![ready(FULL, at(0)); active]);
    let status = calculate(owner, OwnedPods { active: &active, terminating: None }, failed, at(0));
    assert_eq!(status.conditions, expected);
}

#[test]
fn failure_is_reported_with_its_first_reason_until_a_sync_succeeds() {
    let earlier = condition("EarlierFailure", "reported before");
    conditions(&replica_set(2), 1, Some("no room"), &[condition("FailedCreate", "no room")]);
    conditions(&replica_set(2), 3, Some("held"), &[condition("FailedDelete", "held")]);
    conditions(&failing(replica_set(10)), 1, None, &[]);
    conditions(&failing(replica_set(10)), 1, Some("no room"), &[earlier]);
    conditions(&replica_set(2), 1, None, &[]);
}

#[test]
fn foreign_conditions_are_kept() {
    let mut owner = replica_set(2);
    let theirs =
        ReplicaSetCondition { type_: "ImagePullBackOff".into(), ..condition("NonExistentImage", "") };
    let both = vec![condition("EarlierFailure", "reported before"), theirs.clone()];
    owner.status = Some(ReplicaSetStatus { conditions: Some(both), ..ReplicaSetStatus::default() });
    conditions(&owner, 2, None, std::slice::from_ref(&theirs));
    owner.status =
        Some(ReplicaSetStatus { conditions: Some(vec![theirs.clone()]), ..ReplicaSetStatus::default() });
    conditions(&owner, 1, Some("no room"), &[theirs, condition("FailedCreate", "no room")]);
}

#[test]
fn status_round_trips() {
    let status = ReplicaStatus {
        replicas: 5,
        fully_labeled: 4,
        ready: 3,
        available: 2,
        terminating: Some(1),
        observed_generation: 7,
        conditions: vec![condition("FailedCreate", "no room")],
    };
    let mut owner = replica_set(5);
    owner.set_status(status.clone());
    assert_eq!(ReplicaOwner::status(&owner), status);
    let bare = ReplicaOwner::status(&ReplicaSet { status: None, ..owner });
    assert_eq!((bare.replicas, bare.observed_generation, bare.terminating), (0, 0, None));
}

#[test]
fn missing_spec_selects_nothing() {
    let bare = ReplicaSet::default();
    assert_eq!(bare.selector().map(|selector| selector.matches(&labels(NAME))), Ok(false));
    assert!(replica_set(1).selector().is_ok_and(|selector| selector.matches(&labels(FULL))));
}
