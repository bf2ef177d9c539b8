use super::*;

/// Returns the errors for a body, as `field: message` for each cause.
fn causes(world: &World, path: &str, body: Value) -> Vec<String> {
    let refused = world.create(path, body).unwrap_err();
    assert_eq!(refused.code, 422, "{}", refused.message);
    let found = refused.details.map(|it| it.causes).unwrap_or_default();
    found.into_iter().map(|it| format!("{}: {}", it.field, it.message)).collect()
}

#[test]
fn pod_gets_defaults() {
    let world = World::new();
    let mut body = pod("a");
    body["spec"]["containers"][0]["resources"] = json!({"limits": {"cpu": "1", "memory": "1Gi"}});
    let made = world.made("pods", body);
    let expected = [
        ("/spec/containers/0/imagePullPolicy", json!("Always")),
        ("/spec/containers/0/terminationMessagePath", json!("/dev/termination-log")),
        ("/spec/containers/0/resources/requests", json!({"cpu": "1", "memory": "1Gi"})),
        ("/spec/restartPolicy", json!("Always")),
        ("/spec/dnsPolicy", json!("ClusterFirst")),
        ("/spec/schedulerName", json!("default-scheduler")),
        ("/spec/securityContext", json!({})),
        ("/spec/terminationGracePeriodSeconds", json!(30)),
        ("/spec/enableServiceLinks", json!(true)),
        ("/spec/serviceAccountName", json!("default")),
        ("/spec/serviceAccount", json!("default")),
        ("/spec/priority", json!(0)),
        ("/spec/preemptionPolicy", json!("PreemptLowerPriority")),
        ("/spec/tolerations/0/tolerationSeconds", json!(300)),
        ("/spec/tolerations/1/key", json!("node.kubernetes.io/unreachable")),
        ("/status", json!({"phase": "Pending", "qosClass": "Guaranteed"})),
        ("/metadata/generation", json!(1)),
    ];
    for (pointer, value) in expected {
        assert_eq!(part(&made, pointer), &value, "{pointer}");
    }
}

#[test]
fn invalid_pod_is_rejected_per_field() {
    let world = World::new();
    let body = json!({"metadata": {"name": "a"}, "spec": {
        "restartPolicy": "Sometimes",
        "containers": [
            {"name": "c", "ports": [{"containerPort": 70000}]},
            {"name": "c", "image": "x", "volumeMounts": [{"name": "none", "mountPath": "/x"}]},
        ],
    }});
    let expected = [
        "spec.containers[0].image: Required value",
        "spec.containers[0].ports[0].containerPort: Invalid value: 70000: must be between 1 and 65535, inclusive",
        "spec.containers[1].volumeMounts[0].name: Not found: \"none\"",
        "spec.containers[1].name: Duplicate value: \"c\"",
        "spec.restartPolicy: Unsupported value: \"Sometimes\": supported values: \"Always\", \"OnFailure\", \"Never\"",
    ];
    assert_eq!(causes(&world, "pods", body), expected);
}

#[test]
fn only_a_few_pod_fields_are_mutable() {
    let world = World::new();
    world.made("pods", pod("a"));
    let change = |body| world.patch("pods", "a", PatchKind::Strategic, body);
    let image = change(json!({"spec": {"containers": [{"name": "c", "image": "nginx:2"}]}})).unwrap();
    assert_eq!(part(&image, "/metadata/generation"), 2);
    assert!(change(json!({"spec": {"activeDeadlineSeconds": 10}})).is_ok());
    assert!(change(json!({"spec": {"activeDeadlineSeconds": 20}})).is_err());
    let refused = change(json!({"spec": {"nodeName": "n"}})).unwrap_err();
    assert!(refused.message.contains("spec: Forbidden: pod updates may not change fields other than"));
    let added = change(json!({"spec": {"containers": [{"name": "d", "image": "x"}]}})).unwrap_err();
    assert!(added.message.contains("pod updates may not add or remove containers"));
}

#[test]
fn pod_has_the_priority_of_its_class() {
    let world = World::new();
    let mut body = pod("a");
    body["spec"]["priorityClassName"] = json!("system-node-critical");
    assert_eq!(part(&world.made("pods", body), "/spec/priority"), 2_000_001_000);
    let mut body = pod("b");
    body["spec"]["priorityClassName"] = json!("none");
    let refused = world.create("pods", body).unwrap_err();
    let expected = "pods \"b\" is forbidden: no PriorityClass with name none was found";
    assert_eq!((refused.code, refused.message.as_str()), (403, expected));
}

#[test]
fn workloads_get_defaults() {
    let world = World::new();
    let body = |kind: &str| {
        let mut body = replica_set(kind);
        body["metadata"]["name"] = json!("a");
        body
    };
    let expected = [
        ("apps/v1/replicasets", "/spec/replicas", json!(1)),
        ("apps/v1/deployments", "/spec/strategy/rollingUpdate/maxSurge", json!("25%")),
        ("apps/v1/deployments", "/spec/progressDeadlineSeconds", json!(600)),
        ("apps/v1/deployments", "/spec/revisionHistoryLimit", json!(10)),
        ("apps/v1/daemonsets", "/spec/updateStrategy/rollingUpdate/maxUnavailable", json!(1)),
        ("apps/v1/statefulsets", "/spec/podManagementPolicy", json!("OrderedReady")),
        ("apps/v1/statefulsets", "/spec/persistentVolumeClaimRetentionPolicy/whenDeleted", json!("Retain")),
    ];
    for (path, pointer, value) in expected {
        let made = world.get(path, "a").unwrap_or_else(|| world.made(path, body("a")));
        assert_eq!(part(&made, pointer), &value, "{path}{pointer}");
        assert_eq!(part(&made, "/spec/template/spec/containers/0/imagePullPolicy"), "IfNotPresent");
        assert_eq!(part(&made, "/spec/template/spec/enableServiceLinks"), &Value::Null);
    }
    let mut body = body("a");
    body["spec"]["selector"].take();
    let made = world.made("replicationcontrollers", body);
    assert_eq!(part(&made, "/spec/selector"), &json!({"app": "a"}));
    assert_eq!(part(&made, "/metadata/labels"), &json!({"app": "a"}));
}

#[test]
fn invalid_workloads_are_rejected_per_field() {
    let world = World::new();
    let mut body = replica_set("a");
    body["spec"]["template"]["metadata"]["labels"] = json!({"app": "b"});
    body["spec"]["replicas"] = json!(-1);
    let expected = [
        "spec.replicas: Invalid value: -1: must be greater than or equal to 0",
        "spec.template.metadata.labels: Invalid value: {\"app\":\"b\"}: `selector` does not match template `labels`",
    ];
    assert_eq!(causes(&world, "apps/v1/replicasets", body), expected);
    let mut body = replica_set("a");
    body["spec"]["template"]["spec"]["restartPolicy"] = json!("Never");
    let expected =
        "spec.template.spec.restartPolicy: Unsupported value: \"Never\": supported values: \"Always\"";
    assert_eq!(causes(&world, "apps/v1/replicasets", body), [expected]);
    let mut body = replica_set("a");
    body["spec"]["strategy"] = json!({"rollingUpdate": {"maxSurge": 0, "maxUnavailable": 0}});
    let expected =
        "spec.strategy.rollingUpdate.maxUnavailable: Invalid value: 0: may not be 0 when `maxSurge` is 0";
    assert_eq!(causes(&world, "apps/v1/deployments", body), [expected]);
    let status = json!({"replicas": 1, "readyReplicas": 2});
    world.made("apps/v1/replicasets", replica_set("a"));
    let mut object = world.get("apps/v1/replicasets", "a").unwrap();
    object["status"] = status;
    let refused = world.update("apps/v1/replicasets/status", object).unwrap_err();
    assert!(refused.message.contains("cannot be greater than status.replicas"));
}

#[test]
fn only_a_few_stateful_set_fields_are_mutable() {
    let world = World::new();
    let path = "apps/v1/statefulsets";
    world.made(path, replica_set("a"));
    assert!(world.patch(path, "a", PatchKind::Merge, json!({"spec": {"replicas": 3}})).is_ok());
    let refused =
        world.patch(path, "a", PatchKind::Merge, json!({"spec": {"serviceName": "s"}})).unwrap_err();
    assert!(refused.message.contains("updates to statefulset spec for fields other than 'replicas'"));
}

#[test]
fn daemon_set_counts_changes_of_its_template_in_an_annotation() {
    let world = World::new();
    let path = "apps/v1/daemonsets";
    let key = "deprecated.daemonset.template.generation";
    let generation = |object: &Value| object["metadata"]["annotations"][key].clone();
    assert_eq!(generation(&world.made(path, replica_set("a"))), "1");
    let patched = |patch: Value| generation(&world.patch(path, "a", PatchKind::Merge, patch).unwrap());
    assert_eq!(patched(json!({"spec": {"minReadySeconds": 1}})), "1");
    let image = json!([{"name": "c", "image": "y"}]);
    assert_eq!(patched(json!({"spec": {"template": {"spec": {"containers": image}}}})), "2");
    assert_eq!(patched(json!({"metadata": {"annotations": {key: null}}})), "2");
    assert_eq!(patched(json!({"metadata": {"annotations": {key: "9"}}})), "2");
    let mut object = world.get(path, "a").unwrap();
    object["metadata"]["annotations"] = Value::Null;
    object["status"]["numberReady"] = json!(1);
    assert_eq!(generation(&world.update("apps/v1/daemonsets/status", object).unwrap()), "2");
    let mut given = replica_set("b");
    given["metadata"]["annotations"] = json!({key: "5"});
    assert_eq!(generation(&world.made(path, given)), "5");
}

#[test]
fn deployment_annotations_increment_the_generation() {
    let world = World::new();
    let path = "apps/v1/deployments";
    world.made(path, replica_set("a"));
    let patch = json!({"metadata": {"annotations": {"x": "y"}}});
    let patched = world.patch(path, "a", PatchKind::Merge, patch).unwrap();
    assert_eq!(part(&patched, "/metadata/generation"), 2);
}

fn job(name: &str) -> Value {
    json!({"metadata": {"name": name}, "spec": {"template": {"spec": {
        "restartPolicy": "Never",
        "containers": [{"name": "c", "image": "x:1"}],
    }}}})
}

#[test]
fn job_selects_its_own_pods() {
    let world = World::new();
    let made = world.made("batch/v1/jobs", job("a"));
    let uid = part(&made, "/metadata/uid");
    assert_eq!(part(&made, "/spec/selector/matchLabels/batch.kubernetes.io~1controller-uid"), uid);
    let labels = part(&made, "/spec/template/metadata/labels");
    assert_eq!((&labels["controller-uid"], &labels["job-name"]), (uid, &json!("a")));
    assert_eq!(part(&made, "/spec/backoffLimit"), 6);
    assert_eq!(part(&made, "/spec/completions"), 1);
    assert_eq!(part(&made, "/spec/podReplacementPolicy"), "TerminatingOrFailed");
    let mut body = job("b");
    body["spec"]["template"]["spec"]["restartPolicy"].take();
    let expected = "spec.template.spec.restartPolicy: Required value: valid values: \"OnFailure\", \"Never\"";
    assert_eq!(causes(&world, "batch/v1/jobs", body), [expected]);
}

#[test]
fn job_template_is_immutable_and_its_counters_grow() {
    let world = World::new();
    world.made("batch/v1/jobs", job("a"));
    let image = json!({"spec": {"template": {"spec": {"containers": [{"name": "c", "image": "y"}]}}}});
    let refused = world.patch("batch/v1/jobs", "a", PatchKind::Strategic, image).unwrap_err();
    assert!(refused.message.contains("spec.template: Invalid value: "), "{}", refused.message);
    assert!(world.patch("batch/v1/jobs", "a", PatchKind::Merge, json!({"spec": {"parallelism": 2}})).is_ok());
    world.status("batch/v1/jobs/status", "a", json!({"failed": 2}));
    let mut object = world.get("batch/v1/jobs", "a").unwrap();
    object["status"]["failed"] = json!(1);
    let refused = world.update("batch/v1/jobs/status", object).unwrap_err();
    assert!(refused.message.ends_with("cannot decrease the failed counter"));
}

#[test]
fn cron_job_requires_schedule_and_short_name() {
    let world = World::new();
    let body = |name: &str, schedule: &str| json!({"metadata": {"name": name}, "spec": {"schedule": schedule, "jobTemplate": {"spec": job("x")["spec"]}}});
    let made = world.made("batch/v1/cronjobs", body("a", "*/5 * * * *"));
    assert_eq!(part(&made, "/spec/concurrencyPolicy"), "Allow");
    let causes = causes(&world, "batch/v1/cronjobs", body(&"b".repeat(53), "every day"));
    assert_eq!(
        causes[0],
        "spec.schedule: Invalid value: \"every day\": expected exactly 5 fields, found 2: [every day]"
    );
    assert!(causes[1].ends_with("must be no more than 52 characters"));
}

#[test]
fn service_gets_a_cluster_ip_and_keeps_it() {
    let world = World::new();
    let body = json!({"metadata": {"name": "a"}, "spec": {"ports": [{"port": 80}], "selector": {"a": "b"}}});
    let made = world.made("services", body.clone());
    let address = part(&made, "/spec/clusterIP").as_str().unwrap_or_default();
    assert!(address.starts_with("10.") && part(&made, "/spec/clusterIPs") == &json!([address]));
    for (pointer, value) in [
        ("/spec/ports/0/targetPort", json!(80)),
        ("/spec/ports/0/protocol", json!("TCP")),
        ("/spec/sessionAffinity", json!("None")),
        ("/spec/type", json!("ClusterIP")),
        ("/spec/ipFamilies", json!(["IPv4"])),
        ("/spec/ipFamilyPolicy", json!("SingleStack")),
        ("/spec/internalTrafficPolicy", json!("Cluster")),
        ("/status", json!({"loadBalancer": {}})),
    ] {
        assert_eq!(part(&made, pointer), &value, "{pointer}");
    }
    // The update has the same effect without the address.
    let updated = world.update("services", body).unwrap();
    assert_eq!(part(&updated, "/spec/clusterIP"), address);
    let other = json!({"spec": {"clusterIP": "10.96.0.77", "clusterIPs": ["10.96.0.77"]}});
    let refused = world.patch("services", "a", PatchKind::Merge, other).unwrap_err();
    assert!(refused.message.contains("spec.clusterIPs[0]"), "{}", refused.message);
    let taken = json!({"metadata": {"name": "b"}, "spec": {"clusterIP": address, "ports": [{"port": 80}]}});
    let refused = world.create("services", taken).unwrap_err();
    assert!(refused.message.ends_with("provided IP is already allocated"));
}

#[test]
fn node_port_service_gets_node_ports() {
    let world = World::new();
    let body = json!({"metadata": {"name": "a"}, "spec": {"type": "NodePort", "ports": [{"port": 80}]}});
    let made = world.made("services", body);
    let port = part(&made, "/spec/ports/0/nodePort").as_i64().unwrap_or_default();
    assert!((30000..=32767).contains(&port));
    assert_eq!(part(&made, "/spec/externalTrafficPolicy"), "Cluster");
    let taken = json!({"metadata": {"name": "b"}, "spec": {"type": "NodePort", "ports": [{"port": 80, "nodePort": port}]}});
    let refused = world.create("services", taken).unwrap_err();
    assert!(refused.message.ends_with("provided port is already allocated"));
    let plain =
        world.patch("services", "a", PatchKind::Merge, json!({"spec": {"type": "ClusterIP"}})).unwrap();
    assert_eq!(part(&plain, "/spec/ports/0/nodePort"), &Value::Null);
}

#[test]
fn endpoints_are_deleted_with_their_service() {
    let world = World::new();
    world.made("services", json!({"metadata": {"name": "a"}, "spec": {"ports": [{"port": 80}]}}));
    world.made("endpoints", json!({"metadata": {"name": "a"}}));
    world.delete("services", "a", &DeleteOptions::default()).unwrap();
    assert!(world.get("endpoints", "a").is_none());
}

#[test]
fn claim_is_protected_and_bound_once() {
    let world = World::new();
    let body = json!({"metadata": {"name": "a"}, "spec": {
        "accessModes": ["ReadWriteOnce"],
        "resources": {"requests": {"storage": "1Gi"}},
    }});
    let made = world.made("persistentvolumeclaims", body);
    assert_eq!(part(&made, "/metadata/finalizers"), &json!(["kubernetes.io/pvc-protection"]));
    assert_eq!(part(&made, "/status/phase"), "Pending");
    assert_eq!(part(&made, "/spec/volumeMode"), "Filesystem");
    let bind = |name| json!({"spec": {"volumeName": name}});
    assert!(world.patch("persistentvolumeclaims", "a", PatchKind::Merge, bind("v")).is_ok());
    assert!(world.patch("persistentvolumeclaims", "a", PatchKind::Merge, bind("w")).is_err());
    let causes = causes(&world, "persistentvolumeclaims", json!({"metadata": {"name": "b"}, "spec": {}}));
    assert_eq!(causes[0], "spec.accessModes: Required value: at least 1 access mode is required");
    assert_eq!(causes[1], "spec.resources[storage]: Required value");
}

#[test]
fn events_and_autoscalers_are_served_in_every_version() {
    let world = World::new();
    let body = json!({
        "metadata": {"name": "e"},
        "involvedObject": {"namespace": "default", "name": "x"},
        "message": "m",
    });
    world.made("events", body);
    let collection = super::super::convert::collection(&world.at("events.k8s.io/v1/events", "e").resource);
    let stored = world.storage.get(&collection, &crate::storage::Key::new("default", "e")).unwrap();
    let resource = world.at("events.k8s.io/v1/events", "e").resource;
    let served = super::super::convert::serve(&stored.value, &resource);
    assert_eq!((part(&served, "/note"), part(&served, "/regarding/name")), (&json!("m"), &json!("x")));
    let body = json!({"metadata": {"name": "h"}, "spec": {
        "maxReplicas": 3,
        "targetCPUUtilizationPercentage": 70,
        "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "d"},
    }});
    world.made("autoscaling/v1/horizontalpodautoscalers", body);
    let patch = json!({"spec": {"maxReplicas": 5}});
    let newer = world.patch("autoscaling/v2/horizontalpodautoscalers", "h", PatchKind::Merge, patch).unwrap();
    assert_eq!(part(&newer, "/spec/metrics/0/resource/target/averageUtilization"), 70);
}

#[test]
fn service_keeps_its_ports_and_cannot_take_those_of_others() {
    let world = World::new();
    let service = |name: &str, port: i64| {
        let ports = json!([{"port": 80, "nodePort": port}]);
        json!({"metadata": {"name": name}, "spec": {"type": "NodePort", "ports": ports}})
    };
    let first = world.made("services", service("a", 30001));
    let patch = json!({"metadata": {"labels": {"x": "y"}}});
    let labeled = world.patch("services", "a", PatchKind::Merge, patch).unwrap();
    assert_eq!(part(&labeled, "/spec"), part(&first, "/spec"));
    let refused = world.create("services", service("b", 30001)).unwrap_err();
    assert!(refused.message.contains("provided port is already allocated"), "{}", refused.message);
    let mut other = world.made("services", service("b", 30002));
    other["spec"]["ports"][0]["nodePort"] = json!(30001);
    let refused = world.update("services", other).unwrap_err();
    assert!(refused.message.contains("provided port is already allocated"), "{}", refused.message);
}
