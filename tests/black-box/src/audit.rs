//! The audit log of the API server: writes with their users.

use std::{
    collections::BTreeMap,
    fs::File,
    io::{BufRead as _, BufReader},
    path::PathBuf,
};

use anyhow::{Context as _, Result, ensure};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use serde::Deserialize;
use serde_json::Value;
use tempfile::TempDir;
use windlass_harness::ControlPlaneOptions;

const POLICY: &str = r#"
apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules:
- level: RequestResponse
  verbs: [create, update, patch, delete]
  resources: [{ group: coordination.k8s.io, resources: [leases] }]
- level: Metadata
  verbs: [create, update, patch, delete, deletecollection]
- level: Metadata
  userGroups: [audited]
- level: None
"#;

/// The group of users whose reads are recorded too.
pub const AUDITED: &str = "audited";

/// The folder of an API server's audit log.
#[derive(Debug)]
pub struct Audit {
    folder: TempDir,
}

/// A completed write, or a read by a user in the group [`AUDITED`].
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Write {
    /// create, update, patch, delete
    pub verb: String,
    /// User agent of the request.
    #[serde(default)]
    pub user_agent: String,
    /// Authenticated user.
    #[serde(default)]
    pub user: User,
    /// The object of the request.
    pub object_ref: Option<Target>,
    /// Status of the response.
    pub response_status: Option<ResponseStatus>,
    /// Time at which the API server received the request.
    pub request_received_timestamp: MicroTime,
    /// Time of the response.
    pub stage_timestamp: MicroTime,
    /// The object in the response; recorded for Leases only.
    #[serde(default)]
    pub response_object: Value,
}

/// The user of a request.
#[derive(Clone, Debug, Default, Deserialize)]
pub struct User {
    /// Such as `system:serviceaccount:kube-system:replicaset-controller`.
    #[serde(default)]
    pub username: String,
}

/// The object of a request.
#[derive(Clone, Debug, Default, Deserialize)]
pub struct Target {
    /// Plural name of the resource.
    #[serde(default)]
    pub resource: String,
    /// `status`, `scale` and the like.
    #[serde(default)]
    pub subresource: String,
    /// Namespace, if it has one.
    #[serde(default)]
    pub namespace: String,
    /// Name, empty for a create with a generated name.
    #[serde(default)]
    pub name: String,
}

/// The status of a response.
#[derive(Clone, Copy, Debug, Deserialize)]
pub struct ResponseStatus {
    /// HTTP status code.
    pub code: u16,
}

impl Audit {
    /// Creates a folder with a policy that records every write.
    ///
    /// # Errors
    /// The folder or the policy cannot be written.
    pub fn new() -> Result<Self> {
        let folder = tempfile::Builder::new().prefix("windlass-audit-").tempdir()?;
        std::fs::write(folder.path().join("policy.yaml"), POLICY)?;
        Ok(Self { folder })
    }

    /// Configures the API server to write its audit log to this folder.
    #[must_use]
    pub fn record(&self, options: ControlPlaneOptions) -> ControlPlaneOptions {
        options
            .api_server_arg(format!(
                "--audit-policy-file={}",
                self.folder.path().join("policy.yaml").display()
            ))
            .api_server_arg(format!("--audit-log-path={}", self.log().display()))
            // One file, whatever its size.
            .api_server_arg("--audit-log-maxsize=0")
    }

    fn log(&self) -> PathBuf {
        self.folder.path().join("audit.log")
    }

    /// Returns all writes by clients whose user agent starts with `agent` and ends with one of `clients`. An empty
    /// `clients` matches all. Writes to Leases and Events are omitted.
    ///
    /// # Errors
    /// The log cannot be read.
    pub fn writes(&self, agent: &str, clients: &[&str]) -> Result<Vec<Write>> {
        let mut writes = self.all_writes(agent)?;
        writes.retain(|write| {
            let named = clients.is_empty() || clients.iter().any(|client| write.user_agent.ends_with(client));
            named && !matches!(write.resource(), "leases" | "events")
        });
        Ok(writes)
    }

    /// Returns all writes by clients whose user agent starts with `agent`, including Leases and Events, and reads by
    /// users in the group [`AUDITED`].
    ///
    /// # Errors
    /// The log cannot be read.
    pub fn all_writes(&self, agent: &str) -> Result<Vec<Write>> {
        let file = File::open(self.log()).context("opening the audit log")?;
        let mut writes = Vec::new();
        for line in BufReader::new(file).lines() {
            let write: Write = serde_json::from_str(&line?).context("reading the audit log")?;
            if write.user_agent.starts_with(agent) {
                writes.push(write);
            }
        }
        Ok(writes)
    }
}

impl Write {
    /// Returns the plural name of the resource, or an empty string for a request without an object.
    pub fn resource(&self) -> &str {
        self.object_ref.as_ref().map_or("", |target| target.resource.as_str())
    }

    /// Returns whether the request succeeded.
    pub fn succeeded(&self) -> bool {
        self.response_status.is_some_and(|answer| (200..300).contains(&answer.code))
    }
}

/// Checks that no client of Windlass sent more of the writes that `counts` selects than the same client of upstream.
///
/// # Errors
/// The first client that sent more, with both numbers.
pub fn ensure_no_more_writes(
    clients: &[&str],
    upstream: &[Write],
    ours: &[Write],
    counts: impl Fn(&Write) -> bool,
) -> Result<()> {
    for client in clients {
        let count = |writes: &[Write]| {
            writes.iter().filter(|write| write.user_agent.ends_with(client) && counts(write)).count()
        };
        let (most, sent) = (count(upstream), count(ours));
        ensure!(sent <= most, "{client} of windlass wrote {sent} times, upstream's {most}");
    }
    Ok(())
}

/// Counts writes by verb, resource and status code, such as `create pods 201`.
pub fn count_by_kind(writes: &[Write]) -> BTreeMap<String, usize> {
    let mut counts = BTreeMap::new();
    for write in writes {
        let target = write.object_ref.clone().unwrap_or_default();
        let slash = if target.subresource.is_empty() { "" } else { "/" };
        let code = write.response_status.map_or(0, |answer| answer.code);
        let name = format!("{} {}{slash}{} {code}", write.verb, target.resource, target.subresource);
        *counts.entry(name).or_insert(0) += 1;
    }
    counts
}
