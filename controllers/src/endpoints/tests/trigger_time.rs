//! Trigger times of consecutive syncs.

use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use windlass_object::ObjectKey;

use super::{service, service_from};
use crate::endpoints::service_view::ServiceView;
use crate::endpoints::trigger_time::TriggerTimes;
use crate::shared::fixtures::{at, bare_pod, ready_pod, running_pod};
use crate::shared::pod_view::PodView;

/// Syncs of one Service; times in seconds.
#[derive(Default)]
struct Syncs(TriggerTimes);

impl Syncs {
    fn sync(&mut self, service: &ServiceView, pods: &[PodView], expected: Option<i64>) {
        let pods: Vec<_> = pods.iter().cloned().map(Arc::new).collect();
        assert_eq!(self.0.observe(&key(), service, &pods), expected.map(at));
        self.0.carried_out(&key());
    }

    /// Runs a sync whose write fails.
    fn fail(&mut self, service: &ServiceView, pods: &[PodView], expected: Option<i64>) {
        let pods: Vec<_> = pods.iter().cloned().map(Arc::new).collect();
        assert_eq!(self.0.observe(&key(), service, &pods), expected.map(at));
    }
}

fn key() -> ObjectKey {
    ObjectKey::namespaced("default", "foo")
}

fn created(seconds: i64) -> ServiceView {
    service_from(|service| service.metadata.creation_timestamp = Some(Time(at(seconds))))
}

fn pod(name: &str, seconds: i64) -> PodView {
    ready_pod(name, at(seconds))
}

#[test]
fn first_trigger_time_is_creation_of_service() {
    Syncs::default().sync(&created(2), &[], Some(2));
    Syncs::default().sync(&created(3), &[pod("a", 0), pod("b", 1), pod("c", 5)], Some(3));
    Syncs::default().sync(&service(), &[pod("a", 1)], None);
}

#[test]
fn later_trigger_time_is_earliest_change() {
    let mut added = Syncs::default();
    added.sync(&created(0), &[], Some(0));
    added.sync(&created(0), &[pod("a", 2), pod("b", 1)], Some(1));

    let mut updated = Syncs::default();
    updated.sync(&created(0), &[pod("a", 1), pod("b", 2), pod("c", 3)], Some(0));
    updated.sync(&created(0), &[pod("a", 5), pod("b", 4), pod("c", 3)], Some(4));
}

#[test]
fn sync_without_change_has_no_trigger_time() {
    let mut syncs = Syncs::default();
    syncs.sync(&created(0), &[pod("a", 1), pod("b", 2)], Some(0));
    syncs.sync(&created(0), &[pod("a", 1), pod("b", 2)], None);
    syncs.sync(&created(0), &[pod("a", 1)], None);
    syncs.sync(&created(0), &[pod("a", 1), pod("b", 4)], Some(4));
    let mut changed = created(0);
    changed.ports = [].into();
    syncs.sync(&changed, &[pod("a", 1), pod("b", 4)], None);
}

#[test]
fn trigger_time_is_kept_until_written() {
    let mut syncs = Syncs::default();
    syncs.fail(&created(1), &[pod("a", 2)], Some(1));
    syncs.fail(&created(1), &[pod("a", 2)], Some(1));
    syncs.sync(&created(1), &[pod("a", 5)], Some(1));
    syncs.fail(&created(1), &[pod("a", 7)], Some(7));
    syncs.sync(&created(1), &[pod("a", 7), pod("b", 6)], Some(6));
    syncs.sync(&created(1), &[pod("a", 7), pod("b", 6)], None);
}

#[test]
fn recreated_service_has_no_earlier_trigger_time() {
    let mut syncs = Syncs::default();
    syncs.sync(&created(0), &[pod("a", 1)], Some(0));
    syncs.0.forget(&key());
    syncs.sync(&created(3), &[pod("a", 1)], Some(3));
    syncs.sync(&created(5), &[pod("a", 1)], Some(5));
}

#[test]
fn unready_transition_counts_and_missing_time_does_not() {
    let mut syncs = Syncs::default();
    syncs.sync(&created(0), &[pod("a", 1)], Some(0));
    syncs.sync(&created(0), &[running_pod("a", "False", Some(at(7)))], Some(7));
    syncs.sync(&created(0), &[bare_pod("a")], None);
}
