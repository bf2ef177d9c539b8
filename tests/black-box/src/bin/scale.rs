//! Measures both managers while a ReplicaSet behind a Service is scaled from 0 to 1,000 pods and back.
//!
//! The managers run alternately, each alone on a new control plane of the same kind, with the same limits: compare the
//! ratios, not the seconds.

use std::{
    fs,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result};
use k8s_openapi::api::{
    apps::v1::ReplicaSet,
    core::v1::{Endpoints, Pod},
};
use windlass_black_box::{
    fixtures::service,
    implementation::{Implementation, Running},
    sample::{Metric, write_sample},
    test_namespace::TestNamespace,
    workload::Workload as _,
};
use windlass_harness::{ControlPlane, ControlPlaneOptions};

const PODS: i32 = 1000;
const NODES: usize = 12;
const TIMEOUT: Duration = Duration::from_secs(180);
const POLL_INTERVAL: Duration = Duration::from_millis(100);
/// The kernel's unit of processor time, as Linux has fixed it for user space.
const TICKS_PER_SECOND: f64 = 100.0;

const WORKLOAD: &str = "one ReplicaSet, 0 to 1,000 to 0 Pods";

#[derive(Debug)]
struct Figures {
    idle_bytes: f64,
    peak_bytes: f64,
    up: Duration,
    down: Duration,
    cpu_up: f64,
    cpu_down: f64,
}

#[tokio::main]
async fn main() -> Result<()> {
    let rounds: usize = std::env::args().nth(1).map_or(Ok(1), |text| text.parse()).context("rounds")?;
    for _ in 0..rounds {
        for implementation in [Implementation::Upstream, Implementation::Windlass] {
            let figures = measure(implementation).await.with_context(|| format!("{implementation:?}"))?;
            figures.write(implementation)?;
        }
    }
    Ok(())
}

impl Figures {
    fn write(&self, implementation: Implementation) -> Result<()> {
        let seconds = |name, times_better| Metric { name, unit: "seconds", times_better };
        let bytes = |name, times_better| Metric { name, unit: "bytes", times_better };
        let values = [
            (seconds("time up", Some(1.0)), self.up.as_secs_f64()),
            (seconds("time down", Some(1.0)), self.down.as_secs_f64()),
            (seconds("CPU time", Some(5.0)), self.cpu_up + self.cpu_down),
            (bytes("idle memory", None), self.idle_bytes),
            (bytes("peak memory", Some(4.0)), self.peak_bytes),
        ];
        let (contender, is_windlass) = match implementation {
            Implementation::Upstream => ("kube-controller-manager", false),
            Implementation::Windlass => ("windlass", true),
        };
        for (metric, value) in values {
            write_sample(WORKLOAD, metric, contender, is_windlass, value)?;
        }
        Ok(())
    }
}

async fn measure(implementation: Implementation) -> Result<Figures> {
    let plane = ControlPlane::start(ControlPlaneOptions::default().nodes(NODES)).await?;
    let running = implementation.start(&plane, &[]).await?;
    let namespace =
        TestNamespace { client: plane.client().await, namespace: plane.namespace("scale").await? };
    let mut set = ReplicaSet::new("web", 0);
    set.template_mut().spec.get_or_insert_default().scheduler_name = None;
    namespace.create(&set).await?;
    namespace.create(&service("web", &[80])).await?;
    until(|| async { Ok(namespace.find::<Endpoints>("web").await?.is_some()) }).await?;
    tokio::time::sleep(Duration::from_secs(3)).await;

    let idle_bytes = memory(&running, "VmRSS")?;
    let at_start = processor_seconds(&running)?;
    let up = scale(&namespace, PODS).await?;
    let at_top = processor_seconds(&running)?;
    let down = scale(&namespace, 0).await?;
    let at_end = processor_seconds(&running)?;
    let peak_bytes = memory(&running, "VmHWM")?;
    drop(running);
    plane.stop().await?;
    Ok(Figures { idle_bytes, peak_bytes, up, down, cpu_up: at_top - at_start, cpu_down: at_end - at_top })
}

/// Scales, and waits until status and Endpoints match.
async fn scale(namespace: &TestNamespace, replicas: i32) -> Result<Duration> {
    let started = Instant::now();
    namespace.update::<ReplicaSet>("web", |set| set.set_desired(replicas)).await?;
    until(|| async {
        let counts = namespace.get::<ReplicaSet>("web").await?.counts();
        if (counts.replicas, counts.ready) != (replicas, replicas) {
            return Ok(false);
        }
        let pods = namespace.api::<Pod>().list_metadata(&kube::api::ListParams::default()).await?.items.len();
        Ok(i32::try_from(pods)? == replicas
            && i32::try_from(namespace.ready_addresses("web").await?)? == replicas)
    })
    .await?;
    Ok(started.elapsed())
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
