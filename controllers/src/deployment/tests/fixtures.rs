//! Builders of Deployments and ReplicaSets.

use std::collections::BTreeSet;

use k8s_openapi::api::apps::v1::{Deployment, ReplicaSet};
use serde_json::{Value, json};

use super::super::plan::{Observed, Plan, Planner, Step, plan};
use super::super::spec::{name, size};
use super::super::status::TerminatingMode;
use crate::shared::fixtures::at;

/// Returns a rolling Deployment with this surge and number of unavailable pods.
pub(super) fn rolling(replicas: i32, surge: impl Into<Value>, unavailable: impl Into<Value>) -> Deployment {
    let limits = json!({ "maxSurge": surge.into(), "maxUnavailable": unavailable.into() });
    changed(
        &deployment(replicas),
        json!({ "spec": { "strategy": { "type": "RollingUpdate", "rollingUpdate": limits } } }),
    )
}

/// Returns a Deployment that recreates its pods.
pub(super) fn recreating(replicas: i32) -> Deployment {
    changed(&deployment(replicas), json!({ "spec": { "strategy": { "type": "Recreate" } } }))
}

fn deployment(replicas: i32) -> Deployment {
    object(json!({
        "metadata": { "namespace": "shop", "name": "web", "uid": "uid-web", "generation": 1 },
        "spec": {
            "replicas": replicas, "selector": { "matchLabels": { "app": "web" } }, "template": template("new"),
        },
    }))
}

/// Returns a pod template with this image.
pub(super) fn template(image: &str) -> Value {
    json!({
        "metadata": { "labels": { "app": "web" } },
        "spec": { "containers": [{ "name": "main", "image": image }] },
    })
}

/// Returns a ReplicaSet with this image that was created `age` seconds after the origin.
pub(super) fn set(name: &str, image: &str, replicas: i32, age: i64) -> ReplicaSet {
    object(json!({
        "metadata": {
            "namespace": "shop", "name": name, "uid": format!("uid-{name}"), "creationTimestamp": at(age).to_string(),
            "generation": 1,
        },
        "spec": {
            "replicas": replicas, "selector": { "matchLabels": { "app": "web" } }, "template": template(image),
        },
        "status": { "replicas": replicas, "observedGeneration": 1 },
    }))
}

/// Returns a ReplicaSet with this number of available pods.
pub(super) fn with_available(set: ReplicaSet, available: i32) -> ReplicaSet {
    changed(&set, json!({ "status": { "availableReplicas": available, "readyReplicas": available } }))
}

/// Returns a ReplicaSet with an annotation.
pub(super) fn annotated(set: &ReplicaSet, key: &str, value: &str) -> ReplicaSet {
    changed(set, json!({ "metadata": { "annotations": { key: value } } }))
}

/// Returns an object with the fields of `change`.
pub(super) fn changed<K: serde::Serialize + serde::de::DeserializeOwned>(object: &K, change: Value) -> K {
    let mut value = serde_json::to_value(object).expect("an object");
    merge(&mut value, change);
    self::object(value)
}

fn merge(value: &mut Value, change: Value) {
    match (value, change) {
        (Value::Object(members), Value::Object(changes)) => {
            for (key, change) in changes {
                merge(members.entry(key).or_insert(Value::Null), change);
            }
        }
        (value, change) => *value = change,
    }
}

fn object<K: serde::de::DeserializeOwned>(value: Value) -> K {
    serde_json::from_value(value).expect("a valid object")
}

pub(super) fn observed(deployment: &Deployment, sets: &[ReplicaSet]) -> Observed {
    Observed {
        deployment: deployment.clone(),
        sets: sets.to_vec(),
        running: BTreeSet::new(),
        terminating: TerminatingMode::Reported,
        now: at(1000),
    }
}

pub(super) fn planner(deployment: &Deployment, sets: &[ReplicaSet]) -> Planner {
    Planner::new(observed(deployment, sets))
}

pub(super) fn planned(deployment: &Deployment, sets: &[ReplicaSet]) -> Plan {
    plan(observed(deployment, sets)).expect("a plan")
}

/// Returns the size of the ReplicaSet with this name.
pub(super) fn size_of(planner: &Planner, wanted: &str) -> i32 {
    planner.sets.iter().find(|set| name(set) == wanted).map(size).expect("a ReplicaSet")
}

/// Returns the steps as text.
pub(super) fn steps(plan: &Plan) -> Vec<String> {
    let text = |step: &Step| match step {
        Step::Create(set) => format!("create {}", size(set)),
        Step::Update { set, resized, .. } if resized.is_empty() => format!("annotate {}", name(set)),
        Step::Update { set, resized, .. } => {
            let sizes: Vec<_> = resized.iter().map(|change| change.to.to_string()).collect();
            format!("scale {} {}->{}", name(set), resized[0].from, sizes.join("->"))
        }
        Step::Delete(set) => format!("delete {}", name(set)),
        Step::WriteStatus(_) => "status".to_owned(),
        Step::RollBack { .. } => "roll back".to_owned(),
        Step::Record(event) => format!("event {}", event.reason),
    };
    plan.steps.iter().map(text).collect()
}
