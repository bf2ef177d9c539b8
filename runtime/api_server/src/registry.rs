//! What each kind does when it is created, read, updated, patched and deleted.
//!
//! Guarantees:
//! - Writes are serialised: what a write read is still so when it is committed.
//! - A write either commits one change of one object, with what follows from it, or is refused as upstream refuses it.
//! - A write that changes nothing keeps its version.
//!
//! It refuses to know of HTTP: paths, media types and query parameters have become values before they come here.

mod request;

pub use self::request::{
    Answer, DeleteOptions, Deleted, FieldValidation, PatchKind, Propagation, Target, WriteOptions, Written,
};
