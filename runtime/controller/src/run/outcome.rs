//! What a reconcile that did not fail asks for next, and what the queue makes of every way an attempt can end.

use std::time::Duration;

use windlass_workqueue::Priority;

use crate::enqueue::quarantine::PanicDecision;
use crate::error::{Class, ReconcileError};

/// How a reconcile that did not fail ended.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Nothing more to do until something changes.
    Done,
    /// Look again after this long, even if nothing changes. Earlier changes are still handled at once.
    RequeueAfter(Duration),
    /// The same, at a priority of the reconcile's choosing instead of the one the key had. Made by [`Outcome::at`].
    RequeueAt {
        /// When to look again.
        after: Duration,
        /// How urgent that is.
        priority: Priority,
    },
    /// Nothing is done for now, on purpose, and nothing more until something changes: whoever asks why is told this
    /// reason.
    Paused(&'static str),
}

impl Outcome {
    /// Asks for another priority than the one the key had: `Outcome::RequeueAfter(delay).at(Priority::HIGH)`. Means
    /// nothing where nothing is asked for again.
    #[must_use]
    pub fn at(self, priority: Priority) -> Self {
        match self {
            Outcome::Done | Outcome::Paused(_) => self,
            Outcome::RequeueAfter(after) | Outcome::RequeueAt { after, .. } => {
                Outcome::RequeueAt { after, priority }
            }
        }
    }

    /// Returns the outcome that looks again earlier, for a reconcile of several parts. Of two at the same time, the one with
    /// the higher priority; one that states a priority precedes one that keeps the key's. An outcome that looks again
    /// precedes one that does not, and [`Paused`](Self::Paused) precedes [`Done`](Self::Done), because it has a reason. Of
    /// two reasons the first stays.
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

    /// When to look again, and at which priority if the outcome states one.
    fn requeue(self) -> Option<(Duration, Option<Priority>)> {
        match self {
            Outcome::Done | Outcome::Paused(_) => None,
            Outcome::RequeueAfter(after) => Some((after, None)),
            Outcome::RequeueAt { after, priority } => Some((after, Some(priority))),
        }
    }
}

/// How one attempt at a key ended.
#[derive(Debug)]
pub(crate) enum Attempt {
    /// The reconcile returned.
    Returned(Result<Outcome, ReconcileError>),
    /// The reconcile panicked, with this message and what follows from it.
    Panicked(String, PanicDecision),
}

/// What becomes of the key after an attempt.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(crate) enum RequeueDecision {
    /// Its history of failures is forgotten.
    Forget,
    /// Forgotten, and back in the queue after a while, at another priority if that is given.
    ForgetThenAfter(Duration, Option<Priority>),
    /// Back in the queue as late as its failures ask.
    BackOff,
    /// Back in the queue by its own failures, but soon in any case. The key draws on nothing that keys share: the
    /// missing permission is no fault of the key, and an operator adds it at any time.
    AwaitRole,
    /// Back in the queue after this long, with one failure more.
    RetryAfter(Duration),
    /// Forgotten until something changes, because it failed too often.
    GiveUp,
    /// At rest until something changes, because it panicked too often.
    Quarantine,
}

/// Decides what becomes of a key. `attempts` counts its failures before this attempt; no `max_retries` means forever.
pub(crate) fn decide_requeue(attempt: &Attempt, attempts: u32, max_retries: Option<u32>) -> RequeueDecision {
    match attempt {
        Attempt::Returned(Ok(Outcome::Done | Outcome::Paused(_))) => RequeueDecision::Forget,
        Attempt::Returned(Ok(Outcome::RequeueAfter(delay))) => RequeueDecision::ForgetThenAfter(*delay, None),
        Attempt::Returned(Ok(Outcome::RequeueAt { after, priority })) => {
            RequeueDecision::ForgetThenAfter(*after, Some(*priority))
        }
        Attempt::Returned(Err(error)) => settle_failure(error, attempts, max_retries),
        // A panic is a defect, not an answer about the key: it never uses up the key's retries.
        Attempt::Panicked(_, PanicDecision::TryAgain) => RequeueDecision::BackOff,
        Attempt::Panicked(_, PanicDecision::Rest(_)) => RequeueDecision::Quarantine,
    }
}

fn settle_failure(error: &ReconcileError, attempts: u32, max_retries: Option<u32>) -> RequeueDecision {
    let is_last = max_retries.is_some_and(|limit| attempts >= limit);
    // A role that lacks a rule says nothing about the key: it never uses up the key's retries either.
    let lacks_rights = || error.is_for_want_of_rights();
    match error.class() {
        Class::Terminal => RequeueDecision::Forget,
        Class::NotYet(delay) => RequeueDecision::ForgetThenAfter(delay, None),
        Class::Retry if lacks_rights() => RequeueDecision::AwaitRole,
        Class::Retry | Class::RetryAfter(_) if is_last && !lacks_rights() => RequeueDecision::GiveUp,
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
        let (soon, late) =
            (Outcome::RequeueAfter(Duration::from_secs(1)), Outcome::RequeueAfter(Duration::from_secs(2)));
        let paused = Outcome::Paused("as told");
        let in_order = [
            soon.at(Priority::HIGH),
            soon.at(Priority::LOW),
            soon,
            late.at(Priority::HIGH),
            late,
            paused,
            Outcome::Done,
        ];
        for (at, one) in in_order.into_iter().enumerate() {
            for another in in_order.into_iter().skip(at) {
                assert_eq!((one.sooner(another), another.sooner(one)), (one, one), "{one:?} {another:?}");
            }
        }
        assert_eq!(paused.sooner(Outcome::Paused("for another reason")), paused);
    }

    const FORBIDDEN: &str =
        r#"User "me" cannot create resource "pods" in API group "" in the namespace "web""#;

    // parity: result-requeue, requeue-error-not-terminal, resync-action-requeue-reconcile
    #[test]
    fn every_end_of_an_attempt_settles_as_the_table_says() {
        let after = Duration::from_secs(7);
        let returned = Attempt::Returned;
        let table = [
            ("done", returned(Ok(Outcome::Done)), 3, Some(0), RequeueDecision::Forget),
            (
                "later",
                returned(Ok(Outcome::RequeueAfter(after))),
                3,
                Some(0),
                RequeueDecision::ForgetThenAfter(after, None),
            ),
            (
                "later and urgent",
                returned(Ok(Outcome::RequeueAfter(after).at(Priority::HIGH))),
                0,
                None,
                RequeueDecision::ForgetThenAfter(after, Some(Priority::HIGH)),
            ),
            (
                "done is done at any priority",
                returned(Ok(Outcome::Done.at(Priority::HIGH))),
                0,
                None,
                RequeueDecision::Forget,
            ),
            ("retry for ever", returned(Err(retry("no"))), u32::MAX, None, RequeueDecision::BackOff),
            ("last retry", returned(Err(retry("no"))), 14, Some(15), RequeueDecision::BackOff),
            ("one too many", returned(Err(retry("no"))), 15, Some(15), RequeueDecision::GiveUp),
            ("no retries at all", returned(Err(retry("no"))), 0, Some(0), RequeueDecision::GiveUp),
            (
                "at the server's time",
                returned(Err(retry_after(after, "busy"))),
                3,
                None,
                RequeueDecision::RetryAfter(after),
            ),
            (
                "one too many at any time",
                returned(Err(retry_after(after, "busy"))),
                15,
                Some(15),
                RequeueDecision::GiveUp,
            ),
            (
                "not yet",
                returned(Err(not_yet(after, "waits"))),
                99,
                Some(0),
                RequeueDecision::ForgetThenAfter(after, None),
            ),
            ("paused", returned(Ok(Outcome::Paused("as told"))), 3, Some(0), RequeueDecision::Forget),
            ("forbidden", returned(Err(retry(FORBIDDEN))), 99, Some(0), RequeueDecision::AwaitRole),
            (
                "forbidden, and nothing to be done",
                returned(Err(terminal(FORBIDDEN))),
                0,
                None,
                RequeueDecision::Forget,
            ),
            ("terminal", returned(Err(terminal("no"))), 0, None, RequeueDecision::Forget),
            (
                "panic",
                Attempt::Panicked("boom".into(), PanicDecision::TryAgain),
                99,
                Some(15),
                RequeueDecision::BackOff,
            ),
            (
                "last panic",
                Attempt::Panicked("boom".into(), PanicDecision::Rest(15)),
                14,
                None,
                RequeueDecision::Quarantine,
            ),
        ];
        for (name, attempt, attempts, max_retries, expected) in table {
            assert_eq!(decide_requeue(&attempt, attempts, max_retries), expected, "{name}");
        }
    }
}
