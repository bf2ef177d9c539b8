//! The callers of writers.

use std::fmt;

use crate::run::context::Context;
use crate::runnable::RunnableContext;

/// Writes through a writer: a reconcile or a runnable. Sealed.
pub trait Caller: Sealed + fmt::Debug + Send + Sync {
    /// The client that sends what is written.
    fn client(&self) -> &kube::Client;

    /// Whether its writes are dry runs.
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
