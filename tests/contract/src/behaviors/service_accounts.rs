//! Admission of pods by their ServiceAccount, by servers with upstream's plugin `ServiceAccount`.

use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};

use crate::{Behavior, Case, Outcome, behaviors, has, same};

pub(super) const ALL: &[Behavior] = behaviors![
    pod_of_missing_account_is_forbidden,
    pod_without_account_name_gets_the_default_account,
    containers_get_a_volume_with_a_token,
    container_with_own_volume_at_the_path_keeps_it,
    volume_with_a_token_is_used_again,
    account_or_pod_can_refuse_the_token,
    pod_gets_pull_secrets_of_its_account,
    mirror_pod_has_neither_account_nor_secrets,
    account_can_limit_secrets_of_its_pods,
];

const MOUNT_PATH: &str = "/var/run/secrets/kubernetes.io/serviceaccount";

fn pod(name: &str, mut spec: Value) -> Value {
    if spec["containers"].is_null() {
        spec["containers"] = json!([{ "name": "main", "image": "image" }]);
    }
    json!({ "metadata": { "name": name }, "spec": spec })
}

/// Creates an account with these fields.
async fn account(case: &Case, name: &str, mut fields: Value) -> Result<Value> {
    fields["metadata"]["name"] = json!(name);
    case.make("serviceaccounts", fields).await
}

/// Returns the name of the volume with the token.
fn token_volume(pod: &Value) -> Result<String> {
    let volumes = pod["spec"]["volumes"].as_array().context("no volumes")?;
    let names = volumes.iter().filter_map(|volume| volume["name"].as_str());
    let mut tokens = names.filter(|name| name.starts_with("kube-api-access-"));
    let name = tokens.next().context("no volume with a token")?;
    ensure!(tokens.next().is_none() && name.len() == "kube-api-access-".len() + 5, "{volumes:?}");
    Ok(name.to_owned())
}

async fn pod_of_missing_account_is_forbidden(case: Case) -> Outcome {
    let answer = case.post("pods", pod("a", json!({ "serviceAccountName": "web" }))).await?;
    let why = format!("error looking up service account {}/web", case.namespace);
    let message = format!("pods \"a\" is forbidden: {why}: serviceaccount \"web\" not found");
    answer.expect_rejected(403, "Forbidden", &message)?;
    let unnamed = case.post("pods", pod("a", json!({}))).await?;
    unnamed.expect_rejected_containing(403, "Forbidden", "serviceaccount \"default\" not found")?;
    Ok(())
}

async fn pod_without_account_name_gets_the_default_account(case: Case) -> Outcome {
    account(&case, "default", json!({})).await?;
    let made = case.make("pods", pod("a", json!({}))).await?;
    has!(made["spec"], { "serviceAccountName": "default", "serviceAccount": "default" });
    Ok(())
}

async fn containers_get_a_volume_with_a_token(case: Case) -> Outcome {
    account(&case, "default", json!({})).await?;
    let containers = json!({
        "initContainers": [{ "name": "first", "image": "image" }],
        "containers": [
            { "name": "main", "image": "image", "volumeMounts": [{ "name": "data", "mountPath": "/data" }] },
            { "name": "other", "image": "image" },
        ],
        "volumes": [{ "name": "data", "emptyDir": {} }],
    });
    let made = case.make("pods", pod("a", containers)).await?;
    let volume = token_volume(&made)?;
    let mount = json!({ "name": volume, "mountPath": MOUNT_PATH, "readOnly": true });
    let data = json!({ "name": "data", "mountPath": "/data" });
    same!(made["spec"]["initContainers"][0]["volumeMounts"], json!([mount]));
    same!(made["spec"]["containers"][0]["volumeMounts"], json!([data, mount]));
    same!(made["spec"]["containers"][1]["volumeMounts"], json!([mount]));
    let namespace = json!({ "apiVersion": "v1", "fieldPath": "metadata.namespace" });
    let sources = json!([
        { "serviceAccountToken": { "expirationSeconds": 3607, "path": "token" } },
        { "configMap": { "name": "kube-root-ca.crt", "items": [{ "key": "ca.crt", "path": "ca.crt" }] } },
        { "downwardAPI": { "items": [{ "path": "namespace", "fieldRef": namespace }] } },
    ]);
    let expected = json!({ "name": volume, "projected": { "defaultMode": 420, "sources": sources } });
    same!(made["spec"]["volumes"][1], expected);
    Ok(())
}

async fn container_with_own_volume_at_the_path_keeps_it(case: Case) -> Outcome {
    account(&case, "default", json!({})).await?;
    let mounts = json!([{ "name": "own", "mountPath": MOUNT_PATH }]);
    let container = json!({ "name": "main", "image": "image", "volumeMounts": mounts });
    let volumes = json!([{ "name": "own", "emptyDir": {} }]);
    let spec = json!({ "containers": [container], "volumes": volumes });
    let made = case.make("pods", pod("a", spec)).await?;
    same!(made["spec"]["containers"][0]["volumeMounts"], mounts);
    same!(made["spec"]["volumes"].as_array().map(Vec::len), Some(1));
    Ok(())
}

async fn volume_with_a_token_is_used_again(case: Case) -> Outcome {
    account(&case, "default", json!({})).await?;
    let made = case
        .make("pods", pod("a", json!({ "volumes": [{ "name": "kube-api-access-own00", "emptyDir": {} }] })))
        .await?;
    same!(token_volume(&made)?, "kube-api-access-own00");
    same!(made["spec"]["containers"][0]["volumeMounts"][0]["name"], "kube-api-access-own00");
    Ok(())
}

async fn account_or_pod_can_refuse_the_token(case: Case) -> Outcome {
    account(&case, "default", json!({ "automountServiceAccountToken": false })).await?;
    let made = case.make("pods", pod("a", json!({}))).await?;
    same!(made["spec"]["volumes"], Value::Null);
    let made = case.make("pods", pod("b", json!({ "automountServiceAccountToken": true }))).await?;
    token_volume(&made)?;
    account(&case, "mounts", json!({})).await?;
    let refuses = json!({ "serviceAccountName": "mounts", "automountServiceAccountToken": false });
    let made = case.make("pods", pod("c", refuses)).await?;
    same!(made["spec"]["volumes"], Value::Null);
    Ok(())
}

async fn pod_gets_pull_secrets_of_its_account(case: Case) -> Outcome {
    let secrets = json!([{ "name": "first" }, { "name": "second" }]);
    account(&case, "default", json!({ "imagePullSecrets": secrets })).await?;
    let made = case.make("pods", pod("a", json!({}))).await?;
    same!(made["spec"]["imagePullSecrets"], secrets);
    let own = json!([{ "name": "own" }]);
    let made = case.make("pods", pod("b", json!({ "imagePullSecrets": own }))).await?;
    same!(made["spec"]["imagePullSecrets"], own);
    Ok(())
}

async fn mirror_pod_has_neither_account_nor_secrets(case: Case) -> Outcome {
    let reject = async |spec: Value, why: &str| {
        let mut wanted = pod("a", spec);
        wanted["metadata"]["annotations"] = json!({ "kubernetes.io/config.mirror": "hash" });
        let message = format!("pods \"a\" is forbidden: {why}");
        case.post("pods", wanted).await?.expect_rejected(403, "Forbidden", &message).map(drop)
    };
    reject(json!({ "serviceAccountName": "x" }), "a mirror pod may not reference service accounts").await?;
    let volume =
        |source: Value| json!({ "volumes": [{ "name": "v", "projected": { "sources": [source] } }] });
    let secret = volume(json!({ "secret": { "name": "x" } }));
    reject(secret, "a mirror pod may not reference secrets").await?;
    let variable = json!({ "name": "V", "valueFrom": { "secretKeyRef": { "name": "x", "key": "y" } } });
    let container = json!({ "name": "main", "image": "image", "env": [variable] });
    reject(json!({ "containers": [container] }), "a mirror pod may not reference secrets").await?;
    let token = volume(json!({ "serviceAccountToken": { "path": "token" } }));
    reject(token, "a mirror pod may not use ServiceAccountToken volume projections").await
}

async fn account_can_limit_secrets_of_its_pods(case: Case) -> Outcome {
    let annotations = json!({ "kubernetes.io/enforce-mountable-secrets": "true" });
    let fields = json!({
        "metadata": { "annotations": annotations },
        "automountServiceAccountToken": false,
        "secrets": [{ "name": "own" }],
        "imagePullSecrets": [{ "name": "pull" }],
    });
    account(&case, "default", fields).await?;
    let reference = |secret: &str| {
        let from = json!({ "secretKeyRef": { "name": secret, "key": "k" } });
        json!({
            "containers": [{ "name": "main", "image": "image", "env": [{ "name": "V", "valueFrom": from }] }],
            "volumes": [{ "name": "v", "secret": { "secretName": secret } }],
        })
    };
    case.make("pods", pod("a", reference("own"))).await?;
    let of_account = "is not allowed because service account default does not reference that";
    let reject = async |spec: Value, why: String| {
        let message = format!("pods \"b\" is forbidden: {why}");
        case.post("pods", pod("b", spec)).await?.expect_rejected(403, "Forbidden", &message).map(drop)
    };
    let volume = format!("volume with secret.secretName=\"other\" {of_account} secret");
    reject(reference("other"), volume).await?;
    let mut variable = reference("other");
    variable["volumes"] = json!([]);
    let why = "container main with envVar V referencing secret.secretName=\"other\"";
    reject(variable, format!("{why} {of_account} secret")).await?;
    let container =
        json!({ "name": "first", "image": "image", "envFrom": [{ "secretRef": { "name": "other" } }] });
    let why = "init container first with envFrom referencing secret.secretName=\"other\"";
    reject(json!({ "initContainers": [container] }), format!("{why} {of_account} secret")).await?;
    let pull = format!("imagePullSecrets[0].name=\"other\" {of_account} imagePullSecret");
    reject(json!({ "imagePullSecrets": [{ "name": "other" }] }), pull).await
}
