//! The four requests about one Lease, each bounded in time. No decisions.

use std::time::Duration;

use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::api::{Api, PostParams};
use windlass_client::{FrameStream, RawClient, RequestError, WatchQuery};
use windlass_env::Env;
use windlass_object::ResourceKind;

use crate::config::ElectionConfig;
use crate::error::LeaseError;
use crate::record::Record;
use crate::written::{Written, annotated};

/// How long the server keeps a watch open. Its end costs one fetch and one new watch.
const WATCH_TIMEOUT: Duration = Duration::from_secs(290);

/// Access to one Lease.
pub(crate) struct LeaseApi {
    env: Env,
    api: Api<Lease>,
    raw: RawClient,
    name: String,
    namespace: String,
    attempt: Duration,
}

impl LeaseApi {
    pub(crate) fn new(env: Env, client: kube::Client, raw: RawClient, config: &ElectionConfig) -> Self {
        Self {
            env,
            api: Api::namespaced(client, &config.lease_namespace),
            raw,
            name: config.lease_name.clone(),
            namespace: config.lease_namespace.clone(),
            attempt: config.attempt(),
        }
    }

    /// The Lease, or `None` if there is none. Never served from a cache, since no version is given.
    pub(crate) async fn get(&self) -> Result<Option<Lease>, LeaseError> {
        self.bounded(self.api.get_opt(&self.name)).await
    }

    /// Creates the Lease; [`LeaseError::Conflict`] if it exists.
    pub(crate) async fn create(&self, record: Record) -> Result<Lease, LeaseError> {
        let lease = Lease {
            metadata: ObjectMeta {
                name: Some(self.name.clone()),
                namespace: Some(self.namespace.clone()),
                ..ObjectMeta::default()
            },
            spec: Some(record.into_spec()),
        };
        self.bounded(self.api.create(&PostParams::default(), &lease)).await
    }

    /// Writes the record over exactly this state of the Lease, with what was `written` beside it, if that is to be
    /// told. A success means that the Lease has a new version.
    pub(crate) async fn replace(
        &self,
        current: &Lease,
        record: Record,
        written: Option<&Written>,
    ) -> Result<Lease, LeaseError> {
        let lease = Lease { metadata: annotated(&current.metadata, written), spec: Some(record.into_spec()) };
        let written = self.bounded(self.api.replace(&self.name, &PostParams::default(), &lease)).await?;
        if written.metadata.resource_version == current.metadata.resource_version {
            return Err(LeaseError::Unchanged(written.metadata.resource_version.unwrap_or_default()));
        }
        Ok(written)
    }

    /// Starts a watch of this one Lease. [`RequestError::Deadline`] if it is not granted as fast as other requests.
    pub(crate) async fn watch(&self, version: &str) -> Result<FrameStream, RequestError> {
        let query = WatchQuery {
            fields: Some(format!("metadata.name={}", self.name)),
            version: version.to_owned(),
            timeout: WATCH_TIMEOUT,
            ..WatchQuery::default()
        };
        let kind = ResourceKind::of::<Lease>();
        let granted = self.raw.watch(&kind, Some(&self.namespace), &query);
        self.env.timeout(self.attempt, granted).await.unwrap_or(Err(RequestError::Deadline))
    }

    /// Whether this is the Lease in question, for servers that do not know the field selector.
    pub(crate) fn is_ours(&self, lease: &Lease) -> bool {
        lease.metadata.name.as_deref() == Some(self.name.as_str())
    }

    async fn bounded<T>(&self, request: impl Future<Output = kube::Result<T>>) -> Result<T, LeaseError> {
        match self.env.timeout(self.attempt, request).await {
            Ok(answer) => Ok(answer?),
            Err(_) => Err(LeaseError::Timeout(self.attempt)),
        }
    }
}
