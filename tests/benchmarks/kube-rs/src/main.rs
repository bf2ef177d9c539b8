//! kube-rs's reflector as a program that caches Pods, in its best public configuration: streamed lists, and objects
//! without `managedFields`.
//!
//! It takes a kubeconfig and a representation, prints `synced <number of Pods>` and `idle`, and keeps its cache until
//! its standard input ends.

use std::hash::Hash;
use std::io::{Read as _, Write as _};
use std::path::Path;

use anyhow::{Context as _, Result, bail};
use futures_util::{Stream, StreamExt as _};
use k8s_openapi::api::core::v1::{Pod, PodSpec, PodStatus};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::core::PartialObjectMeta;
use kube::runtime::{WatchStreamExt as _, reflector, watcher};
use kube::{Api, Client, Config, Resource};

#[tokio::main]
async fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [kubeconfig, representation] = arguments.as_slice() else {
        bail!("usage: <kubeconfig> <representation>");
    };
    let kubeconfig = Kubeconfig::read_from(Path::new(kubeconfig)).context("kubeconfig")?;
    let config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await?;
    let client = Client::try_from(config)?;
    let pods: Api<Pod> = Api::all(client.clone());
    let streamed = watcher::Config::default().streaming_lists();
    match representation.as_str() {
        "full" => keep(watcher(pods, streamed).modify(strip)).await,
        "full-paged" => keep(watcher(pods, watcher::Config::default()).modify(strip)).await,
        "slim" => keep(watcher(pods, streamed).modify(slim)).await,
        "metadata" => keep(watcher(Api::all(client), streamed).modify(strip_metadata)).await,
        other => bail!("unknown representation {other}"),
    }
}

fn strip(pod: &mut Pod) {
    pod.metadata.managed_fields = None;
}

fn strip_metadata(pod: &mut PartialObjectMeta<Pod>) {
    pod.metadata.managed_fields = None;
}

/// Keeps the fields that the slim transform of the Go peer keeps.
fn slim(pod: &mut Pod) {
    strip(pod);
    let node = pod.spec.take().and_then(|spec| spec.node_name);
    pod.spec = Some(PodSpec { node_name: node, ..PodSpec::default() });
    let status = pod.status.take().unwrap_or_default();
    let (phase, conditions) = (status.phase, status.conditions);
    let (pod_ip, pod_ips, host_ip) = (status.pod_ip, status.pod_ips, status.host_ip);
    pod.status = Some(PodStatus { phase, conditions, pod_ip, pod_ips, host_ip, ..PodStatus::default() });
}

/// Stores the objects of a watch, reports when the list is complete, and returns when the standard input ends.
async fn keep<K>(
    changes: impl Stream<Item = watcher::Result<watcher::Event<K>>> + Send + 'static,
) -> Result<()>
where
    K: Resource + Clone + Send + Sync + 'static,
    K::DynamicType: Default + Eq + Hash + Clone + Send + Sync,
{
    let (reader, writer) = reflector::store();
    let reflected = changes.default_backoff().reflect(writer);
    let following = tokio::spawn(reflected.for_each(|event| async {
        if let Err(error) = event {
            // The watcher retries.
            eprintln!("kube-rs: {error}");
        }
    }));
    reader.wait_until_ready().await?;
    println!("synced {}\nidle", reader.len());
    std::io::stdout().flush()?;
    tokio::task::spawn_blocking(|| std::io::stdin().read_to_end(&mut Vec::new())).await??;
    following.abort();
    Ok(())
}
