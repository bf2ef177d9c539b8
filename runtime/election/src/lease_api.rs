//! Requests for Leases, each with a timeout. Makes no decisions.

use std::fmt;
use std::time::Duration;

use bytes::Bytes;
use http::Request;
use k8s_openapi::api::coordination::v1::Lease;
use kube::api::{DeleteParams, GetParams, PostParams, Preconditions};
use kube::core::request;
use windlass_client::{FrameStream, ListQuery, RawClient, RequestError, WatchQuery, optional, send};
use windlass_env::Env;
use windlass_object::wire::protobuf::to_json;
use windlass_object::{ResourceKind, ResourceVersion};

use crate::config::Election;
use crate::error::LeaseError;
use crate::lease_state::LeaseWrite;

/// Time for which the server keeps a watch open. Its end costs one fetch and one new watch.
const WATCH_TIMEOUT: Duration = Duration::from_secs(290);

/// Access to the Leases of one namespace.
#[derive(Clone)]
pub struct LeaseApi {
    env: Env,
    client: kube::Client,
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
        Self { env, client, raw, namespace: election.namespace.clone(), attempt: election.config.attempt() }
    }

    /// Returns the Lease, or `None` if it does not exist. The request has no version, so the server does not answer
    /// from its cache.
    pub async fn get(&self, name: &str) -> Result<Option<Lease>, LeaseError> {
        let answer = self.answer(self.requests().get(name, &GetParams::default())).await?;
        optional(answer)?.map(|lease| decode(&lease)).transpose()
    }

    /// Creates or replaces a Lease and returns it with its new version. Replaces only the state on which the write
    /// builds, and returns [`LeaseError::Conflict`] if another write came first.
    pub async fn write(&self, write: &LeaseWrite) -> Result<Lease, LeaseError> {
        let (lease, params) = (&write.lease, PostParams::default());
        let body = serde_json::to_vec(lease).map_err(kube::Error::SerdeError)?;
        if !write.exists {
            return decode(&self.answer(self.requests().create(&params, body)).await??);
        }
        let name = lease.metadata.name.as_deref().unwrap_or_default();
        let written = decode(&self.answer(self.requests().replace(name, &params, body)).await??)?;
        if written.metadata.resource_version == lease.metadata.resource_version {
            return Err(LeaseError::Unchanged(written.metadata.resource_version.unwrap_or_default()));
        }
        Ok(written)
    }

    /// Deletes exactly this state of a Lease. Succeeds if the Lease no longer exists.
    pub async fn delete(&self, lease: &Lease) -> Result<(), LeaseError> {
        let preconditions = Preconditions {
            uid: lease.metadata.uid.clone(),
            resource_version: lease.metadata.resource_version.clone(),
        };
        let params = DeleteParams { preconditions: Some(preconditions), ..DeleteParams::default() };
        let name = lease.metadata.name.as_deref().unwrap_or_default();
        match self.answer(self.requests().delete(name, &params)).await?.map_err(LeaseError::from) {
            Ok(_) | Err(LeaseError::NotFound(_)) => Ok(()),
            Err(failure) => Err(failure),
        }
    }

    /// Returns all Leases with this label, and the version of the list. The request has no version, so the server does
    /// not answer from its cache.
    pub async fn list(&self, label: &str) -> Result<(Option<ResourceVersion>, Vec<Lease>), LeaseError> {
        let query = ListQuery { labels: Some(label.to_owned()), ..ListQuery::default() };
        let kind = ResourceKind::of::<Lease>();
        let request = self.raw.list(&kind, Some(&self.namespace), &query);
        let raw = match self.env.timeout(self.attempt, request).await {
            Ok(answer) => answer.map_err(|error| LeaseError::Request(error.to_string()))?,
            Err(_) => return Err(LeaseError::Timeout(self.attempt)),
        };
        let leases = raw.items.iter().map(|item| decode(item)).collect::<Result<_, _>>()?;
        Ok((raw.version, leases))
    }

    /// Starts a watch. Returns [`RequestError::Deadline`] if the server does not start it within the timeout of other
    /// requests.
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

    fn requests(&self) -> request::Request {
        request::Request::new(ResourceKind::of::<Lease>().url_path(Some(&self.namespace)))
    }

    /// Sends a request and returns the body of the response.
    async fn answer(
        &self,
        request: Result<Request<Vec<u8>>, request::Error>,
    ) -> Result<kube::Result<Bytes>, LeaseError> {
        let request = request.map_err(kube::Error::BuildRequest)?;
        match self.env.timeout(self.attempt, send(&self.client, request)).await {
            Ok(answer) => Ok(answer.map(http::Response::into_body)),
            Err(_) => Err(LeaseError::Timeout(self.attempt)),
        }
    }
}

impl fmt::Debug for LeaseApi {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LeaseApi").field("namespace", &self.namespace).finish_non_exhaustive()
    }
}

/// Decodes a Lease in JSON or protobuf. The only caller of this decoder, because each instance adds machine code.
///
/// # Errors
/// [`LeaseError::Request`] if the bytes are not a Lease.
pub fn decode(lease: &[u8]) -> Result<Lease, LeaseError> {
    let failed = |error: &dyn fmt::Display| LeaseError::Request(format!("cannot decode lease: {error}"));
    let json = to_json(lease).map_err(|error| failed(&error))?;
    serde_json::from_slice(&json).map_err(|error| failed(&error))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lease_is_decoded_from_json_and_protobuf() {
        let protobuf = b"k8s\0\x0a\x1f\x0a\x16coordination.k8s.io/v1\x12\x05Lease\x12\x05\x0a\x03\x0a\x01a";
        let json = br#"{"apiVersion":"coordination.k8s.io/v1","kind":"Lease","metadata":{"name":"a"}}"#;
        for raw in [&protobuf[..], json] {
            let lease = decode(raw).unwrap_or_else(|error| panic!("{error}"));
            assert_eq!(lease.metadata.name.as_deref(), Some("a"));
        }
        let error = decode(b"k8s\0\xff").expect_err("cut off").to_string();
        assert!(error.contains("cannot decode lease"), "{error}");
    }
}
