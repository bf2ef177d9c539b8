//! The static description of a webhook, from which its configuration follows.

use k8s_openapi::api::admissionregistration::v1::{MatchCondition, RuleWithOperations, ValidatingWebhook};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use windlass_controller::SetupError;
use windlass_controller::host::AdmissionDeclaration;
use windlass_object::names::is_dns_subdomain;
use windlass_object::{ResourceKind, Scope};

/// Time limit of a call, in seconds. Half of the API server's default: a write waits for all of its webhooks.
const TIMEOUT: u8 = 5;

/// The longest time limit that the API server accepts, in seconds.
const LONGEST: u8 = 30;

/// The operation of a request.
#[derive(Copy, Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Operation {
    /// Creates an object.
    Create,
    /// Replaces or patches an object.
    Update,
    /// Deletes an object. The review has the old object only.
    Delete,
    /// Connects to a subresource, such as `pods/exec`. The object is a kind of options.
    Connect,
}

impl Operation {
    /// Returns the name in the API: `CREATE`.
    pub const fn as_str(self) -> &'static str {
        match self {
            Operation::Create => "CREATE",
            Operation::Update => "UPDATE",
            Operation::Delete => "DELETE",
            Operation::Connect => "CONNECT",
        }
    }

    pub(crate) fn parse(name: &str) -> Option<Self> {
        [Self::Create, Self::Update, Self::Delete, Self::Connect].into_iter().find(|it| it.as_str() == name)
    }
}

/// The handling of requests while the webhook does not respond.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum FailurePolicy {
    /// The API server rejects the request.
    Fail,
    /// The API server admits the request without the webhook.
    Ignore,
}

/// The effects of a webhook outside of its response.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum SideEffects {
    /// No effects. The setup fails if the webhook declares a write.
    None,
    /// Effects, but none in a dry run: requests of [`Review::client`](crate::Review::client) and writes with the review
    /// as caller are then dry runs as well.
    NoneOnDryRun,
}

/// The static description of an admission webhook. Built in a constant:
///
/// ```
/// # use windlass_webhook::{FailurePolicy, Hook, Operation};
/// const HOOK: Hook = Hook::new("pods.policy.example.com")
///     .on(&[Operation::Create])
///     .failure(FailurePolicy::Ignore)
///     .timeout_seconds(2);
/// ```
#[derive(Copy, Clone, Debug)]
pub struct Hook {
    pub(crate) name: &'static str,
    operations: &'static [Operation],
    failure: Option<FailurePolicy>,
    timeout_seconds: u8,
    pub(crate) side_effects: SideEffects,
    subresource: Option<&'static str>,
    namespaces: Option<fn() -> LabelSelector>,
    objects: Option<fn() -> LabelSelector>,
    conditions: &'static [(&'static str, &'static str)],
}

impl Hook {
    /// Creates a description with this name: a domain with at least three segments, unique in the process. Defaults: on
    /// create and update, a time limit of 5 s, no side effects, objects in all namespaces.
    pub const fn new(name: &'static str) -> Self {
        Self {
            name,
            operations: &[Operation::Create, Operation::Update],
            failure: None,
            timeout_seconds: TIMEOUT,
            side_effects: SideEffects::None,
            subresource: None,
            namespaces: None,
            objects: None,
            conditions: &[],
        }
    }

    /// Sets the operations.
    pub const fn on(self, operations: &'static [Operation]) -> Self {
        Self { operations, ..self }
    }

    /// Sets the failure policy. It defaults to [`FailurePolicy::Fail`] for kinds whose CRD the program ships. For other
    /// kinds it must be set, and the webhook skips `kube-system` and the namespace of the process, unless
    /// [`namespaces`](Self::namespaces) selects namespaces: otherwise a failing webhook on Pods could prevent its own
    /// recovery.
    pub const fn failure(self, policy: FailurePolicy) -> Self {
        Self { failure: Some(policy), ..self }
    }

    /// Sets the time limit of a call, in seconds, from 1 to 30.
    pub const fn timeout_seconds(self, timeout_seconds: u8) -> Self {
        Self { timeout_seconds, ..self }
    }

    /// Declares the effects of the webhook.
    pub const fn side_effects(self, side_effects: SideEffects) -> Self {
        Self { side_effects, ..self }
    }

    /// Selects requests for a subresource, such as `scale`, instead of the object. The type of the webhook must be the
    /// kind of the subresource's object; the rule has the group and resource of that type.
    pub const fn subresource(self, subresource: &'static str) -> Self {
        Self { subresource: Some(subresource), ..self }
    }

    /// Selects objects by the labels of their namespace.
    pub const fn namespaces(self, selector: fn() -> LabelSelector) -> Self {
        Self { namespaces: Some(selector), ..self }
    }

    /// Selects objects by their labels. Users who set labels can avoid the webhook.
    pub const fn objects(self, selector: fn() -> LabelSelector) -> Self {
        Self { objects: Some(selector), ..self }
    }

    /// Adds conditions in CEL, as names and expressions, which the API server evaluates before it calls the webhook.
    pub const fn when_cel(self, conditions: &'static [(&'static str, &'static str)]) -> Self {
        Self { conditions, ..self }
    }

    pub(crate) fn operations(&self) -> &'static [Operation] {
        self.operations
    }

    /// Returns the path of the webhook on the server.
    pub(crate) fn path(&self) -> String {
        format!("/admission/{}", self.name)
    }

    /// Returns an error if the API server would reject the description.
    pub(crate) fn check(&self) -> Result<(), SetupError> {
        let fault = match self {
            _ if !is_domain(self.name) => {
                "its name must be a domain with at least three segments, such as \
                                           sites.example.com"
            }
            _ if self.operations.is_empty() => "it has no operations; pass at least one to Hook::on",
            _ if self.timeout_seconds == 0 || self.timeout_seconds > LONGEST => {
                "its time limit must be between 1 and 30 seconds"
            }
            _ => return Ok(()),
        };
        Err(SetupError::invalid(format!("cannot declare webhook {:?}: {fault}", self.name)))
    }

    /// Returns the declaration of a webhook on objects of this kind.
    pub(crate) fn declaration(&self, kind: &ResourceKind, is_mutating: bool) -> AdmissionDeclaration {
        let resource = match self.subresource {
            Some(subresource) => format!("{}/{subresource}", kind.plural),
            None => kind.plural.to_string(),
        };
        let scope = match kind.scope {
            Scope::Namespaced => "Namespaced",
            Scope::Cluster => "Cluster",
        };
        let rule = RuleWithOperations {
            api_groups: Some(vec![kind.group.to_string()]),
            api_versions: Some(vec![kind.version.to_string()]),
            operations: Some(self.operations.iter().map(|it| it.as_str().to_owned()).collect()),
            resources: Some(vec![resource]),
            scope: Some(scope.to_owned()),
        };
        let condition = |(name, expression): &(&str, &str)| MatchCondition {
            name: (*name).to_owned(),
            expression: (*expression).to_owned(),
        };
        let conditions: Vec<_> = self.conditions.iter().map(condition).collect();
        let webhook = ValidatingWebhook {
            admission_review_versions: vec!["v1".to_owned()],
            failure_policy: self.failure.map(|policy| format!("{policy:?}")),
            match_conditions: (!conditions.is_empty()).then_some(conditions),
            // The API server converts objects of other versions to the version of the type.
            match_policy: Some("Equivalent".to_owned()),
            name: self.name.to_owned(),
            namespace_selector: self.namespaces.map(|selector| selector()),
            object_selector: self.objects.map(|selector| selector()),
            rules: Some(vec![rule]),
            side_effects: format!("{:?}", self.side_effects),
            timeout_seconds: Some(self.timeout_seconds.into()),
            ..ValidatingWebhook::default()
        };
        AdmissionDeclaration { is_mutating, path: self.path(), webhook }
    }
}

/// Returns whether a name is a domain of at least three valid labels.
fn is_domain(name: &str) -> bool {
    name.split('.').count() >= 3 && is_dns_subdomain(name)
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::{Node, Pod};

    use super::*;

    #[test]
    fn declaration_contains_rule_of_kind_and_defaults() {
        let declared = Hook::new("pods.example.com").declaration(&ResourceKind::of::<Pod>(), false);
        let rule = &declared.webhook.rules.as_ref().expect("rules")[0];
        assert_eq!(rule.resources.as_deref(), Some(&["pods".to_owned()][..]));
        assert_eq!(rule.operations.as_deref(), Some(&["CREATE".to_owned(), "UPDATE".to_owned()][..]));
        assert_eq!(rule.scope.as_deref(), Some("Namespaced"));
        assert_eq!((declared.path.as_str(), declared.is_mutating), ("/admission/pods.example.com", false));
        let webhook = declared.webhook;
        assert_eq!((webhook.timeout_seconds, webhook.side_effects.as_str()), (Some(5), "None"));
        assert_eq!((webhook.failure_policy, webhook.namespace_selector), (None, None));
    }

    #[test]
    fn declaration_contains_every_setting() {
        let hook = Hook::new("nodes.example.com")
            .on(&[Operation::Delete])
            .failure(FailurePolicy::Ignore)
            .timeout_seconds(30)
            .side_effects(SideEffects::NoneOnDryRun)
            .subresource("status")
            .namespaces(LabelSelector::default)
            .when_cel(&[("named", "object.metadata.name != ''")]);
        let webhook = hook.declaration(&ResourceKind::of::<Node>(), true).webhook;
        let rule = &webhook.rules.as_ref().expect("rules")[0];
        assert_eq!(rule.resources.as_deref(), Some(&["nodes/status".to_owned()][..]));
        assert_eq!(rule.operations.as_deref(), Some(&["DELETE".to_owned()][..]));
        assert_eq!(rule.scope.as_deref(), Some("Cluster"));
        assert_eq!(webhook.failure_policy.as_deref(), Some("Ignore"));
        assert_eq!((webhook.timeout_seconds, webhook.side_effects.as_str()), (Some(30), "NoneOnDryRun"));
        assert_eq!(webhook.namespace_selector, Some(LabelSelector::default()));
        assert_eq!(webhook.match_conditions.expect("one")[0].name, "named");
    }

    #[test]
    fn description_that_server_rejects_fails_check() {
        assert!(Hook::new("sites.example.com").check().is_ok());
        for wrong in [
            Hook::new("sites"),
            Hook::new("sites.example"),
            Hook::new("Sites.example.com"),
            Hook::new("-s.example.com"),
            Hook::new("sites.example.com").on(&[]),
            Hook::new("sites.example.com").timeout_seconds(0),
            Hook::new("sites.example.com").timeout_seconds(31),
        ] {
            assert!(wrong.check().is_err(), "{wrong:?}");
        }
    }
}
