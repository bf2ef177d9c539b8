//! Shared informer caches: local copies of the objects on the API server.
//!
//! An [`InformerFactory`] keeps one [`SharedInformer`] per kind and selection. Each informer lists and watches its
//! objects, keeps them in a store that [`Lister`]s read, and sends events about changes to [`Handler`]s:
//!
//! ```text
//! ListerWatcher -> reflector -> DeltaFifo -> processing loop -> store -> processor -> handlers
//! ```
//!
//! ```
//! use std::sync::Arc;
//!
//! use k8s_openapi::api::core::v1::ConfigMap;
//! use serde_json::json;
//! use windlass_env::Env;
//! use windlass_informer::{Event, FactoryOptions, InformerFactory, ObjectFeed, Selection};
//! use windlass_metrics::Metrics;
//! use windlass_object::{ObjectKey, ResourceKind};
//!
//! # tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build()?.block_on(async {
//! # let env = Env::virtual_time(1);
//! # let feed = ObjectFeed::new(&env);
//! # feed.upsert(&json!({"metadata": {"namespace": "default", "name": "greeting"}}))?;
//! let factory = InformerFactory::new(env, Metrics::new(), FactoryOptions::default());
//! let maps = factory.typed::<ConfigMap>();
//! let print = |event: &Event<Arc<ConfigMap>>| println!("{:?}", event.object().metadata.name);
//! maps.add_handler("print", print)?;
//! // The source is a feed here; `ApiServerSources` lists and watches an API server.
//! factory.start(Arc::new(move |_: &ResourceKind, selection: &Selection| feed.selecting(selection)));
//! factory.wait_for_sync(None).await?;
//! assert!(maps.lister().get(&ObjectKey::namespaced("default", "greeting"))?.is_some());
//! factory.shutdown().await;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! # })?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! Guarantees (`docs/guarantees.md` lists conditions, limits and tests):
//! - Handlers receive the states of one key in an order that the API server produced.
//! - A handler receives every state that the store contained, however slow it is, up to sixteen pending states per
//!   object.
//! - The deletion of an object that a handler knows is delivered, even if it happened during an outage. The event
//!   carries the last known state and states whether the deletion was observed ([`DeletionEvidence`]). At most 4,096
//!   objects that the handler does not know yet wait with their deletion; beyond that the oldest are dropped
//!   ([`Handler::missed`]).
//! - When a handler receives a state, the store already contains it.
//! - The store's version never moves back, except into a new epoch: a consistent list proves that the version of the
//!   server moved back.
//! - [`HandlerHandle::has_synced`] is true after this handler has received the initial list.
//! - A failing watch delays no other watch. A slow or panicking handler delays no other handler.
//! - A handler with [`Delivery::EveryEvent`] receives every event, or is removed with a reason.
//! - A handler receives resyncs in the period of its factory, unless it sets [`Resync::Never`] or [`Resync::Every`]. A
//!   relist produces events only for objects that differ.
//! - A cache that exceeds its byte budget reports it, serves the previous objects and recovers. It never contains a
//!   part of a list.
//! - An object that cannot be decoded is counted, reported by name and excluded from the cache. The informer
//!   retries it when the object changes and in every list. It never hides other objects.
//! - After all faults stop, the cache converges to the selected, decodable objects of the server.
//! - Readers never block the writer. Readers of compact objects share short locks with each other.
//! - A cache stores objects in a compact, lossless form by default ([`ObjectForm`]); a read decodes them.
//! - Namespaces can join and leave a running informer ([`NamespaceSet`]). A namespace that fails blocks no other
//!   namespace, and an unlisted namespace never counts as synced.
//! - Shards can join and leave as well ([`ShardSet`]). Objects outside the held shards are not decoded, even if the
//!   server sends them.
//! - A [`RefCountedInformer`] is stopped and freed when its last holder drops it. The next request starts a new one.
//! - The informer waits for a kind whose CRD is not installed or that it is not permitted to read. Such a kind blocks
//!   no other kind and reports the cause ([`KindAvailability`]). The informer lists it as soon as it is available.
//!
//! This crate does not run handler code under a lock, does not merge changes of two objects that had the same name, and
//! does not guess: inferred deletions are marked ([`DeletionEvidence`]), and unknown states are errors
//! ([`Lister::get`]). It does not depend on work queues.

mod availability;
mod backoff;
mod budget;
mod compact;
mod delta_fifo;
mod erased;
mod error;
mod factory;
mod gauge_share;
mod handle;
mod handler;
mod indexer;
pub mod indexes;
mod informer;
mod list_watch;
mod lister;
mod lock;
mod namespaces;
mod object;
mod partition;
mod polls;
mod processor;
mod reader;
mod reflector;
mod settings;
mod shards;
mod shared_informer;
mod store;
#[cfg(test)]
mod testing;
#[cfg(test)]
mod tests;
mod undecodable;
mod wait;
mod yield_now;

pub use crate::availability::KindAvailability;
pub use crate::budget::OverBudget;
pub use crate::compact::ObjectForm;
/// For the models of the fan-out, which compile its modules.
#[doc(hidden)]
pub use crate::delta_fifo::ResyncTarget;
pub use crate::error::{InformerError, NotSynced, UnsyncedInformer, UnsyncedReason};
pub use crate::factory::{
    FactoryOptions, InformerFactory, KindOptions, KindOptionsMap, RefCountedInformer, Selectors,
};
pub use crate::handle::{HandlerHandle, SelfWaitError};
pub use crate::handler::{
    Cause, DeletionEvidence, Delivery, Event, Handler, HandlerFailure, HandlerOptions, Resync, filtered,
};
pub use crate::indexes::{Index, IndexValue};
pub use crate::informer::{Informer, RelistState, RelistTicket, VersionedCache};
#[cfg(feature = "etcd")]
pub use crate::list_watch::etcd;
pub use crate::list_watch::{
    ApiServerSources, FeedError, ListRequest, ListerWatcher, ObjectFeed, Selection, SourceProvider,
    WatchListRequest, WatchRequest,
};
pub use crate::lister::Lister;
pub use crate::namespaces::NamespaceSet;
pub use crate::partition::{NamespacePartition, ObjectLocation, Partition, RemovalReason};
pub use crate::reflector::{LogWatchErrors, NextAction, WatchErrorHandler, WatchFailure, WatchOperation};
pub use crate::shards::{Shard, ShardSelection, ShardSet, ShardsOverlap};
pub use crate::shared_informer::SharedInformer;
pub use crate::store::Progress;
pub use crate::undecodable::{UndecodableError, UndecodableObject, UndecodableObjects};
