//! What the black-box tests share: a subject under test, a world to put objects into, and patient waiting.
//!
//! The tests speak to a real API server and know the controllers only by what they do to it. The same scenarios
//! run against another implementation: with `WINDLASS_SUBJECT=upstream` the subject is kube-controller-manager,
//! which is how a scenario itself is checked.

pub mod audit;
pub mod control_plane;
pub mod fixtures;
pub mod forwarder;
pub mod subject;
pub mod tenures;
pub mod wait;
pub mod workload;
pub mod world;
