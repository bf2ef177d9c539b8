//! Options of clients, and their validation.

use std::time::Duration;

use crate::formats::WireFormat;

/// Options of clients.
///
/// ```
/// use windlass_client::ClientOptions;
///
/// // At most 20 requests per second of each controller.
/// let options = ClientOptions { qps: 20.0, ..ClientOptions::default() };
/// assert_eq!(options.burst, 30);
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct ClientOptions {
    /// Average rate limit per identity, in requests per second. Default 0. Zero or less disables the limit: the number
    /// of requests in flight and the server's API Priority and Fairness then limit the load. Otherwise between
    /// [`MIN_QPS`](Self::MIN_QPS) and [`MAX_QPS`](Self::MAX_QPS).
    pub qps: f64,
    /// Maximum burst of requests per identity, if `qps` limits them. Default 30, as in kube-controller-manager. Zero
    /// counts as one; at most [`MAX_BURST`](Self::MAX_BURST).
    pub burst: u32,
    /// The user agent. Identities append their name: `windlass/0.1.0/replicaset-controller`.
    pub user_agent: String,
    /// Time limit of a request, from leaving the rate limiter to the last byte of the response. For a list it ends at
    /// the first byte; after that the list must make progress. Also limits the wait for a busy server. Default 60 s,
    /// the time limit of API servers.
    pub request_timeout: Duration,
    /// Time limit for establishing a connection, including TLS. Default 10 s: shorter than the renew deadline of a
    /// Lease, so that another address can still be tried.
    pub connect_timeout: Duration,
    /// Time that sent data can stay unacknowledged before the connection is closed (`TCP_USER_TIMEOUT`; Linux). Default
    /// 30 s. With leader election, at most two fifths of `fence_allowance`, or 1 s if that is longer, because a write
    /// can arrive that late. At least 1 ms: for less the kernel uses its own default of about 15 minutes.
    pub unacknowledged_timeout: Duration,
    /// Time after the end of a fence in which a write that was sent before can take effect. Default zero. With leader
    /// election, the manager sets the lease duration minus the renew deadline. The part that `unacknowledged_timeout`
    /// leaves is time for the server and its webhooks.
    pub fence_allowance: Duration,
    /// Credentials of the controllers' requests. Default: those of the process.
    pub identities: Identities,
    /// Format of the lists and watches of informers. Default protobuf, where kind and server support it; other requests
    /// are in JSON.
    pub format: WireFormat,
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
            fence_allowance: Duration::ZERO,
            identities: Identities::Shared,
            format: WireFormat::Protobuf,
        }
    }
}

impl ClientOptions {
    /// Returns the time after the end of a fence in which the server can process a write.
    pub(crate) fn server_allowance(&self) -> Duration {
        self.fence_allowance.saturating_sub(self.unacknowledged_timeout)
    }

    /// The minimum rate: one request in 1000 seconds. A controller is not usable below it.
    pub const MIN_QPS: f64 = 0.001;

    /// The maximum rate. No server processes more requests of one client.
    pub const MAX_QPS: f64 = 1_000_000.0;

    /// The maximum burst. At the minimum rate it takes thirty years to refill, which the clock can still represent.
    pub const MAX_BURST: u32 = 1_000_000;

    /// Validates the options, as far as possible without a server.
    ///
    /// # Errors
    /// The first invalid limit: a rate that is neither "no limit" nor within the bounds, for example.
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

/// Factors of the rate limit of one identity. Zero counts as one.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct RateFactors {
    /// Factor of [`ClientOptions::qps`].
    pub qps: u16,
    /// Factor of [`ClientOptions::burst`].
    pub burst: u16,
}

impl RateFactors {
    /// The limit of the options.
    pub const ONE: Self = Self { qps: 1, burst: 1 };

    /// Returns average rate and burst of an identity, at most [`ClientOptions::MAX_QPS`] and
    /// [`ClientOptions::MAX_BURST`].
    pub(crate) fn applied(self, qps: f64, burst: u32) -> (f64, u32) {
        let qps = (qps * f64::from(self.qps.max(1))).min(ClientOptions::MAX_QPS);
        (qps, burst.saturating_mul(self.burst.max(1).into()).min(ClientOptions::MAX_BURST))
    }
}

/// Error for invalid limits.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ClientOptionsError {
    /// The rate is too low, too high or not a number.
    #[error(
        "invalid rate limit of {0} requests per second; set {least} to {most}, or 0 for no limit",
        least = ClientOptions::MIN_QPS,
        most = ClientOptions::MAX_QPS
    )]
    Rate(String),
    /// The burst is too large.
    #[error("invalid burst of {0} requests; set at most {most}", most = ClientOptions::MAX_BURST)]
    Burst(u32),
    /// The kernel cannot limit the time that sent data stays unacknowledged.
    #[error(
        "unacknowledged_timeout of {0:?} is too short; set at least 1ms; with leader election, make the lease duration \
         at least 1ms longer than the renew deadline"
    )]
    UnacknowledgedTimeout(Duration),
}

/// The credentials of the controllers' clients.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Identities {
    /// The credentials of the process, for all controllers. The default, as in kube-controller-manager.
    #[default]
    Shared,
    /// A separate ServiceAccount for each controller, with the name of its client.
    ServiceAccounts {
        /// The namespace of the ServiceAccounts. A user who can create tokens in it has the permissions of every
        /// controller; upstream uses `kube-system`.
        namespace: String,
    },
}

impl Identities {
    /// Returns ServiceAccounts in `kube-system`, which the default roles of API servers refer to.
    pub fn service_accounts() -> Self {
        Self::ServiceAccounts { namespace: "kube-system".into() }
    }
}
