//! Models of an informer's fan-out under every interleaving of a few threads: no event is lost, no thread hangs, and no
//! removed handler receives an event.
//!
//! The fan-out modules of `windlass-informer` are compiled here again, with loom's lock in place of the standard
//! library's, so the models run the actual code. The models of the queue are next to its code, in
//! `runtime/workqueue/tests/models`.
//!
//! The internals of tokio's `Notify` and of the cells of `windlass-env` are atomic steps in these models.

// Empty in a check of all targets as tests: the included modules contain their own tests.
#![cfg(not(test))]
// The models use only a part of the modules.
#![allow(dead_code, unreachable_pub, unused_imports, missing_docs)]

#[path = "../../../runtime/informer/src/handler.rs"]
mod handler;
#[path = "../../../runtime/informer/src/processor.rs"]
mod processor;
pub mod scenarios;

/// Target of a resync.
mod delta_fifo {
    pub(crate) use windlass_informer::ResyncTarget;
}

/// Lock that loom schedules.
mod lock {
    pub(crate) use loom::sync::{Mutex, MutexGuard};
}

mod yield_now {
    /// Yields to another thread.
    pub(crate) async fn yield_now() {
        loom::thread::yield_now();
    }
}
