//! Lists and watches: which objects, at which version, told how.
//!
//! Guarantees:
//! - A list is of one revision, also when it is fetched in pages.
//! - A watch tells every change after its version once and in order, or says that it cannot (410) and ends.
//! - An object that starts or ceases to be selected is told as ADDED or DELETED.
//! - Who watches is woken in registration order, and waits on nothing but `Env` and storage.
//!
//! It refuses to encode: what is told are stored objects, whose bytes are shared.

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
