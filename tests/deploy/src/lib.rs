//! Generated files of the charts in `deploy/charts/`, and Helm for their tests.
//!
//! Guarantees:
//! - [`charts::generate`] is pure except for the program that it calls: the same schema and the same program result in
//!   the same files. A test compares them with the committed files.
//! - [`Helm`] uses no setting and no cache of the user, and needs no network.

pub mod charts;
pub mod dashboard;
mod helm;
pub mod picture;
pub mod schema;

pub use helm::{Chart, Helm, PROJECT};
