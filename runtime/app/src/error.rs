//! Errors of a program.

use std::fmt;
use std::path::PathBuf;

use windlass_admin::CertificateError;
use windlass_client::ConfigError;
use windlass_manager::ManagerError;

use crate::log::LogError;

/// The reason why a program did not run, or stopped. `Debug` prints the same line as `Display`, for a `main` that
/// returns it.
#[derive(thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// An argument is invalid.
    #[error("{0}; --help lists the arguments")]
    Argument(String),
    /// The cluster configuration is not found or invalid.
    #[error(transparent)]
    Cluster(#[from] ConfigError),
    /// The manager did not start, could not continue, or did not stop cleanly.
    #[error(transparent)]
    Manager(#[from] ManagerError),
    /// The API server did not answer.
    #[error("{source}; check the address {server} ({origin}), its CA, and the state of the API server")]
    ApiServer {
        /// The URL of the API server.
        server: String,
        /// The origin of the cluster configuration, such as a context of a kubeconfig.
        origin: String,
        /// The cause.
        source: Box<ManagerError>,
    },
    /// The files of `--tls-cert-file` and `--tls-private-key-file` cannot be used.
    #[error(
        "--tls-cert-file={}, --tls-private-key-file={}: {source}; name a certificate in PEM and the key that belongs \
         to it", certificate.display(), key.display()
    )]
    Certificate {
        /// The file of the certificate.
        certificate: PathBuf,
        /// The file of the key.
        key: PathBuf,
        /// The cause, which names the file.
        source: Box<CertificateError>,
    },
    /// CRDs could not be installed.
    #[error("cannot install CRD {name}: {reason}")]
    Install {
        /// The name of the CRD.
        name: String,
        /// The cause.
        reason: String,
    },
    /// The log or the traces could not be installed.
    #[error(transparent)]
    Log(#[from] LogError),
    /// A call of the operating system failed.
    #[error("cannot {what}: {source}")]
    System {
        /// The operation.
        what: &'static str,
        /// The cause.
        source: std::io::Error,
    },
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}
