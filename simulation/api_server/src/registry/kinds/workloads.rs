//! Strategies of workloads whose pods run continuously, and of their revisions and templates.

use serde_json::{Value, json};

use super::super::internal;
use super::super::invalid::FieldErrors;
use super::super::{labels, meta, names, value};
use super::{Dependents, Kind, MetadataOrder, NAMED, intervals, join, not_negative, pod_spec, warnings};

/// Strategy of ReplicaSets.
pub(super) static REPLICA_SETS: Kind = Kind {
    generation: &[&["spec"]],
    defaults: |object| {
        value::default(object, &["spec", "replicas"], 1);
        pod_spec::template_defaults(object, &["spec", "template", "spec"]);
    },
    validate: replica_set,
    validate_update: |new, old, errors| {
        replica_set(new, errors);
        keeps_selector(new, old, errors);
    },
    validate_status: |new, _, errors| counted_replicas(new, errors),
    warnings: warnings::of_workload,
    ..NAMED
};

/// Strategy of ReplicationControllers.
pub(super) static REPLICATION_CONTROLLERS: Kind = Kind {
    name: names::declared_subdomain_name,
    generation: &[&["spec"]],
    dependents: Dependents::Orphan,
    defaults: replication_controller_defaults,
    validate: replication_controller,
    validate_update: |new, _, errors| replication_controller(new, errors),
    validate_status: |new, _, errors| counted_replicas(new, errors),
    warnings: |object, old| {
        let of_old =
            |old: &Value| warnings::of_template(value::at(old, &["spec", "template"]), "spec.template");
        match old {
            // Upstream confuses the old and the new state here.
            Some(old) if warnings::has_changed(object, old) => of_old(old),
            Some(_) => Vec::new(),
            None => warnings::of_workload(object, None),
        }
    },
    ..NAMED
};

/// Strategy of Deployments.
pub(super) static DEPLOYMENTS: Kind = Kind {
    // Annotations count, because they are copied to ReplicaSets.
    generation: &[&["spec"], &["metadata", "annotations"]],
    kept_by_status: &[&["metadata", "labels"]],
    defaults: deployment_defaults,
    validate: deployment,
    validate_update: |new, old, errors| {
        deployment(new, errors);
        keeps_selector(new, old, errors);
    },
    validate_status: deployment_status,
    warnings: warnings::of_workload,
    ..NAMED
};

/// The generation of a DaemonSet's template. The server stores it as a field that only this annotation shows.
const TEMPLATE_GENERATION: &[&str] = &["metadata", "annotations", "deprecated.daemonset.template.generation"];

/// Strategy of DaemonSets.
pub(super) static DAEMON_SETS: Kind = Kind {
    generation: &[&["spec"]],
    kept_by_status: &[TEMPLATE_GENERATION],
    defaults: daemon_set_defaults,
    prepare_create: |_, object| {
        let generation = template_generation(object).max(1);
        value::set(object, TEMPLATE_GENERATION, generation.to_string());
        Ok(())
    },
    prepare_update: |_, new, old| {
        let is_changed = !value::same_at(new, old, &["spec", "template"]);
        let generation = template_generation(old) + i64::from(is_changed);
        value::set(new, TEMPLATE_GENERATION, generation.to_string());
        Ok(())
    },
    warnings: |object, old| match old {
        Some(old) if value::text(object, TEMPLATE_GENERATION) == value::text(old, TEMPLATE_GENERATION) => {
            Vec::new()
        }
        _ => warnings::of_template(value::at(object, &["spec", "template"]), "spec.template"),
    },
    validate: daemon_set,
    validate_update: |new, old, errors| {
        keeps_selector(new, old, errors);
        daemon_set(new, errors);
    },
    validate_status: |new, old, errors| {
        let fields = [
            "currentNumberScheduled",
            "numberMisscheduled",
            "desiredNumberScheduled",
            "numberReady",
            "observedGeneration",
            "updatedNumberScheduled",
            "numberAvailable",
            "numberUnavailable",
            "collisionCount",
        ];
        not_negative(&new["status"], "status", &fields, errors);
        collisions(new, old, errors);
    },
    ..NAMED
};

/// A field of StatefulSets that upstream drops, because its feature gate is off.
const MAX_UNAVAILABLE: [&str; 4] = ["spec", "updateStrategy", "rollingUpdate", "maxUnavailable"];

/// Strategy of StatefulSets.
pub(super) static STATEFUL_SETS: Kind = Kind {
    name: names::label_name,
    generation: &[&["spec"]],
    defaults: stateful_set_defaults,
    validate: stateful_set,
    metadata_of_status: MetadataOrder::ByKind,
    prepare_create: |_, object| {
        value::remove(object, &MAX_UNAVAILABLE);
        Ok(())
    },
    prepare_update: |_, object, old| {
        if !value::has(old, &MAX_UNAVAILABLE) {
            value::remove(object, &MAX_UNAVAILABLE);
        }
        Ok(())
    },
    warnings: |object, old| {
        let spec = value::at(object, &["spec"]);
        let mut warnings = match old {
            Some(old) if !warnings::has_changed(object, old) => Vec::new(),
            _ => warnings::of_template(value::at(spec, &["template"]), "spec.template"),
        };
        for (index, claim) in value::items(spec, &["volumeClaimTemplates"]).iter().enumerate() {
            let part = if old.is_some() { ".Spec" } else { "" };
            let path = format!("spec.volumeClaimTemplates[{index}]{part}");
            warnings.extend(super::volumes::warnings(value::at(claim, &["spec"]), &path));
        }
        if value::integer(spec, &["revisionHistoryLimit"]).is_some_and(|it| it < 0) {
            let text = "a negative value retains all historical revisions; a value >= 0 is recommended";
            warnings.push(format!("spec.revisionHistoryLimit: {text}"));
        }
        warnings
    },
    validate_update: stateful_set_update,
    validate_status: stateful_set_status,
    ..NAMED
};

/// Strategy of ControllerRevisions.
pub(super) static CONTROLLER_REVISIONS: Kind = Kind {
    validate: |object, errors| {
        not_negative(object, "", &["revision"], errors);
        match value::at(object, &["data"]) {
            Value::Null => errors.required("data", "data is mandatory"),
            Value::Object(_) => {}
            _ => errors.required("data", "data must be a valid JSON object"),
        }
    },
    validate_update: |new, old, errors| {
        meta::validate_built_in(new, true, names::subdomain_name, errors);
        not_negative(new, "", &["revision"], errors);
        // Upstream compares the bytes: an empty object and an empty list differ.
        if new["data"] != old["data"] {
            errors.invalid("data", new["data"].clone(), "field is immutable");
        }
    },
    ..NAMED
};

/// Strategy of PodTemplates.
pub(super) static POD_TEMPLATES: Kind = Kind {
    generation: &[&["template"]],
    returns_deleted: true,
    defaults: |object| pod_spec::template_defaults(object, &["template", "spec"]),
    validate: |object, errors| pod_spec::validate_template(&object["template"], "template", errors),
    validate_update: |new, _, errors| pod_spec::validate_template(&new["template"], "template", errors),
    ..NAMED
};

fn replica_set(object: &Value, errors: &mut FieldErrors) {
    let spec = value::at(object, &["spec"]);
    not_negative(spec, "spec", &["replicas", "minReadySeconds"], errors);
    selector(spec, "deployment", errors);
    template(spec, "ReplicaSet", errors);
}

/// Validates the selector of a workload.
fn selector(spec: &Value, kind: &str, errors: &mut FieldErrors) {
    let found = value::at(spec, &["selector"]);
    if found.is_null() {
        errors.required("spec.selector", "");
        return;
    }
    labels::validate(found, "spec.selector", errors);
    if labels::is_empty(found) {
        errors.invalid_json(
            "spec.selector",
            &internal::text(internal::SELECTOR, found),
            &format!("empty selector is invalid for {kind}"),
        );
    }
}

/// Rejects a change of the selector.
pub(super) fn keeps_selector(new: &Value, old: &Value, errors: &mut FieldErrors) {
    let (new, old) = (value::at(new, &["spec", "selector"]), value::at(old, &["spec", "selector"]));
    if !value::same(new, old) {
        let shown = internal::text("*v1.LabelSelector", new);
        errors.invalid_json("spec.selector", &shown, "field is immutable");
    }
}

/// Validates that the selector selects the labels of the template.
fn selects_template(wanted: &Value, template: &Value, errors: &mut FieldErrors) {
    let carried = value::at(template, &["metadata", "labels"]);
    let selects_all = !wanted.is_null() && labels::is_empty(wanted);
    if !selects_all && !labels::matches(wanted, carried) {
        mismatch(carried, errors);
    }
}

/// Validates the pod template of a workload whose pods run continuously.
fn template(spec: &Value, kind: &str, errors: &mut FieldErrors) {
    let (found, wanted) = (value::at(spec, &["template"]), value::at(spec, &["selector"]));
    if !labels::parses(wanted) {
        let shown = internal::text("*v1.LabelSelector", wanted);
        errors.invalid_json("spec.selector", &shown, "invalid label selector");
        return;
    }
    selects_template(wanted, found, errors);
    pod_spec::validate_template(found, "spec.template", errors);
    runs_for_good(found, kind, errors);
}

fn mismatch(carried: &Value, errors: &mut FieldErrors) {
    let detail = "`selector` does not match template `labels`";
    errors.invalid("spec.template.metadata.labels", carried.clone(), detail);
}

fn runs_for_good(template: &Value, kind: &str, errors: &mut FieldErrors) {
    let policy = value::text(template, &["spec", "restartPolicy"]);
    if policy != "Always" {
        errors.not_supported("spec.template.spec.restartPolicy", policy, &["Always"]);
    }
    if value::has(template, &["spec", "activeDeadlineSeconds"]) {
        let detail = format!("activeDeadlineSeconds in {kind} is not Supported");
        errors.forbidden("spec.template.spec.activeDeadlineSeconds", &detail);
    }
}

fn counted_replicas(object: &Value, errors: &mut FieldErrors) {
    let status = value::at(object, &["status"]);
    let fields = [
        "replicas",
        "fullyLabeledReplicas",
        "readyReplicas",
        "availableReplicas",
        "observedGeneration",
        "terminatingReplicas",
    ];
    not_negative(status, "status", &fields, errors);
    no_more_than(status, &["fullyLabeledReplicas", "readyReplicas", "availableReplicas"], errors);
    not_more_available(status, errors);
}

fn not_more_available(status: &Value, errors: &mut FieldErrors) {
    let count = |field: &str| value::integer(status, &[field]).unwrap_or_default();
    if count("availableReplicas") > count("readyReplicas") {
        let available = count("availableReplicas");
        errors.invalid("status.availableReplicas", available, "cannot be greater than readyReplicas");
    }
}

/// Validates that no count exceeds the total.
fn no_more_than(status: &Value, fields: &[&str], errors: &mut FieldErrors) {
    let count = |field: &str| value::integer(status, &[field]).unwrap_or_default();
    for field in fields.iter().filter(|field| count(field) > count("replicas")) {
        errors.invalid(join("status", field), count(field), "cannot be greater than status.replicas");
    }
}

fn replication_controller_defaults(object: &mut Value) {
    value::default(object, &["spec", "replicas"], 1);
    let carried = value::at(object, &["spec", "template", "metadata", "labels"]).clone();
    if carried.is_object() {
        for path in [["spec", "selector"], ["metadata", "labels"]] {
            if value::is_empty(object, &path) {
                value::set(object, &path, carried.clone());
            }
        }
    }
    pod_spec::template_defaults(object, &["spec", "template", "spec"]);
}

fn replication_controller(object: &Value, errors: &mut FieldErrors) {
    let spec = value::at(object, &["spec"]);
    not_negative(spec, "spec", &["minReadySeconds"], errors);
    if value::is_empty(spec, &["selector"]) {
        errors.required("spec.selector", "");
    }
    not_negative(spec, "spec", &["replicas"], errors);
    let found = value::at(spec, &["template"]);
    if found.is_null() {
        errors.required("spec.template", "");
        return;
    }
    let (carried, wanted) = (value::at(found, &["metadata", "labels"]), value::at(spec, &["selector"]));
    if !labels::matches_map(wanted, carried) {
        mismatch(carried, errors);
    }
    pod_spec::validate_template(found, "spec.template", errors);
    runs_for_good(found, "ReplicationController", errors);
}

fn deployment_defaults(object: &mut Value) {
    value::default(object, &["spec", "replicas"], 1);
    let strategy = value::place(object, &["spec", "strategy"]);
    if value::text(strategy, &["type"]).is_empty() {
        value::set(strategy, &["type"], "RollingUpdate");
    }
    if value::text(strategy, &["type"]) == "RollingUpdate" {
        value::default(strategy, &["rollingUpdate", "maxUnavailable"], "25%");
        value::default(strategy, &["rollingUpdate", "maxSurge"], "25%");
    }
    value::default(object, &["spec", "revisionHistoryLimit"], 10);
    value::default(object, &["spec", "progressDeadlineSeconds"], 600);
    pod_spec::template_defaults(object, &["spec", "template", "spec"]);
}

fn deployment(object: &Value, errors: &mut FieldErrors) {
    let spec = value::at(object, &["spec"]);
    not_negative(spec, "spec", &["replicas"], errors);
    selector(spec, "deployment", errors);
    template(spec, "ReplicaSet", errors);
    deployment_strategy(value::at(spec, &["strategy"]), errors);
    not_negative(
        spec,
        "spec",
        &["minReadySeconds", "revisionHistoryLimit", "progressDeadlineSeconds"],
        errors,
    );
    let ready_after = value::integer(spec, &["minReadySeconds"]).unwrap_or_default();
    if let Some(deadline) = value::integer(spec, &["progressDeadlineSeconds"]).filter(|it| *it <= ready_after)
    {
        errors.invalid("spec.progressDeadlineSeconds", deadline, "must be greater than minReadySeconds");
    }
}

fn deployment_strategy(strategy: &Value, errors: &mut FieldErrors) {
    let path = "spec.strategy.rollingUpdate";
    match value::text(strategy, &["type"]) {
        "Recreate" if value::has(strategy, &["rollingUpdate"]) => {
            errors.forbidden(path, "may not be specified when strategy `type` is 'Recreate'");
        }
        "Recreate" => {}
        "RollingUpdate" => {
            let part = |name: &str| value::at(strategy, &["rollingUpdate", name]);
            let (unavailable, surge) = (part("maxUnavailable"), part("maxSurge"));
            intervals::validate(unavailable, &join(path, "maxUnavailable"), errors);
            intervals::validate(surge, &join(path, "maxSurge"), errors);
            if intervals::is_zero(unavailable) && intervals::is_zero(surge) {
                let detail = "may not be 0 when `maxSurge` is 0";
                errors.invalid(join(path, "maxUnavailable"), unavailable.clone(), detail);
            }
            intervals::at_most_everything(unavailable, &join(path, "maxUnavailable"), errors);
        }
        other => {
            let shown = shown_strategy(strategy, other);
            errors.not_supported_json("spec.strategy", &shown, &["Recreate", "RollingUpdate"]);
        }
    }
}

/// Returns a strategy as upstream prints it. The internal types of Deployments and DaemonSets have the same fields.
fn shown_strategy(strategy: &Value, kind: &str) -> String {
    let mut strategy = strategy.clone();
    value::set(&mut strategy, &["type"], kind);
    internal::text("apps.DaemonSetUpdateStrategy", &strategy)
}

fn deployment_status(new: &Value, old: &Value, errors: &mut FieldErrors) {
    let status = value::at(new, &["status"]);
    let fields = [
        "observedGeneration",
        "replicas",
        "updatedReplicas",
        "readyReplicas",
        "availableReplicas",
        "unavailableReplicas",
        "terminatingReplicas",
        "collisionCount",
    ];
    not_negative(status, "status", &fields, errors);
    no_more_than(status, &["updatedReplicas", "readyReplicas", "availableReplicas"], errors);
    not_more_available(status, errors);
    collisions(new, old, errors);
}

/// Rejects a smaller number of collisions.
fn collisions(new: &Value, old: &Value, errors: &mut FieldErrors) {
    let count = |it: &Value| value::integer(it, &["status", "collisionCount"]).unwrap_or_default();
    if count(new) < count(old) {
        errors.invalid("status.collisionCount", count(new), "cannot be decremented");
    }
}

fn template_generation(object: &Value) -> i64 {
    value::text(object, TEMPLATE_GENERATION).parse().unwrap_or_default()
}

fn daemon_set_defaults(object: &mut Value) {
    // Upstream converts an object without this annotation to one with generation zero.
    value::default(object, TEMPLATE_GENERATION, "0");
    let strategy = value::place(object, &["spec", "updateStrategy"]);
    if value::text(strategy, &["type"]).is_empty() {
        value::set(strategy, &["type"], "RollingUpdate");
    }
    if value::text(strategy, &["type"]) == "RollingUpdate" {
        value::default(strategy, &["rollingUpdate", "maxUnavailable"], 1);
        value::default(strategy, &["rollingUpdate", "maxSurge"], 0);
    } else if value::has(strategy, &["rollingUpdate"]) {
        // Upstream's internal type always has these fields.
        value::default(strategy, &["rollingUpdate", "maxUnavailable"], 0);
        value::default(strategy, &["rollingUpdate", "maxSurge"], 0);
    }
    value::default(object, &["spec", "revisionHistoryLimit"], 10);
    pod_spec::template_defaults(object, &["spec", "template", "spec"]);
}

fn daemon_set(object: &Value, errors: &mut FieldErrors) {
    let spec = value::at(object, &["spec"]);
    let (wanted, found) = (value::at(spec, &["selector"]), value::at(spec, &["template"]));
    labels::validate(wanted, "spec.selector", errors);
    if labels::parses(wanted) {
        selects_template(wanted, found, errors);
    }
    if !wanted.is_null() && labels::is_empty(wanted) {
        let shown = internal::text(internal::SELECTOR, wanted);
        errors.invalid_json("spec.selector", &shown, "empty selector is invalid for daemonset");
    }
    pod_spec::validate_template(found, "spec.template", errors);
    runs_for_good(found, "DaemonSet", errors);
    not_negative(spec, "spec", &["minReadySeconds"], errors);
    daemon_set_strategy(value::at(spec, &["updateStrategy"]), errors);
    not_negative(spec, "spec", &["revisionHistoryLimit"], errors);
}

fn daemon_set_strategy(strategy: &Value, errors: &mut FieldErrors) {
    let path = "spec.updateStrategy.rollingUpdate";
    match value::text(strategy, &["type"]) {
        "OnDelete" => {}
        "RollingUpdate" => {
            let part = |name: &str| value::at(strategy, &["rollingUpdate", name]);
            let (unavailable, surge) = (part("maxUnavailable"), part("maxSurge"));
            let both = [(unavailable, "maxUnavailable"), (surge, "maxSurge")];
            for (found, name) in both {
                intervals::validate(found, &join(path, name), errors);
            }
            for (found, name) in both {
                intervals::at_most_everything(found, &join(path, name), errors);
            }
            match (intervals::is_zero(unavailable), intervals::is_zero(surge)) {
                (false, false) => {
                    let detail = "may not be set when maxUnavailable is non-zero";
                    errors.invalid(join(path, "maxSurge"), surge.clone(), detail);
                }
                (true, true) => {
                    errors.required(join(path, "maxUnavailable"), "cannot be 0 when maxSurge is 0");
                }
                _ => {}
            }
        }
        other => {
            let shown = shown_strategy(strategy, other);
            errors.not_supported_json("spec.updateStrategy", &shown, &["RollingUpdate", "OnDelete"]);
        }
    }
}

fn stateful_set_defaults(object: &mut Value) {
    let spec = value::place(object, &["spec"]);
    if value::text(spec, &["podManagementPolicy"]).is_empty() {
        value::set(spec, &["podManagementPolicy"], "OrderedReady");
    }
    if value::text(spec, &["updateStrategy", "type"]).is_empty() {
        value::set(spec, &["updateStrategy", "type"], "RollingUpdate");
        value::default(spec, &["updateStrategy", "rollingUpdate"], json!({}));
    }
    let rolling = value::text(spec, &["updateStrategy", "type"]) == "RollingUpdate";
    if rolling && value::has(spec, &["updateStrategy", "rollingUpdate"]) {
        value::default(spec, &["updateStrategy", "rollingUpdate", "partition"], 0);
    }
    for field in ["whenDeleted", "whenScaled"] {
        value::default(spec, &["persistentVolumeClaimRetentionPolicy", field], "Retain");
    }
    value::default(spec, &["replicas"], 1);
    value::default(spec, &["revisionHistoryLimit"], 10);
    for claim in value::items_mut(spec, &["volumeClaimTemplates"]).into_iter().flatten() {
        value::default(claim, &["spec", "volumeMode"], "Filesystem");
        value::default(claim, &["status", "phase"], "Pending");
        value::default(claim, &["apiVersion"], "v1");
        value::default(claim, &["kind"], "PersistentVolumeClaim");
    }

    pod_spec::template_defaults(object, &["spec", "template", "spec"]);
}

fn stateful_set(object: &Value, errors: &mut FieldErrors) {
    stateful_set_spec(object, true, true, errors);
}

/// Returns whether a stored StatefulSet passes the validation of updates.
fn is_valid_stateful_set(object: &Value) -> bool {
    let mut errors = FieldErrors::default();
    stateful_set_spec(object, false, true, &mut errors);
    errors.0.is_empty()
}

/// Validates the spec of a StatefulSet. An update tolerates an invalid template if the old one is invalid.
fn stateful_set_spec(object: &Value, new: bool, checks_template: bool, errors: &mut FieldErrors) {
    let spec = value::at(object, &["spec"]);
    let policy = value::text(spec, &["podManagementPolicy"]);
    if policy.is_empty() {
        errors.required("spec.podManagementPolicy", "");
    } else if !matches!(policy, "OrderedReady" | "Parallel") {
        errors.invalid("spec.podManagementPolicy", policy, "must be 'OrderedReady' or 'Parallel'");
    }
    stateful_set_strategy(value::at(spec, &["updateStrategy"]), errors);
    for field in ["whenDeleted", "whenScaled"] {
        let policy = value::at(spec, &["persistentVolumeClaimRetentionPolicy"]);
        super::one_of(
            policy,
            "spec.persistentVolumeClaimRetentionPolicy",
            field,
            &["Retain", "Delete"],
            errors,
        );
    }
    for (index, claim) in value::items(spec, &["volumeClaimTemplates"]).iter().enumerate().filter(|_| new) {
        let path = format!("spec.volumeClaimTemplates[{index}].spec");
        super::volumes::validate_spec(value::at(claim, &["spec"]), &path, errors);
    }
    not_negative(spec, "spec", &["replicas", "minReadySeconds"], errors);
    not_negative(value::at(spec, &["ordinals"]), "spec.ordinals", &["start"], errors);
    let service = value::text(spec, &["serviceName"]);
    if new && !service.is_empty() {
        errors.each("spec.serviceName", service, names::label(service));
    }
    selector(spec, "statefulset", errors);
    let mut spec = spec.clone();
    add_claimed_volumes(&mut spec);
    for field in ["subdomain", "hostname"] {
        value::remove(&mut spec, &["template", "spec", field]);
    }
    stateful_set_template(&spec, checks_template, errors);
}

/// Validates the template of a StatefulSet. Upstream validates its labels twice.
fn stateful_set_template(spec: &Value, is_validated: bool, errors: &mut FieldErrors) {
    let (found, wanted) = (value::at(spec, &["template"]), value::at(spec, &["selector"]));
    if labels::parses(wanted) {
        selects_template(wanted, found, errors);
        if is_validated {
            pod_spec::validate_template(found, "spec.template", errors);
        }
        let part = |name: &str| value::at(found, &["metadata", name]);
        meta::label_map(part("labels"), "spec.template.labels", errors);
        meta::annotations(part("annotations"), "spec.template.annotations", errors);
    } else {
        errors.invalid_json("spec.selector", &internal::text("*v1.LabelSelector", wanted), "");
    }
    runs_for_good(found, "StatefulSet", errors);
}

/// Adds the volumes of the claims, because mounts can refer to them.
fn add_claimed_volumes(spec: &mut Value) {
    let claims: Vec<String> = value::items(spec, &["volumeClaimTemplates"])
        .iter()
        .map(|it| value::text(it, &["metadata", "name"]).to_owned())
        .collect();
    if claims.is_empty() {
        return;
    }
    let mut volumes: Vec<Value> =
        claims.iter().map(|it| json!({"name": it, "persistentVolumeClaim": {"claimName": it}})).collect();
    let own = value::items(spec, &["template", "spec", "volumes"]);
    volumes.extend(
        own.iter().filter(|it| !claims.iter().any(|claim| value::text(it, &["name"]) == claim)).cloned(),
    );
    value::set(spec, &["template", "spec", "volumes"], volumes);
}

fn stateful_set_strategy(strategy: &Value, errors: &mut FieldErrors) {
    let path = "spec.updateStrategy.rollingUpdate";
    let rolling = value::at(strategy, &["rollingUpdate"]);
    match value::text(strategy, &["type"]) {
        "OnDelete" if !rolling.is_null() => {
            let part = |field: &str| value::at(rolling, &[field]);
            let (partition, unavailable) = (part("partition"), part("maxUnavailable"));
            let shown = format!("{{\"Partition\":{partition},\"MaxUnavailable\":{unavailable}}}");
            errors.invalid_json(path, &shown, "only allowed for updateStrategy 'RollingUpdate'");
        }
        "OnDelete" => {}
        "" => errors.required("spec.updateStrategy", ""),
        "RollingUpdate" => {
            not_negative(rolling, path, &["partition"], errors);
            let unavailable = value::at(rolling, &["maxUnavailable"]);
            if !unavailable.is_null() {
                intervals::validate(unavailable, &join(path, "maxUnavailable"), errors);
                if intervals::is_zero(unavailable) {
                    errors.invalid(join(path, "maxUnavailable"), unavailable.clone(), "cannot be 0");
                }
                intervals::at_most_everything(unavailable, &join(path, "maxUnavailable"), errors);
            }
        }
        other => {
            let mut shown = strategy.clone();
            value::set(&mut shown, &["type"], other);
            let shown = internal::text("apps.StatefulSetUpdateStrategy", &shown);
            errors.invalid_json("spec.updateStrategy", &shown, "must be 'RollingUpdate' or 'OnDelete'");
        }
    }
}

fn stateful_set_update(new: &Value, old: &Value, errors: &mut FieldErrors) {
    stateful_set_spec(new, false, is_valid_stateful_set(old), errors);
    let mut munged = value::at(new, &["spec"]).clone();
    let old = value::at(old, &["spec"]);
    for field in [
        "replicas",
        "template",
        "updateStrategy",
        "minReadySeconds",
        "ordinals",
        "revisionHistoryLimit",
        "persistentVolumeClaimRetentionPolicy",
    ] {
        value::keep(&mut munged, old, &[field]);
    }
    if !value::same(&munged, old) {
        let detail = "updates to statefulset spec for fields other than 'replicas', 'ordinals', 'template', \
                      'updateStrategy', 'revisionHistoryLimit', 'persistentVolumeClaimRetentionPolicy' and \
                      'minReadySeconds' are forbidden";
        errors.forbidden("spec", detail);
    }
}

fn stateful_set_status(new: &Value, old: &Value, errors: &mut FieldErrors) {
    let status = value::at(new, &["status"]);
    let count = |field: &str| value::integer(status, &[field]).unwrap_or_default();
    let fields = [
        "replicas",
        "readyReplicas",
        "currentReplicas",
        "updatedReplicas",
        "availableReplicas",
        "observedGeneration",
        "collisionCount",
    ];
    not_negative(status, "status", &fields, errors);
    no_more_than(
        status,
        &["readyReplicas", "currentReplicas", "updatedReplicas", "availableReplicas"],
        errors,
    );
    if count("availableReplicas") > count("readyReplicas") {
        let available = count("availableReplicas");
        errors.invalid("status.availableReplicas", available, "cannot be greater than status.readyReplicas");
    }
    meta::validate_update(new, old, errors);
    meta::known_finalizers(new, errors);
    collisions(new, old, errors);
}
