//! Hello: mirrors the labels of every Service onto a ConfigMap of the same name, which it creates and owns. A
//! ConfigMap of that name that somebody else made stays as it is.
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
        Ok(Self {
            services: setup.primary::<Service>().lister(),
            // By name and not by owner: one that somebody else made may be in the way, and go.
            config_maps: setup.watch::<ConfigMap>().enqueue(by_self).lister(),
            mirrors: setup.writer::<ConfigMap>().create().update().build(),
        })
    }

    async fn reconcile(&self, key: &ObjectKey, cx: &Context) -> Result<Outcome, ReconcileError> {
        // A Service that is gone takes its ConfigMap with it, by the owner reference.
        let Some(service) = self.services.get(key)? else { return Ok(Outcome::Done) };
        let wanted = mirror_of(&service);
        match self.config_maps.get(key)? {
            None => drop(self.mirrors.create(cx, &wanted).await?),
            // What others made is theirs, whatever its name: it may hold what nobody could bring back.
            Some(map) if !is_controlled_by(&map.metadata, &service.uid().unwrap_or_default()) => {
                return Err(terminal(format!("the ConfigMap {key} is not the Service's: rename either")));
            }
            Some(mirror) => {
                // Sends nothing if nothing differs, and fails if somebody else wrote since it was read.
                let relabel = |mirror: &mut ConfigMap| mirror.metadata.labels = wanted.metadata.labels;
                self.mirrors.update(cx, &mirror, relabel).await?;
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
    windlass::run("label-mirror", [Registration::of::<LabelMirror>()]).await
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use kube::api::{DeleteParams, Patch, PatchParams};
    use serde_json::json;
    use windlass::testing::{Cluster, Snapshot, object};

    use super::*;

    fn is_mirrored(now: &Snapshot) -> bool {
        now.get::<ConfigMap>("web")
            .is_some_and(|map| map.labels().get("tier").is_some_and(|it| it == "front"))
    }

    #[windlass::simulation(hours = 1, faults = all)]
    async fn labels_are_mirrored_whatever_happens(cluster: Cluster) {
        cluster.run([Registration::of::<LabelMirror>()]);
        let web = json!({
            "metadata": { "name": "web", "labels": { "tier": "front" } },
            "spec": { "ports": [{ "port": 80 }] },
        });
        cluster.create(&object::<Service>(web)).await;
        cluster.eventually("the labels are mirrored", is_mirrored).await;
    }

    #[windlass::simulation(crashes = all)]
    async fn mirror_that_somebody_changes_is_mended(cluster: Cluster) {
        cluster.run([Registration::of::<LabelMirror>()]);
        let web = json!({ "metadata": { "name": "web" }, "spec": { "ports": [{ "port": 80 }] } });
        cluster.create(&object::<Service>(web)).await;
        cluster.eventually("there is a mirror", |now| now.get::<ConfigMap>("web").is_some()).await;

        let mirrors = cluster.api::<ConfigMap>();
        let scribble = Patch::Merge(json!({ "metadata": { "labels": { "tier": "back" } } }));
        mirrors.patch("web", &PatchParams::default(), &scribble).await.expect("the mirror is there");
        let mended = |now: &Snapshot| now.get::<ConfigMap>("web").is_some_and(|map| map.labels().is_empty());
        cluster.eventually("the mirror is mended", mended).await;
    }

    #[windlass::simulation(hours = 1, faults = all)]
    async fn map_that_somebody_else_made_is_left_alone_until_it_makes_way(cluster: Cluster) {
        cluster.run([Registration::of::<LabelMirror>()]);
        let precious = json!({ "metadata": { "name": "web" }, "data": { "precious": "yes" } });
        let precious = cluster.create(&object::<ConfigMap>(precious)).await;
        let web = json!({
            "metadata": { "name": "web", "labels": { "tier": "front" } },
            "spec": { "ports": [{ "port": 80 }] },
        });
        cluster.create(&object::<Service>(web)).await;
        cluster.advance(Duration::from_secs(600)).await;
        assert_eq!(cluster.snapshot().get::<ConfigMap>("web"), Some(precious));

        let maps = cluster.api::<ConfigMap>();
        maps.delete("web", &DeleteParams::default()).await.expect("it is there");
        cluster.eventually("the labels are mirrored", is_mirrored).await;
    }
}
