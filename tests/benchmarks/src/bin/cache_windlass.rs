//! Windlass as a program that caches Pods, for the workload `cache`.
//!
//! It takes a kubeconfig and a representation, prints `synced <number of Pods>` and `idle`, and keeps its cache until
//! its standard input ends. It must not use the library of this package, which links an allocator that counts.

// The parent process reads the output.
#![allow(clippy::print_stdout)]

use std::io::{Read as _, Write as _};
use std::path::Path;
use std::sync::Arc;

use anyhow::{Context as _, Result, bail};
use k8s_openapi::api::core::v1::{Pod, PodSpec, PodStatus};
use windlass_client::{ClientOptions, Clients, OpenFence, load_config};
use windlass_env::Env;
use windlass_informer::{
    ApiServerSources, FactoryOptions, Informer, InformerFactory, KindOptions, Selection, SharedInformer,
};
use windlass_metrics::Metrics;
use windlass_object::{MetadataObjects, ResourceKind};

/// A representation, and the function that creates its informer.
type Representation = (&'static str, fn(&InformerFactory) -> Cache);

/// Every representation that can be measured, each on one line.
const REPRESENTATIONS: &[Representation] = &[
    ("typed", |factory| Cache::of(factory.typed::<Pod>())),
    ("decoded", |factory| {
        let pods = factory.typed::<Pod>();
        pods.keep_decoded();
        Cache::of(pods)
    }),
    // The same informer, with the transform that `options` sets.
    ("slim", |factory| Cache::of(factory.typed::<Pod>())),
    ("metadata", |factory| Cache::of(factory.informer(MetadataObjects::new(pods()), Selection::default()))),
];

/// An informer of any representation.
struct Cache {
    informer: Arc<Informer>,
    count: Box<dyn Fn() -> usize + Send>,
}

impl Cache {
    fn of<T: Send + Sync + 'static>(informer: SharedInformer<T>) -> Cache {
        let lister = informer.lister();
        Cache { informer: Arc::clone(informer.erased()), count: Box::new(move || lister.len()) }
    }
}

fn pods() -> ResourceKind {
    ResourceKind::of::<Pod>()
}

#[tokio::main]
async fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [kubeconfig, name] = arguments.as_slice() else { bail!("usage: <kubeconfig> <representation>") };
    let representation = REPRESENTATIONS.iter().find(|(known, _)| known == name);
    let (_, create) = representation.with_context(|| format!("unknown representation {name}"))?;
    if rustls::crypto::ring::default_provider().install_default().is_err() {
        bail!("a provider of cryptography is already installed");
    }
    let (env, metrics) = (Env::system("benchmark"), Metrics::new());
    let config = load_config(Some(Path::new(kubeconfig)), None).await?;
    let clients = Clients::new(env.clone(), config, ClientOptions::default(), &metrics, Arc::new(OpenFence))?;
    let factory = InformerFactory::new(env, metrics, options(name));
    let cache = create(&factory);
    factory.start(Arc::new(ApiServerSources::new(clients.for_informers()?)));
    if !cache.informer.synced().await {
        bail!("the informer stopped before it was synced");
    }
    println!("synced {}\nidle", (cache.count)());
    std::io::stdout().flush()?;
    tokio::task::spawn_blocking(|| std::io::stdin().read_to_end(&mut Vec::new())).await??;
    factory.shutdown().await;
    Ok(())
}

fn options(representation: &str) -> FactoryOptions {
    let mut options = FactoryOptions::default();
    if representation == "slim" {
        options.kinds.set(KindOptions::new().transform(slim));
    }
    options
}

/// Keeps the fields that the slim transforms of the peers keep: metadata, node, phase, addresses and conditions.
fn slim(pod: &mut Pod) {
    let node_name = pod.spec.take().and_then(|spec| spec.node_name);
    pod.spec = Some(PodSpec { node_name, ..PodSpec::default() });
    let status = pod.status.take().unwrap_or_default();
    let (phase, conditions) = (status.phase, status.conditions);
    let (pod_ip, pod_ips, host_ip) = (status.pod_ip, status.pod_ips, status.host_ip);
    pod.status = Some(PodStatus { phase, conditions, pod_ip, pod_ips, host_ip, ..PodStatus::default() });
}
