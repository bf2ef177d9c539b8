//! Requests that the client stops: not sent, or dropped while waiting for the response.

use std::time::Duration;

use windlass_object::Verb;

/// A write that the fence blocked.
#[derive(Copy, Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum FencedError {
    /// The replica is not the leader, or its Lease is about to expire. The write was not sent.
    #[error("not sent: leadership is not held")]
    NotSent,
    /// Leadership was lost while the write was in flight. Its outcome is unknown.
    #[error("dropped in flight: leadership was lost")]
    Interrupted,
}

/// A write of a reconcile that has already returned.
#[derive(Copy, Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ReconcileEndedError {
    /// The reconcile had already returned, and the write was not sent.
    #[error(
        "not sent: the reconcile of this client has returned; start tasks that write with Context::spawn"
    )]
    NotSent,
    /// The reconcile returned while the write was in flight. Its outcome is unknown.
    #[error("dropped in flight: the reconcile of this client has returned")]
    Interrupted,
}

/// The environment was killed: a stopped process sends nothing.
#[derive(Copy, Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not sent: the process was killed")]
pub struct KilledError;

/// A request that the controller did not declare, so its role might not permit it. It was not sent. The text ends with
/// the line that declares it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "not sent: {verb} on {resource:?} of API group {group:?} was not declared by this controller; add to its setup: \
     setup.uses_rule(Rule::new({group:?}, {resource:?}, [Verb::{verb:?}]))"
)]
pub struct NotDeclaredError {
    /// The verb of the request.
    pub verb: Verb,
    /// The API group; empty for the core group.
    pub group: String,
    /// The resource, with its subresource: `pods/status`.
    pub resource: String,
}

/// The process shuts down, and the request would have had to wait. It was not sent; the next owner of the key can send
/// it.
#[derive(Copy, Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not sent: the process is shutting down; the next owner of the key reconciles it")]
pub struct DrainingError;

/// The server did not answer in time. The outcome of a write is unknown.
#[derive(Copy, Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no complete response within {within:?}")]
pub struct DeadlineError {
    /// The time limit of the request.
    pub within: Duration,
}

/// A watch received no data for longer than the server keeps it open, so the connection is dead.
#[derive(Copy, Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the watch received no data for {bound:?}")]
pub struct WatchIdleError {
    /// The longest time without data.
    pub bound: Duration,
}
