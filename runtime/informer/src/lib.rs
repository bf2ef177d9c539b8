//! API server to local truth. Knows nothing of work queues.
//!
//! An [`InformerFactory`] keeps one [`SharedInformer`] per kind and selection. Each lists and watches its
//! objects, keeps them in a store that [`Lister`]s read, and tells [`Handler`]s what changed:
//!
//! ```text
//! ListerWatcher -> reflector -> DeltaFifo -> processing loop -> store -> processor -> handlers
//! ```
//!
//! Guarantees (`docs/guarantees.md` lists conditions, limits and tests):
//! - Handlers for one key see states in an order the API server produced.
//! - A handler is told every state the store went through, however slow it is, up to sixteen that wait of one
//!   object.
//! - A delete is delivered even when it happened during an outage; it carries the last known state and says
//!   whether it was seen.
//! - The store already holds the state a handler is told of.
//! - The store's version never moves back, except into a new epoch, when a consistent list proves that the
//!   server did.
//! - `has_synced` of a handle means that this handler has seen the initial list.
//! - A failing watch slows nobody but itself; neither does a slow or panicking handler.
//! - A handler that asked for every event is told every one, or ended with a reason.
//! - A resync is told to who asked for it; a list that is read again tells only what differs.
//! - A cache over its byte budget says so, serves what it holds and recovers; it never holds a part of a list.
//! - An object that cannot be decoded is counted, reported with its name, quarantined, and retried when it
//!   changes and in every list. It never hides its neighbors.
//! - After any fault stops, cache equals server.
//! - Readers never block the writer.
//! - Namespaces may join and leave an informer while it runs ([`NamespaceSet`]); one that fails holds up no other,
//!   and what has not been listed of one never counts as seen.
//! - So may shards ([`ShardSet`]). What belongs to no shard that is held is not decoded, whatever the server sends.
//! - An informer that was asked for as long as it is used ([`RefCountedInformer`]) is stopped and freed when nobody uses it any more,
//!   and starts again for the next.
//! - A kind whose definition is absent, or that must not be read, is waited for, holds up nobody, and says what is in
//!   the way ([`KindAvailability`]); it is followed as soon as it can be had.
//!
//! What it refuses: to run code of handlers under a lock, to merge changes of two objects that bore one name,
//! and to guess: what is inferred says so ([`DeletionEvidence`]), and so does what is not known
//! ([`Lister::get`]).

mod availability;
mod backoff;
mod budget;
pub mod delta_fifo;
mod erased;
mod error;
mod factory;
mod handle;
mod handler;
mod indexer;
pub mod indexes;
mod informer;
mod list_watch;
mod lister;
mod lock;
mod namespaces;
mod partition;
mod polls;
mod processor;
mod reader;
mod reflector;
mod settings;
mod shards;
mod share;
mod shared_informer;
mod store;
mod sync;
#[cfg(test)]
mod testing;
#[cfg(test)]
mod tests;
mod undecodable;

pub use crate::availability::KindAvailability;
pub use crate::budget::OverBudget;
pub use crate::error::{InformerError, NotSynced, UnsyncedInformer, UnsyncedReason};
pub use crate::factory::{
    FactoryOptions, InformerFactory, KindOptions, Kinds, RefCountedInformer, Selectors,
};
pub use crate::handle::{HandlerHandle, SelfWaitError};
pub use crate::handler::{
    Cause, DeletionEvidence, Delivery, Event, Handler, HandlerFailure, HandlerOptions, Resync, filtered,
};
pub use crate::indexes::{Index, IndexValue};
pub use crate::informer::{Informer, RefreshState, RefreshTicket, VersionSource};
#[cfg(feature = "etcd")]
pub use crate::list_watch::etcd;
pub use crate::list_watch::{
    ApiServerSources, ChannelSource, FeedError, ListRequest, ListerWatcher, Selection, SourceProvider,
    WatchListRequest, WatchRequest,
};
pub use crate::lister::Lister;
pub use crate::namespaces::NamespaceSet;
pub use crate::partition::{ObjectLocation, Partition, RemovalReason};
pub use crate::reader::Unreadable;
pub use crate::reflector::{LogWatchErrors, NextAction, WatchErrorHandler, WatchFailure, WatchOperation};
pub use crate::shards::{Shard, ShardSet, Shards, ShardsOverlap};
pub use crate::shared_informer::SharedInformer;
pub use crate::store::{Coverage, Progress, UndecodableObject};
pub use crate::undecodable::UndecodableObjects;
