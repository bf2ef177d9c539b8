//! Errors of reconciles, of writes and of setups.

use std::borrow::Cow;
use std::error::Error;
use std::fmt;
use std::time::Duration;

use windlass_client::{
    IdentityError, MissingPermission, NotDeclaredError, ReconcileEndedError, RequestError, one_line,
};
use windlass_informer::UndecodableError;

use self::boxed::boxed;

mod boxed;

/// Interval at which a key with an undecodable object is reconciled. No event reports that such an object was deleted.
const LOOK_AGAIN: Duration = Duration::from_secs(30);

/// Any error that can be sent between workers.
pub type BoxError = Box<dyn Error + Send + Sync + 'static>;

/// Error of a reconcile; determines when its key is retried.
///
/// `?` converts any error, including `anyhow::Error` and text, and takes the class from the first cause of a known
/// type:
///
/// | cause | key |
/// |---|---|
/// | a request that the controller did not declare | [`terminal`] |
/// | [`WriteError::NotGranted`], [`WriteError::CrossNamespace`], [`WriteError::Incomplete`] | [`terminal`] |
/// | [`UndecodableError`] | [`not_yet`], after 30 s |
/// | 403 with a missing RBAC rule, or a missing identity | [`retry`], within 30 s |
/// | 409 Conflict, lost leadership, a shutdown | [`retry`], logged at debug level |
/// | anything else | [`retry`] |
///
/// A missing rule or identity uses up no retry of [`max_retries`](crate::Setup::max_retries).
///
/// [`retry`], [`retry_after`], [`terminal`] and [`not_yet`] choose the class: `.map_err(terminal)?`. A custom error
/// type that wraps one of these must return it from its [`source`](Error::source); `#[error(transparent)]` hides it.
///
/// Like `anyhow::Error`, this type does not implement [`Error`]: otherwise it could not convert every error.
///
/// # Examples
/// ```
/// # use windlass_controller::{ReconcileError, terminal};
/// fn size_of(text: Option<&str>) -> Result<u64, ReconcileError> {
///     let text = text.ok_or_else(|| terminal("spec.size is missing; set it"))?;
///     text.parse().map_err(terminal)
/// }
/// assert!(size_of(Some("3")).is_ok() && size_of(Some("three")).is_err());
/// ```
#[derive(Debug)]
pub struct ReconcileError {
    class: Class,
    cause: BoxError,
}

/// The handling of the key.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(crate) enum Class {
    /// The key backs off.
    Retry,
    /// The key is reconciled again after this delay. Its failure count is kept.
    RetryAfter(Duration),
    /// The key waits for its next change.
    Terminal,
    /// No failure: the key is reconciled again after this delay.
    NotYet(Duration),
}

/// Creates an error that another attempt can resolve: the key backs off.
pub fn retry(cause: impl Into<BoxError> + 'static) -> ReconcileError {
    ReconcileError { class: Class::Retry, cause: boxed(cause) }
}

/// Creates an error that another attempt after `delay` can resolve: the key is then reconciled regardless of its
/// backoff.
pub fn retry_after(delay: Duration, cause: impl Into<BoxError> + 'static) -> ReconcileError {
    ReconcileError { class: Class::RetryAfter(delay), cause: boxed(cause) }
}

/// Creates an error that only a change of the object can resolve: the key waits for its next change.
pub fn terminal(cause: impl Into<BoxError> + 'static) -> ReconcileError {
    ReconcileError { class: Class::Terminal, cause: boxed(cause) }
}

/// Creates an error for a prerequisite that is not met yet, such as a child that is not ready. The key is reconciled
/// again after `delay`. This is not a failure; `explain` shows the reason.
pub fn not_yet(delay: Duration, reason: impl Into<Cow<'static, str>>) -> ReconcileError {
    let reason: Cow<'static, str> = reason.into();
    ReconcileError { class: Class::NotYet(delay), cause: reason.into() }
}

/// The log severity of a failure.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(crate) enum FailureSeverity {
    /// Part of normal operation: a conflict, the end of leadership, or a shutdown.
    Expected,
    /// A failure that an operator might need to act on.
    Unexpected,
}

impl ReconcileError {
    /// Returns whether the key waits for its next change.
    pub fn is_terminal(&self) -> bool {
        self.class == Class::Terminal
    }

    /// Returns the first cause of this type.
    pub fn find<E: Error + 'static>(&self) -> Option<&E> {
        self.causes().find_map(|cause| cause.downcast_ref())
    }

    /// Returns whether the cause is an optimistic-concurrency conflict: another client wrote the object first, and the
    /// next attempt reads the new version.
    pub fn is_conflict(&self) -> bool {
        self.causes().any(is_conflict)
    }

    pub(crate) fn class(&self) -> Class {
        self.class
    }

    pub(crate) fn cause(&self) -> &(dyn Error + 'static) {
        self.cause.as_ref()
    }

    /// Returns the severity with which the worker logs this failure.
    pub(crate) fn severity(&self) -> FailureSeverity {
        let expected = self.causes().any(|cause| is_conflict(cause) || was_not_sent(cause));
        if expected { FailureSeverity::Expected } else { FailureSeverity::Unexpected }
    }

    /// Returns the permission that the API server's authorizer denied, if a denial is the cause.
    pub(crate) fn denial(&self) -> Option<MissingPermission> {
        windlass_client::missing_permission(self.cause())
    }

    /// Returns whether the cause is a missing permission or identity, which an operator can fix at any time.
    pub(crate) fn is_missing_permission(&self) -> bool {
        self.denial().is_some() || IdentityError::among(self.cause()).is_some()
    }

    fn causes(&self) -> impl Iterator<Item = &(dyn Error + 'static)> {
        causes(self.cause())
    }

    /// Chooses the class by the first cause of a known type.
    fn classified(cause: BoxError) -> Self {
        let class = causes(cause.as_ref()).find_map(class_of).unwrap_or(Class::Retry);
        Self { class, cause }
    }
}

impl<E: Into<BoxError> + 'static> From<E> for ReconcileError {
    fn from(cause: E) -> Self {
        Self::classified(boxed(cause))
    }
}

impl fmt::Display for ReconcileError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.cause.fmt(f)
    }
}

fn causes<'a>(error: &'a (dyn Error + 'static)) -> impl Iterator<Item = &'a (dyn Error + 'static)> {
    std::iter::successors(Some(error), |&error| error.source())
}

/// Returns the class of a cause of a known type.
fn class_of(cause: &(dyn Error + 'static)) -> Option<Class> {
    let of_write = |error: &WriteError| {
        matches!(
            error,
            WriteError::NotGranted { .. } | WriteError::CrossNamespace { .. } | WriteError::Incomplete { .. }
        )
        .then_some(Class::Terminal)
    };
    let of_read = || cause.is::<UndecodableError>().then_some(Class::NotYet(LOOK_AGAIN));
    let of_request = || is_undeclared(cause).then_some(Class::Terminal);
    cause.downcast_ref().and_then(of_write).or_else(of_read).or_else(of_request)
}

/// Returns whether the request was rejected because the controller did not declare it.
fn is_undeclared(cause: &(dyn Error + 'static)) -> bool {
    let by_request = || matches!(cause.downcast_ref(), Some(RequestError::NotDeclared(_)));
    cause.downcast_ref().and_then(windlass_client::undeclared).is_some()
        || by_request()
        || cause.is::<NotDeclaredError>()
}

/// Error of a [`Writer`](crate::Writer): the write was not sent, or the server rejected it.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum WriteError {
    /// The request failed, or its response could not be decoded.
    #[error("{}", one_line(.0))]
    Request(#[source] kube::Error),
    /// The server does not serve the path of the request: the CRD of the kind is missing, or has no such subresource.
    #[error(
        "cannot write {kind}: the server does not serve {path} (404); apply the CRD, which the subcommand `manifests crd` \
         prints, or add the subresource to it"
    )]
    NotServed {
        /// The kind of the writer's objects.
        kind: String,
        /// The path of the request.
        path: String,
        /// The response.
        source: kube::Error,
    },
    /// The writer was not granted the operation. Nothing was sent.
    #[error(
        "cannot write {kind}: setup does not grant {operation} to its writer; add .{} to the builder of the writer",
        call(.operation)
    )]
    NotGranted {
        /// The kind of the writer's objects.
        kind: String,
        /// The builder method that grants it.
        operation: &'static str,
    },
    /// Another object controls the existing object of that name. Nothing was sent.
    #[error("cannot write {child}: {by} controls it; use another name, or delete it")]
    NotOwned {
        /// Kind and key of the child.
        child: String,
        /// Kind and name of the object that controls it.
        by: String,
    },
    /// The existing object of that name belongs to a deleted owner of the same kind and name. Nothing was sent. An
    /// attempt succeeds after the garbage collector has deleted the object.
    #[error(
        "cannot write {child}: it belongs to an earlier {owner}, which was deleted; wait until the garbage collector \
         deletes it, or delete it"
    )]
    OfEarlierOwner {
        /// Kind and key of the child.
        child: String,
        /// Kind and name of both owners.
        owner: String,
    },
    /// No object controls the existing object of that name, and the builder does not
    /// [adopt](crate::OwnedBuilder::adopt_orphans) such objects. Nothing was sent.
    #[error(
        "cannot write {child}: it exists and no object controls it; use another name, or adopt such objects with \
         .adopt_orphans() on the builder of the children"
    )]
    NotAdopted {
        /// Kind and key of the child.
        child: String,
    },
    /// The child would be in another namespace than its owner. Nothing was sent.
    #[error(
        "cannot write {child}: its owner is in another namespace; create it in the namespace of the owner, or without \
         an owner"
    )]
    CrossNamespace {
        /// Kind and key of the child.
        child: String,
    },
    /// The object is missing a field that the write requires. Nothing was sent.
    #[error("cannot write {kind} object: it has no {lacks}; {}", remedy(.lacks))]
    Incomplete {
        /// The kind of the object.
        kind: String,
        /// The missing field.
        lacks: &'static str,
    },
    /// An object that decides about the write cannot be decoded. Nothing was sent.
    #[error("{0}")]
    Undecodable(#[source] UndecodableError),
    /// The reconcile has ended and can no longer write ([`Context::spawn`](crate::Context::spawn)).
    #[error("{0}")]
    ReconcileEnded(#[source] ReconcileEndedError),
    /// The object cannot be encoded. Nothing was sent.
    #[error("the object cannot be encoded: {0}")]
    Encoding(#[source] serde_json::Error),
}

/// Returns the call of the builder method that grants an operation.
fn call(operation: &str) -> String {
    let arguments = if operation == "finalizer" { "\"<name>\"" } else { "" };
    format!("{operation}({arguments})")
}

/// Returns the remedy for an object without the field.
fn remedy(field: &str) -> String {
    match field {
        "name" | "namespace" => format!("set metadata.{field}"),
        _ => "pass an object that was read from a lister or from the server".to_owned(),
    }
}

/// Returns whether `cause` is a version conflict. A field-manager conflict of an apply is excluded: the next attempt
/// would fail in the same way.
fn is_conflict(cause: &(dyn Error + 'static)) -> bool {
    let Some(kube::Error::Api(status)) = cause.downcast_ref() else { return false };
    let causes = status.details.iter().flat_map(|details| &details.causes);
    let is_of_fields = causes.into_iter().any(|cause| cause.reason == "FieldManagerConflict");
    status.code == 409 && status.reason == "Conflict" && !is_of_fields
}

/// Returns whether the client blocked the request before it was sent, for example because its deadline had expired.
fn was_not_sent(cause: &(dyn Error + 'static)) -> bool {
    let held_back = |error: &kube::Error| {
        windlass_client::fenced(error).is_some()
            || windlass_client::reconcile_ended(error).is_some()
            || windlass_client::killed(error)
            || windlass_client::draining(error)
    };
    cause.is::<LeaseLost>() || cause.downcast_ref().is_some_and(held_back)
}

/// Error of a reconcile that exceeded the reconcile timeout of its controller.
#[derive(Debug, thiserror::Error)]
#[error(
    "reconcile aborted after {limit:?}: it exceeded reconcile_timeout; raise the timeout or shorten the reconcile"
)]
pub(crate) struct ReconcileTimeout {
    pub(crate) limit: Duration,
}

/// Error of a reconcile that was running when the lease of its key's shard was lost. Another replica might own the key
/// now.
#[derive(Debug, thiserror::Error)]
#[error(
    "reconcile aborted: this replica lost the Lease of the key's shard; its new holder reconciles the key"
)]
pub(crate) struct LeaseLost;

/// Error of a controller that could not be set up or started.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SetupError {
    /// The controller rejected its configuration.
    #[error("{0}")]
    Invalid(#[source] BoxError),
    /// The controller does not run with this configuration. The process starts without it.
    #[error("not started: {0}")]
    Absent(String),
    /// A watch could not be set up, for example because a selection follows its mappers.
    #[error("cannot watch {kind}: {message}")]
    Watch {
        /// The kind to watch.
        kind: String,
        /// The error of the informer.
        message: String,
    },
    /// A namespaced object cannot own a cluster-scoped one.
    #[error(
        "cannot declare owned {child}: {owner} is namespaced and cannot own cluster-scoped objects; watch {child} and \
         map it to its {owner} by a label"
    )]
    Owned {
        /// The kind of the children.
        child: String,
        /// The kind of the owners.
        owner: String,
    },
    /// The number of workers is zero, so no key would be reconciled.
    #[error("cannot set up workers: their number is 0; pass at least 1 to workers")]
    NoWorkers,
    /// The limit admits no key, so its keys would never be reconciled.
    #[error("cannot set up a concurrency limit: it is 0; pass at least 1 to limit_concurrency")]
    ZeroConcurrencyLimit,
    /// The timer would fire without pause.
    #[error(
        "cannot set up a timer: its period must be longer than zero, and its jitter factor a number >= 0"
    )]
    Timer,
    /// The setup of a runnable calls a method that requires a queue.
    #[error("a runnable has no queue: {call} belongs in the setup of a controller")]
    NoQueue {
        /// The method.
        call: &'static str,
    },
    /// The required caches did not sync in time.
    #[error(
        "caches did not sync within {waited:?}: {lacking}; fix the causes, or wait indefinitely with CacheSync::Forever"
    )]
    NotSynced {
        /// The time waited.
        waited: Duration,
        /// The missing caches and the causes.
        lacking: String,
    },
}

impl SetupError {
    /// Creates the error of a controller that rejects its configuration for this reason.
    pub fn invalid(cause: impl Into<BoxError>) -> Self {
        Self::Invalid(cause.into())
    }

    /// Creates the error of a controller that does not run with this configuration, for example because a feature gate
    /// is off. The manager logs the reason and starts without the controller and its parts. Return it before the setup
    /// declares anything: caches that it has requested are filled nevertheless.
    pub fn absent(reason: impl Into<String>) -> Self {
        Self::Absent(reason.into())
    }
}

#[cfg(test)]
mod tests {
    use windlass_client::{DrainingError, FencedError};

    use super::*;

    /// A conflict is part of normal work and is not logged as an error (knative #3289). A name conflict of two creates
    /// is logged: the next attempt only finds the other object if it reads it.
    // parity: conflicts-logged-errors
    #[test]
    fn conflict_is_retried_quietly_and_other_rejections_are_logged() {
        for (code, reason, loudness) in [
            (409, "Conflict", FailureSeverity::Expected),
            (409, "AlreadyExists", FailureSeverity::Unexpected),
            (422, "Invalid", FailureSeverity::Unexpected),
            (500, "InternalError", FailureSeverity::Unexpected),
        ] {
            let status = kube::core::Status::failure("refused", reason).with_code(code);
            let error = ReconcileError::from(kube::Error::Api(Box::new(status)));
            assert_eq!(error.class(), Class::Retry);
            assert_eq!(error.severity(), loudness, "{reason}");
            assert_eq!(error.is_conflict(), loudness == FailureSeverity::Expected, "{reason}");
        }
    }

    #[test]
    fn class_follows_from_first_known_cause_unless_chosen() {
        let kind = Box::new(windlass_object::ResourceKind::of::<k8s_openapi::api::core::v1::Pod>());
        let unreadable = || UndecodableError {
            kind: kind.clone(),
            key: windlass_object::ObjectKey::namespaced("shop", "web"),
            reason: "a number".into(),
        };
        let undeclared = || NotDeclaredError {
            verb: windlass_object::Verb::Get,
            group: "apps".to_owned(),
            resource: "deployments".to_owned(),
        };
        let minute = Duration::from_secs(60);
        let table = [
            (ReconcileError::from("text"), Class::Retry, "text"),
            (ReconcileError::from(unreadable()), Class::NotYet(LOOK_AGAIN), "pods.v1 shop/web exists"),
            (
                ReconcileError::from(undeclared()),
                Class::Terminal,
                "setup.uses_rule(Rule::new(\"apps\", \"deployments\"",
            ),
            (
                ReconcileError::from(RequestError::NotDeclared(undeclared())),
                Class::Terminal,
                "setup.uses_rule(",
            ),
            (retry(unreadable()), Class::Retry, "cannot be decoded"),
            (retry_after(minute, "busy"), Class::RetryAfter(minute), "busy"),
            (terminal("never"), Class::Terminal, "never"),
            (not_yet(minute, "no address"), Class::NotYet(minute), "no address"),
        ];
        for (error, class, text) in table {
            assert_eq!(error.class(), class, "{error}");
            assert!(error.to_string().contains(text), "{error}");
            assert_eq!(error.is_terminal(), class == Class::Terminal);
        }
        assert_eq!(retry(unreadable()).find::<UndecodableError>(), Some(&unreadable()));
    }

    #[test]
    fn requests_blocked_by_the_client_are_retried_quietly() {
        for cause in [BoxError::from(DrainingError), BoxError::from(FencedError::NotSent)] {
            let error = ReconcileError::from(kube::Error::Service(cause));
            assert_eq!(error.class(), Class::Retry);
            assert_eq!(error.severity(), FailureSeverity::Expected);
        }
        assert_eq!(retry(LeaseLost).severity(), FailureSeverity::Expected);
        assert_eq!(retry("another failure").severity(), FailureSeverity::Unexpected);
    }
}
