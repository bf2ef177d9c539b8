//! Kubernetes controllers in Rust: one crate to depend on, a prelude, nothing of its own.
//!
//! A controller is one [`Controller`](controller::Controller) implementation; a process is one
//! [`Manager`](manager::Manager) that runs any number of them, on shared caches and behind one election. See
//! `examples/label_mirror.rs` for a whole one.
//!
//! With the feature `testing`, for dev-dependencies, there is an API server in the process and a simulation of clusters
//! that fail. `docs/testing.md` shows how to use them, `examples/` what they find.
//!
//! The modules are the crates of the runtime, in the order in which data passes through them. Each opens with what it
//! guarantees.

pub use windlass_client as client;
pub use windlass_controller as controller;
pub use windlass_election as election;
pub use windlass_env as env;
pub use windlass_events as events;
pub use windlass_informer as informer;
pub use windlass_manager as manager;
pub use windlass_metrics as metrics;
pub use windlass_object as object;
/// A script into a test, with the feature `testing`.
#[cfg(feature = "testing")]
pub use windlass_macros::simulation;
/// For tests, with the feature `testing`: see `docs/testing.md`.
#[cfg(feature = "testing")]
pub use windlass_testing as testing;
pub use windlass_workqueue as workqueue;

pub use async_trait::async_trait;

/// What a controller's file needs: `use windlass::prelude::*;`.
pub mod prelude {
    pub use async_trait::async_trait;
    pub use windlass_controller::{
        Context, Controller, Descriptor, Outcome, ReconcileError, Registration, Setup, SetupError, by_owner,
        by_self, retry, terminal,
    };
    pub use windlass_env::Env;
    pub use windlass_events::EventType;
    pub use windlass_informer::{Event, Selection, TypedLister};
    pub use windlass_manager::{ControllerSelection, Manager, ManagerConfig, ManagerError, ShutdownSignals};
    pub use windlass_object::owner::controller_reference;
    pub use windlass_object::{ObjectKey, Rule, Verb};
    pub use windlass_workqueue::Queue;
}
