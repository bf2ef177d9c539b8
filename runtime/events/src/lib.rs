//! Telling users what happened: a bounded recorder that never blocks a reconcile.
//!
//! A [`Recorder`] takes what happened to an object; a [`Sink`] turns it into `v1` Events on the API server. Between
//! them lies a queue of a thousand.
//!
//! # Guarantees
//!
//! - Recording never waits and never fails: where the queue is full, the event is dropped and counted.
//! - An event that says the same of the same object again raises the count of the first one, instead of becoming one
//!   more object. Many that differ in words alone are combined, and an object about which a component will not stop
//!   talking is muted ([`Sink`] gives the numbers).
//! - What the API server refuses is not sent again; what did not reach it is tried for about two minutes.
//! - On stop, what is queued is still sent, within five seconds. What is left is counted as dropped.
//! - What is kept in order to recognize repetition is bounded, and what can decide nothing any more is forgotten.
//!
//! # What it refuses
//!
//! Events are best effort: nothing may depend on one arriving. There is no way to learn whether one did, except for
//! tests, which record into a [`CapturedEvents`].

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
