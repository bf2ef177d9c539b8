//! Deletion of objects.

use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

use super::kinds::{Dependents, Kind};
use super::request::{DeleteOptions, DeleteResponse, Propagation, ResponseObject, Target};
use super::writer::{WriteTransaction, seconds};
use super::{convert, custom, value};
use crate::read::{ListOptions, Selection};
use crate::status::{ResourceName, Status};
use crate::storage::Stored;

const ORPHAN: &str = "orphan";
const FOREGROUND: &str = "foregroundDeletion";
/// Reason of a rejection without a garbage collector.
const NO_GARBAGE_COLLECTOR: &str = "this cluster has no garbage collector, so a deletion that orphans dependents or \
    waits for them would not end; delete with --cascade=background";
/// Namespaces that exist in every cluster and cannot be deleted.
const KEPT_NAMESPACES: [&str; 3] = ["default", "kube-system", "kube-public"];

/// The effect of the grace period on a deletion.
enum Grace {
    /// The kind has no grace period, or the period is over.
    None,
    /// The period is running, and this request does not shorten it.
    Pending,
    /// The period starts now, or has been shortened to this many seconds.
    Runs(i64),
}

impl WriteTransaction<'_> {
    /// Deletes the object, or marks it as terminating.
    pub(crate) fn delete(&mut self, at: &Target, options: &DeleteOptions) -> Result<DeleteResponse, Status> {
        if at.is_subresource() {
            return Err(Status::method_not_allowed(at.named(), "delete"));
        }
        let namespace = at.resource.group.is_empty() && at.resource.plural == "namespaces";
        if namespace && KEPT_NAMESPACES.contains(&at.name.as_str()) {
            return Err(Status::forbidden(at.named(), &at.name, "this namespace may not be deleted"));
        }
        let found = self.find(&convert::collection(&at.resource), &at.namespace, &at.name);
        let old = found.ok_or_else(|| at.not_found())?;
        if namespace && let Some(deleted) = self.delete_namespace(at, &old, options)? {
            return Ok(deleted);
        }
        let definition =
            at.resource.group == "apiextensions.k8s.io" && at.resource.plural == "customresourcedefinitions";
        if definition && !value::has(&old.value, &["metadata", "deletionTimestamp"]) {
            return self.delete_definition(at, &old, options);
        }
        self.delete_found(at, &old, options)
    }

    /// Returns the objects that a deletion of a collection selects.
    pub(crate) fn selected(
        &self,
        at: &Target,
        selection: &Selection,
        list: &ListOptions,
    ) -> Vec<Arc<Stored>> {
        let namespace = selection.namespace.as_deref().unwrap_or_default();
        let mut found = self.all(&convert::collection(&at.resource), namespace);
        found.retain(|it| selection.matches(it));
        if let Ok(limit @ 1..) = usize::try_from(list.limit) {
            found.truncate(limit);
        }
        found
    }

    /// Runs the actions that follow the removal of an object.
    pub(crate) fn gone(&mut self, at: &Target, object: &Value) -> Result<(), Status> {
        (self.kind_of(&at.resource).after_delete)(self, object)?;
        match self.definition(&at.resource) {
            Some(definition) if definition.is_terminating() => {
                custom::finish(self, &at.resource.group, &at.resource.plural)
            }
            _ => Ok(()),
        }
    }

    fn delete_found(
        &mut self,
        at: &Target,
        old: &Arc<Stored>,
        options: &DeleteOptions,
    ) -> Result<DeleteResponse, Status> {
        check_preconditions(at, &old.value, options)?;
        let kind = self.kind_of(&at.resource);
        let now = self.time();
        let mut object = old.value.clone();
        let grace = begin_grace(kind, &mut object, options, now);
        if matches!(grace, Grace::Pending) {
            return Ok(self.answer(at, kind, ResponseObject::Stored(Arc::clone(old)), false, options));
        }
        self.review_deletion(at, old, options)?;
        let finalizers = finalizers_after(kind, &object, options);
        if !self.has_garbage_collector && finalizers.iter().any(|it| it == ORPHAN || it == FOREGROUND) {
            return Err(Status::forbidden(at.named(), &at.name, NO_GARBAGE_COLLECTOR));
        }
        value::set(&mut object, &["metadata", "finalizers"], finalizers.clone());
        if finalizers.is_empty() {
            value::remove(&mut object, &["metadata", "finalizers"]);
        }
        let waits = !finalizers.is_empty();
        match grace {
            Grace::Runs(period) if waits || period > 0 => {}
            Grace::Runs(_) => {
                // Watches get an event for the mark and another for the removal.
                return match self.replace(&at.resource, old, object, options.dry_run)? {
                    ResponseObject::Stored(marked) => self.delete_now(at, kind, &marked, options),
                    would_be @ ResponseObject::Value(_) => Ok(self.answer(at, kind, would_be, true, options)),
                };
            }
            _ if waits => mark(&mut object, now),
            _ => return self.delete_now(at, kind, old, options),
        }
        let answer = self.replace(&at.resource, old, object, options.dry_run)?;
        Ok(self.answer(at, kind, answer, false, options))
    }

    fn delete_now(
        &mut self,
        at: &Target,
        kind: &Kind,
        old: &Arc<Stored>,
        options: &DeleteOptions,
    ) -> Result<DeleteResponse, Status> {
        if options.dry_run {
            return Ok(self.answer(at, kind, ResponseObject::Stored(Arc::clone(old)), true, options));
        }
        let last = self.erase(&at.resource, old, old.value.clone())?;
        self.gone(at, &last.value)?;
        Ok(self.answer(at, kind, ResponseObject::Stored(last), true, options))
    }

    fn answer(
        &self,
        at: &Target,
        kind: &Kind,
        answer: ResponseObject,
        gone: bool,
        options: &DeleteOptions,
    ) -> DeleteResponse {
        if gone && !kind.returns_deleted {
            let uid = value::text(answer.value(), &["metadata", "uid"]);
            let mut details =
                json!({"name": at.name, "group": at.resource.group, "kind": at.resource.plural});
            if at.resource.group.is_empty() {
                value::remove(&mut details, &["group"]);
            }
            value::set(&mut details, &["uid"], uid);
            let status = "Success";
            return DeleteResponse::Status(json!({
                "kind": "Status",
                "apiVersion": "v1",
                "metadata": {},
                "status": status,
                "details": details,
            }));
        }
        DeleteResponse::Object { answer, accepted: !gone && options.orphan_dependents == Some(false) }
    }

    /// Marks a namespace as terminating at its first deletion. The namespace is removed once it is empty.
    fn delete_namespace(
        &mut self,
        at: &Target,
        old: &Arc<Stored>,
        options: &DeleteOptions,
    ) -> Result<Option<DeleteResponse>, Status> {
        check_early_preconditions(at, &old.value, options)?;
        if value::has(&old.value, &["metadata", "deletionTimestamp"]) {
            let waits = !value::is_empty(&old.value, &["spec", "finalizers"]);
            let answer = || DeleteResponse::Object {
                answer: ResponseObject::Stored(Arc::clone(old)),
                accepted: false,
            };
            return Ok(waits.then(answer));
        }
        self.review_deletion(at, old, options)?;
        let mut object = old.value.clone();
        value::set(&mut object, &["metadata", "deletionTimestamp"], self.now());
        value::set(&mut object, &["status", "phase"], "Terminating");
        let kept = namespace_finalizers(&object, options);
        if kept.is_empty() {
            value::remove(&mut object, &["metadata", "finalizers"]);
        } else {
            value::set(&mut object, &["metadata", "finalizers"], kept);
        }
        let answer = self.replace(&at.resource, old, object, options.dry_run)?;
        Ok(Some(DeleteResponse::Object { answer, accepted: options.orphan_dependents == Some(false) }))
    }

    /// Marks a CRD as terminating at its first deletion. The CRD is removed once its kind has no objects.
    fn delete_definition(
        &mut self,
        at: &Target,
        old: &Arc<Stored>,
        options: &DeleteOptions,
    ) -> Result<DeleteResponse, Status> {
        check_early_preconditions(at, &old.value, options)?;
        self.review_deletion(at, old, options)?;
        let mut object = old.value.clone();
        custom::mark(&mut object, &self.now());
        let answer = self.replace(&at.resource, old, object, options.dry_run)?;
        if !options.dry_run {
            custom::terminate(self, answer.value())?;
        }
        Ok(DeleteResponse::Object { answer, accepted: false })
    }
}

/// Checks the same as [`check_preconditions`], for kinds with a separate deletion in upstream.
fn check_early_preconditions(at: &Target, object: &Value, options: &DeleteOptions) -> Result<(), Status> {
    let given =
        [("UID", "uid", &options.uid), ("ResourceVersion", "resourceVersion", &options.resource_version)];
    for (what, field, given) in given {
        let found = value::text(object, &["metadata", field]);
        if let Some(given) = given.as_deref().filter(|given| *given != found) {
            let why = format!(
                "Precondition failed: {what} in precondition: {given}, {what} in object meta: {found}"
            );
            return Err(Status::conflict(at.named(), &at.name, &why));
        }
    }
    Ok(())
}

/// Checks UID and resource version of the deletion's preconditions.
pub(crate) fn check_preconditions(
    at: &Target,
    object: &Value,
    options: &DeleteOptions,
) -> Result<(), Status> {
    // Upstream reports the kind here instead of the resource.
    let named = ResourceName { group: &at.resource.group, resource: &at.resource.kind };
    let refuse = |what: &str, given: &str, found: &str, perhaps: &str| {
        let why = format!(
            "the {what} in the precondition ({given}) does not match the {what} in record ({found}). The object might \
             have been {perhaps}"
        );
        Err(Status::conflict(named, &at.name, &why))
    };
    let uid = value::text(object, &["metadata", "uid"]);
    if let Some(given) = options.uid.as_deref().filter(|given| *given != uid) {
        return refuse("UID", given, uid, "deleted and then recreated");
    }
    let version = value::text(object, &["metadata", "resourceVersion"]);
    if let Some(given) = options.resource_version.as_deref().filter(|given| *given != version) {
        return refuse("ResourceVersion", given, version, "modified");
    }
    Ok(())
}

fn begin_grace(kind: &Kind, object: &mut Value, options: &DeleteOptions, now: Timestamp) -> Grace {
    let asked = options.grace_period_seconds.map(|it| if it < 0 { 1 } else { it });
    let Some(default) = kind.grace else { return Grace::None };
    if value::has(object, &["metadata", "deletionTimestamp"]) {
        return shorten(object, asked, now);
    }
    let period = default(object, asked);
    let at = now.saturating_add(SignedDuration::from_secs(period)).unwrap_or(now);
    value::set(object, &["metadata", "deletionTimestamp"], seconds(at));
    value::set(object, &["metadata", "deletionGracePeriodSeconds"], period);
    bump(object);
    Grace::Runs(period)
}

/// Shortens the grace period of a terminating object. A longer period has no effect.
fn shorten(object: &mut Value, asked: Option<i64>, now: Timestamp) -> Grace {
    let running =
        value::integer(object, &["metadata", "deletionGracePeriodSeconds"]).unwrap_or_default().max(0);
    if running == 0 {
        return Grace::None;
    }
    let Some(mut period) = asked.filter(|it| *it < running) else { return Grace::Pending };
    let due: Timestamp = value::text(object, &["metadata", "deletionTimestamp"]).parse().unwrap_or(now);
    let mut sooner = due.saturating_add(SignedDuration::from_secs(period - running)).unwrap_or(now);
    if sooner < now {
        sooner = now;
        // The kubelet must still observe the pod, unless it is deleted immediately.
        period = period.min(1);
    }
    value::set(object, &["metadata", "deletionTimestamp"], seconds(sooner));
    value::set(object, &["metadata", "deletionGracePeriodSeconds"], period);
    Grace::Runs(period)
}

/// Marks an object as terminating that only its finalizers keep.
fn mark(object: &mut Value, now: Timestamp) {
    let running = value::text(object, &["metadata", "deletionTimestamp"]).parse::<Timestamp>().ok();
    if running.is_none() {
        bump(object);
    }
    if running.is_none_or(|it| it > now) {
        value::set(object, &["metadata", "deletionTimestamp"], seconds(now));
    }
    value::set(object, &["metadata", "deletionGracePeriodSeconds"], 0);
}

fn bump(object: &mut Value) {
    if let Some(generation) = value::integer(object, &["metadata", "generation"]).filter(|it| *it > 0) {
        value::set(object, &["metadata", "generation"], generation + 1);
    }
}

/// Returns the finalizers of the deleted object, including the one that instructs the garbage collector.
fn finalizers_after(kind: &Kind, object: &Value, options: &DeleteOptions) -> Vec<String> {
    let found = value::texts(object, &["metadata", "finalizers"]);
    let mut kept: Vec<String> =
        found.iter().filter(|it| ![ORPHAN, FOREGROUND].contains(it)).map(|it| (*it).to_owned()).collect();
    if let Some(asked) = dependents(kind, &found, options) {
        kept.push(asked.to_owned());
    }
    let mut same = found.len() == kept.len();
    same = same && kept.iter().all(|it| found.contains(&it.as_str()));
    if same { found.into_iter().map(str::to_owned).collect() } else { kept }
}

/// Returns the finalizer that instructs the garbage collector: from the request, else from the object, else from the
/// kind.
fn dependents(kind: &Kind, found: &[&str], options: &DeleteOptions) -> Option<&'static str> {
    if kind.dependents == Dependents::Unsupported {
        return None;
    }
    if let Some(orphan) = options.orphan_dependents {
        return orphan.then_some(ORPHAN);
    }
    if let Some(asked) = options.propagation {
        return match asked {
            Propagation::Orphan => Some(ORPHAN),
            Propagation::Foreground => Some(FOREGROUND),
            Propagation::Background => None,
        };
    }
    let there = found.iter().find_map(|it| [ORPHAN, FOREGROUND].into_iter().find(|known| known == it));
    there.or((kind.dependents == Dependents::Orphan).then_some(ORPHAN))
}

fn namespace_finalizers(object: &Value, options: &DeleteOptions) -> Vec<String> {
    let found = value::texts(object, &["metadata", "finalizers"]);
    let wanted = |name: &str, asked: bool, older: bool| match (options.orphan_dependents, options.propagation)
    {
        (Some(_), _) => older,
        (None, Some(_)) => asked,
        (None, None) => found.contains(&name),
    };
    let orphan = wanted(
        ORPHAN,
        options.propagation == Some(Propagation::Orphan),
        options.orphan_dependents == Some(true),
    );
    let foreground = wanted(
        FOREGROUND,
        options.propagation == Some(Propagation::Foreground),
        options.orphan_dependents == Some(false),
    );
    let mut kept: Vec<String> =
        found.iter().filter(|it| ![ORPHAN, FOREGROUND].contains(it)).map(|it| (*it).to_owned()).collect();
    kept.extend(orphan.then(|| ORPHAN.to_owned()));
    kept.extend(foreground.then(|| FOREGROUND.to_owned()));
    kept
}
