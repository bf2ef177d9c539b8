//! Whole clusters on one clock: simulation, fake nodes, oracles, fixtures.
//!
//! Guarantees:
//! - One seed replays one history, byte for byte.
//!
//! It refuses real clusters, sockets and real time.

pub mod nodes;
