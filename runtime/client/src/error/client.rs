//! Why a client could not be made.

use super::{credentials::CredentialsError, text::one_line};
use crate::options::ClientOptionsError;

/// A client could not be made.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ClientError {
    /// The process has installed no cryptography for TLS. A binary does so once, first thing in `main`.
    #[error(
        "no rustls CryptoProvider is installed: install one (ring's, for instance) when the process starts"
    )]
    NoCryptoProvider,
    /// The credentials cannot be used: a token file or plugin fails, a password is no header value.
    #[error("cannot use the credentials: {0}")]
    Credentials(#[source] CredentialsError),
    /// A header that goes with every request cannot be sent: an impersonated name, for instance.
    #[error("cannot use the extra headers: {}", one_line(.0))]
    Headers(#[source] kube::Error),
    /// The certificates or the server's name cannot be used.
    #[error("cannot set up TLS: {}", one_line(.0))]
    Tls(#[source] kube::Error),
    /// The user agent is no header value.
    #[error("{0:?} cannot be sent as a user agent")]
    UserAgent(String),
    /// No ServiceAccount can be called so, and controllers have accounts of their own.
    #[error(
        "no service account can be called {0:?}: a controller's client name must be lower-case letters, digits, - and ."
    )]
    AccountName(String),
    /// No namespace can be called so.
    #[error(
        "no namespace can be called {0:?}: name the one in which the service accounts of controllers are"
    )]
    AccountNamespace(String),
    /// The proxy is of a kind that is not supported. Its URL may hold a password, and is not shown.
    #[error(
        "proxies of scheme {scheme:?} are not supported: use http or socks5, without credentials in the URL"
    )]
    Proxy {
        /// The scheme of its URL.
        scheme: String,
    },
    /// The server's address lacks a scheme or a host.
    #[error("{0:?} is no address of a server: write https://host:port")]
    Server(String),
    /// The limits cannot be kept.
    #[error(transparent)]
    Options(#[from] ClientOptionsError),
}
