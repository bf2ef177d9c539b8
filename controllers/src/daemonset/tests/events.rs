//! DaemonSets that events of nodes and revisions enqueue.

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::apps::v1::DaemonSet;
use serde_json::{Value, json};
use windlass_informer::{Cause, DeletionEvidence, Event};
use windlass_object::{MetadataRef, ObjectKey, OwnerRef};

use super::super::events::{affected_by_revision, needs_sync, node_of_daemon_pod, relevant_node};
use super::super::placement::Fit;
use super::fixtures::{HASH, node, pod, set, tainted};
use crate::shared::fixtures::{controlled_by, node_view};
use crate::shared::node_view::NodeView;
use crate::shared::owner_events::{Owners, PodOwner as _};
use crate::shared::pod_view::PodView;

fn updated<T>(old: T, new: T) -> Event<Arc<T>> {
    Event::Updated { old: Arc::new(old), new: Arc::new(new), cause: Cause::Watch }
}

fn added<T>(object: T) -> Event<Arc<T>> {
    Event::Added { object: Arc::new(object), cause: Cause::Watch }
}

fn removed<T>(last: T) -> Event<Arc<T>> {
    Event::Deleted { last: Arc::new(last), observed: DeletionEvidence::Observed, cause: Cause::Watch }
}

#[test]
fn only_label_and_taint_changes_of_a_node_are_relevant() {
    let relevant = |event: Event<Arc<NodeView>>| relevant_node(&event).is_some();
    let plain = || node("one", json!({}));
    assert!(!relevant(updated(plain(), plain())));
    let ready = NodeView { ready: "True".into(), ..plain() };
    assert!(!relevant(updated(plain(), ready)), "a heartbeat");
    let allocatable = json!({ "allocatable": { "memory": "200M", "cpu": "200m" } });
    let larger = node_view(&json!({ "metadata": { "name": "one", "labels": {} }, "status": allocatable }));
    assert!(!relevant(updated(plain(), larger)), "the scheduler handles resources");
    assert!(relevant(updated(plain(), node("one", json!({ "color": "blue" })))));
    assert!(relevant(updated(tainted("one", "key", "NoSchedule"), plain())));
    assert!(relevant(updated(tainted("one", "key", "NoSchedule"), tainted("one", "key", "NoExecute"))));
    assert!(relevant(added(plain())));
    assert!(!relevant(removed(plain())));
    assert!(!relevant(Event::Added { object: Arc::new(plain()), cause: Cause::InitialList }));
}

#[test]
fn set_is_synced_if_a_node_gains_or_loses_a_pod() {
    let check = |fit: Fit, is_scheduled: bool, misscheduled: i32, expected: bool| {
        let mut set = set(json!({}));
        set.status.get_or_insert_default().number_misscheduled = misscheduled;
        assert_eq!(needs_sync(&set, fit, is_scheduled), expected, "{fit:?} {is_scheduled} {misscheduled}");
    };
    check(Fit::Run, false, 0, true);
    check(Fit::Run, true, 0, false);
    check(Fit::Keep, false, 1, false);
    check(Fit::Keep, true, 0, false);
    check(Fit::Leave, false, 1, false);
    check(Fit::Leave, true, 0, true);
    check(Fit::Run, true, 1, true);
    check(Fit::Keep, true, 1, true);
}

#[test]
fn only_bound_pods_of_daemon_sets_are_indexed_by_node() {
    let mut owned = controlled_by(pod("a", "one", HASH, 0), "agent", "uid-agent");
    assert_eq!(node_of_daemon_pod(&owned), None, "a ReplicaSet");
    let mut owner = owned.metadata.owners[0].clone();
    owner.kind = "DaemonSet".into();
    owned.metadata.owners = [owner].into();
    assert_eq!(node_of_daemon_pod(&owned), Some("one".into()));
    assert_eq!(node_of_daemon_pod(&PodView { node: "".into(), ..owned }), None);
    assert_eq!(node_of_daemon_pod(&pod("a", "one", HASH, 0)), None, "an orphan");
}

#[test]
fn ready_pod_is_checked_one_second_after_the_minimum() {
    let after = |minimum: i32| set(json!({ "minReadySeconds": minimum })).requeue_after_ready();
    assert_eq!(after(0), None);
    assert_eq!(after(15), Some(Duration::from_secs(16)));
}

/// The DaemonSet `agent`, which selects `app: agent`.
struct One;

impl Owners<DaemonSet> for One {
    fn by_reference(&self, namespace: &str, reference: OwnerRef<'_>) -> Option<Arc<DaemonSet>> {
        let is_ours = (namespace, reference.kind, reference.uid) == ("default", "DaemonSet", "uid-agent");
        is_ours.then(|| Arc::new(set(json!({}))))
    }

    fn by_selector(&self, child: MetadataRef<'_>) -> Vec<Arc<DaemonSet>> {
        let is_selected = child.labels().get("app") == Some("agent");
        is_selected.then(|| Arc::new(set(json!({})))).into_iter().collect()
    }
}

/// Returns a revision with an owner, a label and a deletion timestamp; null omits the field.
fn revision(owner: Value, app: &str, deleted: Value) -> k8s_openapi::api::apps::v1::ControllerRevision {
    let owners = owner.as_str().map(|uid| {
        json!([{ "apiVersion": "apps/v1", "kind": "DaemonSet", "name": "agent", "uid": uid, "controller": true }])
    });
    let metadata = json!({
        "namespace": "default", "name": "r", "labels": { "app": app }, "ownerReferences": owners,
        "deletionTimestamp": deleted,
    });
    serde_json::from_value(json!({ "metadata": metadata, "revision": 1 })).expect("a revision")
}

#[test]
fn revisions_enqueue_their_owner_or_their_adopters() {
    let ours = || revision(json!("uid-agent"), "agent", Value::Null);
    let orphan = || revision(Value::Null, "agent", Value::Null);
    let deleted = || json!("2026-03-01T12:00:00Z");
    let cases = [
        (added(ours()), 0),
        (added(revision(json!("uid-agent"), "agent", deleted())), 1),
        (added(orphan()), 1),
        (added(revision(Value::Null, "agent", deleted())), 0),
        (added(revision(Value::Null, "other", Value::Null)), 0),
        (updated(ours(), ours()), 1),
        (updated(ours(), orphan()), 2),
        (updated(orphan(), ours()), 1),
        (updated(orphan(), orphan()), 0),
        (updated(revision(Value::Null, "other", Value::Null), orphan()), 1),
        (updated(revision(json!("uid-other"), "agent", Value::Null), orphan()), 1),
        (removed(ours()), 1),
        (removed(orphan()), 0),
        (removed(revision(json!("uid-other"), "agent", Value::Null)), 0),
    ];
    for (event, count) in cases {
        let keys = affected_by_revision(&event, &One);
        assert_eq!(keys, vec![ObjectKey::namespaced("default", "agent"); count], "{event:?}");
    }
    let resync = Event::Updated { old: Arc::new(ours()), new: Arc::new(ours()), cause: Cause::Resync };
    assert_eq!(affected_by_revision(&resync, &One), []);
}
