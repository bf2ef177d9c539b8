//! Whose credentials the requests of controllers carry: those of the process, or each controller its own.
//!
//! With [`Identities::ServiceAccounts`](crate::Identities::ServiceAccounts) each controller acts as the ServiceAccount of its name, so that its role says
//! what it may do and the server's audit log what it did. The account is made if it is not there, and a token for it is
//! asked for with the first request that needs one. What it guarantees:
//! - Nothing else of who the process is goes with such a request: no client certificate, and so connections of their
//!   own; no token, password or plugin; no impersonation, and no other header that the configuration names. Server,
//!   its authorities, proxy and server name stay.
//! - A token is renewed well before it expires, by one request at a time, and at a moment that chance spreads. While a
//!   renewal fails the old token is used for as long as it is good.
//! - A token that the server no longer takes (401) is thrown away, and the request sent once more with a new one. An
//!   account that was deleted is made again.
//! - Lifetimes are counted from when a token was asked for, by the process's own clock. Nobody's wall clock matters.
//! - Whoever has no token sends nothing: an account without a name, and an answer without a token, are errors.
//! - A token is part of no error, log or `Debug` output.
//!
//! Accounts and tokens are asked for as the process itself, behind neither limiter nor fence, and before the request
//! meets the fence. Informers, election and health keep the credentials of the process.
//!
//! It refuses to make namespaces: one that is missing is misspelled more often than not.

pub(crate) mod account;
pub(crate) mod anonymous;
pub(crate) mod bearer;
mod plugin;
pub(crate) mod process;
pub(crate) mod tokens;
