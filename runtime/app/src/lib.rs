//! The `main` of an operator: arguments, cluster connection, logging, signals, manifests.
//!
//! [`run`] builds a program from controllers. The program has probes, metrics, leader election and graceful shutdown,
//! and prints the roles that it needs.
//!
//! Guarantees:
//! - All arguments are validated before the first file is opened or request is sent. An error names the argument, the
//!   problem and the remedy.
//! - The cluster is selected by `--kubeconfig`, otherwise by `$KUBECONFIG`, otherwise by the Pod's ServiceAccount,
//!   otherwise by `~/.kube/config`. In a Pod the home directory is not checked. The choice is logged together with the
//!   server.
//! - A TLS provider and a log subscriber are installed only if the process has none.
//!
//! This is the only library that installs global state. A program with other needs uses
//! [`Manager`](windlass_manager::Manager).
//!
//! # Examples
//! ```no_run
//! # use windlass_controller::{Context, Controller, Outcome, ReconcileError, Registration, Setup, SetupError};
//! # use windlass_object::ObjectKey;
//! # struct Sites;
//! # impl Controller for Sites {
//! #     const NAME: &'static str = "site-controller";
//! #     type Config = ();
//! #     fn setup(_: &mut Setup, (): &()) -> Result<Self, SetupError> { Ok(Self) }
//! #     async fn reconcile(&self, _: &ObjectKey, _: &Context) -> Result<Outcome, ReconcileError> { Ok(Outcome::Done) }
//! # }
//! #[tokio::main]
//! async fn main() -> Result<(), windlass_app::Error> {
//!     windlass_app::run("sites", [Registration::controller::<Sites>()]).await
//! }
//! ```

mod arguments;
mod error;
mod install;
mod log;
mod process;

use std::ffi::OsString;

use windlass_controller::Registration;
use windlass_env::Env;
use windlass_manager::ManagerConfig;

pub use crate::error::Error;
pub use crate::install::install_crds;
pub use crate::log::{Log, LogError, LogFormat};

/// Runs a program of these controllers and runnables with the arguments of this process, until SIGTERM or SIGINT.
///
/// `name` is the name of the program's Lease, of its ServiceAccounts and roles, and of its metrics. Every operator in a
/// cluster needs its own name. The program prints its arguments with `--help`, and the objects that its cluster needs
/// with `manifests`.
///
/// # Errors
/// When an argument is invalid, or as [`Manager::run`](windlass_manager::Manager::run).
///
/// # Panics
/// Outside of a tokio runtime with I/O and time.
pub async fn run(
    name: &'static str,
    registrations: impl IntoIterator<Item = Registration>,
) -> Result<(), Error> {
    registrations.into_iter().fold(App::new(name), App::register).run().await
}

/// Returns an identity for this replica: the host name, and a part that is unique per incarnation. It uses the random
/// stream `identity` of `env`.
///
/// # Panics
/// If it is called twice with one `env`.
pub fn identity(env: &Env) -> String {
    let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
    format!("{host}_{}", env.rng("identity").identifier())
}

/// A builder of programs with more options than [`run`].
///
/// # Examples
/// ```no_run
/// # use std::time::Duration;
/// # use windlass_app::{App, Error};
/// # use windlass_controller::Registration;
/// # async fn run(controller: Registration) -> Result<(), Error> {
/// App::new("sites")
///     .register(controller)
///     .configure(|config| config.shutdown_timeout = Duration::from_secs(30))
///     .run()
///     .await
/// # }
/// ```
pub struct App {
    name: &'static str,
    registrations: Vec<Registration>,
    configure: Vec<Configure>,
}

/// A change of the configuration, called after arguments and cluster are known.
type Configure = Box<dyn FnOnce(&mut ManagerConfig) + Send>;

impl App {
    /// Returns a program without controllers. See [`run`] for its name.
    pub fn new(name: &'static str) -> Self {
        Self { name, registrations: Vec::new(), configure: Vec::new() }
    }

    /// Adds a controller or a runnable.
    #[must_use]
    pub fn register(mut self, registration: impl Into<Registration>) -> Self {
        self.registrations.push(registration.into());
        self
    }

    /// Changes the configuration of the manager. `change` overrides the arguments, and is also called for `manifests`.
    #[must_use]
    pub fn configure(mut self, change: impl FnOnce(&mut ManagerConfig) + Send + 'static) -> Self {
        self.configure.push(Box::new(change));
        self
    }

    /// Runs the program with the arguments of this process.
    ///
    /// # Errors
    /// See [`run`].
    ///
    /// # Panics
    /// See [`run`].
    pub async fn run(self) -> Result<(), Error> {
        let words: Vec<OsString> = std::env::args_os().skip(1).collect();
        process::run(self, words).await
    }
}

impl std::fmt::Debug for App {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("App")
            .field("name", &self.name)
            .field("registrations", &self.registrations)
            .finish_non_exhaustive()
    }
}
