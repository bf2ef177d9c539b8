//! What server-side apply promises, by upstream's cases and by our own.

mod entries;
mod recorded;
mod sets;
mod upstream;
