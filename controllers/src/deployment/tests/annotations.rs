//! Upstream's tables about annotations and revisions.

use serde_json::json;

use super::super::annotations::{
    DESIRED_REPLICAS, Existence, MAX_REPLICAS, REVISION, REVISION_HISTORY, annotation, last_revision,
    max_revision, number, restore, set_on_new_set, set_sizes,
};
use super::fixtures::{annotated, changed, rolling, set};

#[test]
fn numbers_in_annotations_are_not_negative() {
    let cases = [
        (None, None),
        (Some("invalid"), None),
        (Some("-1"), None),
        (Some("+1"), None),
        (Some(""), None),
        (Some("0"), Some(0)),
        (Some("13"), Some(13)),
        (Some("2147483647"), Some(i32::MAX)),
        (Some("2147483648"), None),
        (Some("4294967296"), None),
    ];
    for (text, expected) in cases {
        let set = set("set", "old", 1, 1);
        let set = text.map_or_else(|| set.clone(), |text| annotated(&set, DESIRED_REPLICAS, text));
        assert_eq!(number(&set, DESIRED_REPLICAS), expected, "{text:?}");
    }
}

#[test]
fn revision_of_a_new_set_only_rises() {
    let deployment = rolling(1, 1, 1);
    let mut set = set("set", "new", 1, 1);
    for (next, expected, history) in
        [(1, "1", None), (1, "1", None), (4, "4", Some("1")), (2, "4", Some("1"))]
    {
        let rises = annotation(&set.metadata, REVISION) != Some(expected);
        assert_eq!(set_on_new_set(&deployment, &mut set, next, Existence::Existing), rises);
        assert_eq!(annotation(&set.metadata, REVISION), Some(expected));
        assert_eq!(annotation(&set.metadata, REVISION_HISTORY), history);
    }
    assert!(set_on_new_set(&deployment, &mut set, 6, Existence::Existing));
    assert_eq!(annotation(&set.metadata, REVISION_HISTORY), Some("1,4"));
    let mut malformed = annotated(&set, REVISION, "x");
    assert!(!set_on_new_set(&deployment, &mut malformed, 9, Existence::Existing));
    assert_eq!(annotation(&malformed.metadata, REVISION), Some("x"));
}

#[test]
fn revision_history_drops_its_oldest_entries() {
    let long = vec!["1234567"; 250].join(",");
    assert_eq!(long.len(), 1999);
    let set = annotated(&annotated(&set("set", "new", 1, 1), REVISION, "77"), REVISION_HISTORY, &long);
    let mut updated = set;
    assert!(set_on_new_set(&rolling(1, 1, 1), &mut updated, 78, Existence::Existing));
    let history = annotation(&updated.metadata, REVISION_HISTORY).expect("a history").to_owned();
    assert_eq!(history, vec!["1234567"; 249].join(",") + ",77");
}

#[test]
fn annotations_are_copied_except_those_with_a_meaning() {
    let annotations = json!({
        "note": "kept", "kubectl.kubernetes.io/last-applied-configuration": "{}", REVISION: "9",
        DESIRED_REPLICAS: "9", "deprecated.deployment.rollback.to": "1",
    });
    let deployment = changed(&rolling(2, 1, 1), json!({ "metadata": { "annotations": annotations } }));
    let mut set = annotated(&set("set", "new", 1, 1), "stays", "yes");
    assert!(set_on_new_set(&deployment, &mut set, 3, Existence::New));
    let expected =
        json!({ "note": "kept", "stays": "yes", REVISION: "3", DESIRED_REPLICAS: "2", MAX_REPLICAS: "3" });
    assert_eq!(serde_json::to_value(&set.metadata.annotations).expect("JSON"), expected);
    let mut restored = deployment;
    restore(&mut restored, &annotated(&set, "note", "old"));
    assert_eq!(annotation(&restored.metadata, "note"), Some("old"));
    assert_eq!(annotation(&restored.metadata, "stays"), Some("yes"));
    assert_eq!(annotation(&restored.metadata, REVISION), Some("9"));
}

#[test]
fn size_annotations_change_with_either_number() {
    let deployment = rolling(10, 1, 1);
    let mut set = set("set", "new", 1, 1);
    assert!(set_sizes(&mut set, &deployment));
    assert!(!set_sizes(&mut set, &deployment));
    for (key, value) in [(DESIRED_REPLICAS, "8"), (MAX_REPLICAS, "16")] {
        assert!(set_sizes(&mut annotated(&set, key, value), &deployment), "{key}");
    }
}

#[test]
fn malformed_revisions_do_not_count() {
    let with_revision = |text: &str| annotated(&set("set", "old", 1, 1), REVISION, text);
    let sets = [with_revision("3"), with_revision("x"), with_revision("7"), set("set", "old", 1, 1)];
    assert_eq!((max_revision(&sets), last_revision(&sets)), (7, 3));
    assert_eq!((max_revision(&sets[3..]), last_revision(&sets[3..])), (0, 0));
}
