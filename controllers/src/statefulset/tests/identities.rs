//! Names, labels and volumes of pods.

use serde_json::{Value, json};

use super::fixtures::{pod, stateful_set, versions};
use crate::shared::fixtures::pod_view;
use crate::statefulset::identity::{
    identity_matches, is_member, new_pod, ordinal, storage_matches, update_storage,
};

#[test]
fn name_contains_parent_and_ordinal() {
    let set = stateful_set(1, json!({}));
    let cases = [
        ("web-0", true, Some(0)),
        ("web-12", true, Some(12)),
        ("web-01", true, Some(1)),
        ("web-99999999999", true, None),
        ("web", false, None),
        ("web-", false, None),
        ("web-x", false, None),
        ("db-1", false, Some(1)),
        ("web-1-2", false, Some(2)),
    ];
    for (name, member, number) in cases {
        assert_eq!((is_member(&set, name), ordinal(name)), (member, number), "{name}");
    }
}

#[test]
fn identity_requires_name_and_label() {
    let set = stateful_set(1, json!({}));
    let matches = |change: &dyn Fn(&mut Value)| {
        let mut pod = pod("web-1", "web-new", "Running", true);
        change(&mut pod);
        identity_matches(&set, &pod_view(&pod))
    };
    assert!(matches(&|_| ()));
    assert!(!matches(&|pod| pod["metadata"]["name"] = json!("db-1")));
    assert!(!matches(&|pod| pod["metadata"]["name"] = json!("web-01")));
    assert!(!matches(&|pod| pod["metadata"]["labels"] = json!({})));
}

#[test]
fn storage_requires_a_volume_for_each_claim() {
    let set = stateful_set(1, json!({}));
    let volume = |claim: &str| json!({ "name": "data", "persistentVolumeClaim": { "claimName": claim } });
    let cases = [
        (json!([volume("data-web-1")]), true),
        (json!([{ "name": "tmp", "emptyDir": {} }, volume("data-web-1")]), true),
        (json!([]), false),
        (json!([volume("data-web-2")]), false),
        (json!([{ "name": "data", "emptyDir": {} }]), false),
    ];
    for (volumes, expected) in cases {
        let mut pod = pod("web-1", "web-new", "Running", true);
        pod["spec"]["volumes"] = volumes.clone();
        assert_eq!(storage_matches(&set, &pod_view(&pod)), expected, "{volumes}");
    }
}

#[test]
fn claims_replace_volumes_with_their_names() {
    let set = stateful_set(1, json!({}));
    let mut object = pod("web-1", "web-new", "Running", true);
    object["spec"]["volumes"] =
        json!([{ "name": "data", "emptyDir": {} }, { "name": "tmp", "emptyDir": {} }]);
    let mut pod = serde_json::from_value(object).expect("a pod");
    update_storage(&set, &mut pod, 1);
    let volumes = json!([
        { "name": "data", "persistentVolumeClaim": { "claimName": "data-web-1" } }, { "name": "tmp", "emptyDir": {} },
    ]);
    assert_eq!(json!(pod.spec.expect("a spec").volumes), volumes);
}

#[test]
fn claim_templates_with_the_same_name_add_one_volume() {
    let template = json!({ "metadata": { "name": "data" }, "spec": {} });
    let set = stateful_set(1, json!({ "volumeClaimTemplates": [template, template] }));
    let pod = new_pod(&set, &versions(&set), 0);
    let volume = json!({ "name": "data", "persistentVolumeClaim": { "claimName": "data-web-0" } });
    assert_eq!(json!(pod.spec.expect("a spec").volumes), json!([volume]));
}

#[test]
fn new_pod_has_the_revision_of_its_ordinal() {
    let rolling =
        |update: Value| json!({ "updateStrategy": { "type": "RollingUpdate", "rollingUpdate": update } });
    let cases = [
        (rolling(json!({ "partition": 0 })), [false, false, false]),
        (rolling(json!({ "partition": 2 })), [true, true, false]),
        (rolling(Value::Null), [true, false, false]),
        (json!({ "updateStrategy": { "type": "OnDelete" } }), [false, false, false]),
    ];
    for (fields, expected) in cases {
        for start in [0, 5] {
            let mut fields = fields.clone();
            fields["ordinals"] = json!({ "start": start });
            let mut set = stateful_set(3, fields.clone());
            set.status.get_or_insert_default().current_replicas = Some(1);
            let versions = versions(&set);
            let is_old = [0, 1, 2].map(|index| {
                let pod = new_pod(&set, &versions, start + index);
                pod.metadata.labels.expect("labels")["controller-revision-hash"] == "web-old"
            });
            assert_eq!(is_old, expected, "{fields}");
        }
    }
}
