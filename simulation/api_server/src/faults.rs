//! Faults on the way between clients and a server: what networks, load balancers, busy servers and crashing processes
//! do, on order.
//!
//! A [`Network`] stands before one [`Server`]. Each process talks to it over a [`Link`] of its own, which is a tower
//! `Service` and so all that `kube::Client` needs. FaultAction goes wrong is a [`FaultPlan`]: plain data, one [`Fault`] after the
//! other, each for a while, for all or some senders, resources and chances.
//! A test of a single controller sets a [`FaultyServer`], a server with one line, and chooses by hand what goes wrong
//! ([`Link::meddle`]).
//!
//! Guarantees:
//! - One plan and one seed give one history: every draw comes from a stream of random numbers named after sender, life
//!   and fault, so that a fault taken out of a plan leaves the draws of the others alone.
//! - A request passes transit, arrival, processing and the point at which it takes effect. A sender that drops the
//!   request, or is killed, resets the connection: a request in transit then arrives within 100 ms or never, one in
//!   processing takes effect within 500 ms or never. A sender that stands still resets nothing.
//! - The parameter `timeout` counts from arrival: a write whose processing takes longer is answered 504, without effect.
//! - Within one watch events keep their order: no server reorders what it tells one watcher, and clients rely on it.
//!   Two watches may be delayed by different times, which is the reordering that the API allows.
//! - What is refused here is refused in the server's own words ([`Status`](crate::Status)), and never after it took
//!   effect, but for [`FaultAction::TimedOut`], which is about just that.
//! - Everything that passes is told to a [`Journal`], in an order that one seed reproduces.
//!
//! What it refuses: sockets, real time, and faults that no server or network shows.

mod connection;
mod effects;
mod faulty_server;
mod journal;
mod link;
mod network;
mod plan;
mod refusals;
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
