//! Replicas that share shards, under random crashes, partitions, lost and late requests, and clocks that run fast or slow.
//!
//! The judge outside of the processes holds every write against the Lease of its namespace's shard: whoever sends it must
//! hold it, by the server's account, and must have renewed it less than a renew deadline ago. What it cannot judge is a
//! request that stays on the wire for longer than `lease_duration` less `renew_deadline`: it may arrive when the shard is
//! another's, who did not see it. So nothing is late where it is counted how often a pod was created.
//!
//! `WINDLASS_PLANS` says how many plans (default 2), `WINDLASS_SEED` which is the first (default 1).

use std::num::NonZeroU16;
use std::time::Duration;

use k8s_openapi::api::core::v1::Namespace;
use serde_json::json;
use windlass_controllers::{Options, registrations};
use windlass_simulation::fixtures::{object, replica_set};
use windlass_simulation::wanted;
use windlass_testing::nodes::NodeOptions;
use windlass_testing::{Cluster, FaultKind, Faults, Plan, Simulation};

const TENANTS: usize = 4;
const ROUNDS: usize = 5;
/// Pods of each ReplicaSet.
const PODS: i32 = 2;
/// For how long faults go on.
const SPAN: Duration = Duration::from_secs(300);
/// Between two ReplicaSets: all of them together come over as long as faults do.
const PAUSE: Duration = Duration::from_secs(15);

fn simulation(seed: u64) -> Simulation {
    let simulation = Simulation::of(seed).replicas(3).lasting(SPAN).resources(["replicasets"]);
    simulation.configured(|config| config.shards = NonZeroU16::new(4))
}

fn faults() -> Faults {
    Faults::only([
        FaultKind::Crash,
        FaultKind::Partition,
        FaultKind::Loss,
        FaultKind::Delay,
        FaultKind::Clock,
    ])
}

/// Every tenant gets one ReplicaSet after the other, for as long as faults go on, whoever holds its shard.
async fn tenants(cluster: Cluster) {
    cluster.run(registrations(&Options::default()));
    cluster.run_nodes(&NodeOptions::default());
    for number in 0..TENANTS {
        let namespace: Namespace = object(json!({ "metadata": { "name": format!("tenant-{number}") } }));
        cluster.create(&namespace).await;
    }
    for round in 0..ROUNDS {
        for number in 0..TENANTS {
            let name = format!("set-{round}");
            let mut set = replica_set(&name, &name, PODS);
            set.metadata.namespace = Some(format!("tenant-{number}"));
            cluster.create(&set).await;
            cluster.pass(PAUSE).await;
        }
    }
    let wanted = ROUNDS * TENANTS * usize::try_from(PODS).expect("a small number");
    cluster.eventually("every tenant has its pods", |world| world.count("Pod") == wanted).await;
}

fn seeds() -> impl Iterator<Item = u64> {
    let (first, plans) = (wanted("WINDLASS_SEED", 1), wanted("WINDLASS_PLANS", 2));
    assert!(plans > 0, "no plan proves nothing");
    first..first + plans
}

#[test]
fn whatever_happens_every_write_is_sent_under_the_lease_of_its_shard() {
    for seed in seeds() {
        let run = simulation(seed).faults(faults()).run(tenants);
        run.unwrap_or_else(|failure| panic!("{failure}"));
    }
}

#[test]
fn while_nothing_is_late_all_work_is_done_once_whoever_holds_its_shard() {
    let quiet = simulation(1).plan(Plan::quiet(1)).run(tenants);
    let quiet = quiet.unwrap_or_else(|failure| panic!("without any fault: {failure}"));
    for seed in seeds() {
        let simulation = simulation(seed).faults(faults().without(FaultKind::Delay));
        let run = simulation.run_like(Some(&quiet), tenants);
        run.unwrap_or_else(|failure| panic!("{failure}"));
    }
}
