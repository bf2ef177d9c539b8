use super::*;

#[test]
fn update_that_changes_nothing_keeps_its_version() {
    let world = World::new();
    let made = world.made("apps/v1/replicasets", replica_set("a"));
    let before = world.storage.revision();
    assert_eq!(world.update("apps/v1/replicasets", made.clone()).unwrap(), made);
    let patch = json!({"spec": {"replicas": 1}});
    assert_eq!(world.patch("apps/v1/replicasets", "a", PatchKind::Strategic, patch).unwrap(), made);
    assert_eq!(world.storage.revision(), before);
}

#[test]
fn update_from_an_older_version_conflicts() {
    let world = World::new();
    let old = world.made("configmaps", config_map("a"));
    let mut new = old.clone();
    new["data"]["a"] = json!("2");
    world.update("configmaps", new).unwrap();
    let refused = world.update("configmaps", old.clone()).unwrap_err();
    let expected = "Operation cannot be fulfilled on configmaps \"a\": the object has been modified; please apply your \
                    changes to the latest version and try again";
    assert_eq!((refused.code, &*refused.reason, refused.message.as_str()), (409, "Conflict", expected));
    let version = part(&old, "/metadata/resourceVersion");
    let patch = json!({"metadata": {"resourceVersion": version}, "data": {"b": "1"}});
    assert_eq!(world.patch("configmaps", "a", PatchKind::Merge, patch).unwrap_err().code, 409);
}

#[test]
fn version_can_be_omitted_for_kinds_that_allow_it() {
    let world = World::new();
    world.made("configmaps", config_map("a"));
    assert!(world.update("configmaps", config_map("a")).is_ok());
    let lease = json!({"metadata": {"name": "l"}, "spec": {"holderIdentity": "x"}});
    let path = "coordination.k8s.io/v1/leases";
    world.made(path, lease.clone());
    let refused = world.update(path, lease).unwrap_err();
    let expected = "leases.coordination.k8s.io \"l\" is invalid: metadata.resourceVersion: Invalid value: 0: must be \
                    specified for an update";
    assert_eq!((refused.code, refused.message.as_str()), (422, expected));
}

#[test]
fn update_creates_missing_object_for_kinds_that_allow_it() {
    let world = World::new();
    assert_eq!(world.update("configmaps", config_map("a")).unwrap_err().code, 404);
    let lease = json!({"metadata": {"name": "l"}, "spec": {}});
    let to = world.at("coordination.k8s.io/v1/leases", "l");
    assert!(world.registry.update(&to, lease, &options()).unwrap().created);
}

#[test]
fn object_identity_must_match_the_path() {
    let world = World::new();
    world.made("configmaps", config_map("a"));
    let to = world.at("configmaps", "a");
    let refused = world.registry.update(&to, config_map("b"), &options()).unwrap_err();
    let expected = "the name of the object (b) does not match the name on the URL (a)";
    assert_eq!((refused.code, refused.message.as_str()), (400, expected));
    let mut other = config_map("a");
    other["metadata"]["uid"] = json!("other");
    let refused = world.registry.update(&to, other, &options()).unwrap_err();
    assert_eq!(refused.code, 409);
    assert!(
        refused.message.contains("Precondition failed: UID in precondition: other, UID in object meta: ")
    );
    assert!(refused.message.contains("Key: /registry/configmaps/default/a,"), "{}", refused.message);
}

#[test]
fn generation_counts_spec_changes_only() {
    let world = World::new();
    let path = "apps/v1/replicasets";
    let made = world.made(path, replica_set("a"));
    assert_eq!(part(&made, "/metadata/generation"), 1);
    let scaled = world.patch(path, "a", PatchKind::Merge, json!({"spec": {"replicas": 3}})).unwrap();
    assert_eq!(part(&scaled, "/metadata/generation"), 2);
    let labeled =
        world.patch(path, "a", PatchKind::Merge, json!({"metadata": {"labels": {"x": "y"}}})).unwrap();
    assert_eq!(part(&labeled, "/metadata/generation"), 2);
    let status = world.status("apps/v1/replicasets/status", "a", json!({"replicas": 2}));
    assert_eq!(part(&status, "/metadata/generation"), 2);
}

#[test]
fn status_and_spec_are_written_through_separate_paths() {
    let world = World::new();
    let path = "apps/v1/replicasets";
    let mut object = world.made(
        path,
        json!({
            "metadata": {"name": "a"},
            "spec": replica_set("a")["spec"],
            "status": {"replicas": 7},
        }),
    );
    assert_eq!(part(&object, "/status/replicas"), 0);
    object["status"]["replicas"] = json!(7);
    let updated = world.update(path, object.clone()).unwrap();
    assert_eq!(part(&updated, "/status/replicas"), 0);
    object["spec"]["replicas"] = json!(9);
    let updated = world.update("apps/v1/replicasets/status", object).unwrap();
    assert_eq!(
        (part(&updated, "/status/replicas"), part(&updated, "/spec/replicas")),
        (&json!(7), &json!(1))
    );
}

#[test]
fn inapplicable_patch_is_rejected() {
    let world = World::new();
    world.made("configmaps", config_map("a"));
    let patch = |kind, body| world.patch("configmaps", "a", kind, body).unwrap_err();
    let missing = patch(PatchKind::Json, json!([{"op": "test", "path": "/data/x", "value": "1"}]));
    assert_eq!((missing.code, &*missing.reason), (422, "Invalid"));
    assert_eq!(missing.message, "the server rejected our request due to an error in our request");
    let renamed = patch(PatchKind::Merge, json!({"metadata": {"name": "b"}}));
    assert_eq!(renamed.code, 400);
    let strict = WriteOptions { field_validation: FieldValidation::Strict, ..options() };
    let unknown =
        world.registry.patch(&world.at("configmaps", "a"), PatchKind::Merge, json!({"x": 1}), &strict);
    let unknown = unknown.unwrap_err();
    assert_eq!(unknown.code, 422);
    assert!(unknown.message.ends_with("strict decoding error: unknown field \"x\""), "{}", unknown.message);
    assert_eq!(world.patch("configmaps", "none", PatchKind::Merge, json!({})).unwrap_err().code, 404);
}

#[test]
fn apply_creates_merges_and_conflicts() {
    let world = World::new();
    let apply = |manager: &str, replicas: i64, force| {
        let mut body = replica_set("a");
        body["apiVersion"] = json!("apps/v1");
        body["kind"] = json!("ReplicaSet");
        body["spec"]["replicas"] = json!(replicas);
        let options = WriteOptions { field_manager: manager.to_owned(), force, ..WriteOptions::default() };
        world.registry.patch(&world.at("apps/v1/replicasets", "a"), PatchKind::Apply, body, &options)
    };
    assert!(apply("one", 1, false).unwrap().created);
    let again = apply("one", 1, false).unwrap();
    assert!(!again.created);
    let revision = world.storage.revision();
    let conflict = apply("two", 5, false).unwrap_err();
    assert_eq!((conflict.code, &*conflict.reason), (409, "Conflict"));
    assert_eq!(conflict.message, "Apply failed with 1 conflict: conflict with \"one\": .spec.replicas");
    assert_eq!(world.storage.revision(), revision);
    let forced = apply("two", 5, true).unwrap();
    assert_eq!(part(forced.answer.value(), "/spec/replicas"), 5);
    assert_eq!(part(forced.answer.value(), "/metadata/generation"), 2);
}

#[test]
fn updates_of_immutable_fields_are_rejected() {
    let world = World::new();
    let path = "apps/v1/replicasets";
    world.made(path, replica_set("a"));
    let change = json!({
        "spec": {
            "selector": {"matchLabels": {"app": "b"}},
            "template": {"metadata": {"labels": {"app": "b"}}},
        },
    });
    let refused = world.patch(path, "a", PatchKind::Merge, change).unwrap_err();
    assert!(refused.message.contains("spec.selector: Invalid value: {\"matchLabels\":{\"app\":\"b\"}}"));
    assert!(refused.message.ends_with("field is immutable"), "{}", refused.message);
    world.made("secrets", json!({"metadata": {"name": "s"}, "immutable": true, "stringData": {"a": "b"}}));
    let refused = world.patch("secrets", "s", PatchKind::Merge, json!({"data": {"a": "eA=="}})).unwrap_err();
    assert!(refused.message.ends_with("data: Forbidden: field is immutable when `immutable` is set"));
    let refused = world.patch("secrets", "s", PatchKind::Merge, json!({"type": "x"})).unwrap_err();
    assert!(refused.message.contains("type: Invalid value: \"x\": field is immutable"));
}

#[test]
fn status_write_keeps_the_generation() {
    let world = World::new();
    for (path, body) in [
        ("apps/v1/deployments", replica_set("a")),
        ("pods", pod("a")),
        ("services", json!({"metadata": {"name": "a"}, "spec": {"ports": [{"port": 80}]}})),
    ] {
        let made = world.made(path, body);
        let mut object = made.clone();
        object["status"]["conditions"] = json!([{"type": "Odd", "status": "True"}]);
        object["spec"]["nodeName"] = json!("n");
        object["metadata"]["annotations"] = json!({"a": "b"});
        let written = world.update(&format!("{path}/status"), object).unwrap();
        assert_eq!(part(&written, "/metadata/generation"), part(&made, "/metadata/generation"), "{path}");
        assert_eq!(part(&written, "/status/conditions/0/type"), "Odd", "{path}");
    }
}

#[test]
fn update_by_older_autoscaler_version_keeps_newer_fields() {
    let world = World::new();
    let (older, newer) =
        ("autoscaling/v1/horizontalpodautoscalers", "autoscaling/v2/horizontalpodautoscalers");
    let share = |percent: i64| {
        let target = json!({"type": "Utilization", "averageUtilization": percent});
        json!({"type": "Resource", "resource": {"name": "cpu", "target": target}})
    };
    let memory = json!({
        "type": "Resource",
        "resource": {"name": "memory", "target": {"type": "AverageValue", "averageValue": "1Gi"}},
    });
    let scaled = json!({"apiVersion": "apps/v1", "kind": "Deployment", "name": "d"});
    let spec = json!({
        "maxReplicas": 3,
        "scaleTargetRef": scaled,
        "metrics": [memory, share(50)],
        "behavior": {"scaleDown": {"stabilizationWindowSeconds": 60}},
    });
    let made = world.made(newer, json!({"metadata": {"name": "a"}, "spec": spec}));
    let to = world.at(older, "a");
    let mut body = super::super::convert::serve(&made, &to.resource).into_owned();
    assert_eq!(part(&body, "/spec/targetCPUUtilizationPercentage"), 50);
    body["spec"]["targetCPUUtilizationPercentage"] = json!(70);
    world.registry.update(&to, body, &options()).unwrap();
    let kept = world.get(newer, "a").unwrap();
    assert_eq!(part(&kept, "/apiVersion"), "autoscaling/v2");
    assert_eq!(part(&kept, "/spec/metrics"), &json!([memory, share(70)]));
    assert_eq!(part(&kept, "/spec/behavior"), part(&made, "/spec/behavior"));
    let plain = json!({"metadata": {"name": "b"}, "spec": {"maxReplicas": 3, "scaleTargetRef": scaled}});
    world.registry.create(&world.at(older, ""), plain, &options()).unwrap();
    let kept = world.get(newer, "b").unwrap();
    assert_eq!(
        (part(&kept, "/apiVersion"), part(&kept, "/spec/metrics")),
        (&json!("autoscaling/v2"), &json!([share(80)]))
    );
    let before = world.storage.revision();
    let same = super::super::convert::serve(&kept, &to.resource).into_owned();
    world.registry.update(&world.at(older, "b"), same, &options()).unwrap();
    assert_eq!(world.storage.revision(), before);
}

#[test]
fn events_are_selected_by_field_names_of_both_groups() {
    let world = World::new();
    let about = json!({"kind": "Pod", "namespace": "default", "name": "p"});
    let old = json!({
        "metadata": {"name": "old"}, "involvedObject": about, "reason": "r", "message": "m", "type": "Normal",
        "source": {"component": "c"}, "reportingComponent": "c", "reportingInstance": "i", "action": "a",
    });
    let new = json!({
        "metadata": {"name": "new"}, "regarding": about, "reason": "r", "note": "m", "type": "Normal",
        "eventTime": "2026-01-01T00:00:00.000000Z", "reportingController": "c", "reportingInstance": "i", "action": "a",
    });
    world.made("events", old);
    world.made("events.k8s.io/v1/events", new);
    let collection = crate::storage::Collection::new("", "events");
    let selectors = [
        ("events", "involvedObject.name=p,involvedObject.kind=Pod"),
        ("events", "source=c"),
        ("events", "reportingComponent=c"),
        ("events.k8s.io/v1/events", "regarding.name=p,involvedObject.kind=Pod"),
        ("events.k8s.io/v1/events", "reportingController=c"),
    ];
    for (path, selector) in selectors {
        let table = world.registry.fields(&world.at(path, "").resource);
        let selector = crate::read::FieldSelector::parse(selector, &table).unwrap();
        let all = world.storage.read(&collection, None).unwrap();
        let found = all.objects.values().filter(|it| selector.matches(it)).count();
        assert_eq!(found, 2, "{path} {selector:?}");
    }
}
