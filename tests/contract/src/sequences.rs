//! Random sequences of requests, whose answers are compared between the in-process server and kube-apiserver.
//!
//! A seed determines a sequence: requests of all verbs for the kinds in [`objects`], valid and invalid ones, in a
//! namespace of the sequence. Both servers receive the same sequence. Bodies contain versions and UIDs of earlier
//! responses of the same server.
//!
//! Guarantees: the status code, the warnings and the whole body are compared, including the causes of an error and
//! their order. Only generated values are replaced: UIDs, resource versions, times, name suffixes, addresses and node
//! ports. Equal values stay equal.

pub mod compare;
pub mod differences;
pub mod edits;
pub mod generate;
pub mod normalize;
pub mod objects;
pub mod session;

pub use self::compare::{Disagreement, compare};
pub use self::generate::{Step, job_status_steps, steps};
pub use self::session::{Exchange, send};
