//! Outcomes of successful reconciles, and the requeue decision after every attempt.

use std::borrow::Cow;
use std::time::Duration;

use windlass_workqueue::Priority;

use crate::enqueue::quarantine::PanicDecision;
use crate::error::{Class, ReconcileError};

/// Outcome of a reconcile that did not fail.
///
/// # Examples
/// ```
/// use std::time::Duration;
/// use windlass_controller::Outcome;
///
/// let minute = Outcome::RequeueAfter(Duration::from_secs(60));
/// assert_eq!(Outcome::Done.sooner(minute.clone()), minute);
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Completed; the key waits for its next change.
    Done,
    /// Reconcile again after this delay, even if nothing changes. Changes are still reconciled earlier.
    RequeueAfter(Duration),
    /// Requeue with a new priority instead of the priority the key had. Created by [`Outcome::with_priority`].
    RequeueWithPriority {
        /// The delay until the next reconcile.
        after: Duration,
        /// The new priority.
        priority: Priority,
    },
    /// Intentionally no action until something changes. `explain` shows this reason:
    /// `Outcome::Paused("spec.suspend is set".into())`.
    Paused(Cow<'static, str>),
}

impl Outcome {
    /// Sets the priority of the requeue: `Outcome::RequeueAfter(delay).with_priority(Priority::HIGH)`. Has no effect on
    /// an outcome without a requeue.
    #[must_use]
    pub fn with_priority(self, priority: Priority) -> Self {
        match self {
            Outcome::Done | Outcome::Paused(_) => self,
            Outcome::RequeueAfter(after) | Outcome::RequeueWithPriority { after, .. } => {
                Outcome::RequeueWithPriority { after, priority }
            }
        }
    }

    /// Returns the outcome with the earlier requeue, for a reconcile of several parts. At the same time, the higher
    /// priority wins; an outcome that sets a priority precedes one that keeps the key's. An outcome with a requeue
    /// precedes one without, and [`Paused`](Self::Paused) precedes [`Done`](Self::Done), because it has a reason. Of
    /// two reasons the first is kept.
    #[must_use]
    pub fn sooner(self, other: Outcome) -> Outcome {
        match (self.requeue(), other.requeue()) {
            (Some((one, _)), Some((another, _))) if one != another => {
                if one < another {
                    self
                } else {
                    other
                }
            }
            (Some((_, one)), Some((_, another))) => {
                if one >= another {
                    self
                } else {
                    other
                }
            }
            (Some(_), None) => self,
            (None, Some(_)) => other,
            (None, None) => {
                if self == Outcome::Done {
                    other
                } else {
                    self
                }
            }
        }
    }

    /// Returns the delay of the requeue, and the priority if the outcome sets one.
    fn requeue(&self) -> Option<(Duration, Option<Priority>)> {
        match self {
            Outcome::Done | Outcome::Paused(_) => None,
            Outcome::RequeueAfter(after) => Some((*after, None)),
            Outcome::RequeueWithPriority { after, priority } => Some((*after, Some(*priority))),
        }
    }
}

/// Result of one attempt at a key.
#[derive(Debug)]
pub(crate) enum Attempt {
    /// The reconcile returned.
    Returned(Result<Outcome, ReconcileError>),
    /// The reconcile panicked, with this message and decision.
    Panicked(String, PanicDecision),
}

/// Handling of a key after an attempt.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(crate) enum RequeueDecision {
    /// Its failure count is reset.
    Forget,
    /// Its failure count is reset, and it is requeued after this delay, at another priority if one is given.
    ForgetThenAfter(Duration, Option<Priority>),
    /// It is requeued after its backoff.
    BackOff,
    /// It is requeued after its own backoff, with a short maximum. It does not use the shared rate limit: the missing
    /// permission is not a fault of the key, and an operator can add it at any time.
    AwaitRole,
    /// It is requeued after this delay, and its failure count increases.
    RetryAfter(Duration),
    /// It is dropped until something changes, because it failed too often.
    GiveUp,
    /// It is quarantined until something changes, because it panicked too often.
    Quarantine,
}

impl RequeueDecision {
    /// Returns whether the key is requeued without a delay.
    pub(crate) fn is_immediate(self) -> bool {
        matches!(self, Self::ForgetThenAfter(delay, _) | Self::RetryAfter(delay) if delay.is_zero())
    }
}

/// Decides how a key is handled. `attempts` counts its failures before this attempt; without `max_retries` it is
/// retried indefinitely.
pub(crate) fn decide_requeue(attempt: &Attempt, attempts: u32, max_retries: Option<u32>) -> RequeueDecision {
    match attempt {
        Attempt::Returned(Ok(Outcome::Done | Outcome::Paused(_))) => RequeueDecision::Forget,
        Attempt::Returned(Ok(Outcome::RequeueAfter(delay))) => RequeueDecision::ForgetThenAfter(*delay, None),
        Attempt::Returned(Ok(Outcome::RequeueWithPriority { after, priority })) => {
            RequeueDecision::ForgetThenAfter(*after, Some(*priority))
        }
        Attempt::Returned(Err(error)) => settle_failure(error, attempts, max_retries),
        // A panic is a bug and not a result of the key, so it never uses up the key's retries.
        Attempt::Panicked(_, PanicDecision::BackOff) => RequeueDecision::BackOff,
        Attempt::Panicked(_, PanicDecision::Quarantine(_)) => RequeueDecision::Quarantine,
    }
}

fn settle_failure(error: &ReconcileError, attempts: u32, max_retries: Option<u32>) -> RequeueDecision {
    let is_last = max_retries.is_some_and(|limit| attempts >= limit);
    // A missing rule is not a fault of the key, so it never uses up the key's retries either.
    let is_missing_permission = || error.is_missing_permission();
    match error.class() {
        Class::Terminal => RequeueDecision::Forget,
        Class::NotYet(delay) => RequeueDecision::ForgetThenAfter(delay, None),
        Class::Retry if is_missing_permission() => RequeueDecision::AwaitRole,
        Class::Retry | Class::RetryAfter(_) if is_last && !is_missing_permission() => RequeueDecision::GiveUp,
        Class::Retry => RequeueDecision::BackOff,
        Class::RetryAfter(delay) => RequeueDecision::RetryAfter(delay),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::{not_yet, retry, retry_after, terminal};

    #[test]
    fn sooner_outcome_is_the_earlier_then_the_more_urgent() {
        let after = |seconds| Outcome::RequeueAfter(Duration::from_secs(seconds));
        let paused = || Outcome::Paused("as planned".into());
        let in_order = [
            after(1).with_priority(Priority::HIGH),
            after(1).with_priority(Priority::LOW),
            after(1),
            after(2).with_priority(Priority::HIGH),
            after(2),
            paused(),
            Outcome::Done,
        ];
        for (at, one) in in_order.iter().enumerate() {
            for another in &in_order[at..] {
                assert_eq!(&one.clone().sooner(another.clone()), one, "{one:?} {another:?}");
                assert_eq!(&another.clone().sooner(one.clone()), one, "{one:?} {another:?}");
            }
        }
        assert_eq!(paused().sooner(Outcome::Paused("for another reason".into())), paused());
    }

    const FORBIDDEN: &str =
        r#"User "me" cannot create resource "pods" in API group "" in the namespace "web""#;

    // parity: result-requeue, requeue-error-not-terminal, resync-action-requeue-reconcile
    #[test]
    fn decision_about_next_attempt_follows_the_table() {
        use RequeueDecision::{AwaitRole, BackOff, Forget, ForgetThenAfter, GiveUp, Quarantine, RetryAfter};

        let after = Duration::from_secs(7);
        let returned = Attempt::Returned;
        let table = [
            ("done", returned(Ok(Outcome::Done)), 3, Some(0), Forget),
            ("later", returned(Ok(Outcome::RequeueAfter(after))), 3, Some(0), ForgetThenAfter(after, None)),
            (
                "later and urgent",
                returned(Ok(Outcome::RequeueAfter(after).with_priority(Priority::HIGH))),
                0,
                None,
                ForgetThenAfter(after, Some(Priority::HIGH)),
            ),
            (
                "done is done at any priority",
                returned(Ok(Outcome::Done.with_priority(Priority::HIGH))),
                0,
                None,
                Forget,
            ),
            ("retry forever", returned(Err(retry("no"))), u32::MAX, None, BackOff),
            ("last retry", returned(Err(retry("no"))), 14, Some(15), BackOff),
            ("one too many", returned(Err(retry("no"))), 15, Some(15), GiveUp),
            ("no retries at all", returned(Err(retry("no"))), 0, Some(0), GiveUp),
            ("at the server's time", returned(Err(retry_after(after, "busy"))), 3, None, RetryAfter(after)),
            ("one too many at any time", returned(Err(retry_after(after, "busy"))), 15, Some(15), GiveUp),
            ("not yet", returned(Err(not_yet(after, "waits"))), 99, Some(0), ForgetThenAfter(after, None)),
            ("paused", returned(Ok(Outcome::Paused("intended".into()))), 3, Some(0), Forget),
            ("forbidden", returned(Err(retry(FORBIDDEN))), 99, Some(0), AwaitRole),
            ("forbidden, and nothing to be done", returned(Err(terminal(FORBIDDEN))), 0, None, Forget),
            ("terminal", returned(Err(terminal("no"))), 0, None, Forget),
            ("panic", Attempt::Panicked("boom".into(), PanicDecision::BackOff), 99, Some(15), BackOff),
            (
                "last panic",
                Attempt::Panicked("boom".into(), PanicDecision::Quarantine(15)),
                14,
                None,
                Quarantine,
            ),
        ];
        for (name, attempt, attempts, max_retries, expected) in table {
            assert_eq!(decide_requeue(&attempt, attempts, max_retries), expected, "{name}");
        }
    }
}
