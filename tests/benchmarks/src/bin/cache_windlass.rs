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
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use windlass_client::{ClientOptions, Clients, OpenFence, load_config};
use windlass_env::Env;
use windlass_informer::{
    ApiServerSources, FactoryOptions, Informer, InformerFactory, Selection, SharedInformer,
};
use windlass_macros::View;
use windlass_metrics::Metrics;
use windlass_object::{Metadata, MetadataObjects, ResourceKind};

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
    ("slim", |factory| Cache::of(factory.typed::<SlimPod>())),
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
    let factory = InformerFactory::new(env, metrics, FactoryOptions::default());
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

/// The fields that the slim transforms of the peers keep, except annotations: metadata, node, phase, addresses and
/// conditions.
#[derive(View)]
#[view(of = "v1/Pod", crate = windlass_object)]
struct SlimPod {
    metadata: Metadata,
    #[view(path = "spec.nodeName")]
    node: Option<Arc<str>>,
    #[view(path = "status.phase")]
    phase: Arc<str>,
    #[view(path = "status.conditions")]
    conditions: Box<[ConditionView]>,
    #[view(path = "status.podIP")]
    pod_ip: Box<str>,
    #[view(path = "status.podIPs")]
    pod_ips: Box<[IpView]>,
    #[view(path = "status.hostIP")]
    host_ip: Arc<str>,
}

/// A condition of a Pod.
#[derive(View)]
#[view(of = "v1/Pod", at = "status.conditions", crate = windlass_object)]
struct ConditionView {
    #[view(path = "type")]
    of_type: Arc<str>,
    #[view(path = "status")]
    status: Arc<str>,
    #[view(path = "reason")]
    reason: Arc<str>,
    #[view(path = "message")]
    message: Arc<str>,
    #[view(path = "lastTransitionTime")]
    since: Option<Time>,
}

/// An address of a Pod.
#[derive(View)]
#[view(of = "v1/Pod", at = "status.podIPs", crate = windlass_object)]
struct IpView {
    #[view(path = "ip")]
    ip: Box<str>,
}
