//! Soak test: one process under churn and outages on a real control plane. Its memory must not grow.
//!
//! Before the measurement, all bounded caches are filled: each controller records the last 10,000 healthy keys, and the
//! process caches the last 4,096 Events of each type. The program creates and deletes enough ReplicaSets and Services,
//! in batches, to fill these caches. ReplicaSets of the first batches are not allowed to create pods, which causes
//! Events.
//!
//! Then every iteration creates Services and ReplicaSets with new names, scales one, deletes them, and waits until they
//! are gone. Every few iterations the API server stops for some seconds. After each iteration memory, threads, open
//! files and tasks are recorded. The first third of the iterations is warm-up; the last third is compared with the
//! second, per object created in between.

#![allow(clippy::print_stdout, reason = "its output is its purpose")]

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use futures_util::{StreamExt as _, TryStreamExt as _, stream};
use k8s_openapi::api::apps::v1::ReplicaSet;
use k8s_openapi::api::core::v1::{Endpoints, Namespace, Pod, Service};
use kube::Api;
use kube::api::{Patch, PatchParams};
use serde_json::json;
use windlass_black_box::{
    fixtures::service, implementation::ready, test_namespace::TestNamespace, wait::eventually_within,
    workload::Workload as _,
};
use windlass_harness::{ControlPlane, ControlPlaneOptions, ManagerProcess};

const TIMEOUT: Duration = Duration::from_secs(120);
/// Iterations between two outages, and the length of an outage without the start of the server.
const TURNS_PER_OUTAGE: usize = 8;
const OUTAGE: Duration = Duration::from_secs(4);
/// Arguments of the process under test. The lease outlasts an outage and a slow start of the server, because a process
/// that loses its lease exits, and a new process cannot be compared.
const ARGUMENTS: [&str; 4] = [
    "--kube-api-qps=1000",
    "--kube-api-burst=100",
    "--leader-elect-lease-duration=90s",
    "--leader-elect-renew-deadline=60s",
];
/// Services and ReplicaSets without pods that each iteration creates and deletes, in addition to those with pods.
const EXTRA: usize = 40;
/// Maximum number of pods of an iteration.
const MAX_PODS: i32 = 20;
/// Objects with new names per iteration: the extra ones and the Endpoints of their Services; the ReplicaSet and Service
/// with pods, their Endpoints and their pods.
const OBJECTS: usize = 3 * EXTRA + 3 + 20;
/// Number of ReplicaSets and of Services that fill the caches, the batch size, and the number of ReplicaSets whose pods
/// are rejected: slightly more than the cache sizes.
const FILL: usize = 10_500;
const BATCH: usize = 250;
const REFUSED: usize = 4_250;
/// Requests of this program in flight at the same time.
const AT_ONCE: usize = 16;
/// Allowed growth per created object in bytes: half of the memory of one recorded key.
const PER_OBJECT: f64 = 160.0;
/// Allowed growth by the allocator, independent of created objects.
const SLACK_KIB: f64 = 512.0;
/// Allowed growth of counts, since connections open and close.
const COUNT_SLACK: f64 = 8.0;
/// Minimum number of iterations for a meaningful comparison.
const FEWEST_TURNS: usize = 12;

/// Resources of a process.
#[derive(Debug, Clone, Copy)]
struct ResourceUsage {
    kib: f64,
    threads: f64,
    files: f64,
    tasks: f64,
}

#[tokio::main]
async fn main() -> Result<()> {
    let minutes: u64 = std::env::args().nth(1).map_or(Ok(15), |text| text.parse()).context("minutes")?;
    let plane = ControlPlane::start(ControlPlaneOptions::default()).await?;
    let manager = ManagerProcess::start(&plane, &ARGUMENTS).await?;
    ready(&manager, TIMEOUT).await?;
    fill(&plane, &manager).await?;
    let namespace = plane.namespace("soak").await?;
    let over = Instant::now() + Duration::from_secs(minutes * 60);
    let mut usages = Vec::new();
    while Instant::now() < over || usages.len() < FEWEST_TURNS {
        if usages.len() % TURNS_PER_OUTAGE == TURNS_PER_OUTAGE - 1 {
            plane.stop_api_server().await?;
            tokio::time::sleep(OUTAGE).await;
            plane.start_api_server().await?;
        }
        let namespace = TestNamespace { client: plane.client().await, namespace: namespace.clone() };
        let turned = turn(&namespace, usages.len()).await;
        if let Some(status) = manager.exited() {
            bail!(
                "the process exited in iteration {}, {status}: {}",
                usages.len() + 1,
                last_words(manager.log())?
            );
        }
        turned?;
        usages.push(measure(&manager).await?);
        println!("iteration {:>3}: {}", usages.len(), describe(usages[usages.len() - 1]));
    }
    drop(manager);
    plane.stop().await?;
    check_growth(&usages)
}

/// Returns the last five lines of a log, because the log is deleted with the control plane.
fn last_words(log: &Path) -> Result<String> {
    let log = fs::read_to_string(log)?;
    let lines: Vec<&str> = log.lines().collect();
    Ok(lines[lines.len().saturating_sub(5)..].join("\n"))
}

/// Fills the caches of keys and Events.
async fn fill(plane: &ControlPlane, manager: &ManagerProcess) -> Result<()> {
    let namespace = TestNamespace { client: plane.client().await, namespace: plane.namespace("fill").await? };
    let level = json!({"metadata": {"labels": {"pod-security.kubernetes.io/enforce": "restricted"}}});
    let namespaces: Api<Namespace> = Api::all(namespace.client.clone());
    namespaces.patch(&namespace.namespace, &PatchParams::default(), &Patch::Merge(level)).await?;
    for batch in 0..FILL / BATCH {
        let names: Vec<String> = (0..BATCH).map(|number| format!("fill-{batch}-{number}")).collect();
        let replicas = i32::from(batch * BATCH < REFUSED);
        each(&names, async |name| {
            namespace.create(&ReplicaSet::new(name, replicas)).await?;
            namespace.create(&service(name, &[80])).await.map(drop)
        })
        .await?;
        endpoints(&namespace, &names, BATCH).await?;
        observed(&namespace, replicas > 0).await?;
        each(&names, async |name| {
            namespace.delete::<ReplicaSet>(name).await?;
            namespace.delete::<Service>(name).await
        })
        .await?;
        endpoints(&namespace, &names, 0).await?;
    }
    println!("caches are full: {}", describe(measure(manager).await?));
    Ok(())
}

async fn each(names: &[String], change: impl AsyncFn(&str) -> Result<()>) -> Result<()> {
    let changes = stream::iter(names).map(|name| change(name)).buffer_unordered(AT_ONCE);
    changes.try_collect().await
}

/// Waits until every ReplicaSet has been reconciled and has the condition `ReplicaFailure` if its pods are rejected.
async fn observed(namespace: &TestNamespace, refused: bool) -> Result<()> {
    let behind = async || {
        let sets = namespace.list::<ReplicaSet>().await?;
        let is_behind = |set: &&ReplicaSet| {
            let status = set.status.clone().unwrap_or_default();
            let failure =
                status.conditions.iter().flatten().any(|condition| condition.type_ == "ReplicaFailure");
            status.observed_generation.is_none() || failure != refused
        };
        Ok(sets.iter().filter(is_behind).count())
    };
    eventually_within(TIMEOUT, "every ReplicaSet is reconciled", behind, |behind| *behind == 0).await?;
    Ok(())
}

/// Creates objects, scales one up and down, and deletes them.
async fn turn(namespace: &TestNamespace, number: usize) -> Result<()> {
    let many: Vec<String> = (0..EXTRA).map(|extra| format!("many-{number}-{extra}")).collect();
    for name in &many {
        namespace.create(&ReplicaSet::new(name, 0)).await?;
        namespace.create(&service(name, &[80])).await?;
    }
    endpoints(namespace, &many, EXTRA).await?;
    one_grows_and_shrinks(namespace, &format!("web-{number}")).await?;
    for name in &many {
        namespace.delete::<ReplicaSet>(name).await?;
        namespace.delete::<Service>(name).await?;
    }
    endpoints(namespace, &many, 0).await
}

/// Waits until `wanted` of these Services have Endpoints.
async fn endpoints(namespace: &TestNamespace, names: &[String], wanted: usize) -> Result<()> {
    let count = async || {
        let all = namespace.list::<Endpoints>().await?;
        Ok(all.iter().filter(|it| it.metadata.name.as_ref().is_some_and(|it| names.contains(it))).count())
    };
    eventually_within(TIMEOUT, &format!("{wanted} Endpoints"), count, |found| *found == wanted).await?;
    Ok(())
}

async fn one_grows_and_shrinks(namespace: &TestNamespace, name: &str) -> Result<()> {
    let mut set = ReplicaSet::new(name, 5);
    set.template_mut().spec.get_or_insert_default().scheduler_name = None;
    namespace.create(&set).await?;
    namespace.create(&service(name, &[80])).await?;
    for replicas in [5, MAX_PODS, 3, 0] {
        namespace.update::<ReplicaSet>(name, |set| set.set_desired(replicas)).await?;
        let what = format!("{replicas} pods of {name}");
        eventually_within(
            TIMEOUT,
            &what,
            || async {
                let counts = namespace.get::<ReplicaSet>(name).await?.counts();
                Ok((counts.replicas, counts.ready, namespace.list::<Pod>().await?.len()))
            },
            |(replicas_now, ready, pods)| {
                (*replicas_now, *ready) == (replicas, replicas) && i32::try_from(*pods) == Ok(replicas)
            },
        )
        .await?;
    }
    namespace.delete::<ReplicaSet>(name).await?;
    namespace.delete::<Service>(name).await?;
    eventually_within(
        TIMEOUT,
        "the Endpoints are gone",
        || async { namespace.find::<Endpoints>(name).await },
        Option::is_none,
    )
    .await?;
    Ok(())
}

async fn measure(manager: &ManagerProcess) -> Result<ResourceUsage> {
    let pid = manager.pid();
    let status = fs::read_to_string(format!("/proc/{pid}/status"))?;
    let field = |name: &str| -> Result<f64> {
        let line = status.lines().find_map(|line| line.strip_prefix(name)).context("no such field")?;
        Ok(line.trim_start_matches(':').trim().trim_end_matches(" kB").trim().parse()?)
    };
    let files = u32::try_from(fs::read_dir(format!("/proc/{pid}/fd"))?.count())?;
    let tasks = manager.metric("windlass_tasks", &[]).await?.context("no metric of the tasks")?;
    Ok(ResourceUsage { kib: field("VmRSS")?, threads: field("Threads")?, files: f64::from(files), tasks })
}

fn describe(usage: ResourceUsage) -> String {
    let ResourceUsage { kib, threads, files, tasks } = usage;
    format!("{:.1} MiB, {threads} threads, {files} files, {tasks} tasks", kib / 1024.0)
}

/// Compares the resources in the last third of the iterations with the third before.
fn check_growth(usages: &[ResourceUsage]) -> Result<()> {
    let third = usages.len() / 3;
    let (before, after) = usages[third..].split_at((usages.len() - third) / 2);
    let of =
        |turns: &[ResourceUsage], what: fn(&ResourceUsage) -> f64| median(turns.iter().map(what).collect());
    let all = |turns: &[ResourceUsage]| ResourceUsage {
        kib: of(turns, |usage| usage.kib),
        threads: of(turns, |usage| usage.threads),
        files: of(turns, |usage| usage.files),
        tasks: of(turns, |usage| usage.tasks),
    };
    let (before, after) = (all(before), all(after));
    println!("{} iterations; before: {}; after: {}", usages.len(), describe(before), describe(after));
    // Objects created between the middles of the two parts, since medians are compared.
    let objects = f64::from(u32::try_from((usages.len() - third) / 2 * OBJECTS)?);
    let each = (after.kib - before.kib) * 1024.0 / objects;
    let bound = PER_OBJECT + SLACK_KIB * 1024.0 / objects;
    println!("{objects} objects created in between: {each:.0} bytes growth per object, {bound:.0} allowed");
    ensure!(each <= bound, "memory grows");
    for (what, before, after) in [
        ("threads", before.threads, after.threads),
        ("open files", before.files, after.files),
        ("tasks", before.tasks, after.tasks),
    ] {
        ensure!(after <= before + COUNT_SLACK, "{what} grow: {before}, then {after}");
    }
    Ok(())
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}
