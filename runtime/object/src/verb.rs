//! Verbs and RBAC rules, with the names of the API server's authorizer.

use std::{borrow::Cow, collections::BTreeSet, fmt, str::FromStr};

/// The verb of a request, as RBAC rules and admission name it.
#[derive(Copy, Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Verb {
    /// Reads one object.
    Get,
    /// Reads a collection.
    List,
    /// Watches a collection or one object.
    Watch,
    /// Creates an object.
    Create,
    /// Replaces an object.
    Update,
    /// Changes parts of an object, including with server-side apply.
    Patch,
    /// Deletes one object.
    Delete,
    /// Deletes every object that a selector matches.
    DeleteCollection,
}

impl Verb {
    /// Every verb, in the order of declaration.
    pub const ALL: [Verb; 8] = [
        Verb::Get,
        Verb::List,
        Verb::Watch,
        Verb::Create,
        Verb::Update,
        Verb::Patch,
        Verb::Delete,
        Verb::DeleteCollection,
    ];

    /// Returns the verb as RBAC rules write it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Verb::Get => "get",
            Verb::List => "list",
            Verb::Watch => "watch",
            Verb::Create => "create",
            Verb::Update => "update",
            Verb::Patch => "patch",
            Verb::Delete => "delete",
            Verb::DeleteCollection => "deletecollection",
        }
    }

    /// Returns whether the verb changes the cluster.
    pub const fn is_mutating(self) -> bool {
        match self {
            Verb::Get | Verb::List | Verb::Watch => false,
            Verb::Create | Verb::Update | Verb::Patch | Verb::Delete | Verb::DeleteCollection => true,
        }
    }
}

impl fmt::Display for Verb {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl FromStr for Verb {
    type Err = ParseVerbError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Verb::ALL.into_iter().find(|verb| verb.as_str() == text).ok_or_else(|| ParseVerbError(text.into()))
    }
}

/// Error for a text that is not a verb.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not a verb; use get, list, watch, create, update, patch, delete or deletecollection")]
pub struct ParseVerbError(String);

/// One RBAC rule: the permitted verbs for one resource of one group.
///
/// # Examples
/// ```
/// use windlass_object::{Rule, Verb};
///
/// let rule = Rule::new("", "pods/status", [Verb::Get, Verb::Patch]);
/// assert!(rule.permits(Verb::Patch, "", "pods/status"));
/// assert!(!rule.permits(Verb::Patch, "", "pods"));
/// ```
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Rule {
    /// The API group; empty for the core group.
    pub group: Cow<'static, str>,
    /// The plural resource, with the subresource if the rule is for one: `pods`, `pods/status`.
    pub resource: Cow<'static, str>,
    /// The permitted verbs.
    pub verbs: BTreeSet<Verb>,
}

impl Rule {
    /// Creates a rule for `resource` of `group`.
    pub fn new(
        group: impl Into<Cow<'static, str>>,
        resource: impl Into<Cow<'static, str>>,
        verbs: impl IntoIterator<Item = Verb>,
    ) -> Self {
        Self { group: group.into(), resource: resource.into(), verbs: verbs.into_iter().collect() }
    }

    /// Returns whether this rule permits `verb` on `resource` (with its subresource) of `group`.
    pub fn permits(&self, verb: Verb, group: &str, resource: &str) -> bool {
        self.group == group && self.resource == resource && self.verbs.contains(&verb)
    }

    /// Returns the rule in YAML, as one item of a role's `rules`.
    pub fn to_yaml(&self) -> String {
        let Rule { group, resource, verbs } = self;
        let verbs: Vec<&str> = verbs.iter().map(|verb| verb.as_str()).collect();
        format!("- {{ apiGroups: [{group:?}], resources: [{resource:?}], verbs: [{}] }}", verbs.join(", "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn printed_verb_parses_back() {
        for verb in Verb::ALL {
            assert_eq!(verb.to_string().parse(), Ok(verb));
        }
        assert!("escalate".parse::<Verb>().is_err());
    }

    #[test]
    fn rule_yaml_can_be_pasted_into_a_role() {
        let rule = Rule::new("apps", "deployments/status", [Verb::Watch, Verb::List]);
        let item = r#"- { apiGroups: ["apps"], resources: ["deployments/status"], verbs: [list, watch] }"#;
        assert_eq!(rule.to_yaml(), item);
    }

    #[test]
    fn rule_for_resource_does_not_cover_subresources() {
        let rule = Rule::new("", "pods", [Verb::Get, Verb::Patch]);
        assert!(rule.permits(Verb::Patch, "", "pods"));
        assert!(!rule.permits(Verb::Patch, "", "pods/status"));
        assert!(!rule.permits(Verb::Delete, "", "pods"));
        assert!(!rule.permits(Verb::Get, "metrics.k8s.io", "pods"));
    }
}
