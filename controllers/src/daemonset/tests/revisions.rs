//! The split of revisions, and the revisions to delete.

use std::sync::Arc;

use k8s_openapi::api::apps::v1::DaemonSet;
use serde_json::json;

use super::super::revisions::{Split, data, hash_of, split, unused};
use super::fixtures::{pinned_pod, pod, set};
use crate::shared::history::{REVISION_LABEL, Revision};
use crate::shared::pod_view::PodView;

fn revision(name: &str, number: i64, data: &str) -> Arc<Revision> {
    let revision = Revision::new(&set(json!({})), None, data.to_owned(), number).expect("JSON");
    let mut revision = revision.with_label(REVISION_LABEL, name);
    revision.metadata.name = Some(format!("agent-{name}"));
    Arc::new(revision)
}

fn limited(limit: i32) -> DaemonSet {
    set(json!({ "revisionHistoryLimit": limit }))
}

#[test]
fn data_is_a_patch_that_replaces_the_template() {
    let expected = concat!(
        r#"{"spec":{"template":{"$patch":"replace","metadata":{"labels":{"app":"agent"}},"#,
        r#""spec":{"containers":[{"image":"agent:1","name":"main","resources":{}}]}}}}"#
    );
    assert_eq!(data(&set(json!({}))).expect("data"), expected);
}

#[test]
fn highest_revision_with_the_present_data_is_current() {
    let (new, old) = (r#"{"spec":2}"#, r#"{"spec":1}"#);
    let (a, b, c, d) =
        (revision("a", 1, old), revision("b", 4, new), revision("c", 2, new), revision("d", 3, old));
    let all = vec![Arc::clone(&d), Arc::clone(&b), Arc::clone(&c), Arc::clone(&a)];
    let expected = Split { current: Some(Arc::clone(&b)), duplicates: vec![c], old: vec![a, d] };
    assert_eq!(split(all, new), expected);
    assert_eq!(hash_of(&b), "b");
    assert_eq!(split(Vec::new(), new), Split { current: None, duplicates: vec![], old: vec![] });
}

#[test]
fn old_revisions_beyond_the_limit_are_deleted_unless_pods_use_them() {
    let old: Vec<_> = (1..=4).map(|number| revision(&format!("r{number}"), number, "{}")).collect();
    let deleted = |limit: i32, hashes: &[&str]| {
        let pods: Vec<Arc<PodView>> =
            hashes.iter().map(|hash| Arc::new(pod(&format!("pod-{hash}"), "node", hash, 0))).collect();
        let deleted = unused(&limited(limit), &old, || pods);
        deleted.iter().map(|revision| hash_of(revision).to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(deleted(10, &[]), [""; 0]);
    assert_eq!(deleted(4, &[]), [""; 0]);
    assert_eq!(deleted(2, &[]), ["r1", "r2"]);
    assert_eq!(deleted(0, &[]), ["r1", "r2", "r3", "r4"]);
    assert_eq!(deleted(2, &["r1", "new"]), ["r2", "r3"]);
    assert_eq!(deleted(0, &["r1", "r2", "r3", "r4"]), [""; 0]);
    // A pod without a node is not listed.
    let lost = || vec![Arc::new(pinned_pod("lost", json!([])))];
    assert_eq!(unused(&limited(0), &old[..1], lost).len(), 1);
}
