use super::super::replay::Replay;
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

const DEFINITIONS: &str = "apiextensions.k8s.io/v1/customresourcedefinitions";

/// Returns a CRD like that of widgets, with another name.
fn named(plural: &str, kind: &str) -> Value {
    let mut body = definition();
    body["metadata"]["name"] = json!(format!("{plural}.example.com"));
    body["spec"]["names"] = json!({"plural": plural, "kind": kind});
    body
}

fn condition<'a>(object: &'a Value, of_type: &str) -> &'a Value {
    let conditions = part(object, "/status/conditions").as_array().map(Vec::as_slice).unwrap_or_default();
    conditions.iter().find(|it| it["type"] == of_type).unwrap_or(&Value::Null)
}

fn defined() -> World {
    let world = World::new();
    world.made("apiextensions.k8s.io/v1/customresourcedefinitions", definition());
    world
}

#[test]
fn definition_is_established_immediately_and_served() {
    let world = World::new();
    assert!(world.registry.catalog().resource("example.com", "v1", "widgets").is_none());
    world.made(DEFINITIONS, definition());
    let made = world.get(DEFINITIONS, "widgets.example.com").unwrap();
    let conditions = part(&made, "/status/conditions").as_array().cloned().unwrap_or_default();
    for of_type in ["NamesAccepted", "Established"] {
        assert!(conditions.iter().any(|it| it["type"] == of_type && it["status"] == "True"), "{of_type}");
    }
    assert_eq!(part(&made, "/status/storedVersions"), &json!(["v1"]));
    assert_eq!(part(&made, "/spec/names/listKind"), "WidgetList");
    assert!(world.registry.catalog().resource("example.com", "v1", "widgets").is_some());
}

#[test]
fn malformed_definition_is_rejected() {
    let world = World::new();
    let mut body = definition();
    body["metadata"]["name"] = json!("other.example.com");
    let refused = world.create("apiextensions.k8s.io/v1/customresourcedefinitions", body).unwrap_err();
    assert_eq!((refused.code, &*refused.reason), (422, "Invalid"));
    assert!(refused.message.contains("must be spec.names.plural+\".\"+spec.group"), "{}", refused.message);
    assert!(world.registry.catalog().resource("example.com", "v1", "widgets").is_none());
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
fn custom_objects_have_status_and_scale_subresources() {
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
fn custom_objects_require_version_and_reject_strategic_merge() {
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
fn custom_objects_can_be_selected_by_selectable_fields() {
    let world = defined();
    let table = world.registry.fields(&world.at(WIDGETS, "").resource);
    assert!(crate::read::FieldSelector::parse("spec.color=red", &table).is_ok());
    assert!(crate::read::FieldSelector::parse("spec.count=1", &table).is_err());
}

#[test]
fn deleting_definition_deletes_its_objects() {
    let world = defined();
    world.made(WIDGETS, json!({"metadata": {"name": "a"}}));
    let collection = super::super::convert::collection(&world.at(WIDGETS, "").resource);
    let path = "apiextensions.k8s.io/v1/customresourcedefinitions";
    world.delete(path, "widgets.example.com", &DeleteOptions::default()).unwrap();
    assert!(world.registry.catalog().resource("example.com", "v1", "widgets").is_none());
    assert!(world.storage.get(&collection, &crate::storage::Key::new("default", "a")).is_none());
}

#[test]
fn stored_definitions_are_served_by_a_new_registry() {
    let world = defined();
    let again = Registry::new(&Env::system("again"), Arc::clone(&world.storage), Catalog::built_in());
    assert!(again.catalog().resource("example.com", "v1", "widgets").is_some());
}

#[test]
fn concurrently_created_definitions_are_all_served() {
    let world = World::new();
    let count = 12;
    std::thread::scope(|scope| {
        for number in 0..count {
            let world = &world;
            scope.spawn(move || {
                world.made(DEFINITIONS, named(&format!("kind{number}s"), &format!("Kind{number}")))
            });
        }
    });
    let catalog = world.registry.catalog();
    for number in 0..count {
        let plural = format!("kind{number}s");
        assert!(catalog.resource("example.com", "v1", &plural).is_some(), "{plural}");
    }
}

#[test]
fn served_resources_can_be_read_during_a_write() {
    let world = defined();
    let widgets = world.at(WIDGETS, "");
    let transaction = world.registry.begin(Replay::new(world.registry.env.wall()));
    assert!(world.registry.columns(&widgets.resource).is_some());
    assert!(
        crate::read::FieldSelector::parse("spec.color=red", &world.registry.fields(&widgets.resource))
            .is_ok()
    );
    assert_eq!(world.registry.user("a token"), None);
    drop(transaction);
}

#[test]
fn invalid_stored_definition_does_not_affect_others() {
    let world = World::new();
    let collection = crate::storage::Collection::new("apiextensions.k8s.io", "customresourcedefinitions");
    world.made(DEFINITIONS, named("alphas", "Alpha"));
    world.made(DEFINITIONS, named("omegas", "Omega"));
    let key = crate::storage::Key::new("", "alphas.example.com");
    let stored = world.storage.get(&collection, &key).unwrap();
    let mut broken = stored.value.clone();
    broken["spec"]["versions"] = json!([]);
    let change = crate::storage::Change::Put(broken);
    world
        .storage
        .commit(&collection, &key, crate::storage::Precondition::Revision(stored.revision), change)
        .unwrap();
    let namespaces = crate::storage::Collection::new("", "namespaces");
    let key = crate::storage::Key::new("", "kube-public");
    let namespace = world.storage.get(&namespaces, &key).unwrap();
    let expected = crate::storage::Precondition::Revision(namespace.revision);
    let change = crate::storage::Change::Delete(namespace.value.clone());
    world.storage.commit(&namespaces, &key, expected, change).unwrap();
    let again = Registry::new(&Env::system("again"), Arc::clone(&world.storage), Catalog::built_in());
    assert!(again.catalog().resource("example.com", "v1", "alphas").is_none());
    assert!(again.catalog().resource("example.com", "v1", "omegas").is_some());
    assert!(world.storage.get(&namespaces, &key).is_some());
}

#[test]
fn request_for_a_removed_kind_fails() {
    let world = defined();
    world.made(WIDGETS, json!({"metadata": {"name": "a"}}));
    let (widgets, one) = (world.at(WIDGETS, ""), world.at(WIDGETS, "a"));
    let scale = world.at("example.com/v1/widgets/scale", "a");
    let mut changed = world.get(DEFINITIONS, "widgets.example.com").unwrap();
    value::remove(&mut changed["spec"]["versions"][0], &["subresources", "scale"]);
    world.update(DEFINITIONS, changed).unwrap();
    let body = || json!({"metadata": {"name": "b"}});
    let refused = world.registry.patch(&scale, PatchKind::Merge, json!({}), &options()).unwrap_err();
    assert_eq!((refused.code, &*refused.reason), (404, "NotFound"));
    world.delete(DEFINITIONS, "widgets.example.com", &DeleteOptions::default()).unwrap();
    let refusals = [
        world.registry.create(&widgets, body(), &options()).unwrap_err(),
        world.registry.update(&one, body(), &options()).unwrap_err(),
        world.registry.patch(&one, PatchKind::Merge, json!({}), &options()).unwrap_err(),
        world.registry.delete(&one, &DeleteOptions::default()).unwrap_err(),
    ];
    assert!(refusals.iter().all(|it| it.code == 404), "{refusals:?}");
    assert!(
        world
            .storage
            .read(&super::super::convert::collection(&widgets.resource), None)
            .unwrap()
            .objects
            .is_empty()
    );
}

#[test]
fn request_uses_the_current_definition() {
    let world = defined();
    let before = world.at(WIDGETS, "");
    let mut changed = world.get(DEFINITIONS, "widgets.example.com").unwrap();
    let schema = &mut changed["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"];
    schema["properties"]["size"] = json!({"type": "integer"});
    world.update(DEFINITIONS, changed).unwrap();
    let body = json!({"metadata": {"name": "a"}, "spec": {"size": 3}});
    let made = world.registry.create(&before, body, &options()).unwrap();
    assert_eq!(part(made.answer.value(), "/spec/size"), 3);
}

#[test]
fn released_name_goes_to_the_waiting_definition() {
    let world = World::new();
    world.made(DEFINITIONS, named("widgets", "Widget"));
    world.made(DEFINITIONS, named("gadgets", "Widget"));
    let refused = world.get(DEFINITIONS, "gadgets.example.com").unwrap();
    assert_eq!(condition(&refused, "NamesAccepted")["reason"], "ListKindConflict");
    world.made(DEFINITIONS, named("things", "Widget"));
    world.delete(DEFINITIONS, "widgets.example.com", &DeleteOptions::default()).unwrap();
    let accepted = world.get(DEFINITIONS, "gadgets.example.com").unwrap();
    assert_eq!(condition(&accepted, "Established")["status"], "True");
    assert!(world.registry.catalog().resource("example.com", "v1", "gadgets").is_some());
    let waits = world.get(DEFINITIONS, "things.example.com").unwrap();
    assert_eq!(condition(&waits, "Established")["status"], "False");
}

#[test]
fn definition_stays_until_its_last_object_is_deleted() {
    let world = defined();
    world.made(WIDGETS, json!({"metadata": {"name": "free"}}));
    world.made(WIDGETS, json!({"metadata": {"name": "held", "finalizers": ["example.com/hold"]}}));
    world.delete(DEFINITIONS, "widgets.example.com", &DeleteOptions::default()).unwrap();
    assert!(world.get(WIDGETS, "free").is_none());
    let going = world.get(DEFINITIONS, "widgets.example.com").unwrap();
    assert_eq!(part(&going, "/metadata/finalizers/0"), "customresourcecleanup.apiextensions.k8s.io");
    assert!(value::has(&going, &["metadata", "deletionTimestamp"]));
    assert_eq!(condition(&going, "Terminating")["status"], "True");
    let refused = world.create(WIDGETS, json!({"metadata": {"name": "late"}})).unwrap_err();
    let expected = "create not allowed while custom resource definition is terminating";
    assert_eq!((refused.code, refused.message.as_str()), (405, expected));
    let mut held = world.get(WIDGETS, "held").unwrap();
    assert!(value::has(&held, &["metadata", "deletionTimestamp"]));
    value::remove(&mut held, &["metadata", "finalizers"]);
    world.update(WIDGETS, held).unwrap();
    assert!(world.get(DEFINITIONS, "widgets.example.com").is_none());
    assert!(world.registry.catalog().resource("example.com", "v1", "widgets").is_none());
}

#[test]
fn terminating_definition_keeps_its_condition_on_writes() {
    let world = defined();
    world.made(WIDGETS, json!({"metadata": {"name": "held", "finalizers": ["example.com/hold"]}}));
    world.delete(DEFINITIONS, "widgets.example.com", &DeleteOptions::default()).unwrap();
    let patch = json!({"metadata": {"labels": {"a": "b"}}});
    let labeled = world.patch(DEFINITIONS, "widgets.example.com", PatchKind::Merge, patch).unwrap();
    assert_eq!(condition(&labeled, "Terminating")["status"], "True");
    assert_eq!(condition(&labeled, "Established")["status"], "True");
}

#[test]
fn too_deeply_nested_object_is_rejected_by_every_write() {
    let (world, path) = (World::new(), "example.com/v1/boxes");
    let mut body = named("boxes", "Box");
    let schema = json!({"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}});
    body["spec"]["versions"] = json!([{"name": "v1", "served": true, "storage": true, "schema": schema}]);
    world.made(DEFINITIONS, body);
    let inner = |depth: usize| (0..depth).fold(json!(1), |inner, _| json!({"a": inner}));
    let object = |name: &str, data: Value| {
        let metadata = json!({"name": name});
        json!({"apiVersion": "example.com/v1", "kind": "Box", "metadata": metadata, "data": data})
    };
    let (mut kept, mut refused) = (0, 0);
    for depth in (100..=126).chain([300]) {
        world.made(path, object("changes", json!(1)));
        let data = inner(depth);
        let mut updated = world.made(path, object("updated", json!(1)));
        updated["data"] = data.clone();
        let add = json!([{"op": "add", "path": "/data", "value": data}]);
        let tried = [
            world.create(path, object("made", data.clone())),
            world.patch(path, "applied", PatchKind::Apply, object("applied", data.clone())),
            world.patch(path, "changes", PatchKind::Merge, json!({"data": data})),
            world.patch(path, "changes", PatchKind::Json, add),
            world.update(path, updated),
        ];
        for (way, outcome) in tried.into_iter().enumerate() {
            match outcome {
                Ok(written) => assert_eq!((&written["data"], refused), (&data, 0), "{way}: {depth}"),
                // A rejected JSON patch never produces an object.
                Err(status) => match (way, status.code, &*status.reason) {
                    (3, 422, "Invalid") if depth > 126 => {}
                    outcome => assert_eq!(outcome, (way, 400, "BadRequest"), "{depth}"),
                },
            }
        }
        match world.get(path, "made") {
            Some(made) => (kept, _) = (depth, assert_eq!(made["data"], data)),
            None => refused += 1,
        }
        for name in ["made", "applied", "changes", "updated"] {
            let _gone = world.delete(path, name, &DeleteOptions::default());
        }
    }
    assert!((110..124).contains(&kept), "what is said of owners is nested, too: {kept}");
}
