//! Descriptions of Kubernetes types, and checks of values that depend only on the type.
//!
//! `cargo xtask describe` generates the tables of the built-in kinds from upstream sources; custom kinds are read from
//! their CustomResourceDefinitions at run time. Both become a [`Schema`].
//!
//! Guarantees:
//! - Built-in and custom kinds have the same interface.
//! - Results depend only on the input, not on storage, time, random numbers or the network.
//!
//! Checks that need more than the type are not included: uniqueness in the cluster, permissions, and the validation of
//! updates.

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
        GoField, ListNode, ListType, MapType, Node, NodeType, ObjectNode, OmitPolicy, PatchStrategy, Schema,
        Types,
    },
};
