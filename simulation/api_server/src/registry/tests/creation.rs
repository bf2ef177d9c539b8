use super::*;

#[test]
fn new_object_has_a_uid_a_time_and_a_version() {
    let world = World::new();
    let made = world.made("configmaps", config_map("a"));
    assert_eq!(part(&made, "/metadata/uid").as_str().map(str::len), Some(36));
    let time = part(&made, "/metadata/creationTimestamp").as_str().unwrap_or_default();
    assert!(time.ends_with('Z') && !time.contains('.'), "{time}");
    assert_eq!(part(&made, "/metadata/resourceVersion"), &json!(world.storage.revision().to_string()));
    assert_eq!(part(&made, "/metadata/namespace"), "default");
    assert_eq!(part(&made, "/apiVersion"), "v1");
    assert_eq!(part(&made, "/metadata/generation"), &Value::Null);
    assert_eq!(part(&made, "/metadata/managedFields/0/manager"), "test");
}

#[test]
fn duplicate_name_is_rejected() {
    let world = World::new();
    world.made("configmaps", config_map("a"));
    let refused = world.create("configmaps", config_map("a")).unwrap_err();
    assert_eq!((refused.code, &*refused.reason), (409, "AlreadyExists"));
    assert_eq!(refused.message, "configmaps \"a\" already exists");
}

#[test]
fn generated_name_has_five_more_characters() {
    let world = World::new();
    let made = world.made("configmaps", json!({"metadata": {"generateName": "web-"}}));
    let name = part(&made, "/metadata/name").as_str().unwrap_or_default().to_owned();
    assert!(name.starts_with("web-") && name.len() == 9, "{name}");
    assert!(name[4..].chars().all(|it| "bcdfghjklmnpqrstvwxz2456789".contains(it)), "{name}");
    let long = world.made("configmaps", json!({"metadata": {"generateName": "a".repeat(70)}}));
    assert_eq!(part(&long, "/metadata/name").as_str().map(str::len), Some(63));
}

#[test]
fn create_with_resource_version_is_rejected() {
    let world = World::new();
    let mut body = config_map("a");
    body["metadata"]["resourceVersion"] = json!("1");
    let refused = world.create("configmaps", body).unwrap_err();
    assert_eq!((refused.code, &*refused.reason), (500, ""));
    assert_eq!(refused.message, "resourceVersion should not be set on objects to be created");
}

#[test]
fn create_in_missing_namespace_is_rejected() {
    let world = World::new();
    let mut to = world.at("configmaps", "");
    to.namespace = "nowhere".to_owned();
    let refused = world.registry.create(&to, config_map("a"), &options()).unwrap_err();
    assert_eq!((refused.code, refused.message.as_str()), (404, "namespaces \"nowhere\" not found"));
    to.namespace = "default".to_owned();
    let mut elsewhere = config_map("a");
    elsewhere["metadata"]["namespace"] = json!("kube-system");
    let refused = world.registry.create(&to, elsewhere, &options()).unwrap_err();
    let expected = "the namespace of the provided object does not match the namespace sent on the request";
    assert_eq!((refused.code, refused.message.as_str()), (400, expected));
}

#[test]
fn create_in_terminating_namespace_is_rejected() {
    let world = World::new();
    world.made("namespaces", json!({"metadata": {"name": "going"}}));
    world.delete("namespaces", "going", &DeleteOptions::default()).unwrap();
    let mut to = world.at("configmaps", "");
    to.namespace = "going".to_owned();
    let refused = world.registry.create(&to, config_map("a"), &options()).unwrap_err();
    let expected = "configmaps \"a\" is forbidden: unable to create new content in namespace going because it is being \
                    terminated";
    assert_eq!((refused.code, refused.message.as_str()), (403, expected));
    let causes = refused.details.map(|it| it.causes).unwrap_or_default();
    assert_eq!(causes[0].reason, "NamespaceTerminating");
    assert_eq!(causes[0].field, "metadata.namespace");
}

#[test]
fn dry_run_returns_result_without_writing() {
    let world = World::new();
    let before = world.storage.revision();
    let dry = WriteOptions { dry_run: true, ..options() };
    let made = world.registry.create(&world.at("configmaps", ""), config_map("a"), &dry).unwrap();
    assert!(made.created && value::has(made.answer.value(), &["metadata", "uid"]));
    assert_eq!(world.storage.revision(), before);
    world.made("configmaps", config_map("a"));
    assert!(world.registry.create(&world.at("configmaps", ""), config_map("a"), &dry).is_err());
}

#[test]
fn malformed_metadata_is_rejected_per_field() {
    let world = World::new();
    let owner = |controller| json!({"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": "u", "controller": controller});
    let cases = [
        (json!({"name": "Bad_Name"}), "metadata.name"),
        (json!({"name": "a", "labels": {"a": "not valid!"}}), "metadata.labels"),
        (json!({"name": "a", "annotations": {"/": ""}}), "metadata.annotations"),
        (json!({"name": "a", "finalizers": ["no spaces"]}), "metadata.finalizers"),
        (json!({"name": "a", "ownerReferences": [owner(true), owner(true)]}), "metadata.ownerReferences"),
        (
            json!({"name": "a", "ownerReferences": [{"apiVersion": "v1", "kind": "Pod", "uid": "u"}]}),
            "metadata.ownerReferences.name",
        ),
    ];
    for (metadata, field) in cases {
        let refused = world.create("configmaps", json!({"metadata": metadata})).unwrap_err();
        assert_eq!((refused.code, &*refused.reason), (422, "Invalid"));
        let causes = refused.details.map(|it| it.causes).unwrap_or_default();
        assert!(causes.iter().any(|it| it.field == field), "{field}: {causes:?}");
    }
}

#[test]
fn unknown_fields_are_warned_about_or_rejected() {
    let world = World::new();
    let body = json!({"metadata": {"name": "a"}, "dataa": {}});
    let to = world.at("configmaps", "");
    let strict = WriteOptions { field_validation: FieldValidation::Strict, ..options() };
    let refused = world.registry.create(&to, body.clone(), &strict).unwrap_err();
    let expected = "ConfigMap in version \"v1\" cannot be handled as a ConfigMap: strict decoding error: unknown field \
                    \"dataa\"";
    assert_eq!((refused.code, refused.message.as_str()), (400, expected));
    let made = world.registry.create(&to, body, &options()).unwrap();
    assert_eq!(made.warnings, ["unknown field \"dataa\""]);
}

#[test]
fn every_cluster_has_its_namespaces_and_priority_classes() {
    let world = World::new();
    for name in ["default", "kube-system", "kube-public", "kube-node-lease"] {
        let namespace = world.get("namespaces", name).unwrap();
        assert_eq!(part(&namespace, "/status/phase"), "Active");
        assert_eq!(part(&namespace, "/metadata/labels/kubernetes.io~1metadata.name"), name);
        assert_eq!(part(&namespace, "/spec/finalizers"), &json!(["kubernetes"]));
    }
    let class = world.get("scheduling.k8s.io/v1/priorityclasses", "system-node-critical").unwrap();
    assert_eq!(part(&class, "/value"), 2_000_001_000);
}

#[test]
fn registry_keeps_objects_of_existing_storage() {
    let world = World::new();
    let revision = world.storage.revision();
    let again = Registry::new(&Env::system("again"), Arc::clone(&world.storage), Catalog::built_in());
    assert_eq!(world.storage.revision(), revision);
    assert!(again.get(&world.at("namespaces", "default")).is_ok());
}

#[test]
fn reviews_are_answered_and_not_stored() {
    let world = World::new();
    let before = world.storage.revision();
    let review = json!({"spec": {"resourceAttributes": {"verb": "get", "resource": "pods"}}});
    let answer = world.made("authorization.k8s.io/v1/selfsubjectaccessreviews", review);
    assert_eq!(part(&answer, "/status/allowed"), true);
    assert_eq!(world.storage.revision(), before);
}
