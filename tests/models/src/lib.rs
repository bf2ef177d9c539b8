//! The fan-out of an informer under every order in which a few threads can take its lock: nothing is lost, nobody
//! hangs, nobody removed is told anything.
//!
//! The modules of `windlass-informer` that fan out are compiled once more here, with loom's lock in place of the
//! standard library's; so this is the code that runs, not a copy of it. The queue has its models next to its code, in
//! `runtime/workqueue/tests/models`.
//!
//! What they do not see: the insides of tokio's `Notify` and of the cells of `windlass-env`, which are steps of one
//! piece here.

// Checked as a test by who checks all targets, it is empty: the modules it borrows would bring their own tests along.
#![cfg(not(test))]
// The models use a part of what the modules offer.
#![allow(dead_code, unreachable_pub, unused_imports, missing_docs)]

#[path = "../../../runtime/informer/src/handler.rs"]
mod handler;
#[path = "../../../runtime/informer/src/processor.rs"]
mod processor;
pub mod scenarios;

/// Whom a resync is for.
mod delta_fifo {
    pub(crate) use windlass_informer::delta_fifo::ResyncTarget;
}

/// The lock that loom schedules.
mod lock {
    pub(crate) use loom::sync::{Mutex, MutexGuard};
}

mod sync {
    /// Lets another thread run.
    pub(crate) async fn yield_now() {
        loom::thread::yield_now();
    }
}
