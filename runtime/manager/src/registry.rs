//! The controllers and runnables of a process, by name. A selection decides which controllers run; runnables always do.

use std::collections::BTreeSet;

use windlass_admin::Access;
use windlass_client::Identities;
use windlass_controller::host::Declaration;
use windlass_controller::{Descriptor, Registration, SetupError};
use windlass_election::lease::{CANDIDATE_VERBS, LEASE_VERBS};
use windlass_env::Env;
use windlass_object::{Rule, Verb};

use crate::config::ManagerConfig;
use crate::error::{ManagerError, RegistryError};
use crate::selection::{ControllerSelection, UnknownController};

/// The controllers and runnables of a process, in the order of registration, which is also the start order.
#[derive(Clone, Debug, Default)]
pub struct Registry {
    controllers: Vec<Registration>,
    runnables: Vec<Registration>,
}

impl Registry {
    /// The name under which [`Registry::declarations_for`] returns the permissions of the process itself. Its rules
    /// hold in the namespace of the Lease. Except for `create`, the rules about Leases can be limited to its name.
    pub const PROCESS: Descriptor = Descriptor::new("leader-election");

    /// The name under which [`Registry::reviews`] returns the permissions of an admin server.
    pub const REVIEWS: Descriptor = Descriptor::new("admin-server");

    /// The name under which [`Registry::declarations_for`] returns the permissions for controllers that use their own
    /// ServiceAccounts. Its rules hold in the namespace of these ServiceAccounts.
    pub const ACCOUNTS: Descriptor = Descriptor::new("service-accounts");

    /// Returns an empty registry.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a controller or a runnable.
    ///
    /// # Errors
    /// When its name or one of its aliases is already a registered name or alias, or when it is a part of a controller
    /// that is not registered.
    pub fn register(&mut self, registration: Registration) -> Result<(), RegistryError> {
        let new = registration.descriptor();
        for known in self.controllers.iter().chain(&self.runnables).map(Registration::descriptor) {
            if let Some(name) = spellings(&new).find(|name| spellings(&known).any(|other| other == *name)) {
                return Err(RegistryError::NameInUse { name, first: known.name, second: new.name });
            }
        }
        if let Some(whole) = new.part_of
            && !self.controllers.iter().any(|known| known.descriptor().name == whole)
        {
            return Err(RegistryError::PartOfUnknown { part: new.name, whole });
        }
        match registration.is_runnable() {
            true => self.runnables.push(registration),
            false => self.controllers.push(registration),
        }
        Ok(())
    }

    /// Returns the runnables.
    pub(crate) fn runnables(&self) -> &[Registration] {
        &self.runnables
    }

    /// Returns the descriptors of the controllers.
    pub fn descriptors(&self) -> Vec<Descriptor> {
        self.controllers.iter().map(Registration::descriptor).collect()
    }

    /// Returns the controllers that `selection` enables.
    ///
    /// # Errors
    /// When the selection names a controller that is not registered.
    pub fn select(&self, selection: &ControllerSelection) -> Result<Vec<Registration>, UnknownController> {
        let names = selection.resolve(&self.descriptors())?;
        let selected = self.controllers.iter().filter(|one| names.contains(&one.descriptor().name));
        Ok(selected.cloned().collect())
    }

    /// Returns the permissions that a process with this configuration requires, and no others: those of the selected
    /// controllers, of the runnables, and of the process [itself](Self::PROCESS) with its kind of election. If they are
    /// enabled, ServiceAccounts of [controllers](Self::ACCOUNTS) and [reviews](Self::REVIEWS) follow. With a
    /// ServiceAccount, a controller needs the rules that it declares as its own; the process reads the kinds that it
    /// watches.
    ///
    /// # Errors
    /// When the configuration selects a controller that is not registered, or the setup of a controller or runnable
    /// fails.
    pub fn declarations_for(
        &self,
        env: &Env,
        config: &ManagerConfig,
    ) -> Result<Vec<Declaration>, ManagerError> {
        let selected = self.select(&config.controllers)?;
        let mut declarations = set_up_present(selected.iter().chain(&self.runnables), |one| {
            one.declaration_with(env, config.webhook_config())
        })?;
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
    /// Returns the cluster-wide permissions of an admin server that delegates authentication and authorization to the
    /// API server ([`Access::Delegated`](windlass_admin::Access)). The ClusterRole `system:auth-delegator`, which
    /// exists in every cluster, grants the same.
    pub fn reviews() -> Declaration {
        let rules = vec![
            Rule::new("authentication.k8s.io", "tokenreviews", [Verb::Create]),
            Rule::new("authorization.k8s.io", "subjectaccessreviews", [Verb::Create]),
        ];
        Declaration::new(Self::REVIEWS, rules)
    }
}

/// Sets up each registration, except for parts of controllers that are absent. Returns the results without those of
/// absent ones. A controller precedes its parts.
pub(crate) fn set_up_present<'a, T>(
    registrations: impl IntoIterator<Item = &'a Registration>,
    mut set_up: impl FnMut(&Registration) -> Result<T, SetupError>,
) -> Result<Vec<T>, ManagerError> {
    let (mut present, mut absent) = (Vec::new(), BTreeSet::new());
    for one in registrations {
        let Descriptor { name: controller, part_of, .. } = one.descriptor();
        if part_of.is_some_and(|whole| absent.contains(whole)) {
            continue;
        }
        match set_up(one) {
            Ok(done) => present.push(done),
            Err(SetupError::Absent(_)) => drop(absent.insert(controller)),
            Err(source) => return Err(ManagerError::Setup { controller, source }),
        }
    }
    Ok(present)
}

/// Returns the permissions of the process itself. The results of an election are recorded as Events. `GET /healthz`
/// needs no rule, because every cluster grants it to all clients.
fn process(election: Vec<Rule>) -> Declaration {
    let events = Rule::new("", "events", [Verb::Create, Verb::Patch]);
    Declaration::new(Registry::PROCESS, std::iter::once(events).chain(election))
}

/// Verbs of an election of shards. Memberships and shards are found by label, so the rule cannot contain names.
/// Obsolete ones are deleted.
const BY_SHARDS: [Verb; 6] = [Verb::Create, Verb::Get, Verb::List, Verb::Update, Verb::Watch, Verb::Delete];

fn leases(verbs: &[Verb]) -> Rule {
    Rule::new("coordination.k8s.io", "leases", verbs.iter().copied())
}

/// Returns the rules of the election of this configuration.
fn election(config: &ManagerConfig) -> Vec<Rule> {
    let Some(election) = &config.election else { return Vec::new() };
    if config.shards.is_some() {
        return vec![leases(&BY_SHARDS)];
    }
    let candidates = election
        .coordinated
        .is_some()
        .then(|| Rule::new("coordination.k8s.io", "leasecandidates", CANDIDATE_VERBS));
    std::iter::once(leases(&LEASE_VERBS)).chain(candidates).collect()
}

/// Returns the permissions to create missing ServiceAccounts of controllers and their tokens.
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

    /// Returns the declarations of a process with this configuration, as `owner: group/resource verbs`.
    fn declared(config: &ManagerConfig) -> Vec<String> {
        let declarations = Registry::new().declarations_for(&Env::virtual_time(1), config).expect("declared");
        let line = |owner: &str, rule: &Rule| {
            let verbs: Vec<_> = rule.verbs.iter().map(ToString::to_string).collect();
            format!("{owner}: {}/{} {}", rule.group, rule.resource, verbs.join(","))
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
    fn process_declares_only_permissions_of_its_election() {
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
    fn process_declares_accounts_and_reviews_when_enabled() {
        let mut config = ManagerConfig { election: None, ..ManagerConfig::new("me") };
        let address = "127.0.0.1:1".parse().expect("an address");
        config.admin = Some(AdminConfig::local(address));
        assert_eq!(declared(&config), [EVENTS], "plain HTTP needs no reviews");
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
    fn declarations_fail_when_selection_names_unknown_controller() {
        let controllers = ControllerSelection::parse(["nobody"]);
        let config = ManagerConfig { controllers, ..ManagerConfig::new("me") };
        let error = Registry::new().declarations_for(&Env::virtual_time(1), &config).expect_err("unknown");
        assert!(matches!(error, ManagerError::UnknownController(_)), "{error}");
    }
}
