//! Records Kubernetes Events, with a bounded recorder that never blocks a reconcile.
//!
//! A [`Recorder`] accepts events; a [`Sink`] sends them as `v1` Events to the API server. The queue between them holds
//! 1000 events.
//!
//! # Guarantees
//!
//! - Recording never waits and never fails. If the queue is full, the event is dropped and counted.
//! - A repeated event increases the count of the first Event instead of creating another object. Events that differ
//!   only in their note are combined. If a component records too many events for one object, further events are dropped
//!   ([`Sink`] describes the limits).
//! - An event that the API server rejects is not sent again. If the server is unreachable, the event is retried for
//!   about two minutes.
//! - On stop, queued events are still sent, for up to five seconds. The remaining events are counted as dropped.
//! - The caches for correlation are bounded, and entries that have expired are evicted.
//!
//! # Limits
//!
//! Events are best effort, so no logic must depend on their delivery. There is no delivery report. Tests record into
//! [`CapturedEvents`] with [`Recorder::capturing`].

mod aggregate;
mod correlator;
mod lru;
mod recorder;
mod sink;
mod spam;
mod subject;
#[cfg(test)]
mod tests;

pub use recorder::{CapturedEvent, CapturedEvents, NewEvent, Recorder};
pub use sink::{Sink, recorder};
