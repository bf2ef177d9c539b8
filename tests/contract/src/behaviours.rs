//! The behaviours, a file for each concept.

use crate::Behaviour;

mod apply;
mod create;
mod delete;
mod history;
mod list;
mod objects;
mod patches;
mod read;
mod selectors;
mod subresources;
mod update;
mod watch;

/// Every group by name.
pub const ALL: &[(&str, &[Behaviour])] = &[
    ("apply", apply::ALL),
    ("create", create::ALL),
    ("delete", delete::ALL),
    ("history", history::ALL),
    ("list", list::ALL),
    ("patches", patches::ALL),
    ("read", read::ALL),
    ("selectors", selectors::ALL),
    ("subresources", subresources::ALL),
    ("update", update::ALL),
    ("watch", watch::ALL),
];
