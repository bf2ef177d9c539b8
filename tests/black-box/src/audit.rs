//! The API server's own record of who wrote what.

use std::{
    collections::BTreeMap,
    fs::File,
    io::{BufRead as _, BufReader},
    path::PathBuf,
};

use anyhow::{Context as _, Result};
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

/// The group of users whose reads are recorded, too.
pub const AUDITED: &str = "audited";

/// A folder that an API server writes its audit log to.
#[derive(Debug)]
pub struct Audit {
    folder: TempDir,
}

/// One write the API server answered, or one read of somebody who is [`AUDITED`].
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Write {
    /// create, update, patch, delete
    pub verb: String,
    /// Who asked, by its own account.
    #[serde(default)]
    pub user_agent: String,
    /// Who asked, as the API server knows it.
    #[serde(default)]
    pub user: User,
    /// What was written.
    pub object_ref: Option<Target>,
    /// How it was answered.
    pub response_status: Option<Answer>,
    /// When the API server received it.
    pub request_received_timestamp: MicroTime,
    /// When it was answered.
    pub stage_timestamp: MicroTime,
    /// The object as it was afterwards: of Leases alone.
    #[serde(default)]
    pub response_object: Value,
}

/// Who wrote.
#[derive(Clone, Debug, Default, Deserialize)]
pub struct User {
    /// Such as `system:serviceaccount:kube-system:replicaset-controller`.
    #[serde(default)]
    pub username: String,
}

/// What was written.
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

/// How a write was answered.
#[derive(Clone, Copy, Debug, Deserialize)]
pub struct Answer {
    /// HTTP status code.
    pub code: u16,
}

impl Audit {
    /// A fresh folder with a policy that records every write.
    ///
    /// # Errors
    /// The file system's refusal.
    pub fn new() -> Result<Self> {
        let folder = tempfile::Builder::new().prefix("windlass-audit-").tempdir()?;
        std::fs::write(folder.path().join("policy.yaml"), POLICY)?;
        Ok(Self { folder })
    }

    /// Makes the API server of these options write here.
    #[must_use]
    pub fn record(&self, options: ControlPlaneOptions) -> ControlPlaneOptions {
        options
            .api_server_arg(format!(
                "--audit-policy-file={}",
                self.folder.path().join("policy.yaml").display()
            ))
            .api_server_arg(format!("--audit-log-path={}", self.log().display()))
    }

    fn log(&self) -> PathBuf {
        self.folder.path().join("audit.log")
    }

    /// All writes so far by clients whose user agent starts with `agent` and, unless `clients` is empty, ends with one of
    /// these. Leases and events are left out: they keep time and tell stories, they do not keep objects.
    ///
    /// # Errors
    /// An unreadable log.
    pub fn writes(&self, agent: &str, clients: &[&str]) -> Result<Vec<Write>> {
        let mut writes = self.all_writes(agent)?;
        writes.retain(|write| {
            let named = clients.is_empty() || clients.iter().any(|client| write.user_agent.ends_with(client));
            named && !matches!(write.resource(), "leases" | "events")
        });
        Ok(writes)
    }

    /// All writes so far by clients whose user agent starts with `agent`, leases and events too, and reads of who is
    /// [`AUDITED`].
    ///
    /// # Errors
    /// An unreadable log.
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
    /// Plural name of what was written; empty for what is no object.
    pub fn resource(&self) -> &str {
        self.object_ref.as_ref().map_or("", |target| target.resource.as_str())
    }

    /// Whether the API server did what it was asked for.
    pub fn succeeded(&self) -> bool {
        self.response_status.is_some_and(|answer| (200..300).contains(&answer.code))
    }
}

/// Writes by verb, resource and outcome: `create pods 201` and how often.
pub fn tally(writes: &[Write]) -> BTreeMap<String, usize> {
    let mut tally = BTreeMap::new();
    for write in writes {
        let target = write.object_ref.clone().unwrap_or_default();
        let slash = if target.subresource.is_empty() { "" } else { "/" };
        let code = write.response_status.map_or(0, |answer| answer.code);
        let name = format!("{} {}{slash}{} {code}", write.verb, target.resource, target.subresource);
        *tally.entry(name).or_insert(0) += 1;
    }
    tally
}
