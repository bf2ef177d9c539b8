//! Strategies of PodDisruptionBudgets, HorizontalPodAutoscalers, NetworkPolicies, Leases and Events.

use serde_json::{Value, json};

use super::super::invalid::FieldErrors;
use super::super::{autoscalers, labels, names, value};
use super::{Dependents, Kind, NAMED, PLAIN, intervals, join, not_negative};

/// Strategy of PodDisruptionBudgets.
pub(super) static DISRUPTION_BUDGETS: Kind = Kind {
    generation: &[&["spec"]],
    unconditional_update: false,
    validate: budget,
    validate_update: |new, _, errors| budget(new, errors),
    validate_status: |new, _, errors| {
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

/// Strategy of Leases.
pub(super) static LEASES: Kind = Kind {
    unconditional_update: false,
    create_on_update: true,
    validate: lease,
    validate_update: |new, _, errors| lease(new, errors),
    ..NAMED
};

/// Strategy of Events.
pub(super) static EVENTS: Kind = Kind {
    create_on_update: true,
    dependents: Dependents::Unsupported,
    validate: event,
    validate_update: event_update,
    ..PLAIN
};

fn budget(object: &Value, errors: &mut FieldErrors) {
    let spec = value::at(object, &["spec"]);
    let parts = ["minAvailable", "maxUnavailable"];
    if parts.iter().all(|it| value::has(spec, &[it])) {
        errors.invalid("spec", spec.clone(), "minAvailable and maxUnavailable cannot be both set");
    }
    for part in parts.into_iter().filter(|it| value::has(spec, &[it])) {
        intervals::validate(value::at(spec, &[part]), &join("spec", part), errors);
        intervals::at_most_everything(value::at(spec, &[part]), &join("spec", part), errors);
    }
    labels::validate(value::at(spec, &["selector"]), "spec.selector", errors);
    let policy = value::text(spec, &["unhealthyPodEvictionPolicy"]);
    if !matches!(policy, "" | "AlwaysAllow" | "IfHealthyBudget") {
        errors.not_supported("spec.unhealthyPodEvictionPolicy", policy, &["AlwaysAllow", "IfHealthyBudget"]);
    }
}

fn autoscaler(object: &Value, errors: &mut FieldErrors) {
    let spec = value::at(object, &["spec"]);
    let least = value::integer(spec, &["minReplicas"]).unwrap_or(1);
    if least < 1 {
        errors.invalid("spec.minReplicas", least, "must be greater than or equal to 1");
    }
    let most = value::integer(spec, &["maxReplicas"]).unwrap_or_default();
    if most < 1 {
        errors.invalid("spec.maxReplicas", most, "must be greater than 0");
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
    if own_group {
        event_of_its_own_group(object, timed, errors);
    }
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
