//! The printed roles: their permissions, and their creation for one case.

use anyhow::{Context as _, Result, bail, ensure};
use k8s_openapi::api::rbac::v1::{ClusterRole, ClusterRoleBinding, PolicyRule, Role, RoleBinding};
use kube::Api;
use kube::api::PostParams;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use windlass_black_box::wait::eventually;
use windlass_harness::{ControlPlane, ManagerProcess};

use super::RoleOwner;
use crate::rights::may;

/// The namespace in the printed roles, which each case replaces.
const PLACEHOLDER: &str = "namespace-of-case";

/// The objects that `windlass manifests rbac --per-controller` prints for one controller.
pub(super) struct Manifests(Vec<Value>);

/// One verb of a role.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Permission {
    /// The namespace of the role, or [`PLACEHOLDER`]; `None` for a ClusterRole.
    namespace: Option<String>,
    group: String,
    resource: String,
    verb: String,
}

impl Manifests {
    /// Prints the manifests of a controller.
    pub(super) async fn print(controller: RoleOwner) -> Result<Self> {
        let namespace = format!("--namespace={PLACEHOLDER}");
        let mut words = vec!["manifests", "rbac", "--per-controller", "--secure-port=0", &namespace];
        let arguments = controller.arguments(PLACEHOLDER);
        words.extend(arguments.iter().map(String::as_str));
        let output = ManagerProcess::command(&words).await?;
        ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let yaml = String::from_utf8(output.stdout)?;
        let documents = yaml.split("---\n").filter(|document| !document.trim().is_empty());
        let objects: Result<_> = documents.map(|document| Ok(serde_saphyr::from_str(document)?)).collect();
        Ok(Self(objects?))
    }

    /// Returns the permissions of all roles.
    pub(super) fn permissions(&self) -> Result<Vec<Permission>> {
        let roles: Result<Vec<_>> = self.0.iter().map(permissions).collect();
        Ok(roles?.concat())
    }

    /// Creates the roles and bindings for `user` in `namespace`, without the missing permission, and waits until they
    /// are in effect.
    pub(super) async fn grant(
        &self,
        plane: &ControlPlane,
        namespace: &str,
        user: &str,
        missing: Option<&Permission>,
    ) -> Result<()> {
        let mut expected = Vec::new();
        for printed in self.0.iter().filter(|object| object["kind"] != "ServiceAccount") {
            let mut object = printed.clone();
            let granted: Vec<_> =
                permissions(printed)?.into_iter().filter(|it| Some(it) != missing).collect();
            if object.get("rules").is_some() {
                object["rules"] = json!(granted.iter().map(Permission::rule).collect::<Vec<_>>());
                expected.push(granted.into_iter().next().context("a role is empty")?);
            }
            create(plane, for_case(object, namespace)?).await?;
        }
        for permission in &expected {
            let allowed = || may(plane, user, permission.attributes(namespace));
            eventually("the role is in effect", allowed, |allowed| *allowed).await?;
        }
        Ok(())
    }
}

/// Returns the permissions of a role; empty for other objects.
fn permissions(object: &Value) -> Result<Vec<Permission>> {
    let namespace = object["metadata"]["namespace"].as_str().map(str::to_owned);
    let rules = object.get("rules").cloned().unwrap_or_else(|| json!([]));
    let rules: Vec<PolicyRule> = serde_json::from_value(rules)?;
    let mut permissions = Vec::new();
    for rule in &rules {
        for group in rule.api_groups.iter().flatten() {
            for resource in rule.resources.iter().flatten() {
                for verb in &rule.verbs {
                    let (group, resource, verb) = (group.clone(), resource.clone(), verb.clone());
                    let namespace = namespace.clone();
                    permissions.push(Permission { namespace, group, resource, verb });
                }
            }
        }
    }
    Ok(permissions)
}

/// Returns a printed object for the namespace of a case. Its name is unique, because ClusterRoles and the roles in
/// other namespaces of all cases exist at the same time.
fn for_case(object: Value, namespace: &str) -> Result<Value> {
    let mut object: Value = serde_json::from_str(&object.to_string().replace(PLACEHOLDER, namespace))?;
    for pointer in ["/metadata/name", "/roleRef/name"] {
        if let Some(Value::String(name)) = object.pointer_mut(pointer) {
            name.push(':');
            name.push_str(namespace);
        }
    }
    Ok(object)
}

async fn create(plane: &ControlPlane, object: Value) -> Result<()> {
    let client = plane.client().await;
    let namespace = object["metadata"]["namespace"].as_str().unwrap_or_default().to_owned();
    match object["kind"].as_str() {
        Some("Role") => create_in::<Role>(Api::namespaced(client, &namespace), object).await,
        Some("RoleBinding") => create_in::<RoleBinding>(Api::namespaced(client, &namespace), object).await,
        Some("ClusterRole") => create_in::<ClusterRole>(Api::all(client), object).await,
        Some("ClusterRoleBinding") => create_in::<ClusterRoleBinding>(Api::all(client), object).await,
        other => bail!("the printed roles contain a {other:?}"),
    }
}

async fn create_in<K>(api: Api<K>, object: Value) -> Result<()>
where
    K: Clone + std::fmt::Debug + Serialize + DeserializeOwned,
{
    api.create(&PostParams::default(), &serde_json::from_value(object)?).await?;
    Ok(())
}

impl Permission {
    /// Returns whether the permission is for this verb and resource.
    pub(super) fn is_to(&self, verb: &str, resource: &str) -> bool {
        self.verb == verb && self.resource == resource
    }

    /// Returns the group, the resource and the verb.
    pub(super) fn parts(&self) -> (&str, &str, &str) {
        (&self.group, &self.resource, &self.verb)
    }

    /// Returns whether the resource is a subresource with this name.
    pub(super) fn is_for_subresource(&self, name: &str) -> bool {
        self.resource.split_once('/').is_some_and(|(_, subresource)| subresource == name)
    }

    /// Returns whether the permission is for Events about cluster-scoped objects.
    pub(super) fn is_for_cluster_events(&self) -> bool {
        self.namespace.as_deref() == Some("default") && self.resource == "events"
    }

    fn rule(&self) -> PolicyRule {
        PolicyRule {
            api_groups: Some(vec![self.group.clone()]),
            resources: Some(vec![self.resource.clone()]),
            verbs: vec![self.verb.clone()],
            ..PolicyRule::default()
        }
    }

    fn attributes(&self, case: &str) -> Value {
        let (resource, subresource) = self.resource.split_once('/').unwrap_or((&self.resource, ""));
        let namespace = self.namespace.as_deref().unwrap_or_default().replace(PLACEHOLDER, case);
        json!({ "verb": self.verb, "group": self.group, "resource": resource, "subresource": subresource,
                "namespace": namespace })
    }

    /// Returns whether a line of the log reports that the permission is missing.
    pub(super) fn is_reported(&self, line: &str, user: &str, case: &str) -> bool {
        let Self { namespace, group, resource, verb } = self;
        let dot = if group.is_empty() { "" } else { "." };
        // A cache needs both.
        let verbs = if ["list", "watch"].contains(&verb.as_str()) { "list, watch" } else { verb };
        let denied = format!("{user} cannot {verb} {resource}{dot}{group}");
        let rule = format!(
            "or to a ClusterRole: - {{ apiGroups: [\"{group}\"], resources: [\"{resource}\"], verbs: [{verbs}] }}"
        );
        // Without a namespace in the role, the request can still be for one.
        let role = namespace.as_ref().map(|namespace| {
            let namespace = namespace.replace(PLACEHOLDER, case);
            format!("{denied} in namespace {namespace}; add to a Role in {namespace} {rule}")
        });
        match role {
            Some(role) => line.contains(&role),
            None => line.contains(&denied) && line.contains(rule.trim_start_matches("or to ")),
        }
    }
}
