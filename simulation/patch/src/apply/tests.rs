//! Tests of server-side apply with upstream's cases and own cases.

mod entries;
mod recorded;
mod sets;
mod upstream;
