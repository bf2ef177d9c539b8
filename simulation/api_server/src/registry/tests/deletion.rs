use super::super::Propagation;
use super::*;

fn now() -> DeleteOptions {
    DeleteOptions { grace_period_seconds: Some(0), ..DeleteOptions::default() }
}

/// Creates a pod on a node, in the phase `Running`.
fn running(world: &World, name: &str) -> Value {
    let mut body = pod(name);
    body["spec"]["nodeName"] = json!("n");
    world.made("pods", body);
    world.status("pods/status", name, json!({"phase": "Running"}))
}

#[test]
fn running_pod_gets_its_grace_period() {
    let world = World::new();
    running(&world, "a");
    let DeleteResponse::Object { answer, accepted } =
        world.delete("pods", "a", &DeleteOptions::default()).unwrap()
    else {
        panic!("a pod is answered with")
    };
    assert!(!accepted);
    assert_eq!(part(answer.value(), "/metadata/deletionGracePeriodSeconds"), 30);
    assert_eq!(part(answer.value(), "/metadata/generation"), 2);
    let due = part(answer.value(), "/metadata/deletionTimestamp").clone();
    // A second deletion can only shorten the grace period.
    let longer = DeleteOptions { grace_period_seconds: Some(60), ..DeleteOptions::default() };
    world.delete("pods", "a", &longer).unwrap();
    assert_eq!(part(&world.get("pods", "a").unwrap(), "/metadata/deletionTimestamp"), &due);
    let shorter = DeleteOptions { grace_period_seconds: Some(5), ..DeleteOptions::default() };
    world.delete("pods", "a", &shorter).unwrap();
    assert_eq!(part(&world.get("pods", "a").unwrap(), "/metadata/deletionGracePeriodSeconds"), 5);
    world.delete("pods", "a", &now()).unwrap();
    assert!(world.get("pods", "a").is_none());
}

#[test]
fn pods_that_do_not_run_are_deleted_immediately() {
    let world = World::new();
    world.made("pods", pod("unscheduled"));
    world.delete("pods", "unscheduled", &DeleteOptions::default()).unwrap();
    assert!(world.get("pods", "unscheduled").is_none());
    running(&world, "over");
    world.status("pods/status", "over", json!({"phase": "Succeeded"}));
    world.delete("pods", "over", &DeleteOptions::default()).unwrap();
    assert!(world.get("pods", "over").is_none());
}

#[test]
fn deletion_preconditions_are_checked() {
    let world = World::new();
    let made = world.made("configmaps", config_map("a"));
    let other = DeleteOptions { uid: Some("other".to_owned()), ..DeleteOptions::default() };
    let refused = world.delete("configmaps", "a", &other).unwrap_err();
    let uid = part(&made, "/metadata/uid").as_str().unwrap_or_default();
    let expected = format!(
        "Operation cannot be fulfilled on ConfigMap \"a\": the UID in the precondition (other) does not match the UID \
         in record ({uid}). The object might have been deleted and then recreated"
    );
    assert_eq!((refused.code, refused.message), (409, expected));
    let older = DeleteOptions { resource_version: Some("1".to_owned()), ..DeleteOptions::default() };
    assert_eq!(world.delete("configmaps", "a", &older).unwrap_err().code, 409);
    let DeleteResponse::Status(status) = world.delete("configmaps", "a", &DeleteOptions::default()).unwrap()
    else {
        panic!("a config map is answered with a status")
    };
    let expected = json!({
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Success",
        "details": {"name": "a", "kind": "configmaps", "uid": uid},
    });
    assert_eq!(status, expected);
    assert_eq!(world.delete("configmaps", "a", &DeleteOptions::default()).unwrap_err().code, 404);
}

#[test]
fn object_stays_until_its_last_finalizer_is_removed() {
    let world = World::new();
    let mut body = config_map("a");
    body["metadata"]["finalizers"] = json!(["x/y"]);
    world.made("configmaps", body);
    assert!(matches!(
        world.delete("configmaps", "a", &DeleteOptions::default()),
        Ok(DeleteResponse::Object { .. })
    ));
    let held = world.get("configmaps", "a").unwrap();
    assert_eq!(part(&held, "/metadata/deletionGracePeriodSeconds"), 0);
    assert!(value::has(&held, &["metadata", "deletionTimestamp"]));
    let added = json!({"metadata": {"finalizers": ["x/y", "z/z"]}});
    assert_eq!(world.patch("configmaps", "a", PatchKind::Merge, added).unwrap_err().code, 422);
    let taken = world.create("configmaps", config_map("a")).unwrap_err();
    assert_eq!(taken.message, "object is being deleted: configmaps \"a\" already exists");
    let gone = json!({"metadata": {"finalizers": null}});
    world.patch("configmaps", "a", PatchKind::Merge, gone).unwrap();
    assert!(world.get("configmaps", "a").is_none());
}

#[test]
fn propagation_sets_finalizers_for_the_garbage_collector() {
    let world = World::new();
    let cases = [
        ("apps/v1/replicasets", None, json!(null)),
        ("apps/v1/replicasets", Some(Propagation::Background), json!(null)),
        ("apps/v1/replicasets", Some(Propagation::Orphan), json!(["orphan"])),
        ("apps/v1/replicasets", Some(Propagation::Foreground), json!(["foregroundDeletion"])),
        ("replicationcontrollers", None, json!(["orphan"])),
    ];
    for (index, (path, propagation, expected)) in cases.into_iter().enumerate() {
        let name = format!("a{index}");
        let mut body = replica_set(&name);
        if path == "replicationcontrollers" {
            body["spec"]["selector"] = json!({"app": name});
        }
        world.made(path, body);
        world.delete(path, &name, &DeleteOptions { propagation, ..DeleteOptions::default() }).unwrap();
        let left = world.get(path, &name).unwrap_or_default();
        assert_eq!(part(&left, "/metadata/finalizers"), &expected, "{path} {propagation:?}");
        if !expected.is_null() {
            assert_eq!(part(&left, "/metadata/generation"), 2);
        }
    }
}

#[test]
fn deletion_that_needs_a_garbage_collector_is_rejected_without_one() {
    let mut world = World::new();
    world.registry = Ready(world.registry.0.with_garbage_collector(false));
    let path = "apps/v1/replicasets";
    world.made(path, replica_set("a"));
    for propagation in [Propagation::Foreground, Propagation::Orphan] {
        let options = DeleteOptions { propagation: Some(propagation), ..DeleteOptions::default() };
        let status = world.delete(path, "a", &options).unwrap_err();
        assert!(status.code == 403 && status.message.contains("--cascade=background"), "{status:?}");
        assert_eq!(part(&world.get(path, "a").unwrap(), "/metadata/finalizers"), &json!(null));
    }
    world.delete(path, "a", &DeleteOptions::default()).unwrap();
    assert!(world.get(path, "a").is_none());
}

#[test]
fn last_requested_propagation_wins() {
    let world = World::new();
    let path = "apps/v1/replicasets";
    world.made(path, replica_set("a"));
    let with = |propagation| DeleteOptions { propagation: Some(propagation), ..DeleteOptions::default() };
    world.delete(path, "a", &with(Propagation::Foreground)).unwrap();
    world.delete(path, "a", &with(Propagation::Orphan)).unwrap();
    assert_eq!(part(&world.get(path, "a").unwrap(), "/metadata/finalizers"), &json!(["orphan"]));
    world.delete(path, "a", &with(Propagation::Background)).unwrap();
    assert!(world.get(path, "a").is_none());
}

#[test]
fn namespace_terminates_and_is_removed_when_finalized() {
    let world = World::new();
    world.made("namespaces", json!({"metadata": {"name": "a"}}));
    world.delete("namespaces", "a", &DeleteOptions::default()).unwrap();
    let mut namespace = world.get("namespaces", "a").unwrap();
    assert_eq!(part(&namespace, "/status/phase"), "Terminating");
    // A repeated deletion changes nothing.
    let revision = world.storage.revision();
    world.delete("namespaces", "a", &DeleteOptions::default()).unwrap();
    assert_eq!(world.storage.revision(), revision);
    namespace["spec"]["finalizers"] = json!([]);
    world.update("namespaces", namespace.clone()).unwrap();
    assert!(world.get("namespaces", "a").is_some());
    let mut namespace = world.get("namespaces", "a").unwrap();
    namespace["spec"]["finalizers"] = json!([]);
    world.update("namespaces/finalize", namespace).unwrap();
    assert!(world.get("namespaces", "a").is_none());
    let refused = world.delete("namespaces", "default", &DeleteOptions::default()).unwrap_err();
    assert_eq!(refused.message, "namespaces \"default\" is forbidden: this namespace may not be deleted");
}

#[test]
fn collection_deletion_honors_the_selector() {
    let world = World::new();
    for (name, label) in [("a", "x"), ("b", "y"), ("c", "x")] {
        let mut body = config_map(name);
        body["metadata"]["labels"] = json!({"l": label});
        world.made("configmaps", body);
    }
    let selection = crate::read::Selection {
        namespace: Some("default".into()),
        labels: crate::read::LabelSelector::parse("l=x").unwrap(),
        ..Default::default()
    };
    let at = world.at("configmaps", "");
    let gone =
        world.registry.delete_collection(&at, &selection, &Default::default(), &DeleteOptions::default());
    assert_eq!(gone.unwrap().len(), 2);
    assert!(world.get("configmaps", "b").is_some() && world.get("configmaps", "a").is_none());
}

#[test]
fn dry_run_deletes_nothing() {
    let world = World::new();
    world.made("configmaps", config_map("a"));
    world.delete("configmaps", "a", &DeleteOptions { dry_run: true, ..DeleteOptions::default() }).unwrap();
    assert!(world.get("configmaps", "a").is_some());
}
