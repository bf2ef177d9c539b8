//! Simulated nodes: a minimal scheduler and kubelet, implemented as ordinary controllers of this runtime.
//!
//! [`registrations`] returns the controllers for a manager: one maintains the nodes, one binds pods to them, one
//! simulates the containers. Pods become ready with a unique IP, and pods of Jobs complete. Deleted pods are removed
//! when they have stopped or their grace period ends. [Annotations](annotations) make a pod slow or make it fail.
//!
//! Guarantees:
//! - No two running pods have the same IP.
//! - The nodes keep all state in the API server: after a crash and a restart, they continue.
//! - A deleted pod exists until it has stopped, and no longer than its grace period.
//!
//! The scheduler honors node selectors, required node affinity and taints. Resources, preferences and renewal of node
//! Leases are not supported: no built-in controller of this project needs them yet.

mod addresses;
mod keeper;
mod kubelet;
mod lifecycle;
mod load;
mod placement;
mod scheduler;
#[cfg(test)]
mod tests;

use std::time::Duration;

use windlass_controller::Registration;

use self::keeper::NodeController;
use self::kubelet::Kubelet;
use self::scheduler::Scheduler;

/// Annotations that control the simulated containers of a pod.
pub mod annotations {
    /// Duration until the containers exit, such as `5s`. Pods of Jobs have a default; other pods run indefinitely.
    pub const RUNS_FOR: &str = "testing.windlass.dev/runs-for";
    /// Time that the containers take to stop after the pod is deleted, such as `2s`; at most the grace period.
    pub const STOPS_IN: &str = "testing.windlass.dev/stops-in";
    /// Exit code of the containers; 0 by default.
    pub const EXIT_CODE: &str = "testing.windlass.dev/exit-code";
    /// `false` keeps the running containers unready.
    pub const READY: &str = "testing.windlass.dev/ready";
}

/// Annotation of the simulated nodes. Nodes without it are ignored.
const PLAYED: &str = "testing.windlass.dev/played";

/// Settings of the simulated nodes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeOptions {
    /// Number of nodes: `node-0`, `node-1`, ... Default 3: enough to observe that pods are spread.
    pub count: u32,
    /// Startup time of a bound pod. Default 0: tests rarely wait for images.
    pub starts_in: Duration,
    /// Run time of containers of Jobs, unless an annotation of the pod sets it. Default 1 s.
    pub job_runs_for: Duration,
    /// Number of workers of the scheduler and of the kubelet. Default 4.
    pub workers: usize,
}

impl Default for NodeOptions {
    fn default() -> Self {
        Self { count: 3, starts_in: Duration::ZERO, job_runs_for: Duration::from_secs(1), workers: 4 }
    }
}

/// Returns the controllers that simulate the nodes and their scheduler.
pub fn registrations(options: &NodeOptions) -> Vec<Registration> {
    vec![
        Registration::controller_with::<NodeController>(options.clone()),
        Registration::controller_with::<Scheduler>(options.clone()),
        Registration::controller_with::<Kubelet>(options.clone()),
    ]
}
