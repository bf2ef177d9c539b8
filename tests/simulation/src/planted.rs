//! Planted bugs: ways in which people get controllers, and what runs them, wrong, and what it takes to see each of them.
//!
//! A test of the tests. Each bug comes with a script and a family of fault plans in which it matters, and is to be
//! caught by an oracle within so many plans; the sound controllers get over the very same plans.
//!
//! Where wrapping a controller is enough, that is how a bug is planted. Where production code must bend, the Env says
//! so (`Env::with_planted`).

mod hunt;
mod plans;
mod scripts;
mod wrappers;

use std::time::Duration;

use windlass_controller::{Descriptor, Registration};
use windlass_controllers::{
    EndpointsController, Options, ReplicaSetController, ReplicationControllerController, registrations,
};
use windlass_testing::{Flaw, Plan};

pub use self::hunt::{Caught, hunt};
use self::scripts::Script;
use self::wrappers::{Forgiving, Leaking, Resentful};

/// One bug, and where to look for it.
#[derive(Clone, Copy, Debug)]
pub struct Bug {
    /// What it is called.
    pub name: &'static str,
    /// What the user does.
    script: Script,
    /// The plan that follows from a seed.
    plan: fn(u64) -> Plan,
    how: How,
    /// Whether reconciles are judged by what their key wrote before.
    judges_reads: bool,
    /// Whether this is what the bug looks like to an oracle, and not a bug of another sort.
    betrays: fn(&Flaw) -> bool,
}

/// How a bug is planted.
#[derive(Clone, Copy, Debug)]
enum How {
    /// The Env carries these names.
    Env(&'static [&'static str]),
    /// The controllers are other ones.
    Controllers(fn() -> Vec<Registration>),
    /// The server executes the creates of pods this much later, and heeds neither timeouts nor resets.
    LateServer(Duration),
}

/// No reconcile waits for the writes of the one before it, judged by what the server executed.
pub const REPEATED_CREATES: Bug = Bug {
    name: "repeated creates",
    script: Script::Alone,
    plan: plans::late_pods,
    how: How::Env(&["no read-your-writes"]),
    judges_reads: false,
    betrays: |flaw| matches!(flaw, Flaw::CreatedTwice { .. }),
};

/// Adopting names neither the pod's UID nor looks at the owner's.
///
/// Read-your-writes is off as well: it lists late caches again, and so hides this bug.
pub const ADOPTION_WITHOUT_UID: Bug = Bug {
    name: "adoption without UID",
    script: Script::Succession,
    plan: plans::late_owners,
    how: How::Env(&["adoption without UID", "no read-your-writes"]),
    judges_reads: false,
    betrays: |flaw| matches!(flaw, Flaw::Never { .. } | Flaw::CreatedTwice { .. }),
};

/// The status is compared with whatever the cache holds, and events of it are not listened to.
pub const STATUS_FROM_STALE_CACHE: Bug = Bug {
    name: "status from stale cache",
    script: Script::Flicker,
    plan: plans::late_owners,
    how: How::Env(&["no read-your-writes", "status events ignored"]),
    judges_reads: false,
    betrays: |flaw| matches!(flaw, Flaw::Differs { .. }),
};

/// Whoever loses the lease goes on.
pub const WRITE_AFTER_LEASE_LOSS: Bug = Bug {
    name: "write after lease loss",
    script: Script::Busy,
    plan: plans::partitions,
    how: How::Env(&["write after lease loss"]),
    judges_reads: false,
    betrays: |flaw| matches!(flaw, Flaw::Unfenced { .. } | Flaw::SplitBrain { .. }),
};

/// A key that is added while a worker has it is forgotten.
pub const LOST_ENQUEUE: Bug = Bug {
    name: "lost enqueue during processing",
    script: Script::Busy,
    plan: plans::slow_requests,
    how: How::Env(&["lost enqueue during processing"]),
    judges_reads: false,
    betrays: |flaw| matches!(flaw, Flaw::Never { .. } | Flaw::Differs { .. }),
};

/// A cache keeps what a new list does not hold.
pub const DROPPED_DELETE: Bug = Bug {
    name: "dropped delete on relist",
    script: Script::Busy,
    plan: plans::relists,
    how: How::Env(&["dropped delete on relist"]),
    judges_reads: false,
    betrays: |flaw| matches!(flaw, Flaw::CacheDiffers { .. } | Flaw::Never { .. } | Flaw::Differs { .. }),
};

/// A key that succeeds is not forgiven its failures.
pub const BACKOFF_NEVER_RESET: Bug = Bug {
    name: "backoff never reset",
    script: Script::Bursts,
    plan: plans::bursts,
    how: How::Controllers(resentful),
    judges_reads: false,
    betrays: |flaw| matches!(flaw, Flaw::Never { .. } | Flaw::Differs { .. }),
};

/// A conflict counts as success: whoever was faster will have seen to it.
pub const NO_REQUEUE_ON_CONFLICT: Bug = Bug {
    name: "missing requeue on conflict",
    script: Script::Busy,
    plan: plans::conflicts,
    how: How::Controllers(forgiving),
    judges_reads: false,
    betrays: |flaw| matches!(flaw, Flaw::Never { .. } | Flaw::Differs { .. }),
};

/// Every reconcile leaves a task behind.
pub const LEAKED_TASK: Bug = Bug {
    name: "leaked task",
    script: Script::Busy,
    plan: plans::anything,
    how: How::Controllers(leaking),
    judges_reads: false,
    betrays: |flaw| matches!(flaw, Flaw::LeftBehind { .. }),
};

/// Every controller is started twice in one process.
pub const DOUBLE_START: Bug = Bug {
    name: "double start",
    script: Script::Busy,
    plan: plans::anything,
    how: How::Controllers(twice),
    judges_reads: false,
    betrays: |flaw| matches!(flaw, Flaw::CreatedTwice { .. }),
};

/// No reconcile waits for the writes of the one before it, judged by what it reads.
pub const NO_READ_YOUR_WRITES: Bug = Bug {
    name: "no read-your-writes",
    script: Script::Busy,
    plan: plans::late_pods,
    how: How::Env(&["no read-your-writes"]),
    judges_reads: true,
    betrays: |flaw| matches!(flaw, Flaw::StaleRead { .. }),
};

/// Writes take effect long after they were sent, when another replica may lead.
pub const LATE_EFFECTS: Bug = Bug {
    name: "late effects",
    script: Script::Busy,
    plan: plans::partitions,
    how: How::LateServer(Duration::from_secs(20)),
    judges_reads: false,
    betrays: |flaw| matches!(flaw, Flaw::Unfenced { until: Some(_), .. } | Flaw::SplitBrain { .. }),
};

fn sound() -> Vec<Registration> {
    registrations(&Options::default())
}

fn resentful() -> Vec<Registration> {
    vec![
        Registration::of::<Resentful<ReplicaSetController>>(),
        Registration::of::<Resentful<ReplicationControllerController>>(),
        Registration::of::<Resentful<EndpointsController>>(),
    ]
}

fn forgiving() -> Vec<Registration> {
    vec![
        Registration::of::<Forgiving<ReplicaSetController>>(),
        Registration::of::<Forgiving<ReplicationControllerController>>(),
        Registration::of::<Forgiving<EndpointsController>>(),
    ]
}

fn leaking() -> Vec<Registration> {
    vec![
        Registration::of::<Leaking<ReplicaSetController>>(),
        Registration::of::<Leaking<ReplicationControllerController>>(),
        Registration::of::<Leaking<EndpointsController>>(),
    ]
}

fn twice() -> Vec<Registration> {
    let again = [
        Registration::of::<ReplicaSetController>().named(Descriptor::new("replicaset-controller-again")),
        Registration::of::<EndpointsController>().named(Descriptor::new("endpoints-controller-again")),
    ];
    sound().into_iter().chain(again).collect()
}
