//! Quota, reviews, events, leases, and other kinds that controllers use.

use serde_json::{Value, json};

use super::objects::{config_map, lease, pod};
use crate::{Behavior, Case, Outcome, behaviors, has, same};

pub(super) const ALL: &[Behavior] = behaviors![
    exhausted_quota_rejects_creates,
    quota_counts_created_objects,
    quota_without_status_rejects_nothing,
    self_subject_access_review_is_answered,
    subject_access_review_is_answered,
    review_without_attributes_is_rejected,
    token_review_of_invalid_token_is_answered,
    self_subject_review_is_answered,
    lease_keeps_microseconds,
    lease_race_has_one_winner,
    event_can_be_counted_up,
    events_v1_event_is_readable_in_core_group,
    node_is_cluster_scoped,
    new_node_has_taint_until_it_is_removed,
    service_account_is_stored,
    priority_class_sets_the_priority_of_its_pods,
    unknown_priority_class_is_rejected,
    immutable_data_cannot_be_changed,
    signing_request_can_be_approved,
    endpoints_and_slices_are_stored,
    controller_revision_data_is_stored,
    persistent_volume_gets_initial_phase,
];

async fn quota(case: &Case, hard: &str) -> anyhow::Result<()> {
    let amounts = json!({ "count/configmaps": hard });
    case.make("resourcequotas", json!({ "metadata": { "name": "q" }, "spec": { "hard": amounts } })).await?;
    let status = json!({ "status": { "hard": amounts, "used": { "count/configmaps": "0" } } });
    case.merge("resourcequotas/q/status", status).await?;
    Ok(())
}

/// Creates numbered ConfigMaps until one is rejected: the real server observes a new quota with a delay.
async fn until_refused(case: &Case) -> anyhow::Result<crate::TestResponse> {
    for number in 0..200 {
        let answer = case.post("configmaps", config_map(&format!("n-{number}"))).await?;
        if answer.status != 201 {
            return Ok(answer);
        }
    }
    anyhow::bail!("never refused")
}

async fn exhausted_quota_rejects_creates(case: Case) -> Outcome {
    quota(&case, "0").await?;
    let answer = until_refused(&case).await?;
    let name = answer.body["details"]["name"].as_str().unwrap_or_default().to_owned();
    let used = case.read("resourcequotas/q").await?["status"]["used"]["count/configmaps"].clone();
    let message = format!(
        "configmaps \"{name}\" is forbidden: exceeded quota: q, requested: count/configmaps=1, used: \
         count/configmaps={}, limited: count/configmaps=0",
        used.as_str().unwrap_or_default()
    );
    let details = answer.expect_rejected(403, "Forbidden", &message)?;
    same!(details, json!({ "name": name, "kind": "configmaps" }));
    Ok(())
}

async fn quota_counts_created_objects(case: Case) -> Outcome {
    quota(&case, "100").await?;
    for number in 0..200 {
        case.post("configmaps", config_map(&format!("n-{number}"))).await?;
        let found = case.read("resourcequotas/q").await?;
        if found["status"]["used"]["count/configmaps"] != "0" {
            return Ok(());
        }
    }
    anyhow::bail!("never counted")
}

async fn quota_without_status_rejects_nothing(case: Case) -> Outcome {
    let amounts = json!({ "count/configmaps": "0" });
    case.make("resourcequotas", json!({ "metadata": { "name": "q" }, "spec": { "hard": amounts } })).await?;
    has!(case.read("resourcequotas/q").await?, { "status": {} });
    Ok(())
}

const REVIEWS: &str = "/apis/authorization.k8s.io/v1";

async fn self_subject_access_review_is_answered(case: Case) -> Outcome {
    let attributes = json!({ "namespace": case.namespace, "verb": "create", "resource": "pods" });
    let wanted = json!({ "apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview",
        "spec": { "resourceAttributes": attributes } });
    let answered = case.make(&format!("{REVIEWS}/selfsubjectaccessreviews"), wanted).await?;
    has!(answered, { "kind": "SelfSubjectAccessReview", "status": { "allowed": true },
        "spec": { "resourceAttributes": { "verb": "create", "resource": "pods" } } });
    Ok(())
}

async fn subject_access_review_is_answered(case: Case) -> Outcome {
    let wanted =
        json!({ "spec": { "user": "somebody", "nonResourceAttributes": { "path": "/x", "verb": "get" } } });
    let answered = case.make(&format!("{REVIEWS}/subjectaccessreviews"), wanted).await?;
    has!(answered, { "kind": "SubjectAccessReview", "spec": { "user": "somebody" } });
    anyhow::ensure!(answered["status"]["allowed"].is_boolean(), "{answered}");
    Ok(())
}

async fn review_without_attributes_is_rejected(case: Case) -> Outcome {
    let answer = case.post(&format!("{REVIEWS}/selfsubjectaccessreviews"), json!({ "spec": {} })).await?;
    let words = "exactly one of nonResourceAttributes or resourceAttributes must be specified";
    answer.expect_rejected_containing(422, "Invalid", words)?;
    Ok(())
}

async fn token_review_of_invalid_token_is_answered(case: Case) -> Outcome {
    let path = "/apis/authentication.k8s.io/v1/tokenreviews";
    let answered = case.make(path, json!({ "spec": { "token": "none" } })).await?;
    same!(answered["status"]["authenticated"], Value::Null);
    Ok(())
}

async fn self_subject_review_is_answered(case: Case) -> Outcome {
    let path = "/apis/authentication.k8s.io/v1/selfsubjectreviews";
    let answered = case.make(path, json!({})).await?;
    anyhow::ensure!(answered["status"]["userInfo"]["username"].is_string(), "{answered}");
    Ok(())
}

async fn lease_keeps_microseconds(case: Case) -> Outcome {
    let mut wanted = lease("a");
    wanted["spec"]["renewTime"] = json!("2026-01-02T03:04:05.678901Z");
    let made = case.make("coordination.k8s.io/v1 leases", wanted).await?;
    same!(made["spec"]["renewTime"], "2026-01-02T03:04:05.678901Z");
    Ok(())
}

async fn lease_race_has_one_winner(case: Case) -> Outcome {
    let made = case.make("coordination.k8s.io/v1 leases", lease("a")).await?;
    let held_by = |who: &str| {
        let mut it = made.clone();
        it["spec"]["holderIdentity"] = json!(who);
        case.put("coordination.k8s.io/v1 leases/a", it)
    };
    let (one, two) = futures_util::future::try_join(held_by("one"), held_by("two")).await?;
    let mut statuses = [one.status, two.status];
    statuses.sort_unstable();
    same!(statuses, [200, 409]);
    Ok(())
}

async fn event_can_be_counted_up(case: Case) -> Outcome {
    let wanted = json!({ "metadata": { "name": "e" }, "reason": "R", "count": 1,
        "involvedObject": { "kind": "Pod", "namespace": case.namespace, "name": "a" } });
    case.make("events", wanted).await?;
    let kind = crate::case::patch::STRATEGIC;
    let counted = case.patch(kind, "events/e", json!({ "count": 2 })).await?.is(200)?;
    same!(counted["count"], 2);
    Ok(())
}

async fn events_v1_event_is_readable_in_core_group(case: Case) -> Outcome {
    let wanted = json!({ "metadata": { "name": "e" }, "eventTime": "2026-01-02T03:04:05.678901Z", "reason": "R",
        "action": "A", "type": "Normal", "note": "text", "reportingController": "example.com/c",
        "reportingInstance": "i", "regarding": { "kind": "Pod", "namespace": case.namespace, "name": "a" } });
    case.make("events.k8s.io/v1 events", wanted).await?;
    has!(case.read("events/e").await?, { "apiVersion": "v1", "message": "text", "reportingComponent": "example.com/c",
        "involvedObject": { "name": "a" } });
    Ok(())
}

async fn node_is_cluster_scoped(case: Case) -> Outcome {
    let name = case.unique("node");
    let made = case.make("/api/v1/nodes", json!({ "metadata": { "name": name } })).await?;
    has!(made["metadata"], { "namespace": null, "name": name });
    case.merge(&format!("/api/v1/nodes/{name}"), json!({ "spec": { "unschedulable": true } })).await?;
    case.delete(&format!("/api/v1/nodes/{name}")).await?.is(200)?;
    Ok(())
}

async fn new_node_has_taint_until_it_is_removed(case: Case) -> Outcome {
    let name = case.unique("node");
    let own = json!({ "key": "dedicated", "effect": "NoSchedule" });
    let added = json!({ "key": "node.kubernetes.io/not-ready", "effect": "NoSchedule" });
    let node = json!({ "metadata": { "name": name }, "spec": { "taints": [own] } });
    same!(case.make("/api/v1/nodes", node).await?["spec"]["taints"], json!([own, added]));
    let path = format!("/api/v1/nodes/{name}");
    let freed = case.merge(&path, json!({ "spec": { "taints": null } })).await?;
    same!(freed["spec"]["taints"], Value::Null);
    case.delete(&path).await?.is(200)?;
    let evicting = json!({ "key": "node.kubernetes.io/not-ready", "effect": "NoExecute" });
    for (taints, stored) in [(json!([added]), json!([added])), (json!([evicting]), json!([evicting, added]))]
    {
        let node = json!({ "metadata": { "name": name }, "spec": { "taints": taints } });
        same!(case.make("/api/v1/nodes", node).await?["spec"]["taints"], stored);
        case.delete(&path).await?.is(200)?;
    }
    Ok(())
}

async fn service_account_is_stored(case: Case) -> Outcome {
    let made = case.make("serviceaccounts", json!({ "metadata": { "name": "a" } })).await?;
    same!(case.read("serviceaccounts/a").await?, made);
    Ok(())
}

async fn priority_class_sets_the_priority_of_its_pods(case: Case) -> Outcome {
    let name = case.unique("class");
    let class = json!({ "metadata": { "name": name }, "value": 7 });
    case.make("/apis/scheduling.k8s.io/v1/priorityclasses", class).await?;
    let mut wanted = pod("a");
    wanted["spec"]["priorityClassName"] = json!(name);
    let made = async {
        loop {
            // The real server uses a cache that can be slightly stale.
            let answer = case.post("pods", wanted.clone()).await?;
            if answer.status == 201 {
                return anyhow::Ok(answer.body);
            }
            tokio::time::sleep(std::time::Duration::from_millis(20)).await;
        }
    };
    let made = tokio::time::timeout(std::time::Duration::from_secs(30), made).await??;
    same!(made["spec"]["priority"], 7);
    case.delete(&format!("/apis/scheduling.k8s.io/v1/priorityclasses/{name}")).await?.is(200)?;
    Ok(())
}

async fn unknown_priority_class_is_rejected(case: Case) -> Outcome {
    let mut wanted = pod("a");
    wanted["spec"]["priorityClassName"] = json!("none");
    let message = "pods \"a\" is forbidden: no PriorityClass with name none was found";
    case.post("pods", wanted).await?.expect_rejected(403, "Forbidden", message)?;
    Ok(())
}

async fn immutable_data_cannot_be_changed(case: Case) -> Outcome {
    let wanted = json!({ "metadata": { "name": "a" }, "immutable": true, "data": { "a": "Yg==" } });
    case.make("secrets", wanted).await?;
    let kind = crate::case::patch::MERGE;
    let answer = case.patch(kind, "secrets/a", json!({ "data": { "a": "Yw==" } })).await?;
    let message = "Secret \"a\" is invalid: data: Forbidden: field is immutable when `immutable` is set";
    answer.expect_rejected(422, "Invalid", message)?;
    let empty = json!({ "metadata": { "name": "b" }, "immutable": true, "data": { "a": "", "b": "2" } });
    case.make("configmaps", empty).await?;
    let answer = case.patch(kind, "configmaps/b", json!({ "data": { "a": null } })).await?;
    let message = "ConfigMap \"b\" is invalid: data: Forbidden: field is immutable when `immutable` is set";
    answer.expect_rejected(422, "Invalid", message)?;
    Ok(())
}

async fn signing_request_can_be_approved(case: Case) -> Outcome {
    let name = case.unique("request");
    let path = format!("/apis/certificates.k8s.io/v1/certificatesigningrequests/{name}");
    let answer = case.get(&format!("{path}/approval")).await?;
    let message = format!("certificatesigningrequests.certificates.k8s.io \"{name}\" not found");
    answer.expect_rejected(404, "NotFound", &message)?;
    Ok(())
}

async fn endpoints_and_slices_are_stored(case: Case) -> Outcome {
    let subsets = json!([{ "addresses": [{ "ip": "10.1.2.3" }], "ports": [{ "port": 80 }] }]);
    let made = case.make("endpoints", json!({ "metadata": { "name": "a" }, "subsets": subsets })).await?;
    same!(made["subsets"][0]["ports"], json!([{ "port": 80, "protocol": "TCP" }]));
    let slice = json!({ "metadata": { "name": "a" }, "addressType": "IPv4", "ports": [],
        "endpoints": [{ "addresses": ["10.1.2.3"], "conditions": { "ready": true } }] });
    let made = case.make("discovery.k8s.io/v1 endpointslices", slice).await?;
    same!(made["endpoints"], json!([{ "addresses": ["10.1.2.3"], "conditions": { "ready": true } }]));
    Ok(())
}

async fn controller_revision_data_is_stored(case: Case) -> Outcome {
    let wanted = json!({ "metadata": { "name": "a" }, "revision": 1, "data": { "spec": { "any": [1, { "x": null }] } } });
    let made = case.make("apps/v1 controllerrevisions", wanted).await?;
    same!(made["data"], json!({ "spec": { "any": [1, { "x": null }] } }));
    let kind = crate::case::patch::MERGE;
    let answer = case.patch(kind, "apps/v1 controllerrevisions/a", json!({ "data": { "y": 1 } })).await?;
    answer.expect_rejected_containing(422, "Invalid", "data: Invalid value")?;
    Ok(())
}

async fn persistent_volume_gets_initial_phase(case: Case) -> Outcome {
    let name = case.unique("volume");
    let wanted = json!({ "metadata": { "name": name }, "spec": { "capacity": { "storage": "1Gi" },
        "accessModes": ["ReadWriteOnce"], "hostPath": { "path": "/x" } } });
    let made = case.make("/api/v1/persistentvolumes", wanted).await?;
    has!(made, { "spec": { "persistentVolumeReclaimPolicy": "Retain", "volumeMode": "Filesystem" },
        "status": { "phase": "Pending" } });
    case.delete(&format!("/api/v1/persistentvolumes/{name}")).await?.is(200)?;
    Ok(())
}
