//! Strategy of Pods.

use serde_json::{Value, json};

use super::super::internal;
use super::super::invalid::FieldErrors;
use super::super::writer::WriteTransaction;
use super::super::{convert, meta, names, value};
use super::service_accounts::{self, Refusal};
use super::{Kind, NAMED, addresses, pod_spec};
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
    prepare_update: |_, pod, old| {
        for field in ["priority", "preemptionPolicy"] {
            if !value::has(pod, &["spec", field]) {
                value::keep(pod, old, &["spec", field]);
            }
        }
        tolerate_poor_nodes(pod);
        Ok(())
    },
    prepare_status,
    validate,
    validate_update,
    validate_status,
    warnings,
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
    addresses_together(pod);
}

/// Sets the address and the list of addresses together, for clients that know only one of the fields. The address
/// decides.
fn addresses_together(pod: &mut Value) {
    let one = value::text(pod, &["status", "podIP"]).to_owned();
    let first = value::items(pod, &["status", "podIPs"]).first();
    let first = first.map(|it| value::text(it, &["ip"]).to_owned()).unwrap_or_default();
    if one.is_empty() && !first.is_empty() {
        value::set(pod, &["status", "podIP"], first);
    } else if one != first {
        value::set(pod, &["status", "podIPs"], json!([{ "ip": one }]));
    }
}

fn admit(transaction: &mut WriteTransaction<'_>, pod: &mut Value) -> Result<(), Status> {
    if transaction.admits_by_account {
        service_accounts::admit(transaction, pod).map_err(|refusal| match refusal {
            Refusal::Forbidden(why) => refused(pod, &why),
            Refusal::Failed(status) => status,
        })?;
    } else {
        service_accounts::set_default(pod);
    }
    tolerate_poor_nodes(pod);
    prioritise(transaction, pod)?;
    follow_runtime_class(transaction, pod)
}

fn refused(pod: &Value, why: &str) -> Status {
    let shown = [&["metadata", "name"], &["metadata", "generateName"]].map(|it| value::text(pod, it));
    let shown = shown.into_iter().find(|it| !it.is_empty()).unwrap_or("Unknown");
    Status::forbidden(ResourceName { group: "", resource: "pods" }, shown, why)
}

/// Sets the overhead and the place of a pod as its runtime class requires.
fn follow_runtime_class(transaction: &mut WriteTransaction<'_>, pod: &mut Value) -> Result<(), Status> {
    let name = value::at(pod, &["spec", "runtimeClassName"]).as_str().map(str::to_owned);
    let own = value::at(pod, &["spec", "overhead"]).clone();
    let Some(name) = name else {
        if !value::is_empty(pod, &["spec", "overhead"]) {
            let why = "pod rejected: Pod Overhead set without corresponding RuntimeClass defined Overhead";
            return Err(refused(pod, why));
        }
        return Ok(());
    };
    let classes = convert::collection(&*transaction.built_in("node.k8s.io", "v1", "runtimeclasses")?);
    let Some(class) = transaction.find(&classes, "", &name) else {
        return Err(refused(pod, &format!("pod rejected: RuntimeClass {name:?} not found")));
    };
    let overhead = value::at(&class.value, &["overhead", "podFixed"]);
    match (overhead.is_object(), value::is_empty(pod, &["spec", "overhead"])) {
        (true, false) if *overhead != own => {
            let why = "pod rejected: Pod's Overhead doesn't match RuntimeClass's defined Overhead";
            return Err(refused(pod, why));
        }
        (true, _) => value::set(pod, &["spec", "overhead"], overhead.clone()),
        (false, false) => {
            let why = "pod rejected: Pod Overhead set without corresponding RuntimeClass defined Overhead";
            return Err(refused(pod, why));
        }
        (false, true) => {}
    }
    for (label, wanted) in value::entries(&class.value, &["scheduling", "nodeSelector"]) {
        let given = value::at(pod, &["spec", "nodeSelector", label]);
        if !given.is_null() && given != wanted {
            let field = format!("scheduling.nodeSelector[{label}] = {}", shown(wanted));
            let own = format!("pod.spec.nodeSelector[{label}] = {}", shown(given));
            return Err(refused(pod, &format!("conflict: runtimeClass.{field}; {own}")));
        }
        value::set(pod, &["spec", "nodeSelector", label], wanted.clone());
    }
    let known = value::items(pod, &["spec", "tolerations"]).to_vec();
    let more = value::items(&class.value, &["scheduling", "tolerations"]).iter();
    let more: Vec<_> = more.filter(|it| !known.contains(it)).cloned().collect();
    if !more.is_empty() {
        value::set(pod, &["spec", "tolerations"], [known, more].concat());
    }
    Ok(())
}

fn shown(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
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
    let refuse = |why: &str| Err(refused(pod, why));
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
    let given = value::text(pod, &["spec", "preemptionPolicy"]);
    if !given.is_empty() && given != preemption {
        return refuse(&format!(
            "the string value of PreemptionPolicy ({given}) must not be provided in pod spec; priority admission \
             controller computed {preemption} from the given PriorityClass name"
        ));
    }
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
    pod_spec::validate(pod, errors);
    unnamed_account(pod, errors);
    if !value::is_empty(pod, &["spec", "ephemeralContainers"]) {
        errors.forbidden("spec.ephemeralContainers", "cannot be set on create");
    }
    let assigned = !value::text(pod, &["spec", "nodeName"]).is_empty();
    if assigned && !value::is_empty(pod, &["spec", "schedulingGates"]) {
        errors.forbidden("spec.nodeName", "cannot be set until all schedulingGates have been cleared");
    }
}

/// Rejects projected tokens of a pod without a ServiceAccount.
fn unnamed_account(pod: &Value, errors: &mut FieldErrors) {
    if !value::text(pod, &["spec", "serviceAccountName"]).is_empty() {
        return;
    }
    for (index, volume) in value::items(pod, &["spec", "volumes"]).iter().enumerate() {
        for (position, source) in value::items(volume, &["projected", "sources"]).iter().enumerate() {
            if value::has(source, &["serviceAccountToken"]) {
                let field =
                    format!("spec.volumes[{index}].projected.sources[{position}].serviceAccountToken");
                errors.forbidden(field, "must not be specified when serviceAccountName is not set");
            }
        }
    }
}

fn warnings(pod: &Value, old: Option<&Value>) -> Vec<String> {
    if old.is_some() {
        return Vec::new();
    }
    let mut found = super::warnings::of_name(pod, "the Pod's hostname");
    found.extend(super::warnings::of_template(pod, ""));
    found
}

fn validate_update(pod: &Value, old: &Value, errors: &mut FieldErrors) {
    meta::validate_built_in(pod, true, names::subdomain_name, errors);
    pod_spec::validate(pod, errors);
    let (new, old) = (value::at(pod, &["spec"]), value::at(old, &["spec"]));
    for list in ["containers", "initContainers"] {
        let (new, old) = (value::items(new, &[list]), value::items(old, &[list]));
        if new.len() != old.len() {
            errors.forbidden(format!("spec.{list}"), "pod updates may not add or remove containers");
            return;
        }
        for (index, container) in new.iter().enumerate() {
            let (field, image) = (format!("spec.{list}[{index}].image"), value::text(container, &["image"]));
            if image.is_empty() {
                errors.required(field.clone(), "");
            }
            if image.trim() != image {
                errors.invalid(field, image, "must not have leading or trailing whitespace");
            }
        }
    }
    if !deadline_shrinks(new, old, errors) {
        return;
    }
    only_added(new, old, errors);
    let gates = |it: &Value| -> Vec<String> {
        value::items(it, &["schedulingGates"])
            .iter()
            .map(|it| value::text(it, &["name"]).to_owned())
            .collect()
    };
    let (after, before) = (gates(new), gates(old));
    // Upstream reports only the last of several equal gates.
    let is_new =
        |(index, gate): &(usize, &String)| !before.contains(gate) && !after[index + 1..].contains(gate);
    for (index, gate) in after.iter().enumerate().filter(is_new) {
        let detail = format!("only deletion is allowed, but found new scheduling gate '{gate}'");
        errors.forbidden(format!("spec.schedulingGates[{index}].name"), &detail);
    }
    let munged = with_mutable_parts_of(new, old);
    if !value::same(&munged, old) {
        let detail = "pod updates may not change fields other than `spec.containers[*].image`,\
                      `spec.initContainers[*].image`,`spec.activeDeadlineSeconds`,`spec.tolerations` (only additions \
                      to existing tolerations),`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was \
                      previously negative)\n";
        let difference = internal::difference(internal::POD_SPEC, old, &munged);
        errors.forbidden("spec", &(detail.to_owned() + &difference));
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

fn only_added(spec: &Value, old: &Value, errors: &mut FieldErrors) {
    let new = value::items(spec, &["tolerations"]);
    let bare = |it: &Value| {
        let mut it = it.clone();
        value::remove(&mut it, &["tolerationSeconds"]);
        it
    };
    let kept = |old: &Value| new.iter().any(|new| bare(new) == bare(old));
    if value::items(old, &["tolerations"]).iter().any(|old| !kept(old)) {
        let detail = "existing toleration can not be modified except its tolerationSeconds";
        errors.forbidden("spec.tolerations", detail);
        return;
    }
    pod_spec::scheduling::tolerations(spec, "spec", errors);
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
    for (index, condition) in value::items(pod, &["status", "conditions"]).iter().enumerate() {
        let path = format!("status.conditions[{index}]");
        let generation = value::integer(condition, &["observedGeneration"]);
        if let Some(generation) = generation.filter(|it| *it < 0) {
            let field = format!("{path}.observedGeneration");
            errors.invalid(field, generation, "must be a non-negative integer");
        }
        let kind = value::text(condition, &["type"]);
        if !matches!(kind, "PodScheduled" | "Ready" | "Initialized") {
            errors.each(&format!("{path}.Type"), kind, names::qualified(kind));
        }
    }
    let generation = value::integer(pod, &["status", "observedGeneration"]);
    if let Some(generation) = generation.filter(|it| *it < 0) {
        errors.invalid("status.observedGeneration", generation, "must be a non-negative integer");
    }
    let quality = |it: &Value| value::at(it, &["status", "qosClass"]).clone();
    errors.immutable("status.qosClass", &quality(pod), &quality(old));
    transitions(pod, old, errors);
    for list in ["podIPs", "hostIPs"] {
        status_addresses(pod, old, list, errors);
    }
}

fn status_addresses(pod: &Value, old: &Value, list: &str, errors: &mut FieldErrors) {
    let of = |it: &Value| -> Vec<String> {
        value::items(it, &["status", list]).iter().map(|it| value::text(it, &["ip"]).to_owned()).collect()
    };
    let (all, known, field) = (of(pod), of(old), format!("status.{list}"));
    if let Some(first) =
        all.first().filter(|it| list == "hostIPs" && *it != value::text(pod, &["status", "hostIP"]))
    {
        errors.invalid(format!("{field}[0].ip"), first.as_str(), "must be equal to `hostIP`");
    }
    for (index, address) in all.iter().enumerate().filter(|it| !known.contains(it.1)) {
        addresses::validate(address, &format!("{field}[{index}]"), errors);
    }
    let sixes = all.iter().filter(|it| it.contains(':')).count();
    if all.len() > 1 && (sixes == 0 || sixes == all.len() || all.len() > 2) {
        let shown: Vec<_> = all.iter().map(|it| json!({"IP": it})).collect();
        errors.invalid(field, json!(shown), "may specify no more than one IP for each IP family");
    }
}

/// Rejects terminated containers that run again although nothing restarts them.
fn transitions(pod: &Value, old: &Value, errors: &mut FieldErrors) {
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
