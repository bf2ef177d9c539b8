//! Indexes: restarts Deployments when a ConfigMap that they use changes.
//!
//! A Deployment names the ConfigMaps that its pods read. An index finds the Deployments that read a given ConfigMap
//! without a scan of all Deployments. The informer updates the index when objects change, and reads do not block. A
//! Deployment that reads no ConfigMap gets no annotation, and its pods are not restarted.

use std::collections::BTreeSet;
use std::hash::{DefaultHasher, Hash, Hasher as _};

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::ConfigMap;
use windlass::prelude::*;

/// Pod template annotation with a hash of the settings. A changed value restarts the pods.
pub const SETTINGS: &str = "example.com/settings";

/// The controller.
#[derive(Debug)]
pub struct Restarter {
    deployments: Lister<Deployment>,
    settings: Lister<ConfigMap>,
    deployment: Writer<Deployment>,
}

impl Controller for Restarter {
    const NAME: &'static str = "settings-restarter";
    type Config = ();

    fn setup(setup: &mut Setup, (): &()) -> Result<Self, SetupError> {
        let deployments = setup.primary::<Deployment>().lister();
        let users = deployments.index(settings_of);
        let settings = setup.watch::<ConfigMap>().enqueue(by_index(&users)).lister();
        Ok(Self { deployments, settings, deployment: setup.writer::<Deployment>().patch().build() })
    }

    async fn reconcile(&self, key: &ObjectKey, cx: &Context) -> Result<Outcome, ReconcileError> {
        let Some(deployment) = self.deployments.get(key)? else { return Ok(Outcome::Done) };
        let used = settings_of(&deployment);
        if used.is_empty() {
            return Ok(Outcome::Done);
        }
        let mut settings = Vec::new();
        for map in &used {
            settings.extend(self.settings.get(map)?);
        }
        let hash = fingerprint(settings.iter().map(|map| map.data.clone().unwrap_or_default()));
        let restart = |deployment: &mut Deployment| {
            let template = &mut deployment.spec.get_or_insert_default().template;
            let annotations = &mut template.metadata.get_or_insert_default().annotations;
            annotations.get_or_insert_default().insert(SETTINGS.to_owned(), hash);
        };
        self.deployment.patch(cx, &deployment, restart).await?;
        Ok(Outcome::Done)
    }
}

/// Returns the keys of the ConfigMaps that a Deployment's pods read with `envFrom` or as volumes.
fn settings_of(deployment: &Deployment) -> Vec<ObjectKey> {
    let namespace = deployment.metadata.namespace.as_deref();
    let pod = deployment.spec.as_ref().and_then(|spec| spec.template.spec.as_ref());
    let variables = pod.into_iter().flat_map(|pod| &pod.containers).flat_map(|container| {
        let sources = container.env_from.iter().flatten();
        sources.filter_map(|source| Some(source.config_map_ref.as_ref()?.name.as_str()))
    });
    let volumes = pod.into_iter().flat_map(|pod| pod.volumes.iter().flatten());
    let files = volumes.filter_map(|volume| Some(volume.config_map.as_ref()?.name.as_str()));
    let names: BTreeSet<&str> = variables.chain(files).collect();
    names.into_iter().map(|name| ObjectKey::new(namespace, name)).collect()
}

/// Returns a hash of all parts in hexadecimal.
fn fingerprint(parts: impl Iterator<Item: Hash>) -> String {
    let mut hasher = DefaultHasher::new();
    parts.for_each(|part| part.hash(&mut hasher));
    format!("{:016x}", hasher.finish())
}

#[cfg(test)]
mod tests {
    use kube::api::{Patch, PatchParams};
    use serde_json::{Value, json};
    use windlass::testing::{Cluster, Snapshot, object};

    use super::*;

    fn annotation(deployment: &Deployment) -> Option<&String> {
        deployment.spec.as_ref()?.template.metadata.as_ref()?.annotations.as_ref()?.get(SETTINGS)
    }

    fn settings(name: &str, color: &str) -> ConfigMap {
        object(json!({ "metadata": { "name": name }, "data": { "color": color } }))
    }

    /// A Deployment whose pods read these ConfigMaps, the first as variables and the others as files.
    fn deployment(name: &str, reads: &[&str]) -> Deployment {
        let variables: Vec<Value> =
            reads.iter().take(1).map(|map| json!({ "configMapRef": { "name": map } })).collect();
        let files: Vec<Value> =
            reads.iter().skip(1).map(|map| json!({ "name": map, "configMap": { "name": map } })).collect();
        object(json!({
            "metadata": { "name": name },
            "spec": {
                "selector": { "matchLabels": { "app": name } },
                "template": {
                    "metadata": { "labels": { "app": name } },
                    "spec": {
                        "containers": [{ "name": "main", "image": "example/app", "envFrom": variables }],
                        "volumes": files,
                    },
                },
            },
        }))
    }

    fn restarted_for(now: &Snapshot, name: &str) -> Option<String> {
        annotation(&now.get::<Deployment>(name)?).cloned()
    }

    #[test]
    fn deployment_is_indexed_once_by_each_configmap() {
        let of = |reads: &[&str]| settings_of(&deployment("web", reads));
        assert_eq!(of(&[]), []);
        assert_eq!(
            of(&["colors", "sizes", "colors"]),
            ["colors", "sizes"].map(|name| ObjectKey::namespaced("default", name))
        );
    }

    #[windlass::simulation(crashes = all, caches = [Deployment, ConfigMap])]
    async fn deployment_restarts_only_when_its_settings_change(cluster: Cluster) {
        cluster.run([Registration::controller::<Restarter>()]);
        for map in [settings("colors", "red"), settings("sizes", "-")] {
            cluster.create(&map).await;
        }
        for deployment in [deployment("web", &["sizes", "colors"]), deployment("mail", &["sizes"])] {
            cluster.create(&deployment).await;
        }
        let both = |now: &Snapshot| ["web", "mail"].iter().all(|name| restarted_for(now, name).is_some());
        cluster.eventually("both have the annotation", both).await;
        cluster.settle().await;
        let before = cluster.snapshot();

        let maps = cluster.api::<ConfigMap>();
        let blue = Patch::Merge(json!({ "data": { "color": "blue" } }));
        maps.patch("colors", &PatchParams::default(), &blue).await.expect("the ConfigMap exists");
        let web = restarted_for(&before, "web");
        cluster.eventually("web is restarted", |now| restarted_for(now, "web") != web).await;
        assert_eq!(restarted_for(&cluster.snapshot(), "mail"), restarted_for(&before, "mail"));
    }

    #[windlass::simulation(minutes = 10, faults = all, plans = 3, resources = ["deployments", "configmaps"])]
    async fn random_faults_change_nothing(cluster: Cluster) {
        cluster.run([Registration::controller::<Restarter>()]);
        cluster.create(&deployment("web", &["colors"])).await;
        cluster.create(&settings("colors", "red")).await;
        let red = fingerprint([settings("colors", "red").data].into_iter().flatten());
        cluster.eventually("web runs in red", |now| restarted_for(now, "web") == Some(red.clone())).await;

        let maps = cluster.api::<ConfigMap>();
        let to_blue = Patch::Merge(json!({ "data": { "color": "blue" } }));
        maps.patch("colors", &PatchParams::default(), &to_blue).await.expect("the ConfigMap exists");
        let blue = fingerprint([settings("colors", "blue").data].into_iter().flatten());
        cluster.eventually("web runs in blue", |now| restarted_for(now, "web") == Some(blue.clone())).await;
    }
}
