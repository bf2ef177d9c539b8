//! A controller before it runs: registered and declared.
//!
//! [`Registration`] is what a registry holds: an object-safe, private trait behind one concrete type, since
//! [`Controller`] itself is generic by its name. It can be set up any number of times: once to print its roles, once
//! to run.

use std::fmt;
use std::sync::Arc;

use windlass_env::Env;
use windlass_informer::{FactoryOptions, InformerFactory};
use windlass_metrics::Metrics;

use crate::Controller;
use crate::declared::Declaration;
use crate::descriptor::Descriptor;
use crate::error::SetupError;
use crate::layer::{Layered, ReconcileLayer};
use crate::run::prepared::Prepared;
use crate::run::reconcile::Reconcile;
use crate::setup::{Host, Setup};

type SetUp = dyn Fn(&mut Setup) -> Result<Arc<dyn Reconcile>, SetupError> + Send + Sync;

/// A controller that a manager may run.
#[derive(Clone)]
pub struct Registration {
    descriptor: Descriptor,
    set_up: Arc<SetUp>,
}

impl Registration {
    /// Registers `C` with the default of its configuration.
    pub fn of<C: Controller<Config: Default>>() -> Self {
        Self::with::<C>(C::Config::default())
    }

    /// Registers `C` with this configuration.
    pub fn with<C: Controller>(config: C::Config) -> Self {
        let set_up = move |setup: &mut Setup| -> Result<Arc<dyn Reconcile>, SetupError> {
            Ok(Arc::new(C::setup(setup, &config)?))
        };
        Self { descriptor: C::DESCRIPTOR, set_up: Arc::new(set_up) }
    }

    /// The same controller under other names: one process can run a type twice, with two configurations.
    #[must_use]
    pub fn named(self, descriptor: Descriptor) -> Self {
        Self { descriptor, ..self }
    }

    /// The same controller with further settings, which have the last word over its own.
    #[must_use]
    pub fn tuned(self, tune: impl Fn(&mut Setup) + Send + Sync + 'static) -> Self {
        let Self { descriptor, set_up } = self;
        let set_up = move |setup: &mut Setup| -> Result<Arc<dyn Reconcile>, SetupError> {
            let controller = set_up(setup)?;
            tune(setup);
            Ok(controller)
        };
        Self { descriptor, set_up: Arc::new(set_up) }
    }

    /// Puts a layer around every reconcile of the controller. `layer` makes it from the finished setup.
    #[must_use]
    pub fn layered(self, layer: impl Fn(&Setup) -> Arc<dyn ReconcileLayer> + Send + Sync + 'static) -> Self {
        let Self { descriptor, set_up } = self;
        let set_up = move |setup: &mut Setup| -> Result<Arc<dyn Reconcile>, SetupError> {
            let inner = set_up(setup)?;
            Ok(Arc::new(Layered { inner, layer: layer(setup) }))
        };
        Self { descriptor, set_up: Arc::new(set_up) }
    }

    /// The names of the controller.
    pub fn descriptor(&self) -> Descriptor {
        self.descriptor
    }

    /// What the controller declares. Sets it up in a throw-away world: no cluster, and no trace in `env`.
    ///
    /// # Errors
    /// Whatever would keep the controller from being set up in earnest.
    pub fn declaration(&self, env: &Env) -> Result<Declaration, SetupError> {
        let env = env.incarnation("declaration", 0);
        let metrics = Metrics::new();
        let factory = InformerFactory::new(env.clone(), metrics.clone(), FactoryOptions::default());
        Ok(self.prepare(Host::new(env, metrics, factory))?.declaration())
    }

    /// Sets the controller up in `host`. Nothing runs yet.
    ///
    /// # Errors
    /// When the controller refuses its configuration or its declarations contradict each other.
    pub fn prepare(&self, host: Host) -> Result<Prepared, SetupError> {
        let mut setup = Setup::new(self.descriptor, host);
        let controller = (self.set_up)(&mut setup)?;
        let (core, parts) = setup.assemble()?;
        Ok(Prepared::new(controller, core, parts))
    }
}

impl fmt::Debug for Registration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Registration").field("descriptor", &self.descriptor).finish_non_exhaustive()
    }
}
