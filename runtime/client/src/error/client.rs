//! Errors while creating a client.

use super::{credentials::CredentialsError, text::one_line};
use crate::options::ClientOptionsError;

/// Error while creating a client.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ClientError {
    /// No crypto provider for TLS is installed. A binary must install one at the start of `main`.
    #[error(
        "no rustls CryptoProvider is installed: install one (ring's, for instance) when the process starts"
    )]
    NoCryptoProvider,
    /// The credentials cannot be used: a token file or plugin fails, or a password is not a valid header value.
    #[error("cannot use the credentials: {0}")]
    Credentials(#[source] CredentialsError),
    /// An extra header cannot be sent, for example an impersonated user name.
    #[error("cannot use the extra headers: {}", one_line(.0))]
    Headers(#[source] kube::Error),
    /// The certificates or the server name cannot be used.
    #[error("cannot set up TLS: {}", one_line(.0))]
    Tls(#[source] kube::Error),
    /// The user agent is not a valid header value.
    #[error("user agent {0:?} is not a valid header value; use visible ASCII characters")]
    UserAgent(String),
    /// The name is not valid for a ServiceAccount, and each controller has its own ServiceAccount.
    #[error(
        "service account name {0:?} is not valid; name the controller's client with lowercase letters, digits, - and ."
    )]
    AccountName(String),
    /// The name is not valid for a namespace.
    #[error("namespace {0:?} is not a valid name; set the namespace of the controllers' service accounts")]
    AccountNamespace(String),
    /// The scheme of the proxy is not supported. Its URL is not shown because it can contain a password.
    #[error("proxy scheme {scheme:?} is not supported; use http or socks5, without credentials in the URL")]
    Proxy {
        /// The scheme of its URL.
        scheme: String,
    },
    /// The address of the server has no scheme or no host.
    #[error("{0:?} is not a valid server address; write https://host:port")]
    Server(String),
    /// The rate limits are not valid.
    #[error(transparent)]
    Options(#[from] ClientOptionsError),
}
