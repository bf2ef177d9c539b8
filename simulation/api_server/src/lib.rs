//! An API server in the process: enough of Kubernetes to run controllers on, small, honest, and checked against the
//! real one by the contract suite in `tests/contract`.
//!
//! A request passes, in this order: `http` (path, query, identity, media type) -> `registry` (defaults, validation,
//! what each kind does on create, update and delete) -> `storage` (versions, history, watches) and back.
//!
//! Guarantees:
//! - One global resource version orders all writes; a write that changes nothing keeps its version and tells nobody.
//! - A watch from a version tells every change after it, in order, or says that it cannot (410).
//! - Everything timed or random comes from the `Env` it was given.
//!
//! It refuses to be a place for data that matters: it keeps objects in memory. It records rights, and enforces those of users
//! that [`ApiServer::restrict`] names.

pub mod body;
pub mod faults;
mod go_duration;
mod http;
pub mod read;
pub mod registry;
mod rights;
pub mod server;
mod service;
pub mod status;
pub mod storage;
mod tables;

pub use self::rights::{DenialObserver, Grant};
pub use self::server::{ApiServer, ApiServerOptions, RecordedAccess};
pub use self::service::ServeError;
pub use self::status::Status;
