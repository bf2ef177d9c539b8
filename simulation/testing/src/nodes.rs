//! Nodes that run nothing: a scheduler and a kubelet in miniature, as ordinary controllers of this runtime.
//!
//! [`registrations`] gives the controllers for a manager: one keeps the nodes, one binds pods to them, one plays the
//! containers. Pods become ready with an IP of their own, those of Jobs complete, deleted ones go when they have
//! stopped or their grace is over, and a pod can be asked, by [annotation](annotations), to take its time or to fail.
//!
//! Guarantees:
//! - No two pods that run have one IP.
//! - Nothing is remembered that the API server does not tell again: killed and started again, they continue.
//! - A deleted pod is there until it has stopped, and no longer than its grace.
//!
//! They refuse to judge resources, affinity and taints, and to renew node leases: no built-in controller that runs on
//! this project asks for that yet.

mod addresses;
mod keeper;
mod kubelet;
mod lifecycle;
mod load;
mod scheduler;
#[cfg(test)]
mod tests;

use std::time::Duration;

use windlass_controller::Registration;

use self::keeper::NodeController;
use self::kubelet::Kubelet;
use self::scheduler::Scheduler;

/// What a pod may ask of the node that runs it.
pub mod annotations {
    /// For how long its containers run until they end, such as `5s`. Pods of Jobs have a default, others run on.
    pub const RUNS_FOR: &str = "testing.windlass.dev/runs-for";
    /// How long its containers take to stop once the pod is deleted, such as `2s`. Its grace bounds it.
    pub const STOPS_IN: &str = "testing.windlass.dev/stops-in";
    /// The exit code with which its containers end. Without it they succeed.
    pub const EXIT_CODE: &str = "testing.windlass.dev/exit-code";
    /// `false`: its containers run and never become ready.
    pub const READY: &str = "testing.windlass.dev/ready";
}

/// The annotation of the nodes played here. Nodes without it are left to others.
const PLAYED: &str = "testing.windlass.dev/played";

/// What the nodes are like.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeOptions {
    /// How many there are: `node-0`, `node-1`, ... Default 3: enough to see pods spread.
    pub count: u32,
    /// How long a bound pod takes to run. Default 0: tests rarely wait for images.
    pub starts_in: Duration,
    /// How long containers of Jobs run, unless a pod says otherwise. Default 1 s.
    pub job_runs_for: Duration,
    /// How many pods are scheduled, and how many are played, at the same time. Default 4.
    pub workers: usize,
}

impl Default for NodeOptions {
    fn default() -> Self {
        Self { count: 3, starts_in: Duration::ZERO, job_runs_for: Duration::from_secs(1), workers: 4 }
    }
}

/// The controllers that together are the nodes and their scheduler.
pub fn registrations(options: &NodeOptions) -> Vec<Registration> {
    vec![
        Registration::with::<NodeController>(options.clone()),
        Registration::with::<Scheduler>(options.clone()),
        Registration::with::<Kubelet>(options.clone()),
    ]
}
