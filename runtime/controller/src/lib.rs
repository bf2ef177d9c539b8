//! Connects event handlers to the queue: the controller trait, enqueueing, workers, outcomes.
//!
//! A controller is an implementation of [`Controller`]. [`Controller::setup`] declares, without a cluster and possibly
//! several times, the kinds that the controller watches and writes. Informers, roles, documentation and the check that
//! rejects undeclared requests all follow from that declaration. [`Controller::reconcile`] brings one key to its
//! desired state and returns the outcome.
//!
//! Guarantees:
//! - A panic in a handler, a mapper, a start hook or a reconcile is caught, counted and logged. It stops neither its
//!   worker nor its process. The key of a reconcile that panics backs off; after 15 consecutive panics it is
//!   quarantined until a related object changes or a trigger enqueues it.
//! - A key that keeps failing backs off alone: keys that do not fail continue at full speed. With the default limiter
//!   the retry of a key waits at most 100 ms longer for each other key that fails, and 1000 s at most
//!   ([`TokenBucket`](windlass_workqueue::TokenBucket)).
//! - A reconcile never reads a cache that is older than the last write of its key (read-your-writes), whatever the
//!   cache selects. No decision depends on elapsed time alone: a cache that does not reflect a write after 2 s is
//!   relisted, and the key waits until the cache contains a list that began after the write. A write without a response
//!   counts as settled after 1 s; one consistent read of the collection then yields the version that the caches must
//!   reach. One gap remains: a server that applies a write more than 1 s after its connection was closed. Deletions are
//!   tracked by UID. A controller can instead block on its writes or disable the wait ([`ReadYourWrites`]). An empty
//!   cache of a kind that is absent or forbidden is not waited for: check [`DynamicWatches::has_synced`] before acting
//!   on an object that is missing from a watch added at run time.
//! - A write belongs to the key whose reconcile received the client, and is not sent after that reconcile has ended
//!   ([`Context::client`]). Tasks of [`Context::spawn`] end before the key is settled.
//! - A controller waits for the caches it declared and for no others
//!   ([`PreparedController::start`](host::PreparedController::start)). It does not wait for a watch that is added at
//!   run time ([`DynamicWatches`]).
//! - Keys of changed objects come first: keys of the initial list and of resyncs have low priority.
//! - A request that was not declared in `setup` is rejected before it leaves the process. The error names the line to
//!   add.
//! - No key reaches the queue before [`PreparedController::start`](host::PreparedController::start): a standby replica
//!   keeps warm caches and an empty queue. A long wait for leadership costs no memory, and a new leader processes every
//!   object once, as after a restart.
//! - For every key, [`ControllerInspector::explain`](host::ControllerInspector::explain) states in one line why it has
//!   not been reconciled. This costs no allocation for a reconcile that succeeds, and memory for a bounded number of
//!   keys.
//! - A key that is paused, or that another replica owns ([`KeyOwnership`](windlass_sharding::KeyOwnership)), is not
//!   reconciled.
//! - A key whose own object exists and cannot be decoded is not reconciled until the object is readable or deleted
//!   ([`Setup::reconcile_undecodable`]). A reconcile that is running when its object becomes undecodable continues.
//! - A key whose write is forbidden is retried within 30 s for as long as the write is forbidden, and one log line
//!   names the missing rule. Other keys and their retries are not affected.
//! - After the stop signal a worker dequeues no key and finishes its current one.
//!
//! Non-goals: retrying a request inside a reconcile (the queue retries), limiting the duration of a reconcile unless
//! configured ([`Workers::health`](host::Workers::health) reports a stuck one), and writing anything on its own.

mod api_scope;
mod consistency;
mod core;
mod declared;
mod descriptor;
mod enqueue;
mod error;
mod explain;
mod layer;
mod live;
mod registration;
mod run;
mod runnable;
mod setup;
mod shared_values;
#[cfg(test)]
mod tests;
mod webhook;
mod webhook_setup;
mod write;

use windlass_object::ObjectKey;

#[doc(inline)]
pub use windlass_client::{RateFactors, RequestOptions};

pub use crate::api_scope::ApiScope;
pub use crate::consistency::read_your_writes::ReadYourWrites;
pub use crate::declared::UNDECLARED_REQUESTS_METRIC;
pub use crate::descriptor::{Descriptor, EventSource, KeySharding, RunsOn};
pub use crate::enqueue::enqueuer::{
    Enqueuer, Owners, all_of, by_any_owner, by_index, by_label, by_owner, by_owner_kind, by_self,
};
pub use crate::enqueue::poll::PollCache;
pub use crate::enqueue::predicate;
pub use crate::enqueue::predicate::{
    Predicate, annotations_changed, changed, generation_changed, labels_changed, resource_version_changed,
};
pub use crate::enqueue::source::TaskContext;
pub use crate::enqueue::timer::Timer;
pub use crate::enqueue::trigger::{Trigger, TriggerError};
pub use crate::enqueue::watch::{FullObject, Watch};
pub use crate::enqueue::watches::{DynamicWatches, WatchError};
pub use crate::error::{
    BoxError, ReconcileError, SetupError, WriteError, not_yet, retry, retry_after, terminal,
};
pub use crate::registration::Registration;
pub use crate::run::context::Context;
pub use crate::run::outcome::Outcome;
pub use crate::runnable::{Runnable, RunnableContext};
pub use crate::setup::{CacheSync, Setup};
pub use crate::webhook::{WebhookCertificates, WebhookConfig};
pub use crate::write::{
    Caller, Change, Deletion, Owned, OwnedBuilder, Writable, WriteResponse, WriteResult, Writer,
    WriterBuilder,
};

/// Types with which a host (a manager or a simulation) prepares, runs and explains controllers. Controllers do not need
/// them.
pub mod host {
    pub use crate::core::activity::ActiveKey;
    pub use crate::core::lifecycle::{ControllerPhase, LeaseStatus, LeaseStatusFn};
    pub use crate::declared::Declaration;
    pub use crate::enqueue::trigger::Triggers;
    pub use crate::explain::{
        CachedObject, ControllerInspector, ControllerOverview, ControllerState, ExplainedUndecodable,
        Explanation, FailingKey, LastError, LastRun, ObservedTime, Queued, SeenObject, Situation, WaitingKey,
    };
    pub use crate::layer::{CacheVersions, ReconcileLayer};
    pub use crate::registration::PreparedPart;
    pub use crate::run::cleanup::Cleanup;
    pub use crate::run::prepared::{ControllerDeps, PreparedController};
    pub use crate::run::shard_handoff::ShardHandoff;
    pub use crate::run::workers::Workers;
    pub use crate::runnable::{PreparedRunnable, RunnableResources};
    pub use crate::setup::Host;
    pub use crate::shared_values::SharedValues;
    pub use crate::webhook::{
        AdmissionDeclaration, DeclarationCount, InProcessWebhooks, NamedRule, WebhookHandler,
    };
    pub use crate::write::CallerSeal;
}

/// A controller: what it watches and writes, and how one key is brought to its desired state.
///
/// The trait is used generically (its name is a constant, so it is not object-safe); [`Registration`] is how a
/// registry holds many of them.
///
/// # Examples
/// ```
/// use std::collections::BTreeMap;
///
/// use k8s_openapi::api::core::v1::ConfigMap;
/// use windlass_controller::{
///     Context, Controller, Outcome, ReconcileError, Registration, Setup, SetupError, Writer,
/// };
/// use windlass_informer::Lister;
/// use windlass_object::ObjectKey;
///
/// /// Labels every ConfigMap.
/// struct Labels {
///     maps: Lister<ConfigMap>,
///     writer: Writer<ConfigMap>,
/// }
///
/// impl Controller for Labels {
///     const NAME: &'static str = "label-controller";
///     type Config = ();
///
///     fn setup(setup: &mut Setup, (): &()) -> Result<Self, SetupError> {
///         Ok(Self {
///             maps: setup.primary::<ConfigMap>().lister(),
///             writer: setup.writer::<ConfigMap>().patch().build(),
///         })
///     }
///
///     async fn reconcile(&self, key: &ObjectKey, cx: &Context) -> Result<Outcome, ReconcileError> {
///         let Some(map) = self.maps.get(key)? else { return Ok(Outcome::Done) };
///         let label = |map: &mut ConfigMap| {
///             let labels: &mut BTreeMap<String, String> = map.metadata.labels.get_or_insert_default();
///             labels.insert("example.com/labeled".to_owned(), "true".to_owned());
///         };
///         self.writer.patch(cx, &map, label).await?;
///         Ok(Outcome::Done)
///     }
/// }
///
/// let registration = Registration::controller::<Labels>();
/// # drop(registration);
/// ```
pub trait Controller: Send + Sync + Sized + 'static {
    /// The name by which users switch this controller on and off, such as `replicaset-controller`.
    const NAME: &'static str;

    /// Aliases, client name and queue name, and the replicas that run the controller. Default: [`Self::NAME`] for all
    /// names, no aliases, on the leader.
    const DESCRIPTOR: Descriptor = Descriptor::new(Self::NAME);

    /// The configuration of the controller; `()` if it has none.
    type Config: Send + Sync + 'static;

    /// Declares what the controller watches and writes, and builds it.
    ///
    /// It is synchronous, does no I/O and runs without a cluster. It can run more than once in a process (printing
    /// roles runs it too), so it must have no effects beyond `setup`. Listers obtained here are filled when the manager
    /// runs.
    ///
    /// # Errors
    /// If the controller cannot be built from its configuration.
    fn setup(setup: &mut Setup, config: &Self::Config) -> Result<Self, SetupError>;

    /// Brings the cluster to the state that `key` specifies. Implementations write `async fn reconcile`.
    ///
    /// Read from listers and write through a [`Writer`] or [`Owned`]. [`Context::api`] and [`Context::client`] send the
    /// requests that writers have no method for. The object of the key can be absent: that is a state like any other.
    /// Two calls for one key never run at the same time.
    ///
    /// # Errors
    /// `?` converts any error. [`ReconcileError`] determines when the key is retried.
    ///
    /// # Cancel safety
    /// The future is dropped at any await when leadership is lost or a shutdown is aborted, so every prefix of its
    /// writes must be a state from which a later reconcile can continue.
    fn reconcile(
        &self,
        key: &ObjectKey,
        cx: &Context,
    ) -> impl Future<Output = Result<Outcome, ReconcileError>> + Send;

    /// Runs once, after the caches are synced and the initial objects are enqueued, before the first worker starts. Use
    /// it for keys without an event, such as leftovers of objects that were deleted while no replica led, or the single
    /// key of a periodic controller.
    fn started(&self, _queue: &Enqueuer) {}
}
