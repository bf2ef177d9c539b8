//! Strategies of PodDisruptionBudgets, HorizontalPodAutoscalers, NetworkPolicies, Leases and Events.

use serde_json::{Value, json};

use super::super::internal;
use super::super::invalid::FieldErrors;
use super::super::{autoscalers, labels, meta, names, value};
use super::{
    Dependents, Kind, MetadataOrder, MetadataRules, NAMED, PLAIN, intervals, join, not_negative, one_of,
};

/// Strategy of PodDisruptionBudgets.
pub(super) static DISRUPTION_BUDGETS: Kind = Kind {
    generation: &[&["spec"]],
    unconditional_update: false,
    name: names::path_name,
    metadata: MetadataRules::Common,
    metadata_of_update: MetadataOrder::Never,
    metadata_of_status: MetadataOrder::Never,
    validate: budget,
    validate_update: |new, _, errors| budget(new, errors),
    validate_status: |new, _, errors| {
        conditions(&new["status"], errors);
        let fields = ["disruptionsAllowed", "currentHealthy", "desiredHealthy", "expectedPods"];
        not_negative(&new["status"], "status", &fields, errors);
    },
    ..NAMED
};

/// Strategy of HorizontalPodAutoscalers.
pub(super) static AUTOSCALERS: Kind = Kind {
    defaults: autoscalers::defaults,
    validate: autoscaler,
    validate_update: |new, _, errors| autoscaler(new, errors),
    ..NAMED
};

/// Strategy of NetworkPolicies.
pub(super) static NETWORK_POLICIES: Kind = Kind {
    generation: &[&["spec"]],
    defaults: |object| {
        if value::is_empty(object, &["spec", "policyTypes"]) {
            let outward = !value::is_empty(object, &["spec", "egress"]);
            let types = if outward { json!(["Ingress", "Egress"]) } else { json!(["Ingress"]) };
            value::set(object, &["spec", "policyTypes"], types);
        }
    },
    validate: |object, errors| {
        labels::validate(value::at(object, &["spec", "podSelector"]), "spec.podSelector", errors);
    },
    ..NAMED
};

/// Fields of coordinated leader election.
const COORDINATED: [&str; 2] = ["strategy", "preferredHolder"];

/// Strategy of Leases.
pub(super) static LEASES: Kind = Kind {
    unconditional_update: false,
    create_on_update: true,
    metadata: MetadataRules::AnyFinalizer,
    // A feature that is disabled by default owns these fields.
    prepare_create: |_, lease| {
        for field in COORDINATED {
            value::remove(lease, &["spec", field]);
        }
        Ok(())
    },
    prepare_update: |_, lease, old| {
        for field in COORDINATED.into_iter().filter(|field| !value::has(old, &["spec", field])) {
            value::remove(lease, &["spec", field]);
        }
        Ok(())
    },
    validate: lease,
    validate_update: |new, _, errors| lease(new, errors),
    ..NAMED
};

/// Strategy of Events.
pub(super) static EVENTS: Kind = Kind {
    create_on_update: true,
    dependents: Dependents::Unsupported,
    metadata: MetadataRules::Common,
    metadata_of_update: MetadataOrder::ByKind,
    validate: |object, errors| {
        event(object, errors);
        if value::text(object, &["apiVersion"]) == "events.k8s.io/v1" {
            meta::validate_built_in(object, true, names::subdomain_name, errors);
            let timed = value::has(object, &["eventTime"]);
            event_of_its_own_group(object, timed, errors);
        }
    },
    validate_update: event_update,
    ..PLAIN
};

fn budget(object: &Value, errors: &mut FieldErrors) {
    let spec = value::at(object, &["spec"]);
    let parts = ["minAvailable", "maxUnavailable"];
    if parts.iter().all(|it| value::has(spec, &[it])) {
        let shown = internal::text("policy.PodDisruptionBudgetSpec", spec);
        errors.invalid_json("spec", &shown, "minAvailable and maxUnavailable cannot be both set");
    }
    for part in parts.into_iter().filter(|it| value::has(spec, &[it])) {
        intervals::validate(value::at(spec, &[part]), &join("spec", part), errors);
        intervals::at_most_everything(value::at(spec, &[part]), &join("spec", part), errors);
    }
    labels::validate(value::at(spec, &["selector"]), "spec.selector", errors);
    if value::has(spec, &["unhealthyPodEvictionPolicy"]) {
        let known = ["AlwaysAllow", "IfHealthyBudget"];
        one_of(spec, "spec", "unhealthyPodEvictionPolicy", &known, errors);
    }
}

/// Validates conditions of the common type.
fn conditions(status: &Value, errors: &mut FieldErrors) {
    let all = value::items(status, &["conditions"]);
    for (index, condition) in all.iter().enumerate() {
        let path = format!("status.conditions[{index}]");
        let kind = value::text(condition, &["type"]);
        if all.iter().take(index).any(|it| value::text(it, &["type"]) == kind) {
            errors.duplicate(join(&path, "type"), kind);
        }
        errors.each(&join(&path, "type"), kind, names::qualified(kind));
        one_of(condition, &path, "status", &["False", "True", "Unknown"], errors);
        let generation = value::integer(condition, &["observedGeneration"]);
        if let Some(generation) = generation.filter(|it| *it < 0) {
            let detail = "must be greater than or equal to zero";
            errors.invalid(join(&path, "observedGeneration"), generation, detail);
        }
        if !value::has(condition, &["lastTransitionTime"]) {
            errors.required(join(&path, "lastTransitionTime"), "");
        }
        match value::text(condition, &["reason"]) {
            "" => errors.required(join(&path, "reason"), ""),
            reason => condition_reason(reason, &join(&path, "reason"), errors),
        }
    }
}

fn condition_reason(reason: &str, field: &str, errors: &mut FieldErrors) {
    let bytes = reason.as_bytes();
    let inner = |it: &u8| it.is_ascii_alphanumeric() || matches!(it, b'_' | b',' | b':');
    let is_valid = bytes.first().is_some_and(u8::is_ascii_alphabetic)
        && bytes.last().is_some_and(|it| it.is_ascii_alphanumeric() || *it == b'_')
        && bytes.iter().all(inner);
    if !is_valid {
        let detail = "a condition reason must start with alphabetic character, optionally followed by a string of \
                      alphanumeric characters or '_,:', and must end with an alphanumeric character or '_' (e.g. \
                      'my_name',  or 'MY_NAME',  or 'MyName',  or 'ReasonA,ReasonB',  or 'ReasonA:ReasonB', regex \
                      used for validation is '[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?')";
        errors.invalid(field, reason, detail);
    }
}

fn autoscaler(object: &Value, errors: &mut FieldErrors) {
    let spec = value::at(object, &["spec"]);
    let least = value::integer(spec, &["minReplicas"]).unwrap_or(1);
    if least < 1 {
        errors.invalid("spec.minReplicas", least, "must be greater than or equal to 1");
    }
    let most = value::integer(spec, &["maxReplicas"]).unwrap_or_default();
    if most == 0 {
        errors.required("spec.maxReplicas", "must be set and greater than 0");
    } else if most < 0 {
        errors.invalid("spec.maxReplicas", most, "must be greater than or equal to 1");
    }
    if most < least {
        errors.invalid("spec.maxReplicas", most, "must be greater than or equal to `minReplicas`");
    }
    for field in ["kind", "name"] {
        match value::text(spec, &["scaleTargetRef", field]) {
            "" => errors.required(format!("spec.scaleTargetRef.{field}"), ""),
            text => errors.each(&format!("spec.scaleTargetRef.{field}"), text, names::path_name(text, false)),
        }
    }
}

fn lease(object: &Value, errors: &mut FieldErrors) {
    let spec = value::at(object, &["spec"]);
    if let Some(seconds) = value::integer(spec, &["leaseDurationSeconds"]).filter(|it| *it <= 0) {
        errors.invalid("spec.leaseDurationSeconds", seconds, "must be greater than 0");
    }
    not_negative(spec, "spec", &["leaseTransitions"], errors);
    let strategy = value::text(spec, &["strategy"]);
    if value::has(spec, &["strategy"]) {
        let field = "spec.strategy.strategy";
        if strategy.contains('/') {
            errors.each(field, strategy, names::qualified(strategy));
        } else if strategy != "OldestEmulationVersion" {
            errors.not_supported(field, strategy, &["OldestEmulationVersion"]);
        }
    }
    if !value::text(spec, &["preferredHolder"]).is_empty() && strategy.is_empty() {
        errors.forbidden("spec.preferredHolder", "may only be specified if `strategy` is defined");
    }
}

/// Maximum length of texts in events with an `eventTime`, by the field names of both groups.
const EVENT_TEXTS: [(&[&str], usize); 4] =
    [(&["reportingInstance"], 128), (&["action"], 128), (&["reason"], 128), (&["note", "message"], 1024)];

fn event(object: &Value, errors: &mut FieldErrors) {
    let own_group = value::text(object, &["apiVersion"]) == "events.k8s.io/v1";
    let namespace = value::text(object, &["metadata", "namespace"]);
    let of = value::text(object, &[if own_group { "regarding" } else { "involvedObject" }, "namespace"]);
    let timed = value::has(object, &["eventTime"]);
    let agrees = match (of, timed) {
        ("", true) => matches!(namespace, "default" | "kube-system"),
        ("", false) => namespace == "default",
        (_, true) => true,
        (of, false) => of == namespace,
    };
    if !agrees {
        errors.invalid("involvedObject.namespace", of, "does not match event.namespace");
    }
    if timed {
        timed_event(object, own_group, errors);
    }
    errors.each("namespace", namespace, names::subdomain(namespace));
}

/// Validates an event with an `eventTime`, which must name reporter and action.
fn timed_event(object: &Value, own_group: bool, errors: &mut FieldErrors) {
    let field = if own_group { "reportingController" } else { "reportingComponent" };
    let controller = value::text(object, &[field]);
    if controller.is_empty() {
        errors.required(field, "");
    }
    errors.each(field, controller, names::qualified(controller));
    for (fields, limit) in EVENT_TEXTS {
        let text =
            fields.iter().map(|it| value::text(object, &[it])).find(|it| !it.is_empty()).unwrap_or_default();
        let field = fields.last().copied().unwrap_or_default();
        if text.is_empty() && field != "message" {
            errors.required(field, "");
        }
        if text.len() > limit {
            errors.invalid(field, "", &format!("can have at most {limit} characters"));
        }
    }
}

fn event_of_its_own_group(object: &Value, timed: bool, errors: &mut FieldErrors) {
    if !timed {
        errors.required("eventTime", "");
    }
    let of_type = value::text(object, &["type"]);
    if !matches!(of_type, "Normal" | "Warning") {
        errors.invalid("type", "", &format!("has invalid value: {of_type}"));
    }
    let older = [
        ("deprecatedFirstTimestamp", "firstTimestamp"),
        ("deprecatedLastTimestamp", "lastTimestamp"),
        ("deprecatedCount", "count"),
        ("deprecatedSource", "source"),
    ];
    for (name, field) in older {
        let found = value::at(object, &[name]);
        if !(value::is_empty(found, &[]) || *found == json!(0)) {
            errors.invalid(field, "", "needs to be unset");
        }
    }
}

fn event_update(new: &Value, old: &Value, errors: &mut FieldErrors) {
    event(new, errors);
    if value::text(new, &["apiVersion"]) != "events.k8s.io/v1" {
        return;
    }
    meta::validate_update(new, old, errors);
    meta::known_finalizers(new, errors);
    let fields = [
        ("regarding", "involvedObject"),
        ("reason", "reason"),
        ("note", "message"),
        ("type", "type"),
        ("eventTime", "eventTime"),
        ("action", "action"),
        ("related", "related"),
        ("reportingController", "reportingController"),
        ("reportingInstance", "reportingInstance"),
    ];
    for (name, field) in fields {
        errors.immutable(field, value::at(new, &[name]), value::at(old, &[name]));
    }
}
