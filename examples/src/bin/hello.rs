//! Hello: copies the labels of each Service to a ConfigMap of the same name, which it creates and owns. It does not
//! change a ConfigMap of that name that another client created.
//!
//! ```sh
//! cargo run -p windlass-examples --bin hello -- --kubeconfig ~/.kube/config
//! cargo run -p windlass-examples --bin hello -- manifests rbac
//! ```

use k8s_openapi::api::core::v1::{ConfigMap, Service};
use kube::ResourceExt;
use kube::api::ObjectMeta;
use windlass::prelude::*;

struct LabelMirror {
    services: Lister<Service>,
    config_maps: Lister<ConfigMap>,
    mirrors: Writer<ConfigMap>,
}

impl Controller for LabelMirror {
    const NAME: &'static str = "label-mirror-controller";
    type Config = ();

    fn setup(setup: &mut Setup, (): &()) -> Result<Self, SetupError> {
        // Some clusters, such as OpenShift, require this permission for the owner reference.
        setup.uses_rule(Rule::new("", "services/finalizers", [Verb::Update]));
        Ok(Self {
            services: setup.primary::<Service>().lister(),
            // Map by name, not by owner: another client's ConfigMap can occupy the name and be deleted later.
            config_maps: setup.watch::<ConfigMap>().enqueue(by_self).lister(),
            mirrors: setup.writer::<ConfigMap>().create().patch().build(),
        })
    }

    async fn reconcile(&self, key: &ObjectKey, cx: &Context) -> Result<Outcome, ReconcileError> {
        // The owner reference deletes the ConfigMap together with its Service.
        let Some(service) = self.services.get(key)? else { return Ok(Outcome::Done) };
        let desired = mirror_of(&service);
        match self.config_maps.get(key)? {
            None => drop(self.mirrors.create(cx, &desired).await?),
            // Never overwrite a ConfigMap of another owner: its data could not be restored.
            Some(map) if !is_controlled_by(&map.metadata, &service.uid().unwrap_or_default()) => {
                return Err(terminal(format!("ConfigMap {key} is not owned by the Service; rename it")));
            }
            Some(mirror) => {
                // Sends no request if nothing differs. Fails with a conflict if the cached object is outdated.
                let relabel = |mirror: &mut ConfigMap| mirror.metadata.labels = desired.metadata.labels;
                self.mirrors.patch(cx, &mirror, relabel).await?;
            }
        }
        Ok(Outcome::Done)
    }
}

fn mirror_of(service: &Service) -> ConfigMap {
    let metadata = ObjectMeta {
        name: service.metadata.name.clone(),
        namespace: service.metadata.namespace.clone(),
        labels: service.metadata.labels.clone(),
        owner_references: Some(vec![controller_reference(service)]),
        ..ObjectMeta::default()
    };
    ConfigMap { metadata, ..ConfigMap::default() }
}

#[tokio::main]
async fn main() -> Result<(), windlass::Error> {
    windlass::run("label-mirror", [Registration::controller::<LabelMirror>()]).await
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use kube::api::{DeleteParams, Patch, PatchParams};
    use serde_json::json;
    use windlass::testing::{Cluster, Snapshot, object};

    use super::*;

    fn service(name: &str) -> Service {
        object(json!({
            "metadata": { "name": name, "labels": { "tier": "front" } },
            "spec": { "ports": [{ "port": 80 }] },
        }))
    }

    fn is_mirrored(now: &Snapshot, name: &str) -> bool {
        now.get::<ConfigMap>(name).is_some_and(|map| map.labels().get("tier").is_some_and(|it| it == "front"))
    }

    #[windlass::simulation(minutes = 3, faults = all, plans = 20)]
    async fn labels_are_mirrored_despite_faults(cluster: Cluster) {
        cluster.run([Registration::controller::<LabelMirror>()]);
        for name in ["web", "shop", "mail"] {
            cluster.create(&service(name)).await;
            cluster.eventually("the labels are mirrored", |now| is_mirrored(now, name)).await;
            cluster.advance(Duration::from_secs(60)).await;
        }
    }

    #[windlass::simulation(crashes = all)]
    async fn changed_mirror_is_restored(cluster: Cluster) {
        cluster.run([Registration::controller::<LabelMirror>()]);
        let web = json!({ "metadata": { "name": "web" }, "spec": { "ports": [{ "port": 80 }] } });
        cluster.create(&object::<Service>(web)).await;
        cluster.eventually("the mirror exists", |now| now.get::<ConfigMap>("web").is_some()).await;

        let mirrors = cluster.api::<ConfigMap>();
        let scribble = Patch::Merge(json!({ "metadata": { "labels": { "tier": "back" } } }));
        mirrors.patch("web", &PatchParams::default(), &scribble).await.expect("the mirror exists");
        let is_restored =
            |now: &Snapshot| now.get::<ConfigMap>("web").is_some_and(|map| map.labels().is_empty());
        cluster.eventually("the labels are restored", is_restored).await;
    }

    #[windlass::simulation(hours = 1, faults = all)]
    async fn foreign_configmap_is_not_overwritten(cluster: Cluster) {
        cluster.run([Registration::controller::<LabelMirror>()]);
        let precious = json!({ "metadata": { "name": "web" }, "data": { "precious": "yes" } });
        let precious = cluster.create(&object::<ConfigMap>(precious)).await;
        cluster.create(&service("web")).await;
        cluster.advance(Duration::from_secs(600)).await;
        assert_eq!(cluster.snapshot().get::<ConfigMap>("web"), Some(precious));

        let maps = cluster.api::<ConfigMap>();
        maps.delete("web", &DeleteParams::default()).await.expect("the ConfigMap exists");
        cluster.eventually("the labels are mirrored", |now| is_mirrored(now, "web")).await;
    }
}
