//! Scripts: what a user does to a simulated cluster, for the controllers to follow.
//!
//! Each ends in a state that does not depend on when anything happened, so that runs under faults can be compared with
//! one without.
//!
//! What `cargo test` runs by default is a sample that takes seconds. By hand, and much faster in release:
//!
//! ```text
//! WINDLASS_PLANS=10000 cargo test --release -p windlass-simulation --test random random_faults -- --nocapture
//! WINDLASS_DAYS=7 cargo test --release -p windlass-simulation --test random days -- --nocapture
//! ```
//!
//! `WINDLASS_SEED` says which seed is the first. What fails is shortened and printed as a line of Rust, and goes to
//! `tests/regressions.rs` once its cause is gone.

mod campaign;
pub mod fixtures;
pub mod generator;
pub mod guarantees;
pub mod scripts;
pub mod shards;

use std::str::FromStr;

pub use self::campaign::campaign;
pub use self::fixtures::{User, simulation};

/// What an environment variable asks for, or this.
///
/// # Panics
/// When it asks for what is no number.
pub fn wanted<T: FromStr>(variable: &str, default: T) -> T {
    let Ok(text) = std::env::var(variable) else { return default };
    text.parse()
        .unwrap_or_else(|_| panic!("{variable}={text} is no number; leave it out or write digits alone"))
}
