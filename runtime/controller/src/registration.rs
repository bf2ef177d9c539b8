//! A controller before it runs: registered and declared.
//!
//! [`Registration`] is what a registry holds: an object-safe, private trait behind one concrete type, since
//! [`Controller`] itself is generic by its name. It can be set up any number of times: once to print its roles, once
//! to run.

use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;
use windlass_client::{ControllerClients, DeclaredVerbs, RawClient};
use windlass_env::Env;
use windlass_events::Recorder;
use windlass_informer::{FactoryOptions, InformerFactory, Selection};
use windlass_metrics::Metrics;
use windlass_object::{ObjectKey, ResourceKind, Rule};
use windlass_workqueue::Queue;

use crate::Controller;
use crate::context::Context;
use crate::declared::{DeclaredRules, Enforced};
use crate::descriptor::Descriptor;
use crate::error::{ReconcileError, SetupError};
use crate::layer::{Layered, ReconcileLayer};
use crate::outcome::Outcome;
use crate::prepared::Prepared;
use crate::scope::Scope;
use crate::setup::Setup;

/// A controller as workers see it: [`Controller`] without what makes it generic.
#[async_trait]
pub(crate) trait Reconcile: Send + Sync {
    async fn reconcile(&self, key: &ObjectKey, context: &Context) -> Result<Outcome, ReconcileError>;
    fn started(&self, queue: &Queue<ObjectKey>);
}

#[async_trait]
impl<C: Controller> Reconcile for C {
    async fn reconcile(&self, key: &ObjectKey, context: &Context) -> Result<Outcome, ReconcileError> {
        Controller::reconcile(self, key, context).await
    }

    fn started(&self, queue: &Queue<ObjectKey>) {
        Controller::started(self, queue);
    }
}

type SetUp = dyn Fn(&mut Setup) -> Result<Arc<dyn Reconcile>, SetupError> + Send + Sync;

/// A controller that a manager may run.
#[derive(Clone)]
pub struct Registration {
    descriptor: Descriptor,
    set_up: Arc<SetUp>,
}

/// What a controller, or another part of the process, says it does. That of a controller is read off its setup, without a
/// cluster.
#[derive(Clone, Debug)]
pub struct Declaration {
    /// Its names.
    pub descriptor: Descriptor,
    /// What it may ask of the API server, one rule per resource, in order.
    pub rules: Vec<Rule>,
    /// What it keeps caches of.
    pub watches: Vec<(ResourceKind, Selection)>,
}

/// What a controller needs from its process in order to run.
#[derive(Clone)]
pub struct Resources {
    /// Where its tasks live.
    pub env: Env,
    /// Its identity towards the API server.
    pub clients: ControllerClients,
    /// Reads beside the caches, to find out whether a write whose answer was lost took effect.
    pub reader: RawClient,
    /// Where it tells users what happened.
    pub events: Recorder,
    /// Which keys are its own, where several replicas share them; [`Everything`](crate::Everything) otherwise.
    pub scope: Arc<dyn Scope>,
}

impl Declaration {
    /// What something that watches nothing asks of the API server.
    pub fn new(descriptor: Descriptor, rules: impl IntoIterator<Item = Rule>) -> Self {
        Self { descriptor, rules: rules.into_iter().collect(), watches: Vec::new() }
    }

    /// The rules as requests are held against them. What they refuse is counted, as of controllers.
    pub fn enforced(&self, metrics: Metrics) -> Arc<dyn DeclaredVerbs> {
        let mut rules = DeclaredRules::default();
        for Rule { group, resource, verbs } in &self.rules {
            rules.add(group, resource, verbs.iter().copied());
        }
        Arc::new(Enforced::new(rules, self.descriptor.name, metrics))
    }
}

impl Registration {
    /// Registers `C` under its own names, set up by itself.
    pub fn of<C: Controller>() -> Self {
        Self::with(C::DESCRIPTOR, C::setup)
    }

    /// Registers a controller that is set up by `set_up`, which can hold its configuration. It may run more than once.
    pub fn with<C: Controller>(
        descriptor: Descriptor,
        set_up: impl Fn(&mut Setup) -> Result<C, SetupError> + Send + Sync + 'static,
    ) -> Self {
        let set_up = move |setup: &mut Setup| -> Result<Arc<dyn Reconcile>, SetupError> {
            Ok(Arc::new(set_up(setup)?))
        };
        Self { descriptor, set_up: Arc::new(set_up) }
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
        Ok(self.prepare(env, metrics, factory)?.declaration())
    }

    /// Sets the controller up over `factory`. Nothing runs yet.
    ///
    /// # Errors
    /// When the controller refuses its configuration or its declarations contradict each other.
    pub fn prepare(
        &self,
        env: Env,
        metrics: Metrics,
        factory: InformerFactory,
    ) -> Result<Prepared, SetupError> {
        let mut setup = Setup::new(self.descriptor, env, metrics, factory);
        let controller = (self.set_up)(&mut setup)?;
        setup.check()?;
        Ok(Prepared::new(self.descriptor, controller, setup))
    }
}

impl fmt::Debug for Registration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Registration").field("descriptor", &self.descriptor).finish_non_exhaustive()
    }
}

impl fmt::Debug for Resources {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Resources").field("env", &self.env).finish_non_exhaustive()
    }
}
