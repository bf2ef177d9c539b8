//! Fault injection between clients and a server: simulates the failures of networks, load balancers, overloaded
//! servers and crashing processes.
//!
//! A [`Network`] connects clients to one [`Server`]. Each process uses its own [`Link`], a tower `Service`, which is
//! all that `kube::Client` requires. A [`FaultPlan`] is plain data: a list of [`Fault`]s, each with a time window,
//! and optionally limited to a sender, a resource and a probability. A test of a single controller uses a
//! [`FaultyServer`], a server with one link, and injects faults by hand ([`Link::inject_fault`]).
//!
//! Guarantees:
//! - One plan and one seed produce one history. Each random-number stream is named after sender, incarnation and
//!   fault, so removing one fault from a plan does not change the random numbers of the others.
//! - A request passes four stages: transit, arrival, processing, effect. If the sender drops the request or is
//!   killed, its connection is reset. A request in transit then arrives within 100 ms or never; a request in
//!   processing takes effect within 500 ms or never. A paused sender resets no connection.
//! - The parameter `timeout` counts from arrival. If processing takes longer, the write fails with 504 and has no
//!   effect.
//! - Events of one watch keep their order, because servers never reorder them and clients rely on it. Two watches can
//!   have different delays; the API allows that.
//! - An injected error is the server's own [`Status`](crate::Status). The request has had no effect, except with
//!   [`FaultAction::TimedOut`].
//! - A [`Journal`] records all traffic, in an order that one seed reproduces.
//!
//! Non-goals: sockets, real time, and faults that no real server or network produces.

mod connection;
mod effects;
mod faulty_server;
mod injected_errors;
mod journal;
mod link;
mod network;
mod plan;
mod request_summary;
mod sender;
mod server;
mod shared;
#[cfg(test)]
mod tests;
mod watch;

pub use self::faulty_server::FaultyServer;
pub use self::journal::{Journal, JournalObserver, ProcessId, Record, RecordKind};
pub use self::link::{Link, LinkError};
pub use self::network::Network;
pub use self::plan::{Fault, FaultAction, FaultPlan};
pub use self::request_summary::RequestSummary;
pub use self::server::Server;
