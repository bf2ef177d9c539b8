//! How a reconcile fails, and how a controller fails to be built.

use std::error::Error;
use std::time::Duration;

use windlass_client::{Denial, IdentityError, NotDeclaredError, RequestError};
use windlass_informer::Unreadable;

/// Any error, sendable between workers.
pub type BoxError = Box<dyn Error + Send + Sync + 'static>;

/// Why a reconcile did not succeed, and whether trying again can help.
#[derive(Debug, thiserror::Error)]
pub enum ReconcileError {
    /// Trying again can help: the key is backed off. `?` on a client's error ends here.
    #[error("{0}")]
    Retry(#[source] BoxError),
    /// Trying again cannot help: the key waits for its next change.
    #[error("{0}")]
    Terminal(#[source] BoxError),
}

/// A failure that trying again may mend, from a message or an error.
pub fn retry(cause: impl Into<BoxError>) -> ReconcileError {
    ReconcileError::Retry(cause.into())
}

/// A failure that only a change of the object can mend, from a message or an error.
pub fn terminal(cause: impl Into<BoxError>) -> ReconcileError {
    ReconcileError::Terminal(cause.into())
}

/// How loudly a failure is told.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(crate) enum Loudness {
    /// Part of normal work: another writer was faster, leadership has ended, or the process shuts down.
    Expected,
    /// Somebody may want to know.
    Unexpected,
}

impl ReconcileError {
    /// See [`retry`].
    pub fn retry(cause: impl Into<BoxError>) -> Self {
        retry(cause)
    }

    /// See [`terminal`].
    pub fn terminal(cause: impl Into<BoxError>) -> Self {
        terminal(cause)
    }

    /// Whether the cause is an optimistic-concurrency conflict: somebody else wrote the object first, and the next
    /// attempt reads what they wrote.
    pub fn is_conflict(&self) -> bool {
        self.causes().any(is_conflict)
    }

    /// How loudly the worker tells of this failure.
    pub(crate) fn loudness(&self) -> Loudness {
        let expected = self.causes().any(|cause| is_conflict(cause) || is_held_back(cause));
        if expected { Loudness::Expected } else { Loudness::Unexpected }
    }

    /// What the API server's authorizer refused, if that is why it failed.
    pub(crate) fn denial(&self) -> Option<Denial> {
        let (Self::Retry(first) | Self::Terminal(first)) = self;
        windlass_client::denial(first.as_ref())
    }

    /// Whether it failed because of what the controller may not do, or as whom: an operator mends that, at any time.
    pub(crate) fn is_for_want_of_rights(&self) -> bool {
        let (Self::Retry(first) | Self::Terminal(first)) = self;
        self.denial().is_some() || IdentityError::among(first.as_ref()).is_some()
    }

    fn causes(&self) -> impl Iterator<Item = &(dyn Error + 'static)> {
        let (Self::Retry(first) | Self::Terminal(first)) = self;
        causes(first.as_ref())
    }
}

fn causes<'a>(error: &'a (dyn Error + 'static)) -> impl Iterator<Item = &'a (dyn Error + 'static)> {
    std::iter::successors(Some(error), |&error| error.source())
}

impl From<kube::Error> for ReconcileError {
    /// A request that was refused because the controller never declared it is terminal, since no retry changes the
    /// program; everything else is worth another attempt.
    fn from(error: kube::Error) -> Self {
        match windlass_client::undeclared(&error) {
            Some(cause) => terminal(Undeclared { cause: cause.clone() }),
            None => retry(error),
        }
    }
}

impl From<Unreadable> for ReconcileError {
    fn from(error: Unreadable) -> Self {
        retry(error)
    }
}

impl From<RequestError> for ReconcileError {
    fn from(error: RequestError) -> Self {
        match error {
            RequestError::NotDeclared(cause) => terminal(Undeclared { cause }),
            error => retry(error),
        }
    }
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

fn is_conflict(cause: &(dyn Error + 'static)) -> bool {
    matches!(cause.downcast_ref(), Some(kube::Error::Api(status)) if status.code == 409 && status.reason == "Conflict")
}

/// Whether this side, and not the server, kept the request from leaving, as it does when its time is over.
fn is_held_back(cause: &(dyn Error + 'static)) -> bool {
    let held_back = |error: &kube::Error| {
        windlass_client::refusal(error).is_some()
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
pub enum SetupError {
    /// The controller refused its configuration.
    #[error("{0}")]
    Invalid(#[source] BoxError),
    /// A watch could not be arranged: an index name taken twice, for instance.
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
    /// The caches that the controller needs are not complete in time.
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
    #[test]
    fn a_conflict_is_told_quietly_and_tried_again_and_other_refusals_are_told_aloud() {
        for (code, reason, loudness) in [
            (409, "Conflict", Loudness::Expected),
            (409, "AlreadyExists", Loudness::Unexpected),
            (422, "Invalid", Loudness::Unexpected),
            (500, "InternalError", Loudness::Unexpected),
        ] {
            let status = kube::core::Status::failure("refused", reason).with_code(code);
            let error = ReconcileError::from(kube::Error::Api(Box::new(status)));
            assert!(matches!(error, ReconcileError::Retry(_)));
            assert_eq!(error.loudness(), loudness, "{reason}");
            assert_eq!(error.is_conflict(), loudness == Loudness::Expected, "{reason}");
        }
    }

    #[test]
    fn what_this_side_kept_from_leaving_is_told_quietly_and_tried_again() {
        for cause in [BoxError::from(DrainingError), BoxError::from(FencedError::NotSent)] {
            let error = ReconcileError::from(kube::Error::Service(cause));
            assert!(matches!(error, ReconcileError::Retry(_)));
            assert_eq!(error.loudness(), Loudness::Expected);
        }
        assert_eq!(retry(LeaseLost).loudness(), Loudness::Expected);
        assert_eq!(retry("another failure").loudness(), Loudness::Unexpected);
    }
}
