//! Where handlers meet the queue: the trait, enqueue, workers, outcomes.
//!
//! A controller is one [`Controller`] implementation. [`Controller::setup`] declares, once and without a cluster, what
//! it watches and writes; informers, roles, documentation and the check that refuses an undeclared request all follow
//! from that one declaration. [`Controller::reconcile`] brings one key to its desired state and names the outcome.
//!
//! Guarantees:
//! - A panic in a handler, a mapper, a start hook or a reconcile is caught, counted and logged; a reconcile's key is
//!   backed off, and after fifteen in a row rests until its next change. It takes down neither its worker nor its
//!   process.
//! - A key that keeps failing backs off alone: keys that do not fail continue at full speed. With the usual limiter the retry
//!   of a key waits at most 100 ms longer for each other key that fails, and 1000 s at most
//!   ([`Bucket`](windlass_workqueue::Bucket)).
//! - A reconcile never runs on a cache older than its own key's last write (read-your-writes), whatever the cache selects.
//!   Nothing is decided by elapsed time alone: a cache that does not reflect a write after 2 s is listed again, and the key
//!   waits until a list that began after the write is in the cache. A write whose answer was lost counts as settled after
//!   1 s; then one consistent read of the collection yields the version that the caches must reach. What remains possible:
//!   a server that applies a write more than 1 s after its connection was closed. Deletions are waited for by UID. A
//!   controller can choose to block for its writes, or to do without ([`ReadYourWrites`]). A cache that holds nothing,
//!   because its kind is absent or forbidden, is not waited for: check [`DynamicWatches::has_synced`] before acting on what a watch
//!   that was added at run time lacks.
//! - A write belongs to the key whose reconcile was handed the client, and is not sent after that reconcile has ended
//!   ([`Context::client`]). Tasks of [`Context::spawn`] end before the key is settled.
//! - A controller waits for the caches it declared and for no others ([`PreparedController::start`](host::PreparedController::start)). It does
//!   not wait for a watch that is added at run time ([`DynamicWatches`]).
//! - What changed comes before what nothing happened to: keys of the initial list and of resyncs have low priority.
//! - A request that was not declared in `setup` is refused before it leaves the process, with the line to add.
//! - Nothing reaches the queue before [`PreparedController::start`](host::PreparedController::start): a standby keeps warm caches and an empty
//!   queue, so a long wait for leadership costs no memory, and a new leader sees every object once, as after a restart.
//! - Of every key it can be said why it has not been reconciled, in one line that names the cause
//!   ([`ControllerInspector::explain`](host::ControllerInspector::explain)). That costs no allocation for a reconcile that succeeds, and memory for
//!   a bounded number of keys.
//! - A key that is paused, or that another replica owns ([`KeyOwnership`](windlass_sharding::KeyOwnership)), is not reconciled.
//! - A key whose own object exists and cannot be decoded is not reconciled until the object is readable or deleted
//!   ([`Setup::reconcile_undecodable`]). A reconcile that is running when its object becomes undecodable continues.
//! - A key whose write is forbidden is tried again within half a minute for as long as that lasts, and the rule that the
//!   role lacks is told in one line. Keys that need no such write are not concerned, and neither are their retries.
//! - Once told to stop, a worker takes no new key and finishes the one it has.
//!
//! What it refuses: to retry a request inside a reconcile (the queue retries), to bound how long a reconcile runs unless
//! told to (a stuck one is shown by [`Workers::health`](host::Workers::health)), and to write anything by itself.

mod consistency;
mod core;
mod declared;
mod descriptor;
mod enqueue;
mod error;
mod explain;
mod layer;
mod live;
mod ownership;
mod registration;
mod run;
mod runnable;
mod setup;
#[cfg(test)]
mod tests;
mod write;

use windlass_object::ObjectKey;

#[doc(inline)]
pub use windlass_client::RequestOptions;

pub use crate::consistency::read_your_writes::ReadYourWrites;
pub use crate::declared::UNDECLARED;
pub use crate::descriptor::{Descriptor, RunsOn};
pub use crate::enqueue::enqueuer::{
    Enqueuer, Owners, all_of, by_any_owner, by_index, by_label, by_owner, by_owner_kind, by_self,
};
pub use crate::enqueue::poll::Polled;
pub use crate::enqueue::predicate;
pub use crate::enqueue::predicate::{
    Predicate, annotations_changed, changed, generation_changed, labels_changed, resource_version_changed,
};
pub use crate::enqueue::source::TaskContext;
pub use crate::enqueue::timer::Timer;
pub use crate::enqueue::trigger::{Trigger, TriggerError};
pub use crate::enqueue::watch::{Watch, Watchable};
pub use crate::enqueue::watches::{DynamicWatches, WatchError};
pub use crate::error::{
    BoxError, ReconcileError, SetupError, WriteError, not_yet, retry, retry_after, terminal,
};
pub use crate::ownership::ApiScope;
pub use crate::registration::Registration;
pub use crate::run::context::Context;
pub use crate::run::outcome::Outcome;
pub use crate::runnable::{Runnable, RunnableContext};
pub use crate::setup::{CacheSync, Setup};
pub use crate::write::{
    Caller, Change, Deletion, Owned, OwnedBuilder, Writable, WriteResult, Writer, WriterBuilder, Written,
};

/// What a host of controllers needs to prepare, run and explain them: a manager, or a simulation. A controller does not.
pub mod host {
    pub use crate::core::activity::ActiveKey;
    pub use crate::core::standing::{ControllerPhase, LeaseStatus, LeaseStatusFn};
    pub use crate::declared::Declaration;
    pub use crate::enqueue::trigger::Triggers;
    pub use crate::explain::{
        CachedObject, ControllerInspector, ControllerOverview, ControllerState, Explanation, FailingKey,
        LastError, LastRun, ObservedTime, Queued, SeenObject, Situation, UndecodedObject, WaitingKey,
    };
    pub use crate::layer::{CacheVersions, ReconcileLayer};
    pub use crate::registration::PreparedPart;
    pub use crate::run::cleanup::Cleanup;
    pub use crate::run::prepared::{ControllerDeps, PreparedController};
    pub use crate::run::shard_handoff::ShardHandoff;
    pub use crate::run::workers::Workers;
    pub use crate::runnable::{PreparedRunnable, RunnableResources};
    pub use crate::setup::Host;
}

/// A controller: what it watches and writes, and how one key is brought to its desired state.
///
/// The trait is used generically (its name is a constant, so it is not object-safe); [`Registration`] is how a
/// registry holds many of them.
pub trait Controller: Send + Sync + Sized + 'static {
    /// The name by which users switch this controller on and off, such as `replicaset-controller`.
    const NAME: &'static str;

    /// The other names a controller goes by. All follow from [`Self::NAME`] unless stated.
    const DESCRIPTOR: Descriptor = Descriptor::new(Self::NAME);

    /// What the controller is configured with; `()` if nothing.
    type Config: Send + Sync + 'static;

    /// Declares what the controller watches and writes, and builds it.
    ///
    /// Synchronous, does no I/O and runs without a cluster; it may run more than once in a process (printing roles
    /// runs it too), so it has no effects beyond `setup`. Listers taken here are filled when the manager runs.
    ///
    /// # Errors
    /// When the controller cannot be built from its configuration.
    fn setup(setup: &mut Setup, config: &Self::Config) -> Result<Self, SetupError>;

    /// Brings the world in line with what `key` asks for. Implementations write `async fn reconcile`.
    ///
    /// Reads come from listers, writes go through [`Context::client`]. The key's object may be gone: that is a state
    /// like any other. No two calls with one key run at the same time.
    ///
    /// # Errors
    /// `?` takes any error. [`ReconcileError`] says what becomes of the key.
    ///
    /// # Cancel safety
    /// The future is dropped at any await when leadership is lost or a shutdown is aborted, so every prefix of its
    /// writes must be a state that a later reconcile can pick up.
    fn reconcile(
        &self,
        key: &ObjectKey,
        cx: &Context,
    ) -> impl Future<Output = Result<Outcome, ReconcileError>> + Send;

    /// Called once, after the caches are synced and the initial objects are enqueued, before the first worker starts.
    /// The place for keys that no event brings, such as leftovers of objects deleted while no replica led, or the one key
    /// of a controller that works by period.
    fn started(&self, _queue: &Enqueuer) {}
}
