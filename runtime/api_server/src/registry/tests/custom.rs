use super::*;

const WIDGETS: &str = "example.com/v1/widgets";

fn definition() -> Value {
    let count = json!({"type": "integer", "minimum": 0, "default": 1});
    json!({
        "metadata": {"name": "widgets.example.com"},
        "spec": {
            "group": "example.com",
            "scope": "Namespaced",
            "names": {"plural": "widgets", "kind": "Widget"},
            "versions": [{
                "name": "v1",
                "served": true,
                "storage": true,
                "schema": {"openAPIV3Schema": {"type": "object", "properties": {
                    "spec": {"type": "object", "default": {}, "properties": {"count": count, "color": {"type": "string"}}},
                    "status": {"type": "object", "properties": {"seen": {"type": "integer"}}},
                }}},
                "subresources": {
                    "status": {},
                    "scale": {"specReplicasPath": ".spec.count", "statusReplicasPath": ".status.seen"},
                },
                "selectableFields": [{"jsonPath": ".spec.color"}],
            }],
        },
    })
}

fn defined() -> World {
    let world = World::new();
    world.made("apiextensions.k8s.io/v1/customresourcedefinitions", definition());
    world
}

#[test]
fn a_definition_is_established_at_once_and_served() {
    let world = World::new();
    assert!(world.registry.catalogue().resource("example.com", "v1", "widgets").is_none());
    let made = world.made("apiextensions.k8s.io/v1/customresourcedefinitions", definition());
    let conditions = part(&made, "/status/conditions").as_array().cloned().unwrap_or_default();
    for of_type in ["NamesAccepted", "Established"] {
        assert!(conditions.iter().any(|it| it["type"] == of_type && it["status"] == "True"), "{of_type}");
    }
    assert_eq!(part(&made, "/status/storedVersions"), &json!(["v1"]));
    assert_eq!(part(&made, "/spec/names/listKind"), "WidgetList");
    assert!(world.registry.catalogue().resource("example.com", "v1", "widgets").is_some());
}

#[test]
fn a_malformed_definition_is_refused() {
    let world = World::new();
    let mut body = definition();
    body["metadata"]["name"] = json!("other.example.com");
    let refused = world.create("apiextensions.k8s.io/v1/customresourcedefinitions", body).unwrap_err();
    assert_eq!((refused.code, refused.reason), (422, "Invalid"));
    assert!(refused.message.contains("must be spec.names.plural+\".\"+spec.group"), "{}", refused.message);
    assert!(world.registry.catalogue().resource("example.com", "v1", "widgets").is_none());
}

#[test]
fn custom_objects_are_defaulted_pruned_and_validated() {
    let world = defined();
    let body =
        json!({"metadata": {"name": "a"}, "spec": {"color": "red", "unknown": 1}, "status": {"seen": 9}});
    let made = world.made(WIDGETS, body);
    assert_eq!(part(&made, "/spec"), &json!({"color": "red", "count": 1}));
    assert_eq!(part(&made, "/status"), &Value::Null);
    assert_eq!(part(&made, "/metadata/generation"), 1);
    let refused =
        world.create(WIDGETS, json!({"metadata": {"name": "b"}, "spec": {"count": -1}})).unwrap_err();
    assert_eq!(refused.code, 422);
    assert!(refused.message.contains("spec.count"), "{}", refused.message);
}

#[test]
fn custom_objects_have_a_status_and_a_scale_of_their_own() {
    let world = defined();
    world.made(WIDGETS, json!({"metadata": {"name": "a"}}));
    let mut object = world.get(WIDGETS, "a").unwrap();
    object["status"] = json!({"seen": 1});
    object["metadata"]["labels"] = json!({"a": "b"});
    object["spec"]["count"] = json!(5);
    let written = world.update("example.com/v1/widgets/status", object).unwrap();
    assert_eq!((part(&written, "/status/seen"), part(&written, "/spec/count")), (&json!(1), &json!(1)));
    assert_eq!(part(&written, "/metadata/labels"), &Value::Null);
    assert_eq!(part(&written, "/metadata/generation"), 1);
    let scale = world.get("example.com/v1/widgets/scale", "a").unwrap();
    assert_eq!((part(&scale, "/spec/replicas"), part(&scale, "/status/replicas")), (&json!(1), &json!(1)));
    let patch = json!({"spec": {"replicas": 3}});
    world.patch("example.com/v1/widgets/scale", "a", PatchKind::Merge, patch).unwrap();
    let scaled = world.get(WIDGETS, "a").unwrap();
    assert_eq!((part(&scaled, "/spec/count"), part(&scaled, "/metadata/generation")), (&json!(3), &json!(2)));
}

#[test]
fn custom_objects_need_a_version_to_be_updated_and_know_no_strategic_merge() {
    let world = defined();
    world.made(WIDGETS, json!({"metadata": {"name": "a"}}));
    let refused = world.update(WIDGETS, json!({"metadata": {"name": "a"}})).unwrap_err();
    assert_eq!(refused.code, 422);
    assert!(
        refused
            .message
            .ends_with("metadata.resourceVersion: Invalid value: 0: must be specified for an update")
    );
    assert_eq!(world.patch(WIDGETS, "a", PatchKind::Strategic, json!({})).unwrap_err().code, 415);
    let apply = json!({
        "apiVersion": "example.com/v1",
        "kind": "Widget",
        "metadata": {"name": "a"},
        "spec": {"color": "blue"},
    });
    let applied = world.patch(WIDGETS, "a", PatchKind::Apply, apply).unwrap();
    assert_eq!(part(&applied, "/spec"), &json!({"color": "blue", "count": 1}));
}

#[test]
fn custom_objects_can_be_selected_by_the_fields_their_definition_names() {
    let world = defined();
    let table = world.registry.fields(&world.at(WIDGETS, "").resource);
    assert!(crate::read::FieldSelector::parse("spec.color=red", &table).is_ok());
    assert!(crate::read::FieldSelector::parse("spec.count=1", &table).is_err());
}

#[test]
fn a_definition_takes_its_objects_along() {
    let world = defined();
    world.made(WIDGETS, json!({"metadata": {"name": "a"}}));
    let collection = super::super::convert::collection(&world.at(WIDGETS, "").resource);
    let path = "apiextensions.k8s.io/v1/customresourcedefinitions";
    world.delete(path, "widgets.example.com", &DeleteOptions::default()).unwrap();
    assert!(world.registry.catalogue().resource("example.com", "v1", "widgets").is_none());
    assert!(world.storage.get(&collection, &crate::storage::Key::new("default", "a")).is_none());
}

#[test]
fn stored_definitions_are_served_by_a_registry_that_finds_them() {
    let world = defined();
    let again = Registry::new(&Env::system("again"), Arc::clone(&world.storage), Catalogue::built_in());
    assert!(again.catalogue().resource("example.com", "v1", "widgets").is_some());
}
