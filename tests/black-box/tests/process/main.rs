//! The process as its operators meet it, on a real control plane: identities, rights, elections, shards, the
//! admin server.

mod admin;
mod coordinated;
mod explain;
mod generated_roles;
mod identities;
mod injected_causes;
mod migration;
mod operator;
mod rights;
mod rules;
mod shards;
mod webhooks;
