//! A controller or a runnable before it runs: registered and declared.
//!
//! [`Registration`] is what a registry contains: object-safe, private traits behind one concrete type, because
//! [`Controller`] and [`Runnable`] are generic. It can be set up any number of times: once to print its roles, once to
//! run.

use std::fmt;
use std::sync::Arc;

use windlass_env::Env;
use windlass_informer::{FactoryOptions, InformerFactory};
use windlass_metrics::Metrics;

use crate::Controller;
use crate::declared::Declaration;
use crate::descriptor::{Descriptor, RunsOn};
use crate::error::{BoxError, SetupError};
use crate::layer::{Layered, ReconcileLayer};
use crate::run::prepared::PreparedController;
use crate::run::reconcile::Reconcile;
use crate::runnable::{PreparedRunnable, Run, Runnable, RunnableContext, Task};
use crate::setup::{Host, Setup};
use crate::webhook::WebhookConfig;

type SetUp<T> = Arc<dyn Fn(&mut Setup) -> Result<Arc<T>, SetupError> + Send + Sync>;

type Tune = Arc<dyn Fn(&mut Setup) + Send + Sync>;

type MakeLayer = Arc<dyn Fn(&Setup) -> Arc<dyn ReconcileLayer> + Send + Sync>;

/// A controller or a runnable that a manager can run. `windlass::run(name, [registrations])` runs it as a program.
#[derive(Clone)]
pub struct Registration {
    descriptor: Descriptor,
    part: Part,
    tunes: Vec<Tune>,
    layers: Vec<MakeLayer>,
}

#[derive(Clone)]
enum Part {
    Controller(SetUp<dyn Reconcile>),
    Runnable(SetUp<dyn Run>),
}

/// A registration that is set up in a process.
#[derive(Debug)]
pub enum PreparedPart {
    /// A controller.
    Controller(Box<PreparedController>),
    /// A runnable.
    Runnable(Box<PreparedRunnable>),
}

impl Registration {
    /// Registers `C` with the default of its configuration.
    pub fn controller<C: Controller<Config: Default>>() -> Self {
        Self::controller_with::<C>(C::Config::default())
    }

    /// Registers `C` with this configuration.
    pub fn controller_with<C: Controller>(config: C::Config) -> Self {
        let set_up = move |setup: &mut Setup| -> Result<Arc<dyn Reconcile>, SetupError> {
            Ok(Arc::new(C::setup(setup, &config)?))
        };
        Self::new(C::DESCRIPTOR, Part::Controller(Arc::new(set_up)))
    }

    /// Registers the runnable `R` with this configuration.
    pub fn runnable<R: Runnable>(config: R::Config) -> Self {
        let set_up = move |setup: &mut Setup| -> Result<Arc<dyn Run>, SetupError> {
            Ok(Arc::new(R::setup(setup, &config)?))
        };
        Self::new(Descriptor::new(R::NAME).with_runs_on(R::RUNS_ON), Part::Runnable(Arc::new(set_up)))
    }

    /// Registers a runnable that declares nothing: `run` is called once, in its own task.
    ///
    /// # Examples
    /// ```
    /// # use windlass_controller::{Registration, RunsOn};
    /// Registration::task("greeter", RunsOn::EveryReplica, |cx| async move {
    ///     tracing::info!("hello");
    ///     cx.stopped().await;
    ///     Ok(())
    /// });
    /// ```
    pub fn task<F>(
        name: &'static str,
        runs_on: RunsOn,
        run: impl Fn(RunnableContext) -> F + Send + Sync + 'static,
    ) -> Self
    where
        F: Future<Output = Result<(), BoxError>> + Send + 'static,
    {
        let task: Arc<dyn Run> = Arc::new(Task(Box::new(move |cx| Box::pin(run(cx)))));
        let set_up = move |_: &mut Setup| -> Result<Arc<dyn Run>, SetupError> { Ok(Arc::clone(&task)) };
        Self::new(Descriptor::new(name).with_runs_on(runs_on), Part::Runnable(Arc::new(set_up)))
    }

    fn new(descriptor: Descriptor, part: Part) -> Self {
        Self { descriptor, part, tunes: Vec::new(), layers: Vec::new() }
    }

    /// Returns the registration with other names: a process can run one type twice, with two configurations.
    #[must_use]
    pub fn with_descriptor(self, descriptor: Descriptor) -> Self {
        Self { descriptor, ..self }
    }

    /// Returns the registration with additional settings, which override those of its setup.
    #[must_use]
    pub fn with_settings(mut self, tune: impl Fn(&mut Setup) + Send + Sync + 'static) -> Self {
        self.tunes.push(Arc::new(tune));
        self
    }

    /// Puts a layer around every reconcile of the controller. `layer` builds it from the finished setup. A runnable has
    /// no reconciles and is not changed.
    #[must_use]
    pub fn with_layer(
        mut self,
        layer: impl Fn(&Setup) -> Arc<dyn ReconcileLayer> + Send + Sync + 'static,
    ) -> Self {
        self.layers.push(Arc::new(layer));
        self
    }

    /// Returns the names of the controller or runnable.
    pub fn descriptor(&self) -> Descriptor {
        self.descriptor
    }

    /// Returns whether this is a runnable, not a controller.
    pub fn is_runnable(&self) -> bool {
        matches!(self.part, Part::Runnable(_))
    }

    /// Returns the declarations of its setup. Runs the setup in a separate environment, without a cluster and without
    /// effects on `env`.
    ///
    /// # Errors
    /// The same as [`set_up`](Self::set_up).
    pub fn declaration(&self, env: &Env) -> Result<Declaration, SetupError> {
        self.declaration_with(env, WebhookConfig::of_process("windlass"))
    }

    /// Returns the declarations of its setup in a process with this webhook server.
    ///
    /// # Errors
    /// The same as [`set_up`](Self::set_up).
    pub fn declaration_with(&self, env: &Env, webhooks: WebhookConfig) -> Result<Declaration, SetupError> {
        let env = env.with_incarnation("declaration", 0);
        let metrics = Metrics::new();
        let factory = InformerFactory::new(env.clone(), metrics.clone(), FactoryOptions::default());
        let host = Host { webhooks: Arc::new(webhooks), ..Host::new(env, metrics, factory) };
        Ok(match self.set_up(host)? {
            PreparedPart::Controller(controller) => controller.declaration(),
            PreparedPart::Runnable(runnable) => runnable.declaration(),
        })
    }

    /// Sets it up in `host`. Nothing runs yet.
    ///
    /// # Errors
    /// If its setup fails or its declarations contradict each other.
    pub fn set_up(&self, host: Host) -> Result<PreparedPart, SetupError> {
        match &self.part {
            Part::Controller(set_up) => {
                let prepared = self.set_up_controller(set_up, host)?;
                Ok(PreparedPart::Controller(Box::new(prepared)))
            }
            Part::Runnable(set_up) => {
                let mut setup = Setup::of_runnable(self.descriptor, host);
                let runnable = set_up(&mut setup)?;
                self.tunes.iter().for_each(|tune| tune(&mut setup));
                let prepared = PreparedRunnable::new(runnable, setup.assemble_runnable()?);
                Ok(PreparedPart::Runnable(Box::new(prepared)))
            }
        }
    }

    /// Sets a controller up in `host`, to be started without a manager.
    ///
    /// # Errors
    /// The same as [`set_up`](Self::set_up); also if this is a runnable.
    pub fn prepare(&self, host: Host) -> Result<PreparedController, SetupError> {
        match self.set_up(host)? {
            PreparedPart::Controller(prepared) => Ok(*prepared),
            PreparedPart::Runnable(_) => {
                Err(SetupError::invalid("it is a runnable, which only a manager runs: register it there"))
            }
        }
    }

    fn set_up_controller(
        &self,
        set_up: &SetUp<dyn Reconcile>,
        host: Host,
    ) -> Result<PreparedController, SetupError> {
        let mut setup = Setup::new(self.descriptor, host);
        let mut controller = set_up(&mut setup)?;
        self.tunes.iter().for_each(|tune| tune(&mut setup));
        for layer in &self.layers {
            controller = Arc::new(Layered { inner: controller, layer: layer(&setup) });
        }
        let (core, parts) = setup.assemble()?;
        Ok(PreparedController::new(controller, core, parts))
    }
}

impl fmt::Debug for Registration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Registration").field("descriptor", &self.descriptor).finish_non_exhaustive()
    }
}
