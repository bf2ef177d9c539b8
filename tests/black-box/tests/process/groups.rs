//! Several elections in one process: replicas that share work, and lose one of them after another, in this process and as
//! processes of their own.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use k8s_openapi::api::apps::v1::ReplicaSet;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::Endpoints;
use kube::Api;
use windlass_black_box::audit::{Audit, Write};
use windlass_black_box::fixtures::{LABEL, service};
use windlass_black_box::stage::on_plane;
use windlass_black_box::subject;
use windlass_black_box::subject::ends_in_order;
use windlass_black_box::wait::{eventually, eventually_within};
use windlass_black_box::workload::Workload as _;
use windlass_black_box::world::World;
use windlass_client::ClientOptions;
use windlass_controllers::{Options, registrations};
use windlass_env::{Env, Task};
use windlass_harness::{self as harness, Plane, PlaneOptions};
use windlass_manager::{
    ElectionGroup, Health, Manager, ManagerConfig, ManagerError, Probe, ShutdownSignals, ShutdownTrigger,
};

/// How long after the end of a leader its work may lie idle: its lease of 15 s, and room for a machine that is busy.
const IDLE: Duration = Duration::from_secs(60);

/// The groups, with the controller that each consists of, and as whom it writes.
const GROUPS: [(&str, &str, &str); 2] = [
    ("workloads", "replicaset-controller", "replicaset-controller"),
    ("network", "endpoints-controller", "endpoint-controller"),
];

/// A manager in this process, on connections of its own.
struct Replica {
    env: Env,
    health: Health,
    stop: ShutdownTrigger,
    task: Task<Result<(), ManagerError>>,
}

impl Replica {
    fn start(plane: &Plane, name: &'static str) -> Result<Self> {
        let env = Env::system(name);
        let mut config = ManagerConfig::new(name);
        config.groups = GROUPS.iter().map(|(group, only, _)| ElectionGroup::new(*group, [*only])).collect();
        // Who wrote what is read off the server's own record.
        config.client = ClientOptions { user_agent: agent(name), ..ClientOptions::default() };
        // Of the default times: a machine that stands still for some seconds costs nobody the lease.
        let manager = Manager::new(env.clone(), config, plane.config())?;
        let manager = registrations(&Options::default()).into_iter().fold(manager, Manager::register);
        let (health, (stop, signals)) = (manager.health().clone(), ShutdownSignals::manual());
        // In an Env of its own, so that whoever is killed is not asked how it fares.
        let task = Env::system("test").spawn("manager", manager.run(signals));
        Ok(Self { env, health, stop, task })
    }

    /// Waits until its caches are synced: it leads, or stands by.
    async fn ready(&self) -> Result<()> {
        let ready = async || Ok(self.health.report(Probe::Ready).passed());
        eventually("the replica is ready", ready, |ready| *ready).await.map(drop)
    }

    /// Ends it in order.
    async fn end(self) -> Result<()> {
        self.stop.fire();
        self.task.await.context("the manager panicked")?.context("it did not end in order")
    }

    /// As a crash does: no task goes on, and nothing leaves any more.
    fn kill(self) {
        self.env.kill();
        self.task.abort();
    }
}

fn agent(replica: &str) -> String {
    format!("windlass-{replica}")
}

async fn leader_of(world: &World, group: &str) -> Result<String> {
    let leases: Api<Lease> = Api::namespaced(world.client.clone(), "kube-system");
    let lease = leases.get_opt(&format!("windlass-{group}")).await?.unwrap_or_default();
    Ok(lease.spec.and_then(|spec| spec.holder_identity).unwrap_or_default())
}

async fn leaders(world: &World) -> Result<[String; 2]> {
    Ok([leader_of(world, GROUPS[0].0).await?, leader_of(world, GROUPS[1].0).await?])
}

/// Asks for one pod and for one Endpoints, and waits until somebody made them.
async fn all_work_goes_on(world: &World, name: &str) -> Result<()> {
    let before = world.pods(LABEL).await?.len();
    world.create(&ReplicaSet::new(name, 1)).await?;
    world.create(&service(name, &[80])).await?;
    eventually_within(IDLE, "a pod was made", || world.pods(LABEL), |pods| pods.len() == before + 1).await?;
    eventually_within(IDLE, "endpoints were made", || world.find::<Endpoints>(name), Option::is_some).await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_replicas_share_two_groups_and_each_goes_on_with_the_work_of_one_that_is_killed() -> Result<()> {
    on_plane(PlaneOptions::default().nodes(0).scheduler(false), async |plane, audit| {
        let world = World { client: plane.client().await, namespace: plane.namespace("groups").await? };
        let first = Replica::start(plane, "zero")?;
        eventually("it leads both groups", || leaders(&world), |it| *it == ["zero", "zero"]).await?;
        let mut replicas = BTreeMap::new();
        for name in ["one", "two"] {
            let replica = Replica::start(plane, name)?;
            replica.ready().await?;
            replicas.insert(name.to_owned(), replica);
        }
        all_work_goes_on(&world, "alone").await?;

        first.end().await?;
        let held = |it: &[String; 2]| it.iter().all(|leader| leader == "one" || leader == "two");
        let [workloads, network] = eventually("both groups are led", || leaders(&world), held).await?;
        ensure!(workloads != network, "{workloads} leads both groups, though another replica could lead one");
        all_work_goes_on(&world, "shared").await?;

        replicas.remove(&workloads).context("a replica leads")?.kill();
        all_work_goes_on(&world, "first-takeover").await?;
        ensure!(
            leaders(&world).await? == [network.clone(), network.clone()],
            "{network} leads both groups now"
        );

        let last = Replica::start(plane, "three")?;
        last.ready().await?;
        replicas.remove(&network).context("a replica leads")?.kill();
        all_work_goes_on(&world, "second-takeover").await?;
        ensure!(leaders(&world).await? == ["three", "three"], "who came later leads both groups now");
        last.end().await?;
        ensure!(leaders(&world).await? == ["", ""], "both leases are released");
        never_two_at_once(audit)
    })
    .await
}

/// Of every controller, the writes come from one replica, then from another, and never from the first again.
fn never_two_at_once(audit: &Audit) -> Result<()> {
    for ((group, _, writer), leaders) in GROUPS.into_iter().zip([4, 3]) {
        let writes = audit.writes("windlass-", &[writer])?;
        let mut turns: Vec<&str> = writes.iter().filter_map(replica_of).collect();
        turns.dedup();
        let once: BTreeSet<&str> = turns.iter().copied().collect();
        ensure!(turns.len() == once.len(), "in the group {group} replicas wrote in turns: {turns:?}");
        ensure!(turns.len() == leaders, "{leaders} replicas led {group} one after the other, not {turns:?}");
    }
    Ok(())
}

fn replica_of(write: &Write) -> Option<&str> {
    write.user_agent.split_once('/').map(|(replica, _)| replica)
}

/// Who leads one group hesitates before it takes the other for a part of the retry period: so long that on a machine
/// which is busy another process still comes first.
const BY_FLAG: [&str; 6] = [
    "--controllers=replicaset-controller,endpoints-controller",
    "--leader-elect-group=workloads=replicaset",
    "--leader-elect-group=network=endpoints-controller",
    "--leader-elect-lease-duration=30s",
    "--leader-elect-renew-deadline=20s",
    "--leader-elect-retry-period=10s",
];

/// A process with the same groups, by flag, that acts as a user of its own, who may do anything.
async fn process(plane: &Plane, name: &str) -> Result<harness::Manager> {
    let kubeconfig = plane.kubeconfig_for(name, name, Some("system:masters"))?;
    let kubeconfig = format!("--kubeconfig={}", kubeconfig.display());
    let arguments: Vec<&str> = BY_FLAG.into_iter().chain([kubeconfig.as_str()]).collect();
    let process = harness::Manager::start(plane, &arguments).await?;
    subject::ready(&process, IDLE).await?;
    Ok(process)
}

/// Waits until `process` leads so many groups, and says which.
async fn leads(process: &harness::Manager, groups: usize) -> Result<Vec<&'static str>> {
    let led = async || {
        let mut led = Vec::new();
        for (group, ..) in GROUPS {
            let lease = format!("name=\"windlass-{group}\"");
            if process.metric("leader_election_master_status", &[&lease]).await? == Some(1.0) {
                led.push(group);
            }
        }
        Ok(led)
    };
    eventually_within(IDLE, "it leads its share", led, |led| led.len() == groups).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_processes_with_groups_by_flag_lead_one_each_and_one_leads_both_when_the_other_has_ended()
-> Result<()> {
    on_plane(PlaneOptions::default().nodes(0).scheduler(false), async |plane, audit| {
        let world = World { client: plane.client().await, namespace: plane.namespace("flags").await? };
        // Who comes first leads all there is, so what is shared is what it leaves.
        let zero = process(plane, "zero").await?;
        leads(&zero, 2).await?;
        all_work_goes_on(&world, "alone").await?;
        let (one, two) = (process(plane, "one").await?, process(plane, "two").await?);
        ends_in_order(&zero, IDLE).await?;
        let (of_one, of_two) = (leads(&one, 1).await?, leads(&two, 1).await?);
        ensure!(of_one != of_two, "both lead {of_one:?}");
        all_work_goes_on(&world, "shared").await?;

        ends_in_order(&one, IDLE).await?;
        leads(&two, 2).await?;
        all_work_goes_on(&world, "taken-over").await?;
        ends_in_order(&two, IDLE).await?;
        ensure!(leaders(&world).await? == ["", ""], "both leases are released");
        for (group, _, writer) in GROUPS {
            let writes = audit.writes("windlass/", &[writer])?;
            let mut turns: Vec<&str> = writes.iter().map(|write| write.user.username.as_str()).collect();
            turns.dedup();
            let led: &[&str] = if of_one == [group] { &["zero", "one", "two"] } else { &["zero", "two"] };
            ensure!(turns == led, "{group} is led by {led:?} one after the other, and {turns:?} wrote");
        }
        Ok(())
    })
    .await
}
