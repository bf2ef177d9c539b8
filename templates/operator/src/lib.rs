//! Operator for `Site`: a Deployment, a Service and a DNS entry.
//!
//! The Site owns the Deployment and the Service: the controller applies them and finds them by owner reference, and the
//! cluster deletes them with the Site. The DNS entry is outside of the cluster, so a finalizer blocks the deletion of
//! the Site until the entry is removed. The conditions report the progress.

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::Service;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::{CustomResource, ResourceExt};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use windlass::prelude::*;

use crate::dns::Dns;

pub mod dns;
pub mod webhooks;

/// Desired state of a site.
#[derive(Clone, Debug, PartialEq, CustomResource, Deserialize, Serialize, JsonSchema)]
#[kube(
    group = "example.com",
    version = "v1",
    kind = "Site",
    namespaced,
    status = "SiteStatus",
    doc = "A site: a Deployment, a Service and a DNS entry.",
    printcolumn = r#"{"name": "Ready", "type": "string", "jsonPath": ".status.conditions[?(@.type=='Ready')].status"}"#,
    printcolumn = r#"{"name": "Replicas", "type": "integer", "jsonPath": ".status.readyReplicas"}"#,
    printcolumn = r#"{"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"}"#
)]
pub struct SiteSpec {
    /// DNS name of the site.
    pub domain: String,
    /// Container image that serves the site.
    pub image: String,
    /// Number of replicas.
    pub replicas: i32,
}

/// Observed state of a site.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SiteStatus {
    /// Number of ready replicas.
    #[serde(default)]
    pub ready_replicas: i32,
    /// Condition `Ready`: true if all replicas are ready.
    #[serde(default)]
    #[schemars(schema_with = "conditions")]
    pub conditions: Vec<Condition>,
}

/// Returns the schema of the conditions, a list map with the key `type`.
fn conditions(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "array",
        "x-kubernetes-list-type": "map",
        "x-kubernetes-list-map-keys": ["type"],
        "items": {
            "type": "object",
            "required": ["type", "status", "reason", "message", "lastTransitionTime"],
            "properties": {
                "type": { "type": "string" },
                "status": { "type": "string" },
                "observedGeneration": { "type": "integer", "format": "int64" },
                "lastTransitionTime": { "type": "string", "format": "date-time" },
                "reason": { "type": "string" },
                "message": { "type": "string" },
            },
        },
    })
}

/// The controller.
#[derive(Debug)]
pub struct Sites {
    sites: Lister<Site>,
    site: Writer<Site>,
    deployments: Owned<Deployment, Site>,
    services: Owned<Service, Site>,
    dns: Dns,
}

impl Controller for Sites {
    const NAME: &'static str = "site-controller";
    type Config = Dns;

    fn setup(setup: &mut Setup, dns: &Dns) -> Result<Self, SetupError> {
        setup.crd::<Site>();
        Ok(Self {
            sites: setup.primary::<Site>().when(generation_changed()).lister(),
            site: setup.writer::<Site>().finalizer("example.com/dns").patch_status().build(),
            deployments: setup.owned::<Deployment, Site>().apply().build(),
            services: setup.owned::<Service, Site>().apply().build(),
            dns: dns.clone(),
        })
    }

    async fn reconcile(&self, key: &ObjectKey, cx: &Context) -> Result<Outcome, ReconcileError> {
        let Some(site) = self.sites.get(key)? else { return Ok(Outcome::Done) };
        // `finalize` polls it only if the Site is being deleted. Until then this future has no effect.
        let cleanup = self.dns.remove(&site.spec.domain);
        let Some(site) = self.site.finalize(cx, &site, cleanup).await? else { return Ok(Outcome::Done) };
        let deployment = self.deployments.apply(cx, &site, deployment_for(&site)).await?;
        self.services.apply(cx, &site, service_for(&site)).await?;
        let pointed = self.dns.point(&site.spec.domain).await;
        let ready = deployment.status.as_ref().and_then(|it| it.ready_replicas).unwrap_or(0);
        let (is_ready, reason, message) = match &pointed {
            Ok(()) => (ready == site.spec.replicas, "Replicas", format!("{ready} are ready")),
            Err(error) => (false, "DNS", error.to_string()),
        };
        let condition = cx.condition(&*site, "Ready", is_ready, reason, message);
        let report = |site: &mut Site| {
            let status = site.status.get_or_insert_default();
            status.ready_replicas = ready;
            set_condition(&mut status.conditions, condition);
        };
        self.site.update_status(cx, &site, report).await?;
        // The error of the provider is reported first; then the reconcile fails, and is retried with backoff.
        pointed?;
        Ok(Outcome::Done)
    }
}

fn labels(site: &Site) -> Value {
    json!({ "example.com/site": site.name_any() })
}

fn deployment_for(site: &Site) -> Deployment {
    let container = json!({ "name": "site", "image": site.spec.image });
    child(json!({
        "metadata": { "name": site.name_any(), "labels": labels(site) },
        "spec": {
            "replicas": site.spec.replicas,
            "selector": { "matchLabels": labels(site) },
            "template": { "metadata": { "labels": labels(site) }, "spec": { "containers": [container] } },
        },
    }))
}

fn service_for(site: &Site) -> Service {
    child(json!({
        "metadata": { "name": site.name_any(), "labels": labels(site) },
        "spec": { "selector": labels(site), "ports": [{ "port": 80 }] },
    }))
}

fn child<K: DeserializeOwned>(value: Value) -> K {
    serde_json::from_value(value).expect("the JSON literals in this file are valid objects")
}
