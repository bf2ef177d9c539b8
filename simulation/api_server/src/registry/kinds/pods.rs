//! Strategy of Pods.

use serde_json::{Value, json};

use super::super::invalid::FieldErrors;
use super::super::writer::WriteTransaction;
use super::super::{convert, meta, names, value};
use super::{Kind, NAMED, pod_spec};
use crate::status::{ResourceName, Status};

/// Default time that pods tolerate an unreachable node.
const TOLERATED_SECONDS: i64 = 300;
const POOR_NODES: [&str; 2] = ["node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"];

/// Strategy of Pods.
pub(super) static PODS: Kind = Kind {
    generation: &[&["spec"]],
    returns_deleted: true,
    grace: Some(grace),
    kept_by_status: &[&["metadata", "deletionTimestamp"], &["metadata", "ownerReferences"]],
    defaults,
    admit,
    prepare_create,
    prepare_status,
    validate,
    validate_update,
    validate_status,
    ..NAMED
};

/// Returns the requested grace period, else that of the pod; zero if no container runs.
fn grace(pod: &Value, asked: Option<i64>) -> i64 {
    let over = matches!(value::text(pod, &["status", "phase"]), "Succeeded" | "Failed");
    if over || value::text(pod, &["spec", "nodeName"]).is_empty() {
        return 0;
    }
    let own = value::integer(pod, &["spec", "terminationGracePeriodSeconds"]).unwrap_or_default();
    let period = asked.unwrap_or(own);
    if period < 0 { 1 } else { period }
}

fn defaults(pod: &mut Value) {
    let spec = value::place(pod, &["spec"]);
    pod_spec::defaults(spec);
    pod_spec::pod_defaults(spec);
}

fn admit(transaction: &mut WriteTransaction<'_>, pod: &mut Value) -> Result<(), Status> {
    if value::text(pod, &["spec", "serviceAccountName"]).is_empty() {
        value::set(pod, &["spec", "serviceAccountName"], "default");
        value::set(pod, &["spec", "serviceAccount"], "default");
    }
    tolerate_poor_nodes(pod);
    prioritise(transaction, pod)
}

fn tolerate_poor_nodes(pod: &mut Value) {
    let found = value::items(pod, &["spec", "tolerations"]).to_vec();
    let tolerates = |key: &str| {
        found.iter().any(|it| {
            let (of, effect) = (value::text(it, &["key"]), value::text(it, &["effect"]));
            (of == key || of.is_empty()) && matches!(effect, "NoExecute" | "")
        })
    };
    let mut tolerations = found.clone();
    for key in POOR_NODES.into_iter().filter(|key| !tolerates(key)) {
        let (operator, effect) = ("Exists", "NoExecute");
        tolerations.push(json!({
            "key": key,
            "operator": operator,
            "effect": effect,
            "tolerationSeconds": TOLERATED_SECONDS,
        }));
    }
    if tolerations.len() != found.len() {
        value::set(pod, &["spec", "tolerations"], tolerations);
    }
}

/// Resolves the name of a priority class to its value.
fn prioritise(transaction: &mut WriteTransaction<'_>, pod: &mut Value) -> Result<(), Status> {
    let Some(classes) =
        transaction.served.catalog.resource("scheduling.k8s.io", "v1", "priorityclasses").cloned()
    else {
        return Ok(());
    };
    let collection = convert::collection(&classes);
    let name = value::text(pod, &["spec", "priorityClassName"]).to_owned();
    let class = if name.is_empty() {
        let usual = |it: &std::sync::Arc<crate::storage::Stored>| value::flag(&it.value, &["globalDefault"]);
        transaction.all(&collection, "").into_iter().find(usual)
    } else {
        transaction.find(&collection, "", &name)
    };
    let refuse = |why: &str| {
        let shown = [&["metadata", "name"], &["metadata", "generateName"]].map(|it| value::text(pod, it));
        let shown = shown.into_iter().find(|it| !it.is_empty()).unwrap_or("Unknown");
        Err(Status::forbidden(ResourceName { group: "", resource: "pods" }, shown, why))
    };
    if class.is_none() && !name.is_empty() {
        return refuse(&format!("no PriorityClass with name {name} was found"));
    }
    let class = class.as_deref().map_or(&Value::Null, |it| &it.value);
    let priority = value::integer(class, &["value"]).unwrap_or_default();
    if let Some(given) = value::integer(pod, &["spec", "priority"]).filter(|it| *it != priority) {
        return refuse(&format!(
            "the integer value of priority ({given}) must not be provided in pod spec; priority admission controller \
             computed {priority} from the given PriorityClass name"
        ));
    }
    let preemption = match value::text(class, &["preemptionPolicy"]) {
        "" => "PreemptLowerPriority",
        policy => policy,
    };
    value::set(pod, &["spec", "priority"], priority);
    value::default(pod, &["spec", "preemptionPolicy"], preemption);
    if name.is_empty() && !class.is_null() {
        value::keep(
            pod,
            &json!({"spec": {"priorityClassName": class["metadata"]["name"]}}),
            &["spec", "priorityClassName"],
        );
    }
    Ok(())
}

fn prepare_create(transaction: &mut WriteTransaction<'_>, pod: &mut Value) -> Result<(), Status> {
    let quality = pod_spec::quality(value::at(pod, &["spec"]));
    value::set(pod, &["status"], json!({"phase": "Pending", "qosClass": quality}));
    if !value::is_empty(pod, &["spec", "schedulingGates"]) {
        let condition = json!({
            "type": "PodScheduled",
            "status": "False",
            "reason": "SchedulingGated",
            "message": "Scheduling is blocked due to non-empty scheduling gates",
            "lastProbeTime": null,
            "lastTransitionTime": transaction.now(),
        });
        value::set(pod, &["status", "conditions"], json!([condition]));
    }
    Ok(())
}

fn prepare_status(pod: &mut Value, old: &Value, _now: &str) {
    for field in ["qosClass", "observedGeneration"] {
        if !value::has(pod, &["status", field]) {
            value::keep(pod, old, &["status", field]);
        }
    }
}

fn validate(pod: &Value, errors: &mut FieldErrors) {
    pod_spec::validate(value::at(pod, &["spec"]), "spec", errors);
}

fn validate_update(pod: &Value, old: &Value, errors: &mut FieldErrors) {
    meta::validate(pod, true, names::subdomain_name, errors);
    validate(pod, errors);
    let (new, old) = (value::at(pod, &["spec"]), value::at(old, &["spec"]));
    for list in ["containers", "initContainers"] {
        let (new, old) = (value::items(new, &[list]), value::items(old, &[list]));
        if new.len() != old.len() {
            errors.forbidden(format!("spec.{list}"), "pod updates may not add or remove containers");
            return;
        }
        for (index, container) in new.iter().enumerate() {
            if value::text(container, &["image"]).trim().is_empty() {
                errors.required(format!("spec.{list}[{index}].image"), "");
            }
        }
    }
    if !deadline_shrinks(new, old, errors) {
        return;
    }
    only_added(new, old, errors);
    let gates = |it: &Value| value::items(it, &["schedulingGates"]).to_vec();
    if gates(new).iter().any(|it| !gates(old).contains(it)) {
        let detail = "only deletion is allowed, but found new scheduling gate";
        errors.forbidden("spec.schedulingGates", detail);
    }
    if !value::same(&with_mutable_parts_of(new, old), old) {
        let detail = "pod updates may not change fields other than `spec.containers[*].image`,\
                      `spec.initContainers[*].image`,`spec.activeDeadlineSeconds`,`spec.tolerations` (only additions \
                      to existing tolerations),`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was \
                      previously negative)\n";
        errors.forbidden("spec", detail);
    }
}

fn deadline_shrinks(new: &Value, old: &Value, errors: &mut FieldErrors) -> bool {
    let deadline = |it: &Value| value::integer(it, &["activeDeadlineSeconds"]);
    match (deadline(new), deadline(old)) {
        (Some(new), _) if !(0..=i64::from(i32::MAX)).contains(&new) => {
            errors.invalid("spec.activeDeadlineSeconds", new, "must be between 0 and 2147483647, inclusive");
            false
        }
        (Some(new), Some(old)) if old < new => {
            errors.invalid("spec.activeDeadlineSeconds", new, "must be less than or equal to previous value");
            false
        }
        (None, Some(_)) => {
            let detail = "must not update from a positive integer to nil value";
            errors.invalid("spec.activeDeadlineSeconds", Value::Null, detail);
            true
        }
        _ => true,
    }
}

fn only_added(new: &Value, old: &Value, errors: &mut FieldErrors) {
    let new = value::items(new, &["tolerations"]);
    let bare = |it: &Value| {
        let mut it = it.clone();
        value::remove(&mut it, &["tolerationSeconds"]);
        it
    };
    let kept = |old: &Value| new.iter().any(|new| bare(new) == bare(old));
    if value::items(old, &["tolerations"]).iter().any(|old| !kept(old)) {
        let detail = "existing toleration can not be modified except its tolerationSeconds";
        errors.forbidden("spec.tolerations", detail);
    }
}

/// Returns the new spec with its mutable fields reset to their old values.
fn with_mutable_parts_of(new: &Value, old: &Value) -> Value {
    let mut munged = new.clone();
    for list in ["containers", "initContainers"] {
        let old = value::items(old, &[list]);
        for (container, old) in value::items_mut(&mut munged, &[list]).into_iter().flatten().zip(old) {
            value::keep(container, old, &["image"]);
        }
    }
    for field in ["activeDeadlineSeconds", "schedulingGates", "tolerations"] {
        value::keep(&mut munged, old, &[field]);
    }
    let grace = |it: &Value| value::integer(it, &["terminationGracePeriodSeconds"]);
    if grace(old).is_some_and(|it| it < 0) && grace(new) == Some(1) {
        value::keep(&mut munged, old, &["terminationGracePeriodSeconds"]);
    }
    if !value::is_empty(old, &["schedulingGates"]) {
        value::keep(&mut munged, old, &["nodeSelector"]);
        value::keep(&mut munged, old, &["affinity", "nodeAffinity"]);
    }
    munged
}

fn validate_status(pod: &Value, old: &Value, errors: &mut FieldErrors) {
    if value::text(pod, &["spec", "restartPolicy"]) == "Always" {
        return;
    }
    let terminated = |it: &Value| value::has(it, &["state", "terminated"]);
    for (index, before) in value::items(old, &["status", "containerStatuses"]).iter().enumerate() {
        let code = value::integer(before, &["state", "terminated", "exitCode"]).unwrap_or_default();
        let retried = value::text(pod, &["spec", "restartPolicy"]) == "OnFailure" && code != 0;
        let name = value::text(before, &["name"]);
        let after = value::items(pod, &["status", "containerStatuses"])
            .iter()
            .find(|it| value::text(it, &["name"]) == name);
        if terminated(before) && !retried && after.is_some_and(|it| !terminated(it)) {
            let field = format!("status.containerStatuses[{index}].state");
            errors.forbidden(field, "may not be transitioned to non-terminated state");
        }
    }
}
