//! Kubernetes controllers: caches, queues, leader election, metrics and tests for what only fails at night.
//!
//! A controller says once what it watches and what it writes, and how one object comes to be as it should. This one
//! keeps, next to every Service, a ConfigMap with the same labels:
//!
//! ```no_run
//! # use k8s_openapi::api::core::v1::{ConfigMap, Service};
//! # use kube::ResourceExt;
//! # use kube::api::ObjectMeta;
//! use windlass::prelude::*;
//!
//! struct LabelMirror {
//!     services: Lister<Service>,
//!     config_maps: Lister<ConfigMap>,
//!     mirrors: Writer<ConfigMap>,
//! }
//!
//! impl Controller for LabelMirror {
//!     const NAME: &'static str = "label-mirror-controller";
//!     type Config = ();
//!
//!     fn setup(setup: &mut Setup, (): &()) -> Result<Self, SetupError> {
//!         Ok(Self {
//!             services: setup.primary::<Service>().lister(),
//!             // By name and not by owner: one that somebody else made may be in the way, and go.
//!             config_maps: setup.watch::<ConfigMap>().enqueue(by_self).lister(),
//!             mirrors: setup.writer::<ConfigMap>().create().update().build(),
//!         })
//!     }
//!
//!     async fn reconcile(&self, key: &ObjectKey, cx: &Context) -> Result<Outcome, ReconcileError> {
//!         // A Service that is gone takes its ConfigMap with it, by the owner reference.
//!         let Some(service) = self.services.get(key)? else { return Ok(Outcome::Done) };
//!         let wanted = mirror_of(&service);
//!         match self.config_maps.get(key)? {
//!             None => drop(self.mirrors.create(cx, &wanted).await?),
//!             // What others made is theirs, whatever its name: it may hold what nobody could bring back.
//!             Some(map) if !is_controlled_by(&map.metadata, &service.uid().unwrap_or_default()) => {
//!                 return Err(terminal(format!("the ConfigMap {key} is not the Service's: rename either")));
//!             }
//!             Some(mirror) => {
//!                 // Sends nothing if nothing differs, and fails if somebody else wrote since it was read.
//!                 let relabel = |mirror: &mut ConfigMap| mirror.metadata.labels = wanted.metadata.labels;
//!                 self.mirrors.update(cx, &mirror, relabel).await?;
//!             }
//!         }
//!         Ok(Outcome::Done)
//!     }
//! }
//!
//! fn mirror_of(service: &Service) -> ConfigMap {
//!     let metadata = ObjectMeta {
//!         name: service.metadata.name.clone(),
//!         namespace: service.metadata.namespace.clone(),
//!         labels: service.metadata.labels.clone(),
//!         owner_references: Some(vec![controller_reference(service)]),
//!         ..ObjectMeta::default()
//!     };
//!     ConfigMap { metadata, ..ConfigMap::default() }
//! }
//!
//! #[tokio::main]
//! async fn main() -> Result<(), windlass::Error> {
//!     windlass::run("label-mirror", [Registration::of::<LabelMirror>()]).await
//! }
//! ```
//!
//! That is all of it. What follows from it: one cache of each kind for all
//! controllers of the process, that resumes, re-lists and sets aside what it cannot decode; a queue in which no key is
//! worked on twice at a time and one that fails waits alone; reconciles that never act on a cache older than their own
//! last write; one active replica, no write after its lease; the refusal of requests that were not declared, and the
//! roles for those that were; health, metrics, and a shutdown in order.
//!
//! Its test is an hour in a cluster where everything goes wrong, in no time and without a cluster:
//!
//! ```
//! # #[cfg(all(test, feature = "testing"))] mod tests {
//! #[windlass::simulation(hours = 1, faults = all)]
//! async fn labels_are_mirrored_whatever_happens(cluster: Cluster) {
//!     cluster.run([Registration::of::<LabelMirror>()]);
//!     let web = json!({
//!         "metadata": { "name": "web", "labels": { "tier": "front" } },
//!         "spec": { "ports": [{ "port": 80 }] },
//!     });
//!     cluster.create(&object::<Service>(web)).await;
//!     cluster.eventually("the labels are mirrored", is_mirrored).await;
//! }
//! # }
//! ```
//!
//! # Where to go next
//!
//! - `examples/` has this controller as a whole program, and those that grow from there: indexes, a polled inventory,
//!   kinds of one's own with children, a finalizer and conditions. Each has its tests.
//! - `docs/writing-a-controller.md` goes through what can be said in `setup` and what a reconcile can rely on.
//! - [`controller`] is what a controller is written against: the trait, mappers, predicates, timers, outcomes.
//! - [`informer`] is the cache: [listers](informer::Lister), indexes, events with their causes, sources of one's own.
//! - `testing`, with the feature of that name, is an API server in the process, clusters that fail, and oracles;
//!   `docs/testing.md` shows how to use it.
//! - [`run`] is the whole program, with `--help` and `manifests`; [`App`] is the same with more to say.
//! - [`manager`] is the process: what starts in which order, who leads, how it ends.
//! - [`admin`] serves health checks, metrics and pages of your own: `ManagerConfig::admin` is an [`admin::AdminConfig`].
//!
//! Each module lists what its crate offers to users. The crate, such as `windlass-informer`, also has what hosts and tools
//! need, and opens with its guarantees and refusals. There is nothing in this crate but names.

#[doc(inline)]
pub use windlass_app::{App, Error, identity, install_crds, run};
/// A script into a test, with the feature `testing`.
#[cfg(feature = "testing")]
pub use windlass_macros::simulation;
#[cfg(feature = "testing")]
#[doc(inline)]
pub use windlass_testing as testing;

/// Health checks, metrics and pages of your own.
pub mod admin {
    #[doc(inline)]
    pub use windlass_admin::{
        Access, AdminConfig, AdminConfigError, AdminError, CertificateError, Check, CheckResult,
        ComponentInfo, Health, Notice, PageHandler, PageRequest, PageResponse, Pages, Probe, Report, Tls,
    };
}

/// The connection to the API server: rates, identities, errors.
pub mod client {
    #[doc(inline)]
    pub use windlass_client::{
        ClientError, ClientOptions, ClientOptionsError, Cluster, ClusterSource, ConfigError,
        CredentialsError, DeadlineError, DrainingError, FencedError, Identities, IdentityCause,
        IdentityError, KilledError, MissingPermission, NotDeclaredError, RequestError, TurnOverError,
        WatchIdleError, draining, infer_config, killed, load_config, missing_permission, one_line, refusal,
        retry_after, timed_out, turn_over, undeclared,
    };
}

/// What a controller is written against: the trait, sources of keys, writers, outcomes.
pub mod controller {
    #[doc(inline)]
    pub use windlass_controller::{
        ApiScope, BoxError, CacheSync, Caller, Change, Context, Controller, Deletion, Descriptor,
        DynamicWatches, Enqueuer, Outcome, Owned, OwnedBuilder, Owners, Polled, Predicate, ReadYourWrites,
        ReconcileError, Registration, RequestOptions, Runnable, RunnableContext, RunsOn, Setup, SetupError,
        TaskContext, Timer, Trigger, TriggerError, UNDECLARED, Watch, WatchError, Watchable, Writable,
        WriteError, WriteResult, Writer, WriterBuilder, Written, all_of, annotations_changed, by_any_owner,
        by_index, by_label, by_owner, by_owner_kind, by_self, changed, generation_changed, labels_changed,
        not_yet, predicate, resource_version_changed, retry, retry_after, terminal,
    };
}

/// The configuration of the leader election, and how a Lease is lost.
pub mod election {
    #[doc(inline)]
    pub use windlass_election::{
        CoordinatedConfig, CoordinatedStrategy, ElectionConfig, ElectionConfigError, ElectionError,
        LeaseLost, LossReason,
    };
}

/// Clock, randomness and tasks: real, or simulated.
pub mod env {
    #[doc(inline)]
    pub use windlass_env::{Env, Instant, Pause, Rng, Task, TaskError, TaskGroup};
}

/// Events for the users of a cluster.
pub mod events {
    #[doc(inline)]
    pub use windlass_events::{CapturedEvent, NewEvent, Recorder};
}

/// The cache: listers, indexes, events with their causes, sources of your own.
pub mod informer {
    #[doc(inline)]
    pub use windlass_informer::{
        Cause, ChannelSource, Coverage, DeletionEvidence, Event, FeedError, Index, IndexValue,
        KindAvailability, KindOptions, ListRequest, Lister, ListerWatcher, NamespaceSet, Progress, Resync,
        Selection, Selectors, Unreadable, UnsyncedReason, WatchListRequest, WatchRequest, indexes,
    };
}

/// The process: what starts in which order, which replica leads, how it ends.
pub mod manager {
    #[doc(inline)]
    pub use windlass_manager::{
        AddError, CacheOptions, ConfigError, ControllerSelection, Explainer, FeatureGate, FeatureGateError,
        FeatureGates, Manager, ManagerConfig, ManagerError, ManagerHandle, ManifestOptions, Manifests,
        NoSuchController, Registry, RegistryError, START, ShardStage, ShutdownSignals, ShutdownTrigger,
        StartStep, UnknownController, closest, manifests,
    };
}

/// The metrics of the process, and those of your own.
pub mod metrics {
    #[doc(inline)]
    pub use windlass_metrics::{Gauge, Histogram, IntCounter, IntGauge, LocalHistogram, Metrics, names};
}

/// Objects by key, kind, owner, selector and version.
pub mod object {
    #[doc(inline)]
    pub use windlass_object::{
        DecodeError, Decoder, Dynamic, GroupResource, LabelSelector, Metadata, ObjectHeader, ObjectKey,
        ParseObjectKeyError, ParseVerbError, Representation, ResourceKind, ResourceVersion, Rule, Scope,
        Scoped, SelectorError, Status, Typed, Uid, Verb, condition, owner, selector, time,
    };
}

/// The configuration of shards.
pub mod sharding {
    #[doc(inline)]
    pub use windlass_sharding::{ShardsConfig, ShardsConfigError, ShardsReport};
}

/// Priorities and rate limiters of queues.
pub mod workqueue {
    #[doc(inline)]
    pub use windlass_workqueue::{
        Exponential, Priority, RateLimiter, TokenBucket, default_limiter, per_key_limiter,
    };
}

/// What the file of a controller or runnable needs, and the `main` next to it: `use windlass::prelude::*;`.
pub mod prelude {
    pub use windlass_controller::{
        BoxError, Change, Context, Controller, Enqueuer, Outcome, Owned, Polled, ReconcileError,
        Registration, Runnable, RunnableContext, RunsOn, Setup, SetupError, Timer, WriteError, Writer,
        all_of, by_index, by_label, by_owner, by_self, generation_changed, labels_changed, not_yet, retry,
        retry_after, terminal,
    };
    pub use windlass_env::Env;
    pub use windlass_informer::{Index, Lister, Selection};
    pub use windlass_manager::{Manager, ManagerConfig, ShutdownSignals};
    pub use windlass_object::condition::set_condition;
    pub use windlass_object::owner::{controller_reference, is_controlled_by};
    pub use windlass_object::{ObjectKey, Rule, Verb};
}
