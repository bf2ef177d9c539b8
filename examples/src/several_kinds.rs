//! Several kinds: a `Site` is a Deployment, a Service and an entry in a directory that all namespaces share.
//!
//! What it owns is found by owner references, and deleted with it by the cluster. The directory lies in another
//! namespace, where no owner reference reaches, so a finalizer holds the Site until its entry is taken out. What became
//! of it all is told in the Site's status, and changes of the status alone wake nobody.
//!
//! `desired` describes what there is to be, as functions of the Site, which are tested without a cluster. The rest of this
//! file sends requests.

mod desired;

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{ConfigMap, Service};
use kube::api::{Patch, PatchParams};
use kube::{CustomResource, ResourceExt};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use windlass::prelude::*;

/// What is wanted of a site.
#[derive(Clone, Debug, PartialEq, Eq, CustomResource, Deserialize, Serialize, JsonSchema)]
#[kube(group = "example.com", version = "v1", kind = "Site", namespaced, status = "SiteStatus")]
pub struct SiteSpec {
    /// What serves the site.
    pub image: String,
    /// How often.
    pub replicas: i32,
}

/// What became of it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SiteStatus {
    /// How many replicas answer.
    pub ready_replicas: i32,
    /// Which generation of the spec this is about.
    pub observed_generation: i64,
}

/// The namespace of the directory.
pub const DIRECTORY_NAMESPACE: &str = "kube-public";
/// The name of the directory, a ConfigMap with one line for each site.
pub const DIRECTORY: &str = "sites";
/// The annotation that pauses a Site: what stands stays, and so does a Site that is deleted meanwhile, until it goes.
pub const PAUSED: &str = "example.com/paused";
/// What holds a Site until its line is taken out.
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
            site: setup.writer::<Site>().finalizer(FINALIZER).status().build(),
            deployments: setup.owned::<Deployment, Site>().apply().build(),
            services: setup.owned::<Service, Site>().apply().build(),
            directory: setup.watch::<ConfigMap>().selecting(directory).enqueue(all_sites).lister(),
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
        // Every site manages its own line, so that none removes the line of another.
        let manager = PatchParams::apply(&format!("site-{}", site.uid().unwrap_or_default())).force();
        let entry = Patch::Apply(desired::entry(line, address));
        cx.api::<ConfigMap>(&directory).patch(DIRECTORY, &manager, &entry).await?;
        Ok(())
    }
}

#[cfg(test)]
mod tests;
