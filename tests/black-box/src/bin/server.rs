//! Measures the in-process API server and kube-apiserver, each over a socket and with the same client: creates and gets
//! of pods, lists of all pods, and changes that are delivered to 100 watchers.
//!
//! Servers and client run on the same machine: compare the ratios, not the rates.

use std::{
    net::Ipv4Addr,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, ensure};
use futures_util::{StreamExt as _, TryStreamExt as _, stream};
use k8s_openapi::api::core::v1::{Namespace, Pod};
use kube::{
    Api, Client, Config,
    api::{ListParams, Patch, PatchParams, PostParams, WatchEvent, WatchParams},
};
use serde_json::json;
use tokio::net::TcpListener;
use windlass_api_server::{ApiServer, ApiServerOptions};
use windlass_black_box::sample::{Metric, write_sample};
use windlass_env::Env;
use windlass_harness::{ControlPlane, ControlPlaneOptions};

const PODS: usize = 10_000;
const LISTS: usize = 10;
const WATCHERS: usize = 100;
const CHANGES: usize = 100;
/// Requests in flight at the same time.
const AT_ONCE: usize = 32;
const NAMESPACE: &str = "load";

#[derive(Debug)]
struct Figures {
    creates: f64,
    gets: f64,
    lists: f64,
    events: f64,
}

fn main() -> Result<()> {
    let rounds: usize = std::env::args().nth(1).map_or(Ok(1), |text| text.parse()).context("rounds")?;
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    for _ in 0..rounds {
        runtime.block_on(real())?.write("kube-apiserver", false)?;
        runtime.block_on(ours())?.write("in the process", true)?;
    }
    Ok(())
}

impl Figures {
    fn write(&self, server: &str, is_windlass: bool) -> Result<()> {
        let Figures { creates, gets, lists, events } = *self;
        let values = [
            ("creates", creates),
            ("gets", gets),
            ("lists of 10,000 Pods", lists),
            ("events to 100 watchers", events),
        ];
        for (name, value) in values {
            let metric = Metric { name, unit: "per_second", times_better: None };
            write_sample("API server over a socket", metric, server, is_windlass, value)?;
        }
        Ok(())
    }
}

async fn real() -> Result<Figures> {
    let nothing_else = ControlPlaneOptions::default().nodes(0).scheduler(false);
    let plane = ControlPlane::start(nothing_else).await?;
    let figures = measure(plane.client().await).await?;
    plane.stop().await?;
    Ok(figures)
}

async fn ours() -> Result<Figures> {
    let env = Env::system("measured");
    let server = ApiServer::new(&env, ApiServerOptions::default());
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
    let config = Config::new(format!("http://{}", listener.local_addr()?).parse()?);
    let serving = env.spawn("api server", server.serve(listener));
    let figures = measure(Client::try_from(config)?).await?;
    server.stop();
    serving.await??;
    Ok(figures)
}

async fn measure(client: Client) -> Result<Figures> {
    let namespace: Namespace = serde_json::from_value(json!({ "metadata": { "name": NAMESPACE } }))?;
    Api::all(client.clone()).create(&PostParams::default(), &namespace).await?;
    let pods: Api<Pod> = Api::namespaced(client, NAMESPACE);
    until_pods_are_taken(&pods).await?;
    Ok(Figures {
        creates: rate(PODS, |index| create(pods.clone(), index)).await?,
        gets: rate(PODS, |index| get(pods.clone(), index)).await?,
        lists: lists(&pods).await?,
        events: events(&pods).await?,
    })
}

/// Waits until pods are accepted: kube-apiserver rejects them until their ServiceAccount exists.
async fn until_pods_are_taken(pods: &Api<Pod>) -> Result<()> {
    let started = Instant::now();
    while let Err(error) = pods.create(&PostParams::default(), &pod("first")?).await {
        ensure!(started.elapsed() < Duration::from_secs(30), "pods are still rejected: {error}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    Ok(())
}

fn pod(name: &str) -> Result<Pod> {
    // The scheduler does not exist, so that the pod does not change.
    Ok(serde_json::from_value(json!({
        "metadata": { "name": name, "labels": { "app": "load" } },
        "spec": { "schedulerName": "nobody", "containers": [{ "name": "main", "image": "example.com/main" }] },
    }))?)
}

async fn create(pods: Api<Pod>, index: usize) -> Result<()> {
    pods.create(&PostParams::default(), &pod(&format!("pod-{index}"))?).await?;
    Ok(())
}

async fn get(pods: Api<Pod>, index: usize) -> Result<()> {
    pods.get(&format!("pod-{index}")).await?;
    Ok(())
}

/// Sends `count` requests and returns the number of completed requests per second.
async fn rate<F: Future<Output = Result<()>>>(count: usize, request: impl Fn(usize) -> F) -> Result<f64> {
    let started = Instant::now();
    stream::iter(0..count).map(request).buffer_unordered(AT_ONCE).try_collect::<Vec<()>>().await?;
    Ok(count as f64 / started.elapsed().as_secs_f64())
}

async fn lists(pods: &Api<Pod>) -> Result<f64> {
    let started = Instant::now();
    for _ in 0..LISTS {
        // The response is not decoded, because only the server is measured.
        let request = kube::core::Request::new(pods.resource_url()).list(&ListParams::default())?;
        let text = pods.clone().into_client().request_text(request.map(Into::into)).await?;
        ensure!(text.len() > PODS * 100, "a list of {} bytes does not hold {PODS} pods", text.len());
    }
    Ok(LISTS as f64 / started.elapsed().as_secs_f64())
}

async fn events(pods: &Api<Pod>) -> Result<f64> {
    let from =
        pods.list(&ListParams::default().limit(1)).await?.metadata.resource_version.unwrap_or_default();
    let watchers: Vec<_> = (0..WATCHERS).map(|_| tokio::spawn(watch(pods.clone(), from.clone()))).collect();
    let started = Instant::now();
    for index in 0..CHANGES {
        let label = json!({ "metadata": { "labels": { "change": index.to_string() } } });
        pods.patch("pod-0", &PatchParams::default(), &Patch::Merge(label)).await?;
    }
    for watcher in watchers {
        watcher.await??;
    }
    Ok((WATCHERS * CHANGES) as f64 / started.elapsed().as_secs_f64())
}

async fn watch(pods: Api<Pod>, from: String) -> Result<()> {
    let events = pods.watch(&WatchParams::default(), &from).await?;
    let mut changes = std::pin::pin!(events);
    let mut seen = 0;
    while seen < CHANGES {
        match changes.next().await.context("the watch ended")?? {
            WatchEvent::Modified(_) => seen += 1,
            other => anyhow::bail!("not a change: {other:?}"),
        }
    }
    Ok(())
}
