//! Several kinds: a `Site` is a Deployment, a Service and an entry in a directory that all namespaces share.
//!
//! The controller finds the Deployment and the Service by owner reference, and the cluster deletes them with their
//! owner. The directory is in another namespace, which owner references cannot cross, so a finalizer blocks the
//! deletion of the Site until its entry is removed. The status of the Site reports the result. A predicate drops events
//! that change only the status.
//!
//! `desired` computes the desired objects from the Site in pure functions, which are tested without a cluster. The rest
//! of this file sends requests.

mod desired;

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{ConfigMap, Service};
use kube::api::{Patch, PatchParams};
use kube::{CustomResource, ResourceExt};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use windlass::prelude::*;

/// Desired state of a site.
#[derive(Clone, Debug, PartialEq, Eq, CustomResource, Deserialize, Serialize, JsonSchema)]
#[kube(group = "example.com", version = "v1", kind = "Site", namespaced, status = "SiteStatus")]
pub struct SiteSpec {
    /// Container image that serves the site.
    pub image: String,
    /// Number of replicas.
    pub replicas: i32,
}

/// Observed state of a site.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SiteStatus {
    /// Number of ready replicas.
    pub ready_replicas: i32,
    /// Generation of the spec that this status describes.
    pub observed_generation: i64,
}

/// The namespace of the directory.
pub const DIRECTORY_NAMESPACE: &str = "kube-public";
/// The name of the directory, a ConfigMap with one line for each site.
pub const DIRECTORY: &str = "sites";
/// Annotation that pauses a Site. Its children stay unchanged, and its deletion waits until the annotation is removed.
pub const PAUSED: &str = "example.com/paused";
/// Finalizer that blocks the deletion of a Site until its entry in the directory is removed.
pub const FINALIZER: &str = "example.com/directory";

/// The controller.
#[derive(Debug)]
pub struct SiteController {
    sites: Lister<Site>,
    site: Writer<Site>,
    deployments: Owned<Deployment, Site>,
    services: Owned<Service, Site>,
    directory: Lister<ConfigMap>,
}

impl Controller for SiteController {
    const NAME: &'static str = "site-keeper";
    type Config = ();

    fn setup(setup: &mut Setup, (): &()) -> Result<Self, SetupError> {
        setup.crd::<Site>();
        setup.workers(4);
        // Requests for the directory go through `cx.api`: each has its own field manager.
        setup.uses::<ConfigMap>([Verb::Create, Verb::Patch]);

        let sites = setup.primary::<Site>().paused_by(PAUSED).when(generation_changed()).lister();
        // When another client changes the directory, every site checks its line.
        let all_sites = all_of(&sites);
        let directory = Selection {
            namespace: Some(DIRECTORY_NAMESPACE.into()),
            fields: Some(format!("metadata.name={DIRECTORY}")),
            ..Selection::default()
        };
        Ok(Self {
            sites,
            site: setup.writer::<Site>().finalizer(FINALIZER).patch_status().build(),
            deployments: setup.owned::<Deployment, Site>().apply().build(),
            services: setup.owned::<Service, Site>().apply().build(),
            directory: setup.watch::<ConfigMap>().with_selection(directory).enqueue(all_sites).lister(),
        })
    }

    async fn reconcile(&self, key: &ObjectKey, cx: &Context) -> Result<Outcome, ReconcileError> {
        let Some(site) = self.sites.get(key)? else { return Ok(Outcome::Done) };
        let cleanup = self.enter(cx, &site, None);
        let Some(site) = self.site.finalize(cx, &site, cleanup).await? else { return Ok(Outcome::Done) };
        // Not sent if nothing would change. A change by another client is undone.
        let deployment = self.deployments.apply(cx, &site, desired::deployment(&site)).await?;
        self.services.apply(cx, &site, desired::service(&site)).await?;
        self.enter(cx, &site, Some(desired::address(&site))).await?;
        let status = desired::status(&site, &deployment);
        self.site.update_status(cx, &site, |site| site.status = Some(status)).await?;
        Ok(Outcome::Done)
    }
}

impl SiteController {
    /// Sets the site's line in the directory, or removes it.
    async fn enter(&self, cx: &Context, site: &Site, address: Option<String>) -> Result<(), ReconcileError> {
        let (directory, line) = (ObjectKey::namespaced(DIRECTORY_NAMESPACE, DIRECTORY), desired::line(site));
        let present = self.directory.get(&directory)?;
        if present.and_then(|present| present.data.as_ref()?.get(&line).cloned()) == address {
            return Ok(());
        }
        // A field manager per site, so that an apply cannot remove the line of another site.
        let manager = PatchParams::apply(&format!("site-{}", site.uid().unwrap_or_default())).force();
        let entry = Patch::Apply(desired::entry(line, address));
        cx.api::<ConfigMap>(&directory).patch(DIRECTORY, &manager, &entry).await?;
        Ok(())
    }
}

#[cfg(test)]
mod tests;
