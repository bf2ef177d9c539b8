//! The work of the Endpoints controller.

use anyhow::{Context as _, Result};
use k8s_openapi::api::core::v1::Endpoints;
use kube::ResourceExt;
use kube::api::PostParams;
use serde_json::json;
use windlass_black_box::fixtures;
use windlass_black_box::test_namespace::TestNamespace;
use windlass_black_box::wait::eventually;
use windlass_harness::ControlPlane;

use super::{has_repeated_event, object};

/// Endpoints that a policy rejects, so that the controller records an Event again and again.
const REJECTED: &str = "rejected";

/// Creates a Service without Endpoints, Endpoints that differ, Endpoints without Service, and a Service whose Endpoints
/// the policy rejects.
pub(super) async fn prepare(namespace: &TestNamespace) -> Result<()> {
    for name in ["new", "outdated", REJECTED] {
        namespace.create(&fixtures::service(name, &[80])).await?;
    }
    let subsets = json!([{ "addresses": [{ "ip": "10.1.2.3" }], "ports": [{ "port": 80 }] }]);
    for name in ["outdated", "left"] {
        namespace.create(&object::<Endpoints>(name, json!({ "subsets": subsets }))?).await?;
    }
    Ok(())
}

pub(super) async fn are_done(namespace: &TestNamespace) -> Result<bool> {
    let endpoints = namespace.list::<Endpoints>().await?;
    let names: Vec<_> = endpoints.iter().map(ResourceExt::name_any).collect();
    let is_updated = |endpoints: &Endpoints| endpoints.subsets.as_ref().is_none_or(Vec::is_empty);
    Ok(names == ["new", "outdated"]
        && endpoints.iter().all(is_updated)
        && has_repeated_event(namespace).await?)
}

/// Rejects the creation of Endpoints with one name.
pub(super) async fn reject_creation(plane: &ControlPlane) -> Result<()> {
    let rule = json!({ "apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["endpoints"] });
    let validation = json!({ "expression": format!("object.metadata.name != '{REJECTED}'") });
    let spec = json!({ "matchConstraints": { "resourceRules": [rule] }, "validations": [validation] });
    let group = "admissionregistration.k8s.io/v1";
    let metadata = json!({ "name": REJECTED });
    let policy = json!({ "apiVersion": group, "kind": "ValidatingAdmissionPolicy", "metadata": metadata, "spec": spec });
    let spec = json!({ "policyName": REJECTED, "validationActions": ["Deny"] });
    let binding = json!({ "apiVersion": group, "kind": "ValidatingAdmissionPolicyBinding", "metadata": metadata, "spec": spec });
    let file = tempfile::NamedTempFile::new()?;
    let list = json!({ "apiVersion": "v1", "kind": "List", "items": [policy, binding] });
    std::fs::write(file.path(), list.to_string())?;
    let path = file.path().to_str().context("the temporary folder is not UTF-8")?;
    plane.kubectl(&["create", "-f", path]).await?;
    let namespace =
        TestNamespace { client: plane.client().await, namespace: plane.namespace("policy").await? };
    let dry_run = PostParams { dry_run: true, ..PostParams::default() };
    let endpoints = object::<Endpoints>(REJECTED, json!({}))?;
    let rejected = async || Ok(namespace.api::<Endpoints>().create(&dry_run, &endpoints).await.is_err());
    eventually("the policy is in effect", rejected, |rejected| *rejected).await.map(drop)
}
