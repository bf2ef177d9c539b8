//! How clients behave, and which options are refused.

use std::time::Duration;

/// How clients behave.
#[derive(Clone, Debug, PartialEq)]
pub struct ClientOptions {
    /// Requests per second and identity, in the long run. Default 0. Zero or less is no limit: the number of requests in
    /// flight and the server's priority and fairness bound the load. Otherwise from [`MIN_QPS`](Self::MIN_QPS) to
    /// [`MAX_QPS`](Self::MAX_QPS).
    pub qps: f64,
    /// Requests per identity at once, after a pause, if `qps` limits them. Default 30, as kube-controller-manager's. Zero
    /// counts as one; at most [`MAX_BURST`](Self::MAX_BURST).
    pub burst: u32,
    /// The name servers log. Identities append theirs: `windlass/0.1.0/replicaset-controller`.
    pub user_agent: String,
    /// How long a request may take from leaving the limiter to the last byte of its answer; a list, to the first, from
    /// where on it must make progress. Also how long a busy server is waited for. Default 60 s, what API servers allow
    /// themselves.
    pub request_timeout: Duration,
    /// How long a connection may take to be made, TLS and all. Default 10 s: within a lease's renew deadline, so
    /// that another address can still be tried.
    pub connect_timeout: Duration,
    /// How long sent data can stay unacknowledged before the connection is closed (`TCP_USER_TIMEOUT`; Linux). Default
    /// 30 s. With leader election at most lease duration minus renew deadline: so long can a write arrive late. At
    /// least 1 ms: for less the kernel uses its own default of about 15 minutes.
    pub unacknowledged_timeout: Duration,
    /// Whose credentials the requests of controllers carry. Default: those of the process.
    pub identities: Identities,
}

impl Default for ClientOptions {
    fn default() -> Self {
        Self {
            qps: 0.0,
            burst: 30,
            user_agent: concat!("windlass/", env!("CARGO_PKG_VERSION")).into(),
            request_timeout: Duration::from_secs(60),
            connect_timeout: Duration::from_secs(10),
            unacknowledged_timeout: Duration::from_secs(30),
            identities: Identities::Shared,
        }
    }
}

impl ClientOptions {
    /// The lowest rate, one request in a thousand seconds: whoever waits longer for each has no use for a controller.
    pub const MIN_QPS: f64 = 0.001;

    /// The highest rate. No server answers as many to one client, so this is no limit already.
    pub const MAX_QPS: f64 = 1_000_000.0;

    /// The largest burst. With the lowest rate it stands for thirty years of requests, which a clock can still count.
    pub const MAX_BURST: u32 = 1_000_000;

    /// Checks what can be checked without a server.
    ///
    /// # Errors
    /// The first limit that is none: a rate of which neither "no limit" nor a pace can be made.
    pub fn validate(&self) -> Result<(), ClientOptionsError> {
        let is_pace = (Self::MIN_QPS..=Self::MAX_QPS).contains(&self.qps);
        if !(is_pace || self.qps.is_finite() && self.qps <= 0.0) {
            return Err(ClientOptionsError::Rate(self.qps.to_string()));
        }
        if self.burst > Self::MAX_BURST {
            return Err(ClientOptionsError::Burst(self.burst));
        }
        if self.unacknowledged_timeout < Duration::from_millis(1) {
            return Err(ClientOptionsError::UnacknowledgedTimeout(self.unacknowledged_timeout));
        }
        Ok(())
    }
}

/// Limits that cannot be kept.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ClientOptionsError {
    /// The rate is too low, too high or no number.
    #[error(
        "no client can be limited to {0} requests per second: choose {least} to {most}, or zero or less for no limit",
        least = ClientOptions::MIN_QPS,
        most = ClientOptions::MAX_QPS
    )]
    Rate(String),
    /// The burst is too large.
    #[error("no client can be granted {0} requests at once: choose {most} at most", most = ClientOptions::MAX_BURST)]
    Burst(u32),
    /// The kernel cannot bound the time that sent data stays unacknowledged.
    #[error(
        "sent data cannot be limited to {0:?} without acknowledgement: choose 1 ms or more; with leader election, make the \
         lease duration exceed the renew deadline by that"
    )]
    UnacknowledgedTimeout(Duration),
}

/// Whose credentials the clients of controllers carry.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Identities {
    /// Those of the process, all of them. The default, as kube-controller-manager's.
    #[default]
    Shared,
    /// Each controller its own: the ServiceAccount of its client name.
    ServiceAccounts {
        /// Where the accounts are. Whoever may make tokens there may do what any controller may; upstream's are in
        /// `kube-system`.
        namespace: String,
    },
}

impl Identities {
    /// Accounts in `kube-system`, where the roles that every API server makes at its start look for them.
    pub fn service_accounts() -> Self {
        Self::ServiceAccounts { namespace: "kube-system".into() }
    }
}
