//! Work that is divided over replicas: three processes, four shards, and what happens to the work when one is killed, one
//! is cut off and found again, one is stopped past its leases and continues, and one ends in order with its hands full.
//!
//! Each replica has its own user. In the end every write in the audit log is held against the Leases, as the API
//! server saw them: none came from a replica that did not hold its namespace's shard, or was past its deadline.

#![expect(clippy::print_stdout, reason = "how long a hand-over took is part of the result")]

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
use windlass_black_box::control_plane::on_plane;
use windlass_black_box::fixtures::LABEL;
use windlass_black_box::forwarder::Forwarder;
use windlass_black_box::subject::ready;
use windlass_black_box::tenures::{LeaseHistory, ShardTransfer, Terms};
use windlass_black_box::wait::eventually_within;
use windlass_black_box::workload::Workload as _;
use windlass_black_box::world::TestNamespace;
use windlass_harness::{ControlPlane, ControlPlaneOptions, ManagerProcess};

const NAMESPACES: usize = 12;
const SHARDS: usize = 4;
/// Pods of each ReplicaSet.
const PODS: usize = 3;
/// How long after its holder fell silent a shard may be nobody's: its lease, and room for a few requests on a machine
/// that is busy.
const UNOWNED: Duration = Duration::from_secs(5 + 3);
/// How long anything else may take.
const IDLE: Duration = Duration::from_secs(20);

/// How many sets each tenant gets at once right before a replica is told to end: so many that no replica keeps up with them.
const BURST: usize = 6;
/// For how long a shard may be nobody's that is handed over in order: the second that is promised where machines keep up,
/// and a retry period after which anybody takes what one who should has not, on a machine that is busy.
const HAND_OVER: Duration = Duration::from_secs(1 + 1);
/// How long after the signal all may be held by others: what was in hands is ended first, at the pace of a machine where
/// everybody is being asked for more.
const ENDED: Duration = Duration::from_secs(1 + 2);

/// As the arguments say.
const TERMS: Terms = Terms { lease_duration: Duration::from_secs(5), renew_deadline: Duration::from_secs(4) };

const ARGUMENTS: [&str; 6] = [
    "--shards=4",
    "--leader-elect-lease-duration=5s",
    "--leader-elect-renew-deadline=4s",
    "--leader-elect-retry-period=1s",
    "--kube-api-qps=1000",
    "--kube-api-burst=1000",
];

/// The tenants of a plane.
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

    /// Asks every tenant's controller for so many sets of pods at once, so that every replica has some in hands.
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

    /// Asks every tenant's controller for pods.
    async fn ask(&self, name: &str) -> Result<()> {
        for tenant in &self.0 {
            tenant.create(&ReplicaSet::new(name, i32::try_from(PODS)?)).await?;
        }
        Ok(())
    }

    /// Waits until every tenant has so many pods, and says how long that took.
    async fn served(&self, sets: usize, within: Duration) -> Result<Duration> {
        let begun = Instant::now();
        for tenant in &self.0 {
            let all = |pods: &Vec<_>| pods.len() >= sets * PODS;
            eventually_within(within, "all pods were made", || tenant.pods(LABEL), all).await?;
        }
        Ok(begun.elapsed())
    }

    /// Whom the Lease of each shard names.
    async fn holders(&self) -> Result<Vec<String>> {
        let leases: Api<Lease> = Api::namespaced(self.0[0].client.clone(), "kube-system");
        let mut holders = Vec::new();
        for shard in 0..SHARDS {
            let lease = leases.get_opt(&format!("windlass-shard-{shard}")).await?.unwrap_or_default();
            holders.push(lease.spec.and_then(|spec| spec.holder_identity).unwrap_or_default());
        }
        Ok(holders)
    }

    /// Waits until so many replicas hold fair shares, and says how long that took.
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

/// A replica that acts as the user `name`, who may do anything.
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

/// How many pods were made: as many as the tenants asked for, and none twice, whoever made them. One that is there and was
/// not taken away again was made once, whatever its maker heard: a process that is killed hears nothing.
async fn every_pod_was_made_once(tenants: &Tenants, audit: &Audit, sets: usize) -> Result<usize> {
    let writes = audit.writes("windlass/", &["replicaset-controller"])?;
    let deletes = writes.iter().filter(|write| write.verb == "delete" && write.resource() == "pods").count();
    ensure!(deletes == 0, "{deletes} pods were too many");
    let creates = writes.iter().filter(|write| write.verb == "create" && write.resource() == "pods");
    let (made, unheard): (Vec<_>, Vec<_>) = creates.partition(|write| write.succeeded());
    for tenant in &tenants.0 {
        let there = tenant.pods(LABEL).await?.len();
        ensure!(
            there == sets * PODS,
            "{} pods were wanted in {}, and {there} are there",
            sets * PODS,
            tenant.namespace
        );
    }
    let wanted = sets * PODS * NAMESPACES;
    ensure!(
        (wanted.saturating_sub(unheard.len())..=wanted).contains(&made.len()),
        "{wanted} pods are there, {} creations succeeded, and others did not: {unheard:#?}",
        made.len()
    );
    Ok(wanted)
}

/// Holds every write against the Lease of its shard, and says how long shards were nobody's. `terminated` is when the last
/// hand-over in order began, of the user `by`, and how many writes came from there afterwards is told too: a machine that is
/// quick may have ended them all before.
fn every_write_was_its_holders(audit: &Audit, terminated: Timestamp, by: &str) -> Result<()> {
    let writes = audit.all_writes("windlass/")?;
    let tenures = LeaseHistory::of(&writes, "windlass", TERMS)?;
    let judged = tenures.judge(&writes)?;
    println!("{judged}");
    ensure!(judged.writes.len() == 4, "all four replicas wrote: {judged}");
    let (handed, expired): (Vec<_>, Vec<_>) =
        tenures.changes().into_iter().partition(|change| change.given_back);
    let longest =
        |changes: &[ShardTransfer]| changes.iter().map(|change| change.after).max().unwrap_or_default();
    println!(
        "{} shards were given back and were nobody's for {:?} at the longest; {} expired and were another's {:?} after \
         their last renewal at the latest",
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
        "the last hand-over: {} shards, given back {drained:?} after the signal, nobody's for {:?} at the longest, and \
         {in_hands} writes of their holder after the signal",
        last.len(),
        longest(&last)
    );
    ensure!(!last.is_empty() && longest(&last) <= HAND_OVER, "{last:#?}");
    Ok(())
}

/// Strikes one of three replicas down, which the others have to notice by themselves, and asks for more: the set of this
/// number.
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
    println!("{how}: its shards are held after {taken:?}, all work is done after {served:?} more");
    ensure!(taken <= UNOWNED, "{how}: shards were nobody's for {taken:?}");
    Ok(())
}

/// Ends a replica in order while it has its hands full, and more is asked for; there are so many sets before. Says when it
/// was told, and how many sets there are afterwards.
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
        "ended: all is held after {handed:?}, it is gone after {ended:?}, all work is done {served:?} later"
    );
    ensure!(status.success(), "it ended with {status}");
    ensure!(handed <= ENDED, "the hand-over took {handed:?}");
    Ok((at, then + 1))
}

// parity: replica-runs-all-controllers, election-per-manager
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn three_processes_share_four_shards_and_work_goes_on_when_one_is_killed_cut_off_stopped_or_ended()
-> Result<()> {
    let options = ControlPlaneOptions::default().nodes(0).scheduler(false);
    let options = options.api_server_arg("--feature-gates=ShardedListAndWatch=true");
    on_plane(options, async |plane, audit| {
        let tenants = Tenants::new(plane).await?;
        tenants.ask("set-1").await?;
        let one = replica(plane, "one").await?;
        let (two, three) = (replica(plane, "two").await?, replica(plane, "three").await?);
        let shared = tenants.shared_by(3, IDLE).await?;
        let served = tenants.served(1, IDLE).await?;
        println!(
            "{SHARDS} shards are shared by three after {shared:?}, all work is done after {served:?} more"
        );

        strike(&tenants, "killed", 2, || {
            one.kill();
            Ok(())
        })
        .await?;

        let kubeconfig = plane.kubeconfig_for("four", "four", Some("system:masters"))?;
        let (wire, kubeconfig) = Forwarder::between(&kubeconfig).await?;
        let four = replica_with(plane, &kubeconfig).await?;
        tenants.shared_by(3, IDLE).await?;
        strike(&tenants, "cut off", 3, || {
            wire.cut();
            Ok(())
        })
        .await?;
        wire.mend();
        println!("found again: it has a share after {:?}", tenants.shared_by(3, IDLE).await?);

        strike(&tenants, "stopped", 4, || signal(&two, Signal::STOP)).await?;
        signal(&two, Signal::CONT)?;
        println!("continued: it has a share again after {:?}", tenants.shared_by(3, IDLE).await?);
        ensure!(two.exited().is_none() && four.exited().is_none(), "both have gone on");

        let (terminated, sets) = end_with_its_hands_full(&tenants, &three, 4).await?;
        println!("{} pods, each made once", every_pod_was_made_once(&tenants, audit, sets).await?);
        every_write_was_its_holders(audit, terminated, "three")
    })
    .await
}
