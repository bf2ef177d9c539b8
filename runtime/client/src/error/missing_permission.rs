//! Missing permissions, usually parsed from the error message of the API server.
//!
//! A 403 can come from the authorizer, if an RBAC rule is missing, or from admission, for example if a quota is
//! exceeded. Only the first is a [`MissingPermission`]. They differ only in the error message. The API server formats
//! this message, so it is the same for every authorizer.

use std::{error::Error, fmt};

use windlass_object::{Rule, Status, Verb};

/// A request that the authorizer denied: the user, the request, and the RBAC rule that would allow it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MissingPermission {
    /// The user of the request: `system:serviceaccount:kube-system:replicaset-controller`. `None` for an informer,
    /// whose requests are those of the process.
    pub user: Option<String>,
    /// The verb of the request.
    pub verb: Verb,
    /// The namespace; `None` for requests across all namespaces and for cluster-scoped resources.
    pub namespace: Option<String>,
    /// The rule that a role must contain: the verb on the resource, or `list` and `watch` for an informer.
    /// [`Rule::to_yaml`] formats it as an item of a role.
    pub rule: Rule,
}

impl MissingPermission {
    /// Adds the other verbs that the sender needs on the resource: a role with only the denied verb leads to the next
    /// denial.
    #[must_use]
    pub fn with_verbs(mut self, verbs: impl IntoIterator<Item = Verb>) -> Self {
        self.rule.verbs.extend(verbs);
        self
    }

    /// Parses an error response; `None` if it does not report a missing permission.
    pub fn of(status: &Status) -> Option<Self> {
        if status.code == 403 { Self::said(&status.message) } else { None }
    }

    /// Parses the message that every API server uses for missing permissions.
    pub(super) fn said(text: &str) -> Option<Self> {
        let (_, rest) = text.split_once("User \"")?;
        let (user, rest) = quoted_from(rest)?;
        let (verb, rest) = rest.strip_prefix(" cannot ")?.split_once(' ')?;
        let (resource, rest) = quoted(rest.strip_prefix("resource ")?)?;
        let (group, rest) = quoted(rest.strip_prefix(" in API group ")?)?;
        let namespace = match rest.strip_prefix(" in the namespace ") {
            Some(rest) => Some(quoted(rest)?.0),
            None => None,
        };
        let verb: Verb = verb.parse().ok()?;
        Some(Self { user: Some(user), verb, namespace, rule: Rule::new(group, resource, [verb]) })
    }
}

/// The format is one line that ends with the rule.
impl fmt::Display for MissingPermission {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let MissingPermission { user, verb, namespace, rule } = self;
        let Rule { group, resource, .. } = rule;
        f.write_str(user.as_deref().unwrap_or("the process"))?;
        let dot = if group.is_empty() { "" } else { "." };
        write!(f, " cannot {verb} {resource}{dot}{group}")?;
        match namespace {
            Some(namespace) => {
                write!(f, " in namespace {namespace}; add to a Role in {namespace} or to a ClusterRole: ")?;
            }
            None => f.write_str("; add to a ClusterRole: ")?,
        }
        f.write_str(&rule.to_yaml())
    }
}

impl Error for MissingPermission {}

/// Parses a quoted string and returns it with the rest of the text.
fn quoted(text: &str) -> Option<(String, &str)> {
    quoted_from(text.strip_prefix('"')?)
}

/// Parses a string whose opening quote was removed. Go quotes names with only two different escapes.
fn quoted_from(text: &str) -> Option<(String, &str)> {
    let (mut found, mut characters) = (String::new(), text.char_indices());
    while let Some((at, character)) = characters.next() {
        match character {
            '"' => return Some((found, &text[at + 1..])),
            '\\' => {
                found.push(characters.next().map(|(_, escaped)| escaped).filter(|it| "\"\\".contains(*it))?);
            }
            _ => found.push(character),
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use tower::BoxError;

    use super::*;
    use crate::error::{RequestError, missing_permission};

    fn forbidden(message: &str) -> Status {
        let mut status = Status::failure(message, "Forbidden");
        status.code = 403;
        status
    }

    const POD: &str = r#"pods is forbidden: User "system:serviceaccount:kube-system:replicaset-controller" cannot create resource "pods" in API group "" in the namespace "web""#;

    // parity: role-lacks-rule-error
    #[test]
    fn missing_permission_is_printed_on_one_line_ending_with_the_rule() {
        let denial = MissingPermission::of(&forbidden(POD)).unwrap();
        assert_eq!(
            denial.to_string(),
            r#"system:serviceaccount:kube-system:replicaset-controller cannot create pods in namespace web; add to a Role in web or to a ClusterRole: - { apiGroups: [""], resources: ["pods"], verbs: [create] }"#
        );
    }

    #[test]
    fn missing_permission_is_parsed_from_the_server_message() {
        for (message, expected) in [
            (
                r#"replicasets.apps "a" is forbidden: User "me" cannot update resource "replicasets/status" in API group "apps" in the namespace "web""#,
                ("me", Verb::Update, "apps", "replicasets/status", Some("web")),
            ),
            (
                r#"nodes is forbidden: User "a \"b\" \\c" cannot list resource "nodes" in API group "" at the cluster scope"#,
                (r#"a "b" \c"#, Verb::List, "", "nodes", None),
            ),
            (
                r#"pods is forbidden: User "" cannot deletecollection resource "pods" in API group "" in the namespace "b": RBAC: clusterrole.rbac.authorization.k8s.io "x" not found"#,
                ("", Verb::DeleteCollection, "", "pods", Some("b")),
            ),
        ] {
            let (user, verb, group, resource, namespace) = expected;
            let expected = MissingPermission {
                user: Some(user.to_owned()),
                verb,
                namespace: namespace.map(str::to_owned),
                rule: Rule::new(group, resource, [verb]),
            };
            assert_eq!(MissingPermission::of(&forbidden(message)), Some(expected));
        }
    }

    #[test]
    fn forbidden_response_without_missing_rule_is_not_a_denial() {
        for message in [
            r#"pods "a" is forbidden: exceeded quota: q, requested: pods=1, used: pods=1, limited: pods=1"#,
            r#"pods "a" is forbidden: unable to create new content in namespace web because it is being terminated"#,
            r#"forbidden: User "me" cannot get path "/healthz""#,
            r#"x is forbidden: User "me" cannot dance resource "pods" in API group "" at the cluster scope"#,
            r#"x is forbidden: User "me"#,
            r#"x is forbidden: User "m\x41e" cannot get resource "pods" in API group "" at the cluster scope"#,
            "denied by a webhook",
            "",
        ] {
            assert_eq!(MissingPermission::of(&forbidden(message)), None, "{message}");
        }
        let mut conflict = forbidden(POD);
        conflict.code = 409;
        assert_eq!(MissingPermission::of(&conflict), None);
    }

    #[derive(Debug, thiserror::Error)]
    #[error("creating a pod")]
    struct Wrapped(#[source] kube::Error);

    #[test]
    fn missing_permission_is_found_below_any_wrapping() {
        let error = Wrapped(kube::Error::Api(Box::new(forbidden(POD))));
        assert_eq!(missing_permission(&error).map(|it| it.verb), Some(Verb::Create));
        let raw = RequestError::from_status(forbidden(POD), None);
        assert_eq!(missing_permission(&raw).map(|it| it.rule), Some(Rule::new("", "pods", [Verb::Create])));
        let both = BoxError::from(format!("[can't recheck DeletionTimestamp: {POD}, and something else]"));
        assert_eq!(missing_permission(both.as_ref()).and_then(|it| it.namespace), Some("web".to_owned()));
        let itself = missing_permission(&raw).unwrap();
        assert_eq!(missing_permission(&itself), Some(itself.clone()));
        assert_eq!(missing_permission(&Wrapped(kube::Error::LinesCodecMaxLineLengthExceeded)), None);
        assert_eq!(missing_permission(BoxError::from("something else").as_ref()), None);
        let mut conflict = forbidden(POD);
        conflict.code = 409;
        assert_eq!(
            missing_permission(&kube::Error::Api(Box::new(conflict))),
            None,
            "a server response is not parsed as text"
        );
    }
}
