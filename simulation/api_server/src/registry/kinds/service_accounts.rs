//! Admission of Pods by their ServiceAccount, as by upstream's plugin `ServiceAccount`.
//!
//! A Pod needs an existing account, and gets the account's pull secrets and a volume with a token. A mirror Pod, of a
//! node itself, has neither account nor secrets. An account with the annotation below limits the secrets of its Pods.
//!
//! Not supported: the limit for ephemeral containers, the second check after mutating webhooks, and the wait of up to
//! two seconds for the account `default` of a new namespace.

use serde_json::{Value, json};

use super::super::writer::WriteTransaction;
use super::super::{convert, value};
use crate::status::Status;

const MIRROR: &str = "kubernetes.io/config.mirror";
const LIMITS_SECRETS: &str = "kubernetes.io/enforce-mountable-secrets";
const DEFAULT: &str = "default";

/// Prefix of the name of the volume with the token.
const VOLUME: &str = "kube-api-access-";
const MOUNT_PATH: &str = "/var/run/secrets/kubernetes.io/serviceaccount";
/// An hour, and the seconds by which upstream recognizes its own tokens.
const TOKEN_SECONDS: u32 = 3607;

/// Volumes that name a secret: the field of the volume, and the path of the name in it.
const SECRET_VOLUMES: [(&str, &[&str]); 10] = [
    ("azureFile", &["secretName"]),
    ("cephfs", &["secretRef", "name"]),
    ("cinder", &["secretRef", "name"]),
    ("flexVolume", &["secretRef", "name"]),
    ("rbd", &["secretRef", "name"]),
    ("secret", &["secretName"]),
    ("scaleIO", &["secretRef", "name"]),
    ("iscsi", &["secretRef", "name"]),
    ("storageos", &["secretRef", "name"]),
    ("csi", &["nodePublishSecretRef", "name"]),
];

/// Sets the default account if none is named.
pub(super) fn set_default(pod: &mut Value) {
    if value::text(pod, &["spec", "serviceAccountName"]).is_empty() {
        value::set(pod, &["spec", "serviceAccountName"], DEFAULT);
        value::set(pod, &["spec", "serviceAccount"], DEFAULT);
    }
}

/// Admits a new Pod.
///
/// # Errors
/// The reason for which the Pod is forbidden.
pub(super) fn admit(transaction: &mut WriteTransaction<'_>, pod: &mut Value) -> Result<(), Refusal> {
    if value::has(pod, &["metadata", "annotations", MIRROR]) {
        return admit_mirror(pod).map_err(Refusal::Forbidden);
    }
    set_default(pod);
    // Always drawn, so that a write that starts again draws the same values whatever has changed.
    let volume = transaction.generated_name(VOLUME);
    let (namespace, name) = [["metadata", "namespace"], ["spec", "serviceAccountName"]]
        .map(|path| value::text(pod, &path).to_owned())
        .into();
    let accounts = convert::collection(&*transaction.built_in("", "v1", "serviceaccounts")?);
    let Some(account) = transaction.find(&accounts, &namespace, &name) else {
        let why =
            format!("error looking up service account {namespace}/{name}: serviceaccount {name:?} not found");
        return Err(Refusal::Forbidden(why));
    };
    let account = &account.value;
    let own = value::at(pod, &["spec", "automountServiceAccountToken"]).as_bool();
    if own.or(value::at(account, &["automountServiceAccountToken"]).as_bool()).unwrap_or(true) {
        mount_token(pod, volume);
    }
    if value::is_empty(pod, &["spec", "imagePullSecrets"]) && !value::is_empty(account, &["imagePullSecrets"])
    {
        let names = value::items(account, &["imagePullSecrets"]).iter();
        let names: Vec<_> = names.map(|it| json!({ "name": value::text(it, &["name"]) })).collect();
        value::set(pod, &["spec", "imagePullSecrets"], names);
    }
    let limit = value::text(account, &["metadata", "annotations", LIMITS_SECRETS]);
    // The texts that Go reads as true.
    if matches!(limit, "1" | "t" | "T" | "true" | "TRUE" | "True") {
        check_secrets(account, pod).map_err(Refusal::Forbidden)?;
    }
    Ok(())
}

/// The reason for which a Pod is not admitted.
pub(super) enum Refusal {
    /// The Pod is forbidden, with this reason.
    Forbidden(String),
    /// The request fails.
    Failed(Status),
}

impl From<Status> for Refusal {
    fn from(status: Status) -> Self {
        Self::Failed(status)
    }
}

fn admit_mirror(pod: &Value) -> Result<(), String> {
    if !value::text(pod, &["spec", "serviceAccountName"]).is_empty() {
        return Err("a mirror pod may not reference service accounts".to_owned());
    }
    let has_secrets = secrets_of_containers(pod).next().is_some()
        || value::items(pod, &["spec", "imagePullSecrets"]).iter().any(|it| !name_of(it).is_empty())
        || value::items(pod, &["spec", "volumes"]).iter().any(names_secret);
    if has_secrets {
        return Err("a mirror pod may not reference secrets".to_owned());
    }
    let has_token = |volume: &Value| {
        value::items(volume, &["projected", "sources"])
            .iter()
            .any(|it| value::has(it, &["serviceAccountToken"]))
    };
    if value::items(pod, &["spec", "volumes"]).iter().any(has_token) {
        return Err("a mirror pod may not use ServiceAccountToken volume projections".to_owned());
    }
    Ok(())
}

fn name_of(reference: &Value) -> &str {
    value::text(reference, &["name"])
}

fn names_secret(volume: &Value) -> bool {
    let is_named =
        |(field, path): &(&str, &[&str])| !value::text(value::at(volume, &[*field]), path).is_empty();
    let projected = value::items(volume, &["projected", "sources"]);
    SECRET_VOLUMES.iter().any(is_named)
        || projected.iter().any(|it| !value::text(it, &["secret", "name"]).is_empty())
}

/// A secret that a container reads.
struct ContainerSecret<'a> {
    /// `init container`, `container` or `ephemeral container`.
    role: &'static str,
    container: &'a str,
    /// The variable that reads a key; `None` if all keys are read.
    variable: Option<&'a str>,
    secret: &'a str,
}

fn secrets_of_containers(pod: &Value) -> impl Iterator<Item = ContainerSecret<'_>> {
    let roles = [
        ("initContainers", "init container"),
        ("containers", "container"),
        ("ephemeralContainers", "ephemeral container"),
    ];
    let containers = roles.into_iter().flat_map(|(field, role)| {
        value::items(pod, &["spec", field]).iter().map(move |container| (role, container))
    });
    let secrets = containers.flat_map(|(role, it)| {
        let container = name_of(it);
        let variables = value::items(it, &["env"]).iter().map(move |variable| ContainerSecret {
            role,
            container,
            variable: Some(name_of(variable)),
            secret: value::text(variable, &["valueFrom", "secretKeyRef", "name"]),
        });
        let sources = value::items(it, &["envFrom"]).iter().map(move |source| ContainerSecret {
            role,
            container,
            variable: None,
            secret: value::text(source, &["secretRef", "name"]),
        });
        variables.chain(sources)
    });
    secrets.filter(|it| !it.secret.is_empty())
}

/// Checks that the account names all secrets of the Pod.
fn check_secrets(account: &Value, pod: &Value) -> Result<(), String> {
    let names =
        |field: &str, name: &str| value::items(account, &[field]).iter().any(|it| name_of(it) == name);
    let of_account = format!(
        "is not allowed because service account {} does not reference that",
        value::text(account, &["metadata", "name"])
    );
    for volume in value::items(pod, &["spec", "volumes"]) {
        let secret = value::text(volume, &["secret", "secretName"]);
        if value::has(volume, &["secret"]) && !names("secrets", secret) {
            return Err(format!("volume with secret.secretName=\"{secret}\" {of_account} secret"));
        }
    }
    if let Some(it) = secrets_of_containers(pod).find(|it| !names("secrets", it.secret)) {
        let place = match it.variable {
            Some(variable) => format!("envVar {variable}"),
            None => "envFrom".to_owned(),
        };
        let reference = format!("{} {} with {place} referencing", it.role, it.container);
        return Err(format!("{reference} secret.secretName=\"{}\" {of_account} secret", it.secret));
    }
    for (index, reference) in value::items(pod, &["spec", "imagePullSecrets"]).iter().enumerate() {
        let secret = name_of(reference);
        if !names("imagePullSecrets", secret) {
            return Err(format!("imagePullSecrets[{index}].name=\"{secret}\" {of_account} imagePullSecret"));
        }
    }
    Ok(())
}

/// Mounts a volume with a token in each container that has no volume at that path: an existing one, or a `new` one.
fn mount_token(pod: &mut Value, new: String) {
    let volumes = value::items(pod, &["spec", "volumes"]).iter().map(name_of);
    let existing = volumes.filter(|name| name.starts_with(VOLUME)).map(str::to_owned).next();
    let volume = existing.clone().unwrap_or(new);
    let mut is_needed = false;
    for field in ["initContainers", "containers"] {
        for container in value::items_mut(pod, &["spec", field]).into_iter().flatten() {
            let mounts = value::items(container, &["volumeMounts"]);
            if mounts.iter().any(|mount| value::text(mount, &["mountPath"]) == MOUNT_PATH) {
                continue;
            }
            let mount = json!({ "name": volume, "readOnly": true, "mountPath": MOUNT_PATH });
            let mounts = [mounts, &[mount]].concat();
            value::set(container, &["volumeMounts"], mounts);
            is_needed = true;
        }
    }
    if is_needed && existing.is_none() {
        let volumes = [value::items(pod, &["spec", "volumes"]), &[token_volume(&volume)]].concat();
        value::set(pod, &["spec", "volumes"], volumes);
    }
}

fn token_volume(name: &str) -> Value {
    let namespace = json!({ "apiVersion": "v1", "fieldPath": "metadata.namespace" });
    let sources = json!([
        { "serviceAccountToken": { "path": "token", "expirationSeconds": TOKEN_SECONDS } },
        { "configMap": { "name": "kube-root-ca.crt", "items": [{ "key": "ca.crt", "path": "ca.crt" }] } },
        { "downwardAPI": { "items": [{ "path": "namespace", "fieldRef": namespace }] } },
    ]);
    json!({ "name": name, "projected": { "defaultMode": 0o644, "sources": sources } })
}
