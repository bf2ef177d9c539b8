//! Configurations and functions of webhooks that the behaviors share.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Result, ensure};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use crate::behaviors::objects::lease;
use crate::webhooks::Reply;
use crate::{Case, TestResponse};

/// Path of the configurations.
const CONFIGURATIONS: &str = "/apis/admissionregistration.k8s.io/v1";

/// Timeout until a real server applies a configuration.
const ACTIVE: Duration = Duration::from_secs(40);

/// The requests that a webhook has received.
#[derive(Clone, Default)]
pub(super) struct Requests(Arc<Mutex<Vec<Value>>>);

impl Requests {
    /// Returns all requests.
    pub(super) fn all(&self) -> Vec<Value> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Returns the last request.
    pub(super) fn last(&self) -> Result<Value> {
        self.all().pop().ok_or_else(|| anyhow::anyhow!("the webhook was not called"))
    }
}

/// The type of a configuration.
#[derive(Clone, Copy)]
pub(super) enum Type {
    Mutating,
    Validating,
}

impl Type {
    /// Returns the path of the configurations.
    pub(super) fn path(self) -> String {
        let plural = match self {
            Type::Mutating => "mutatingwebhookconfigurations",
            Type::Validating => "validatingwebhookconfigurations",
        };
        format!("{CONFIGURATIONS}/{plural}")
    }
}

/// Adds a function that the server can call, and returns its client configuration and the requests that it receives.
pub(super) fn serve(
    case: &Case,
    name: &str,
    reply: impl Fn(&Value) -> Reply + Send + Sync + 'static,
) -> (Value, Requests) {
    let requests = Requests::default();
    let record = requests.0.clone();
    let path = format!("/{}/{name}", case.namespace);
    let client = case.server.webhooks().add(&path, move |review| {
        record.lock().unwrap_or_else(PoisonError::into_inner).push(review["request"].clone());
        reply(&review["request"])
    });
    (client, requests)
}

/// Returns a reply that admits.
pub(super) fn allowed(_: &Value) -> Reply {
    Reply::Response(json!({ "allowed": true }))
}

/// Returns a reply that denies with a message.
pub(super) fn denied(message: &str) -> Reply {
    let status = json!({ "code": 403, "reason": "Forbidden", "message": message });
    Reply::Response(json!({ "allowed": false, "status": status }))
}

/// Returns a reply that changes the object.
pub(super) fn patched(operations: Value) -> Reply {
    let patch = STANDARD.encode(operations.to_string());
    Reply::Response(json!({ "allowed": true, "patchType": "JSONPatch", "patch": patch }))
}

/// Returns the full name of a webhook.
pub(super) fn name_of(case: &Case, name: &str) -> String {
    format!("{name}.{}.example.com", case.namespace)
}

/// Returns the upstream message for a denial.
pub(super) fn denial(case: &Case, name: &str, message: &str) -> String {
    format!("admission webhook {:?} denied the request: {message}", name_of(case, name))
}

/// Returns the description of a webhook for creations and updates of ConfigMaps in the namespace of the case.
pub(super) fn webhook(case: &Case, name: &str, client: &Value) -> Value {
    json!({
        "name": name_of(case, name), "clientConfig": client, "sideEffects": "None",
        "admissionReviewVersions": ["v1"],
        "rules": [rule("", "v1", &["configmaps"], &["CREATE", "UPDATE"])],
        "namespaceSelector": { "matchLabels": { "kubernetes.io/metadata.name": case.namespace } },
    })
}

/// Returns a rule.
pub(super) fn rule(group: &str, version: &str, resources: &[&str], operations: &[&str]) -> Value {
    json!({
        "apiGroups": [group], "apiVersions": [version], "resources": resources, "operations": operations,
    })
}

/// Returns an empty configuration.
pub(super) fn configuration(name: &str, webhooks: Value) -> Value {
    json!({ "metadata": { "name": name }, "webhooks": webhooks })
}

/// Creates a configuration, and waits until the server applies it. Returns its name.
pub(super) async fn install(case: &Case, of_type: Type, prefix: &str, webhooks: &[Value]) -> Result<String> {
    let name = case.unique(prefix);
    let marker = format!("{prefix} is active");
    let (client, _) = serve(case, &format!("{prefix}-probe"), {
        let (marker, name) = (marker.clone(), format!("probe-{prefix}"));
        move |request| if request["name"] == name.as_str() { denied(&marker) } else { allowed(request) }
    });
    let mut probe = webhook(case, &format!("probe-{prefix}"), &client);
    probe["rules"] = json!([rule("coordination.k8s.io", "v1", &["leases"], &["CREATE"])]);
    let all: Vec<Value> = webhooks.iter().cloned().chain([probe]).collect();
    case.make(&of_type.path(), configuration(&name, json!(all))).await?;
    let is_active = async {
        loop {
            let probe = lease(&format!("probe-{prefix}"));
            let answer = case.post("coordination.k8s.io/v1 leases?dryRun=All", probe).await?;
            if message(&answer).contains(&marker) {
                return anyhow::Ok(());
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    };
    let waited = tokio::time::timeout(ACTIVE, is_active).await;
    ensure!(waited.is_ok(), "the configuration {name} did not become active");
    waited??;
    Ok(name)
}

/// Deletes a configuration.
pub(super) async fn remove(case: &Case, of_type: Type, name: &str) -> Result<()> {
    case.delete(&format!("{}/{name}", of_type.path())).await?.is(200)?;
    Ok(())
}

/// Returns the message of a response.
pub(super) fn message(answer: &TestResponse) -> &str {
    answer.body["message"].as_str().unwrap_or_default()
}
