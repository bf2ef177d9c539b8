//! Admission webhooks: a write is reviewed by the webhooks of the stored configurations.
//!
//! Mutating webhooks review a write before its validation, one after the other, and a second time if a later one has
//! changed the object. After a change, the defaults and checks of admission are repeated too. Validating webhooks
//! review the result at the same time, just before it is stored.
//!
//! Guarantees:
//! - The order, the reviews and the error messages are those of upstream.
//! - If two validating webhooks deny a request, the first of the configuration determines the error.
//! - A write that is a consequence of another one, such as the deletion of a pod by an eviction, is not reviewed.

mod conditions;
mod review;
mod rules;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use windlass_patch::json as json_patch;
use windlass_schema::ResourceInfo;

pub(crate) use self::review::verify;
use self::review::{Response, ReviewVersion};
use super::replay::{Call, waiting};
use super::request::{DeleteOptions, FieldValidation, Propagation, Target, WriteOptions};
use super::writer::WriteTransaction;
use super::{transform, value};
use crate::status::Status;
use crate::storage::{Collection, Stored};
use crate::webhooks::WebhookAddress;

/// An operation, as in the rules of webhooks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Operation {
    Create,
    Update,
    Delete,
}

/// A request that webhooks review.
pub(crate) struct Request<'a> {
    to: &'a Target,
    operation: Operation,
    name: String,
    namespace: String,
    /// State before an update or a deletion; null for a creation.
    old: &'a Value,
    options: Value,
    dry_run: bool,
    user: &'a str,
}

/// The review of a request by one webhook.
struct Invocation {
    /// Resource in the version that the webhook reviews.
    resource: Arc<ResourceInfo>,
}

/// A webhook of a stored configuration.
struct Webhook(Value);

/// The failure of a review.
enum Failure {
    /// The webhook did not respond as required. The failure policy applies.
    Call(String),
    /// The request fails.
    Final(Status),
}

impl From<Status> for Failure {
    fn from(status: Status) -> Failure {
        Failure::Final(status)
    }
}

impl Operation {
    fn as_str(self) -> &'static str {
        match self {
            Operation::Create => "CREATE",
            Operation::Update => "UPDATE",
            Operation::Delete => "DELETE",
        }
    }
}

impl<'a> Request<'a> {
    /// Returns the creation of an object, or the action of a subresource.
    pub(crate) fn create(to: &'a Target, object: &Value, options: &'a WriteOptions) -> Request<'a> {
        let name = match to.name.as_str() {
            "" => value::text(object, &["metadata", "name"]),
            name => name,
        };
        Request::write(Operation::Create, to, name, &Value::Null, options)
    }

    /// Returns the update of an object or subresource from its state `old`.
    pub(crate) fn update(to: &'a Target, old: &'a Value, options: &'a WriteOptions) -> Request<'a> {
        Request::write(Operation::Update, to, &to.name, old, options)
    }

    fn write(
        operation: Operation,
        to: &'a Target,
        name: &str,
        old: &'a Value,
        options: &'a WriteOptions,
    ) -> Request<'a> {
        let sent = review::options(operation, &options.given);
        let (dry_run, user) = (options.dry_run, options.user.as_str());
        let (name, namespace) = (name.to_owned(), namespace_of(to, name));
        Request { to, operation, name, namespace, old, options: sent, dry_run, user }
    }

    /// Returns the target of the request.
    pub(crate) fn target(&self) -> &'a Target {
        self.to
    }

    /// Returns the name in the reviews; empty if the name of a new object is not known yet.
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    fn delete(to: &'a Target, old: &'a Value, options: &'a DeleteOptions) -> Request<'a> {
        let sent = review::options(Operation::Delete, &written(options));
        // Upstream does not name the objects of a deleted collection.
        let name = if options.of_collection { "" } else { to.name.as_str() };
        Request {
            to,
            operation: Operation::Delete,
            name: name.to_owned(),
            namespace: namespace_of(to, name),
            old,
            options: sent,
            dry_run: options.dry_run,
            user: &options.user,
        }
    }
}

/// Sets the kind and the namespace of the path in the body of an action.
fn complete_action(to: &Target, body: &mut Value) {
    if !body.is_object() {
        return;
    }
    let (group, version, kind) = review::kind(&to.resource, &to.subresource);
    let api_version = if group.is_empty() { version } else { format!("{group}/{version}") };
    value::default(body, &["apiVersion"], api_version);
    value::default(body, &["kind"], kind);
    if !to.namespace.is_empty() {
        value::default(body, &["metadata", "namespace"], to.namespace.as_str());
    }
}

/// Returns the namespace in a review: that of the path, and for a namespace its own name.
fn namespace_of(to: &Target, name: &str) -> String {
    let is_namespace = to.resource.group.is_empty() && to.resource.plural == "namespaces";
    if is_namespace { name.to_owned() } else { to.namespace.clone() }
}

/// Returns deletion options as JSON.
fn written(options: &DeleteOptions) -> Value {
    let mut written = json!({});
    let fields = [
        ("gracePeriodSeconds", options.grace_period_seconds.map(Value::from)),
        ("orphanDependents", options.orphan_dependents.map(Value::from)),
        ("dryRun", options.dry_run.then(|| json!(["All"]))),
        (
            "propagationPolicy",
            options.propagation.map(|it| {
                Value::from(match it {
                    Propagation::Orphan => "Orphan",
                    Propagation::Background => "Background",
                    Propagation::Foreground => "Foreground",
                })
            }),
        ),
    ];
    for (field, given) in fields {
        given.into_iter().for_each(|it| value::set(&mut written, &[field], it));
    }
    for (field, given) in [("uid", &options.uid), ("resourceVersion", &options.resource_version)] {
        given.iter().for_each(|it| value::set(&mut written, &["preconditions", field], it.as_str()));
    }
    written
}

impl Webhook {
    fn name(&self) -> &str {
        value::text(&self.0, &["name"])
    }

    fn is_reinvoked(&self) -> bool {
        value::text(&self.0, &["reinvocationPolicy"]) == "IfNeeded"
    }

    fn ignores_failures(&self) -> bool {
        value::text(&self.0, &["failurePolicy"]) == "Ignore"
    }

    fn failed(&self, why: &str) -> Status {
        Status::internal(format!("failed calling webhook {:?}: {why}", self.name()))
    }

    /// Applies the failure policy.
    fn or_ignored<T>(&self, result: Result<T, Failure>) -> Result<Option<T>, Status> {
        match result {
            Ok(reviewed) => Ok(Some(reviewed)),
            Err(Failure::Final(status)) => Err(status),
            Err(Failure::Call(why)) if self.ignores_failures() => {
                tracing::warn!(webhook = self.name(), why, "webhook failed; its failure policy is Ignore");
                Ok(None)
            }
            Err(Failure::Call(why)) => Err(self.failed(&why)),
        }
    }

    /// Returns the version of the reviews: the first one of the webhook that the server knows.
    fn version(&self) -> Result<ReviewVersion, Failure> {
        let versions = value::texts(&self.0, &["admissionReviewVersions"]);
        versions.into_iter().find_map(ReviewVersion::named).ok_or_else(|| {
            let why = "webhook does not accept known AdmissionReview versions (v1, v1beta1)";
            Failure::Call(format!("could not create admission objects: {why}"))
        })
    }

    fn call(&self, review: Value) -> Call {
        let seconds = value::integer(&self.0, &["timeoutSeconds"]).unwrap_or(10);
        let limit = Duration::from_secs(u64::try_from(seconds).unwrap_or_default());
        Call { address: WebhookAddress::of(value::at(&self.0, &["clientConfig"])), limit, review }
    }

    fn check_dry_run(&self, request: &Request<'_>) -> Result<(), Status> {
        let has_none = matches!(value::text(&self.0, &["sideEffects"]), "None" | "NoneOnDryRun");
        if has_none || !request.dry_run {
            return Ok(());
        }
        Err(Status::bad_request(format!("admission webhook {:?} does not support dry run", self.name())))
    }
}

impl WriteTransaction<'_> {
    /// Has the mutating webhooks change a new state. Returns the warnings.
    pub(crate) fn mutate(
        &mut self,
        request: &Request<'_>,
        object: &mut Value,
    ) -> Result<Vec<String>, Status> {
        let webhooks = self.webhooks("mutatingwebhookconfigurations", request);
        let managed = value::at(object, &["metadata", "managedFields"]).clone();
        let (mut warnings, mut again, mut invoked) = (Vec::new(), BTreeSet::new(), BTreeSet::new());
        let mut has_changed = false;
        for is_second_round in [false, true] {
            if is_second_round {
                if !has_changed {
                    break;
                }
                if self.admit_again(request, object).map_err(|it| it.warned(warnings.clone()))? {
                    again.append(&mut invoked);
                }
            }
            for (index, webhook) in webhooks.iter().enumerate() {
                let Some(invocation) = self.invocation(webhook, request, object, &warnings)? else {
                    continue;
                };
                if is_second_round && !again.contains(&index) {
                    continue;
                }
                let result = self.mutate_by(webhook, &invocation, request, object, &mut warnings);
                let changed = webhook.or_ignored(result).map_err(|it| it.warned(warnings.clone()))?;
                if changed == Some(true) {
                    has_changed = true;
                    again.append(&mut invoked);
                }
                if webhook.is_reinvoked() {
                    invoked.insert(index);
                }
            }
        }
        if let Some(why) = transform::invalid_managed_fields(object) {
            value::set(object, &["metadata", "managedFields"], managed);
            warnings.push(format!(
                ".metadata.managedFields was in an invalid state after admission; this could be caused by an outdated \
                 mutating admission controller; please fix your requests: {why}"
            ));
        }
        Ok(warnings)
    }

    /// Repeats the admission of the kind after webhooks have changed a new object. Returns whether that changed it
    /// again.
    fn admit_again(&mut self, request: &Request<'_>, object: &mut Value) -> Result<bool, Status> {
        if request.operation != Operation::Create || request.to.is_subresource() {
            return Ok(false);
        }
        let before = object.clone();
        (self.kind_of(&request.to.resource).admit)(self, object)?;
        Ok(!value::same(&before, object))
    }

    /// Has one mutating webhook change a new state. Returns whether it did.
    fn mutate_by(
        &mut self,
        webhook: &Webhook,
        invocation: &Invocation,
        request: &Request<'_>,
        object: &mut Value,
        warnings: &mut Vec<String>,
    ) -> Result<bool, Failure> {
        webhook.check_dry_run(request)?;
        // Upstream describes this error twice.
        let internal = |it: Status| Status::internal(Status::internal(it.message).message);
        let before = self.reviewed(object, invocation, request).map_err(internal)?;
        let old = self.reviewed(request.old, invocation, request).map_err(internal)?;
        let version = webhook.version()?;
        let call = webhook.call(review::review(request, invocation, version, &before, &old));
        let answer = self.answer_to(call)?.map_err(Failure::Call)?;
        let response = review::response(&answer, version, true).map_err(Failure::Call)?;
        let Some(patch) = admitted(webhook, response, warnings)? else { return Ok(false) };
        if before.is_null() {
            return Err(Failure::Final(Status::internal(format!(
                "admission webhook {:?} attempted to modify the object, which is not supported for this operation",
                webhook.name()
            ))));
        }
        let mut after = json_patch::apply(&before, &patch).map_err(Status::internal)?;
        let changed = !value::same(&before, &after);
        if is_whole(invocation, request) {
            self.decode_mutated(invocation, request, &mut after)?;
            after = self.converted(after, &request.to.resource)?;
        }
        *object = after;
        Ok(changed)
    }

    /// Decodes a changed object, and sets its defaults.
    fn decode_mutated(
        &self,
        invocation: &Invocation,
        request: &Request<'_>,
        object: &mut Value,
    ) -> Result<(), Status> {
        let resource = &invocation.resource;
        let definition = self.definition(resource);
        if definition.is_some() {
            review::check_kind(object).map_err(Status::internal)?;
            let own = WriteOptions::default();
            transform::identity(&self.served.catalog, resource, true, object, &own)?;
        }
        transform::decode(resource, definition.as_deref(), object, FieldValidation::Ignore, None)
            .map_err(|status| Status::internal(status.message))?;
        self.put_defaults(&Target { resource: Arc::clone(resource), ..request.to.clone() }, object);
        Ok(())
    }

    /// Has the validating webhooks review a new state, or a deletion if `object` is null. Returns the warnings.
    pub(crate) fn validate(&mut self, request: &Request<'_>, object: &Value) -> Result<Vec<String>, Status> {
        let webhooks = self.webhooks("validatingwebhookconfigurations", request);
        let mut prepared = Vec::new();
        for webhook in &webhooks {
            let Some(invocation) = self.invocation(webhook, request, object, &[])? else { continue };
            let internal = |it: Status| Status::internal(it.message);
            let now = self.reviewed(object, &invocation, request).map_err(internal)?;
            let old = self.reviewed(request.old, &invocation, request).map_err(internal)?;
            let prepare = |version| {
                let call = webhook.call(review::review(request, &invocation, version, &now, &old));
                Ok((version, call))
            };
            let call = webhook.check_dry_run(request).map_err(Failure::Final);
            prepared.push((webhook, call.and_then(|()| webhook.version()).and_then(prepare)));
        }
        // All webhooks are called before the first response is evaluated.
        let called: Vec<_> = prepared
            .into_iter()
            .map(|(webhook, call)| {
                let answer = call.and_then(|(version, call)| match self.replay.get_mut().answer(call) {
                    Some(answer) => Ok((version, answer.map_err(Failure::Call)?)),
                    None => Err(Failure::Final(waiting())),
                });
                (webhook, answer)
            })
            .collect();
        let (mut warnings, mut denied) = (Vec::new(), None);
        for (webhook, answer) in called {
            let result = answer.and_then(|(version, answer)| {
                let response = review::response(&answer, version, false).map_err(Failure::Call)?;
                admitted(webhook, response, &mut warnings).map(drop)
            });
            if let Err(status) = webhook.or_ignored(result) {
                denied.get_or_insert(status);
            }
        }
        match denied {
            Some(status) => Err(status.warned(warnings)),
            None => Ok(warnings),
        }
    }

    /// Has all webhooks review the body of an action, which is not stored. Returns the warnings.
    pub(crate) fn review_action(
        &mut self,
        to: &Target,
        body: &mut Value,
        options: &WriteOptions,
    ) -> Result<Vec<String>, Status> {
        if !options.is_request {
            return Ok(Vec::new());
        }
        complete_action(to, body);
        let request = Request::create(to, body, options);
        let mut warnings = self.mutate(&request, body)?;
        let validated = self.validate(&request, body).map_err(|it| it.warned(warnings.clone()))?;
        warnings.extend(validated);
        Ok(warnings)
    }

    /// Has all webhooks review a deletion. Keeps the warnings for the response.
    pub(crate) fn review_deletion(
        &mut self,
        at: &Target,
        old: &Stored,
        options: &DeleteOptions,
    ) -> Result<(), Status> {
        if !options.is_request {
            return Ok(());
        }
        let old = self.converted(old.value.clone(), &at.resource)?;
        let request = Request::delete(at, &old, options);
        let warnings = self.mutate(&request, &mut Value::Null)?;
        self.warnings.extend(warnings);
        let warnings = self.validate(&request, &Value::Null)?;
        self.warnings.extend(warnings);
        Ok(())
    }

    fn invocation(
        &mut self,
        webhook: &Webhook,
        request: &Request<'_>,
        object: &Value,
        warnings: &[String],
    ) -> Result<Option<Invocation>, Status> {
        let warned = |it: Status| it.warned(warnings.to_vec());
        let found = rules::invocation(self, &webhook.0, request, object).map_err(warned)?;
        let Some(invocation) = found else { return Ok(None) };
        let is_met = self.meets_conditions(webhook, &invocation, request, object).map_err(warned)?;
        Ok(is_met.then_some(invocation))
    }

    /// Returns a state as the webhook receives it.
    fn reviewed(
        &self,
        object: &Value,
        invocation: &Invocation,
        request: &Request<'_>,
    ) -> Result<Value, Status> {
        let resource = &invocation.resource;
        let mut shown = object.clone();
        if shown.is_null() || !is_whole(invocation, request) {
            return Ok(shown);
        }
        transform::settle(&request.to.resource, self.definition(resource).is_some(), &mut shown, false);
        self.converted(shown, resource)
    }

    /// Returns the webhooks of all configurations in upstream's order.
    fn webhooks(&self, plural: &str, request: &Request<'_>) -> Vec<Webhook> {
        if rules::is_exempt(&request.to.resource) {
            return Vec::new();
        }
        let configurations = self.all(&Collection::new("admissionregistration.k8s.io", plural), "");
        let webhooks = |it: &Arc<Stored>| value::items(&it.value, &["webhooks"]).to_vec();
        configurations.iter().flat_map(webhooks).map(Webhook).collect()
    }
}

/// Returns whether the reviewed states are complete objects, not those of a subresource such as a `Scale`.
fn is_whole(invocation: &Invocation, request: &Request<'_>) -> bool {
    review::kind(&invocation.resource, &request.to.subresource).2 == invocation.resource.kind
}

/// Returns the patch of an admitted request.
fn admitted(
    webhook: &Webhook,
    response: Response,
    warnings: &mut Vec<String>,
) -> Result<Option<Value>, Failure> {
    let Response { allowed, patch, warnings: new, status } = response;
    warnings.extend(new);
    if allowed { Ok(patch) } else { Err(Failure::Final(review::denial(webhook.name(), &status))) }
}
