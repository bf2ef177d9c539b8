//! What a controller said it would ask of the API server: the one source of roles and of the check on requests.

use std::collections::{BTreeMap, BTreeSet};

use windlass_client::DeclaredVerbs;
use windlass_object::{Rule, Verb};

type Resources = BTreeMap<String, BTreeSet<Verb>>;

/// What stands for every group or every resource.
const ANY: &str = "*";

/// A set of permissions, merged by group and resource.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DeclaredRules {
    groups: BTreeMap<String, Resources>,
}

impl DeclaredRules {
    /// Adds `verbs` on `resource` (with its `/subresource`) of `group`.
    pub fn add(&mut self, group: &str, resource: &str, verbs: impl IntoIterator<Item = Verb>) {
        let resources = self.groups.entry(group.to_owned()).or_default();
        resources.entry(resource.to_owned()).or_default().extend(verbs);
    }

    /// One rule per group and resource, in order of group and resource.
    pub fn rules(&self) -> Vec<Rule> {
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
    fn a_star_stands_for_every_group_or_resource_and_grants_its_verbs_only() {
        let mut rules = DeclaredRules::default();
        rules.add("*", "*", [Verb::DeleteCollection]);
        rules.add("batch", "*", [Verb::List]);
        assert!(rules.permits(Verb::DeleteCollection, "batch", "jobs"));
        assert!(rules.permits(Verb::List, "batch", "jobs"));
        assert!(!rules.permits(Verb::List, "apps", "deployments"));
        assert!(!rules.permits(Verb::Delete, "batch", "jobs"));
    }
}
