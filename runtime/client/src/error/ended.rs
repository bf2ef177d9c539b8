//! Requests that the client itself ends: not sent, or not waited for any longer.

use std::time::Duration;

use windlass_object::Verb;

/// A write that the fence held back.
#[derive(Copy, Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum FencedError {
    /// Leadership is not held, or about to end: the write was not sent.
    #[error("not sent: leadership is not held")]
    NotSent,
    /// Leadership ended while the write was under way: it may have taken effect.
    #[error("dropped while under way: leadership was lost")]
    Interrupted,
}

/// A write of a reconcile that has ended.
#[derive(Copy, Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TurnOverError {
    /// The reconcile had ended before: the write was not sent.
    #[error(
        "not sent: the reconcile of this client has ended; a task that writes is started by Context::spawn"
    )]
    NotSent,
    /// The reconcile ended while the write was under way: it may have taken effect.
    #[error("dropped while under way: the reconcile of this client has ended")]
    Interrupted,
}

/// The environment was killed: a process that is no more sends nothing.
#[derive(Copy, Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not sent: the environment was killed")]
pub struct KilledError;

/// A request that its controller has not declared, and so has no role for. It was not sent.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not sent: {verb} on {resource:?} of API group {group:?} was not declared by this controller")]
pub struct NotDeclaredError {
    /// What was to be done.
    pub verb: Verb,
    /// The API group; empty for the core group.
    pub group: String,
    /// The resource, with its subresource: `pods/status`.
    pub resource: String,
}

/// The process shuts down, and the request would have had to wait for its turn. It took no effect, and whoever is
/// asked next may send it.
#[derive(Copy, Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not sent: shutting down")]
pub struct DrainingError;

/// The server did not answer in time. A write may have taken effect.
#[derive(Copy, Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no complete answer within {within:?}")]
pub struct DeadlineError {
    /// How long the request had.
    pub within: Duration,
}

/// A watch said nothing for longer than the server would have kept it open: the connection is dead.
#[derive(Copy, Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the watch was silent for {bound:?}")]
pub struct WatchIdleError {
    /// The longest silence allowed.
    pub bound: Duration,
}
