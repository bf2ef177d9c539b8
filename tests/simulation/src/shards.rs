//! Replicas with sharding: the simulation and its script.

use std::num::NonZeroU16;
use std::time::Duration;

use k8s_openapi::api::core::v1::Namespace;
use serde_json::{Value, json};
use windlass_testing::nodes::NodeOptions;
use windlass_testing::{Cluster, Simulation, Snapshot};

use crate::fixtures::{object, replica_set, workloads};

const TENANTS: usize = 4;
const ROUNDS: usize = 5;
/// Pods of each ReplicaSet.
const PODS: i32 = 2;
/// Duration of the faults.
const SPAN: Duration = Duration::from_secs(300);
/// Pause between two ReplicaSets: together they span the duration of the faults.
const PAUSE: Duration = Duration::from_secs(15);

/// Returns a simulation with three replicas that share four shards.
pub fn simulation(seed: u64) -> Simulation {
    let simulation = Simulation::new(seed).replicas(3).fault_duration(SPAN).resources(["replicasets"]);
    simulation.with_config(|config| config.shards = NonZeroU16::new(4))
}

/// Creates ReplicaSets for every tenant one after the other during the faults, regardless of the shard holders.
///
/// # Panics
/// Panics if an object cannot be created.
pub async fn tenants(cluster: Cluster) {
    cluster.run(workloads());
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
            cluster.advance(PAUSE).await;
        }
    }
    let wanted = ROUNDS * TENANTS * usize::try_from(PODS).expect("a small number");
    cluster.eventually("every tenant has its pods", |world| world.count("Pod") == wanted).await;
    let is_reported = |set: &Value| set["status"]["availableReplicas"] == PODS;
    let all_reported =
        |world: &Snapshot| world.all("ReplicaSet").filter(|set| is_reported(set)).count() == ROUNDS * TENANTS;
    // A write that was lost under the last fault, or delayed by a stalled watch, can follow minutes later.
    cluster.eventually("every ReplicaSet reports its pods", all_reported).await;
}
