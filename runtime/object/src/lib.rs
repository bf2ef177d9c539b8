//! What every layer means by a Kubernetes object: key, version, metadata, owner, selector, condition,
//! verb and rule, what a request is about, what a shard is, and how bytes become one.
//!
//! Guarantees:
//! - Nothing here does I/O, reads a clock or starts a task: every function is a function of its arguments.
//! - Resource versions have one order, and one that is not a number has none ([`ResourceVersion`]).
//! - A timestamp made by [`time`] equals the one the API server sends back ([`time::seconds`], [`time::micros`]).
//! - Lists and watch frames are split without decoding the objects in them ([`wire`]), so that one object that
//!   cannot be decoded never hides its neighbors.
//! - Every object is in exactly one shard of a division ([`shard`]).
//! - What an informer keeps is chosen by a [`Representation`], never by a blanket rule over Rust types.
//!
//! It refuses to know about clients, caches and queues; they know about it.

pub mod condition;
pub mod json;
mod key;
mod kind;
pub mod owner;
mod representation;
pub mod request;
pub mod selector;
pub mod shard;
pub mod time;
mod uid;
mod verb;
mod version;
pub mod wire;

/// What API servers answer when they refuse, and what an ERROR frame of a watch carries.
pub use kube::core::Status;

pub use self::{
    key::{ObjectKey, ParseObjectKeyError},
    kind::{GroupResource, ResourceKind, Scope, Scoped},
    representation::{
        DecodeError, Decoder, Dynamic, Metadata, ObjectDecoder, Projection, Representation, Typed, metadata,
    },
    selector::{LabelSelector, SelectorError},
    uid::Uid,
    verb::{ParseVerbError, Rule, Verb},
    version::ResourceVersion,
    wire::{Frame, FrameDecoder, ObjectHeader, RawList, WireError},
};
