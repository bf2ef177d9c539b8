//! Owners that events of pods requeue.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use crate::shared::pod_view::PodView;
use k8s_openapi::api::apps::v1::{ReplicaSet, ReplicaSetSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, ObjectMeta};
use windlass_informer::{Cause, DeletionEvidence, Event};
use windlass_object::{MetadataRef, ObjectKey, OwnerRef, ResourceVersion};

use super::{OwnerRequeue, Owners, changes_active_pods, pod_changed};
use crate::shared::fixtures::{
    at, bare_pod, being_deleted, controlled_by, labels, ready_pod, unready_pod, with_labels, with_phase,
};
use crate::shared::pods;
use crate::shared::replicated::ReplicaOwner;

/// ReplicaSets `web`, which selects `app: web` and has a minimum ready time, and `db`, which selects `app: db` and has
/// none.
struct Two;

fn owner(name: &str) -> Arc<ReplicaSet> {
    let selector = LabelSelector { match_labels: Some(labels(&[("app", name)])), ..LabelSelector::default() };
    let min_ready_seconds = (name == "web").then_some(30);
    let metadata = ObjectMeta {
        namespace: Some("default".into()),
        name: Some(name.into()),
        uid: Some(format!("uid-{name}")),
        ..ObjectMeta::default()
    };
    let spec = ReplicaSetSpec { selector, min_ready_seconds, ..ReplicaSetSpec::default() };
    Arc::new(ReplicaSet { metadata, spec: Some(spec), status: None })
}

impl Owners<ReplicaSet> for Two {
    fn by_reference(&self, namespace: &str, reference: OwnerRef<'_>) -> Option<Arc<ReplicaSet>> {
        let meant = |owner: &Arc<ReplicaSet>| pods::uid(&owner.metadata) == reference.uid;
        (namespace == "default").then_some(())?;
        [owner("web"), owner("db")].into_iter().find(meant)
    }

    fn by_selector(&self, child: MetadataRef<'_>) -> Vec<Arc<ReplicaSet>> {
        let selects = |owner: &Arc<ReplicaSet>| owner.selector().is_ok_and(|it| it.matches(child.labels()));
        [owner("web"), owner("db")].into_iter().filter(selects).collect()
    }
}

fn key(name: &str) -> ObjectKey {
    ObjectKey::namespaced("default", name)
}

fn app(pod: PodView, app: &str) -> PodView {
    with_labels(pod, &[("app", app)])
}

fn of(pod: PodView, owner: &str) -> PodView {
    controlled_by(pod, owner, &format!("uid-{owner}"))
}

fn added(pod: PodView) -> Event<Arc<PodView>> {
    Event::Added { object: Arc::new(pod), cause: Cause::Watch }
}

fn updated(mut old: PodView, mut new: PodView) -> Event<Arc<PodView>> {
    let version = |text| Some(ResourceVersion::new(text));
    (old.metadata.header.version, new.metadata.header.version) = (version("1"), version("2"));
    Event::Updated { old: Arc::new(old), new: Arc::new(new), cause: Cause::Watch }
}

fn deleted(pod: PodView) -> Event<Arc<PodView>> {
    Event::Deleted { last: Arc::new(pod), observed: DeletionEvidence::Observed, cause: Cause::Watch }
}

/// Checks that exactly these owners are requeued immediately.
fn wakes(event: &Event<Arc<PodView>>, expected: &[&str]) {
    let woken: BTreeSet<_> = pod_changed(event, &Two).into_iter().collect();
    assert_eq!(woken, expected.iter().map(|name| OwnerRequeue::Now(key(name))).collect(), "{event:?}");
}

#[test]
fn owned_pod_requeues_its_owner_regardless_of_labels() {
    wakes(&added(of(app(bare_pod("pod"), "db"), "web")), &["web"]);
    wakes(&deleted(of(bare_pod("pod"), "web")), &["web"]);
    wakes(&updated(of(app(bare_pod("pod"), "web"), "web"), of(app(bare_pod("pod"), "db"), "web")), &["web"]);
    wakes(&added(controlled_by(app(bare_pod("pod"), "web"), "web", "another")), &[]);
}

#[test]
fn orphan_requeues_selecting_owners_on_relevant_changes() {
    let (web, db) = (app(bare_pod("pod"), "web"), app(bare_pod("pod"), "db"));
    wakes(&added(web.clone()), &["web"]);
    wakes(&added(bare_pod("pod")), &[]);
    wakes(&updated(web.clone(), db.clone()), &["db"]);
    wakes(&updated(web.clone(), web.clone()), &[]);
    wakes(&deleted(web), &[]);
}

#[test]
fn changed_controller_reference_requeues_both_owners() {
    wakes(&updated(of(app(bare_pod("pod"), "db"), "web"), app(bare_pod("pod"), "db")), &["web", "db"]);
    wakes(&updated(of(bare_pod("pod"), "web"), of(bare_pod("pod"), "db")), &["web", "db"]);
    wakes(&updated(app(bare_pod("pod"), "db"), of(app(bare_pod("pod"), "db"), "web")), &["web"]);
}

#[test]
fn changed_owner_of_terminating_pod_requeues_both() {
    let leaving = |owner: &str| being_deleted(of(bare_pod("pod"), owner));
    wakes(&updated(of(bare_pod("pod"), "web"), leaving("db")), &["web", "db"]);
    wakes(&updated(leaving("web"), being_deleted(bare_pod("pod"))), &["web"]);
    wakes(&updated(of(app(bare_pod("pod"), "web"), "web"), app(leaving("web"), "db")), &["web"]);
}

#[test]
fn resync_requeues_no_owner() {
    let again = |cause| {
        let pod = Arc::new(of(bare_pod("pod"), "web"));
        Event::Updated { old: Arc::clone(&pod), new: pod, cause }
    };
    wakes(&again(Cause::Resync), &[]);
    // After a restore of the server, an equal version can have another state.
    wakes(&again(Cause::Relist), &["web"]);
}

#[test]
fn ready_pod_requeues_owner_when_it_becomes_available() {
    let after = |owner: &str, old: PodView, new: PodView| {
        let woken = pod_changed(&updated(of(old, owner), of(new, owner)), &Two);
        woken.into_iter().filter(|wake| matches!(wake, OwnerRequeue::After(..))).collect::<Vec<_>>()
    };
    let (ready, unready) = (ready_pod("pod", at(0)), unready_pod("pod"));
    assert_eq!(
        after("web", unready.clone(), ready.clone()),
        [OwnerRequeue::After(key("web"), Duration::from_secs(30))]
    );
    assert_eq!(after("web", ready.clone(), ready.clone()), []);
    assert_eq!(after("web", ready.clone(), unready.clone()), []);
    assert_eq!(after("db", unready, ready), []);
}

#[test]
fn only_changes_of_active_pods_end_the_rest() {
    let pod = || of(bare_pod("pod"), "web");
    let ends = [
        added(pod()),
        deleted(pod()),
        updated(pod(), being_deleted(pod())),
        updated(pod(), with_phase(pod(), "Failed")),
        updated(pod(), bare_pod("pod")),
    ];
    for event in ends {
        assert!(changes_active_pods(&event), "{event:?}");
    }
    let keeps = [
        updated(pod(), of(ready_pod("pod", at(0)), "web")),
        deleted(being_deleted(pod())),
        added(with_phase(pod(), "Succeeded")),
        updated(with_phase(pod(), "Failed"), being_deleted(with_phase(pod(), "Failed"))),
    ];
    for event in keeps {
        assert!(!changes_active_pods(&event), "{event:?}");
    }
}
