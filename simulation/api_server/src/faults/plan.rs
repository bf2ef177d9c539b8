//! Fault plans as data.

use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::request_summary::RequestSummary;

/// All faults of one run. `Display` prints a line that can be pasted into a test.
///
/// # Examples
/// ```
/// use std::time::Duration;
/// use windlass_api_server::faults::{Fault, FaultAction, FaultPlan};
///
/// // Half of the requests for Pods fail with 503 in the first minute.
/// let minute = Duration::from_secs(60);
/// let fault = Fault::until(minute, FaultAction::Unavailable).for_resource("pods").permille(500);
/// let plan = FaultPlan { seed: 1, faults: vec![fault] };
/// assert_eq!(plan.end(), minute);
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FaultPlan {
    /// Seed of all random choices.
    pub seed: u64,
    /// The faults, in no particular order.
    pub faults: Vec<Fault>,
}

/// One fault with its time window and filters.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Fault {
    /// Start of the window, in virtual milliseconds since the start of the run.
    pub from_ms: u64,
    /// End of the window. A crashed process restarts then.
    pub until_ms: u64,
    /// Instance whose requests are affected; `None` for all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub instance: Option<String>,
    /// Plural name of the affected resource; `None` for all requests, including health checks.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resource: Option<String>,
    /// Number of the only affected write, at any time: counted from 1 without Leases and Events, for the named instance
    /// or for all processes. `None` for all requests in the window.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub write: Option<u64>,
    /// Probability per thousand, for each request, watch or event that the fault applies to.
    #[serde(default = "always", skip_serializing_if = "is_always")]
    pub permille: u16,
    /// The fault.
    #[serde(rename = "what")]
    pub action: FaultAction,
}

/// A kind of fault.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum FaultAction {
    /// A request is lost before it takes effect. Its sender gets a connection error, or no response.
    RequestLost {
        /// Whether the sender gets no response instead of an error.
        silently: bool,
    },
    /// A response is lost after the request took effect. Its sender gets a connection error, or no response.
    ResponseLost {
        /// Whether the sender gets no response instead of an error.
        silently: bool,
    },
    /// The transit of a request takes up to this much longer.
    RequestDelayed {
        /// Maximum delay.
        by_ms: u64,
    },
    /// The transit of a response takes up to this much longer.
    ResponseDelayed {
        /// Maximum delay.
        by_ms: u64,
    },
    /// Connecting takes up to this much longer. If the client drops the request before, no byte is sent.
    SlowConnect {
        /// Maximum delay.
        by_ms: u64,
    },
    /// The server processes a request for up to this much longer before it takes effect.
    SlowServer {
        /// Maximum delay.
        by_ms: u64,
    },
    /// A response is transferred slowly.
    SlowTransfer {
        /// Transfer time per megabyte.
        ms_per_megabyte: u64,
    },
    /// The connection is half-open: a request arrives up to 5 s late, the sender's reset does not arrive, and the
    /// response is lost without an error.
    HalfOpen,
    /// One server behind the load balancer dies at `from_ms` without closing its connections. Open watches send no
    /// more data and stay open. Requests until `until_ms` take effect, but their responses are lost without an error.
    ServerDies,
    /// 401: the credentials of the sender have expired.
    Unauthorized,
    /// 409 for updates, patches and deletes of an existing object: another client has changed it.
    Conflict,
    /// 429 with `Retry-After`.
    TooManyRequests {
        /// Seconds to wait before the retry.
        retry_after_seconds: u32,
    },
    /// 500, without effect.
    InternalError,
    /// 503, without effect.
    Unavailable,
    /// 503 for lists and new watches, as from a server whose watch cache is not ready. Writes are executed.
    ReadsUnavailable,
    /// 504: the server timed out waiting for its storage, but the write took effect. A write that the server rejects
    /// gets its own error.
    TimedOut,
    /// 410 for watches, and for lists with a version or a continue token.
    Expired,
    /// 403 for creates: the namespace is terminating.
    NamespaceTerminating,
    /// 403 for creates: the quota is exhausted.
    QuotaExceeded,
    /// 403 for writes: a role is missing, or a webhook denies the request.
    Forbidden,
    /// A watch sends no more data and stays open, without an error.
    WatchStalled,
    /// Watch events are delayed until `until_ms`, without an end or an error. Requests are answered.
    WatchHeld,
    /// A watch ends as after its timeout.
    WatchClosed,
    /// A watch fails with a connection error.
    WatchReset,
    /// A watch sends an error event (410, expired version) and ends.
    WatchExpired,
    /// Events of a watch arrive up to this much later, in order.
    WatchDelayed {
        /// Maximum delay.
        by_ms: u64,
    },
    /// An event is delivered twice.
    EventDuplicated,
    /// Events are delayed, and an object that was added and deleted in that time is omitted, as for a client that was
    /// disconnected and relists. A bookmark replaces the omitted events.
    Coalesced {
        /// Delay of the events.
        within_ms: u64,
    },
    /// Bookmarks are omitted, except the bookmark that ends an initial list.
    BookmarksMissing,
    /// The bookmark that ends an initial list (WatchList) is omitted.
    EndBookmarkMissing,
    /// A replica serves watches, and lists that can be served from a cache. Its cache stopped when the fault began.
    StaleReplica,
    /// The server cannot connect to a webhook. This fault, [`FaultAction::WebhookSilent`] and
    /// [`FaultAction::WebhookFails`] affect calls of webhooks that the named instance serves, for requests to the named
    /// resource.
    WebhookRefused,
    /// A webhook receives a review and does not respond within the time limit.
    WebhookSilent,
    /// A webhook responds with 500.
    WebhookFails,
    /// The link is partitioned in both directions: requests and responses are lost without an error; watch events
    /// wait.
    Partition,
    /// In lists and watches the fields of one object have the wrong type.
    Poison {
        /// The object's name.
        name: String,
    },
    /// The process dies at `from_ms`. The runner of the process implements this fault.
    Crash,
    /// The process is paused from `from_ms` to `until_ms`, as between SIGSTOP and SIGCONT. Its clock continues, and
    /// requests that it has sent arrive. The runner of the process implements this fault.
    Pause,
    /// The machine of the process is suspended from `from_ms` to `until_ms`, as by its hypervisor. Unlike with
    /// [`FaultAction::Pause`], its monotonic clock stops too; its wall clock advances. The runner of the process
    /// implements this fault.
    Suspend,
    /// The process dies at its n-th write, counted from 1 without Leases and Events. If no instance is named, the
    /// writes of all processes count, and the process that sends the n-th write dies.
    CrashAtWrite {
        /// Number of the write.
        write: u64,
        /// Whether the write takes effect first. The process dies even if another fault prevents the effect.
        after_effect: bool,
    },
    /// The server is restored at `until_ms` to its state at `from_ms`, as from a backup. Later writes are undone,
    /// their versions are assigned again, and open watches end. The script that owns the server implements this
    /// fault.
    Restore,
    /// The machine's clock runs at this rate from the start. The runner of the process implements this fault.
    ClockRate {
        /// Local time, the numerator.
        numerator: u32,
        /// True time, the denominator.
        denominator: u32,
    },
    /// The machine's wall clock is stepped. The runner of the process implements this fault.
    WallStep {
        /// Size of the step; negative steps go back.
        by_ms: i64,
    },
}

/// Number of a write, counted from 1 without Leases and Events.
#[derive(Clone, Copy, Debug)]
pub(super) struct WriteNumber {
    /// Among the writes of all processes.
    pub(super) all: u64,
    /// Among the writes of its instance.
    pub(super) own: u64,
}

impl WriteNumber {
    /// Returns the number that a fault refers to.
    pub(super) fn for_fault(self, fault: &Fault) -> u64 {
        if fault.instance.is_some() { self.own } else { self.all }
    }
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
    /// Returns a plan without faults.
    pub fn without_faults(seed: u64) -> Self {
        FaultPlan { seed, faults: Vec::new() }
    }

    /// Parses a printed plan.
    ///
    /// # Errors
    /// If the text is not a valid plan.
    pub fn from_json(text: &str) -> Result<Self, serde_json::Error> {
        serde_json::from_str(text)
    }

    /// Returns the end of the last fault.
    pub fn end(&self) -> Duration {
        Duration::from_millis(self.faults.iter().map(|fault| fault.until_ms).max().unwrap_or_default())
    }
}

impl fmt::Display for FaultPlan {
    /// Writes an expression of type `FaultPlan` that can be pasted into a test.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let faults: Vec<String> = self.faults.iter().map(ToString::to_string).collect();
        let faults = faults.join(",\n    ");
        write!(
            f,
            "FaultPlan::from_json(r##\"{{\"seed\": {}, \"faults\": [\n    {faults}\n]}}\"##).expect(\"a printed plan\")",
            self.seed
        )
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&serde_json::to_string(self).map_err(|_| fmt::Error)?)
    }
}

impl Fault {
    /// Creates a fault that affects only one write of all processes, counted from 1 without Leases and Events.
    pub fn at_write(write: u64, action: FaultAction) -> Self {
        Fault { write: Some(write), ..Fault::until(Duration::ZERO, action) }
    }

    /// Creates a fault that affects everything from the start until `until`.
    pub fn until(until: Duration, action: FaultAction) -> Self {
        let until_ms = u64::try_from(until.as_millis()).unwrap_or(u64::MAX);
        Fault { from_ms: 0, until_ms, instance: None, resource: None, write: None, permille: ALWAYS, action }
    }

    /// Sets the start of the window.
    #[must_use]
    pub fn from(self, from: Duration) -> Self {
        Fault { from_ms: u64::try_from(from.as_millis()).unwrap_or(u64::MAX), ..self }
    }

    /// Limits the fault to one instance.
    #[must_use]
    pub fn for_instance(self, instance: &str) -> Self {
        Fault { instance: Some(instance.to_owned()), ..self }
    }

    /// Limits the fault to requests for one resource.
    #[must_use]
    pub fn for_resource(self, resource: &str) -> Self {
        Fault { resource: Some(resource.to_owned()), ..self }
    }

    /// Sets the probability per thousand.
    #[must_use]
    pub fn permille(self, permille: u16) -> Self {
        Fault { permille, ..self }
    }

    /// Returns whether the fault affects calls of webhooks, and not requests to the server.
    pub fn affects_webhooks(&self) -> bool {
        matches!(
            self.action,
            FaultAction::WebhookRefused | FaultAction::WebhookSilent | FaultAction::WebhookFails
        )
    }

    /// Returns whether the fault can affect this instance.
    pub fn applies_to(&self, instance: &str) -> bool {
        self.instance.as_deref().is_none_or(|name| name == instance)
    }

    pub(super) fn is_on(&self, now: Duration) -> bool {
        (self.begins()..self.ends()).contains(&now)
    }

    /// Returns whether the fault can affect a request that is sent now; `write` is its number if it is a write.
    pub(super) fn is_on_for(&self, now: Duration, write: Option<WriteNumber>) -> bool {
        match self.write {
            None => self.is_on(now),
            Some(number) => write.is_some_and(|it| number == it.for_fault(self)),
        }
    }

    pub(super) fn matches(&self, request: &RequestSummary) -> bool {
        self.resource.as_deref().is_none_or(|resource| resource == request.resource)
    }

    pub(super) fn begins(&self) -> Duration {
        Duration::from_millis(self.from_ms)
    }

    pub(super) fn ends(&self) -> Duration {
        Duration::from_millis(self.until_ms)
    }
}
