//! Writers: the declared ways in which a controller changes objects of one kind.
//!
//! Guarantees:
//! - A writer sends only what its builder granted; another operation is an error before anything is sent, which names the
//!   line to add. Each grant declares its rule, so roles follow from it.
//! - A change (update, patch, status, finalizers) is computed from an object that the caller read. It carries the resource
//!   version and the UID of that object: if the object changed unseen, the server answers 409, and the key is retried
//!   quietly. If nothing would change, no request is sent. Creations are always sent.
//! - An apply that would change nothing is not sent, if the writer is [`cached_by`](WriterBuilder::cached_by) a lister.
//! - A deletion carries the UID: it never deletes a later object of the same name.
//! - A writer sends through the client of its [`Caller`]. That of a reconcile writes behind the fence of the key, and
//!   read-your-writes waits for it.
//! - Children ([`Owned`]) carry their owner; one of that name that is not the owner's is refused.
//!
//! It refuses to read: what the caller read decides.

mod apply_history;
mod cached_apply;
mod caller;
mod difference;
mod encoding;
mod owned;
mod ownership;
mod request;
mod writer;

pub use self::caller::Caller;
pub use self::encoding::Writable;
pub use self::owned::{Owned, OwnedBuilder};
pub use self::request::Change;
pub use self::writer::{Deletion, WriteResult, Writer, WriterBuilder, Written};
