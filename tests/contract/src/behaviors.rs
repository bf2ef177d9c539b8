//! All behaviors, with one file per concept.

use crate::Behavior;

mod apply;
mod cluster;
mod collections;
mod create;
mod defaults;
mod definitions;
mod delete;
mod discovery;
mod dry_run;
mod formats;
mod history;
mod kinds;
mod list;
mod namespaces;
mod objects;
mod patches;
mod pods;
mod read;
mod rejections;
mod rules;
mod selectors;
mod service_accounts;
mod shards;
mod subresources;
mod tables;
mod update;
mod validation;
mod validation_rules;
mod watch;
mod webhooks;
mod widgets;

/// Group of the behaviors that require a server with sharded lists and watches.
pub const SHARDS: &str = "shards";

/// Group of the behaviors that require a server with the admission of ServiceAccounts.
pub const SERVICE_ACCOUNTS: &str = "service_accounts";

/// All groups by name.
pub const ALL: &[(&str, &[Behavior])] = &[
    ("apply", apply::ALL),
    ("cluster", cluster::ALL),
    ("collections", collections::ALL),
    ("create", create::ALL),
    ("defaults", defaults::ALL),
    ("definitions", definitions::ALL),
    ("delete", delete::ALL),
    ("discovery", discovery::ALL),
    ("dry_run", dry_run::ALL),
    ("formats", formats::ALL),
    ("history", history::ALL),
    ("kinds", kinds::ALL),
    ("list", list::ALL),
    ("namespaces", namespaces::ALL),
    ("patches", patches::ALL),
    ("pods", pods::ALL),
    ("read", read::ALL),
    ("rejections", rejections::ALL),
    ("rules", rules::ALL),
    ("selectors", selectors::ALL),
    (SERVICE_ACCOUNTS, service_accounts::ALL),
    (SHARDS, shards::ALL),
    ("subresources", subresources::ALL),
    ("tables", tables::ALL),
    ("update", update::ALL),
    ("validation", validation::ALL),
    ("validation_rules", validation_rules::ALL),
    ("watch", watch::ALL),
    ("webhooks", webhooks::ALL),
    ("widgets", widgets::ALL),
];
