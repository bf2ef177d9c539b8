//! Measures both managers while workloads are scaled up from 0 pods and back.
//!
//! The managers run alternately, each alone on a new control plane of the same kind, with the same limits: compare the
//! ratios, not the seconds.
//!
//! `scale [ROUNDS [WORKLOAD [MANAGER]]]` measures one workload, `replica-set` or `deployments`, and one manager,
//! `upstream` or `windlass`, as a profile needs it.

use std::{
    fs,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result};
use futures_util::future::try_join_all;
use k8s_openapi::api::{
    apps::v1::{Deployment, ReplicaSet},
    core::v1::{Endpoints, Pod},
};
use kube::api::ListParams;
use windlass_black_box::{
    audit::Audit,
    fixtures::{deployment, service},
    implementation::{CLIENTS, Implementation, Running},
    sample::{Metric, write_sample},
    test_namespace::TestNamespace,
    workload::Workload as _,
};
use windlass_harness::{ControlPlane, ControlPlaneOptions};

/// Pods of each workload. Endpoints contain at most 1,000 addresses.
const PODS: i32 = 1000;
const NODES: usize = 12;
const TIMEOUT: Duration = Duration::from_secs(900);
const POLL_INTERVAL: Duration = Duration::from_millis(100);
/// The kernel's unit of processor time, as Linux has fixed it for user space.
const TICKS_PER_SECOND: f64 = 100.0;

/// The objects that are scaled.
#[derive(Clone, Copy, Debug)]
enum Subject {
    /// A ReplicaSet behind a Service.
    ReplicaSet,
    /// A Deployment in each of ten namespaces.
    Deployments,
}

#[derive(Debug)]
struct Figures {
    idle_bytes: f64,
    peak_bytes: f64,
    up: Duration,
    down: Duration,
    processor_seconds: f64,
    writes: usize,
}

#[tokio::main]
async fn main() -> Result<()> {
    let mut arguments = std::env::args().skip(1);
    let rounds: usize = arguments.next().map_or(Ok(1), |text| text.parse()).context("rounds")?;
    let subjects = [("replica-set", Subject::ReplicaSet), ("deployments", Subject::Deployments)];
    let subjects = chosen(&subjects, arguments.next())?;
    let managers = [("upstream", Implementation::Upstream), ("windlass", Implementation::Windlass)];
    let managers = chosen(&managers, arguments.next())?;
    for subject in subjects {
        for _ in 0..rounds {
            for &implementation in &managers {
                let figures =
                    measure(subject, implementation).await.with_context(|| format!("{implementation:?}"))?;
                figures.write(subject, implementation)?;
            }
        }
    }
    Ok(())
}

/// Returns the value with this name; all values without a name.
fn chosen<T: Copy>(values: &[(&str, T)], name: Option<String>) -> Result<Vec<T>> {
    let Some(name) = name else { return Ok(values.iter().map(|(_, value)| *value).collect()) };
    let (_, value) = values.iter().find(|(it, _)| *it == name).with_context(|| {
        let names: Vec<_> = values.iter().map(|(name, _)| *name).collect();
        format!("{name:?} is unknown: write one of {}", names.join(", "))
    })?;
    Ok(vec![*value])
}

impl Figures {
    fn write(&self, subject: Subject, implementation: Implementation) -> Result<()> {
        let seconds = |name, times_better| Metric { name, unit: "seconds", times_better };
        let bytes = |name, times_better| Metric { name, unit: "bytes", times_better };
        let writes = Metric { name: "writes", unit: "number", times_better: Some(1.0) };
        let values = [
            (seconds("time up", Some(1.0)), self.up.as_secs_f64()),
            (seconds("time down", Some(1.0)), self.down.as_secs_f64()),
            (seconds("CPU time", Some(5.0)), self.processor_seconds),
            (bytes("idle memory", None), self.idle_bytes),
            (bytes("peak memory", Some(4.0)), self.peak_bytes),
            (writes, f64::from(u32::try_from(self.writes)?)),
        ];
        let (contender, is_windlass) = match implementation {
            Implementation::Upstream => ("kube-controller-manager", false),
            Implementation::Windlass => ("windlass", true),
        };
        for (metric, value) in values {
            write_sample(subject.title(), metric, contender, is_windlass, value)?;
        }
        Ok(())
    }
}

impl Subject {
    fn title(self) -> &'static str {
        match self {
            Subject::ReplicaSet => "one ReplicaSet, 0 to 1,000 to 0 Pods",
            Subject::Deployments => "ten Deployments, 0 to 10,000 to 0 Pods",
        }
    }

    fn namespaces(self) -> usize {
        match self {
            Subject::ReplicaSet => 1,
            Subject::Deployments => 10,
        }
    }

    /// Creates the objects without pods.
    async fn create(self, namespace: &TestNamespace) -> Result<()> {
        match self {
            Subject::ReplicaSet => {
                let mut set = ReplicaSet::new("web", 0);
                set.template_mut().spec.get_or_insert_default().scheduler_name = None;
                namespace.create(&set).await?;
                namespace.create(&service("web", &[80])).await?;
                until(|| async { Ok(namespace.find::<Endpoints>("web").await?.is_some()) }).await
            }
            Subject::Deployments => {
                let mut workload = deployment("web", 0);
                let template = &mut workload.spec.get_or_insert_default().template;
                template.spec.get_or_insert_default().scheduler_name = None;
                namespace.create(&workload).await?;
                until(|| async { Ok(!namespace.list::<ReplicaSet>().await?.is_empty()) }).await
            }
        }
    }

    /// Sets the number of pods, and waits until status, pods and Endpoints match.
    async fn scale(self, namespace: &TestNamespace, replicas: i32) -> Result<()> {
        let expected = usize::try_from(replicas)?;
        match self {
            Subject::ReplicaSet => {
                namespace.update::<ReplicaSet>("web", |set| set.set_desired(replicas)).await?;
                until(|| async {
                    let counts = namespace.get::<ReplicaSet>("web").await?.counts();
                    Ok((counts.replicas, counts.ready) == (replicas, replicas)
                        && namespace.ready_addresses("web").await? == expected
                        && pods(namespace).await? == expected)
                })
                .await
            }
            Subject::Deployments => {
                let change = |workload: &mut Deployment| {
                    workload.spec.get_or_insert_default().replicas = Some(replicas);
                };
                namespace.update::<Deployment>("web", change).await?;
                until(|| async {
                    let status = namespace.get::<Deployment>("web").await?.status.unwrap_or_default();
                    let counts = [status.replicas, status.available_replicas].map(Option::unwrap_or_default);
                    Ok(counts == [replicas; 2] && pods(namespace).await? == expected)
                })
                .await
            }
        }
    }
}

async fn pods(namespace: &TestNamespace) -> Result<usize> {
    Ok(namespace.api::<Pod>().list_metadata(&ListParams::default()).await?.items.len())
}

async fn measure(subject: Subject, implementation: Implementation) -> Result<Figures> {
    let audit = Audit::new()?;
    let plane = ControlPlane::start(audit.record(ControlPlaneOptions::default().nodes(NODES))).await?;
    let running = implementation.start(&plane, &[]).await?;
    let mut namespaces = Vec::new();
    for _ in 0..subject.namespaces() {
        let namespace = plane.namespace("scale").await?;
        namespaces.push(TestNamespace { client: plane.client().await, namespace });
    }
    try_join_all(namespaces.iter().map(|namespace| subject.create(namespace))).await?;
    tokio::time::sleep(Duration::from_secs(3)).await;

    let scale = async |replicas| -> Result<Duration> {
        let started = Instant::now();
        try_join_all(namespaces.iter().map(|namespace| subject.scale(namespace, replicas))).await?;
        Ok(started.elapsed())
    };
    let writes = || -> Result<usize> { Ok(audit.writes(implementation.user_agent(), &CLIENTS)?.len()) };
    let idle_bytes = memory(&running, "VmRSS")?;
    let (at_start, writes_at_start) = (processor_seconds(&running)?, writes()?);
    let up = scale(PODS).await?;
    let down = scale(0).await?;
    let figures = Figures {
        idle_bytes,
        peak_bytes: memory(&running, "VmHWM")?,
        up,
        down,
        processor_seconds: processor_seconds(&running)? - at_start,
        writes: writes()? - writes_at_start,
    };
    drop(running);
    plane.stop().await?;
    Ok(figures)
}

async fn until<F: Future<Output = Result<bool>>>(mut poll: impl FnMut() -> F) -> Result<()> {
    let started = Instant::now();
    while !poll().await? {
        anyhow::ensure!(started.elapsed() < TIMEOUT, "not there after {TIMEOUT:?}");
        tokio::time::sleep(POLL_INTERVAL).await;
    }
    Ok(())
}

fn memory(running: &Running, field: &str) -> Result<f64> {
    let status = fs::read_to_string(format!("/proc/{}/status", running.pid()))?;
    let line = status.lines().find_map(|line| line.strip_prefix(field)).context("no such field")?;
    let kib: f64 = line.trim_start_matches(':').trim().trim_end_matches(" kB").trim().parse()?;
    Ok(kib * 1024.0)
}

fn processor_seconds(running: &Running) -> Result<f64> {
    let stat = fs::read_to_string(format!("/proc/{}/stat", running.pid()))?;
    let after_name = stat.rsplit(')').next().context("an empty stat")?;
    let fields: Vec<&str> = after_name.split_whitespace().collect();
    // Fields 14 and 15 of the whole line, user and system time; the first after the name is field 3.
    let ticks: f64 =
        fields.get(11).context("utime")?.parse::<f64>()? + fields.get(12).context("stime")?.parse::<f64>()?;
    Ok(ticks / TICKS_PER_SECOND)
}
