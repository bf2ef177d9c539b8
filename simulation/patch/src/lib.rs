//! Patches for Kubernetes objects: JSON patch, merge patch, strategic merge patch and server-side apply.
//!
//! Guarantees:
//! - All functions are pure: results depend only on the arguments, including the current time.
//! - Upstream's own test cases pass.
//!
//! Storage, versions and conflicts between requests are not included; conflicts between field managers are.

pub mod apply;
mod error;
pub mod json;
pub mod strategic;

pub use self::error::PatchError;
