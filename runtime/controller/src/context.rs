//! What a reconcile is handed: the means to write, to tell, and to wait.

use windlass_env::Env;
use windlass_events::Recorder;
use windlass_workqueue::Priority;

use crate::watches::Watches;

/// The means of one reconcile. Cheap to clone into tasks that the reconcile spawns and awaits: their writes are
/// logged for the same key.
#[derive(Clone)]
pub struct Context {
    client: kube::Client,
    events: Recorder,
    env: Env,
    attempts: u32,
    span: tracing::Span,
    watches: Watches,
    priority: Priority,
}

/// What the attempt at one key knows of it.
pub(crate) struct About {
    pub(crate) attempts: u32,
    pub(crate) priority: Priority,
    pub(crate) span: tracing::Span,
}

impl Context {
    pub(crate) fn new(
        client: kube::Client,
        events: Recorder,
        env: Env,
        watches: Watches,
        about: About,
    ) -> Self {
        let About { attempts, priority, span } = about;
        Self { client, events, env, attempts, span, watches, priority }
    }

    /// The client of this worker: limited, fenced by leadership, refused what was not declared, and its writes
    /// remembered so that the next reconcile of this key waits until the cache shows them.
    pub fn client(&self) -> &kube::Client {
        &self.client
    }

    /// Tells users what happened. Never waits and never fails the reconcile.
    pub fn events(&self) -> &Recorder {
        &self.events
    }

    /// The clock, timers and randomness of this process.
    pub fn env(&self) -> &Env {
        &self.env
    }

    /// How many times in a row this key has failed before this attempt.
    pub fn attempts(&self) -> u32 {
        self.attempts
    }

    /// How urgent the key was when the worker took it. A key that comes back keeps it, unless its
    /// [`Outcome`](crate::Outcome::at) says otherwise.
    pub fn priority(&self) -> Priority {
        self.priority
    }

    /// Watches that may be added and removed while the controller runs.
    pub fn watches(&self) -> &Watches {
        &self.watches
    }

    /// The span of this reconcile (controller and key), for tasks that the reconcile spawns.
    pub fn span(&self) -> &tracing::Span {
        &self.span
    }
}

impl std::fmt::Debug for Context {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Context").field("attempts", &self.attempts).finish_non_exhaustive()
    }
}
