//! The controllers a process knows, by name; which of them run is for the selection to say.

use windlass_controller::{Declaration, Descriptor, Registration};
use windlass_env::Env;
use windlass_object::{Rule, Verb};

use crate::error::ManagerError;
use crate::selection::{ControllerSelection, UnknownController, canonical};

/// Every controller a process knows, in the order of registration, which is also the order of start.
#[derive(Clone, Debug, Default)]
pub struct Registry {
    registrations: Vec<Registration>,
}

/// Two controllers claim one name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the controller name {name:?} is registered twice: by {first} and by {second}")]
pub struct RegistryError {
    /// The name or alias that both claim.
    pub name: &'static str,
    /// Who has it.
    pub first: &'static str,
    /// Who claims it too.
    pub second: &'static str,
}

impl Registry {
    /// Under what name [`Registry::declarations`] tells what the process needs for itself, whichever controllers run.
    /// Its rules hold in the namespace of the Lease; but for `create`, those of leases can be cut down to its name.
    pub const PROCESS: Descriptor = Descriptor::new("leader-election");

    /// Under what name [`Registry::reviews`] tells what an admin server asks.
    pub const REVIEWS: Descriptor = Descriptor::new("admin-server");

    /// A registry that knows nobody.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a controller.
    ///
    /// # Errors
    /// When its name or one of its aliases is a name or alias of a controller that is already known.
    pub fn register(&mut self, registration: Registration) -> Result<(), RegistryError> {
        let new = registration.descriptor();
        for known in self.descriptors() {
            if let Some(name) = spellings(&new).find(|name| spellings(&known).any(|other| other == *name)) {
                return Err(RegistryError { name, first: known.name, second: new.name });
            }
        }
        self.registrations.push(registration);
        Ok(())
    }

    /// The names each controller goes by.
    pub fn descriptors(&self) -> Vec<Descriptor> {
        self.registrations.iter().map(Registration::descriptor).collect()
    }

    /// The canonical names.
    pub fn names(&self) -> Vec<&'static str> {
        self.descriptors().iter().map(|one| one.name).collect()
    }

    /// The aliases, each with the name it stands for.
    pub fn aliases(&self) -> Vec<(&'static str, &'static str)> {
        let of = |one: Descriptor| one.aliases.iter().map(move |alias| (*alias, one.name));
        self.descriptors().into_iter().flat_map(of).collect()
    }

    /// The names of the controllers that `*` does not switch on.
    pub fn disabled_by_default(&self) -> Vec<&'static str> {
        self.descriptors().iter().filter(|one| !one.enabled_by_default).map(|one| one.name).collect()
    }

    /// The controllers that `selection` switches on.
    ///
    /// # Errors
    /// When the selection names a controller that is not registered.
    pub fn select(&self, selection: &ControllerSelection) -> Result<Vec<Registration>, UnknownController> {
        let names = selection.resolve(&self.descriptors())?;
        let selected = self.registrations.iter().filter(|one| names.contains(&one.descriptor().name));
        Ok(selected.cloned().collect())
    }

    /// The name that `name`, a name or an alias, stands for.
    pub(crate) fn canonical(&self, name: &str) -> Result<&'static str, UnknownController> {
        canonical(name, &self.descriptors())
    }

    /// What every controller declares, and last what the process needs [for itself](Self::PROCESS), without a cluster:
    /// what roles, charts and documentation are written from.
    ///
    /// # Errors
    /// When a controller cannot be set up.
    pub fn declarations(&self, env: &Env) -> Result<Vec<Declaration>, ManagerError> {
        let declaration = |one: &Registration| {
            one.declaration(env)
                .map_err(|source| ManagerError::Setup { controller: one.descriptor().name, source })
        };
        let process = std::iter::once_with(|| Ok(process()));
        self.registrations.iter().map(declaration).chain(process).collect()
    }
}

impl Registry {
    /// What the process asks for itself, in the whole cluster, when it is the API server that decides who reads the
    /// admin server ([`Access::Reviewed`](crate::Access)). The ClusterRole `system:auth-delegator`, which every cluster
    /// has, grants the same.
    pub fn reviews() -> Declaration {
        let rules = vec![
            Rule::new("authentication.k8s.io", "tokenreviews", [Verb::Create]),
            Rule::new("authorization.k8s.io", "subjectaccessreviews", [Verb::Create]),
        ];
        Declaration { descriptor: Self::REVIEWS, rules, watches: Vec::new() }
    }
}

/// What the election asks: to create its Lease, to read and replace it, and to watch it. Who becomes leader is told as
/// an event. `GET /healthz` needs no rule, since every cluster grants it to everybody.
fn process() -> Declaration {
    let lease = [Verb::Create, Verb::Get, Verb::Update, Verb::Watch];
    let rules = vec![
        Rule::new("", "events", [Verb::Create, Verb::Patch]),
        Rule::new("coordination.k8s.io", "leases", lease),
    ];
    Declaration { descriptor: Registry::PROCESS, rules, watches: Vec::new() }
}

fn spellings(descriptor: &Descriptor) -> impl Iterator<Item = &'static str> + use<> {
    std::iter::once(descriptor.name).chain(descriptor.aliases.iter().copied())
}
