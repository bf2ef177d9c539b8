//! Compares the requests of a controller with its declared rules. A role with a missing rule fails in production; a
//! role with an unused rule fails no test.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use k8s_openapi::api::rbac::v1::PolicyRule;
use windlass_api_server::{ApiServer, RecordedAccess};
use windlass_controller::UNDECLARED_REQUESTS_METRIC;
use windlass_metrics::Metrics;
use windlass_object::{Rule, Verb};

/// Wildcard for every group or every resource.
const ANY: &str = "*";

/// Requests that no declared rule permits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MissingRules {
    /// User that sent the requests.
    pub user: String,
    /// Missing rules, by group and resource.
    pub rules: Vec<Rule>,
}

/// Checks that `declared` permits all requests of `user` to this server.
///
/// # Errors
/// Returns the missing rules. Rejected and failed requests count, because a role must permit them too.
pub fn check_permissions(server: &ApiServer, user: &str, declared: &[Rule]) -> Result<(), MissingRules> {
    let used = used_by(server, user);
    let missing = used.iter().filter(|used| !declared.iter().any(|rule| permits(rule, used)));
    let rules = merged(missing.map(|used| (used.group.clone(), used.resource.clone(), used.verb)));
    if rules.is_empty() { Ok(()) } else { Err(MissingRules { user: user.to_owned(), rules }) }
}

/// Returns the undeclared requests of controllers as one line, or `None` if there were none. The client rejected them
/// before they were sent, so no server recorded them.
pub(crate) fn undeclared(metrics: &Metrics) -> Option<String> {
    let text = metrics.encode();
    let counted = text.lines().filter_map(|line| line.strip_prefix(UNDECLARED_REQUESTS_METRIC));
    let requests: Vec<&str> = counted.filter(|line| line.starts_with('{')).collect();
    (!requests.is_empty()).then(|| requests.join("; "))
}

/// Returns the rules in `declared` that `user` never used. A wildcard rule counts as used if any group or resource is
/// used.
pub fn unused_permissions(server: &ApiServer, user: &str, declared: &[Rule]) -> Vec<Rule> {
    let used = used_by(server, user);
    let rights = declared.iter().flat_map(|rule| rule.verbs.iter().map(move |verb| (rule, *verb)));
    let idle =
        rights.filter(|(rule, verb)| !used.iter().any(|used| used.verb == *verb && permits(rule, used)));
    merged(idle.map(|(rule, verb)| (rule.group.to_string(), rule.resource.to_string(), verb)))
}

/// Returns the rules of a Role or ClusterRole, one per group and resource. The verb `*` is expanded. Verbs that are not
/// requests on objects, such as `impersonate`, and rules for non-resource URLs are omitted.
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
    /// Formats the missing rules as YAML that can be pasted into a role.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} sent requests that no rule permits; add", self.user)?;
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
    async fn undeclared_requests_are_reported_as_rules_of_a_role() {
        let server =
            server_that_was_asked(&["/api/v1/pods", "/apis/apps/v1/namespaces/a/deployments/b"]).await;
        let pods = Rule::new("", "pods", [Verb::List]);
        let error = check_permissions(&server, "mirror", &[pods]).expect_err("deployments are undeclared");
        let text = "\"mirror\" sent requests that no rule permits; add\n\
                    - { apiGroups: [\"apps\"], resources: [\"deployments\"], verbs: [get] }";
        assert_eq!(error.to_string(), text);
        assert_eq!(check_permissions(&server, "another user", &[]), Ok(()));
        let everything = Rule::new("*", "*", Verb::ALL);
        assert_eq!(check_permissions(&server, "mirror", &[everything]), Ok(()));
    }

    #[tokio::test(start_paused = true)]
    async fn unused_rules_are_reported_by_verb() {
        let server = server_that_was_asked(&["/api/v1/pods"]).await;
        let declared =
            [Rule::new("", "pods", [Verb::List, Verb::Delete]), Rule::new("", "nodes", [Verb::Get])];
        let idle = [Rule::new("", "nodes", [Verb::Get]), Rule::new("", "pods", [Verb::Delete])];
        assert_eq!(unused_permissions(&server, "mirror", &declared), idle);
    }

    #[test]
    fn role_is_split_into_rules_by_group_and_resource() {
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
