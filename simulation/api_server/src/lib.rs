//! An in-process API server: small, but complete enough to run controllers. The contract suite in `tests/contract`
//! checks it against the real server.
//!
//! A request passes `http` (path, query, identity, media type), then `registry` (defaults, validation, and the
//! create, update and delete strategies of each kind), then `storage` (versions, history, watches).
//!
//! Guarantees:
//! - One global resource version orders all writes. A write that changes nothing keeps its version and sends no
//!   event.
//! - A watch from a version delivers every later change in order, or fails with 410.
//! - All times and random numbers come from the `Env` of the server.
//! - Webhooks of the stored configurations review writes, and convert custom objects. They run in the process and are
//!   passed to [`ApiServer::serve_webhooks`]; other webhooks are unreachable.
//!
//! Non-goals: durable storage (objects are in memory only) and authorization by default. The server records the
//! accesses of all users and enforces permissions only for users passed to [`ApiServer::restrict`].

pub mod body;
mod expressions;
pub mod faults;
mod go_duration;
mod go_json;
mod http;
pub mod read;
pub mod registry;
mod rights;
pub mod server;
mod service;
pub mod status;
pub mod storage;
mod tables;
mod webhooks;

pub use self::rights::{DenialObserver, Grant};
pub use self::server::{ApiServer, ApiServerOptions, RecordedAccess};
pub use self::service::ServeError;
pub use self::status::Status;
pub use self::webhooks::WebhookHandler;
