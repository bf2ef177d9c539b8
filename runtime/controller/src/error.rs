//! How a reconcile fails, and how a controller fails to be built.

use std::borrow::Cow;
use std::error::Error;
use std::fmt;
use std::time::Duration;

use windlass_client::{IdentityError, MissingPermission, NotDeclaredError, RequestError, TurnOverError};
use windlass_informer::Unreadable;

use self::boxed::boxed;

mod boxed;

/// How often a reconcile looks for an object that cannot be decoded. No event says that such an object is gone.
const LOOK_AGAIN: Duration = Duration::from_secs(30);

/// Any error, sendable between workers.
pub type BoxError = Box<dyn Error + Send + Sync + 'static>;

/// Why a reconcile did not succeed, and what becomes of its key.
///
/// `?` converts any error, `anyhow::Error` and text included, and takes the class from the first cause of a known type:
///
/// | cause | key |
/// |---|---|
/// | a request that the controller did not declare | [`terminal`], with the line to add |
/// | [`WriteError::NotGranted`], [`WriteError::CrossNamespace`], [`WriteError::Incomplete`] | [`terminal`] |
/// | [`Unreadable`] | [`not_yet`], after 30 s |
/// | anything else | [`retry`] |
///
/// [`retry`], [`retry_after`], [`terminal`] and [`not_yet`] choose the class: `.map_err(terminal)?`. An error type of yours
/// that wraps one of these is looked through by its [`source`](Error::source); one that is `#[error(transparent)]` hides it.
///
/// This type implements no [`Error`], as `anyhow::Error` does not: it could not convert any error otherwise.
#[derive(Debug)]
pub struct ReconcileError {
    class: Class,
    cause: BoxError,
}

/// What becomes of the key.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(crate) enum Class {
    /// It is backed off.
    Retry,
    /// It is reconciled again after this delay. Its failures stay counted.
    RetryAfter(Duration),
    /// It waits for its next change.
    Terminal,
    /// It did not fail, and is reconciled again after this delay.
    NotYet(Duration),
}

/// A failure that another attempt can mend: the key is backed off.
pub fn retry(cause: impl Into<BoxError> + 'static) -> ReconcileError {
    ReconcileError { class: Class::Retry, cause: boxed(cause) }
}

/// A failure that another attempt after `delay` can mend: the key is reconciled again then, whatever its back-off is.
pub fn retry_after(delay: Duration, cause: impl Into<BoxError> + 'static) -> ReconcileError {
    ReconcileError { class: Class::RetryAfter(delay), cause: boxed(cause) }
}

/// A failure that only a change of the object can mend: the key waits for its next change.
pub fn terminal(cause: impl Into<BoxError> + 'static) -> ReconcileError {
    ReconcileError { class: Class::Terminal, cause: boxed(cause) }
}

/// Something else has to happen first, such as a child becoming ready. The key is reconciled again after `delay`; this is
/// no failure, and `explain` shows the reason. It leaves through every function that returns a [`ReconcileError`].
pub fn not_yet(delay: Duration, reason: impl Into<Cow<'static, str>>) -> ReconcileError {
    let reason: Cow<'static, str> = reason.into();
    ReconcileError { class: Class::NotYet(delay), cause: reason.into() }
}

/// How loudly a failure is told.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(crate) enum FailureSeverity {
    /// Part of normal work: another writer was faster, leadership has ended, or the process shuts down.
    Expected,
    /// Somebody may want to know.
    Unexpected,
}

impl ReconcileError {
    /// Whether the key waits for its next change.
    pub fn is_terminal(&self) -> bool {
        self.class == Class::Terminal
    }

    /// Returns the first cause of this type.
    pub fn find<E: Error + 'static>(&self) -> Option<&E> {
        self.causes().find_map(|cause| cause.downcast_ref())
    }

    /// Whether the cause is an optimistic-concurrency conflict: somebody else wrote the object first, and the next
    /// attempt reads what they wrote.
    pub fn is_conflict(&self) -> bool {
        self.causes().any(is_conflict)
    }

    pub(crate) fn class(&self) -> Class {
        self.class
    }

    pub(crate) fn cause(&self) -> &(dyn Error + 'static) {
        self.cause.as_ref()
    }

    /// How loudly the worker tells of this failure.
    pub(crate) fn loudness(&self) -> FailureSeverity {
        let expected = self.causes().any(|cause| is_conflict(cause) || is_held_back(cause));
        if expected { FailureSeverity::Expected } else { FailureSeverity::Unexpected }
    }

    /// What the API server's authorizer refused, if that is why it failed.
    pub(crate) fn denial(&self) -> Option<MissingPermission> {
        windlass_client::missing_permission(self.cause())
    }

    /// Whether it failed because of what the controller may not do, or as whom: an operator mends that, at any time.
    pub(crate) fn is_for_want_of_rights(&self) -> bool {
        self.denial().is_some() || IdentityError::among(self.cause()).is_some()
    }

    fn causes(&self) -> impl Iterator<Item = &(dyn Error + 'static)> {
        causes(self.cause())
    }

    /// Chooses the class by the first cause of a known type.
    fn classified(cause: BoxError) -> Self {
        if let Some(undeclared) = causes(cause.as_ref()).find_map(undeclared) {
            return terminal(Undeclared { cause: undeclared.clone() });
        }
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

/// The class of a cause of a known type.
fn class_of(cause: &(dyn Error + 'static)) -> Option<Class> {
    let of_write = |error: &WriteError| {
        matches!(
            error,
            WriteError::NotGranted { .. } | WriteError::CrossNamespace { .. } | WriteError::Incomplete { .. }
        )
        .then_some(Class::Terminal)
    };
    let of_read = || cause.is::<Unreadable>().then_some(Class::NotYet(LOOK_AGAIN));
    cause.downcast_ref().and_then(of_write).or_else(of_read)
}

/// The request that was refused because the controller did not declare it.
fn undeclared<'a>(cause: &'a (dyn Error + 'static)) -> Option<&'a NotDeclaredError> {
    let of_request = || match cause.downcast_ref() {
        Some(RequestError::NotDeclared(undeclared)) => Some(undeclared),
        _ => None,
    };
    cause
        .downcast_ref()
        .and_then(windlass_client::undeclared)
        .or_else(of_request)
        .or_else(|| cause.downcast_ref())
}

/// Why a [`Writer`](crate::Writer) did not write, or what the server answered.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum WriteError {
    /// The request failed, or its answer could not be decoded.
    #[error("{0}")]
    Request(#[source] kube::Error),
    /// The writer was not granted the operation. Nothing was sent.
    #[error("the writer of {kind} was not granted {operation}: add .{operation}() where setup builds it")]
    NotGranted {
        /// The kind of the writer's objects.
        kind: String,
        /// The method of the builder that grants it.
        operation: &'static str,
    },
    /// A child of that name is controlled by another object, or by none. Nothing was sent.
    #[error("{child} exists and is controlled by {by}: delete it, or choose another name")]
    NotOwned {
        /// Kind and key of the child.
        child: String,
        /// Kind and name of the object that controls it.
        by: String,
    },
    /// A child would be in another namespace than its owner. Nothing was sent.
    #[error("{child} is in another namespace than its owner, which cannot control it there")]
    CrossNamespace {
        /// Kind and key of the child.
        child: String,
    },
    /// The object lacks what the write takes. Nothing was sent.
    #[error("the {kind} object has no {lacks}: write from an object that was read, and name what is created")]
    Incomplete {
        /// The kind of the object.
        kind: String,
        /// What it lacks.
        lacks: &'static str,
    },
    /// An object that decides about the write cannot be decoded. Nothing was sent.
    #[error("{0}")]
    Unreadable(#[source] Unreadable),
    /// The reconcile has ended, so its writes are over ([`Context::spawn`](crate::Context::spawn)).
    #[error("{0}")]
    TurnOver(#[source] TurnOverError),
    /// The object cannot be encoded. Nothing was sent.
    #[error("the object cannot be encoded: {0}")]
    Encoding(#[source] serde_json::Error),
}

/// A request that the controller did not declare, with the line that would.
#[derive(Debug, thiserror::Error)]
#[error(
    "{cause}; add to its setup: setup.uses_rule(Rule::new({:?}, {:?}, [Verb::{:?}]))",
    .cause.group, .cause.resource, .cause.verb
)]
struct Undeclared {
    #[source]
    cause: NotDeclaredError,
}

/// An apply that another field manager stands in the way of is none: the next attempt finds the same.
fn is_conflict(cause: &(dyn Error + 'static)) -> bool {
    let Some(kube::Error::Api(status)) = cause.downcast_ref() else { return false };
    let causes = status.details.iter().flat_map(|details| &details.causes);
    let is_of_fields = causes.into_iter().any(|cause| cause.reason == "FieldManagerConflict");
    status.code == 409 && status.reason == "Conflict" && !is_of_fields
}

/// Whether this side, and not the server, kept the request from leaving, as it does when its time is over.
fn is_held_back(cause: &(dyn Error + 'static)) -> bool {
    let held_back = |error: &kube::Error| {
        windlass_client::refusal(error).is_some()
            || windlass_client::turn_over(error).is_some()
            || windlass_client::killed(error)
            || windlass_client::draining(error)
    };
    cause.is::<LeaseLost>() || cause.downcast_ref().is_some_and(held_back)
}

/// A reconcile took longer than its controller allows.
#[derive(Debug, thiserror::Error)]
#[error(
    "dropped after {limit:?}, the controller's reconcile timeout: it was waiting for something all that time"
)]
pub(crate) struct ReconcileTimeout {
    pub(crate) limit: Duration,
}

/// A reconcile was under way when its key's lease was lost. Another replica may have the key by now.
#[derive(Debug, thiserror::Error)]
#[error(
    "dropped where it stood: the lease of its shard was lost, and another replica may have the key by now"
)]
pub(crate) struct LeaseLost;

/// Why a controller could not be set up or started.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SetupError {
    /// The controller refused its configuration.
    #[error("{0}")]
    Invalid(#[source] BoxError),
    /// A watch could not be arranged: a selection that comes after its mappers, for instance.
    #[error("watching {kind}: {message}")]
    Watch {
        /// The kind that was to be watched.
        kind: String,
        /// What the informer said.
        message: String,
    },
    /// No worker was asked for, so nothing would ever be reconciled.
    #[error("a controller needs at least one worker")]
    NoWorkers,
    /// A limit lets nobody in, so its keys would never be reconciled.
    #[error("a limit on concurrent keys must be at least one")]
    NoPlaces,
    /// A timer would go off without pause.
    #[error("a timer needs a period longer than zero, and a jitter that is a number and not below zero")]
    Timer,
    /// The setup of a runnable calls what brings keys to a queue, or changes one.
    #[error("a runnable has no queue: {call} belongs in the setup of a controller")]
    NoQueue {
        /// The method.
        call: &'static str,
    },
    /// The caches that it needs are not complete in time.
    #[error("caches are not complete after {waited:?}: {lacking}")]
    NotSynced {
        /// How long they were waited for.
        waited: Duration,
        /// Which ones lack, and why.
        lacking: String,
    },
}

impl SetupError {
    /// The controller refuses its configuration, for this reason.
    pub fn invalid(cause: impl Into<BoxError>) -> Self {
        Self::Invalid(cause.into())
    }
}

#[cfg(test)]
mod tests {
    use windlass_client::{DrainingError, FencedError};

    use super::*;

    /// A conflict is part of normal work, and no error to be told of (knative #3289). Of two writers who create the same
    /// name that is not so: the next attempt finds what the other wrote only if it looks for it.
    // parity: conflicts-logged-errors
    #[test]
    fn conflict_is_told_quietly_and_tried_again_and_other_refusals_are_told_aloud() {
        for (code, reason, loudness) in [
            (409, "Conflict", FailureSeverity::Expected),
            (409, "AlreadyExists", FailureSeverity::Unexpected),
            (422, "Invalid", FailureSeverity::Unexpected),
            (500, "InternalError", FailureSeverity::Unexpected),
        ] {
            let status = kube::core::Status::failure("refused", reason).with_code(code);
            let error = ReconcileError::from(kube::Error::Api(Box::new(status)));
            assert_eq!(error.class(), Class::Retry);
            assert_eq!(error.loudness(), loudness, "{reason}");
            assert_eq!(error.is_conflict(), loudness == FailureSeverity::Expected, "{reason}");
        }
    }

    #[test]
    fn class_follows_from_first_known_cause_unless_chosen() {
        let kind = Box::new(windlass_object::ResourceKind::of::<k8s_openapi::api::core::v1::Pod>());
        let unreadable = || Unreadable {
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
        assert_eq!(retry(unreadable()).find::<Unreadable>(), Some(&unreadable()));
    }

    #[test]
    fn what_this_side_kept_from_leaving_is_told_quietly_and_tried_again() {
        for cause in [BoxError::from(DrainingError), BoxError::from(FencedError::NotSent)] {
            let error = ReconcileError::from(kube::Error::Service(cause));
            assert_eq!(error.class(), Class::Retry);
            assert_eq!(error.loudness(), FailureSeverity::Expected);
        }
        assert_eq!(retry(LeaseLost).loudness(), FailureSeverity::Expected);
        assert_eq!(retry("another failure").loudness(), FailureSeverity::Unexpected);
    }
}
