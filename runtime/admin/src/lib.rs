//! The admin server: health, metrics and debugging pages, safe to expose.
//!
//! Guarantees:
//! - Plain HTTP and open access stay on loopback. Anywhere else it speaks TLS 1.2 or 1.3, and the API server decides who
//!   reads what: no token, or an unknown one, is 401; a known one without the right is 403.
//! - Probes need no token and wait for no review, whatever else is asked.
//! - A certificate in files is replaced without losing a connection; a broken one is refused, and told once.
//! - A client that sends slowly, nothing, too much or without end, or never reads, costs one of a bounded number of
//!   connections, and loses it when another client connects. What requests and answers weigh is bounded too.
//! - Every task ends with [`AdminServer::stop`], within a second.
//!
//! What it refuses: bodies, methods other than GET and HEAD, client certificates, and HTTP/2, where one connection
//! could carry many requests at the same time.

mod certificates;
mod config;
mod connections;
mod delegated_auth;
mod error;
mod health;
mod holdings;
mod pages;
mod probes;
mod review_cache;
mod self_signed;
mod server;
mod service;
mod serving;
mod status;
#[cfg(test)]
mod tests;
#[cfg(test)]
mod threads;

pub use certificates::CertificateError;
pub use config::{Access, AdminConfig, AdminConfigError, Tls};
pub use error::AdminError;
pub use health::{Check, CheckResult, Health, Notice, Probe, Report};
pub use holdings::OwnershipReport;
pub use pages::{PageHandler, PageRequest, PageResponse, Pages};
pub use server::{AdminServer, AdminServerDeps};
pub use status::ComponentInfo;
