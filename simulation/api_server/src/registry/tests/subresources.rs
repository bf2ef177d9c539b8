use super::*;

fn bind(world: &World, pod: &str, node: &str) -> Result<Value, Status> {
    let body = json!({"metadata": {"name": pod}, "target": {"kind": "Node", "name": node}});
    let to = world.at("pods/binding", pod);
    world.registry.create(&to, body, &options()).map(|it| it.answer.value().clone())
}

#[test]
fn pod_is_bound_once() {
    let world = World::new();
    world.made("pods", pod("a"));
    let answer = bind(&world, "a", "n").unwrap();
    assert_eq!((part(&answer, "/status"), part(&answer, "/code")), (&json!("Success"), &json!(201)));
    let bound = world.get("pods", "a").unwrap();
    assert_eq!(part(&bound, "/spec/nodeName"), "n");
    assert_eq!(part(&bound, "/status/conditions/0/type"), "PodScheduled");
    assert_eq!(part(&bound, "/metadata/generation"), 1);
    let refused = bind(&world, "a", "m").unwrap_err();
    let expected =
        "Operation cannot be fulfilled on pods/binding \"a\": pod a is already assigned to node \"n\"";
    assert_eq!((refused.code, refused.message.as_str()), (409, expected));
    assert_eq!(bind(&world, "none", "n").unwrap_err().code, 404);
}

fn guarded(world: &World, allowed: i64) -> Value {
    let mut body = pod("a");
    body["metadata"]["labels"] = json!({"app": "a"});
    body["spec"]["nodeName"] = json!("n");
    world.made("pods", body);
    let conditions = json!([{"type": "Ready", "status": "True"}]);
    world.status("pods/status", "a", json!({"phase": "Running", "conditions": conditions}));
    let path = "policy/v1/poddisruptionbudgets";
    let selector = json!({"matchLabels": {"app": "a"}});
    world.made(path, json!({"metadata": {"name": "b"}, "spec": {"minAvailable": 1, "selector": selector}}));
    let status = json!({
        "observedGeneration": 1,
        "disruptionsAllowed": allowed,
        "currentHealthy": 1,
        "desiredHealthy": 1,
        "expectedPods": 1,
    });
    world.status("policy/v1/poddisruptionbudgets/status", "b", status)
}

fn evict(world: &World) -> Result<(), Status> {
    let body = json!({"metadata": {"name": "a"}});
    world.registry.create(&world.at("pods/eviction", "a"), body, &options()).map(|_| ())
}

#[test]
fn eviction_waits_for_its_budget() {
    let world = World::new();
    guarded(&world, 0);
    let refused = evict(&world).unwrap_err();
    assert_eq!((refused.code, &*refused.reason), (429, "TooManyRequests"));
    assert_eq!(refused.message, "Cannot evict pod as it would violate the pod's disruption budget.");
    let causes = refused.details.map(|it| it.causes).unwrap_or_default();
    assert_eq!(causes[0].reason, "DisruptionBudget");
    assert_eq!(causes[0].message, "The disruption budget b needs 1 healthy pods and has 1 currently");
}

#[test]
fn eviction_takes_from_its_budget_and_deletes() {
    let world = World::new();
    guarded(&world, 1);
    evict(&world).unwrap();
    let left = world.get("policy/v1/poddisruptionbudgets", "b").unwrap();
    assert_eq!(part(&left, "/status/disruptionsAllowed"), 0);
    assert!(value::has(&left, &["status", "disruptedPods", "a"]));
    let going = world.get("pods", "a").unwrap();
    assert!(value::has(&going, &["metadata", "deletionTimestamp"]));
    let conditions = part(&going, "/status/conditions").as_array().cloned().unwrap_or_default();
    assert!(
        conditions
            .iter()
            .any(|it| it["type"] == "DisruptionTarget" && it["reason"] == "EvictionByEvictionAPI")
    );
}

#[test]
fn scale_is_read_and_set() {
    let world = World::new();
    world.made("apps/v1/replicasets", replica_set("a"));
    let path = "apps/v1/replicasets/scale";
    let mut scale = world.get(path, "a").unwrap();
    assert_eq!(part(&scale, "/spec/replicas"), 1);
    assert_eq!(part(&scale, "/status"), &json!({"replicas": 0, "selector": "app=a"}));
    assert_eq!(part(&scale, "/kind"), "Scale");
    scale["spec"]["replicas"] = json!(4);
    let answered = world.update(path, scale.clone()).unwrap();
    assert_eq!(part(&answered, "/spec/replicas"), 4);
    let set = world.get("apps/v1/replicasets", "a").unwrap();
    assert_eq!((part(&set, "/spec/replicas"), part(&set, "/metadata/generation")), (&json!(4), &json!(2)));
    assert_eq!(world.update(path, scale).unwrap_err().code, 409);
    let patched = world.patch(path, "a", PatchKind::Merge, json!({"spec": {"replicas": 0}})).unwrap();
    assert_eq!(part(&patched, "/spec/replicas"), &Value::Null);
    let refused = world.patch(path, "a", PatchKind::Merge, json!({"spec": {"replicas": -1}})).unwrap_err();
    assert_eq!(refused.code, 422);
}

#[test]
fn token_is_valid_for_its_account_until_it_expires() {
    let world = World::new();
    world.made("serviceaccounts", json!({"metadata": {"name": "s"}}));
    let to = world.at("serviceaccounts/token", "s");
    let answer = world.registry.create(&to, json!({"spec": {"expirationSeconds": 600}}), &options()).unwrap();
    let token = part(answer.answer.value(), "/status/token").as_str().unwrap_or_default().to_owned();
    assert_eq!(world.registry.user(&token).as_deref(), Some("system:serviceaccount:default:s"));
    assert_eq!(world.registry.user("another"), None);
    let short =
        world.registry.create(&to, json!({"spec": {"expirationSeconds": 5}}), &options()).unwrap_err();
    assert!(short.message.ends_with("may not specify a duration less than 10 minutes"));
}

#[test]
fn token_is_invalid_after_its_account_is_deleted() {
    let world = World::new();
    world.made("serviceaccounts", json!({"metadata": {"name": "s"}}));
    let to = world.at("serviceaccounts/token", "s");
    let answer = world.registry.create(&to, json!({"spec": {}}), &options()).unwrap();
    let token = part(answer.answer.value(), "/status/token").as_str().unwrap_or_default().to_owned();
    assert!(world.registry.user(&token).is_some());
    world.delete("serviceaccounts", "s", &DeleteOptions::default()).unwrap();
    assert_eq!(world.registry.user(&token), None);
    world.made("serviceaccounts", json!({"metadata": {"name": "s"}}));
    assert_eq!(world.registry.user(&token), None);
}

#[test]
fn conditions_of_a_status_patch_merge_by_type() {
    let world = World::new();
    world.made("pods", pod("a"));
    bind(&world, "a", "n").unwrap();
    let patch = json!({"status": {"conditions": [{"type": "Ready", "status": "True"}], "phase": "Running"}});
    let patched = world.patch("pods/status", "a", PatchKind::Strategic, patch).unwrap();
    assert_eq!(part(&patched, "/status/conditions").as_array().map(Vec::len), Some(2));
    assert_eq!(part(&patched, "/status/qosClass"), "BestEffort");
}

#[test]
fn eviction_with_failed_precondition_changes_nothing() {
    let world = World::new();
    guarded(&world, 1);
    let before = world.storage.revision();
    for preconditions in [json!({"uid": "other"}), json!({"resourceVersion": "1"})] {
        let body = json!({"metadata": {"name": "a"}, "deleteOptions": {"preconditions": preconditions}});
        let refused = world.registry.create(&world.at("pods/eviction", "a"), body, &options()).unwrap_err();
        assert_eq!((refused.code, &*refused.reason), (409, "Conflict"));
    }
    assert_eq!(world.storage.revision(), before);
    let version = part(&world.get("pods", "a").unwrap(), "/metadata/resourceVersion").clone();
    let body = json!({
        "metadata": {"name": "a"},
        "deleteOptions": {"preconditions": {"resourceVersion": version}},
    });
    world.registry.create(&world.at("pods/eviction", "a"), body, &options()).unwrap();
}

#[test]
fn resize_changes_resources_only() {
    let world = World::new();
    let mut body = pod("a");
    body["spec"]["containers"][0]["resources"] = json!({"requests": {"cpu": "100m"}});
    let mut object = world.made("pods", body);
    object["spec"]["containers"][0]["resources"] = json!({"requests": {"cpu": "200m"}});
    object["spec"]["containers"][0]["image"] = json!("other");
    object["spec"]["nodeName"] = json!("n");
    object["metadata"]["labels"] = json!({"a": "b"});
    object["status"]["phase"] = json!("Failed");
    let resized = world.update("pods/resize", object.clone()).unwrap();
    let container = part(&resized, "/spec/containers/0");
    assert_eq!(container["resources"], json!({"requests": {"cpu": "200m"}}));
    assert_eq!((&container["image"], part(&resized, "/spec/nodeName")), (&json!("nginx"), &Value::Null));
    assert_eq!(part(&resized, "/metadata/labels"), &Value::Null);
    assert_eq!(part(&resized, "/status/phase"), "Pending");
    assert_eq!(part(&resized, "/metadata/generation"), 2);
    let second = json!({"spec": {"containers": [{"name": "d", "image": "x"}]}});
    let refused = world.patch("pods/resize", "a", PatchKind::Strategic, second).unwrap_err();
    assert_eq!(refused.code, 422);
    assert!(
        refused.message.contains("containers may not be added or removed on resize"),
        "{}",
        refused.message
    );
    let none = json!([{"op": "remove", "path": "/spec/containers/0/resources/requests"}]);
    let refused = world.patch("pods/resize", "a", PatchKind::Json, none).unwrap_err();
    assert!(refused.message.contains("Pod QOS Class may not change"), "{}", refused.message);
}

#[test]
fn ephemeral_containers_write_changes_nothing_else() {
    let world = World::new();
    world.made("pods", pod("a"));
    let debug = json!({"name": "debug", "image": "busybox"});
    let patch = json!({"spec": {"ephemeralContainers": [debug], "nodeName": "n"}, "metadata": {"labels": {"a": "b"}}});
    let patched = world.patch("pods/ephemeralcontainers", "a", PatchKind::Strategic, patch).unwrap();
    assert_eq!(part(&patched, "/spec/ephemeralContainers/0/name"), "debug");
    assert_eq!(
        (part(&patched, "/spec/nodeName"), part(&patched, "/metadata/labels")),
        (&Value::Null, &Value::Null)
    );
    for (change, expected) in [("replace", "may not be changed"), ("remove", "may not be removed")] {
        let path = if change == "remove" { "" } else { "/0/image" };
        let patch = json!([{"op": change, "path": format!("/spec/ephemeralContainers{path}"), "value": "x"}]);
        let refused = world.patch("pods/ephemeralcontainers", "a", PatchKind::Json, patch).unwrap_err();
        assert_eq!(refused.code, 422);
        assert!(refused.message.contains(expected), "{}", refused.message);
    }
}

#[test]
fn approval_changes_conditions_only() {
    let world = World::new();
    let path = "certificates.k8s.io/v1/certificatesigningrequests";
    let spec = json!({"request": "YQ==", "signerName": "example.com/s", "usages": ["client auth"]});
    let mut object = world.made(path, json!({"metadata": {"name": "a"}, "spec": spec}));
    object["spec"]["signerName"] = json!("example.com/other");
    object["status"] = json!({
        "certificate": "YQ==",
        "conditions": [{"type": "Approved", "status": "True", "reason": "r", "message": "m"}],
    });
    let approved = world.update(&format!("{path}/approval"), object).unwrap();
    assert_eq!(part(&approved, "/spec/signerName"), "example.com/s");
    assert_eq!(part(&approved, "/status/certificate"), &Value::Null);
    assert_eq!(part(&approved, "/status/conditions/0/type"), "Approved");
    assert!(part(&approved, "/status/conditions/0/lastUpdateTime").is_string());
    let mut both = approved.clone();
    both["status"]["conditions"] = json!([]);
    let refused = world.update(&format!("{path}/approval"), both).unwrap_err();
    assert!(
        refused.message.contains("updates may not remove a condition of type \"Approved\""),
        "{}",
        refused.message
    );
}
