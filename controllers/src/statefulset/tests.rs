//! Cases of upstream's unit tests.

mod claims;
mod fixtures;
mod identities;
mod planning;
mod revisions;
mod statuses;
