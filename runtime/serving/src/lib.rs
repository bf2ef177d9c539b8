//! HTTP/1.1 over TLS for the servers of a process: accept loop, limits, reloaded certificates.
//!
//! Guarantees:
//! - A client that sends slowly, nothing, too much or endlessly, or never reads, occupies one of a bounded number of
//!   connections. The server closes that connection when another client connects.
//! - The server never closes a connection with a request in progress, except after the stop and its grace period.
//! - A certificate is replaced between two handshakes. Open connections continue.
//! - A certificate in files is reloaded. A broken certificate is rejected and logged once.
//! - Every task ends within the grace period after the stop.
//!
//! Not supported: HTTP/2, where one connection could carry many concurrent requests. A [`Handler`] reads and limits the
//! bodies of requests.

mod certificates;
mod connections;
mod listener;
#[cfg(test)]
mod threads;

pub use crate::certificates::{
    CertificateError, CertificateFiles, CertificateReloader, Certificates, is_current, load_authorities,
    provider, server_config,
};
pub use crate::listener::{Handler, HttpListener, Limits};
