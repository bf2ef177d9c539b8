//! The credentials of controllers' requests: those of the process, or a ServiceAccount per controller.
//!
//! With [`Identities::ServiceAccounts`](crate::Identities::ServiceAccounts) each controller acts as the ServiceAccount
//! of its name. Its role then limits its requests, and the audit log names it. A missing ServiceAccount is created, and
//! a token is requested for the first request that needs it. Guarantees:
//! - Such a request contains no credentials of the process: no client certificate (so connections are separate), no
//!   token, password, plugin or impersonation, and no configured header. Server, CA, proxy and server name are kept.
//! - A token is renewed well before it expires, by one request at a time, at a random time. If renewal fails, the
//!   previous token is used until it expires.
//! - A token that the server rejects (401) is dropped, and the request is repeated once with a new token. A deleted
//!   ServiceAccount is created again.
//! - Lifetimes are counted from the time of the token request, by the process's monotonic clock. Wall clocks are not
//!   used.
//! - Without a token nothing is sent: an invalid account name and a response without a token are errors.
//! - Tokens do not appear in errors, logs or `Debug` output.
//!
//! Requests for ServiceAccounts and tokens use the credentials of the process. They pass neither rate limiter nor
//! fence, and are sent before the request passes the fence. Informers, election and health use the credentials of the
//! process.
//!
//! A missing namespace is not created, because its name is usually misspelled.

pub(crate) mod account;
pub(crate) mod anonymous;
pub(crate) mod bearer;
mod plugin;
pub(crate) mod process;
pub(crate) mod tokens;
