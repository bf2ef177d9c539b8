//! Writers: the declared operations by which a controller changes objects of one kind.
//!
//! Guarantees:
//! - A writer sends only the operations that its builder granted. Another operation fails before anything is sent, and
//!   the error names the line to add. Each grant declares its rule, so roles follow from it.
//! - A change (update, patch, status, finalizers) is computed from an object that the caller read. It carries the
//!   resource version and the UID of that object: if the object has changed since, the server answers 409 and the key
//!   is retried quietly. If nothing would change, no request is sent. Creates are always sent.
//! - An apply that would change nothing is not sent if the writer is [`skip_unchanged`](WriterBuilder::skip_unchanged)
//!   a lister.
//! - A deletion carries the UID: it never deletes a later object of the same name.
//! - A writer sends through the client of its [`Caller`]. The client of a reconcile writes behind the fence of the key,
//!   and read-your-writes waits for its writes.
//! - Children ([`Owned`]) carry an owner reference. An existing child that the owner does not control is rejected.
//!
//! Writers do not read for the caller: a change is based on the object that the caller read.

mod apply_history;
mod cached_apply;
mod caller;
mod difference;
mod encoding;
mod owned;
mod ownership;
mod request;
mod writer;

pub use self::caller::{Caller, CallerSeal};
pub use self::encoding::Writable;
pub use self::owned::{Owned, OwnedBuilder};
pub use self::request::Change;
pub use self::writer::{Deletion, WriteResponse, WriteResult, Writer, WriterBuilder};
