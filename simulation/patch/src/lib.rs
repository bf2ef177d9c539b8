//! How one object becomes another: JSON patch, merge patch, strategic merge patch and server-side apply.
//!
//! Guarantees:
//! - Pure functions: what comes out follows from the arguments alone. Where a time is written, it is an argument.
//! - Upstream's own case data pass.
//!
//! It refuses to know of storage, versions and conflicts between requests; the conflicts it knows are those between
//! field managers.

pub mod apply;
mod error;
pub mod json;
pub mod strategic;

pub use self::error::PatchError;
