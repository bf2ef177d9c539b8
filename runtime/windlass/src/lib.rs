//! Kubernetes controllers: caches, queues, leader election, metrics and simulation tests.
//!
//! A controller declares the kinds that it watches and writes, and reconciles one object at a time. This example
//! maintains a ConfigMap with the same labels for every Service:
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
//!         // Some clusters, such as OpenShift, require this permission for the owner reference.
//!         setup.uses_rule(Rule::new("", "services/finalizers", [Verb::Update]));
//!         Ok(Self {
//!             services: setup.primary::<Service>().lister(),
//!             // Map by name, not by owner: another client's ConfigMap can occupy the name and be deleted later.
//!             config_maps: setup.watch::<ConfigMap>().enqueue(by_self).lister(),
//!             mirrors: setup.writer::<ConfigMap>().create().patch().build(),
//!         })
//!     }
//!
//!     async fn reconcile(&self, key: &ObjectKey, cx: &Context) -> Result<Outcome, ReconcileError> {
//!         // The owner reference deletes the ConfigMap together with its Service.
//!         let Some(service) = self.services.get(key)? else { return Ok(Outcome::Done) };
//!         let desired = mirror_of(&service);
//!         match self.config_maps.get(key)? {
//!             None => drop(self.mirrors.create(cx, &desired).await?),
//!             // Never overwrite a ConfigMap of another owner: its data could not be restored.
//!             Some(map) if !is_controlled_by(&map.metadata, &service.uid().unwrap_or_default()) => {
//!                 return Err(terminal(format!("ConfigMap {key} is not owned by the Service; rename it")));
//!             }
//!             Some(mirror) => {
//!                 // Sends no request if nothing differs. Fails with a conflict if the cached object is outdated.
//!                 let relabel = |mirror: &mut ConfigMap| mirror.metadata.labels = desired.metadata.labels;
//!                 self.mirrors.patch(cx, &mirror, relabel).await?;
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
//!     windlass::run("label-mirror", [Registration::controller::<LabelMirror>()]).await
//! }
//! ```
//!
//! This is the complete program. The runtime provides:
//! - one cache of each kind for all controllers of the process, which resumes, relists and isolates undecodable
//!   objects;
//! - a queue that processes each key at most once at a time and delays only the keys that fail;
//! - reconciles that never act on a cache older than their own last write;
//! - one active replica, without writes after its Lease expires;
//! - rejection of undeclared requests, and roles for the declared ones;
//! - health checks, metrics and graceful shutdown.
//!
//! Its test simulates a cluster under twenty random plans of faults, on a virtual clock:
//!
//! ```
//! # #[cfg(all(test, feature = "testing"))] mod tests {
//! #[windlass::simulation(minutes = 3, faults = all, plans = 20)]
//! async fn labels_are_mirrored_despite_faults(cluster: Cluster) {
//!     cluster.run([Registration::controller::<LabelMirror>()]);
//!     for name in ["web", "shop", "mail"] {
//!         cluster.create(&service(name)).await;
//!         cluster.eventually("the labels are mirrored", |now| is_mirrored(now, name)).await;
//!         cluster.advance(Duration::from_secs(60)).await;
//!     }
//! }
//! # }
//! ```
//!
//! # Where to go next
//!
//! - `examples/` contains this controller as a complete program, and larger ones: indexes, a polled inventory, custom
//!   kinds with children, a finalizer and conditions. Each example has tests.
//! - `docs/writing-a-controller.md` describes the declarations in `setup` and the guarantees for a reconcile.
//! - [`controller`] is the API of controllers: the trait, mappers, predicates, timers, outcomes.
//! - [`informer`] is the cache: [listers](informer::Lister), indexes, events with their causes, custom sources.
//! - `testing`, with the feature of that name, contains an in-process API server, simulated clusters with faults, and
//!   oracles; `docs/testing.md` describes its use.
//! - [`run`] is the complete program, with `--help` and `manifests`; [`App`] is the same with more options.
//! - [`manager`] is the process: start order, leadership, shutdown.
//! - `webhook`, with the feature of that name, contains admission and conversion webhooks; `docs/webhooks.md` describes
//!   their use.
//! - The feature `opentelemetry` exports a trace per reconcile to a collector; `docs/running.md` describes it.
//! - [`admin`] serves health checks, metrics and custom endpoints: `ManagerConfig::admin` is an [`admin::AdminConfig`].
//!
//! Each module lists the public API of its crate for users. The crate, such as `windlass-informer`, also contains the
//! API for hosts and tools, and describes its guarantees and limits. This crate contains only re-exports.

#[doc(inline)]
pub use windlass_app::{App, Error, Log, LogError, LogFormat, identity, install_crds, run};
/// Turns a struct into a [view](object::view): the fields of an object that a controller reads.
///
/// ```
/// use std::sync::Arc;
/// use windlass::View;
/// use windlass::object::Metadata;
/// use windlass::prelude::*;
///
/// #[derive(View)]
/// #[view(of = "v1/Pod")]
/// struct PodOnNode {
///     metadata: Metadata,
///     #[view(path = "spec.nodeName")]
///     node: Option<Arc<str>>,
///     #[view(path = "status.conditions[Ready].status")]
///     ready: Option<Arc<str>>,
/// }
///
/// fn declare(setup: &mut Setup) -> Lister<PodOnNode> {
///     setup.watch::<PodOnNode>().lister()
/// }
/// ```
pub use windlass_macros::View;
/// An attribute that turns a script into a simulation test, with the feature `testing`.
#[cfg(feature = "testing")]
pub use windlass_macros::simulation;
#[cfg(feature = "testing")]
#[doc(inline)]
pub use windlass_testing as testing;

/// Health checks, metrics and custom endpoints.
pub mod admin {
    #[doc(inline)]
    pub use windlass_admin::{
        Access, AdminConfig, AdminConfigError, AdminError, CertificateError, Check, CheckResult,
        ComponentInfo, Health, Notice, PageHandler, PageRequest, PageResponse, Pages, Probe, Report, Tls,
    };
}

/// The connection to the API server: rate limits, identities, errors.
pub mod client {
    #[doc(inline)]
    pub use windlass_client::{
        ClientError, ClientOptions, ClientOptionsError, Cluster, ClusterSource, ConfigError,
        CredentialsError, DeadlineError, DrainingError, FencedError, FrameStream, Identities, IdentityCause,
        IdentityError, KilledError, MissingPermission, NotDeclaredError, Reachability, ReconcileEndedError,
        RequestError, RequestProgress, VersionMatch, WatchIdleError, draining, fenced, infer_config, killed,
        load_config, missing_permission, one_line, reconcile_ended, retry_after, server_authority, timed_out,
        undeclared,
    };
}

/// The API of controllers: the trait, sources of keys, writers, outcomes.
pub mod controller {
    #[doc(inline)]
    pub use windlass_controller::host::{Declaration, ReconcileLayer};
    #[doc(inline)]
    pub use windlass_controller::{
        ApiScope, BoxError, CacheSync, Caller, Change, Context, Controller, Deletion, Descriptor,
        DynamicWatches, Enqueuer, EventSource, FullObject, KeySharding, Outcome, Owned, OwnedBuilder, Owners,
        PollCache, Predicate, RateFactors, ReadYourWrites, ReconcileError, Registration, RequestOptions,
        Runnable, RunnableContext, RunsOn, Setup, SetupError, TaskContext, Timer, Trigger, TriggerError,
        UNDECLARED_REQUESTS_METRIC, Watch, WatchError, Writable, WriteError, WriteResponse, WriteResult,
        Writer, WriterBuilder, all_of, annotations_changed, by_any_owner, by_index, by_label, by_owner,
        by_owner_kind, by_self, changed, generation_changed, labels_changed, not_yet, predicate,
        resource_version_changed, retry, retry_after, terminal,
    };
}

/// The configuration of leader election, and the reasons for losing a Lease.
pub mod election {
    #[doc(inline)]
    pub use windlass_election::{
        CoordinatedConfig, CoordinatedStrategy, ElectionConfig, ElectionConfigError, ElectionError,
        LeaseLost, LossReason,
    };
}

/// Clock, random numbers and tasks: real or simulated.
pub mod env {
    #[doc(inline)]
    pub use windlass_env::{Env, Instant, Pause, Rng, Task, TaskError, TaskGroup};
}

/// Events for the users of a cluster.
pub mod events {
    #[doc(inline)]
    pub use windlass_events::{CapturedEvent, CapturedEvents, NewEvent, Recorder};
}

/// The cache: listers, indexes, events with their causes, custom sources.
pub mod informer {
    #[doc(inline)]
    pub use windlass_informer::{
        Cause, DeletionEvidence, Delivery, Event, FeedError, Handler, HandlerFailure, HandlerHandle,
        HandlerOptions, Index, IndexValue, Informer, InformerError, KindAvailability, KindOptions,
        ListRequest, Lister, ListerWatcher, NamespaceSet, NotSynced, ObjectFeed, ObjectForm, Progress,
        Resync, Selection, Selectors, SelfWaitError, ShardSelection, SharedInformer, UndecodableError,
        UndecodableObject, UndecodableObjects, UnsyncedInformer, UnsyncedReason, WatchListRequest,
        WatchRequest, filtered, indexes,
    };
}

/// The process: start order, leadership, shutdown.
pub mod manager {
    #[doc(inline)]
    pub use windlass_controller::{WebhookCertificates, WebhookConfig};
    #[doc(inline)]
    pub use windlass_manager::{
        AddError, CacheOptions, ConfigError, ControllerSelection, Explainer, FeatureGate, FeatureGateError,
        FeatureGates, FeatureStage, Manager, ManagerConfig, ManagerError, ManagerHandle, ManifestOptions,
        ManifestPart, Manifests, NoSuchController, Registry, RegistryError, START, ShutdownSignals,
        ShutdownTrigger, StartStep, UnknownController, closest, manifests,
    };
}

/// The metrics of the process, and custom metrics.
pub mod metrics {
    #[doc(inline)]
    pub use windlass_metrics::{Gauge, Histogram, IntCounter, IntGauge, LocalHistogram, Metrics, names};
}

/// Objects by key, kind, owner, selector and version.
pub mod object {
    #[doc(inline)]
    pub use windlass_object::{
        DecodeError, Decoder, DynamicObjects, Frame, GroupResource, HasMetadata, LabelSelector, Labels,
        Metadata, MetadataObjects, MetadataRef, ObjectDecoder, ObjectHeader, ObjectKey, Owner, OwnerRef,
        ParseObjectKeyError, ParseVerbError, Projection, RawList, Representation, ResourceKind,
        ResourceVersion, Rule, Scope, Scoped, SelectorError, Status, StringMap, TypedObjects, Uid, Verb,
        Watchable, WireError, condition, names, owner, selector, time, view,
    };
}

/// The configuration of shards.
pub mod sharding {
    #[doc(inline)]
    pub use windlass_sharding::{ShardsConfig, ShardsConfigError, ShardsReport};
}

/// Traces of reconciles for an OpenTelemetry collector, with the feature `opentelemetry`. [`run`] and [`App`] export
/// them if `OTEL_EXPORTER_OTLP_ENDPOINT` is set.
#[cfg(feature = "opentelemetry")]
pub mod opentelemetry {
    #[doc(inline)]
    pub use windlass_opentelemetry::{SHUTDOWN_TIMEOUT, Traces, TracesError};
}

/// Admission and conversion webhooks, with the feature `webhook`.
#[cfg(feature = "webhook")]
pub mod webhook {
    #[doc(inline)]
    pub use windlass_webhook::{
        AdmissionError, Conversion, ConversionBuilder, FailurePolicy, Hook, Mutator, Operation, Review,
        SideEffects, Validator, WebhookCertificates, WebhookConfig, Webhooks, check_round_trip, deny,
    };
}

/// Priorities and rate limiters of queues.
pub mod workqueue {
    #[doc(inline)]
    pub use windlass_workqueue::{
        Exponential, Priority, RateLimiter, TokenBucket, default_limiter, per_key_limiter,
    };
}

/// The common imports of controllers, runnables and their `main`: `use windlass::prelude::*;`.
pub mod prelude {
    pub use windlass_controller::{
        BoxError, CacheSync, Change, Context, Controller, Descriptor, Enqueuer, Outcome, Owned, Owners,
        PollCache, Predicate, ReconcileError, Registration, RequestOptions, Runnable, RunnableContext,
        RunsOn, Setup, SetupError, Timer, WriteError, Writer, all_of, annotations_changed, by_any_owner,
        by_index, by_label, by_owner, by_owner_kind, by_self, changed, generation_changed, labels_changed,
        not_yet, resource_version_changed, retry, retry_after, terminal,
    };
    pub use windlass_env::Env;
    pub use windlass_informer::{Index, Lister, Selection, UndecodableError};
    pub use windlass_manager::{Manager, ManagerConfig, ShutdownSignals};
    pub use windlass_object::condition::set_condition;
    pub use windlass_object::owner::{controller_reference, is_controlled_by};
    pub use windlass_object::{ObjectKey, ResourceKind, Rule, TypedObjects, Verb};
    pub use windlass_workqueue::Priority;
}
