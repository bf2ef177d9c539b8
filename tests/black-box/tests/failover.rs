//! Two managers and one Lease: exactly one acts, and the handoff is as fast as guaranteed.

#![expect(clippy::print_stdout, reason = "the duration of a handoff is part of the result")]

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use jiff::Timestamp;
use k8s_openapi::api::{
    admissionregistration::v1::ValidatingWebhookConfiguration, apps::v1::ReplicaSet, coordination::v1::Lease,
    core::v1::Pod,
};
use kube::{Api, api::PostParams};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::json;
use windlass_black_box::{
    audit::{Audit, Write},
    control_plane::with_control_plane,
    fixtures::{LABEL, pod},
    implementation::ready,
    test_namespace::TestNamespace,
    wait::{eventually, eventually_within},
    workload::Workload as _,
};
use windlass_harness::{ControlPlaneOptions, ManagerProcess};

const TIMEOUT: Duration = Duration::from_secs(30);

struct Pair {
    namespace: TestNamespace,
    leader: ManagerProcess,
    standby: ManagerProcess,
}

/// Runs `body` with a working leader and a synced standby.
async fn with_a_pair(body: impl AsyncFnOnce(Pair, &Audit) -> Result<()>) -> Result<()> {
    with_control_plane(ControlPlaneOptions::default().nodes(0).scheduler(false), async |plane, audit| {
        let namespace =
            TestNamespace { client: plane.client().await, namespace: plane.namespace("failover").await? };
        let leader = ManagerProcess::start(plane, &[]).await?;
        ready(&leader, TIMEOUT).await?;
        eventually("the first manager holds the lease", || lease(&namespace), |it| !holder(it).is_empty())
            .await?;
        let standby = ManagerProcess::start(plane, &[]).await?;
        ready(&standby, TIMEOUT).await?;
        replica_acts(&namespace, "before").await?;
        body(Pair { namespace, leader, standby }, audit).await
    })
    .await
}

async fn lease(namespace: &TestNamespace) -> Result<Lease> {
    let leases: Api<Lease> = Api::namespaced(namespace.client.clone(), "kube-system");
    Ok(leases.get_opt("windlass").await?.unwrap_or_default())
}

fn holder(lease: &Lease) -> String {
    lease.spec.as_ref().and_then(|spec| spec.holder_identity.clone()).unwrap_or_default()
}

fn renewed(lease: &Lease) -> Option<Timestamp> {
    Some(lease.spec.as_ref()?.renew_time.as_ref()?.0)
}

/// Creates a ReplicaSet with one pod and waits for the pod.
async fn replica_acts(namespace: &TestNamespace, name: &str) -> Result<()> {
    let before = namespace.pods(LABEL).await?.len();
    namespace.create(&ReplicaSet::new(name, 1)).await?;
    eventually("a pod was made", || namespace.pods(LABEL), |pods| pods.len() == before + 1).await?;
    Ok(())
}

#[tokio::test]
async fn standby_acts_within_18_seconds_after_leader_is_killed() -> Result<()> {
    with_a_pair(async |Pair { namespace, leader, standby: _standby }, _| {
        leader.kill();
        let first = lease(&namespace).await?;
        replica_acts(&namespace, "after").await?;
        let elapsed = Timestamp::now().duration_since(renewed(&first).context("a held lease was renewed")?);
        println!("the standby acted {elapsed:#} after the last renewal of the killed leader");
        ensure!(elapsed.as_secs_f64() < 18.0, "it took {elapsed:#}");
        ensure!(holder(&lease(&namespace).await?) != holder(&first), "the lease has another holder");
        Ok(())
    })
    .await
}

#[tokio::test]
async fn standby_acts_within_a_second_after_leader_is_terminated() -> Result<()> {
    with_a_pair(async |Pair { namespace, leader, standby: _standby }, _| {
        let asked = Instant::now();
        leader.terminate();
        replica_acts(&namespace, "after").await?;
        let elapsed = asked.elapsed();
        println!("the standby acted {elapsed:?} after the leader was asked to stop");
        ensure!(elapsed < Duration::from_secs(1), "it took {elapsed:?}");
        let status = leader.wait_exit(TIMEOUT).await?;
        ensure!(status.success(), "a clean stop ended with {status}");
        Ok(())
    })
    .await
}

#[tokio::test]
async fn leader_exits_with_failure_and_stops_writing_when_lease_is_lost() -> Result<()> {
    with_a_pair(async |Pair { namespace, leader, standby }, audit| {
        let first = holder(&lease(&namespace).await?);
        signal(&leader, Signal::STOP)?;
        // Work that the paused leader would do when it resumes.
        replica_acts(&namespace, "meanwhile").await?;
        ensure!(holder(&lease(&namespace).await?) != first, "the standby holds the lease");
        standby.terminate();
        ensure!(standby.wait_exit(TIMEOUT).await?.success(), "the second leader stops cleanly");
        let before = audit.writes("windlass/", &[])?.len();
        namespace.create(&ReplicaSet::new("tempting", 3)).await?;

        signal(&leader, Signal::CONT)?;
        let status = leader.wait_exit(Duration::from_secs(5)).await?;
        ensure!(!status.success(), "a lost lease ended with {status}");
        let log = std::fs::read_to_string(leader.log())?;
        ensure!(log.contains("leader election: Lease "), "the log does not say why:\n{log}");
        let after = audit.writes("windlass/", &[])?.len();
        ensure!(after == before, "{} writes after the lease was lost", after - before);
        Ok(())
    })
    .await
}

#[tokio::test]
async fn leader_paused_during_300_creates_leaves_exactly_300_pods() -> Result<()> {
    const PODS: usize = 300;
    let minute = Duration::from_secs(60);
    with_a_pair(async |Pair { namespace, leader, standby: _standby }, audit| {
        let wanted = namespace.pods(LABEL).await?.len() + PODS;
        namespace.create(&ReplicaSet::new("many", i32::try_from(PODS)?)).await?;
        eventually("a third of the pods exist", || namespace.pods(LABEL), |it| it.len() > PODS / 3).await?;
        signal(&leader, Signal::STOP)?;
        let made = namespace.pods(LABEL).await?.len();
        ensure!(made < wanted, "the leader was stopped amid its creates, not after {made}");
        let stopped = Instant::now();
        eventually_within(minute, "all pods exist", || namespace.pods(LABEL), |it| it.len() >= wanted)
            .await?;
        println!("stopped after {made} pods; the standby had made the rest after {:?}", stopped.elapsed());
        signal(&leader, Signal::CONT)?;
        ensure!(!leader.wait_exit(TIMEOUT).await?.success(), "the first leader lost its lease");
        // Requests in flight of the first leader have taken effect by now.
        let is_create = |write: &&Write| {
            let done = write.response_status.is_some_and(|answer| answer.code == 201);
            write.resource() == "pods" && write.verb == "create" && done
        };
        let creates = audit.writes("windlass/", &[])?.iter().filter(is_create).count();
        ensure!(creates == wanted, "each pod is created once, not {creates} for {wanted}");
        ensure!(namespace.pods(LABEL).await?.len() == wanted, "no pod too many");
        Ok(())
    })
    .await
}

fn signal(manager: &ManagerProcess, signal: Signal) -> Result<()> {
    let pid = Pid::from_raw(i32::try_from(manager.pid())?).context("a process id is not zero")?;
    Ok(kill_process(pid, signal)?)
}

/// Returns a webhook that must not prevent pods of the namespace, with the time limit that kube-apiserver sets.
fn optional_webhook(namespace: &str, url: &str) -> Result<ValidatingWebhookConfiguration> {
    let labels = json!({ "kubernetes.io/metadata.name": namespace });
    Ok(serde_json::from_value(json!({
        "metadata": { "name": namespace },
        "webhooks": [{
            "name": "silent.example.com", "clientConfig": { "url": url }, "failurePolicy": "Ignore",
            "sideEffects": "None", "admissionReviewVersions": ["v1"], "namespaceSelector": { "matchLabels": labels },
            "rules": [{ "apiGroups": [""], "apiVersions": ["v1"], "resources": ["pods"], "operations": ["CREATE"] }],
        }],
    }))?)
}

#[tokio::test]
async fn leader_creates_pods_while_an_optional_webhook_does_not_answer() -> Result<()> {
    with_control_plane(ControlPlaneOptions::default().nodes(0).scheduler(false), async |plane, _| {
        let namespace =
            TestNamespace { client: plane.client().await, namespace: plane.namespace("silent").await? };
        let leader = ManagerProcess::start(plane, &[]).await?;
        ready(&leader, TIMEOUT).await?;
        // The kernel accepts connections, and no process reads from them.
        let silent = std::net::TcpListener::bind("127.0.0.1:0")?;
        silent.set_nonblocking(true)?;
        let url = format!("https://{}/", silent.local_addr()?);
        let webhooks: Api<ValidatingWebhookConfiguration> = Api::all(namespace.client.clone());
        let webhook = optional_webhook(&namespace.namespace, &url)?;
        let created = webhooks.create(&PostParams::default(), &webhook).await?;
        let limits: Vec<_> =
            created.webhooks.iter().flatten().map(|webhook| webhook.timeout_seconds).collect();
        ensure!(limits == [Some(10)], "the default time limit of a webhook is {limits:?}");
        let called_by_a_dry_run = || async {
            let dry_run = PostParams { dry_run: true, ..PostParams::default() };
            namespace.api::<Pod>().create(&dry_run, &pod("probe")).await?;
            Ok(silent.accept().is_ok())
        };
        eventually("the server calls the webhook", called_by_a_dry_run, |called| *called).await?;
        replica_acts(&namespace, "web").await
    })
    .await
}
