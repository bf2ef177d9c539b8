//! Several kinds: a `Site` is a Deployment, a Service and an entry in a directory that all namespaces share.
//!
//! What it owns is found by owner references, and deleted with it by the cluster. The directory lies in another
//! namespace, where no owner reference reaches, so a finalizer holds the Site until its entry is taken out. What became
//! of it all is told in the Site's status, and changes of the status alone wake nobody.
//!
//! `plan` decides, as a function of what there is; what it decides is tested without a cluster. The rest of this file
//! sends requests.

mod plan;

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{ConfigMap, Service};
use kube::api::{Patch, PatchParams};
use kube::{Api, Client, CustomResource, ResourceExt};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;
use windlass::prelude::*;

use self::plan::{Seen, Step, plan};

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
pub struct SiteKeeper {
    sites: Lister<Site>,
    deployments: Lister<Deployment>,
    services: Lister<Service>,
    directory: Lister<ConfigMap>,
}

impl Controller for SiteKeeper {
    const NAME: &'static str = "site-keeper";
    type Config = ();

    fn setup(setup: &mut Setup, (): &()) -> Result<Self, SetupError> {
        setup.uses::<Site>([Verb::Patch]);
        setup.uses_subresource::<Site>("status", [Verb::Patch]);
        setup.uses::<Deployment>([Verb::Create, Verb::Patch]);
        setup.uses::<Service>([Verb::Create, Verb::Patch]);
        setup.uses::<ConfigMap>([Verb::Create, Verb::Patch]);
        setup.workers(4);

        let sites = setup.primary::<Site>().paused_by(PAUSED).when(generation_changed()).lister();
        // Whoever changes the directory by hand meets the controller: every site looks after its line.
        let everybody = all_of(&sites);
        let directory = Selection {
            namespace: Some(DIRECTORY_NAMESPACE.into()),
            fields: Some(format!("metadata.name={DIRECTORY}")),
            ..Selection::default()
        };
        Ok(Self {
            sites,
            deployments: setup.watch::<Deployment>().enqueue(by_owner::<Site>).lister(),
            services: setup.watch::<Service>().enqueue(by_owner::<Site>).lister(),
            directory: setup.watch::<ConfigMap>().selecting(directory).enqueue(everybody).lister(),
        })
    }

    async fn reconcile(&self, key: &ObjectKey, cx: &Context) -> Result<Outcome, ReconcileError> {
        let Some(site) = self.sites.get(key)? else { return Ok(Outcome::Done) };
        let directory = self.directory.get(&ObjectKey::namespaced(DIRECTORY_NAMESPACE, DIRECTORY))?;
        let seen = Seen {
            deployment: self.deployments.get(key)?,
            service: self.services.get(key)?,
            line: directory.and_then(|directory| directory.data.as_ref()?.get(&plan::line_of(key)).cloned()),
        };
        for step in plan(&site, &seen) {
            take(step, &site, cx.client()).await?;
        }
        Ok(Outcome::Done)
    }
}

async fn take(step: Step, site: &Site, client: &Client) -> Result<(), kube::Error> {
    let (namespace, name) = (site.namespace().unwrap_or_default(), site.name_any());
    let sites = || Api::<Site>::namespaced(client.clone(), &namespace);
    // By force: what somebody else made of our fields is what we are here to mend.
    let (ours, merged) = (PatchParams::apply(SiteKeeper::NAME).force(), PatchParams::default());
    match step {
        Step::Finalizers { version, finalizers } => {
            // With the version seen, so that nobody else's finalizer is lost.
            let metadata = json!({ "finalizers": finalizers, "resourceVersion": version });
            sites().patch(&name, &merged, &Patch::Merge(json!({ "metadata": metadata }))).await?;
        }
        Step::Deploy(deployment) => {
            let deployments = Api::<Deployment>::namespaced(client.clone(), &namespace);
            deployments.patch(&name, &ours, &Patch::Apply(&deployment)).await?;
        }
        Step::Expose(service) => {
            let services = Api::<Service>::namespaced(client.clone(), &namespace);
            services.patch(&name, &ours, &Patch::Apply(&service)).await?;
        }
        Step::Enter(entry) => {
            let directories = Api::<ConfigMap>::namespaced(client.clone(), DIRECTORY_NAMESPACE);
            // Every site manages its own line, so that none takes out the line of another.
            let line = PatchParams::apply(&format!("site-{}", site.uid().unwrap_or_default())).force();
            directories.patch(DIRECTORY, &line, &Patch::Apply(&entry)).await?;
        }
        Step::Report(status) => {
            let status = Patch::Merge(json!({ "status": status }));
            sites().patch_status(&name, &merged, &status).await?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests;
