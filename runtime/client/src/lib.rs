//! Identities, limits, fences and metrics around kube's client; raw list and watch bytes.
//!
//! Guarantees:
//! - Limits are per identity, and first come is first served.
//! - Every request is counted by verb, resource and code, also one that was refused here or given up by its caller.
//! - Every request ends: answered, or failed at its deadline, unless its caller set none ([`RequestOptions`]). A watch never
//!   stays silent for longer than its own timeout and 30 s. A list whose answer has begun within the deadline can take
//!   longer while bytes arrive: at most 30 s without one, and 16 KiB per second on average.
//! - No write leaves without the fence's consent, asked once its connection is established, and one in flight is dropped
//!   with its connection when the fence closes ([`Fence`]). The server is told not to work on a write beyond the fence's
//!   deadline or the caller's.
//! - A worker learns of every write it made: that it took effect, or that nobody knows ([`WriteLog`]).
//! - Nothing that may have taken effect is retried here: only the caller knows whether doing it twice does harm. What
//!   a busy server turned away (429) and asks for again is sent again, up to ten times within its time limit and never
//!   faster than it asks, but for watches and the election; what it then still says is handed to the caller
//!   ([`retry_after`], [`RequestError::TooManyRequests`]).
//! - No identity has more than 64 requests on the wire, apart from watches and requests without a time limit.
//! - After [`Clients::drain`] no worker's request waits: it leaves at once or fails.
//! - A refusal by any layer leaves the client usable.
//! - Controllers may each have a ServiceAccount of their own, and then nothing of the process's own credentials goes
//!   with their requests ([`Identities`]).
//! - What a role lacks is told with the rule to add, read off the server's refusal ([`denial`]).
//! - No secret is part of any error or `Debug` output.
//!
//! It refuses to decode objects, and to decide what happens after an error.
//!
//! The stack is built from kube's parts, not with `ClientBuilder::try_from`, which retries creates that may have
//! taken effect and knows no deadline.

mod answer;
mod clients;
mod config;
mod connect;
mod error;
mod identities;
mod options;
mod pool;
mod progress;
mod raw;
mod reachability;
mod stack;
#[cfg(test)]
mod tests;

pub use self::{
    answer::{found, is_not_found, send},
    clients::{Clients, ControllerClients},
    config::{Cluster, ClusterSource, ConfigError, infer_config, load_config},
    error::{
        ClientError, CredentialsError, DeadlineError, DrainingError, FencedError, IdentityCause,
        IdentityError, KilledError, MissingPermission, NotDeclaredError, RequestError, TurnOverError,
        WatchIdleError, draining, killed, missing_permission, one_line, one_line_with_rule, refusal,
        retry_after, timed_out, turn_over, undeclared,
    },
    options::{ClientOptions, ClientOptionsError, Identities},
    progress::RequestProgress,
    raw::{FrameStream, ListQuery, RawClient, VersionMatch, WatchQuery},
    reachability::{Reachability, Resumption},
    stack::{
        declared::DeclaredVerbs,
        fence::{Fence, FenceState, OpenFence},
        request_options::RequestOptions,
        tag::DryRun,
        write_log::{CacheState, OpenWrites, Write, WriteLog, WriteTarget},
    },
};
