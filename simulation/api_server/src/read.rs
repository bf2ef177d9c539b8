//! Lists and watches of a collection at a resource version.
//!
//! Guarantees:
//! - All pages of a list have the same revision.
//! - A watch delivers each change after its version exactly once and in order, or fails with 410 and ends.
//! - An object that starts or stops matching the selector is delivered as ADDED or DELETED.
//! - Watches are woken in registration order. They wait only for `Env` and storage.
//!
//! Non-goal: encoding. Lists and watches return stored objects, whose bytes are shared.

mod fields;
mod labels;
mod list;
mod selection;
mod shard_selector;
#[cfg(test)]
mod tests;
mod token;
mod version;
mod view;
mod watch;

pub use self::fields::{FieldReader, FieldSelector, FieldTable, not_supported};
pub use self::labels::LabelSelector;
pub use self::list::{ListOptions, ListResponse, get, list, settle};
pub use self::selection::Selection;
pub use self::shard_selector::{ParseSelectorError, ShardSelector};
pub use self::view::ReadView;
pub use self::watch::{WatchEvent, WatchOptions, watch};
