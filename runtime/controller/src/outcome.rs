//! What a reconcile that did not fail asks for next, and what the queue makes of every way an attempt can end.

use std::time::Duration;

use crate::error::ReconcileError;

/// How a reconcile that did not fail ended.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Nothing more to do until something changes.
    Done,
    /// Look again after this long, even if nothing changes. Earlier changes are still handled at once.
    RequeueAfter(Duration),
}

/// How one attempt at a key ended.
#[derive(Debug)]
pub(crate) enum Attempt {
    /// The reconcile returned.
    Returned(Result<Outcome, ReconcileError>),
    /// The reconcile panicked, with this message.
    Panicked(String),
}

/// What becomes of the key after an attempt.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(crate) enum Settlement {
    /// Its history of failures is forgotten.
    Forget,
    /// Forgotten, and back in the queue after a while.
    ForgetThenAfter(Duration),
    /// Back in the queue as late as its failures ask.
    BackOff,
    /// Forgotten until something changes, because it failed too often.
    GiveUp,
}

/// Decides what becomes of a key. `attempts` counts its failures before this attempt; no `max_retries` means for ever.
pub(crate) fn settle(attempt: &Attempt, attempts: u32, max_retries: Option<u32>) -> Settlement {
    match attempt {
        Attempt::Returned(Ok(Outcome::Done) | Err(ReconcileError::Terminal(_))) => Settlement::Forget,
        Attempt::Returned(Ok(Outcome::RequeueAfter(delay))) => Settlement::ForgetThenAfter(*delay),
        Attempt::Returned(Err(ReconcileError::Retry(_))) => match max_retries {
            Some(limit) if attempts >= limit => Settlement::GiveUp,
            _ => Settlement::BackOff,
        },
        // A panic is a defect, not an answer about the key: it never uses up the key's retries.
        Attempt::Panicked(_) => Settlement::BackOff,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::{retry, terminal};

    #[test]
    fn every_end_of_an_attempt_settles_as_the_table_says() {
        let after = Duration::from_secs(7);
        let returned = Attempt::Returned;
        let table = [
            ("done", returned(Ok(Outcome::Done)), 3, Some(0), Settlement::Forget),
            (
                "later",
                returned(Ok(Outcome::RequeueAfter(after))),
                3,
                Some(0),
                Settlement::ForgetThenAfter(after),
            ),
            ("retry for ever", returned(Err(retry("no"))), u32::MAX, None, Settlement::BackOff),
            ("last retry", returned(Err(retry("no"))), 14, Some(15), Settlement::BackOff),
            ("one too many", returned(Err(retry("no"))), 15, Some(15), Settlement::GiveUp),
            ("no retries at all", returned(Err(retry("no"))), 0, Some(0), Settlement::GiveUp),
            ("terminal", returned(Err(terminal("no"))), 0, None, Settlement::Forget),
            ("panic", Attempt::Panicked("boom".into()), 99, Some(15), Settlement::BackOff),
        ];
        for (name, attempt, attempts, max_retries, expected) in table {
            assert_eq!(settle(&attempt, attempts, max_retries), expected, "{name}");
        }
    }
}
