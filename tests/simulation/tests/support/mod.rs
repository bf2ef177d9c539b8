//! The world of these simulations.

use k8s_openapi::api::apps::v1::ReplicaSet;
use k8s_openapi::api::core::v1::{Endpoints, Pod, Service};
use windlass_testing::Simulation;

pub fn simulation(seed: u64) -> Simulation {
    let resources = ["replicasets", "services", "endpoints"];
    let simulation = Simulation::of(seed).resources(resources);
    simulation.caches_of::<Pod>().caches_of::<ReplicaSet>().caches_of::<Service>().caches_of::<Endpoints>()
}
