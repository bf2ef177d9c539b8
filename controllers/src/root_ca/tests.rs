//! Upstream's cases of `TestConfigMapCreation` and `TestConfigMapUpdateNoHotLoop`.

use k8s_openapi::api::core::v1::ConfigMap;
use serde_json::{Value, json};

use super::plan::{Action, DESCRIPTION, DESCRIPTION_TEXT, plan};

fn config_map(annotations: &Value, data: &Value) -> ConfigMap {
    let metadata = json!({
        "namespace": "default", "name": "kube-root-ca.crt", "resourceVersion": "7", "annotations": annotations,
        "labels": { "kept": "yes" },
    });
    serde_json::from_value(json!({ "metadata": metadata, "data": data })).expect("a ConfigMap")
}

#[test]
fn missing_config_map_is_created_in_active_namespaces() {
    let Action::Create(created) = plan("new", true, None, "fake-root-ca") else { panic!("no create") };
    assert_eq!(
        (created.metadata.namespace.as_deref(), created.metadata.name.as_deref()),
        (Some("new"), Some("kube-root-ca.crt"))
    );
    assert_eq!(json!(created.data), json!({ "ca.crt": "fake-root-ca" }));
    assert_eq!(json!(created.metadata.annotations), json!({ DESCRIPTION: DESCRIPTION_TEXT }));
    assert_eq!(plan("new", false, None, "fake-root-ca"), Action::Nothing);
}

#[test]
fn published_certificates_stay_without_a_root_ca() {
    let published = config_map(&json!({}), &json!({ "ca.crt": "real", "other": "kept" }));
    assert_eq!(plan("default", true, Some(&published), ""), Action::Nothing);
    for data in [json!({}), json!({ "ca.crt": "" }), json!({ "other": "replaced" })] {
        let empty = config_map(&json!({}), &data);
        assert!(matches!(plan("default", true, Some(&empty), ""), Action::Update { .. }), "{data}");
    }
    assert!(matches!(plan("default", true, None, ""), Action::Create(_)));
}

#[test]
fn config_map_is_updated_if_data_differs_or_description_is_missing() {
    let described = json!({ DESCRIPTION: DESCRIPTION_TEXT, "other": "kept" });
    let fake = json!({ "ca.crt": "fake" });
    for (annotations, data, updated) in [
        (&described, &fake, false),
        (&json!({ DESCRIPTION: "different" }), &fake, false),
        (&json!({ DESCRIPTION: "" }), &fake, true),
        (&json!({}), &fake, true),
        (&json!(null), &fake, true),
        (&described, &json!({ "ca.crt": "fake", "test": "test" }), true),
        (&described, &json!({ "ca.crt": "abc" }), true),
        (&described, &json!({ "test": "fake" }), true),
        (&described, &json!({}), true),
        (&described, &json!(null), true),
        (&json!({ DESCRIPTION: "different" }), &json!({ "ca.crt": "abc" }), true),
    ] {
        let current = config_map(annotations, data);
        for is_active in [true, false] {
            match plan("default", is_active, Some(&current), "fake") {
                Action::Nothing => assert!(!updated, "{annotations} {data}"),
                Action::Update { desired, .. } => {
                    assert!(updated, "{annotations} {data}");
                    let mut expected = annotations.as_object().cloned().unwrap_or_default();
                    expected.insert(DESCRIPTION.into(), DESCRIPTION_TEXT.into());
                    assert_eq!(*desired, config_map(&Value::Object(expected), &fake));
                }
                Action::Create(_) => panic!("{annotations} {data}: created"),
            }
        }
    }
}
