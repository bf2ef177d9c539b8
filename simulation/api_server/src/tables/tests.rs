//! Rows in upstream's format.

use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

use super::cells::human;
use super::{CustomColumn, Printer};

fn now() -> Timestamp {
    Timestamp::from_second(1_800_000_000).unwrap_or_default()
}

fn ago(seconds: i64) -> String {
    (now() - SignedDuration::from_secs(seconds)).to_string()
}

fn cells(group: &str, plural: &str, object: &Value) -> Value {
    Printer::built_in(group, plural).row(object, now(), &Value::Null)["cells"].take()
}

#[test]
fn durations_have_two_or_three_figures() {
    let (minute, hour, day) = (60, 3600, 86_400);
    let cases = [
        (-5, "<invalid>"),
        (-1, "0s"),
        (119, "119s"),
        (2 * minute, "2m"),
        (9 * minute + 59, "9m59s"),
        (179 * minute, "179m"),
        (7 * hour + 5 * minute, "7h5m"),
        (47 * hour, "47h"),
        (7 * day + 23 * hour, "7d23h"),
        (8 * day, "8d"),
        (729 * day, "729d"),
        (3 * 365 * day + 2 * day, "3y2d"),
        (9 * 365 * day, "9y"),
    ];
    for (seconds, expected) in cases {
        assert_eq!(human(SignedDuration::from_secs(seconds)), expected);
    }
}

#[test]
fn every_layout_has_as_many_cells_as_columns() {
    let kinds = [
        (
            "",
            "pods services endpoints nodes namespaces configmaps secrets serviceaccounts events limitranges \
          persistentvolumes persistentvolumeclaims podtemplates replicationcontrollers resourcequotas",
        ),
        ("apps", "deployments replicasets statefulsets daemonsets controllerrevisions"),
        ("batch", "jobs cronjobs"),
        ("discovery.k8s.io", "endpointslices"),
        ("coordination.k8s.io", "leases"),
        ("policy", "poddisruptionbudgets"),
        ("autoscaling", "horizontalpodautoscalers scale"),
        ("rbac.authorization.k8s.io", "roles rolebindings clusterroles clusterrolebindings"),
        ("networking.k8s.io", "ingresses ingressclasses networkpolicies servicecidrs ipaddresses"),
        (
            "storage.k8s.io",
            "storageclasses volumeattachments csinodes csidrivers csistoragecapacities \
          volumeattributesclasses",
        ),
        ("apiextensions.k8s.io", "customresourcedefinitions"),
        ("scheduling.k8s.io", "priorityclasses"),
        ("certificates.k8s.io", "certificatesigningrequests"),
    ];
    for (group, plurals) in kinds {
        for plural in plurals.split_whitespace() {
            let printer = Printer::built_in(group, plural);
            let row = printer.row(&json!({}), now(), &Value::Null);
            let many = row["cells"].as_array().map_or(0, Vec::len);
            assert_eq!(many, printer.columns.len(), "{plural}.{group}");
        }
    }
}

#[test]
fn pod_status_is_summarized_in_a_word() {
    let pod = |status: Value| {
        json!({
            "kind": "Pod", "metadata": {"name": "a", "creationTimestamp": ago(90)},
            "spec": {"containers": [{"name": "c"}], "initContainers": [{"name": "i"}]}, "status": status,
        })
    };
    let waiting = json!({"waiting": {"reason": "CrashLoopBackOff"}});
    let ended = json!({"terminated": {"reason": "Completed", "exitCode": 0}});
    let cases = [
        (json!({"phase": "Pending"}), ["0/1", "Pending", "0"]),
        (json!({"phase": "Failed", "reason": "Evicted"}), ["0/1", "Evicted", "0"]),
        (
            json!({"phase": "Running", "containerStatuses": [{"ready": true, "state": {"running": {}}}]}),
            ["1/1", "Running", "0"],
        ),
        (
            json!({"phase": "Running", "containerStatuses": [{"restartCount": 3, "state": waiting,
                "lastState": {"terminated": {"finishedAt": ago(30)}}}]}),
            ["0/1", "CrashLoopBackOff", "3 (30s ago)"],
        ),
        (json!({"phase": "Succeeded", "containerStatuses": [{"state": ended}]}), ["0/1", "Completed", "0"]),
        (
            json!({"phase": "Pending", "initContainerStatuses": [{"name": "i", "state": {"running": {}}}]}),
            ["0/1", "Init:0/1", "0"],
        ),
        (
            json!({"phase": "Pending",
                "initContainerStatuses": [{"name": "i", "state": {"terminated": {"exitCode": 2}}}]}),
            ["0/1", "Init:ExitCode:2", "0"],
        ),
    ];
    for (status, [ready, word, restarts]) in cases {
        let found = cells("", "pods", &pod(status.clone()));
        let expected = json!(["a", ready, word, restarts, "90s", "<none>", "<none>", "<none>", "<none>"]);
        assert_eq!(found, expected, "{status}");
    }
    let mut leaving = pod(json!({"phase": "Running"}));
    leaving["metadata"]["deletionTimestamp"] = json!(ago(1));
    assert_eq!(cells("", "pods", &leaving)[2], "Terminating");
}

#[test]
fn rows_of_common_kinds_match_upstream() {
    let metadata = json!({"name": "a", "creationTimestamp": ago(600)});
    let deployment = json!({
        "metadata": metadata, "status": {"readyReplicas": 2, "updatedReplicas": 3, "availableReplicas": 2},
        "spec": {"replicas": 3, "selector": {"matchLabels": {"b": "2"}, "matchExpressions": [
            {"key": "a", "operator": "In", "values": ["y", "x"]}]},
            "template": {"spec": {"containers": [{"name": "c", "image": "i"}, {"name": "d", "image": "j"}]}}},
    });
    let expected = json!(["a", "2/3", 3, 2, "10m", "c,d", "i,j", "a in (x,y),b=2"]);
    assert_eq!(cells("apps", "deployments", &deployment), expected);

    let service = json!({
        "metadata": metadata, "spec": {"type": "LoadBalancer", "clusterIPs": ["10.0.0.1"], "selector": {"app": "x"},
            "ports": [{"port": 80, "protocol": "TCP", "nodePort": 30080}, {"port": 53, "protocol": "UDP"}]},
    });
    let expected =
        json!(["a", "LoadBalancer", "10.0.0.1", "<pending>", "80:30080/TCP,53/UDP", "10m", "app=x"]);
    assert_eq!(cells("", "services", &service), expected);

    let addresses: Vec<_> = (1..=4).map(|it| json!({"ip": format!("10.0.0.{it}")})).collect();
    let endpoints =
        json!({"metadata": metadata, "subsets": [{"addresses": addresses, "ports": [{"port": 80}]}]});
    let expected = json!(["a", "10.0.0.1:80,10.0.0.2:80,10.0.0.3:80 + 1 more...", "10m"]);
    assert_eq!(cells("", "endpoints", &endpoints), expected);

    let job = json!({"metadata": metadata, "spec": {"completions": 3}, "status": {"succeeded": 1, "startTime": ago(60)}});
    assert_eq!(cells("batch", "jobs", &job), json!(["a", "Running", "1/3", "60s", "10m", "", "", "<none>"]));

    let definition = json!({"metadata": metadata});
    assert_eq!(
        cells("apiextensions.k8s.io", "customresourcedefinitions", &definition),
        json!(["a", ago(600)])
    );
}

#[test]
fn custom_columns_follow_their_paths() {
    let object = json!({
        "metadata": {"name": "a", "creationTimestamp": ago(5), "labels": {"app.kubernetes.io/name": "x"}},
        "spec": {"size": 3.0, "tags": ["p", "q"], "on": true},
        "status": {"conditions": [{"type": "Good", "status": "False"}, {"type": "Ready", "status": "True"}]},
    });
    let cases = [
        ("string", ".status.conditions[?(@.type==\"Ready\")].status", json!("True")),
        ("string", ".status.conditions[?(@.type != 'Ready')].status", json!("False")),
        ("string", ".metadata.labels.app\\.kubernetes\\.io/name", json!("x")),
        ("string", ".metadata.labels['app.kubernetes.io/name']", json!("x")),
        ("string", ".spec.tags", json!("[\"p\",\"q\"]")),
        ("string", ".spec.tags[-1]", json!("q")),
        ("string", ".spec.tags[*]", json!("p")),
        ("integer", ".spec.size", json!(3)),
        ("boolean", ".spec.on", json!(true)),
        ("date", ".metadata.creationTimestamp", json!("5s")),
        ("string", ".spec.missing", Value::Null),
        ("integer", ".spec.tags", Value::Null),
        ("string", ".spec.[broken", Value::Null),
    ];
    for (of, path, expected) in cases {
        let column = CustomColumn::new(&json!({"name": "C", "type": of, "jsonPath": path}));
        let row = Printer::custom(vec![column]).row(&object, now(), &Value::Null);
        assert_eq!(row["cells"], json!(["a", expected]), "{path}");
    }
}
