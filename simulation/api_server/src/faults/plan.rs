//! What goes wrong, when, for whom: as data.

use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::request_summary::RequestSummary;

/// Everything that goes wrong in one run. Prints itself as a line that can be pasted into a test.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FaultPlan {
    /// What every random choice follows from.
    pub seed: u64,
    /// The faults, in no particular order.
    pub faults: Vec<Fault>,
}

/// One thing that goes wrong for a while.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Fault {
    /// From when on, in virtual milliseconds since the start.
    pub from_ms: u64,
    /// Until when. A crashed process comes back then.
    pub until_ms: u64,
    /// Whose requests are struck; `None` for everybody's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub instance: Option<String>,
    /// Requests on which resource are struck, by its plural name; `None` for all, health checks included.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resource: Option<String>,
    /// How many out of a thousand are struck, of what could be: requests, watches or events.
    #[serde(default = "always", skip_serializing_if = "is_always")]
    pub permille: u16,
    /// What goes wrong.
    pub what: FaultAction,
}

/// What goes wrong.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum FaultAction {
    /// A request is lost before it takes effect. Its sender hears of a broken connection, or nothing.
    RequestLost {
        /// Whether the sender hears nothing.
        silently: bool,
    },
    /// An answer is lost: the request took effect. Its sender hears of a broken connection, or nothing.
    ResponseLost {
        /// Whether the sender hears nothing.
        silently: bool,
    },
    /// A request is under way for up to this much longer.
    RequestDelayed {
        /// At most how long.
        by_ms: u64,
    },
    /// An answer is under way for up to this much longer.
    ResponseDelayed {
        /// At most how long.
        by_ms: u64,
    },
    /// The client takes up to this much longer to connect. Of a request that it drops before that no byte is sent.
    SlowConnect {
        /// At most how long.
        by_ms: u64,
    },
    /// The server processes a request for up to this much longer before it takes effect.
    SlowServer {
        /// At most how long.
        by_ms: u64,
    },
    /// An answer takes this long for each megabyte.
    SlowTransfer {
        /// How long.
        ms_per_megabyte: u64,
    },
    /// The connection is half-open: a request arrives up to 5 s late, the reset by its sender does not, and the answer
    /// is lost silently.
    HalfOpen,
    /// One server behind the load balancer dies at `from_ms` without closing its connections: watches that are open
    /// send no data any more and stay open, and requests until `until_ms` take effect and lose their answers silently.
    ServerDies,
    /// 401: the credentials of the sender have expired.
    Unauthorized,
    /// 409 for updates, patches and deletes: somebody else was faster.
    Conflict,
    /// 429 with `Retry-After`.
    TooManyRequests {
        /// When to ask again.
        retry_after_seconds: u32,
    },
    /// 500, without effect.
    InternalError,
    /// 503, without effect.
    Unavailable,
    /// 503 for lists and new watches, as from a server whose watch cache is not ready. Writes are executed.
    ReadsUnavailable,
    /// 504: the server gave up waiting for its own storage, and the write took effect all the same.
    TimedOut,
    /// 410 for watches, and for lists that name a version or continue from a page.
    Expired,
    /// 403 for creates: the namespace is being terminated.
    NamespaceTerminating,
    /// 403 for creates: the quota is used up.
    QuotaExceeded,
    /// 403 for writes: a role is missing, or a webhook refuses.
    Forbidden,
    /// A watch goes silent and stays open: no end, no error.
    WatchStalled,
    /// Events of watches are held back until `until_ms`, without an end or an error. Requests are answered.
    WatchHeld,
    /// A watch ends, as when its time is up.
    WatchClosed,
    /// A watch breaks off with an error.
    WatchReset,
    /// A watch tells that its version has expired (410 in the stream), and ends.
    WatchExpired,
    /// Events of a watch come up to this much later, in order.
    WatchDelayed {
        /// At most how long.
        by_ms: u64,
    },
    /// An event comes twice.
    EventDuplicated,
    /// Events are held back this long, and an object that was added and deleted meanwhile is never shown: what a
    /// watcher sees that was away and lists again. A bookmark takes the place of what was left out.
    Coalesced {
        /// How long events are held back.
        within_ms: u64,
    },
    /// Bookmarks are left out, save the one that ends an initial list.
    BookmarksMissing,
    /// The bookmark that ends an initial list (WatchList) never comes.
    EndBookmarkMissing,
    /// Lists that may come from a cache, and watches, are served by a replica whose cache stopped when the fault
    /// began.
    StaleReplica,
    /// Nothing gets through in either direction: requests and answers are lost silently; events of watches wait.
    Partition,
    /// In lists and watches one object's fields are not of their type.
    Poison {
        /// The object's name.
        name: String,
    },
    /// The process dies at `from_ms`. Carried out by whoever runs it.
    Crash,
    /// The process stands still from `from_ms` to `until_ms`, as after SIGSTOP and before SIGCONT: nothing of it runs, and
    /// its clock continues. What it has sent arrives. Carried out by whoever runs it.
    Pause,
    /// The machine of the process is suspended from `from_ms` to `until_ms`, as by its hypervisor: as [`FaultAction::Pause`], but
    /// its monotonic clock stops too, and its wall clock advances. Carried out by the caller that runs the process.
    Suspend,
    /// The process dies at its n-th write, counted from 1 without leases and events; with no instance named, at the
    /// n-th of all processes, and it is the writer that dies.
    CrashAtWrite {
        /// Which.
        write: u64,
        /// Whether the write takes effect first. If another fault keeps it from that, the process dies all the same.
        after_effect: bool,
    },
    /// The server is restored at `until_ms` to its state at `from_ms`, as from a backup: later writes are undone, their
    /// versions are assigned again, and open watches end. Carried out by the script that owns the server.
    Restore,
    /// The machine's clock runs at this rate, from the start on. Carried out by whoever runs it.
    ClockRate {
        /// Local time,
        numerator: u32,
        /// over true time.
        denominator: u32,
    },
    /// The machine's wall time is stepped. Carried out by whoever runs it.
    WallStep {
        /// By how much.
        by_ms: i64,
    },
}

const ALWAYS: u16 = 1000;

fn always() -> u16 {
    ALWAYS
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes references")]
fn is_always(permille: &u16) -> bool {
    *permille >= ALWAYS
}

impl FaultPlan {
    /// A plan in which nothing goes wrong.
    pub fn quiet(seed: u64) -> Self {
        FaultPlan { seed, faults: Vec::new() }
    }

    /// The plan that was printed.
    ///
    /// # Errors
    /// When the text is no plan.
    pub fn from_json(text: &str) -> Result<Self, serde_json::Error> {
        serde_json::from_str(text)
    }

    /// When the last fault is over.
    pub fn end(&self) -> Duration {
        Duration::from_millis(self.faults.iter().map(|fault| fault.until_ms).max().unwrap_or_default())
    }
}

impl fmt::Display for FaultPlan {
    /// The line that can be pasted into a test.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let faults: Vec<String> = self.faults.iter().map(ToString::to_string).collect();
        let faults = faults.join(",\n    ");
        write!(f, "FaultPlan::from_json(r##\"{{\"seed\": {}, \"faults\": [\n    {faults}\n]}}\"##)", self.seed)
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&serde_json::to_string(self).map_err(|_| fmt::Error)?)
    }
}

impl Fault {
    /// A fault that strikes everything from the start, for this long.
    pub fn during(until: Duration, what: FaultAction) -> Self {
        let until_ms = u64::try_from(until.as_millis()).unwrap_or(u64::MAX);
        Fault { from_ms: 0, until_ms, instance: None, resource: None, permille: ALWAYS, what }
    }

    /// The same, from then on.
    #[must_use]
    pub fn from(self, from: Duration) -> Self {
        Fault { from_ms: u64::try_from(from.as_millis()).unwrap_or(u64::MAX), ..self }
    }

    /// The same, for one sender.
    #[must_use]
    pub fn for_instance(self, instance: &str) -> Self {
        Fault { instance: Some(instance.to_owned()), ..self }
    }

    /// The same, for requests on one resource.
    #[must_use]
    pub fn for_resource(self, resource: &str) -> Self {
        Fault { resource: Some(resource.to_owned()), ..self }
    }

    /// The same, for that many out of a thousand.
    #[must_use]
    pub fn permille(self, permille: u16) -> Self {
        Fault { permille, ..self }
    }

    /// Whether it strikes this sender at all.
    pub fn concerns(&self, instance: &str) -> bool {
        self.instance.as_deref().is_none_or(|name| name == instance)
    }

    pub(super) fn is_on(&self, now: Duration) -> bool {
        (self.begins()..self.ends()).contains(&now)
    }

    pub(super) fn matches(&self, asked: &RequestSummary) -> bool {
        self.resource.as_deref().is_none_or(|resource| resource == asked.resource)
    }

    pub(super) fn begins(&self) -> Duration {
        Duration::from_millis(self.from_ms)
    }

    pub(super) fn ends(&self) -> Duration {
        Duration::from_millis(self.until_ms)
    }
}
