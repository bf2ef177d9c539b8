//! What watches over others: disruption budgets, autoscalers, leases, events.

use serde_json::{Value, json};

use super::super::invalid::FieldErrors;
use super::super::{labels, names, value};
use super::{Dependents, Kind, NAMED, PLAIN, intervals, join, not_negative};

/// What disruption budgets do.
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

/// What autoscalers do.
pub(super) static AUTOSCALERS: Kind = Kind {
    defaults: |object| {
        value::default(object, &["spec", "minReplicas"], 1);
        if value::text(object, &["apiVersion"]) == "autoscaling/v2"
            && value::is_empty(object, &["spec", "metrics"])
        {
            let target = json!({"type": "Utilization", "averageUtilization": 80});
            let metric = json!({"type": "Resource", "resource": {"name": "cpu", "target": target}});
            value::set(object, &["spec", "metrics"], json!([metric]));
        }
    },
    validate: autoscaler,
    validate_update: |new, _, errors| autoscaler(new, errors),
    ..NAMED
};

/// What network policies do.
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

/// What leases do.
pub(super) static LEASES: Kind = Kind {
    unconditional_update: false,
    create_on_update: true,
    validate: lease,
    validate_update: |new, _, errors| lease(new, errors),
    ..NAMED
};

/// What events do.
pub(super) static EVENTS: Kind =
    Kind { create_on_update: true, dependents: Dependents::Unsupported, validate: event, ..PLAIN };

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

fn event(object: &Value, errors: &mut FieldErrors) {
    let namespace = value::text(object, &["metadata", "namespace"]);
    let about = if value::has(object, &["regarding"]) { "regarding" } else { "involvedObject" };
    let of = value::text(object, &[about, "namespace"]);
    let expected = if of.is_empty() { "default" } else { of };
    if namespace != expected && !(of.is_empty() && namespace == "kube-system") {
        errors.invalid("involvedObject.namespace", of, "does not match event.namespace");
    }
}
