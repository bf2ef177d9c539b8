//! The requests for Leases, each with a timeout. No decisions.

use std::time::Duration;

use k8s_openapi::api::coordination::v1::Lease;
use kube::api::{Api, DeleteParams, PostParams, Preconditions};
use windlass_client::{FrameStream, ListQuery, RawClient, RequestError, WatchQuery};
use windlass_env::Env;
use windlass_object::{ResourceKind, ResourceVersion};

use crate::config::Election;
use crate::error::LeaseError;
use crate::lease_state::LeaseWrite;

/// How long the server keeps a watch open. Its end costs one fetch and one new watch.
const WATCH_TIMEOUT: Duration = Duration::from_secs(290);

/// Access to the Leases of one namespace.
#[derive(Clone, Debug)]
pub struct LeaseApi {
    env: Env,
    api: Api<Lease>,
    raw: RawClient,
    namespace: String,
    attempt: Duration,
}

/// Selects the Leases of a watch.
#[derive(Copy, Clone, Debug)]
pub enum WatchScope<'a> {
    /// The Lease with this name.
    Name(&'a str),
    /// The Leases with this label.
    Label(&'a str),
}

impl LeaseApi {
    /// Returns access to the Leases of the namespace of `election`.
    pub fn new(env: Env, client: kube::Client, raw: RawClient, election: &Election) -> Self {
        Self {
            env,
            api: Api::namespaced(client, &election.namespace),
            raw,
            namespace: election.namespace.clone(),
            attempt: election.config.attempt(),
        }
    }

    /// The Lease, or `None` if there is none. Never served from a cache, since no version is given.
    pub async fn get(&self, name: &str) -> Result<Option<Lease>, LeaseError> {
        self.bounded(self.api.get_opt(name)).await
    }

    /// Creates or replaces a Lease. Of one that exists, exactly the state on which the write builds is replaced;
    /// [`LeaseError::Conflict`] otherwise. A success means that the Lease has a new version.
    pub async fn write(&self, write: &LeaseWrite) -> Result<Lease, LeaseError> {
        let (lease, params) = (&write.lease, PostParams::default());
        if !write.exists {
            return self.bounded(self.api.create(&params, lease)).await;
        }
        let name = lease.metadata.name.as_deref().unwrap_or_default();
        let written = self.bounded(self.api.replace(name, &params, lease)).await?;
        if written.metadata.resource_version == lease.metadata.resource_version {
            return Err(LeaseError::Unchanged(written.metadata.resource_version.unwrap_or_default()));
        }
        Ok(written)
    }

    /// Deletes exactly this state of a Lease. One that is gone already is gone.
    pub async fn delete(&self, lease: &Lease) -> Result<(), LeaseError> {
        let preconditions = Preconditions {
            uid: lease.metadata.uid.clone(),
            resource_version: lease.metadata.resource_version.clone(),
        };
        let params = DeleteParams { preconditions: Some(preconditions), ..DeleteParams::default() };
        let name = lease.metadata.name.as_deref().unwrap_or_default();
        match self.bounded(self.api.delete(name, &params)).await {
            Ok(_) | Err(LeaseError::NotFound(_)) => Ok(()),
            Err(failure) => Err(failure),
        }
    }

    /// All Leases with this label and the version of the list. Never served from a cache, since no version is given.
    pub async fn list(&self, label: &str) -> Result<(Option<ResourceVersion>, Vec<Lease>), LeaseError> {
        let query = ListQuery { labels: Some(label.to_owned()), ..ListQuery::default() };
        let kind = ResourceKind::of::<Lease>();
        let request = self.raw.list(&kind, Some(&self.namespace), &query);
        let raw = match self.env.timeout(self.attempt, request).await {
            Ok(answer) => answer.map_err(|error| LeaseError::Request(error.to_string()))?,
            Err(_) => return Err(LeaseError::Timeout(self.attempt)),
        };
        let leases = raw.items.iter().map(|item| serde_json::from_slice(item)).collect::<Result<_, _>>();
        let leases =
            leases.map_err(|error| LeaseError::Request(format!("a listed lease cannot be read: {error}")))?;
        Ok((raw.version, leases))
    }

    /// Starts a watch. [`RequestError::Deadline`] if it is not granted as fast as other requests.
    pub async fn watch(&self, watched: WatchScope<'_>, version: &str) -> Result<FrameStream, RequestError> {
        let (fields, labels) = match watched {
            WatchScope::Name(name) => (Some(format!("metadata.name={name}")), None),
            WatchScope::Label(label) => (None, Some(label.to_owned())),
        };
        let query = WatchQuery {
            fields,
            labels,
            version: version.to_owned(),
            timeout: WATCH_TIMEOUT,
            ..WatchQuery::default()
        };
        let kind = ResourceKind::of::<Lease>();
        let granted = self.raw.watch(&kind, Some(&self.namespace), &query);
        self.env.timeout(self.attempt, granted).await.unwrap_or(Err(RequestError::Deadline))
    }

    async fn bounded<T>(&self, request: impl Future<Output = kube::Result<T>>) -> Result<T, LeaseError> {
        match self.env.timeout(self.attempt, request).await {
            Ok(answer) => Ok(answer?),
            Err(_) => Err(LeaseError::Timeout(self.attempt)),
        }
    }
}
