//! The admin server: health, metrics and debugging endpoints, safe to expose.
//!
//! Guarantees:
//! - Plain HTTP and anonymous access are limited to loopback. On other addresses the server uses TLS 1.2 or 1.3, and
//!   the API server authorizes every path. A missing or unknown token is answered with 401, a user without permission
//!   with 403.
//! - Probes need no token and wait for no review, regardless of other requests.
//! - A certificate in files is reloaded without closing connections. A broken certificate is rejected and logged once.
//! - A client that sends slowly, nothing, too much or endlessly, or never reads, occupies one of a bounded number of
//!   connections. The server closes that connection when another client connects. The memory for requests and responses
//!   is bounded too.
//! - Every task ends within a second of [`AdminServer::stop`].
//!
//! Not supported: request bodies, methods other than GET and HEAD, client certificates, and HTTP/2, where one
//! connection could carry many concurrent requests.

mod config;
mod delegated_auth;
mod error;
mod health;
mod ownership_report;
mod pages;
mod probes;
mod review_cache;
mod self_signed;
mod server;
mod service;
mod status;
#[cfg(test)]
mod tests;
#[cfg(test)]
mod threads;

pub use config::{Access, AdminConfig, AdminConfigError, Tls};
pub use error::AdminError;
pub use health::{Check, CheckResult, Health, Notice, Probe, Report};
pub use ownership_report::OwnershipReport;
pub use pages::{PageHandler, PageRequest, PageResponse, Pages};
pub use server::{AdminServer, AdminServerDeps};
pub use status::ComponentInfo;
#[doc(inline)]
pub use windlass_serving::CertificateError;
