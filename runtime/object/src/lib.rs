//! The object model that all layers share: keys, versions, metadata, owners, selectors, conditions, verbs, RBAC rules,
//! request classification, shards, and decoding from bytes.
//!
//! Guarantees:
//! - This crate does no I/O, reads no clock and starts no task. The result of a function depends only on its arguments.
//! - Resource versions have one order. A version that is not a number is not comparable ([`ResourceVersion`]).
//! - A timestamp created by [`time`] equals the one that the API server returns ([`time::seconds`], [`time::micros`]).
//! - Lists and watch frames are split without decoding the objects ([`wire`]). An object that cannot be decoded does
//!   not affect the other objects.
//! - Every object is in exactly one shard of a shard map ([`shard`]).
//! - A [`Representation`] selects the parts of an object that an informer keeps. No rule applies to all Rust types.
//!
//! This crate does not depend on clients, caches or queues.

// The derived code of tests names this crate.
#[cfg(test)]
extern crate self as windlass_object;

pub mod condition;
pub mod json;
mod key;
mod kind;
mod metadata;
pub mod names;
pub mod owner;
mod representation;
pub mod request;
pub mod selector;
pub mod shard;
mod short_text;
pub mod time;
mod uid;
mod verb;
mod version;
pub mod view;
pub mod wire;

/// The error response of an API server, also carried by ERROR frames of a watch.
pub use kube::core::Status;

pub use self::{
    key::{ObjectKey, ParseObjectKeyError},
    kind::{GroupResource, ResourceKind, Scope, Scoped},
    metadata::{HasMetadata, Labels, Metadata, MetadataRef, Owner, OwnerRef, StringMap},
    representation::{
        DecodeError, Decoder, DynamicObjects, MetadataObjects, ObjectDecoder, Projection, Representation,
        TypedObjects, Watchable, metadata,
    },
    selector::{LabelSelector, SelectorError},
    uid::Uid,
    verb::{ParseVerbError, Rule, Verb},
    version::ResourceVersion,
    wire::{Frame, FrameDecoder, ObjectHeader, RawList, WireError},
};
