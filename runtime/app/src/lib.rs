//! An operator's `main`: arguments, the cluster, logging, signals, manifests.
//!
//! [`run`] makes a program of some controllers. It has probes, metrics, leader election and an orderly shutdown, and prints
//! the roles that it needs.
//!
//! Guarantees:
//! - Nothing is opened or sent before every argument is checked. What is wrong is one error that names the argument, what is
//!   wrong with it, and what would be right.
//! - The cluster is that of `--kubeconfig`, else of `$KUBECONFIG`, else of the Pod's service account, else of
//!   `~/.kube/config`, in this order: in a Pod a home directory is never looked at. The choice is logged with the server.
//! - A TLS provider and a log are installed only where the process has none.
//!
//! It is the one library that installs anything global. A program that wants to choose for itself uses
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
//!     windlass_app::run("sites", [Registration::of::<Sites>()]).await
//! }
//! ```

mod arguments;
mod error;
mod install;
mod process;

use std::ffi::OsString;

use windlass_controller::Registration;
use windlass_env::Env;
use windlass_manager::ManagerConfig;

pub use crate::error::Error;
pub use crate::install::install_crds;

/// Runs a program of these controllers and runnables with the arguments of this process, until SIGTERM or SIGINT.
///
/// `name` is that of the program's Lease, of its accounts and roles, and of its metrics: every operator in a cluster needs
/// its own. The program prints its arguments with `--help`, and what its cluster must have with `manifests`.
///
/// # Errors
/// When an argument is wrong, or as [`Manager::run`](windlass_manager::Manager::run).
///
/// # Panics
/// Outside of a tokio runtime with I/O and time.
pub async fn run(
    name: &'static str,
    registrations: impl IntoIterator<Item = Registration>,
) -> Result<(), Error> {
    registrations.into_iter().fold(App::new(name), App::register).run().await
}

/// Returns an identity for this replica: the host, for people, and a part that no other incarnation has. It draws on the
/// random numbers of `env` named `identity`, which can be taken once.
pub fn identity(env: &Env) -> String {
    let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
    format!("{host}_{}", env.rng("identity").identifier())
}

/// [`run`] with more to say.
pub struct App {
    name: &'static str,
    registrations: Vec<Registration>,
    configure: Vec<Configure>,
}

/// A change of the configuration, once arguments and the cluster are known.
type Configure = Box<dyn FnOnce(&mut ManagerConfig) + Send>;

impl App {
    /// A program without controllers. See [`run`] for its name.
    pub fn new(name: &'static str) -> Self {
        Self { name, registrations: Vec::new(), configure: Vec::new() }
    }

    /// Adds a controller or a runnable.
    #[must_use]
    pub fn register(mut self, registration: impl Into<Registration>) -> Self {
        self.registrations.push(registration.into());
        self
    }

    /// Changes the configuration of the manager. `change` has the last word over the arguments, and is called for
    /// `manifests` too.
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
