//! Cases of upstream's `controller_history_test.go`, and of the bytes of the data.

use std::sync::Arc;

use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};
use serde_json::json;
use windlass_gotext::revision_hash;

use super::{HASH_LABEL, HistoryLimit, Match, Revision, find, next_number, revision_name, sort, surplus};
use crate::shared::fixtures::{at, labels};

fn owner() -> StatefulSet {
    let metadata = ObjectMeta {
        name: Some("web".into()),
        namespace: Some("default".into()),
        uid: Some("uid-web".into()),
        annotations: Some(labels(&[("note", "kept")])),
        ..ObjectMeta::default()
    };
    StatefulSet { metadata, ..StatefulSet::default() }
}

/// Returns a revision by name, number, age and data.
fn revision(name: &str, number: i64, created: i64, data: &str) -> Arc<Revision> {
    let mut revision = Revision::new(&owner(), None, data.to_owned(), number).expect("JSON");
    revision.metadata.name = Some(name.to_owned());
    revision.metadata.creation_timestamp = Some(Time(at(created)));
    Arc::new(revision)
}

fn names(revisions: &[Arc<Revision>]) -> Vec<&str> {
    revisions.iter().map(|revision| revision.name()).collect()
}

#[test]
fn revisions_are_sorted_by_number_creation_and_name() {
    let cases = [
        (vec![], vec![]),
        (vec![("a", 3, 0), ("b", 1, 0), ("c", 2, 0)], vec!["b", "c", "a"]),
        (vec![("a", 1, 2), ("b", 1, 1), ("c", 1, 0)], vec!["c", "b", "a"]),
        (vec![("c", 1, 0), ("a", 1, 0), ("b", 1, 0)], vec!["a", "b", "c"]),
        (vec![("late", 2, 0), ("new", 1, 9), ("old", 1, 1)], vec!["old", "new", "late"]),
    ];
    for (given, expected) in cases {
        let mut sorted: Vec<_> =
            given.iter().map(|(name, number, created)| revision(name, *number, *created, "{}")).collect();
        sort(&mut sorted);
        assert_eq!(names(&sorted), expected);
        assert_eq!(next_number(&sorted), given.iter().map(|given| given.1).max().unwrap_or(0) + 1);
    }
}

#[test]
fn last_revision_with_equal_bytes_is_found() {
    let (one, two) = (r#"{"spec":1}"#, r#"{"spec":2}"#);
    let (first, second, third) =
        (revision("a", 1, 0, one), revision("b", 2, 0, two), revision("c", 3, 0, one));
    let both = [Arc::clone(&first), Arc::clone(&second)];
    assert_eq!(find(&[], one), Match::Missing);
    assert_eq!(find(&both, two), Match::Latest(Arc::clone(&second)));
    assert_eq!(find(&both, one), Match::Earlier(first));
    assert_eq!(find(&both, r#"{"spec": 1}"#), Match::Missing);
    assert_eq!(find(&[both[0].clone(), second, third.clone()], one), Match::Latest(third));
}

#[test]
fn name_contains_at_most_223_bytes_of_the_owner_and_the_hash() {
    assert_eq!(revision_name("web", "abc"), "web-abc");
    assert_eq!(revision_name(&"w".repeat(223), "abc"), format!("{}-abc", "w".repeat(223)));
    assert_eq!(revision_name(&"w".repeat(250), "abc"), format!("{}-abc", "w".repeat(223)));
}

#[test]
fn new_revision_has_labels_annotations_and_owner() {
    let template = labels(&[("app", "web")]);
    let data = r#"{"spec":{"template":{}}}"#;
    let hash = revision_hash(data, Some(0));
    let made = Revision::new(&owner(), Some(&template), data.into(), 7).expect("JSON");
    let made = made.with_label(HASH_LABEL, &hash);
    let body = serde_json::to_value(&made).expect("JSON");
    let reference = json!({
        "apiVersion": "apps/v1", "kind": "StatefulSet", "name": "web", "uid": "uid-web",
        "controller": true, "blockOwnerDeletion": true,
    });
    let expected = json!({
        "apiVersion": "apps/v1", "kind": "ControllerRevision", "revision": 7,
        "data": { "spec": { "template": {} } },
        "metadata": {
            "namespace": "default", "labels": { "app": "web", HASH_LABEL: hash }, "annotations": { "note": "kept" },
            "ownerReferences": [reference],
        },
    });
    assert_eq!(body, expected);
    assert!(Revision::new(&owner(), None, "{".into(), 1).is_err());
}

#[test]
fn data_keep_their_bytes_through_decoding_and_encoding() {
    let data = r#"{"b":"a\u003cb","a":1.50}"#;
    let body = format!(r#"{{"metadata":{{"name":"r"}},"data":{data},"revision":2}}"#);
    let decoded: Revision = serde_json::from_slice(body.as_bytes()).expect("a revision");
    assert_eq!((decoded.data(), decoded.revision), (data, 2));
    let sent = serde_json::to_string(&decoded).expect("JSON");
    assert!(sent.contains(data), "{sent}");
    assert!(sent.contains(r#""apiVersion":"apps/v1","kind":"ControllerRevision""#), "{sent}");
    let empty: Revision = serde_json::from_str(r#"{"metadata":{"name":"r"}}"#).expect("a revision");
    assert_eq!(empty.data(), "null");
}

#[test]
fn surplus_contains_the_oldest_unused_revisions() {
    let all: Vec<_> = (1..=5).map(|number| revision(&format!("r{number}"), number, 0, "{}")).collect();
    let cases: [(&[&str], HistoryLimit, &[&str]); 9] = [
        (&[], HistoryLimit::Unused(5), &[]),
        (&[], HistoryLimit::Unused(2), &["r1", "r2", "r3"]),
        (&[], HistoryLimit::Unused(0), &["r1", "r2", "r3", "r4", "r5"]),
        (&[], HistoryLimit::Unused(-1), &[]),
        (&["r1", "r5"], HistoryLimit::Unused(1), &["r2", "r3"]),
        (&["r1", "r2", "r3", "r4", "r5"], HistoryLimit::Unused(0), &[]),
        (&["r1"], HistoryLimit::Total(3), &["r2", "r3"]),
        (&["r1", "r2", "r3", "r4"], HistoryLimit::Total(2), &["r5"]),
        (&[], HistoryLimit::Total(5), &[]),
    ];
    for (used, limit, expected) in cases {
        let deleted = surplus(&all, |revision| used.contains(&revision.name()), limit);
        assert_eq!(names(&deleted), expected, "{used:?} {limit:?}");
    }
}
