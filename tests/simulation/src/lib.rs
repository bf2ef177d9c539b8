//! Scripts: what a user does to a simulated cluster, for the controllers to follow.
//!
//! Each ends in a state that does not depend on when anything happened, so that runs under faults can be compared with
//! one without.

pub mod fixtures;
pub mod planted;
pub mod scripts;

pub use self::fixtures::User;
