//! Revisions and the templates that they record.

use k8s_openapi::api::apps::v1::StatefulSet;
use serde_json::{Value, json};
use windlass_gotext::revision_hash;

use super::fixtures::stateful_set;
use crate::shared::history::Revision;
use crate::statefulset::revision::{present_data, recorded_template, restores};

/// Data that version 1.33 records for [`recorded`]: the creation time of the template is null.
const DATA_133: &str = concat!(
    r#"{"spec":{"template":{"$patch":"replace","metadata":{"annotations":{"test":"value"},"creationTimestamp":null,"#,
    r#""labels":{"app":"foo"}},"spec":{"containers":[{"image":"test","imagePullPolicy":"Always","name":"test","#,
    r#""resources":{},"terminationMessagePath":"/dev/termination-log","terminationMessagePolicy":"File"}],"#,
    r#""dnsPolicy":"ClusterFirst","restartPolicy":"Always","schedulerName":"default-scheduler","securityContext":{},"#,
    r#""terminationGracePeriodSeconds":30}}}}"#,
);

/// Returns the StatefulSet of [`DATA_133`].
fn recorded() -> StatefulSet {
    let container = json!({
        "name": "test", "image": "test", "imagePullPolicy": "Always", "resources": {},
        "terminationMessagePath": "/dev/termination-log", "terminationMessagePolicy": "File",
    });
    stateful_set(
        1,
        json!({ "template": {
        "metadata": { "annotations": { "test": "value" }, "labels": { "app": "foo" } },
        "spec": {
            "containers": [container], "dnsPolicy": "ClusterFirst", "restartPolicy": "Always", "securityContext": {},
            "schedulerName": "default-scheduler", "terminationGracePeriodSeconds": 30,
        },
    } }),
    )
}

fn revision(data: &str) -> Revision {
    Revision::new(&recorded(), None, data.to_owned(), 1).expect("JSON")
}

#[test]
fn revision_data_equal_version_1_33_except_for_creation_time() {
    let data = present_data(&recorded()).expect("data");
    assert_eq!(data, DATA_133.replace(r#""creationTimestamp":null,"#, ""));
    assert_eq!(revision_hash(DATA_133, Some(0)), "c77f6d978");
    assert_eq!(revision_hash(&data, Some(0)), "776999688b");
}

#[test]
fn equal_template_with_other_bytes_is_recognized() {
    let data = present_data(&recorded()).expect("data");
    let changed = |from: &str, to: &str| restores(&revision(&DATA_133.replace(from, to)), &data);
    assert!(changed("none", "none"));
    assert!(changed(r#""schedulerName":"default-scheduler","#, ""));
    assert!(changed(r#""imagePullPolicy":"Always","#, ""));
    assert!(changed(r#""resources":{},"#, ""));
    assert!(!changed(r#""image":"test""#, r#""image":"other""#));
    assert!(!changed(r#""terminationGracePeriodSeconds":30"#, r#""terminationGracePeriodSeconds":31"#));
    assert!(!restores(&revision("{}"), &data));
}

#[test]
fn recorded_template_equals_the_template_of_the_set() {
    let template = recorded_template(&revision(DATA_133)).expect("a template");
    assert_eq!(Some(template), recorded().spec.map(|spec| spec.template));
    for data in ["null", "{}", r#"{"spec":{"template":[]}}"#, r#"{"spec":{"template":{"spec":1}}}"#] {
        assert!(recorded_template(&revision(data)).is_err(), "{data}");
    }
    let no_template = recorded_template(&revision("{}")).expect_err("no template").to_string();
    assert!(no_template.contains("contains no pod template"), "{no_template}");
    assert_eq!(json!(recorded().metadata.generation), Value::from(3));
}
