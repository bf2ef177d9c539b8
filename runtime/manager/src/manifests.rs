//! Manifests of the objects that a process needs in its cluster: CRDs of its kinds, ServiceAccounts, roles and
//! bindings, and the configurations of its webhooks.
//!
//! They are generated without a cluster, from the declarations of controllers and runnables in their setup. A role
//! contains only the permissions that the process needs. Rules about the election are limited to the namespace and, if
//! they are known, the names of its Leases.

use std::collections::{BTreeMap, BTreeSet};
use std::str::FromStr;

use k8s_openapi::api::admissionregistration::v1::{
    MutatingWebhookConfiguration, ValidatingWebhookConfiguration,
};
use k8s_openapi::api::core::v1::{Service, ServiceAccount};
use k8s_openapi::api::rbac::v1::{
    ClusterRole, ClusterRoleBinding, PolicyRule, Role, RoleBinding, RoleRef, Subject,
};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::core::ObjectMeta;
use serde::Serialize;
use windlass_client::Identities;
use windlass_controller::host::{Declaration, NamedRule};
use windlass_env::Env;
use windlass_informer::NamespaceSet;
use windlass_object::{Rule, Verb, json};

use crate::config::ManagerConfig;
use crate::error::ManagerError;
use crate::registry::Registry;
use crate::webhooks;

const RBAC: &str = "rbac.authorization.k8s.io";

/// The objects that a process needs in its cluster.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct Manifests {
    /// The CRDs of the kinds that the binary defines.
    pub crds: Vec<CustomResourceDefinition>,
    /// The ServiceAccount of the process, and those of its controllers if they have their own.
    pub service_accounts: Vec<ServiceAccount>,
    /// Permissions in the whole cluster.
    pub cluster_roles: Vec<ClusterRole>,
    /// Permissions in single namespaces.
    pub roles: Vec<Role>,
    /// A binding for each ClusterRole.
    pub cluster_role_bindings: Vec<ClusterRoleBinding>,
    /// A binding for each Role.
    pub role_bindings: Vec<RoleBinding>,
    /// The Service through which the API server reaches the webhooks.
    pub webhook_service: Option<Service>,
    /// The validating webhooks, without `caBundle`.
    pub validating: Option<ValidatingWebhookConfiguration>,
    /// The mutating webhooks, without `caBundle`.
    pub mutating: Option<MutatingWebhookConfiguration>,
}

/// The selected objects of [`Manifests`].
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub enum ManifestPart {
    /// All objects.
    #[default]
    All,
    /// The CRDs.
    Crd,
    /// ServiceAccounts, roles and bindings.
    Rbac,
    /// The configurations of webhooks and their Service. CRDs contain the configuration of conversions.
    Webhook,
}

impl FromStr for ManifestPart {
    type Err = String;

    fn from_str(word: &str) -> Result<Self, String> {
        match word {
            "all" => Ok(Self::All),
            "crd" => Ok(Self::Crd),
            "rbac" => Ok(Self::Rbac),
            "webhook" => Ok(Self::Webhook),
            other => Err(format!("unknown part {other:?} of manifests; use all, crd, rbac or webhook")),
        }
    }
}

/// Namespaces and form of [`Manifests`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ManifestOptions {
    /// The namespace of the process and its ServiceAccount. It is also the namespace of its Lease unless
    /// [`ElectionConfig::lease_namespace`](windlass_election::ElectionConfig::lease_namespace) is set.
    pub namespace: String,
    /// One role for each controller, `<process>:<controller>`, even if all controllers use the ServiceAccount of the
    /// process. If they use their own ServiceAccounts, the process reads their kinds by the role
    /// `<process>:<controller>:caches`. Default: false.
    pub per_controller: bool,
    /// The user of a process that has a client certificate instead of a ServiceAccount, such as that of a static Pod.
    /// Bindings then name this user, and the process has no ServiceAccount. Default: none.
    pub user: Option<String>,
}

impl ManifestOptions {
    /// Returns options for a process in `namespace`, with one role for all controllers.
    pub fn new(namespace: impl Into<String>) -> Self {
        Self { namespace: namespace.into(), per_controller: false, user: None }
    }
}

impl Manifests {
    /// Returns the objects that a process of these controllers needs with this configuration. They have the name of the
    /// process ([`ManagerConfig::named`]).
    ///
    /// # Errors
    /// When the configuration selects a controller that is not registered, a setup fails, or a webhook has no failure
    /// policy although the program does not ship its kind.
    pub fn of(
        registry: &Registry,
        config: &ManagerConfig,
        options: &ManifestOptions,
    ) -> Result<Manifests, ManagerError> {
        let env = Env::virtual_time(0);
        let watched = config.cache.namespaces.as_ref().map(NamespaceSet::current).unwrap_or_default();
        let declarations = registry.declarations_for(&env, config)?;
        let has_cluster_events = declarations
            .iter()
            .any(|one| !(one.descriptor.has_namespaced_events || one.cluster_scoped.is_empty()));
        let manifests = Manifests::default();
        let mut writer = Writer { config, options, watched, has_cluster_events, manifests };
        let required = RequiredRules::of(&declarations, config, options);
        let served = webhooks::Webhooks::of(&declarations, config, &options.namespace)?;
        writer.manifests.crds = required.definitions;
        writer.manifests.crds.iter_mut().for_each(|crd| webhooks::complete(crd, config, &options.namespace));
        writer.account(&config.name, &options.namespace);
        let accounts = match &config.client.identities {
            Identities::ServiceAccounts { namespace } => namespace.as_str(),
            Identities::Shared => "",
        };
        let placed = |account| match account {
            Account::Process => (config.name.as_str(), options.namespace.as_str()),
            Account::Controller(name) => (name, accounts),
        };
        for Grant { role, account, rules } in required.grants {
            let (account, namespace) = placed(account);
            writer.account(account, namespace);
            writer.everywhere(&role, account, namespace, rules);
        }
        for (selected, rules) in reads_elsewhere(&declarations, &writer.watched) {
            let (account, namespace) = placed(Account::Process);
            writer.in_namespace(&config.name, &selected, account, namespace, unnamed(rules));
        }
        writer.in_cluster(&config.name, &config.name, &options.namespace, required.in_cluster);
        writer.election(required.election);
        writer.tokens(accounts, required.accounts);
        for (account, rules) in required.named {
            let (account, namespace) = placed(account);
            writer.named(account, namespace, &rules);
        }
        let webhooks::Webhooks { service, validating, mutating } = served;
        let mut made = Manifests { webhook_service: service, validating, mutating, ..writer.manifests };
        if let Some(user) = &options.user {
            made.bind_user(user, &config.name, &options.namespace);
        }
        Ok(made)
    }

    /// Replaces the ServiceAccount of the process by a user.
    fn bind_user(&mut self, user: &str, account: &str, namespace: &str) {
        self.service_accounts.retain(|one| one.metadata != named(account, Some(namespace)));
        let account = subject(account, namespace);
        let in_cluster = self.cluster_role_bindings.iter_mut().map(|binding| &mut binding.subjects);
        let in_namespaces = self.role_bindings.iter_mut().map(|binding| &mut binding.subjects);
        for bound in in_cluster.chain(in_namespaces).flatten().flatten() {
            if *bound == account {
                *bound = Subject {
                    kind: "User".to_owned(),
                    name: user.to_owned(),
                    api_group: Some(RBAC.to_owned()),
                    ..Subject::default()
                };
            }
        }
    }

    /// Returns the selected objects.
    #[must_use]
    pub fn only(self, part: ManifestPart) -> Manifests {
        match part {
            ManifestPart::All => self,
            ManifestPart::Crd => Manifests { crds: self.crds, ..Manifests::default() },
            ManifestPart::Rbac => Manifests {
                crds: Vec::new(),
                webhook_service: None,
                validating: None,
                mutating: None,
                ..self
            },
            ManifestPart::Webhook => {
                let Self { webhook_service, validating, mutating, .. } = self;
                Manifests { webhook_service, validating, mutating, ..Manifests::default() }
            }
        }
    }

    /// Returns all objects as one YAML stream, for `kubectl apply -f -`.
    pub fn to_yaml(&self) -> String {
        let Self {
            crds,
            service_accounts,
            cluster_roles,
            roles,
            cluster_role_bindings,
            role_bindings,
            webhook_service,
            validating,
            mutating,
        } = self;
        let mut yaml = Yaml::default();
        yaml.add(crds);
        yaml.add(service_accounts);
        yaml.add(cluster_roles);
        yaml.add(cluster_role_bindings);
        yaml.add(roles);
        yaml.add(role_bindings);
        yaml.add(webhook_service.as_slice());
        yaml.add(validating.as_slice());
        yaml.add(mutating.as_slice());
        yaml.0
    }
}

/// Objects as YAML documents.
#[derive(Default)]
struct Yaml(String);

impl Yaml {
    fn add<T: Serialize>(&mut self, objects: &[T]) {
        for object in objects {
            // Via a JSON value, as an API server receives it: kinds and versions come first, empty fields are omitted.
            let value = json::value(object).expect("an object of the Kubernetes API is JSON");
            let text = serde_saphyr::to_string(&value).expect("JSON is YAML");
            self.0.push_str("---\n");
            self.0.push_str(&text);
            if !text.ends_with('\n') {
                self.0.push('\n');
            }
        }
    }
}

/// A rule, and whether its resource is known to be cluster-scoped.
type Scoped = (Rule, bool);

/// The ServiceAccount that a role is bound to.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
enum Account {
    Process,
    Controller(&'static str),
}

/// Permissions in every watched namespace, by one role.
struct Grant {
    role: String,
    account: Account,
    rules: Vec<Scoped>,
}

/// Permissions of a process, by their scope.
#[derive(Default)]
struct RequiredRules {
    definitions: Vec<CustomResourceDefinition>,
    /// In every watched namespace; roles have different names.
    grants: Vec<Grant>,
    /// In the whole cluster, regardless of the watched namespaces.
    in_cluster: Vec<Rule>,
    election: Vec<Rule>,
    accounts: Vec<Rule>,
    /// For objects with known names.
    named: Vec<(Account, Vec<NamedRule>)>,
}

impl RequiredRules {
    fn of(declarations: &[Declaration], config: &ManagerConfig, options: &ManifestOptions) -> Self {
        let with_accounts = config.client.identities != Identities::Shared;
        let mut required = Self::default();
        for one in declarations {
            required.define(&one.definitions);
            let name = one.descriptor.name;
            if name == Registry::PROCESS.name {
                required.election.extend(one.rules.iter().cloned());
            } else if name == Registry::ACCOUNTS.name {
                required.accounts.extend(one.rules.iter().cloned());
            } else if name == Registry::REVIEWS.name {
                required.in_cluster.extend(one.rules.iter().cloned());
            } else {
                required.controller(one, &config.name, options.per_controller, with_accounts);
            }
        }
        required
    }

    /// Adds the permissions of a controller or a runnable.
    fn controller(&mut self, one: &Declaration, process: &str, per_controller: bool, with_account: bool) {
        let client = one.descriptor.client_name;
        let own = format!("{process}:{client}");
        let shared = |role: String| if per_controller { role } else { process.to_owned() };
        if with_account {
            self.grant(shared(format!("{own}:caches")), Account::Process, scoped(one, &reads(one)));
            self.grant(own, Account::Controller(client), scoped(one, &one.own_rules));
        } else {
            self.grant(shared(own), Account::Process, scoped(one, &one.rules));
        }
        if !one.named_rules.is_empty() {
            let account = if with_account { Account::Controller(client) } else { Account::Process };
            self.named.push((account, one.named_rules.clone()));
        }
    }

    fn grant(&mut self, role: String, account: Account, rules: Vec<Scoped>) {
        match self.grants.iter_mut().find(|known| known.role == role) {
            Some(known) => known.rules.extend(rules),
            None => self.grants.push(Grant { role, account, rules }),
        }
    }

    fn define(&mut self, definitions: &[CustomResourceDefinition]) {
        for definition in definitions {
            let name = &definition.metadata.name;
            match self.definitions.iter_mut().find(|known| known.metadata.name == *name) {
                // A conversion declares all versions, and a controller the version that it uses.
                Some(known) if known.spec.conversion.is_none() && definition.spec.conversion.is_some() => {
                    known.clone_from(definition);
                }
                Some(known) if known.spec.conversion.is_some() || known == definition => {}
                _ => self.definitions.push(definition.clone()),
            }
        }
    }
}

/// Returns the permissions of the process for the watches of a controller.
fn reads(one: &Declaration) -> Vec<Rule> {
    let rule =
        |group: &str, plural: &str| Rule::new(group.to_owned(), plural.to_owned(), [Verb::List, Verb::Watch]);
    let declared = one.watches.iter().map(|(kind, _)| rule(&kind.group, &kind.plural));
    // A watch that is added at run time is declared as a use.
    let watches = |rule: &&Rule| [Verb::List, Verb::Watch].iter().all(|verb| rule.verbs.contains(verb));
    let later = one.own_rules.iter().filter(watches).map(|own| rule(&own.group, &own.resource));
    declared.chain(later).collect()
}

/// Returns the permissions for watches that select a namespace which is not among the `watched` ones. Such a watch
/// ignores the namespaces of the process.
fn reads_elsewhere(declarations: &[Declaration], watched: &BTreeSet<String>) -> BTreeMap<String, Vec<Rule>> {
    let mut elsewhere = BTreeMap::<String, Vec<Rule>>::new();
    if watched.is_empty() {
        return elsewhere;
    }
    for (kind, selection) in declarations.iter().flat_map(|one| &one.watches) {
        if let Some(namespace) = selection.namespace.as_ref().filter(|it| !watched.contains(*it)) {
            let rule = Rule::new(kind.group.to_string(), kind.plural.to_string(), [Verb::List, Verb::Watch]);
            elsewhere.entry(namespace.clone()).or_default().push(rule);
        }
    }
    elsewhere
}

fn scoped(one: &Declaration, rules: &[Rule]) -> Vec<Scoped> {
    let is_in_cluster = |rule: &Rule| {
        let plural = rule.resource.split('/').next().unwrap_or_default();
        one.cluster_scoped.contains(&(rule.group.to_string(), plural.to_owned()))
    };
    rules.iter().map(|rule| (rule.clone(), is_in_cluster(rule))).collect()
}

/// Writes the objects of one process.
struct Writer<'a> {
    config: &'a ManagerConfig,
    options: &'a ManifestOptions,
    /// The namespaces whose objects controllers see; empty for all.
    watched: BTreeSet<String>,
    /// Whether some Events can be about objects without a namespace.
    has_cluster_events: bool,
    manifests: Manifests,
}

impl Writer<'_> {
    fn account(&mut self, name: &str, namespace: &str) {
        let metadata = named(name, Some(namespace));
        if self.manifests.service_accounts.iter().any(|known| known.metadata == metadata) {
            return;
        }
        self.manifests.service_accounts.push(ServiceAccount { metadata, ..ServiceAccount::default() });
    }

    /// Grants rules in every watched namespace.
    fn everywhere(&mut self, role: &str, account: &str, namespace: &str, rules: Vec<Scoped>) {
        let is_in_cluster = |scoped: &Scoped| self.watched.is_empty() || scoped.1;
        let (in_cluster, in_namespaces): (Vec<_>, Vec<_>) = rules.into_iter().partition(is_in_cluster);
        let rules = |scoped: Vec<Scoped>| scoped.into_iter().map(|(rule, _)| rule).collect::<Vec<_>>();
        let (in_cluster, in_namespaces) = (rules(in_cluster), rules(in_namespaces));
        self.in_cluster(role, account, namespace, in_cluster);
        for watched in self.watched.clone() {
            self.in_namespace(role, &watched, account, namespace, unnamed(in_namespaces.clone()));
        }
        if self.has_cluster_events && !self.watched.contains("default") {
            // Events about cluster-scoped objects are in this namespace.
            let events = in_namespaces.into_iter().filter(|rule| rule.resource == "events");
            self.in_namespace(role, "default", account, namespace, unnamed(events));
        }
    }

    /// Grants rules in the whole cluster, in addition to the rules of the role.
    fn in_cluster(&mut self, role: &str, account: &str, namespace: &str, rules: Vec<Rule>) {
        self.by_cluster_role(role, account, namespace, unnamed(rules));
    }

    fn by_cluster_role(&mut self, role: &str, account: &str, namespace: &str, rules: Vec<PolicyRule>) {
        if rules.is_empty() {
            return;
        }
        let known =
            self.manifests.cluster_roles.iter_mut().find(|it| it.metadata.name.as_deref() == Some(role));
        if let Some(known) = known {
            return known.rules.get_or_insert_default().extend(rules);
        }
        let rules = Some(rules);
        let metadata = named(role, None);
        self.manifests.cluster_roles.push(ClusterRole { metadata, rules, ..ClusterRole::default() });
        self.manifests.cluster_role_bindings.push(ClusterRoleBinding {
            metadata: named(role, None),
            role_ref: reference("ClusterRole", role),
            subjects: Some(vec![subject(account, namespace)]),
        });
    }

    /// Grants the rules of the election, limited to known names of Leases.
    fn election(&mut self, rules: Vec<Rule>) {
        let Some(election) = &self.config.election else { return };
        let lease = election.lease_name.clone();
        // Memberships and shards are found by label.
        let names = if self.config.shards.is_some() { Vec::new() } else { vec![lease] };
        let rules = policy(rules.iter().flat_map(|rule| cut_down(rule, &names)));
        let (name, namespace) = (self.config.name.clone(), self.options.namespace.clone());
        let within = election.lease_namespace.clone().unwrap_or_else(|| namespace.clone());
        self.in_namespace(&format!("{name}-leader-election"), &within, &name, &namespace, rules);
    }

    /// Grants rules for objects with known names.
    fn named(&mut self, account: &str, namespace: &str, rules: &[NamedRule]) {
        let role = format!("{}-webhooks", self.config.name);
        let of = |in_own_namespace: bool| {
            let selected = rules.iter().filter(|it| it.in_own_namespace == in_own_namespace);
            policy(selected.flat_map(|it| limited(&it.rule, &it.names)))
        };
        let (own, in_cluster) = (of(true), of(false));
        let within = self.options.namespace.clone();
        self.by_cluster_role(&role, account, namespace, in_cluster);
        self.in_namespace(&role, &within, account, namespace, own);
    }

    /// Grants the creation of ServiceAccounts of controllers and their tokens.
    fn tokens(&mut self, accounts: &str, rules: Vec<Rule>) {
        let (name, namespace) = (self.config.name.clone(), self.options.namespace.clone());
        let rules = unnamed(rules);
        self.in_namespace(&format!("{name}-accounts"), accounts, &name, &namespace, rules);
    }

    fn in_namespace(
        &mut self,
        role: &str,
        within: &str,
        account: &str,
        namespace: &str,
        rules: Vec<PolicyRule>,
    ) {
        if rules.is_empty() {
            return;
        }
        let metadata = named(role, Some(within));
        let known = self.manifests.roles.iter_mut().find(|it| it.metadata == metadata);
        if let Some(known) = known {
            return known.rules.get_or_insert_default().extend(rules);
        }
        self.manifests.roles.push(Role { metadata: metadata.clone(), rules: Some(rules) });
        self.manifests.role_bindings.push(RoleBinding {
            metadata,
            role_ref: reference("Role", role),
            subjects: Some(vec![subject(account, namespace)]),
        });
    }
}

/// Limits a rule about Leases to known names, except for `create`, which cannot be limited by name.
fn cut_down(rule: &Rule, names: &[String]) -> Vec<(Rule, Vec<String>)> {
    if rule.resource != "leases" || names.is_empty() {
        return vec![(rule.clone(), Vec::new())];
    }
    limited(rule, names)
}

/// Limits a rule to names, except for `create`, which cannot be limited by name.
fn limited(rule: &Rule, names: &[String]) -> Vec<(Rule, Vec<String>)> {
    let (create, rest): (Vec<Verb>, Vec<Verb>) = rule.verbs.iter().partition(|verb| **verb == Verb::Create);
    let of = |verbs: Vec<Verb>| Rule::new(rule.group.clone(), rule.resource.clone(), verbs);
    let both = [(of(create), Vec::new()), (of(rest), names.to_vec())];
    both.into_iter().filter(|(rule, _)| !rule.verbs.is_empty()).collect()
}

/// Returns [`policy`] of rules without names.
fn unnamed(rules: impl IntoIterator<Item = Rule>) -> Vec<PolicyRule> {
    policy(rules.into_iter().map(|rule| (rule, Vec::new())))
}

/// Returns the rules in the form of a role: rules of a group with the same verbs are merged.
fn policy(rules: impl IntoIterator<Item = (Rule, Vec<String>)>) -> Vec<PolicyRule> {
    let mut by_resource: BTreeMap<(String, String, Vec<String>), BTreeSet<Verb>> = BTreeMap::new();
    for (rule, names) in rules {
        let key = (rule.group.into_owned(), rule.resource.into_owned(), names);
        by_resource.entry(key).or_default().extend(rule.verbs);
    }
    let mut merged: Vec<PolicyRule> = Vec::new();
    for ((group, resource, names), verbs) in by_resource {
        let rule = PolicyRule {
            api_groups: Some(vec![group]),
            resources: Some(Vec::new()),
            resource_names: (!names.is_empty()).then_some(names),
            verbs: verbs.iter().map(ToString::to_string).collect(),
            ..PolicyRule::default()
        };
        let is_same = |it: &PolicyRule| {
            (&it.api_groups, &it.resource_names, &it.verbs)
                == (&rule.api_groups, &rule.resource_names, &rule.verbs)
        };
        let at = merged.iter().position(is_same).unwrap_or_else(|| {
            merged.push(rule);
            merged.len() - 1
        });
        merged[at].resources.get_or_insert_default().push(resource);
    }
    merged
}

fn named(name: &str, namespace: Option<&str>) -> ObjectMeta {
    ObjectMeta {
        name: Some(name.to_owned()),
        namespace: namespace.map(ToOwned::to_owned),
        ..ObjectMeta::default()
    }
}

fn reference(kind: &str, name: &str) -> RoleRef {
    RoleRef { api_group: Some(RBAC.to_owned()), kind: kind.to_owned(), name: name.to_owned() }
}

fn subject(account: &str, namespace: &str) -> Subject {
    Subject {
        kind: "ServiceAccount".to_owned(),
        name: account.to_owned(),
        namespace: Some(namespace.to_owned()),
        ..Subject::default()
    }
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroU16;

    use k8s_openapi::api::core::v1::{ConfigMap, Namespace, Secret};
    use windlass_controller::{
        Context, Controller, Descriptor, Outcome, ReconcileError, Registration, Setup, SetupError,
    };
    use windlass_informer::Selection;
    use windlass_object::ObjectKey;

    use super::*;

    struct Labeller;

    impl Controller for Labeller {
        const NAME: &'static str = "labeller";
        type Config = ();

        fn setup(setup: &mut Setup, (): &()) -> Result<Self, SetupError> {
            drop(setup.primary::<Namespace>());
            drop(setup.watch::<ConfigMap>());
            setup.writer::<ConfigMap>().patch().build();
            Ok(Self)
        }

        async fn reconcile(&self, _: &ObjectKey, _: &Context) -> Result<Outcome, ReconcileError> {
            Ok(Outcome::Done)
        }
    }

    fn watching(config: &ManagerConfig, watched: &[&str]) -> ManagerConfig {
        let mut config = config.clone();
        config.cache.namespaces =
            (!watched.is_empty()).then(|| NamespaceSet::from_names(watched.iter().copied()));
        config
    }

    fn manifests(config: &ManagerConfig, watched: &[&str]) -> Manifests {
        let mut registry = Registry::new();
        registry.register(Registration::controller::<Labeller>()).expect("the first");
        Manifests::of(&registry, &watching(config, watched), &ManifestOptions::new("ops")).expect("declared")
    }

    fn config() -> ManagerConfig {
        let mut config = ManagerConfig::new("test").named("keeper");
        config.election.as_mut().expect("elected").lease_namespace = Some("leases".to_owned());
        config
    }

    /// `group/resource[names] verbs`, one line per rule.
    fn lines(rules: Option<&Vec<PolicyRule>>) -> Vec<String> {
        let line = |rule: &PolicyRule| {
            let list = |list: &Option<Vec<String>>| list.as_ref().map(|it| it.join(",")).unwrap_or_default();
            let (groups, resources) = (list(&rule.api_groups), list(&rule.resources));
            format!("{groups}/{resources}[{}] {}", list(&rule.resource_names), rule.verbs.join(","))
        };
        rules.into_iter().flatten().map(line).collect()
    }

    #[test]
    fn role_contains_what_is_declared_and_names_the_lease() {
        let made = manifests(&config(), &[]);
        assert_eq!(made.cluster_roles.len(), 1);
        let expected =
            ["/configmaps[] list,watch,patch", "/events[] create,patch", "/namespaces[] list,watch"];
        assert_eq!(lines(made.cluster_roles[0].rules.as_ref()), expected);
        assert_eq!(made.roles.len(), 1);
        let expected = [
            "/events[] create,patch",
            "coordination.k8s.io/leases[] create",
            "coordination.k8s.io/leases[keeper] get,watch,update",
        ];
        assert_eq!(lines(made.roles[0].rules.as_ref()), expected);
        assert_eq!(made.roles[0].metadata.namespace.as_deref(), Some("leases"));
        let subjects = made.cluster_role_bindings[0].subjects.as_ref().expect("bound");
        assert_eq!((subjects[0].name.as_str(), subjects[0].namespace.as_deref()), ("keeper", Some("ops")));
        assert_eq!(made.service_accounts.len(), 1);
    }

    #[test]
    fn user_replaces_the_service_account_of_the_process() {
        let mut config = config();
        config.client.identities = Identities::ServiceAccounts { namespace: "kube-system".to_owned() };
        let mut registry = Registry::new();
        registry.register(Registration::controller::<Labeller>()).expect("the first");
        let options = ManifestOptions { user: Some("static".to_owned()), ..ManifestOptions::new("ops") };
        let made = Manifests::of(&registry, &config, &options).expect("valid");
        let accounts: Vec<_> =
            made.service_accounts.iter().filter_map(|it| it.metadata.name.as_deref()).collect();
        assert_eq!(accounts, ["labeller"], "the controllers keep theirs");
        let in_cluster = made.cluster_role_bindings.iter().flat_map(|binding| &binding.subjects);
        let in_namespaces = made.role_bindings.iter().flat_map(|binding| &binding.subjects);
        let mut subjects: Vec<_> = in_cluster
            .chain(in_namespaces)
            .flatten()
            .map(|one| {
                (one.kind.as_str(), one.name.as_str(), one.namespace.as_deref(), one.api_group.as_deref())
            })
            .collect();
        subjects.sort_unstable();
        subjects.dedup();
        let user = ("User", "static", None, Some("rbac.authorization.k8s.io"));
        assert_eq!(subjects, [("ServiceAccount", "labeller", Some("kube-system"), None), user]);
    }

    #[test]
    fn lease_is_in_namespace_of_process_unless_configured() {
        let made = manifests(&ManagerConfig::new("test").named("keeper"), &[]);
        assert_eq!(made.roles[0].metadata.namespace.as_deref(), Some("ops"));
    }

    #[test]
    fn watched_namespaces_move_namespaced_rules_from_cluster_roles() {
        let made = manifests(&config(), &["blue", "green"]);
        assert_eq!(lines(made.cluster_roles[0].rules.as_ref()), ["/namespaces[] list,watch"]);
        let namespaces: Vec<_> =
            made.roles.iter().map(|role| role.metadata.namespace.as_deref().unwrap_or_default()).collect();
        assert_eq!(namespaces, ["blue", "green", "default", "leases"]);
        let expected = ["/configmaps[] list,watch,patch", "/events[] create,patch"];
        assert_eq!(lines(made.roles[0].rules.as_ref()), expected);
        assert_eq!(lines(made.roles[2].rules.as_ref()), ["/events[] create,patch"], "of Namespaces");
    }

    #[test]
    fn controller_of_namespaced_events_has_no_role_in_default() {
        let descriptor = Descriptor::new(Labeller::NAME).with_namespaced_events();
        let mut registry = Registry::new();
        let labeller = Registration::controller::<Labeller>().with_descriptor(descriptor);
        registry.register(labeller).expect("the first");
        let config = watching(&config(), &["blue"]);
        let made = Manifests::of(&registry, &config, &ManifestOptions::new("ops")).expect("declared");
        let namespaces: Vec<_> =
            made.roles.iter().map(|role| role.metadata.namespace.as_deref().unwrap_or_default()).collect();
        assert_eq!(namespaces, ["blue", "leases"]);
    }

    struct DirectoryReader;

    impl Controller for DirectoryReader {
        const NAME: &'static str = "directory-reader";
        type Config = ();

        fn setup(setup: &mut Setup, (): &()) -> Result<Self, SetupError> {
            drop(setup.primary::<ConfigMap>());
            drop(setup.watch::<Secret>().with_selection(Selection::in_namespace("kube-public")));
            Ok(Self)
        }

        async fn reconcile(&self, _: &ObjectKey, _: &Context) -> Result<Outcome, ReconcileError> {
            Ok(Outcome::Done)
        }
    }

    #[test]
    fn watch_of_another_namespace_gets_role_there() {
        let mut registry = Registry::new();
        registry.register(Registration::controller::<DirectoryReader>()).expect("the first");
        let options = ManifestOptions::new("ops");
        let made = Manifests::of(&registry, &watching(&config(), &["blue"]), &options).expect("declared");
        let within = |role: &&Role| role.metadata.namespace.as_deref() == Some("kube-public");
        let role = made.roles.iter().find(within).expect("a role");
        assert_eq!(lines(role.rules.as_ref()), ["/secrets[] list,watch"]);
    }

    #[test]
    fn controller_account_gets_writes_and_process_gets_reads() {
        let mut config = config();
        config.client.identities = Identities::ServiceAccounts { namespace: "ops".into() };
        let made = manifests(&config, &[]);
        let of = |name: &str| {
            let role = made.cluster_roles.iter().find(|role| role.metadata.name.as_deref() == Some(name));
            lines(role.expect(name).rules.as_ref())
        };
        assert_eq!(of("keeper"), ["/configmaps,namespaces[] list,watch"]);
        assert_eq!(of("keeper:labeller"), ["/configmaps[] patch", "/events[] create,patch"]);
        let accounts: Vec<_> =
            made.service_accounts.iter().filter_map(|it| it.metadata.name.as_deref()).collect();
        assert_eq!(accounts, ["keeper", "labeller"]);
    }

    #[test]
    fn each_controller_has_its_own_role_if_requested() {
        let of = |config: &ManagerConfig| {
            let mut registry = Registry::new();
            registry.register(Registration::controller::<Labeller>()).expect("the first");
            let options = ManifestOptions { per_controller: true, ..ManifestOptions::new("ops") };
            let made = Manifests::of(&registry, config, &options).expect("declared");
            let bound = |one: &ClusterRoleBinding| {
                let subject = &one.subjects.as_ref().expect("bound")[0];
                format!("{} {}", one.role_ref.name, subject.name)
            };
            let bindings: Vec<_> = made.cluster_role_bindings.iter().map(bound).collect();
            (bindings, lines(made.cluster_roles[0].rules.as_ref()))
        };
        let mut config = config();
        let rules = ["/configmaps[] list,watch,patch", "/events[] create,patch", "/namespaces[] list,watch"];
        let expected = (vec!["keeper:labeller keeper".to_owned()], rules.map(str::to_owned).to_vec());
        assert_eq!(of(&config), expected);
        config.client.identities = Identities::ServiceAccounts { namespace: "ops".into() };
        let (bindings, reads) = of(&config);
        assert_eq!(bindings, ["keeper:labeller:caches keeper", "keeper:labeller labeller"]);
        assert_eq!(reads, ["/configmaps,namespaces[] list,watch"]);
    }

    #[test]
    fn leases_of_shards_are_not_limited_to_names() {
        let config = ManagerConfig { shards: NonZeroU16::new(4), ..config() };
        let made = manifests(&config, &[]);
        let expected =
            ["/events[] create,patch", "coordination.k8s.io/leases[] get,list,watch,create,update,delete"];
        assert_eq!(lines(made.roles[0].rules.as_ref()), expected);
    }

    #[test]
    fn yaml_contains_every_object_as_a_document() {
        let yaml = manifests(&config(), &[]).to_yaml();
        let kinds: Vec<&str> = yaml.lines().filter_map(|line| line.strip_prefix("kind: ")).collect();
        assert_eq!(kinds, ["ServiceAccount", "ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding"]);
        assert_eq!(yaml.matches("---\n").count(), kinds.len());
        for document in yaml.split("---\n").filter(|it| !it.is_empty()) {
            let read: serde_json::Value = serde_saphyr::from_str(document).expect("YAML");
            assert!(read["metadata"]["name"].is_string(), "{document}");
        }
    }
}
