//! Errors of the start of an admin server.

use std::net::SocketAddr;

use crate::config::AdminConfigError;
use windlass_serving::CertificateError;

/// The reason why an admin server does not start.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AdminError {
    /// The configuration contradicts itself.
    #[error(transparent)]
    Config(#[from] AdminConfigError),
    /// The address could not be bound.
    #[error("cannot listen on {address}: {source}; choose a free address and port")]
    Bind {
        /// The address.
        address: SocketAddr,
        /// The error of the operating system.
        source: std::io::Error,
    },
    /// The serving certificate is unavailable.
    #[error("cannot load the serving certificate: {0}")]
    Tls(#[from] CertificateError),
}
