//! Scripts: user actions in a simulated cluster to which the controllers react.
//!
//! The final state of a script does not depend on the timing, so that runs under faults can be compared with a run
//! without faults.
//!
//! A *plan* is the list of faults of one run, generated from a seed. A *family* is a set of similar simulations, one
//! for each plan. A *campaign* runs many plans of one simulation or family on all cores.
//!
//! By default `cargo test` runs a sample that takes seconds. To run more plans, use release mode:
//!
//! ```text
//! WINDLASS_PLANS=10000 cargo test --release -p windlass-simulation --test random random_faults -- --nocapture
//! WINDLASS_DAYS=7 cargo test --release -p windlass-simulation --test random days -- --nocapture
//! ```
//!
//! `WINDLASS_SEED` sets the first seed. A failed plan is shrunk and printed as a line of Rust. After the fix, add it to
//! `tests/regressions.rs`.

mod campaign;
pub mod fixtures;
pub mod generator;
pub mod guarantees;
pub mod scripts;
pub mod shards;

use std::str::FromStr;

pub use self::campaign::campaign;
pub use self::fixtures::{User, housekeeping_simulation, simulation};

/// Returns the value of an environment variable, or the default.
///
/// # Panics
/// Panics if the value is not a valid number.
pub fn env_or<T: FromStr>(variable: &str, default: T) -> T {
    let Ok(text) = std::env::var(variable) else { return default };
    text.parse().unwrap_or_else(|_| panic!("{variable}={text} is not a number; unset it or use digits only"))
}
