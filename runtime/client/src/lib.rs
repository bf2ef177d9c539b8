//! Clients with identities, rate limits, fences and metrics around kube's client, and lists and watches as raw bytes.
//!
//! Guarantees:
//! - Rate limits are per identity, and requests are served in order of arrival.
//! - Every request is counted by verb, resource and code, including requests that the client rejected or the caller
//!   dropped.
//! - Every request completes: with a response, or with an error at its time limit, unless the caller disabled the limit
//!   ([`RequestOptions`]). A watch fails if it receives no data for 30 s longer than its own timeout. A list whose
//!   response starts within the time limit can take longer while data arrives: with gaps of at most 30 s, and at 16 KiB
//!   per second on average.
//! - A write is sent only if its fence permits it, checked after the connection is established. When the fence closes,
//!   a write in flight is dropped with its connection ([`Fence`]). The `timeout` parameter of the write ends the
//!   processing in the server before a standby can write, or when the caller stops waiting.
//! - A worker is notified of each of its writes: that it took effect, or that the outcome is unknown ([`WriteLog`]).
//! - A request that might have taken effect is not repeated: only the caller knows whether that is safe. A request that
//!   a server rejects with a retry delay, because it is busy (429) or shuts down (503), is sent at most ten times
//!   within its time limit, and never earlier than requested. Watches and requests of the election are sent once. After
//!   the last attempt the error is returned ([`retry_after`], [`RequestError::TooManyRequests`]).
//! - An identity has at most 64 requests in flight, not counting watches and requests without a time limit.
//! - After [`Clients::drain`] requests of workers do not wait: they are sent immediately or fail.
//! - A client stays usable after any layer rejects a request.
//! - Each controller can use its own ServiceAccount. Its requests then contain no credentials of the process
//!   ([`Identities`]).
//! - A missing permission is reported with the rule to add, parsed from the server's error ([`missing_permission()`]).
//! - Errors and `Debug` output contain no secrets.
//!
//! This crate does not decode objects, and does not decide how to continue after an error.
//!
//! The stack is built from kube's parts instead of `ClientBuilder::try_from`, which repeats creates that might have
//! taken effect and has no time limit.

mod clients;
mod config;
mod connect;
mod error;
mod formats;
mod gated_stream;
mod identities;
mod options;
mod pool;
mod progress;
mod raw;
mod reachability;
mod response;
mod stack;
#[cfg(test)]
mod tests;

pub use self::{
    clients::{Clients, ControllerClients},
    config::{Cluster, ClusterSource, ConfigError, infer_config, load_config, server_authority},
    error::{
        ClientError, CredentialsError, DeadlineError, DrainingError, FencedError, IdentityCause,
        IdentityError, KilledError, MissingPermission, NotDeclaredError, ReconcileEndedError, RequestError,
        WatchIdleError, draining, fenced, killed, missing_permission, one_line, one_line_with_rule,
        reconcile_ended, retry_after, timed_out, undeclared,
    },
    formats::WireFormat,
    options::{ClientOptions, ClientOptionsError, Identities, RateFactors},
    progress::RequestProgress,
    raw::{FrameStream, ListQuery, RawClient, VersionMatch, WatchQuery},
    reachability::{Reachability, Resumption},
    response::{is_not_found, optional, send},
    stack::{
        declared::DeclaredVerbs,
        fence::{Fence, FenceState, OpenFence},
        metrics::TRACE_TARGET,
        request_options::RequestOptions,
        tag::DryRun,
        write_log::{CacheState, OpenWrites, Write, WriteLog, WriteTarget},
    },
};
