//! What can be wrong with a run.

use std::fmt;
use std::time::Duration;

use windlass_api_server::faults::FaultPlan;

/// What an oracle objects to.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Violation {
    /// The script, or one of its assertions, panicked.
    #[error("the script panicked: {0}")]
    Panicked(String),
    /// What the script waited for did not come true.
    #[error("{what} did not come true within {waited:?}")]
    Never {
        /// What.
        what: String,
        /// For how long it was waited for.
        waited: Duration,
    },
    /// Tasks kept each other busy and virtual time stood still.
    #[error("a million polls without virtual time going on; the task {task:?} was polled last")]
    Frozen {
        /// The task.
        task: String,
    },
    /// The run did not end in virtual time.
    #[error("the run did not end within {0:?} of virtual time")]
    TooLong(Duration),
    /// Writes continued, although no fault was left.
    #[error("{writes} writes in {over:?} after the last fault, and no end")]
    Restless {
        /// How many.
        writes: u64,
        /// In what time.
        over: Duration,
    },
    /// The cluster did not reach the state of the run without faults.
    #[error(
        "not the state of the run without faults, {after:?} after the last fault (+ here, - there):\n{difference}"
    )]
    Differs {
        /// How long after the last fault.
        after: Duration,
        /// How it differs.
        difference: String,
    },
    /// The state was reached and then changed again.
    #[error("the state was reached and not kept: {0}")]
    NotKept(String),
    /// A write was sent, or took effect, without a lease, or later than a lease permits.
    #[error("{who} wrote {request} at {at:?}, {}", allowed(*.until))]
    Unfenced {
        /// Who.
        who: String,
        /// The request.
        request: String,
        /// When.
        at: Duration,
        /// Until when it was allowed to; `None` if it never was.
        until: Option<Duration>,
    },
    /// A write was sent, or took effect, while another replica held the lease.
    #[error("{who} wrote {request} at {at:?} while {holder:?} held the lease")]
    SplitBrain {
        /// Who.
        who: String,
        /// The holder.
        holder: String,
        /// The request.
        request: String,
        /// When.
        at: Duration,
    },
    /// A reconcile began on a cache that does not contain what its key wrote before.
    #[error("{who} reconciles {key}, which wrote {written}, on a cache at {cache:?}")]
    StaleRead {
        /// Which process.
        who: String,
        /// Which controller and key.
        key: String,
        /// The resource that was written to, and the version of the write.
        written: String,
        /// The version of the cache.
        cache: String,
    },
    /// A write was sent through the turn of a reconcile that has ended.
    #[error("{who} wrote {request} at {at:?} through a finished turn of {key}")]
    TurnOver {
        /// Which process.
        who: String,
        /// The request.
        request: String,
        /// Which controller and key.
        key: String,
        /// When.
        at: Duration,
    },
    /// A write of a context in dry-run mode was sent as any other: the server executes it.
    #[error("{who} sent {request} at {at:?} in a dry run of {key}, without dryRun=All")]
    NotDry {
        /// Which process.
        who: String,
        /// The request.
        request: String,
        /// Which controller and key.
        key: String,
        /// When.
        at: Duration,
    },
    /// Nobody worked on a shard for longer than the election promises.
    #[error(
        "nobody works on {shard} at {at:?}, and nobody has since {since:?}: within {within:?} of {counted_from:?} \
         somebody should have taken it"
    )]
    Vacant {
        /// Which shard.
        shard: String,
        /// Since when, or since when its holder was told to stop.
        since: Duration,
        /// From when on the time ran.
        counted_from: Duration,
        /// How much time there was.
        within: Duration,
        /// When it was too much.
        at: Duration,
    },
    /// More was created than without faults.
    #[error("{what} was created {times} times; without faults: {expected}")]
    CreatedTwice {
        /// What.
        what: String,
        /// How often.
        times: u64,
        /// How often without faults.
        expected: u64,
    },
    /// A cache is not what the server holds, long after the last fault.
    #[error("the cache of {kind} of {who} is not what the server holds: {difference}")]
    CacheDiffers {
        /// Whose.
        who: String,
        /// Of what.
        kind: String,
        /// How.
        difference: String,
    },
    /// More requests than the faults explain.
    #[error("{requests} requests, where at most {bound} are explained")]
    TooManyRequests {
        /// How many.
        requests: u64,
        /// How many at most.
        bound: u64,
    },
    /// A watch was opened again and again without a wait.
    #[error("{who} opened a watch {times} times by {at:?}, too often without a wait: {watch}")]
    Spinning {
        /// Who.
        who: String,
        /// What was watched.
        watch: String,
        /// How often in this life.
        times: u64,
        /// When it was too much.
        at: Duration,
    },
    /// A process ended for a reason that no fault explains.
    #[error("{who} ended: {error}")]
    Ended {
        /// Who.
        who: String,
        /// What it said.
        error: String,
    },
    /// A controller asked for what it never declared, and so has no role for. The request was not sent.
    #[error("{who} made requests that its controllers did not declare in their setup: {requests}")]
    Undeclared {
        /// Who.
        who: String,
        /// Controller, verb, group and resource of each, with how often.
        requests: String,
    },
    /// The server denied a request, because the generated roles do not grant it.
    #[error("the generated roles do not grant {0}: declare it in the setup of its sender")]
    Forbidden(String),
    /// No run of the campaign used these rules.
    #[error("no run used these rules: remove them from the setup, or let the script need them\n{0}")]
    UnusedRights(String),
    /// A campaign whose runs could not fail.
    #[error("the campaign proves nothing: {0}")]
    ProvesNothing(String),
    /// Tasks outlived what they belong to.
    #[error("left behind by {who}: {tasks}")]
    LeftBehind {
        /// Who.
        who: String,
        /// What.
        tasks: String,
    },
}

fn allowed(until: Option<Duration>) -> String {
    until.map_or_else(
        || "without ever having held the lease".to_owned(),
        |until| format!("and held the lease until {until:?}"),
    )
}

/// A run that an oracle objected to, with all that is needed to see it again.
#[derive(Clone, Debug)]
pub struct SimulationFailure {
    /// What is wrong.
    pub flaw: Violation,
    /// The plan, as far as it could be shortened.
    pub plan: FaultPlan,
    /// The end of the trace.
    pub trace: String,
}

impl fmt::Display for SimulationFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let SimulationFailure { flaw, plan, trace } = self;
        write!(
            f,
            "{flaw}\n\nthe end of the trace:\n{trace}\nto see it again, run the same script under\n{plan}\n"
        )
    }
}

impl std::error::Error for SimulationFailure {}
