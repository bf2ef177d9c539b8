//! A namespace of a control plane, and the operations that scenarios use on it.

use std::fmt::Debug;

use anyhow::{Context as _, Result};
use k8s_openapi::{
    NamespaceResourceScope,
    api::core::v1::{ContainerStatus, Endpoints, Pod, ResourceQuota},
    apimachinery::pkg::apis::meta::v1::Time,
    jiff::{SignedDuration, Timestamp},
};
use kube::{
    Api, Client, Resource,
    api::{DeleteParams, ListParams, Patch, PatchParams, PostParams},
};
use serde::{Serialize, de::DeserializeOwned};
use serde_json::{Value, json};

use crate::fixtures::ready_condition;

/// Kinds of these scenarios: namespaced, typed and serializable.
pub trait Kind:
    Resource<Scope = NamespaceResourceScope, DynamicType = ()>
    + Serialize
    + DeserializeOwned
    + Clone
    + Debug
    + Send
    + Sync
    + 'static
{
}

impl<K> Kind for K where
    K: Resource<Scope = NamespaceResourceScope, DynamicType = ()>
        + Serialize
        + DeserializeOwned
        + Clone
        + Debug
        + Send
        + Sync
        + 'static
{
}

/// A namespace on a running control plane.
#[derive(Clone)]
pub struct TestNamespace {
    /// Administrator's client, without client-side limits.
    pub client: Client,
    /// The namespace's name.
    pub namespace: String,
}

impl Debug for TestNamespace {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("TestNamespace").field("namespace", &self.namespace).finish_non_exhaustive()
    }
}

impl TestNamespace {
    /// Returns the typed API of one kind in this namespace.
    pub fn api<K: Kind>(&self) -> Api<K> {
        Api::namespaced(self.client.clone(), &self.namespace)
    }

    /// Creates `object`.
    ///
    /// # Errors
    /// Returns an error if the API server rejects the request.
    pub async fn create<K: Kind>(&self, object: &K) -> Result<K> {
        let name = object.meta().name.clone().unwrap_or_default();
        self.api::<K>()
            .create(&PostParams::default(), object)
            .await
            .with_context(|| format!("creating {} {}/{name}", K::kind(&()), self.namespace))
    }

    /// Reads one object.
    ///
    /// # Errors
    /// Returns an error if the API server rejects the request, or if the object does not exist.
    pub async fn get<K: Kind>(&self, name: &str) -> Result<K> {
        Ok(self.api::<K>().get(name).await?)
    }

    /// Reads one object, or returns `None` if it does not exist.
    ///
    /// # Errors
    /// Returns an error if the API server rejects the request, except if the object does not exist.
    pub async fn find<K: Kind>(&self, name: &str) -> Result<Option<K>> {
        Ok(self.api::<K>().get_opt(name).await?)
    }

    /// Changes an object with optimistic concurrency; conflicts are retried.
    ///
    /// # Errors
    /// Any error of the API server except a conflict.
    pub async fn update<K: Kind>(&self, name: &str, change: impl Fn(&mut K)) -> Result<K> {
        self.replace(name, change, false).await
    }

    /// Changes the status of an object with optimistic concurrency; conflicts are retried.
    ///
    /// # Errors
    /// Any error of the API server except a conflict.
    pub async fn update_status<K: Kind>(&self, name: &str, change: impl Fn(&mut K)) -> Result<K> {
        self.replace(name, change, true).await
    }

    /// Limits the number of objects by a ResourceQuota with this name, and acts as the quota controller: admission
    /// rejects all objects until the status contains the usage.
    ///
    /// # Errors
    /// Returns an error if the API server rejects a request.
    pub async fn limit(&self, name: &str, resource: &str, count: u32) -> Result<()> {
        let hard = json!({ resource: count.to_string() });
        let quota = json!({ "metadata": { "name": name }, "spec": { "hard": hard } });
        self.create::<ResourceQuota>(&serde_json::from_value(quota)?).await?;
        let status = serde_json::from_value(json!({ "hard": hard, "used": { resource: "0" } }))?;
        let observe = |quota: &mut ResourceQuota| quota.status = Some(Clone::clone(&status));
        self.update_status::<ResourceQuota>(name, observe).await?;
        Ok(())
    }

    /// Makes a pod ready since `since`, with `restarts` restarts of its only container.
    ///
    /// # Errors
    /// Returns an error if the API server rejects the request.
    pub async fn make_ready(&self, pod: &str, since: Timestamp, restarts: i32) -> Result<()> {
        let container = ContainerStatus { restart_count: restarts, ..ContainerStatus::default() };
        self.update_status::<Pod>(pod, |pod| {
            let status = pod.status.get_or_insert_default();
            status.phase = Some("Running".to_owned());
            status.conditions = Some(vec![ready_condition(true, Some(Time(since)))]);
            status.container_statuses = Some(vec![container.clone()]);
        })
        .await?;
        Ok(())
    }

    /// Makes a pod ready, as its node does, unless a controller deletes it at the same time.
    ///
    /// # Errors
    /// Returns an error if the API server rejects the request, and the pod exists.
    pub async fn start_pod(&self, pod: &str) -> Result<()> {
        // Before now, because the clocks of managers differ.
        let since = Timestamp::now() - SignedDuration::from_secs(10);
        match self.make_ready(pod, since, 0).await {
            Err(error) if self.find::<Pod>(pod).await?.is_some() => Err(error),
            Ok(()) | Err(_) => Ok(()),
        }
    }

    async fn replace<K: Kind>(&self, name: &str, change: impl Fn(&mut K), status: bool) -> Result<K> {
        loop {
            let mut object = self.get::<K>(name).await?;
            change(&mut object);
            let params = PostParams::default();
            let outcome = if status {
                self.api::<K>().replace_status(name, &params, &object).await
            } else {
                self.api::<K>().replace(name, &params, &object).await
            };
            match outcome {
                Ok(object) => return Ok(object),
                Err(kube::Error::Api(refusal)) if refusal.code == 409 => {}
                Err(error) => return Err(error).with_context(|| format!("updating {name}")),
            }
        }
    }

    /// Applies a JSON merge patch.
    ///
    /// # Errors
    /// Returns an error if the API server rejects the request.
    pub async fn merge<K: Kind>(&self, name: &str, patch: Value) -> Result<K> {
        Ok(self.api::<K>().patch(name, &PatchParams::default(), &Patch::Merge(patch)).await?)
    }

    /// Deletes one object as `kubectl delete --wait=false` does.
    ///
    /// # Errors
    /// Returns an error if the API server rejects the request.
    pub async fn delete<K: Kind>(&self, name: &str) -> Result<()> {
        self.delete_with::<K>(name, &DeleteParams::default()).await
    }

    /// Deletes one object with a grace period of zero.
    ///
    /// # Errors
    /// Returns an error if the API server rejects the request.
    pub async fn delete_now<K: Kind>(&self, name: &str) -> Result<()> {
        self.delete_with::<K>(name, &DeleteParams::default().grace_period(0)).await
    }

    async fn delete_with<K: Kind>(&self, name: &str, params: &DeleteParams) -> Result<()> {
        self.api::<K>().delete(name, params).await.with_context(|| format!("deleting {name}"))?;
        Ok(())
    }

    /// Returns all objects of one kind, ordered by name.
    ///
    /// # Errors
    /// Returns an error if the API server rejects the request.
    pub async fn list<K: Kind>(&self) -> Result<Vec<K>> {
        Ok(self.api::<K>().list(&ListParams::default()).await?.items)
    }

    /// Returns the number of ready addresses of the Endpoints, or zero if they do not exist.
    ///
    /// # Errors
    /// Returns an error if the API server rejects the request, except if the object does not exist.
    pub async fn ready_addresses(&self, name: &str) -> Result<usize> {
        let subsets = self.find::<Endpoints>(name).await?.and_then(|endpoints| endpoints.subsets);
        let addresses = subsets.into_iter().flatten().flat_map(|subset| subset.addresses.unwrap_or_default());
        Ok(addresses.count())
    }

    /// Returns the pods with `labels` (`key=value,...`), ordered by name.
    ///
    /// # Errors
    /// Returns an error if the API server rejects the request.
    pub async fn pods(&self, labels: &str) -> Result<Vec<Pod>> {
        Ok(self.api::<Pod>().list(&ListParams::default().labels(labels)).await?.items)
    }
}
