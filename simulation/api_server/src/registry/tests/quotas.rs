use super::*;

/// Creates a quota with the status that its controller would set.
fn quota(world: &World, hard: Value, used: Value) {
    world.made("resourcequotas", json!({"metadata": {"name": "q"}, "spec": {"hard": hard}}));
    world.status("resourcequotas/status", "q", json!({"hard": hard, "used": used}));
}

#[test]
fn quota_counts_objects_and_rejects_more() {
    let world = World::new();
    quota(
        &world,
        json!({"pods": "1", "count/configmaps": "5"}),
        json!({"pods": "0", "count/configmaps": "0"}),
    );
    world.made("pods", pod("a"));
    assert_eq!(part(&world.get("resourcequotas", "q").unwrap(), "/status/used/pods"), "1");
    let refused = world.create("pods", pod("b")).unwrap_err();
    let expected =
        "pods \"b\" is forbidden: exceeded quota: q, requested: pods=1, used: pods=1, limited: pods=1";
    assert_eq!((refused.code, refused.message.as_str()), (403, expected));
    world.made("configmaps", config_map("a"));
    let left = world.get("resourcequotas", "q").unwrap();
    assert_eq!(part(&left, "/status/used/count~1configmaps"), "1");
}

#[test]
fn rejected_create_does_not_charge_quota() {
    let world = World::new();
    quota(&world, json!({"pods": "9"}), json!({"pods": "0"}));
    world.made("pods", pod("a"));
    assert_eq!(world.create("pods", pod("a")).unwrap_err().code, 409);
    assert_eq!(part(&world.get("resourcequotas", "q").unwrap(), "/status/used/pods"), "1");
}

#[test]
fn quota_without_status_rejects_creates() {
    let world = World::new();
    quota(&world, json!({"pods": "9"}), json!({}));
    let refused = world.create("pods", pod("a")).unwrap_err();
    assert_eq!(refused.message, "pods \"a\" is forbidden: status unknown for quota: q, resources: pods");
}
