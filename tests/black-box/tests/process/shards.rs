//! Sharding over replicas: three processes share four shards. One process is killed, one is partitioned and
//! reconnected, one is paused beyond its Leases and resumed, and one is terminated under load.
//!
//! Each replica has its own user. At the end every write in the audit log is checked against the Leases: no replica
//! wrote without holding the shard of the namespace, or after its deadline.

#![expect(clippy::print_stdout, reason = "the duration of a handoff is part of the result")]

use std::collections::BTreeMap;
use std::ops::Range;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use futures_util::future::try_join_all;
use k8s_openapi::api::apps::v1::ReplicaSet;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::jiff::Timestamp;
use kube::Api;
use rustix::process::{Pid, Signal, kill_process};
use windlass_black_box::audit::Audit;
use windlass_black_box::control_plane::with_control_plane;
use windlass_black_box::fixtures::LABEL;
use windlass_black_box::forwarder::Forwarder;
use windlass_black_box::implementation::ready;
use windlass_black_box::lease_history::{LeaseDurations, LeaseHistory, ShardTransfer};
use windlass_black_box::test_namespace::TestNamespace;
use windlass_black_box::wait::eventually_within;
use windlass_black_box::workload::Workload as _;
use windlass_harness::{ControlPlane, ControlPlaneOptions, ManagerProcess};

const NAMESPACES: usize = 12;
const SHARDS: usize = 4;
/// Pods of each ReplicaSet.
const PODS: usize = 3;
/// Maximum time without a holder after the last renewal: the lease duration, and a few requests on a busy machine.
const UNOWNED: Duration = Duration::from_secs(5 + 3);
/// Timeout of all other waits.
const IDLE: Duration = Duration::from_secs(20);

/// ReplicaSets per tenant that are created right before a replica is terminated, more than the replicas can process.
const BURST: usize = 6;
/// Maximum time without a holder during a graceful handoff: the guaranteed second, and one retry period after which any
/// replica acquires the shard, for busy machines.
const HAND_OVER: Duration = Duration::from_secs(1 + 1);
/// Maximum time from the signal until other replicas hold all shards. Running reconciles finish first, on a busy
/// machine.
const ENDED: Duration = Duration::from_secs(1 + 2);

/// Durations of [`ARGUMENTS`].
const TERMS: LeaseDurations =
    LeaseDurations { lease_duration: Duration::from_secs(5), renew_deadline: Duration::from_secs(4) };

const ARGUMENTS: [&str; 6] = [
    "--shards=4",
    "--leader-elect-lease-duration=5s",
    "--leader-elect-renew-deadline=4s",
    "--leader-elect-retry-period=1s",
    "--kube-api-qps=1000",
    "--kube-api-burst=1000",
];

/// The tenant namespaces of a control plane.
struct Tenants(Vec<TestNamespace>);

impl Tenants {
    async fn new(plane: &ControlPlane) -> Result<Self> {
        let client = plane.client().await;
        let mut tenants = Vec::new();
        for number in 0..NAMESPACES {
            let namespace = plane.namespace(&format!("tenant-{number}")).await?;
            tenants.push(TestNamespace { client: client.clone(), namespace });
        }
        Ok(Self(tenants))
    }

    /// Creates ReplicaSets for all tenants concurrently, so that every replica has work in progress.
    async fn ask_at_once(&self, sets: Range<usize>) -> Result<()> {
        let ask = |number: usize| {
            let name = format!("set-{number}");
            self.0.iter().map(move |tenant| (tenant, name.clone()))
        };
        let asked = sets
            .flat_map(ask)
            .map(async |(tenant, name)| tenant.create(&ReplicaSet::new(&name, i32::try_from(PODS)?)).await);
        try_join_all(asked).await.map(drop)
    }

    /// Creates a ReplicaSet for every tenant.
    async fn ask(&self, name: &str) -> Result<()> {
        for tenant in &self.0 {
            tenant.create(&ReplicaSet::new(name, i32::try_from(PODS)?)).await?;
        }
        Ok(())
    }

    /// Waits until every tenant has the pods of `sets` ReplicaSets, and returns the elapsed time.
    async fn served(&self, sets: usize, within: Duration) -> Result<Duration> {
        let begun = Instant::now();
        for tenant in &self.0 {
            let all = |pods: &Vec<_>| pods.len() >= sets * PODS;
            eventually_within(within, "all pods are created", || tenant.pods(LABEL), all).await?;
        }
        Ok(begun.elapsed())
    }

    /// Returns the holder of each shard's Lease.
    async fn holders(&self) -> Result<Vec<String>> {
        let leases: Api<Lease> = Api::namespaced(self.0[0].client.clone(), "kube-system");
        let mut holders = Vec::new();
        for shard in 0..SHARDS {
            let lease = leases.get_opt(&format!("windlass-shard-{shard}")).await?.unwrap_or_default();
            holders.push(lease.spec.and_then(|spec| spec.holder_identity).unwrap_or_default());
        }
        Ok(holders)
    }

    /// Waits until `replicas` replicas hold fair shares, and returns the elapsed time.
    async fn shared_by(&self, replicas: usize, within: Duration) -> Result<Duration> {
        let begun = Instant::now();
        let fair = |holders: &Vec<String>| {
            let mut shares = BTreeMap::<&str, usize>::new();
            holders.iter().for_each(|holder| *shares.entry(holder).or_default() += 1);
            let even =
                shares.values().all(|share| (SHARDS / replicas..=SHARDS.div_ceil(replicas)).contains(share));
            !shares.contains_key("") && shares.len() == replicas && even
        };
        eventually_within(within, "shards are shared fairly", || self.holders(), fair).await?;
        Ok(begun.elapsed())
    }
}

/// Starts a replica as the user `name` with all permissions.
async fn replica(plane: &ControlPlane, name: &str) -> Result<ManagerProcess> {
    let kubeconfig = plane.kubeconfig_for(name, name, Some("system:masters"))?;
    replica_with(plane, &kubeconfig).await
}

async fn replica_with(plane: &ControlPlane, kubeconfig: &Path) -> Result<ManagerProcess> {
    let kubeconfig = format!("--kubeconfig={}", kubeconfig.display());
    let arguments: Vec<&str> = ARGUMENTS.into_iter().chain([kubeconfig.as_str()]).collect();
    let manager = ManagerProcess::start(plane, &arguments).await?;
    ready(&manager, Duration::from_secs(30)).await?;
    Ok(manager)
}

fn signal(replica: &ManagerProcess, signal: Signal) -> Result<()> {
    let pid = Pid::from_raw(i32::try_from(replica.pid())?).context("a process has an id")?;
    kill_process(pid, signal).context("sending a signal")
}

/// Checks that the desired pods exist and none was created twice, and returns their number. Pods that exist and were
/// never deleted were created once, even if a killed process did not receive the response.
async fn every_pod_was_made_once(tenants: &Tenants, audit: &Audit, sets: usize) -> Result<usize> {
    let writes = audit.writes("windlass/", &["replicaset-controller"])?;
    let deletes = writes.iter().filter(|write| write.verb == "delete" && write.resource() == "pods").count();
    ensure!(deletes == 0, "{deletes} surplus pods were created and deleted");
    let creates = writes.iter().filter(|write| write.verb == "create" && write.resource() == "pods");
    let (made, unheard): (Vec<_>, Vec<_>) = creates.partition(|write| write.succeeded());
    for tenant in &tenants.0 {
        let there = tenant.pods(LABEL).await?.len();
        ensure!(
            there == sets * PODS,
            "{} pods are desired in {}, and {there} exist",
            sets * PODS,
            tenant.namespace
        );
    }
    let wanted = sets * PODS * NAMESPACES;
    ensure!(
        (wanted.saturating_sub(unheard.len())..=wanted).contains(&made.len()),
        "{wanted} pods exist, {} creations succeeded, and others did not: {unheard:#?}",
        made.len()
    );
    Ok(wanted)
}

/// Checks every write against the Lease of its shard, and prints how long shards had no holder. `terminated` is the
/// start of the last graceful handoff, by the user `by`. The number of its later writes is only printed: a fast machine
/// can complete all of them before.
fn every_write_was_its_holders(audit: &Audit, terminated: Timestamp, by: &str) -> Result<()> {
    let writes = audit.all_writes("windlass/")?;
    let history = LeaseHistory::of(&writes, "windlass", TERMS)?;
    let report = history.check(&writes)?;
    println!("{report}");
    ensure!(report.writes.len() == 4, "not all four replicas wrote: {report}");
    let (handed, expired): (Vec<_>, Vec<_>) =
        history.changes().into_iter().partition(|change| change.released);
    let longest =
        |changes: &[ShardTransfer]| changes.iter().map(|change| change.after).max().unwrap_or_default();
    println!(
        "{} shards were released and had no holder for at most {:?}; {} expired and had a new holder at most {:?} \
         after their last renewal",
        handed.len(),
        longest(&handed),
        expired.len(),
        longest(&expired)
    );
    ensure!(longest(&expired) <= UNOWNED, "{expired:#?}");
    let last: Vec<ShardTransfer> = handed.into_iter().filter(|change| change.since >= terminated).collect();
    let in_hands = writes.iter().filter(|write| {
        write.user.username == by
            && write.request_received_timestamp.0 > terminated
            && !matches!(write.resource(), "leases" | "events")
    });
    let in_hands = in_hands.count();
    let drained = last.iter().map(|change| change.since.duration_since(terminated)).max().unwrap_or_default();
    println!(
        "last handoff: {} shards, released {drained:?} after the signal, without a holder for at most {:?}, and \
         {in_hands} writes of their holder after the signal",
        last.len(),
        longest(&last)
    );
    ensure!(!last.is_empty() && longest(&last) <= HAND_OVER, "{last:#?}");
    Ok(())
}

/// Makes one of three replicas fail without notice, and creates the ReplicaSets with this number.
async fn strike(
    tenants: &Tenants,
    how: &str,
    number: usize,
    strike: impl FnOnce() -> Result<()>,
) -> Result<()> {
    let begun = Instant::now();
    strike()?;
    tenants.ask(&format!("set-{number}")).await?;
    tenants.shared_by(2, IDLE).await?;
    let taken = begun.elapsed();
    let served = tenants.served(number, IDLE).await?;
    println!("{how}: other replicas hold its shards after {taken:?}, all work is done after {served:?} more");
    ensure!(taken <= UNOWNED, "{how}: shards had no holder for {taken:?}");
    Ok(())
}

/// Terminates a replica under load, while more ReplicaSets are created. `sets` exist before. Returns the time of the
/// signal and the number of ReplicaSets afterwards.
async fn end_with_its_hands_full(
    tenants: &Tenants,
    replica: &ManagerProcess,
    sets: usize,
) -> Result<(Timestamp, usize)> {
    let then = sets + BURST;
    tenants.ask_at_once(sets + 1..then + 1).await?;
    let (at, begun) = (Timestamp::now(), Instant::now());
    replica.terminate();
    let (asked, shared) = tokio::join!(tenants.ask_at_once(then + 1..then + 2), tenants.shared_by(2, IDLE));
    let handed = begun.elapsed();
    asked.and(shared)?;
    let status = replica.wait_exit(IDLE).await?;
    let ended = begun.elapsed();
    let served = tenants.served(then + 1, IDLE).await?;
    println!(
        "terminated: all shards are held after {handed:?}, exited after {ended:?}, all work is done {served:?} later"
    );
    ensure!(status.success(), "the process exited with {status}");
    ensure!(handed <= ENDED, "the handoff took {handed:?}");
    Ok((at, then + 1))
}

// parity: replica-runs-all-controllers, election-per-manager
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn replicas_take_over_shards_of_killed_partitioned_or_stopped_replica() -> Result<()> {
    let options = ControlPlaneOptions::default().nodes(0).scheduler(false);
    let options = options.api_server_arg("--feature-gates=ShardedListAndWatch=true");
    with_control_plane(options, async |plane, audit| {
        let tenants = Tenants::new(plane).await?;
        tenants.ask("set-1").await?;
        let one = replica(plane, "one").await?;
        let (two, three) = (replica(plane, "two").await?, replica(plane, "three").await?);
        let shared = tenants.shared_by(3, IDLE).await?;
        let served = tenants.served(1, IDLE).await?;
        println!(
            "three replicas share {SHARDS} shards after {shared:?}, all work is done after {served:?} more"
        );

        strike(&tenants, "killed", 2, || {
            one.kill();
            Ok(())
        })
        .await?;

        let kubeconfig = plane.kubeconfig_for("four", "four", Some("system:masters"))?;
        let (forwarder, kubeconfig) = Forwarder::between(&kubeconfig).await?;
        let four = replica_with(plane, &kubeconfig).await?;
        tenants.shared_by(3, IDLE).await?;
        strike(&tenants, "cut off", 3, || {
            forwarder.cut();
            Ok(())
        })
        .await?;
        forwarder.heal();
        println!("reconnected: it has a share after {:?}", tenants.shared_by(3, IDLE).await?);

        strike(&tenants, "stopped", 4, || signal(&two, Signal::STOP)).await?;
        signal(&two, Signal::CONT)?;
        println!("continued: it has a share again after {:?}", tenants.shared_by(3, IDLE).await?);
        ensure!(two.exited().is_none() && four.exited().is_none(), "both processes must keep running");

        let (terminated, sets) = end_with_its_hands_full(&tenants, &three, 4).await?;
        println!("{} pods, each created once", every_pod_was_made_once(&tenants, audit, sets).await?);
        every_write_was_its_holders(audit, terminated, "three")
    })
    .await
}
