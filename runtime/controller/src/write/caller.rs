//! The callers of writers.

use std::fmt;

use crate::run::context::Context;
use crate::runnable::RunnableContext;

/// A caller of a writer: a reconcile, a runnable or the review of a webhook. Sealed.
pub trait Caller: CallerSeal + fmt::Debug + Send + Sync {
    /// Returns the client that sends the writes.
    fn client(&self) -> &kube::Client;

    /// Returns whether its writes are dry runs.
    fn is_dry_run(&self) -> bool;
}

/// Seals [`Caller`]. Hosts that run user code with a dedicated client implement both.
pub trait CallerSeal {}

impl CallerSeal for Context {}

impl Caller for Context {
    fn client(&self) -> &kube::Client {
        Context::client(self)
    }

    fn is_dry_run(&self) -> bool {
        self.options().dry_run
    }
}

impl CallerSeal for RunnableContext {}

impl Caller for RunnableContext {
    fn client(&self) -> &kube::Client {
        RunnableContext::client(self)
    }

    fn is_dry_run(&self) -> bool {
        false
    }
}
