//! Tables, as `kubectl get` prints them.

use serde_json::{Value, json};

use super::objects::{config_map, deployment, job, pod, service, workload};
use crate::{Behavior, Case, Outcome, behaviors, has, same};

pub(super) const ALL: &[Behavior] = behaviors![
    table_has_columns_and_rows,
    table_of_one_object_has_one_row,
    row_has_the_metadata_of_its_object,
    table_row_can_contain_whole_object,
    table_row_can_omit_object,
    table_has_the_version_of_the_list,
    table_has_pages,
    pods_show_readiness_status_and_restarts,
    pod_with_waiting_container_shows_reason,
    deployments_show_their_replicas,
    replica_sets_show_their_replicas,
    services_show_their_addresses_and_ports,
    jobs_show_their_completions,
    kinds_without_columns_show_name_and_age,
    rows_of_empty_table_depend_on_kind,
    second_media_type_is_used_if_first_has_no_table,
    error_response_is_not_a_table,
];

const TABLE: &str = "application/json;as=Table;g=meta.k8s.io;v=v1";

async fn table(case: &Case, path: &str) -> anyhow::Result<Value> {
    case.get_as(TABLE, path).await?.is(200)
}

/// Returns the first row's cells by column, without those that depend on the time.
fn cells(table: &Value) -> Vec<(String, Value)> {
    let columns = table["columnDefinitions"].as_array().into_iter().flatten();
    let cells = table["rows"][0]["cells"].as_array().into_iter().flatten();
    let both = columns.zip(cells).filter(|(column, _)| column["priority"] == 0 && column["name"] != "Age");
    both.map(|(column, cell)| (column["name"].as_str().unwrap_or_default().to_owned(), cell.clone()))
        .collect()
}

fn expected<const N: usize>(cells: [(&str, Value); N]) -> Vec<(String, Value)> {
    cells.into_iter().map(|(column, cell)| (column.to_owned(), cell)).collect()
}

async fn table_has_columns_and_rows(case: Case) -> Outcome {
    case.make("pods", pod("a")).await?;
    let shown = table(&case, "pods").await?;
    has!(shown, { "kind": "Table", "apiVersion": "meta.k8s.io/v1" });
    let columns = shown["columnDefinitions"].as_array().into_iter().flatten();
    let columns: Vec<_> = columns.map(|it| it["name"].as_str().unwrap_or_default()).collect();
    same!(
        columns,
        ["Name", "Ready", "Status", "Restarts", "Age", "IP", "Node", "Nominated Node", "Readiness Gates"]
    );
    has!(shown["columnDefinitions"][0], { "name": "Name", "type": "string", "format": "name", "priority": 0 });
    Ok(())
}

async fn table_of_one_object_has_one_row(case: Case) -> Outcome {
    case.make("configmaps", config_map("a")).await?;
    let shown = table(&case, "configmaps/a").await?;
    same!(shown["rows"].as_array().map(Vec::len), Some(1));
    same!(cells(&shown), expected([("Name", json!("a")), ("Data", json!(1))]));
    Ok(())
}

async fn row_has_the_metadata_of_its_object(case: Case) -> Outcome {
    case.make("configmaps", config_map("a")).await?;
    let shown = table(&case, "configmaps").await?;
    has!(shown["rows"][0]["object"], { "kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1",
        "metadata": { "name": "a" }, "data": null });
    Ok(())
}

async fn table_row_can_contain_whole_object(case: Case) -> Outcome {
    case.make("configmaps", config_map("a")).await?;
    let shown = table(&case, "configmaps?includeObject=Object").await?;
    has!(shown["rows"][0]["object"], { "kind": "ConfigMap", "data": { "key": "value" } });
    Ok(())
}

async fn table_row_can_omit_object(case: Case) -> Outcome {
    case.make("configmaps", config_map("a")).await?;
    let shown = table(&case, "configmaps?includeObject=None").await?;
    same!(shown["rows"][0]["object"], Value::Null);
    Ok(())
}

async fn table_has_the_version_of_the_list(case: Case) -> Outcome {
    let shown = table(&case, "configmaps").await?;
    anyhow::ensure!(crate::check::revision(&shown) > 0, "{shown}");
    same!(shown["rows"], json!([]));
    Ok(())
}

async fn table_has_pages(case: Case) -> Outcome {
    for name in ["a", "b"] {
        case.make("configmaps", config_map(name)).await?;
    }
    let shown = table(&case, "configmaps?limit=1").await?;
    same!(shown["rows"].as_array().map(Vec::len), Some(1));
    same!(shown["metadata"]["remainingItemCount"], 1);
    Ok(())
}

async fn pods_show_readiness_status_and_restarts(case: Case) -> Outcome {
    case.make("pods", pod("a")).await?;
    let pending = [
        ("Name", json!("a")),
        ("Ready", json!("0/1")),
        ("Status", json!("Pending")),
        ("Restarts", json!("0")),
    ];
    same!(cells(&table(&case, "pods").await?), expected(pending));
    let container = json!({ "name": "main", "ready": true, "restartCount": 2, "image": "i", "imageID": "i",
        "state": { "running": {} } });
    let status = json!({ "status": { "phase": "Running", "containerStatuses": [container] } });
    case.merge("pods/a/status", status).await?;
    let running = [
        ("Name", json!("a")),
        ("Ready", json!("1/1")),
        ("Status", json!("Running")),
        ("Restarts", json!("2")),
    ];
    same!(cells(&table(&case, "pods").await?), expected(running));
    Ok(())
}

async fn pod_with_waiting_container_shows_reason(case: Case) -> Outcome {
    case.make("pods", pod("a")).await?;
    let container = json!({ "name": "main", "ready": false, "restartCount": 0, "image": "i", "imageID": "i",
        "state": { "waiting": { "reason": "CrashLoopBackOff" } } });
    case.merge(
        "pods/a/status",
        json!({ "status": { "phase": "Running", "containerStatuses": [container] } }),
    )
    .await?;
    same!(cells(&table(&case, "pods").await?)[2], ("Status".to_owned(), json!("CrashLoopBackOff")));
    Ok(())
}

async fn deployments_show_their_replicas(case: Case) -> Outcome {
    case.make("apps/v1 deployments", deployment("a")).await?;
    let status = json!({ "status": { "replicas": 2, "updatedReplicas": 2, "readyReplicas": 1, "availableReplicas": 1 } });
    case.merge("apps/v1 deployments/a/status", status).await?;
    let shown =
        [("Name", json!("a")), ("Ready", json!("1/2")), ("Up-to-date", json!(2)), ("Available", json!(1))];
    same!(cells(&table(&case, "apps/v1 deployments").await?), expected(shown));
    Ok(())
}

async fn replica_sets_show_their_replicas(case: Case) -> Outcome {
    case.make("apps/v1 replicasets", workload("ReplicaSet", "a")).await?;
    let shown = [("Name", json!("a")), ("Desired", json!(2)), ("Current", json!(0)), ("Ready", json!(0))];
    same!(cells(&table(&case, "apps/v1 replicasets").await?), expected(shown));
    Ok(())
}

async fn services_show_their_addresses_and_ports(case: Case) -> Outcome {
    let made = case.make("services", service("a")).await?;
    let shown = [
        ("Name", json!("a")),
        ("Type", json!("ClusterIP")),
        ("Cluster-IP", made["spec"]["clusterIP"].clone()),
        ("External-IP", json!("<none>")),
        ("Port(s)", json!("80/TCP")),
    ];
    same!(cells(&table(&case, "services").await?), expected(shown));
    Ok(())
}

async fn jobs_show_their_completions(case: Case) -> Outcome {
    case.make("batch/v1 jobs", job("a")).await?;
    let shown = cells(&table(&case, "batch/v1 jobs").await?);
    same!(
        shown[..3],
        expected([("Name", json!("a")), ("Status", json!("Running")), ("Completions", json!("0/1"))])[..]
    );
    Ok(())
}

async fn kinds_without_columns_show_name_and_age(case: Case) -> Outcome {
    let limits = json!({ "metadata": { "name": "a" }, "spec": { "limits": [] } });
    case.make("limitranges", limits).await?;
    let shown = table(&case, "limitranges").await?;
    let columns = shown["columnDefinitions"].as_array().into_iter().flatten();
    let columns: Vec<_> = columns.map(|it| it["name"].as_str().unwrap_or_default()).collect();
    same!(columns, ["Name", "Created At"]);
    Ok(())
}

async fn second_media_type_is_used_if_first_has_no_table(case: Case) -> Outcome {
    let accept = format!("{TABLE},application/json;as=Table;v=v1beta1;g=meta.k8s.io,application/json");
    let answer = case.get_as(&accept, "/api/v1").await?;
    has!(answer.is(200)?, { "kind": "APIResourceList" });
    has!(case.get_as(&accept, "configmaps").await?.is(200)?, { "kind": "Table" });
    Ok(())
}

async fn error_response_is_not_a_table(case: Case) -> Outcome {
    let answer = case.get_as(TABLE, "configmaps/a").await?;
    answer.expect_rejected(404, "NotFound", "configmaps \"a\" not found")?;
    Ok(())
}

async fn rows_of_empty_table_depend_on_kind(case: Case) -> Outcome {
    for (path, rows) in [
        ("configmaps", json!([])),
        ("limitranges", Value::Null),
        ("rbac.authorization.k8s.io/v1 roles", Value::Null),
        ("rbac.authorization.k8s.io/v1 rolebindings", json!([])),
    ] {
        same!(table(&case, path).await?["rows"], rows);
    }
    Ok(())
}
