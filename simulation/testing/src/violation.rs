//! Violations that the oracles report.

use std::fmt;
use std::time::Duration;

use windlass_api_server::faults::FaultPlan;

use crate::trace_excerpt::Trace;

/// Violation that an oracle reports.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Violation {
    /// The script, or one of its assertions, panicked.
    #[error("script panicked: {0}; run it without faults to check the script itself")]
    Panicked(String),
    /// A condition of the script did not become true.
    #[error(
        "condition was not met within {waited:?}: {condition}; raise convergence_timeout if it needs more time"
    )]
    Timeout {
        /// Description of the condition.
        condition: String,
        /// Waiting time.
        waited: Duration,
    },
    /// Tasks kept waking each other and virtual time did not advance.
    #[error("virtual time did not advance during a million polls; last polled task: {task:?}")]
    Livelock {
        /// Task that was polled last.
        task: String,
    },
    /// The run exceeded its limit of virtual time.
    #[error(
        "run exceeded {0:?} of virtual time; end the script earlier, or raise the duration of faults (minutes, days)"
    )]
    VirtualTimeLimit(Duration),
    /// Writes continued after the last fault.
    #[error(
        "controllers still write: {writes} writes in {elapsed:?} after the last fault; send no request from a reconcile \
         that has nothing to change, or raise convergence_timeout"
    )]
    NotConverged {
        /// Number of writes.
        writes: u64,
        /// Time since the last fault.
        elapsed: Duration,
    },
    /// The cluster did not reach the state of the run without faults.
    #[error(
        "state differs from the run without faults {after:?} after the last fault (~ changed, + only here, - only \
         there):\n{difference}"
    )]
    StateDiffers {
        /// Time since the last fault.
        after: Duration,
        /// Difference between the states.
        difference: String,
    },
    /// The state changed after it was reached.
    #[error("state changed after convergence: {0}; a reconcile must not depend on elapsed time alone")]
    StateChanged(String),
    /// A write was sent or took effect without a Lease, or after the Lease expired.
    #[error("{process} sent {request} at {at:?} {}; send writes only through the context and its writers", allowed(*.until))]
    WriteWithoutLease {
        /// Process that sent the write.
        process: String,
        /// The request.
        request: String,
        /// Time of the violation.
        at: Duration,
        /// End of the period in which the write was permitted; `None` if the process never held the Lease.
        until: Option<Duration>,
    },
    /// A write was sent or took effect while another replica held the Lease.
    #[error("{process} sent {request} at {at:?} while {holder:?} held the Lease")]
    SplitBrain {
        /// Process that sent the write.
        process: String,
        /// Holder of the Lease.
        holder: String,
        /// The request.
        request: String,
        /// Time of the violation.
        at: Duration,
    },
    /// A reconcile began on a cache without an earlier write of its key.
    #[error(
        "{process} began to reconcile {key} on a cache at {cache:?} without the key's own write of {written}; keep \
         read_your_writes enabled"
    )]
    StaleRead {
        /// Process that runs the reconcile.
        process: String,
        /// Controller and key.
        key: String,
        /// Resource of the write, and version of the write.
        written: String,
        /// Version of the cache.
        cache: String,
    },
    /// A write was sent by a reconcile that had ended.
    #[error(
        "{process} sent {request} at {at:?} from a finished reconcile of {key}; spawn tasks with Context::spawn"
    )]
    WriteAfterReconcile {
        /// Process that sent the write.
        process: String,
        /// The request.
        request: String,
        /// Controller and key.
        key: String,
        /// Time of the violation.
        at: Duration,
    },
    /// A write of a context in dry-run mode was sent without `dryRun=All`: the server executes it.
    #[error("{process} sent {request} at {at:?} in a dry run of {key}, without dryRun=All")]
    WriteInDryRun {
        /// Process that sent the write.
        process: String,
        /// The request.
        request: String,
        /// Controller and key.
        key: String,
        /// Time of the violation.
        at: Duration,
    },
    /// A shard had no active holder for longer than the election promises.
    #[error(
        "{shard} has no active holder at {at:?}, since {since:?}: another replica must acquire it \
         within {limit:?} of {counted_from:?}"
    )]
    ShardWithoutHolder {
        /// The shard.
        shard: String,
        /// Start of the vacancy, or time of the stop signal of its holder.
        since: Duration,
        /// Start of the limit.
        counted_from: Duration,
        /// Length of the limit.
        limit: Duration,
        /// Time of the violation.
        at: Duration,
    },
    /// More objects were created than without faults.
    #[error("{object} was created {count} times; without faults: {expected}")]
    CreatedTooOften {
        /// Resource, namespace and name.
        object: String,
        /// Number of creates.
        count: u64,
        /// Number of creates without faults.
        expected: u64,
    },
    /// A cache differs from the objects of the server long after the last fault.
    #[error("cache of {kind} in {process} differs from the server: {difference}")]
    CacheDiffers {
        /// Process that has the cache.
        process: String,
        /// Kind of the objects.
        kind: String,
        /// Difference between cache and server.
        difference: String,
    },
    /// More requests were sent than the faults explain.
    #[error(
        "too many requests: {requests}, of which the faults explain at most {limit}; use backoff, and send only changes"
    )]
    TooManyRequests {
        /// Number of requests.
        requests: u64,
        /// Maximum number of requests.
        limit: u64,
    },
    /// A watch was reopened repeatedly without a backoff.
    #[error(
        "{process} opened the watch {watch} {count} times until {at:?} without backoff; wait before the watch is reopened"
    )]
    WatchReopenedTooOften {
        /// Process that opened the watch.
        process: String,
        /// Path and query of the watch.
        watch: String,
        /// Number of openings in this incarnation.
        count: u64,
        /// Time of the violation.
        at: Duration,
    },
    /// A process exited for a reason that no fault explains.
    #[error("{process} exited, and no fault explains it: {error}")]
    UnexpectedExit {
        /// The process.
        process: String,
        /// Error of the process.
        error: String,
    },
    /// A controller tried to send an undeclared request, which its role would not permit. The client rejected the
    /// request.
    #[error("{process} sent requests that its controllers did not declare in their setup: {requests}")]
    Undeclared {
        /// The process.
        process: String,
        /// Controller, verb, group and resource of each request, with its count.
        requests: String,
    },
    /// The server denied a request that the generated roles do not grant.
    #[error("generated roles do not grant {0}; declare it in the setup of the sender")]
    Forbidden(String),
    /// No run of the campaign used these rules.
    #[error("no run used these rules; remove them from the setup, or extend the script to use them\n{0}")]
    UnusedPermissions(String),
    /// The runs of a campaign could not fail.
    #[error("campaign proves nothing: {0}")]
    VacuousCampaign(String),
    /// Tasks outlived their process or the world.
    #[error(
        "{process} left tasks running: {tasks}; spawn them with Context::spawn or Env::spawn, and end them on stop"
    )]
    LeakedTasks {
        /// The process, or the run.
        process: String,
        /// Names or number of the tasks.
        tasks: String,
    },
    /// A process did not exit after its stop signal.
    #[error(
        "processes did not stop within {0:?} of their stop signal; runnables must return when RunnableContext::stopped \
         resolves"
    )]
    NotStopped(Duration),
}

fn allowed(until: Option<Duration>) -> String {
    until.map_or_else(
        || "and never held the Lease".to_owned(),
        |until| format!("after its Lease expired at {until:?}"),
    )
}

/// Failed run, with all data to reproduce it.
#[derive(Clone, Debug)]
pub struct SimulationFailure {
    /// The violation.
    pub violation: Violation,
    /// Controllers that wait for their caches, with their processes and the reasons, and keys whose last reconcile
    /// failed, with their processes, controllers and last errors.
    pub unfinished: Vec<String>,
    /// Plan, shrunk as far as possible.
    pub plan: FaultPlan,
    /// End of the trace.
    pub trace: Trace,
}

impl fmt::Display for SimulationFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let SimulationFailure { violation, unfinished, plan, trace } = self;
        writeln!(f, "{violation}")?;
        if !unfinished.is_empty() {
            let lines = unfinished.join("\n");
            writeln!(
                f,
                "\ncontrollers that wait for caches, and keys whose last reconcile failed:\n{lines}"
            )?;
        }
        if plan.faults.is_empty() {
            return writeln!(f, "\n{trace}\nthe run had no faults: the same test reproduces it");
        }
        write!(
            f,
            "\n{trace}\nto reproduce it, replace seed and faults in the attribute of the test with `plan = plan()`, or \
             call `replay(&simulation, plan(), script)`:\n\
             fn plan() -> windlass::testing::FaultPlan {{\n    use windlass::testing::FaultPlan;\n    {plan}\n}}\n"
        )
    }
}

impl std::error::Error for SimulationFailure {}
