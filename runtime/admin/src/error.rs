//! Why an admin server does not start.

use std::net::SocketAddr;

use crate::certificates::CertificateError;
use crate::config::AdminConfigError;

/// Why an admin server does not start.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AdminError {
    /// The configuration contradicts itself.
    #[error(transparent)]
    Config(#[from] AdminConfigError),
    /// The address could not be bound.
    #[error("serving health and metrics on {address}: {source}")]
    Bind {
        /// The address.
        address: SocketAddr,
        /// What the operating system said.
        source: std::io::Error,
    },
    /// There is no certificate to serve with.
    #[error("the admin server's certificate: {0}")]
    Tls(#[from] CertificateError),
}
