//! Work that is divided over replicas: three processes, four shards, and what happens to the work when one is killed, one
//! is stopped past its leases and goes on, and one ends in order.

#![expect(clippy::print_stdout, reason = "how long a hand-over took is part of the result")]

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use k8s_openapi::api::apps::v1::ReplicaSet;
use k8s_openapi::api::coordination::v1::Lease;
use kube::Api;
use rustix::process::{Pid, Signal, kill_process};
use windlass_black_box::audit::{Audit, Write};
use windlass_black_box::fixtures::LABEL;
use windlass_black_box::stage::on_plane;
use windlass_black_box::subject::ready;
use windlass_black_box::wait::eventually_within;
use windlass_black_box::workload::Workload as _;
use windlass_black_box::world::World;
use windlass_harness::{Manager, Plane, PlaneOptions};

const NAMESPACES: usize = 12;
const SHARDS: usize = 4;
/// Pods of each ReplicaSet.
const PODS: usize = 3;
/// How long after its holder fell silent a shard may be nobody's: its lease, and room for a few requests on a machine
/// that is busy.
const UNOWNED: Duration = Duration::from_secs(5 + 3);
/// How long anything else may take.
const IDLE: Duration = Duration::from_secs(20);

const ARGUMENTS: [&str; 6] = [
    "--shards=4",
    "--leader-elect-lease-duration=5s",
    "--leader-elect-renew-deadline=4s",
    "--leader-elect-retry-period=1s",
    "--kube-api-qps=1000",
    "--kube-api-burst=1000",
];

/// The tenants of a plane.
struct Tenants(Vec<World>);

impl Tenants {
    async fn new(plane: &Plane) -> Result<Self> {
        let client = plane.client().await;
        let mut tenants = Vec::new();
        for number in 0..NAMESPACES {
            let namespace = plane.namespace(&format!("tenant-{number}")).await?;
            tenants.push(World { client: client.clone(), namespace });
        }
        Ok(Self(tenants))
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
            let all = |pods: &Vec<_>| pods.len() == sets * PODS;
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

async fn replica(plane: &Plane) -> Result<Manager> {
    let manager = Manager::start(plane, &ARGUMENTS).await?;
    ready(&manager, Duration::from_secs(30)).await?;
    Ok(manager)
}

fn signal(replica: &Manager, signal: Signal) -> Result<()> {
    let pid = Pid::from_raw(i32::try_from(replica.pid())?).context("a process has an id")?;
    kill_process(pid, signal).context("sending a signal")
}

/// Which tenants asked for how many pods, and how many were made: none twice, whoever made them.
fn every_pod_was_made_once(audit: &Audit, sets: usize) -> Result<usize> {
    let writes = audit.writes("windlass/", &["replicaset-controller"])?;
    let made = |write: &&Write| {
        let created = write.response_status.is_some_and(|answer| answer.code == 201);
        write.verb == "create" && write.resource() == "pods" && created
    };
    let mut by_tenant = BTreeMap::<String, usize>::new();
    for write in writes.iter().filter(made) {
        let target = write.object_ref.clone().unwrap_or_default();
        *by_tenant.entry(target.namespace).or_default() += 1;
    }
    let deletes = writes.iter().filter(|write| write.verb == "delete" && write.resource() == "pods").count();
    ensure!(deletes == 0, "{deletes} pods were too many");
    ensure!(
        by_tenant.len() == NAMESPACES && by_tenant.values().all(|made| *made == sets * PODS),
        "{} pods of each tenant were wanted, and made were {by_tenant:?}",
        sets * PODS
    );
    Ok(by_tenant.values().sum())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn three_processes_share_four_shards_and_work_goes_on_when_one_is_killed_one_stopped_and_one_ended()
-> Result<()> {
    let options = PlaneOptions::default().nodes(0).scheduler(false);
    let options = options.api_server_arg("--feature-gates=ShardedListAndWatch=true");
    on_plane(options, async |plane, audit| {
        let tenants = Tenants::new(plane).await?;
        tenants.ask("first").await?;
        let (one, two, three) = (replica(plane).await?, replica(plane).await?, replica(plane).await?);
        let shared = tenants.shared_by(3, IDLE).await?;
        let served = tenants.served(1, IDLE).await?;
        println!(
            "three replicas share {SHARDS} shards after {shared:?}, all work is done after {served:?} more"
        );

        let begun = Instant::now();
        one.kill();
        tenants.ask("second").await?;
        tenants.shared_by(2, IDLE).await?;
        let taken = begun.elapsed();
        let served = tenants.served(2, IDLE).await?;
        ensure!(taken <= UNOWNED, "after the kill shards were nobody's for {taken:?}");
        println!("killed: its shards are held after {taken:?}, all work is done after {served:?} more");

        let four = replica(plane).await?;
        tenants.shared_by(3, IDLE).await?;
        let begun = Instant::now();
        signal(&two, Signal::STOP)?;
        tenants.ask("third").await?;
        tenants.shared_by(2, IDLE).await?;
        let taken = begun.elapsed();
        let served = tenants.served(3, IDLE).await?;
        ensure!(taken <= UNOWNED, "after the stop shards were nobody's for {taken:?}");
        println!("stopped: its shards are held after {taken:?}, all work is done after {served:?} more");
        signal(&two, Signal::CONT)?;
        let back = tenants.shared_by(3, IDLE).await?;
        ensure!(two.exited().is_none(), "it goes on with a share");
        println!("continued: it has a share again after {back:?}");

        tenants.ask("fourth").await?;
        tenants.served(4, IDLE).await?;
        three.terminate();
        let begun = Instant::now();
        let status = three.wait_exit(IDLE).await?;
        let ended = begun.elapsed();
        let taken = tenants.shared_by(2, IDLE).await?;
        let handed = begun.elapsed();
        tenants.ask("fifth").await?;
        let served = tenants.served(5, IDLE).await?;
        println!("ended: it is gone after {ended:?}, {taken:?} later all is held, {served:?} for all work");
        ensure!(status.success(), "it ended with {status}");
        ensure!(handed <= Duration::from_secs(1), "the hand-over took {handed:?}");

        let made = every_pod_was_made_once(audit, 5)?;
        println!("{made} pods, each made once");
        drop(four);
        Ok(())
    })
    .await
}
