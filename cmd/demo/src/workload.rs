//! The sample workload: Deployments, and a Service in front of each.

use anyhow::{Context as _, Result};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::Service;
use kube::api::{Api, PostParams};
use kube::{Client, Resource};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

/// Limit of pods per Deployment of the workload. Larger workloads have several Deployments, as in clusters of that
/// size.
const EACH: u32 = 250;

/// Creates the missing objects.
///
/// # Errors
/// When the API server rejects an object.
pub(crate) async fn apply(client: &Client, pods: u32) -> Result<()> {
    let (deployments, services) =
        (Api::default_namespaced(client.clone()), Api::default_namespaced(client.clone()));
    for (name, replicas) in parts(pods) {
        create::<Service>(&services, service(&name)).await?;
        create::<Deployment>(&deployments, deployment(&name, replicas)).await?;
    }
    Ok(())
}

/// Returns the name of the first Deployment.
pub(crate) fn first_name(pods: u32) -> String {
    parts(pods).next().map_or_else(|| "web".to_owned(), |(name, _)| name)
}

/// Returns the Deployments with their share of the pods.
fn parts(pods: u32) -> impl Iterator<Item = (String, u32)> {
    let count = pods.div_ceil(EACH);
    let name = move |part: u32| if count == 1 { "web".to_owned() } else { format!("web-{part}") };
    (0..count).map(move |part| (name(part), EACH.min(pods - part * EACH)))
}

async fn create<K>(api: &Api<K>, object: Value) -> Result<()>
where
    K: Resource<DynamicType = ()> + Clone + std::fmt::Debug + Serialize + DeserializeOwned,
{
    let object: K = serde_json::from_value(object)?;
    match api.create(&PostParams::default(), &object).await {
        // It exists in the restored state of an earlier demo.
        Err(kube::Error::Api(status)) if status.code == 409 => Ok(()),
        created => created.map(drop).with_context(|| format!("cannot create a {}", K::kind(&()))),
    }
}

fn deployment(name: &str, replicas: u32) -> Value {
    json!({
        "metadata": { "name": name },
        "spec": {
            "replicas": replicas,
            "selector": { "matchLabels": { "app": name } },
            "template": {
                "metadata": { "labels": { "app": name } },
                // Never pulled: the simulated nodes run no containers.
                "spec": { "containers": [{ "name": "web", "image": "example.com/web" }] },
            },
        },
    })
}

fn service(name: &str) -> Value {
    json!({
        "metadata": { "name": name },
        "spec": { "selector": { "app": name }, "ports": [{ "port": 80 }] },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pods_are_divided_among_deployments_of_limited_size() {
        assert_eq!(parts(0).count(), 0);
        assert_eq!(parts(5).collect::<Vec<_>>(), [("web".to_owned(), 5)]);
        let many: Vec<_> = parts(600).collect();
        assert_eq!(many.iter().map(|(_, replicas)| replicas).sum::<u32>(), 600);
        assert_eq!((many.len(), many[2].0.as_str(), many[2].1), (3, "web-2", 100));
        assert_eq!(first_name(600), "web-0");
    }
}
