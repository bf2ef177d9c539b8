//! Label and field selectors of lists.

use serde_json::{Value, json};

use super::objects::{config_map, job, labeled, pod, pod_on_node};
use crate::{Behavior, Case, Outcome, behaviors, check::names, same};

pub(super) const ALL: &[Behavior] = behaviors![
    label_can_be_required_to_equal,
    inequality_selector_matches_missing_label,
    label_can_be_required_to_be_one_of_several,
    label_can_be_required_to_be_none_of_several,
    label_can_be_required_to_exist,
    label_can_be_required_to_be_absent,
    several_requirements_must_all_hold,
    labels_can_be_compared_as_numbers,
    double_equals_sign_is_supported,
    malformed_label_selector_is_rejected,
    field_selector_finds_by_name,
    field_selector_can_exclude_a_name,
    field_selector_finds_by_namespace,
    pods_are_found_by_node,
    pods_without_a_node_are_found,
    pods_are_found_by_phase,
    pods_are_found_by_restart_policy,
    secrets_are_found_by_type,
    events_are_found_by_involved_object,
    jobs_are_found_by_successes,
    namespaces_are_found_by_phase,
    field_selector_by_an_unknown_field_is_rejected,
    malformed_field_selector_is_rejected,
    fields_and_labels_must_both_match,
];

async fn select(case: &Case, selector: &str) -> anyhow::Result<Vec<String>> {
    case.make("configmaps", labeled("a", json!({ "app": "web", "tier": "1" }))).await?;
    case.make("configmaps", labeled("b", json!({ "app": "db", "tier": "2" }))).await?;
    case.make("configmaps", config_map("c")).await?;
    Ok(names(&case.read(&format!("configmaps?labelSelector={selector}")).await?))
}

async fn label_can_be_required_to_equal(case: Case) -> Outcome {
    same!(select(&case, "app%3Dweb").await?, ["a"]);
    Ok(())
}

async fn inequality_selector_matches_missing_label(case: Case) -> Outcome {
    same!(select(&case, "app!=web").await?, ["b", "c"]);
    Ok(())
}

async fn label_can_be_required_to_be_one_of_several(case: Case) -> Outcome {
    same!(select(&case, "app in (web, db)").await?, ["a", "b"]);
    Ok(())
}

async fn label_can_be_required_to_be_none_of_several(case: Case) -> Outcome {
    same!(select(&case, "app notin (web,x)").await?, ["b", "c"]);
    Ok(())
}

async fn label_can_be_required_to_exist(case: Case) -> Outcome {
    same!(select(&case, "app").await?, ["a", "b"]);
    Ok(())
}

async fn label_can_be_required_to_be_absent(case: Case) -> Outcome {
    same!(select(&case, "!app").await?, ["c"]);
    Ok(())
}

async fn several_requirements_must_all_hold(case: Case) -> Outcome {
    same!(select(&case, "app,tier=2").await?, ["b"]);
    Ok(())
}

async fn labels_can_be_compared_as_numbers(case: Case) -> Outcome {
    same!(select(&case, "tier%3E1").await?, ["b"]);
    Ok(())
}

async fn double_equals_sign_is_supported(case: Case) -> Outcome {
    same!(select(&case, "app==db").await?, ["b"]);
    Ok(())
}

async fn malformed_label_selector_is_rejected(case: Case) -> Outcome {
    let answer = case.get("configmaps?labelSelector=a in").await?;
    let message = "unable to parse requirement: found '' expected: '('";
    answer.expect_rejected(400, "BadRequest", message)?;
    Ok(())
}

async fn field_selector_finds_by_name(case: Case) -> Outcome {
    for name in ["a", "b"] {
        case.make("configmaps", config_map(name)).await?;
    }
    same!(names(&case.read("configmaps?fieldSelector=metadata.name=b").await?), ["b"]);
    Ok(())
}

async fn field_selector_can_exclude_a_name(case: Case) -> Outcome {
    for name in ["a", "b"] {
        case.make("configmaps", config_map(name)).await?;
    }
    same!(names(&case.read("configmaps?fieldSelector=metadata.name!=b").await?), ["a"]);
    Ok(())
}

async fn field_selector_finds_by_namespace(case: Case) -> Outcome {
    case.make("configmaps", config_map("a")).await?;
    same!(names(&case.read("/api/v1/configmaps?fieldSelector=metadata.namespace={ns}").await?), ["a"]);
    Ok(())
}

async fn pods_are_found_by_node(case: Case) -> Outcome {
    case.make("pods", pod("a")).await?;
    case.make("pods", pod_on_node("b")).await?;
    same!(names(&case.read("pods?fieldSelector=spec.nodeName=node").await?), ["b"]);
    Ok(())
}

async fn pods_without_a_node_are_found(case: Case) -> Outcome {
    case.make("pods", pod("a")).await?;
    case.make("pods", pod_on_node("b")).await?;
    same!(names(&case.read("pods?fieldSelector=spec.nodeName=").await?), ["a"]);
    Ok(())
}

async fn pods_are_found_by_phase(case: Case) -> Outcome {
    case.make("pods", pod("a")).await?;
    case.make("pods", pod("b")).await?;
    case.merge("pods/b/status", json!({ "status": { "phase": "Succeeded" } })).await?;
    let path = "pods?fieldSelector=status.phase!=Succeeded,status.phase!=Failed";
    same!(names(&case.read(path).await?), ["a"]);
    same!(names(&case.read("pods?fieldSelector=status.phase=Succeeded").await?), ["b"]);
    Ok(())
}

async fn pods_are_found_by_restart_policy(case: Case) -> Outcome {
    case.make("pods", pod("a")).await?;
    let mut never = pod("b");
    never["spec"]["restartPolicy"] = json!("Never");
    case.make("pods", never).await?;
    same!(names(&case.read("pods?fieldSelector=spec.restartPolicy=Always").await?), ["a"]);
    Ok(())
}

async fn secrets_are_found_by_type(case: Case) -> Outcome {
    for (name, kind) in [("a", "Opaque"), ("b", "example.com/other")] {
        case.make("secrets", json!({ "metadata": { "name": name }, "type": kind })).await?;
    }
    same!(names(&case.read("secrets?fieldSelector=type=example.com/other").await?), ["b"]);
    Ok(())
}

fn event(name: &str, regarding: &str, namespace: &str) -> Value {
    json!({
        "metadata": { "name": name },
        "involvedObject": { "kind": "Pod", "namespace": namespace, "name": regarding, "uid": "u" },
        "reason": "Started", "type": "Normal",
    })
}

async fn events_are_found_by_involved_object(case: Case) -> Outcome {
    case.make("events", event("e.1", "a", &case.namespace)).await?;
    case.make("events", event("e.2", "b", &case.namespace)).await?;
    let path =
        "events?fieldSelector=involvedObject.name=b,involvedObject.kind=Pod,type=Normal,reason=Started";
    same!(names(&case.read(path).await?), ["e.2"]);
    Ok(())
}

async fn jobs_are_found_by_successes(case: Case) -> Outcome {
    case.make("batch/v1 jobs", job("a")).await?;
    same!(names(&case.read("batch/v1 jobs?fieldSelector=status.successful=0").await?), ["a"]);
    same!(names(&case.read("batch/v1 jobs?fieldSelector=status.successful=1").await?), Vec::<String>::new());
    Ok(())
}

async fn namespaces_are_found_by_phase(case: Case) -> Outcome {
    let path = "/api/v1/namespaces?fieldSelector=metadata.name={ns},status.phase=Active";
    same!(names(&case.read(path).await?), std::slice::from_ref(&case.namespace));
    Ok(())
}

async fn field_selector_by_an_unknown_field_is_rejected(case: Case) -> Outcome {
    let answer = case.get("configmaps?fieldSelector=data.key=value").await?;
    let message =
        "\"data.key\" is not a known field selector: only \"metadata.name\", \"metadata.namespace\"";
    answer.expect_rejected(400, "BadRequest", message)?;
    let answer = case.get("pods?fieldSelector=spec.foo=value").await?;
    let message = "field label not supported: spec.foo";
    answer.expect_rejected(400, "BadRequest", message)?;
    Ok(())
}

async fn malformed_field_selector_is_rejected(case: Case) -> Outcome {
    let answer = case.get("configmaps?fieldSelector=metadata.name").await?;
    answer.expect_rejected_containing(
        400,
        "BadRequest",
        "invalid selector: 'metadata.name'; can't understand 'metadata.name'",
    )?;
    Ok(())
}

async fn fields_and_labels_must_both_match(case: Case) -> Outcome {
    case.make("configmaps", labeled("a", json!({ "app": "web" }))).await?;
    case.make("configmaps", labeled("b", json!({ "app": "web" }))).await?;
    case.make("configmaps", config_map("c")).await?;
    let path = "configmaps?labelSelector=app=web&fieldSelector=metadata.name!=a";
    same!(names(&case.read(path).await?), ["b"]);
    Ok(())
}
