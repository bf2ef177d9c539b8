//! Actions of subresources: bindings, evictions and tokens.

use std::sync::Arc;

use serde_json::{Value, json};

use super::create::success;
use super::delete::check_preconditions;
use super::request::{DeleteOptions, Propagation, ResponseObject, Target, WriteOptions, WriteResponse};
use super::update::uid_text;
use super::writer::{MODIFIED, WriteTransaction};
use super::{convert, labels, value};
use crate::status::{Cause, ResourceName, Status};
use crate::storage::Stored;

/// Maximum number of evictions that the disruption controller has not processed.
const DISRUPTED_LIMIT: usize = 2000;

impl WriteTransaction<'_> {
    /// Performs the action of a subresource.
    pub(crate) fn post_below(
        &mut self,
        to: &Target,
        body: Value,
        options: &WriteOptions,
    ) -> Result<WriteResponse, Status> {
        match (to.resource.plural.as_str(), to.subresource.as_str()) {
            ("pods", "binding") => self.bind(&to.namespace, &to.name, &body, options),
            ("pods", "eviction") => self.evict(to, &body, options),
            ("serviceaccounts", "token") => self.token(to, body, options),
            _ => Err(Status::method_not_allowed(to.named(), "create")),
        }
    }

    /// Binds a pod to a node.
    pub(crate) fn bind(
        &mut self,
        namespace: &str,
        pod: &str,
        binding: &Value,
        options: &WriteOptions,
    ) -> Result<WriteResponse, Status> {
        let pods = self.built_in("", "v1", "pods")?;
        if value::text(binding, &["metadata", "name"]) != pod {
            return Err(Status::bad_request("name in URL does not match name in Binding object"));
        }
        check_binding_target(binding)?;
        let named = ResourceName { group: "", resource: "pods" };
        let found = self.find(&convert::collection(&pods), namespace, pod);
        let old = found.ok_or_else(|| Status::not_found(named, pod))?;
        let to = Target {
            resource: Arc::clone(&pods),
            namespace: namespace.to_owned(),
            name: pod.to_owned(),
            subresource: "binding".to_owned(),
        };
        check_binding_preconditions(&to, binding, &old)?;
        let refuse = |why: String| {
            Err(Status::conflict(ResourceName { group: "", resource: "pods/binding" }, pod, &why))
        };
        let mut object = old.value.clone();
        if value::has(&object, &["metadata", "deletionTimestamp"]) {
            return refuse(format!("pod {pod} is being deleted, cannot be assigned to a host"));
        }
        let node = value::text(&object, &["spec", "nodeName"]);
        if !node.is_empty() {
            return refuse(format!("pod {pod} is already assigned to node {node:?}"));
        }
        if !value::is_empty(&object, &["spec", "schedulingGates"]) {
            return refuse(format!("pod {pod} has non-empty .spec.schedulingGates"));
        }
        value::set(&mut object, &["spec", "nodeName"], value::text(binding, &["target", "name"]));
        value::remove(&mut object, &["status", "nominatedNodeName"]);
        for part in ["annotations", "labels"] {
            for (name, text) in value::entries(binding, &["metadata", part]) {
                value::set(&mut object, &["metadata", part, name], text.clone());
            }
        }
        let now = self.now();
        let condition = json!({"type": "PodScheduled", "status": "True"});
        set_condition(&mut object, condition, &now);
        self.replace(&pods, &old, object, options.dry_run)?;
        Ok(WriteResponse { answer: ResponseObject::Value(success(201)), created: true, warnings: Vec::new() })
    }

    /// Deletes a pod unless a disruption budget prevents it.
    fn evict(
        &mut self,
        to: &Target,
        eviction: &Value,
        options: &WriteOptions,
    ) -> Result<WriteResponse, Status> {
        if value::text(eviction, &["metadata", "name"]) != to.name {
            return Err(Status::bad_request("name in URL does not match name in Eviction object"));
        }
        let found = self.find(&convert::collection(&to.resource), &to.namespace, &to.name);
        let pod = found.ok_or_else(|| to.not_found())?;
        let mut deletion = delete_options(value::at(eviction, &["deleteOptions"]));
        deletion.dry_run |= options.dry_run;
        // A rejected eviction must leave neither a condition nor a reduced budget.
        let whole = Target { subresource: String::new(), ..to.clone() };
        check_preconditions(&whole, &pod.value, &deletion)?;
        if !ignores_budgets(&pod.value) {
            self.charge_budget(&pod, deletion.dry_run)?;
        }
        let pod = if deletion.dry_run { pod } else { self.mark_disrupted(to, &pod)? };
        if deletion.resource_version.is_some() {
            deletion.resource_version = Some(pod.revision.to_string());
        }
        self.delete(&whole, &deletion)?;
        Ok(WriteResponse { answer: ResponseObject::Value(success(201)), created: true, warnings: Vec::new() })
    }

    fn mark_disrupted(&mut self, to: &Target, pod: &Arc<Stored>) -> Result<Arc<Stored>, Status> {
        let mut object = pod.value.clone();
        let now = self.now();
        let condition = json!({
            "type": "DisruptionTarget",
            "status": "True",
            "reason": "EvictionByEvictionAPI",
            "message": "Eviction API: evicting",
        });
        set_condition(&mut object, condition, &now);
        match self.replace(&to.resource, pod, object, false)? {
            ResponseObject::Stored(stored) => Ok(stored),
            ResponseObject::Value(_) => Ok(Arc::clone(pod)),
        }
    }

    /// Charges one disruption to the budget of a pod, if it has one.
    fn charge_budget(&mut self, pod: &Stored, dry_run: bool) -> Result<(), Status> {
        let budgets = self.built_in("policy", "v1", "poddisruptionbudgets")?;
        let mut matching = self.all(&convert::collection(&budgets), &pod.key.namespace);
        matching.retain(|budget| {
            let selector = value::at(&budget.value, &["spec", "selector"]);
            labels::matches(selector, value::at(&pod.value, &["metadata", "labels"]))
        });
        let budget = match matching.as_slice() {
            [] => return Ok(()),
            [one] => Arc::clone(one),
            _ => {
                let why = "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support.";
                return Err(Status::new(500, "", why));
            }
        };
        if !is_ready(&pod.value) && allows_unready_eviction(&budget.value) {
            return Ok(());
        }
        let after = after_disruption(&budget, &pod.key.name, &self.now())?;
        self.replace(&budgets, &budget, after, dry_run).map(|_| ())
    }
}

/// Sets a condition, and the time of its last transition if its status changed.
pub(crate) fn set_condition(object: &mut Value, mut condition: Value, now: &str) {
    let of_type = value::text(&condition, &["type"]).to_owned();
    let conditions = value::place(object, &["status", "conditions"]);
    if !conditions.is_array() {
        *conditions = json!([]);
    }
    let Some(conditions) = conditions.as_array_mut() else { return };
    value::set(&mut condition, &["lastTransitionTime"], now);
    let Some(found) = conditions.iter_mut().find(|it| value::text(it, &["type"]) == of_type) else {
        value::default(&mut condition, &["lastProbeTime"], Value::Null);
        conditions.push(condition);
        return;
    };
    if value::text(found, &["status"]) == value::text(&condition, &["status"]) {
        value::keep(&mut condition, found, &["lastTransitionTime"]);
    }
    for (name, part) in value::entries(&condition, &[]) {
        value::set(found, &[name], part.clone());
    }
}

/// Decodes the options of a deletion.
pub(crate) fn delete_options(written: &Value) -> DeleteOptions {
    let text = |path: &[&str]| Some(value::text(written, path).to_owned()).filter(|it| !it.is_empty());
    DeleteOptions {
        grace_period_seconds: value::integer(written, &["gracePeriodSeconds"]),
        uid: text(&["preconditions", "uid"]),
        resource_version: text(&["preconditions", "resourceVersion"]),
        propagation: match value::text(written, &["propagationPolicy"]) {
            "Orphan" => Some(Propagation::Orphan),
            "Background" => Some(Propagation::Background),
            "Foreground" => Some(Propagation::Foreground),
            _ => None,
        },
        orphan_dependents: value::at(written, &["orphanDependents"]).as_bool(),
        dry_run: !value::is_empty(written, &["dryRun"]),
        ..DeleteOptions::default()
    }
}

fn check_binding_target(binding: &Value) -> Result<(), Status> {
    let kind = value::text(binding, &["target", "kind"]);
    let mut refusals = Vec::new();
    if !matches!(kind, "" | "Node") {
        refusals.push(format!(
            "target.kind: Unsupported value: {kind:?}: supported values: \"Node\", \"<empty>\""
        ));
    }
    if value::text(binding, &["target", "name"]).is_empty() {
        refusals.push("target.name: Required value".to_owned());
    }
    match refusals.as_slice() {
        [] => Ok(()),
        [one] => Err(Status::new(500, "", one.clone())),
        many => Err(Status::new(500, "", format!("[{}]", many.join(", ")))),
    }
}

fn check_binding_preconditions(to: &Target, binding: &Value, old: &Stored) -> Result<(), Status> {
    let (given, found) =
        (value::text(binding, &["metadata", "uid"]), value::text(&old.value, &["metadata", "uid"]));
    if !given.is_empty() && given != found {
        return Err(Status::conflict(to.named(), &to.name, &uid_text(to, given, found)));
    }
    let version = value::text(binding, &["metadata", "resourceVersion"]);
    if !version.is_empty() && version != old.revision.to_string() {
        return Err(Status::conflict(to.named(), &to.name, MODIFIED));
    }
    Ok(())
}

/// Returns whether an eviction ignores budgets: the pod has finished, has not started, or is terminating.
fn ignores_budgets(pod: &Value) -> bool {
    matches!(value::text(pod, &["status", "phase"]), "Succeeded" | "Failed" | "Pending")
        || value::has(pod, &["metadata", "deletionTimestamp"])
}

fn is_ready(pod: &Value) -> bool {
    let ready = |it: &Value| value::text(it, &["type"]) == "Ready" && value::text(it, &["status"]) == "True";
    value::items(pod, &["status", "conditions"]).iter().any(ready)
}

fn allows_unready_eviction(budget: &Value) -> bool {
    let count = |field: &str| value::integer(budget, &["status", field]).unwrap_or_default();
    value::text(budget, &["spec", "unhealthyPodEvictionPolicy"]) == "AlwaysAllow"
        || (count("desiredHealthy") > 0 && count("currentHealthy") >= count("desiredHealthy"))
}

/// Returns the budget after the disruption of this pod, or the reason why it is not allowed.
fn after_disruption(budget: &Stored, pod: &str, now: &str) -> Result<Value, Status> {
    let (object, name): (&Value, _) = (&budget.value, &*budget.key.name);
    let count = |field: &str| value::integer(object, &["status", field]).unwrap_or_default();
    let generation = value::integer(object, &["metadata", "generation"]).unwrap_or_default();
    if count("observedGeneration") < generation {
        let why = format!("The disruption budget {name} is still being processed by the server.");
        return Err(too_many_disruptions(10, why));
    }
    let named = ResourceName { group: "policy", resource: "poddisruptionbudget" };
    let allowed = count("disruptionsAllowed");
    if allowed < 0 {
        return Err(Status::forbidden(named, name, "pdb disruptions allowed is negative"));
    }
    if value::entries(object, &["status", "disruptedPods"]).count() > DISRUPTED_LIMIT {
        let why = "DisruptedPods map too big - too many evictions not confirmed by PDB controller";
        return Err(Status::forbidden(named, name, why));
    }
    if allowed == 0 {
        return Err(too_many_disruptions(0, why_none_allowed(object, name)));
    }
    let mut after = object.clone();
    value::set(&mut after, &["status", "disruptionsAllowed"], allowed - 1);
    value::set(&mut after, &["status", "disruptedPods", pod], now);
    if allowed == 1 {
        let condition = json!({
            "type": "DisruptionAllowed",
            "status": "False",
            "reason": "InsufficientPods",
            "message": "",
            "observedGeneration": count("observedGeneration"),
        });
        set_condition(&mut after, condition, now);
    }
    Ok(after)
}

fn why_none_allowed(budget: &Value, name: &str) -> String {
    let count = |field: &str| value::integer(budget, &["status", field]).unwrap_or_default();
    let of_type = |it: &&Value| value::text(it, &["type"]) == "DisruptionAllowed";
    let condition = value::items(budget, &["status", "conditions"]).iter().find(of_type);
    let not_now = format!("The disruption budget {name} does not allow evicting pods currently");
    let explained = condition
        .filter(|it| value::text(it, &["status"]) == "False" && !value::text(it, &["message"]).is_empty());
    let (reason, message) =
        explained.map_or(("", ""), |it| (value::text(it, &["reason"]), value::text(it, &["message"])));
    if reason == "SyncFailed" {
        return format!("{not_now} because it failed sync: {message}");
    }
    if count("currentHealthy") <= count("desiredHealthy") {
        let (needed, found) = (count("desiredHealthy"), count("currentHealthy"));
        return format!("The disruption budget {name} needs {needed} healthy pods and has {found} currently");
    }
    if explained.is_some() { format!("{not_now} ({reason}): {message}") } else { not_now }
}

fn too_many_disruptions(retry_after_seconds: u32, why: String) -> Status {
    let message = "Cannot evict pod as it would violate the pod's disruption budget.";
    let mut status = Status::too_many_requests(message, retry_after_seconds);
    if let Some(details) = &mut status.details {
        let cause = Cause { reason: "DisruptionBudget".to_owned(), message: why, ..Cause::default() };
        details.causes.push(cause);
    }
    status
}
