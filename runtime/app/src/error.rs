//! Why a program did not run.

use std::fmt;

use windlass_client::ConfigError;
use windlass_manager::ManagerError;

/// Why a program did not run, or ended. `Debug` prints the same line as `Display`, for a `main` that returns it.
#[derive(thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// An argument is wrong.
    #[error("{0}; --help lists the arguments")]
    Argument(String),
    /// The cluster cannot be found.
    #[error(transparent)]
    Cluster(#[from] ConfigError),
    /// The manager did not start, could not continue, or did not stop cleanly.
    #[error(transparent)]
    Manager(#[from] ManagerError),
    /// Definitions could not be installed.
    #[error("cannot install the definition {name}: {reason}")]
    Install {
        /// The definition.
        name: String,
        /// What went wrong.
        reason: String,
    },
    /// The operating system refused something.
    #[error("cannot {what}: {source}")]
    System {
        /// What.
        what: &'static str,
        /// Why.
        source: std::io::Error,
    },
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}
