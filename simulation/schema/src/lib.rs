//! What Kubernetes types look like, and what can be said of a value by its type alone.
//!
//! The descriptions of the built-in kinds are tables made by `cargo xtask describe` from upstream's own material; those
//! of custom kinds are read from their CustomResourceDefinitions at run time. Both become the same [`Schema`].
//!
//! Guarantees:
//! - The same questions have the same answers for built-in and custom kinds.
//! - Nothing here knows of storage, time, chance or the network: same input, same output.
//!
//! It refuses what takes more than the type to know: uniqueness in the cluster, rights, what an update may change.

mod catalog;
pub mod check;
pub mod custom;
pub mod discovery;
mod hash;
mod node;
pub mod openapi;
mod tables;

pub use self::{
    catalog::{Catalog, Group, ResourceInfo, SubresourceInfo},
    node::{
        ListNode, ListType, MapType, Node, NodeType, ObjectNode, OmitPolicy, PatchStrategy, Schema, Types,
    },
};
