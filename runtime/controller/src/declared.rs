//! The declared requests of a controller: the single source of roles and of the check on requests.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use windlass_client::DeclaredVerbs;
use windlass_informer::Selection;
use windlass_metrics::Metrics;
use windlass_object::{GroupResource, ResourceKind, Rule, Scope, Verb};

use crate::descriptor::Descriptor;
use crate::webhook::{AdmissionDeclaration, NamedRule};

type Resources = BTreeMap<String, BTreeSet<Verb>>;

/// The metric that counts undeclared requests.
pub const UNDECLARED_REQUESTS_METRIC: &str = "windlass_undeclared_requests_total";

/// The wildcard for every group or every resource.
const ANY: &str = "*";

/// A set of permissions, merged by group and resource.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct DeclaredRules {
    groups: BTreeMap<String, Resources>,
    /// The resources that are known to be cluster-scoped, by group and plural.
    cluster: BTreeSet<(String, String)>,
}

impl DeclaredRules {
    /// Adds `verbs` on `resource` (with its `/subresource`) of `group`.
    fn add(&mut self, group: &str, resource: &str, verbs: impl IntoIterator<Item = Verb>) {
        let resources = self.groups.entry(group.to_owned()).or_default();
        resources.entry(resource.to_owned()).or_default().extend(verbs);
    }

    /// Adds `verbs` on `subresource` (empty, or `/status`) of a kind.
    fn add_kind(&mut self, kind: &ResourceKind, subresource: &str, verbs: &[Verb]) {
        if kind.scope == Scope::Cluster {
            self.cluster.insert((kind.group.to_string(), kind.plural.to_string()));
        }
        self.add(&kind.group, &format!("{}{subresource}", kind.plural), verbs.iter().copied());
    }

    /// Returns one rule per group and resource, ordered by group and resource.
    pub(crate) fn rules(&self) -> Vec<Rule> {
        let of_group = |(group, resources): (&String, &Resources)| -> Vec<Rule> {
            let rule = |(resource, verbs): (&String, &BTreeSet<Verb>)| {
                Rule::new(group.clone(), resource.clone(), verbs.iter().copied())
            };
            resources.iter().map(rule).collect()
        };
        self.groups.iter().flat_map(of_group).collect()
    }
}

impl DeclaredVerbs for DeclaredRules {
    fn permits(&self, verb: Verb, group: &str, resource: &str) -> bool {
        let groups = [group, ANY].into_iter().filter_map(|group| self.groups.get(group));
        let mut verbs = groups.flat_map(|resources| [resources.get(resource), resources.get(ANY)]).flatten();
        verbs.any(|verbs| verbs.contains(&verb))
    }
}

/// The declarations of one setup.
#[derive(Clone, Debug, Default)]
pub(crate) struct Declared {
    /// All requests to the API server.
    pub(crate) all: DeclaredRules,
    /// The requests that the controller itself sends.
    own: DeclaredRules,
    definitions: Vec<CustomResourceDefinition>,
    /// The admission webhooks.
    pub(crate) admissions: Vec<AdmissionDeclaration>,
    /// The requests for objects with known names.
    named: Vec<NamedRule>,
    /// The number of declarations with a verb that writes.
    pub(crate) write_count: usize,
    /// The resources of which writers replace whole objects.
    replaced: BTreeSet<GroupResource>,
}

impl Declared {
    pub(crate) fn replaces(&mut self, kind: &ResourceKind) {
        self.replaced.insert(kind.group_resource());
    }

    /// Returns the first resource of which writers replace whole objects and for which `is_changed` reports that cached
    /// objects differ from the server's.
    pub(crate) fn replaced_after(
        &self,
        is_changed: impl Fn(&GroupResource) -> bool,
    ) -> Option<&GroupResource> {
        self.replaced.iter().find(|resource| is_changed(resource))
    }

    pub(crate) fn watch(&mut self, kind: &ResourceKind) {
        self.all.add_kind(kind, "", &[Verb::List, Verb::Watch]);
    }

    pub(crate) fn uses(&mut self, kind: &ResourceKind, subresource: &str, verbs: &[Verb]) {
        self.write_count += usize::from(verbs.iter().any(|verb| verb.is_mutating()));
        self.all.add_kind(kind, subresource, verbs);
        self.own.add_kind(kind, subresource, verbs);
    }

    pub(crate) fn uses_rule(&mut self, rule: &Rule) {
        self.write_count += usize::from(rule.verbs.iter().any(|verb| verb.is_mutating()));
        for rules in [&mut self.all, &mut self.own] {
            rules.add(&rule.group, &rule.resource, rule.verbs.iter().copied());
        }
    }

    pub(crate) fn ships(&mut self, definition: CustomResourceDefinition) {
        if !self.definitions.contains(&definition) {
            self.definitions.push(definition);
        }
    }

    pub(crate) fn names(&mut self, rule: NamedRule) {
        self.named.push(rule);
    }

    /// Returns the rules that requests are checked against.
    pub(crate) fn permitted(&self) -> DeclaredRules {
        let mut permitted = self.all.clone();
        for NamedRule { rule, .. } in &self.named {
            permitted.add(&rule.group, &rule.resource, rule.verbs.iter().copied());
        }
        permitted
    }

    pub(crate) fn declaration(
        &self,
        descriptor: Descriptor,
        watches: Vec<(ResourceKind, Selection)>,
    ) -> Declaration {
        Declaration {
            descriptor,
            rules: self.all.rules(),
            own_rules: self.own.rules(),
            cluster_scoped: self.all.cluster.clone(),
            definitions: self.definitions.clone(),
            admissions: self.admissions.clone(),
            named_rules: self.named.clone(),
            watches,
        }
    }
}

/// The rules that requests are checked against. Rejected requests are counted by verb and resource, even if the
/// controller ignores the error: an undeclared request is a bug in the program, and tests check the counter.
#[derive(Clone, Debug)]
pub(crate) struct EnforcedRules {
    rules: DeclaredRules,
    controller: &'static str,
    metrics: Metrics,
}

impl EnforcedRules {
    pub(crate) fn new(rules: DeclaredRules, controller: &'static str, metrics: Metrics) -> Self {
        Self { rules, controller, metrics }
    }
}

impl DeclaredVerbs for EnforcedRules {
    fn permits(&self, verb: Verb, group: &str, resource: &str) -> bool {
        const HELP: &str =
            "Requests that the client rejected because their controller did not declare them in its setup.";
        let permitted = self.rules.permits(verb, group, resource);
        if !permitted {
            let verb = verb.as_str();
            let labels =
                [("controller", self.controller), ("verb", verb), ("group", group), ("resource", resource)];
            self.metrics.custom_counter(UNDECLARED_REQUESTS_METRIC, HELP, &labels).inc();
        }
        permitted
    }
}

/// The declarations of a controller, a runnable, or another part of the process. For controllers and runnables they
/// come from their setup, without a cluster.
#[derive(Clone, Debug)]
pub struct Declaration {
    /// The names of the part.
    pub descriptor: Descriptor,
    /// The permissions on the API server, one rule per resource, in order.
    pub rules: Vec<Rule>,
    /// The rules that are sent under the identity of the controller, if controllers have separate identities. They
    /// exclude the rules of its watches, which use the identity of the process.
    pub own_rules: Vec<Rule>,
    /// The resources of these rules that are known to be cluster-scoped, by group and plural.
    pub cluster_scoped: BTreeSet<(String, String)>,
    /// The CustomResourceDefinitions that the binary ships, each once.
    pub definitions: Vec<CustomResourceDefinition>,
    /// The admission webhooks that the binary serves.
    pub admissions: Vec<AdmissionDeclaration>,
    /// The permissions for objects with known names, in addition to `rules`.
    pub named_rules: Vec<NamedRule>,
    /// The cached kinds and selections.
    pub watches: Vec<(ResourceKind, Selection)>,
}

impl Declaration {
    /// Creates the declaration of a part without watches.
    pub fn new(descriptor: Descriptor, rules: impl IntoIterator<Item = Rule>) -> Self {
        let rules: Vec<Rule> = rules.into_iter().collect();
        Self {
            descriptor,
            own_rules: rules.clone(),
            rules,
            cluster_scoped: BTreeSet::new(),
            definitions: Vec::new(),
            admissions: Vec::new(),
            named_rules: Vec::new(),
            watches: Vec::new(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_was_declared_is_permitted() {
        let mut rules = DeclaredRules::default();
        rules.add("apps", "replicasets", [Verb::List, Verb::Watch]);
        rules.add("apps", "replicasets", [Verb::Patch]);
        rules.add("apps", "replicasets/status", [Verb::Update]);
        assert!(rules.permits(Verb::Patch, "apps", "replicasets"));
        assert!(rules.permits(Verb::Update, "apps", "replicasets/status"));
        assert!(!rules.permits(Verb::Update, "apps", "replicasets"));
        assert!(!rules.permits(Verb::List, "", "replicasets"));
        assert_eq!(rules.rules().len(), 2, "declarations of one resource merge");
    }

    #[test]
    fn undeclared_requests_are_counted_by_controller_verb_and_resource() {
        let metrics = Metrics::new();
        let mut rules = DeclaredRules::default();
        rules.add("", "pods", [Verb::List]);
        let enforced = EnforcedRules::new(rules, "scribe", metrics.clone());
        assert!(
            enforced.permits(Verb::List, "", "pods")
                && !metrics.encode().contains(UNDECLARED_REQUESTS_METRIC)
        );
        assert!(!enforced.permits(Verb::Delete, "", "pods"));
        let line = format!(
            r#"{UNDECLARED_REQUESTS_METRIC}{{controller="scribe",group="",resource="pods",verb="delete"}} 1"#
        );
        assert!(metrics.encode().lines().any(|one| one == line), "{}", metrics.encode());
    }

    #[test]
    fn star_stands_for_every_group_or_resource_and_grants_its_verbs_only() {
        let mut rules = DeclaredRules::default();
        rules.add("*", "*", [Verb::DeleteCollection]);
        rules.add("batch", "*", [Verb::List]);
        assert!(rules.permits(Verb::DeleteCollection, "batch", "jobs"));
        assert!(rules.permits(Verb::List, "batch", "jobs"));
        assert!(!rules.permits(Verb::List, "apps", "deployments"));
        assert!(!rules.permits(Verb::Delete, "batch", "jobs"));
    }
}
