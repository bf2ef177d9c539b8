//! The callers of writers.

use std::fmt;

use crate::run::context::Context;
use crate::runnable::RunnableContext;

/// A caller of a writer: a reconcile or a runnable. Sealed.
pub trait Caller: Sealed + fmt::Debug + Send + Sync {
    /// Returns the client that sends the writes.
    fn client(&self) -> &kube::Client;

    /// Returns whether its writes are dry runs.
    fn is_dry_run(&self) -> bool;
}

pub trait Sealed {}

impl Sealed for Context {}

impl Caller for Context {
    fn client(&self) -> &kube::Client {
        Context::client(self)
    }

    fn is_dry_run(&self) -> bool {
        self.options().dry_run
    }
}

impl Sealed for RunnableContext {}

impl Caller for RunnableContext {
    fn client(&self) -> &kube::Client {
        RunnableContext::client(self)
    }

    fn is_dry_run(&self) -> bool {
        false
    }
}
