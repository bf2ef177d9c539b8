//! What a controller asked of the API server, held against what it says it would ask: so that a role is neither too
//! small, which shows in production, nor too large, which shows nowhere.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use k8s_openapi::api::rbac::v1::PolicyRule;
use windlass_api_server::{ApiServer, RecordedAccess};
use windlass_controller::UNDECLARED;
use windlass_metrics::Metrics;
use windlass_object::{Rule, Verb};

/// What stands for every group or every resource.
const ANY: &str = "*";

/// Requests that no declared rule permits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MissingRules {
    /// Who sent them.
    pub user: String,
    /// The rules that are missing, by group and resource.
    pub rules: Vec<Rule>,
}

/// Demands that `user` asked nothing of this server that `declared` does not permit.
///
/// # Errors
/// With the rules that are missing. Refused and failed requests count: a role would have to permit them all the same.
pub fn check_permissions(server: &ApiServer, user: &str, declared: &[Rule]) -> Result<(), MissingRules> {
    let used = used_by(server, user);
    let missing = used.iter().filter(|used| !declared.iter().any(|rule| permits(rule, used)));
    let rules = merged(missing.map(|used| (used.group.clone(), used.resource.clone(), used.verb)));
    if rules.is_empty() { Ok(()) } else { Err(MissingRules { user: user.to_owned(), rules }) }
}

/// The requests that controllers made and never declared, as one line; none if there were none. They were refused before
/// they were sent, so no server knows of them.
pub(crate) fn undeclared(metrics: &Metrics) -> Option<String> {
    let text = metrics.encode();
    let counted = text.lines().filter_map(|line| line.strip_prefix(UNDECLARED));
    let requests: Vec<&str> = counted.filter(|line| line.starts_with('{')).collect();
    (!requests.is_empty()).then(|| requests.join("; "))
}

/// What `declared` permits and `user` never did. A rule for every group or resource counts as used once any is.
pub fn unused_permissions(server: &ApiServer, user: &str, declared: &[Rule]) -> Vec<Rule> {
    let used = used_by(server, user);
    let rights = declared.iter().flat_map(|rule| rule.verbs.iter().map(move |verb| (rule, *verb)));
    let idle =
        rights.filter(|(rule, verb)| !used.iter().any(|used| used.verb == *verb && permits(rule, used)));
    merged(idle.map(|(rule, verb)| (rule.group.to_string(), rule.resource.to_string(), verb)))
}

/// The rules of a Role or ClusterRole, one for each group and resource. A verb of `*` stands for all; verbs that are
/// no requests on objects, such as `impersonate`, and rules for paths are left out.
pub fn rules_from_role(role: &[PolicyRule]) -> Vec<Rule> {
    let verbs = |rule: &PolicyRule| -> BTreeSet<Verb> {
        if rule.verbs.iter().any(|verb| verb == ANY) {
            return Verb::ALL.into();
        }
        rule.verbs.iter().filter_map(|verb| verb.parse().ok()).collect()
    };
    let mut rights = Vec::new();
    for rule in role {
        for group in rule.api_groups.iter().flatten() {
            for resource in rule.resources.iter().flatten() {
                rights.extend(verbs(rule).into_iter().map(|verb| (group.clone(), resource.clone(), verb)));
            }
        }
    }
    merged(rights)
}

fn used_by(server: &ApiServer, user: &str) -> Vec<RecordedAccess> {
    server.recorded_accesses().into_iter().filter(|used| used.user == user).collect()
}

pub(crate) fn permits(rule: &Rule, used: &RecordedAccess) -> bool {
    let covers = |pattern: &str, name: &str| pattern == ANY || pattern == name;
    covers(&rule.group, &used.group)
        && covers(&rule.resource, &used.resource)
        && rule.verbs.contains(&used.verb)
}

fn merged(rights: impl IntoIterator<Item = (String, String, Verb)>) -> Vec<Rule> {
    let mut verbs: BTreeMap<(String, String), BTreeSet<Verb>> = BTreeMap::new();
    for (group, resource, verb) in rights {
        verbs.entry((group, resource)).or_default().insert(verb);
    }
    verbs.into_iter().map(|((group, resource), verbs)| Rule::new(group, resource, verbs)).collect()
}

impl fmt::Display for MissingRules {
    /// In the words of a role, so that it can be pasted into one.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} did what no rule permits; add", self.user)?;
        for rule in &self.rules {
            write!(f, "\n{}", rule.to_yaml())?;
        }
        Ok(())
    }
}

impl std::error::Error for MissingRules {}

#[cfg(test)]
mod tests {
    use http::Request;
    use tower::ServiceExt as _;
    use windlass_env::Env;

    use super::*;

    async fn server_that_was_asked(paths: &[&str]) -> ApiServer {
        let server = crate::server(&Env::virtual_time(1));
        for path in paths {
            let request = Request::get(*path).body(String::new()).expect("a request");
            let Ok(_) = server.as_user("mirror").oneshot(request).await;
        }
        server
    }

    #[tokio::test(start_paused = true)]
    async fn what_was_asked_and_not_declared_is_named_in_the_words_of_a_role() {
        let server =
            server_that_was_asked(&["/api/v1/pods", "/apis/apps/v1/namespaces/a/deployments/b"]).await;
        let pods = Rule::new("", "pods", [Verb::List]);
        let error = check_permissions(&server, "mirror", &[pods]).expect_err("nobody declared deployments");
        let text = "\"mirror\" did what no rule permits; add\n\
                    - { apiGroups: [\"apps\"], resources: [\"deployments\"], verbs: [get] }";
        assert_eq!(error.to_string(), text);
        assert_eq!(check_permissions(&server, "somebody else", &[]), Ok(()));
        let everything = Rule::new("*", "*", Verb::ALL);
        assert_eq!(check_permissions(&server, "mirror", &[everything]), Ok(()));
    }

    #[tokio::test(start_paused = true)]
    async fn what_was_declared_and_never_done_is_told_verb_by_verb() {
        let server = server_that_was_asked(&["/api/v1/pods"]).await;
        let declared =
            [Rule::new("", "pods", [Verb::List, Verb::Delete]), Rule::new("", "nodes", [Verb::Get])];
        let idle = [Rule::new("", "nodes", [Verb::Get]), Rule::new("", "pods", [Verb::Delete])];
        assert_eq!(unused_permissions(&server, "mirror", &declared), idle);
    }

    #[test]
    fn role_is_read_as_rules_for_each_group_and_resource() {
        let role = serde_json::json!([
            { "apiGroups": ["", "apps"], "resources": ["pods"], "verbs": ["get", "impersonate"] },
            { "apiGroups": [""], "resources": ["pods"], "verbs": ["list"] },
            { "nonResourceURLs": ["/metrics"], "verbs": ["get"] },
        ]);
        let role: Vec<PolicyRule> = serde_json::from_value(role).expect("rules of a role");
        let wanted = [Rule::new("", "pods", [Verb::Get, Verb::List]), Rule::new("apps", "pods", [Verb::Get])];
        assert_eq!(rules_from_role(&role), wanted);
    }
}
