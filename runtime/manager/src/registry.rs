//! The controllers and runnables of a process, by name. A selection decides which controllers run; runnables always do.

use windlass_admin::Access;
use windlass_client::Identities;
use windlass_controller::host::Declaration;
use windlass_controller::{Descriptor, Registration};
use windlass_env::Env;
use windlass_object::{Rule, Verb};

use crate::config::ManagerConfig;
use crate::error::{ManagerError, RegistryError};
use crate::selection::{ControllerSelection, UnknownController};

/// Every controller and runnable of a process, in the order of registration, which is also the order of start.
#[derive(Clone, Debug, Default)]
pub struct Registry {
    controllers: Vec<Registration>,
    runnables: Vec<Registration>,
}

impl Registry {
    /// The name under which [`Registry::declarations_for`] returns what the process needs for itself.
    /// Its rules hold in the namespace of the Lease; but for `create`, those of leases can be cut down to its name.
    pub const PROCESS: Descriptor = Descriptor::new("leader-election");

    /// Under what name [`Registry::reviews`] tells what an admin server asks.
    pub const REVIEWS: Descriptor = Descriptor::new("admin-server");

    /// Under what name [`Registry::declarations_for`] tells what the process asks so that controllers act as ServiceAccounts
    /// of their own. Its rules hold in the namespace of these accounts.
    pub const ACCOUNTS: Descriptor = Descriptor::new("service-accounts");

    /// A registry that knows nobody.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a controller or a runnable.
    ///
    /// # Errors
    /// When its name or one of its aliases is a name or alias of one that is already registered.
    pub fn register(&mut self, registration: Registration) -> Result<(), RegistryError> {
        let new = registration.descriptor();
        for known in self.controllers.iter().chain(&self.runnables).map(Registration::descriptor) {
            if let Some(name) = spellings(&new).find(|name| spellings(&known).any(|other| other == *name)) {
                return Err(RegistryError { name, first: known.name, second: new.name });
            }
        }
        match registration.is_runnable() {
            true => self.runnables.push(registration),
            false => self.controllers.push(registration),
        }
        Ok(())
    }

    /// The runnables.
    pub(crate) fn runnables(&self) -> &[Registration] {
        &self.runnables
    }

    /// The names each controller goes by.
    pub fn descriptors(&self) -> Vec<Descriptor> {
        self.controllers.iter().map(Registration::descriptor).collect()
    }

    /// The controllers that `selection` switches on.
    ///
    /// # Errors
    /// When the selection names a controller that is not registered.
    pub fn select(&self, selection: &ControllerSelection) -> Result<Vec<Registration>, UnknownController> {
        let names = selection.resolve(&self.descriptors())?;
        let selected = self.controllers.iter().filter(|one| names.contains(&one.descriptor().name));
        Ok(selected.cloned().collect())
    }

    /// What a process with this configuration asks of the API server, and nothing else: the controllers that it selects,
    /// then the runnables, then the process [itself](Self::PROCESS) with its way of election, then, if they are on, accounts of
    /// [controllers](Self::ACCOUNTS) and [reviews](Self::REVIEWS). Where controllers have accounts, each needs what it
    /// declares for its own, but what it watches is read by the process.
    ///
    /// # Errors
    /// When the configuration selects a controller that is not registered, or a controller or runnable cannot be set up.
    pub fn declarations_for(
        &self,
        env: &Env,
        config: &ManagerConfig,
    ) -> Result<Vec<Declaration>, ManagerError> {
        let mut declarations = Vec::new();
        for one in self.select(&config.controllers)?.iter().chain(&self.runnables) {
            declarations.push(declaration(one, env)?);
        }
        declarations.push(process(election(config)));
        if let Identities::ServiceAccounts { .. } = config.client.identities {
            declarations.push(accounts());
        }
        if config.admin.as_ref().is_some_and(|admin| matches!(admin.access, Access::Delegated { .. })) {
            declarations.push(Self::reviews());
        }
        Ok(declarations)
    }
}

impl Registry {
    /// What the process asks for itself, in the whole cluster, when it is the API server that decides who reads the
    /// admin server ([`Access::Delegated`](windlass_admin::Access)). The ClusterRole `system:auth-delegator`, which every cluster
    /// has, grants the same.
    pub fn reviews() -> Declaration {
        let rules = vec![
            Rule::new("authentication.k8s.io", "tokenreviews", [Verb::Create]),
            Rule::new("authorization.k8s.io", "subjectaccessreviews", [Verb::Create]),
        ];
        Declaration::new(Self::REVIEWS, rules)
    }
}

fn declaration(one: &Registration, env: &Env) -> Result<Declaration, ManagerError> {
    one.declaration(env).map_err(|source| ManagerError::Setup { controller: one.descriptor().name, source })
}

/// What becomes of the election is told as events. `GET /healthz` needs no rule, since every cluster grants it to
/// everybody.
fn process(election: Vec<Rule>) -> Declaration {
    let events = Rule::new("", "events", [Verb::Create, Verb::Patch]);
    Declaration::new(Registry::PROCESS, std::iter::once(events).chain(election))
}

/// What an election by one Lease asks of it: to create it, to read and replace it, and to watch it.
const BY_LEASE: [Verb; 4] = [Verb::Create, Verb::Get, Verb::Update, Verb::Watch];

/// What an election of shards asks: memberships and shards are found by a label, so no names can stand in the rule, and
/// those that are no longer needed are removed.
const BY_SHARDS: [Verb; 6] = [Verb::Create, Verb::Get, Verb::List, Verb::Update, Verb::Watch, Verb::Delete];

/// What a candidate of a coordinated election asks.
const AS_CANDIDATE: [Verb; 3] = [Verb::Create, Verb::Get, Verb::Update];

fn leases(verbs: &[Verb]) -> Rule {
    Rule::new("coordination.k8s.io", "leases", verbs.iter().copied())
}

/// What the election of this configuration asks.
fn election(config: &ManagerConfig) -> Vec<Rule> {
    let Some(election) = &config.election else { return Vec::new() };
    if config.shards.is_some() {
        return vec![leases(&BY_SHARDS)];
    }
    let candidates = election
        .coordinated
        .is_some()
        .then(|| Rule::new("coordination.k8s.io", "leasecandidates", AS_CANDIDATE));
    std::iter::once(leases(&BY_LEASE)).chain(candidates).collect()
}

/// What the process asks so that controllers have accounts: those that are missing are made, and tokens of them.
fn accounts() -> Declaration {
    let rules = vec![
        Rule::new("", "serviceaccounts", [Verb::Create]),
        Rule::new("", "serviceaccounts/token", [Verb::Create]),
    ];
    Declaration::new(Registry::ACCOUNTS, rules)
}

fn spellings(descriptor: &Descriptor) -> impl Iterator<Item = &'static str> + use<> {
    std::iter::once(descriptor.name).chain(descriptor.aliases.iter().copied())
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroU16;

    use windlass_election::CoordinatedConfig;

    use super::*;
    use windlass_admin::AdminConfig;

    /// What a process with this configuration declares, as `who: group/resource verbs`.
    fn declared(config: &ManagerConfig) -> Vec<String> {
        let declarations = Registry::new().declarations_for(&Env::virtual_time(1), config).expect("declared");
        let line = |who: &str, rule: &Rule| {
            let verbs: Vec<_> = rule.verbs.iter().map(ToString::to_string).collect();
            format!("{who}: {}/{} {}", rule.group, rule.resource, verbs.join(","))
        };
        let lines = declarations
            .iter()
            .flat_map(|one| one.rules.iter().map(move |rule| line(one.descriptor.name, rule)));
        lines.collect()
    }

    const EVENTS: &str = "leader-election: /events create,patch";
    const LEASES: &str = "leader-election: coordination.k8s.io/leases get,watch,create,update";

    // parity: roles-written-hand
    #[test]
    fn process_declares_what_its_way_of_election_asks_and_nothing_else() {
        let mut config = ManagerConfig::new("me");
        assert_eq!(declared(&config), [EVENTS, LEASES]);
        config.election.as_mut().expect("elected").coordinated = Some(CoordinatedConfig::new("1.2.3"));
        let candidates = "leader-election: coordination.k8s.io/leasecandidates get,create,update";
        assert_eq!(declared(&config), [EVENTS, LEASES, candidates]);
        let shards = ManagerConfig { shards: NonZeroU16::new(4), ..ManagerConfig::new("me") };
        let leases = "leader-election: coordination.k8s.io/leases get,list,watch,create,update,delete";
        assert_eq!(declared(&shards), [EVENTS, leases]);
        assert_eq!(declared(&ManagerConfig { election: None, ..ManagerConfig::new("me") }), [EVENTS]);
    }

    #[test]
    fn process_declares_accounts_and_reviews_if_they_are_on() {
        let mut config = ManagerConfig { election: None, ..ManagerConfig::new("me") };
        let address = "127.0.0.1:1".parse().expect("an address");
        config.admin = Some(AdminConfig::local(address));
        assert_eq!(declared(&config), [EVENTS], "nobody is asked who reads plain HTTP");
        config.admin = Some(AdminConfig::new(address));
        config.client.identities = Identities::service_accounts();
        let accounts = ["serviceaccounts", "serviceaccounts/token"];
        let accounts = accounts.map(|resource| format!("service-accounts: /{resource} create"));
        let reviews = [
            "admin-server: authentication.k8s.io/tokenreviews create",
            "admin-server: authorization.k8s.io/subjectaccessreviews create",
        ];
        let expected: Vec<&str> =
            [EVENTS].into_iter().chain(accounts.iter().map(String::as_str)).chain(reviews).collect();
        assert_eq!(declared(&config), expected);
    }

    #[test]
    fn controller_that_is_selected_and_unknown_is_an_error_of_its_declaration() {
        let controllers = ControllerSelection::parse(["nobody"]);
        let config = ManagerConfig { controllers, ..ManagerConfig::new("me") };
        let error = Registry::new().declarations_for(&Env::virtual_time(1), &config).expect_err("unknown");
        assert!(matches!(error, ManagerError::UnknownController(_)), "{error}");
    }
}
