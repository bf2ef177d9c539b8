//! The `matchConditions` of webhooks.

use serde_json::Value;

use super::{Invocation, Request, ReviewVersion, Webhook, review};
use crate::expressions::Variables;
use crate::registry::value;
use crate::registry::writer::WriteTransaction;
use crate::status::{ResourceName, Status};

impl WriteTransaction<'_> {
    /// Returns whether a request meets the conditions of a webhook. A false condition decides, also after a failed one.
    ///
    /// # Errors
    /// Rejects the request if a condition fails, no other is false, and the failure policy is `Fail`.
    pub(super) fn meets_conditions(
        &mut self,
        webhook: &Webhook,
        invocation: &Invocation,
        request: &Request<'_>,
        object: &Value,
    ) -> Result<bool, Status> {
        let conditions = value::items(&webhook.0, &["matchConditions"]);
        if conditions.is_empty() {
            return Ok(true);
        }
        let internal = |it: Status| Status::internal(it.message);
        let now = self.reviewed(object, invocation, request).map_err(internal)?;
        let old = self.reviewed(request.old, invocation, request).map_err(internal)?;
        let described = review::review(request, invocation, ReviewVersion::V1, &Value::Null, &Value::Null);
        let variables = Variables::new(&now, &old, &described["request"]).map_err(Status::internal)?;
        let mut failures = Vec::new();
        for condition in conditions {
            let expression = value::text(condition, &["expression"]);
            let compiled = self.state.conditions.compiled(expression);
            let compiled = compiled.map_err(|why| format!("compilation error: {why}"));
            match compiled.and_then(|it| it.evaluate(&variables)) {
                Ok(true) => {}
                Ok(false) => return Ok(false),
                Err(why) => failures.push(why),
            }
        }
        if failures.is_empty() {
            return Ok(true);
        }
        failed(webhook, request, failures)
    }
}

/// Applies the failure policy.
fn failed(webhook: &Webhook, request: &Request<'_>, failures: Vec<String>) -> Result<bool, Status> {
    if webhook.ignores_failures() {
        return Ok(false);
    }
    // Upstream prints equal errors once.
    let mut distinct = Vec::new();
    for failure in failures {
        if !distinct.contains(&failure) {
            distinct.push(failure);
        }
    }
    let why = match distinct.as_slice() {
        [one] => one.clone(),
        many => format!("[{}]", many.join(", ")),
    };
    let resource = &request.to.resource;
    let named = ResourceName { group: &resource.group, resource: &resource.plural };
    Err(Status::forbidden(named, &request.name, &why))
}
